"""What a notebook shows of results: small tables and coloured tokens, as HTML alone."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

HUE, GREY, INK = "#b8430f", "#7d766d", "#1c1a17"
"""Of what training did, of what it is read against, and of text: on pages, in notebooks and in figures."""
_MOST = 180
"""Opacity of the highest value, of 255: text on it can be read."""


def html_rows(rows: Iterable[tuple[str, str]]) -> str:
    """Return names and values as a table of two columns.

    >>> html_rows([("run", "a<b")])
    '<table><tr><th style="text-align: left">run</th><td style="text-align: left">a&lt;b</td></tr></table>'
    """
    left = ' style="text-align: left"'
    cells = (f"<tr><th{left}>{html.escape(name)}</th><td{left}>{html.escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{''.join(cells)}</table>"


def coloured_tokens(tokens: Sequence[str], values: Sequence[float], *, title: str, unit: str = "nats") -> str:
    """Return a text whose tokens are the darker the higher their value; pointing at one shows the value.

    The shade is the square root of the value over the highest, so that small values can be told from none.

    >>> print(coloured_tokens(["1", " <"], [0.0, 0.5], title="js"))
    <p>js (white 0, orange 0.5 nats)</p><pre style="white-space: pre-wrap"><span
    title="0: 0 nats" style="background: #b8430f00">1</span><span
    title="1: 0.5 nats" style="background: #b8430fb4"> &lt;</span></pre>
    """
    highest = max((value for value in values if math.isfinite(value)), default=0.0)
    spans = []
    for position, (token, value) in enumerate(zip(tokens, values, strict=True)):
        shade = math.sqrt(min(value / highest, 1.0)) if highest > 0 else 0.0
        hint = html.escape(f"{position}: {value:.3g} {unit}", quote=True)
        style = f"background: {HUE}{round(_MOST * shade):02x}"
        spans.append(f'<span\ntitle="{hint}" style="{style}">{html.escape(token)}</span>')
    heading = html.escape(f"{title} (white 0, orange {highest:.3g} {unit})")
    return f'<p>{heading}</p><pre style="white-space: pre-wrap">{"".join(spans)}</pre>'
