"""The report stage: read, draw, write."""

from __future__ import annotations

from pathlib import Path

from swerve.artifacts.files import write_text
from swerve.artifacts.run import RunDirectory
from swerve.config import ReportConfig
from swerve.report.inputs import read_inputs

__all__ = ["build_report"]


def build_report(run: RunDirectory, *, options: ReportConfig) -> Path:
    """Write `report/index.html` and `report/figures/` from a run's artifacts; return the page's path.

    What was not measured is said to be so. Neither torch nor a model is needed.

    Raises:
        ArtifactError: there is nothing to report, or an artifact is damaged.
        DiskFullError: no room.
    """
    # Drawing and templates take a moment to import; `swerve --help` must not wait for them.
    from swerve.report.figures import write_figures
    from swerve.report.page import render_page

    inputs = read_inputs(run)
    write_figures(inputs, run.report_path / "figures")
    path = run.report_path / "index.html"
    write_text(path, render_page(inputs, options=options))
    return path
