"""The figure of the estimator audit, drawn from its tables: values and gradients by size of the KL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swerve.report.draw.figures import FORMATS, Drawing, Look, Panel, curves_panel, write_figures
from swerve.report.rows import SIGNED, Curves, Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOOK = Look(formats=("png", "pdf"))
_COSINE = "Cosine with the KL's gradient"

Record = Mapping[str, Any]


def write_estimator_figure(audit: Record, directory: Path) -> tuple[Path, ...]:
    """Write `estimators.png`, `.pdf` and `.csv`; remove old ones where the two models do not differ.

    Args:
        audit: content of `estimators.json`.
        directory: where to write.

    Raises:
        DiskFullError: no room.
    """
    if not any(group["kl_mean"] for group in audit["deciles"]):
        for suffix in (*FORMATS, "csv"):
            (directory / f"estimators.{suffix}").unlink(missing_ok=True)
        return ()
    return write_figures([estimator_drawing(audit)], directory, _LOOK)


def estimator_drawing(audit: Record) -> Drawing:
    """Return the figure of an audit of two models that differ."""
    tables = tuple(_tables([group for group in audit["deciles"] if group["kl_mean"]]))
    panels = [_panel(rows) for rows in tables]
    names = f"{audit['checkpoint']['name']} against {audit['reference']['name']}"
    return Drawing(
        name="estimators",
        title=f"Estimators of KL(policy || reference): {names}, {audit['num_tokens']:,} tokens",
        panels=(panels[0], *(replace(panel, key=()) for panel in panels[1:])),
        records=tuple({"figure": rows.title, **record} for rows in tables for record in rows.records),
    )


def _tables(groups: Sequence[Record]) -> Iterator[Rows]:
    """Yield the bias and the noise of values, then for each placement direction and noise of gradients."""
    cells: dict[str, list[dict[str, float | None]]] = {}
    for group in groups:
        kl = group["kl_mean"]
        tenth: dict[str, dict[str, float | None]] = {"Bias / exact KL (%)": {}, "Sd of one sample / exact KL": {}}
        for row in group["values"]:
            bias = row["relative_bias"]
            tenth["Bias / exact KL (%)"][row["estimator"]] = None if bias is None else 100 * bias
            tenth["Sd of one sample / exact KL"][row["estimator"]] = row["sd"] / kl
        for placement in ("loss", "reward"):
            rows = {row["estimator"]: row for row in group["gradients"] if row["placement"] == placement}
            cosines = {name: row["targets"]["reverse_kl"]["pooled_cosine"] for name, row in rows.items()}
            tenth[f"{_COSINE}, in the {placement}"] = cosines
            noise = {name: row["variance_to_signal"] for name, row in rows.items()}
            tenth[f"Variance / squared norm, in the {placement}"] = noise
        for title, by_name in tenth.items():
            cells.setdefault(title, []).append(by_name)
    # A table for each, a row for each tenth of the tokens, a column for each estimator.
    names = [row["estimator"] for row in groups[0]["values"]]
    x = tuple(group["kl_mean"] for group in groups)
    for title, tenths in cells.items():
        yield Rows(
            id=title,
            title=title,
            first="Tenth of the tokens",
            columns=dict.fromkeys(names, replace(SIGNED, axis=title)),
            rows=tuple((str(place), *map(tenth.get, names)) for place, tenth in enumerate(tenths, start=1)),
            plots=(Curves(x=x, x_title="exact KL of the tokens, nats", is_log=True),),
        )


def _panel(rows: Rows) -> Panel:
    """Return the panel of a table; beyond 1 its axis is logarithmic, but that of cosines."""
    (plot,) = rows.plots
    assert isinstance(plot, Curves)
    panel = curves_panel(rows, plot)

    def draw(axes: Axes, width: float) -> Sequence[Any]:
        handles = panel.draw(axes, width)
        axes.set_yscale("symlog", linthresh=1, linscale=0.6)
        axes.autoscale(axis="y")
        return handles

    return panel if rows.title.startswith(_COSINE) else replace(panel, draw=draw)
