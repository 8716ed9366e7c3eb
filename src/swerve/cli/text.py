"""Text for people: anything on one line, numbers and intervals, durations, tables, and lines wrapped by word."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence

from swerve.estimates import Estimate, hundredths_interval
from swerve.progress import NOT_MEASURED, one_line


def safe(text: str) -> str:
    r"""Return lines with their indentation and without control characters.

    >>> safe("a\n  b\x1b")
    'a\n  b�'
    """
    return "\n".join(line[: len(line) - len(line.lstrip(" "))] + one_line(line) for line in text.split("\n"))


def width() -> int:
    """Return the columns of the terminal, or COLUMNS; a file or a pipe has as many as a line needs."""
    is_known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return shutil.get_terminal_size().columns if is_known else sys.maxsize


def wrapped(text: str, *, indent: str = "", columns: int | None = None) -> str:
    """Return a paragraph as indented lines that break between words.

    >>> print(wrapped("one two three", indent="  ", columns=9))
      one two
      three
    """
    wrap = textwrap.TextWrapper(
        width=columns or width(),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrap.fill(text)


def number(value: float) -> str:
    """Return a number with as many decimals as its size calls for.

    >>> number(1234.5), number(31.14), number(0.531)
    ('1234', '31.1', '0.53')
    """
    size = abs(value)
    return f"{value:.{0 if size >= 1000 else 1 if size >= 10 else 2}f}"


def interval(value: Estimate | None, *, percent: bool = True) -> str:
    """Return an estimate with the ends of its interval.

    >>> interval(Estimate(mean=0.465, low=0.417, high=0.514)), interval(None)
    ('46.5% [41.7, 51.4]', 'not measured')
    """
    if value is None:
        return NOT_MEASURED
    if percent:
        return hundredths_interval(value, "%")
    return f"{value.mean:.3g} [{value.low:.3g}, {value.high:.3g}]"


def table(rows: Sequence[Sequence[str]], *, are_numbers: bool = False, columns: int | None = None) -> str:
    """Return rows, the heading first, as a table; where that is too wide, each row as a paragraph under its name.

    Args:
        rows: cells without control characters.
        are_numbers: whether the columns after the first are set to the right.
        columns: how wide it may be; the terminal by default.

    >>> print(table([("A", "B"), ("long", "1")]))
    A     B
    long  1
    >>> print(table([("NAME", "WHAT", "WHERE"), ("one", "a short text", "here")], columns=20))
    one
      what a short text,
      where here
    """
    columns = columns or width()
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    sides = ["<", *[">" if are_numbers else "<"] * (len(widths) - 1)]
    if sum(widths) + 2 * len(widths) - 2 <= columns:
        return "\n".join("  ".join(map("{:{}{}}".format, row, sides, widths)).rstrip() for row in rows)

    # Each cell says what it is of.
    heading, *others = rows
    names = [name.lower() if name.isupper() else name for name in heading]
    blocks = []
    for row in others:
        cells = [f"{name} {cell}" for name, cell in zip(names[1:], row[1:], strict=True) if cell not in ("", "-")]
        blocks.append(f"{row[0]}\n{wrapped(', '.join(cells), indent='  ', columns=columns)}")
    return "\n".join(blocks)
