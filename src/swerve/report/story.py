"""What the page of a run says first: a sentence, and verdicts with their intervals and nulls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from swerve.report.page import Verdict
from swerve.report.read import ReportInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a run is from."""

    date: str
    line: str
    rows: tuple[tuple[str, str], ...]


def provenance(inputs: ReportInputs) -> Provenance:
    """Return when, how long, with what and by which command a run was made."""
    recorded = {name: str(value) for name, value in inputs.provenance.items() if isinstance(value, str | int | float)}
    return Provenance(date=str(recorded.get("date", ""))[:10], line="", rows=tuple(recorded.items()))


def sentence(inputs: ReportInputs) -> str:
    """Return what was trained, on what, and what came of it."""
    return inputs.run_name


def lead(inputs: ReportInputs) -> str:
    """Return where it started from, and what the rollout below is."""
    return ""


def verdicts(inputs: ReportInputs) -> Iterator[Verdict]:
    """Yield what the run shows, each verdict with interval, n and null; what was not measured is left out."""
    yield from ()


def notes(inputs: ReportInputs) -> tuple[str, ...]:
    """Return what limits all findings."""
    return () if inputs.summary is None else tuple(f"{note[:1].upper()}{note[1:]}." for note in inputs.summary.notes)


def terms(inputs: ReportInputs) -> tuple[tuple[str, str], ...]:
    """Return what the words of the page mean."""
    return ()
