"""What is said of the selection."""

from __future__ import annotations

from typing import Any

import pytest

from swerve.report.page import all_sections, all_tiles


def test_the_sentences_on_what_was_read(entries: dict[str, Any], told: Any) -> None:
    last = {"checkpoint": "rl-80", "js": {"mean": 0.008, "low": 0.007, "high": 0.009}}
    assert told({**entries, "divergences": [last]})["Selection"][1:] == (
        "On the same 400 problems rl-80 alone is right on 211 and dpo-8 alone on 3, a difference of +52.0 (+47.0 to "
        "+57.0) points (p < 0.001).",
        "Another draw of completions would select 70.0% (66.0 to 74.0) of these problems again.",
        "JS of rl-80 is 0.00800 (0.00700 to 0.00900) nats per token on these rollouts; its mean is lower on "
        "\N{LEFT DOUBLE QUOTATION MARK}dpo-8 right\N{RIGHT DOUBLE QUOTATION MARK} (-0.00790 (-0.00890 to -0.00690)) "
        "and not distinguishable on \N{LEFT DOUBLE QUOTATION MARK}rl-80 right\N{RIGHT DOUBLE QUOTATION MARK} "
        "(+2.00e-4 (-8.00e-4 to +0.00120)).",
    )


def test_all_problems_that_turned_right_are_called_all(told: Any) -> None:
    said = told({"num_reference_wrong": 208})["Selection"][0]
    assert said.startswith(
        "Of the 208 problems that dpo-8 gets wrong, rl-80 gets all 208 right (how many dpo-8 itself would on another "
        "try cannot be known from one completion each);"
    )


@pytest.mark.parametrize(("selection", "how"), [("greedy", "single samples"), ("split", "another draw of its samples")])
def test_what_the_reference_alone_would_turn_stands_beside_the_count(
    selection: str, how: str, told: Any, inputs_of: Any
) -> None:
    summary = {"selection": selection, "turned_by_itself": {"mean": 24.5, "low": 18.0, "high": 31.0}}
    beside = f" (by {how} dpo-8 itself would turn 24.5 (18.0 to 31.0))"
    assert f"rl-80 gets 208 right{beside};" in told(summary)["Selection"][0]
    assert all_tiles(inputs_of(summary=summary))[1].detail == f"of 215 problems dpo-8 gets wrong{beside}"


def test_a_split_says_which_half_decided(inputs_of: Any) -> None:
    test = {"num": 400, "num_first_only": 3, "num_second_only": 211, "difference": None, "p_value": 0.5}
    sections = all_sections(inputs_of(summary={"selection": "split", "num_ties": 12, "mcnemar": test}))
    (panel,) = [one for section in sections for one in section.panels if one.title == "Is the selection sound?"]
    assert panel.note == (
        "Problems that dpo-8 got wrong and rl-80 right on one half of the sampled completions; the rollouts compared "
        "are of the other half. 12 verdicts were ties, drawn by a coin."
    )
