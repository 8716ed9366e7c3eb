"""A response: what a model wrote for a problem and what is known of it. One record, one schema, one conversion.

Training's rollouts, evaluations, `swerve sample`, imported and selected responses and the sequences of a probe are all
tables of responses. Each names the columns of `SCHEMA` that it has; what a table lacks is not known and read as such.
What the one schema settles:

- `reward` and `correct` are the grader's; where `status` is null, those that another program recorded.
- `step` is the step of training as its program counts; `version` the updates that the weights which wrote it had had.
- `sample` numbers the responses to one problem by one model from 0 (int64, as files of other programs have any number).
- A problem without a known answer or question has null there; `kind` is `all` and `family` `imported` where none is
  known.
- Lists are null where they are empty, objects (JSON as text) likewise.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate, compress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from swerve.artifacts.files import parse_json, regular_file
from swerve.artifacts.messages import no_answer, written_text
from swerve.artifacts.problem_records import problem_from_record, problem_record
from swerve.artifacts.response_columns import SCHEMA, SIGNAL
from swerve.artifacts.streams import chunks
from swerve.artifacts.tables import PROVENANCE, iter_tables, write_tables
from swerve.errors import ArtifactError
from swerve.types import Completion, Message, Problem, Prompt, Reward, Rollout

IMPORTED = "imported"
"""Family of problems of which no family is known; who wrote what came from elsewhere."""

_OF_REWARD = ("status", "answered", "parts", "extracted", "detail")
"""What a response has of its reward under the same names."""

_SHOWN_CHARS = 200
"""Of a text, where a response is printed."""

Ids = tuple[int, ...]
Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Response:
    """What a model wrote for a problem. What is not known is None or empty.

    Example: `Response(problem=problem, text="2 + 2 = 4", label="rl-80", sample=0, correct=True)`.
    """

    problem: Problem
    text: str | None = None
    """What the model wrote, without special tokens."""
    label: str | None = None
    """Who wrote it."""
    step: int | None = None
    version: int | None = None
    sample: int | None = None
    """Its number among the responses to the problem by one model."""
    group: int | None = None
    """Number of the prompt within the step of training."""
    prompt: str | None = None
    """The text exactly as the model read it, chat template included where there was one."""
    prompt_ids: Ids = ()
    completion_ids: Ids = ()
    """The ids after the prompt as they were sampled, end of sequence included; of several turns also what the model
    did not sample, up to its last token."""
    sampled: tuple[bool, ...] = ()
    """Of each completion token, whether the model sampled it; empty: it sampled all."""
    turns: tuple[Mapping[str, Any], ...] = ()
    """The messages after the prompt where they are more than one text (`artifacts.messages`). `text` has what the
    model said in all of them, an empty line between two messages, without thoughts and calls."""
    logprobs: tuple[float | None, ...] = ()
    """Of each completion token at the temperature sampled at (greedy: at 1), nats; None where it was not sampled."""
    spans: Spans = ()
    """Character offsets of each completion token in `text`; an empty span for special tokens."""
    boundary: str | None = None
    """How prompt and text became ids: `joint` or `split`; None: the ids were given, or there are none."""
    reward: float | None = None
    correct: bool | None = None
    status: str | None = None
    answered: bool | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    extracted: str | None = None
    """The answer that a grader read."""
    detail: str | None = None
    finish_reason: str | None = None
    """`length`: sampling stopped at a limit."""
    temperature: float | None = None
    seed: int | None = None
    advantages: tuple[float | None, ...] = ()
    kl: tuple[float | None, ...] = ()
    clipped: tuple[float | None, ...] = ()
    population: str = ""
    """The part of the data that it belongs to."""
    sequence_id: int = 0
    """Its number among the sequences that a probe reads."""
    wrong: Mapping[int, str] = field(default_factory=dict)
    """Positions of wrong steps, ascending, each with what a right step has there."""
    sentence_starts: tuple[int, ...] = ()
    """Where it is known which sentence, or step, is the first wrong one, and not which of its tokens: position of the
    first token of each sentence, from 0 on."""
    wrong_sentence: int | None = None
    """Number of that sentence, from 0."""
    trace_right: bool | None = None
    """Whether its answer and its steps are right; None: steps are not checked."""
    entropy: float | None = None
    """Mean over the completion's positions, nats."""
    place: str = ""
    """Where it is in its file, for messages."""
    dialect: str = ""
    """The layout that it was read from."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The record's other fields."""

    @classmethod
    def of(cls, asked: Prompt, rollout: Rollout, **known: Any) -> Response:
        """Return a sampled and graded completion, with what else is known of it."""
        completion = rollout.completion
        response = cls(
            problem=asked.problem,
            prompt_ids=asked.token_ids,
            completion_ids=completion.token_ids,
            logprobs=completion.logprobs,
            finish_reason=completion.finish_reason,
            text=rollout.text,
            version=rollout.version,
            **known,
        )
        return response.judged(rollout.reward)

    def judged(self, reward: Reward) -> Response:
        """Return it with what a grader says of it."""
        said = {name: getattr(reward, name) for name in _OF_REWARD}
        return replace(self, reward=reward.value, correct=reward.is_right, **said)

    def __repr__(self) -> str:
        """Return three lines at most: to which problem, by whom and whether it is right; and the text's beginning."""
        number = "" if self.sample is None else f", sample {self.sample}"
        verdict = {True: "right", False: "wrong", None: "no verdict"}[self.correct]
        said = f"{len(self.completion_ids)} token ids" if self.text is None else repr(self.text[:_SHOWN_CHARS])
        rest = len(self.text or "") - _SHOWN_CHARS
        more = f"... ({rest:,} more characters)" if rest > 0 else ""
        return f"Response to {self.problem.id!r} by {self.label or 'unknown'}{number}: {verdict}\n{said}{more}"

    @property
    def rollout(self) -> Rollout:
        """The sampled and graded completion that it was made of.

        Raises:
            ValueError: it cannot be one: it has no log-probabilities, or was not graded.
        """
        ended: Any = self.finish_reason
        logprobs: Any = self.logprobs
        return Rollout(
            completion=Completion(token_ids=self.completion_ids, logprobs=logprobs, finish_reason=ended),
            text=self.text or "",
            reward=self.given_reward,
            version=self.version or 0,
        )

    @property
    def given_reward(self) -> Reward:
        """What the grader said of it.

        Raises:
            ValueError: it was not graded.
        """
        judged: Any = {name: getattr(self, name) for name in _OF_REWARD}
        return Reward(value=self.reward, **judged)

    @property
    def verdict(self) -> bool | None:
        """Whether it is right: as recorded, else as its reward says; None where nothing says so.

        A text without an answer is wrong; of one whose grader failed or reached a limit nothing is known, nor of one
        whose reward another program made of several parts of which none is `correct`.

        >>> problem = Problem(id="p", family="math", question="1 + 1?", answer="2")
        >>> Response(problem=problem, reward=0.2, parts={"correct": 1.0}).verdict
        True
        >>> Response(problem=problem, status="unparsed").verdict, Response(problem=problem, status="timeout").verdict
        (False, None)
        """
        if self.correct is not None:
            return self.correct
        if self.reward is not None and self.status is None and len(self.parts) > 1 and "correct" not in self.parts:
            return None
        if self.reward is not None:
            return Reward(value=self.reward, status="graded", parts=self.parts).is_right
        return False if self.status == "unparsed" else None

    @property
    def said(self) -> str:
        """What graders read: thoughts and calls of tools that are kept apart are not in it, those in the text are."""
        return self.text or ""

    @property
    def written(self) -> str:
        """All that the model wrote, with thoughts and calls of tools that are kept apart, each within marks."""
        return written_text(self.turns) if self.turns else self.said

    @property
    def no_answer(self) -> str | None:
        """Why it ends without an answer, in words; None: it may have one."""
        return no_answer(self.turns, self.finish_reason, self.text)

    @property
    def sampled_positions(self) -> Sequence[int]:
        """Positions of the completion tokens that the model sampled, ascending."""
        everywhere = range(len(self.completion_ids))
        return everywhere if self.is_one_turn else [*compress(everywhere, self.sampled)]

    @property
    def is_one_turn(self) -> bool:
        """Whether the model sampled all tokens of the completion."""
        return all(self.sampled)

    @property
    def turn_numbers(self) -> list[int]:
        """Of each sampled token the number of its turn, from 1: turns are runs of sampled tokens.

        >>> problem = Problem(id="p", family="math", question="?", answer="")
        >>> Response(problem=problem, completion_ids=(5, 6, 7, 8), sampled=(True, True, False, True)).turn_numbers
        [1, 1, 2]
        """
        positions = self.sampled_positions
        starts = (number == 0 or positions[number - 1] < position - 1 for number, position in enumerate(positions))
        return [*accumulate(map(int, starts))]

    @property
    def first_wrong(self) -> int | None:
        """Position of the first wrong token; None: none known."""
        return next(iter(self.wrong), None)

    def sentence_at(self, position: int) -> int:
        """Return the number of the sentence that a token belongs to, of those in `sentence_starts`."""
        return bisect_right(self.sentence_starts, position) - 1

    @property
    def has_prompt(self) -> bool:
        """Whether it is known what the model read."""
        return bool(self.prompt_ids) or any(self._said)

    @property
    def asked(self) -> tuple[Any, ...]:
        """What two responses to one problem must agree in: the texts, or the ids where there are no texts."""
        return self._said if any(self._said) else (self.prompt_ids,)

    @property
    def asked_texts(self) -> list[str]:
        """What is asked, in each form that is known: the question, the prompt, the user's messages."""
        said = [self.problem.question, self.prompt, *(text for role, text in self.problem.messages if role == "user")]
        return [text for text in said if text]

    @property
    def _said(self) -> tuple[str | None, tuple[Message, ...], str]:
        return self.prompt, self.problem.messages, self.problem.question


_JSON = ("parts", "turns", "extra")
_PLAIN = [one.name for one in fields(Response) if one.name in SCHEMA.names and one.name not in _JSON]
"""Fields that have a column of their name and type."""
_OF_PROBLEM = {"id": "problem_id", "family": "family", "kind": "kind", "question": "question", "answer": "gold"}
"""Field of a problem -> its column; `messages` and `difficulty` have one of their name, the rest is in one together."""
_UNKNOWN = Problem(id="", family=IMPORTED, question="", answer="")
"""A problem of which nothing is known."""


def response_row(response: Response) -> dict[str, Any]:
    """Return a response as a row of the table, with every column."""
    # Of the problem: its own columns, and one for what differs from a problem of which nothing is known.
    problem = problem_record(response.problem)
    said = {column: problem.pop(name) for name, column in _OF_PROBLEM.items()}
    own = {name: problem.pop(name) for name in ("messages", "difficulty")}
    details = {
        name: value for name, value in problem.items() if getattr(response.problem, name) != getattr(_UNKNOWN, name)
    }
    # Empty is null, but an empty text is one.
    plain = {name: getattr(response, name) for name in _PLAIN}
    return {
        **{name: None if value in ("", ()) and name != "text" else value for name, value in plain.items()},
        **{name: value or None for name, value in said.items()},
        "difficulty": own["difficulty"],
        "messages": _json(own["messages"]),
        "problem_details": _json(details),
        "parts": _json(dict(response.parts)),
        "turns": _json([dict(turn) for turn in response.turns]),
        "extra": _json(dict(response.extra)),
        "token_starts": [start for start, _ in response.spans] or None,
        "token_ends": [end for _, end in response.spans] or None,
        "wrong_positions": list(response.wrong),
        "wrong_expected": list(response.wrong.values()),
        "first_wrong": response.first_wrong,
    }


def _json(value: Any) -> str | None:
    return json.dumps(value, ensure_ascii=False, allow_nan=False) if value else None


def response_from_row(row: Mapping[str, Any], **known: Any) -> Response:
    """Return the response of a row, which may lack columns; objects may be given as such or as JSON text.

    Args:
        row: the row.
        known: fields of the response that are not taken from the row.

    Raises:
        ValueError: a value cannot be; the message says which column.
    """
    # What is null has the default of its field.
    values = {name: row[name] for name in _PLAIN if row.get(name) is not None}
    for name in values.keys() & {"prompt_ids", "completion_ids", "sampled", "logprobs", "sentence_starts", *SIGNAL}:
        values[name] = tuple(values[name])
    for name in ("parts", "extra"):
        values[name] = from_json(row, name, dict) or {}
    values["turns"] = tuple(from_json(row, "turns", list) or ())
    # Pairs of columns are spans, and wrong positions with what is expected there.
    starts, ends = row.get("token_starts"), row.get("token_ends")
    if starts is not None and ends is not None:
        values["spans"] = tuple(zip(starts, ends, strict=True))
    if row.get("wrong_positions"):
        values["wrong"] = dict(zip(row["wrong_positions"], row["wrong_expected"], strict=True))
    if "problem" not in known:
        values["problem"] = problem_from_row(row)
    return Response(**{**values, **known})


def problem_from_row(row: Mapping[str, Any]) -> Problem:
    """Return the problem of a row; see `response_from_row`."""
    said = {name: row.get(column) for name, column in (*_OF_PROBLEM.items(), ("difficulty", "difficulty"))}
    given = {name: getattr(_UNKNOWN, name) if value is None else value for name, value in said.items()}
    details = from_json(row, "problem_details", dict) or {}
    return problem_from_record({**details, **given, "messages": from_json(row, "messages", list)})


def from_json(row: Mapping[str, Any], name: str, kind: type) -> Any:
    """Return what a column holds as JSON text, or as what it says; None if it is empty.

    Raises:
        ValueError: it is not JSON of the kind.
    """
    value = row.get(name)
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except (ValueError, RecursionError):
            raise ValueError(f"{name} is not JSON of its kind; make the table again") from None
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"{name} is not JSON of its kind; make the table again")
    return value


def response_chunks(responses: Iterable[Response]) -> Iterator[list[Response]]:
    """Yield responses so many at a time as take some megabytes."""
    return chunks(responses, lambda each: len(str((each.text, each.turns, each.extra))) + 4 * len(each.completion_ids))


def responses_table(responses: Sequence[Response], schema: pa.Schema) -> pa.Table:
    """Return responses as a table with some of the columns of `SCHEMA`."""
    rows = [{name: row[name] for name in schema.names} for row in map(response_row, responses)]
    return pa.Table.from_pylist(rows, schema=schema)


def write_responses(
    path: Path,
    responses: Sequence[Response] | pa.Table | Iterator[pa.Table],
    schema: pa.Schema,
    *,
    table: str | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> None:
    """Write responses, or a table of them, with some of the columns; equal responses give equal bytes.

    Args:
        path: the file.
        responses: in the order of the rows; of an iterator of tables one is held at a time.
        schema: some columns of `SCHEMA`.
        table: what the file's metadata calls it; by default the file's name.
        provenance: where the responses are from, JSON in the file's metadata; None: nothing is said.

    Raises:
        DiskFullError: no room.
        ArtifactError: the operating system refuses.
    """
    metadata = {} if table is None else {"swerve_table": table}
    if provenance is not None:
        metadata[PROVENANCE] = json.dumps(provenance, sort_keys=True, ensure_ascii=False, allow_nan=False)
    if isinstance(responses, Iterator):
        tables: Iterable[pa.Table] = responses
    else:
        tables = [responses if isinstance(responses, pa.Table) else responses_table(responses, schema)]
    write_tables(path, tables, schema, metadata=metadata)


def iter_response_table(path: Path, schema: pa.Schema) -> Iterator[Response]:
    """Yield the responses of a table, in the order of its rows, with what the columns of `schema` say; none is held.

    Raises:
        ArtifactError: the file is missing or damaged, lacks a column, or has a value that cannot be; the message names
            the row.
    """
    rows = (row for table in iter_tables(path, schema) for row in table.to_pylist())
    for number, row in enumerate(rows, start=1):
        try:
            response = response_from_row(row)
        except (ValueError, TypeError) as error:
            raise ArtifactError(f"{path}, row {number}: {error}") from None
        yield response


def read_response_table(path: Path, schema: pa.Schema) -> list[Response]:
    """Return the responses of a table; see `iter_response_table`."""
    return list(iter_response_table(path, schema))


def by_problem(responses: Iterable[Response]) -> dict[str, list[Response]]:
    """Return the responses to each problem, by its id, in their order."""
    groups: dict[str, list[Response]] = {}
    for response in responses:
        groups.setdefault(response.problem.id, []).append(response)
    return groups


def read_provenance(path: Path) -> dict[str, Any]:
    """Return what a table of responses says of where it comes from; empty for any other file."""
    if path.suffix != ".parquet":
        return {}
    try:
        metadata = pq.read_schema(regular_file(path)).metadata or {}
        provenance = parse_json(metadata.get(PROVENANCE.encode(), b"{}"))
    except (OSError, ValueError, RecursionError, pa.ArrowException):
        return {}
    return provenance if isinstance(provenance, dict) else {}
