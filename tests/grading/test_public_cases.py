"""Answers after public bug reports, each graded as the command of its row says."""

from __future__ import annotations

import gzip
import json
import shlex
from collections.abc import Callable
from pathlib import Path

from swerve.eval.answer_files import grading_task
from swerve.formats.records import FileRecord
from swerve.rewards import grade_all
from swerve.types import Reward

ARGUED = {"c3-070"}
r"""A bold label after a box, `\boxed{...} and **Answer: D**`: the box is the answer, as in other rows with both."""


def test_each_is_graded_as_expected(shared_data: Callable[[str], Path]) -> None:
    lines = gzip.decompress((shared_data("public_cases") / "answers.jsonl.gz").read_bytes()).splitlines()
    rows = [
        row
        for row in map(json.loads, lines)
        if row["command"].startswith("swerve grade") and "in.jsonl" in row["command"]
    ]
    pairs = []
    for row in rows:
        _, _, _, task, _, *policies = shlex.split(row["command"])
        pairs.append(grading_task(task, policies, fields={}, known={}).pair(FileRecord(row["id"], row["input"])))
    verdicts = {row["id"]: (row["expected"], reward) for row, reward in zip(rows, grade_all(pairs), strict=True)}
    assert len(verdicts) > 480
    wrong = {name for name, (expected, reward) in verdicts.items() if not is_expected(str(expected), reward)}
    assert wrong == ARGUED
    assert all(verdicts[name][1].value != 1 for name in wrong)


def is_expected(expected: str, reward: Reward) -> bool:
    if expected == "not value 1":
        return reward.value != 1
    if expected.startswith("status "):
        return reward.status == expected.removeprefix("status ")
    return reward.value == float(expected.removeprefix("value "))
