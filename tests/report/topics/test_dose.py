"""What is said of dose and response."""

from __future__ import annotations

from typing import Any


def test_the_sentences_on_dose(entries: dict[str, Any], told: Any) -> None:
    into, out = told(entries)["Dose"]
    assert into == (
        "dpo-8 with tokens of rl-80: with JS choosing 2.2% of the tokens, accuracy goes from 51.0% (42.0 to 60.0) to "
        "82.2% (75.2 to 89.2), which is 80.0% (70.0 to 90.0) of the gap to 90.0% (81.0 to 99.0); over all budgets it "
        "is above random choice, +0.800 (+0.710 to +0.890) of the gap."
    )
    assert out.startswith("rl-80 with tokens of dpo-8: with JS choosing 2.2% of the tokens, accuracy goes from 90.0%")


def test_the_score_that_is_quoted_was_named_before_whichever_does_best(entries: dict[str, Any], told: Any) -> None:
    direction = entries["cross_sampling"]["directions"][0]
    best = {**direction["selectors"][0], "selector": "rank"}
    selectors = [best, *direction["selectors"]]
    crossing = {**entries["cross_sampling"], "directions": [{**direction, "selectors": selectors}]}
    assert "with JS choosing" in told({**entries, "cross_sampling": crossing})["Dose"][0]
    others = [each for each in selectors if each["selector"] != "js"]
    crossing = {**crossing, "directions": [{**direction, "selectors": others}]}
    assert "with rank choosing" in told({**entries, "cross_sampling": crossing})["Dose"][0]
