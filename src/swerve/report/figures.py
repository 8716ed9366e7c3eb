"""The figures of a run by name: which there are, which can be drawn, and their files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from swerve.artifacts.run import RunDirectory
from swerve.errors import ConfigError, nearest
from swerve.report.draw.figures import FORMATS, write_figures
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


def check_names(what: str, given: Iterable[str], allowed: Collection[str]) -> None:
    """Check that names are known.

    Raises:
        ConfigError: one is not; the message names the nearest.
    """
    for name in given:
        if name not in allowed:
            raise ConfigError(f"{what}: there is no '{name}'{nearest(name, allowed)} ({', '.join(allowed)})")


def write_run_figures(
    run: RunDirectory,
    names: Collection[str] = (),
    *,
    problems: Iterable[str] = (),
    formats: Collection[str] = tuple(FORMATS),
) -> WrittenFigures:
    """Write figures of a run or a probe into `report/figures/`, each with its numbers as CSV, from artifacts alone.

    Args:
        run: the run or the probe's directory.
        names: which; all by default. Their files of an earlier report are replaced; with all, any other are removed.
        problems: ids of the problems that figures about problems are of; by default those where a swap does most.
        formats: of `png`, `pdf` and `svg`.

    Raises:
        ConfigError: there is no such figure, format or problem.
        ArtifactError: there is nothing to report, or an artifact is damaged.
        DiskFullError: no room.
    """
    check_names("--figures", names, figure_specs())
    check_names("--format", formats, FORMATS)
    inputs = replace(read_inputs(run), problems=tuple(problems))
    return write_all_figures(inputs, run.report_path / "figures", names, formats=formats)


def write_all_figures(
    inputs: ReportInputs, directory: Path, names: Collection[str] = (), *, formats: Collection[str] = tuple(FORMATS)
) -> WrittenFigures:
    """Write the figures whose numbers were measured; see `write_run_figures`."""
    specs = {name: spec for name, spec in figure_specs().items() if not names or name in names}
    drawings = {name: list(spec.draw(inputs)) for name, spec in specs.items()}
    written = write_figures(chain.from_iterable(drawings.values()), directory, formats)
    for suffix in (*FORMATS, "csv"):
        for path in directory.glob(f"*.{suffix}"):
            if path not in written and _name_of(path, specs):  # of an earlier report; others are the user's
                path.unlink()
    missing = {name: _needs(spec, inputs) for name, spec in specs.items() if not drawings[name]}
    return WrittenFigures(figures=written, missing=missing)


def _name_of(path: Path, specs: Mapping[str, FigureSpec]) -> str | None:
    """Return the name of the figure that a file is of, if it is among these."""
    stem = path.stem
    return next(
        (name for name, spec in specs.items() if stem == name or (spec.is_of_problem and stem.startswith(f"{name}_"))),
        None,
    )


def _needs(spec: FigureSpec, inputs: ReportInputs) -> str:
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
