"""What a probe measured at every token, of one model against another: tables, spikes, figures. Free of torch."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from swerve.artifacts.frames import Framed
from swerve.artifacts.response_columns import SEQUENCES_SCHEMA
from swerve.artifacts.responses import IMPORTED, Response, read_response_table
from swerve.artifacts.tables import TOKEN_COLUMNS, TOKENS_SCHEMA, import_pandas, read_table
from swerve.config.probe import DivergenceName, SpikeConfig, SpikeMethod
from swerve.errors import ConfigError, refusals_told
from swerve.notebook import HUE, INK, coloured_tokens
from swerve.text import counted, listed, text_before

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

    from swerve.artifacts.probe_summary import ProbeSummary
    from swerve.artifacts.run import RunDirectory
    from swerve.functional.head_divergence import TopProbs

_DEFAULTS = SpikeConfig()
_COLUMNS = ("sequence_id", "problem_id", "position", "token", "context", *list(TOKEN_COLUMNS)[2:])
"""Of the table, in the order of `run.tokens`."""
_PLACES = ("sequence_id", "position", "token_id", "checkpoint", "reference", "category")
STATISTICS = tuple(name for name in TOKEN_COLUMNS if name not in _PLACES)
"""Names of the statistics of a token, in the order of the table."""
_OF_SPIKES = ("value", "threshold", "height")
_SHOWN_SEQUENCES = 3
_SHOWN_TOKENS = 1000
_NAMED_TOKENS = 60
"""Tokens of a sequence whose texts fit under a figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult(Framed):
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
    words: Mapping[str, tuple[str, ...]]
    """What is known of each token in words: its `problem_id`; with a tokenizer its text as `token`, the end of the text
    before it as `context`, and its `category`."""
    statistics: Mapping[str, NDArray[Any]]
    """Each of `STATISTICS` by name; they are attributes, too."""
    top: TopProbs | None = None
    """The `top_k` most likely tokens of P; None for `top_k=0`."""
    top_ref: TopProbs | None = None
    checkpoint: str = "checkpoint"
    """Label of P."""
    reference: str = "reference"
    """Label of Q."""
    writers: tuple[str, ...] = ()
    """Labels of those who wrote the responses; empty: not known."""
    chosen_by: str = ""
    """The selection that chose them among others; empty: all that were given."""
    summary: ProbeSummary | None = None
    """All findings, where a run was probed, or the result is in a folder."""
    path: Path | None = None
    """The folder of its tables; None: it is in memory alone."""
    owner: Any = None
    """Of a folder that lasts as long as the result, what removes it."""
    measure_into: Callable[[Path], ProbeResult] | None = None
    """Measures the same again, in a folder; None: it cannot be done again."""

    @property
    def is_kept(self) -> bool:
        """Whether it is in a folder that stays."""
        return self.path is not None and self.owner is None

    @property
    def mean_js(self) -> float:
        """Mean Jensen-Shannon divergence over the tokens, nats."""
        return float(self.statistics["js"].mean())

    @property
    def mean_kl_forward(self) -> float:
        """Mean KL(checkpoint || reference) over the tokens, nats."""
        return float(self.statistics["kl_forward"].mean())

    @property
    def mean_kl_reverse(self) -> float:
        """Mean KL(reference || checkpoint) over the tokens, nats."""
        return float(self.statistics["kl_reverse"].mean())

    @refusals_told()
    def save(self, out: str | Path) -> Path:
        """Write tables and findings to a new folder, which `swerve.report` reads; return the folder.

        What was measured in memory is measured again, with the same models: they must be what they were.

        Raises:
            ConfigError: `out` is there already, or the models are gone or have changed.
            ArtifactError: the system refuses to write there.
        """
        from swerve.artifacts.output_names import check_output

        place = Path(out)
        check_output(place, folder=True, of_run=True, option="")
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            if self.path is not None and place.resolve() == self.path.resolve():
                return place
            raise ConfigError(f"{place} exists; give the name of a new folder")
        if self.path is not None:
            copytree(self.path, place, dirs_exist_ok=True)
        elif self.measure_into is None:
            raise ConfigError("the models of this result are gone; probe them again with out=FOLDER")
        else:
            again = self.measure_into(place)
            before, after = (one.statistics["js"] for one in (self, again))
            if before.shape != after.shape or not np.allclose(after, before, atol=1e-3):
                raise ConfigError(f"the models have changed since they were probed; what they are now is in {place}")
        return place

    def __getattr__(self, name: str) -> NDArray[Any]:
        """Return a statistic by its name."""
        if name not in STATISTICS:
            from swerve.artifacts.probe_summary import ProbeSummary

            if name in ProbeSummary.model_fields:
                raise AttributeError(f"a result of the probe has its findings in its summary: result.summary.{name}")
            raise AttributeError(
                f"a result of the probe has no '{name}'; its statistics are {', '.join(STATISTICS)}, and "
                "to_pandas() is the data frame"
            )
        return self.statistics[name]

    def __repr__(self) -> str:
        """Return what was compared on which responses, how far apart the models are, the spikes, and the cause."""
        num, js = len(self.token_ids), self.statistics["js"]
        title = f"ProbeResult: {self.checkpoint} against {self.reference}"
        if not num:
            return f"{title}, no tokens"
        writers = f" of {listed(self.writers)}" if self.writers else ""
        chosen = f", chosen by {self.chosen_by}" if self.chosen_by else ""
        chosen = ", one of each problem" if self.chosen_by == "all" else chosen
        responses = f"{counted(len(np.unique(self.sequence_ids)), 'response')}{writers}{chosen}"
        lines = [
            f"{title}, {counted(num, 'token')} of {responses}",
            f"JS divergence, nats per token: mean {js.mean():.3g}, median {np.median(js):.3g}, highest {js.max():.3g}",
        ]
        spikes = self.find_spikes()
        highest = max(spikes, key=lambda spike: spike["value"], default=None)
        if highest is None:
            lines.append("no spikes by zscore")
        else:
            token = highest.get("token", highest["token_id"])
            place = f"sequence {highest['sequence_id']}, position {highest['position']}"
            highest_at = f"the highest at {place}: {token!r}"
            lines.append(f"{counted(len(spikes), 'spike')} by zscore, {highest_at}")
        cause = None if self.summary is None else self.summary.cause_line
        return "\n".join(lines if cause is None else [*lines, cause])

    def _repr_html_(self) -> str:
        """Return the same, with the tokens of the sequences whose divergence is highest, coloured by it."""
        parts = [f"<pre>{html.escape(repr(self))}</pre>"]
        tokens = list(map(str, self.token_ids)) if self.texts is None else list(self.texts)
        separator = " " if self.texts is None else ""
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
            ConfigError: there is no such sequence or divergence.
        """
        import matplotlib.pyplot as plt

        # The sequence, by number or by its highest value.
        if isinstance(sequence, str):
            raise ConfigError(f"{sequence!r} is no number of a sequence; write divergence={sequence!r}")
        series = self.by_sequence(divergence)
        if sequence is None:
            sequence = int(np.argmax([values.max() for values in series]))
        if not 0 <= sequence < len(series):
            raise ConfigError(f"there is no sequence {sequence}; there are {len(series)}, from 0")
        values, rows = series[sequence], np.flatnonzero(self.sequence_ids == sequence)

        axes: Axes = plt.subplots(figsize=(8, 3), layout="constrained")[1] if ax is None else ax
        positions = self.positions[rows]
        axes.plot(positions, values, marker=".", linewidth=1, color=HUE, label=divergence)
        spikes = [spike for spike in self.find_spikes(divergence=divergence) if spike["sequence_id"] == sequence]
        x, y = ([spike[name] for spike in spikes] for name in ("position", "value"))
        axes.plot(x, y, "o", fillstyle="none", color=INK, label="spikes (zscore)")
        axes.set(
            xlabel="position",
            ylabel=f"{divergence}, nats",
            title=f"{self.checkpoint} against {self.reference}, sequence {sequence}",
        )
        # Where they fit, the tokens themselves stand under the curve.
        if self.texts is not None and len(rows) <= _NAMED_TOKENS:
            axes.set_xticks(positions, [self.texts[row].strip() or "_" for row in rows], rotation=90, fontsize=7)
        axes.legend()
        return axes

    def table(self) -> pa.Table:
        """Return one row a token, with the columns of `run.tokens` that are known; a field's metadata has the unit."""
        num = len(self.token_ids)
        known: dict[str, Any] = {
            "sequence_id": self.sequence_ids,
            "position": self.positions,
            "token_id": self.token_ids,
            "checkpoint": [self.checkpoint] * num,
            "reference": [self.reference] * num,
            **self.statistics,
            **self.words,
        }
        columns = {name: known[name] for name in _COLUMNS if name in known}
        types = {name: TOKEN_COLUMNS[name][0] if name in TOKEN_COLUMNS else pa.string() for name in columns}
        fields = [pa.field(name, types[name], metadata=_unit(name)) for name in columns]
        return pa.table(columns, schema=pa.schema(fields))

    def to_pandas(self) -> DataFrame:
        """Return `table` as a data frame; its `attrs["units"]` has the units.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        frame = Framed.to_pandas(self)
        frame.attrs["units"] = {name: "nats" for name in STATISTICS if _unit(name)}
        return frame

    def by_sequence(self, name: str) -> list[NDArray[Any]]:
        """Return a column cut into one array a sequence.

        Raises:
            ConfigError: there is no such statistic.
        """
        if name not in STATISTICS:
            raise ConfigError(f"unknown statistic {name!r}; use one of {', '.join(STATISTICS)}")
        return np.split(self.statistics[name], np.flatnonzero(np.diff(self.sequence_ids)) + 1)

    @property
    def tokens(self) -> DataFrame:
        """`table` as a data frame, which has the columns of `run.tokens` that are known; see `to_pandas`."""
        return self.to_pandas()

    @property
    def texts(self) -> tuple[str, ...] | None:
        """The text of each token; None without a tokenizer."""
        return self.words.get("token")

    @property
    def spikes(self) -> DataFrame:
        """The spikes of `find_spikes` by zscore as a data frame, with the `context` of each token."""
        places = zip(self.sequence_ids.tolist(), self.positions.tolist(), strict=True)
        rows, at = self.find_spikes(), {place: row for row, place in enumerate(places)}
        for row in rows:
            row |= {name: column[at[row["sequence_id"], row["position"]]] for name, column in self.words.items()}
        names = [*(name for name in _COLUMNS[:6] if name in _PLACES or name in self.words), *_OF_SPIKES]
        return import_pandas().DataFrame(rows, columns=names)

    def find_spikes(
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
            ConfigError: method or divergence is not known, or `calibrated` has no null values.
        """
        from swerve.probe.findings.spikes import find_spikes

        series = self.by_sequence(divergence)
        pooled = self.statistics[divergence]
        try:
            by_sequence = find_spikes(series, settings, method=method, pooled=pooled, null=null)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        starts = np.cumsum([0, *map(len, series)])
        return [
            {
                "sequence_id": index,
                "position": int(self.positions[starts[index] + spike.position]),
                "token_id": int(self.token_ids[starts[index] + spike.position]),
                **({} if self.texts is None else {"token": self.texts[starts[index] + spike.position]}),
                "value": spike.value,
                "threshold": spike.threshold,
                "height": spike.height,
            }
            for index, spikes in enumerate(by_sequence)
            for spike in spikes
        ]


def _unit(name: str) -> dict[str, str] | None:
    return {"unit": "nats"} if name in STATISTICS and pa.types.is_floating(TOKEN_COLUMNS[name][0]) else None


def writers_of(responses: Iterable[Response]) -> tuple[str, ...]:
    """Return the labels of those who wrote responses, each once."""
    labels = dict.fromkeys(response.label for response in responses)
    return tuple(label for label in labels if label and label != IMPORTED)


def read_result(run: RunDirectory, *, checkpoint: str | None = None, everything: bool = False) -> ProbeResult | None:
    """Return what the probe of a run measured of a checkpoint on the headline rollouts; None without a probe.

    Args:
        run: or the folder of a probe.
        checkpoint: by default the final one.
        everything: all that was read, in place of the headline rollouts.

    Raises:
        ArtifactError: a table is missing or damaged.
    """
    from swerve.artifacts.probe_summary import read_summary

    summary = read_summary(run)
    if summary is None:
        return None
    sequences = read_response_table(run.probe_path / "sequences.parquet", SEQUENCES_SCHEMA)
    chosen = {entry.sequence_id: entry for entry in sequences if everything or entry.population == summary.population}
    label = checkpoint or summary.final

    # Rows of this pair of models and of these rollouts, in order; rollouts are numbered from 0.
    table = read_table(run.probe_path / "tokens.parquet", TOKENS_SCHEMA)
    is_pair = pc.and_(pc.equal(table["checkpoint"], label), pc.equal(table["reference"], summary.reference))
    table = table.filter(pc.and_(is_pair, pc.is_in(table["sequence_id"], pa.array(list(chosen), pa.int32()))))
    table = table.sort_by([("sequence_id", "ascending"), ("position", "ascending")])
    ids, positions = table["sequence_id"].to_numpy(), table["position"].to_numpy()
    found = [(chosen[number], position) for number, position in zip(ids.tolist(), positions.tolist(), strict=True)]
    pieces = [(response.text or "", *response.spans[position]) for response, position in found]
    return ProbeResult(
        sequence_ids=np.unique(ids, return_inverse=True)[1].astype(np.int32),
        positions=positions,
        token_ids=table["token_id"].to_numpy(),
        words={
            "problem_id": tuple(response.problem.id for response, _ in found),
            "token": tuple(text[start:end] for text, start, end in pieces),
            "context": tuple(text_before(text, start, end) for text, start, end in pieces),
            "category": tuple(table["category"].to_pylist()),
        },
        statistics={name: table[name].to_numpy() for name in STATISTICS},
        checkpoint=label,
        reference=summary.reference,
        writers=writers_of(chosen.values()),
        chosen_by="" if everything or summary.selection == "imported" else summary.population,
        summary=summary,
        path=run.path,
    )
