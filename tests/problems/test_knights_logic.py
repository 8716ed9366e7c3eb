from __future__ import annotations

from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.problems.knights_logic import (
    LETTERS,
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

NAMES = ("Ann", "Bob", "Eve")
PUZZLES = st.sampled_from([2, 3]).flatmap(
    lambda people: st.tuples(*[st.sampled_from(all_statements(people)) for _ in range(people)])
)


def reading(text: str, knights: dict[str, bool]) -> bool:
    """Whether a puzzle's text holds, read word by word and independently of the package."""
    return all(holds(sentence.split(), knights) for sentence in text.split(" .")[:-1])


def holds(words: list[str], knights: dict[str, bool]) -> bool:
    speaker, verb, *body = words
    return knights[speaker] == (body_holds(" ".join(body), knights) == (verb == "says"))


def body_holds(body: str, knights: dict[str, bool]) -> bool:
    if body.startswith("if "):
        first, second = body.removeprefix("if ").split(" then ")
        return body_holds(second, knights) if body_holds(first, knights) else True
    for word, accepted in ((" and ", [2]), (" or ", [1, 2]), (" iff ", [0, 2])):
        if word in body:
            return sum(body_holds(part, knights) for part in body.split(word)) in accepted
    if body.startswith("not "):
        return not body_holds(body.removeprefix("not "), knights)
    name, role = body.split()
    return knights[name] if role == "knight" else not knights[name]


def exchanged(statement: Statement) -> Statement:
    return Statement(atoms=statement.atoms[::-1], connective=statement.connective, denied=statement.denied)


def renamed(puzzle: Puzzle, order: tuple[int, ...]) -> Puzzle:
    """The puzzle in which person i speaks at place `order[i]`."""
    moved = {
        order[speaker]: Statement(
            atoms=tuple(Atom(person=order[a.person], role=a.role, negated=a.negated) for a in statement.atoms),
            connective=statement.connective,
            denied=statement.denied,
        )
        for speaker, statement in enumerate(puzzle)
    }
    return tuple(moved[place] for place in range(len(puzzle)))


@pytest.mark.parametrize(
    ("connective", "table"),
    [
        ("and", [True, False, False, False]),
        ("or", [True, True, True, False]),
        ("if", [True, False, True, True]),
        ("iff", [True, False, False, True]),
    ],
)
def test_truth_tables(connective: str, table: list[bool]) -> None:
    assert [connect(connective, a, b) for a, b in product((True, False), repeat=2)] == table


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ann says Bob knave . Bob says Ann knave .", [(True, False), (False, True)]),
        ("Ann says Ann knave . Bob says Ann knave .", []),
        ("Ann says Ann knave and Bob knight . Bob says Bob knight .", [(False, False)]),
        ("Ann denies Bob knight or Ann knave . Bob denies Ann knave .", [(False, False)]),
        ("Ann says if Bob knave then Ann knave . Bob says Ann knight .", [(True, True)]),
        ("Ann says not Bob knight iff Ann knight . Bob denies Ann knight .", [(True, False)]),
    ],
)
def test_solutions_of_known_puzzles(text: str, expected: list[tuple[bool, ...]]) -> None:
    assert solutions(parse_puzzle(text)[0]) == expected


@given(PUZZLES)
def test_solutions_agree_with_an_independent_reading_of_the_text(puzzle: Puzzle) -> None:
    text = render_puzzle(puzzle, NAMES)
    assignments = product((True, False), repeat=len(puzzle))
    assert solutions(puzzle) == [
        knights for knights in assignments if reading(text, dict(zip(NAMES, knights, strict=False)))
    ]


@given(PUZZLES)
def test_text_and_puzzle_say_the_same(puzzle: Puzzle) -> None:
    names = NAMES[: len(puzzle)]
    assert parse_puzzle(render_puzzle(puzzle, names)) == (puzzle, names)


@pytest.mark.parametrize(
    "text",
    ["", "Ann", "Ann says Bob knave .", "Ann says Ann king .", "Ann says if Ann knave .", "Ann says Ann knave", " . ."],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a puzzle"):
        parse_puzzle(text)


@given(PUZZLES, st.data())
def test_the_structure_ignores_names_and_orders(puzzle: Puzzle, data: st.DataObject) -> None:
    order = data.draw(st.sampled_from(list(permutations(range(len(puzzle))))))
    moved = tuple(
        exchanged(statement) if statement.connective in ("and", "or", "iff") and data.draw(st.booleans()) else statement
        for statement in renamed(puzzle, order)
    )
    assert structure(moved) == structure(puzzle)


@given(PUZZLES, PUZZLES)
def test_equal_structures_are_the_same_puzzle_up_to_names_and_orders(first: Puzzle, second: Puzzle) -> None:
    if len(first) != len(second):
        assert structure(first) != structure(second)
        return
    same = any(
        {sentence(one, i) for i, one in enumerate(renamed(first, order))}
        == {sentence(one, i) for i, one in enumerate(second)}
        for order in permutations(range(len(first)))
    )
    assert same == (structure(first) == structure(second))


def sentence(statement: Statement, speaker: int) -> tuple[object, ...]:
    atoms = statement.atoms if statement.connective == "if" else tuple(sorted(statement.atoms))
    return speaker, atoms, statement.connective, statement.denied


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("Ann says Bob knave . Bob says Ann knight .", "Ann says Bob knight . Bob says Ann knight ."),
        (
            "Ann says if Ann knave then Bob knave . Bob says Bob knave .",
            "Ann says if Bob knave then Ann knave . Bob says Bob knave .",
        ),
        ("Ann says not Bob knight . Bob says Bob knave .", "Ann says Bob knave . Bob says Bob knave ."),
    ],
)
def test_different_structures(text: str, other: str) -> None:
    assert structure(parse_puzzle(text)[0]) != structure(parse_puzzle(other)[0])


def test_the_structures_of_two_people() -> None:
    structures = all_structures(2)
    assert len(structures) == len({text for text, _ in structures}) == 3852
    for text, puzzle in structures[::50]:
        assert structure(puzzle) == text
        assert structure(parse_puzzle(text)[0]) == text
        assert len(solutions(puzzle)) == 1
        assert LETTERS[2] not in text
