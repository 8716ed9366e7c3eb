"""What is said of the places of the divergence."""

from __future__ import annotations

from typing import Any


def test_the_sentences_on_places(entries: dict[str, Any], told: Any) -> None:
    assert told(entries)["Where"] == (
        "To go as far from dpo-8 as rl-80, random directions need 17.0 to 19.1 times the norm of what training "
        "changed; 3 such models, of a mean JS of 0.00780 to 0.00830, are the matched noise.",
        "Divergence on the middle third: 47.0% (45.0 to 49.0; chance 34.0%, entropy 45.0%, noise 35.0% (34.0 to "
        "36.0)): more than chance and matched noise, not distinguishable from the reference's entropy.",
        "Divergence on style tokens: 2.1% (0.1 to 4.1; chance 8.5%, entropy 12.0%, noise 10.0% (9.0 to 11.0)): less "
        "than chance, the reference's entropy and matched noise.",
        "Divergence on the most uncertain fifth: 98.4% (96.4 to 100.0; chance 20.0%, entropy 91.0%, noise 75.0% (74.0 "
        "to 76.0)): more than chance, the reference's entropy and matched noise.",
        "Divergence on tokens moved the good way: 97.0% (95.0 to 99.0; chance 52.0%, entropy 60.0%, noise 96.0% (95.0 "
        "to 97.0)): more than chance and the reference's entropy, not distinguishable from matched noise.",
        "Of 2 categories of tokens, more falls on number 66.0% (64.0 to 68.0) and less falls on math symbol 2.0% (0.0 "
        "to 4.0) than by chance, the reference's entropy and matched noise.",
        "In its own text, rl-80 writes the first choice of dpo-8 at 93.0% (92.0 to 94.0) of the tokens, its second or "
        "third at 5.0% (4.0 to 6.0) and a lower one at 2.0% (1.0 to 3.0).",
    )
