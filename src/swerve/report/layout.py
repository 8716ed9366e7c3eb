"""What the probe's tables say of every rollout, as arrays over the tokens of all, one rollout after the other.

The probe numbers rollouts by their rows in `sequences.parquet`, in which the headline population stands first.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.cells import MISSING, codes
from swerve.report.read import ProbeTables

COLUMNS = ("js", "kl_forward", "kl_reverse", "entropy", "logprob")
"""Of each model, in the order of a block, nats: three divergences from the reference, then what is 0 or more of each
model, or below 0 where the name begins with `logprob`."""
TOP = 0.995
"""Share of the tokens that is lighter than the darkest shade: a spike or two in a rollout are the darkest."""
_MAX_TOPS = 250_000
"""Up to so many lists of top tokens, all are kept; of more, those of reference and final checkpoint, and at spikes."""


class Layout:
    """Models, tokens, and what `tokens.parquet` says of them.

    Attributes:
        summary: of the probe.
        models: the reference, then the checkpoints.
        starts: tokens before each rollout; one entry more than there are rollouts.
        names: those of `COLUMNS` that the table has; an earlier one lacks the later.
        columns: `[columns, models, tokens]`: codes of these.
        ranks: `[models, tokens]`; 0: not measured.
        heights: the headline divergence of the final checkpoint, by tokens; NaN: not measured.
        turned: whether the final checkpoint's likeliest token is not the reference's, by tokens.
        largest: end of the colour scale of each divergence, the same for all rollouts and checkpoints: what the share
            `TOP` of the final checkpoint's tokens is below.
        categories: names of the categories.
        category_of: number of its category, by tokens.
    """

    def __init__(self, summary: ProbeSummary, tables: ProbeTables) -> None:
        """Read the rows that compare with the summary's reference."""
        # Rows of a table are told by rollout, position and checkpoint.
        self.summary = summary
        table = where(tables.tokens, "reference", summary.reference)
        self.models = [summary.reference, *table["checkpoint"].unique().to_pylist()]
        self.starts = np.cumsum([0, *pc.list_value_length(tables.sequences["token_starts"]).to_pylist()])
        model, token = self.locate(table)
        self.ranks = np.zeros((len(self.models), self.starts[-1]), dtype=np.int64)
        self.ranks[model, token], self.ranks[0, token] = table["rank"], table["rank_ref"]

        # The reference's own columns are in every row; its divergence from itself is 0.
        of_final = where(table, "checkpoint", summary.final)
        self.names = [name for name in COLUMNS if table[name].null_count < len(table)]
        self.columns = np.full((len(self.names), *self.ranks.shape), MISSING, dtype=np.uint16)
        self.largest: dict[str, float] = {}
        for column, name in zip(self.columns, self.names, strict=True):
            sign = -1 if name.startswith("logprob") else 1
            values = sign * table[name].to_numpy()
            column[model, token] = codes(values)
            if name in DIVERGENCE_NAMES:
                column[0, token] = 0
                self.largest[name] = _top(of_final[name].to_numpy()) or _top(values) or 1
            else:
                column[0, token] = codes(sign * table[f"{name}_ref"].to_numpy())

        # One number of each token.
        self.heights = np.full(self.starts[-1], np.nan, dtype=np.float32)
        own = self.locate(of_final)[1]
        self.heights[own] = of_final[summary.divergence]
        self.turned = np.zeros(self.starts[-1], dtype=np.bool_)
        self.turned[own] = pc.not_equal(of_final["argmax"], of_final["argmax_ref"])
        categories = table["category"].unique().cast(pa.string())
        self.categories = ["", *categories.to_pylist()]
        self.category_of = np.zeros_like(self.ranks[0])
        self.category_of[token] = 1 + pc.index_in(table["category"], value_set=categories).to_numpy()

    def locate(self, table: pa.Table) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        """Return model and token of each row of a table."""
        model = pc.index_in(table["checkpoint"], value_set=pa.array(self.models)).to_numpy()
        return model, self.starts[table["sequence_id"].to_numpy()] + table["position"].to_numpy()

    def tokens(self, number: int) -> slice:
        """Return which of all tokens are those of a rollout."""
        return slice(*self.starts[number : number + 2])


def _top(values: NDArray[np.floating]) -> float | None:
    """Return the end of the colour scale of some values: the largest where none else is above 0."""
    finite = values[np.isfinite(values)]
    return significant(np.quantile(finite, TOP) or finite.max()) if len(finite) else None


class Words:
    """The vocabulary's strings, as far as the page shows them: the most frequent have the smallest numbers.

    Attributes:
        texts: the strings.
        of_tokens: their numbers by tokens.
        lists: `[models, tokens]`: which list of top tokens is of each; -1: none is kept.
        of_tops: `[lists, tokens]`: numbers of the words of each list, the likeliest first.
        probs: of these.
    """

    def __init__(self, layout: Layout, tables: ProbeTables, spikes: pa.Table, pieces: Sequence[str]) -> None:
        """Read lists of top tokens and name all tokens: as the lists do, else by their pieces of text."""
        # Which lists are kept, and where they are from.
        topk, (model, token) = tables.topk, layout.locate(tables.topk)
        if len(topk) > _MAX_TOPS:
            of_final = pc.equal(topk["checkpoint"], layout.summary.final).to_numpy()
            is_kept = (model == 0) | of_final | np.isin(token, layout.locate(spikes)[1])
            topk, model, token = topk.filter(pa.array(is_kept)), model[is_kept], token[is_kept]

        # Ids of lists, then those of the rollouts; of equal ones, the first says the text.
        listed, own = pc.list_flatten(topk["token_ids"]), pc.list_flatten(tables.sequences["completion_ids"])
        ids = np.concatenate([listed, own])
        counts = np.bincount(ids)
        used = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        number_of, first = np.empty_like(counts), np.empty_like(counts)
        number_of[used] = np.arange(len(used))
        first[ids[::-1]] = np.arange(len(ids))[::-1]
        texts = pa.chunked_array([*pc.list_flatten(topk["tokens"]).chunks, pa.array(pieces, pa.string())])
        self.texts, self.of_tokens = texts.take(first[used]).to_pylist(), number_of[own]

        # All lists have the same length.
        shape = (max(1, len(topk)), -1)
        self.of_tops = number_of[listed].reshape(shape)
        self.probs = pc.list_flatten(topk["probs"]).to_numpy().astype(np.float64).reshape(shape)

        # A list without probabilities is not shown.
        self.lists = np.full(layout.ranks.shape, -1)
        self.lists[model, token] = np.where(np.isfinite(self.probs[: len(topk)]).all(axis=1), np.arange(len(topk)), -1)


def spike_positions(spikes: pa.Table) -> Mapping[Any, list[int]]:
    """Return the positions of spikes, the highest first, by (rollout, divergence, checkpoint)."""
    spikes = spikes.sort_by("height")
    names = (spikes[name].cast(pa.string()).to_pylist() for name in ("divergence", "checkpoint"))
    return _grouped(zip(spikes["sequence_id"].to_pylist(), *names, strict=True), spikes["position"].to_pylist())


def forced_tokens(table: pa.Table) -> Mapping[Any, list[dict[str, Any]]]:
    """Return the forced tokens of each rollout, by its number, with what came of their continuations.

    They are those after which the reference continues; where it never does, those after which the checkpoint does.
    """
    table = where(table, "policy", "reference") or table
    columns = {name: table[name] for name in ("selection", "arm", "policy", "position", "token")}
    columns |= {"num": table["num_continuations"], "successes": table["num_successes"]}
    columns["spike"] = table["spike_sequence_id"]
    return _grouped(table["sequence_id"].to_pylist(), pa.table(columns).to_pylist())


def _grouped(keys: Iterable[Any], values: Iterable[Any]) -> Mapping[Any, list[Any]]:
    """Return the values of each key."""
    groups = defaultdict(list)
    for key, value in zip(keys, values, strict=True):
        groups[key].append(value)
    return groups


def where(table: pa.Table, column: str, value: str) -> pa.Table:
    """Return the rows of a table whose column has this value."""
    return table.filter(pc.equal(table[column], value))


def significant(value: float, digits: int = 4) -> float | None:
    """Round to so many significant digits; what is not finite becomes None.

    >>> significant(0.123456), significant(0.123456, 5), significant(float("inf"))
    (0.1235, 0.12346, None)
    """
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
