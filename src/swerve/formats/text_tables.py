"""Tables as Markdown, LaTeX and CSV, and the order of names with numbers in them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$"}
_LATEX |= {character: f"\\{character}" for character in "&%$#_{}"} | {"\N{MINUS SIGN}": "$-$"}


def markdown_table(rows: Sequence[Sequence[str]], *, num_names: int = 1) -> str:
    r"""Return rows, the heading first, as a Markdown table; columns after the first `num_names` are set to the right.

    >>> print(markdown_table([("variant", "accuracy"), ("a|b", "50%")]), end="")
    | variant | accuracy |
    | --- | ---: |
    | a\|b | 50% |
    """
    heading, *rest = ([cell.replace("|", r"\|") for cell in row] for row in rows)
    rule = [*["---"] * num_names, *["---:"] * (len(heading) - num_names)]
    return "".join(f"| {' | '.join(row)} |\n" for row in (heading, rule, *rest))


def latex_table(rows: Sequence[Sequence[str]], *, num_names: int = 1) -> str:
    r"""Return rows, the heading first, as a `tabular` of the package booktabs.

    >>> print(latex_table([("variant", "accuracy"), ("a_b", "50%")]), end="")
    \begin{tabular}{lr}
    \toprule
    variant & accuracy \\
    \midrule
    a\_b & 50\% \\
    \bottomrule
    \end{tabular}
    """
    escaped = [["".join(_LATEX.get(character, character) for character in cell) for cell in row] for row in rows]
    heading, *rest = (f"{' & '.join(row)} \\\\" for row in escaped)
    columns = "l" * num_names + "r" * (len(rows[0]) - num_names)
    framed = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", heading, r"\midrule", *rest, r"\bottomrule"]
    return "\n".join([*framed, r"\end{tabular}"]) + "\n"


def table_of(rows: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """Return rows under the keys of all of them, the heading first; a column that every row leaves empty is left out.

    >>> table_of([{"name": "a", "p": "", "n": ""}, {"name": "b", "n": "3"}])
    [['name', 'n'], ['a', ''], ['b', '3']]
    """
    heading = [name for name in dict.fromkeys(key for row in rows for key in row) if any(row.get(name) for row in rows)]
    return [heading, *([row.get(name, "") for name in heading] for row in rows)]


def csv_text(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = (), *, digits: int | None = None) -> str:
    r"""Return rows as CSV under some columns and the keys of all rows, numbers with all or so many of their digits.

    >>> csv_text([{"a": 1 / 3}, {"a": None, "b": "x,y"}], digits=2)
    'a,b\n0.33,\n,"x,y"\n'
    """
    text = io.StringIO()
    keys = dict.fromkeys((*columns, *(key for row in rows for key in row)))
    writer = csv.DictWriter(text, list(keys), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        numbers = {key: f"{cell:.{digits}g}" for key, cell in row.items() if digits and isinstance(cell, float)}
        writer.writerow({**row, **numbers})
    return text.getvalue()


def by_number(name: str) -> list[Any]:
    """Return a key by which names are sorted with their numbers as numbers.

    >>> sorted(["10 people", "2 people"], key=by_number)
    ['2 people', '10 people']
    """
    # Every second part is a number, so that equal places of two keys compare.
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", name))]
