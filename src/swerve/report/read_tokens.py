"""The tokens of some rollouts under one pair of models, rollout by rollout, as the sentences of a page need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.read import ReportInputs
from swerve.report.run_evidence import IMPORTS, frame_line
from swerve.token_categories import token_styles

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

_FACTS = ("sequence_id", "problem_id", "population", "label", "correct", "first_wrong", "wrong_positions",
          "sentence_starts", "wrong_sentence")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTokens:
    """The N tokens of S rollouts at one checkpoint against one reference, in the order of the page's list."""

    summary: ProbeSummary
    checkpoint: str
    reference: str
    population: str
    """Of the rollouts, as the table has it; empty: of all."""
    command: str
    """Lines of Python that read them as `tokens`, and the rollouts as `sequences`."""
    rows: list[dict[str, Any]]
    """What is known of each rollout."""
    rollout: NDArray[np.int64]
    """`[N]`: which of these each token is of."""
    table: pa.Table

    @property
    def filter(self) -> str:
        """Which tokens these are, in words."""
        of = f", on “{self.population}”" if self.population else ""
        return f"checkpoint {self.checkpoint}, reference {self.reference}{of}"

    @property
    def numbers(self) -> list[int]:
        """Of each rollout in the page's list."""
        return [row["sequence_id"] for row in self.rows]

    @property
    def problems(self) -> list[str]:
        """Of each rollout."""
        return [row["problem_id"] for row in self.rows]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """`[S]`: tokens of each rollout."""
        return np.bincount(self.rollout, minlength=len(self.rows))

    @property
    def positions(self) -> NDArray[np.int64]:
        """`[N]`: place of each token in its rollout."""
        return np.asarray(self.table["position"].to_numpy(), dtype=np.int64)

    @property
    def values(self) -> Floats:
        """`[N]`: the headline divergence, nats."""
        return self.column(self.summary.divergence)

    @property
    def other_choice(self) -> Mask:
        """`[N]`: whether the two models' likeliest tokens differ."""
        return np.asarray(self.column("argmax") != self.column("argmax_ref"))

    @property
    def categories(self) -> NDArray[np.str_]:
        """`[N]`: the category of each token."""
        return np.asarray(self.table["category"].to_numpy().astype(str))

    @property
    def styles(self) -> Mask:
        """`[N]`: whether each token is style."""
        spans = [list(zip(row["token_starts"], row["token_ends"], strict=True)) for row in self.rows]
        marks = [token_styles(row["text"], own) for row, own in zip(self.rows, spans, strict=True)]
        return np.array([marks[row][place] for row, place in zip(self.rollout, self.positions, strict=True)])

    @property
    def good(self) -> Mask:
        """`[N]`: whether the token became likelier in a right rollout, or less likely in a wrong one."""
        moves, right = self.column("logprob") - self.column("logprob_ref"), [row["correct"] for row in self.rows]
        return np.asarray(np.where(np.array(right, dtype=np.bool_)[self.rollout], moves > 0, moves < 0))

    def column(self, name: str) -> Floats:
        """Return `[N]`: a column of numbers."""
        return np.asarray(self.table[name].to_numpy(), dtype=np.float64)

    def sums(self, values: ArrayLike) -> list[float]:
        """Return of each rollout the sum of a value of its tokens."""
        weights = np.asarray(values, dtype=np.float64)
        return [float(value) for value in np.bincount(self.rollout, weights, len(self.rows))]

    def counts(self, marks: Mask) -> list[int]:
        """Return of each rollout how many of its tokens are marked."""
        return [int(value) for value in self.sums(marks)]

    def of_rollouts(
        self, kept: Sequence[int], columns: Mapping[str, Sequence[float | int]]
    ) -> dict[str, Sequence[float | int | str | None]]:
        """Return the rows of some rollouts: the problem, its number in the page's list, and what is known of it.

        Args:
            kept: which of the S rollouts.
            columns: `[S]` each.
        """
        known: dict[str, Sequence[Any]] = {"problem": self.problems, "rollout": self.numbers, **columns}
        return {name: [own[at] for at in kept] for name, own in known.items()}

    def split(self) -> list[slice]:
        """Return which of the tokens are those of each rollout."""
        ends = np.searchsorted(self.rollout, np.arange(len(self.rows) + 1))
        return [slice(int(start), int(end)) for start, end in pairwise(ends)]

    def wrong(self, of: str) -> Mask:
        """Return `[N]`: is the token the first wrong one of its rollout (`first_wrong`), or any of them (`wrong`)?"""
        places: list[Mapping[int, bool]] = [
            dict.fromkeys(row["wrong_positions"] if of == "wrong" else [row["first_wrong"]], True) for row in self.rows
        ]
        pairs = zip(self.rollout.tolist(), self.positions.tolist(), strict=True)
        return np.array([position in places[rollout] for rollout, position in pairs], dtype=np.bool_)


@lru_cache(maxsize=2)
def read_tokens(
    inputs: ReportInputs, population: str | None = None, checkpoint: str = "", reference: str = ""
) -> ReadTokens | None:
    """Return the tokens of a population at a checkpoint, read once for all sentences of a page; None if there are none.

    Args:
        inputs: the run.
        population: of the rollouts; the headline's by default, empty: all.
        checkpoint: by default the final one.
        reference: by default the probe's.
    """
    summary, tables = inputs.summary, inputs.tables
    if summary is None or tables is None or not tables.tokens.num_rows:
        return None
    name = summary.population if population is None else population
    ends = checkpoint or summary.final, reference or summary.reference
    own = tables.sequences.select([*_FACTS, "text", "token_starts", "token_ends"])
    if name:
        own = own.filter(pc.equal(own["population"], name))
    place = pc.index_in(tables.tokens["sequence_id"], value_set=own["sequence_id"].combine_chunks())
    is_own = pc.and_(pc.is_valid(place), pc.equal(tables.tokens["checkpoint"], ends[0]))
    is_own = pc.and_(is_own, pc.equal(tables.tokens["reference"], ends[1]))
    tokens = tables.tokens.append_column("place", place).filter(is_own)
    tokens = tokens.sort_by([("place", "ascending"), ("position", "ascending")])
    if not tokens.num_rows:
        return None
    asked = f".query({f'population == {name!r}'!r})" if name else ""
    command = (
        f"{IMPORTS}\ntokens = swerve.Run({inputs.run_name!r}).tokens\n"
        f"sequences = {frame_line(inputs, 'probe/sequences.parquet')}{asked}\n"
        f"tokens = tokens[(tokens.checkpoint == {ends[0]!r}) & (tokens.reference == {ends[1]!r})]\n"
        "tokens = tokens[tokens.sequence_id.isin(sequences.sequence_id)]"
    )
    return ReadTokens(
        summary=summary,
        checkpoint=ends[0],
        reference=ends[1],
        population=name,
        command=command,
        rows=own.to_pylist(),
        rollout=np.asarray(tokens["place"].to_numpy(), dtype=np.int64),
        table=tokens,
    )
