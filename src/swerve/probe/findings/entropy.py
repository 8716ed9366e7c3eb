"""Entropy along training, and how much of what training changed lies on the forking tokens.

Forking tokens are those at which the reference was least sure: the top 20% by entropy (arXiv 2506.01939 finds that they
carry the learning). Entropies are in nats; normalised ones are divided by ln V, so that 1 is the uniform distribution.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.artifacts.probe_findings import (
    DIVERGENCES,
    CategoryEntropy,
    CheckpointEntropy,
    EntropyChange,
    ForkingCategory,
    ForkingOverlap,
    ForkingTokens,
    ForkingWrongSteps,
    RegionEntropy,
)
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.parts import REGIONS, Intervals, problem_clusters, spike_masks, token_regions
from swerve.statistics import Estimate

_AT_LEAST_0 = (0.0, math.inf)


def checkpoint_entropies(
    data: Measurements, *, vocabulary_size: int, intervals: Intervals | None = None
) -> tuple[CheckpointEntropy, ...]:
    """Return each checkpoint's mean entropy, the reference's, and the change, in all and by region and category.

    `change` is the checkpoint's minus the reference's on the same tokens (nats); `normalised` has the same three
    divided by ln V; `share_argmax_changed` is the share of tokens at which the two differ in their most likely token.

    Args:
        data: the measurements.
        vocabulary_size: V.
        intervals: how intervals are made.

    Raises:
        ValueError: V is below 2, where every entropy is 0.
    """
    if vocabulary_size < 2:
        raise ValueError(f"a vocabulary has at least 2 tokens, got vocabulary_size={vocabulary_size}")
    how, clusters = intervals or Intervals(), problem_clusters(data)
    regions, categories = token_regions(data.lengths), np.array(data.categories, dtype=str)
    found = []
    for index, checkpoint in enumerate(data.checkpoints):
        entropies = {name: data.columns[name][index].astype(np.float64) for name in ("entropy", "entropy_ref")}
        changed = data.columns["argmax"][index] != data.columns["argmax_ref"][index]
        means = _entropy_means(entropies, np.ones(len(clusters), dtype=np.bool_), clusters, how)
        found.append(
            CheckpointEntropy(
                checkpoint=checkpoint,
                **means,
                normalised=EntropyChange(
                    **{name: one and one.scaled(1 / math.log(vocabulary_size)) for name, one in means.items()}
                ),
                share_argmax_changed=how.share(changed, clusters),
                regions=tuple(
                    RegionEntropy(region=name, **_entropy_means(entropies, regions == number, clusters, how))
                    for number, name in enumerate(REGIONS)
                ),
                categories=tuple(
                    CategoryEntropy(category=name, **_entropy_means(entropies, categories == name, clusters, how))
                    for name in sorted(set(data.categories))
                ),
            )
        )
    return tuple(found)


def _entropy_means(
    entropies: dict[str, NDArray[np.float64]], inside: NDArray[np.bool_], clusters: NDArray[np.int64], how: Intervals
) -> dict[str, Estimate | None]:
    own, reference, problems = entropies["entropy"][inside], entropies["entropy_ref"][inside], clusters[inside]
    return {
        "entropy": how.mean(own, problems, bounds=_AT_LEAST_0),
        "entropy_ref": how.mean(reference, problems, bounds=_AT_LEAST_0),
        "change": how.mean(own - reference, problems),
    }


def forking_tokens(entropies: ArrayLike, *, share: float = 0.2) -> tuple[NDArray[np.bool_], float | None]:
    """Return which tokens are forking tokens, and the least entropy of one (nats); None of nothing.

    They are the round(share x N) tokens of the highest entropy, at least one, and all that tie with the last of them.
    Source: arXiv 2506.01939, which takes 20%.

    Raises:
        ValueError: the share is not above 0 and at most 1.

    >>> mask, threshold = forking_tokens([0.1, 2.0, 0.3, 0.0, 1.0])
    >>> mask.tolist(), threshold
    ([False, True, False, False, False], 2.0)
    """
    if not 0 < share <= 1:
        raise ValueError(f"the share of forking tokens must be above 0 and at most 1, got {share}")
    values = np.asarray(entropies, dtype=np.float64)
    if values.size == 0:
        return np.zeros(0, dtype=np.bool_), None
    count = min(values.size, max(1, math.floor(share * values.size + 0.5)))
    threshold = float(np.sort(values)[values.size - count])
    return values >= threshold, threshold


def forking_overlaps(
    data: Measurements,
    spikes: Iterable[Mapping[str, Any]] = (),
    *,
    share: float = 0.2,
    intervals: Intervals | None = None,
) -> tuple[ForkingTokens, ...]:
    """Return, for each checkpoint, what falls on the forking tokens of its reference.

    All shares are to be read against `share_tokens`, the forking tokens' own share (20% where no entropies tie):
    `share_divergence` of each summed divergence, `share_argmax_changed` of the tokens whose argmax changed,
    `spikes[divergence]` of the spikes and `wrong_steps` of the tokens known to be wrong, among the rollouts that have
    any (their own share of forking tokens stands beside it as `share_tokens`).

    Args:
        data: the measurements.
        spikes: rows of `spikes.parquet`, of one method.
        share: of the tokens that are called forking.
        intervals: how intervals are made.
    """
    how, clusters = intervals or Intervals(), problem_clusters(data)
    masks, wrong = spike_masks(data, spikes), data.wrong
    known = np.repeat([bool(one.wrong) for one in data.sequences], data.lengths).astype(np.bool_)
    found = []
    for index, checkpoint in enumerate(data.checkpoints):
        forking, threshold = forking_tokens(data.columns["entropy_ref"][index], share=share)
        changed = data.columns["argmax"][index] != data.columns["argmax_ref"][index]
        found.append(
            ForkingTokens(
                checkpoint=checkpoint,
                threshold=threshold,
                num_tokens=int(forking.size),
                num_forking=int(forking.sum()),
                share_tokens=float(forking.mean()) if forking.size else None,
                share_divergence={
                    name: _share_on(forking, data.columns[name][index].astype(np.float64), clusters, how)
                    for name in DIVERGENCES
                },
                share_argmax_changed=_share_on(forking, changed, clusters, how),
                spikes={name: _overlap(forking, masks.get((checkpoint, name)), clusters, how) for name in DIVERGENCES},
                wrong_steps=ForkingWrongSteps(
                    **dict(_overlap(forking, wrong, clusters, how)),
                    share_tokens=float(forking[known].mean()) if known.any() else None,
                ),
                categories=_forking_categories(data.categories, forking),
            )
        )
    return tuple(found)


def _share_on(
    forking: NDArray[np.bool_], values: NDArray[Any], clusters: NDArray[np.int64], how: Intervals
) -> Estimate | None:
    return how.ratio(np.where(forking, values, 0), values, clusters)


def _overlap(
    forking: NDArray[np.bool_], found: NDArray[np.bool_] | None, clusters: NDArray[np.int64], how: Intervals
) -> ForkingOverlap:
    marks = np.zeros_like(forking) if found is None else found
    return ForkingOverlap(
        num=int(marks.sum()),
        num_forking=int((marks & forking).sum()),
        share=_share_on(forking, marks.astype(np.float64), clusters, how),
    )


def _forking_categories(categories: tuple[str, ...], forking: NDArray[np.bool_]) -> tuple[ForkingCategory, ...]:
    totals = Counter(categories)
    counts = Counter(name for name, fork in zip(categories, forking.tolist(), strict=True) if fork)
    return tuple(
        ForkingCategory(
            category=name,
            num_tokens=total,
            num_forking=counts[name],
            share_tokens=total / len(categories),
            share_forking=counts[name] / max(1, int(forking.sum())),
        )
        for name, total in sorted(totals.items())
    )
