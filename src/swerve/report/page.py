"""The report: figures as files, and one page that loads nothing else: a template, scripts, styles and the data."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from swerve.artifacts.files import write_text
from swerve.artifacts.probe_findings import DIVERGENCE_NAMES
from swerve.artifacts.record import num_intervals
from swerve.artifacts.run import RunDirectory
from swerve.config import ReportConfig
from swerve.estimates import false_by_chance
from swerve.report.draw.curves import UNIT_TITLES, Chart
from swerve.report.draw.panels import ChartPart, Section
from swerve.report.figures import figure_specs, write_run_figures
from swerve.report.format import count
from swerve.report.read import ReportInputs, read_inputs
from swerve.report.topics import topics
from swerve.report.topics.topic import Tile
from swerve.report.viewer import compact, viewer_payload

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


def build_report(run: RunDirectory, *, options: ReportConfig) -> Path:
    """Write `report/index.html`, and the run's figures as PNG and PDF, from its artifacts; return the page's path.

    What was not measured is marked as such. Neither torch nor a model is needed. `swerve report --figures` writes the
    figures of chosen problems too, and SVG.

    Raises:
        ArtifactError: there is nothing to report, or an artifact is damaged.
        DiskFullError: no room.
    """
    names = [name for name, spec in figure_specs().items() if not spec.is_of_problem]
    write_run_figures(run, names, formats=("png", "pdf"))
    return write_page(run, options=options)


def write_page(run: RunDirectory, *, options: ReportConfig) -> Path:
    """Write `report/index.html` from a run's artifacts; see `build_report`."""
    inputs = read_inputs(run)
    path = run.report_path / "index.html"
    write_text(path, render_page(inputs, options=options))
    return path


def all_charts(inputs: ReportInputs) -> tuple[Chart, ...]:
    """Return the curves over training, in order; one that was not measured has no points."""
    return tuple(chart for topic in topics() if topic.charts for chart in topic.charts(inputs))


def all_sections(inputs: ReportInputs) -> tuple[Section, ...]:
    """Return the sections after the rollouts, in order; without a probe they say what was not measured."""
    sections = (topic.section(inputs) for topic in topics() if topic.section)
    return tuple(section for section in sections if section is not None)


def all_findings(inputs: ReportInputs) -> Mapping[str, tuple[str, ...]]:
    """Return what the run shows, a claim per sentence, by heading; headings without any are left out."""
    groups = ((name, write) for topic in topics() for name, write in topic.sentences.items())
    findings = {name: tuple(sentence for sentence in write(inputs) if sentence) for name, write in groups}
    return {name: sentences for name, sentences in findings.items() if sentences}


def all_tiles(inputs: ReportInputs) -> tuple[Tile, ...]:
    """Return the headline numbers; one that is missing says so."""
    return tuple(topic.tile(inputs) for topic in topics() if topic.tile)


def render_page(inputs: ReportInputs, *, options: ReportConfig) -> str:
    """Return the whole page of a run as text."""
    charts, sections = all_charts(inputs), all_sections(inputs)

    # Charts inside a section's parts are drawn by the same script as those of the first screen.
    inside = [part.chart for section in sections for part in section.parts if isinstance(part, ChartPart)]
    drawn = [chart for chart in (*charts, *inside) if chart.measured]
    viewer = viewer_payload(inputs, max_rollouts=options.max_rollouts)
    records = [*inputs.evaluations, *([] if inputs.summary is None else [inputs.summary])]
    return fill_template(
        has_run=True,
        title=options.title or inputs.run_name,
        run_name=inputs.run_name,
        data={"charts": [chart_data(chart) for chart in drawn], "viewer": viewer},
        charts=charts,
        unit_titles=UNIT_TITLES,
        findings=all_findings(inputs),
        tiles=all_tiles(inputs),
        provenance=_provenance(inputs),
        config_text=inputs.config_text,
        confidence=inputs.confidence,
        chance=false_by_chance(num_intervals(*records), inputs.confidence),
        summary=inputs.summary,
        has_viewer=viewer is not None,
        divergences=DIVERGENCE_NAMES,
        sections=sections,
    )


def fill_template(*, data: Mapping[str, Any], **context: Any) -> str:
    """Return the page that the template makes of `context`, with its scripts and styles, and `data` for the scripts."""
    # Templates take a moment to import, which importing the package must not.
    import jinja2
    from markupsafe import Markup

    scripts, styles = _asset(_SCRIPTS), _asset(_STYLES)
    template = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).from_string(_asset(("page.html.j2",)))
    return template.render(
        is_study=context.pop("is_study", False),
        policy=_policy(scripts, styles),
        # Files of this package, and JSON escaped for a script element: nothing here is a run's text as it stands.
        script=Markup(scripts),
        style=Markup(styles),
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


def _asset(names: Sequence[str]) -> str:
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


def chart_data(chart: Chart) -> Mapping[str, Any]:
    """Return what the page's script needs of a chart."""
    # Points are lists of numbers, one for each key, null where nothing was measured.
    keys = ("mean", "low", "high") if chart.has_intervals else ("mean",)
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
                    for key in keys
                },
            }
            for curve in chart.curves
        ],
        "levels": [
            {"name": level.name, **{key: compact(getattr(level.value, key)) for key in keys}} for level in chart.levels
        ],
        "stages": [{"name": stage.name, "start": stage.start, "end": stage.end} for stage in chart.stages],
    }


_PROVENANCE = {
    "swerve_version": "swerve",
    "config_hash": "config hash",
    "seed": "seed",
    "torch_version": "torch",
    "transformers_version": "transformers",
    "created": "created",
    "status": "status",
}
"""What stands first, and is called; anything else a run records has its own name."""


def _provenance(inputs: ReportInputs) -> tuple[tuple[str, str], ...]:
    """Return what the run records about itself, as names and values."""
    left_out = ("schema_version", "name", "date", "seconds")  # the last two differ between equal runs
    recorded = {key: value for key, value in inputs.provenance.items() if key not in left_out}
    pairs = [(name, str(recorded[key])) for key, name in _PROVENANCE.items() if recorded.get(key) is not None]
    pairs += [
        (key.replace("_", " "), str(value))
        for key, value in recorded.items()
        if key not in _PROVENANCE and isinstance(value, str | int | float)
    ]
    if inputs.metrics:
        pairs.append(("training steps recorded", count(len(inputs.metrics))))
    if inputs.summary is not None:
        pairs += [("reference", inputs.summary.reference), ("compared", ", ".join(inputs.summary.checkpoints))]
    return tuple(pairs)
