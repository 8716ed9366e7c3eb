"""What is said of the divergence."""

from __future__ import annotations

from typing import Any


def test_the_sentences_on_divergence(entries: dict[str, Any], told: Any) -> None:
    last = {"checkpoint": "rl-80", "js": {"mean": 0.008, "low": 0.007, "high": 0.009}}
    assert told({**entries, "divergences": [last]})["Divergence"] == (
        "The stage changed more than the training before it: rl-80 lies 0.0080 (0.0070 to 0.0090) nats a token (JS) "
        "from dpo-8, dpo-8 5.00e-4 (4.50e-4 to 5.50e-4) from sft-500; the difference is +0.0076 (+0.0066 to +0.0086).",
        "Of 7 steps between neighbouring checkpoints most changed from rl-70 to rl-80, by 0.00700 (0.00630 to 0.00770) "
        "nats a token (JS). As far as can be seen, as much changed from rl-60 to rl-70.",
        "On these rollouts rl-80 is surer than dpo-8: its mean entropy is 0.0110 (0.0100 to 0.0120) nats a token, a "
        "change of -0.0110 (-0.0130 to -0.0090).",
    )


def test_a_pair_without_an_interval_is_not_told_to_be_alike(entries: dict[str, Any], told: Any) -> None:
    pairs = [{**pair, "behind": None} if pair["checkpoint"] == "rl-70" else pair for pair in entries["pairs"]]
    assert told({**entries, "pairs": pairs})["Divergence"][0].endswith(
        " Whether less did from rl-60 to rl-70 is not determined: the difference has no interval."
    )


def test_stages_are_told_apart(entries: dict[str, Any], told: Any) -> None:
    stages = [
        {"checkpoint": name, "reference": "dpo-8", "js": {"mean": mean, "low": mean / 2, "high": 2 * mean}}
        for name, mean in (("early", 0.002), ("mid", 0.006), ("final", 0.008))
    ]
    assert told({**entries, "stages": stages})["Divergence"][0] == (
        "By stage, the JS from dpo-8 is 0.0020 (0.0010 to 0.0040) at early, 0.0060 (0.0030 to 0.0120) at mid "
        "and 0.0080 (0.0040 to 0.0160) at final (nats)."
    )
