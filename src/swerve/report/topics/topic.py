"""What a topic gives to the report: sentences, a tile, curves, a section of the page, and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.draw.curves import Chart
from swerve.report.draw.figures import Drawing
from swerve.report.draw.panels import Section
from swerve.report.read import ReportInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A headline number of the page."""

    caption: str
    value: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic of the report; each function takes the run and leaves out what was not measured."""

    sentences: Mapping[str, Callable[[ReportInputs], Iterable[str]]] = field(default_factory=dict)
    """By heading among the findings; an empty sentence is left out."""
    tile: Callable[[ReportInputs], Tile] | None = None
    charts: Callable[[ReportInputs], Iterable[Chart]] | None = None
    """Curves over training; each is written as a figure too."""
    section: Callable[[ReportInputs], Section | None] | None = None
    drawings: Callable[[ReportInputs], Iterable[Drawing]] | None = None
    """Figures that are written as files beside the page."""


Found = TypeVar("Found")


def of_probe(write: Callable[[ProbeSummary], Iterable[Found]]) -> Callable[[ReportInputs], Iterable[Found]]:
    """Return the same function for a run: nothing without a probe."""
    return lambda inputs: () if inputs.summary is None else write(inputs.summary)
