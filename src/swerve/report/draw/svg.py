"""Plots of the page as SVG: as wide as their place, with text of one size, and one axis for all rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from operator import itemgetter

from swerve.estimates import Estimate
from swerve.report.rows import Cell, Curves, Dots, Rows, Unit

_ROW = 37
"""Height of a row of a dot plot, in pixels: its name above its line."""
_CURVES = 150
_LEFT, _RIGHT = 14.0, 78.0
"""Where the axes of curves begin and end, in percent of the width; names stand to the right."""
_LINE = 13
_CAPTION = 24
"""Height of what stands over a plot of dots beside another: the name of its column."""
MANY, MAX_POINTS = 24, 400
"""Curves of more places have no dots and round numbers along their axis; of more points some are left out."""
_MAX_NAME, _MAX_END = 50, 15
"""Characters of a name above its row, and beside the end of its line."""

Place = Callable[[float], float]
"""Where a number lies, in percent across or in pixels down."""


def plots_svg(rows: Rows) -> Iterator[str]:
    """Yield the plots of rows as SVG elements; none where nothing was measured.

    Places across are in percent of the width, so a plot fits any width without its text changing size.
    """
    for plot in rows.plots if rows.measured else ():
        height, parts = _dots(rows, plot) if isinstance(plot, Dots) else _curves(rows, plot)
        label = escape(rows.title, quote=True)
        yield f'<svg class="plot" role="img" aria-label="{label}" width="100%" height="{height}">{"".join(parts)}</svg>'


def nice_ticks(low: float, high: float, *, num: int = 4) -> list[float]:
    """Return round numbers that span a range, at most about `num` steps apart.

    >>> nice_ticks(0, 0.93), nice_ticks(-0.21, 0.6)
    ([0.0, 0.25, 0.5, 0.75, 1.0], [-0.25, 0.0, 0.25, 0.5, 0.75])
    """
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / num))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor * num >= span * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{step * index:.12g}") for index in range(first, max(last, first + 1) + 1)]


def axis_ticks(unit: Unit, cells: Sequence[Cell], *, at: Sequence[float] = ()) -> list[float]:
    """Return the ticks of the axis that some cells lie on, inside the bounds of their unit.

    >>> from swerve.report.rows import JS, SHARE
    >>> axis_ticks(SHARE, [Estimate(mean=0.01, low=0.0, high=1.0), 0.02])  # an interval of everything needs no room
    [0.0, 0.005, 0.01, 0.015, 0.02]
    >>> axis_ticks(JS, [0.68])
    [0.0, 0.2, 0.4, 0.6, 0.693...]
    """
    ends: list[float] = []
    for cell in cells:
        if isinstance(cell, Estimate):
            is_any = (cell.low, cell.high) == (unit.low, unit.high)
            ends += [cell.mean] if is_any else [cell.low, cell.high, cell.mean]
        elif isinstance(cell, int | float):
            ends.append(cell)
    ends = [end for end in ends if math.isfinite(end)]
    ends += at or ([0.0] if unit.low == 0 else [])
    if not ends:
        return [0.0, 1.0]
    scaled = nice_ticks(min(ends) * unit.scale, max(ends) * unit.scale)
    ticks = [tick / unit.scale for tick in scaled if unit.low - 1e-9 <= tick / unit.scale <= unit.high + 1e-9]
    if ticks and max(ends) > ticks[-1] + 1e-9:  # up to a bound that is no round number
        ticks.append(unit.high)
    return ticks if len(ticks) > 1 else [min(ends), max(ends)]


def tick_text(unit: Unit, value: float) -> str:
    """Return the number at a tick."""
    sign = "+" if unit.low < 0 < value and math.isfinite(unit.low) else ""
    return f"{sign}{value * unit.scale:.4g}".replace("-", "\N{MINUS SIGN}")


def place_text(value: float) -> str:
    """Return the name of a place along an axis, such as a step.

    >>> place_text(12000), place_text(0.01234)
    ('12,000', '0.012')
    """
    return (f"{value:,.0f}" if value == int(value) else f"{value:.2g}").replace("-", "\N{MINUS SIGN}")


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.2f}%" y="{y:g}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    return f'<line x1="{x:.2f}%" y1="{y:g}" x2="{to_x:.2f}%" y2="{to_y:g}" class="{kind}"/>'


def _dots(rows: Rows, plot: Dots) -> tuple[int, Iterator[str]]:
    """Return the height and the parts of a plot with a row for each name."""
    unit = rows.columns[plot.column]
    nulls = rows.column(plot.null) if plot.null else (None,) * len(rows.rows)
    drawn = [
        (str(row[0]), cell, null)
        for row, cell, null in zip(rows.rows, rows.column(plot.column), nulls, strict=True)
        if isinstance(cell, Estimate | float | int)
    ]
    at: tuple[float, ...] = () if plot.at is None else (plot.at,)
    band = tuple(value + end for value in at for end in (-plot.margin, plot.margin))
    ticks = axis_ticks(unit, [cell for _, *pair in drawn for cell in pair], at=band)
    heading = [_text(0, 12, plot.column)] if len(rows.plots) > 1 else []
    top = _CAPTION * len(heading)
    is_short = len(unit.axis) < 2
    below = 18 if is_short else 32
    height = top + _ROW * len(drawn) + below + 2

    def place(value: float) -> float:
        inside = min(max(value, ticks[0]), ticks[-1])
        return 1 + 98 * (inside - ticks[0]) / (ticks[-1] - ticks[0])

    def parts() -> Iterator[str]:
        yield from heading
        if plot.margin and band:
            x, width = place(band[0]), place(band[1]) - place(band[0])
            yield f'<rect x="{x:.2f}%" y="{top}" width="{width:.2f}%" height="{height - below - top}" class="margin"/>'
        for tick in ticks:
            x = place(tick)
            yield _line(x, top, x, height - below, "ax")
            anchor = "start" if x < 3 else "end" if x > 97 else "middle"
            suffix = unit.axis if is_short and tick == ticks[-1] else ""
            yield _text(x, height - below + 14, f"{tick_text(unit, tick)}{suffix}", anchor=anchor)
        if not is_short:
            yield _text(100, height - 2, unit.axis, anchor="end")
        for value in at:
            yield _line(place(value), top, place(value), height - below, "zero")

        # The name of a row, its value, and below them its interval, that of its null first.
        for index, (name, cell, null) in enumerate(drawn):
            y, kind = top + _ROW * index + 26, "null" if name in plot.greys else "own"
            yield f'<g class="{kind}">'
            yield _text(0, y - 12, name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…", "name")
            yield _text(100, y - 12, unit.text(cell), "value", "end")
            yield f"<title>{escape(name)}: {escape(unit.text(cell))}</title>"
            if isinstance(null, Estimate | float | int):
                yield from _mark(null, y, place, "null")
            yield from _mark(cell, y, place, kind)
            yield "</g>"

    return height, parts()


def _mark(cell: Estimate | float, y: float, place: Place, kind: str) -> Iterator[str]:
    if isinstance(cell, Estimate):
        yield _line(place(cell.low), y, place(cell.high), y, f"range {kind}")
    yield f'<circle cx="{place(_mean(cell)):.2f}%" cy="{y}" r="4" class="dot {kind}"/>'


def _curves(rows: Rows, plot: Curves) -> tuple[int, Iterator[str]]:
    """Return the height and the parts of a plot of columns along the rows."""
    has_others = len(rows.plots) > 1  # whose lines the title does not name either
    rows, plot = rows.along(plot)
    names = plot.columns or tuple(rows.columns)
    unit = rows.columns[names[0]]
    cells = [cell for name in names for cell in rows.column(name)]
    ticks = axis_ticks(unit, [*cells, *plot.levels.values()])
    top, bottom = 12, _CURVES - 24

    def y(value: float) -> float:
        inside = min(max(value, ticks[0]), ticks[-1])
        return round(bottom - (bottom - top) * (inside - ticks[0]) / (ticks[-1] - ticks[0]), 1)

    x = [_LEFT + (_RIGHT - _LEFT) * place for place in plot.places]

    def parts() -> Iterator[str]:
        for tick in ticks:
            yield _line(_LEFT, y(tick), _RIGHT, y(tick), "ax")
            suffix = unit.axis if unit.axis == "%" and tick == ticks[-1] else ""
            yield _text(_LEFT - 1, y(tick) + 4, f"{tick_text(unit, tick)}{suffix}", anchor="end")
        yield from _x_axis(plot, x)
        ends = []
        for name, level in plot.levels.items():
            yield _line(_LEFT, y(level.mean), _RIGHT, y(level.mean), "level")
            ends.append((y(level.mean), name, "null"))

        # Lines are stretched to the width; dots and texts are not.
        for index, name in enumerate(names):
            kind = "null" if name in plot.greys else f"own line{index % 4}"
            known = [
                (at, cell)
                for at, cell in zip(x, rows.column(name), strict=True)
                if isinstance(cell, Estimate | float | int)
            ]
            if not known:
                continue
            yield f'<g class="{kind}">'
            yield from _curve(thinned(known), y)
            for at, cell in known if len(known) <= MANY else ():
                text = escape(f"{name}, {rows.rows[x.index(at)][0]}: {unit.text(cell)}")
                dot = f'<circle cx="{at:.2f}%" cy="{y(_mean(cell)):g}" r="3" class="dot">'
                yield f"{dot}<title>{text}</title></circle>"
            yield "</g>"
            ends.append((y(_mean(known[-1][1])), name, kind))
        if len(ends) > 1 or has_others:
            yield from _end_names(ends, bottom)

    return _CURVES, parts()


def _end_names(ends: Sequence[tuple[float, str, str]], bottom: float) -> Iterator[str]:
    """Yield the name of each line beside its end, from the lowest up, each with a line of its own."""
    places, free = [], bottom - 2  # above the title of the axis
    ordered = sorted(ends, reverse=True)
    for end, _, _ in ordered:
        places.append(min(end + 4, free))
        free = places[-1] - _LINE
    down = max(0.0, _LINE - places[-1])
    for y, (_, name, kind) in zip(places, ordered, strict=True):
        shown = name if len(name) <= _MAX_END else f"{name[: _MAX_END - 1]}…"
        yield f'<g class="{kind}"><title>{escape(name)}</title>{_text(_RIGHT + 1.5, y + down, shown, "name")}</g>'


def _mean(cell: Estimate | float) -> float:
    return cell.mean if isinstance(cell, Estimate) else cell


def _x_axis(plot: Curves, x: Sequence[float]) -> Iterator[str]:
    """Yield numbers below the axis, as many as there is room for, its title, and where stages end."""
    last = -math.inf
    for at, value in axis_steps(plot):
        place, text = _LEFT + (_RIGHT - _LEFT) * at, place_text(value)
        if place - last >= 1.6 * len(text) + 2:
            yield _text(place, _CURVES - 8, text, anchor="middle")
            last = place
    place = _RIGHT + 1.5 if x[-1] < _RIGHT - 4 else min(99.0, _RIGHT + 4)
    yield _text(place, _CURVES - 8, f"{plot.x_title}{', log' * plot.is_log}")
    last = -math.inf
    for at, name in plot.inner_ends:
        place = _LEFT + (_RIGHT - _LEFT) * at
        yield _line(place, 12, place, _CURVES - 24, "end")
        if place - last > len(name) + 10:
            yield _text(place, 10, f"{name} ends", "null", "middle")
            last = place


def axis_steps(plot: Curves) -> list[tuple[float, float]]:
    """Return what can stand along the axis: each place, from 0 to 1, with its step; round steps where there are many.

    >>> axis_steps(Curves(x=tuple(range(1, 102))))
    [(0.24, 25.0), (0.49, 50.0), (0.74, 75.0), (0.99, 100.0)]
    """
    if len(plot.x) <= MANY or plot.is_log:
        return list(zip(plot.places, plot.x, strict=True))
    first, last = plot.x[0], plot.x[-1]
    return [((tick - first) / (last - first), tick) for tick in nice_ticks(first, last) if first <= tick <= last]


def thinned(points: Sequence[tuple[float, Estimate | float]]) -> list[tuple[float, Estimate | float]]:
    """Return some hundred points of many thousand: of each stretch the lowest and the highest, so no spike is lost."""
    size = -(-2 * len(points) // MAX_POINTS) if len(points) > MAX_POINTS else 1
    kept: list[tuple[float, Estimate | float]] = []
    for start in range(0, len(points), size):
        stretch = sorted(points[start : start + size], key=lambda point: _mean(point[1]))
        kept += sorted(dict([stretch[0], stretch[-1]]).items(), key=itemgetter(0))
    return kept


def _curve(known: Sequence[tuple[float, Estimate | float]], y: Place) -> Iterator[str]:
    """Yield a line and the band of its intervals, stretched from a plot 100 wide."""
    line = "L".join(f"{at:.2f} {y(_mean(cell)):g}" for at, cell in known)
    upper = [f"{at:.2f} {y(cell.high):g}" for at, cell in known if isinstance(cell, Estimate)]
    lower = [f"{at:.2f} {y(cell.low):g}" for at, cell in known if isinstance(cell, Estimate)]
    band = f'<path d="M{"L".join([*upper, *reversed(lower)])}Z" class="band"/>' if len(upper) > 1 else ""
    yield (
        f'<svg width="100%" height="{_CURVES}" viewBox="0 0 100 {_CURVES}" preserveAspectRatio="none">{band}'
        f'<path d="M{line}" class="line"/></svg>'
    )
