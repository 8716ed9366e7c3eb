"""The English text of a puzzle of the K-and-K schema, written and read; neither loses anything."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swerve.problems.knights.logic import LIES, MAX_DEPTH, MAX_PEOPLE, TRUTHFUL, Statement, is_fact

PHRASINGS = (
    'According to {name}, "{claim}".',
    'As {name} put it, "{claim}".',
    'In a statement by {name}: "{claim}".',
    'In {name}\'s words: "{claim}".',
    '{name} asserted: "{claim}".',
    '{name} commented, "{claim}".',
    '{name} noted, "{claim}".',
    '{name} remarked, "{claim}".',
    '{name} said, "{claim}."',
    '{name} stated, "{claim}".',
    '{name} was heard saying, "{claim}".',
    '"{claim}" - {name}.',
    '"{claim}," {name} claimed.',
    '"{claim}," {name} declared.',
    '"{claim}," {name} mentioned.',
    "{name} expressed that {claim}.",
    "{name} said that {claim}.",
    "{name} told you that {claim}.",
)
"""The ways in which the schema's puzzles say who makes a claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleWords:
    """What those who tell the truth and those who lie are called."""

    truthful: str
    lying: str

    def of(self, tells_truth: bool) -> str:
        """Return a role with its article.

        >>> RoleWords(truthful="angel", lying="devil").of(True)
        'an angel'
        """
        return with_article(self.truthful if tells_truth else self.lying)


KNIGHT_KNAVE = RoleWords(truthful="knight", lying="knave")


@dataclass(frozen=True, slots=True, kw_only=True)
class Puzzle:
    """A puzzle and how it is told."""

    names: tuple[str, ...]
    statements: tuple[Statement, ...]
    """Of each person in the order of `names`."""
    order: tuple[int, ...]
    """The people in the order in which they speak."""
    phrasing: tuple[int, ...]
    """For each person the number of the phrasing (`PHRASINGS`) that introduces the claim."""
    roles: RoleWords = KNIGHT_KNAVE

    def told(self, solution: Sequence[bool]) -> dict[str, str]:
        """Return each person's word for his or her role."""
        words = (self.roles.truthful if tells else self.roles.lying for tells in solution)
        return dict(zip(self.names, words, strict=True))


def render_puzzle(puzzle: Puzzle) -> str:
    """Return the puzzle's text.

    >>> statements = (("lying", 1), ("not", ("lying", 0)))
    >>> text = render_puzzle(Puzzle(names=("Ann", "Bob"), statements=statements, order=(0, 1), phrasing=(4, 17)))
    >>> print(text[text.index("You meet"):])
    You meet 2 inhabitants: Ann, and Bob. Ann asserted: "Bob is a knave". Bob told you that Ann is not a knave. So who \
is a knight and who is a knave?
    """
    # Everybody's claim in the order of speaking, each in its phrasing.
    truthful, lying = f"{puzzle.roles.truthful}s", f"{puzzle.roles.lying}s"
    claims = " ".join(
        PHRASINGS[puzzle.phrasing[person]].format(
            name=puzzle.names[person], claim=claim_text(puzzle.statements[person], puzzle.names, puzzle.roles)
        )
        for person in puzzle.order
    )
    return (
        f"A very special island is inhabited only by {truthful} and {lying}. "
        f"{truthful.capitalize()} always tell the truth, and {lying} always lie. "
        f"You meet {len(puzzle.names)} inhabitants: {', '.join(puzzle.names[:-1])}, and {puzzle.names[-1]}. "
        f"{claims} So who is {puzzle.roles.of(True)} and who is {puzzle.roles.of(False)}?"
    )


def claim_text(statement: Statement, names: Sequence[str], roles: RoleWords) -> str:
    """Return a statement's English; parts that are themselves composed stand in parentheses.

    >>> claim_text(("->", ("lying", 0), ("and", ("lying", 1), ("telling-truth", 0))), ("Ann", "Bob"), KNIGHT_KNAVE)
    'If Ann is a knave then (Bob is a knave and Ann is a knight)'
    """
    head, *parts = statement
    is_negated = head == "not"
    if is_fact(statement) or (is_negated and is_fact(parts[0])):
        role, person = parts[0] if is_negated else statement
        return f"{names[person]} is {'not ' if is_negated else ''}{roles.of(role == TRUTHFUL)}"
    if is_negated:
        return f"it is not the case that ({claim_text(parts[0], names, roles)})"
    texts = []
    for part in parts:
        text = claim_text(part, names, roles)
        stands_alone = is_fact(part) or (part[0] == "not" and is_fact(part[1]))
        texts.append(text if stands_alone else f"({text})")
    if head == "->":
        return f"If {texts[0]} then {texts[1]}"
    return f" {'if and only if' if head == '<=>' else head} ".join(texts)


def with_article(role: str) -> str:
    """Return a role with its article; truth values have none.

    >>> with_article("altruist"), with_article("true")
    ('an altruist', 'true')
    """
    return role if role in ("true", "false") else f"{'an' if role[:1] in tuple('aeiou') else 'a'} {role}"


def answer_text(roles: Mapping[str, str]) -> str:
    """Return who is what in one line, as `Problem.answer` of these puzzles has it.

    >>> answer_text({"Zoey": "knave", "Owen": "altruist"}), answer_text({"A": "true", "B": "false"})
    ('Zoey is a knave, Owen is an altruist', 'A is true, B is false')
    """
    return ", ".join(f"{name} is {with_article(role)}" for name, role in roles.items())


_MAX_CHARS = 50_000
_NAME = r"[^\s\",.:()]{1,40}(?: [^\s\",.:()]{1,40}){0,3}?"
_HEAD = re.compile(
    r"A very special island is inhabited only by (?P<first>[\w-]{1,40})s and (?P<second>[\w-]{1,40})s\. "
    r"(?P<truthful>[\w-]{1,40})s always tell the truth, and (?P<lying>[\w-]{1,40})s always lie\. "
    r"You meet (?P<count>\d{1,2}) inhabitants: (?P<names>[^.]{1,600})\. "
)
_TAIL = re.compile(
    r" So who is an? (?P<truthful>[\w-]{1,40}) and who is an? (?P<lying>[\w-]{1,40})\?(?:\s*\(Format [^()]*\))?\s*"
)


def _claim_pattern(phrasing: str) -> re.Pattern[str]:
    pattern = re.escape(phrasing).replace(r"\{name\}", f"(?P<name>{_NAME})")
    return re.compile(pattern.replace(r"\{claim\}", '(?P<claim>[^"]*?)' if '"' in phrasing else '(?P<claim>[^".]*)'))


_CLAIMS = tuple(_claim_pattern(phrasing) for phrasing in PHRASINGS)


def parse_puzzle(text: str) -> Puzzle:
    """Return the puzzle of a text.

    A hint on the form of the answer in parentheses, `(Format ...)`, may follow the question.

    Raises:
        ValueError: the text is not phrased as the schema's puzzles are; the message says where it departs.
    """
    if len(text) > _MAX_CHARS:
        raise ValueError(f"a puzzle of {len(text)} characters; at most {_MAX_CHARS} are read")
    head = _HEAD.match(text)
    if head is None:
        raise ValueError("the text does not begin as the schema's puzzles do: who lives there, who lies, whom you meet")
    end = text.rfind(" So who is ")
    tail = _TAIL.fullmatch(text, end) if end >= 0 else None
    if tail is None:
        raise ValueError("the text does not end with 'So who is a ... and who is a ...?'")
    roles = _roles(head, tail)
    names = _names(head["names"], int(head["count"]))
    return _told(text[head.end() : end], names, roles)


def _roles(head: re.Match[str], tail: re.Match[str]) -> RoleWords:
    roles = RoleWords(truthful=head["truthful"].lower(), lying=head["lying"])
    if roles.truthful == roles.lying or any(
        {part[first], part[second]} != {roles.truthful, roles.lying}
        for part, first, second in ((head, "first", "second"), (tail, "truthful", "lying"))
    ):
        raise ValueError(f"the words for the two roles differ within the text: {roles.truthful}, {roles.lying}, ...")
    return roles


def _names(text: str, count: int) -> tuple[str, ...]:
    names = tuple(name.removeprefix("and ") for name in text.split(", "))
    if len(names) != count or len(set(names)) != count or not 2 <= count <= MAX_PEOPLE:
        raise ValueError(
            f"'{count} inhabitants' and the names {', '.join(names)} do not agree; "
            f"2 to {MAX_PEOPLE} different names are read"
        )
    return names


def _told(body: str, names: tuple[str, ...], roles: RoleWords) -> Puzzle:
    # Sentence by sentence: who speaks, and what is claimed.
    reader = _ClaimReader(names, roles)
    people = {name: person for person, name in enumerate(names)}
    statements: dict[int, Statement] = {}
    phrasing: dict[int, int] = {}
    position = 0
    while position < len(body):
        number, claim = _next_claim(body, position)
        person = people.get(claim["name"])
        if person is None:
            raise ValueError(f"{claim['name']!r} speaks but is not among the inhabitants {', '.join(names)}")
        if person in statements:
            raise ValueError(f"{claim['name']} speaks twice")
        statements[person] = reader.read(claim["claim"])
        phrasing[person] = number
        position = claim.end() + 1

    # Everybody speaks once.
    if len(statements) != len(names):
        silent = ", ".join(name for person, name in enumerate(names) if person not in statements)
        raise ValueError(f"no claim of {silent} is found")
    everybody = range(len(names))
    return Puzzle(
        names=names,
        statements=tuple(statements[person] for person in everybody),
        order=tuple(statements),
        phrasing=tuple(phrasing[person] for person in everybody),
        roles=roles,
    )


def _next_claim(body: str, position: int) -> tuple[int, re.Match[str]]:
    for number, pattern in enumerate(_CLAIMS):
        claim = pattern.match(body, position)
        if claim is not None and body[claim.end() : claim.end() + 1] in ("", " "):
            return number, claim
    raise ValueError(f"no claim in a known phrasing at: {body[position : position + 60]!r}")


class _ClaimReader:
    """Reads claims about the people of one puzzle (a recursive descent over words and parentheses)."""

    def __init__(self, names: Sequence[str], roles: RoleWords) -> None:
        self._people: Mapping[str, int] = {name: person for person, name in enumerate(names)}
        self._roles = {roles.truthful: TRUTHFUL, roles.lying: LIES}
        self._words: list[str] = []
        self._claim = ""

    def read(self, claim: str) -> Statement:
        self._claim = claim
        self._words = re.findall(r"[()]|[^\s()]+", claim)[::-1]
        statement = self._statement(1)
        if self._words:
            raise self._error()
        return statement

    def _error(self) -> ValueError:
        return ValueError(f"the claim {self._claim[:200]!r} is not read at {' '.join(self._words[:-9:-1])!r}")

    def _follows(self, phrase: str) -> bool:
        words = phrase.split()
        if [word.lower() for word in self._words[: -len(words) - 1 : -1]] != words:
            return False
        del self._words[-len(words) :]
        return True

    def _expect(self, phrase: str) -> None:
        if not self._follows(phrase):
            raise self._error()

    def _statement(self, depth: int) -> Statement:
        if self._follows("if"):
            premise = self._part(depth + 1)
            self._expect("then")
            return ("->", premise, self._part(depth + 1))
        first = self._part(depth)
        if self._follows("if and only if"):
            return ("<=>", first, self._part(depth + 1))
        for operator in ("and", "or"):
            parts = [first]
            while self._follows(operator):
                parts.append(self._part(depth + 1))
            if len(parts) > 1:
                return (operator, *parts)
        return first

    def _part(self, depth: int) -> Statement:
        if depth > MAX_DEPTH:
            raise ValueError(f"a claim is nested more than {MAX_DEPTH} deep")
        if self._follows("it is not the case that ("):
            inner = self._statement(depth + 1)
            self._expect(")")
            return ("not", inner)
        if self._follows("("):
            inner = self._statement(depth + 1)
            self._expect(")")
            return inner
        return self._fact()

    def _fact(self) -> Statement:
        words = self._words
        length = next((i for i in range(1, min(5, len(words))) if words[-1 - i] == "is"), 0)
        person = self._people.get(" ".join(words[: -length - 1 : -1])) if length else None
        if person is None:
            raise self._error()
        del words[-length - 1 :]
        negated = self._follows("not")
        if not (self._follows("a") or self._follows("an")) or not words or words[-1] not in self._roles:
            raise self._error()
        fact = (self._roles[words.pop()], person)
        return ("not", fact) if negated else fact
