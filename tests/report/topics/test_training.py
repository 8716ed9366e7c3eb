"""What is said of training, and its rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from swerve.estimates import Estimate
from swerve.report.read import ReportInputs
from swerve.report.topics.training import TOPIC


def test_the_sentences_on_training(entries: dict[str, Any], told: Any) -> None:
    assert told(entries)["Training"] == (
        "A right rollout's JS is lower than a wrong one's, on text of dpo-8: rank correlation -0.610 (-0.660 to "
        "-0.560) over 300 rollouts, adjusted p = 0.0040.",
        "96.9% (96.7 to 97.1) of the wrong steps left the reference for good, more than the 0.3% (0.1 to 0.5) of the "
        "tokens beside them (by +96.6 (+96.2 to +97.0) points).",
        "Of the tokens of training that moved, 71.0% (68.0 to 74.0) moved the way their advantage pushed, above chance "
        "(50.0%).",
        "At 40 spikes the last 5 tokens have 28.5% (26.5 to 30.5) of the attribution of rl-80, more than if all "
        "counted "
        "alike (9.6%).",
        "At 40 spikes the last 5 tokens have 35.1% (33.1 to 37.1) of the attribution of dpo-8, more than if all "
        "counted "
        "alike (9.6%).",
    )


def test_the_rows_of_training(inputs: ReportInputs, rows_of: Any) -> None:
    rows = rows_of(TOPIC, inputs)
    assert list(rows) == [
        "direction-dpo-8", "wrong-steps-dpo-8", "onset", "biographies", "correlates", "attribution",
        "attribution-distance", "signal",
    ]  # fmt: skip
    note = rows["wrong-steps-dpo-8"].note.replace("\N{MINUS SIGN}", "-")
    assert note.endswith(
        "Throughout: wrong tokens 258; move -2.40 (-2.50 to -2.30); others' move -0.00100 (-0.00150 to -0.00050); "
        "right on top 96.0% (94.0 to 98.0); reference's 0.0% (0.0 to 1.0)."
    )
    assert rows["onset"].rows[1] == ("rl-10", 0.004, 0.0, 1 / 280)
    assert rows["onset"].plots[0].greys == ("Other tokens beside them",)
    assert rows["biographies"].texts[1] == (
        "Other tokens beside them", "11,742", "0.3% (0.1 to 0.5)", "5.0% (3.0 to 7.0)", "0.957", "3.0% (2.0 to 4.0)",
    )  # fmt: skip
    assert rows["correlates"].rows[0] == (
        "rollout: right answer", "dpo-8", Estimate(mean=-0.61, low=-0.66, high=-0.56), 300, 0.004,
    )  # fmt: skip
    assert rows["attribution"].texts[1] == ("rl-80: last 5 tokens", "28.5% (26.5 to 30.5)", "9.6%", "40")
    assert rows["attribution-distance"].texts[0] == ("rl-80: distance", "22.8 (22.8 to 22.8)", "28.0", "40")
    assert rows["signal"].texts[0][-1] == "+21.0 (+18.0 to +24.0)"


def test_no_share_of_tokens_that_never_moved_is_0(inputs: ReportInputs, rows_of: Any) -> None:
    summary = inputs.summary
    assert summary is not None
    assert summary.biographies is not None
    still = summary.biographies.tokens["others"].model_copy(update={"num_moved": 0})
    tokens = {**summary.biographies.tokens, "others": still}
    biographies = summary.biographies.model_copy(update={"tokens": tokens})
    changed = replace(inputs, summary=summary.model_copy(update={"biographies": biographies}))
    onset = rows_of(TOPIC, changed)["onset"]
    assert (list(onset.columns), onset.rows[1]) == (["Wrong steps", "All tokens"], ("rl-10", 0.004, 1 / 280))
