"""Dose: how few tokens of the other model are enough, and which single tokens decide the outcome?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from swerve.artifacts.probe_causes import (
    CrossSamplingDirection,
    CrossSamplingPoint,
    CrossSamplingSelector,
    Pivots,
)
from swerve.artifacts.probe_findings import Divergence
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate
from swerve.report.draw.curves import Chart, Curve, Level
from swerve.report.draw.figures import Drawing, dose_drawing
from swerve.report.draw.panels import ChartPart, Panel, Table, panel
from swerve.report.format import (
    compared,
    count,
    number,
    number_interval,
    percent,
    percent_interval,
    points_interval,
    signed_interval,
)
from swerve.report.names import SELECTORS, direction_title, named, selector_word
from swerve.report.topics.topic import FigureSpec, Topic, of_probe


def pivot_sentence(summary: ProbeSummary) -> str:
    """Say how many single tokens, or sentences, decide the outcome; empty where none were searched."""
    pivots = summary.pivots
    if pivots is None:
        return ""
    units = "single tokens" if pivots.unit == "token" else "sentences"
    spike, on = pivots.on_spike, ""
    if spike is not None and spike.share is not None:
        on = f"; {percent_interval(spike.share)} of them have a spike (by chance {percent(spike.chance)})"
    return (
        f"Along {count(pivots.num_rollouts)} rollouts {count(pivots.num_pivots)} {units} change the success by "
        f"{percent(pivots.gap)} or more where they were found; for {count(pivots.num_confirmed)} of them fresh "
        f"continuations exclude a smaller change (on average at most {number(pivots.max_confirmed_below_gap, 2)} of "
        f"these change it by less){on}.{_break_sentence(pivots)}"
    )


def _break_sentence(pivots: Pivots) -> str:
    """Say whether the highest divergence is where the chance of a right answer falls for good."""
    breaks = pivots.breaks
    divergence, entropy = breaks.top_divergence, breaks.top_entropy
    if divergence is None or entropy is None:
        return ""
    return (
        f" In {count(breaks.num_rollouts)} of the rollouts the success falls for good at a {pivots.unit}; it has the "
        f"highest divergence in {percent_interval(divergence.share)} of these "
        f"(by chance {percent(divergence.chance)}), the reference's highest entropy in "
        f"{percent_interval(entropy.share)} (difference {points_interval(breaks.above_entropy)} points)."
    )


def _directions(summary: ProbeSummary) -> tuple[CrossSamplingDirection, ...]:
    return () if summary.cross_sampling is None else summary.cross_sampling.directions


def _doses(summary: ProbeSummary) -> Iterator[str]:
    """Yield what few tokens of the other model recover."""
    for entry in _directions(summary):
        title, dose = direction_title(entry.direction, summary), _least_dose(entry, summary.divergence)
        if entry.gap is None or entry.base is None or entry.other is None:
            continue
        if not entry.gap.excludes(0):
            yield (
                f"{title}: the two models alone are not distinguishable ({points_interval(entry.gap)}), so nothing can "
                "be recovered."
            )
        elif dose is not None:
            selector, point = dose
            yield (
                f"{title}: with {selector_word(selector.selector)} choosing {percent(point.share_swapped)} of the "
                f"tokens, accuracy goes from {percent_interval(entry.base)} to {percent_interval(point.accuracy)}, "
                f"which is {percent_interval(point.recovered)} of the gap to {percent_interval(entry.other)}"
                f"{_against_random(selector)}."
            )


def _least_dose(
    entry: CrossSamplingDirection, divergence: Divergence
) -> tuple[CrossSamplingSelector, CrossSamplingPoint] | None:
    """Return the least budget of the headline divergence, else of the first score, not the best of all."""
    chosen = [selector for selector in entry.selectors if selector.selector != "random"]
    for selector in sorted(chosen, key=lambda selector: selector.selector != divergence)[:1]:
        measured = [point for point in selector.points if point.recovered is not None and point.accuracy is not None]
        if measured:
            return selector, min(measured, key=lambda point: point.budget)
    return None


def _against_random(selector: CrossSamplingSelector) -> str:
    more = selector.auc_over_random
    if more is None:
        return ""
    return f"; over all budgets it is {compared(more, 0.0)} random choice, {signed_interval(more)} of the gap"


def dose_panel(summary: ProbeSummary) -> Panel | None:
    """Return the curves of cross-sampling; None where it was not asked for."""
    sampling = summary.cross_sampling
    if sampling is None:
        return None
    charts = [ChartPart(chart=chart) for chart in _dose_charts(summary)]
    tables = [
        _dose_table(direction, summary, id=f"dose-{index}") for index, direction in enumerate(sampling.directions)
    ]
    return panel(
        "How few tokens of the other model are enough?",
        *charts,
        *tables,
        note=f"One model writes and takes the other's token wherever the score fires, on "
        f"{count(sampling.num_problems)} problems that were not selected. The lines across are the two models "
        "alone; bars are intervals.",
        wide=True,
    )


def _dose_table(entry: CrossSamplingDirection, summary: ProbeSummary, *, id: str) -> Table:
    budgets = sorted({point.budget for selector in entry.selectors for point in selector.points})
    rows = []
    for selector in entry.selectors:
        recovered = {point.budget: point.recovered for point in selector.points}
        over = "\N{EN DASH}" if selector.selector == "random" else signed_interval(selector.auc_over_random)
        cells = (percent_interval(recovered.get(budget)) for budget in budgets)
        rows.append((named(SELECTORS, selector.selector), number_interval(selector.auc), over, *cells))
    return Table(
        id=id,
        caption=f"{direction_title(entry.direction, summary)}: fraction of the gap recovered",
        note=f"The gap between the two models is {points_interval(entry.gap)} points. AUC is the mean fraction "
        f"recovered up to {percent(entry.largest_common_share)} of the tokens.",
        header=("Score", "AUC", "AUC over random", *(f"At {100 * budget:g}%" for budget in budgets)),
        rows=tuple(rows),
    )


def _dose_charts(summary: ProbeSummary) -> tuple[Chart, ...]:
    """Return accuracy against the fraction of tokens taken for each direction of cross-sampling.

    The lines across are the two ends: the base, from which every curve starts, and the other model.
    """
    return tuple(_dose_chart(direction, summary) for direction in _directions(summary))


def _dose_chart(entry: CrossSamplingDirection, summary: ProbeSummary) -> Chart:
    names = summary.reference, summary.final
    base, other = names if entry.direction == "checkpoint_into_reference" else names[::-1]
    curves = [(named(SELECTORS, selector.selector), _dose_points(selector, entry.base)) for selector in entry.selectors]
    steps = sorted({x for _, places in curves for x in places})
    ends = ((base, entry.base), (other, entry.other))
    return Chart(
        id=f"dose-{re.sub(r'[^a-z0-9]+', '-', entry.direction.lower()).strip('-')}",
        title=direction_title(entry.direction, summary),
        unit="share",
        labels=tuple(f"{100 * x:.1f}%" for x in steps),
        steps=tuple(steps),
        x_title="fraction of tokens taken",
        x_unit="share",
        curves=tuple(Curve(name=name, points=tuple(places.get(x) for x in steps)) for name, places in curves),
        stages=(),
        levels=tuple(Level(name=f"{name} alone", value=value) for name, value in ends if value is not None),
    )


def _dose_points(selector: CrossSamplingSelector, base: Estimate | None) -> dict[float, Estimate]:
    points = {} if base is None else {0.0: base}
    return points | {point.share_swapped: point.accuracy for point in selector.points if point.accuracy is not None}


def pivot_panel(summary: ProbeSummary) -> Panel | None:
    """Return what the search for pivots found; None where it was not asked for."""
    pivots = summary.pivots
    if pivots is None:
        return None
    unit, breaks = pivots.unit, pivots.breaks
    hits = (
        ("on a spike", pivots.on_spike),
        ("on a wrong step", pivots.on_wrong),
        ("on the first wrong step", pivots.on_first_wrong),
        ("where the success falls for good: the highest divergence is there", breaks.top_divergence),
        ("the reference's highest entropy is there", breaks.top_entropy),
    )

    # What was searched, found and confirmed, each beside what chance gives.
    number = f"{count(pivots.num_pivots)} in {count(pivots.num_rollouts_with_pivot)} of {count(pivots.num_rollouts)}"
    most = f"{pivots.max_confirmed_below_gap:.1f}"
    rows = (
        (f"{unit}s that change the success by the gap", f"{number} rollouts"),
        ("rises, falls", f"{count(pivots.num_rises)}, {count(pivots.num_falls)}"),
        ("confirmed: fresh continuations exclude a smaller change", count(pivots.num_confirmed)),
        ("of these with a smaller change, on average at most", most),
        ("size where found (points)", points_interval(pivots.size_search)),
        ("size on fresh continuations (points)", points_interval(pivots.size_estimate)),
        *(
            (f"{what} (by chance {percent(hit.chance)})", percent_interval(hit.share))
            for what, hit in hits
            if hit is not None
        ),
    )
    return panel(
        "Which single tokens decide the outcome?" if unit == "token" else "Which sentences decide the outcome?",
        Table(id="pivots", caption=f"Pivotal {unit}s", header=("", "Measured"), rows=rows),
        note=f"Bisection along the rollouts for a change of {percent(pivots.gap)} or more, with "
        f"{count(pivots.num_continuations)} continuations of each of {count(pivots.num_prefixes)} prefixes; two equal "
        f"rates differ by so much with probability {percent(pivots.false_positive_rate)}.",
    )


def _drawings(summary: ProbeSummary) -> Iterator[Drawing]:
    if charts := [chart for chart in _dose_charts(summary) if chart.measured]:
        yield dose_drawing("dose_response", charts)


TOPIC = Topic(
    sentences={"Dose": of_probe(_doses)},
    figures={
        "dose_response": FigureSpec(
            shows="Accuracy against the fraction of tokens taken from the other model (cross-sampling).",
            draw=of_probe(_drawings),
            needs="swerve probe RUN probe.cross_sampling.max_problems=50",
        )
    },
)
