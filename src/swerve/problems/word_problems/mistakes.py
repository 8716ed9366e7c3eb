"""Reads written solutions of word problems step by step and marks what is wrong, given what was written before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from swerve.problems.word_problems.story import SIGN_WORDS, Event, Story
from swerve.types import StepMark

OPERATION, NUMBER, SLIP, DROPPED, EXTRA, FORM = (
    "wrong operation", "wrong number", "arithmetic slip", "dropped step", "extra step", "form"
)  # fmt: skip
"""The kinds of mistakes."""
_INT = r"\b[0-9]{1,6}\b"
_SENTENCE = re.compile(r"#### ?([0-9]*)|[^.#]+\.?|#|\.")
_SUM = re.compile(rf"({_INT}) ([-+*/]|{'|'.join(SIGN_WORDS.values())}) ({_INT}) (?:=|is|makes) ({_INT})")
_NUMBERS = re.compile(_INT)
_PHRASES = re.compile(
    rf"(?P<sign1>gets|gains|receives) (?P<plus1>{_INT})|has (?P<plus2>{_INT}) (?P<sign2>more)"
    rf"|(?P<sign3>loses|gives up|is down) (?P<minus1>{_INT})|has (?P<minus2>{_INT}) (?P<sign4>fewer)"
    rf"|has (?P<times>twice|{_INT} times) as many|(?P<half>keeps half|is left with half)"
)
_CLOSING = re.compile(r"\s*(?:So|That leaves) ")
_SIGN_OF = {**{word: sign for sign, word in SIGN_WORDS.items()}, **{sign: sign for sign in SIGN_WORDS}}


class _Piece(NamedTuple):
    """Something that a step states."""

    start: int
    end: int
    what: str
    """value, sign, number or result."""
    stated: str


@dataclass(slots=True)
class _Reader:
    """How far a solution has come."""

    story: Story
    value: int
    """The number of things, as written."""
    done: int = 0
    """Events that have been written down or passed over."""
    marks: list[StepMark] = field(default_factory=list)

    def read(self, text: str) -> list[StepMark]:
        """Return the marks of a whole text."""
        for number, match in enumerate(_SENTENCE.finditer(text)):
            if match.group().startswith("#"):
                self._end(match)
                return self.marks
            if match.group().strip() and not self._sentence(match.group(), match.start(), is_first=number == 0):
                return self.marks
        self.marks.append(StepMark(start=len(text), end=len(text), expected="####", kind=FORM))
        return self.marks

    def _end(self, match: re.Match[str]) -> None:
        if self.done < len(self.story.steps):
            self._mark(match.start(), match.end(), "another step", DROPPED)
        elif match.group(1) != str(self.value):
            start = match.start(1) if match.group(1) is not None else match.start()
            self._mark_number(start, match.group(1) or "", str(self.value), NUMBER)

    def _sentence(self, sentence: str, at: int, *, is_first: bool) -> bool:
        """Read a sentence; return whether it could be read."""
        written = _SUM.search(sentence)
        if written is not None:
            self._step(list(_pieces(sentence, at, written)), at, at + len(sentence))
            return True
        numbers = list(_NUMBERS.finditer(sentence))
        closing = _CLOSING.match(sentence)
        if closing and self.done < len(self.story.steps):
            self._mark(at + closing.start(), at + closing.end(), "another step", DROPPED)
            self.done = len(self.story.steps)
        if len(numbers) != 1 or not (is_first or closing):
            self._mark(at, at + len(sentence), "a step", FORM)
            return False
        stated = numbers[0].group()
        if int(stated) != self.value:
            self._mark_number(at + numbers[0].start(), stated, str(self.value), NUMBER)
            self.value = int(stated)
        return True

    def _step(self, pieces: list[_Piece], start: int, end: int) -> None:
        stated = {piece.what: piece.stated for piece in pieces}
        written = Event(stated["sign"], int(stated["number"]))
        steps = self.story.steps
        kind = None
        if self.done == len(steps):
            self._mark(start, end, "####", EXTRA)
            self.value = int(stated["result"])
            return
        event = steps[self.done]
        if written != event and written in steps[self.done + 1 :]:
            kind = DROPPED
        elif written != event and written.number in [event.number for event in self.story.events if not event.sign]:
            kind = EXTRA
        expected = {"value": str(self.value), "sign": event.sign, "number": str(event.number)}
        for piece in pieces:
            if piece.what == "result":
                right = Event(expected["sign"], int(expected["number"])).after(int(expected["value"]))
                expected["result"] = "a whole number" if right is None else str(right)
            if piece.stated != expected[piece.what]:
                self._wrong(piece, expected[piece.what], kind)
                expected[piece.what] = piece.stated  # said again it is right, given this
        self.value = int(stated["result"])
        if kind == DROPPED:
            self.done = steps.index(written, self.done + 1)
        if kind != EXTRA:
            self.done += 1

    def _wrong(self, piece: _Piece, expected: str, kind: str | None) -> None:
        if piece.what == "result":
            self._mark_number(piece.start, piece.stated, expected, SLIP)
        elif piece.what == "value":
            self._mark_number(piece.start, piece.stated, expected, NUMBER)
        elif piece.what == "number" and piece.end - piece.start == len(piece.stated):
            self._mark_number(piece.start, piece.stated, expected, kind or NUMBER)
        else:
            self._mark(piece.start, piece.end, expected, kind or (OPERATION if piece.what == "sign" else NUMBER))

    def _mark(self, start: int, end: int, expected: str, kind: str) -> None:
        self.marks.append(StepMark(start=start, end=end, expected=expected, kind=kind))

    def _mark_number(self, start: int, written: str, expected: str, kind: str) -> None:
        """Mark a wrong number from its first wrong digit on; one that ends too early at the place behind it."""
        pairs = enumerate(zip(written, expected, strict=False))
        same = next((place for place, (digit, right) in pairs if digit != right), min(len(written), len(expected)))
        self._mark(start + same, max(start + len(written), start + same + 1), expected[same:] or "the end", kind)


def _pieces(sentence: str, at: int, written: re.Match[str]) -> Iterator[_Piece]:
    """Return what a step states, in the order of the text."""
    value, sign, number, result = written.groups()
    pieces = [
        _Piece(*written.span(1), "value", value.lstrip("0") or "0"),
        _Piece(*written.span(2), "sign", _SIGN_OF[sign]),
        _Piece(*written.span(3), "number", number.lstrip("0") or "0"),
        _Piece(*written.span(4), "result", result),
    ]

    # The words around the sum say sign and number again.
    for match in _PHRASES.finditer(sentence):
        groups = {name: text for name, text in match.groupdict().items() if text is not None}
        for name, text in groups.items():
            span = match.span(name)
            if name.startswith(("plus", "minus")):
                pieces.append(_Piece(*span, "number", text))
            elif name.startswith("sign"):
                is_plus = any(other.startswith("plus") for other in groups)
                pieces.append(_Piece(*span, "sign", "+" if is_plus else "-"))
            else:
                pieces.append(_Piece(*span, "sign", "/" if name == "half" else "*"))
                factor = "2" if name == "half" or text == "twice" else text.split()[0]
                pieces.append(_Piece(*span, "number", factor))
    pieces.sort(key=lambda piece: (piece.start, piece.end))
    return (piece._replace(start=piece.start + at, end=piece.end + at) for piece in pieces)


def find_mistakes(story: Story, text: str) -> list[StepMark]:
    """Return a mark for everything wrong in a written solution, given what is written before it; none for a right one.

    The first kind of mistake that a piece can be counts: a step that a later sentence of the story is about, with
    those before it left out, is a dropped one; one with the number of a sentence that changes nothing an extra one.
    """
    return _Reader(story=story, value=story.start).read(text)
