"""Coverage of every interval and size of every test of `swerve.statistics`, by simulation on the functions themselves.

    python -m benchmarks.coverage [--draws 4000] [--seed 1] > benchmarks/results/coverage.jsonl

A cell is a function, what is drawn and a number of problems. Coverage is the fraction of drawn samples whose 95%
interval holds the truth, size the fraction of samples with nothing in them that a test rejects at 5%.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, ndtri

from benchmarks.process import print_line
from swerve.estimates import Estimate, SkewedMean
from swerve.statistics import (
    accuracy_interval,
    auc_difference,
    auc_interval,
    draw_difference,
    mcnemar,
    mean_interval,
    paired_wilcoxon,
    ranking_intervals,
    ratio_interval,
    share,
    share_difference,
    sign_flip_test,
    skewed_mean_interval,
    spearman,
)

SIZES = (20, 50, 100, 400)

Rng = np.random.Generator


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One function on one kind of sample."""

    method: str
    family: str
    """What is drawn, as the table says it."""
    num_problems: int
    bar: float
    """Least coverage, or with `is_test` the largest size."""
    once: Callable[[Rng], bool | None]
    """Draw a sample: does the interval hold the truth, does the test reject; None: the sample does not count."""
    is_test: bool = False


def cells(sizes: tuple[int, ...] = SIZES) -> Iterator[Cell]:
    """Yield every cell: methods, families, numbers of problems."""
    for num in sizes:
        for make in (
            _accuracy,
            _share,
            _unequal,
            _differences,
            _paired,
            _ratios,
            _aucs,
            _skewed,
            _rare_tail,
            _tests,
            _correlations,
            _nulls,
        ):
            yield from make(num)


def _holds(found: Estimate | None, truth: float) -> bool | None:
    return None if found is None else found.low <= truth <= found.high


def _rates(rng: Rng, mean: float, alike: float | None, num: int) -> Any:
    """Return the problems' success rates: equal, or from a Beta distribution of that sum of parameters."""
    return np.full(num, mean) if alike is None else rng.beta(mean * alike, (1 - mean) * alike, size=num)


_ROLLOUTS = (
    (1, None, "1 rollout"),
    (2, None, "2 rollouts, problems alike"),
    (16, 0.5, "16 rollouts, most problems always or never solved"),
)


def _accuracy(num: int) -> Iterator[Cell]:
    for rate in (0.02, 0.1, 0.5, 0.9, 0.98, 0.99):
        for rollouts, alike, words in _ROLLOUTS:

            def once(
                rng: Rng, rate: float = rate, rollouts: int = rollouts, alike: float | None = alike
            ) -> bool | None:
                values = rng.binomial(rollouts, _rates(rng, rate, alike, num)) / rollouts
                return _holds(mean_interval(values, bounds=(0.0, 1.0)), rate)

            bar = 0.95 if rollouts == 1 else 0.93
            yield Cell(method="accuracy", family=f"{words}, {rate:.2f}", num_problems=num, bar=bar, once=once)


def _unequal(num: int) -> Iterator[Cell]:
    """Eight rollouts of a problem that is mostly failed, one of others: the mean over rollouts is another figure."""
    for rate in (0.5, 0.9, 0.98):

        def once(rng: Rng, rate: float = rate) -> bool | None:
            rates = _rates(rng, rate, 0.5, num)
            right = [rng.random(8 if own < 0.5 else 1) < own for own in rates]
            return _holds(accuracy_interval([samples.tolist() for samples in right]), rate)

        family = f"8 rollouts of problems mostly failed, else 1, {rate:.2f}"
        yield Cell(method="unequal rollouts", family=family, num_problems=num, bar=0.93, once=once)


def _share(num: int) -> Iterator[Cell]:
    for rate in (0.02, 0.1, 0.5, 0.9, 0.98, 0.99):

        def once(rng: Rng, rate: float = rate) -> bool | None:
            return _holds(share(int(rng.binomial(num, rate)), num), rate)

        yield Cell(method="share", family=f"1 rollout, {rate:.2f}", num_problems=num, bar=0.95, once=once)


def _differences(num: int) -> Iterator[Cell]:
    for first, second in ((0.02, 0.02), (0.02, 0.12), (0.5, 0.7), (0.98, 0.98)):
        for rollouts, alike, words in _ROLLOUTS:

            def once(
                rng: Rng,
                first: float = first,
                second: float = second,
                rollouts: int = rollouts,
                alike: float | None = alike,
            ) -> bool | None:
                rates = _rates(rng, first, alike, num)
                others = rates if first == second else _rates(rng, second, alike, num)
                values = (rng.binomial(rollouts, others) - rng.binomial(rollouts, rates)) / rollouts
                return _holds(mean_interval(values, bounds=(-1.0, 1.0)), second - first)

            family = f"{words}, {first:.2f} and {second:.2f}"
            yield Cell(method="difference of means", family=family, num_problems=num, bar=0.93, once=once)

    def rare(rng: Rng) -> bool | None:
        changes = np.where(rng.random(num) < 0.02, 1.0, rng.normal(0.0, 0.02, num)).clip(-1.0, 1.0)
        return _holds(mean_interval(changes, bounds=(-1.0, 1.0)), 0.02)

    family = "2% of the problems change wholly, the others hardly"
    yield Cell(method="difference of means", family=family, num_problems=num, bar=0.93, once=rare)
    for name, draw in (
        ("normal", Rng.standard_normal),
        ("t with 3 degrees", lambda rng, size: rng.standard_t(3, size)),
    ):

        def unbounded(rng: Rng, draw: Any = draw) -> bool | None:
            return _holds(mean_interval(draw(rng, size=num)), 0.0)

        yield Cell(method="difference of means", family=name, num_problems=num, bar=0.93, once=unbounded)


def _paired(num: int) -> Iterator[Cell]:
    for first, second in ((0.02, 0.06), (0.5, 0.6), (0.9, 0.98), (0.98, 0.98), (0.5, 0.5)):

        def answers(rng: Rng, first: float = first, second: float = second) -> tuple[Any, Any]:
            # two models that agree on most problems: a common part of the uniform draw
            common, own = rng.random(num), rng.random(num)
            other = np.where(rng.random(num) < 0.7, common, own)
            return common < first, other < second

        def once(rng: Rng, draw: Any = answers, truth: float = second - first) -> bool | None:
            return _holds(mcnemar(*draw(rng)).difference, truth)

        def rejects(rng: Rng, draw: Any = answers) -> bool | None:
            p_value = mcnemar(*draw(rng)).p_value
            return p_value is not None and p_value <= 0.05

        family = f"{first:.2f} and {second:.2f}"
        yield Cell(method="paired accuracy", family=family, num_problems=num, bar=0.93, once=once)
        if first == second:
            yield Cell(method="mid-p McNemar", family=family, num_problems=num, bar=0.065, once=rejects, is_test=True)


def _ratios(num: int) -> Iterator[Cell]:
    for part, alike in ((0.02, 10.0), (0.1, 10.0), (0.5, 2.0), (0.9, 10.0)):

        def once(rng: Rng, part: float = part, alike: float = alike) -> bool | None:
            totals = np.exp(rng.standard_normal(num))
            return _holds(ratio_interval(totals * _rates(rng, part, alike, num), totals), part)

        family = f"fraction {part:.2f} of lognormal sums"
        yield Cell(method="ratio", family=family, num_problems=num, bar=0.88, once=once)

    for part, alike in ((0.95, None), (0.99, None), (0.95, 0.5)):

        def hits(rng: Rng, part: float = part, alike: float | None = alike) -> bool | None:
            spikes = rng.poisson(1.5, size=num)
            return _holds(ratio_interval(rng.binomial(spikes, _rates(rng, part, alike, num)), spikes), part)

        family = f"hits {part:.2f} of 1.5 spikes per problem" + ", most problems always or never" * (alike is not None)
        yield Cell(method="ratio", family=family, num_problems=num, bar=0.88, once=hits)

    def one_problem(rng: Rng) -> bool | None:
        return _holds(ratio_interval(np.where(rng.random(num) < 0.02, 0.9, 0.001), np.ones(num)), 0.01898)

    family = "fraction 0.02, nearly all in one problem of fifty"
    yield Cell(method="ratio", family=family, num_problems=num, bar=0.88, once=one_problem)


_RANKED = ((0.5, 0.5, 1, 0.5), (0.97, 0.5, 1, 0.9706), (0.97, 0.1, 1, 0.8476), (0.97, 0.02, 20, 0.6465),
           (0.8, 0.2, 8, 0.5307), (0.9995, 0.02, 40, 0.9861))  # fmt: skip
"""AUC, fraction of positives, rows per problem, average precision (of ten million rows)."""


def _aucs(num: int) -> Iterator[Cell]:
    for truth, positives, rows, precision in _RANKED:

        def drawn(rng: Rng, truth: float = truth, positives: float = positives, rows: int = rows) -> dict[str, Any]:
            names = np.repeat(np.arange(num), rows)
            labels = rng.random(num * rows) < positives
            common = rng.standard_normal(num)[names] if rows > 1 else 0.0
            scores = (rng.standard_normal(num * rows) + common) / math.sqrt(2 if rows > 1 else 1)
            return {"scores": scores + math.sqrt(2) * ndtri(truth) * labels, "labels": labels, "clusters": names}

        def auc(rng: Rng, draw: Any = drawn, truth: float = truth) -> bool | None:
            return _holds(auc_interval(**draw(rng)), truth)

        def ranked(rng: Rng, draw: Any = drawn, truth: float = precision) -> bool | None:
            return _holds(ranking_intervals(**draw(rng)).average_precision, truth)

        family = f"{truth}, {positives:.0%} positives, {rows} row{'s' * (rows > 1)} per problem"
        yield Cell(method="AUC", family=family, num_problems=num, bar=0.90, once=auc)
        yield Cell(method="average precision", family=f"AUC {family}", num_problems=num, bar=0.90, once=ranked)


def _skewed(num: int) -> Iterator[Cell]:
    for sigma in (0.5, 1.0, 1.5, 2.0):
        for zeros in (0.0, 0.4, 0.8):

            def found(rng: Rng, sigma: float = sigma, zeros: float = zeros) -> tuple[bool | None, bool]:
                values = np.exp(sigma * rng.standard_normal(num)) * (rng.random(num) >= zeros)
                estimate = skewed_mean_interval(values)
                assert estimate is not None
                return _holds(estimate, math.exp(sigma**2 / 2) * (1 - zeros)), estimate.reliable

            def reliable(rng: Rng, draw: Any = found) -> bool | None:
                holds, counts = draw(rng)
                return holds if counts else None

            def every(rng: Rng, draw: Any = found) -> bool | None:
                return draw(rng)[0]

            family = f"lognormal, sigma {sigma}, {zeros:.0%} zeros"
            yield Cell(method="skewed mean, reliable", family=family, num_problems=num, bar=0.90, once=reliable)
            yield Cell(method="skewed mean, all", family=family, num_problems=num, bar=0.0, once=every)


def _rare_tail(num: int) -> Iterator[Cell]:
    """Values of which 2% are fifty times as large: no sample without one shows them."""

    def found(rng: Rng) -> SkewedMean:
        values = np.exp(0.5 * rng.standard_normal(num)) * np.where(rng.random(num) < 0.02, 50.0, 1.0)
        estimate = skewed_mean_interval(values, threshold=1.0)
        assert estimate is not None
        return estimate

    def mean(rng: Rng) -> bool | None:
        estimate = found(rng)
        return _holds(estimate, math.exp(0.125) * 1.98) if estimate.reliable else None

    def median(rng: Rng) -> bool | None:
        return _holds(found(rng).median, math.exp(0.5 * float(ndtri(0.5 / 0.98))))

    def above(rng: Rng) -> bool | None:
        return _holds(found(rng).above, 0.51)

    for method, once in (
        ("mean, rare tail", mean),
        ("median, rare tail", median),
        ("fraction above, rare tail", above),
    ):
        bar = 0.0 if once is mean else 0.93
        yield Cell(method=method, family="2% fifty times as large", num_problems=num, bar=bar, once=once)


def _tests(num: int) -> Iterator[Cell]:
    samples: dict[str, Callable[[Rng], Any]] = {
        "normal": lambda rng: rng.standard_normal(num),
        "lognormal of either sign": lambda rng: np.exp(1.5 * rng.standard_normal(num)) * rng.choice([-1, 1], num),
    }
    for family, draw in samples.items():

        def flips(rng: Rng, draw: Any = draw) -> bool | None:
            return (sign_flip_test(np.zeros(num), draw(rng)) or 0.0) <= 0.05

        def ranks(rng: Rng, draw: Any = draw) -> bool | None:
            tested = paired_wilcoxon(np.zeros(num), draw(rng))
            return tested is not None and tested.p_value <= 0.05

        yield Cell(method="sign flips", family=family, num_problems=num, bar=0.065, once=flips, is_test=True)
        yield Cell(method="Wilcoxon", family=family, num_problems=num, bar=0.065, once=ranks, is_test=True)


def _correlations(num: int) -> Iterator[Cell]:
    for rows in (1, 4):

        def correlated(rng: Rng, rows: int = rows) -> bool | None:
            names = np.repeat(np.arange(num), rows)
            marks = (rng.random(num) < 0.2)[names]
            logs = rng.standard_normal(num)[names] + rng.standard_normal(num * rows)
            tested = spearman(marks, np.exp(logs), clusters=names)
            return None if tested is None else tested.p_value <= 0.05

        family = f"20% ones against lognormal, {rows} row{'s' * (rows > 1)} per problem"
        yield Cell(method="Spearman", family=family, num_problems=num, bar=0.065, once=correlated, is_test=True)

    for zeros in (0.8, 0.9, 0.95):

        def rare(rng: Rng, zeros: float = zeros) -> bool | None:
            tested = spearman(*(rng.random((2, num)) * (rng.random((2, num)) >= zeros)))
            return None if tested is None else tested.p_value <= 0.05

        family = f"two variables with {zeros:.0%} zeros"
        yield Cell(method="Spearman", family=family, num_problems=num, bar=0.065, once=rare, is_test=True)

    def unequal(rng: Rng) -> bool | None:
        names = rng.integers(num, size=4 * num)
        tested = spearman(
            *(rng.standard_normal((2, num))[:, names] + rng.standard_normal((2, 4 * num))), clusters=names
        )
        return None if tested is None else tested.p_value <= 0.05

    family = "normal, of different numbers of rows per problem"
    yield Cell(method="Spearman", family=family, num_problems=num, bar=0.065, once=unequal, is_test=True)

    for effects in (0.1, 0.3):

        def sparse(rng: Rng, effects: float = effects) -> bool | None:
            names = rng.integers(num, size=2 * num)
            ranks = rng.choice(3, 2 * num, p=(0.5, 0.35, 0.15))
            sizes = rng.choice((0.02, 0.05, 0.1), 2 * num, p=(0.6, 0.3, 0.1)) * rng.choice((-1, 1), 2 * num)
            tested = spearman(ranks, sizes * (ranks > 0) * (rng.random(2 * num) < 2 * effects), clusters=names)
            return None if tested is None else tested.p_value <= 0.05

        family = f"effects at {effects:.0%} of two positions per problem, none where the score is least"
        yield Cell(method="Spearman", family=family, num_problems=num, bar=0.065, once=sparse, is_test=True)


def _nulls(num: int) -> Iterator[Cell]:
    """Yield what a probe's figures are set against their nulls with: differences of areas, of shares, from draws."""
    rows = 12
    names = np.repeat(np.arange(num), rows)
    first = np.tile(np.arange(rows) == 4, num)
    for truth, other, others in ((0.6, 0.6, 1), (0.85, 0.85, 1), (0.97, 0.97, 5), (0.97, 0.85, 1), (0.97, 0.6, 5)):

        def areas(rng: Rng, truth: float = truth, other: float = other, others: int = others) -> bool | None:
            common = rng.standard_normal(num)[names] + rng.standard_normal(num * rows)
            scores = [
                (common + math.sqrt(2) * rng.standard_normal(num * rows)) / 2 + math.sqrt(2) * ndtri(area) * first
                for area in (truth, *[other] * others)
            ]
            return _holds(auc_difference(scores[0], scores[1:], first, clusters=names), truth - other)

        family = (
            f"{truth} and {'the mean of 5 of ' if others > 1 else ''}{other}, one positive in {rows} rows per problem"
        )
        yield Cell(method="difference of AUCs", family=family, num_problems=num, bar=0.90, once=areas)
    for truth, other, others in ((0.05, 0.05, 1), (0.25, 0.25, 5), (0.95, 0.5, 1), (0.95, 0.95, 5)):

        def shares(rng: Rng, truth: float = truth, other: float = other, others: int = others) -> bool | None:
            common = np.exp(0.7 * rng.standard_normal(num)[names] + 0.7 * rng.standard_normal(num * rows))
            columns = []
            for part in (truth, *[other] * others):
                weights = np.where(first, part, (1 - part) / (rows - 1))
                values = weights * common * np.exp(0.7 * rng.standard_normal(num * rows))
                columns.append(np.stack([values * first, values]))
            return _holds(share_difference(columns[0], columns[1:], clusters=names), truth - other)

        family = f"{truth} and {'the mean of 5 of ' if others > 1 else ''}{other} of lognormal sums"
        yield Cell(method="difference of shares", family=family, num_problems=num, bar=0.90, once=shares)
    for middle in (-2.0, 0.0):
        for spread in (0.0, 0.3, 1.0):

            def beyond(rng: Rng, middle: float = middle, spread: float = spread) -> bool | None:
                chances = expit(middle + spread * rng.standard_normal((6, 1)) + rng.standard_normal(num))
                hits = (rng.random((6, num)) < chances).astype(np.float64)
                apart = mean_interval(hits[0] - hits[1:].mean(axis=0), bounds=(-1.0, 1.0))
                assert apart is not None, "there are problems"
                rates = hits[1:].mean(axis=1).tolist()
                return draw_difference(apart, rates, num=num).excludes(0)

            family = f"a sixth draw, sd {spread} on the logit around {middle}"
            yield Cell(method="from draws", family=family, num_problems=num, bar=0.065, once=beyond, is_test=True)


def measure(cell: Cell, draws: int, seed: int) -> dict[str, Any]:
    """Return how often the interval holds the truth or the test rejects, over the samples that count."""
    rng = np.random.default_rng([seed, cell.num_problems, len(cell.family)])
    found = [one for one in (cell.once(rng) for _ in range(draws)) if one is not None]
    return {
        "method": cell.method,
        "family": cell.family,
        "num_problems": cell.num_problems,
        "is_test": cell.is_test,
        "num_draws": draws,
        "num_counted": len(found),
        "rate": sum(found) / len(found) if found else None,
    }


def main() -> None:
    """Measure every cell; print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for cell in cells():
        print_line(measure(cell, options.draws, options.seed))


if __name__ == "__main__":
    main()
