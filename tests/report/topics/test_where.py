"""What is said of the places of the divergence."""

from __future__ import annotations

from typing import Any


def test_the_sentences_on_places(entries: dict[str, Any], told: Any) -> None:
    assert told(entries)["Where"] == (
        "The middle third of the rollouts, 34.0% of the tokens, carries 47.0% (42.0 to 52.0) of the divergence.",
        "Style tokens carry 2.1% (1.7 to 2.5) of it, less than their fraction of the tokens (8.5%).",
        "The forking tokens, the 20.0% at which the reference is least certain, carry 98.4% (97.9 to 98.9) of the "
        "divergence, more than their fraction.",
        "In its own text, rl-80 writes the first choice of dpo-8 at 93.0% (92.0 to 94.0) of the tokens, its second or "
        "third at 5.0% (4.0 to 6.0) and a lower one at 2.0% (1.0 to 3.0).",
    )
