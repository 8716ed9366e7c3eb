"""The statements of knights and knaves: their truth, their text, and the structure of a puzzle.

A statement is `says` or `denies` (not) of a literal or of two literals joined by and, or, if..then, iff. A literal is
`X knight`, `X knave` or one of them after `not`. A statement has at most one negation (`denies` or `not`), and its two
literals differ in person or role. People are numbered in the order in which they speak; each makes one statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations, product

__all__ = [
    "CONNECTIVES",
    "LETTERS",
    "ROLES",
    "Atom",
    "Puzzle",
    "Statement",
    "all_statements",
    "all_structures",
    "connect",
    "parse_puzzle",
    "render_puzzle",
    "solutions",
    "structure",
]

ROLES = ("knight", "knave")
CONNECTIVES = ("and", "or", "if", "iff")
LETTERS = "ABC"
"""Stand for the people in a structure's text."""


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Atom:
    """`person` is (or, negated, is not) of `role`."""

    person: int
    role: str
    """`knight` or `knave`."""
    negated: bool = False


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Statement:
    """One or two atoms, joined by `connective` (empty for one atom), said or denied."""

    atoms: tuple[Atom, ...]
    connective: str = ""
    denied: bool = False


Puzzle = tuple[Statement, ...]
"""The statement of each person, in the order in which they speak."""


def connect(connective: str, first: bool, second: bool) -> bool:
    """Return the truth value of two joined statements.

    >>> [connect("if", *values) for values in ((True, True), (True, False), (False, True), (False, False))]
    [True, False, True, True]
    """
    if connective == "and":
        return first and second
    if connective == "or":
        return first or second
    if connective == "if":
        return not first or second
    assert connective == "iff", connective
    return first == second


def _holds(statement: Statement, knights: Sequence[bool]) -> bool:
    values = [(knights[atom.person] == (atom.role == "knight")) != atom.negated for atom in statement.atoms]
    body = connect(statement.connective, *values) if len(values) == 2 else values[0]
    return body != statement.denied


@cache
def _consistent(statement: Statement, speaker: int, num_people: int) -> int:
    """Bit i: under the i-th assignment the statement is true exactly if its speaker is a knight."""
    assignments = product((True, False), repeat=num_people)
    return sum((_holds(statement, knights) == knights[speaker]) << i for i, knights in enumerate(assignments))


def solutions(puzzle: Puzzle) -> list[tuple[bool, ...]]:
    """Return every assignment (True: knight) under which exactly the knights' statements are true, by brute force.

    Order: all knights first, the last person changing fastest.
    """
    bits = -1
    for speaker, statement in enumerate(puzzle):
        bits &= _consistent(statement, speaker, len(puzzle))
    return [knights for i, knights in enumerate(product((True, False), repeat=len(puzzle))) if bits >> i & 1]


def _render_atom(atom: Atom, names: Sequence[str]) -> str:
    return f"{'not ' if atom.negated else ''}{names[atom.person]} {atom.role}"


def _render_statement(statement: Statement, speaker: int, names: Sequence[str]) -> str:
    joint = " then " if statement.connective == "if" else f" {statement.connective} "
    body = joint.join(_render_atom(atom, names) for atom in statement.atoms)
    start = "if " if statement.connective == "if" else ""
    return f"{names[speaker]} {'denies' if statement.denied else 'says'} {start}{body} ."


def render_puzzle(puzzle: Puzzle, names: Sequence[str]) -> str:
    """Return the puzzle's text, people called by `names` in the order in which they speak.

    >>> first, second = Atom(person=0, role="knight"), Atom(person=1, role="knave", negated=True)
    >>> puzzle = (Statement(connective="if", atoms=(second, first)), Statement(denied=True, atoms=(first,)))
    >>> render_puzzle(puzzle, ("Zoe", "Max"))
    'Zoe says if not Max knave then Zoe knight . Max denies Zoe knight .'
    """
    return " ".join(_render_statement(statement, speaker, names) for speaker, statement in enumerate(puzzle))


def parse_puzzle(text: str) -> tuple[Puzzle, tuple[str, ...]]:
    """Return the puzzle and the names of a text that `render_puzzle` wrote.

    Raises:
        ValueError: the text is not one.
    """
    sentences = [sentence.split() for sentence in text.split(" .")[:-1]]
    try:
        names = tuple(sentence[0] for sentence in sentences)
        puzzle = tuple(_parse_statement(sentence[1:], names) for sentence in sentences)
    except (IndexError, ValueError):
        puzzle, names = (), ()
    if not puzzle or render_puzzle(puzzle, names) != text:
        raise ValueError(f"not a puzzle: {text!r}; expected such as 'Zoe says Max knave . Max denies Zoe knight .'")
    return puzzle, names


def _parse_statement(words: list[str], names: Sequence[str]) -> Statement:
    body = [word for word in words[1:] if word != "if"]
    cut = next((i for i, word in enumerate(body) if word in ("and", "or", "then", "iff")), len(body))
    parts = [part for part in (body[:cut], body[cut + 1 :]) if part]
    connective = {"then": "if"}.get(body[cut], body[cut]) if cut < len(body) else ""
    atoms = tuple(
        Atom(person=names.index(part[-2]), role=ROLES[ROLES.index(part[-1])], negated=part[0] == "not")
        for part in parts
    )
    return Statement(atoms=atoms, connective=connective, denied=words[0] == "denies")


def _pairs(atoms: Sequence[Atom]) -> Iterator[tuple[str, tuple[Atom, Atom]]]:
    for connective in CONNECTIVES:
        chosen = permutations(atoms, 2) if connective == "if" else combinations(atoms, 2)
        yield from ((connective, pair) for pair in chosen)


def _is_simple(atoms: Sequence[Atom]) -> bool:
    facts = {(atom.person, atom.role) for atom in atoms}
    return len(facts) == len(atoms) and sum(atom.negated for atom in atoms) <= 1


@cache
def all_statements(num_people: int) -> tuple[Statement, ...]:
    """Return every statement about `num_people` people, the atoms of and, or, iff in sorted order.

    >>> len(all_statements(2)), len(all_statements(3))
    (132, 318)
    """
    atoms = sorted(
        Atom(person=person, role=role, negated=negated)
        for person in range(num_people)
        for role in ROLES
        for negated in (False, True)
    )
    said = [Statement(atoms=(atom,)) for atom in atoms]
    said += [Statement(connective=word, atoms=pair) for word, pair in _pairs(atoms) if _is_simple(pair)]
    plain = [statement for statement in said if not any(atom.negated for atom in statement.atoms)]
    denied = [Statement(connective=one.connective, atoms=one.atoms, denied=True) for one in plain]
    return (*said, *denied)


@cache
def _canonical_text(statement: Statement, speaker: int, order: tuple[int, ...]) -> str:
    """The sentence with person i called by the letter of `order[i]`, the atoms of and, or, iff sorted."""
    atoms = tuple(Atom(person=order[a.person], role=a.role, negated=a.negated) for a in statement.atoms)
    ordered = atoms if statement.connective == "if" else tuple(sorted(atoms))
    renamed = Statement(atoms=ordered, connective=statement.connective, denied=statement.denied)
    return _render_statement(renamed, order[speaker], LETTERS)


def structure(puzzle: Puzzle) -> str:
    """Return the puzzle's text with names, order of people and order of commuting atoms normalised.

    People are called A, B, C and their sentences sorted by speaker; of all ways to name them the alphabetically first
    text is taken. Two puzzles have the same structure exactly if they differ in names and orders alone.

    >>> first = parse_puzzle("Zoe says Max knave or Zoe knight . Max denies Max knave .")[0]
    >>> second = parse_puzzle("Ann denies Ann knave . Bob says Bob knight or Ann knave .")[0]
    >>> structure(first) == structure(second)
    True
    >>> structure(first)
    'A denies A knave . B says A knave or B knight .'
    """
    return min(
        " ".join(sorted(_canonical_text(statement, i, order) for i, statement in enumerate(puzzle)))
        for order in permutations(range(len(puzzle)))
    )


@cache
def all_structures(num_people: int) -> tuple[tuple[str, Puzzle], ...]:
    """Return every structure with exactly one solution, with a puzzle of that structure, sorted by structure.

    For two people; the number for three (millions) is too large to list.

    >>> len(all_structures(2))
    3852
    """
    found: dict[str, Puzzle] = {}
    for puzzle in product(all_statements(num_people), repeat=num_people):
        if len(solutions(puzzle)) == 1:
            found.setdefault(structure(puzzle), puzzle)
    return tuple(sorted(found.items()))
