"""Rank shifts and style: does one model write what the other would have written, and is what differs only dress?

URIAL (arXiv 2312.01552) reads a text that the tuned model wrote and asks for the rank of each token under the base
model: unshifted (1), marginal (2 or 3), shifted (beyond 3). Here a text is written by the checkpoint, by the reference
or by neither, so both ranks are given, and which of them is URIAL's. URIAL decodes greedily, so that the writer's own
rank is 1 throughout; on sampled text some of a shift is the draw's, which the writer's own ranks show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from swerve.probe.categories import token_styles
from swerve.probe.population import ProbeSequence
from swerve.probe.regions import Resampling, by_source, problem_clusters
from swerve.probe.tables import Measurements

__all__ = ["RANK_CLASSES", "Writer", "rank_classes", "rank_shift_figures", "style_figures", "text_writer"]

RANK_CLASSES = ("unshifted", "marginal", "shifted")
Writer = Literal["checkpoint", "reference", "other"]
_MAX_MARGINAL = 3


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


def rank_shift_figures(data: Measurements, *, resampling: Resampling | None = None) -> list[dict[str, Any]]:
    """Return, for each checkpoint and writer of the text, the shares of unshifted, marginal and shifted tokens.

    `rank` holds the shares by the rank of the realised token under the checkpoint, `rank_ref` under the reference, each
    with an interval; `shift` names the one that is URIAL's, the rank under the model that did not write the text (null:
    neither wrote it). `categories` counts the tokens of each category in each class.
    """
    how = resampling or Resampling()
    figures = []
    for source, part in by_source(data).items():
        for index, checkpoint in enumerate(part.checkpoints):
            writer = text_writer(source, checkpoint=checkpoint, reference=part.references[index])
            classes = {name: rank_classes(part.columns[name][index]) for name in ("rank", "rank_ref")}
            clusters = problem_clusters(part)
            figures.append(
                {
                    "checkpoint": checkpoint,
                    "source": source,
                    "writer": writer,
                    "shift": {"checkpoint": "rank_ref", "reference": "rank", "other": None}[writer],
                    "num_tokens": len(part.categories),
                    **{name: _class_shares(found, clusters, how) for name, found in classes.items()},
                    "categories": _class_counts(part.categories, classes),
                }
            )
    return figures


def _class_shares(classes: NDArray[np.int64], clusters: NDArray[np.int64], how: Resampling) -> dict[str, Any]:
    return {
        name: {"num_tokens": int((classes == number).sum()), "share": how.share(classes == number, clusters)}
        for number, name in enumerate(RANK_CLASSES)
    }


def _class_counts(categories: Sequence[str], classes: dict[str, NDArray[np.int64]]) -> list[dict[str, Any]]:
    totals = Counter(categories)
    counts = {name: Counter(zip(categories, found.tolist(), strict=True)) for name, found in classes.items()}
    return [
        {
            "category": category,
            "num_tokens": total,
            **{
                name: {label: found[category, number] for number, label in enumerate(RANK_CLASSES)}
                for name, found in counts.items()
            },
        }
        for category, total in sorted(totals.items())
    ]


def style_figures(
    data: Measurements,
    *,
    divergence: str,
    styles: Sequence[bool] | None = None,
    resampling: Resampling | None = None,
) -> list[dict[str, Any]]:
    """Return, for each checkpoint, the share of the divergence on style tokens against their share of the tokens.

    `excess` is the first share minus the second: above 0 where training changed style more than its due.

    Args:
        data: the measurements.
        divergence: the column whose sum is shared out.
        styles: is each of the N tokens style; by default from the texts, by the rules of `categories.yaml`.
        resampling: of the intervals.

    Raises:
        ValueError: not as many styles as tokens.
    """
    how, clusters = resampling or Resampling(), problem_clusters(data)
    marks = [mark for one in data.sequences for mark in _sequence_styles(one)] if styles is None else list(styles)
    if len(marks) != len(data.categories):
        raise ValueError(f"{len(data.categories)} tokens need as many styles, got {len(marks)}")
    style = np.array(marks, dtype=np.float64)
    ones = np.ones_like(style)
    figures = []
    for index, checkpoint in enumerate(data.checkpoints):
        values = data.columns[divergence][index].astype(np.float64)
        on_style = np.where(style > 0, values, 0.0)
        figures.append(
            {
                "checkpoint": checkpoint,
                "divergence": divergence,
                "num_tokens": int(style.size),
                "num_style_tokens": int(style.sum()),
                "share_tokens": how.ratio(style, ones, clusters),
                "share_divergence": how.ratio(on_style, values, clusters),
                "excess": how.ratio_difference((on_style, values), (style, ones), clusters),
            }
        )
    return figures


def _sequence_styles(sequence: ProbeSequence) -> list[bool]:
    return token_styles(sequence.text, sequence.spans)
