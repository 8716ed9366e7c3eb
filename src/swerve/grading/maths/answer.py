"""An answer's text, read once: what it is says how it is compared, and whether it is an answer as it stands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from swerve.grading.maths.expressions import Node, NotParsed, Quantity, Relation, walk
from swerve.grading.maths.lexer import TEXT_COMMAND, normalise
from swerve.grading.maths.limits import QUICK_LIMITS
from swerve.grading.maths.parser import parse
from swerve.grading.maths.rationals import NoValue, exact
from swerve.grading.maths.vocabulary import FUNCTIONS, PERCENT_WORDS, UNITS

_CHOICE = re.compile(
    r"(?:(?:option|choice|letter|answer) ?:? ?)?\(?([A-Z])(?:\)(?! *[-+*/=^<>(_])|[.:](?= |$)|$)", re.IGNORECASE
)
_MORE_CHOICES = re.compile(
    r"[ ,;:/|&]*(?:(?:or|and|nor|not|but|maybe|perhaps|also) +)+\(?[A-Z](?![\w'])|[ ,;:/|&]*\(?[A-Z](?![\w'])(?! [a-z])"
    r"|.*(?:\([A-Z]\)|(?<![\w'])[A-Z][.):](?= |$))|.*\b(?:[Ww]ait|[Aa]ctually|[Ss]orry|[Nn]o,)"
)
"""After the letter of a choice: another one, in a list, after a word such as `or`, or as a label."""
_WORD = re.compile(r"[a-zA-Z]{3,}")
_COLON = re.compile(r"[a-zA-Z] ?:")
_REMARK = re.compile(
    r"([0-9][0-9.,]*%?) {1,2}\((?!(?:or|not|maybe|perhaps|mod)\b)([^()\\]{1,200})\)|([0-9]{3,4}) (?:AD|CE|A\.D\.)(?!\w)"
)
"""After a number, in brackets: its unit, words, or how it was calculated."""
_ADJUNCT = re.compile(
    r"(?<=[0-9a-z}%]),? (?:in total|in all|altogether|overall|exactly|as (?:required|needed|expected))$"
)
_REASON = re.compile(r",? \(?(?:because|since)\b.*$", re.DOTALL)
_ARROW = re.compile(r"\\(?:Rightarrow|implies|Longrightarrow|therefore)(?![a-zA-Z])")
_PROBABILITY = re.compile(
    r"^(?:\\Pr ?\([^()]{0,80}\)|P ?\([^()]{0,80}(?:[=<>|]|\\(?:mid|le|ge|leq|geq|cap|cup)(?![a-z]))[^()]{0,80}\)) ?="
)
_CODE = re.compile(
    r"[0-9]+(?:-[0-9]+){2,}|[0-9]+-0[0-9]+|[0-9]+(?:\.[0-9]+){2,}|[0-9]{1,2}/[0-9]{1,2}/(?:[0-9]{4}|0[0-9])"
)
"""Dates, versions and other numbers joined by signs, which are no calculation: `2024-01-05`, `555-0100`."""
_MONTH = re.compile(
    r"\b(?:(?:jan|febr)uary|march|april|may|june|july|august|(?:septem|octo|novem|decem)ber)\b", re.IGNORECASE
)
_DATE = re.compile(r"[0-9]{1,4}(?:st|nd|rd|th)?|of|the|\w{3,9}day", re.IGNORECASE)
_TIME = re.compile(r"([0-9]{1,2})(?: ?: ?([0-9]{2}))?(?: ?: ?([0-9]{2}))? ?(?:([AaPp])\.? ?[Mm]\.?)?")
_HALF_DAY = 12 * 3600


@dataclass(frozen=True)
class Answer:
    """An answer: a choice, a time of the day, a code, a formula (with its unit), or else words. Each is read once."""

    text: str
    """As it was written."""
    is_gold: bool = False
    """Whether all of its steps count: `p \\implies q` may be what is asked for."""

    @cached_property
    def written(self) -> str:
        """The text in one spelling, with all of its steps."""
        return _REASON.sub("", normalise(self.text))

    @cached_property
    def plain(self) -> str:
        """What counts of the text: the last step of an answer; the name of a probability is `P`."""
        plain = self.written if self.is_gold else _last_step(self.written)
        return _ADJUNCT.sub("", _REMARK.sub(_without_remark, _PROBABILITY.sub("P =", plain)))

    @cached_property
    def choice(self) -> str | None:
        r"""The letter of a multiple choice, such as that of `(C)`, `C`, `\text{(C)}` or `(C) 12`, not `C or D`."""
        return choice_label(self.plain)

    @cached_property
    def choice_in_any_case(self) -> str | None:
        """The letter, also of `c`, where the gold answer is known to be a choice."""
        return choice_label(self.plain, any_case=True)

    @cached_property
    def code(self) -> str | None:
        """Numbers that are joined to one word, such as a date in digits."""
        plain = self.plain.replace(r"\text", "").strip("{} ")
        return plain if _CODE.fullmatch(plain) else None

    @cached_property
    def times(self) -> frozenset[int] | None:
        """The seconds after midnight that a time of the day can mean."""
        return _clock_times(self.plain)

    @property
    def is_marked_time(self) -> bool:
        """Whether it says a.m. or p.m.

        >>> Answer("4 pm").is_marked_time, Answer("4:30").is_marked_time
        (True, False)
        """
        return re.search(r"[AaPp]\.? ?[Mm]\b", self.plain) is not None

    @cached_property
    def grouped(self) -> Node | None:
        """The formula, where `1,234` is one number."""
        return parsed(self.plain, thousands=True)

    @cached_property
    def apart(self) -> Node | None:
        """The formula, where `1,234` is two numbers."""
        return parsed(self.plain, thousands=False) if "," in self.plain else self.grouped

    @property
    def is_words(self) -> bool:
        """Whether it is no value, choice, date or time, so that only words in it can state one.

        >>> [Answer(text).is_words for text in ("10 cents", "(B) 12", "5 May", "5 in 7", "It is 5.")]
        [False, False, False, True, True]
        """
        is_choice = self.choice is not None and self.choice.isupper() and not _COLON.match(self.plain)
        if is_choice or self.code is not None or (self.times is not None and self.is_marked_time):
            return False
        if self._is_date():
            return False
        return is_calculation_in_words(self.grouped) or (self.grouped is None and self.apart is None)

    def _is_date(self) -> bool:
        words = without_text_commands(self.plain).replace(",", " ")
        return _MONTH.search(words) is not None and all(map(_DATE.fullmatch, _MONTH.sub(" ", words).split()))


def is_calculation_in_words(node: Node | None) -> bool:
    """Return whether a tree is a chain that has units before its last side, as in `12 boys / 3 in a team = 4 teams`."""
    return isinstance(node, Relation) and any(
        isinstance(part, Quantity) for side in node.sides[:-1] for part in walk(side)
    )


def parsed(text: str, *, thousands: bool) -> Node | None:
    """Return the tree of a normalised text; None: it is no formula."""
    try:
        return parse(text, thousands=thousands)
    except NotParsed:
        return None


def without_text_commands(text: str) -> str:
    """Return a text without LaTeX's text commands."""
    return TEXT_COMMAND.sub(" ", text).strip()


def is_month(words: str) -> bool:
    """Return whether a text names a month."""
    return _MONTH.search(words) is not None


def _without_remark(match: re.Match[str]) -> str:
    """Return a number without the words or the calculation behind it, and with the unit that stands there.

    >>> [Answer(text).plain for text in ("10 (minutes)", "42 (by symmetry)", "42 (40 + 2)", "2 (x + 1)")]
    ['10 minutes', '42', '42', '2 (x + 1)']
    """
    number, remark = match[1] or match[3], (match[2] or "").strip()
    if remark in UNITS or remark in PERCENT_WORDS:
        return f"{number} {remark}"
    if not remark or not FUNCTIONS.issuperset(_WORD.findall(remark)):
        return number
    calculated = parsed(remark.rpartition("=")[2], thousands=True)
    try:
        is_same = calculated is not None and exact(calculated, QUICK_LIMITS) == exact(parse(number), QUICK_LIMITS)
    except (NoValue, NotParsed):
        return match[0]
    return number if is_same else match[0]


def choice_label(text: str, *, any_case: bool = False) -> str | None:
    """Return the letter that a text begins with as the label of its choice, if no other choice follows.

    >>> choice_label("(B) 12"), choice_label("Option B."), choice_label("B or C"), choice_label("b", any_case=True)
    ('B', 'B', None, 'B')
    """
    plain = without_text_commands(text)
    match = _CHOICE.match(plain.upper() if any_case and len(plain) <= 3 else plain)
    return match[1] if match and not names_more_choices(plain, match.end()) else None


def names_more_choices(text: str, position: int) -> bool:
    """Return whether another choice follows the letter of one: in a list, after a word such as `or`, or as a label."""
    return _MORE_CHOICES.match(text, position) is not None


def _last_step(text: str) -> str:
    r"""Return what a derivation ends with.

    >>> _last_step(r"2x = 14 \implies x = 7"), _last_step(r"p \implies q")
    ('x = 7', 'p \\implies q')
    """
    before, arrow, last = text, None, text
    for arrow in _ARROW.finditer(text):
        before, last = text[: arrow.start()], text[arrow.end() :].strip()
    return last if arrow is not None and "=" in before else text


def _clock_times(text: str) -> frozenset[int] | None:
    """Return the seconds after midnight that a time can mean; two without a.m. or p.m. None: it is no time of the day.

    >>> sorted(_clock_times("8:34 p.m.")), sorted(_clock_times("08:34")), _clock_times("8")
    ([74040], [30840, 74040], None)
    """
    plain = " ".join(TEXT_COMMAND.sub(" ", text).replace("\\", "").split()).replace(" :", ":").replace(": ", ":")
    match = _TIME.fullmatch(plain.strip(" ."))
    if match is None or (match[2] is None and match[4] is None):
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.group(1, 2, 3))
    if hours > 23 or minutes > 59 or seconds > 59 or (match[4] and not 1 <= hours <= 12):
        return None
    time = hours * 3600 + minutes * 60 + seconds
    if match[4]:
        return frozenset({time % _HALF_DAY + _HALF_DAY * (match[4] in "Pp")})
    return frozenset({time}) if hours > 12 else frozenset({time % _HALF_DAY, time % _HALF_DAY + _HALF_DAY})
