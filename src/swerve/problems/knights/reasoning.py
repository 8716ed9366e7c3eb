"""A written solution by cases: assume, find what follows or contradicts, go back, until everybody's claim fits.

Every step rests on one claim alone, given what has been assumed or has followed before, so that it can be checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from swerve.problems.knights.english import Puzzle, claim_text
from swerve.problems.knights.logic import consistent, everywhere, is_telling


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningStep:
    """One step.

    `assume`: a person's role is assumed. `follow`: with the other role, `speaker`'s claim would not fit. `contradict`:
    with either role some claim would not fit: `speaker`'s with the first, `other_speaker`'s with the second.
    `go_back`: the last assumption, of this person's role, is dropped, and the person has the other role.
    """

    kind: Literal["assume", "follow", "contradict", "go_back"]
    person: int
    truthful: bool = True
    """The role the person then has (of `contradict`: the first one refuted)."""
    speaker: int = 0
    other_speaker: int = 0


class _Search:
    """Backtracking with propagation; what is known is the bits of the assignments not yet excluded by roles."""

    def __init__(self, puzzle: Puzzle) -> None:
        self._size = len(puzzle.names)
        self._fits = [consistent(claim, speaker, self._size) for speaker, claim in enumerate(puzzle.statements)]
        self.known: dict[int, bool] = {}

    def _role(self, person: int, truthful: bool) -> int:
        telling = is_telling(person, self._size)
        return telling if truthful else everywhere(self._size) ^ telling

    def _refuting(self, person: int, truthful: bool) -> int | None:
        """Return who makes a claim that does not fit if a person has this role, given what is known."""
        cases = self._role(person, truthful)
        for other, role in self.known.items():
            cases &= self._role(other, role)
        ordered = (person, *(someone for someone in range(self._size) if someone != person))
        return next((speaker for speaker in ordered if not cases & self._fits[speaker]), None)

    def _unknown(self) -> list[int]:
        return [person for person in range(self._size) if person not in self.known]

    def propagate(self) -> Iterator[ReasoningStep]:
        """Yield what follows until nothing more does; the last step is `contradict` where nothing fits."""
        progress = True
        while progress:
            progress = False
            for person in self._unknown():
                as_truthful, as_liar = self._refuting(person, True), self._refuting(person, False)
                if as_truthful is not None and as_liar is not None:
                    yield ReasoningStep(kind="contradict", person=person, speaker=as_truthful, other_speaker=as_liar)
                    return
                if as_truthful is not None or as_liar is not None:
                    role = as_truthful is None
                    self.known[person] = role
                    speaker = as_liar if as_truthful is None else as_truthful
                    assert speaker is not None
                    yield ReasoningStep(kind="follow", person=person, truthful=role, speaker=speaker)
                    progress = True

    def run(self) -> Iterator[ReasoningStep]:
        """Yield the steps up to the first assignment that fits every claim."""
        assumed: list[tuple[int, dict[int, bool]]] = []
        while True:
            last = None
            for last in self.propagate():
                yield last
            if last is not None and last.kind == "contradict":
                person, before = assumed.pop()
                self.known = {**before, person: False}
                yield ReasoningStep(kind="go_back", person=person, truthful=False)
            elif not (unknown := self._unknown()):
                return
            else:
                assumed.append((unknown[0], dict(self.known)))
                self.known[unknown[0]] = True
                yield ReasoningStep(kind="assume", person=unknown[0])


def reason(puzzle: Puzzle) -> tuple[list[ReasoningStep], Mapping[int, bool]]:
    """Return the steps that find a puzzle's solution, and the solution: person -> whether he or she tells the truth.

    The puzzle must have a solution.
    """
    search = _Search(puzzle)
    return list(search.run()), search.known


def reasoning_text(puzzle: Puzzle) -> str:
    """Return the steps in English, one per line."""
    steps, _ = reason(puzzle)
    lines = [_step_text(puzzle, step) for step in steps]
    return "\n".join(
        ["Let's go through the cases and see which claims would not fit.", *lines, "Now every claim fits."]
    )


def _step_text(puzzle: Puzzle, step: ReasoningStep) -> str:
    name = puzzle.names[step.person]
    role, other_role = puzzle.roles.of(step.truthful), puzzle.roles.of(not step.truthful)
    if step.kind == "assume":
        return f"Assume {name} is {role}."
    if step.kind == "go_back":
        return f"So {name} is not {other_role}. {name} is {role}."
    because, because_other = (_claim(puzzle, step, speaker) for speaker in (step.speaker, step.other_speaker))
    if step.kind == "follow":
        return f"{name} cannot be {other_role}, because of {because}. So {name} is {role}."
    return (
        f"{name} cannot be {role}, because of {because}, and cannot be {other_role}, because of {because_other}. "
        "This is a contradiction."
    )


def _claim(puzzle: Puzzle, step: ReasoningStep, speaker: int) -> str:
    claim = claim_text(puzzle.statements[speaker], puzzle.names, puzzle.roles)
    whose = "their own claim" if speaker == step.person else f"the claim of {puzzle.names[speaker]}"
    return f'{whose} "{claim}"'
