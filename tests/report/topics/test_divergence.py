"""What is said of the divergence."""

from __future__ import annotations

from typing import Any


def test_the_sentences_on_divergence(entries: dict[str, Any], told: Any) -> None:
    last = {"checkpoint": "rl-80", "js": {"mean": 0.008, "low": 0.007, "high": 0.009}}
    assert told({**entries, "divergences": [last]})["Divergence"] == (
        "Before the stage, dpo-8 differed from sft-500 by 5.00e-4 (4.50e-4 to 5.50e-4) nats (JS), less than what the "
        "stage changed (+0.0076 (+0.0066 to +0.0086) more, paired): rl-80 differs from dpo-8 by 0.0080 (0.0070 to "
        "0.0090).",
        "Of 7 steps between neighbouring checkpoints most changed from rl-70 to rl-80 (not distinguishable from rl-60 "
        "to rl-70, paired over problems), by 0.00700 (0.00630 to 0.00770).",
        "Mean entropy on these rollouts is 0.0110 (0.0100 to 0.0120) nats at rl-80, -0.0110 (-0.0130 to -0.0090) "
        "against dpo-8.",
    )


def test_a_pair_without_an_interval_is_not_told_to_be_alike(entries: dict[str, Any], told: Any) -> None:
    pairs = [{**pair, "behind": None} if pair["checkpoint"] == "rl-70" else pair for pair in entries["pairs"]]
    assert (
        "most changed from rl-70 to rl-80 (not determined, because the difference has no interval, against rl-60 to "
        "rl-70), by 0.00700"
    ) in str(told({**entries, "pairs": pairs})["Divergence"])


def test_stages_are_told_apart(entries: dict[str, Any], told: Any) -> None:
    stages = [
        {"checkpoint": name, "reference": "dpo-8", "js": {"mean": mean, "low": mean / 2, "high": 2 * mean}}
        for name, mean in (("early", 0.002), ("mid", 0.006), ("final", 0.008))
    ]
    assert told({**entries, "stages": stages})["Divergence"][0] == (
        "By stage, the JS from dpo-8 is 0.0020 (0.0010 to 0.0040) at early, 0.0060 (0.0030 to 0.0120) at mid "
        "and 0.0080 (0.0040 to 0.0160) at final (nats)."
    )
