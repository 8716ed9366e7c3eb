"""The task knights_knaves: puzzles in short sentences, solved by a written truth table."""

from __future__ import annotations

import random
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cache
from itertools import combinations, cycle, permutations, product
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from swerve.problems.family import GeneratedFamily, Split, is_heldout, problem_id
from swerve.problems.knights.logic import COMMUTING, LIES, TRUTHFUL, Statement, join, renumbered, solutions
from swerve.problems.task import FINAL_ANSWER, SingleTask, TaskKind
from swerve.problems.walk import Slot, Walk, WalkedFamily, fixed, slot, write_solution
from swerve.settings import PositiveInt, Probability
from swerve.types import Problem


class KnightsKnavesTask(SingleTask):
    """Knights always tell the truth, knaves always lie: who is what?"""

    planted: ClassVar[str] = "“if” is read as “and”, and “or” as “either, but not both”"
    kind: Literal["knights_knaves"] = "knights_knaves"
    people: Annotated[int, Field(ge=2, le=3)] = 2
    """People in a puzzle. Three people need a longer `max_new_tokens`."""
    num_train: PositiveInt = 16000
    """Training problems; statement structures never occur in both splits."""
    num_heldout: PositiveInt = 400
    """Distinct held-out problems."""
    mistake_rate: Probability = 0.75
    """Probability that a case in which "if" or "or" can be misread is misread, in the supervised traces."""
    slip_rate: Probability = 0.005
    """Probability that a truth value after `=` or `so` is flipped, in the supervised traces."""


ROLES = {TRUTHFUL: "knight", LIES: "knave"}
CONNECTIVES = {"and": "and", "or": "or", "if": "->", "iff": "<=>"}
"""A connective's word -> its operator."""
LETTERS = "ABC"
"""Stand for the people in a structure's text."""
_WORDS = {operator: word for word, operator in CONNECTIVES.items()}


class Claim(NamedTuple):
    """What a person says: a literal (a fact or its negation), or two literals that a connective joins."""

    body: Statement
    denied: bool = False
    """Whether the person denies it."""

    @property
    def statement(self) -> Statement:
        """What is true if the person tells the truth."""
        return ("not", self.body) if self.denied else self.body

    @property
    def connective(self) -> str:
        """The word that joins the literals, empty for one literal."""
        return _WORDS.get(self.body[0], "")

    @property
    def literals(self) -> tuple[Statement, ...]:
        """One literal or two."""
        return self.body[1:] if self.connective else (self.body,)

    @property
    def commutes(self) -> bool:
        """Whether the literals can be exchanged."""
        return self.body[0] in COMMUTING

    def renumbered(self, numbers: Sequence[int]) -> Claim:
        """Return the claim in which person i has the number `numbers[i]`."""
        return self._replace(body=renumbered(self.body, numbers))


Claims = tuple[Claim, ...]
"""The claim of each person, in the order in which they speak."""


def find_solutions(puzzle: Claims) -> list[tuple[bool, ...]]:
    """Return every assignment (True: knight) under which exactly the knights' claims are true.

    Order: all knights first, the last person changing fastest.
    """
    return solutions([claim.statement for claim in puzzle])


def _fact(literal: Statement) -> tuple[int, str, bool]:
    """Return person, role and whether it is negated."""
    negated = literal[0] == "not"
    head, person = literal[1] if negated else literal
    return person, ROLES[head], negated


def _render_claim(claim: Claim, speaker: int, names: Sequence[str]) -> str:
    joint = " then " if claim.connective == "if" else f" {claim.connective} "
    facts = [_fact(literal) for literal in claim.literals]
    body = joint.join(f"{'not ' if negated else ''}{names[person]} {role}" for person, role, negated in facts)
    start = "if " if claim.connective == "if" else ""
    return f"{names[speaker]} {'denies' if claim.denied else 'says'} {start}{body} ."


def render_claims(puzzle: Claims, names: Sequence[str]) -> str:
    """Return the puzzle's text, people called by `names` in the order in which they speak.

    >>> first, second = ("telling-truth", 0), ("not", ("lying", 1))
    >>> render_claims((Claim(("->", second, first)), Claim(first, denied=True)), ("Zoe", "Max"))
    'Zoe says if not Max knave then Zoe knight . Max denies Zoe knight .'
    """
    return " ".join(_render_claim(claim, speaker, names) for speaker, claim in enumerate(puzzle))


def parse_claims(text: str) -> tuple[Claims, tuple[str, ...]]:
    """Return the puzzle and the names of a text that `render_claims` wrote.

    Raises:
        ValueError: the text is not one.
    """
    sentences = [sentence.split() for sentence in text.split(" .")[:-1]]
    try:
        names = tuple(sentence[0] for sentence in sentences)
        puzzle = tuple(_parse_claim(sentence[1:], names) for sentence in sentences)
    except (IndexError, KeyError, ValueError):
        puzzle, names = (), ()
    if not puzzle or render_claims(puzzle, names) != text:
        raise ValueError(f"not a puzzle: {text!r}; expected such as 'Zoe says Max knave . Max denies Zoe knight .'")
    return puzzle, names


def _parse_claim(words: list[str], names: Sequence[str]) -> Claim:
    body = [word for word in words[1:] if word != "if"]
    cut = next((i for i, word in enumerate(body) if word in ("and", "or", "then", "iff")), len(body))
    heads = {role: head for head, role in ROLES.items()}
    literals = []
    for part in (body[:cut], body[cut + 1 :]):
        if part:
            fact = (heads[part[-1]], names.index(part[-2]))
            literals.append(("not", fact) if part[0] == "not" else fact)
    if cut < len(body):
        return Claim((CONNECTIVES[{"then": "if"}.get(body[cut], body[cut])], *literals), words[0] == "denies")
    return Claim(literals[0], words[0] == "denies")


@cache
def all_claims(num_people: int) -> Claims:
    """Return every claim about `num_people` people, the literals of and, or, iff in sorted order.

    A claim has at most one negation (`denies` or `not`), and its two literals differ in person or role.

    >>> len(all_claims(2)), len(all_claims(3))
    (132, 318)
    """
    facts = [(head, person) for person in range(num_people) for head in (LIES, TRUTHFUL)]
    literals: list[Statement] = [literal for fact in facts for literal in (fact, ("not", fact))]
    said = [Claim(literal) for literal in literals]
    for operator in CONNECTIVES.values():
        pairs = combinations(literals, 2) if operator in COMMUTING else permutations(literals, 2)
        for pair in pairs:
            first, second = map(_fact, pair)
            if first[:2] != second[:2] and not (first[2] and second[2]):
                said.append(Claim((operator, *pair)))
    plain = [claim for claim in said if not any(literal[0] == "not" for literal in claim.literals)]
    return (*said, *(claim._replace(denied=True) for claim in plain))


@cache
def _canonical_text(claim: Claim, speaker: int, order: tuple[int, ...]) -> str:
    """The sentence with person i called by the letter of `order[i]`, the literals of and, or, iff sorted."""
    moved = claim.renumbered(order)
    if moved.commutes:
        moved = moved._replace(body=(moved.body[0], *sorted(moved.literals, key=_fact)))
    return _render_claim(moved, order[speaker], LETTERS)


def structure(puzzle: Claims) -> str:
    """Return the puzzle's text with names, order of people and order of commuting literals normalised.

    People are called A, B, C and their sentences sorted by speaker; of all ways to name them the alphabetically first
    text is taken. Two puzzles have the same structure exactly if they differ in names and orders alone.

    >>> first = parse_claims("Zoe says Max knave or Zoe knight . Max denies Max knave .")[0]
    >>> second = parse_claims("Ann denies Ann knave . Bob says Bob knight or Ann knave .")[0]
    >>> structure(first) == structure(second)
    True
    >>> structure(first)
    'A denies A knave . B says A knave or B knight .'
    """
    return min(
        " ".join(sorted(_canonical_text(claim, speaker, order) for speaker, claim in enumerate(puzzle)))
        for order in permutations(range(len(puzzle)))
    )


@cache
def all_structures(num_people: int) -> tuple[tuple[str, Claims], ...]:
    """Return every structure with exactly one solution, with a puzzle of that structure, sorted by structure.

    For two people; the number for three (millions) is too large to list.

    >>> len(all_structures(2))
    3852
    """
    puzzles: dict[str, Claims] = {}
    for puzzle in product(all_claims(num_people), repeat=num_people):
        if len(find_solutions(puzzle)) == 1:
            puzzles.setdefault(structure(puzzle), puzzle)
    return tuple(sorted(puzzles.items()))


_NAMES = ("Ann", "Bob", "Eve", "Kim", "Max", "Zoe")
"""In alphabetical order, shared out among the places of speaking (two people: Ann, Bob or Eve speaks first)."""

_ROLE_WORDS = ("knight", "knave")
_TRUTH = ("T", "F")
_VERBS = ("says", "denies")
_COMMUTING = ("and", "or", "iff")
_STRUCTURE = ("if", "then", "not", ".", "=", "so", "fits", "all", "answer")
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


def _walk_literal(literal: Statement, names: tuple[str, ...]) -> _ColumnWalk:
    person, stated_role, negated = _fact(literal)
    if negated:
        yield fixed("not")
    name = yield slot(names[person], names)
    role = yield slot(stated_role, _ROLE_WORDS)
    same = (role == "knight") != negated
    states = [case[names.index(name)] for case in _cases(len(names))]
    return (yield from _walk_column(state if same else _NEGATION[state] for state in states))


def _walk_body(claim: Claim, names: tuple[str, ...]) -> _ColumnWalk:
    conditional = claim.connective == "if"
    if conditional:
        yield fixed("if")
    first = yield from _walk_literal(claim.literals[0], names)
    if len(claim.literals) == 1:
        return first
    joint = yield (fixed("then") if conditional else slot(claim.connective, _COMMUTING))
    second = yield from _walk_literal(claim.literals[1], names)
    yield fixed("=")
    connective = "if" if conditional else joint
    stated: list[str] = []
    for left, right in zip(first, second, strict=True):
        joined = _truth(join(CONNECTIVES[connective], left == "T", right == "T", 1) == 1)
        stated.append((yield slot(joined, _TRUTH, _MISREADINGS.get((connective, left, right)), slips=True)))
    return tuple(stated)


def _walk_claim(claim: Claim, speaker: int, names: tuple[str, ...]) -> _ColumnWalk:
    yield fixed(names[speaker])
    verb = yield slot("denies" if claim.denied else "says", _VERBS)
    values = yield from _walk_body(claim, names)
    if verb == "denies":
        yield fixed("so")
        values = yield from _walk_column((_NEGATION[value] for value in values), slips=True)
    yield fixed("fits")
    states = [case[speaker] for case in _cases(len(names))]
    return (yield from _walk_column(_truth(state == value) for state, value in zip(states, values, strict=True)))


def _walk(puzzle: Claims, names: tuple[str, ...]) -> Walk:
    fits: list[_Column] = []
    for speaker, claim in enumerate(puzzle):
        fits.append((yield from _walk_claim(claim, speaker, names)))
    yield fixed("all")
    left = yield from _walk_column(_truth(set(column) == {"T"}) for column in zip(*fits, strict=True))
    yield fixed("answer")
    cases = _cases(len(names))
    roles = cases[left.index("T") if "T" in left else -1]
    for name, state in zip(names, roles, strict=True):
        yield fixed(name)
        yield slot("knight" if state == "T" else "knave", _ROLE_WORDS)


def _shuffled(puzzle: Claims, rng: random.Random) -> Claims:
    """The same structure with people speaking in another order and commuting literals exchanged, at random."""
    order = rng.sample(range(len(puzzle)), len(puzzle))
    places = [order.index(person) for person in range(len(puzzle))]
    moved = (puzzle[person].renumbered(places) for person in order)
    return tuple(
        claim._replace(body=(claim.body[0], *claim.literals[::-1])) if claim.commutes and rng.random() >= 0.5 else claim
        for claim in moved
    )


def _misread_connectives(puzzle: Claims) -> list[str]:
    used = {claim.connective for claim in puzzle}
    return [word for word in ("if", "or") if word in used]


def _is_kept(puzzle: Claims, rng: random.Random) -> bool:
    return bool(_misread_connectives(puzzle)) or rng.random() < _PLAIN_SHARE


class KnightsKnaves(WalkedFamily, GeneratedFamily[KnightsKnavesTask]):
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
    value after `=` or `so` is the other. Held out: by statement structure (`structure`); two people have
    3,852 structures with exactly one solution; the 3,036 with an `if` or an `or` and a quarter of the others are used.
    Kind: which of `if` and `or` occur. With three people a row has eight columns and a trace up to about 170 words.
    """

    name = "knights_knaves"
    too_few = "lower it"
    words = (*_NAMES, *_VERBS, *_ROLE_WORDS, *_TRUTH, *_COMMUTING, *_STRUCTURE)

    def draws(self, split: Split, rng: random.Random) -> Iterator[Problem | None]:
        """Yield problems; structures of two people repeat only when all have been used."""
        puzzles = self._listed(split, rng) if self._task.people == 2 else self._sampled(split, rng)
        for text, puzzle in puzzles:
            yield self._draw(text, puzzle, rng)

    def _listed(self, split: Split, rng: random.Random) -> Iterator[tuple[str, Claims]]:
        pool = [
            (text, puzzle)
            for text, puzzle in all_structures(self._task.people)
            if is_heldout(text) == (split == "heldout") and _is_kept(puzzle, rng)
        ]
        return cycle(rng.sample(pool, len(pool)))

    def _sampled(self, split: Split, rng: random.Random) -> Iterator[tuple[str, Claims]]:
        claims = all_claims(self._task.people)
        while True:
            puzzle = tuple(rng.choices(claims, k=self._task.people))
            if len(find_solutions(puzzle)) == 1 and _is_kept(puzzle, rng):
                text = structure(puzzle)
                if is_heldout(text) == (split == "heldout"):
                    yield text, puzzle

    def _draw(self, text: str, puzzle: Claims, rng: random.Random) -> Problem:
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
        puzzle, names = parse_claims(question)
        return self._problem(puzzle, names, structure(puzzle))

    def _problem(self, puzzle: Claims, names: tuple[str, ...], text: str) -> Problem:
        fitting = find_solutions(puzzle)
        question = render_claims(puzzle, names)
        if len(fitting) != 1:
            raise ValueError(f"{len(fitting)} solutions instead of one: {question!r}")
        roles = ("knight" if knight else "knave" for knight in fitting[0])
        return Problem(
            id=problem_id(self.name, question),
            family=self.name,
            question=question,
            answer=" ".join(f"{name} {role}" for name, role in zip(names, roles, strict=True)),
            solution=write_solution(_walk(puzzle, names)),
            kind="+".join(_misread_connectives(puzzle)) or "other",
            group=text,
            metadata={"structure": text, "people": len(names)},
        )

    def walk(self, problem: Problem) -> Walk:
        """Return a fresh walk of a problem's truth table."""
        return _walk(*parse_claims(problem.question))


TASK = TaskKind(KnightsKnavesTask, KnightsKnaves, FINAL_ANSWER)
