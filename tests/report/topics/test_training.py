"""What is said of training."""

from __future__ import annotations

from typing import Any


def test_the_sentences_on_training(entries: dict[str, Any], told: Any) -> None:
    assert told(entries)["Training"] == (
        "A rollout's JS goes with wrong answers: rank correlation -0.610 (-0.660 to -0.560) over 300 rollouts, "
        "adjusted p = 0.0040.",
        "96.9% (96.7 to 97.1) of the wrong steps left the reference for good, more than the 0.3% (0.1 to 0.5) of the "
        "tokens beside them (by +96.6 (+96.2 to +97.0) points); of these wrong steps the largest fraction did so at "
        "rl-20 (78.0%), of the others at rl-70 "
        "(33.3%).",
        "Of the tokens of training that moved, 71.0% (68.0 to 74.0) moved the way their advantage pushed, above chance "
        "(50.0%).",
        "At 40 spikes the last 5 tokens have 28.5% (26.5 to 30.5) of the attribution of rl-80, more than if all "
        "counted "
        "alike (9.6%).",
        "At 40 spikes the last 5 tokens have 35.1% (33.1 to 37.1) of the attribution of dpo-8, more than if all "
        "counted "
        "alike (9.6%).",
    )
