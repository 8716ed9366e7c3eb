"""Sentences of a whole run, from literal summaries."""

from __future__ import annotations

from typing import Any

import pytest

from swerve.report.draw.plots import drawn
from swerve.report.read import ReportInputs
from swerve.report.rows import NATS, Rows
from swerve.report.topics.topic import along_training


def test_every_sentence_of_a_complete_run(said: Any) -> None:
    assert said() == (
        "On 400 held-out problems, greedy accuracy was 46.5% (41.7 to 51.4) at dpo-8 and 99.2% (97.8 to 99.7) at "
        "rl-80; their difference was not measured.",
        "Of the greedy traces of rl-80, 96.0% (93.0 to 97.5) have no wrong step at all.",
        "Of the 215 problems that dpo-8 gets wrong, rl-80 gets 208 right (how many dpo-8 itself would on another try "
        "cannot be known from one completion each); 200 rollouts \N{LEFT DOUBLE QUOTATION MARK}dpo-8 wrong, "
        "rl-80 right\N{RIGHT DOUBLE QUOTATION MARK} were compared token by token.",
        "One greedy completion of each model decided, which is also the rollout compared.",
        "The token of a rollout where rl-80 differs most from dpo-8 (JS) is the first wrong one in 90.0% (85.0 to "
        "94.0), more than chance (3.0%), no different, as far as can be seen, from the reference's entropy (91.0%); it "
        "is any wrong one in 92.0% (87.0 to 95.0), more than chance (3.0%), no different, as far as can be seen, from "
        "the reference's entropy (91.0%).",
        "Whether the token of rl-80 at the spike does more than another token there was not measured.",
        "In place of the rollout's own token at the top spike, the token of rl-80 changes how often dpo-8 ends right "
        "by +87.4 (+82.5 to +91.6) points.",
        "At matched positions no token was forced.",
        "At random positions the same swap changes it by +1.1 (\N{MINUS SIGN}0.4 to +2.9).",
    )


def test_what_is_missing_is_said_to_be_not_measured(said: Any) -> None:
    assert said((), None) == (
        "Accuracy was not measured.",
        "Where the checkpoints differ from the reference was not measured.",
    )
    summary = {"spikes": [], "claims": [], "causal": None}
    assert said(summary=summary)[-2:] == (
        "Where the highest divergence of a rollout falls was not measured.",
        "Whether the token of rl-80 at the spike does more than another token there was not measured.",
    )


WIDE = {"mean": 0.5, "low": -1.0, "high": 1.0}


@pytest.mark.parametrize(
    ("topic", "number", "ending"),
    [
        ("Divergence", 0, "Whether the stage changed more than the training before it is not to be seen: rl-80 lies"),
        ("Divergence", 1, "As far as can be seen, as much changed from rl-10 to rl-20,"),
        ("Divergence", 2, "Whether rl-80 is surer than dpo-8 on these rollouts is not to be seen: "),
        ("Wrong steps", 2, "No score ranks the known wrong steps above chance."),
        (
            "Where",
            1,
            "no different, as far as can be seen, from chance (34.0%), the reference's entropy (30.0%) and matched "
            "noise (34.0%).",
        ),
        ("Where", 5, "none has more or less of the divergence than by chance, the reference's entropy and matched"),
        ("Cause", 4, "none of 2 scores is shown to go with the size of the effect."),
        ("Dose", 0, "no difference between the two models alone is to be seen"),
        ("Training", 0, "Whether a right rollout's JS is higher or lower than a wrong one's is not to be seen"),
        ("Training", 1, "no different, as far as can be seen, from the 50%"),
        ("Training", 2, "no different, as far as can be seen, from chance (50.0%)."),
        ("Training", 3, "no different, as far as can be seen, from if all counted alike (9.6%)."),
    ],
)
def test_wide_intervals_claim_nothing(entries: dict[str, Any], topic: str, number: int, ending: str, told: Any) -> None:
    def widened(value: Any) -> Any:
        if isinstance(value, dict):
            return WIDE if {"mean", "low", "high"} <= value.keys() else {k: widened(v) for k, v in value.items()}
        return [widened(one) for one in value] if isinstance(value, list) else value

    last = {"checkpoint": "rl-80", "js": WIDE}
    assert ending in told({**widened(entries), "divergences": [last]})[topic][number]


def test_checkpoints_without_steps_lie_in_their_order_with_their_names(inputs: ReportInputs) -> None:
    names = ["step-10", "final", *(f"later{'!' * place}" for place in range(24))]
    curves = along_training(inputs, names)
    assert (curves.is_order, curves.is_log, curves.x_title) == (True, False, "checkpoint")
    rows = Rows(id="a", title="", columns={"KL": NATS}, rows=tuple((name, 0.1) for name in names), plots=(curves,))
    assert [text for _, text in drawn(rows, curves).along.ticks][:3] == ["step-10", "final", "later"]
    assert not along_training(inputs, ["rl-5", "rl-10"]).is_order
