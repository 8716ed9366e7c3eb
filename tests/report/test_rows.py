"""One record of numbers: its table, its CSV file and its plot say the same."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.estimates import Estimate, SkewedMean
from swerve.report.draw.plots import Mark, axis_ticks, nice_ticks, thinned
from swerve.report.draw.svg import plots_svg
from swerve.report.rows import JS, NATS, POINTS, SHARE, Curves, Dots, Rows, Unit

EFFECTS = Rows(
    id="effects",
    title="Effects <of> tokens",
    first="Token",
    columns={"Effect": POINTS, "Empty": SHARE},
    rows=(
        ("rl-80 & co", Estimate(mean=0.5, low=0.25, high=0.75), None),
        ("neither", Estimate(mean=-0.1, low=-0.2, high=0.0), None),
        ("unknown", None, None),
    ),
    plots=(Dots(column="Effect", at=0.0, greys=("neither",)),),
)
ALONG = Rows(
    id="along",
    title="Along training",
    columns={"JS": JS, "Forward KL": NATS},
    rows=(("dpo-8", 0.0, 0.0), ("rl-1", 0.01, 0.02), ("rl-80", Estimate(mean=0.3, low=0.2, high=9.0), 0.4)),
    plots=(Curves(x=(0, 1, 80), columns=("JS",), is_log=True), Curves(x=(0, 1, 80), columns=("Forward KL",))),
)


def parsed(rows: Rows) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(plot) for plot in plots_svg(rows)]


def test_columns_that_nothing_measured_are_left_out_and_intervals_end_at_the_bounds() -> None:
    assert list(EFFECTS.kept.columns) == ["Effect"]
    assert [row[0] for row in EFFECTS.kept.rows] == ["rl-80 & co", "neither"]
    assert EFFECTS.texts[2] == ("unknown", "\N{EN DASH}", "\N{EN DASH}")
    js = ALONG.kept.rows[2][1]
    assert isinstance(js, Estimate)
    assert (js.low, js.high) == (0.2, math.log(2))


def test_a_mean_that_is_not_reliable_is_said_after_its_median() -> None:
    median = Estimate(mean=0.001, low=0.0, high=0.002)
    skewed = SkewedMean(mean=0.2, low=0.1, high=0.9, reliable=False, median=median)
    assert NATS.text(skewed) == "median 0.0010 (0 to 0.0020)"
    assert NATS.text(SkewedMean(mean=0.2, low=0.1, high=0.9, median=median)) == "0.20 (0.10 to 0.90)"


def test_the_file_has_each_number_with_its_ends_and_places() -> None:
    names = "token", "effect_points", "effect_points_low", "effect_points_high", "empty"
    assert tuple(EFFECTS.records[0].items()) == tuple(zip(names, ("rl-80 & co", 50.0, 25.0, 75.0, None), strict=True))
    assert tuple(EFFECTS.records[2].items()) == tuple(zip(names, ("unknown", None, None, None, None), strict=True))
    assert ALONG.records[1] == {
        "name": "rl-1", "rl_step": 1, "js": 0.01, "js_low": None, "js_high": None, "forward_kl": 0.02,
    }  # fmt: skip


def test_points_in_the_file_have_no_digits_of_their_conversion() -> None:
    rows = (("a", Estimate(mean=0.07, low=-0.28, high=0.57)), ("b", 1), ("c", 0.29))
    records = Rows(id="a", title="", columns={"Effect": POINTS}, rows=rows).records
    assert [list(record.values()) for record in records] == [
        ["a", 7.0, -28.0, 57.0],
        ["b", 100.0, None, None],
        ["c", 29.0, None, None],
    ]


def test_all_rows_of_a_plot_share_an_axis() -> None:
    (plot,) = parsed(EFFECTS)
    lines = {kind: [line for line in plot.iter("line") if line.get("class") == kind] for kind in ("zero", "range")}
    (zero,) = lines["zero"]
    texts = [text.text for text in plot.iter("text")]
    assert texts[:5] == ["Effect (percentage points)", "\N{MINUS SIGN}25", "0", "+25", "+50"]
    assert {"rl-80 & co", "neither", "+50 (+25 to +75)"} <= set(texts)
    assert "unknown" not in texts
    # From -25 to +75 points on 92% of the width, from 4%.
    assert float(str(zero.get("x1"))[:-1]) == pytest.approx(4 + 92 * 0.25, abs=0.01)
    own = lines["range"][0]
    assert [float(str(own.get(end))[:-1]) for end in ("x1", "x2")] == pytest.approx([4 + 92 * 0.5, 4 + 92 * 1.0])


def test_curves_of_other_scales_have_plots_of_their_own() -> None:
    first, second = parsed(ALONG.kept)
    assert first.get("aria-label") == second.get("aria-label") == "Along training"
    dots = [[float(str(dot.get("cx"))[:-1]) for dot in plot.iter("circle")] for plot in (first, second)]
    assert dots[0] == pytest.approx([14, 46, 78])  # 0 lies a step left of 1 where places are logarithmic
    assert dots[1] == pytest.approx([14, 14 + 64 / 80, 78], abs=0.01)
    titles = [str(title.text) for title in first.iter("title")]
    assert titles[2] == "JS, rl-80: 0.30 (0.20 to 0.69)"


def test_nothing_is_drawn_where_nothing_was_measured() -> None:
    nothing = Rows(id="a", title="a", columns={"A": SHARE}, rows=(("x", None),), plots=(Dots(column="A"),))
    assert not nothing.measured
    assert list(plots_svg(nothing)) == []


numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: round(value, 6))


@given(numbers, numbers)
def test_ticks_span_the_range_in_few_round_steps(a: float, b: float) -> None:
    low, high = sorted((a, b))
    ticks = nice_ticks(low, high)
    slack = 1e-6 * (ticks[1] - ticks[0])
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    assert 2 <= len(ticks) <= 7


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5))
def test_no_place_lies_outside_a_plot_of_shares(values: list[tuple[float, float, float]]) -> None:
    cells = [Estimate(low=low, mean=mean, high=high) for low, mean, high in map(sorted, values)]
    assert all(0 <= tick <= 100 for tick in axis_ticks(SHARE, cells))
    rows = tuple((f"row {index}", cell) for index, cell in enumerate(cells))
    plot = "".join(plots_svg(Rows(id="a", title="a", columns={"A": SHARE}, rows=rows, plots=(Dots(column="A"),))))
    places = [float(place) for place in re.findall(r'(?:x1|x2|cx)="([-\d.e+]+)%"', plot)]
    assert len(places) >= 3 * len(cells)
    assert all(0 <= place <= 100 for place in places)


@pytest.mark.parametrize(("unit", "value"), [(POINTS, 1.0), (POINTS, -1.0), (SHARE, 0.0), (SHARE, 1.0), (JS, 0.0)])
def test_an_axis_has_two_ends_where_all_lies_at_a_bound(unit: Unit, value: float) -> None:
    ticks = axis_ticks(unit, [value])
    assert ticks[0] < ticks[-1]
    assert ticks[0] <= unit.scale * value <= ticks[-1]


def test_a_long_curve_keeps_its_spikes_in_some_hundred_points() -> None:
    values = [(float(at), 1.0 if at == 2345 else 0.0) for at in range(5000)]
    marks = [Mark(at=at, mean=value, low=value, high=value, text="", is_null=False) for at, value in values]
    kept = thinned(marks)
    assert len(kept) <= 400
    assert marks[2345] in kept
    assert [mark.at for mark in kept] == sorted(mark.at for mark in kept)
    assert thinned(marks[:300]) == marks[:300]


@pytest.mark.parametrize(
    ("chance", "columns", "note"),
    [
        ((0.5, 0.5), [], "Throughout: right 90.0%; chance 50.0%."),
        ((0.5, 0.50001), [], "Throughout: right 90.0%; chance 50.0%."),
        ((0.5, 0.6), ["Right", "Chance"], ""),
    ],
)
def test_a_flat_curve_beside_a_flat_null_is_a_line(chance: tuple[float, float], columns: list[str], note: str) -> None:
    kept = Rows(
        id="a",
        title="a",
        columns={"Right": SHARE, "Chance": SHARE},
        rows=(("rl-1", 0.9, chance[0]), ("rl-2", 0.9, chance[1])),
        plots=(Curves(x=(1, 2), columns=("Right", "Chance"), greys=("Chance",)),),
    ).kept
    assert (list(kept.columns), kept.note, len(kept.plots)) == (columns, note, len(columns) // 2)
