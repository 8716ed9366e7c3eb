"""One picture of all wrong answers: a row each, a cell a token, a panel for each of some checkpoints.

The cells are drawn here, as small images without a colour of their own: what a page needs no script for also prints.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.probe_claims import NullName
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.cells import MISSING, values_of
from swerve.report.evidence import Evidence
from swerve.report.format import answers_word
from swerve.report.layout import Layout
from swerve.text import count, counted, number, whole_percent

_MOST_PANELS = 4
"""Checkpoints, evenly chosen; beside them the first wrong steps."""
_MOST_COLUMNS = 160
"""Cells side by side, about as many as a panel has pixels."""
_SHADES = 15
_OF_NULLS: Mapping[NullName, str] = {
    "chance": "would be there by chance",
    "entropy": "have the old model least sure there",
    "noise": "would be there after random changes of the weights",
    "length": "have the longest sentence there",
}
"""What would be at the first wrong token without training."""
_HUE, _INK = (0xC8, 0x50, 0x18), (0x1C, 0x1A, 0x17)

Align = Literal["start", "wrong", "share"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Raster:
    """The picture, with what stands around it."""

    title: str
    text: str
    panels: tuple[tuple[str, str, str], ...]
    """What each shows (`divergence` or `steps`), its caption, and its image as an address."""
    figures: tuple[tuple[str, str, bool], ...]
    """Numbers under it, what each is, and whether it is a null."""
    top: str
    """What the darkest shade stands for."""
    places: Mapping[str, Any]
    """What the page's script needs to find the token of a cell."""
    is_fine: bool
    """Whether it has more cells than it is given pixels."""
    evidence: tuple[Evidence, ...] = ()
    """The rows that the numbers were made of."""


def draw_raster(layout: Layout, listed: Sequence[Mapping[str, Any]], steps: Mapping[str, str]) -> Raster | None:
    """Return the picture of the reference's wrong answers; of files without any that of all responses.

    Args:
        layout: of all tokens.
        listed: the entries of the list.
        steps: what the checkpoints are called.

    Returns:
        None where no rollout has a token that was compared.
    """
    summary = layout.summary
    shown = _chosen(listed, summary.reference)
    if not shown:
        return None

    # Texts of one form begin together, others at their first wrong token, or each is as long as the others.
    lengths, wrong = np.array([listed[at]["length"] for at in shown]), [listed[at]["wrong"] for at in shown]
    align: Align = "share"
    if lengths.max() <= min(_MOST_COLUMNS, 1.25 * np.median(lengths)):
        align = "start"
    elif None not in wrong:
        align = "wrong"
    shown.sort(key=lambda at: _order(listed[at], align))
    lengths, wrong = np.array([listed[at]["length"] for at in shown]), [listed[at]["wrong"] for at in shown]

    # Which token of its rollout is in each cell first, and how many are; none: -1.
    first, before = _cells(lengths, [place or 0 for place in wrong], align)
    labels = [layout.models[1:][at] for at in _spread(len(layout.models) - 1)]
    starts, ends = layout.starts[np.array(shown)], lengths if align == "share" else None
    panels = [
        ("divergence", _caption(label, steps), _png(_shades(layout, label, starts, first, ends), _HUE))
        for label in labels
    ]
    if any(place is not None for place in wrong):
        marks = np.zeros(first.shape, dtype=np.uint8)
        for row, place in enumerate(wrong):
            seen = (first[row] >= 0) & (first[row] <= (-1 if place is None else place))
            marks[row, np.flatnonzero(seen)[-1:]] = _SHADES
        panels.append(("steps", "first wrong step", _png(marks, _INK)))
    is_wrong = all(listed[at]["correct"] is False for at in shown)
    return Raster(
        title=_title(summary, len(shown), is_wrong=is_wrong),
        text=_text(lengths, align, has_wrong=len(panels) > len(labels), is_wrong=is_wrong),
        panels=tuple(panels),
        figures=tuple(_figures(summary)),
        top=f"{number(layout.largest[summary.divergence])} nats and more",
        places={"rows": shown, "columns": first.shape[1], "align": align, "before": before, "labels": labels},
        is_fine=len(shown) > 220 or first.shape[1] > 100,
    )


def _chosen(listed: Sequence[Mapping[str, Any]], reference: str) -> list[int]:
    """Return the wrong answers of the reference that have tokens; of files without any, all responses."""
    known = [at for at, entry in enumerate(listed) if entry["position"] is not None]
    return [at for at in known if listed[at]["correct"] is False and listed[at]["source"] == reference] or known


def _order(entry: Mapping[str, Any], align: Align) -> tuple[float, ...]:
    """Return a key by which wrong answers come first, each kind by its first wrong step, or by its highest token."""
    outcome = {False: 0, True: 1, None: 2}[entry["correct"]]
    place = entry["position"] if entry["wrong"] is None else entry["wrong"]
    share = place / entry["length"] if align == "share" else place
    return outcome, entry["wrong"] is None, share, entry["length"]


def _spread(num: int) -> list[int]:
    """Return which of so many checkpoints are drawn, the first and the last among them.

    >>> _spread(8), _spread(2)
    ([0, 2, 5, 7], [0, 1])
    """
    return sorted({round(place) for place in np.linspace(0, num - 1, min(num, _MOST_PANELS))})


def _cells(lengths: NDArray[np.integer], wrong: Sequence[int], align: Align) -> tuple[NDArray[np.int64], int]:
    """Return the first token of each cell `[rows, columns]`, -1 outside of a text; and the wrong tokens' column."""
    if align == "share":
        columns = min(int(lengths.max()), _MOST_COLUMNS)
        return (np.arange(columns) * lengths[:, None] / columns).astype(np.int64), 0
    half, starts = _MOST_COLUMNS // 2, np.array(wrong) if align == "wrong" else np.zeros_like(lengths)
    before = min(int(starts.max()), half) if align == "wrong" else 0
    columns = before + min(int((lengths - starts).max()), half if align == "wrong" else _MOST_COLUMNS)
    tokens = np.arange(columns) - before + starts[:, None]
    return np.where((tokens >= 0) & (tokens < lengths[:, None]), tokens, -1), before


def _shades(
    layout: Layout, label: str, starts: NDArray[np.int64], first: NDArray[np.int64], ends: NDArray[np.int64] | None
) -> NDArray[np.uint8]:
    """Return the shade of each cell: that of its highest token; `ends`: lengths of texts that are shown whole."""
    name = layout.summary.divergence
    shares = np.nan_to_num(values_of(np.arange(MISSING + 1)) / layout.largest[name])
    shade_of = np.rint(_SHADES * np.sqrt(np.clip(shares, 0, 1))).astype(np.uint8)
    of_tokens = shade_of[layout.columns[layout.names.index(name), layout.models.index(label)]]
    shades = np.where(first >= 0, of_tokens[starts[:, None] + np.maximum(first, 0)], 0)

    if ends is None:
        return shades

    # Cells of several tokens end where the next begins.
    for row in np.flatnonzero(ends > first.shape[1]):
        shades[row] = np.maximum.reduceat(of_tokens[starts[row] : starts[row] + ends[row]], first[row])
    return shades


def _png(shades: NDArray[np.uint8], colour: tuple[int, int, int]) -> str:
    """Return shades as an image: one colour, the more opaque the higher, in 16 steps."""
    height, width = shades.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), shades], axis=1).tobytes()
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0),
        b"PLTE": bytes(colour) * (_SHADES + 1),
        b"tRNS": bytes(255 * step // _SHADES for step in range(_SHADES + 1)),
        b"IDAT": zlib.compress(rows, 9),
        b"IEND": b"",
    }
    parts = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()


def _caption(label: str, steps: Mapping[str, str]) -> str:
    """Return which checkpoint a panel is of.

    >>> _caption("rl-1", {"rl-1": "1"}), _caption("rl-5", {"rl-5": "rl-5"})
    ('after 1 step', 'rl-5')
    """
    name = steps[label]
    return f"after {counted(int(name), 'step')}" if name.isdecimal() and name != label else name


def _title(summary: ProbeSummary, num: int, *, is_wrong: bool) -> str:
    """Return where what is drawn is: the picture says where, not that these are the mistakes."""
    if is_wrong:
        return f"Where `{summary.final}` changed **{counted(num, 'wrong answer')}**"
    return f"Where `{summary.final}` differs from `{summary.reference}` in **{counted(num, 'response')}**"


def _text(lengths: NDArray[np.int64], align: Align, *, has_wrong: bool, is_wrong: bool) -> str:
    """Return how the picture is read."""
    num = count(int(lengths[0]))
    cells = f"a cell for each of its {num} tokens" if len({*lengths.tolist()}) == 1 else "a cell a token"
    laid = {
        "start": cells,
        "wrong": f"{cells}, with the first wrong tokens under each other",
        "share": "from its first token to its last",
    }[align]
    order = "their first wrong step, a mark that training never saw" if has_wrong else "their darkest token"
    kinds = "" if is_wrong else "outcome, wrong ones first, then of "
    return (
        f"A row an answer, {laid}; the darker, the more changed there. Rows are in the order of {kinds}{order}. "
        "Press one to read it."
    )


def _figures(summary: ProbeSummary) -> list[tuple[str, str, bool]]:
    """Return how many answers are darkest at the first wrong token, the same of nulls, and what that token causes.

    Too few rollouts have none.
    """
    figures = list[tuple[str, str, bool]]()
    if not summary.reliable:
        return figures
    claim = summary.claim("top", "first_wrong")
    if claim is not None:
        figures.append((whole_percent(claim.estimate.mean), "are darkest at the first wrong token", False))
        figures += [(whole_percent(null.value), _OF_NULLS[null.null], True) for null in claim.nulls]
    spike = summary.spike_swaps
    if spike is not None and spike.effect is not None:
        before, after = whole_percent(spike.reference.success), whole_percent(spike.checkpoint.success)
        # Tokens are forced in right answers too, where the headline has some: not only in those of the picture.
        kind = answers_word(summary.population)
        of = f"of {counted(spike.num_positions, kind.removesuffix('s'))}"
        of = {"wrong answers": "", "answers": f"{of}, right or wrong, "}.get(kind, f"{of} ")
        said = f"{of}end right once {summary.final}'s token stands there"
        figures.append((f"{before} \N{RIGHTWARDS ARROW} {after}", said, False))
        if spike.alternative.success is not None:
            said = f"{of}end right with a token of neither model"
            figures.append((whole_percent(spike.alternative.success), said, True))
    return figures
