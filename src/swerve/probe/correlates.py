"""What divergence goes with: correctness, difficulty, length and uncertainty of a rollout.

Correlations are Spearman's, within the rollouts of one writer, with problems resampled; all tests of one call are one
family, for which Benjamini and Hochberg's false discovery rate is controlled. None of this says what causes what.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from swerve.probe.regions import Resampling, by_source, problem_clusters
from swerve.probe.tables import Measurements
from swerve.statistics import benjamini_hochberg, pearson, spearman

__all__ = ["CORRELATES", "correlate_figures", "difficulty"]

CORRELATES = ("correct", "difficulty", "length", "entropy_ref")
"""Of a rollout."""
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")
Floats = NDArray[np.float64]


def difficulty(kind: str) -> float | None:
    """Return the number in a problem's kind; None where there is none, or several.

    >>> difficulty("2 carries"), difficulty("level 4"), difficulty("and+not")
    (2.0, 4.0, None)
    """
    numbers = _NUMBER.findall(kind)
    return float(numbers[0]) if len(numbers) == 1 else None


def correlate_figures(
    data: Measurements, *, divergence: str, rate: float = 0.05, resampling: Resampling | None = None
) -> list[dict[str, Any]]:
    """Return the rank correlations of a divergence, for each writer of rollouts and checkpoint.

    At the level of rollouts it is the mean divergence of a rollout's tokens, with the answer's correctness (0 or 1),
    the problem's difficulty (`difficulty`), the number of tokens and the reference's mean entropy. At the level of
    tokens it is the divergence of a token with the reference's entropy there; ranks are then those over all tokens, not
    made anew in every resample, which at thousands of tokens is the same. `num` counts the rollouts or tokens for which
    both are known and finite; `estimate` is null with fewer than three, of one problem, or where one of the two is
    constant.

    Args:
        data: the measurements.
        divergence: the column.
        rate: false discovery rate of `significant`, over all tests returned.
        resampling: of the intervals and p-values.
    """
    how = resampling or Resampling()
    figures: list[dict[str, Any]] = []
    for source, part in by_source(data).items():
        for index, checkpoint in enumerate(part.checkpoints):
            common = {"checkpoint": checkpoint, "source": source, "divergence": divergence}
            figures += [{**common, **one} for one in _rollout_correlates(part, index, divergence, how)]
            figures.append({**common, **_token_correlate(part, index, divergence, how)})
    adjusted, rejected = benjamini_hochberg([one["p_value"] for one in figures], rate)
    return [
        {**one, "p_adjusted": p_value, "significant": significant}
        for one, p_value, significant in zip(figures, adjusted, rejected, strict=True)
    ]


def _rollout_correlates(data: Measurements, index: int, divergence: str, how: Resampling) -> list[dict[str, Any]]:
    means = _rollout_means(data, data.columns[divergence][index])
    levels = [difficulty(one.problem.kind) for one in data.sequences]
    correlates: dict[str, Floats] = {
        "correct": np.array([one.correct for one in data.sequences], dtype=np.float64),
        "difficulty": np.array([np.nan if level is None else level for level in levels], dtype=np.float64),
        "length": data.lengths.astype(np.float64),
        "entropy_ref": _rollout_means(data, data.columns["entropy_ref"][index]),
    }
    problems = np.array([one.problem.id for one in data.sequences], dtype=str)
    return [
        {"level": "rollout", "correlate": name, **_ranked(means, correlates[name], problems, how)}
        for name in CORRELATES
    ]


def _rollout_means(data: Measurements, values: NDArray[Any]) -> Floats:
    """Return `[S]`: the mean of each rollout's values, NaN for one without tokens."""
    sums = np.bincount(data.sequence_index, weights=values.astype(np.float64), minlength=len(data.sequences))
    counts = data.lengths.astype(np.float64)
    means: Floats = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return means


def _ranked(x: Floats, y: Floats, problems: NDArray[np.str_], how: Resampling) -> dict[str, Any]:
    """Return Spearman's correlation over the rollouts for which both are known; an infinite mean is unknown."""
    known = np.isfinite(x) & np.isfinite(y)
    found = spearman(
        x[known],
        y[known],
        clusters=problems[known],
        confidence=how.confidence,
        num_resamples=how.num_resamples,
        seed=how.seed,
    )
    return _entry(int(known.sum()), found)


def _token_correlate(data: Measurements, index: int, divergence: str, how: Resampling) -> dict[str, Any]:
    values, entropy = data.columns[divergence][index], data.columns["entropy_ref"][index]
    known = np.isfinite(values) & np.isfinite(entropy)
    found = pearson(
        rankdata(values[known]),
        rankdata(entropy[known]),
        clusters=problem_clusters(data)[known],
        confidence=how.confidence,
        num_resamples=how.num_resamples,
        seed=how.seed,
    )
    return {"level": "token", "correlate": "entropy_ref", **_entry(int(known.sum()), found)}


def _entry(num: int, found: Any) -> dict[str, Any]:
    if found is None:
        return {"num": num, "estimate": None, "p_value": None}
    return {
        "num": num,
        "estimate": {name: found[name] for name in ("mean", "low", "high")},
        "p_value": found["p_value"],
    }
