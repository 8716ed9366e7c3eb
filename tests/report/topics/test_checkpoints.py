"""What the responses of every checkpoint look like, and what could not be graded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from swerve.artifacts.evaluation import Evaluation
from swerve.report.read import ReportInputs
from swerve.report.topics.checkpoints import TOPIC


def with_greedy(inputs: ReportInputs, **changes: Any) -> ReportInputs:
    """Return the run with other greedy scores in each evaluation, and no sampled statuses."""
    records = [each.model_dump() for each in inputs.evaluations]
    sampled = {"statuses": {}, "num_unanswered": 0}
    changed = [
        {**record, "greedy": {**record["greedy"], **changes}, "sampled": {**record["sampled"], **sampled}}
        for record in records
    ]
    return replace(inputs, evaluations=tuple(map(Evaluation.model_validate, changed)))


def test_outcomes_have_the_statuses_that_occur_as_fractions(answers_inputs: ReportInputs, rows_of: Any) -> None:
    rows = rows_of(TOPIC, answers_inputs)["outcomes"]
    assert rows.rows[1] == ("dpo-8", 11 / 2000)
    assert list(rows.columns) == ["Limit reached"]
    assert rows.note.endswith("Throughout: no answer found 1.0%.")


@pytest.mark.parametrize("statuses", [{"graded": 5, "unparsed": 0, "timeout": 0, "error": 0}, {}])
def test_no_outcomes_where_all_were_graded_or_nothing_tells(
    answers_inputs: ReportInputs, statuses: Any, rows_of: Any
) -> None:
    assert "outcomes" not in rows_of(TOPIC, with_greedy(answers_inputs, statuses=statuses, num_unanswered=0))


def test_reasons_are_added_up_over_the_steps(answers_inputs: ReportInputs, rows_of: Any) -> None:
    rows = rows_of(TOPIC, answers_inputs)["reasons"].rows
    assert rows[0] == ("time limit of 5 s <i>", 10)
    assert len(rows) == 6


def test_what_never_changes_in_the_form_is_a_line(answers_inputs: ReportInputs, rows_of: Any) -> None:
    rows = rows_of(TOPIC, answers_inputs)["responses-form"]
    assert list(rows.columns) == ["Reflections"]
    assert rows.texts[2] == ("rl-5", "3.0 (2.0 to 4.0)")
    assert rows.note.endswith("Throughout: in format 0.0% (0.0 to 1.0); repeated 4-grams 0.0% (0.0 to 1.0).")
    nothing = dict.fromkeys(("in_format", "reflections", "repeated_4grams"))
    assert "responses-form" not in rows_of(TOPIC, with_greedy(answers_inputs, **nothing))


def test_mistakes_are_counted_by_kind(answers_inputs: ReportInputs, rows_of: Any) -> None:
    first, *others = answers_inputs.evaluations
    told = first.model_copy(update={"first_mistakes": {"carry": 3, "sum": 1}})
    rows = rows_of(TOPIC, replace(answers_inputs, evaluations=(told, *others)))["mistakes"]
    assert rows.rows[:2] == (("sft-500", 3, 1), ("dpo-8", 0, 0))
