"""Divergence: how far did each checkpoint go from the reference?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from swerve.artifacts.probe_findings import DIVERGENCE_NAMES, DivergenceMeans
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.report.draw.curves import Chart, Curve, stages
from swerve.report.draw.figures import COLOURS, GREY, Drawing, numbers, set_title, side_by_side
from swerve.report.draw.panels import Panel, Table, panel
from swerve.report.format import SAME, compared, count, listed, number, number_interval, signed_interval
from swerve.report.names import divergence_name
from swerve.report.read import ReportInputs
from swerve.report.topics.topic import FigureSpec, Topic, of_chart, of_probe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MANY_TIMES = 30
"""Means that differ by more are drawn on a logarithmic axis."""


def _sentences(summary: ProbeSummary) -> Iterator[str]:
    yield _stages(summary)
    yield _baseline(summary)
    yield _largest_pair(summary)
    yield _entropy(summary)


def _stages(summary: ProbeSummary) -> str:
    means = [(stage.checkpoint, stage.of(summary.divergence)) for stage in summary.stages]
    if not means:
        return ""
    texts = [f"{number_interval(mean)} at {name}" for name, mean in means]
    return f"By stage, the mean {divergence_name(summary)} from {summary.reference} is {listed(texts)} (nats)."


def _baseline(summary: ProbeSummary) -> str:
    pair = next(iter(summary.baseline_pairs), None)
    before = None if pair is None else pair.of(summary.divergence)
    after = summary.final_divergence
    if pair is None or before is None or after is None:
        return ""
    verdict = "the two were not compared"
    if pair.behind is not None:
        words = compared(pair.behind, 0.0, above="less than", below="more than")
        verdict = f"{words} what the stage changed ({signed_interval(pair.behind)} more, paired)"
    return (
        f"Before the stage, {pair.checkpoint} differed from {pair.reference} by {number_interval(before)} nats "
        f"({divergence_name(summary)}), {verdict}: {summary.final} differs from {summary.reference} by "
        f"{number_interval(after)}."
    )


def _largest_pair(summary: ProbeSummary) -> str:
    pairs = [(pair, mean) for pair in summary.consecutive_pairs if (mean := pair.of(summary.divergence)) is not None]
    if len(pairs) < 2:
        return ""
    pair, most = max(pairs, key=lambda entry: entry[1].mean)
    ties = [
        f"{other.reference} to {other.checkpoint}"
        for other, _ in pairs
        if other is not pair and not (other.behind is not None and other.behind.excludes(0))
    ]
    tie = f" ({SAME} {listed(ties)}, paired over problems)" if ties else ""
    return (
        f"Of {count(len(pairs))} steps between neighbouring checkpoints most changed from {pair.reference} to "
        f"{pair.checkpoint}{tie}, by {number_interval(most)}."
    )


def _entropy(summary: ProbeSummary) -> str:
    entry = None if summary.entropy is None else summary.at_final(summary.entropy.means)
    if entry is None or entry.change is None or entry.entropy is None:
        return ""
    where = f"Mean entropy on these rollouts is {number_interval(entry.entropy)} nats at {summary.final}"
    if not entry.change.excludes(0):
        return f"{where}, {SAME} that of {summary.reference}."
    return f"{where}, {signed_interval(entry.change)} against {summary.reference}."


def floor_note(summary: ProbeSummary) -> str:
    """Return a sentence on what two runs of one model differ by; empty where that was not measured."""
    floor = summary.noise_floor
    if floor is None:
        return ""
    means = (f"{name} {number(floor[key].mean if key in floor else None)}" for key, name in DIVERGENCE_NAMES.items())
    return f"Noise floor (the reference against itself, batched otherwise): {', '.join(means)}."


def divergence_table(summary: ProbeSummary) -> Table:
    """Return each checkpoint's mean divergences from the reference."""
    return Table(
        id="divergences",
        caption="Divergence by checkpoint",
        note=f"Means over the tokens of the headline population, in nats. {floor_note(summary)}".strip(),
        header=("Checkpoint", *DIVERGENCE_NAMES.values(), "Entropy", "Entropy of the reference"),
        rows=tuple((divergence.checkpoint, *_means(divergence)) for divergence in summary.divergences),
    )


def stage_table(summary: ProbeSummary) -> Table:
    """Return the mean divergences from the reference of each named group of checkpoints."""
    return Table(
        id="stages",
        caption="Divergence by stage",
        note="As by checkpoint; a token counts with its mean over the stage's checkpoints.",
        header=("Stage", *DIVERGENCE_NAMES.values(), "Entropy", "Entropy of the reference"),
        rows=tuple((stage.checkpoint, *_means(stage)) for stage in summary.stages),
    )


def pair_panel(summary: ProbeSummary) -> Panel | None:
    """Return the panel on pairs that are not a checkpoint against the reference."""
    pairs = (*summary.baseline_pairs, *summary.consecutive_pairs)
    table = Table(
        id="pairs",
        caption="Other pairs of checkpoints",
        note="The reference against its baseline, from before the stage, and each checkpoint against the one before. "
        f"Means over the tokens of the headline population, in nats. {floor_note(summary)}".strip(),
        header=("Pair", *DIVERGENCE_NAMES.values(), "Entropy", "Entropy of the second"),
        rows=tuple((f"{pair.checkpoint} against {pair.reference}", *_means(pair)) for pair in pairs),
    )
    return panel("How far did each part of training go?", table, wide=True)


def _means(entry: DivergenceMeans) -> tuple[str, ...]:
    return tuple(
        number_interval(estimate) for estimate in (*map(entry.of, DIVERGENCE_NAMES), entry.entropy, entry.entropy_ref)
    )


def _charts(inputs: ReportInputs) -> Iterator[Chart]:
    on = "the responses" if inputs.is_imported else "its wrong rollouts"
    entries, pairs = (
        ((), ()) if inputs.summary is None else (inputs.summary.divergences, inputs.summary.consecutive_pairs)
    )
    yield _chart(inputs, entries, id="mean_kl_progression", title=f"Divergence from the reference on {on}")
    if pairs:
        yield _chart(inputs, pairs, id="pairs", title="Divergence of each checkpoint from the one before")


def _chart(inputs: ReportInputs, entries: Sequence[DivergenceMeans], *, id: str, title: str) -> Chart:
    axis = step_axis(inputs, [entry.checkpoint for entry in entries])
    rows = axis.sort(entries)
    return Chart(
        id=id,
        title=title,
        unit="nats",
        labels=tuple(row.checkpoint for row in rows),
        steps=axis.steps,
        x_title=axis.title,
        curves=tuple(
            Curve(name=name, points=tuple(row.of(key) for row in rows)) for key, name in DIVERGENCE_NAMES.items()
        ),
        stages=stages(inputs.evaluations) if axis.title == "global step" else (),
        command="swerve probe RUN",
    )


Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class StepAxis:
    """Where checkpoints stand on the x axis."""

    places: tuple[int, ...]
    """Of each checkpoint."""
    title: str

    @property
    def steps(self) -> tuple[int, ...]:
        """The places from left to right."""
        return tuple(sorted(self.places))

    def sort(self, entries: Sequence[Found]) -> tuple[Found, ...]:
        """Return the entries of the checkpoints, from left to right."""
        return tuple(entries[index] for index in sorted(range(len(entries)), key=self.places.__getitem__))


def step_axis(inputs: ReportInputs, labels: Sequence[str]) -> StepAxis:
    """Return where checkpoints stand on the x axis: at their step as far as it is known, else in order."""
    known = [step for step in map(inputs.step, labels) if step is not None]
    if len(known) == len(labels):
        return StepAxis(tuple(known), "global step")
    own = [int(number[0]) for label in labels if (number := re.search(r"\d+$", label))]
    if len(set(own)) == len(labels):
        return StepAxis(tuple(own), "step of the stage")
    return StepAxis(tuple(range(1, len(labels) + 1)), "checkpoint")


def _baseline_drawings(summary: ProbeSummary) -> Iterator[Drawing]:
    """Yield what the stage changed beside what the training before it had changed."""
    final = summary.at_final(summary.divergences)
    if final is None or not summary.baseline_pairs:
        return
    pairs = (*summary.baseline_pairs, final)
    rows = (
        {"checkpoint": pair.checkpoint, "reference": pair.reference, "divergence": key, **numbers(pair.of(key))}
        for pair in pairs
        for key in DIVERGENCE_NAMES
    )
    yield Drawing(name="baseline_comparison", draw=partial(_draw_baseline, pairs=pairs), rows=tuple(rows))


def _draw_baseline(axes: Axes, *, pairs: Sequence[DivergenceMeans]) -> None:
    series = {
        f"{pair.checkpoint} against {pair.reference}": [pair.of(key) for key in DIVERGENCE_NAMES] for pair in pairs
    }
    means = [value.mean for values in series.values() for value in values if value is not None]
    if means and min(means) > 0 and max(means) > _MANY_TIMES * min(means):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    side_by_side(axes, list(DIVERGENCE_NAMES.values()), series, colours=(GREY, *COLOURS))
    axes.set_ylabel("nats per token")
    set_title(axes, "What the stage changed, and what was changed before it")


TOPIC = Topic(
    sentences={"Divergence": of_probe(_sentences)},
    charts=_charts,
    figures={
        "mean_kl_progression": FigureSpec(
            shows="Mean divergences of every checkpoint from the reference.",
            draw=of_chart(_charts, "mean_kl_progression"),
        ),
        "pairs": FigureSpec(
            shows="Mean divergences of every checkpoint from the one before.",
            draw=of_chart(_charts, "pairs"),
            needs="two or more checkpoints, and swerve probe with consecutive in probe.pairs",
        ),
        "baseline_comparison": FigureSpec(
            shows="What the stage changed beside what the training before it had changed.",
            draw=of_probe(_baseline_drawings),
            needs="swerve probe RUN probe.baseline=LABEL",
        ),
    },
)
