"""A layout of records: a table of names, with a function for what none can say, and the responses that it yields."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swerve.artifacts.messages import THOUGHTS
from swerve.errors import ArtifactError, NoResponseError
from swerve.formats.records import FileRecord
from swerve.formats.settled_fields import counted_right
from swerve.formats.typed_fields import RESPONSE_NAMES, Fields, Names, NamesPresent, at_place, has_place, without_place
from swerve.progress import one_line

Convert = Callable[[FileRecord, Path], Iterator[dict[str, Any]]]
"""Yields the fields of each of a record's responses, where a table of names cannot say it; takes the file's path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A layout of records."""

    name: str
    marks: tuple[frozenset[str], ...] = ()
    """A record that has all fields of one of these sets, and not all null, is of this layout.

    A field may be a place within an object.
    """
    only: frozenset[str] | None = None
    """The only fields that its records have, where other layouts have the same marks."""
    names: Names
    """What is read -> the places where it is looked for; see `Fields`."""
    each: tuple[str, ...] = ()
    """Places of lists with an entry for each response: its text, or an object that has it."""
    convert: Convert | None = None
    repeated: Callable[[Mapping[str, Any]], tuple[bytes, str]] | None = None
    """Returns a digest of what a record has of a response, and which record of it this is: one is read of each."""

    def matches(self, values: Mapping[str, Any]) -> bool:
        """Return whether a record is of this layout."""
        sets = [fields for fields in self.marks if all(has_place(values, field) for field in fields)]
        is_marked = any(at_place(values, field) is not None for fields in sets for field in fields)
        return is_marked and (self.only is None or values.keys() <= self.only)

    def lists_responses(self, values: Mapping[str, Any]) -> bool:
        """Return whether a record has a list of responses where the layout looks for one."""
        return any(isinstance(at_place(values, place), list) for place in self.each)

    def lacks_all(self, values: Mapping[str, Any]) -> bool:
        """Return whether a record has nothing in any of the fields that mark the layout."""
        return all(at_place(values, field) is None for fields in self.marks for field in fields)

    def responses(
        self, record: FileRecord, path: Path, fields: Mapping[str, str], names: NamesPresent
    ) -> Iterator[Fields]:
        """Yield the fields of each response of a record.

        Args:
            record: the record.
            path: its file.
            fields: names that the caller gave for this file.
            names: the layout's and those.
        """
        given = {field: at_place(record.values, field) for field in fields.values() if has_place(record.values, field)}
        for converted in self._converted(record, path):
            values = {**converted, **given}
            entry = Fields(record.place, values, names.of(values), frozenset(fields))

            # One response, or a list of them: the one that the caller names, else where there is no single one.
            lists = (fields["response"],) if "response" in fields else () if entry.is_text("response") else self.each
            place = next((place for place in lists if isinstance(at_place(values, place), list)), None)
            if place is None and (counts := counted_right(entry)) is not None:
                right, total = counts
                for number in range(total):
                    own = {**values, "correct": number < right, "sample": number}
                    yield replace(entry, values=own, names=names.of(own))
                continue
            if place is None:
                yield entry
                continue
            for own in _expanded(record.place, values, place):
                yield Fields(record.place, own, {**names.of(own), "response": ("response",)}, frozenset(fields))

    def _converted(self, record: FileRecord, path: Path) -> Iterator[Mapping[str, Any]]:
        try:
            yield from self.convert(record, path) if self.convert else (record.values,)
        except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as error:
            raise ArtifactError(
                f"{record.place} is not what {self.name} writes: {type(error).__name__} {one_line(str(error))}"
            ) from None


_BESIDE = {
    **dict.fromkeys(("rewards", "scores", "reward", "score"), "reward"),
    **dict.fromkeys(("correct", "is_correct"), "correct"),
    **dict.fromkeys(("finish_reasons", "finish_reason"), "finish_reason"),
    "extracted": "extracted",
    "samples": "sample",
    "correctness_math_verify": "correct",
    **{name: name for name in THOUGHTS},
}
"""Lists beside the list of responses, with as many values -> what they are of each response."""
_TEXTS = ("response", "text", "content", *RESPONSE_NAMES["response"][1:])


def _expanded(where: str, values: Mapping[str, Any], place: str) -> Iterator[dict[str, Any]]:
    """Yield the fields of each response of a list, with its own value of what else is listed per response."""
    responses = at_place(values, place)
    if not responses:
        raise NoResponseError(f"{where}: {place} must be a list of responses with at least one")

    # The list, and those beside it in the same object.
    outer = place.rpartition(".")[0]
    around = at_place(values, outer) if outer else values
    lists = {key: value for key, value in around.items() if key in _BESIDE and isinstance(value, list)}
    lists = {key: one for key, one in lists.items() if key not in THOUGHTS or len(one) == len(responses)}
    rest = without_place(values, place)
    for key, value in lists.items():
        if len(value) != len(responses):
            raise ArtifactError(f"{where}: {key} has {len(value)} values for {len(responses)} {place}")
        rest = without_place(rest, f"{outer}.{key}" if outer else key)

    # An entry is a text, or an object that has more of the response than its text.
    def own_of(number: int) -> dict[str, Any]:
        return {_BESIDE[key]: value[number] for key, value in lists.items()}

    for number, entry in enumerate(responses):
        more = dict(entry) if isinstance(entry, dict) else {}
        text = next((more.pop(key) for key in _TEXTS if key in more), None) if more else entry
        if text is None and isinstance(more.get("correct"), bool):  # a verdict alone
            yield {**rest, "sample": number, **own_of(number), **more}
            continue
        if text is not None and not isinstance(text, str):
            raise ArtifactError(f"{where}: response {number + 1} of {place} is not text")
        yield {**rest, "sample": number, **own_of(number), **more, "response": text}
