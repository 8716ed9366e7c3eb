"""Entropy along training, and how much of what training changed lies on the forking tokens.

Forking tokens are those at which the reference was least sure: the top 20% by entropy (arXiv 2506.01939 finds that they
carry the learning). Entropies are in nats; normalised ones are divided by ln V, so that 1 is the uniform distribution.
"""

from __future__ import annotations

import math
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
from swerve.probe.engine.measured import Measurements, Pair
from swerve.probe.findings.spike_table import SpikeTable
from swerve.probe.findings.token_shares import REGIONS, token_regions
from swerve.probe.intervals import TokenIntervals
from swerve.statistics import Estimate


def checkpoint_entropies(data: Measurements, *, vocabulary_size: int) -> tuple[CheckpointEntropy, ...]:
    """Return each checkpoint's mean entropy, the reference's, and the change, in all and by region and category.

    `change` is the checkpoint's minus the reference's on the same tokens (nats); `normalised` has the same three
    divided by ln V; `share_argmax_changed` is the share of tokens at which the two differ in their most likely token.

    Args:
        data: the measurements.
        vocabulary_size: V.

    Raises:
        ValueError: V is below 2, where every entropy is 0.
    """
    if vocabulary_size < 2:
        raise ValueError(f"a vocabulary has at least 2 tokens, got vocabulary_size={vocabulary_size}")
    tokens = data.over
    regions, categories = token_regions(data.lengths), np.array(data.categories, dtype=str)
    entries = []
    for pair in data.pairs():
        # The same three means of all tokens, of each third and of each category.
        means = _entropy_means(pair, tokens, tokens.everywhere)
        normalised = {name: mean and mean.scaled(1 / math.log(vocabulary_size)) for name, mean in means.items()}
        entries.append(
            CheckpointEntropy(
                checkpoint=pair.checkpoint,
                **means,
                normalised=EntropyChange(**normalised),
                share_argmax_changed=tokens.share(pair.argmax_changed),
                regions=tuple(
                    RegionEntropy(region=name, **_entropy_means(pair, tokens, regions == number))
                    for number, name in enumerate(REGIONS)
                ),
                categories=tuple(
                    CategoryEntropy(category=name, **_entropy_means(pair, tokens, categories == name))
                    for name in sorted(set(data.categories))
                ),
            )
        )
    return tuple(entries)


def _entropy_means(pair: Pair, tokens: TokenIntervals, inside: NDArray[np.bool_]) -> dict[str, Estimate | None]:
    own, reference = pair.nats("entropy"), pair.nats("entropy_ref")
    return {
        "entropy": tokens.entropy(own, inside),
        "entropy_ref": tokens.entropy(reference, inside),
        "change": tokens.entropy(own - reference, inside, is_change=True),
    }


def forking_tokens(entropies: ArrayLike, *, share: float = 0.2) -> tuple[NDArray[np.bool_], float | None]:
    """Return which tokens are forking tokens, and the least entropy of one (nats); None if empty.

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


def forking_overlaps(data: Measurements, spikes: SpikeTable) -> tuple[ForkingTokens, ...]:
    """Return, for each checkpoint, what falls on the forking tokens of its reference.

    All shares are to be read against `share_tokens`, the forking tokens' own share (20% where no entropies tie):
    `share_divergence` of each summed divergence, `share_argmax_changed` of the tokens whose argmax changed,
    `spikes[divergence]` of the spikes and `wrong_steps` of the tokens known to be wrong, among the rollouts that have
    any (their own share of forking tokens stands beside it as `share_tokens`).

    Args:
        data: the measurements.
        spikes: those of the same rollouts.
    """
    tokens = data.over
    wrong, known = data.wrong, data.in_marked_rollouts
    entries = []
    for pair in data.pairs():
        # What falls on the forking tokens: divergence, changed choices, spikes, wrong steps, categories.
        forking, threshold = forking_tokens(pair.columns["entropy_ref"])
        masks = {name: spikes.mask(pair.checkpoint, name) for name in DIVERGENCES}
        entries.append(
            ForkingTokens(
                checkpoint=pair.checkpoint,
                threshold=threshold,
                num_tokens=forking.size,
                num_forking=int(forking.sum()),
                share_tokens=float(forking.mean()) if forking.size else None,
                share_divergence={name: tokens.share_of(pair.columns[name], forking) for name in DIVERGENCES},
                share_argmax_changed=tokens.share_of(pair.argmax_changed, forking),
                spikes={name: ForkingOverlap(**_overlap(forking, mask, tokens)) for name, mask in masks.items()},
                wrong_steps=ForkingWrongSteps(
                    **_overlap(forking, wrong, tokens),
                    share_tokens=float(forking[known].mean()) if known.any() else None,
                ),
                categories=_forking_categories(data.categories, forking),
            )
        )
    return tuple(entries)


def _overlap(forking: NDArray[np.bool_], marks: NDArray[np.bool_], tokens: TokenIntervals) -> dict[str, Any]:
    """Return how many tokens are marked, how many of these are forking tokens, and their share."""
    return {
        "num": int(marks.sum()),
        "num_forking": int((marks & forking).sum()),
        "share": tokens.share_of(marks, forking),
    }


def _forking_categories(categories: tuple[str, ...], forking: NDArray[np.bool_]) -> tuple[ForkingCategory, ...]:
    names = np.array(categories, dtype=str)
    num_forking = max(1, int(forking.sum()))
    entries = []
    for name in sorted(set(categories)):
        inside = names == name
        here = int((inside & forking).sum())
        entries.append(
            ForkingCategory(
                category=name,
                num_tokens=int(inside.sum()),
                num_forking=here,
                share_tokens=int(inside.sum()) / len(names),
                share_forking=here / num_forking,
            )
        )
    return tuple(entries)
