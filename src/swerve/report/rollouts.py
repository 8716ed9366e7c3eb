"""The rollouts as the page shows them: an index for the list, and of each rollout a block of its numbers.

A block is gzip of: the length of a JSON object (4 bytes), the object, then byte planes (`cells.planes`) of the tokens'
words and categories, of the models' columns and ranks, of a mark where top tokens are kept, and of these tokens' words
and probabilities. `assets/cells.js` reads it.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.responses import Response
from swerve.report.cause_evidence import swap_evidence
from swerve.report.cells import HIGHEST, LOWEST, MISSING, differences, planes
from swerve.report.evidence import Evidence, Figure
from swerve.report.format import joined_digits
from swerve.report.layout import (
    Layout,
    Words,
    forced_tokens,
    significant,
    spike_positions,
    where,
)
from swerve.report.names import population_title
from swerve.report.raster import Raster, draw_raster
from swerve.report.read import ProbeTables, ReportInputs
from swerve.report.token_evidence import top_evidence
from swerve.text import counted, whole_percent
from swerve.types import Problem

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
    raster: Raster | None = None
    """The picture of all wrong answers."""


def rollout_payload(inputs: ReportInputs) -> Payload | None:
    """Return what the page needs of the rollouts, or None where no probe has compared any.

    The headline population comes first. Divergences are those from the summary's reference, spikes those of its method.
    """
    summary, tables = inputs.summary, inputs.tables
    if summary is None or tables is None or tables.tokens.num_rows == 0:
        return None
    # The first rollouts are in the page, as many as it may hold.
    finals = inputs.final_completions or _finals(summary, tables)
    rollouts = Rollouts(summary, tables, finals)
    layout = rollouts.layout
    num_cells = layout.starts[1:] * (len(layout.models) - 1)
    num_held = max(1, int(np.count_nonzero(num_cells <= MAX_CELLS)))

    # The list, and which rollout of it stands first on the page.
    listed = [{**rollouts.entry(number), "held": number < num_held} for number in range(len(rollouts.rows))]
    populations = [
        {
            "title": population_title(name, summary),
            "note": "Responses from a file." if source == "imported" else f"Completions of {source}.",
        }
        for name, source in rollouts.populations.items()
    ]
    hero, at, why = _hero(rollouts, listed, finals, populations[0]["title"])
    axis = _axis(inputs, layout.models[1:])
    raster = draw_raster(layout, listed, {each["label"]: each["name"] for each in axis})
    if raster is not None and raster.figures:
        raster = replace(raster, evidence=tuple(_behind(inputs, summary)))
    index = {
        "reference": summary.reference,
        "final": summary.final,
        "checkpoints": axis,
        "divergence": summary.divergence,
        "divergences": list(DIVERGENCE_NAMES.items()),
        "top": layout.largest,
        "columns": layout.names,
        "codes": {"lowest": LOWEST, "highest": HIGHEST, "missing": MISSING},
        "words": rollouts.words.texts,
        "categories": layout.categories,
        "populations": populations,
        "hero": hero,
        "heroToken": at,
        "why": why,
        "rollouts": listed,
        "raster": raster and raster.places,
    }
    blobs = tuple(base64.b64encode(rollouts.encode(number)).decode() for number in range(num_held))
    return Payload(index=index, blobs=blobs, encode=rollouts.encode, raster=raster)


def _finals(summary: ProbeSummary, tables: ProbeTables) -> dict[str, Response]:
    """Return by problem the first of the final checkpoint's own responses that were probed.

    Without greedy completions of an evaluation, as for samples from files, these are what it is known to write.
    """
    finals: dict[str, Response] = {}
    for row in where(tables.sequences, "label", summary.final).to_pylist():
        problem = Problem(id=row["problem_id"], family="", question=row["question"], answer=row["gold"] or "")
        said = {name: row[name] for name in ("label", "text", "extracted", "correct")}
        finals.setdefault(problem.id, Response(problem=problem, **said))
    return finals


def _behind(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[Evidence]:
    """Yield the rows of the figures below the picture."""
    claim, swaps = summary.claim("top", "first_wrong"), summary.spike_swaps
    if claim is not None:
        columns = {"here": "divergence on it", "by chance": "chance on it", "by entropy": "entropy on it"}
        means = (
            Figure(name=name, statistic="mean", columns=(of,), write=whole_percent) for name, of in columns.items()
        )
        yield from filter(None, [top_evidence(inputs, claim, *means)])
    if swaps is not None:
        arms = (swaps.reference, swaps.checkpoint, swaps.alternative)
        names = zip(("own token", f"token of {summary.final}", "other token"), arms, strict=True)
        known = (name for name, arm in names if arm.success is not None)
        means = (
            Figure(name=f"right after the {of}", statistic="mean", columns=(of,), write=whole_percent) for of in known
        )
        yield from filter(None, [swap_evidence(inputs, *means)])


def _axis(inputs: ReportInputs, labels: Sequence[str]) -> list[dict[str, str]]:
    """Return labels and names of the checkpoints: steps of their stage; of several stages, or of none, the labels."""
    known = [evaluation for evaluation in inputs.evaluations if evaluation.checkpoint in labels]
    steps = {evaluation.checkpoint: evaluation.stage_step for evaluation in known}
    if len(known) < len(labels) or len({evaluation.stage for evaluation in known}) > 1:
        steps = {}
    return [{"label": label, "name": str(steps.get(label, label))} for label in labels]


def _hero(
    rollouts: Rollouts, listed: Sequence[Mapping[str, Any]], finals: Mapping[str, Response], title: str
) -> tuple[int, int | None, str]:
    """Return which rollout of the first population stands first on the page, its token, and why, with its shades."""
    summary = rollouts.layout.summary
    first = [entry for entry in listed if entry["population"] == 0]
    solved = {problem for problem, final in finals.items() if final.correct}
    traits = [title]
    # A trait is asked for where some rollout has it, and named where some lack it.
    for trait, has_trait in (
        ("in this file", lambda entry: entry["held"]),
        (
            f"wrong where {summary.final} is right",
            lambda entry: entry["correct"] is False and entry["problem"] in solved,
        ),
        (f"at most {_READABLE} tokens", lambda entry: entry["length"] <= _READABLE),
    ):
        kept = list(filter(has_trait, first))
        if 0 < len(kept) < len(first):
            first = kept
            traits.append(trait)

    hero = min(first, key=rank)
    why = f"this has the token at which {summary.final} differs most from {summary.reference}."
    at = hero["position"]
    turned = {listed.index(entry): rollouts.turned(listed.index(entry)) for entry in first}
    if rank(hero)[0] < 0:
        tried = [entry for entry in first if entry["effect"]]
        if len(tried) < len(first):
            first = tried
            traits.append("a token of it was replaced")
        why = (
            f"this is the one that {summary.final}'s token at the spike improves most; of equals, it has the largest "
            f"divergence.{_over_all(summary)}"
        )
    elif any(turned.values()):
        # Where no token was forced, one that another would be written for says most.
        number, (_, at) = max(((number, best) for number, best in turned.items() if best), key=lambda each: each[1])
        hero = listed[number]
        why = (
            f"this has the token at which {summary.final} differs most among those for which it would write another "
            f"than {summary.reference}."
        )
    shade = (
        f"The shade of a token is how far {summary.final} moved its prediction from that of {summary.reference}, given "
        "the same text before it."
    )
    number = listed.index(hero)
    return number, at, f"Rollout {number}: of {counted(len(first), 'rollout')} ({', '.join(traits)}), {why} {shade}"


def _over_all(summary: ProbeSummary) -> str:
    """Return what the swap does over all spikes: the one that it improves most is no example of them."""
    if (spike := summary.spike_swaps) is None or spike.reference.success is None or spike.checkpoint.success is None:
        return ""
    before, after = whole_percent(spike.reference.success), whole_percent(spike.checkpoint.success)
    return f" Over all {counted(spike.num_positions, 'spike')} right answers go from {before} to {after}."


def rank(entry: Mapping[str, Any]) -> tuple[float, float]:
    """Return a key by which the rollout comes first whose swapped token helps most, then the one that diverges most."""
    own, changed, num = entry["effect"] or (0, 0, 1)
    return min(0.0, (own - changed) / num), -(entry["peak"] or 0.0)


class Rollouts:
    """What the probe's tables say of every rollout.

    Attributes:
        layout: numbers of all tokens.
        rows: of `sequences.parquet`, with what `split_pieces` returns and the final checkpoint's response.
        populations: their names in this order, with the writer of the first rollout.
        spikes: positions by (rollout, divergence, checkpoint), the highest first.
        swaps: forced tokens by rollout.
        words: names of all tokens, and lists of the likeliest.
    """

    def __init__(self, summary: ProbeSummary, tables: ProbeTables, finals: Mapping[str, Response]) -> None:
        """Read the tables, each once, and what the final checkpoint writes for each problem."""
        self.layout = Layout(summary, tables)
        sequences = tables.sequences.drop_columns("prompt_ids").to_pylist()
        self.rows = [{**row, **split_pieces(row), "final": finals.get(row["problem_id"])} for row in sequences]
        self.populations: dict[str, str] = {}
        for row in sequences:
            self.populations.setdefault(row["population"], row["label"])

        # Spikes of other methods are in the table too.
        spikes = where(tables.spikes, "method", summary.spike_method)
        self.spikes, self.swaps = spike_positions(spikes), forced_tokens(tables.interventions)
        pieces = [piece for row in self.rows for piece in row["pieces"]]
        self.words = Words(self.layout, tables, spikes, pieces)

    def spike_swaps(self, number: int) -> list[dict[str, Any]]:
        """Return the tokens that were forced at a rollout's own spike."""
        return [swap for swap in self.swaps[number] if (swap["selection"], swap["spike"]) == ("spike", number)]

    def entry(self, number: int) -> dict[str, Any]:
        """Return what the list says of a rollout."""
        row, final = self.rows[number], self.rows[number]["final"]
        joined = partial(joined_digits, question=row["question"])
        heights = self.layout.heights[self.layout.tokens(number)]
        position = None if np.isnan(heights).all() else int(np.nanargmax(heights))
        arms = {swap["arm"]: [swap["successes"], swap["num"]] for swap in self.spike_swaps(number)}
        own, changed = arms.get("reference"), arms.get("checkpoint")
        return {
            "population": list(self.populations).index(row["population"]),
            "problem": row["problem_id"],
            "kind": row["kind"],
            "question": joined(row["question"]),
            "gold": joined(row["gold"]),
            "answer": joined(row["extracted"]),
            "final_answer": final and joined(final.extracted),
            "final_correct": final and final.correct,
            "correct": row["correct"],
            "source": row["label"],
            "length": len(heights),
            "sampled": len(heights) - len(not_sampled(row)),
            "position": position,
            "peak": None if position is None else significant(heights[position], 7),  # all that single precision has
            "effect": [own[0], *changed] if own and changed else None,
            "spark": self._spark(heights),
            "wrong": row["first_wrong"],
        }

    def turned(self, number: int) -> tuple[float, int] | None:
        """Return the largest divergence where the likeliest tokens of the two models differ, and its position."""
        own = self.layout.tokens(number)
        heights = np.where(self.layout.turned[own], self.layout.heights[own], -np.inf)
        at = int(np.argmax(heights)) if len(heights) else 0
        return (float(heights[at]), at) if len(heights) and np.isfinite(heights[at]) else None

    def token(self, number: int, position: int) -> str:
        """Return a token's text; one without a text as the vocabulary writes it."""
        text: str = self.rows[number]["tokens"][position]
        return text or self.words.texts[self.words.of_tokens[self.layout.starts[number] + position]]

    def _spark(self, heights: NDArray[np.float32]) -> str:
        """Return the largest of each of at most 64 parts, 0 to 255 on the square root of the colour scale."""
        parts = np.linspace(0, len(heights), min(len(heights), _SPARK), endpoint=False).astype(int)
        shares = np.nan_to_num(np.fmax.reduceat(heights, parts) / self.layout.largest[self.layout.summary.divergence])
        return base64.b64encode(np.rint(255 * np.sqrt(np.clip(shares, 0, 1))).astype(np.uint8)).decode()

    def encode(self, number: int) -> bytes:
        """Return the block of a rollout."""
        layout, words, row = self.layout, self.words, self.rows[number]
        shown = layout.tokens(number)
        # What is text, or of few tokens.
        facts = {
            "tokens": row["tokens"],
            "gaps": row["gaps"],
            "given": not_sampled(row),
            "finalText": row["final"] and row["final"].text,
            "wrong": [
                *zip(row["wrong_positions"], row["wrong_expected"], strict=True),
                *((position, None) for position in wrong_sentence(row)),
            ],
            "spikes": {
                name: [self.spikes[number, name, label] for label in layout.models[1:]] for name in DIVERGENCE_NAMES
            },
            "swaps": self.swaps[number],
            "numTop": words.of_tops.shape[1],
        }
        text = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()

        # Neighbouring columns and neighbouring models differ little, and small differences are stored in few bytes.
        columns = layout.columns[..., shown].astype(np.int32)
        columns[1:3] -= columns[0:2]
        is_kept = words.lists[:, shown] >= 0
        lists = words.lists[:, shown][is_kept]
        parts = (
            len(text).to_bytes(4, "little"),
            text,
            planes(words.of_tokens[shown], 3),
            planes(layout.category_of[shown], 2),
            planes(differences(columns), 2),
            planes(differences(layout.ranks[:, shown]), 3),
            is_kept.tobytes(),
            planes(words.of_tops[lists].T, 3),
            planes(np.rint(65535 * words.probs[lists]).T, 2),
        )
        return gzip.compress(b"".join(parts), mtime=0)


def wrong_sentence(row: Mapping[str, Any]) -> range:
    """Return the positions of the sentence of a rollout that a label calls the first wrong one."""
    number = row["wrong_sentence"]
    if number is None:
        return range(0)
    ends = [*row["sentence_starts"], len(row["completion_ids"])]
    return range(ends[number], ends[number + 1])


def not_sampled(row: Mapping[str, Any]) -> list[int]:
    """Return the positions of a rollout's tokens that its model read and did not write."""
    return [position for position, is_sampled in enumerate(row["sampled"] or ()) if not is_sampled]


def split_pieces(row: Mapping[str, Any]) -> dict[str, list[str]]:
    """Split a rollout's text into its tokens and what lies before, between and after them.

    Many tokenizers make the space before a word a part of its token: marks lie on what a reader sees, so spaces go to
    the gaps; a token of spaces alone stays. Offsets count Unicode characters, which JavaScript does not.

    Returns:
        tokens, gaps (one more; gaps and tokens in turn give the text again), and pieces: the tokens with their spaces,
        one without a text as its id.

    >>> split_pieces({"text": "4 + 6", "token_starts": [0, 1, 4], "token_ends": [1, 3, 5], "completion_ids": [7, 8, 9]})
    {'tokens': ['4', '+', '6'], 'gaps': ['', ' ', ' ', ''], 'pieces': ['4', ' +', '6']}
    """
    text, last = row["text"], 0
    tokens, gaps, pieces = [], [], []
    for start, end, id in zip(row["token_starts"], row["token_ends"], row["completion_ids"], strict=True):
        # Characters of several tokens are the first one's.
        start = max(start, last)
        piece = text[start : max(start, end)]
        token = piece.lstrip(" ") or piece
        gaps.append(text[last:start] + piece.removesuffix(token))
        tokens.append(token)
        pieces.append(piece or f"[{id}]")
        last = max(start, end)
    return {"tokens": tokens, "gaps": [*gaps, text[last:]], "pieces": pieces}
