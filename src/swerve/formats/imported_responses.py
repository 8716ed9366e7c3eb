"""Responses that other programs wrote: read in any layout, joined to their problems, written as one table.

Nothing is computed and nothing is made up: what a record does not have is None.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from swerve.artifacts.tables import PROVENANCE, RESPONSES_SCHEMA, write_table
from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.formats.dialects import DIALECTS, Dialect, detect
from swerve.formats.imported_problems import ProblemRecord, problem_from_fields
from swerve.formats.records import Record, read_records
from swerve.formats.typed_fields import RESPONSE_NAMES, Fields, Ids, renamed
from swerve.types import Reward

_NUM_NAMED = 5
_EXACT_NAMES = {name: (name,) for name in (*RESPONSE_NAMES, "alternatives", "prefix", "begun", "grader", "grading")} | {
    name: (name,) for name in ("difficulty", "metadata", "token_starts", "token_ends", "boundary", "extra")
}
"""What a converted record has its fields under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseRecord:
    """One response: its text, or the ids of its tokens, or both."""

    place: str
    """Where it is in the file, for messages."""
    problem: ProblemRecord
    response: str | None = None
    completion_ids: Ids | None = None
    spans: tuple[tuple[int, int], ...] | None = None
    """Character offsets of each completion token in `response`, where they are recorded."""
    boundary: str | None = None
    """How the ids were made, where that is recorded; see `swerve.probe.response_tokens`."""
    correct: bool | None = None
    """As recorded."""
    reward: float | None = None
    """As recorded."""
    extracted: str | None = None
    set: str | None = None
    """The part of the file it belongs to."""
    label: str | None = None
    """The checkpoint that wrote it."""
    step: int | None = None
    sample: int | None = None
    """Its number among the responses to one problem."""
    finish_reason: str | None = None
    gold_is_damaged: bool = False
    """Whether the recorded gold answer was cut off."""
    dialect: str = "plain"
    """The layout it was read from."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The record's other fields."""

    @property
    def verdict(self) -> bool | None:
        """Whether it is right, as recorded; see `recorded_verdict`."""
        return recorded_verdict(self.correct, self.reward, parts=self.extra.get("parts"), status=self.status)

    @property
    def status(self) -> str | None:
        """What became of grading it, where that is recorded."""
        return self.extra.get("status")


def recorded_verdict(
    correct: bool | None, reward: float | None, *, parts: str | None, status: str | None
) -> bool | None:
    """Return whether a response is right: as recorded, else as its reward says; None where nothing says so.

    A text without an answer is wrong; of one whose grader failed or reached a limit nothing is known.

    >>> recorded_verdict(None, 0.2, parts='{"correct": 1.0}', status="graded")
    True
    >>> recorded_verdict(None, None, parts=None, status="unparsed")
    False
    """
    if correct is not None:
        return correct
    if reward is not None:
        return Reward(value=reward, status="graded", parts=json.loads(parts or "{}")).is_right
    return False if status == "unparsed" else None


def dialect_of(records: Sequence[Record], dialect: str = "auto") -> Dialect:
    """Return the layout of a file's records: the one named, or for `auto` the one that the first record shows.

    Raises:
        ConfigError: there is no layout of that name.
    """
    if dialect == "auto":
        return detect(records[0].values)
    if dialect not in DIALECTS:
        allowed = ["auto", *DIALECTS]
        raise ConfigError(
            f"--format '{dialect}' is not a known layout{nearest(dialect, allowed)}; use {', '.join(allowed)}"
        )
    return DIALECTS[dialect]


def read_responses(
    path: Path, *, fields: Mapping[str, str] | None = None, dialect: str = "auto"
) -> list[ResponseRecord]:
    """Return the responses of a file, in its order; a record with several responses gives one record for each.

    Args:
        path: JSON (a list, or `{problem_id: {response, correct, ...}}`), JSONL, CSV (each also `.gz`) or Parquet.
        fields: names of the file's fields where they differ from those known (`parse_fields`).
        dialect: layout of the records, a key of `DIALECTS`; auto: detected from the first record.

    Raises:
        ArtifactError: the file is missing or damaged, a field is missing or of the wrong type; the message says where.
        ConfigError: there is no such layout.
    """
    return responses_of(path, read_records(path), fields=fields, dialect=dialect)


def responses_of(
    path: Path, records: Sequence[Record], *, fields: Mapping[str, str] | None = None, dialect: str = "auto"
) -> list[ResponseRecord]:
    """Return the responses of records that were read from `path`; see `read_responses`."""
    _check_fields(path, records, fields or {})
    layout = dialect_of(records, dialect)
    is_csv = path.name.removesuffix(".gz").endswith(".csv")
    found: list[ResponseRecord] = []
    for record in records:
        for values in layout.convert(record, path, fields or {}):
            given = {name: record.values[key] for name, key in (fields or {}).items() if key in record.values}
            converted = {**values, **given} if layout.is_exact else values
            names = _EXACT_NAMES if layout.is_exact else renamed(RESPONSE_NAMES, fields)
            if is_csv:  # an empty cell reads as a missing value, but is all that an empty response leaves there
                converted = {
                    key: "" if value is None and key in names["response"] else value for key, value in converted.items()
                }
            entry = Fields(record.place, converted, names, frozenset(fields or ()))
            found.append(replace(_response(entry), dialect=layout.name))
    return found


def _check_fields(path: Path, records: Sequence[Record], fields: Mapping[str, str]) -> None:
    for name, key in fields.items():
        present = sorted({key for record in records for key in record.values})
        if key not in present:
            raise ArtifactError(
                f"{path} has no field '{key}' (--field {name}={key}){nearest(key, present)}; "
                f"it has {', '.join(present[:12])}"
            )


def _response(entry: Fields) -> ResponseRecord:
    response = entry.get("response")
    if response != "":  # some models answer with nothing
        response = entry.text("response")
    ids, problem = entry.ids("completion_ids"), problem_from_fields(entry)
    if response is None and ids is None:
        raise ArtifactError(
            f"{entry.place} has no response (nor completion_ids); if its field has another name say --field "
            "response=FIELD"
        )
    if ids is not None and problem.prompt_ids is None:
        raise ArtifactError(f"{entry.place} has completion_ids but no prompt_ids; give both or the texts")
    if ids is None and problem.prompt_ids is not None:
        raise ArtifactError(f"{entry.place} has prompt_ids but no completion_ids; give both or the texts")
    return ResponseRecord(
        place=entry.place,
        problem=problem,
        response=response,
        completion_ids=ids,
        spans=_spans(entry, ids, response),
        boundary=entry.word("boundary"),
        correct=entry.truth("correct"),
        reward=entry.number("reward"),
        extracted=entry.label("extracted"),
        set=entry.label("set"),
        label=entry.word("label"),
        step=entry.whole("step"),
        sample=entry.whole("sample"),
        finish_reason=entry.word("finish_reason"),
        gold_is_damaged=entry.values.get("gold_is_damaged") is True,
        extra=_extra(entry),
    )


def _extra(entry: Fields) -> dict[str, Any]:
    nested = entry.get("extra")
    if isinstance(nested, dict) and "extra" in entry.names:
        return nested
    return {} if "extra" in entry.names else entry.others(tuple(entry.names))


def _spans(entry: Fields, ids: Ids | None, response: str | None) -> tuple[tuple[int, int], ...] | None:
    starts, ends = entry.get("token_starts"), entry.get("token_ends")
    if ids is None or response is None or not isinstance(starts, list) or not isinstance(ends, list):
        return None
    edges = [*starts, *ends]
    if not len(starts) == len(ends) == len(ids) or not all(type(one) is int for one in edges):
        raise ArtifactError(f"{entry.place}: token_starts and token_ends must hold one integer per completion token")
    spans = tuple(zip(starts, ends, strict=True))
    touching = all(before[1] == after[0] for before, after in pairwise(spans))
    if spans[0][0] != 0 or spans[-1][1] != len(response) or not touching or any(end < start for start, end in spans):
        raise ArtifactError(
            f"{entry.place}: token_starts and token_ends do not cover the response from beginning to end"
        )
    return spans


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCounts:
    """How responses met their problems; each counts responses."""

    by_id: int = 0
    by_question: int = 0
    gold_replaced: int = 0
    """The recorded gold answer differed from the problems' file, which was taken."""
    gold_damaged: int = 0
    """The recorded gold answer was cut off and not taken, whether or not there was another."""


def join_problems(
    records: Sequence[ResponseRecord], problems: Mapping[str, ProblemRecord]
) -> tuple[list[ResponseRecord], JoinCounts]:
    """Return the responses with what `problems` says of their problems filled in, and how that went.

    A problem is found by the response's id or, where it has none or one that `problems` lack, by the question's text up
    to white space.
    The prompt is the response's own where it has one; the gold answer is that of `problems` where there is one.

    Raises:
        ArtifactError: a response and the problem of its id ask different questions.
    """
    by_question: dict[str, ProblemRecord] = {}
    for problem in problems.values():
        if problem.question:
            by_question.setdefault(_plain_text(problem.question), problem)
    joined: list[ResponseRecord] = []
    by_id = by_text = replaced = damaged = 0
    for record in records:
        own = record.problem
        known = problems.get(own.id) if own.has_own_id else None
        has_known_id = known is not None
        known = known or _found_by_question(own, by_question)
        damaged += record.gold_is_damaged
        if record.gold_is_damaged:
            own = replace(own, gold=None)
        if known is not None:
            by_id, by_text = by_id + has_known_id, by_text + (not has_known_id)
            _check_same_question(record, own, known)
            replaced += None not in (own.gold, known.gold) and _plain_text(own.gold) != _plain_text(known.gold)
            own = _filled(own, known)
        joined.append(replace(record, problem=own))
    return joined, JoinCounts(by_id=by_id, by_question=by_text, gold_replaced=replaced, gold_damaged=damaged)


def _plain_text(text: str | None) -> str:
    return " ".join((text or "").split())


def _found_by_question(own: ProblemRecord, by_question: Mapping[str, ProblemRecord]) -> ProblemRecord | None:
    said_by_user = [text for role, text in own.messages if role == "user"]
    texts = [own.question, own.prompt, *said_by_user[-1:]]
    return next((by_question[_plain_text(text)] for text in texts if text and _plain_text(text) in by_question), None)


def _check_same_question(record: ResponseRecord, own: ProblemRecord, known: ProblemRecord) -> None:
    if own.has_own_id and own.question and known.question and _plain_text(own.question) != _plain_text(known.question):
        raise ArtifactError(
            f"{record.place}: the id {own.id!r} belongs to another question in the problems' file; ids must name the "
            "same problems in both (name another field with --field id=)"
        )


def _filled(own: ProblemRecord, known: ProblemRecord) -> ProblemRecord:
    asking = own if own.has_prompt else known
    return replace(
        known,
        **{name: getattr(asking, name) for name in ("prompt_ids", "prompt", "messages", "prefix", "begun")},
        id=own.id if own.has_own_id else known.id,
        question=own.question or known.question,
        gold=own.gold if known.gold is None else known.gold,
        alternatives=known.alternatives if known.gold is not None else own.alternatives,
        kind=own.kind or known.kind,
        family=known.family or own.family,
    )


def check_prompts(path: Path, records: Sequence[ResponseRecord]) -> None:
    """Check that the prompt of every response is known, and that every id has one prompt.

    Raises:
        ArtifactError: a prompt is missing, or an id has two; the message names the problems.
    """
    lacking = [one.problem.id for one in records if not one.problem.has_prompt]
    if lacking:
        names = list(dict.fromkeys(lacking))
        more = f" and {len(names) - _NUM_NAMED} more" if len(names) > _NUM_NAMED else ""
        raise ArtifactError(
            f"{path}: no prompt for {len(lacking)} of {len(records)} responses (problems "
            f"{', '.join(map(repr, names[:_NUM_NAMED]))}{more}); give the problems' file with --problems, or add a "
            "field problem or prompt to each response"
        )
    first: dict[str, ProblemRecord] = {}
    for record in records:
        if first.setdefault(record.problem.id, record.problem).asked != record.problem.asked:
            raise ArtifactError(
                f"{record.place}: the id {record.problem.id!r} occurs with two different prompts in {path}"
            )


def write_responses(path: Path, records: Sequence[ResponseRecord] | pa.Table, provenance: Mapping[str, Any]) -> None:
    """Write responses, or a table of them, as `RESPONSES_SCHEMA`; JSON in the metadata says where they come from.

    Raises:
        DiskFullError: no room.
        ArtifactError: the operating system refuses.
    """
    metadata = {
        "swerve_table": "responses",
        PROVENANCE: json.dumps(provenance, sort_keys=True, ensure_ascii=False, allow_nan=False),
    }
    rows = records if isinstance(records, pa.Table) else response_rows(records)
    write_table(path, rows, RESPONSES_SCHEMA, metadata=metadata)


def read_provenance(path: Path) -> dict[str, Any]:
    """Return what a table of responses says of where it comes from; empty for any other file."""
    if path.suffix != ".parquet":
        return {}
    try:
        metadata = pq.read_schema(path).metadata or {}
        found = json.loads(metadata.get(PROVENANCE.encode(), b"{}"))
    except (OSError, ValueError, RecursionError, pa.ArrowException):
        return {}
    return found if isinstance(found, dict) else {}


def response_rows(records: Sequence[ResponseRecord]) -> list[dict[str, Any]]:
    """Return the rows of the table, in the order of the records.

    A response without a number gets its place among those of its problem, checkpoint and step.
    """
    counted: Counter[tuple[Any, ...]] = Counter()
    rows = []
    for record in records:
        group = (record.problem.id, record.label, record.step)
        rows.append(_row(record, counted[group] if record.sample is None else record.sample))
        counted[group] += 1
    return rows


_SAME_COLUMNS = ("response", "label", "step", "extracted", "finish_reason", "set", "boundary", "place")
_PROBLEM_DETAILS = ("alternatives", "prefix", "begun", "grader", "grading", "difficulty", "metadata")


def _row(record: ResponseRecord, sample: int) -> dict[str, Any]:
    problem, spans = record.problem, record.spans
    details = {name: getattr(problem, name) for name in _PROBLEM_DETAILS}
    return {
        **{name: getattr(problem, name) for name in ("family", "kind", "question", "prompt", "gold")},
        **{name: getattr(record, name) for name in _SAME_COLUMNS},
        "problem_id": problem.id,
        "messages": _json([{"role": role, "content": text} for role, text in problem.messages]),
        "sample": sample,
        "recorded_reward": record.reward,
        "recorded_correct": record.correct,
        "prompt_ids": None if problem.prompt_ids is None else list(problem.prompt_ids),
        "completion_ids": None if record.completion_ids is None else list(record.completion_ids),
        "token_starts": None if spans is None else [start for start, _ in spans],
        "token_ends": None if spans is None else [end for _, end in spans],
        "problem_details": _json({name: value for name, value in details.items() if value or name == "begun"}),
        "extra": _json(dict(record.extra)),
    }


def _json(value: Any) -> str | None:
    return json.dumps(value, ensure_ascii=False, allow_nan=False) if value else None
