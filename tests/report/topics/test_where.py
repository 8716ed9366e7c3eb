"""What is said of the places of the divergence, and its rows."""

from __future__ import annotations

from typing import Any

import pytest

from swerve.artifacts.probe_claims import DivergenceClaim
from swerve.estimates import Estimate
from swerve.report.read import ReportInputs
from swerve.report.topics.where import TOPIC, claim_rows


def test_the_sentences_on_places(entries: dict[str, Any], told: Any) -> None:
    assert told(entries)["Where"] == (
        "Matched noise is 3 models that are as far from dpo-8 as rl-80 in random directions (mean JS 0.00780 to "
        "0.00830), for which they need 17.0 to 19.1 times the norm of what training changed.",
        "Of 200 rollouts, the middle third has 47.0% (45.0 to 49.0) of the divergence, more than chance (34.0%) and "
        "matched noise (35.0%), no different, as far as can be seen, from the reference's entropy (45.0%).",
        "Of 200 rollouts, style tokens have 2.1% (0.1 to 4.1) of the divergence, less than chance (8.5%), the "
        "reference's entropy (12.0%) and matched noise (10.0%).",
        "Of 200 rollouts, the most uncertain fifth of the tokens has 98.4% (96.4 to 100.0) of the divergence, more "
        "than chance (20.0%), the reference's entropy (91.0%) and matched noise (75.0%).",
        "Of 200 rollouts, tokens moved the good way have 97.0% (95.0 to 99.0) of the divergence, more than chance "
        "(52.0%) and the reference's entropy (60.0%), no different, as far as can be seen, from matched noise (96.0%).",
        "Of 2 categories of tokens, these have more or less of the divergence than by chance, the reference's entropy "
        "and matched noise: number 66.0% (64.0 to 68.0) (more) and math symbol 2.0% (0.0 to 4.0) (less).",
        "In its own text, rl-80 writes the first choice of dpo-8 at 93.0% (92.0 to 94.0) of the tokens, its second or "
        "third at 5.0% (4.0 to 6.0) and a lower one at 2.0% (1.0 to 3.0).",
    )


def without_intervals(summary: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return a summary whose claims have no interval of the difference from some nulls."""
    return {
        **summary,
        "claims": [
            {
                **claim,
                "nulls": [{**null, "difference": None} if null["null"] in names else null for null in claim["nulls"]],
            }
            for claim in summary["claims"]
        ],
    }


def test_a_difference_without_an_interval_is_not_one_that_is_not_there(entries: dict[str, Any], told: Any) -> None:
    said = told(without_intervals(entries, "noise"))["Where"]
    because = "not determined, because the difference has no interval, against matched noise"
    assert said[2] == (
        "Of 200 rollouts, style tokens have 2.1% (0.1 to 4.1) of the divergence, less than chance (8.5%) and the "
        f"reference's entropy (12.0%), {because} (10.0%)."
    )
    assert said[5] == "Of 2 categories it is not determined, because a difference has no interval."
    (claim,) = (
        DivergenceClaim.model_validate(each)
        for each in without_intervals(entries, "noise")["claims"]
        if each["of"] == "style"
    )
    assert (claim.stands, claim.unknown, claim.null("noise").side) == (False, ("matched noise",), None)
    assert claim.verdict == f"less than chance and the reference's entropy, {because}"


def test_the_rows_of_places(inputs: ReportInputs, rows_of: Any) -> None:
    rows = rows_of(TOPIC, inputs)
    places = {row[0]: row[1:] for row in rows["places"].texts}
    assert places["Style tokens"] == (
        "2.1% (0.1 to 4.1)", "8.5%", "12.0%", "10.0% (9.0 to 11.0)", "less than all",
    )  # fmt: skip
    assert places["Middle third"][-1] == "not more or less than all"
    assert places["Number"][-1] == "more than all"
    assert rows["places"].plots[0].null == "Matched noise"
    less = "\N{MINUS SIGN}6.4 (\N{MINUS SIGN}6.8 to \N{MINUS SIGN}6.0)"
    assert rows["style"].texts == (("rl-80", "2.1% (1.7 to 2.5)", "8.5% (8.4 to 8.6)", less),)
    assert rows["forking"].texts == (
        ("rl-80", "98.4% (97.9 to 98.9)", "20.0%", "99.0% (98.0 to 100.0)", "98.0% (97.0 to 99.0)"),
    )
    less = "\N{MINUS SIGN}0.0110 (\N{MINUS SIGN}0.0130 to \N{MINUS SIGN}0.0090)"
    assert rows["entropy_reduction"].texts == (("rl-80", less, less, "0.0110 (0.0100 to 0.0120)", "2.2% (2.1 to 2.3)"),)
    assert rows["ranks"].texts[0] == (
        "rl-80 on text of dpo-8", "93.0% (92.0 to 94.0)", "5.0% (4.0 to 6.0)", "2.0% (1.0 to 3.0)", "5,900",
    )  # fmt: skip
    change = "\N{MINUS SIGN}0.0110 (\N{MINUS SIGN}0.0130 to \N{MINUS SIGN}0.0090)"
    assert rows["certainty"].texts == (("Math symbol", "0.0110 (0.0100 to 0.0120)", change),)


@pytest.mark.parametrize(("figure", "text", "ahead"), [("share", "90.0%", "+0.5"), ("auc", "0.90", "+0.01")])
def test_a_claim_stands_beside_its_nulls(figure: str, text: str, ahead: str, inputs: ReportInputs) -> None:
    assert inputs.summary is not None
    near = {"null": "chance", "value": 0.895, "difference": Estimate(mean=0.005, low=-0.1, high=0.1)}
    estimate = Estimate(mean=0.9, low=0.8, high=0.95)
    claim = DivergenceClaim.model_validate({"figure": figure, "of": "wrong", "estimate": estimate, "nulls": [near]})
    rows = claim_rows(claim, inputs.summary)
    assert rows.texts[0][1].startswith(text)
    assert rows.texts[1][2].startswith(ahead)
    assert rows.plots[0].at == (0.5 if figure == "auc" else None)
