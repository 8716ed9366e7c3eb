"""Statements of the K-and-K schema: their stored form, their truth, and the proof of who is what.

A statement is a tuple: `("telling-truth", i)` or `("lying", i)` of person i, `("not", s)`, `("and", s, ...)`,
`("or", s, ...)`, `("->", s, t)` or `("<=>", s, t)`. Person i makes statement i. An assignment says for each person
whether he or she tells the truth; it solves a puzzle if exactly the truthful people's statements are true.

What holds in which of the 2^n assignments is kept in the bits of one integer, so a puzzle of eight people is proved by
a few operations on numbers of 256 bits.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from hashlib import sha1
from typing import Any

Statement = tuple[Any, ...]
"""A tree as the module describes it."""

TRUTHFUL, LIES = "telling-truth", "lying"
MAX_PEOPLE = 12
MAX_DEPTH = 20
_MAX_CHARS = 20_000
_ROUNDS = 3

OPERATORS = {"not": (1, 1), "and": (2, 16), "or": (2, 16), "->": (2, 2), "<=>": (2, 2)}
"""Operator -> the smallest and largest number of parts."""
COMMUTING = ("and", "or", "<=>")
_STORED = re.compile(r"""[()\[\],\s'"a-z<=>0-9-]*""")


def parse_statements(text: str) -> tuple[Statement, ...]:
    """Return the statements of their stored text, a Python tuple with one statement a person.

    Raises:
        ValueError: the text is not such a tuple; the message says what is wrong.

    >>> parse_statements("(('lying', 1), ('not', ('telling-truth', 0)))")
    (('lying', 1), ('not', ('telling-truth', 0)))
    """
    if len(text) > _MAX_CHARS:
        raise ValueError(f"statements of {len(text)} characters; at most {_MAX_CHARS} are read")
    if not _STORED.fullmatch(text):
        raise ValueError(f"statements {_short(text)} hold characters that no statement has")
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"statements {_short(text)} are not a tuple of statements") from None
    return as_statements(value)


def as_statements(value: Any) -> tuple[Statement, ...]:
    """Return statements made of tuples from ones made of tuples or lists, after checking every part.

    Raises:
        ValueError: a part is not of the schema; the message names it.
    """
    if not isinstance(value, tuple | list) or not 2 <= len(value) <= MAX_PEOPLE:
        raise ValueError(f"statements {_short(value)} are not one statement for each of 2 to {MAX_PEOPLE} people")
    return tuple(_checked(statement, len(value), 1) for statement in value)


def _checked(value: Any, num_people: int, depth: int) -> Statement:
    if not isinstance(value, tuple | list) or not value or not isinstance(value[0], str):
        raise ValueError(f"{_short(value)} is not a statement")
    if depth > MAX_DEPTH:
        raise ValueError(f"a statement is nested more than {MAX_DEPTH} deep")
    head, *parts = value
    if head in (TRUTHFUL, LIES):
        if len(parts) != 1 or type(parts[0]) is not int or not 0 <= parts[0] < num_people:
            raise ValueError(f"{_short(value)} is not about one of the people 0 to {num_people - 1}")
        return (head, parts[0])
    if head not in OPERATORS:
        raise ValueError(f"unknown statement {head!r}; known: {', '.join((TRUTHFUL, LIES, *OPERATORS))}")
    low, high = OPERATORS[head]
    if not low <= len(parts) <= high:
        raise ValueError(f"{head!r} of {len(parts)} parts; it takes {low if low == high else f'{low} to {high}'}")
    return (head, *(_checked(part, num_people, depth + 1) for part in parts))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def everywhere(num_people: int) -> int:
    """Return the bits of all assignments."""
    return (1 << (1 << num_people)) - 1


@cache
def is_telling(person: int, num_people: int) -> int:
    """Return the bits of the assignments in which a person tells the truth.

    Assignment 0: everybody does; the last person changes fastest.
    """
    shift = num_people - 1 - person
    return sum(1 << number for number in range(1 << num_people) if not number >> shift & 1)


def truth(statement: Statement, num_people: int) -> int:
    """Return the bits of the assignments in which a statement is true.

    >>> bin(truth(("->", ("telling-truth", 0), ("telling-truth", 1)), 2))
    '0b1101'
    """
    head, *parts = statement
    if head == TRUTHFUL:
        return is_telling(parts[0], num_people)
    if head == LIES:
        return everywhere(num_people) ^ is_telling(parts[0], num_people)
    first, *others = (truth(part, num_people) for part in parts)
    if head == "not":
        return everywhere(num_people) ^ first
    for other in others:
        first = join(head, first, other, everywhere(num_people))
    return first


def join(operator: str, first: int, second: int, all_bits: int) -> int:
    """Return the bits where two joined statements are true, from the bits where each is.

    >>> [join("->", first, second, 1) for first, second in ((1, 1), (1, 0), (0, 1), (0, 0))]
    [1, 0, 1, 1]
    """
    if operator == "and":
        return first & second
    if operator == "or":
        return first | second
    if operator == "->":
        return (all_bits ^ first) | second
    assert operator == "<=>", operator
    return all_bits ^ first ^ second


@lru_cache(maxsize=4096)
def consistent(statement: Statement, speaker: int, num_people: int) -> int:
    """Return the bits of the assignments in which a statement is true exactly if its speaker tells the truth."""
    return everywhere(num_people) ^ truth(statement, num_people) ^ is_telling(speaker, num_people)


def solutions(statements: Sequence[Statement]) -> list[tuple[bool, ...]]:
    """Return every assignment (True: tells the truth) under which exactly the truthful people's statements are true.

    All assignments are tried, so exactly one entry proves that the puzzle has one solution and which.

    >>> solutions([("lying", 1), ("or", ("telling-truth", 0), ("telling-truth", 1))])
    [(False, True)]
    """
    num_people = len(statements)
    left = everywhere(num_people)
    for speaker, statement in enumerate(statements):
        left &= consistent(statement, speaker, num_people)
    return list(assignments_where(left, num_people))


def assignments_where(bits: int, num_people: int) -> Iterator[tuple[bool, ...]]:
    """Yield the assignments of these bits."""
    while bits:
        number = (bits & -bits).bit_length() - 1
        yield tuple(not number >> (num_people - 1 - person) & 1 for person in range(num_people))
        bits &= bits - 1


def is_fact(statement: Statement) -> bool:
    """Whether a statement says of one person what he or she is."""
    return statement[0] in (TRUTHFUL, LIES)


def leaves(statement: Statement) -> Iterator[Statement]:
    """Yield the facts a statement is made of, from left to right.

    >>> list(leaves(("and", ("lying", 0), ("not", ("telling-truth", 1)))))
    [('lying', 0), ('telling-truth', 1)]
    """
    if is_fact(statement):
        yield statement
        return
    for part in statement[1:]:
        yield from leaves(part)


def with_leaves(statement: Statement, facts: Iterator[Statement]) -> Statement:
    """Return a statement with other facts in the place of its own, from left to right."""
    if is_fact(statement):
        return next(facts)
    return (statement[0], *(with_leaves(part, facts) for part in statement[1:]))


def renumbered(statement: Statement, numbers: Sequence[int]) -> Statement:
    """Return a statement in which person i has the number `numbers[i]`.

    >>> renumbered(("and", ("lying", 0), ("telling-truth", 1)), (1, 0))
    ('and', ('lying', 1), ('telling-truth', 0))
    """
    return with_leaves(statement, ((role, numbers[person]) for role, person in leaves(statement)))


def structure_key(statements: Sequence[Statement]) -> str:
    """Return a text that puzzles share which differ only in names, in the order of people or of commuting parts.

    "Is not a knight" counts as "is a knave". People are distinguished by what they say and what is said of them (colour
    refinement, three rounds), so that in rare cases other puzzles share it too. Splits by this key hold no puzzle of
    one structure on both sides.

    >>> first = [("lying", 1), ("or", ("telling-truth", 0), ("lying", 1))]
    >>> second = [("or", ("lying", 0), ("telling-truth", 1)), ("not", ("telling-truth", 0))]
    >>> structure_key(first) == structure_key(second)
    True
    """
    # Colours begin equal; each round mixes in what a person says and what is said of the person.
    normal = [_normal(statement) for statement in statements]
    about = [{leaf[1] for leaf in leaves(statement)} for statement in normal]
    colours = [""] * len(normal)
    for _ in range(_ROUNDS):
        colours = [
            _digest(
                _coloured(normal[person], person, colours),
                *sorted(
                    f"{colours[speaker]} {_coloured(normal[speaker], person, colours)}"
                    for speaker, people in enumerate(about)
                    if person in people and speaker != person
                ),
            )
            for person in range(len(normal))
        ]
    return _digest(*sorted(colours))


def _normal(statement: Statement) -> Statement:
    if is_fact(statement):
        return statement
    head, *parts = statement
    if head == "not" and is_fact(parts[0]):
        role, person = parts[0]
        return (LIES if role == TRUTHFUL else TRUTHFUL, person)
    return (head, *map(_normal, parts))


def _coloured(statement: Statement, marked: int, colours: Sequence[str]) -> str:
    """The statement with people called by their colours and one of them marked, commuting parts in order."""
    head, *parts = statement
    if head in (TRUTHFUL, LIES):
        return f"{head}{'*' * (parts[0] == marked)}{colours[parts[0]]}"
    texts = [_coloured(part, marked, colours) for part in parts]
    return f"({head} {' '.join(sorted(texts) if head in COMMUTING else texts)})"


def _digest(*texts: str) -> str:
    return sha1("\n".join(texts).encode(), usedforsecurity=False).hexdigest()[:16]
