"""One page that loads nothing else: a sentence, a rollout, verdicts, all rollouts, and details in folds."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from swerve.formats.text_tables import csv_text
from swerve.report.draw.svg import plots_svg
from swerve.report.evidence import Evidence, evidence_of
from swerve.report.rollouts import Payload
from swerve.report.rows import Rows, Unit
from swerve.text import count

_SCRIPTS = (
    *("dom.js", "page.js", "evidence.js", "words.js", "address.js", "cells.js"),
    *("reader.js", "list.js", "tokens.js", "beside.js", "raster.js", "links.js"),
)
_STYLES = ("page.css", "reader.css")
# JSON allows these inside strings; inside a script element or a line of JavaScript they could end it.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a page says at first sight: a sentence, what it rests on, and the numbers as a plot."""

    title: str
    id: str = ""
    """Of its anchor, and of its evidence unless that has one of its own; empty: its place."""
    text: str = ""
    evidence: Evidence | None = None
    """The rows that title and text were made of."""
    num: int | None = None
    """How many cases it is of; of few it is not bold."""
    said: str = ""
    """The title without its numbers, by which runs that say it are counted; empty: it is not counted."""
    figures: Mapping[str, tuple[Unit, float | None]] = field(default_factory=dict)
    """Its numbers, by name."""
    lines: tuple[tuple[str, str], ...] = ()
    """What is said one by one, each with what it rests on; a `Sentence` with its evidence."""
    rows: Rows | None = None
    fold: Fold | None = None
    """Its tables, shown on demand below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """Texts as they stand, each shown on demand under a line that says what it is."""

    texts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A topic of a page, shown on demand."""

    id: str
    title: str
    note: str = ""
    """What it has, in a few words."""
    sentences: tuple[str, ...] = ()
    """Those that are a `Sentence` open their rows."""
    parts: tuple[Rows | Texts, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page says. In sentences, texts and lines `**` makes bold and a backtick makes code."""

    title: str
    date: str = ""
    sentence: str
    lead: str = ""
    links: Mapping[str, str] = field(default_factory=dict)
    """Name -> address of a page that belongs to this one."""
    verdicts: tuple[Verdict, ...] = ()
    heading: str = "What the run shows"
    """Above the verdicts."""
    caution: str = ""
    """What limits all verdicts."""
    rollouts: Payload | None = None
    folds: tuple[Fold, ...] = ()
    terms: tuple[tuple[str, str], ...] = ()
    """What words mean that the page uses."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Word of the field -> what it means, shown where it first stands."""
    provenance: str = ""
    """In one line; its fold has the rest."""


def measured_folds(*folds: Fold) -> tuple[Fold, ...]:
    """Return folds with the parts that were measured, without those that nothing is left of."""
    kept = []
    for fold in folds:
        parts = [part.kept if isinstance(part, Rows) else part for part in fold.parts]
        parts = [part for part in parts if (part.measured if isinstance(part, Rows) else part.texts)]
        if parts:
            kept.append(replace(fold, parts=tuple(parts)))
    return tuple(kept)


def render(page: Page) -> str:
    """Return a page as text. It needs no network and runs no script or style but its own."""
    shown = [verdict.rows for verdict in page.verdicts if verdict.rows is not None]
    folds = [*page.folds, *(verdict.fold for verdict in page.verdicts if verdict.fold is not None)]
    shown += [part for fold in folds for part in fold.parts if isinstance(part, Rows)]
    picture = None if page.rollouts is None else page.rollouts.raster
    known = () if picture is None else picture.evidence
    said: list[object] = [page.sentence, *page.verdicts, *(line for each in page.verdicts for line, _ in each.lines)]
    said += [sentence for fold in folds for sentence in fold.sentences]
    data = {
        "csv": {rows.id: csv_text(rows.records) for rows in shown},
        "evidence": {evidence.id: evidence.packed for evidence in (*known, *evidence_of(*said))},
        "words": dict(page.words),
        "rollouts": None if page.rollouts is None else page.rollouts.index,
    }
    return fill_template("page.html.j2", scripts=_SCRIPTS, styles=_STYLES, data=data, page=page)


def fill_template(template: str, *, scripts: Sequence[str], styles: Sequence[str], data: Any, **context: Any) -> str:
    """Return what a template of `assets` makes of `context`, with scripts, styles, and `data` for the scripts."""
    # Templates take a moment to import, which importing the package must not.
    import jinja2
    from markupsafe import Markup

    script, style = _asset(scripts), _asset(styles)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("swerve.report", "assets"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["rich"] = lambda text: Markup(_rich(text))
    environment.filters["count"] = count
    environment.filters["plots"] = lambda rows: list(map(Markup, plots_svg(rows)))
    return environment.get_template(template).render(
        policy=_policy(script, style),
        # Files of this package, and JSON escaped for a script element: nothing here is a run's text as it stands.
        script=Markup(script),
        style=Markup(style),
        data=Markup(json_block(data)),
        **context,
    )


def json_block(value: Any) -> str:
    r"""Return `value` as JSON that can stand inside a script element whatever its strings contain.

    >>> json_block({"text": "</script>"})
    '{"text":"\\u003c/script\\u003e"}'
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def content_hash(content: str) -> str:
    """Return the source expression by which a content security policy allows an inline block.

    >>> content_hash("")
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
    """
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _rich(text: str) -> str:
    """Return escaped text with its bold and code parts as elements.

    >>> _rich("**Up** by <4> at `rl-8`")
    '<b>Up</b> by &lt;4&gt; at <span class="mono">rl-8</span>'
    """
    from markupsafe import escape

    shown = str(escape(text))
    for mark, start, end in (("**", "<b>", "</b>"), ("`", '<span class="mono">', "</span>")):
        pieces = shown.split(mark)
        shown = "".join(piece if index % 2 == 0 else f"{start}{piece}{end}" for index, piece in enumerate(pieces))
    return shown


def _asset(names: Sequence[str]) -> str:
    folder = files("swerve.report") / "assets"
    # The hash is taken over what the browser reads, which has no carriage returns.
    return "\n".join((folder / name).read_text(encoding="utf-8").replace("\r\n", "\n") for name in names)


def _policy(script: str, style: str) -> str:
    assert "</script" not in script.lower()
    assert "</style" not in style.lower()
    return (
        f"default-src 'none'; script-src {content_hash(script)}; style-src {content_hash(style)}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
