"""The report of a run: figures, and one self-contained page. Free of torch; drawing libraries load when used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from swerve.artifacts.run import PROBED, RunDirectory, find_run
from swerve.artifacts.study import find_study, read_study, study_report_path
from swerve.callable_package import make_callable
from swerve.config.recipe import ReportConfig
from swerve.progress import Progress, shown_progress
from swerve.recipes.layers import Change, overrides_of
from swerve.recipes.loader import load_run_config, load_settings
from swerve.report.read import missing_inputs
from swerve.report.run_page import write_page
from swerve.settings import Model

__all__ = ["report"]


class _Settings(Model):
    """Where there is no recipe: the probe of responses from elsewhere, and a study."""

    report: ReportConfig = ReportConfig()


def report(
    run: str | Path | RunDirectory, *overrides: Change, progress: Progress | bool | None = None, **changes: Any
) -> Path:
    """Write the report of a run, probe or study from what is there: `report/index.html` and its figures.

    Neither torch nor a model is needed. What was not measured is marked as such.

    Args:
        run: its path, its name under `runs/`, or the run; the path or the name of a study.
        overrides: such as `"report.title=My run"`, or mappings.
        progress: told which parts are missing; None: shown in a terminal or a notebook; True and False: shown or not.
        changes: the same as keywords, such as `report={"title": "My run"}`.

    Returns:
        The path of the page.

    Raises:
        ArtifactError: there is no such run or study, nothing to report, or an artifact is damaged.
        ConfigError: a change is not one of the report.
    """
    study = None if isinstance(run, RunDirectory) else find_study(run)
    if study is not None:
        options = load_settings(_Settings, overrides_of(overrides, changes)).report
        from swerve.report.study import write_study_page

        return write_study_page(read_study(study), study_report_path(study), options=options)
    directory = find_run(run)
    if directory.read_provenance().get("status") == PROBED:
        options = load_settings(_Settings, overrides_of(overrides, changes)).report
    else:
        options = load_run_config(directory, overrides, changes).report
    shown = shown_progress(progress)
    for line in missing_inputs(directory):
        shown.note(line)
    return write_page(directory, options=options)


make_callable(__name__)
