"""The page's static tables and interval plots, as records a template can print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from swerve.report.findings import spike_entry
from swerve.report.inputs import ReportInputs
from swerve.report.values import (
    DIVERGENCE_NAMES,
    NOT_MEASURED,
    Interval,
    count,
    interval,
    number,
    percent,
    percent_interval,
    points_interval,
)

__all__ = ["Bar", "DotRow", "Table", "bars", "causal_rows", "provenance", "spike_rows", "tables"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of finished strings; the first column names the row."""

    id: str
    caption: str
    note: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DotRow:
    """One line of an interval plot: positions in percent of the plot's width."""

    name: str
    value: str
    dot: float
    low: float
    high: float
    chance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Two shares of one category, in percent of the plot's width."""

    name: str
    tokens: float
    divergence: float
    label: str


def tables(inputs: ReportInputs) -> dict[str, Table]:
    """Return the tables that have rows, by id."""
    made = [_evaluation_table(inputs), _kind_table(inputs)]
    if inputs.summary is not None:
        made += [_spike_table(inputs.summary), _category_table(inputs.summary), _divergence_table(inputs.summary)]
        made.append(_causal_table(inputs.summary))
    return {table.id: table for table in made if table.rows}


def _evaluation_table(inputs: ReportInputs) -> Table:
    rows = [
        (
            entry["checkpoint"],
            count(entry["step"]),
            percent_interval(interval(entry.get("accuracy"))),
            percent_interval(interval(entry.get("mean_reward"))),
            percent_interval(interval(entry.get("trace_right"))),
            _plain(entry.get("num_tokens")),
            _plain(entry.get("entropy")),
            percent(entry.get("truncated")),
            count(entry.get("failures")),
        )
        for entry in inputs.evaluations
    ]
    header = (
        "Checkpoint", "Step", "Greedy accuracy", "Sampled reward", "Fully right traces", "Tokens", "Entropy (nats)",
        "Truncated", "Not gradable",
    )  # fmt: skip
    return Table(id="evaluation", caption="Every checkpoint", note="", header=header, rows=tuple(rows))


def _plain(value: Any) -> str:
    known = interval(value)
    if known is None:
        return NOT_MEASURED
    return f"{number(known.mean)} ({number(known.low)} to {number(known.high)})"


def _kind_table(inputs: ReportInputs) -> Table:
    shown = [entry for entry in inputs.evaluations if isinstance(entry.get("by_kind"), Mapping)]
    kinds = sorted({kind for entry in shown for kind in entry["by_kind"]})
    rows = []
    for kind in kinds:
        cells = [entry["by_kind"].get(kind) or {} for entry in shown]
        size = next((count(cell["num_problems"]) for cell in cells if "num_problems" in cell), NOT_MEASURED)
        rows.append((kind, size, *(percent_interval(interval(cell.get("accuracy"))) for cell in cells)))
    return Table(
        id="kinds",
        caption="Greedy accuracy by kind of problem",
        note="",
        header=("Kind", "Problems", *(entry["checkpoint"] for entry in shown)),
        rows=tuple(rows),
    )


def _spike_table(summary: Mapping[str, Any]) -> Table:
    rows = [
        (
            str(entry.get("checkpoint")),
            DIVERGENCE_NAMES.get(str(entry.get("divergence")), str(entry.get("divergence"))),
            count(entry.get("num_rollouts")),
            count(entry.get("num_spikes")),
            percent_interval(interval(entry.get("top_on_first_wrong"))),
            percent(entry.get("chance_first_wrong")),
            percent_interval(interval(entry.get("top_on_wrong"))),
            percent(entry.get("chance_wrong")),
        )
        for entry in summary.get("spikes") or []
    ]
    return Table(
        id="spikes",
        caption="Top spike against chance",
        note="Chance is the share expected if the position were drawn uniformly from the same rollout.",
        header=(
            "Checkpoint",
            "Divergence",
            "Rollouts",
            "Spikes",
            "Top spike on first wrong step",
            "Chance",
            "On any wrong step",
            "Chance",
        ),
        rows=tuple(rows),
    )


def _category_table(summary: Mapping[str, Any]) -> Table:
    rows = [
        (
            str(entry.get("category")).replace("_", " "),
            count(entry.get("num_tokens")),
            percent(entry.get("share_tokens")),
            percent(entry.get("share_divergence")),
            count(entry.get("num_spikes")),
            percent(entry.get("spike_rate")),
            percent(entry.get("base_rate")),
        )
        for entry in _final_categories(summary)
    ]
    name = DIVERGENCE_NAMES.get(str(summary.get("divergence")), str(summary.get("divergence")))
    return Table(
        id="categories",
        caption=f"Token categories at {summary.get('final')}",
        note=f"Share of divergence and spikes by {name}; the base rate is that of all tokens.",
        header=("Category", "Tokens", "Share of tokens", "Share of divergence", "Spikes", "Spike rate", "Base rate"),
        rows=tuple(rows),
    )


def _divergence_table(summary: Mapping[str, Any]) -> Table:
    keys = ("kl_forward", "kl_reverse", "js", "entropy", "entropy_ref")
    rows = [
        (str(entry.get("checkpoint")), *(_plain(entry.get(key)) for key in keys))
        for entry in summary.get("divergences") or []
    ]
    floor = summary.get("noise_floor")
    note = "Means over the tokens of the reference's wrong rollouts, in nats."
    if isinstance(floor, Mapping):
        means = ", ".join(
            f"{DIVERGENCE_NAMES[key]} {number((floor.get(key) or {}).get('mean'))}" for key in DIVERGENCE_NAMES
        )
        note += f" Noise floor (the reference against itself, batched otherwise): {means}."
    return Table(
        id="divergences",
        caption="Divergence by checkpoint",
        note=note,
        header=("Checkpoint", "Forward KL", "Reverse KL", "JS", "Entropy", "Entropy of the reference"),
        rows=tuple(rows),
    )


def _causal_table(summary: Mapping[str, Any]) -> Table:
    causal = summary.get("causal") or {}
    rows = [
        (
            _SELECTIONS.get(str(entry.get("selection")), str(entry.get("selection"))),
            percent((entry.get("reference") or {}).get("success")),
            percent((entry.get("checkpoint") or {}).get("success")),
            points_interval(interval(entry.get("effect"))),
            percent(entry.get("share_same_token")),
        )
        for entry in causal.get("selections") or []
    ]
    return Table(
        id="causal",
        caption="Causal test",
        note=(
            f"{count(causal.get('num_rollouts'))} rollouts, {count(causal.get('num_continuations'))} continuations by "
            f"{summary.get('reference')} after each forced token."
        ),
        header=(
            "Position",
            f"Success with the token of {summary.get('reference')}",
            f"With that of {summary.get('final')}",
            "Effect (points)",
            "Same token",
        ),
        rows=tuple(rows),
    )


_SELECTIONS = {"spike": "Top spike", "random": "Random position"}


def _final_categories(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = [entry for entry in summary.get("categories") or [] if entry.get("checkpoint") == summary.get("final")]
    return sorted(rows, key=lambda entry: -(entry.get("share_divergence") or 0.0))


def spike_rows(summary: Mapping[str, Any] | None) -> tuple[DotRow, ...]:
    """Return, for each checkpoint, how often the top spike is on the first wrong step (0 to 100 percent)."""
    if summary is None:
        return ()
    rows = []
    for checkpoint in summary.get("checkpoints") or []:
        entry = spike_entry(summary, checkpoint, summary.get("divergence"))
        share = interval(entry.get("top_on_first_wrong")) if entry else None
        if entry is None or share is None:
            continue
        chance = entry.get("chance_first_wrong")
        rows.append(_dot_row(str(checkpoint), percent_interval(share), share, chance, low=0.0, high=1.0))
    return tuple(rows)


def causal_rows(summary: Mapping[str, Any] | None) -> tuple[DotRow, ...]:
    """Return the effect at spikes and at random positions on an axis from -1 to 1."""
    causal = (summary or {}).get("causal") or {}
    rows = []
    for entry in causal.get("selections") or []:
        effect = interval(entry.get("effect"))
        if effect is not None:
            name = _SELECTIONS.get(str(entry.get("selection")), str(entry.get("selection")))
            rows.append(_dot_row(name, points_interval(effect), effect, 0.0, low=-1.0, high=1.0))
    return tuple(rows)


def _dot_row(name: str, value: str, share: Interval, chance: float | None, *, low: float, high: float) -> DotRow:
    def place(figure: float) -> float:
        return round(100 * (min(max(figure, low), high) - low) / (high - low), 2)

    return DotRow(
        name=name,
        value=value,
        dot=place(share.mean),
        low=place(share.low),
        high=place(share.high),
        chance=None if chance is None else place(chance),
    )


def bars(summary: Mapping[str, Any] | None) -> tuple[Bar, ...]:
    """Return each category's share of tokens and of divergence at the final checkpoint."""
    rows = [] if summary is None else _final_categories(summary)
    return tuple(
        Bar(
            name=str(entry.get("category")).replace("_", " "),
            tokens=round(100 * entry["share_tokens"], 2),
            divergence=round(100 * entry["share_divergence"], 2),
            label=f"{percent(entry['share_divergence'])} of divergence, {percent(entry['share_tokens'])} of tokens",
        )
        for entry in rows
        if entry.get("share_tokens") is not None and entry.get("share_divergence") is not None
    )


def provenance(inputs: ReportInputs) -> tuple[tuple[str, str], ...]:
    """Return what the run records about itself, as names and values."""
    names: Sequence[tuple[str, str]] = (
        ("swerve", "swerve_version"),
        ("config hash", "config_hash"),
        ("seed", "seed"),
        ("torch", "torch_version"),
        ("transformers", "transformers_version"),
        ("created", "created"),
        ("status", "status"),
    )
    known = dict(inputs.provenance)
    pairs = [(name, str(known.pop(key))) for name, key in names if known.get(key) is not None]
    for key in ("schema_version", "name"):
        known.pop(key, None)
    pairs += [
        (key.replace("_", " "), str(value)) for key, value in known.items() if isinstance(value, str | int | float)
    ]
    if inputs.metrics:
        pairs.append(("training steps recorded", count(len(inputs.metrics))))
    if inputs.summary is not None:
        labels = ", ".join(str(label) for label in inputs.summary.get("checkpoints") or [])
        pairs += [("reference", str(inputs.summary.get("reference"))), ("compared", labels)]
    return tuple(pairs)
