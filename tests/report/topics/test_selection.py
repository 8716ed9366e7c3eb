"""What is said of the selection."""

from __future__ import annotations

from typing import Any

from swerve.report.page import all_sections


def test_the_sentences_on_what_was_read(entries: dict[str, Any], told: Any) -> None:
    assert told(entries)["Selection"][1:] == (
        "On the same 400 problems rl-80 alone is right on 211 and dpo-8 alone on 3, a difference of +52.0 (+47.0 to "
        "+57.0) points (p < 0.001).",
        "Another draw of completions would select 70.0% (66.0 to 74.0) of these problems again.",
        "Mean JS of rl-80 is 0.00810 (0.00729 to 0.00891) nats on these rollouts; it is lower on "
        "\N{LEFT DOUBLE QUOTATION MARK}dpo-8 right\N{RIGHT DOUBLE QUOTATION MARK}, at 2.00e-4 (1.80e-4 to 2.20e-4) and "
        "not distinguishable on \N{LEFT DOUBLE QUOTATION MARK}rl-80 right\N{RIGHT DOUBLE QUOTATION MARK}, at 0.00830 "
        "(0.00747 to 0.00913).",
    )


def test_all_problems_that_turned_right_are_called_all(told: Any) -> None:
    said = told({"num_reference_wrong": 208})["Selection"][0]
    assert said.startswith("Of the 208 problems that dpo-8 gets wrong, rl-80 gets all 208 right;")


def test_a_split_says_which_half_decided(inputs_of: Any) -> None:
    test = {"num": 400, "num_first_only": 3, "num_second_only": 211, "difference": None, "p_value": 0.5}
    sections = all_sections(inputs_of(summary={"selection": "split", "num_ties": 12, "mcnemar": test}))
    (panel,) = [one for section in sections for one in section.panels if one.title == "Is the selection sound?"]
    assert panel.note == (
        "Problems that dpo-8 got wrong and rl-80 right on one half of the sampled completions; the rollouts compared "
        "are of the other half. 12 verdicts were ties, drawn by a coin."
    )
