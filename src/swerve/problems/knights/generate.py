"""Random puzzles with exactly one solution, and changed copies of a puzzle, each proved again."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from swerve.problems.knights import logic
from swerve.problems.knights.english import PHRASINGS, Puzzle, RoleWords
from swerve.problems.knights.logic import LIES, OPERATORS, TRUTHFUL, Statement, leaves, solutions, with_leaves

# fmt: off
COMMON_NAMES = (
    "Alice", "Anna", "Ben", "Carla", "Clara", "David", "Diana", "Emil", "Emma", "Eric", "Fiona", "Frank", "Greta",
    "Hannah", "Henry", "Ida", "Jack", "Jane", "Julia", "Karl", "Laura", "Leo", "Lena", "Lucas", "Maria", "Mark",
    "Martin", "Mia", "Nina", "Nora", "Oliver", "Olga", "Oscar", "Owen", "Paul", "Peter", "Rosa", "Sam", "Sarah",
    "Simon", "Sofia", "Thomas", "Tina", "Victor", "Vera", "Walter", "Zoey",
)
UNCOMMON_NAMES = (
    "Aldous", "Anselm", "Araminta", "Bertrand", "Birgitta", "Cassius", "Clotilde", "Cosmo", "Drusilla", "Eudora",
    "Evadne", "Fabiola", "Galahad", "Griselda", "Hesper", "Horatio", "Hyacinth", "Iolanthe", "Jocasta", "Kenelm",
    "Lavinia", "Leopold", "Lucasta", "Meriel", "Mortimer", "Naphtali", "Octavia", "Orsino", "Pelagia", "Philippa",
    "Quentin", "Rosamund", "Sidonie", "Tancred", "Theodora", "Ulric", "Valentina", "Wilfred", "Xenia", "Zebulon",
)
# fmt: on
ROLE_PAIRS = (
    RoleWords(truthful="angel", lying="devil"),
    RoleWords(truthful="saint", lying="sinner"),
    RoleWords(truthful="hero", lying="villain"),
    RoleWords(truthful="sage", lying="fool"),
    RoleWords(truthful="altruist", lying="egoist"),
    RoleWords(truthful="pioneer", lying="laggard"),
)

_MAX_DRAWS = 200


def random_statement(rng: random.Random, speaker: int, num_people: int, *, max_depth: int, max_width: int) -> Statement:
    """Return a statement that says something: neither always true nor always false, and neither a paradox nor idle.

    A paradox is true for no role of its speaker in any case ("I am a knave"), an idle one fits every case ("I am a
    knight").

    Args:
        rng: Source of randomness.
        speaker: Who makes it.
        num_people: How many people there are.
        max_depth: Nesting; 1 is one fact.
        max_width: Parts that one "and" or "or" joins, at most.
    """
    while True:
        statement = _tree(rng, num_people, max_depth, max_width)
        if _says_something(statement, speaker, num_people):
            return statement


def _says_something(statement: Statement, speaker: int, num_people: int) -> bool:
    cases = (logic.truth(statement, num_people), logic.consistent(statement, speaker, num_people))
    return not {*cases} & {0, logic.everywhere(num_people)}


def _tree(rng: random.Random, num_people: int, depth: int, width: int) -> Statement:
    """A fact, or with equal chance one of the operators over different parts."""
    operator = rng.choice(("", *OPERATORS)) if depth > 1 else ""
    if not operator:
        return (rng.choice((TRUTHFUL, LIES)), rng.randrange(num_people))
    count = 1 if operator == "not" else rng.randint(2, width) if operator in ("and", "or") else 2
    parts: list[Statement] = []
    while len(parts) < count:
        part = _tree(rng, num_people, depth - 1, width)
        if part not in parts and not (operator == part[0] == "not"):
            parts.append(part)
    return (operator, *parts)


def random_puzzle(rng: random.Random, num_people: int, *, max_depth: int, max_width: int) -> Puzzle:
    """Return a puzzle with exactly one solution, proved by trying every assignment; `max_depth` must be 2 or more.

    Of single facts alone no puzzle has just one: where everybody's role is exchanged the same claims fit.
    """
    assert max_depth >= 2, max_depth
    while True:
        statements = tuple(
            random_statement(rng, speaker, num_people, max_depth=max_depth, max_width=max_width)
            for speaker in range(num_people)
        )
        if len(solutions(statements)) == 1:
            return Puzzle(
                names=tuple(rng.sample(COMMON_NAMES, num_people)),
                statements=statements,
                order=tuple(range(num_people)),
                phrasing=tuple(rng.randrange(len(PHRASINGS)) for _ in range(num_people)),
            )


def _with_other_statement(
    puzzle: Puzzle, rng: random.Random, other: Callable[[Statement, int], Statement]
) -> Puzzle | None:
    """Return the puzzle with one statement changed so that it has exactly one solution, and another than before."""
    before = solutions(puzzle.statements)
    for _ in range(_MAX_DRAWS):
        person = rng.randrange(len(puzzle.names))
        changed = other(puzzle.statements[person], person)
        if not _says_something(changed, person, len(puzzle.names)):
            continue
        statements = (*puzzle.statements[:person], changed, *puzzle.statements[person + 1 :])
        after = solutions(statements)
        if len(after) == 1 and after != before:
            return replace(puzzle, statements=statements)
    return None


def _perturbed_statement(puzzle: Puzzle, rng: random.Random) -> Puzzle | None:
    def other(_: Statement, speaker: int) -> Statement:
        return random_statement(rng, speaker, len(puzzle.names), max_depth=2, max_width=2)

    return _with_other_statement(puzzle, rng, other)


def _perturbed_leaf(puzzle: Puzzle, rng: random.Random) -> Puzzle | None:
    def other(statement: Statement, _: int) -> Statement:
        facts = list(leaves(statement))
        place = rng.randrange(len(facts))
        facts[place] = (rng.choice((TRUTHFUL, LIES)), rng.randrange(len(puzzle.names)))
        return with_leaves(statement, iter(facts))

    return _with_other_statement(puzzle, rng, other)


def _reordered(puzzle: Puzzle, rng: random.Random) -> Puzzle | None:
    for _ in range(_MAX_DRAWS):
        order = tuple(rng.sample(puzzle.order, len(puzzle.order)))
        if order != puzzle.order:
            return replace(puzzle, order=order)
    return None


PERTURBATIONS: Mapping[str, Callable[[Puzzle, random.Random], Puzzle | None]] = MappingProxyType(
    {
        "perturbed_leaf": _perturbed_leaf,
        "perturbed_statement": _perturbed_statement,
        "reorder_statement": _reordered,
        "uncommon_name": lambda puzzle, rng: replace(
            puzzle, names=tuple(rng.sample(UNCOMMON_NAMES, len(puzzle.names)))
        ),
        "random_pair": lambda puzzle, rng: replace(
            puzzle, roles=rng.choice([roles for roles in ROLE_PAIRS if roles != puzzle.roles])
        ),
        "flip_role": lambda puzzle, _: replace(
            puzzle, roles=RoleWords(truthful=puzzle.roles.lying, lying=puzzle.roles.truthful)
        ),
    }
)
"""Name of a perturbation -> the changed copy, None where 200 draws found none. The first two change one fact or one
statement, so that the solution is another one; the others keep statements and solution and change the order of
speaking, the names, the words for the roles, or exchange these (knaves tell the truth)."""
