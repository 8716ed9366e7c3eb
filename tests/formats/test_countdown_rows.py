"""Rows of Countdown, which have numbers and a target and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swerve.formats.countdown_rows import countdown_fields, is_countdown
from swerve.formats.imported_problems import read_problems
from swerve.formats.imported_responses import read_responses
from swerve.problems.countdown import Countdown, CountdownTask, grade_countdown
from tests.json_lines import write_json_lines

ROW = {"target": 65, "nums": [19, 36, 55, 7]}
METADATA = {"numbers": [19, 36, 55, 7], "target": 65, "use_all": True}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (ROW, True),
        ({"target": "65", "nums": "[19, 36]"}, True),
        ({**ROW, "prompt": "Using the numbers [19, 36, 55, 7], create an equation that equals 65."}, True),
        ({**ROW, "question": "At which two places do the numbers add up to the target?"}, False),
        ({**ROW, "gold": "36"}, False),
        ({**ROW, "family": "two_sum"}, False),
        ({"target": 65, "nums": [19]}, False),
        ({"target": 65, "nums": [19, "x"]}, False),
        ({"target": 6.5, "nums": [19, 36]}, False),
        ({"target": None, "nums": [19, 36]}, False),
        ({"target": True, "nums": [19, 36]}, False),
        ({"target": 65, "nums": "19 36"}, False),
        ({"target": 65}, False),
    ],
)
def test_what_is_a_row_of_countdown(row: dict[str, Any], expected: bool) -> None:
    assert is_countdown(row) == expected
    assert bool(countdown_fields(row)) == expected


def test_the_question_is_the_tasks_own() -> None:
    own = Countdown(CountdownTask()).problem([19, 36, 55, 7], 65, ["55", "+", "36", "-", "19", "-", "7"])
    known = countdown_fields(ROW)
    assert (known["question"], known["kind"], known["difficulty"]) == (own.question, own.kind, own.difficulty)
    assert known["metadata"] == own.metadata == METADATA


def test_problems_and_responses_have_numbers_and_target(tmp_path: Path) -> None:
    (asked,) = read_problems(write_json_lines(tmp_path / "p.jsonl", [ROW])).values()
    assert (asked.problem.family, asked.problem.metadata) == ("countdown", METADATA)
    rows = [
        {**ROW, "response": "<answer>55 + 36 - 19 - 7</answer>"},
        {**ROW, "prompt": "Create an equation: 19 36 55 7 = 65", "id": "a", "response": "<answer>55 + 36</answer>"},
    ]
    first, second = read_responses(write_json_lines(tmp_path / "r.jsonl", rows))
    assert first.problem.id == asked.problem.id
    assert (second.problem.id, second.prompt) == ("a", "Create an equation: 19 36 55 7 = 65")
    values = [grade_countdown(one.problem, one.text or "").value for one in (first, second)]
    assert values == [1.0, 0.0]
