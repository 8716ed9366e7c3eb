"""One page that loads nothing else: a sentence, a rollout, verdicts, all rollouts, and details in folds."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any, TypeAlias

from swerve.artifacts.excerpts import AskedProblem
from swerve.formats.text_tables import csv_text
from swerve.report.draw.svg import plots_svg
from swerve.report.evidence import Evidence, evidence_of
from swerve.report.names import without_folders
from swerve.report.rollouts import Payload
from swerve.report.rows import Rows, Unit
from swerve.text import count
from swerve.version import __version__

_SCRIPTS = (
    *("dom.js", "tables.js", "page.js", "evidence.js", "words.js", "address.js", "cells.js"),
    *("text.js", "film.js", "models.js", "swaps.js", "reader.js"),
    *("list.js", "tokens.js", "beside.js", "raster.js", "links.js"),
)
_STYLES = ("page.css", "reader.css")
Shaded: TypeAlias = tuple[tuple[str, float], ...]
"""Tokens, each with how deep its shade is, -1 to 1: those below 0 are underlined."""
_SHADES, _FAINT = 15, 3
_SHORT = 20
"""Characters of code that stay on one line, as names of models do."""
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
    """Texts as they stand, each under a line that says what it is: shown on demand, those of shaded tokens at once."""

    texts: tuple[tuple[str, str | Shaded], ...]
    title: str = ""
    note: str = ""


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
    kind: str = "report"
    """What its title and what is copied of it call it."""
    date: str = ""
    sentence: str
    lead: str = ""
    story: str = ""
    """Below the first rollout: what was compared."""
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
    held: Mapping[str, AskedProblem | Evidence] = field(default_factory=dict)
    """What rows open, by `Evidence.opens` and their first cell: what was written to a problem, or further rows."""
    provenance: str = ""
    """In one line; its fold has the rest."""


def opening(page: Page) -> list[tuple[Evidence, str]]:
    """Return the rows of the first sentence and of the lead, each with the text it is of; rows of both come once."""
    first, lead = (next(iter(evidence_of(said)), None) for said in (page.sentence, page.lead))
    if first is not None and lead is not None and first.columns.keys() <= lead.columns.keys():
        return [(replace(lead, figures=(*first.figures, *lead.figures)), f"{page.sentence} {page.lead}")]
    return [(each, text) for each, text in ((first, page.sentence), (lead, page.lead)) if each is not None]


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
    said: list[object] = [
        page.sentence,
        page.lead,
        page.story,
        page.caution,
        *page.verdicts,
        *(line for each in page.verdicts for line, _ in each.lines),
    ]
    said += [sentence for fold in folds for sentence in fold.sentences]
    opened = {
        "csv": {rows.id: csv_text(rows.records) for rows in shown},
        "evidence": {evidence.id: evidence.packed for evidence in (*known, *evidence_of(*said))},
        "held": {key: _held(each) for key, each in page.held.items()},
    }
    data = {
        "opened": base64.b64encode(gzip.compress(json_block(opened).encode(), mtime=0)).decode("ascii"),
        "words": dict(page.words),
        "rollouts": None if page.rollouts is None else page.rollouts.index,
    }
    return fill_template("page.html.j2", scripts=_SCRIPTS, styles=_STYLES, data=data, page=page)


def _held(each: AskedProblem | Evidence) -> Mapping[str, Any]:
    if isinstance(each, Evidence):
        return {**each.packed, "note": each.note}
    return each.model_dump(exclude={"problem"})


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
    environment.filters["bare"] = without_folders
    environment.filters["opening"] = opening
    environment.filters["shade"] = _shade
    environment.filters["plots"] = lambda rows: list(map(Markup, plots_svg(rows)))
    return environment.get_template(template).render(
        policy=_policy(script, style),
        version=__version__,
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
    """Return escaped text with its bold and code parts as elements; short code is not broken at its hyphens.

    >>> _rich("**Up** by <4> at `rl-8`")
    '<b>Up</b> by &lt;4&gt; at <span class="mono nowrap">rl-8</span>'
    """
    from markupsafe import escape

    shown = str(escape(text))
    pieces = shown.split("**")
    shown = "".join(piece if index % 2 == 0 else f"<b>{piece}</b>" for index, piece in enumerate(pieces))
    pieces = shown.split("`")
    kinds = ("mono nowrap" if len(piece) <= _SHORT else "mono" for piece in pieces)
    return "".join(
        piece if index % 2 == 0 else f'<span class="{kind}">{piece}</span>'
        for index, (piece, kind) in enumerate(zip(pieces, kinds, strict=True))
    )


def _shade(depth: float) -> str:
    """Return the class of a token that is shaded, by the square root as in the reader; faint ones are not underlined.

    >>> _shade(0.25), _shade(-1.0), _shade(-0.01)
    ('q8', 'q15 less', 'q2')
    """
    level = round(_SHADES * math.sqrt(abs(depth)))
    return f"q{level}{' less' if depth < 0 and level > _FAINT else ''}"


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
