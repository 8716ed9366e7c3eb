"""Rollouts chosen from the samples of two models: which problems each has right, and whose text is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from swerve.artifacts.responses import Response
from swerve.config import ProbeConfig
from swerve.errors import ConfigError, MismatchError, nearest
from swerve.probe.recipe import SelectionName
from swerve.probe.rollouts.selection import Rule, Selection, select
from swerve.types import Problem

_LENGTH = "length"
_NUM_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Condition:
    """`KEY=VALUE,VALUE` or `KEY=LOW..HIGH`: which problems, or which lengths of rollouts, are looked at."""

    text: str

    @property
    def key(self) -> str:
        """What is looked at: `length` (completion tokens), `kind`, `level`, `difficulty`, or a key of the metadata."""
        return self.text.partition("=")[0].strip()

    def holds(self, value: Any) -> bool:
        """Whether a value is among those asked for.

        >>> Condition("level=3,4").holds(3.0), Condition("length=..500").holds(501)
        (True, False)
        >>> Condition("subject=algebra").holds("Algebra")
        True
        """
        return any(_is_in(value, one.strip()) for one in self.text.partition("=")[2].split(","))

    def value_of(self, problem: Problem) -> Any:
        """Return what a problem says of the key; None: nothing."""
        if self.key == "kind":
            return problem.kind
        if self.key in ("level", "difficulty"):
            return problem.metadata.get(self.key, problem.difficulty)
        return problem.metadata.get(self.key)


def parse_conditions(texts: Sequence[str]) -> tuple[Condition, ...]:
    """Return the conditions of `--where`.

    Raises:
        ConfigError: one has no `=`, no value, or a range without numbers.
    """
    for text in texts:
        key, equals, values = (part.strip() for part in text.partition("="))
        if not key or not equals or not all(one.strip() for one in values.split(",")):
            raise ConfigError(f"--where {text!r} must have the form KEY=VALUE, KEY=VALUE,VALUE or KEY=LOW..HIGH")
        for one in values.split(","):
            low, dots, high = one.partition("..")
            if dots and any(end.strip() and _number(end) is None for end in (low, high)):
                raise ConfigError(f"--where {text!r}: the ends of a range are numbers, such as length=100..500")
    return tuple(map(Condition, texts))


def _is_in(value: Any, allowed: str) -> bool:
    low, dots, high = allowed.partition("..")
    number = _number(value)
    if dots:
        least, most = (float(end) if end.strip() else None for end in (low, high))
        return number is not None and (least is None or number >= least) and (most is None or number <= most)
    if number is not None and _number(allowed) is not None:
        return number == _number(allowed)
    return str(value).casefold() == allowed.casefold()


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) or value is None else float(value)
    except (TypeError, ValueError):
        return None


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
    half are read (see `select`). Else the first sample does both.

    Args:
        reference: graded samples of the reference.
        final: graded samples of the final checkpoint.
        labels: of the two.
        headline: the headline population.
        where: conditions of problems and lengths.
        config: other populations, and how many rollouts of each.
        tie_seed: of the draws.

    Raises:
        MismatchError: the files have no problem in common, or ask different questions under one id.
        ConfigError: no problem or no rollout is left.
    """
    # Of the problems that both files have, those that the conditions leave.
    before, after = _by_problem(reference), _by_problem(final)
    shared = _shared((before, after), labels)
    left = [name for name in shared if _all_hold(before[name][0].problem, where, before)]
    if not left:
        raise ConfigError(f"--where leaves none of the {len(shared)} problems: {_values(before, shared, where)}")

    # A model with two samples of every problem has some that decide and others that are read.
    groups = [{name: samples[name] for name in left} for samples in (before, after)]
    reference_rule, final_rule = (_rule(group) for group in groups)
    selection = select(
        *groups,
        labels=labels,
        rules=(reference_rule, final_rule),
        config=config,
        tie_seed=tie_seed,
        headline=headline,
        fits=lambda sequence: _fits(sequence, where),
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


def _by_problem(sequences: Sequence[Response]) -> dict[str, list[Response]]:
    found: dict[str, list[Response]] = {}
    for one in sequences:
        found.setdefault(one.problem.id, []).append(one)
    return found


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
        questions = [group[name][0].problem for group in groups]
        if len({(" ".join(one.question.split()), one.answer) for one in questions}) > 1:
            raise MismatchError(
                f"problem {name!r} has another question or answer in the samples of {labels[1]} than in those of "
                f"{labels[0]}; sample both on the same problems"
            )
    return shared


def _all_hold(problem: Problem, where: Sequence[Condition], group: Mapping[str, Sequence[Response]]) -> bool:
    for one in where:
        value = one.value_of(problem)
        if (
            one.key != _LENGTH
            and value is None
            and all(one.value_of(each[0].problem) is None for each in group.values())
        ):
            known = sorted({"kind", "level", "length", *problem.metadata} - {"boundary", "ends"})
            raise ConfigError(
                f"--where {one.text!r}: no problem has '{one.key}'{nearest(one.key, known)} (there are "
                f"{', '.join(known)})"
            )
        if one.key != _LENGTH and not one.holds(value):
            return False
    return True


def _values(group: Mapping[str, Sequence[Response]], names: Sequence[str], where: Sequence[Condition]) -> str:
    """Say which values there are."""
    parts = []
    for one in where:
        if one.key != _LENGTH:
            found = sorted({str(one.value_of(group[name][0].problem)) for name in names})
            parts.append(f"{one.key} is {', '.join(found[:_NUM_SHOWN])}{' ...' if len(found) > _NUM_SHOWN else ''}")
    return "; ".join(parts)


def _fits(sequence: Response, where: Sequence[Condition]) -> bool:
    return all(one.holds(len(sequence.completion_ids)) for one in where if one.key == _LENGTH)


def _rule(samples: Mapping[str, Sequence[Response]]) -> Rule:
    return "split" if min(map(len, samples.values())) > 1 else "single"
