"""What a topic gives to the report: sentences, rows of numbers, and figures."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from swerve.artifacts.probe_summary import HasCheckpoint, ProbeSummary
from swerve.report.draw.figures import Drawing
from swerve.report.page import Texts
from swerve.report.read import ReportInputs
from swerve.report.rows import Cell, Curves, Rows, Unit

KNOWN_STEPS = "rollouts with a token known to be wrong, of a task that checks steps or a file that names it"
"""What figures about wrong steps need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSpec:
    """A figure with a name, which the command line and `swerve.plot` draw."""

    shows: str
    """What it shows, a sentence."""
    draw: Callable[[ReportInputs], Iterable[Drawing]] | None = None
    """For what is not rows: nothing where it was not measured, one for each chosen problem where it is about problems.
    None: the plots of the topic's rows whose id is its name."""
    needs: str = "swerve probe RUN"
    """The command that makes its data, or what a run must have."""
    is_of_problem: bool = False
    """Whether it is about chosen problems, a figure each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic of the report; each function takes the run and leaves out what was not measured."""

    title: str = ""
    """Of its fold on the page, a question."""
    note: str = ""
    """What the fold has, in a few words."""
    rows: Callable[[ReportInputs], Iterable[Rows]] | None = None
    """Everything that was measured, in order."""
    texts: Callable[[ReportInputs], Iterable[Texts]] | None = None
    """What is read as text, below the rows."""
    sentences: Mapping[str, Callable[[ReportInputs], Iterable[str]]] = field(default_factory=dict)
    """By heading among the findings; an empty sentence is left out."""
    figures: Mapping[str, FigureSpec] = field(default_factory=dict)
    """Figures that are written when asked for, by name."""


Found = TypeVar("Found")

_MANY_TIMES = 20
"""Steps that differ by more lie on a logarithmic axis."""


def along_training(inputs: ReportInputs, labels: Sequence[str], columns: Sequence[str] = (), **options: Any) -> Curves:
    """Return how columns are drawn over checkpoints, whose steps must increase.

    They lie at the step of the stage of the last of them, those from before it at 0 and below; where no step is known,
    with their names in their order.
    """
    known = {evaluation.checkpoint: evaluation for evaluation in inputs.evaluations}
    own = [int(label[len(label.rstrip(string.digits)) :] or 0) for label in labels]
    x: Sequence[int] = range(1, len(labels) + 1)
    title, ends, is_order = "checkpoint", {}, False
    if labels and known.keys() >= {*labels}:
        last = known[labels[-1]]
        start = last.step - last.stage_step
        x, title = [known[label].step - start for label in labels], f"{step_name(last.stage)} step"
        ends = {known[label].stage: float(place) for label, place in zip(labels, x, strict=True)}
    elif own == sorted(set(own)):
        x, title = own, "step of the stage"
    else:
        is_order = True

    # Steps that grow by multiples lie apart only on a logarithmic axis.
    positive = [value for value in x if value > 0]
    is_log = not is_order and max(positive, default=0) > _MANY_TIMES * min(positive, default=0)
    return Curves(
        x=tuple(x), x_title=title, columns=tuple(columns), is_order=is_order, is_log=is_log, ends=ends, **options
    )


Column = tuple[Unit, str | Callable[[Any], Cell]]
"""How the numbers of a column are written, and the field they are in (with dots within fields) or how they are read."""


def by_checkpoint(
    inputs: ReportInputs,
    entries: Sequence[HasCheckpoint],
    columns: Mapping[str, Column],
    *,
    drawn: Sequence[str] | None = None,
    greys: Sequence[str] = (),
    name: str | Callable[[Any], Cell] = "checkpoint",
    **options: Any,
) -> Rows:
    """Return a row for each entry about a checkpoint, drawn over training: all columns, or some, a plot for each unit.

    Args:
        inputs: the run.
        entries: evaluations, or entries of a summary.
        columns: what is read of an entry, by the heading.
        drawn: columns that have a curve; all by default.
        greys: those that are nulls.
        name: what is read of an entry as its name.
        options: of `Rows`.
    """
    labels = [entry.checkpoint for entry in entries]
    # Columns of another unit have a plot of their own.
    by_unit: dict[Unit, list[str]] = {}
    for heading in columns if drawn is None else drawn:
        by_unit.setdefault(columns[heading][0], []).append(heading)
    return rows_of(
        entries,
        columns,
        first="Checkpoint",
        name=name,
        plots=tuple(along_training(inputs, labels, names, greys=tuple(greys)) for names in by_unit.values()),
        **options,
    )


def rows_of(
    entries: Iterable[Any], columns: Mapping[str, Column], *, name: str | Callable[[Any], Cell], **options: Any
) -> Rows:
    """Return a row for each entry: its name, and what is read of it for each column."""
    reads = (name, *(read for _, read in columns.values()))
    return Rows(
        columns={heading: unit for heading, (unit, _) in columns.items()},
        rows=tuple(tuple(_cell(entry, read) for read in reads) for entry in entries),
        **options,
    )


def crossed(entries: Iterable[tuple[str, str, Cell]], columns: Iterable[str]) -> tuple[tuple[Cell, ...], ...]:
    """Return a row for each first name, with what stands there under each of the second names.

    >>> crossed([("rl-1", "early", 0.5), ("rl-2", "late", 0.25)], ("early", "late"))
    (('rl-1', 0.5, None), ('rl-2', None, 0.25))
    """
    table: dict[str, dict[str, Cell]] = {}
    for row, column, cell in entries:
        table.setdefault(row, {})[column] = cell
    return tuple((row, *map(cells.get, columns)) for row, cells in table.items())


def _cell(entry: Any, read: str | Callable[[Any], Cell]) -> Cell:
    """Return what a field says; None where it, or what it is within, was not measured."""
    if not isinstance(read, str):
        return read(entry)
    for name in read.split("."):
        if entry is not None:
            entry = entry.get(name) if isinstance(entry, Mapping) else getattr(entry, name)
    cell: Cell = entry
    return cell


def step_name(stage: str) -> str:
    """Return a stage as an axis has it."""
    return stage.upper() if stage in ("rl", "sft", "dpo") else stage


def with_rows(
    write: Callable[[ReportInputs, ProbeSummary], Iterable[Found]],
) -> Callable[[ReportInputs], Iterable[Found]]:
    """Return the same function for a run: nothing without a probe."""
    return lambda inputs: () if inputs.summary is None else write(inputs, inputs.summary)


def of_probe(write: Callable[[ProbeSummary], Iterable[Found]]) -> Callable[[ReportInputs], Iterable[Found]]:
    """Return the same function for a run: nothing without a probe."""
    return lambda inputs: () if inputs.summary is None else write(inputs.summary)
