"""Text for people: anything on one line, tables, and lines wrapped by word."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence

from swerve.progress import one_line


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
