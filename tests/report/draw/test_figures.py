"""Figures at the size of a paper: readable, whole, safe with any label, and with the numbers of the rows."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from swerve.estimates import Estimate
from swerve.report.draw.figures import WIDTHS, Drawing, Look, lay_out, rows_drawing, write_figures
from swerve.report.figures import drawings, figure_specs
from swerve.report.read import ReportInputs
from swerve.report.rows import NATS, NUMBER, POINTS, SHARE, Curves, Dots, Rows

HOSTILE = "$\\frac{$\u202e\n\N{CJK UNIFIED IDEOGRAPH-6570}\N{GRINNING FACE}"
LONG = "a name of many words that goes on for more than a line of any column of a paper"
SMALL = 0.5
"""Pixels that rounding may take."""


def hostile(inputs: ReportInputs) -> ReportInputs:
    """Return a run whose labels look like formulas and have characters that fonts lack."""
    assert inputs.summary is not None
    assert inputs.tables is not None
    evaluations = tuple(entry.model_copy(update={"stage": HOSTILE + entry.stage}) for entry in inputs.evaluations)
    summary: dict[str, Any] = inputs.summary.model_dump()
    summary["categories"] = [{**entry, "category": HOSTILE + entry["category"]} for entry in summary["categories"]]
    for pair in summary["pairs"]:
        pair["reference"] = HOSTILE
    sequences, topk = inputs.tables.sequences, inputs.tables.topk
    assert topk is not None
    ids = pa.array([HOSTILE + "hostile.json"] * sequences.num_rows)
    texts = pa.array([["\x1b[31m", HOSTILE, " the", "\n\n", "a" * 50]] * topk.num_rows)
    tables = replace(
        inputs.tables,
        sequences=sequences.set_column(sequences.schema.get_field_index("problem_id"), "problem_id", ids),
        topk=topk.set_column(topk.schema.get_field_index("tokens"), "tokens", texts),
    )
    model = type(inputs.summary)
    return replace(inputs, evaluations=evaluations, summary=model.model_validate(summary), tables=tables)


@pytest.fixture(scope="module")
def drawn(inputs: ReportInputs) -> dict[str, Drawing]:
    """Every figure of a hostile run by name, one of each."""
    return {name: made[0] for name, made in drawings(hostile(inputs), figure_specs()).items()}


def texts_of(figure: Figure) -> Iterator[Text]:
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_visible() and text.get_text().strip():
            yield text


def check_readable(figure: Figure) -> None:
    """Check that text has 7 points, lies inside of the figure, and that no two labels of an axis touch."""
    assert not figure.findobj(
        lambda artist: isinstance(artist, Text) and artist.get_visible() and artist.get_text() == "x"
    )
    width, height = figure.bbox.width, figure.bbox.height
    # matplotlib keeps ticks just beyond the ends of an axis, which it does not draw.
    beyond = set()
    for axes in figure.axes:
        for axis, (low, high) in ((axes.xaxis, sorted(axes.get_xlim())), (axes.yaxis, sorted(axes.get_ylim()))):
            for tick in axis.get_major_ticks():
                beyond |= set() if low <= tick.get_loc() <= high else {tick.label1, tick.label2}
    boxes = {}
    for text in {*texts_of(figure)} - beyond:
        assert text.get_fontsize() >= 7, text
        box = text.get_window_extent()
        inside = box.x0 > -SMALL and box.y0 > -SMALL and box.x1 < width + SMALL and box.y1 < height + SMALL
        assert inside, (text.get_text(), box.bounds, width, height)
        boxes[text] = box.shrunk(0.98, 0.9).translated(0.01 * box.width, 0.05 * box.height)
    for axes in figure.axes:
        legend = axes.get_legend()
        groups = [axes.get_xticklabels(), axes.get_yticklabels()]
        groups += [] if legend is None else [[*legend.get_texts(), legend.get_title()]]
        groups.append([axes.xaxis.label, axes.yaxis.label, axes.title, *groups[0], *groups[1]])
        for group in groups:
            shown = [text for text in group if text in boxes]
            for index, text in enumerate(shown):
                for other in shown[:index]:
                    assert not boxes[text].overlaps(boxes[other]), (text.get_text(), other.get_text())


def test_there_is_a_figure_of_everything(drawn: dict[str, Drawing]) -> None:
    assert figure_specs().keys() - drawn.keys() == {"sampling"}


NAMES = sorted(figure_specs().keys() - {"sampling"})


@pytest.mark.parametrize(
    ("name", "width"), [*((name, "column") for name in NAMES), ("case_study", "text"), ("summary_dashboard", "text")]
)
def test_figures_can_be_read_at_their_size(drawn: dict[str, Drawing], name: str, width: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as those of a character that the font lacks
        figure = lay_out(drawn[name], Look(width=width))
    assert figure.get_figwidth() == {"column": 3.25, "text": 6.75}["text" if len(drawn[name].panels) > 4 else width]
    check_readable(figure)


@pytest.mark.parametrize(("num", "per_line"), [(4, 2), (10, 2), (12, 3), (22, 3)])
def test_a_figure_of_many_panels_fits_a_page(num: int, per_line: int) -> None:
    names = [f"Metric {place}" for place in range(num)]
    rows = Rows(
        id="a",
        title="Metrics of every step",
        columns=dict.fromkeys(names, NUMBER),
        rows=tuple((f"rl-{step}", *(step + place for place in range(num))) for step in (1, 2, 3)),
        plots=tuple(Curves(x=(1, 2, 3), columns=(name,)) for name in names),
    )
    figure = lay_out(rows_drawing(rows))
    assert figure.get_figheight() <= 9
    assert len({round(axes.get_position().x0, 2) for axes in figure.axes[: num - num % per_line]}) == per_line
    check_readable(figure)


def estimate(mean: float) -> Estimate:
    return Estimate(mean=mean, low=mean - 0.05, high=mean + 0.1)


ROWS = Rows(
    id="made",
    title=LONG,
    first="Checkpoint",
    columns={LONG: NATS, "Null": NATS, "Share": SHARE, "Effect": POINTS},
    rows=tuple(
        (f"{LONG} {step}", estimate(step / 9), 0.1, None if step == 2 else 0.5 + 0.1 * step, estimate(-0.1 * step))
        for step in range(5)
    ),
    plots=(
        Curves(x=(0, 1, 10, 100, 1000), is_log=True, columns=(LONG, "Null"), greys=("Null",), ends={"sft": 1}),
        Dots(column="Share", at=0.5),
        Dots(column="Effect", null="Share", at=0, greys=(f"{LONG} 0",)),
    ),
)


@pytest.mark.parametrize("width", WIDTHS)
def test_names_of_any_length_stay_inside(width: str) -> None:
    figure = lay_out(rows_drawing(ROWS), Look(width=width))
    check_readable(figure)
    curves, shares, effects = figure.axes
    assert [text.get_text() for text in curves.get_xticklabels()] == ["0", "1", "10", "100", "1,000"]
    # Places of a logarithmic axis are equally far from each other; the curve is drawn in the unit of its column.
    assert list(curves.lines[0].get_xdata()) == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert list(curves.lines[0].get_ydata()) == pytest.approx([step / 9 for step in range(5)])
    assert [bar.lines[0].get_xdata()[0] for bar in shares.containers] == pytest.approx([50, 60, 80, 90])
    assert {bar.lines[0].get_color() for bar in effects.containers[:2]} == {"#7d766d", "#b8430f"}
    assert effects.get_xlabel() == "percentage points"


def test_an_axis_without_a_unit_is_named_after_its_rows() -> None:
    columns = {"phases": NUMBER, "Null": NATS, "direct": NUMBER, "Effect": POINTS}
    plots = tuple(Curves(x=(1, 2, 3, 4, 5), columns=names) for names in (("phases", "direct"), ("phases",)))
    figure = lay_out(rows_drawing(replace(ROWS, title="Reward", columns=columns, plots=plots)))
    assert [axes.get_ylabel() for axes in figure.axes] == ["Reward", "phases"]


def test_figures_may_have_no_title() -> None:
    titles = [lay_out(rows_drawing(ROWS), Look(has_titles=has)).get_suptitle() for has in (True, False)]
    assert titles[0].replace("\n", " ") == LONG
    assert titles[1] == ""


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_figure_has_the_numbers_of_its_rows_and_the_same_bytes_every_time(tmp_path: Path) -> None:
    rows = replace(ROWS, plots=ROWS.plots[:1])
    for folder in ("first", "second"):
        write_figures([rows_drawing(rows)], tmp_path / folder, Look(width="column"))
    first = {path.name: path.read_bytes() for path in (tmp_path / "first").iterdir()}
    assert first.keys() == {"made.png", "made.pdf", "made.svg", "made.csv"}
    assert {path.name: path.read_bytes() for path in (tmp_path / "second").iterdir()} == first
    assert b"/FontFile2" in first["made.pdf"]  # fonts are embedded
    with (tmp_path / "first" / "made.csv").open(encoding="utf-8", newline="") as stream:
        assert list(csv.DictReader(stream)) == [
            {key: "" if value is None else str(value) for key, value in record.items()} for record in rows.kept.records
        ]
    pixels = matplotlib.image.imread(tmp_path / "first" / "made.png")
    assert pixels.shape[1] == 975  # 3.25 inches of 300 dots
    assert 0.01 < (pixels[..., :3].min(axis=-1) < 0.9).mean() < 0.5  # ink, but not all over


def test_a_single_checkpoint_has_dots() -> None:
    rows = replace(ROWS, rows=ROWS.rows[3:4], plots=ROWS.plots[:1])
    (panel,) = rows_drawing(rows).panels
    assert panel.names == (LONG, "Null")
