"""Read the problems of a file of another program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from typing import Any

from swerve.artifacts.files import parse_json
from swerve.artifacts.responses import IMPORTED, Response
from swerve.errors import ArtifactError, NoResponseError
from swerve.formats.countdown_rows import countdown_fields
from swerve.formats.dialects import VERL_PROBLEM, verl_values
from swerve.formats.records import FileRecord, iter_records, read_records
from swerve.formats.typed_fields import PROBLEM_NAMES, Fields, as_messages, at_place, shown
from swerve.types import Message, Problem

_VERL_TAKEN = ("prompt", "responses", "scores", "id", "uid")


def read_problems(path: Path, *, fields: Mapping[str, str] | None = None) -> dict[str, Response]:
    """Return the problems of a file by id, each with its prompt, as a response that is not written yet.

    Formats are those of `read_responses`, also verl data and chat batches.

    Args:
        path: the file.
        fields: names of fields that are looked for before the known ones.

    Raises:
        ArtifactError: the file is missing or damaged, a record has no id or no prompt, or two records of one id differ.
    """
    given = fields or {}  # those of the responses, which the problems' file may or may not share
    names = {name: (*([given[name]] if name in given else []), *known) for name, known in PROBLEM_NAMES.items()}
    problems: dict[str, Response] = {}
    for record in read_records(path):
        values = _decoded(record.values)
        entry = Fields(record.place, values, names)
        if _is_request(values):
            asked = at_place(values, "body.input")  # of /v1/responses
            body = {"messages": [["user", asked]]} if isinstance(asked, str) else {"messages": asked} if asked else {}
            values = {**values, "body": {**body, **values["body"]}}
            entry = Fields(record.place, values, {"id": ("custom_id",), "messages": ("body.messages",)})
        elif isinstance(values.get("reward_model"), dict):  # verl's data, whose other fields are the metadata
            others = {key: value for key, value in values.items() if key not in _VERL_TAKEN and value is not None}
            values = {**verl_values(values), "metadata": others}
            entry = Fields(record.place, values, {**VERL_PROBLEM, "metadata": ("metadata",)})
        asked = asked_by(entry)
        name = asked.problem.id
        if entry.get("id") is None and not countdown_fields(values):
            raise ArtifactError(f"{entry.place} has no id; problems are found by it (name its field with --field id=)")
        if not asked.has_prompt:
            raise ArtifactError(f"{entry.place} has no problem, question, prompt, messages or prompt_ids")
        if problems.setdefault(name, asked).asked != asked.asked:
            raise ArtifactError(f"{entry.place}: the id {name!r} occurs twice with different prompts")
    return problems


def requests_beside(path: Path) -> Path | None:
    """Return the file of the requests that a batch's file of answers belongs to, beside it; None where it is not there.

    It is called `batch_input.jsonl` where the answers are called `batch_output.jsonl`.
    """
    beside = path.parent / path.name.replace("output", "input")
    if path.is_dir() or beside == path or not beside.is_file():
        return None
    with suppress(ArtifactError):
        return beside if _is_request(next(iter_records(beside)).values) else None
    return None


def _is_request(values: Mapping[str, Any]) -> bool:
    """Whether a record is a request of a batch."""
    return "custom_id" in values and isinstance(values.get("body"), dict)


def asked_by(entry: Fields) -> Response:
    """Return what a record says of its problem and of the prompt, as a response that is not written yet.

    Raises:
        ArtifactError: a field is of the wrong type, or there is neither an id nor a prompt.
    """
    # A field `prompt` holds the text that the model read, or messages.
    given = entry.get("prompt")
    if isinstance(given, list):
        prompt, messages = None, as_messages(given, f"{entry.place}: prompt")
    else:
        prompt, messages = entry.text("prompt"), entry.messages("messages") if entry.get("messages") else ()
    gold, more = _golds(entry)
    alternatives = entry.get("alternatives") or more
    if not isinstance(alternatives, list) or not all(isinstance(text, str) for text in alternatives):
        raise ArtifactError(f"{entry.place}: alternatives must be a list of texts")
    # What the prompt ends with says what the template began of the answer.
    begun = entry.get("begun")
    if (prompt or (messages[-1][1] if messages else "")).rstrip().endswith("<think>"):
        begun = "<think>"
    prompt_ids, question, puzzle = entry.ids("prompt_ids"), entry.text("problem") or "", countdown_fields(entry.values)
    asked = prompt or question or "\n\n".join(text for _, text in messages) or " ".join(map(str, prompt_ids))
    name = entry.label("id")
    if puzzle and not asked:
        question = asked = puzzle["question"]
    if name is None and not asked:  # a number of the row, which names a problem only where nothing else does
        name = next((str(number) for key in ("idx", "i") if type(number := entry.values.get(key)) is int), None)
    if name is None:
        if not asked:
            raise ArtifactError(f"{entry.place} has neither an id nor a prompt; a response needs its problem's prompt")
        name = made_id(asked)
    problem = Problem(
        id=name,
        family=entry.word("family") or puzzle.get("family") or IMPORTED,
        question=question,
        answer=gold,
        alternatives=tuple(alternatives),
        solution=entry.word("solution"),
        kind=entry.label("kind") or puzzle.get("kind") or "all",
        group=entry.group(),
        difficulty=entry.number("difficulty"),
        messages=messages,
        prefix=entry.word("prefix") or "",
        begun=begun if isinstance(begun, str) else None,
        grader=entry.word("grader") or "",
        grading=entry.mapping("grading"),
        metadata={**puzzle.get("metadata", {}), **entry.mapping("metadata")},
    )
    return Response(problem=problem, prompt=prompt, prompt_ids=prompt_ids)


def _golds(entry: Fields) -> tuple[str, list[str]]:
    """Return the gold answer, and the others of a list, any of which is right; empty where the record has no gold."""
    given = entry.get("gold")
    if not isinstance(given, list | bool | dict):
        return entry.label("gold") or "", []
    each = given if isinstance(given, list) else [given]
    if not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in each):
        raise NoResponseError(f"{entry.place}: gold must be text or a number, or a list of them, got {shown(given)}")
    first, *rest = [str(one) for one in each if one != ""] or [""]
    return first, rest


def made_id(asked: str) -> str:
    """Return the id of a problem whose record gives none, made from what it asks."""
    return f"{IMPORTED}-{sha1(asked.encode(), usedforsecurity=False).hexdigest()[:_NUM_HEX]}"


def has_made_id(problem: Problem) -> bool:
    """Whether a file does not give a problem's id: it is made from the prompt, as those of the task `table` are."""
    return re.fullmatch(rf"(?:{IMPORTED}|table)-[0-9a-f]{{{_NUM_HEX}}}", problem.id) is not None


def ids_by_text(asked: Iterable[tuple[Problem, str]]) -> dict[str, str | None]:
    """Return the id of the problem that asks each text; None where problems of several ids do.

    Args:
        asked: problems that have an id, each with what it asks; those that ask nothing name none.
    """
    ids: dict[str, str | None] = {}
    for problem, text in asked:
        if text:
            ids[text] = problem.id if ids.get(text, problem.id) == problem.id else None
    return ids


_NUM_HEX = 12
_CHATML = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>\s*|\Z)", re.DOTALL)
_NESTED = ("prompt", "messages", "extra_info", "reward_model")
_TRUTHS = ("reward_model.ground_truth", "ground_truth", "extra_info.ground_truth", "extra_info.answer")
_QUESTIONS = ("question", "problem", "quiz")


@dataclass(frozen=True, slots=True)
class ChatRow:
    """A problem in the chat layout of verl and RL2, under the names that plain rows of problems have."""

    record: FileRecord
    """`question`, `answer`, `solution` where the row has them, and its other fields, those of `extra_info` beside them.
    """
    messages: tuple[Message, ...]
    """What the model is given, up to the user's last turn."""
    prefix: str = ""
    """The beginning of the answer that the model is given."""


def chat_row(record: FileRecord) -> ChatRow | None:
    """Return a row with `messages`, or `prompt` as a list of messages, under plain names; None for any other row.

    The question is the one the row has as text, where it stands in the user's last turn, else that turn. The answer is
    `reward_model.ground_truth`, else the row's `ground_truth`, else `extra_info.answer`. A last turn of the assistant
    is a written solution. Nested values may be JSON in a text.

    Raises:
        ArtifactError: messages are not of the form {role, content}, or none is the user's.
    """
    # Its messages; a row without messages is not a chat.
    values = _decoded(record.values)
    name = next((one for one in ("messages", "prompt") if isinstance(values.get(one), list) and values[one]), None)
    if name is None:
        lacking = next((one for one in ("messages", "prompt") if one in values and values[one] is None), None)
        if lacking and isinstance(values.get("reward_model"), dict):
            raise ArtifactError(f"{record.place}: {lacking} is null; give the messages, or leave the row out")
        return None
    # Up to the user's last turn; what the assistant says after it is a written solution.
    messages, prefix = _without_markup(as_messages(values[name], f"{record.place}: {name}"))
    written = messages[-1][1] if messages[-1][0] == "assistant" else None
    messages = messages if written is None else messages[:-1]
    if not messages or messages[-1][0] != "user":
        raise ArtifactError(
            f"{record.place}: {name} must end with a message of the user, or of the assistant after it; it has "
            f"{', '.join(role for role, _ in messages) or 'none'}"
        )
    # The answer, what the row has beside it as its solution, and the question: the text that stands in the last turn.
    truth = next((value for place in _TRUTHS if (value := at_place(values, place)) is not None), None)
    answer = at_place(values, "extra_info.answer")
    solution = at_place(values, "extra_info.solution") or (None if answer == truth else answer)
    said = [at_place(values, f"{nested}{key}") for nested in ("", "extra_info.") for key in _QUESTIONS]
    asked = messages[-1][1]
    known = {
        "question": next((text for text in said if isinstance(text, str) and text.strip() and text in asked), asked),
        "answer": truth,
        "solution": solution or written,
    }
    # The row's own fields come before these, but for the question.
    info = values.get("extra_info")
    inner = {key: value for key, value in info.items() if key not in known} if isinstance(info, dict) else {}
    fields: dict[str, Any] = {}
    for part in (known, inner, {key: value for key, value in values.items() if key not in _NESTED}):
        fields |= {key: value for key, value in part.items() if value is not None}
    return ChatRow(FileRecord(record.place, {**fields, "question": known["question"]}), messages, prefix)


def _decoded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row's values, messages and objects that are written as JSON in a text as what they say."""
    texts = {key: text for key in _NESTED if isinstance(text := values.get(key), str) and text[:1] in ("[", "{")}
    found = dict(values)
    for key, text in texts.items():
        try:
            value = parse_json(text)
        except (ValueError, RecursionError):
            continue
        is_chat = isinstance(value, list) and value and all(isinstance(one, dict) and "role" in one for one in value)
        if is_chat or isinstance(value, dict):
            found[key] = value
    return found


def _without_markup(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], str]:
    """Return the messages that one message in ChatML markup holds, and the answer it begins; others as they are."""
    turns = [(role, text.strip()) for role, text in _CHATML.findall(messages[0][1])] if len(messages) == 1 else []
    if not turns:
        return messages, ""
    if turns[-1][0] == "assistant":
        return tuple(turns[:-1]), turns[-1][1]
    return tuple(turns), ""
