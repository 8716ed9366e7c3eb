"""The figures of a run by name: which there are, which can be drawn, and their files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from swerve.artifacts.run import RunDirectory
from swerve.report.draw.figures import DEFAULT_LOOK, FORMATS, Drawing, Look, check_names, rows_drawing, write_figures
from swerve.report.read import ReportInputs, read_inputs
from swerve.report.topics import topics
from swerve.report.topics.topic import FigureSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFigures:
    """What was written, and what could not be."""

    figures: tuple[Path, ...]
    missing: Mapping[str, str]
    """Name of a figure whose data are missing -> what it needs."""


def figure_specs() -> dict[str, FigureSpec]:
    """Return every figure that a run or a probe can have, by name."""
    return {name: spec for topic in topics() for name, spec in topic.figures.items()}


def drawings(inputs: ReportInputs, names: Collection[str]) -> dict[str, tuple[Drawing, ...]]:
    """Return the figures of these names whose numbers were measured."""
    drawn: dict[str, tuple[Drawing, ...]] = {}
    for topic in topics():
        specs = {name: spec for name, spec in topic.figures.items() if name in names}
        is_of_rows = any(spec.draw is None for spec in specs.values())
        rows = {rows.id: rows for rows in topic.rows(inputs)} if is_of_rows and topic.rows is not None else {}
        for name, spec in specs.items():
            made = spec.draw(inputs) if spec.draw is not None else [rows_drawing(rows[name])] if name in rows else []
            drawn[name] = tuple(drawing for drawing in made if drawing.panels)
    return {name: made for name, made in drawn.items() if made}


def write_run_figures(
    run: RunDirectory,
    names: Collection[str] = (),
    look: Look = DEFAULT_LOOK,
    *,
    problems: Iterable[str] = (),
) -> WrittenFigures:
    """Write figures of a run or a probe into `report/figures/`, each with its numbers as CSV, from artifacts alone.

    Args:
        run: the run or the probe's directory.
        names: which; all by default. Their files of an earlier report are replaced; with all, any other are removed.
        look: their formats, their width, and whether they have titles.
        problems: ids of the problems that figures about problems are of; by default those where a swap does most.

    Raises:
        ConfigError: there is no such figure or problem.
        ArtifactError: there is nothing to report, an artifact is damaged, or a copied run has a link.
        DiskFullError: no room.
    """
    run.check_links()
    specs = figure_specs()
    check_names("--figures", names, specs)
    inputs = replace(read_inputs(run), problems=tuple(problems))
    specs = {name: spec for name, spec in specs.items() if not names or name in names}
    drawn = drawings(inputs, specs)
    directory = run.report_path / "figures"
    written = write_figures(chain.from_iterable(drawn.values()), directory, look)
    # Those of an earlier report go; other files are the user's.
    names_of_problems = tuple(f"{name}_" for name, spec in specs.items() if spec.is_of_problem)
    for path in directory.glob("*.*"):
        is_ours = path.stem in specs or path.stem.startswith(names_of_problems)
        if is_ours and path.suffix[1:] in (*FORMATS, "csv") and path not in written:
            path.unlink()
    missing = {name: needed(spec, inputs) for name, spec in specs.items() if name not in drawn}
    return WrittenFigures(figures=written, missing=missing)


def needed(spec: FigureSpec, inputs: ReportInputs) -> str:
    """Return what a figure needs; of responses from elsewhere the command has other arguments."""
    if not inputs.is_imported:
        return spec.needs
    if spec.needs.startswith(("swerve eval", "swerve train")):
        return "a training run and its evaluations, which a probe of responses has not"
    return spec.needs.replace("swerve probe RUN", "swerve probe with the same files").replace(
        "probe.baseline=LABEL", "and --baseline MODEL"
    )


def missing_lines(missing: Mapping[str, str], run: RunDirectory) -> list[str]:
    """Return a line for each need with the figures that have it.

    >>> from pathlib import Path
    >>> missing_lines({"a": "swerve eval RUN", "b": "swerve eval RUN"}, RunDirectory(Path("runs/x")))
    ['not measured: a, b; they need: swerve eval runs/x']
    """
    lines = []
    for need in dict.fromkeys(missing.values()):
        names = [name for name, lacking in missing.items() if lacking == need]
        verb = "they need" if len(names) > 1 else "it needs"
        lines.append(f"not measured: {', '.join(names)}; {verb}: {need.replace('RUN', run.quoted)}")
    return lines
