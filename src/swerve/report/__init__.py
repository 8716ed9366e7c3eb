"""The report of a run: figures, and one self-contained page. Free of torch; drawing libraries load when used."""

from __future__ import annotations

from swerve.report.page import build_report

__all__ = ["build_report"]
