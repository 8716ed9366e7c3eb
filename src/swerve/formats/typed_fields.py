"""Find a record's fields by name and check their types: what is missing is None, a wrong type is an error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.types import Message

Names = Mapping[str, tuple[str, ...]]
"""What is read -> the fields it is looked for in; later ones where a record does not have the earlier."""

RESPONSE_NAMES: Names = {
    "id": ("id", "problem_id", "unique_id", "qid", "question_id"),
    "response": ("response", "completion", "output", "generation", "raw_generation", "model_output", "generated_text"),
    "correct": ("correct", "is_correct", "recorded_correct", "symbolic_correct"),
    "gold": ("gold", "ground_truth", "gold_answer?", "expected_answer?", "reference_answer?", "correct_answer?"),
    "prompt": ("prompt",),
    "messages": ("messages",),
    "problem": ("problem", "question"),
    "prompt_ids": ("prompt_ids",),
    "completion_ids": ("completion_ids",),
    "extracted": ("extracted", "predicted_answer?", "extracted_answer?", "extracted_expr?", "pred_token?"),
    "set": ("set", "population"),
    "kind": ("kind", "level"),
    "difficulty": ("difficulty", "level"),
    "group": (),
    "family": ("family",),
    "sample": ("sample", "sample_idx", "sample_index"),
    "step": ("step", "global_step"),
    "label": ("label", "checkpoint"),
    "reward": ("reward", "score", "recorded_reward"),
    "finish_reason": ("finish_reason",),
    "status": ("status",),
    "first_wrong": ("first_wrong",),
    "first_wrong_sentence": ("first_wrong_sentence",),
    "step_starts": ("step_starts",),
}
# In a file of problems "answer" is the gold answer, and "group" the problem's; in a file of responses they may be the
# model's, and the number of a prompt.
PROBLEM_NAMES: Names = {
    **RESPONSE_NAMES,
    "group": ("group",),
    "gold": ("gold", "ground_truth", "answer"),
    **{name: (name,) for name in ("alternatives", "solution", "prefix", "begun", "grader", "grading", "metadata")},
}

_Value = TypeVar("_Value")
_TRUTHS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}


def at_place(values: Mapping[str, Any], place: str) -> Any:
    """Return what stands at a place of a record; None: nothing, or what is not looked for.

    A place is the name of a field. `a.b` is the field `b` of the object `a`; `a?` only counts where it is a text, a
    number, a truth value or a list of one of them.

    >>> at_place({"judge": {"gold": ["2"]}}, "judge.gold?"), at_place({"gold": {"a": 2}}, "gold?")
    ('2', None)
    """
    if place in values:
        return values[place]
    if place.endswith("?"):
        value = at_place(values, place[:-1])
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        return value if isinstance(value, str | int | float) and value != "" else None
    if "." not in place:
        return None
    outer, _, inner = place.partition(".")
    return at_place(values[outer], inner) if isinstance(values.get(outer), dict) else None


def has_place(values: Mapping[str, Any], place: str) -> bool:
    """Return whether a record has a place, whatever stands there.

    >>> has_place({"extra": {"truth": None}}, "extra.truth"), has_place({"extra": 1}, "extra.truth")
    (True, False)
    """
    outer, _, inner = place.partition(".")
    return place in values or (bool(inner) and isinstance(values.get(outer), dict) and has_place(values[outer], inner))


def claimed(names: Names, fields: Mapping[str, str]) -> Names:
    """Return a table of names in which each field that the caller gave is read as what they say, and as nothing else.

    >>> claimed({"gold": ("gold",), "label": ("label", "checkpoint")}, {"gold": "label"})
    {'gold': ('label',), 'label': ('checkpoint',)}
    """
    taken = set(fields.values())
    free = {name: tuple(one for one in places if one.rstrip("?") not in taken) for name, places in names.items()}
    return {**free, **{name: (field,) for name, field in fields.items()}}


class NamesPresent:
    """A table of names, and which of its places a record can have: looked up once for all records of the same fields.

    >>> NamesPresent({"gold": ("gold", "extra.gold"), "id": ("id",)}).of({"extra": {}, "text": "2"})
    {'gold': ('extra.gold',), 'id': ()}
    """

    def __init__(self, names: Names) -> None:
        self._names, self._known = names, dict[tuple[str, ...], Names]()

    def of(self, values: Mapping[str, Any]) -> Names:
        """Return the table for a record."""
        fields = tuple(values)
        if fields not in self._known:
            if len(self._known) == MOST_KINDS:
                self._known.clear()
            self._known[fields] = {
                name: tuple(one for one in places if {one.rstrip("?"), one.rstrip("?").partition(".")[0]} & {*fields})
                for name, places in self._names.items()
            }
        return self._known[fields]


MOST_KINDS = 1000
"""Of records with different fields that are remembered."""


def without_place(values: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return a record without what stands at a place."""
    if place in values or "." not in place:
        return {name: value for name, value in values.items() if name != place}
    outer, _, inner = place.partition(".")
    return {**values, outer: without_place(values[outer], inner)}


@dataclass(frozen=True, slots=True)
class Fields:
    """A record's fields under the names that are read."""

    place: str
    values: Mapping[str, Any]
    names: Names
    """What is read -> the places where it is looked for (`at_place`), the first that holds something."""
    demanded: frozenset[str] = frozenset()
    """Names whose field the caller gave: there a value of another type is an error, elsewhere it is another field."""

    def key(self, name: str) -> str | None:
        """Return the place that holds `name`; None where none does."""
        return self._found(name)[0]

    def _found(self, name: str) -> tuple[str | None, Any]:
        """Return the place that holds `name`, and what stands there."""
        for place in self.names.get(name, ()):
            if (value := at_place(self.values, place)) is not None:
                return place, value
        return None, None

    def get(self, name: str) -> Any:
        """Return the value as it is."""
        return self._found(name)[1]

    def is_text(self, name: str) -> bool:
        """Whether it is a text."""
        return isinstance(self.get(name), str)

    def text(self, name: str) -> str | None:
        """Return a text; an empty one is an error."""
        if self.get(name) == "":
            raise ArtifactError(f"{self.place}: {name} is empty; leave the record out or give the text")
        return self._converted(name, lambda value: value if isinstance(value, str) else None, "text", strict=True)

    def label(self, name: str) -> str | None:
        """Return a text or a number as text; the empty text is None."""
        return None if self.get(name) == "" else self._converted(name, _word, "text or a number", strict=True)

    def group(self) -> str | None:
        """Return the group of the problem: 3.0, as a column with empty cells has it, is 3; blanks name none."""
        text = (self.label("group") or "").strip()
        return str(int(float(text))) if _WHOLE.fullmatch(text) else text or None

    def truth(self, name: str) -> bool | None:
        """Return a truth value, also where it is written as 0, 1 or as text."""
        return self._converted(name, as_truth, "true, false or null", strict=True)

    def ids(self, name: str) -> tuple[int, ...]:
        """Return token ids, none where there are none; an empty list is an error."""
        value = self.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not value or not all(type(one) is int and 0 <= one < 2**31 for one in value):
            raise ArtifactError(f"{self.place}: {name} must be a list of token ids with at least one, none below 0")
        return tuple(value)

    def messages(self, name: str) -> tuple[Message, ...]:
        """Return the messages of a chat, none where there are none."""
        value = self.get(name)
        return () if value is None else as_messages(value, f"{self.place}: {name}")

    def mapping(self, name: str) -> dict[str, Any]:
        """Return an object with named fields, empty if the record has no such field."""
        wanted = "an object with named fields"
        return (
            self._converted(name, lambda value: value if isinstance(value, dict) else None, wanted, strict=True) or {}
        )

    def numbers(self, name: str) -> dict[str, float]:
        """Return the numbers of an object with named fields, empty if it is missing."""
        value = self.get(name)
        given = value if isinstance(value, dict) else {}
        return {key: number for key, one in given.items() if (number := as_number(one)) is not None}

    def whole(self, name: str) -> int | None:
        """Return a whole number, None where the field holds something else and was not named by the caller."""
        return self._converted(name, _whole, "a whole number")

    def number(self, name: str) -> float | None:
        """Return a number, None where the field holds something else and was not named by the caller."""
        return self._converted(name, _number, "a number")

    def word(self, name: str) -> str | None:
        """Return a text or number as text, None where the field holds something else and was not named."""
        return self._converted(name, _word, "text or a number")

    def _converted(
        self, name: str, convert: Callable[[Any], _Value | None], wanted: str, *, strict: bool = False
    ) -> _Value | None:
        """Return a converted value; one of another type is an error where it can be nothing else."""
        place, value = self._found(name)
        if place is None:
            return None
        converted = convert(value)
        if converted is None and (name in self.demanded or (strict and not place.endswith("?"))):
            raise ArtifactError(f"{self.place}: {name} must be {wanted}, got {shown(value)}")
        return converted

    def others(self, taken: Iterable[str]) -> dict[str, Any]:
        """Return the fields that hold something and from which none of the names `taken` was read."""
        used = {str(self.key(name)).rstrip("?") for name in taken if self.names.get(name)}
        return {key: value for key, value in self.values.items() if key not in used and value is not None}


def as_messages(value: Any, what: str) -> tuple[Message, ...]:
    """Return messages from a list of `{role, content}` or `[role, content]`; parts of text in a content are joined.

    Raises:
        ArtifactError: it is something else, or has a part that is not text; `what` says where it is.

    >>> as_messages([{"role": "user", "content": "1 + 1?"}], "line 1: prompt")
    (('user', '1 + 1?'),)
    """
    if not isinstance(value, list) or not value:
        raise ArtifactError(f"{what} must be a list of messages {{role, content}}, got {shown(value)}")
    return tuple(_message(one, what) for one in value)


def _message(value: Any, what: str) -> Message:
    if isinstance(value, dict):
        role, content = value.get("role"), value.get("content")
    elif isinstance(value, list) and len(value) == 2:
        role, content = value
    else:
        role, content = None, None
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        content = "".join(str(part.get("text", "")) for part in content)
    if not isinstance(role, str) or not isinstance(content, str):
        raise ArtifactError(
            f"{what} must be text or a list of messages with a role and a text as content, got {shown(value)}"
        )
    return role, content


def parse_fields(options: Sequence[str], names: Iterable[str] | None = None) -> dict[str, str]:
    """Return the mapping that `NAME=FIELD` options describe: the file calls NAME by FIELD.

    Args:
        options: as the command line has them.
        names: what may be named; by default what is read of a response.

    Raises:
        ConfigError: an option has no `=`, or NAME is not a name that is read.

    >>> parse_fields(["response=model_output"])
    {'response': 'model_output'}
    """
    # Each option names something that is read, and a field.
    found: dict[str, str] = {}
    known = list(RESPONSE_NAMES if names is None else names)
    for option in options:
        name, equals, field = (part.strip() for part in option.partition("="))
        if not equals or not field:
            raise ConfigError(f"--field {option!r} is not of the form NAME=FIELD, such as response=completion")
        if name not in known:
            raise ConfigError(
                f"--field {option!r}: unknown name '{name}'{nearest(name, known)}; the names are {', '.join(known)}"
            )
        found[name] = field
    return found


def as_truth(value: Any) -> bool | None:
    """Return what a value says as yes or no; None where it says neither."""
    if isinstance(value, str):
        return _TRUTHS.get(value.lower())
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None


def as_number(value: Any) -> float | None:
    """Return a finite number, or the one that a text writes; None for anything else, such as a truth value.

    >>> as_number("0.5"), as_number(True), as_number(float("nan"))
    (0.5, None, None)
    """
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):  # also a whole number beyond every float
        return None
    return number if math.isfinite(number) else None


def _whole(value: Any) -> int | None:
    number = as_number(value)
    return int(number) if number is not None and number.is_integer() and abs(number) < 2**53 else None


def _number(value: Any) -> float | None:
    truth = value if isinstance(value, bool) else _TRUTHS.get(value.lower()) if isinstance(value, str) else None
    return as_number(value) if truth is None else float(truth)


_WHOLE = re.compile(r"-?\d{1,15}\.0+")


def _word(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "" else None


def shown(value: Any) -> str:
    """Return a value as messages quote it."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
