"""Whether a part does nearly all that a whole does, and whether it does more than a random one of its size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

_LEAST_DIRECTIONS = 19


def loses_less(whole: ArrayLike, part: ArrayLike, margin: float) -> bool:
    """Return whether a part is shown to lose less accuracy than the margin: Tango's score test, one-sided at 2.5%.

        z = (b - c - N d) / sqrt(N (2 q + d (1 - d))) <= -1.96

    with b and c the cases that only the whole and only the part has right, d the margin and q the maximum likelihood
    estimate of the chance of c where the loss is d. Simulated level .027 (Agresti and Min's interval: .062). Source:
    Tango, Statistics in Medicine 17 (1998) 891.

    Args:
        whole: whether each case is right with all of it.
        part: the same with the part.
        margin: loss that is allowed, above 0 and below 1; fixed before the data are seen.

    >>> whole = [True] * 200
    >>> loses_less(whole, [True] * 198 + [False] * 2, 0.05), loses_less(whole, [True] * 195 + [False] * 5, 0.05)
    (True, False)
    """
    losses = np.asarray(whole, dtype=int) - np.asarray(part, dtype=int)
    num, lost, variance = losses.size, losses.sum(), margin * (1 - margin)

    # q solves 2 N q^2 + B q - c d (1 - d) = 0.
    linear = (2 * num - lost) * margin - np.abs(losses).sum()
    chance = (math.sqrt(linear**2 + 8 * num * (losses < 0).sum() * variance) - linear) / (4 * num)
    return bool(lost - num * margin <= NormalDist().inv_cdf(0.025) * math.sqrt(num * (2 * chance + variance)))


def smallest_sufficient(whole: ArrayLike, parts: Mapping[int, ArrayLike], margin: float) -> int | None:
    """Return the smallest size from which on every part tried is shown to lose less than the margin; None: not shown.

    From the largest down, it stops at the first that is not shown, so that the claim is false in at most 2.5% however
    many sizes are tried: the smallest that passes is false in 7 to 10%.

    Args:
        whole: whether each case is right with all of it.
        parts: the same by size of the part.
        margin: loss that is allowed.

    >>> whole = [True] * 100 + [False] * 20
    >>> smallest_sufficient(whole, {1: [False] * 120, 4: whole, 8: whole}, 0.1)
    4
    """
    sizes = sorted(parts, reverse=True)
    return min(takewhile(lambda size: loses_less(whole, parts[size], margin), sizes), default=None)


def above_random(value: float, random: Sequence[float]) -> bool:
    """Return whether a part is shown to do more than random ones of its size.

    The unit is the random direction: above all n of them, at 1 / (n + 1), one-sided: 2.5% of 39, 5% of 19. Fewer than
    19 are a description. A test against a single one is false in .02 to .42 of cases.

    >>> above_random(0.5, [0.4] * 39), above_random(0.5, [0.4] * 38 + [0.5]), above_random(0.5, [0.4] * 18)
    (True, False, False)
    """
    return len(random) >= _LEAST_DIRECTIONS and value > max(random)
