"""Read the problems of a file of another program."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path
from typing import Any

from swerve.errors import ArtifactError
from swerve.formats.dialects import verl_problem
from swerve.formats.records import Record, read_records
from swerve.formats.typed_fields import PROBLEM_NAMES, Fields, Ids, as_messages
from swerve.types import Message, Problem

IMPORTED = "imported"
"""Family of problems of which no family is known."""


_AS_IN_PROBLEM = ("id", "alternatives", "difficulty", "messages", "prefix", "begun", "grader", "grading", "metadata")
"""Fields that a problem has under the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemRecord:
    """What a file says of a problem. `prompt_ids`, `prompt`, `messages` or `question` says what the model read."""

    id: str
    has_own_id: bool = True
    """Whether the file gives the id; else it is made from the prompt."""
    prompt_ids: Ids | None = None
    prompt: str | None = None
    """The text exactly as the model read it, chat template included where there was one."""
    messages: tuple[Message, ...] = ()
    """The messages that the chat template goes around."""
    prefix: str = ""
    """The beginning of the answer that the model was given."""
    begun: str | None = None
    """What the chat template's prompt ended with of the answer; None: not known."""
    question: str | None = None
    """The problem, before any prompt format and chat template."""
    gold: str | None = None
    alternatives: tuple[str, ...] = ()
    """Other right answers."""
    kind: str | None = None
    family: str | None = None
    grader: str = ""
    grading: Mapping[str, Any] = field(default_factory=dict)
    difficulty: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem, *, prompt_ids: Ids | None = None) -> ProblemRecord:
        """Return what is known of a problem of one's own."""
        names = (*_AS_IN_PROBLEM, "question", "kind", "family")
        return cls(**{name: getattr(problem, name) for name in names}, gold=problem.answer, prompt_ids=prompt_ids)

    @property
    def has_prompt(self) -> bool:
        """Whether it is known what the model read."""
        return self.prompt_ids is not None or any(self._texts)

    @property
    def asked(self) -> tuple[Any, ...]:
        """What two records of one problem must agree in: the texts, or the ids where there are no texts."""
        return self._texts if any(self._texts) else (self.prompt_ids,)

    @property
    def texts(self) -> list[str]:
        """What is asked, in each form that is known: the question, the prompt, the user's messages."""
        return [
            *filter(None, (self.question, self.prompt)),
            *(text for role, text in self.messages if role == "user"),
        ]

    @property
    def _texts(self) -> tuple[Any, ...]:
        return self.prompt, self.messages, self.question

    def as_problem(self, *, question: str = "") -> Problem:
        """Return the problem for a grader; `question` is used where only token ids or a filled prompt are known."""
        return Problem(
            family=self.family or IMPORTED,
            question=self.question or question,
            answer=self.gold or "",
            kind=self.kind or "all",
            **{name: getattr(self, name) for name in _AS_IN_PROBLEM},
        )


def read_problems(path: Path, *, fields: Mapping[str, str] | None = None) -> dict[str, ProblemRecord]:
    """Return the problems of a file by id; formats as for `read_responses`, also verl data and chat batches.

    Args:
        path: the file.
        fields: names of fields that are looked for before the known ones.

    Raises:
        ArtifactError: the file is missing or damaged, a record has no id or no prompt, or two records of one id differ.
    """
    given = fields or {}  # those of the responses, which the problems' file may or may not share
    names = {name: (*([given[name]] if name in given else []), *known) for name, known in PROBLEM_NAMES.items()}
    problems: dict[str, ProblemRecord] = {}
    for record in read_records(path):
        entry = Fields(record.place, _problem_values(record), names)
        problem = problem_from_fields(entry)
        if not problem.has_own_id:
            raise ArtifactError(f"{entry.place} has no id; problems are found by it (name its field with --field id=)")
        if not problem.has_prompt:
            raise ArtifactError(f"{entry.place} has no problem, question, prompt, messages or prompt_ids")
        if problems.setdefault(problem.id, problem).asked != problem.asked:
            raise ArtifactError(f"{entry.place}: the id {problem.id!r} occurs twice with different prompts")
    return problems


def _problem_values(record: Record) -> Mapping[str, Any]:
    """Return a problem's fields under the known names, where a program nests them."""
    values = _decoded(record.values)
    body = values.get("body")
    if "custom_id" in values and isinstance(body, dict):  # a request of a batch
        return {"id": values["custom_id"], "messages": body.get("messages")}
    if isinstance(values.get("reward_model"), dict):
        return verl_problem(values)
    return values


def problem_from_fields(entry: Fields) -> ProblemRecord:
    """Return the problem that a record tells of.

    Raises:
        ArtifactError: a field is of the wrong type, or there is neither an id nor a prompt.
    """
    prompt_ids, question = entry.ids("prompt_ids"), entry.text("problem")
    prompt, messages = _prompt(entry)
    alternatives = entry.get("alternatives") or []
    if not isinstance(alternatives, list) or not all(isinstance(one, str) for one in alternatives):
        raise ArtifactError(f"{entry.place}: alternatives must be a list of texts")
    name, begun = entry.label("id"), entry.get("begun")
    asked = prompt or (messages[-1][1] if messages else "")
    if asked.rstrip().endswith("<think>"):
        begun = "<think>"
    return ProblemRecord(
        id=_made_id(entry, prompt, messages, question, prompt_ids) if name is None else name,
        has_own_id=name is not None,
        prompt_ids=prompt_ids,
        prompt=prompt,
        messages=messages,
        prefix=entry.word("prefix") or "",
        begun=begun if isinstance(begun, str) else None,
        question=question,
        gold=entry.label("gold"),
        alternatives=tuple(alternatives),
        kind=entry.label("kind"),
        family=entry.word("family"),
        grader=entry.word("grader") or "",
        grading=entry.mapping("grading"),
        difficulty=entry.number("difficulty"),
        metadata=entry.mapping("metadata"),
    )


def _prompt(entry: Fields) -> tuple[str | None, tuple[Message, ...]]:
    """Return the prompt as text or as messages; a field `prompt` holds either."""
    value = entry.get("prompt")
    if isinstance(value, list):
        return None, as_messages(value, f"{entry.place}: prompt")
    return entry.text("prompt"), entry.messages("messages") if entry.get("messages") else ()


def _made_id(
    entry: Fields, prompt: str | None, messages: tuple[Message, ...], question: str | None, ids: Ids | None
) -> str:
    asked = prompt or question or "\n\n".join(text for _, text in messages) or (" ".join(map(str, ids)) if ids else "")
    if not asked:
        raise ArtifactError(f"{entry.place} has neither an id nor a prompt; a response needs its problem's prompt")
    return f"{IMPORTED}-{sha1(asked.encode(), usedforsecurity=False).hexdigest()[:12]}"


_CHATML = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(?:<\|im_end\|>\s*|\Z)", re.DOTALL)
_NESTED = ("prompt", "messages", "extra_info", "reward_model")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRow:
    """A problem in the chat layout of verl and RL2, under the names that plain rows of problems have."""

    record: Record
    """`question`, `answer`, `solution` where the row has them, and its other fields, those of `extra_info` beside them.
    """
    messages: tuple[Message, ...]
    """What the model is given, up to the user's last turn."""
    prefix: str = ""
    """The beginning of the answer that the model is given."""


def chat_row(record: Record) -> ChatRow | None:
    """Return a row with `messages`, or `prompt` as a list of messages, under plain names; None for any other row.

    The question is the one the row has as text, where it stands in the user's last turn, else that turn. The answer is
    `reward_model.ground_truth`, else the row's `ground_truth`, else `extra_info.answer`. A last turn of the assistant
    is a written solution. Nested values may be JSON in a text.

    Raises:
        ArtifactError: messages are not of the form {role, content}, or none is the user's.
    """
    values = _decoded(record.values)
    name = next((one for one in ("messages", "prompt") if isinstance(values.get(one), list) and values[one]), None)
    if name is None:
        lacking = next((one for one in ("messages", "prompt") if one in values and values[one] is None), None)
        if lacking and isinstance(values.get("reward_model"), dict):
            raise ArtifactError(f"{record.place}: {lacking} is null; give the messages, or leave the row out")
        return None
    messages, prefix = _without_markup(as_messages(values[name], f"{record.place}: {name}"))
    written = messages[-1][1] if messages[-1][0] == "assistant" else None
    messages = messages if written is None else messages[:-1]
    if not messages or messages[-1][0] != "user":
        raise ArtifactError(
            f"{record.place}: {name} must end with a message of the user, or of the assistant after it; it has "
            f"{', '.join(role for role, _ in messages) or 'none'}"
        )
    info, judge = (
        {key: value for key, value in (values.get(nested) or {}).items() if value is not None}
        if isinstance(values.get(nested), dict)
        else {}
        for nested in ("extra_info", "reward_model")
    )
    truths = (judge.get("ground_truth"), values.get("ground_truth"), info.get("ground_truth"), info.get("answer"))
    truth = next((value for value in truths if value is not None), None)
    solution = info.get("solution", info.get("answer") if info.get("answer") != truth else None)
    said = [plain.get(key) for plain in (values, info) for key in ("question", "problem", "quiz")]
    asked = messages[-1][1]
    found = {
        "question": next((text for text in said if isinstance(text, str) and text.strip() and text in asked), asked),
        "answer": truth,
        "solution": written if solution is None else solution,
    }
    plain_values = {
        **{key: value for key, value in info.items() if key not in found},
        **{key: value for key, value in values.items() if key not in _NESTED and value is not None},
    }
    known = {key: value for key, value in found.items() if value is not None}
    plain_values = {**known, **plain_values, "question": found["question"]}
    return ChatRow(record=Record(record.place, plain_values), messages=messages, prefix=prefix)


def _decoded(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row's values, messages and objects that are written as JSON in a text as what they say."""
    texts = {key: text for key in _NESTED if isinstance(text := values.get(key), str) and text[:1] in ("[", "{")}
    found = dict(values)
    for key, text in texts.items():
        try:
            value = json.loads(text)
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
