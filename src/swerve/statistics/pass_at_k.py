"""What k samples of a problem are worth: the chance that one is right, that all are, that their majority is."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np
import scipy
from numpy.typing import NDArray

from swerve.estimates import Estimate, SamplingCurve
from swerve.statistics.intervals import mean_interval


def pass_at_k(num_samples: int, num_right: int, k: int) -> float:
    """Return the unbiased estimate of the chance that at least one of k samples is right, from n samples with c right.

    pass@k = 1 - C(n-c, k) / C(n, k) = 1 - prod_{i=n-c+1..n} (1 - k / i)

    The product never forms a large number. Source: Chen et al., Evaluating Large Language Models Trained on Code
    (arXiv:2107.03374), equation 1.

    Raises:
        ValueError: not 0 <= c <= n, or not 1 <= k <= n: from fewer than k samples there is no unbiased estimate.

    >>> round(pass_at_k(5, 2, 3), 6)
    0.9
    """
    _check(num_samples, num_right, k)
    if num_samples - num_right < k:
        return 1.0
    return -math.expm1(_log_chance_of_none(num_samples, num_right, k))


def pass_hat_k(num_samples: int, num_right: int, k: int) -> float:
    """Return the unbiased estimate of the chance that all of k samples are right, from n samples with c right.

    pass^k = C(c, k) / C(n, k)

    Source: Yao et al., tau-bench (arXiv:2406.12045).

    Raises:
        ValueError: as for `pass_at_k`.

    >>> round(pass_hat_k(5, 3, 2), 6)
    0.3
    """
    _check(num_samples, num_right, k)
    if num_right < k:
        return 0.0
    return math.exp(_log_chance_of_none(num_samples, num_samples - num_right, k))


def _log_chance_of_none(num: int, num_marked: int, k: int) -> float:
    """Return log C(num - num_marked, k) / C(num, k): none of k drawn is marked. Needs num - num_marked >= k."""
    # The two forms are equal; the product with fewer factors is taken.
    few, many = sorted((num_marked, k))
    return math.fsum(math.log1p(-many / i) for i in range(num - few + 1, num + 1))


def _check(num_samples: int, num_right: int, k: int) -> None:
    if not 0 <= num_right <= num_samples:
        raise ValueError(f"{num_right} of {num_samples} samples cannot be right")
    if not 1 <= k <= num_samples:
        raise ValueError(f"k must be from 1 to the number of samples, {num_samples}; got {k}")


def majority_at_k(answers: Sequence[str | None], right: Sequence[bool], k: int) -> float:
    """Return the chance that the most frequent answer of k samples is right, over all subsets of k of the n samples.

    maj@k = sum over subsets S of (right answers among the most frequent of S / the most frequent of S) / C(n, k)

    so ties are broken at random. It is exact, by dynamic programming over the answers rather than by enumeration. None
    is a sample without an answer: it is drawn but has no vote, and where nobody votes the majority is wrong. Where the
    verdicts on one answer differ it counts by the share that are right. Source of the method: Wang et al.,
    Self-Consistency Improves Chain of Thought Reasoning (arXiv:2203.11171).

    Args:
        answers: one per sample, in a form in which equal answers are equal strings.
        right: whether each is right.
        k: size of the subsets.

    Raises:
        ValueError: the lengths differ, or not 1 <= k <= n.

    >>> majority_at_k(["4", "4", "5"], [True, True, False], k=3), majority_at_k(["4", "5"], [True, False], k=2)
    (1.0, 0.5)
    """
    if len(answers) != len(right):
        raise ValueError(f"{len(answers)} answers need as many verdicts, got {len(right)}")
    _check(len(answers), 0, k)
    votes = Counter(answer for answer in answers if answer is not None)
    num_right = Counter(answer for answer, is_right in zip(answers, right, strict=True) if is_right)
    classes = [(num, num_right[answer] / num) for answer, num in votes.items()]
    if not any(share for _, share in classes):
        return 0.0
    most = max(num for num, _ in classes)
    if k == len(answers):
        first = [share for num, share in classes if num == most]
        return math.fsum(first) / len(first)
    # Weighing each draw by p^i (1 - p)^(n - i) changes no ratio and keeps every number between 0 and 1.
    probability = k / len(answers)
    silent = len(answers) - votes.total()
    weights = {num: scipy.stats.binom.pmf(np.arange(num + 1), num, probability) for num in {silent, *votes.values()}}
    won = math.fsum(_weight_won(most_votes, classes, silent, weights, k) for most_votes in range(1, min(most, k) + 1))
    return min(1.0, won / float(scipy.stats.binom.pmf(k, len(answers), probability)))


def _weight_won(
    most_votes: int,
    classes: Sequence[tuple[int, float]],
    silent: int,
    weights: Mapping[int, NDArray[np.float64]],
    k: int,
) -> float:
    """Return the weight of the draws of k in which the most frequent answers have `most_votes` and a right one wins.

    Args:
        most_votes: votes of the winner.
        classes: number of samples and share right of each answer.
        silent: number of samples without an answer.
        weights: for each number of samples, the weight of drawing 0, 1, ... of them.
        k: size of the draws.
    """
    # [samples drawn, answers with `most_votes`]: the weight, and the weight times the right ones among those answers.
    weight = np.zeros((k + 1, k // most_votes + 1))
    right = np.zeros_like(weight)
    weight[: silent + 1, 0] = weights[silent][: k + 1]
    for available, share in classes:
        next_weight, next_right = np.zeros_like(weight), np.zeros_like(right)
        for taken in range(min(available, most_votes, k) + 1):
            tied = int(taken == most_votes)
            factor = weights[available][taken]
            rows, columns = k + 1 - taken, weight.shape[1] - tied
            before_weight, before_right = weight[:rows, :columns], right[:rows, :columns]
            next_weight[taken:, tied:] += factor * before_weight
            next_right[taken:, tied:] += factor * (before_right + share * tied * before_weight)
        weight, right = next_weight, next_right
    return float((right[k, 1:] / np.arange(1, right.shape[1])).sum())


@functools.cache
def chance_of_turning(num_samples: int, num_right: int, sizes: tuple[int, int] = (1, 1)) -> float | None:
    """Return how probable most of some samples are wrong and most of others right, though nothing has changed.

        sum over a, b of P(a) P(b | a) wrong(a) right(b),   a ~ H(n, c, m), b ~ H(n - m, c - a, m')

    with H hypergeometric: over all ways to draw m samples and m' others of the n, of which c are right; as many right
    as wrong count half. It is unbiased for two draws of one model, which turn a problem by regression to the mean. None
    with fewer than m + m' samples.

    >>> chance_of_turning(4, 2), chance_of_turning(4, 2, (2, 2)), chance_of_turning(1, 1)
    (0.333..., 0.333..., None)
    """
    first, second = sizes
    if first + second > num_samples:
        return None
    _check(num_samples, num_right, 1)
    total = 0.0
    for early in range(max(0, first - num_samples + num_right), min(first, num_right) + 1):
        wrong = (1 - np.sign(2 * early - first)) / 2
        late = np.arange(second + 1)
        right = (1 + np.sign(2 * late - second)) / 2
        chances = scipy.stats.hypergeom.pmf(late, num_samples - first, num_right - early, second)
        total += float(scipy.stats.hypergeom.pmf(early, num_samples, num_right, first) * wrong * (chances @ right))
    return total


class SampledProblem(TypedDict):
    """The samples of one problem."""

    answers: Sequence[str | None]
    """None: without an answer."""
    right: Sequence[bool]


def sampling_curve(problems: Sequence[SampledProblem], *, confidence: float = 0.95) -> list[SamplingCurve]:
    """Return pass@k, pass^k, maj@k of k = 1, 2, 4, ...: means over problems with their t intervals (`mean_interval`).

    Problems may have different numbers of samples; one with fewer than k is left out at that k, which `num_problems`
    shows. Where problems differ in how many samples they have, and this depends on how hard they are, metrics of
    different k are therefore not of the same problems.

    Args:
        problems: the samples of each problem.
        confidence: coverage of the interval.

    >>> curve = sampling_curve([{"answers": ["4", "5"], "right": [True, False]}] * 3)
    >>> [(entry.k, entry.pass_at_k.mean, entry.num_problems) for entry in curve]
    [(1, 0.5, 3), (2, 1.0, 3)]
    """
    largest = max((len(problem["right"]) for problem in problems), default=0)
    curve: list[SamplingCurve] = []
    for k in (2**power for power in range(largest.bit_length())):
        # Only problems with k samples or more, and a majority only where any sample has an answer.
        enough = [problem for problem in problems if len(problem["right"]) >= k]

        def mean(values: Sequence[float]) -> Estimate | None:
            return mean_interval(values, confidence=confidence, bounds=(0.0, 1.0))

        voted = any(answer is not None for problem in enough for answer in problem["answers"])
        counts = [(len(problem["right"]), sum(problem["right"])) for problem in enough]
        curve.append(
            SamplingCurve(
                k=k,
                num_problems=len(enough),
                pass_at_k=mean([pass_at_k(num, right, k) for num, right in counts]),
                pass_hat_k=mean([pass_hat_k(num, right, k) for num, right in counts]),
                majority_at_k=mean([majority_at_k(problem["answers"], problem["right"], k) for problem in enough])
                if voted
                else None,
            )
        )
    return curve
