"""The page: a template, its scripts and styles, and the data, in one file that loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from swerve.config import ReportConfig
from swerve.report.charts import all_charts, dose_charts
from swerve.report.curves import UNIT_TITLES, Chart
from swerve.report.findings import finding_groups, tiles
from swerve.report.inputs import ReportInputs
from swerve.report.sections import provenance, topics
from swerve.report.values import DIVERGENCE_NAMES
from swerve.report.viewer import compact, viewer_payload

__all__ = ["content_hash", "json_block", "render_page"]

_SCRIPTS = (
    "uplot.iife.min.js",
    "dom.js",
    "colour.js",
    "curves.js",
    "tooltip.js",
    "positions.js",
    "viewer.js",
    "start.js",
)
_STYLES = ("uplot.min.css", "page.css", "viewer.css")
# JSON allows these inside strings; inside a script element or a line of JavaScript they could end it.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


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


def render_page(inputs: ReportInputs, *, options: ReportConfig) -> str:
    """Return the whole page as text."""
    scripts, styles = _asset(_SCRIPTS), _asset(_STYLES)
    charts = all_charts(inputs)
    drawn = [chart for chart in (*charts, *dose_charts(inputs.summary)) if chart.measured]
    viewer = viewer_payload(inputs, max_rollouts=options.max_rollouts)
    template = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).from_string(_asset(("page.html.j2",)))
    return template.render(
        title=options.title or inputs.run_name,
        run_name=inputs.run_name,
        policy=_policy(scripts, styles),
        # Files of this package, and JSON escaped for a script element: nothing here is a run's text as it stands.
        script=Markup(scripts),
        style=Markup(styles),
        data=Markup(json_block({"charts": [_chart(chart) for chart in drawn], "viewer": viewer})),
        charts=charts,
        unit_titles=UNIT_TITLES,
        findings=finding_groups(inputs),
        tiles=tiles(inputs),
        provenance=provenance(inputs),
        config_text=inputs.config_text,
        confidence=inputs.confidence,
        summary=inputs.summary,
        notes=[] if inputs.summary is None else [str(note) for note in inputs.summary.get("notes") or []],
        has_viewer=viewer is not None,
        divergences=DIVERGENCE_NAMES,
        topics=topics(inputs),
        is_imported=inputs.is_imported,
        is_greedy=(inputs.summary or {}).get("selection", "greedy") == "greedy",
    )


def _asset(names: tuple[str, ...]) -> str:
    folder = files("swerve.report") / "assets"
    # The hash is taken over what the browser reads, which has no carriage returns.
    return "\n".join((folder / name).read_text(encoding="utf-8").replace("\r\n", "\n") for name in names)


def _policy(script: str, style: str) -> str:
    assert "</script" not in script.lower()
    assert "</style" not in style.lower()
    return (
        f"default-src 'none'; script-src {content_hash(script)}; style-src {content_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _chart(chart: Chart) -> Mapping[str, Any]:
    return {
        "id": chart.id,
        "title": chart.title,
        "unit": chart.unit,
        "labels": chart.labels,
        "steps": chart.steps,
        "x_title": chart.x_title,
        "x_unit": chart.x_unit,
        "has_intervals": chart.has_intervals,
        "curves": [
            {
                "name": curve.name,
                **{
                    key: [None if point is None else compact(getattr(point, key)) for point in curve.points]
                    for key in (("mean", "low", "high") if chart.has_intervals else ("mean",))
                },
            }
            for curve in chart.curves
        ],
        "levels": [
            {"name": level.name, **{key: compact(getattr(level.value, key)) for key in ("mean", "low", "high")}}
            for level in chart.levels
        ],
        "stages": [{"name": stage.name, "start": stage.start, "end": stage.end} for stage in chart.stages],
    }
