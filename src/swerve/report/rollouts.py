"""The rollouts as the page shows them: an index for the list, and of each rollout a block of its numbers.

A block is gzip of: the length of a JSON object (4 bytes), the object, then byte planes (`cells.planes`) of the tokens'
words and categories, of the models' columns and ranks, of a mark where top tokens are kept, and of these tokens' words
and probabilities. `assets/cells.js` reads it.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.responses import Response
from swerve.artifacts.tables import INTERVENTIONS_SCHEMA, SPIKES_SCHEMA, TOPK_SCHEMA
from swerve.notebook import counted
from swerve.report.cells import HIGHEST, LOWEST, MISSING, codes, differences, planes
from swerve.report.names import population_note, population_title
from swerve.report.read import ProbeTables, ReportInputs

MAX_CELLS = 1_000_000
"""Most tokens x checkpoints inside a page (7 to 12 bytes each); the first rollout is always there."""

_MAX_TOPS = 250_000
"""Up to so many lists of top tokens all are kept; of more, those of reference and final checkpoint, and at spikes."""
_NO_WORD = 2**24 - 1
"""Stands where a list of top tokens is shorter than others."""
_READABLE = 200
"""Tokens that can be read on a first screen."""
_SPARK = 64
"""Points of the small curve of a rollout."""
_COLUMNS = ("js", "kl_forward", "kl_reverse", "entropy", "logprob")
"""In the order of a block: the KL differ little from each other, and from JS by a factor."""

Ints = NDArray[np.int64]
Group = Mapping[tuple[int, str], list[dict[str, Any]]]


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
        {"id": name, "title": population_title(name, summary), "note": population_note(name, source, summary)}
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
class _Places:
    """Where rows of a table lie in the layout; those of other rollouts and models are left out."""

    rows: Ints
    """Their numbers in the table; all arrays are by these."""
    rollout: Ints
    model: Ints
    position: Ints
    token: Ints
    """Number among the tokens of all rollouts."""
    cell: Ints
    """Number among the cells of all rollouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The rollouts one after the other, in each of them the models, and of each model the tokens: the cells."""

    sequences: pa.Table
    """The headline population first."""
    populations: Mapping[str, str]
    """Their names in this order, with the writer of the first rollout."""
    models: tuple[str, ...]
    """The reference, then the checkpoints that were measured."""
    lengths: Ints
    starts: Ints
    """Tokens before each rollout; one entry more than there are rollouts."""

    @staticmethod
    def of(summary: ProbeSummary, tables: ProbeTables) -> _Layout:
        """Order the rollouts of the tables."""
        names = tables.sequences["population"].to_pylist()
        places = {name: place for place, name in enumerate(dict.fromkeys([summary.population, *names]))}
        sequences = tables.sequences.take(sorted(range(len(names)), key=lambda row: places[names[row]]))
        populations: dict[str, str] = {}
        for row in sequences.select(["population", "label"]).to_pylist():
            populations.setdefault(row["population"], row["label"])
        # A checkpoint may have been compared with others than the reference only.
        with_reference = pc.equal(tables.tokens["reference"], summary.reference)
        measured = set(tables.tokens["checkpoint"].filter(with_reference).unique().to_pylist())
        lengths = pc.list_value_length(sequences["token_starts"]).to_numpy().astype(np.int64)
        return _Layout(
            sequences=sequences,
            populations=populations,
            models=(summary.reference, *(label for label in summary.checkpoints if label in measured)),
            lengths=lengths,
            starts=np.concatenate([[0], np.cumsum(lengths)]),
        )

    def numbers(self, sequence_ids: pa.ChunkedArray) -> Ints:
        """Return the number of each sequence in this order, -1 for an unknown one."""
        return _places_in(self.sequences["sequence_id"], sequence_ids)

    def locate(self, table: pa.Table, *, reference: str | None = None) -> _Places:
        """Find the table's rows, or only those that compare with `reference`."""
        rollout, position = self.numbers(table["sequence_id"]), table["position"].to_numpy().astype(np.int64)
        model = _places_in(pa.array(self.models), table["checkpoint"])
        known = (rollout >= 0) & (model >= 0) & (position < self.lengths[rollout])
        if reference is not None:
            known &= pc.equal(table["reference"], reference).to_numpy()
        rows = np.flatnonzero(known)
        rollout, model, position = rollout[rows], model[rows], position[rows]
        start = self.starts[rollout]
        return _Places(
            rows=rows,
            rollout=rollout,
            model=model,
            position=position,
            token=start + position,
            cell=len(self.models) * start + model * self.lengths[rollout] + position,
        )

    def model(self, label: str) -> int:
        """Return the number of a model, -1 for one that was not measured."""
        return self.models.index(label) if label in self.models else -1

    def tokens(self, number: int) -> slice:
        """Return which of all tokens are those of a rollout."""
        return slice(int(self.starts[number]), int(self.starts[number + 1]))

    def block(self, cells: NDArray[Any], number: int) -> NDArray[Any]:
        """Return the part of an array by cells that is of a rollout: `[..., models, tokens]`."""
        num = len(self.models)
        part = cells[..., num * self.starts[number] : num * self.starts[number + 1]]
        return part.reshape(*part.shape[:-1], num, self.lengths[number])


def _places_in(known: pa.Array | pa.ChunkedArray, values: pa.ChunkedArray) -> Ints:
    """Return where in `known` each value stands, -1 where it does not."""
    places: Ints = pc.fill_null(pc.index_in(values, value_set=known), -1).to_numpy().astype(np.int64)
    return places


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tops:
    """The most likely tokens of some cells, the likeliest first."""

    cells: Ints
    """Increasing; the other arrays have a row for each."""
    ids: Ints
    """Token ids; -1 after the last of a list."""
    probs: NDArray[np.float64]
    texts: pa.Array
    """Of the ids but -1, one row after the other."""

    @staticmethod
    def of(layout: _Layout, table: pa.Table, is_spike: NDArray[np.bool_], final: int) -> _Tops:
        """Read the lists of the probe's table; of too many, some."""
        places = layout.locate(table)
        if len(places.rows) > _MAX_TOPS:
            chosen = np.flatnonzero((places.model == 0) | (places.model == final) | is_spike[places.token])
        else:
            chosen = np.arange(len(places.rows))
        chosen = chosen[np.argsort(places.cell[chosen], kind="stable")]
        rows = places.rows[chosen]

        # Lists of a table lie one after the other: of row r from offsets[r] to offsets[r + 1].
        lists, probs, texts = (table[name].combine_chunks() for name in ("token_ids", "probs", "tokens"))
        offsets = lists.offsets.to_numpy().astype(np.int64)
        lengths = (offsets[1:] - offsets[:-1])[rows]
        places_in_list = np.arange(lengths.max(initial=0))
        inside = places_in_list < lengths[:, None]
        entries = (offsets[:-1][rows][:, None] + places_in_list)[inside]
        ids, shares = np.full(inside.shape, -1), np.zeros(inside.shape)
        ids[inside], shares[inside] = lists.values.to_numpy()[entries], probs.values.to_numpy()[entries]
        return _Tops(cells=places.cell[chosen], ids=ids, probs=shares, texts=texts.values.take(pa.array(entries)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """What `tokens.parquet` says of the models and tokens of the layout."""

    columns: NDArray[np.uint16]
    """Codes of `_COLUMNS`, by cells."""
    ranks: Ints
    """By cells; 0: not measured."""
    heights: NDArray[np.float32]
    """The headline divergence of the final checkpoint, by tokens; NaN: not measured."""
    largest: Mapping[str, float | int | None]
    """End of the colour scale of each divergence, the same for all rollouts and checkpoints."""
    categories: list[str]
    category_of: Ints
    """By tokens."""

    @staticmethod
    def of(layout: _Layout, table: pa.Table, summary: ProbeSummary) -> _Measured:
        """Read the rows that compare with the reference."""
        places = layout.locate(table, reference=summary.reference)
        of_reference = places.cell - places.model * layout.lengths[places.rollout]
        num_tokens = int(layout.starts[-1])

        def values(name: str) -> NDArray[Any]:
            column: NDArray[Any] = table[name].to_numpy()[places.rows]
            return -column if name.startswith("logprob") else column

        # The reference's own columns are in every row; its divergence from itself is 0.
        columns = np.full((len(_COLUMNS), len(layout.models) * num_tokens), MISSING, dtype=np.uint16)
        largest: dict[str, float | int | None] = {}
        for column, name in zip(columns, _COLUMNS, strict=True):
            measured = values(name)
            column[places.cell] = codes(measured)
            if name in DIVERGENCE_NAMES:
                column[of_reference] = 0
                largest[name] = compact(float(measured[np.isfinite(measured)].max(initial=0))) or 1
            else:
                column[of_reference] = codes(values(f"{name}_ref"))
        ranks = np.zeros(columns.shape[1], dtype=np.int64)
        ranks[places.cell], ranks[of_reference] = values("rank"), values("rank_ref")

        at_final = places.model == layout.model(summary.final)
        heights = np.full(num_tokens, np.nan, dtype=np.float32)
        heights[places.token[at_final]] = values(summary.divergence)[at_final]
        categories = table["category"].unique().drop_null().cast(pa.string())
        category_of = np.zeros(num_tokens, dtype=np.int64)
        category_of[places.token] = 1 + _places_in(categories, table["category"])[places.rows]
        return _Measured(
            columns=columns,
            ranks=ranks,
            heights=heights,
            largest={**largest, "js": 0.6931},
            categories=["", *categories.to_pylist()],
            category_of=category_of,
        )


def _spikes(layout: _Layout, table: pa.Table) -> tuple[list[list[list[list[int]]]], NDArray[np.bool_]]:
    """Return the positions of spikes, the highest first, by rollout, divergence and checkpoint; and a mark by token."""
    places = layout.locate(table)
    divergences = pa.array(list(DIVERGENCE_NAMES))
    shape = (len(layout.lengths), len(divergences), len(layout.models))
    divergence = _places_in(divergences, table["divergence"])[places.rows]
    group = np.ravel_multi_index((places.rollout, divergence, places.model), shape)
    order = np.lexsort((table["height"].to_numpy()[places.rows], group))
    ends = np.searchsorted(group[order], np.arange(np.prod(shape) + 1)).tolist()
    positions = places.position[order].tolist()
    lists = [positions[first:last] for first, last in pairwise(ends)]

    # The reference, which comes first, has no spikes.
    by_divergence = [lists[place + 1 : place + shape[2]] for place in range(0, len(lists), shape[2])]
    marks = np.zeros(int(layout.starts[-1]), dtype=np.bool_)
    marks[places.token] = True
    return [by_divergence[place : place + shape[1]] for place in range(0, len(by_divergence), shape[1])], marks


def _swaps(layout: _Layout, table: pa.Table) -> Mapping[int, list[dict[str, Any]]]:
    """Return the forced tokens of each rollout, by its number, with what came of their continuations."""
    swaps: dict[int, list[dict[str, Any]]] = defaultdict(list)
    numbers, of_spikes = layout.numbers(table["sequence_id"]), layout.numbers(table["spike_sequence_id"])
    for number, of_spike, row in zip(numbers.tolist(), of_spikes.tolist(), table.to_pylist(), strict=True):
        swap = {name: row[name] for name in ("selection", "arm", "policy", "position", "token")}
        successes = {"num": row["num_continuations"], "successes": row["num_successes"]}
        swaps[number].append({**swap, **successes, "spike": of_spike})
    return swaps


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """The vocabulary's strings, as far as the page shows them: the most frequent have the smallest numbers."""

    texts: list[str]
    of_tokens: Ints
    """By tokens: what top tokens are compared with."""
    of_tops: Ints
    """As the ids of `_Tops`."""

    @staticmethod
    def of(layout: _Layout, pieces: Sequence[str], tops: _Tops) -> _Words:
        """Name every token id; one that is in no list of top tokens has its text, and without any its number."""
        is_listed = tops.ids >= 0
        own = layout.sequences["completion_ids"].combine_chunks().flatten().to_numpy()
        used = np.concatenate([tops.ids[is_listed], own])
        known, number_of = np.unique(used, return_inverse=True)

        # Where each id is used first: in a list of top tokens if it is in any.
        first = np.empty(len(known), dtype=np.int64)
        first[number_of[::-1]] = np.arange(len(used))[::-1]
        order = np.argsort(-np.bincount(number_of), kind="stable")
        num_listed = len(used) - len(own)
        texts = [
            tops.texts[use].as_py() if use < num_listed else pieces[use - num_listed] or f"[{known[number]}]"
            for number, use in zip(order, first[order].tolist(), strict=True)
        ]
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        of_tops = np.full(tops.ids.shape, _NO_WORD)
        of_tops[is_listed] = places[number_of[:num_listed]]
        return _Words(texts=texts, of_tokens=places[number_of[num_listed:]], of_tops=of_tops)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollouts:
    """What the probe's tables say of every rollout, as arrays over all of them."""

    layout: _Layout
    rows: Sequence[Mapping[str, Any]]
    """Of `sequences`."""
    finals: Sequence[Response | None]
    """What the final checkpoint writes for each rollout's problem."""
    texts: Sequence[tuple[list[str], list[str]]]
    """Tokens and gaps, see `split_pieces` and `outside_spaces`."""
    divergence: str
    measured: _Measured
    spikes: Sequence[list[list[list[int]]]]
    """By rollout, divergence and checkpoint: positions, the highest first."""
    swaps: Mapping[int, list[dict[str, Any]]]
    tops: _Tops
    words: _Words

    @staticmethod
    def of(summary: ProbeSummary, tables: ProbeTables, finals: Mapping[str, Response]) -> Rollouts:
        """Read the tables, each once; of an optional one that is missing nothing is known."""
        layout = _Layout.of(summary, tables)
        rows = layout.sequences.drop_columns(["prompt_ids", "completion_ids"]).to_pylist()
        cut = [split_pieces(row["text"], row["token_starts"], row["token_ends"]) for row in rows]
        spikes, is_spike = _spikes(
            layout, _where(tables.spikes or SPIKES_SCHEMA.empty_table(), "method", summary.spike_method)
        )
        tops = _Tops.of(layout, tables.topk or TOPK_SCHEMA.empty_table(), is_spike, layout.model(summary.final))
        return Rollouts(
            layout=layout,
            rows=rows,
            finals=[finals.get(row["problem_id"]) for row in rows],
            texts=[outside_spaces(*pair) for pair in cut],
            divergence=summary.divergence,
            measured=_Measured.of(layout, tables.tokens, summary),
            spikes=spikes,
            swaps=_swaps(layout, _of_one_policy(tables.interventions or INTERVENTIONS_SCHEMA.empty_table())),
            tops=tops,
            words=_Words.of(layout, [piece for pieces, _ in cut for piece in pieces], tops),
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
        return {
            "population": list(self.layout.populations).index(row["population"]),
            "problem": row["problem_id"],
            "kind": row["kind"],
            "question": row["question"],
            "gold": row["gold"],
            "answer": row["extracted"],
            "correct": row["correct"],
            "source": row["label"],
            "final_answer": None if final is None else final.extracted,
            "length": len(heights),
            "position": position,
            "peak": None if position is None else compact(float(heights[position])),
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


def _where(table: pa.Table, column: str, value: str) -> pa.Table:
    return table.filter(pc.equal(table[column], value))


def _of_one_policy(interventions: pa.Table) -> pa.Table:
    """Return the rows where the reference continues; where it never does, those where the checkpoint does."""
    by_reference = _where(interventions, "policy", "reference")
    return by_reference if by_reference.num_rows else _where(interventions, "policy", "checkpoint")


def compact(value: float | int | None) -> float | int | None:
    """Round to four significant digits; what is not finite becomes None.

    >>> compact(0.123456), compact(7), compact(2e-9), compact(float("inf"))
    (0.1235, 7, 0, None)
    """
    if value is None or not math.isfinite(value):
        return None
    if isinstance(value, int):
        return value
    rounded = float(f"{value:.4g}")
    if abs(rounded) < 1e-8:
        return 0
    return int(rounded) if rounded.is_integer() else rounded


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
