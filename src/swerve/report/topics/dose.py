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
from swerve.report.names import SELECTORS, direction_title, named, selector_word
from swerve.report.rows import COUNT, POINTS, SHARE, Curves, Dots, Rows
from swerve.report.topics.topic import FigureSpec, Topic, of_probe, rows_of
from swerve.text import count, number, percent, percent_interval, points_interval

_GAP = replace(SHARE, axis="% of the gap", low=-math.inf, high=math.inf)
"""A share of the gap between two models, which may be more than all of it."""


def _sentences(summary: ProbeSummary) -> Iterator[str]:
    """Yield what few tokens of the other model recover, and how many single tokens or sentences decide the outcome."""
    for entry in () if summary.cross_sampling is None else summary.cross_sampling.directions:
        yield dose_sentence(entry, summary)
    pivots = summary.pivots
    if pivots is None:
        return
    spike, breaks = pivots.on_spike, pivots.breaks
    said = (
        f"Along {count(pivots.num_rollouts)} rollouts a search found {count(pivots.num_pivots)} "
        f"{'single tokens' if pivots.unit == 'token' else 'sentences'} that change the success by "
        f"{percent(pivots.gap)} or more. Fresh continuations confirm {count(pivots.num_confirmed)} of them, at most "
        f"{number(pivots.max_confirmed_below_gap, 2)} of these wrongly on average."
    )
    if spike is not None and spike.share is not None:
        said += f" {percent_interval(spike.share)} of those found are on a spike (by chance {percent(spike.chance)})."

    # Whether the highest divergence is where the chance of a right answer falls for good.
    if breaks.top_divergence is not None and breaks.top_entropy is not None:
        said += (
            f" In {count(breaks.num_rollouts)} of the rollouts the success falls for good at one {pivots.unit}. It has "
            f"the highest divergence in {percent_interval(breaks.top_divergence.share)} of them (by chance "
            f"{percent(breaks.top_divergence.chance)}) and the reference's highest entropy in "
            f"{percent_interval(breaks.top_entropy.share)}, a difference of {points_interval(breaks.above_entropy)} "
            "points."
        )
    yield said


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
        f"{count(num_problems)} problems that were not selected. "
        f"Over all budgets: the mean up to {percent(entry.largest_common_share)} of the tokens.",
        plots=(Dots(column="Over all budgets", at=0, greys=(SELECTORS["random"],)),),
    )


def _recovered(selector: CrossSamplingSelector, *, budget: float) -> Estimate | None:
    return next((point.recovered for point in selector.points if point.budget == budget), None)


def _pivot_rows(pivots: Pivots) -> Rows:
    """Return what the tokens or sentences are at which the success jumps, beside chance."""
    # How often pivots are where other measures point, each beside chance.
    hits = {
        "On a spike": pivots.on_spike,
        "On a wrong step": pivots.on_wrong,
        "On the first wrong step": pivots.on_first_wrong,
        "Falls for good at the highest divergence": pivots.breaks.top_divergence,
        "Falls for good at the reference's highest entropy": pivots.breaks.top_entropy,
    }
    return Rows(
        id="pivots",
        title="Where single tokens decide the outcome" if pivots.unit == "token" else "Where sentences decide it",
        first=f"Pivotal {pivots.unit}s",
        columns={"Share": SHARE, "By chance": SHARE, "Above chance": POINTS, "Of": COUNT},
        rows=tuple(
            (name, hit.share, hit.chance, hit.above_chance, hit.num) for name, hit in hits.items() if hit is not None
        ),
        note=f"Bisection along {count(pivots.num_rollouts)} rollouts for a change of {percent(pivots.gap)} or more, "
        f"with {count(pivots.num_continuations)} continuations of each of {count(pivots.num_prefixes)} prefixes; two "
        f"equal rates differ by so much with probability {percent(pivots.false_positive_rate)}. Of {pivots.num_pivots} "
        f"pivots {count(pivots.num_rises)} are rises; their size is {points_interval(pivots.size_search)} points where "
        f"found and {points_interval(pivots.size_estimate)} on fresh continuations.",
        plots=(Dots(column="Share", null="By chance"),),
    )


def _rows(summary: ProbeSummary) -> Iterator[Rows]:
    if summary.cross_sampling is not None:
        for entry in summary.cross_sampling.directions:
            yield dose_rows(entry, summary)
            yield _gap_rows(entry, summary, num_problems=summary.cross_sampling.num_problems)
    if summary.pivots is not None:
        yield _pivot_rows(summary.pivots)


TOPIC = Topic(
    title="How few tokens are enough?",
    note="tokens of one model in the other's text, and tokens that decide the outcome",
    sentences={"Dose": of_probe(_sentences)},
    rows=of_probe(_rows),
    figures={
        "dose_response": FigureSpec(
            shows="Accuracy against the share of tokens taken from the other model (cross-sampling).",
            needs="swerve probe RUN probe.cross_sampling.max_problems=50",
        )
    },
)
