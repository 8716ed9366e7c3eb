"""The rollouts of a page as arrays: what the probe's tables say of every token, in the order of the page."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.tables import INTERVENTIONS_SCHEMA, SPIKES_SCHEMA, TOPK_SCHEMA
from swerve.report.cells import MISSING, codes
from swerve.report.read import ProbeTables

COLUMNS = ("js", "kl_forward", "kl_reverse", "entropy", "logprob")
"""Of each model, in the order of a block; the first three are divergences from the reference."""
NO_WORD = 2**24 - 1
"""Stands where a list of top tokens is shorter than others."""
_MAX_TOPS = 250_000
"""Up to so many lists of top tokens, all are kept; of more, those of reference and final checkpoint, and at spikes."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
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
class Layout:
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
    def of(summary: ProbeSummary, tables: ProbeTables) -> Layout:
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
        return Layout(
            sequences=sequences,
            populations=populations,
            models=(summary.reference, *(label for label in summary.checkpoints if label in measured)),
            lengths=lengths,
            starts=np.concatenate([[0], np.cumsum(lengths)]),
        )

    def numbers(self, sequence_ids: pa.ChunkedArray) -> Ints:
        """Return the number of each sequence in this order, -1 for an unknown one."""
        return _places_in(self.sequences["sequence_id"], sequence_ids)

    def locate(self, table: pa.Table, *, reference: str | None = None) -> Places:
        """Find the table's rows, or only those that compare with `reference`."""
        rollout, position = self.numbers(table["sequence_id"]), table["position"].to_numpy().astype(np.int64)
        model = _places_in(pa.array(self.models), table["checkpoint"])
        known = (rollout >= 0) & (model >= 0) & (position < self.lengths[rollout])
        if reference is not None:
            known &= pc.equal(table["reference"], reference).to_numpy()
        rows = np.flatnonzero(known)
        rollout, model, position = rollout[rows], model[rows], position[rows]
        start = self.starts[rollout]
        return Places(
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
class TopTokens:
    """The most likely tokens of some cells, the likeliest first."""

    cells: Ints
    """Increasing; the other arrays have a row for each."""
    ids: Ints
    """Token ids; -1 after the last of a list."""
    probs: NDArray[np.float64]
    texts: pa.Array
    """Of the ids but -1, one row after the other."""

    @staticmethod
    def of(layout: Layout, table: pa.Table | None, is_spike: NDArray[np.bool_], final: int) -> TopTokens:
        """Read the lists of the probe's table; of too many, some."""
        table = table or TOPK_SCHEMA.empty_table()
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
        return TopTokens(cells=places.cell[chosen], ids=ids, probs=shares, texts=texts.values.take(pa.array(entries)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelColumns:
    """What `tokens.parquet` says of the models and tokens of the layout."""

    columns: NDArray[np.uint16]
    """Codes of `COLUMNS`, by cells."""
    ranks: Ints
    """By cells; 0: not measured."""
    heights: NDArray[np.float32]
    """The headline divergence of the final checkpoint, by tokens; NaN: not measured."""
    largest: Mapping[str, float]
    """End of the colour scale of each divergence, the same for all rollouts and checkpoints."""
    categories: list[str]
    category_of: Ints
    """By tokens."""

    @staticmethod
    def of(layout: Layout, table: pa.Table, summary: ProbeSummary) -> ModelColumns:
        """Read the rows that compare with the reference."""
        places = layout.locate(table, reference=summary.reference)
        of_reference = places.cell - places.model * layout.lengths[places.rollout]
        num_tokens = int(layout.starts[-1])

        def values(name: str) -> NDArray[Any]:
            column: NDArray[Any] = table[name].to_numpy()[places.rows]
            return -column if name.startswith("logprob") else column

        # The reference's own columns are in every row; its divergence from itself is 0.
        columns = np.full((len(COLUMNS), len(layout.models) * num_tokens), MISSING, dtype=np.uint16)
        largest: dict[str, float] = {}
        for column, name in zip(columns, COLUMNS, strict=True):
            measured = values(name)
            column[places.cell] = codes(measured)
            if name in DIVERGENCE_NAMES:
                column[of_reference] = 0
                largest[name] = significant(measured[np.isfinite(measured)].max(initial=0)) or 1
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
        return ModelColumns(
            columns=columns,
            ranks=ranks,
            heights=heights,
            largest={**largest, "js": 0.6931},
            categories=["", *categories.to_pylist()],
            category_of=category_of,
        )


def spike_positions(
    layout: Layout, table: pa.Table | None, method: str
) -> tuple[list[list[list[list[int]]]], NDArray[np.bool_]]:
    """Return the positions of spikes, the highest first, by rollout, divergence and checkpoint; and a mark by token."""
    table = _where(table or SPIKES_SCHEMA.empty_table(), "method", method)
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


def forced_tokens(layout: Layout, table: pa.Table | None) -> Mapping[int, list[dict[str, Any]]]:
    """Return the forced tokens of each rollout, by its number, with what came of their continuations.

    They are those after which the reference continues; where it never does, those after which the checkpoint does.
    """
    table = table or INTERVENTIONS_SCHEMA.empty_table()
    by_reference = _where(table, "policy", "reference")
    table = by_reference if by_reference.num_rows else table
    swaps: dict[int, list[dict[str, Any]]] = defaultdict(list)
    numbers, of_spikes = layout.numbers(table["sequence_id"]), layout.numbers(table["spike_sequence_id"])
    for number, of_spike, row in zip(numbers.tolist(), of_spikes.tolist(), table.to_pylist(), strict=True):
        swap = {name: row[name] for name in ("selection", "arm", "policy", "position", "token")}
        successes = {"num": row["num_continuations"], "successes": row["num_successes"]}
        swaps[number].append({**swap, **successes, "spike": of_spike})
    return swaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """The vocabulary's strings, as far as the page shows them: the most frequent have the smallest numbers."""

    texts: list[str]
    of_tokens: Ints
    """By tokens: what top tokens are compared with."""
    of_tops: Ints
    """As the ids of `TopTokens`."""

    @staticmethod
    def of(layout: Layout, pieces: Sequence[str], tops: TopTokens) -> Words:
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
        of_tops = np.full(tops.ids.shape, NO_WORD)
        of_tops[is_listed] = places[number_of[:num_listed]]
        return Words(texts=texts, of_tokens=places[number_of[num_listed:]], of_tops=of_tops)


def _where(table: pa.Table, column: str, value: str) -> pa.Table:
    return table.filter(pc.equal(table[column], value))


def significant(value: float) -> float | None:
    """Round to four significant digits; what is not finite becomes None.

    >>> significant(0.123456), significant(float("inf"))
    (0.1235, None)
    """
    return float(f"{value:.4g}") if math.isfinite(value) else None
