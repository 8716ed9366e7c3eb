"""`swerve.report`: one page of a run, a probe, a study or samples, from what is there."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from swerve.artifacts.comparison import Comparison
from swerve.artifacts.run import PROBED, RunDirectory, find_run
from swerve.artifacts.samples import SampleFile, Samples, StoredSamples, is_samples_file
from swerve.artifacts.study import find_study, read_study, study_report_path
from swerve.config.recipe import ReportConfig
from swerve.door.given import is_place
from swerve.door.sample import SampleSet
from swerve.door.spoken import spoken
from swerve.errors import ConfigError, nearest
from swerve.probe.result import ProbeResult
from swerve.progress import Progress, shown_progress
from swerve.recipes.layers import Change, overrides_of
from swerve.recipes.loader import load_run_config, load_settings
from swerve.settings import STAGE_SECTIONS, Model


class _Settings(Model):
    """Where there is no recipe: the probe of responses from elsewhere, samples, and a study."""

    report: ReportConfig = ReportConfig()


_KEYWORDS = ("out", "progress", *ReportConfig.model_fields, *STAGE_SECTIONS)


@spoken
def report(
    run: Any,
    *overrides: Change,
    out: str | Path | None = None,
    progress: Progress | bool | None = None,
    **changes: Any,
) -> Path:
    """Write the report of a run, probe, study or samples from what is there: `report/index.html` and its figures.

    Neither torch nor a model is needed. What was not measured is marked as such.

    Args:
        run: its path, its name under `runs/`, or the run; the path or the name of a study; what `swerve.probe` or
            `swerve.sample` returned, or their files or folders.
        overrides: such as `"report.title=My run"`, or mappings.
        out: of what is in memory or in a temporary folder, where it is kept with its page; None: a new folder for
            temporary files.
        progress: told which parts are missing; None: shown in a terminal or a notebook; True and False: shown or not.
        changes: the same as overrides, as keywords, such as `title="My run"`.

    Returns:
        The path of the page.

    Raises:
        ArtifactError: there is no such run or study, nothing to report, or an artifact is damaged.
        ConfigError: a change is not one of the report.
    """
    if isinstance(run, ProbeResult):
        run = run.path if run.is_kept and out is None else run.save(out or _new_folder())
    elif isinstance(run, SampleSet):
        run = run.save(out or _new_folder()) if run.is_temporary or out is not None else sorted(run.files.values())
    elif out is not None:
        raise ConfigError("out= is of what swerve.probe or swerve.sample returned; a run has its report in its folder")
    unknown = next((name for name in changes if name.partition(".")[0] not in _KEYWORDS), None)
    if unknown is not None:
        raise ConfigError(f"there is no keyword {unknown!r}{nearest(unknown, _KEYWORDS)}")
    keys = {f"report.{name}" if name in ReportConfig.model_fields else name: value for name, value in changes.items()}
    overrides = (*overrides, keys)
    stored = _stored(run)
    files: Sequence[Samples] = [run] if isinstance(run, SampleFile) else stored
    if files:
        folder = samples_folder(run, stored) if stored else _new_folder()
        options = load_settings(_Settings, overrides_of(overrides)).report
        return write_samples(files, folder, options)[0]
    more = next((change for change in overrides if is_place(change) and "=" not in str(change)), None)
    if more is not None:
        raise ConfigError(f"{str(more)!r} is another run; swerve.compare({str(run)!r}, {str(more)!r}) compares them")
    from swerve.report.read import missing_inputs
    from swerve.report.run_page import write_page

    study = None if isinstance(run, RunDirectory) else find_study(run)
    if study is not None:
        options = load_settings(_Settings, overrides_of(overrides)).report
        from swerve.report.study import write_study_page

        return write_study_page(read_study(study), study_report_path(study), options=options)
    directory = find_run(run)
    if directory.read_provenance().get("status") == PROBED:
        options = load_settings(_Settings, overrides_of(overrides)).report
    else:
        options = load_run_config(directory, overrides).report
    watching = shown_progress(progress)
    for line in missing_inputs(directory):
        watching.note(line)
    return write_page(directory, options=options)


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="swerve-report-")) / "kept"


def _stored(given: Any) -> list[StoredSamples]:
    """Return samples in a file, in several, or in a folder; none where something is something else."""
    if isinstance(given, list):
        return [StoredSamples(Path(file)) for file in given]
    return [StoredSamples(file) for file in sample_files(Path(given))] if is_place(given) else []


def sample_files(path: Path) -> list[Path]:
    """Return a file of samples, or those in a folder; none where a path is something else."""
    if (path / "run.json").is_file():
        return []
    return [file for file in ([path] if path.is_file() else sorted(path.glob("*.parquet"))) if is_samples_file(file)]


def samples_folder(given: Any, files: Sequence[StoredSamples]) -> Path:
    """Return where the page of samples goes: into their folder, or beside the file of one model."""
    place = Path(given) if is_place(given) else files[0].path.parent if len(files) > 1 else files[0].path
    return place / "report" if place.is_dir() else place.with_name(f"{place.stem}-report")


def write_samples(files: Sequence[Samples], folder: Path, options: ReportConfig) -> tuple[Path, Comparison]:
    """Write the page of samples to a folder; return it and the comparison of their models."""
    from swerve.eval.comparison import compare
    from swerve.report.samples import write_samples_page

    comparison = compare((iter(file.samples) for file in files), pooled=True)
    return write_samples_page(folder / "index.html", comparison, files, options=options), comparison
