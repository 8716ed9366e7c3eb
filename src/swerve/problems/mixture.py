"""Several families side by side, drawn in the proportion of their weights."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from math import lcm
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field

from swerve.errors import ConfigError
from swerve.problems.family import ProblemFamily, Split
from swerve.problems.held_out import HeldOut, question_key
from swerve.problems.registry import TASKS
from swerve.problems.task import Task
from swerve.settings import Model, Positive
from swerve.types import Problem, StepMark

if TYPE_CHECKING:
    SingleTaskConfig = Task
else:
    SingleTaskConfig = Annotated[reduce(or_, (task.config for task in TASKS.values())), Field(discriminator="kind")]


class MixturePart(Model):
    """One task of a mixture."""

    task: SingleTaskConfig
    """Any task but a mixture."""
    weight: Positive = 1.0
    """Share of the problems drawn, relative to the other parts."""


class MixtureTask(Task):
    """Several tasks side by side, drawn in the proportion of their weights."""

    kind: Literal["mixture"] = "mixture"
    parts: Annotated[tuple[MixturePart, ...], Field(min_length=2, strict=False)]
    """The tasks, two or more."""

    @property
    def train_sources(self) -> tuple[str, ...]:
        """See the base class."""
        return tuple(source for part in self.parts for source in part.task.train_sources)

    @property
    def sources(self) -> tuple[str, ...]:
        """See the base class."""
        return tuple(source for part in self.parts for source in part.task.sources)


if TYPE_CHECKING:
    TaskConfig = Task
else:
    TaskConfig = Annotated[get_args(SingleTaskConfig)[0] | MixtureTask, Field(discriminator="kind")]

_PART = "mixture_part"
"""Key of `Problem.metadata`: the number of the part that a problem came from."""


class Quota:
    """Deals numbers 0, 1, 2, ... out to parts, so that after any n of them each part has its share of n within 1.

    With shares w_i that sum to 1 and x_i the numbers part i has: |x_i - n w_i| <= 1 - 1 / (2 parts - 2), the least
    bound there is (Tijdeman, The chairman assignment problem, Discrete Mathematics 32, 1980): among the parts that are
    at least 1 / (2 parts - 2) behind, the one that would first be too far behind gets the next number.

    >>> quota = Quota([2.0, 1.0])
    >>> [quota.part(number) for number in range(6)]
    [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (0, 3)]
    """

    def __init__(self, weights: Sequence[float], *, order: Sequence[int] | None = None) -> None:
        """Make the quota.

        Args:
            weights: one per part, above 0; only their proportions count.
            order: which of two parts comes first where both could; the given one by default.
        """
        exact = [Fraction(str(weight)) for weight in weights]
        whole = lcm(*(weight.denominator for weight in exact))
        self._shares = [int(weight * whole) for weight in exact]
        self._total = sum(self._shares)
        self._order = list(range(len(weights)) if order is None else order)
        self._counts = [0] * len(weights)
        self._dealt: list[tuple[int, int]] = []

    def part(self, number: int) -> tuple[int, int]:
        """Return the part of a number, and how many earlier numbers that part has."""
        # After as many numbers as the shares sum to every part has exactly its share, and all begins anew.
        passes, place = divmod(number, self._total)
        while len(self._dealt) <= place:
            self._deal()
        part, index = self._dealt[place]
        return part, passes * self._shares[part] + index

    def before(self, number: int, part: int) -> int:
        """Return how many numbers below `number` a part has."""
        passes, place = divmod(number, self._total)
        if place:
            self.part(place - 1)
        return passes * self._shares[part] + sum(dealt == part for dealt, _ in self._dealt[:place])

    def _deal(self) -> None:
        # Of the parts that are behind, the one that would first be too far behind if it were dealt nothing more.
        shares, counts, total = self._shares, self._counts, self._total
        number, scale = len(self._dealt) + 1, max(1, 2 * len(shares) - 2)
        first_late: dict[int, int] = {}
        for part in self._order:
            owed = scale * (shares[part] * number - counts[part] * total)
            if owed >= total or len(shares) == 1:
                first_late[part] = -(-total * (scale - 1 + scale * counts[part]) // (scale * shares[part]))
        chosen = min(first_late, key=lambda part: first_late[part])
        self._dealt.append((chosen, counts[chosen]))
        counts[chosen] += 1


class Mixture:
    """Problems of several families; each keeps its own grader, and evaluation reports by part.

    A part is called by its family's name, by the name and its number (`k_and_k 2`) where an earlier part has it; kinds
    become `part: kind`. Held-out problems are taken from the parts in the proportion of their weights, as long as they
    last; training does the same without end.
    """

    name = "mixture"

    def __init__(self, task: MixtureTask) -> None:
        self._weights = [part.weight for part in task.parts]
        self._families = [TASKS[part.task.kind].family(part.task) for part in task.parts]
        names = [family.name for family in self._families]
        counts = [names[: number + 1].count(name) for number, name in enumerate(names)]
        self._labels = [name if count == 1 else f"{name} {count}" for name, count in zip(names, counts, strict=True)]
        self._known: dict[tuple[Split, int], list[list[Problem]]] = {}
        self._notes: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The words of all parts; none where a part has no fixed vocabulary."""
        every = [family.words for family in self._families]
        return tuple(dict.fromkeys(word for words in every for word in words)) if all(every) else ()

    @property
    def is_prose(self) -> bool:
        """Whether a part's texts have no fixed vocabulary."""
        return not self.words

    @property
    def checks_steps(self) -> bool:
        """Whether a part's steps are checked; `family_of` says of which problems."""
        return any(family.checks_steps for family in self._families)

    def problems(self, split: Split, *, seed: int) -> list[Problem]:
        """Return the problems of all parts, in the proportion of their weights as long as each lasts.

        Training problems that another part holds out are left out, and so are repetitions.

        Raises:
            ConfigError: a part has none of its own left, or too few; see the parts' families.
            ArtifactError: a part's source cannot be read.
        """
        return _interleaved(self._parts(split, seed), self._weights)

    def _parts(self, split: Split, seed: int) -> list[list[Problem]]:
        if (split, seed) not in self._known:
            drawn = []
            for number, family in enumerate(self._families):
                try:
                    drawn.append(family.problems(split, seed=seed))
                except ConfigError as error:
                    raise ConfigError(f"task.parts.{number} ({self._labels[number]}): {error}") from None
            held = [problem for part in self._parts("heldout", seed) for problem in part] if split == "train" else []
            self._known[split, seed] = self._apart(split, drawn, HeldOut(held))
        return self._known[split, seed]

    def _apart(self, split: Split, drawn: Sequence[Sequence[Problem]], held_out: HeldOut) -> list[list[Problem]]:
        """Return the parts' problems without those that are held out, each where it comes first."""
        ids = Counter(problem.id for part in drawn for problem in part)
        seen: set[str] = set()
        parts: list[list[Problem]] = []
        for number, (label, problems) in enumerate(zip(self._labels, drawn, strict=True)):
            # Each question once, under its part's name.
            kept: list[Problem] = []
            for problem in problems:
                content = question_key(problem.question)
                if content in seen or held_out.asked_in(problem.question):
                    continue
                seen.add(content)
                changes: dict[str, Any] = {
                    "kind": label if problem.kind == "all" else f"{label}: {problem.kind}",
                    "metadata": {**problem.metadata, _PART: number},
                }
                if ids[problem.id] > 1:
                    changes["id"] = f"{label.replace(' ', '-')}/{problem.id}"
                kept.append(replace(problem, **changes))
            if not kept:
                raise ConfigError(
                    f"task.parts.{number} ({label}) has no {split} problem that is in no other part; leave the part out"
                )
            if len(kept) < len(problems):
                note = f"{label}: {len(problems) - len(kept)} of {len(problems)} {split} problems are in another part"
                self._notes = tuple(dict.fromkeys((*self._notes, note)))
            parts.append(kept)
        return parts

    def notes(self) -> list[str]:
        """Return what a person should know of the problems loaded so far, the parts' own notes included."""
        return [note for family in self._families for note in family.notes()] + list(self._notes)

    def weighted_parts(self, problems: Sequence[Problem]) -> list[tuple[str, float, list[Problem]]]:
        """Return the label, weight and problems of each part that has some of these."""
        parts: list[list[Problem]] = [[] for _ in self._families]
        for problem in problems:
            parts[_part(problem)].append(problem)
        return [entry for entry in zip(self._labels, self._weights, parts, strict=True) if entry[2]]

    def family_of(self, problem: Problem) -> ProblemFamily:
        """Return the family that a problem of the mixture came from."""
        return self._families[_part(problem)]

    def label_of(self, problem: Problem) -> str:
        """Return the part's name that a problem came from."""
        return self._labels[_part(problem)]

    def trace(self, problem: Problem, rng: random.Random) -> str:
        """Return a supervised completion by the problem's own family.

        Raises:
            ConfigError: the family has none for it.
        """
        return self.family_of(problem).trace(problem, rng)

    def check(self, problem: Problem, text: str) -> list[StepMark]:
        """Return what the problem's own family finds wrong in a completion."""
        return self.family_of(problem).check(problem, text)


def family_of(family: ProblemFamily, problem: Problem) -> ProblemFamily:
    """Return the family that a problem itself is of: the part's for a mixture's, else `family`."""
    return family.family_of(problem) if isinstance(family, Mixture) and _PART in problem.metadata else family


def mixed_parts(family: ProblemFamily, problems: Sequence[Problem]) -> list[tuple[str, float, list[Problem]]]:
    """Return the label, weight and problems of each part; one part for a family that is no mixture."""
    return family.weighted_parts(problems) if isinstance(family, Mixture) else [("", 1.0, list(problems))]


def _interleaved(parts: Sequence[Sequence[Problem]], weights: Sequence[float]) -> list[Problem]:
    mixed: list[Problem] = []
    taken = [0] * len(parts)
    left = [number for number, part in enumerate(parts) if part]
    while left:
        quota = Quota([weights[number] for number in left])
        dealt = 0
        while all(taken[number] < len(parts[number]) for number in left):
            number = left[quota.part(dealt)[0]]
            mixed.append(parts[number][taken[number]])
            taken[number] += 1
            dealt += 1
        left = [number for number in left if taken[number] < len(parts[number])]
    return mixed


def _part(problem: Problem) -> int:
    return int(problem.metadata[_PART])
