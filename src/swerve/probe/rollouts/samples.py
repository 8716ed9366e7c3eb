"""Rollouts chosen from the samples of two models: which problems each has right, and whose text is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from swerve.artifacts.responses import Response, by_problem
from swerve.config.probe import ProbeConfig
from swerve.errors import ConfigError, MismatchError, nearest
from swerve.formats.conditions import LENGTH, Condition, field_of
from swerve.probe.recipe import SelectionName
from swerve.probe.rollouts.selection import Rule, Selection, select_by_rules
from swerve.types import Problem

_NUM_SHOWN = 12


def choose_rollouts(
    reference: Sequence[Response],
    final: Sequence[Response],
    *,
    labels: tuple[str, str],
    headline: SelectionName,
    where: Sequence[Condition],
    config: ProbeConfig,
    tie_seed: int,
) -> Selection:
    """Choose rollouts by the samples of the reference and the final checkpoint, at most one per problem and population.

    Where a file has two samples of every problem and more, the first half of them decides, and rollouts of the other
    half are read (see `select_by_rules`). Else the first sample does both.

    Args:
        reference: graded samples of the reference; those without a verdict decide nothing and are not read.
        final: graded samples of the final checkpoint, likewise.
        labels: of the two.
        headline: the headline population.
        where: conditions of problems and lengths.
        config: other populations, and how many rollouts of each.
        tie_seed: of the draws.

    Raises:
        MismatchError: the files have no problem in common, or ask different questions under one id.
        ConfigError: no problem or no rollout is left, or a model has no sample with a verdict.
    """
    # Of the problems that both files have, those that the conditions leave.
    before, after = (by_problem(each for each in side if each.correct is not None) for side in (reference, final))
    for label, group in zip(labels, (before, after), strict=True):
        if not group:
            raise ConfigError(f"no sample of {label} could be graded; look at its answers with swerve grade")
    shared = _shared((before, after), labels)
    of_problems = [condition for condition in where if condition.field != LENGTH]
    left = [name for name in shared if _all_hold(before[name][0].problem, of_problems, before)]
    if not left:
        raise ConfigError(f"--where leaves none of the {len(shared)} problems: {_values(before, shared, of_problems)}")

    # A model with two samples of every problem has some that decide and others that are read.
    groups = [{name: samples[name] for name in left} for samples in (before, after)]
    reference_rule, final_rule = (_rule(group) for group in groups)
    selection = select_by_rules(
        *groups,
        labels=labels,
        rules=(reference_rule, final_rule),
        config=config,
        tie_seed=tie_seed,
        headline=headline,
        fits=lambda sequence: all(
            condition.holds(len(sequence.sampled_positions)) for condition in where if condition.field == LENGTH
        ),
    )
    if not any(rollout.population == headline for rollout in selection.rollouts):
        raise ConfigError(
            f"no rollout is {headline}: {table_line(selection.table, labels)}; choose another --select or --where"
        )
    return replace(selection, num_unshared=len({*before, *after}) - len(shared))


def table_line(counts: Sequence[int], labels: tuple[str, str]) -> str:
    """Return the two-by-two table as a sentence: problems that both, the first, the second, or neither has right.

    >>> table_line([1, 0, 1, 1], ("dpo", "rl"))
    'of 3 problems 1 are right with both, 0 with dpo alone, 1 with rl alone, 1 with neither'
    """
    both, first, second, neither = counts
    return (
        f"of {sum(counts)} problems {both} are right with both, {first} with {labels[0]} alone, {second} with "
        f"{labels[1]} alone, {neither} with neither"
    )


def _shared(groups: Sequence[Mapping[str, Sequence[Response]]], labels: tuple[str, str]) -> list[str]:
    """Return the problems of both files in the order of the first."""
    shared = [name for name in groups[0] if name in groups[1]]
    if not shared:
        first = [next(iter(group)) for group in groups]
        raise MismatchError(
            f"the samples of {labels[0]} and of {labels[1]} have no problem in common (such as {first[0]!r} and "
            f"{first[1]!r}); sample both on the same problems"
        )
    for name in shared:
        problems = [group[name][0].problem for group in groups]
        if len({(" ".join(problem.question.split()), problem.answer) for problem in problems}) > 1:
            raise MismatchError(
                f"problem {name!r} has another question or answer in the samples of {labels[1]} than in those of "
                f"{labels[0]}; sample both on the same problems"
            )
    return shared


def _all_hold(problem: Problem, where: Sequence[Condition], group: Mapping[str, Sequence[Response]]) -> bool:
    for condition in where:
        value = field_of(condition.field, problem)
        if value is None and all(field_of(condition.field, samples[0].problem) is None for samples in group.values()):
            known = sorted({"kind", "level", LENGTH, *problem.metadata} - {"boundary", "ends"})
            raise ConfigError(
                f"--where {condition.text!r}: no problem has '{condition.field}'{nearest(condition.field, known)} "
                f"(there are {', '.join(known)})"
            )
        if not condition.holds(value):
            return False
    return True


def _values(group: Mapping[str, Sequence[Response]], names: Sequence[str], where: Sequence[Condition]) -> str:
    """Say which values there are."""
    parts = []
    for condition in where:
        values = sorted({str(field_of(condition.field, group[name][0].problem)) for name in names})
        more = " ..." if len(values) > _NUM_SHOWN else ""
        parts.append(f"{condition.field} is {', '.join(values[:_NUM_SHOWN])}{more}")
    return "; ".join(parts)


def _rule(samples: Mapping[str, Sequence[Response]]) -> Rule:
    return "split" if min(map(len, samples.values())) > 1 else "single"
