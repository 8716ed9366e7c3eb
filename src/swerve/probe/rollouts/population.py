"""Which rollouts are probed, and what selecting them does to the metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.evaluation import check_evaluation
from swerve.artifacts.files import read_json, read_sealed
from swerve.artifacts.responses import EVALUATION_SCHEMA, Response, read_responses
from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.config import PopulationName, ProbeConfig
from swerve.errors import ArtifactError, ConfigError, MismatchError
from swerve.probe.rollouts.tokenise import marked_positions, token_spans
from swerve.problems import ProblemFamily
from swerve.rollout.groups import completion_text
from swerve.seeds import derive_seed
from swerve.types import Problem

POPULATION = "reference_wrong_final_right"
"""The population of the headline metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A checkpoint's evaluation: of each problem the greedy completion, and the sampled ones."""

    label: str
    greedy: tuple[Response, ...]
    samples: Mapping[str, tuple[Response, ...]]
    """By problem id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The rollouts to read, and how they were found."""

    rollouts: tuple[Response, ...]
    """With population and label of the writer; the headline population first."""
    num_problems: int
    num_reference_wrong: int
    num_reference_wrong_final_right: int
    reference_right: tuple[bool, ...]
    """Of every problem's greedy completion, in the order evaluated."""
    final_right: tuple[bool, ...]
    reselected: tuple[float, ...]
    """Of each problem that greedy decoding selects: how probable another draw of the sampled completions selects it."""
    num_ties: int = 0
    """Verdicts of `split`, of a model on a problem, that were drawn because half of the deciding samples are right."""


def read_evaluated(run: RunDirectory, checkpoint: CheckpointRef) -> Evaluated:
    """Return a checkpoint's evaluation.

    Raises:
        ArtifactError: the checkpoint was not evaluated, or its evaluation is of other weights or damaged.
    """
    path = run.evaluation_path(checkpoint)
    table = path.with_suffix(".parquet")
    if not path.is_file() or not table.is_file():
        raise ArtifactError(f"{checkpoint.label} has no evaluation ({table}); run swerve eval {run.quoted} first")
    entry = read_sealed(path)
    check_evaluation(run, path, entry)
    if entry.get("weights_sha256", "") != checkpoint.weights_sha256:
        raise ArtifactError(f"{path} is of other weights than {checkpoint.label}; run swerve eval {run.quoted} again")
    greedy: list[Response] = []
    samples: dict[str, list[Response]] = {}
    for response in read_responses(table, EVALUATION_SCHEMA):
        if response.temperature == 0:
            greedy.append(response)
        else:
            samples.setdefault(response.problem.id, []).append(response)
    return Evaluated(
        label=checkpoint.label,
        greedy=tuple(greedy),
        samples={name: tuple(responses) for name, responses in samples.items()},
    )


def check_same_settings(run: RunDirectory, reference: CheckpointRef, final: CheckpointRef) -> None:
    """Raise ArtifactError unless two evaluations were made with the same settings.

    Raises:
        ArtifactError: they were made with different settings.
    """
    paths = [run.evaluation_path(one) for one in (reference, final)]
    settings = [read_json(path).get("settings") for path in paths if path.is_file()]
    if len(settings) == 2 and settings[0] != settings[1]:
        raise ArtifactError(
            f"{paths[0]} and {paths[1]} were made with different settings; run swerve eval {run.quoted} again"
        )


def select_rollouts(reference: Evaluated, final: Evaluated, config: ProbeConfig, *, tie_seed: int = 0) -> Selection:
    """Select the rollouts of every population, problems in the order evaluated, one rollout a problem and population.

    With `selection: greedy` problems are sorted by their greedy completions, and these are read. With `split` they are
    sorted by the first half of the sampled completions (a model has a problem right if most of them are, and by a coin
    where as many are wrong), and read are completions of the other half: what is described was not what decided the
    selection. The coins are of `tie_seed`, the model's label and the problem: with ties called wrong a model that is
    right half of the time had 3 of 4 problems wrong by two samples.

    Raises:
        MismatchError: the two evaluations are of different problems.
        ConfigError: `split` with fewer than two samples a problem.
    """
    by_id = {response.problem.id: response for response in final.greedy}
    if by_id.keys() != {response.problem.id for response in reference.greedy}:
        raise MismatchError("the evaluations of the reference and the final checkpoint are of different problems")
    final = replace(final, greedy=tuple(by_id[response.problem.id] for response in reference.greedy))
    draws = {one.label: _draws(one, config, tie_seed) for one in (reference, final)}
    chosen: dict[str, list[Response]] = {POPULATION: []}
    num_flipped = 0
    for first, second in zip(draws[reference.label], draws[final.label], strict=True):
        flipped = not first.right and second.right
        num_flipped += flipped
        # Of each model one completion of the problem for each population.
        for label, completions in ((reference.label, first.read), (final.label, second.read)):
            seen: set[str] = set()
            for completion in completions:
                correct = bool(completion.correct)
                name = _population(is_reference=label == reference.label, correct=correct, flipped=flipped)
                if name not in seen:
                    seen.add(name)
                    chosen.setdefault(name, []).append(replace(completion, population=name, label=label))
    names = [POPULATION, *(name for name in _LABELS if _LABELS[name] in config.populations and name in chosen)]
    right = [tuple(bool(response.correct) for response in one.greedy) for one in (reference, final)]
    return Selection(
        rollouts=tuple(one for name in names for one in chosen[name][: _limit(name, config)]),
        num_problems=len(reference.greedy),
        num_reference_wrong=sum(not one.right for one in draws[reference.label]),
        num_reference_wrong_final_right=num_flipped,
        reference_right=right[0],
        final_right=right[1],
        reselected=_reselected(reference, final),
        num_ties=sum(one.tied for found in draws.values() for one in found),
    )


_LABELS: Mapping[str, PopulationName] = {
    "reference_wrong_final_wrong": "reference_wrong",
    "reference_right": "reference_right",
    "checkpoint_right": "checkpoint_right",
    "checkpoint_wrong": "checkpoint_wrong",
}


def _population(*, is_reference: bool, correct: bool, flipped: bool) -> str:
    if not is_reference:
        return "checkpoint_right" if correct else "checkpoint_wrong"
    if correct:
        return "reference_right"
    return POPULATION if flipped else "reference_wrong_final_wrong"


def _limit(population: str, config: ProbeConfig) -> int:
    return config.max_rollouts if population == POPULATION else config.max_other_rollouts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draw:
    """Whether a model has a problem right, and the completions to read."""

    right: bool
    read: tuple[Response, ...]
    tied: bool = False


def _draws(one: Evaluated, config: ProbeConfig, tie_seed: int) -> list[_Draw]:
    if config.selection == "greedy":
        return [_Draw(right=bool(response.correct), read=(response,)) for response in one.greedy]
    found = []
    for response in one.greedy:
        name = response.problem.id
        samples = one.samples.get(name, ())
        half = len(samples) // 2
        if not half:
            raise ConfigError(
                f"probe.selection=split needs two sampled completions a problem and more; {one.label} has "
                f"{len(samples)}: set eval.samples_per_problem=4 and run swerve eval again"
            )
        verdicts = [bool(sample.correct) for sample in samples[:half]]
        right, tied = majority(verdicts, tie_seed, one.label, name)
        found.append(_Draw(right=right, read=samples[half:], tied=tied))
    return found


def majority(verdicts: Sequence[bool], tie_seed: int, label: str, problem_id: str) -> tuple[bool, bool]:
    """Return whether most verdicts on a problem are right, and whether as many are wrong, which a draw decides.

    >>> majority([True, False, True], 0, "dpo", "p"), majority([True, False], 0, "dpo", "p")[1]
    ((True, False), True)
    """
    twice = 2 * sum(verdicts)
    tied = twice == len(verdicts)
    return twice > len(verdicts) or (tied and derive_seed(tie_seed, label, problem_id) % 2 == 1), tied


def _reselected(reference: Evaluated, final: Evaluated) -> tuple[float, ...]:
    """Return, for each problem selected greedily, the share of pairs of samples that would select it again."""
    shares = []
    for response, other in zip(reference.greedy, final.greedy, strict=True):
        drawn = [one.samples.get(response.problem.id, ()) for one in (reference, final)]
        if response.correct or not other.correct or not all(drawn):
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
