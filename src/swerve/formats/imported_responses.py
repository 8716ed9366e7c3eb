"""Responses that other programs wrote: read in any layout, joined to their problems, written as one table.

Nothing is computed and nothing is made up: what a record does not have is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from swerve.artifacts.responses import IMPORTED, Response, Spans
from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.formats.dialects import DIALECTS, Dialect, detect
from swerve.formats.imported_problems import asked_by, has_made_id
from swerve.formats.records import Record, read_records
from swerve.formats.typed_fields import RESPONSE_NAMES, Fields, renamed
from swerve.types import Problem

_NUM_NAMED = 5
_KINDS: Mapping[str, Callable[[Fields, str], Any]] = {
    **dict.fromkeys(("label", "finish_reason", "boundary", "status", "detail"), Fields.word),
    **dict.fromkeys(("step", "version", "sample", "group", "seed"), Fields.whole),
    **dict.fromkeys(("reward", "temperature"), Fields.number),
    **dict.fromkeys(("correct", "answered"), Fields.truth),
    "extracted": Fields.label,
    "parts": Fields.mapping,
}
"""Fields of a response that a record may have -> how they are read."""


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


def read_responses(path: Path, *, fields: Mapping[str, str] | None = None, dialect: str = "auto") -> list[Response]:
    """Return the responses of a file, in its order; a record with several responses gives one response for each.

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
) -> list[Response]:
    """Return the responses of records that were read from `path`; see `read_responses`."""
    given = fields or {}
    _check_fields(path, records, given)
    layout = dialect_of(records, dialect)
    names = renamed(RESPONSE_NAMES, given) if layout.names is None else layout.names
    is_csv = path.name.removesuffix(".gz").endswith(".csv")
    responses: list[Response] = []
    for record in records:
        for values in layout.convert(record, path, given):
            if layout.names is not None:  # what the caller names comes before what the layout says
                named = {names[name][0]: record.values[key] for name, key in given.items() if key in record.values}
                values = {**values, **named}
            if is_csv:  # an empty cell reads as a missing value, but is all that an empty response leaves there
                empty = {key: "" for key in names["response"] if key in values and values[key] is None}
                values = {**values, **empty}
            response = _response(Fields(record.place, values, names, frozenset(given)))
            responses.append(replace(response, dialect=layout.name))
    return responses


def _check_fields(path: Path, records: Sequence[Record], fields: Mapping[str, str]) -> None:
    for name, key in fields.items():
        present = sorted({key for record in records for key in record.values})
        if key not in present:
            raise ArtifactError(
                f"{path} has no field '{key}' (--field {name}={key}){nearest(key, present)}; "
                f"it has {', '.join(present[:12])}"
            )


def _response(entry: Fields) -> Response:
    text = entry.get("response")
    if text != "":  # some models answer with nothing
        text = entry.text("response")
    ids, asked = entry.ids("completion_ids"), asked_by(entry)
    # A response is a text, or ids after the ids of its prompt.
    if text is None and not ids:
        raise ArtifactError(
            f"{entry.place} has no response (nor completion_ids); if its field has another name say --field "
            "response=FIELD"
        )
    if ids and not asked.prompt_ids:
        raise ArtifactError(f"{entry.place} has completion_ids but no prompt_ids; give both or the texts")
    if asked.prompt_ids and not ids:
        raise ArtifactError(f"{entry.place} has prompt_ids but no completion_ids; give both or the texts")
    # A layout that is converted says what its other fields are; of plain records they are those that are not read.
    is_converted = "extra" in entry.names
    return replace(
        asked,
        place=entry.place,
        text=text,
        completion_ids=ids,
        spans=_spans(entry, ids, text),
        population=entry.label("set") or "",
        extra=entry.mapping("extra") if is_converted else entry.others(tuple(entry.names)),
        **{name: read(entry, name) for name, read in _KINDS.items()},
    )


def _spans(entry: Fields, ids: tuple[int, ...], text: str | None) -> Spans:
    starts, ends = entry.get("token_starts"), entry.get("token_ends")
    if not ids or text is None or not isinstance(starts, list) or not isinstance(ends, list):
        return ()
    edges = [*starts, *ends]
    if not len(starts) == len(ends) == len(ids) or not all(type(edge) is int for edge in edges):
        raise ArtifactError(f"{entry.place}: token_starts and token_ends must hold one integer per completion token")
    spans = tuple(zip(starts, ends, strict=True))
    touching = all(before[1] == after[0] for before, after in pairwise(spans))
    if spans[0][0] != 0 or spans[-1][1] != len(text) or not touching or any(end < start for start, end in spans):
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


def join_problems(responses: Sequence[Response], problems: Mapping[str, Response]) -> tuple[list[Response], JoinCounts]:
    """Return the responses with what `problems` says of their problems filled in, and how that went.

    A problem is found by the response's id or, where it has none or one that `problems` lack, by the question's text up
    to white space.
    The prompt is the response's own where it has one; the gold answer is that of `problems` where there is one.

    Raises:
        ArtifactError: a response and the problem of its id ask different questions.
    """
    # Problems are known by their id, and by the text of their question.
    by_question: dict[str, Response] = {}
    for known in problems.values():
        if known.problem.question:
            by_question.setdefault(_plain_text(known.problem.question), known)
    # Each response takes over what is known of its problem.
    joined: list[Response] = []
    counts: Counter[str] = Counter()
    for response in responses:
        own = response.problem
        by_id = None if has_made_id(own) else problems.get(own.id)
        asked = by_id or _same_question(response, by_question)
        counts["gold_damaged"] += bool(response.extra.get("gold_is_damaged"))
        if asked is None:
            joined.append(response)
            continue
        counts["by_question" if by_id is None else "by_id"] += 1
        _check_same_question(response.place, own, asked.problem)
        golds = [own.answer, asked.problem.answer]
        counts["gold_replaced"] += all(golds) and len(set(map(_plain_text, golds))) > 1
        joined.append(_filled(response, asked))
    return joined, JoinCounts(**counts)


def _plain_text(text: str) -> str:
    return " ".join(text.split())


def _same_question(response: Response, by_question: Mapping[str, Response]) -> Response | None:
    asked_by_user = [text for role, text in response.problem.messages if role == "user"]
    for text in (response.problem.question, response.prompt, *asked_by_user[-1:]):
        if text and _plain_text(text) in by_question:
            return by_question[_plain_text(text)]
    return None


def _check_same_question(place: str, own: Problem, known: Problem) -> None:
    if has_made_id(own) or not own.question or not known.question:
        return
    if _plain_text(own.question) != _plain_text(known.question):
        raise ArtifactError(
            f"{place}: the id {own.id!r} belongs to another question in the problems' file; ids must name the "
            "same problems in both (name another field with --field id=)"
        )


def _filled(response: Response, known: Response) -> Response:
    """Return a response with what is known of its problem; the prompt is its own where it has one."""
    own, asked = response.problem, response if response.has_prompt else known
    problem = replace(
        known.problem,
        **{name: getattr(asked.problem, name) for name in ("messages", "prefix", "begun")},
        id=known.problem.id if has_made_id(own) else own.id,
        question=own.question or known.problem.question,
        answer=known.problem.answer or own.answer,
        alternatives=known.problem.alternatives if known.problem.answer else own.alternatives,
        kind=known.problem.kind if own.kind == "all" else own.kind,
        family=own.family if known.problem.family == IMPORTED else known.problem.family,
    )
    return replace(response, problem=problem, prompt=asked.prompt, prompt_ids=asked.prompt_ids)


def check_prompts(path: Path, responses: Sequence[Response]) -> None:
    """Check that the prompt of every response is known, and that every id has one prompt.

    Raises:
        ArtifactError: a prompt is missing, or an id has two; the message names the problems.
    """
    lacking = [response.problem.id for response in responses if not response.has_prompt]
    if lacking:
        names = list(dict.fromkeys(lacking))
        more = f" and {len(names) - _NUM_NAMED} more" if len(names) > _NUM_NAMED else ""
        raise ArtifactError(
            f"{path}: no prompt for {len(lacking)} of {len(responses)} responses (problems "
            f"{', '.join(map(repr, names[:_NUM_NAMED]))}{more}); give the problems' file with --problems, or add a "
            "field problem or prompt to each response"
        )
    first: dict[str, Response] = {}
    for response in responses:
        name = response.problem.id
        if first.setdefault(name, response).asked != response.asked:
            raise ArtifactError(f"{response.place}: the id {name!r} occurs with two different prompts in {path}")


def numbered(responses: Sequence[Response]) -> list[Response]:
    """Return the responses; one without a number gets its place among those of its problem, checkpoint and step."""
    counts: Counter[tuple[Any, ...]] = Counter()
    found = []
    for response in responses:
        group = (response.problem.id, response.label, response.step)
        found.append(replace(response, sample=counts[group]) if response.sample is None else response)
        counts[group] += 1
    return found
