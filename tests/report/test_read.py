"""Different right answers among the samples of a problem."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from swerve.artifacts.evaluation import largest_k
from swerve.report.read import right_answers


def samples(*rows: tuple[str, str | None, bool]) -> pa.Table:
    problems, answers, correct = zip(*rows, strict=True)
    return pa.table({"problem_id": problems, "extracted": pa.array(answers, pa.string()), "correct": correct})


def test_right_answers_are_counted_once_and_problems_without_any_stay() -> None:
    table = samples(("p", "a", True), ("p", "a", True), ("p", "b", True), ("p", "c", False), ("q", None, False))
    assert right_answers(table) == {"p": {"a", "b"}, "q": set()}


def test_a_right_sample_without_a_recorded_answer_is_no_answer() -> None:
    assert right_answers(samples(("p", None, True), ("p", "a", True))) == {"p": {"a"}}
    assert right_answers(samples(("p", None, True), ("q", None, False))) == {}


def test_the_largest_number_of_samples_of_any_checkpoint(inputs_of: Any) -> None:
    entries = [{"by_num_samples": [{"k": k} for k in ks]} for ks in ((1,), (1, 8), ())]
    evaluations = inputs_of(entries).evaluations
    assert largest_k(evaluations) == 8
    assert largest_k(evaluations[2:]) == 0
