"""Which rollouts are probed, and what selecting them does to the metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.evaluation import read_evaluation
from swerve.artifacts.response_columns import EVALUATION_SCHEMA
from swerve.artifacts.responses import Response, by_problem, read_response_table
from swerve.artifacts.run import RunDirectory
from swerve.config.probe import ProbeConfig
from swerve.errors import ArtifactError, ConfigError, MismatchError
from swerve.probe.rollouts.selection import Selection, select_by_rules, turned_by_itself
from swerve.probe.rollouts.tokenise import marked_positions, token_spans
from swerve.problems import ProblemFamily
from swerve.rollout.groups import completion_text
from swerve.types import Problem


def read_evaluated(run: RunDirectory, *checkpoints: CheckpointRef) -> list[list[Response]]:
    """Return the responses of each checkpoint's evaluation, greedy and sampled ones.

    Raises:
        ArtifactError: a checkpoint was not evaluated, its evaluation is of other weights or damaged, or two were made
            with different settings.
    """
    settings, responses = list[Mapping[str, Any]](), list[list[Response]]()
    for checkpoint in checkpoints:
        path = run.evaluation_path(checkpoint)
        table = path.with_suffix(".parquet")
        if not path.is_file() or not table.is_file():
            raise ArtifactError(f"{checkpoint.label} has no evaluation ({table}); run swerve eval {run.quoted} first")
        evaluation, again = read_evaluation(run, path), f"run swerve eval {run.quoted} again"
        if evaluation.weights_sha256 != checkpoint.weights_sha256:
            raise ArtifactError(f"{path} is of other weights than {checkpoint.label}; {again}")
        if settings and evaluation.settings != settings[0]:
            first = run.evaluation_path(checkpoints[0])
            raise ArtifactError(f"{first} and {path} were made with different settings; {again}")
        settings.append(evaluation.settings)
        responses.append(read_response_table(table, EVALUATION_SCHEMA))
    return responses


def select_rollouts(
    reference: Sequence[Response],
    final: Sequence[Response],
    config: ProbeConfig,
    *,
    labels: tuple[str, str],
    tie_seed: int = 0,
) -> Selection:
    """Select the rollouts of every population from two evaluations, problems in the order evaluated.

    With `selection: greedy` problems are sorted by their greedy completions, and these are read; with `split` by their
    sampled ones (see `select_by_rules`).

    Args:
        reference: all responses of the reference's evaluation.
        final: those of the final checkpoint's.
        config: which populations, and how many rollouts of each.
        labels: of the two.
        tie_seed: of the draws.

    Raises:
        MismatchError: the two evaluations are of different problems.
        ArtifactError: a response has no verdict.
        ConfigError: `split` with fewer than two samples a problem.
    """
    for label, responses in zip(labels, (reference, final), strict=True):
        unknown = next((each.problem.id for each in responses if each.correct is None), None)
        if unknown is not None:
            raise ArtifactError(
                f"the evaluation of {label} has a response to problem {unknown!r} without a verdict; run swerve eval "
                "again"
            )
    # Of each problem the greedy completion, and the sampled ones.
    before, after = (
        {response.problem.id: response for response in responses if response.temperature == 0}
        for responses in (reference, final)
    )
    if before.keys() != after.keys():
        raise MismatchError("the evaluations of the reference and the final checkpoint are of different problems")
    samples = []
    for responses in (reference, final):
        sampled = by_problem(response for response in responses if response.temperature != 0)
        samples.append({name: sampled.get(name, []) for name in before})

    # What decides: the greedy completion of each problem, or its samples.
    decisive = [{name: [greedy[name]] for name in before} for greedy in (before, after)]
    if config.selection == "split":
        decisive = samples
        for label, groups in zip(labels, samples, strict=True):
            fewest = min(map(len, groups.values()), default=2)
            if fewest < 2:
                raise ConfigError(
                    f"probe.selection=split needs two sampled completions a problem and more; {label} has {fewest}: "
                    "set eval.samples_per_problem=4 and run swerve eval again"
                )
    rules = (config.selection, config.selection)
    selection = select_by_rules(*decisive, labels=labels, rules=rules, config=config, tie_seed=tie_seed)

    # Of each problem that greedy completions select, the share of pairs of samples that would select it again.
    reselected = []
    for name in before:
        drawn = [groups[name] for groups in samples]
        if not before[name].correct and after[name].correct and all(drawn):
            wrong, right = (sum(bool(sample.correct) for sample in group) / len(group) for group in drawn)
            reselected.append((1 - wrong) * right)

    # Accuracies are compared by the greedy completions either way.
    return replace(
        selection,
        reference_right=tuple(bool(response.correct) for response in before.values()),
        final_right=tuple(bool(after[name].correct) for name in before),
        reselected=tuple(reselected),
        turned=selection.turned or turned_by_itself(samples[0], (1, 1)),
    )


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
    """Return a response with the characters of its tokens, its wrong steps and its verdict, None where it has none."""
    text = response.text or ""
    spans = tuple(token_spans(tokenizer, response.completion_ids, text))
    wrong = marked_positions(family.check(response.problem, text), spans)
    return replace(response, spans=spans, wrong=wrong, correct=response.verdict)
