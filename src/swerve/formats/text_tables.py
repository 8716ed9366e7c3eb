"""Tables of finished strings as Markdown and LaTeX, and the order of names with numbers in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
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


def by_number(name: str) -> list[Any]:
    """Return a key by which names are sorted with their numbers as numbers.

    >>> sorted(["10 people", "2 people"], key=by_number)
    ['2 people', '10 people']
    """
    # Every second part is a number, so that equal places of two keys compare.
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", name))]
