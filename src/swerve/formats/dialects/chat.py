"""Chats in the format of the OpenAI API, and the output of its batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from swerve.errors import ArtifactError
from swerve.formats.dialects.layout import Dialect, Values, others, said
from swerve.formats.fields import as_messages
from swerve.formats.records import Record

__all__ = ["CHAT"]

_RESPONSES = ("response", "completion", "output")
_NAMES = (
    *("id", "gold", "family", "kind", "correct", "sample", "step", "label", "reward", "finish_reason", "extracted"),
    "set",
)


def _convert_chat(record: Record, path: Path, fields: Mapping[str, str]) -> Iterator[Values]:
    if "custom_id" in record.values:
        yield from _batch_choices(record)
        return
    messages = as_messages(record.values.get("messages"), f"{record.place}: messages")
    apart = next((name for name in _RESPONSES if isinstance(record.values.get(name), str)), None)
    if apart is not None:  # the messages are the prompt alone
        messages = (*messages, ("assistant", record.values[apart]))
    last = max((index for index, (role, _) in enumerate(messages) if role == "assistant"), default=None)
    if not last:  # none, or nothing before it
        raise ArtifactError(f"{record.place}: messages must hold a message of the assistant after what it answers")
    after = {"later_messages": list(map(list, messages[last + 1 :]))} if messages[last + 1 :] else {}
    yield {
        **said(record.values, *_NAMES),
        "id": record.values.get("id", record.values.get("problem_id")),
        "messages": list(map(list, messages[:last])),
        "problem": record.values.get("question"),
        "response": messages[last][1],
        "extra": {**others(record.values, "messages", "problem_id", "question", apart or "", *_NAMES), **after},
    }


def _batch_choices(record: Record) -> Iterator[Values]:
    name, answer = record.values["custom_id"], record.values.get("response")
    body = answer.get("body") if isinstance(answer, dict) else None
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or not choices:
        raise ArtifactError(
            f"{record.place}: the request {name!r} has no choices ({_failure(record.values)}); leave out requests that "
            "failed"
        )
    extra = others(body if isinstance(body, dict) else {}, "choices", "messages")
    for number, choice in enumerate(choices):
        message = choice.get("message") if isinstance(choice, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, str):
            raise ArtifactError(f"{record.place}: choice {number} of request {name!r} has no text as content")
        yield {
            "id": name,
            "response": content,
            "sample": choice.get("index", number),
            "finish_reason": choice.get("finish_reason"),
            "extra": {**extra, **others(message or {}, "role", "content")},
        }


def _failure(values: Values) -> str:
    error = values.get("error")
    code = error.get("code") or error.get("message") if isinstance(error, dict) else error
    return str(code) if code else "no error is given"


CHAT = Dialect(
    name="chat",
    marks=(frozenset({"messages"}), frozenset({"custom_id", "response"})),
    convert=_convert_chat,
)
