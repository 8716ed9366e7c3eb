"""Plots of the page as SVG: as wide as their place, with text of one size."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from html import escape

from swerve.report.draw.plots import Plot, drawn, shortened, spaced
from swerve.report.rows import Rows

_CAPTION = 20
"""Height of the line above a plot that says what it counts, in pixels."""
_ROW, _DOT, _CLEAR = 37, 26, 16
"""Height of a row of dots, its name above them; how far down they lie, and height of the name, where no line runs."""
_NULL = 6
"""How far below a dot what it is to be read against lies."""
_CURVES = 104
"""Height between the ends of an axis upwards."""
_MARGIN = 4
"""Left and right of the axis of dots, in percent of the width: room for half of a number."""
_LEFT, _RIGHT = 14.0, 78.0
"""Where the axes of curves begin and end, in percent of the width; names stand to the right."""
_LINE = 13
_LETTER = 1.6
"""Width of a letter in percent, where a plot is narrow."""
_MAX_NAME, _MAX_END, _MAX_LINES = 50, 16, 10
"""Characters of a name above its row, and of each line of one beside the end of a curve; for so many lines is room."""


def plots_svg(rows: Rows) -> Iterator[str]:
    """Yield the plots of rows as SVG elements; none where nothing was measured.

    Places across are in percent of the width, so a plot fits any width without its text changing size.
    """
    label = escape(rows.title, quote=True)
    for plot in map(partial(drawn, rows), rows.plots if rows.measured else ()):
        height = _CAPTION + _ROW * len(plot.names) + 20 if plot.names else _top(plot) + _CURVES + 38
        parts = "".join(_dots(plot) if plot.names else _curves(plot))
        yield f'<svg class="plot" role="img" aria-label="{label}" width="100%" height="{height}">{parts}</svg>'


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.2f}%" y="{y:.4g}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, kind: str, dashes: str = "") -> str:
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<line x1="{x:.2f}%" y1="{y:.4g}" x2="{to_x:.2f}%" y2="{to_y:.4g}" class="{kind}"{dashed}/>'


def _dots(plot: Plot) -> Iterator[str]:
    """Yield a plot with a row for each name."""

    def place(value: float) -> float:
        return _MARGIN + (100 - 2 * _MARGIN) * plot.axis.place(value)

    # What the dots are and count; grey ones have a name too.
    bottom = _CAPTION + _ROW * len(plot.names)
    key = "".join(
        f'<tspan class="sign{" null" * place}">\N{BLACK CIRCLE}</tspan> '
        f'<tspan class="key{" null" * place}">{escape(shortened(name, _MAX_END))}</tspan>\xa0\xa0 '
        for place, name in enumerate(plot.key)
    )
    yield f'<text x="0" y="12" class="caption">{key}{escape(plot.axis.title)}</text>'

    # Lines of the axis stop at the names, which would be hard to read on them.
    top, dashes = _CAPTION + _CLEAR, f"{_ROW - _CLEAR} {_CLEAR}"
    for tick, text in plot.axis.ticks:
        yield _line(place(tick), top, place(tick), bottom, "ax", dashes)
        yield _text(place(tick), bottom + 14, text, anchor="middle")
    for level in plot.levels.values():
        x, width = place(level.low), place(level.high) - place(level.low)
        yield f'<rect x="{x:.2f}%" y="{top}" width="{width:.2f}%" height="{bottom - top}" class="margin"/>'
        yield _line(place(level.mean), top, place(level.mean), bottom, "zero", dashes)

    # The name of a row and its value above its dots, and what it is to be read against a little lower.
    for below, (column, marks) in reversed([*enumerate(plot.columns.items())]):
        for mark in marks:
            name, y = plot.names[int(mark.at)], _CAPTION + _ROW * mark.at + _DOT + _NULL * below
            low, middle, high = map(place, (mark.low, mark.mean, mark.high))
            said = escape(f"{column if below else name}: {mark.text}")
            yield f'<g class="{"null" if mark.is_null else "own"}"><title>{said}</title>'
            if not below:
                yield _text(0, y - 12, shortened(name, _MAX_NAME), "name")
                yield _text(100, y - 12, mark.text, "value", "end")
            yield _line(low, y, high, y, "range") * (low < high)
            yield f'<circle cx="{middle:.2f}%" cy="{y:.4g}" r="4" class="dot"/></g>'


def _top(plot: Plot) -> int:
    """Return how far down the axis of a plot of lines begins: below what it counts, and the ends of stages."""
    return _CAPTION + _LINE * bool(plot.ends) + 8


def _curves(plot: Plot) -> Iterator[str]:
    """Yield a plot of lines."""
    top, letters = _top(plot), (_RIGHT - _LEFT) / _LETTER
    bottom = top + _CURVES

    def across(at: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * at

    def up(value: float) -> float:
        return bottom - _CURVES * plot.axis.place(value)

    # Both axes with what they count, and where stages end.
    yield _text(0, 12, plot.axis.title, "caption")
    for tick, text in plot.axis.ticks:
        yield _line(_LEFT, up(tick), _RIGHT, up(tick), "ax")
        yield _text(_LEFT - 1, up(tick) + 4, text, anchor="end")
    for at, text in spaced(plot.along.ticks, letters).items():
        yield _text(across(at), bottom + 18, text, anchor="middle")
    yield _text(_RIGHT, bottom + 33, plot.along.title, "caption", "end")
    yield from (_line(across(at), top, across(at), bottom, "end") for at, _ in plot.ends)
    for at, text in spaced(plot.ends, letters).items():
        yield _text(across(at), top - 8, text, "null", "middle")
    yield from (_line(_LEFT, up(level.mean), _RIGHT, up(level.mean), "level") for level in plot.levels.values())

    # Lines are stretched to the width; dots and texts are not.
    names = [(up(level.mean), name, "null") for name, level in plot.levels.items()]
    for number, (name, marks) in enumerate(plot.columns.items()):
        if not marks:
            continue
        kind = "null" if marks[0].is_null else f"own shade{number % 3} dashes{number % 4}"
        points = [(across(mark.at), up(mark.low), up(mark.mean), up(mark.high)) for mark in marks]
        yield f'<g class="{kind}">{_stretched(points, bottom + 4)}'
        for mark, (x, _, y, _) in zip(marks, points, strict=True):
            dot = f'<circle cx="{x:.2f}%" cy="{y:.4g}" r="3" class="dot"><title>{escape(mark.text)}</title></circle>'
            yield dot * bool(mark.text)
        yield "</g>"
        names.append((points[-1][2], name, kind))
    if len(names) > 1:
        yield from _end_names(names, bottom)


def _stretched(points: Sequence[tuple[float, float, float, float]], height: int) -> str:
    """Return a line and the band of its intervals, stretched from a plot 100 wide."""
    line = "L".join(f"{x:.2f} {y:.4g}" for x, _, y, _ in points)
    edge = [(x, high) for x, _, _, high in points] + [(x, low) for x, low, _, _ in reversed(points)]
    outline = "L".join(f"{x:.2f} {y:.4g}" for x, y in edge)
    band = f'<path d="M{outline}Z" class="band"/>' if any(low > high for _, low, _, high in points) else ""
    return (
        f'<svg width="100%" height="{height}" viewBox="0 0 100 {height}" preserveAspectRatio="none">{band}'
        f'<path d="M{line}" class="line"/></svg>'
    )


def _end_names(ends: Sequence[tuple[float, str, str]], bottom: int) -> Iterator[str]:
    """Yield the name of each line beside its end, from the lowest up, each with lines of its own."""
    most = 2 * _MAX_END if 2 * len(ends) <= _MAX_LINES else _MAX_END
    texts, free = list[tuple[float, list[str], str, str]](), bottom + 2.0 * _LINE
    for end, name, kind in sorted(ends, reverse=True):
        lines = textwrap.wrap(shortened(name, most), _MAX_END)
        free = min(end + 4 - _LINE * (len(lines) - 1) / 2, free - _LINE * len(lines))
        texts.append((free, lines, name, kind))
    down = max(0.0, _LINE - free)
    for y, lines, name, kind in texts:
        parts = (_text(_RIGHT + 1.5, y + down + _LINE * at, line, "name") for at, line in enumerate(lines))
        yield f'<g class="{kind}"><title>{escape(name)}</title>{"".join(parts)}</g>'
