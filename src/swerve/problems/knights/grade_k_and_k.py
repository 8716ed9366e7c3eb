"""Knights and knaves: the format of a completion, and who it says is what.

The two parts and their values are those of Logic-RL (arXiv:2502.14768): the tags `<think> </think> <answer> </answer>`,
each exactly once and in this order, and the answer, which is judged only where the format is right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from swerve.grading.text import given_beginning
from swerve.grading.thinking import final_text
from swerve.problems.knights.english import answer_text
from swerve.settings import Model
from swerve.types import Problem, Reward

_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
_KNOWN_ROLES = (("knight", "knave"), ("true", "false"))
_MAX_SHOWN = 200
_MAX_PEOPLE = 50

_TOKEN = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*|[^\w\s]|_")
_SILENT = frozenset(",;.:()[]{}*_`-\u2022\u2013\u2014#=>\u2192|\"'")
_COPULAS = frozenset(("is", "are", "a", "an", "the", "both", "all"))
_LEAD = frozenset(
    ("so", "therefore", "thus", "hence", "the", "final", "answer", "solution", "is", "name", "role", "person")
)
_LATEX = re.compile(r"\\(?:boxed|fbox|text\w{0,6}|mbox|mathrm|mathbf|q?quad)(?![a-z])|\\\\|\$")
_NOBODY = frozenset(("none", "nobody"))
_GOLD_ENTRY = re.compile(r"(?:and )?(?:\(\d+\) )?(?P<name>\S.*?) is (?:an? )?(?P<role>[\w-]+)\.?")


class KAndKGrading(Model):
    """The rewards of knights and knaves: a part for the format and a part for the answer."""

    format_right: float = 1.0
    """Reward part for a right format."""
    format_wrong: float = -1.0
    """Reward part for a wrong format."""
    answer_right: float = 2.0
    """Reward part for a right answer."""
    answer_wrong: float = -1.5
    """Reward part for a wrong answer."""
    answer_missing: float = -2.0
    """Reward part where the answer is missing or unreadable, or the format is wrong."""
    scale: Literal["parts", "correct"] = "correct"
    """parts: the value is the sum of the parts; correct: 1 if format and answer are right, else 0."""
    tags: Literal["required", "optional"] = "required"
    """optional: any format is right; without `<answer>` the answer is what follows `</think>`, or the text."""
    reading: Literal["plain", "logic_rl"] = "plain"
    """plain: the answer says who is what and nothing else; logic_rl: Logic-RL's rule, `NAME is a ROLE` anywhere,
    whatever surrounds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gold:
    people: Mapping[str, str]
    """Name -> role."""
    roles: tuple[str, ...]
    with_article: bool
    """Whether it is `is a knight` or, as for truth values, `is true`."""


def grade_k_and_k(problem: Problem, text: str) -> Reward:
    """Return the reward of a completion; its parts are `format`, `answer` and `correct`. Never raises.

    The policies are `KAndKGrading`, from `problem.grading`. What the model was given of its answer is put before the
    text (`given_beginning`). The part `correct` is 1 if format and answer are right, else 0. With `scale="parts"` every
    text has a value, the sum of the other two, answered or not. With `scale="correct"` it is the part `correct`, and
    the status is `unparsed` where the text holds no answer that says who is what.

    >>> problem = Problem(id="p", family="k_and_k", question="...", answer="Zoey is a knave, Owen is a knight")
    >>> grade_k_and_k(problem, "<think> Owen ... </think> <answer> Owen is a knight, Zoey is a knave </answer>").value
    1.0
    >>> grade_k_and_k(problem, "<think> Owen ... </think> <answer> I do not know </answer>").status
    'unparsed'
    """
    try:
        policy = KAndKGrading(**problem.grading)
        gold = _gold(problem)
    except (TypeError, ValueError) as error:
        return Reward(value=None, status="error", detail=f"{problem.id}: {str(error)[:_MAX_SHOWN]}")
    whole = given_beginning(problem, text) + text
    # A published rule sees all of the text, as it did where it was published.
    read = whole if policy.reading == "logic_rl" else final_text(whole, after_thinking=False) or ""
    return _judged(read, gold, policy)


def _judged(text: str, gold: _Gold, policy: KAndKGrading) -> Reward:
    # The format and who is said to be what.
    format_right = policy.tags == "optional" or has_right_format(text)
    answer = _answer_in(text, tags_needed=policy.tags == "required")
    said = None
    if answer and policy.reading == "logic_rl":
        said = _read_by_search(answer, gold)
    elif answer:
        said = parse_answer(answer, tuple(gold.people), gold.roles)
    right = said == gold.people

    # Each of the two has its value.
    correct = float(right and format_right)
    scored = {
        "format": policy.format_right if format_right else policy.format_wrong,
        "answer": policy.answer_missing
        if said is None or not format_right
        else policy.answer_right
        if right
        else policy.answer_wrong,
    }
    parts = {**scored, "correct": correct}

    # A scale that pays parts has a value for every text; the other has none without an answer.
    extracted = None if said is None else answer_text(said)
    if policy.scale == "parts":
        value, answered = sum(scored.values()), said is not None
        return Reward(value=value, status="graded", answered=answered, parts=parts, extracted=extracted)
    if said is None:
        detail = "the answer does not say who is what" if answer else "no answer in the text"
        return Reward(value=None, status="unparsed", parts=parts, detail=detail)
    return Reward(value=correct, status="graded", parts=parts, extracted=extracted)


def has_right_format(text: str) -> bool:
    """Return whether `<think>`, `</think>`, `<answer>` and `</answer>` occur exactly once each and in this order.

    >>> has_right_format("<think> a </think> <answer> b </answer>"), has_right_format("<answer> b </answer>")
    (True, False)
    """
    places = [text.find(tag) for tag in _TAGS]
    return all(text.count(tag) == 1 for tag in _TAGS) and places == sorted(places)


def _answer_in(text: str, *, tags_needed: bool) -> str:
    """Return the last answer in the text, empty without one."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, end) if end >= 0 else -1
    if start >= 0:
        return text[start + len("<answer>") : end].strip()
    if tags_needed or "<answer>" in text:
        return ""
    _, closing, after = text.rpartition("</think>")
    return after.strip() if closing or "<think>" not in after else ""


def _gold(problem: Problem) -> _Gold:
    entries = [_GOLD_ENTRY.fullmatch(" ".join(piece.split())) for piece in re.split(r"[,\n]", problem.answer.strip())]
    people = {entry["name"]: entry["role"].lower() for entry in entries if entry}
    if len(people) < len(entries):
        raise ValueError(f"the gold answer {problem.answer!r} does not say for each person who is what")
    if len({name.casefold() for name in people}) < len(people):
        raise ValueError(f"the names in {problem.answer!r} differ only in letter case")
    if len(people) > _MAX_PEOPLE:
        raise ValueError(f"the gold answer names {len(people)} people; at most {_MAX_PEOPLE} are read")
    named = problem.metadata.get("roles")
    stated = tuple(dict.fromkeys(people.values()))
    pairs = (tuple(str(word).lower() for word in named.values()),) if isinstance(named, Mapping) else _KNOWN_ROLES
    roles = next((pair for pair in pairs if all(pair) and set(stated) <= set(pair)), stated)
    return _Gold(people=people, roles=roles, with_article=bool(re.search(r" is an? ", problem.answer)))


def parse_answer(text: str, names: Sequence[str], roles: Sequence[str]) -> dict[str, str] | None:
    """Return the role of each person (in the order of `names`) if that is what a text says, and nothing else.

    Read are lists and sentences such as `Zoey is a knave, Owen is a knight`, `(1) Zoey is a knave (2) Owen is a
    knight`, `Zoey: knave; Owen: knight`, `(Zoey, knave), (Owen, knight)`, `Zoey and Owen are knights`, `Knights: Owen;
    Knaves: Zoey`, also in a box, with any letter case, marks of emphasis and a few words before, such as `The answer
    is`. None where a person is missing or is said to be two things, or where any other word stands, so that `Zoey is
    not a knight` or `Zoey is a knight or a knave` is never read as an assignment. Takes time linear in the text's
    length.

    >>> parse_answer("Therefore **Owen** is a Knight and Zoey is a knave.", ("Zoey", "Owen"), ("knight", "knave"))
    {'Zoey': 'knave', 'Owen': 'knight'}
    >>> parse_answer("Owen is a knight, so Zoey is a knave", ("Zoey", "Owen"), ("knight", "knave")) is None
    True
    """
    # Each token is a name, a role, or may be skipped; any other ends the reading.
    reader = _Reader(names, roles)
    tokens = _TOKEN.findall(_LATEX.sub(" ", text).casefold())
    position = 0
    while position < len(tokens):
        used = reader.take(tokens, position)
        if used == 0:
            return None
        position += used
    return reader.found()


class _Reader:
    """Reads tokens from left to right: names wait until a role follows."""

    def __init__(self, names: Sequence[str], roles: Sequence[str]) -> None:
        self._names = names
        self._by_first: dict[str, list[tuple[list[str], str]]] = {}
        for tokens, name in sorted(
            ((_TOKEN.findall(name.casefold()), name) for name in names), key=lambda entry: -len(entry[0])
        ):
            self._by_first.setdefault(tokens[0], []).append((tokens, name))
        self._singular = {role.casefold(): role for role in roles}
        self._plural = {f"{role.casefold()}s": role for role in roles}
        self._waiting: list[str] = []
        self._heading: str | None = None
        """The role of the names that follow, in lists such as `Knights: Owen`."""
        self._said: dict[str, str] = {}

    def take(self, tokens: list[str], position: int) -> int:
        """Return the number of tokens read here; 0: what stands here makes the text no plain answer."""
        token = tokens[position]
        for parts, name in self._by_first.get(token, ()):
            if tokens[position : position + len(parts)] == parts:
                self._waiting.append(name)
                assigned = self._heading is None or self._assign(self._heading)
                return len(parts) * assigned
        role = self._singular.get(token) or self._plural.get(token)
        if role and not self._waiting and tokens[position + 1 : position + 2] == [":"]:
            self._heading = role
            return 2
        if token in self._singular:
            return int(len(self._waiting) == 1 and self._assign(self._singular[token]))
        if token in self._plural:
            return int(bool(self._waiting) and self._assign(self._plural[token]))

        # Punctuation and the like may be skipped, copulas after a name, other words only before the first.
        if token in _SILENT or token.isdecimal() or token == "and" or (self._heading and token in _NOBODY):
            return 1
        return int(token in _COPULAS if self._waiting else not self._said and token in _LEAD)

    def _assign(self, role: str) -> bool:
        """Return whether nobody waiting was said to be something else before."""
        for name in self._waiting:
            if self._said.setdefault(name, role) != role:
                return False
        self._waiting = []
        return True

    def found(self) -> dict[str, str] | None:
        if self._waiting or len(self._said) < len(self._names):
            return None
        return {name: self._said[name] for name in self._names}


def _read_by_search(answer: str, gold: _Gold) -> dict[str, str] | None:
    """Return the roles by Logic-RL's rule: as many role words as people, and `NAME is a ROLE` somewhere for each.

    Of truth values, as in formulas (`A is true`), not the words alone are counted but `is true` and `is false`.
    """
    counted = [role if gold.with_article else f"is {role}" for role in gold.roles]
    if sum(answer.lower().count(words) for words in counted) != len(gold.people):
        return None
    article = {True: r"an\s+", False: r"a\s+"}
    roles = "|".join(
        f"{article[role[0] in 'aeiou'] if gold.with_article else ''}{re.escape(role)}" for role in gold.roles
    )
    said = {}
    for name in gold.people:
        claim = re.search(rf"\b{re.escape(name)}\b\s+is\s+(?:{roles})\b", answer, re.IGNORECASE)
        if claim is None:
            return None
        said[name] = claim[0].split()[-1].lower()
    return said
