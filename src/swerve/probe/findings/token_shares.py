"""Parts of the tokens: thirds of a completion, categories, rank-shift classes, style; shares with intervals.

Rank shift (URIAL, arXiv 2312.01552) reads a text that the tuned model wrote and asks for the rank of each token under
the base model: unshifted (1), marginal (2 or 3), shifted (beyond 3). Here a text is written by the checkpoint, by the
reference or by neither, so both ranks are given, and which of them is URIAL's. URIAL decodes greedily, so that the
writer's own rank is 1 throughout; on sampled text some of a shift is the draw's, which the writer's own ranks show.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.artifacts.probe_findings import (
    DIVERGENCES,
    CategoryShare,
    Divergence,
    RankCategory,
    RankClass,
    RankShare,
    RankShift,
    Region,
    RegionShare,
    SpikeDensity,
    StyleShare,
    TurnShare,
)
from swerve.probe.engine.measured import Measurements, Pair
from swerve.probe.findings.spike_table import SpikeTable
from swerve.probe.findings.spikes import spike_rate
from swerve.probe.intervals import MOST
from swerve.token_categories import token_styles

REGIONS: tuple[Region, ...] = get_args(Region)


def by_source(data: Measurements) -> dict[str, Measurements]:
    """Return the measurements of each writer's rollouts, by the writer's label, in order of first appearance."""

    def written_by(source: str) -> Measurements:
        return data.select(lambda one: one.label == source)

    return {source: written_by(source) for source in dict.fromkeys(one.label or "" for one in data.sequences)}


def token_regions(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `[N]`: the third of its completion that each token is in, 0 to 2 (`REGIONS`).

    Token t of a completion of n tokens is in region floor(3 t / n), in integers: thirds are exact, and the sizes of the
    regions are what this rule counts.

    >>> token_regions([4, 2, 1]).tolist()
    [0, 0, 1, 2, 0, 1, 0]
    """
    parts = [3 * np.arange(int(length), dtype=np.int64) // max(int(length), 1) for length in lengths]
    return np.concatenate([np.arange(0), *parts])


def region_shares(data: Measurements, spikes: SpikeTable) -> tuple[RegionShare, ...]:
    """Return, for each checkpoint and third of the completions, size, divergences and spikes.

    `mean` is the mean divergence of a token there (nats), `share_divergence` the part of the summed divergence, to be
    read against `share_tokens`; `spike_rate` is spikes a token, to be read against `base_rate`, that of all tokens.

    Args:
        data: the measurements.
        spikes: those of the same rollouts.
    """
    regions, tokens = token_regions(data.lengths), data.over
    shares = []
    for pair in data.pairs():
        # All tokens of a pair, then those of each third.
        columns = {name: pair.columns[name] for name in DIVERGENCES}
        masks = {name: spikes.mask(pair.checkpoint, name) for name in DIVERGENCES}
        for number, region in enumerate(REGIONS):
            inside = regions == number
            shares.append(
                RegionShare(
                    checkpoint=pair.checkpoint,
                    region=region,
                    num_tokens=int(inside.sum()),
                    share_tokens=_rate(inside),
                    mean={
                        name: tokens.skewed_mean(values, inside, most=MOST.get(name, math.inf))
                        for name, values in columns.items()
                    },
                    share_divergence={name: tokens.share_of(values, inside) for name, values in columns.items()},
                    num_spikes={name: int(mask[inside].sum()) for name, mask in masks.items()},
                    spike_rate={name: _rate(mask[inside]) for name, mask in masks.items()},
                    base_rate={name: _rate(mask) for name, mask in masks.items()},
                )
            )
    return tuple(shares)


def _rate(mask: NDArray[np.bool_]) -> float | None:
    return float(mask.mean()) if mask.size else None


def turn_shares(data: Measurements, spikes: SpikeTable) -> tuple[TurnShare, ...]:
    """Return the divergences and spikes of every turn by its number, for each checkpoint; of one turn nothing.

    Args:
        data: the measurements.
        spikes: those of the same rollouts.
    """
    turns, tokens, problems = data.turns, data.over, [sequence.problem.id for sequence in data.sequences]
    if turns.max(initial=1) == 1:
        return ()
    shares = []
    for pair in data.pairs():
        # All spikes of a pair, then those of each turn.
        masks = {name: spikes.mask(pair.checkpoint, name) for name in DIVERGENCES}
        for turn in range(1, int(turns.max()) + 1):
            inside = turns == turn
            lengths = [int(own.sum()) for own in data.split(inside)]
            rates = {
                name: spike_rate(
                    [int(own.sum()) for own in data.split(inside & mask)], lengths, problems, data.intervals.confidence
                )
                for name, mask in masks.items()
            }
            shares.append(
                TurnShare(
                    checkpoint=pair.checkpoint,
                    turn=turn,
                    num_rollouts=sum(map(bool, lengths)),
                    num_tokens=sum(lengths),
                    mean={
                        name: tokens.skewed_mean(pair.columns[name], inside, most=MOST.get(name, math.inf))
                        for name in DIVERGENCES
                    },
                    spikes=rates,
                )
            )
    return tuple(shares)


SCALED_METHODS: tuple[Literal["percentile", "absolute", "calibrated"], ...] = ("percentile", "absolute", "calibrated")
"""Methods with one threshold in nats for all positions of a checkpoint."""


def spike_densities(data: Measurements, spikes: SpikeTable, *, divergence: Divergence) -> tuple[SpikeDensity, ...]:
    """Return the spikes per 1,000 tokens of each third of the completions, by checkpoint and scaled method.

    A z-score has no scale (all divergences x 1000 have the same spikes), so its numbers compare no checkpoints; these
    methods' do. The intervals are over problems.
    """
    problems = [sequence.problem.id for sequence in data.sequences]
    positions = [sequence.sampled_positions for sequence in data.sequences]
    # Where each third of each rollout begins, and the last one ends.
    ends = [-(-np.arange(4) * length // 3) for length in data.lengths]
    densities = []
    for checkpoint, method in itertools.product(data.checkpoints, SCALED_METHODS):
        by_sequence = spikes.found.get((checkpoint, divergence, method))
        if by_sequence is None:
            continue
        threshold = next((spike.threshold for each in by_sequence for spike in each), None)
        # Of each third of each rollout: spikes and tokens.
        counts = [
            np.diff(np.searchsorted(np.searchsorted(places, [spike.position for spike in each]), end))
            for places, each, end in zip(positions, by_sequence, ends, strict=True)
        ]
        sizes = [np.diff(end) for end in ends]
        for number, region in enumerate(REGIONS):
            rate = spike_rate(
                [int(count[number]) for count in counts],
                [int(size[number]) for size in sizes],
                problems,
                data.intervals.confidence,
            )
            densities.append(
                SpikeDensity(
                    checkpoint=checkpoint,
                    region=region,
                    divergence=divergence,
                    method=method,
                    threshold=threshold,
                    **dict(rate),
                )
            )
    return tuple(densities)


def category_shares(data: Measurements, spikes: SpikeTable, *, divergence: Divergence) -> tuple[CategoryShare, ...]:
    """Return each category's share of tokens and of divergence, and its spikes against the base rate, by checkpoint.

    `mean` is the mean divergence of a token of the category (nats), `spike_rate` spikes a token of it, `base_rate`
    spikes a token of any. The intervals are over problems.
    """
    tokens = data.over
    names, index = np.unique(np.array(data.categories, dtype=np.str_), return_inverse=True)
    shares = []
    for pair in data.pairs():
        # All tokens of a pair, then those of each category.
        mask = spikes.mask(pair.checkpoint, divergence)
        for code, category in enumerate(names.tolist()):
            inside = index == code
            share_divergence = tokens.share_of(pair.columns[divergence], inside)
            shares.append(
                CategoryShare(
                    checkpoint=pair.checkpoint,
                    category=category,
                    num_tokens=int(inside.sum()),
                    share_tokens=float(inside.mean()),
                    mean={
                        name: tokens.skewed_mean(pair.columns[name], inside, most=MOST.get(name, math.inf))
                        for name in DIVERGENCES
                    },
                    share_divergence=share_divergence.mean if share_divergence else None,
                    share_divergence_interval=share_divergence,
                    num_spikes=int(mask[inside].sum()),
                    spike_rate=float(mask[inside].mean()),
                    spike_rate_interval=tokens.share(mask, inside),
                    base_rate=float(mask.mean()),
                )
            )
    return tuple(shares)


RANK_CLASSES: tuple[RankClass, ...] = get_args(RankClass)
Writer = Literal["checkpoint", "reference", "other"]

_MAX_MARGINAL = 3
_URIAL_RANKS: Mapping[Writer, Literal["rank", "rank_ref"] | None] = {
    "checkpoint": "rank_ref",
    "reference": "rank",
    "other": None,
}
"""The ranks under the model that did not write the text."""


def rank_classes(ranks: ArrayLike) -> NDArray[np.int64]:
    """Return the class of each rank, an index into `RANK_CLASSES`: 1 | 2 to 3 | above 3.

    Raises:
        ValueError: a rank is below 1.

    >>> rank_classes([1, 2, 3, 4]).tolist()
    [0, 1, 1, 2]
    """
    array = np.asarray(ranks)
    if (array < 1).any():
        raise ValueError(f"ranks count from 1 (the most likely token), got {array.min()}")
    return (array > 1).astype(np.int64) + (array > _MAX_MARGINAL)


def text_writer(source: str, *, checkpoint: str, reference: str) -> Writer:
    """Return which model of a pair wrote a text of this source (the label of a checkpoint, or `reference`).

    >>> text_writer("dpo-8", checkpoint="rl-80", reference="dpo-8")
    'reference'
    """
    if source == checkpoint:
        return "checkpoint"
    return "reference" if source in (reference, "reference") else "other"


def rank_shifts(data: Measurements) -> tuple[RankShift, ...]:
    """Return, for each checkpoint and writer of the text, the shares of unshifted, marginal and shifted tokens.

    `rank` holds the shares by the rank of the realised token under the checkpoint, `rank_ref` under the reference, each
    with an interval; `shift` names the one that is URIAL's, the rank under the model that did not write the text (null:
    neither wrote it). `categories` counts the tokens of each category in each class.
    """
    shifts = []
    for source, part in by_source(data).items():
        tokens = part.over
        for pair in part.pairs():
            # Under each model the class of every token, and the shares of the classes.
            writer = text_writer(source, checkpoint=pair.checkpoint, reference=pair.reference)
            classes = {name: rank_classes(pair.columns[name]) for name in ("rank", "rank_ref")}
            shares = {
                name: {
                    label: RankShare(num_tokens=int((own == number).sum()), share=tokens.share(own == number))
                    for number, label in enumerate(RANK_CLASSES)
                }
                for name, own in classes.items()
            }
            shifts.append(
                RankShift(
                    checkpoint=pair.checkpoint,
                    source=source,
                    writer=writer,
                    shift=_URIAL_RANKS[writer],
                    num_tokens=len(part.categories),
                    **shares,
                    categories=_rank_categories(part.categories, classes),
                )
            )
    return tuple(shifts)


def _rank_categories(categories: Sequence[str], classes: Mapping[str, NDArray[np.int64]]) -> tuple[RankCategory, ...]:
    """Return how many tokens of each category are in each class by either rank."""
    counts = {name: Counter(zip(categories, own.tolist(), strict=True)) for name, own in classes.items()}
    entries = []
    for category, total in sorted(Counter(categories).items()):
        by_class = {
            name: {label: own[category, number] for number, label in enumerate(RANK_CLASSES)}
            for name, own in counts.items()
        }
        entries.append(RankCategory(category=category, num_tokens=total, **by_class))
    return tuple(entries)


def style_tokens(data: Measurements) -> NDArray[np.bool_]:
    """Return `[N]`: is the token style, by the rules of `categories.yaml`."""
    marks: list[bool] = []
    for sequence in data.sequences:
        styles = token_styles(sequence.text or "", sequence.spans)
        marks += itertools.compress(styles, sequence.sampled) if sequence.sampled else styles
    return np.array(marks, dtype=np.bool_)


def good_moves(data: Measurements, pair: Pair) -> NDArray[np.bool_] | None:
    """Return `[N]`: did the token's log-probability rise in a right rollout, or fall in a wrong one.

    None where a log-probability is infinite, or a rollout is not known to be right or wrong.
    """
    moves, verdicts = pair.moves, [sequence.correct for sequence in data.sequences]
    if None in verdicts or not np.isfinite(moves).all():
        return None
    return np.where(np.repeat(np.array(verdicts, dtype=np.bool_), data.lengths), moves > 0, moves < 0)


def style_shares(data: Measurements, *, divergence: Divergence) -> tuple[StyleShare, ...]:
    """Return, for each checkpoint, the share of the divergence on style tokens against their share of the tokens.

    `excess` is the first share minus the second: above 0 where training changed style more than its due. Which tokens
    are style is decided from the texts, by the rules of `categories.yaml`.

    Args:
        data: the measurements.
        divergence: the column whose sum is shared out.
    """
    tokens, style = data.over, style_tokens(data)
    shares = []
    for pair in data.pairs():
        # The excess is of two shares of the same problems, so that their interval is one.
        values = pair.nats(divergence)
        on_style = np.where(style, values, 0.0)
        shares.append(
            StyleShare(
                checkpoint=pair.checkpoint,
                divergence=divergence,
                num_tokens=style.size,
                num_style_tokens=int(style.sum()),
                share_tokens=tokens.share_of(np.ones(style.size), style),
                share_divergence=tokens.share_of(values, style),
                excess=tokens.share_difference(on_style, values, 1.0 * style, np.ones(style.size)),
            )
        )
    return tuple(shares)
