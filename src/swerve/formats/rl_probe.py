"""What RL-Probe writes: labels in the names of files, and whole solutions as gold answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swerve.formats.records import FileRecord

RL_PROBE_FIELDS = (
    *("id", "problem_id", "response", "rollout", "problem", "problem_text", "correct", "checkpoint", "sample_idx"),
    *("ground_truth", "temperature"),
)


def convert_rl_probe(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Add the label, which may be in the file's name, its step, and the answer of the recorded solution."""
    values = record.values
    named, ending, _ = path.name.partition("_responses.json")
    checkpoint = values.get("checkpoint")
    is_label = isinstance(checkpoint, str | int | float) and not isinstance(checkpoint, bool)
    label = str(checkpoint) if is_label else named if ending else None
    step = re.search(r"step_(\d+)", label or "")
    gold, is_damaged = _rl_probe_gold(values.get("ground_truth"))
    yield {
        **{key: value for key, value in values.items() if key not in ("problem_id", "checkpoint")},
        "id": values.get("problem_id", values.get("id")),
        "label": label,
        "step": int(step[1]) if step else None,
        "gold": None if is_damaged else gold,
        "gold_is_damaged": is_damaged or None,
    }


def _rl_probe_gold(recorded: Any) -> tuple[str | None, bool]:
    r"""Return the recorded answer and whether it was cut off.

    The rollouts record a whole solution; its answer is in the last box. The answers of the other files were cut off at
    the first closing brace.

    >>> _rl_probe_gold(r"so $x = \boxed{\frac{1}{2}}$."), _rl_probe_gold(r"\frac{14")
    (('\\frac{1}{2}', False), ('\\frac{14', True))
    """
    if not isinstance(recorded, str):
        return None, False
    answer = recorded
    # A whole solution: what the last box holds, or its beginning where the text ends within it.
    if r"\boxed{" in recorded:
        answer = recorded[recorded.rindex(r"\boxed{") + len(r"\boxed{") :]
        depth = 1
        for index, character in enumerate(answer):
            depth += {"{": 1, "}": -1}.get(character, 0)
            if depth == 0:
                return answer[:index], False
        return answer, True
    # An answer: whole where its braces match.
    bare = re.sub(r"\\[{}]", "", answer)
    return answer, bare.count("{") != bare.count("}")
