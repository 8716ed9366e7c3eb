"""Logs of Inspect: a sample for each problem and epoch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swerve.errors import NoResponseError
from swerve.formats.conversations import conversation_fields, read_turn
from swerve.formats.records import FileRecord
from swerve.formats.typed_fields import as_number, at_place

_VERDICTS = {"C": 1.0, "I": 0.0, "N": 0.0, "True": 1.0, "False": 0.0}
"""Correct, incorrect, no answer; a score between them is `P`, partially correct."""
_READ = ("input", "target", "epoch", "messages", "output", "events", "events_data", "attachments", "timelines")
"""Fields of a sample that are read, or that say again what is."""


def convert_sample(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the fields of a sample, which has one response; the first single score is the reward."""
    values, error = record.values, record.values.get("error")
    place = f"{record.place}: sample {values['id']!r}, epoch {values['epoch']}"
    if error:
        raise NoResponseError(f"{place} failed: {error['message']}")
    # The model wrote the assistant's messages but for those of the input.
    turns = [
        read_turn(message, place, sampled=message["role"] == "assistant" and message.get("source") != "input")
        for message in values.get("messages") or ()
    ]
    choice: dict[str, Any] = next(iter(at_place(values, "output.choices") or []), {})
    if choice and not any(turn.sampled for turn in turns):
        turns.append(read_turn(choice["message"], place))
    # Several targets are as many right answers; the samples of one problem are its epochs.
    targets = values["target"] if isinstance(values["target"], list) else [values["target"]]
    stopped = choice.get("stop_reason")
    yield {
        **{name: value for name, value in values.items() if name not in _READ},
        **conversation_fields(turns, place),
        **_scored(values.get("scores") or {}),
        "problem": values["input"] if isinstance(values["input"], str) else None,
        "gold": next(iter(targets), None),
        "alternatives": targets[1:] or None,
        "sample": values["epoch"] - 1,
        "label": at_place(values, "eval.model") or at_place(values, "output.model"),
        "finish_reason": "length" if stopped in ("max_tokens", "model_length") else stopped,
        "token_logprobs": choice.get("logprobs"),
    }


def _scored(scores: dict[str, Any]) -> dict[str, Any]:
    """Return the values of all scorers as parts; those of the first one with a single value as reward and verdict.

    >>> _scored({"match": {"value": "C", "answer": "42"}, "judge": {"value": {"tone": 0.5}}})["parts"]
    {'match': 1.0, 'judge.tone': 0.5}
    """
    parts: dict[str, float] = {}
    for name, score in scores.items():
        value = score["value"]
        several = value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, list) else {}
        for key, single in {name: value, **{f"{name}.{inner}": own for inner, own in several.items()}}.items():
            if (number := as_number({**_VERDICTS, "P": 0.5}.get(str(single), single))) is not None:
                parts[key] = number
    name = next((name for name in scores if name in parts), "")
    first = scores.get(name, {})
    return {
        "parts": parts,
        "reward": parts.get(name),
        "correct": _VERDICTS.get(str(first.get("value"))),
        "extracted": first.get("answer"),
    }
