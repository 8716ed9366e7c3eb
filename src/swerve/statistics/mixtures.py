"""How chances of success are distributed over problems: what is newly solved, and how many are solved how often.

The distribution is the nonparametric maximum likelihood estimate, a mixture of fixed chances. Its intervals redraw the
problems and add some: where hardly any problem is solved once, the sample may hold none of those that matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from swerve.estimates import Estimate
from swerve.statistics.clusters import Array, Clusters, membership
from swerve.statistics.intervals import share
from swerve.statistics.jackknife import pseudo_values, quantile
from swerve.statistics.sample_counts import Counts, most_have

_RESAMPLES = 200
_CYCLES, _FEW_CYCLES = 100, 25
"""Of three steps each: to what is never solved they have to converge, to shares of problems hardly."""
_TINY = 1e-300


def newly_solved(right: ArrayLike, num: ArrayLike, *, clusters: Clusters | None = None) -> Estimate:
    """Return how many of the problems that were never solved as many samples again would solve, with its 90% interval.

        f0 * (1 - sum_p w(p) (1 - p)^(2n) / sum_p w(p) (1 - p)^n)

    with w the nonparametric maximum likelihood estimate of how chances of success are distributed over problems. The
    interval redraws the problems, one solved once and one always added, and then how many of the f0 are solved, those
    of a cluster with one chance. Simulated coverage: .91 to 1 at 60 and 200 problems (a zero-inflated beta-binomial:
    .13 to 1), .87 to .95 at 3,000. Which problems are impossible is not identified, nor what many more samples would
    solve: of 4n the interval covers .68.

    Args:
        right: number of right samples of each problem.
        num: samples of each problem, n; or `[N]`, of each one.
        clusters: which problems belong together (their groups); by default each is its own cluster.
    """
    counts = np.asarray(right)
    nums, usual = np.broadcast_to(num, counts.shape), most_have(num)
    names = _with_added(clusters, counts.size)
    weights = _mixtures((counts, nums), (np.r_[counts, 1, usual], np.r_[nums, usual, usual]), names, _CYCLES)
    rng, mean = np.random.default_rng(0), 0.0
    alone = together = np.zeros(len(weights) - 1, dtype=np.int64)
    for samples in np.unique(nums):
        failure = (1 - _chances(int(nums.max()))) ** samples
        unsolved = weights * failure
        totals = np.maximum(unsolved.sum(axis=1), _TINY)
        solved = np.clip(1 - unsolved @ failure / totals, 0, 1)
        never = (counts == 0) & (nums == samples)
        mean += int(never.sum()) * float(solved[0])
        alone = alone + rng.binomial(int(never.sum()), solved[1:])
        if names is None:
            continue
        # Problems of one cluster have one chance, drawn from what is left of the mixture.
        sizes = np.bincount(names[:-2][never])
        below = np.cumsum(unsolved[1:] / totals[1:, None], axis=1)
        for size in np.sort(sizes[sizes > 0]):
            places = (below < rng.random((len(below), 1))).sum(axis=1).clip(max=failure.size - 1)
            together = together + rng.binomial(size, 1 - failure[places])

    # Clusters leave more open than problems of their own do, and never less.
    drawn = np.stack([alone] if names is None else [alone, together])
    low = np.quantile(drawn, 0.05, axis=1, method="lower").min()
    high = np.quantile(drawn, 0.95, axis=1, method="higher").max()
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
    names = _with_added(clusters, counts.size)
    num_cases, index = membership(names, added.size)
    weights = _mixtures((added, nums), (added, nums), names, _FEW_CYCLES)
    chances, t, estimates = _chances(int(nums.max())), quantile(0.95, num_cases - 1), []
    for probability in probabilities:
        covers = weights @ _at_least(chances, probability)
        values = _at_least(added / nums, probability)
        _, apart = pseudo_values(np.stack([np.bincount(index, values), np.bincount(index)], axis=1))
        half = t * float(max(covers[1:].std(ddof=1), scipy.stats.sem(apart)))
        mean = float(covers[0])
        estimates.append(Estimate(mean=mean, low=max(0.0, mean - half), high=min(1.0, mean + half)))
    return estimates


def _with_added(clusters: Clusters | None, num: int) -> NDArray[np.intp] | None:
    """Return the index of each problem's cluster, and of two added problems, their own; None: each is its own."""
    num_clusters, index = membership(clusters, num)
    if num_clusters == num:
        return None
    return np.concatenate([index, [num_clusters, num_clusters + 1]])


def _at_least(values: Array, probability: float) -> Array:
    """Return 1 where a value is above the probability, half where it is equal."""
    return np.heaviside(np.round(values - probability, 9), 0.5)


def _chances(num: int) -> Array:
    """Return the chances of success that a mixture is made of: finest where n samples hardly ever show one."""
    low = np.geomspace(min(0.001, 1 / (16 * num)), 0.05, 8)
    return np.concatenate([[0.0], low, np.linspace(0.075, 0.95, 36), [0.97, 0.985, 1.0]])


def _mixtures(
    seen: tuple[Counts, Counts], redrawn: tuple[Counts, Counts], clusters: NDArray[np.intp] | None, cycles: int
) -> Array:
    """Return `[1 + B, P]`: weights of the chances in the mixtures that make the numbers right most probable.

    By the EM algorithm from equal weights: w(p) <- w(p) sum_c h(c) Bin(c; p) / sum_q w(q) Bin(c; q).

    Args:
        seen: numbers right and samples of each problem, of the first mixture.
        redrawn: those from which the others' are drawn.
        clusters: index of the cluster of each redrawn problem, which are redrawn whole; None: each is its own.
        cycles: of the algorithm.
    """
    # Every number that can be right, of every number of samples that some problem has, is a place.
    sizes = np.unique(np.r_[seen[1], redrawn[1]])
    starts = np.r_[0, np.cumsum(sizes + 1)]
    places = [starts[np.searchsorted(sizes, nums)] + right for right, nums in (seen, redrawn)]
    first, rest = (np.bincount(place, minlength=starts[-1]) / place.size for place in places)
    rng = np.random.default_rng(0)
    draws: Array
    if clusters is None:
        draws = rng.multinomial(places[1].size, rest, size=_RESAMPLES).astype(np.float64)
    else:
        of_cluster = np.zeros((clusters.max() + 1, starts[-1]))
        np.add.at(of_cluster, (clusters, places[1]), 1)
        of_cluster = of_cluster[np.lexsort(of_cluster.T)]  # draws are the same whatever the clusters are called
        num = len(of_cluster)
        draws = rng.multinomial(num, np.full(num, 1 / num), size=_RESAMPLES).astype(np.float64) @ of_cluster
    shares = np.vstack([first, draws / draws.sum(axis=1, keepdims=True)])
    occurring = np.flatnonzero(shares.any(axis=0))
    size = np.searchsorted(starts, occurring, side="right") - 1
    chances = _chances(int(sizes.max()))
    likelihoods = scipy.stats.binom.pmf(occurring - starts[size], sizes[size], chances[:, None])
    return _most_likely(shares[:, occurring], likelihoods, cycles)


def _most_likely(shares: Array, likelihoods: Array, cycles: int) -> Array:
    """Return `[M, P]` weights: the EM algorithm, each two steps of which are prolonged.

        w <- EM(w - 2 a r + a^2 v),  r = w' - w,  v = w'' - w' - r,  a = -max(1, |r| / |v|)

    with w', w'' the next two steps; where that is less likely than w'' it is w''. Source: Varadhan and Roland,
    Scandinavian Journal of Statistics 35 (2008) 335, scheme S3.

    Args:
        shares: `[M, K]`, share of the problems at each of K places.
        likelihoods: `[P, K]`, of each place at each chance.
        cycles: of three steps each.
    """

    def step(weights: Array) -> Array:
        return np.asarray(weights * ((shares / np.maximum(weights @ likelihoods, _TINY)) @ likelihoods.T))

    def log_likelihood(weights: Array) -> Array:
        return np.asarray((shares * np.log(np.maximum(weights @ likelihoods, _TINY))).sum(axis=1))

    weights: Array = np.full((len(shares), len(likelihoods)), 1 / len(likelihoods))
    for _ in range(cycles):
        after = step(weights)
        further = step(after)
        first, second = after - weights, further - after
        bend = second - first
        length = np.sqrt((first**2).sum(axis=1) / np.maximum((bend**2).sum(axis=1), _TINY)).clip(1.0)[:, None]
        prolonged = weights + 2 * length * first + length**2 * bend
        prolonged = np.where(prolonged > 0, prolonged, 1e-3 * further)
        prolonged = step(prolonged / prolonged.sum(axis=1, keepdims=True))
        is_better = log_likelihood(prolonged) >= log_likelihood(further)
        weights = np.where(is_better[:, None], prolonged, further)
    return weights
