"""Dose: how few tokens of the other model are enough, and which single tokens decide the outcome?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from swerve.artifacts.probe_causes import (
    CrossSamplingDirection,
    CrossSamplingPoint,
    CrossSamplingSelector,
    Pivots,
)
from swerve.artifacts.probe_findings import Divergence
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate
from swerve.report.evidence import Evidence, Figure, Sentence, digits_of
from swerve.report.names import SELECTORS, continuing_model, direction_title, named, selector_word
from swerve.report.read import ReportInputs
from swerve.report.rows import COUNT, POINTS, SHARE, Curves, Dots, Rows
from swerve.report.run_evidence import dose_evidence
from swerve.report.topics.topic import FigureSpec, Topic, of_probe, rows_of, with_rows
from swerve.text import count, counted, number, percent, percent_interval, points_interval

_GAP = replace(SHARE, axis="% of the gap", low=-math.inf, high=math.inf)
"""A share of the gap between two models, which may be more than all of it."""


def _sentences(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[str]:
    """Yield what few tokens of the other model recover, and how many single tokens or sentences decide the outcome."""
    for entry in () if summary.cross_sampling is None else summary.cross_sampling.directions:
        yield Sentence(dose_sentence(entry, summary), _evidence(inputs, entry, summary))
    yield from (pivot_sentence(pivots, summary) for pivots in summary.pivots)


def _evidence(inputs: ReportInputs, entry: CrossSamplingDirection, summary: ProbeSummary) -> Evidence | None:
    """Return the problems' success alone, with the least dose, and of the other model."""
    dose = least_dose(entry, summary.divergence)
    if dose is None or entry.gap is None or not entry.gap.excludes(0):
        return None
    ends = {"alone": entry.base, "with chosen tokens": dose[1].accuracy, "other": entry.other}
    means = (
        Figure(name=name, statistic="mean", columns=(name,), write=digits_of(percent_interval, known))
        for name, known in ends.items()
        if known is not None
    )
    taken = Figure(name="tokens taken", statistic="ratio of sums", columns=("tokens taken", "tokens"), write=percent)
    return dose_evidence(inputs, entry, dose, taken, *means)


def pivot_sentence(pivots: Pivots, summary: ProbeSummary) -> str:
    """Say where one model's chance of a right answer jumps, and how often it could have fallen at all."""
    spike, breaks, pieces = pivots.on_spike, pivots.breaks, "token" if pivots.unit == "token" else "sentence"
    model = continuing_model(pivots.policy, summary)
    said = f"Along {counted(pivots.num_rollouts, 'rollout')}, continued by {model}"
    if pivots.start is not None:
        said += f" (right {percent_interval(pivots.start)} of the time from the prompt on)"
    said += f", a search found {counted(pivots.num_pivots, pieces)} across which its success changes by "
    said += f"{percent(pivots.gap)} or more."
    if pivots.num_pivots:
        said += (
            f" Fresh continuations confirm {count(pivots.num_confirmed)} of them, at most "
            f"{number(pivots.max_confirmed_below_gap, 2)} of these wrongly on average."
        )
    if pivots.num_could_fall is not None and pivots.num_could_fall < pivots.num_rollouts:
        said += (
            f" Such a fall could be found in {count(pivots.num_could_fall)} of the rollouts: in the others {model} is "
            "nowhere right so often."
        )
    if spike is not None and spike.share is not None:
        said += f" {percent_interval(spike.share)} of those found are on a spike (by chance {percent(spike.chance)})."

    # Whether the highest divergence is where the chance of a right answer falls for good.
    if breaks.top_divergence is not None and breaks.top_entropy is not None:
        said += (
            f" In {count(breaks.num_rollouts)} of the rollouts the success falls for good at one {pieces}. It has "
            f"the highest divergence in {percent_interval(breaks.top_divergence.share)} of them (by chance "
            f"{percent(breaks.top_divergence.chance)}) and the reference's highest entropy in "
            f"{percent_interval(breaks.top_entropy.share)}, a difference of {points_interval(breaks.above_entropy)} "
            "points."
        )
    return said


def dose_sentence(entry: CrossSamplingDirection, summary: ProbeSummary) -> str:
    """Say what few tokens of the other model recover; empty where that was not measured."""
    title, dose, gap = direction_title(entry.direction, summary), least_dose(entry, summary.divergence), entry.gap
    if gap is not None and not gap.excludes(0):
        return f"{title}: the two models alone are not distinguishable ({points_interval(gap)}): nothing to recover."
    if gap is None or dose is None:
        return ""
    selector, point = dose
    said = (
        f"{title}: with {selector_word(selector.selector)} choosing {percent(point.share_swapped)} of the tokens, "
        f"accuracy goes from {percent_interval(entry.base)} to {percent_interval(point.accuracy)}, which is "
        f"{percent_interval(point.recovered)} of the gap to {percent_interval(entry.other)}"
    )
    more = selector.auc_over_random
    if more is not None:
        shown = "" if more.excludes(0) else ", so the two are not distinguishable"
        said += f"; over all budgets it recovers {percent_interval(more)} of the gap more than random choice{shown}"
    return f"{said}."


def least_dose(
    entry: CrossSamplingDirection, divergence: Divergence
) -> tuple[CrossSamplingSelector, CrossSamplingPoint] | None:
    """Return the least budget of the headline divergence, else of the first score, not the best of all."""
    for selector in sorted(entry.selectors, key=lambda selector: selector.selector != divergence):
        measured = [point for point in selector.points if point.recovered is not None and point.accuracy is not None]
        if measured and selector.selector != "random":
            return selector, min(measured, key=lambda point: point.budget)
    return None


def dose_rows(entry: CrossSamplingDirection, summary: ProbeSummary) -> Rows:
    """Return accuracy against the share of tokens that are the other model's, a column for each score that chooses."""
    into = entry.direction == "checkpoint_into_reference"
    base, other = (summary.reference, summary.final) if into else (summary.final, summary.reference)
    points = {
        (named(SELECTORS, selector.selector), point.share_swapped): point.accuracy
        for selector in entry.selectors
        for point in selector.points
    }
    # Without any token of the other model every score stands at the accuracy of the one that writes.
    names = dict.fromkeys(name for name, _ in points)
    shares = sorted({0.0, *(share for _, share in points)})
    levels = {f"{base} alone": entry.base, f"{other} alone": entry.other}
    return Rows(
        id="dose_response" if into else "dose_response_back",
        title=f"Accuracy of {direction_title(entry.direction, summary)}",
        first="Tokens swapped",
        columns=dict.fromkeys(names, SHARE),
        rows=tuple(
            (percent(share), *(points.get((name, share)) if share else entry.base for name in names))
            for share in shares
        ),
        plots=(
            Curves(
                x=tuple(round(100 * share, 2) for share in shares),
                x_title="% taken",
                is_log=True,
                levels={name: level for name, level in levels.items() if level is not None},
                greys=(SELECTORS["random"],),
            ),
        ),
        has_table=False,
    )


def _gap_rows(entry: CrossSamplingDirection, summary: ProbeSummary, *, num_problems: int) -> Rows:
    """Return how much of the gap between the two models each score recovers, over all budgets and at each."""
    budgets = sorted({point.budget for selector in entry.selectors for point in selector.points})
    return rows_of(
        entry.selectors,
        {
            "Over all budgets": (_GAP, "auc"),
            "Over random": (_GAP, "auc_over_random"),
            **{f"At {100 * budget:g}%": (_GAP, partial(_recovered, budget=budget)) for budget in budgets},
        },
        name=lambda selector: named(SELECTORS, selector.selector),
        id=f"gap_{entry.direction}",
        title=f"Share of the gap recovered: {direction_title(entry.direction, summary)}",
        first="Score",
        note=f"The gap between the two models is {points_interval(entry.gap)} points, on "
        f"{count(num_problems)} problems whatever their answers were. "
        f"Over all budgets: the mean up to {percent(entry.largest_common_share)} of the tokens.",
        plots=(Dots(column="Over all budgets", at=0, greys=(SELECTORS["random"],)),),
    )


def _recovered(selector: CrossSamplingSelector, *, budget: float) -> Estimate | None:
    return next((point.recovered for point in selector.points if point.budget == budget), None)


def _pivot_rows(pivots: Pivots, summary: ProbeSummary) -> Rows:
    """Return what the tokens or sentences are at which one model's success jumps, beside chance."""
    model = continuing_model(pivots.policy, summary)
    note = (
        f"{'Bisection along' if pivots.unit == 'token' else 'Every sentence of'} {count(pivots.num_rollouts)} rollouts "
        f"for a change of {percent(pivots.gap)} or more, with {count(pivots.num_continuations)} continuations of each "
        f"of {count(pivots.num_prefixes)} prefixes by {model}; two equal rates differ by so much with probability "
        f"{percent(pivots.false_positive_rate)}."
    )
    if pivots.num_pivots:
        note += (
            f" Of {pivots.num_pivots} pivots {count(pivots.num_rises)} are rises; their size is "
            f"{points_interval(pivots.size_search)} points where found and {points_interval(pivots.size_estimate)} on "
            "fresh continuations."
        )
    # How often pivots are where other measures point, each beside chance.
    hits = {
        "On a spike": pivots.on_spike,
        "On a wrong step": pivots.on_wrong,
        "On the first wrong step": pivots.on_first_wrong,
        "In the first wrong sentence": pivots.in_wrong_sentence,
        "Falls for good at the highest divergence": pivots.breaks.top_divergence,
        "Falls for good at the reference's highest entropy": pivots.breaks.top_entropy,
    }
    return Rows(
        id="pivots" if pivots.policy == "reference" else f"pivots_{pivots.policy}",
        title=f"Where single {pivots.unit}s decide the outcome, continued by {model}",
        first=f"Pivotal {pivots.unit}s of {model}",
        columns={"Share": SHARE, "By chance": SHARE, "Above chance": POINTS, "Of": COUNT},
        rows=tuple(
            (name, hit.share, hit.chance, hit.above_chance, hit.num) for name, hit in hits.items() if hit is not None
        ),
        note=note,
        plots=(Dots(column="Share", null="By chance"),),
    )


def _rows(summary: ProbeSummary) -> Iterator[Rows]:
    if summary.cross_sampling is not None:
        for entry in summary.cross_sampling.directions:
            yield dose_rows(entry, summary)
            yield _gap_rows(entry, summary, num_problems=summary.cross_sampling.num_problems)
    yield from (_pivot_rows(pivots, summary) for pivots in summary.pivots)


TOPIC = Topic(
    title="How few tokens are enough?",
    note="tokens of one model in the other's text, and tokens that decide the outcome",
    sentences={"Dose": with_rows(_sentences)},
    rows=of_probe(_rows),
    figures={
        "dose_response": FigureSpec(
            shows="Accuracy against the share of tokens taken from the other model (cross-sampling).",
            needs="swerve probe RUN probe.cross_sampling.max_problems=50",
        )
    },
)
