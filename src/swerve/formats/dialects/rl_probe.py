"""RL-Probe (Tingting-Olivia-Du/RL-Probe): `*_responses.json` and `all_rollouts.json`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from swerve.formats.dialects.layout import Dialect, Values, is_scalar, others
from swerve.formats.records import Record

__all__ = ["RL_PROBE"]


def _convert_rl_probe(record: Record, path: Path, fields: Mapping[str, str]) -> Iterator[Values]:
    values = record.values
    label = str(values["checkpoint"]) if is_scalar(values.get("checkpoint")) else _label_of(path)
    gold, is_damaged = _rl_probe_gold(values.get("ground_truth"))
    step = re.search(r"step_(\d+)", label or "")
    yield {
        "id": values.get("problem_id", values.get("id")),
        "response": values.get("rollout", values.get("response")),
        "problem": values.get("problem_text", values.get("problem")),
        "correct": values.get("correct"),
        "gold": gold,
        "gold_is_damaged": is_damaged,
        "label": label,
        "step": int(step[1]) if step else None,
        "sample": values.get("sample_idx"),
        "extra": others(
            values,
            *("id", "problem_id", "response", "rollout", "problem", "problem_text", "correct", "checkpoint"),
            "sample_idx",
        ),
    }


def _label_of(path: Path) -> str | None:
    """Return the checkpoint that a file `LABEL_responses.json` is named after."""
    name, ending, _ = path.name.partition("_responses.json")
    return name if ending else None


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
    if r"\boxed{" in recorded:
        answer = recorded[recorded.rindex(r"\boxed{") + len(r"\boxed{") :]
        depth = 1
        for index, character in enumerate(answer):
            depth += {"{": 1, "}": -1}.get(character, 0)
            if depth == 0:
                return answer[:index], False
        return answer, True
    bare = re.sub(r"\\[{}]", "", answer)
    return answer, bare.count("{") != bare.count("}")


RL_PROBE = Dialect(
    name="rl_probe",
    marks=(frozenset({"rollout", "problem_text"}), frozenset({"response", "correct", "ground_truth"})),
    known=frozenset(
        {
            *("id", "problem_id", "rollout", "response", "problem_text", "problem", "correct", "ground_truth"),
            *("checkpoint", "sample_idx", "temperature"),
        }
    ),
    convert=_convert_rl_probe,
)
