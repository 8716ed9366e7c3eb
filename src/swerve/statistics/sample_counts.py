"""What counts of right samples show of two models, and of the problems that one never solved.

The data are the number of right samples of each problem, out of n. Where a problem is hardly ever or nearly always
solved, the sample of problems may hold none of the cases that matter: every interval here adds two problems, one at
either extreme. Without them the bands of pass@k cover .05 to .24.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from swerve.estimates import Estimate
from swerve.statistics.clusters import Array, Clusters, membership
from swerve.statistics.intervals import mean_interval, share
from swerve.statistics.jackknife import pseudo_values, quantile
from swerve.statistics.paired import paired_interval

Counts = NDArray[np.int64]

_DRAWS, _RESAMPLES = 2000, 200
_STEPS = 100  # of the EM algorithm: stopped early the mixture stays smooth
_TINY = 1e-300
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
    added = np.vstack([gains[:, np.array(ks) - 1], np.ones(len(ks)), -np.ones(len(ks))])
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


def newly_solved(right: ArrayLike, num: ArrayLike, *, clusters: Clusters | None = None) -> Estimate:
    """Return how many of the problems that were never solved as many samples again would solve, with its 90% interval.

        f0 * (1 - sum_p w(p) (1 - p)^(2n) / sum_p w(p) (1 - p)^n)

    with w the nonparametric maximum likelihood estimate of how chances of success are distributed over problems. The
    interval redraws the problems, one solved once and one always added, and then how many of the f0 are solved.
    Simulated coverage: .91 to 1 at 60 and 200 problems (a zero-inflated beta-binomial: .13 to 1). Which problems are
    impossible is not identified, nor what many more samples would solve: of 4n the interval covers .68.

    Args:
        right: number of right samples of each problem.
        num: samples of each problem, n; or `[N]`, of each one.
        clusters: which problems belong together (their groups); by default each is its own cluster.
    """
    counts = np.asarray(right)
    nums, usual = np.broadcast_to(num, counts.shape), most_have(num)
    names = _with_added(clusters, counts.size, 2)
    weights = _mixtures((counts, nums), (np.r_[counts, 1, usual], np.r_[nums, usual, usual]), names)
    rng, mean, drawn = np.random.default_rng(0), 0.0, np.zeros(len(weights) - 1, dtype=np.int64)
    for samples in np.unique(nums):
        failure = (1 - _chances(int(nums.max()))) ** samples
        unsolved = weights * failure
        solved = np.clip(1 - unsolved @ failure / np.maximum(unsolved.sum(axis=1), _TINY), 0, 1)
        never = int(((counts == 0) & (nums == samples)).sum())
        drawn = drawn + rng.binomial(never, solved[1:])
        mean += never * float(solved[0])
    low, high = np.quantile(drawn, 0.05, method="lower"), np.quantile(drawn, 0.95, method="higher")
    return Estimate(mean=mean, low=min(mean, float(low)), high=max(mean, float(high)))


def newly_solved_at_most(right: ArrayLike) -> float:
    """Return an upper bound (95%) of how many never solved problems as many samples again are expected to solve.

        min(f0, N U),  U the upper end (Clopper and Pearson) of the share solved exactly once

    since p (1 - p)^j falls in j (Robbins, Annals of Mathematical Statistics 39 (1968) 256). It held in .98 to 1 of
    simulated cases. Args: as of `newly_solved`.

    >>> round(newly_solved_at_most([0] * 20 + [1] * 2 + [16] * 78), 2)
    6.16
    """
    counts = np.asarray(right)
    never, once = int((counts == 0).sum()), int((counts == 1).sum())
    solved_once: Any = share(once, counts.size, confidence=0.9)
    return float(min(never, counts.size * solved_once.high))


def cover_at(
    right: ArrayLike, num: ArrayLike, probabilities: Sequence[float], *, clusters: Clusters | None = None
) -> list[Estimate]:
    """Return the fraction of problems that are solved with at least some probability, with its 95% interval.

    By the nonparametric maximum likelihood estimate, a problem always and one never solved added. The interval's half
    width is t times the larger of two standard errors: of redrawn problems, and of c/n above the probability, ties
    half. Simulated coverage: .91 to .98 (of c/n: .40 to .98, of a beta posterior: .00 to .97). Source of the measure:
    arXiv:2510.08325.

    Args:
        right: number of right samples of each problem.
        num: samples of each problem, or `[N]`, of each one.
        probabilities: of success, from 0 to 1.
        clusters: which problems belong together (their groups); by default each is its own cluster.
    """
    counts, usual = np.asarray(right), most_have(num)
    added, nums = np.r_[counts, 0, usual], np.r_[np.broadcast_to(num, counts.shape), usual, usual]
    names = _with_added(clusters, counts.size, 2)
    num_cases, index = membership(names, added.size)
    weights = _mixtures((added, nums), (added, nums), names)
    chances, t, estimates = _chances(int(nums.max())), quantile(0.95, num_cases - 1), []
    for probability in probabilities:
        covers = weights @ _at_least(chances, probability)
        values = _at_least(added / nums, probability)
        _, apart = pseudo_values(np.stack([np.bincount(index, values), np.bincount(index)], axis=1))
        half = t * max(covers[1:].std(ddof=1), scipy.stats.sem(apart))
        mean = float(covers[0])
        estimates.append(Estimate(mean=mean, low=max(0.0, mean - half), high=min(1.0, mean + half)))
    return estimates


def _with_added(clusters: Clusters | None, num: int, num_added: int) -> NDArray[np.intp] | None:
    """Return the index of each problem's cluster, and that of each added problem, a cluster of its own."""
    if clusters is None:
        return None
    num_clusters, index = membership(clusters, num)
    return np.concatenate([index, num_clusters + np.arange(num_added)])


def _pass_at_every_k(right: Counts, num: Counts, full: int) -> Array:
    """Return `[N, K]`: pass@k (`swerve.statistics.pass_at_k`) of k = 1, ..., K, the samples that all have."""
    drawn = np.arange(full)
    wrong = (num - right)[:, None]
    return 1 - np.cumprod(np.maximum(wrong - drawn, 0) / (num[:, None] - drawn), axis=1, dtype=np.float64)


def _at_least(values: Array, probability: float) -> Array:
    """Return 1 where a value is above the probability, half where it is equal."""
    return np.heaviside(np.round(values - probability, 9), 0.5)


def _chances(num: int) -> Array:
    """Return the chances of success that a mixture is made of: finest where n samples hardly ever show one."""
    low = np.geomspace(min(0.001, 1 / (16 * num)), 0.05, 8)
    return np.concatenate([[0.0], low, np.linspace(0.075, 0.95, 36), [0.97, 0.985, 1.0]])


def _mixtures(seen: tuple[Counts, Counts], redrawn: tuple[Counts, Counts], clusters: NDArray[np.intp] | None) -> Array:
    """Return `[1 + B, P]`: weights of the chances in the mixtures that make the numbers right most probable.

    A hundred steps of the EM algorithm from equal weights: w(p) <- w(p) sum_c h(c) Bin(c; p) / sum_q w(q) Bin(c; q).

    Args:
        seen: numbers right and samples of each problem, of the first mixture.
        redrawn: those from which the others' are drawn.
        clusters: index of the cluster of each redrawn problem, which are redrawn whole; None: each is its own.
    """
    # Every number that can be right, of every number of samples that some problem has, is a place.
    sizes = np.unique(np.r_[seen[1], redrawn[1]])
    starts = np.r_[0, np.cumsum(sizes + 1)]
    places = [starts[np.searchsorted(sizes, nums)] + right for right, nums in (seen, redrawn)]
    first, rest = (np.bincount(place, minlength=starts[-1]) / place.size for place in places)
    rng, num_redrawn = np.random.default_rng(0), places[1].size
    if clusters is None:
        draws = rng.multinomial(num_redrawn, rest, size=_RESAMPLES)
    else:
        of_cluster = np.zeros((clusters.max() + 1, starts[-1]))
        np.add.at(of_cluster, (clusters, places[1]), 1)
        draws = (
            rng.multinomial(len(of_cluster), np.full(len(of_cluster), 1 / len(of_cluster)), size=_RESAMPLES)
            @ of_cluster
        )
    shares = np.vstack([first, draws / draws.sum(axis=1, keepdims=True)])
    occurring = np.flatnonzero(shares.any(axis=0))
    size = np.searchsorted(starts, occurring, side="right") - 1
    chances = _chances(int(sizes.max()))
    likelihoods = scipy.stats.binom.pmf(occurring - starts[size], sizes[size], chances[:, None])
    weights = np.full((len(shares), len(likelihoods)), 1 / len(likelihoods))
    for _ in range(_STEPS):
        weights = weights * ((shares[:, occurring] / np.maximum(weights @ likelihoods, _TINY)) @ likelihoods.T)
    return weights
