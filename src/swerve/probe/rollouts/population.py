"""Which rollouts are probed, and what selecting them does to the metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.evaluation import read_evaluation
from swerve.artifacts.responses import EVALUATION_SCHEMA, Response, by_problem, read_responses
from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.config import ProbeConfig
from swerve.errors import ArtifactError, ConfigError, MismatchError
from swerve.probe.rollouts.selection import Selection, select
from swerve.probe.rollouts.tokenise import marked_positions, token_spans
from swerve.problems import ProblemFamily
from swerve.rollout.groups import completion_text
from swerve.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A checkpoint's evaluation: of each problem the greedy completion, and the sampled ones."""

    label: str
    greedy: tuple[Response, ...]
    samples: Mapping[str, Sequence[Response]]
    """By problem id."""


def read_evaluated(run: RunDirectory, checkpoint: CheckpointRef) -> Evaluated:
    """Return a checkpoint's evaluation.

    Raises:
        ArtifactError: the checkpoint was not evaluated, or its evaluation is of other weights or damaged.
    """
    # The evaluation is of these weights.
    path = run.evaluation_path(checkpoint)
    table = path.with_suffix(".parquet")
    if not path.is_file() or not table.is_file():
        raise ArtifactError(f"{checkpoint.label} has no evaluation ({table}); run swerve eval {run.quoted} first")
    if read_evaluation(run, path).weights_sha256 != checkpoint.weights_sha256:
        raise ArtifactError(f"{path} is of other weights than {checkpoint.label}; run swerve eval {run.quoted} again")
    # One table holds the greedy completions and the sampled ones.
    responses = read_responses(table, EVALUATION_SCHEMA)
    return Evaluated(
        label=checkpoint.label,
        greedy=tuple(response for response in responses if response.temperature == 0),
        samples=by_problem(response for response in responses if response.temperature != 0),
    )


def check_same_settings(run: RunDirectory, reference: CheckpointRef, final: CheckpointRef) -> None:
    """Raise ArtifactError unless two evaluations were made with the same settings.

    Raises:
        ArtifactError: they were made with different settings.
    """
    paths = [run.evaluation_path(one) for one in (reference, final)]
    settings = [read_evaluation(run, path).settings for path in paths if path.is_file()]
    if len(settings) == 2 and settings[0] != settings[1]:
        raise ArtifactError(
            f"{paths[0]} and {paths[1]} were made with different settings; run swerve eval {run.quoted} again"
        )


def select_rollouts(reference: Evaluated, final: Evaluated, config: ProbeConfig, *, tie_seed: int = 0) -> Selection:
    """Select the rollouts of every population from two evaluations, problems in the order evaluated.

    With `selection: greedy` problems are sorted by their greedy completions, and these are read; with `split` by their
    sampled ones (see `select`).

    Raises:
        MismatchError: the two evaluations are of different problems.
        ConfigError: `split` with fewer than two samples a problem.
    """
    models = (reference, final)
    greedy = [{response.problem.id: response for response in model.greedy} for model in models]
    if greedy[0].keys() != greedy[1].keys():
        raise MismatchError("the evaluations of the reference and the final checkpoint are of different problems")
    names = list(greedy[0])

    # What decides: the greedy completion of each problem, or its samples.
    if config.selection == "split":
        groups = [{name: model.samples.get(name, ()) for name in names} for model in models]
        for model, group in zip(models, groups, strict=True):
            _check_enough_samples(model.label, group)
    else:
        groups = [{name: (responses[name],) for name in names} for responses in greedy]
    selection = select(
        *groups,
        labels=(reference.label, final.label),
        rules=(config.selection, config.selection),
        config=config,
        tie_seed=tie_seed,
    )

    # Accuracies are compared by the greedy completions either way.
    return replace(
        selection,
        reference_right=tuple(bool(greedy[0][name].correct) for name in names),
        final_right=tuple(bool(greedy[1][name].correct) for name in names),
        reselected=_reselected(models, greedy),
    )


def _check_enough_samples(label: str, samples: Mapping[str, Sequence[Response]]) -> None:
    fewest = min(map(len, samples.values()), default=2)
    if fewest < 2:
        raise ConfigError(
            f"probe.selection=split needs two sampled completions a problem and more; {label} has {fewest}: set "
            "eval.samples_per_problem=4 and run swerve eval again"
        )


def _reselected(models: Sequence[Evaluated], greedy: Sequence[Mapping[str, Response]]) -> tuple[float, ...]:
    """Return, for each problem selected greedily, the share of pairs of samples that would select it again."""
    shares = []
    for name in greedy[0]:
        drawn = [model.samples.get(name, ()) for model in models]
        if greedy[0][name].correct or not greedy[1][name].correct or not all(drawn):
            continue
        wrong, right = (sum(bool(sample.correct) for sample in samples) / len(samples) for samples in drawn)
        shares.append((1 - wrong) * right)
    return tuple(shares)


def probe_sequences(
    rollouts: Sequence[Response],
    *,
    family: ProblemFamily,
    tokenizer: PreTrainedTokenizerBase,
    problems: Mapping[str, Problem] | None = None,
) -> list[Response]:
    """Turn rollouts of evaluations into sequences: ids untouched, characters and wrong steps found.

    Args:
        rollouts: what is read.
        family: of the problems.
        tokenizer: of the models.
        problems: by id, as the family gives them: with all that grading needs. One that is not there is made from its
            row.
    """
    known = problems or {}
    sequences = []
    for number, rollout in enumerate(rollouts):
        name = rollout.problem.id
        problem = known[name] if name in known else replace(rollout.problem, family=family.name)
        text = completion_text(tokenizer, rollout.completion_ids)
        named = replace(rollout, problem=problem, text=text, sequence_id=number)
        sequences.append(as_sequence(named, family=family, tokenizer=tokenizer))
    return sequences


def as_sequence(response: Response, *, family: ProblemFamily, tokenizer: PreTrainedTokenizerBase) -> Response:
    """Return a response with the characters of its tokens and its wrong steps; without a verdict it is wrong."""
    text = response.text or ""
    spans = tuple(token_spans(tokenizer, response.completion_ids, text))
    wrong = marked_positions(family.check(response.problem, text), spans)
    return replace(response, spans=spans, wrong=wrong, correct=bool(response.verdict))
