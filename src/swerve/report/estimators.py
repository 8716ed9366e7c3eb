"""The figure of the estimator audit, drawn from its tables: values and gradients by size of the KL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swerve.report.draw.figures import FORMATS, Drawing, Look, Panel, plot_panel, write_figures
from swerve.report.draw.plots import drawn
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
    values = [{row["estimator"]: row for row in group["values"]} for group in groups]
    kls = [group["kl_mean"] for group in groups]

    # A table for each, a row for each tenth of the tokens, a column for each estimator.
    def table(title: str, tenths: Sequence[Record], read: Callable[[Record, float], float | None]) -> Rows:
        return Rows(
            id=title,
            title=title,
            first="Tenth of the tokens",
            columns=dict.fromkeys(values[0], replace(SIGNED, axis=title)),
            rows=tuple(
                (str(place), *(read(tenth[name], kl) if name in tenth else None for name in values[0]))
                for place, (tenth, kl) in enumerate(zip(tenths, kls, strict=True), start=1)
            ),
            plots=(Curves(x=tuple(kls), x_title="exact KL of the tokens, nats", is_log=True),),
        )

    def bias(row: Record, _: float) -> float | None:
        return None if row["relative_bias"] is None else 100 * row["relative_bias"]

    yield table("Bias / exact KL (%)", values, bias)
    yield table("Sd of one sample / exact KL", values, lambda row, kl: row["sd"] / kl)
    for place in ("loss", "reward"):
        rows = [[row for row in group["gradients"] if row["placement"] == place] for group in groups]
        tenths = [{row["estimator"]: row for row in tenth} for tenth in rows]
        yield table(f"{_COSINE}, in the {place}", tenths, lambda row, _: row["targets"]["reverse_kl"]["pooled_cosine"])
        yield table(f"Variance / squared norm, in the {place}", tenths, lambda row, _: row["variance_to_signal"])


def _panel(rows: Rows) -> Panel:
    """Return the panel of a table; beyond 1 its axis is logarithmic, but that of cosines."""
    (plot,) = rows.plots
    panel = plot_panel(drawn(rows, plot))

    def draw(axes: Axes, width: float) -> Sequence[Any]:
        handles = panel.draw(axes, width)
        axes.set_yscale("symlog", linthresh=1, linscale=0.6)
        axes.autoscale(axis="y")
        return handles

    return panel if rows.title.startswith(_COSINE) else replace(panel, draw=draw)
