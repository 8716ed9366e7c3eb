"""Different right answers among the samples of a problem."""

from __future__ import annotations

import pyarrow as pa

from swerve.report.sampling import largest_k, right_answers


def samples(*rows: tuple[str, str | None, bool]) -> pa.Table:
    problems, answers, correct = zip(*rows, strict=True)
    return pa.table({"problem_id": problems, "extracted": pa.array(answers, pa.string()), "correct": correct})


def test_right_answers_are_counted_once_and_problems_without_any_stay() -> None:
    table = samples(("p", "a", True), ("p", "a", True), ("p", "b", True), ("p", "c", False), ("q", None, False))
    assert right_answers(table) == {"p": {"a", "b"}, "q": set()}


def test_a_right_sample_without_a_recorded_answer_is_no_answer() -> None:
    assert right_answers(samples(("p", None, True), ("p", "a", True))) == {"p": {"a"}}
    assert right_answers(samples(("p", None, True), ("q", None, False))) == {}


def test_the_largest_number_of_samples_of_any_checkpoint() -> None:
    assert largest_k([{"by_num_samples": [{"k": 1}]}, {"by_num_samples": [{"k": 1}, {"k": 8}]}, {}]) == 8
    assert largest_k([{}]) == 0
