"""Effect sizes: how large a difference is, in units that do not depend on the measure."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from swerve.statistics.ranking import auc
from swerve.statistics.resampling import Clusters, finite_array, membership

__all__ = ["cliffs_delta", "cohens_d_paired"]


def cohens_d_paired(first: ArrayLike, second: ArrayLike, *, clusters: Clusters | None = None) -> float | None:
    """Return the mean of second - first in units of its standard deviation (d_z), one pair a cluster.

    The values of a cluster are averaged first. None with fewer than two pairs, or where all differences are equal.
    Source: Cohen, Statistical Power Analysis (1988), section 2.3.5.

    Raises:
        ValueError: the lengths differ, or a number is not finite.

    >>> cohens_d_paired([0.0, 0.0, 0.0], [1.0, 2.0, 3.0])
    2.0
    """
    before, after = finite_array(first), finite_array(second)
    if before.shape != after.shape:
        raise ValueError(f"paired values are needed, got {before.size} and {after.size}")
    if before.size < 2:
        return None
    _, index = membership(clusters, before.size)
    differences = np.bincount(index, weights=after - before) / np.bincount(index)
    if len(differences) < 2 or np.ptp(differences) == 0:
        return None
    return float(differences.mean() / differences.std(ddof=1))


def cliffs_delta(values: ArrayLike, others: ArrayLike) -> float | None:
    """Return P(value > other) - P(value < other) over all pairs: 1 where every value is larger; None of nothing.

    Source: Cliff, Psychological Bulletin 114 (1993).

    Raises:
        ValueError: a number is not finite.

    >>> cliffs_delta([3, 4], [1, 2, 3])
    0.8333333333333333
    """
    first, second = finite_array(values), finite_array(others)
    area = auc(np.concatenate([first, second]), np.arange(first.size + second.size) < first.size)
    return None if area is None else 2 * area - 1
