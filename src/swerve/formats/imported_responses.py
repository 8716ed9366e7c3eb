"""Responses that other programs wrote, read in any layout.

Nothing is computed and nothing is made up: what a record does not have is None.
"""

from __future__ import annotations

import itertools
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from swerve.artifacts.messages import THOUGHTS, apart_from
from swerve.artifacts.response_columns import RESPONSES_SCHEMA, SCHEMA, response_schema
from swerve.artifacts.responses import Response, response_from_row, response_row
from swerve.errors import ArtifactError, ConfigError, NoResponseError, nearest
from swerve.formats.dialect import Dialect
from swerve.formats.dialects import LAYOUTS, TABLE, detect
from swerve.formats.imported_problems import asked_by
from swerve.formats.problem_joins import JoinCounts, join_problems, joined
from swerve.formats.program_layouts import FREE_FIELDS
from swerve.formats.records import FileRecord, iter_records
from swerve.formats.settled_fields import (
    as_graded,
    as_object,
    ended_without_text,
    first_records,
    from_cells,
    with_label,
)
from swerve.formats.typed_fields import MOST_KINDS, Fields, NamesPresent, at_place, claimed, has_place

_NUM_NAMED = 5
_READ: Mapping[str, Callable[[Fields, str], Any]] = {
    **dict.fromkeys(("label", "finish_reason", "status"), Fields.word),
    **dict.fromkeys(("step", "sample"), Fields.whole),
    "reward": Fields.number,
    "correct": Fields.truth,
    "extracted": Fields.label,
}
"""Fields of a response that a record may have -> how they are read."""
STEP_LABELS = ("first_wrong", "first_wrong_sentence")
"""Where a response goes wrong."""
_LABELS = (*STEP_LABELS, "step_starts")
"""Kept in `extra` until it is tokenised, when they are read."""
_ASKED = ("id", "family", "problem", "gold", "kind", "group", "difficulty", "prompt", "prompt_ids", "messages")
_WRITTEN = ("response", "completion_ids", "turns", "sampled", "logprobs", "parts", "set")
_COLUMNS = {"id": "problem_id", "response": "text", "problem": "question", "set": "population"}
"""Columns of a table of responses that have another name than what is read."""
TABLE_COLUMNS = (*RESPONSES_SCHEMA.names, "group", "version", "seed", "entropy")
"""Columns that are read; the others are of tokens and measurements."""
_NOT_EXTRA = frozenset((*SCHEMA.names, "prompt_text", "problem_messages"))
_PLAIN = LAYOUTS[-1]
_JSON_COLUMNS = ("messages", "turns", "parts", "extra", "problem_details")


@dataclass(slots=True)
class LeftOut:
    """What records of a file gave no response of their own."""

    num_failed: int = 0
    """Without a response, such as requests that failed."""
    first: list[str] = field(default_factory=list)
    """Where the first few of them are and what is wrong."""
    kind: str = ""
    """Which record of several of one response is read, such as that of a filter: of the first record's kind."""
    num_repeated: int = 0
    """Of a response that another record gave, as another filter read it."""
    notes: list[str] = field(default_factory=list)
    """How a field was read that could be another thing."""

    def add(self, error: str) -> None:
        """Count a record without a response."""
        self.num_failed += 1
        if self.num_failed <= _NUM_NAMED:
            self.first.append(error)

    @property
    def note(self) -> str | None:
        """How many records gave no response, with the first one; None: every one did."""
        if not self.num_failed:
            return None
        return f"records without a response, left out: {self.num_failed} ({self.first[0]})"


def read_responses(
    path: Path,
    *,
    fields: Mapping[str, str] | None = None,
    dialect: str = "auto",
    left_out: LeftOut | None = None,
) -> list[Response]:
    """Return the responses of a file, in its order; a record with several responses gives one response for each.

    Args:
        path: a file or a folder; see `iter_records`.
        fields: names of the file's fields where they differ from those known (`parse_fields`).
        dialect: layout of the records, the name of one of `LAYOUTS`; auto: detected from the first record.
        left_out: counts records without a response, which are an error by default.

    Raises:
        ArtifactError: the file is missing or damaged, a field is missing or of the wrong type; the message says where.
        ConfigError: there is no such layout.
    """
    return list(responses_of(path, iter_records(path), fields=fields, dialect=dialect, left_out=left_out))


def iter_responses(
    path: Path,
    *,
    left_out: LeftOut | None = None,
    problems: Mapping[str, Response] | None = None,
    joins: JoinCounts | None = None,
    **options: Any,
) -> Iterator[Response]:
    """Yield the responses of a file, joined to their problems (`join_problems`, `joined`); none is held.

    Args:
        path: a file or a folder; see `iter_records`.
        left_out: counts records without a response, which are an error by default.
        problems: by id.
        joins: counts how responses meet these problems.
        options: see `responses_of`.

    Raises:
        ArtifactError, ConfigError: see `read_responses` and `join_problems`.
    """

    def read(left_out: LeftOut | None, joins: JoinCounts) -> Iterator[Response]:
        own = responses_of(path, iter_records(path), left_out=left_out, **options)
        return join_problems(own, problems or {}, joins)

    return joined(read(left_out, joins or JoinCounts()), lambda: read(LeftOut(), JoinCounts()))


def responses_of(
    path: Path,
    records: Iterable[FileRecord],
    *,
    fields: Mapping[str, str] | None = None,
    dialect: str = "auto",
    left_out: LeftOut | None = None,
    verdicts_suffice: bool = False,
) -> Iterator[Response]:
    """Yield the responses of records that were read from `path`, one record at a time; see `read_responses`.

    A verdict alone is a response without text where `verdicts_suffice`. A record without a response, such as a request
    that failed, is an error, unless there is `left_out` to count it.
    """
    given = fields or {}
    read = with_fields(path, records, given)
    try:
        for response in _read_as(path, read, given, dialect, left_out):
            if response.text is None and not response.completion_ids and not verdicts_suffice:
                raise NoResponseError(f"{response.place} has no response, only a verdict; texts are needed here")
            yield response
    except ArtifactError:
        if given:
            deque(read, maxlen=0)  # where no record has a field that the caller named, that is what is wrong
        raise


def with_fields(path: Path, records: Iterable[FileRecord], given: Mapping[str, str]) -> Iterator[FileRecord]:
    """Yield records; raise ArtifactError after the last if none has a field that the caller named."""
    lacking, present = dict(given), set[str]()
    outer = {key.partition(".")[0] for key in given.values() if "." in key}
    for record in records:
        # What a place within an object is looked for in may be JSON in a text, as in a table or in CSV.
        objects = {name: found for name in outer if (found := as_object(record.values.get(name))) is not None}
        if objects:
            record = replace(record, values={**record.values, **objects})
        if lacking:
            present.update(record.values)
            present.update(f"{name}.{inner}" for name, found in objects.items() for inner in found)
            lacking = {name: key for name, key in lacking.items() if not has_place(record.values, key)}
        yield record
    for name, key in lacking.items():
        known = sorted(present)
        raise ArtifactError(
            f"{path} has no field '{key}' (--field {name}={key}){nearest(key, known)}; it has {', '.join(known[:12])}"
        )


def _read_as(
    path: Path, records: Iterator[FileRecord], given: Mapping[str, str], dialect: str, left_out: LeftOut | None
) -> Iterator[Response]:
    # The layout is the one named, or the one that the first record shows.
    known = list(dict.fromkeys(["auto", *(layout.name for layout in LAYOUTS)]))
    if dialect not in known:
        raise ConfigError(
            f"--format '{dialect}' is not a known layout{nearest(dialect, known)}; use {', '.join(known)}"
        )
    first = next(records)
    records = itertools.chain([first], records)
    layout = detect(first.values, None if dialect == "auto" else dialect)
    counts, has_any = left_out or LeftOut(), False
    judged_by_caller = bool({"correct", "reward"} & given.keys())
    if layout is TABLE:
        read = ((_of_table(record, given), record.values) for record in records)
        yield from (one if judged_by_caller else as_graded(one, values) for one, values in read)
        return
    head: list[FileRecord] = []
    if "label" in first.values and "label" not in given.values():
        head = first_records(records)
        records = itertools.chain(head, records)
    if layout.repeated is not None:
        records = _without_repeats(records, layout.repeated, counts)
    of_rows = _LayoutsOfRows(path, layout, given, head, counts.notes, is_open=dialect == "auto")
    for record in records:
        own, names = of_rows.layout(record.values)
        entries = own.responses(record, path, given, names)
        for entry in _each_response(entries, left_out):
            try:
                response = _with_columns(_response(entry, own.name, is_cells=record.is_cells), entry.values)
            except NoResponseError as error:
                if left_out is None:
                    raise
                left_out.add(str(error))
                continue
            yield response if judged_by_caller else as_graded(response, entry.values)
            has_any = True
    if not has_any:
        raise ArtifactError(f"{path}: none of its {counts.num_failed} records has a response; {counts.first[0]}")


def _each_response(entries: Iterator[Fields], left_out: LeftOut | None) -> Iterator[Fields]:
    """Yield the responses of a record; one that has none is counted where there is `left_out`, else an error."""
    try:
        yield from entries
    except NoResponseError as error:
        if left_out is None:
            raise
        left_out.add(str(error))


class _LayoutsOfRows:
    """The layout of each record of a file: that of the first, but where a row has nothing in what marks it."""

    def __init__(
        self,
        path: Path,
        first: Dialect,
        given: Mapping[str, str],
        head: Sequence[FileRecord],
        notes: list[str],
        *,
        is_open: bool,
    ) -> None:
        self._path, self._first, self._given, self._head, self._notes = path, first, given, head, notes
        self._is_open = is_open
        self._known: dict[tuple[str, ...], tuple[Dialect, NamesPresent]] = {}
        self._names: dict[int, NamesPresent] = {}

    def layout(self, values: Mapping[str, Any]) -> tuple[Dialect, NamesPresent]:
        """Return a record's layout and its names, looked up once for records of the same fields and no objects."""
        fields = tuple(name for name, value in values.items() if value is not None)
        has_objects = any(isinstance(value, dict) for value in values.values())
        if has_objects or fields not in self._known:
            found = self._found(values)
            if has_objects or len(self._known) == MOST_KINDS:
                return found
            self._known[fields] = found
        return self._known[fields]

    def _found(self, values: Mapping[str, Any]) -> tuple[Dialect, NamesPresent]:
        own = self._first
        if self._is_open and (own is _PLAIN or own.lacks_all(values)):
            own = detect(values)
        own = self._first if own is TABLE else own
        if id(own) not in self._names:
            names = claimed(own.names, self._given)
            if self._head:
                names = with_label(self._path, self._head, names, [] if self._names else self._notes)
            self._names[id(own)] = NamesPresent(names)
        return own, self._names[id(own)]


def _without_repeats(
    records: Iterable[FileRecord], repeated: Callable[[Mapping[str, Any]], tuple[bytes, str]], counts: LeftOut
) -> Iterator[FileRecord]:
    """Yield one record of each response, in any order of the file: of the kind of the first one, where it has one."""
    seen, others = set[bytes](), dict[bytes, FileRecord]()
    for record in records:
        key, kind = repeated(record.values)
        counts.kind = counts.kind or kind
        if kind == counts.kind:
            counts.num_repeated += others.pop(key, None) is not None
            seen.add(key)
            yield record
        elif key in seen or key in others:
            counts.num_repeated += 1
        else:
            others[key] = record
    yield from others.values()


def _of_table(record: FileRecord, given: Mapping[str, str]) -> Response:
    """Return a row of a table of responses, which may have been exported and changed since."""
    taken = set(given.values())
    columns = {name: value for name, value in record.values.items() if name in TABLE_COLUMNS and name not in taken}
    of_problem = Fields(record.place, record.values, {"group": (given["group"],)} if "group" in given else {})
    columns |= {
        _COLUMNS.get(name, name): at_place(record.values, key) for name, key in given.items() if name != "group"
    }
    if "prompt_text" in record.values:  # a data set of conversations, whose messages have the response too
        columns |= {"prompt": record.values["prompt_text"], "messages": record.values["problem_messages"]}
    if not columns.get("completion_ids") or not columns.get("prompt_ids"):  # ids alone cannot be placed after a prompt
        columns |= dict.fromkeys(("completion_ids", "prompt_ids", "sampled", "token_starts", "token_ends"))
    try:
        if record.is_cells:
            columns = from_cells(columns)
        # Arrow checks the types; what stands in a column as JSON may also come as an object.
        typed = response_schema(*(name for name in columns if name not in _JSON_COLUMNS))
        row = {**columns, **pa.Table.from_pylist([columns], schema=typed).to_pylist()[0]}
        _check_spans(row)
        response = response_from_row(row, place=record.place, dialect=TABLE.name)
        if (group := of_problem.group()) is not None:  # the column of this name is of training
            response = replace(response, problem=replace(response.problem, group=group))
    except (ValueError, TypeError) as error:
        raise ArtifactError(f"{record.place}: {' '.join(str(error).split())}") from None
    others = {name: value for name, value in record.values.items() if name not in _NOT_EXTRA and value is not None}
    return replace(response, extra={**others, **response.extra})


def _check_spans(row: Mapping[str, Any]) -> None:
    """Raise ValueError if the characters of a row's tokens do not cover its text."""
    starts, ends, text = row.get("token_starts"), row.get("token_ends"), row.get("text")
    if starts is None or ends is None or text is None:
        return
    if not len(starts) == len(ends) == len(row["completion_ids"]):
        raise ValueError("token_starts and token_ends must hold one integer per completion token")
    touching = starts[1:] == ends[:-1]
    if starts[0] != 0 or ends[-1] != len(text) or not touching or any(map(operator.lt, ends, starts)):
        raise ValueError("token_starts and token_ends do not cover the response from beginning to end")


_OF_PROBLEMS = ("answer", "solution", "target", "final_answer")
"""Fields that files of problems have for what is right."""


def _unread_text(entry: Fields) -> str:
    """Return the field that may be the response: `text`, or the only text that is nothing else; FIELD: none is."""
    known = {place.rstrip("?") for places in entry.names.values() for place in places}
    texts = [name for name, value in entry.values.items() if isinstance(value, str) and name not in known]
    is_one = len(texts) == 1 and texts[0].isidentifier() and texts[0] not in _OF_PROBLEMS
    return "text" if "text" in texts else texts[0] if is_one else "FIELD"


def _is_problem(entry: Fields) -> bool:
    """Whether a record is a question with what is right."""
    texts = [name for name, value in entry.values.items() if isinstance(value, str)]
    return any(name in texts for name in _OF_PROBLEMS) and any(name in texts for name in ("question", "problem"))


def _response(entry: Fields, dialect: str, *, is_cells: bool) -> Response:
    text = entry.get("response")
    if text is None and is_cells and any(name in entry.values for name in entry.names["response"]):
        text = ""  # an empty cell reads as a missing value, but is all that an empty response leaves there
    if text != "":  # some models answer with nothing
        text = entry.text("response")
    if text is None and ended_without_text(entry.values):
        text = ""
    ids, asked = entry.ids("completion_ids"), asked_by(entry)
    # A response is a text, or ids after the ids of its prompt.
    has_place_of_text = any(has_place(entry.values, place) for place in entry.names["response"])
    if text is None and not ids and (has_place_of_text or entry.truth("correct") is None):
        raise NoResponseError(
            f"{entry.place} has no response (nor completion_ids); if its field has another name say --field "
            f"response={_unread_text(entry)}"
            + "; problems alone are sampled: swerve sample MODEL --data FILE"
            * _is_problem(entry)
        )
    if ids and not asked.prompt_ids:
        raise ArtifactError(f"{entry.place} has completion_ids but no prompt_ids; give both or the texts")
    if asked.prompt_ids and not ids:
        raise ArtifactError(f"{entry.place} has prompt_ids but no completion_ids; give both or the texts")
    # What is not read, or holds something else, is kept beside it.
    read = {name: convert(entry, name) for name, convert in _READ.items()}
    labels = {name: value for name in _LABELS if (value := entry.get(name)) is not None}
    taken = [*labels, *(name for name, value in read.items() if value is not None)]
    more = {**entry.others((*taken, *_ASKED, *_WRITTEN)), **labels}
    # A thought may stand in a field of its own.
    turns, beside = tuple(entry.get("turns") or ()), _thought_beside(entry)
    if beside is not None and text is not None and not turns and (thought := apart_from(more[beside], text)):
        turns = ({"role": "assistant", "content": text, "reasoning_content": thought},)
        del more[beside]
    return replace(
        asked,
        place=entry.place,
        dialect=dialect,
        text=text,
        completion_ids=ids,
        turns=turns,
        sampled=tuple(entry.get("sampled") or ()),
        logprobs=tuple(entry.get("logprobs") or ()),
        parts=entry.numbers("parts"),
        population=entry.label("set") or "",
        extra=more,
        **read,
    )


def _thought_beside(entry: Fields) -> str | None:
    """Return the field that has what the model thought before its response; None: none, or it is read as another."""
    if not any(name in entry.values for name in THOUGHTS):
        return None
    others = {place.rstrip("?") for places in entry.names.values() for place in places}
    found = (name for name in THOUGHTS if name not in others and isinstance(entry.values.get(name), str))
    return next((name for name in found if entry.values[name]), None)


def _with_columns(response: Response, values: Mapping[str, Any]) -> Response:
    """Return a response with the columns that `swerve data export` wrote into a free field of its record, if it did."""
    for name, elsewhere in FREE_FIELDS.items():
        told = values.get(name)
        if not isinstance(told, dict) or "exported_by" not in told:
            continue
        row = response_row(response)
        free = [name for name in set(row) - elsewhere if not pa.types.is_list(SCHEMA.field(name).type)]
        columns = {**row, **{name: told.get(name) for name in free}}
        if (source := told.get("asked_by")) in ("question", "prompt"):  # as the only message, of the user
            columns |= {"messages": None, source: response.problem.messages[0][1] or None}
        return _of_table(FileRecord(response.place, columns), {})
    return response
