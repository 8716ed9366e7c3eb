"""TRL: the completions that `GRPOTrainer` writes with `log_completions`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from swerve.errors import ArtifactError
from swerve.formats.dialects.layout import Dialect, Values, others, said
from swerve.formats.fields import as_messages
from swerve.formats.records import Record

__all__ = ["TRL"]

_NAMES = ("id", "gold", "correct", "sample", "label")
_KNOWN = frozenset({"mode", "step", "prompt", "completion", "advantage", *_NAMES})


def _convert_trl(record: Record, path: Path, fields: Mapping[str, str]) -> Iterator[Values]:
    values = record.values
    rewards = [
        key
        for key, value in values.items()
        if key not in _KNOWN and isinstance(value, int | float) and not isinstance(value, bool)
    ]
    total = "reward" if "reward" in rewards else rewards[0] if len(rewards) == 1 else None
    taken = ["step", "prompt", "completion", "mode", *_NAMES, *([total] if total else [])]
    yield {
        **said(values, *_NAMES),
        "prompt": values.get("prompt"),
        "response": _assistant_text(values.get("completion"), f"{record.place}: completion"),
        "reward": values[total] if total else None,
        "step": values.get("step"),
        "set": values.get("mode"),
        "extra": others(values, *taken),
    }


def _assistant_text(value: Any, what: str) -> Any:
    """Return a completion's text, also where it is a list of messages of which the last is the assistant's."""
    if not isinstance(value, list):
        return value
    messages = as_messages(value, what)
    if len(messages) != 1 or messages[0][0] != "assistant":
        raise ArtifactError(f"{what} must be one message of the assistant, got {len(messages)} messages")
    return messages[0][1]


TRL = Dialect(
    name="trl",
    marks=(frozenset({"step", "prompt", "completion"}), frozenset({"prompt", "completion", "advantage"})),
    convert=_convert_trl,
)
