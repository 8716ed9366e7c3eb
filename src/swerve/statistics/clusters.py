"""Rows and their clusters: rows that belong together (those of a problem) count as one observation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

Clusters = Sequence[str | int] | NDArray[np.str_] | NDArray[np.integer]
"""Which rows belong together, one name per row."""


def finite_array(values: ArrayLike) -> Array:
    """Return one number per row.

    Raises:
        ValueError: a number is not finite, or the values are not a list of numbers.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"one number per row is needed, got an array of shape {array.shape}; flatten it first")
    if not np.isfinite(array).all():
        raise ValueError("cannot average values that are not finite; leave them out or report None")
    return array


def paired_arrays(first: ArrayLike, second: ArrayLike) -> tuple[Array, Array]:
    """Return two numbers per row.

    Raises:
        ValueError: the lengths differ, or a number is not finite.
    """
    before, after = finite_array(first), finite_array(second)
    if before.shape != after.shape:
        raise ValueError(f"paired values are needed, got {before.size} and {after.size}")
    return before, after


def membership(clusters: Clusters | None, num_rows: int) -> tuple[int, NDArray[np.intp]]:
    """Return the number of clusters and the index of each row's cluster; without names each row is its own cluster.

    Raises:
        ValueError: there are not as many names as rows.

    >>> number, index = membership(["b", "a", "b"], 3)
    >>> number, index.tolist()
    (2, [1, 0, 1])
    """
    if clusters is None:
        return num_rows, np.arange(num_rows)
    if len(clusters) != num_rows:
        raise ValueError(f"{num_rows} values need as many cluster names, got {len(clusters)}")
    names, index = np.unique(np.asarray(clusters), return_inverse=True)
    return len(names), index


def cluster_sums(columns: Sequence[Array], clusters: Clusters | None) -> Array:
    """Return `[C, K]`: the sum of each of K columns over the rows of each of C clusters.

    Raises:
        ValueError: there are not as many names as rows.

    >>> cluster_sums([np.array([1.0, 2.0, 4.0]), np.ones(3)], ["b", "a", "b"]).tolist()
    [[2.0, 1.0], [5.0, 2.0]]
    """
    if clusters is None:
        return np.stack(columns, axis=1)
    num_clusters, index = membership(clusters, len(columns[0]))
    return np.stack([np.bincount(index, weights=one, minlength=num_clusters) for one in columns], axis=1)


def by_cluster(table: Array, clusters: Clusters | None) -> Array:
    """Return `[R, C]`: what each cluster of N columns adds to the means of R rows, which stay as they are.

        m_r + (sum over c of x_rn - m_r n_c) C / N

    with n_c columns in cluster c: its mean where all have as many, and otherwise it weighs as its columns do.

    >>> by_cluster(np.array([[1.0, 0.0, 0.5]]), ["a", "a", "b"]).tolist(), by_cluster(np.array([[1.0]]), None).tolist()
    ([[0.5, 0.5]], [[1.0]])
    """
    if clusters is None:
        return table
    *sums, sizes = cluster_sums([*table, np.ones(table.shape[1])], clusters).T
    means = table.mean(axis=1, keepdims=True)
    values: Array = means + (np.array(sums) - means * sizes) * len(sizes) / table.shape[1]
    return values
