"""Knights and knaves: knights tell the truth, knaves lie; a truth table over all cases finds who is what."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable, Iterator
from functools import cache
from itertools import cycle, product
from typing import Annotated, Literal

from pydantic import Field

from swerve.problems.family import Split, distinct_problems, is_heldout, problem_id
from swerve.problems.knights_logic import (
    ROLES,
    Atom,
    Puzzle,
    Statement,
    all_statements,
    all_structures,
    connect,
    parse_puzzle,
    render_puzzle,
    solutions,
    structure,
)
from swerve.problems.task import FINAL_ANSWER, Task, TaskKind
from swerve.problems.walk import Slot, Walk, find_marks, fixed, slot, write_solution, write_trace
from swerve.schema import PositiveInt, Probability
from swerve.types import Problem, StepMark


class KnightsKnavesTask(Task):
    """Knights always tell the truth, knaves always lie: who is what?"""

    kind: Literal["knights_knaves"] = "knights_knaves"
    people: Annotated[int, Field(ge=2, le=3)] = 2
    num_train: PositiveInt = 16000
    """Training problems; statement structures never occur in both splits."""
    num_heldout: PositiveInt = 400
    mistake_rate: Probability = 0.75
    """Share of the misread cases of "if" and "or" that the supervised traces get wrong."""
    slip_rate: Probability = 0.005
    """Share of judged truth values that are flipped."""


_NAMES = ("Ann", "Bob", "Eve", "Kim", "Max", "Zoe")
"""In alphabetical order, shared out among the places of speaking (two people: Ann, Bob or Eve speaks first)."""

_TRUTH = ("T", "F")
_VERBS = ("says", "denies")
_COMMUTING = ("and", "or", "iff")
_NEGATION = {"T": "F", "F": "T"}
_MISREADINGS = {("if", "F", "F"): "F", ("if", "F", "T"): "F", ("or", "T", "T"): "F"}
"""(connective, first value, second value) -> the wrong result: "if" read as "and", "or" as "either, not both"."""

_PLAIN_SHARE = 0.25
"""Share kept of the structures without "if" and "or": in those nothing can be misread, so they only are a control."""

_Column = tuple[str, ...]
"""One truth value a case."""
_ColumnWalk = Generator[Slot, str, _Column]


def _truth(value: bool) -> str:
    return "T" if value else "F"


@cache
def _cases(num_people: int) -> tuple[_Column, ...]:
    """Who is a knight (T) in each case: everybody first, the last person changing fastest."""
    return tuple(product(_TRUTH, repeat=num_people))


def _walk_column(expected: Iterable[str], *, slips: bool = False) -> _ColumnWalk:
    stated: list[str] = []
    for value in expected:
        stated.append((yield slot(value, _TRUTH, slips=slips)))
    return tuple(stated)


def _walk_atom(atom: Atom, names: tuple[str, ...]) -> _ColumnWalk:
    if atom.negated:
        yield fixed("not")
    name = yield slot(names[atom.person], names)
    role = yield slot(atom.role, ROLES)
    same = (role == "knight") != atom.negated
    states = [case[names.index(name)] for case in _cases(len(names))]
    return (yield from _walk_column(state if same else _NEGATION[state] for state in states))


def _walk_result(connective: str, first: _Column, second: _Column) -> _ColumnWalk:
    stated: list[str] = []
    for one, two in zip(first, second, strict=True):
        right = _truth(connect(connective, one == "T", two == "T"))
        stated.append((yield slot(right, _TRUTH, _MISREADINGS.get((connective, one, two)), slips=True)))
    return tuple(stated)


def _walk_body(statement: Statement, names: tuple[str, ...]) -> _ColumnWalk:
    conditional = statement.connective == "if"
    if conditional:
        yield fixed("if")
    first = yield from _walk_atom(statement.atoms[0], names)
    if len(statement.atoms) == 1:
        return first
    joint = yield (fixed("then") if conditional else slot(statement.connective, _COMMUTING))
    second = yield from _walk_atom(statement.atoms[1], names)
    yield fixed("=")
    return (yield from _walk_result("if" if conditional else joint, first, second))


def _walk_statement(statement: Statement, speaker: int, names: tuple[str, ...]) -> _ColumnWalk:
    yield fixed(names[speaker])
    verb = yield slot("denies" if statement.denied else "says", _VERBS)
    values = yield from _walk_body(statement, names)
    if verb == "denies":
        yield fixed("so")
        values = yield from _walk_column((_NEGATION[value] for value in values), slips=True)
    yield fixed("fits")
    states = [case[speaker] for case in _cases(len(names))]
    return (yield from _walk_column(_truth(state == value) for state, value in zip(states, values, strict=True)))


def _walk(puzzle: Puzzle, names: tuple[str, ...]) -> Walk:
    fits: list[_Column] = []
    for speaker, statement in enumerate(puzzle):
        fits.append((yield from _walk_statement(statement, speaker, names)))
    yield fixed("all")
    left = yield from _walk_column(_truth(set(column) == {"T"}) for column in zip(*fits, strict=True))
    yield fixed("answer")
    cases = _cases(len(names))
    found = cases[left.index("T") if "T" in left else -1]
    for name, state in zip(names, found, strict=True):
        yield fixed(name)
        yield slot("knight" if state == "T" else "knave", ROLES)


def _shuffled_atoms(statement: Statement, rng: random.Random) -> Statement:
    if statement.connective not in _COMMUTING or rng.random() < 0.5:
        return statement
    return Statement(atoms=statement.atoms[::-1], connective=statement.connective, denied=statement.denied)


def _shuffled(puzzle: Puzzle, rng: random.Random) -> Puzzle:
    """The same structure with people speaking in another order and commuting atoms exchanged, at random."""
    order = rng.sample(range(len(puzzle)), len(puzzle))
    place = {person: i for i, person in enumerate(order)}
    moved = (puzzle[person] for person in order)
    return tuple(
        _shuffled_atoms(
            Statement(
                atoms=tuple(Atom(person=place[a.person], role=a.role, negated=a.negated) for a in one.atoms),
                connective=one.connective,
                denied=one.denied,
            ),
            rng,
        )
        for one in moved
    )


def _misread_connectives(puzzle: Puzzle) -> list[str]:
    used = {statement.connective for statement in puzzle}
    return [word for word in ("if", "or") if word in used]


def _is_kept(puzzle: Puzzle, rng: random.Random) -> bool:
    return bool(_misread_connectives(puzzle)) or rng.random() < _PLAIN_SHARE


class KnightsKnaves:
    """Puzzles of two or three people with exactly one solution, proved by trying every assignment.

    The trace is a truth table, four columns a row for two people: both knights, only the first speaker, only the
    second, neither. The question

        Zoe denies if Zoe knight then Max knight . Max says Zoe knave or not Max knight .

    has the right trace (on one line)

        Zoe denies if Zoe knight T T F F then Max knight T F T F = T F T T so F T F F fits F T T T
        Max says Zoe knave F F T T or not Max knight F T F T = F T T T fits F F T F
        all F F T F answer Zoe knave Max knight

    on one line. Each literal (its `not` included) is followed by its truth in each case, `=` by the truth of the two
    joined, `so` by that of the denial, `fits` by whether that is what the speaker says in this case (a knight the true,
    a knave the false), `all` by whether every statement fits. The answer is the first case in which all fit, or the
    last one where mistakes leave none.

    Planted mistake: `if` read as `and`, `or` read as "either, but not both", each column by itself. Slips: a truth
    value after `=` or `so` is the other. Held out: by statement structure (`knights_logic.structure`); two people have
    3,852 structures with exactly one solution; the 3,036 with an `if` or an `or` and a quarter of the others are used.
    Kind: which of `if` and `or` occur. With three people a row has eight columns and a trace up to about 170 words.
    """

    name = "knights_knaves"
    checks_steps = True
    words = (
        *_NAMES,
        *_VERBS,
        *ROLES,
        *_TRUTH,
        *_COMMUTING,
        "if",
        "then",
        "not",
        ".",
        "=",
        "so",
        "fits",
        "all",
        "answer",
    )

    def __init__(self, task: KnightsKnavesTask) -> None:
        self._task = task

    def problems(self, split: Split, *, seed: int) -> list[Problem]:
        """Return the distinct problems of a split; held-out structures repeat only when all have been used.

        Raises:
            ConfigError: the split's structures, names and orders give too few puzzles.
        """
        rng = random.Random(f"knights_knaves {split} {seed}")
        setting = "num_train" if split == "train" else "num_heldout"
        puzzles = self._listed(split, rng) if self._task.people == 2 else self._sampled(split, rng)
        return distinct_problems(
            lambda: self._draw(*next(puzzles), rng),
            getattr(self._task, setting),
            advice={"setting": f"task.{setting}", "fix": "lower it"},
        )

    def _listed(self, split: Split, rng: random.Random) -> Iterator[tuple[str, Puzzle]]:
        pool = [
            (text, puzzle)
            for text, puzzle in all_structures(self._task.people)
            if is_heldout(text) == (split == "heldout") and _is_kept(puzzle, rng)
        ]
        return cycle(rng.sample(pool, len(pool)))

    def _sampled(self, split: Split, rng: random.Random) -> Iterator[tuple[str, Puzzle]]:
        statements = all_statements(self._task.people)
        while True:
            puzzle = tuple(rng.choices(statements, k=self._task.people))
            if len(solutions(puzzle)) == 1 and _is_kept(puzzle, rng):
                text = structure(puzzle)
                if is_heldout(text) == (split == "heldout"):
                    yield text, puzzle

    def _draw(self, text: str, puzzle: Puzzle, rng: random.Random) -> Problem:
        size = len(_NAMES) // len(puzzle)
        names = tuple(rng.choice(_NAMES[place * size : (place + 1) * size]) for place in range(len(puzzle)))
        return self._problem(_shuffled(puzzle, rng), names, text)

    def problem(self, question: str) -> Problem:
        """Return the problem of a question.

        Raises:
            ValueError: the text is not a puzzle, or it has not exactly one solution.

        >>> family = KnightsKnaves(KnightsKnavesTask())
        >>> family.problem("Zoe says if Max knave then Zoe knave . Max says Zoe knight .").answer
        'Zoe knight Max knight'
        """
        puzzle, names = parse_puzzle(question)
        return self._problem(puzzle, names, structure(puzzle))

    def _problem(self, puzzle: Puzzle, names: tuple[str, ...], text: str) -> Problem:
        found = solutions(puzzle)
        question = render_puzzle(puzzle, names)
        if len(found) != 1:
            raise ValueError(f"{len(found)} solutions instead of one: {question!r}")
        roles = ("knight" if knight else "knave" for knight in found[0])
        return Problem(
            id=problem_id(self.name, question),
            family=self.name,
            question=question,
            answer=" ".join(f"{name} {role}" for name, role in zip(names, roles, strict=True)),
            solution=write_solution(_walk(puzzle, names)),
            kind="+".join(_misread_connectives(puzzle)) or "other",
            metadata={"structure": text, "people": len(names)},
        )

    def trace(self, problem: Problem, rng: random.Random) -> str:
        """Return a supervised trace: "if" and "or" misread at `mistake_rate`, truth values flipped at `slip_rate`."""
        walk = _walk(*parse_puzzle(problem.question))
        return write_trace(walk, rng, mistake_rate=self._task.mistake_rate, slip_rate=self._task.slip_rate)

    def check(self, problem: Problem, text: str) -> list[StepMark]:
        """Return a mark for every wrong word of a completion, given the words before it."""
        return find_marks(_walk(*parse_puzzle(problem.question)), text)


TASK = TaskKind(KnightsKnavesTask, KnightsKnaves, FINAL_ANSWER)
