"""Plots of the page as SVG: as wide as their place, with text of one size, and one axis for all rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from operator import itemgetter

from swerve.estimates import Estimate
from swerve.report.rows import Cell, Curves, Dots, Rows, Unit, mean_of

_ROW = 37
"""Height of a row of a dot plot, in pixels: its name above its line."""
_CURVES = 150
_TOP, _BOTTOM = 12, _CURVES - 24
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
    label = escape(rows.title, quote=True)
    for plot in rows.plots if rows.measured else ():
        if isinstance(plot, Dots):
            # A plot beside another has the name of its column over it.
            top = _CAPTION if len(rows.plots) > 1 else 0
            bottom = top + _ROW * len(rows.numbers(plot.column)) + 2
            # Below stand the numbers of the axis, and on a line of its own a unit that is a word.
            height = bottom + (18 if len(rows.columns[plot.column].axis) < 2 else 32)
            parts = _dots(rows, plot, top, bottom)
        else:
            height, parts = _CURVES, _curves(rows, plot)
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
    ends = list(at) or ([0.0] if unit.low == 0 else [])
    for cell in cells:
        if isinstance(cell, Estimate) and (cell.low, cell.high) != (unit.low, unit.high):
            ends += [cell.low, cell.high]
        mean = mean_of(cell)
        if isinstance(mean, int | float):
            ends.append(mean)
    ends = [end for end in ends if math.isfinite(end)]
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
    return f'<text x="{x:.2f}%" y="{y:.4g}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    return f'<line x1="{x:.2f}%" y1="{y:.4g}" x2="{to_x:.2f}%" y2="{to_y:.4g}" class="{kind}"/>'


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _scale(ticks: Sequence[float], start: float, end: float) -> Place:
    """Return where numbers lie on an axis; what is beyond its ends lies at them."""
    low, high = ticks[0], ticks[-1]
    return lambda value: start + (end - start) * (min(max(value, low), high) - low) / (high - low)


def _dots(rows: Rows, plot: Dots, top: int, bottom: int) -> Iterator[str]:
    """Yield a plot with a row for each name, between two heights."""
    unit, cells = rows.columns[plot.column], rows.numbers(plot.column)
    nulls = rows.numbers(plot.null) if plot.null else {}
    zero = [] if plot.at is None else [plot.at]
    band = [value + end for value in zero for end in (-plot.margin, plot.margin)]
    ticks = axis_ticks(unit, [*cells.values(), *nulls.values()], at=band)
    place = _scale(ticks, 1, 99)
    if top:
        yield _text(0, 12, plot.column)
    if plot.margin and band:
        x, width = place(band[0]), place(band[1]) - place(band[0])
        yield f'<rect x="{x:.2f}%" y="{top}" width="{width:.2f}%" height="{bottom - top}" class="margin"/>'

    is_short = len(unit.axis) < 2
    for index, tick in enumerate(ticks, start=1 - len(ticks)):
        yield _line(place(tick), top, place(tick), bottom, "ax")
        text = f"{tick_text(unit, tick)}{'' if index else unit.axis * is_short}"
        anchor = "middle" if 1 - len(ticks) < index < 0 else "start" if index else "end"
        yield _text(place(tick), bottom + 14, text, anchor=anchor)
    if not is_short:
        yield _text(100, bottom + 30, unit.axis, anchor="end")
    for value in zero:
        yield _line(place(value), top, place(value), bottom, "zero")

    # The name of a row, its value, and below them its interval, that of its null first.
    for y, (row, cell) in enumerate(cells.items()):
        name, text, y = str(rows.rows[row][0]), unit.text(cell), top + _ROW * y + 26
        kind = "null" if name in plot.greys else "own"
        yield f'<g class="{kind}">{_text(0, y - 12, _shortened(name, _MAX_NAME), "name")}'
        yield f"{_text(100, y - 12, text, 'value', 'end')}<title>{escape(name)}: {escape(text)}</title>"
        for mark, mark_kind in ((nulls.get(row), "null"), (cell, kind)):
            if isinstance(mark, Estimate):
                yield _line(place(mark.low), y, place(mark.high), y, f"range {mark_kind}")
            if mark is not None:
                yield f'<circle cx="{place(mean_of(mark)):.2f}%" cy="{y}" r="4" class="dot {mark_kind}"/>'
        yield "</g>"


def _curves(rows: Rows, plot: Curves) -> Iterator[str]:
    """Yield a plot of columns along the rows."""
    has_others = len(rows.plots) > 1  # whose lines the title does not name either
    rows, plot = rows.along(plot)
    curves = {name: rows.numbers(name) for name in plot.columns or rows.columns}
    unit = rows.columns[next(iter(curves))]
    ticks = axis_ticks(unit, [*(cell for cells in curves.values() for cell in cells.values()), *plot.levels.values()])
    y, x = _scale(ticks, _BOTTOM, _TOP), [_LEFT + (_RIGHT - _LEFT) * place for place in plot.places]
    for tick in ticks:
        yield _line(_LEFT, y(tick), _RIGHT, y(tick), "ax")
        suffix = unit.axis if unit.axis == "%" and tick == ticks[-1] else ""
        yield _text(_LEFT - 1, y(tick) + 4, f"{tick_text(unit, tick)}{suffix}", anchor="end")
    yield from _x_axis(plot)
    ends = [(y(level.mean), name, "null") for name, level in plot.levels.items()]
    yield from (_line(_LEFT, end, _RIGHT, end, "level") for end, _, _ in ends)

    # Lines are stretched to the width; dots and texts are not.
    for index, (name, cells) in enumerate(curves.items()):
        if not cells:
            continue
        kind = "null" if name in plot.greys else f"own line{index % 4}"
        known = [(x[at], cell) for at, cell in cells.items()]
        yield f'<g class="{kind}">{_curve(thinned(known), y)}'
        for at, cell in cells.items() if len(cells) <= MANY else ():
            text = escape(f"{name}, {rows.rows[at][0]}: {unit.text(cell)}")
            dot = f'<circle cx="{x[at]:.2f}%" cy="{y(mean_of(cell)):.4g}" r="3" class="dot">'
            yield f"{dot}<title>{text}</title></circle>"
        yield "</g>"
        ends.append((y(mean_of(known[-1][1])), name, kind))
    if len(ends) > 1 or has_others:
        yield from _end_names(ends)


def _end_names(ends: Sequence[tuple[float, str, str]]) -> Iterator[str]:
    """Yield the name of each line beside its end, from the lowest up, each with a line of its own."""
    places, free = [], _BOTTOM - 2.0  # above the title of the axis
    ordered = sorted(ends, reverse=True)
    for end, _, _ in ordered:
        places.append(min(end + 4, free))
        free = places[-1] - _LINE
    down = max(0.0, _LINE - places[-1])
    for y, (_, name, kind) in zip(places, ordered, strict=True):
        text = _text(_RIGHT + 1.5, y + down, _shortened(name, _MAX_END), "name")
        yield f'<g class="{kind}"><title>{escape(name)}</title>{text}</g>'


def _x_axis(plot: Curves) -> Iterator[str]:
    """Yield numbers below the axis, as many as there is room for, its title, and where stages end."""
    across, last = _scale((0, 1), _LEFT, _RIGHT), -math.inf
    for at, value in axis_steps(plot):
        text = place_text(value)
        if across(at) - last >= 1.6 * len(text) + 2:
            last = across(at)
            yield _text(last, _CURVES - 8, text, anchor="middle")
    yield _text(100, _CURVES - 8, f"{plot.x_title}{', log' * plot.is_log}", anchor="end")
    last = -math.inf
    for at, name in plot.inner_ends:
        place = across(at)
        yield _line(place, _TOP, place, _BOTTOM, "end")
        if place - last > len(name) + 10:
            last = place
            yield _text(place, 10, f"{name} ends", "null", "middle")


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
        stretch = sorted(points[start : start + size], key=lambda point: mean_of(point[1]))
        kept += sorted({stretch[0], stretch[-1]}, key=itemgetter(0))
    return kept


def _curve(known: Sequence[tuple[float, Estimate | float]], y: Place) -> str:
    """Return a line and the band of its intervals, stretched from a plot 100 wide."""
    line = "L".join(f"{at:.2f} {y(mean_of(cell)):.4g}" for at, cell in known)
    intervals = [(at, cell) for at, cell in known if isinstance(cell, Estimate)]
    edge = [(at, cell.high) for at, cell in intervals] + [(at, cell.low) for at, cell in reversed(intervals)]
    outline = "L".join(f"{at:.2f} {y(value):.4g}" for at, value in edge)
    band = f'<path d="M{outline}Z" class="band"/>' if len(intervals) > 1 else ""
    return (
        f'<svg width="100%" height="{_CURVES}" viewBox="0 0 100 {_CURVES}" preserveAspectRatio="none">{band}'
        f'<path d="M{line}" class="line"/></svg>'
    )
