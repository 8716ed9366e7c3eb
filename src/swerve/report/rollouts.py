"""The rollouts as the page shows them: an index for the list, and of each rollout a block of its numbers.

A block is gzip of: the length of a JSON object (4 bytes), the object, then byte planes (`cells.planes`) of the tokens'
words and categories, of the models' columns and ranks, of a mark where top tokens are kept, and of these tokens' words
and probabilities. `assets/cells.js` reads it.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.responses import Response
from swerve.notebook import counted
from swerve.report.cells import HIGHEST, LOWEST, MISSING, differences, planes
from swerve.report.format import joined_digits
from swerve.report.layout import (
    COLUMNS,
    Layout,
    ModelColumns,
    TopTokens,
    Words,
    forced_tokens,
    significant,
    spike_positions,
)
from swerve.report.names import population_title
from swerve.report.read import ProbeTables, ReportInputs

MAX_CELLS = 1_000_000
"""Most tokens x checkpoints inside a page (7 to 12 bytes each); the first rollout is always there."""

_READABLE = 200
"""Tokens that can be read on a first screen."""
_SPARK = 64
"""Points of the small curve of a rollout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What the page's scripts need of the rollouts."""

    index: Mapping[str, Any]
    """The list, the checkpoints, and the words that the blocks number."""
    blobs: tuple[str, ...]
    """Blocks of the first rollouts, those that the page holds, in base64."""
    encode: Callable[[int], bytes]
    """Makes the block of any rollout of the list."""


def rollout_payload(inputs: ReportInputs) -> Payload | None:
    """Return what the page needs of the rollouts, or None where the probe has not run.

    The headline population comes first. Divergences are those from the summary's reference, spikes those of its method.
    """
    summary, tables = inputs.summary, inputs.tables
    if summary is None or tables is None or tables.sequences.num_rows == 0:
        return None
    rollouts = Rollouts.of(summary, tables, inputs.final_completions)
    layout = rollouts.layout
    num_cells = layout.starts[1:] * (len(layout.models) - 1)
    num_held = max(1, int(np.searchsorted(num_cells, MAX_CELLS, side="right")))

    listed = [{**rollouts.entry(number), "held": number < num_held} for number in range(len(layout.lengths))]
    populations = [
        {
            "id": name,
            "title": population_title(name, summary),
            "note": "Responses from a file." if source == "imported" else f"Completions of {source}.",
        }
        for name, source in layout.populations.items()
    ]
    hero, why = _hero(listed, rollouts.repaired, populations[0]["title"], summary)
    index = {
        "reference": summary.reference,
        "final": summary.final,
        "checkpoints": _axis(inputs, layout.models[1:]),
        "divergence": summary.divergence,
        "divergences": [list(pair) for pair in DIVERGENCE_NAMES.items()],
        "top": rollouts.measured.largest,
        "columns": list(COLUMNS),
        "codes": {"lowest": LOWEST, "highest": HIGHEST, "missing": MISSING},
        "words": rollouts.words.texts,
        "categories": rollouts.measured.categories,
        "populations": populations,
        "hero": hero,
        "why": why,
        "rollouts": listed,
    }
    blobs = tuple(base64.b64encode(rollouts.encode(number)).decode() for number in range(num_held))
    return Payload(index=index, blobs=blobs, encode=rollouts.encode)


def _axis(inputs: ReportInputs, labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return the checkpoints with their steps within a stage; those of several stages, or of none, are counted."""
    evaluations = [inputs.evaluation(label) for label in labels]
    known = [evaluation for evaluation in evaluations if evaluation is not None]
    if len(known) < len(labels) or len({evaluation.stage for evaluation in known}) > 1:
        return [{"label": label, "step": place, "name": label} for place, label in enumerate(labels, start=1)]
    return [
        {"label": evaluation.checkpoint, "step": evaluation.stage_step, "name": str(evaluation.stage_step)}
        for evaluation in known
    ]


def _hero(
    listed: Sequence[Mapping[str, Any]], repaired: Sequence[bool], title: str, summary: ProbeSummary
) -> tuple[int, str]:
    """Return which rollout of the first population stands first on the page, and a sentence that says why."""
    numbers = [number for number, entry in enumerate(listed) if entry["population"] == 0]
    traits = [title]
    # A trait is asked for where some rollout has it, and named where some lack it.
    is_short = [entry["length"] <= _READABLE for entry in listed]
    for trait, has_trait in (
        ("in this file", [entry["held"] for entry in listed]),
        (f"wrong where {summary.final} is right", repaired),
        (f"at most {_READABLE} tokens", is_short),
    ):
        kept = [number for number in numbers if has_trait[number]]
        if kept and len(kept) < len(numbers):
            numbers = kept
            traits.append(trait)

    hero = min(numbers, key=lambda number: rank(listed[number]))
    among = f"Of {counted(len(numbers), 'rollout')} ({', '.join(traits)})"
    if rank(listed[hero])[0] == 0:
        return hero, f"{among}, this is the one where {summary.final} diverges most from {summary.reference}."
    return hero, (
        f"{among}, this is the one where {summary.final}'s token at the spike improves the outcome most; "
        "among equals, the one with the largest divergence."
    )


def rank(entry: Mapping[str, Any]) -> tuple[float, float]:
    """Return a key by which the rollout comes first whose swapped token helps most, then the one that diverges most."""
    own, changed, num = entry["effect"] or (0, 0, 1)
    return min(0.0, (own - changed) / num), -(entry["peak"] or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """What the probe's tables say of every rollout, as arrays over all of them."""

    layout: Layout
    rows: Sequence[Mapping[str, Any]]
    """Of `sequences`."""
    finals: Sequence[Response | None]
    """What the final checkpoint writes for each rollout's problem."""
    texts: Sequence[tuple[list[str], list[str]]]
    """Tokens and gaps, see `split_pieces` and `outside_spaces`."""
    divergence: str
    measured: ModelColumns
    spikes: Sequence[list[list[list[int]]]]
    """By rollout, divergence and checkpoint: positions, the highest first."""
    swaps: Mapping[int, list[dict[str, Any]]]
    tops: TopTokens
    words: Words

    @staticmethod
    def of(summary: ProbeSummary, tables: ProbeTables, finals: Mapping[str, Response]) -> Rollouts:
        """Read the tables, each once; of an optional one that is missing nothing is known."""
        layout = Layout.of(summary, tables)
        rows = layout.sequences.drop_columns(["prompt_ids", "completion_ids"]).to_pylist()
        cut = [split_pieces(row["text"], row["token_starts"], row["token_ends"]) for row in rows]
        spikes, is_spike = spike_positions(layout, tables.spikes, summary.spike_method)
        tops = TopTokens.of(layout, tables.topk, is_spike, layout.model(summary.final))
        return Rollouts(
            layout=layout,
            rows=rows,
            finals=[finals.get(row["problem_id"]) for row in rows],
            texts=[outside_spaces(*pair) for pair in cut],
            divergence=summary.divergence,
            measured=ModelColumns.of(layout, tables.tokens, summary),
            spikes=spikes,
            swaps=forced_tokens(layout, tables.interventions),
            tops=tops,
            words=Words.of(layout, [piece for pieces, _ in cut for piece in pieces], tops),
        )

    @property
    def repaired(self) -> list[bool]:
        """Whether a rollout is wrong and what the final checkpoint writes for its problem is right."""
        return [
            row["correct"] is False and final is not None and final.correct is True
            for row, final in zip(self.rows, self.finals, strict=True)
        ]

    def entry(self, number: int) -> dict[str, Any]:
        """Return what the list says of a rollout."""
        row, final = self.rows[number], self.finals[number]
        heights = self.measured.heights[self.layout.tokens(number)]
        position = None if np.isnan(heights).all() else int(np.nanargmax(heights))
        at_spike = {
            swap["arm"]: swap for swap in self.swaps[number] if swap["selection"] == "spike" and swap["spike"] == number
        }
        effect = None
        if at_spike.keys() >= {"reference", "checkpoint"}:
            own, changed = at_spike["reference"], at_spike["checkpoint"]
            effect = [own["successes"], changed["successes"], own["num"]]
        question = row["question"]
        answers = (question, row["gold"], row["extracted"], None if final is None else final.extracted)
        shown = [joined_digits(text, question) for text in answers]
        return {
            "population": list(self.layout.populations).index(row["population"]),
            "problem": row["problem_id"],
            "kind": row["kind"],
            **dict(zip(("question", "gold", "answer", "final_answer"), shown, strict=True)),
            "correct": row["correct"],
            "source": row["label"],
            "length": len(heights),
            "position": position,
            "peak": None if position is None else significant(heights[position]),
            "token": None if position is None else self.token(number, position),
            "effect": effect,
            "spark": self._spark(heights),
            "wrong": row["first_wrong"],
        }

    def token(self, number: int, position: int) -> str:
        """Return a token's text; one without a text as the vocabulary writes it."""
        return (
            self.texts[number][0][position]
            or self.words.texts[self.words.of_tokens[self.layout.starts[number] + position]]
        )

    def _spark(self, heights: NDArray[np.float32]) -> str:
        """Return the largest of each of at most 64 parts, 0 to 255 on the square root of the colour scale."""
        if not len(heights):
            return ""
        parts = np.linspace(0, len(heights), min(len(heights), _SPARK), endpoint=False).astype(int)
        shares = np.nan_to_num(np.fmax.reduceat(heights, parts)) / self.measured.largest[self.divergence]
        return base64.b64encode(np.rint(255 * np.sqrt(np.clip(shares, 0, 1))).astype(np.uint8).tobytes()).decode()

    def encode(self, number: int) -> bytes:
        """Return the block of a rollout."""
        layout, measured, row, final = self.layout, self.measured, self.rows[number], self.finals[number]
        shown = layout.tokens(number)
        tokens, gaps = self.texts[number]
        facts = {
            "tokens": tokens,
            "gaps": gaps,
            "finalText": None if final is None else final.text,
            "wrong": list(zip(row["wrong_positions"] or [], row["wrong_expected"] or [], strict=False)),
            "spikes": dict(zip(DIVERGENCE_NAMES, self.spikes[number], strict=True)),
            "swaps": self.swaps[number],
            "numTop": self.tops.ids.shape[1],
        }
        text = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()

        # Neighbouring columns and neighbouring models differ little, and small differences are stored in few bytes.
        columns = layout.block(measured.columns, number).astype(np.int32)
        columns[1:3] -= columns[0:2]
        first, last = len(layout.models) * layout.starts[number : number + 2]
        tops = slice(*np.searchsorted(self.tops.cells, [first, last]))
        marks = np.zeros(last - first, dtype=np.uint8)
        marks[self.tops.cells[tops] - first] = 1
        parts = (
            len(text).to_bytes(4, "little"),
            text,
            planes(self.words.of_tokens[shown], 3),
            planes(measured.category_of[shown], 2),
            planes(differences(columns), 2),
            planes(differences(layout.block(measured.ranks, number)), 3),
            marks.tobytes(),
            planes(self.words.of_tops[tops].T, 3),
            planes(np.rint(65535 * self.tops.probs[tops]).T, 2),
        )
        return gzip.compress(b"".join(parts), mtime=0)


def split_pieces(text: str, starts: Sequence[int], ends: Sequence[int]) -> tuple[list[str], list[str]]:
    """Split a text into its tokens and what lies before, between and after them.

    Offsets count Unicode characters, which JavaScript does not, so the cutting is done here.

    Returns:
        (tokens, gaps), with one gap more than tokens; joined in turn they give the text again.

    >>> split_pieces("4 + 6", [0, 2, 4, 5], [1, 3, 5, 5])
    (['4', '+', '6', ''], ['', ' ', ' ', '', ''])
    """
    tokens, gaps, position = [], [], 0
    for start, end in zip(starts, ends, strict=True):
        start = max(start, position)
        gaps.append(text[position:start])
        tokens.append(text[start : max(end, start)])
        position = max(end, start)
    return tokens, [*gaps, text[position:]]


def outside_spaces(tokens: Sequence[str], gaps: Sequence[str]) -> tuple[list[str], list[str]]:
    """Move the spaces before a token's text into the gap before it, so that marks lie on what a reader sees.

    Many tokenizers make the space before a word a part of its token. A token of spaces alone stays as it is.

    >>> outside_spaces(["a", " b", " "], ["", "", "", ""])
    (['a', 'b', ' '], ['', ' ', '', ''])
    """
    shown = [token.lstrip(" ") or token for token in tokens]
    moved = [token[: len(token) - len(kept)] for token, kept in zip(tokens, shown, strict=True)]
    return shown, [gap + space for gap, space in zip(gaps, [*moved, ""], strict=True)]
