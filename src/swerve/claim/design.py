"""The size of a card, and what follows from it for its lines: how often they are false, and what they can show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from swerve.claim.rates import alike_said, claim_rates
from swerve.claim.verdicts import ClaimVerdict
from swerve.text import counted

_NUMBERS = re.compile(r"[-\u2212]?\d+(?:[\s.,:/]*\d+)*")
_SPREAD = 1.25
"""Problems of one text, each counted with the number of them, per problem: the variance of a mean may grow as much."""
_OVER_RUNS = ("accuracy_rose_over_runs", "accuracy_fell_over_runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSize:
    """How much a card's lines rest on."""

    num_problems: int
    num_groups: int | None
    """As which the problems count; None: none has a group."""
    num_alike: int
    """See `num_alike`."""
    num_samples: int
    num_runs: int = 1

    def told(self, verdict: ClaimVerdict) -> ClaimVerdict:
        """Return a line with its rates at this size; and with a warning where its problems are not independent."""
        num_runs = self.num_runs if verdict.claim in _OVER_RUNS else 1
        num = verdict.num if verdict.claim == "base_reaches_gained" else self.num_groups or self.num_problems
        rates = claim_rates()[verdict.claim].at(num or 0, self.num_samples, num_runs)
        sentence, said = verdict.sentence, f"Over {counted(self.num_problems, 'problem')} "
        if self.num_groups is not None and sentence.startswith(said):
            sentence = f"{said}in {counted(self.num_groups, 'group')} {sentence.removeprefix(said)}"
        if self.num_alike and verdict.shown is not None and verdict.claim != "base_reaches_gained":
            sentence = f"{sentence} {alike_said(self.num_alike, self.num_problems)}."
            rates = None
        known = {"false_rate": rates and rates.false, "detectable": rates and rates.size}
        return verdict.model_copy(update={"sentence": sentence, **known})


def num_alike(problems: Iterable[tuple[str, str]]) -> int:
    """Return how many problems differ from another one only in their numbers; 0 where so few do that it hardly matters.

    Where all problems of a family have one text (sums of two numbers), the family is what the intervals are of, and its
    problems are independent draws. Numbers side by side count as one number, however many they are.

    Args:
        problems: the family and the text of each.

    >>> num_alike([("f", f"Ann has {n} pens and {name} {n % 3}.") for n in range(6) for name in ("Ben", "Cleo")])
    12
    >>> num_alike([("sums", f"1 {n} + 4 =") for n in range(10)] + [("f", "Why?"), ("f", "How?")])
    0
    """
    texts = [(family, _NUMBERS.sub("#", " ".join(text.split()))) for family, text in problems if text.strip()]
    num_texts = Counter(family for family, _ in {*texts})
    sizes = [size for (family, _), size in Counter(texts).items() if size > 1 and num_texts[family] > 1]
    spread = sum(size * (size - 1) for size in sizes) / max(1, len(texts)) + 1
    return sum(sizes) if spread >= _SPREAD else 0
