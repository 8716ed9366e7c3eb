"""What a probe measured at every token, of one model against another: tables, spikes, figures. Free of torch."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from swerve.artifacts.response_columns import SEQUENCES_SCHEMA
from swerve.artifacts.responses import read_response_table
from swerve.artifacts.tables import TOKEN_COLUMNS, TOKENS_SCHEMA, data_frame, read_table
from swerve.config.probe import DivergenceName, SpikeConfig, SpikeMethod
from swerve.notebook import HUE, INK, coloured_tokens
from swerve.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from swerve.artifacts.probe_summary import ProbeSummary
    from swerve.artifacts.run import RunDirectory
    from swerve.functional.head_divergence import TopProbs

_DEFAULTS = SpikeConfig()
_PLACES = ("sequence_id", "position", "token_id", "checkpoint", "reference", "category")
STATISTICS = tuple(name for name in TOKEN_COLUMNS if name not in _PLACES)
"""Names of the statistics of a token, in the order of the table."""
_SHOWN_SEQUENCES = 3
_SHOWN_TOKENS = 1000
_NAMED_TOKENS = 60
"""Tokens of a sequence whose texts fit under a figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What was measured at each of N completion tokens, one sequence after the other; every array is `[N]`.

    P is the checkpoint, Q is the reference. Divergences, entropies and log-probabilities are in nats. The statistics
    `js`, `kl_forward`, `logprob_ref` and so on are attributes; `swerve.artifacts.tables.TOKEN_COLUMNS` says what each
    is. A notebook shows the sequences with the highest divergence, their tokens coloured by it.
    """

    sequence_ids: NDArray[np.int32]
    """Which sequence each token belongs to, from 0 in the order given."""
    positions: NDArray[np.int32]
    """From 0 at the first completion token."""
    token_ids: NDArray[np.int32]
    tokens: tuple[str, ...] | None
    """The text of each token; None without a tokenizer."""
    statistics: Mapping[str, NDArray[Any]]
    """Each of `STATISTICS` by name; they are attributes, too."""
    top: TopProbs | None = None
    """The `top_k` most likely tokens of P; None for `top_k=0`."""
    top_ref: TopProbs | None = None
    checkpoint: str = "checkpoint"
    """Label of P."""
    reference: str = "reference"
    """Label of Q."""
    summary: ProbeSummary | None = None
    """All findings, where a run was probed."""

    def __getattr__(self, name: str) -> NDArray[Any]:
        """Return a statistic by its name."""
        if name not in STATISTICS:
            raise AttributeError(f"a result of the probe has no '{name}'; its statistics are {', '.join(STATISTICS)}")
        return self.statistics[name]

    def __repr__(self) -> str:
        """Return three lines: what was compared, how far the models are apart, and the spikes."""
        num, js = len(self.token_ids), self.statistics["js"]
        title = f"ProbeResult: {self.checkpoint} against {self.reference}"
        if not num:
            return f"{title}, no tokens"
        lines = [
            f"{title}, {counted(num, 'token')} of {counted(len(np.unique(self.sequence_ids)), 'sequence')}",
            f"JS divergence, nats per token: mean {js.mean():.3g}, median {np.median(js):.3g}, highest {js.max():.3g}",
        ]
        spikes = self.spikes()
        highest = max(spikes, key=lambda spike: spike["value"], default=None)
        if highest is None:
            lines.append("no spikes by zscore")
        else:
            token = highest.get("token", highest["token_id"])
            place = f"sequence {highest['sequence_id']}, position {highest['position']}"
            highest_at = f"the highest at {place}: {token!r}"
            lines.append(f"{counted(len(spikes), 'spike')} by zscore, {highest_at}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the same, with the tokens of the sequences whose divergence is highest, coloured by it."""
        parts = [f"<pre>{html.escape(repr(self))}</pre>"]
        tokens = list(map(str, self.token_ids)) if self.tokens is None else list(self.tokens)
        separator = " " if self.tokens is None else ""
        rows = [np.flatnonzero(self.sequence_ids == index) for index in np.unique(self.sequence_ids)]
        rows.sort(key=lambda row: -float(self.statistics["js"][row].max()))
        for row in rows[:_SHOWN_SEQUENCES]:
            shown = row[:_SHOWN_TOKENS]
            title = f"sequence {self.sequence_ids[row[0]]}, JS divergence"
            if len(row) > len(shown):
                title += f", its first {len(shown):,} tokens of {len(row):,}"
            texts = [tokens[index] + separator for index in shown]
            parts.append(coloured_tokens(texts, self.statistics["js"][shown].tolist(), title=title))
        return "".join(parts)

    def plot(self, sequence: int | None = None, ax: Axes | None = None, *, divergence: DivergenceName = "js") -> Axes:
        """Draw the divergence along one sequence, its spikes marked; needs matplotlib.

        Args:
            sequence: its number; None: the one with the highest divergence.
            ax: where to draw; None: on axes of its own.
            divergence: js, kl_forward or kl_reverse.

        Returns:
            The axes.

        Raises:
            ValueError: there is no such sequence or divergence.
        """
        import matplotlib.pyplot as plt

        # The sequence, by number or by its highest value.
        series = self.by_sequence(divergence)
        if sequence is None:
            sequence = int(np.argmax([values.max() for values in series]))
        if not 0 <= sequence < len(series):
            raise ValueError(f"there is no sequence {sequence}; there are {len(series)}, from 0")
        values, rows = series[sequence], np.flatnonzero(self.sequence_ids == sequence)

        axes: Axes = plt.subplots(figsize=(8, 3), layout="constrained")[1] if ax is None else ax
        positions = self.positions[rows]
        axes.plot(positions, values, marker=".", linewidth=1, color=HUE, label=divergence)
        spikes = [spike for spike in self.spikes(divergence=divergence) if spike["sequence_id"] == sequence]
        x, y = ([spike[name] for spike in spikes] for name in ("position", "value"))
        axes.plot(x, y, "o", fillstyle="none", color=INK, label="spikes (zscore)")
        axes.set(
            xlabel="position",
            ylabel=f"{divergence}, nats",
            title=f"{self.checkpoint} against {self.reference}, sequence {sequence}",
        )
        # Where they fit, the tokens themselves stand under the curve.
        if self.tokens is not None and len(rows) <= _NAMED_TOKENS:
            axes.set_xticks(positions, [self.tokens[row].strip() or "_" for row in rows], rotation=90, fontsize=7)
        axes.legend()
        return axes

    def table(self) -> pa.Table:
        """Return one row a token; the unit of each column is in its field's metadata."""
        columns = {
            "sequence_id": self.sequence_ids,
            "position": self.positions,
            "token_id": self.token_ids,
            **self.statistics,
        }
        fields = [pa.field(name, TOKEN_COLUMNS[name][0], metadata=_unit(name)) for name in columns]
        table = pa.table(columns, schema=pa.schema(fields))
        return table if self.tokens is None else table.add_column(3, "token", pa.array(self.tokens, pa.string()))

    def to_pandas(self) -> DataFrame:
        """Return `table` as a data frame; its `attrs["units"]` has the units.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        frame = data_frame(self.table())
        frame.attrs["units"] = {name: "nats" for name in STATISTICS if _unit(name)}
        return frame

    def by_sequence(self, name: str) -> list[NDArray[Any]]:
        """Return a column cut into one array a sequence.

        Raises:
            ValueError: there is no such statistic.
        """
        if name not in STATISTICS:
            raise ValueError(f"unknown statistic {name!r}; use one of {', '.join(STATISTICS)}")
        return np.split(self.statistics[name], np.flatnonzero(np.diff(self.sequence_ids)) + 1)

    def spikes(
        self,
        method: SpikeMethod = "zscore",
        *,
        divergence: DivergenceName = "js",
        settings: SpikeConfig = _DEFAULTS,
        null: NDArray[Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the positions whose divergence stands out, by sequence and position.

        Each is a mapping of `sequence_id`, `position`, `token_id`, `token` (where there are texts), `value` and
        `threshold` in nats, and `height`, 1 for the highest of its sequence.

        Args:
            method: zscore, percentile (of all tokens here), adaptive, absolute or calibrated; see `SpikeConfig`.
            divergence: js, kl_forward or kl_reverse.
            settings: the methods' parameters.
            null: for `calibrated`, values of the divergence between two runs of one model: what noise makes.

        Raises:
            ValueError: method or divergence is not known, or `calibrated` has no null values.
        """
        from swerve.probe.findings.spikes import find_spikes

        series = self.by_sequence(divergence)
        by_sequence = find_spikes(series, settings, method=method, pooled=self.statistics[divergence], null=null)
        starts = np.cumsum([0, *map(len, series)])
        return [
            {
                "sequence_id": index,
                "position": int(self.positions[starts[index] + spike.position]),
                "token_id": int(self.token_ids[starts[index] + spike.position]),
                **({} if self.tokens is None else {"token": self.tokens[starts[index] + spike.position]}),
                "value": spike.value,
                "threshold": spike.threshold,
                "height": spike.height,
            }
            for index, spikes in enumerate(by_sequence)
            for spike in spikes
        ]


def _unit(name: str) -> dict[str, str] | None:
    return {"unit": "nats"} if pa.types.is_floating(TOKEN_COLUMNS[name][0]) else None


def read_result(run: RunDirectory) -> ProbeResult | None:
    """Return what the probe of a run measured of its final checkpoint on the headline rollouts; None without a probe.

    Raises:
        ArtifactError: a table is missing or damaged.
    """
    from swerve.artifacts.probe_summary import read_summary

    summary = read_summary(run)
    if summary is None:
        return None
    sequences = read_response_table(run.probe_path / "sequences.parquet", SEQUENCES_SCHEMA)
    chosen = {entry.sequence_id: entry for entry in sequences if entry.population == summary.population}

    # Rows of this pair of models and of these rollouts, in order; rollouts are numbered from 0.
    table = read_table(run.probe_path / "tokens.parquet", TOKENS_SCHEMA)
    is_pair = pc.and_(pc.equal(table["checkpoint"], summary.final), pc.equal(table["reference"], summary.reference))
    table = table.filter(pc.and_(is_pair, pc.is_in(table["sequence_id"], pa.array(list(chosen), pa.int32()))))
    table = table.sort_by([("sequence_id", "ascending"), ("position", "ascending")])
    ids, positions = table["sequence_id"].to_numpy(), table["position"].to_numpy()
    tokens = []
    for number, position in zip(ids.tolist(), positions.tolist(), strict=True):
        start, end = chosen[number].spans[position]
        tokens.append((chosen[number].text or "")[start:end])
    return ProbeResult(
        sequence_ids=np.unique(ids, return_inverse=True)[1].astype(np.int32),
        positions=positions,
        token_ids=table["token_id"].to_numpy(),
        tokens=tuple(tokens),
        statistics={name: table[name].to_numpy() for name in STATISTICS},
        checkpoint=summary.final,
        reference=summary.reference,
        summary=summary,
    )
