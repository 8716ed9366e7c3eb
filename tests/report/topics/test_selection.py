"""What is said of the selection, and its rows."""

from __future__ import annotations

from typing import Any

import pytest

from swerve.report.read import ReportInputs
from swerve.report.topics.selection import TOPIC


def test_the_sentences_on_what_was_read(entries: dict[str, Any], told: Any) -> None:
    last = {"checkpoint": "rl-80", "js": {"mean": 0.008, "low": 0.007, "high": 0.009}}
    assert told({**entries, "divergences": [last]})["Selection"][1:] == (
        "One greedy completion of each model decided, which is also the rollout compared.",
        "On the same 400 problems, answering greedily, rl-80 alone is right on 211 and dpo-8 alone on 3 (p < 0.001, "
        "mid-p McNemar).",
        "Another draw of completions would select 70.0% (66.0 to 74.0) of these problems again.",
        "On these rollouts the predictions of rl-80 and dpo-8 lie 0.0080 (0.0070 to 0.0090) nats a token apart (JS); "
        "less far apart on \N{LEFT DOUBLE QUOTATION MARK}dpo-8 right\N{RIGHT DOUBLE QUOTATION MARK}, by -0.0079 "
        "(-0.0089 to -0.0069); no difference from that is to be seen on "
        "\N{LEFT DOUBLE QUOTATION MARK}rl-80 right\N{RIGHT DOUBLE QUOTATION MARK}: +0.0002 (-0.0008 to +0.0012).",
    )


def test_of_few_rollouts_a_population_is_not_compared(entries: dict[str, Any], told: Any) -> None:
    last = {"checkpoint": "rl-80", "js": {"mean": 0.008, "low": 0.007, "high": 0.009}}
    first, right, other = entries["populations"][:3]
    few = [first, {**right, "num_rollouts": 1, "above_headline": {"mean": 0.0, "low": -9.0, "high": 9.0}}, other]
    said = told({**entries, "divergences": [last], "populations": few})["Selection"][-1]
    assert "; the one of \N{LEFT DOUBLE QUOTATION MARK}dpo-8 right\N{RIGHT DOUBLE QUOTATION MARK} is too few" in said


@pytest.mark.parametrize(("selection", "how"), [("greedy", "single samples"), ("split", "another draw of its samples")])
def test_what_the_reference_alone_would_turn_stands_beside_the_count(selection: str, how: str, told: Any) -> None:
    summary = {"selection": selection, "turned_by_itself": {"mean": 24.5, "low": 18.0, "high": 31.0}}
    beside = f" (by {how} dpo-8 itself would turn 24.5 (18.0 to 31.0))"
    assert f"rl-80 gets 208 right{beside};" in told(summary)["Selection"][0]


def test_a_split_says_which_half_decided(told: Any) -> None:
    assert told({"selection": "split", "num_ties": 12})["Selection"][1] == (
        "One half of the sampled completions decided; the rollouts compared are of the other half; 12 verdicts were "
        "ties, drawn by a coin."
    )


def test_populations_have_their_writers_and_divergences(inputs: ReportInputs, rows_of: Any) -> None:
    rows = rows_of(TOPIC, inputs)["populations"]
    assert rows.texts[0] == (
        "dpo-8 wrong, rl-80 right (headline)", "dpo-8", "200", "0", "0.0324 (0.0292 to 0.0356)",
        "0.0729 (0.0656 to 0.0802)", "0.00810 (0.00729 to 0.00891)",
    )  # fmt: skip
    assert [row[:4] for row in rows.rows[1:]] == [("dpo-8 right", "dpo-8", 100, 100), ("rl-80 right", "rl-80", 90, 90)]
    assert rows.plots[0].column == "JS"


def test_responses_from_elsewhere_say_where_they_are_from(inputs_of: Any, rows_of: Any) -> None:
    responses = {"path": "x.jsonl", "num_responses": 1170, "boundaries": {"joint": 3, "ids": 2}}
    rows = rows_of(TOPIC, inputs_of((), {"selection": "imported", "responses": responses}))["responses"]
    assert rows.rows == (("path", "x.jsonl"), ("num responses", 1170), ("boundaries", "joint 3, ids 2"))


def test_samples_of_two_models_have_the_table_that_rollouts_were_chosen_by(inputs_of: Any, rows_of: Any) -> None:
    side = {"path": "a.jsonl", "num_responses": 800}
    selected = {
        "name": "reference_wrong_final_right", "where": ["length < 500"], "reference": side, "final": side,
        "both_right": 7, "only_reference_right": 1, "only_final_right": 20, "both_wrong": 3, "num_unshared": 2,
    }  # fmt: skip
    rows = rows_of(TOPIC, inputs_of((), {"selection": "split", "selected": selected}))["right-and-wrong"]
    assert rows.rows == (("dpo-8 right", 7, 1), ("dpo-8 wrong", 20, 3))
    assert rows.note == (
        "Graded anew: 800 samples in a.jsonl and 800 samples in a.jsonl; only length < 500. "
        "Problems in one file only: 2."
    )
