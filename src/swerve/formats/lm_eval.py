"""Samples that lm-evaluation-harness logs: a line for each sample and filter, with what the filter made of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha1
from pathlib import Path
from typing import Any

from swerve.artifacts.files import parse_json
from swerve.errors import NoResponseError
from swerve.formats.conversations import prompt_and_completion
from swerve.formats.records import FileRecord
from swerve.formats.typed_fields import as_number


def convert_sample(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Yield the fields of each text of a sample; what the filter read belongs to the text that it read."""
    values = record.values
    place = f"{record.place}: sample {values['doc_id']!r}"
    # The texts of its request; of a choice between answers there are only numbers.
    first, *others = values["arguments"].values()
    prompt = first["arg_0"]
    if isinstance(prompt, list) and len(prompt) == 1:  # a chat, as JSON in a tuple
        prompt = parse_json(prompt[0])
    texts = [text for request in values["resps"] for text in request]
    if others or "arg_1" not in first or not texts or not all(isinstance(text, str) for text in texts):
        raise NoResponseError(f"{place} has log-likelihoods of given texts, no response that was written")
    read = [text for item in values["filtered_resps"] for text in (item if isinstance(item, list) else [item])]
    parts = {name: number for name in values["metrics"] if (number := as_number(values[name])) is not None}
    beside = {name: value for name, value in values.items() if name not in ("resps", "arguments", *parts)}
    for number, text in enumerate(texts):
        # One value of several texts is of the text that it repeats, and of none where it was made of all.
        is_judged = len(texts) == 1 or read == [text]
        yield {
            **beside,
            **prompt_and_completion(prompt, text, place),
            "sample": number,
            "extracted": read[number] if len(read) == len(texts) else read[0] if is_judged else None,
            "parts": parts if is_judged else {},
            "sample_metrics": None if is_judged else parts,
            "reward": next(iter(parts.values()), None) if is_judged else None,
        }


def sample_and_filter(values: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return a digest of a sample and the name of its line's filter: the lines of its other filters repeat it."""
    sample = [values.get(name) for name in ("doc_id", "arguments", "resps")]
    return sha1(json.dumps(sample).encode(), usedforsecurity=False).digest(), str(values.get("filter"))
