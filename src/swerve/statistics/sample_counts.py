"""What counts of right samples show of two models: how probable one of k samples is right.

The data are the number of right samples of each problem, out of n.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from swerve.estimates import Estimate
from swerve.statistics.clusters import Array, Clusters, cluster_sums
from swerve.statistics.intervals import mean_interval
from swerve.statistics.paired import paired_interval

Counts = NDArray[np.int64]

_DRAWS = 2000
_CHANCES = (0.0, 1.0)


class PassAtKDifference(NamedTuple):
    """How probable one of k samples is right, before and after."""

    k: int
    base: Estimate | None
    trained: Estimate | None
    difference: Estimate
    """Paired over problems, with the interval of this k alone."""
    band: Estimate | None
    """The same with the interval that holds for all k together."""


def pass_at_k_differences(
    right_before: ArrayLike, right_after: ArrayLike, num: ArrayLike, *, clusters: Clusters | None = None
) -> tuple[list[PassAtKDifference], tuple[int | None, int | None]]:
    """Return pass@k before and after and their paired difference, for k = 1, 2, 4, ..., half and all of the samples.

    The intervals of the difference are those of `paired_interval`:

        interval of one k:  at 95%
        band:               at the confidence 2 Phi(w) - 1,  w the .95 quantile of max_k |Z_k|

    with Z normal and of the correlations of the differences, the two added cases among them (the Gaussian multiplier
    bootstrap). "Better at every k" needs no band: the interval of each k alone suffices (intersection-union). A k that
    is picked from the curve needs it.

    The row of k = 1 is of all problems, each with the samples that it has; those of k above 1 are of the problems that
    have as many samples on both sides as nine in ten of them (`most_have`).

    Args:
        right_before: number of right samples of each problem.
        right_after: the same after, of the same problems.
        num: samples of each problem, before and after; or `[2, N]`, of each one before and after.
        clusters: which problems belong together (their groups); by default each is its own cluster.

    Returns:
        The rows; and up to which k the model after is shown to be better, and from which on worse, None where it is
        not. The curves cross between the two, if they cross once. Every whole k to half the samples is tried, each by
        its own interval: they cross at one k, so that no correction is needed. Simulated coverage: .96 to 1. Beyond
        half the samples an interval holds as well, and shows less.

    >>> rows, crossing = pass_at_k_differences([2] * 40 + [0] * 2, [0] * 30 + [16] * 12, 16)
    >>> [row.k for row in rows], crossing
    ([1, 2, 4, 8, 16], (1, 5))
    """
    right = np.array([right_before, right_after])
    nums = np.broadcast_to(num, right.shape)
    full = most_have(nums)
    have_it, half = nums.min(axis=0) >= full, most_judged(full)
    names = None if clusters is None else np.asarray(clusters)
    own = None if names is None else names[have_it]
    first = right / nums
    before, after = (
        _pass_at_every_k(counts[have_it], given[have_it], full) for counts, given in zip(right, nums, strict=True)
    )
    gains = after - before
    alone: list[Any] = [paired_interval(gain, clusters=own) for gain in gains.T[:half]]
    alone[0] = paired_interval(first[1] - first[0], clusters=names)
    num_better = sum(1 for _ in takewhile(lambda gain: gain.low > 0, alone))
    num_worse = sum(1 for _ in takewhile(lambda gain: gain.high < 0, reversed(alone)))

    # The confidence of each k alone at which all hold together.
    ks = sorted({half, full, *(2**power for power in range(full.bit_length()))})
    cases = cluster_sums([gains[:, k - 1] for k in ks], own)
    added = np.vstack([cases * len(cases) / len(gains), np.ones(len(ks)), -np.ones(len(ks))])
    correlations = np.atleast_2d(np.corrcoef(added.T))
    normal = np.random.default_rng(0).multivariate_normal(np.zeros(len(ks)), correlations, size=_DRAWS)
    each = 2 * float(scipy.special.ndtr(np.quantile(np.abs(normal).max(axis=1), 0.95))) - 1
    rows = [_row(k, (before[:, k - 1], after[:, k - 1]), own, each) for k in ks]
    rows[0] = _row(1, (first[0], first[1]), names, each)
    return rows, (num_better or None, half - num_worse + 1 if num_worse else None)


def _row(k: int, sides: tuple[Array, Array], clusters: Clusters | None, band: float) -> PassAtKDifference:
    base, trained = (mean_interval(side, bounds=_CHANCES, clusters=clusters) for side in sides)
    difference: Any = paired_interval(sides[1] - sides[0], clusters=clusters)
    return PassAtKDifference(
        k, base, trained, difference, paired_interval(sides[1] - sides[0], clusters=clusters, confidence=band)
    )


def most_judged(num_samples: int) -> int:
    """Return the largest k of pass@k from so many samples at which models are said to differ: half of them.

    >>> most_judged(16), most_judged(1)
    (8, 1)
    """
    return max(1, num_samples // 2)


def most_have(num: ArrayLike) -> int:
    """Return the largest number of samples that at least nine in ten problems have, on every side.

    Args:
        num: `[..., N]`, of each problem, of one side or several.

    >>> most_have([[16] * 20, [16] * 19 + [1]]), most_have([8, 4])
    (16, 4)
    """
    fewest = np.atleast_2d(num).min(axis=0)
    return int(np.sort(fewest)[fewest.size // 10])


def _pass_at_every_k(right: Counts, num: Counts, full: int) -> Array:
    """Return `[N, K]`: pass@k (`swerve.statistics.pass_at_k`) of k = 1, ..., K, the samples that all have."""
    drawn = np.arange(full)
    wrong = (num - right)[:, None]
    return 1 - np.cumprod(np.maximum(wrong - drawn, 0) / (num[:, None] - drawn), axis=1, dtype=np.float64)
