"""What a topic gives to the report: sentences, a tile, curves, a section of the page, and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.draw.curves import Chart
from swerve.report.draw.figures import Drawing, chart_drawing
from swerve.report.draw.panels import Section
from swerve.report.read import ReportInputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A headline number of the page."""

    caption: str
    value: str
    detail: str


KNOWN_STEPS = "rollouts with a step known to be wrong, of a task that checks steps"
"""What figures about wrong steps need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSpec:
    """A figure with a name, which the command line and `swerve.plot` draw."""

    shows: str
    """What it shows, a sentence."""
    draw: Callable[[ReportInputs], Iterable[Drawing]]
    """Nothing where it was not measured; one for each chosen problem where it is about problems."""
    needs: str = "swerve probe RUN"
    """The command that makes its data, or what a run must have."""
    is_of_problem: bool = False
    """Whether it is about chosen problems, a figure each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic of the report; each function takes the run and leaves out what was not measured."""

    sentences: Mapping[str, Callable[[ReportInputs], Iterable[str]]] = field(default_factory=dict)
    """By heading among the findings; an empty sentence is left out."""
    tile: Callable[[ReportInputs], Tile] | None = None
    charts: Callable[[ReportInputs], Iterable[Chart]] | None = None
    """Curves over training."""
    section: Callable[[ReportInputs], Section | None] | None = None
    figures: Mapping[str, FigureSpec] = field(default_factory=dict)
    """Figures that are written as files beside the page, by name."""


Found = TypeVar("Found")


def of_probe(write: Callable[[ProbeSummary], Iterable[Found]]) -> Callable[[ReportInputs], Iterable[Found]]:
    """Return the same function for a run: nothing without a probe."""
    return lambda inputs: () if inputs.summary is None else write(inputs.summary)


def of_chart(charts: Callable[[ReportInputs], Iterable[Chart]], id: str) -> Callable[[ReportInputs], Iterable[Drawing]]:
    """Return what draws one of the page's charts as a figure."""
    return lambda inputs: (chart_drawing(chart) for chart in charts(inputs) if chart.id == id and chart.measured)
