"""What is said of the divergence."""

from __future__ import annotations

from typing import Any


def test_the_sentences_on_divergence(entries: dict[str, Any], told: Any) -> None:
    last = {"checkpoint": "rl-80", "js": {"mean": 0.008, "low": 0.007, "high": 0.009}}
    assert told({**entries, "divergences": [last]})["Divergence"] == (
        "Before the stage, dpo-8 differed from sft-500 by a mean JS of 5.00e-4 (4.50e-4 to 5.50e-4) nats, less than "
        "the "
        "stage changed: rl-80 differs from dpo-8 by 0.00800 (0.00700 to 0.00900).",
        "Between neighbouring checkpoints most changed from rl-70 to rl-80, by 0.00700 (0.00630 to 0.00770), though "
        "its "
        "interval overlaps that of rl-60 to rl-70.",
        "Mean entropy on these rollouts is 0.0110 (0.0100 to 0.0120) nats at rl-80, -0.0110 (-0.0130 to -0.00900) "
        "against dpo-8.",
    )
