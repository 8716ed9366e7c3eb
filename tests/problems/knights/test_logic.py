from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.problems.knights.logic import (
    MAX_DEPTH,
    Statement,
    assignments_where,
    leaves,
    parse_statements,
    solutions,
    structure_key,
    truth,
)
from tests.cases import each


def statements_of(num_people: int, max_leaves: int = 6) -> st.SearchStrategy[Statement]:
    facts = st.tuples(st.sampled_from(["telling-truth", "lying"]), st.integers(0, num_people - 1))

    def composed(parts: st.SearchStrategy[Statement]) -> st.SearchStrategy[Statement]:
        several = st.lists(parts, min_size=2, max_size=3)
        return (
            parts.map(lambda part: ("not", part))
            | st.tuples(st.sampled_from(["->", "<=>"]), parts, parts)
            | st.builds(lambda head, some: (head, *some), st.sampled_from(["and", "or"]), several)
        )

    return st.recursive(facts, composed, max_leaves=max_leaves)


def puzzles_of(num_people: int) -> st.SearchStrategy[tuple[Statement, ...]]:
    return st.tuples(*[statements_of(num_people)] * num_people)


def holds(statement: Statement, assignment: tuple[bool, ...]) -> bool:
    """The meaning of a statement, written the slow and obvious way."""
    head, *parts = statement
    if head == "telling-truth":
        return assignment[parts[0]]
    if head == "lying":
        return not assignment[parts[0]]
    values = [holds(part, assignment) for part in parts]
    return {
        "not": lambda: not values[0],
        "and": lambda: all(values),
        "or": lambda: any(values),
        "->": lambda: not values[0] or values[1],
        "<=>": lambda: values[0] == values[1],
    }[head]()


@settings(max_examples=40)
@given(st.integers(2, 4).flatmap(lambda n: st.tuples(st.just(n), statements_of(n))))
def test_truth_of_a_statement_is_the_truth_in_every_assignment(case):
    num_people, statement = case
    expected = [one for one in product((True, False), repeat=num_people) if holds(statement, one)]
    assert list(assignments_where(truth(statement, num_people), num_people)) == expected


@settings(max_examples=40)
@given(st.integers(2, 4).flatmap(puzzles_of))
def test_solutions_are_the_assignments_in_which_exactly_the_truthful_tell_the_truth(statements):
    expected = [
        one
        for one in product((True, False), repeat=len(statements))
        if all(holds(statement, one) == one[speaker] for speaker, statement in enumerate(statements))
    ]
    assert solutions(statements) == expected


def test_eight_people_with_one_solution():
    chain = [("and", ("lying", i + 1), ("telling-truth", i + 1)) for i in range(7)]
    # Nobody can say that of the next one and tell the truth; the eighth says that the first lies, which is so.
    assert solutions([*chain, ("lying", 0)]) == [(False,) * 7 + (True,)]


@settings(max_examples=40)
@given(st.integers(2, 4).flatmap(puzzles_of))
def test_stored_text_is_read_back(statements):
    assert parse_statements(repr(statements)) == statements


@each(
    ("text", "message"),
    [
        ("__import__('os').system('true')", "characters that no statement has"),
        ("(('lying', 1), open)", "not a tuple of statements"),
        ("(('lying', 1), ('lying', 2))", "people 0 to 1"),
        ("(('lying', 1), ('lying', True))", "characters that no statement has"),
        ("(('lying', 1), ('lying', -1))", "people 0 to 1"),
        ("(('lying', 1), ('xor', ('lying', 0), ('lying', 1)))", "unknown statement 'xor'"),
        ("(('lying', 1), ('->', ('lying', 0)))", "'->' of 1 parts; it takes 2"),
        ("(('lying', 1), ('and', ('lying', 0)))", "'and' of 1 parts; it takes 2 to 16"),
        ("(('lying', 1), 'lying')", "'lying' is not a statement"),
        ("('lying', 1)", "'lying' is not a statement"),
        ("(('lying', 0),)", "2 to 12 people"),
        ("(" * 5000, "not a tuple"),
        ("x" * 30_000, "at most 20000"),
        ("", "not a tuple"),
    ],
)
def test_other_texts_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_statements(text)


def test_depth_is_limited():
    def nested(depth: int) -> str:
        return "(" + "('not', " * depth + "('lying', 0)" + ")" * depth + ", ('lying', 0))"

    assert parse_statements(nested(MAX_DEPTH - 1))[1] == ("lying", 0)
    with pytest.raises(ValueError, match="nested more than 20 deep"):
        parse_statements(nested(MAX_DEPTH))


def renamed(statement: Statement, order: tuple[int, ...]) -> Statement:
    head, *parts = statement
    if head in ("telling-truth", "lying"):
        return (head, order[parts[0]])
    turned = [renamed(part, order) for part in parts]
    return (head, *(turned[::-1] if head in ("and", "or", "<=>") else turned))


@settings(max_examples=40)
@given(st.integers(2, 5).flatmap(lambda n: st.tuples(puzzles_of(n), st.permutations(range(n)))))
def test_structure_does_not_depend_on_the_order_of_people_and_of_commuting_parts(case):
    statements, order = case
    moved = [renamed(statement, tuple(order)) for statement in statements]
    reordered = [moved[order.index(person)] for person in range(len(order))]
    assert structure_key(reordered) == structure_key(statements)


@pytest.mark.parametrize(
    "other",
    [
        [("lying", 1), ("and", ("telling-truth", 0), ("lying", 1))],
        [("lying", 0), ("or", ("telling-truth", 0), ("lying", 1))],
        [("lying", 1), ("or", ("telling-truth", 0), ("telling-truth", 1))],
        [("telling-truth", 1), ("or", ("telling-truth", 0), ("lying", 1))],
    ],
)
def test_structures_differ_where_statements_do(other):
    assert structure_key([("lying", 1), ("or", ("telling-truth", 0), ("lying", 1))]) != structure_key(other)


def test_an_implication_and_its_converse_have_different_structures():
    implication = ("->", ("telling-truth", 0), ("lying", 1))
    assert structure_key([("lying", 1), implication]) != structure_key(
        [("lying", 1), ("->", ("lying", 1), ("telling-truth", 0))]
    )


def test_leaves_are_in_order():
    statement = ("->", ("not", ("lying", 2)), ("or", ("telling-truth", 0), ("lying", 1)))
    assert list(leaves(statement)) == [("lying", 2), ("telling-truth", 0), ("lying", 1)]
