"""What is said of the accuracy."""

from __future__ import annotations

from typing import Any

import pytest

BEFORE = {
    "checkpoint": "dpo-8",
    "step": 508,
    "greedy": {"num_problems": 400, "accuracy": {"mean": 0.465, "low": 0.417, "high": 0.514}},
}


def after(mean: float, low: float, high: float) -> dict[str, Any]:
    greedy = {"num_problems": 400, "accuracy": {"mean": mean, "low": low, "high": high}}
    return {"checkpoint": "rl-80", "step": 588, "greedy": greedy}


def test_overlapping_accuracies_are_no_change(said: Any) -> None:
    later = after(0.48, 0.43, 0.53)
    assert said((BEFORE, later))[0] == (
        "On 400 held-out problems, greedy accuracy was 46.5% (41.7 to 51.4) at dpo-8 and 48.0% (43.0 to 53.0) at "
        "rl-80: the intervals overlap, so no change is shown."
    )


def test_a_loss_of_accuracy_is_called_a_fall(said: Any) -> None:
    later = after(0.1, 0.07, 0.13)
    assert said((BEFORE, later))[0] == (
        "On 400 held-out problems, greedy accuracy fell from 46.5% (41.7 to 51.4) at dpo-8 to 10.0% (7.0 to 13.0) at "
        "rl-80."
    )


def passing(mean: float) -> dict[str, Any]:
    estimate = {"mean": mean, "low": mean - 0.02, "high": mean + 0.02}
    return {"sampled": {"curve": [{"k": 1, "pass_at_k": estimate}, {"k": 4, "pass_at_k": estimate}]}}


@pytest.mark.parametrize(
    ("later", "ending"),
    [
        (0.7, "rose from 60.0% (58.0 to 62.0) to 70.0% (68.0 to 72.0)."),
        (0.5, "fell from 60.0% (58.0 to 62.0) to 50.0% (48.0 to 52.0)."),
        (0.63, "was 60.0% (58.0 to 62.0) and 63.0% (61.0 to 65.0): the intervals overlap, so no change is shown."),
    ],
)
def test_whether_one_of_many_samples_is_right_more_often(later: float, ending: str, said: Any) -> None:
    first = {"checkpoint": "dpo-8", "step": 8, **passing(0.6)}
    last = {"checkpoint": "rl-80", "step": 88, **passing(later)}
    (sentence,) = [one for one in said((first, last), None) if "pass@4" in one]
    assert sentence.startswith("The chance that one of 4 samples is right (pass@4) ")
    assert ending in sentence.replace(" at dpo-8", "").replace(" at rl-80", "")
    few = [{**entry, "sampled": {"curve": entry["sampled"]["curve"][:1]}} for entry in (first, last)]
    assert not any("pass@" in one for one in said(tuple(few), None))
