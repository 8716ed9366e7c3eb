"""Rollouts chosen from the samples of two models: which problems each has right, and whose text is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from swerve.artifacts.responses import Response
from swerve.config import ProbeConfig
from swerve.errors import ConfigError, MismatchError, nearest
from swerve.probe.request import SELECTIONS, SelectionName
from swerve.probe.rollouts.imported import ImportedResponses
from swerve.probe.rollouts.population import POPULATION, majority
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRollouts:
    """The rollouts to read, and the table they were chosen by."""

    sequences: tuple[Response, ...]
    """Those of the headline population first."""
    prompts: tuple[Response, ...]
    """One of each problem that the conditions leave, chosen or not: what cross-sampling answers."""
    reference_right: tuple[bool, ...]
    """Of every problem."""
    final_right: tuple[bool, ...]
    rule: Literal["single", "split"]
    """`split`: verdicts are those of the first half of each problem's samples, and rollouts of the second half are
    read; `single`: there is one sample of each problem."""
    num_ties: int
    """Verdicts, of a model on a problem, that were drawn since as many samples are right as wrong."""
    num_unshared: int
    """Problems that only one of the files has, which are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    right: bool
    tied: bool
    read: tuple[Response, ...]


def choose_rollouts(
    reference: ImportedResponses,
    final: ImportedResponses,
    *,
    labels: tuple[str, str],
    selection: SelectionName,
    where: Sequence[Condition],
    config: ProbeConfig,
    tie_seed: int,
) -> ChosenRollouts:
    """Choose rollouts by the samples of the reference and the final checkpoint, at most one per problem and population.

    Where a file has two samples of every problem and more, the first half of them decides (the majority; a draw where
    as many are right as wrong), and rollouts of the other half are read: what is described did not decide. Else the
    first sample does both.

    Args:
        reference: graded samples of the reference.
        final: graded samples of the final checkpoint.
        labels: of the two.
        selection: the headline population.
        where: conditions of problems and lengths.
        config: other populations, and how many rollouts of each.
        tie_seed: of the draws.

    Raises:
        MismatchError: the files have no problem in common, or ask different questions under one id.
        ConfigError: no problem or no rollout is left.
    """
    groups = (_by_problem(reference.sequences), _by_problem(final.sequences))
    shared = _shared(groups, labels)
    left = [name for name in shared if _all_hold(groups[0][name][0].problem, where, groups[0])]
    if not left:
        raise ConfigError(f"--where leaves none of the {len(shared)} problems: {_values(groups[0], shared, where)}")
    verdicts = [
        _verdicts(group, left, label=label, tie_seed=tie_seed) for group, label in zip(groups, labels, strict=True)
    ]
    rights = [tuple(one.right for one in found) for found in verdicts]
    chosen: dict[str, list[Response]] = {selection: []}
    for mine, theirs in zip(*verdicts, strict=True):
        for is_reference, one in ((True, mine), (False, theirs)):
            seen = set[str]()
            for sequence in one.read:
                cell = (mine.right, theirs.right)
                name = _population(selection, bool(sequence.correct), cell=cell, is_reference=is_reference)
                if name and name not in seen and _fits(sequence, where):
                    seen.add(name)
                    chosen.setdefault(name, []).append(
                        replace(sequence, population=name, label=labels[0] if is_reference else labels[1])
                    )
    if not chosen[selection]:
        raise ConfigError(
            f"no rollout is {selection}: {table_line(rights[0], rights[1], labels)}; choose another --select or --where"
        )
    others = [name for name, key in _OTHERS.items() if key in config.populations and name in chosen]
    wanted = list(dict.fromkeys([selection, *others]))
    sizes = {name: config.max_rollouts if name == selection else config.max_other_rollouts for name in wanted}
    sequences = [one for name in wanted for one in chosen[name][: sizes[name]]]
    return ChosenRollouts(
        sequences=tuple(replace(one, sequence_id=index) for index, one in enumerate(sequences)),
        prompts=tuple(groups[0][name][0] for name in left),
        reference_right=rights[0],
        final_right=rights[1],
        rule="split" if _is_split(groups[0], left) else "single",
        num_ties=sum(one.tied for found in verdicts for one in found),
        num_unshared=len({*groups[0], *groups[1]}) - len(shared),
    )


def table_line(reference_right: Sequence[bool], final_right: Sequence[bool], labels: tuple[str, str]) -> str:
    """Return the two-by-two table as a sentence.

    >>> table_line([False, False, True], [False, True, True], ("dpo", "rl"))
    'of 3 problems 1 are right with both, 0 with dpo alone, 1 with rl alone, 1 with neither'
    """
    pairs = list(zip(reference_right, final_right, strict=True))
    both, first, second, neither = (
        pairs.count(cell) for cell in ((True, True), (True, False), (False, True), (False,) * 2)
    )
    return (
        f"of {len(pairs)} problems {both} are right with both, {first} with {labels[0]} alone, {second} with "
        f"{labels[1]} alone, {neither} with neither"
    )


_OTHERS: Mapping[str, str] = {
    "reference_wrong_final_wrong": "reference_wrong",
    "reference_wrong": "reference_wrong",
    "reference_right": "reference_right",
    "checkpoint_right": "checkpoint_right",
    "checkpoint_wrong": "checkpoint_wrong",
}
"""Population -> its key in `probe.populations`."""


def _population(selection: SelectionName, correct: bool, *, cell: tuple[bool, bool], is_reference: bool) -> str:
    """Return the population of a rollout of a problem in a cell of the table."""
    if not is_reference:
        return "checkpoint_right" if correct else "checkpoint_wrong"
    wanted = SELECTIONS[selection]
    if wanted is None or (cell == wanted and correct == wanted[0]):
        return selection
    if correct:
        return "reference_right"
    return "reference_wrong_final_wrong" if selection == POPULATION else "reference_wrong"


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


def _is_split(group: Mapping[str, Sequence[Response]], names: Sequence[str]) -> bool:
    return min(len(group[name]) for name in names) > 1


def _verdicts(
    group: Mapping[str, Sequence[Response]], names: Sequence[str], *, label: str, tie_seed: int
) -> list[_Verdict]:
    is_split, found = _is_split(group, names), []
    for name in names:
        samples = tuple(group[name])
        half = len(samples) // 2 if is_split else 1
        right, tied = majority([bool(one.correct) for one in samples[:half]], tie_seed, label, name)
        found.append(_Verdict(right=right, tied=tied, read=samples[half:] if is_split else samples[:1]))
    return found
