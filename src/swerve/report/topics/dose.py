"""Dose: how few tokens of the other model are enough, and which single tokens decide the outcome?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
from swerve.report.cause_evidence import dose_evidence
from swerve.report.evidence import Evidence, Figure, Sentence, digits_of
from swerve.report.format import would_show
from swerve.report.names import SELECTORS, continuing_model, direction_title, named, selector_word
from swerve.report.pivot_evidence import pivot_evidence
from swerve.report.read import ReportInputs
from swerve.report.rows import COUNT, POINTS, SHARE, Curves, Dots, Rows
from swerve.report.topics.topic import FigureSpec, Topic, of_probe, rows_of, with_rows
from swerve.text import count, counted, number, percent, percent_interval, points_interval

_GAP = replace(SHARE, axis="% of the gap", low=-math.inf, high=math.inf)
"""A share of the gap between two models, which may be more than all of it."""


def _sentences(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[str]:
    """Yield what few tokens of the other model recover, and how many single tokens or sentences decide the outcome."""
    for entry in () if summary.cross_sampling is None else summary.cross_sampling.directions:
        yield Sentence(dose_sentence(entry, summary), _evidence(inputs, entry, summary))
    for pivots in summary.pivots:
        for said, figures in _pivot_sentences(pivots, summary):
            yield Sentence(said, pivot_evidence(inputs, pivots, *figures))


def _evidence(inputs: ReportInputs, entry: CrossSamplingDirection, summary: ProbeSummary) -> Evidence | None:
    """Return the problems' success alone, with the least dose, and of the other model."""
    dose = least_dose(entry, summary.divergence)
    if dose is None or entry.gap is None or not entry.gap.excludes(0):
        return dose_evidence(inputs, entry, None, *_gap(entry))
    ends = {"alone": entry.base, "with chosen tokens": dose[1].accuracy, "other": entry.other}
    means = (
        Figure(name=name, statistic="mean", columns=(name,), write=digits_of(percent_interval, known))
        for name, known in ends.items()
        if known is not None
    )
    taken = Figure(name="tokens taken", statistic="ratio of sums", columns=("tokens taken", "tokens"), write=percent)
    return dose_evidence(inputs, entry, dose, taken, *means)


def _gap(entry: CrossSamplingDirection) -> list[Figure]:
    """Return the difference between the two models alone, as it is said where no difference is seen."""
    if entry.gap is None or entry.gap.excludes(0):
        return []
    write = digits_of(points_interval, entry.gap)
    return [Figure(name="gap", statistic="paired difference of means", columns=("alone", "other"), write=write)]


def _pivot_sentences(pivots: Pivots, summary: ProbeSummary) -> Iterator[tuple[str, Sequence[Figure]]]:
    """Yield where one model's chance of a right answer jumps, each sentence with the numbers that rows give."""
    spike, pieces = pivots.on_spike, "token" if pivots.unit == "token" else "sentence"
    model = continuing_model(pivots.policy, summary)
    figures = [Figure(name="rollouts", statistic="rows"), Figure(name="found", statistic="sum", columns=("found",))]
    said = f"Along {counted(pivots.num_rollouts, 'rollout')}, continued by {model}"
    if pivots.start is not None:
        said += f" (right {percent_interval(pivots.start)} of the time from the prompt on)"
        figures.append(_share("right from the prompt on", None, pivots.start))
    said += f", a search found {counted(pivots.num_pivots, pieces)} across which its success changes by "
    said += f"{percent(pivots.gap)} or more."
    if pivots.num_pivots:
        said += (
            f" Fresh continuations confirm {count(pivots.num_confirmed)} of them, at most "
            f"{number(pivots.max_confirmed_below_gap, 2)} of these wrongly on average."
        )
        figures.append(Figure(name="confirmed", statistic="sum", columns=("confirmed",)))
    yield said, figures
    if pivots.num_could_fall is not None and pivots.num_could_fall < pivots.num_rollouts:
        num = Figure(name="could fall", statistic="sum", columns=("could fall",))
        said = f"Such a fall could be found in {count(pivots.num_could_fall)} of the rollouts"
        yield f"{said}: in the others {model} is nowhere right so often.", [num]
    if spike is not None and spike.share is not None:
        on_spike = _share("found on a spike", "found", spike.share)
        found = Figure(name="found", statistic="sum", columns=("found",))
        share = f"{percent_interval(spike.share)} are on a spike (by chance {percent(spike.chance)})"
        yield (
            f"Of the {counted(pivots.num_pivots, pieces)} found along text continued by {model}, {share}.",
            [found, on_spike],
        )
    yield from _breaks(pivots, pieces, model)


def _breaks(pivots: Pivots, pieces: str, model: str) -> Iterator[tuple[str, Sequence[Figure]]]:
    """Yield whether the highest divergence is where the chance of a right answer falls for good."""
    breaks = pivots.breaks
    divergence, entropy, apart = breaks.top_divergence, breaks.top_entropy, breaks.above_entropy
    if divergence is None or entropy is None:
        return
    verdict = "Whether it is there more often is not to be seen" if apart is None or not apart.excludes(0) else ""
    if apart is not None and apart.excludes(0):
        verdict = f"It is there {'more' if apart.mean > 0 else 'less'} often"
    figures = [Figure(name="falls for good", statistic="sum", columns=("falls for good",))]
    for name, known in (("highest divergence there", divergence.share), ("highest entropy there", entropy.share)):
        if known is not None:
            figures.append(_share(name, None, known))
    yield (
        f"In {count(breaks.num_rollouts)} of the rollouts the success of {model} falls for good at one {pieces}. The "
        f"highest divergence is there in {percent_interval(divergence.share)} of them (by chance "
        f"{percent(divergence.chance)}), the reference's highest entropy in {percent_interval(entropy.share)}. "
        f"{verdict}: {points_interval(apart)} points.",
        figures,
    )


def _share(column: str, of: str | None, known: Estimate) -> Figure:
    """Return the mean of a column, or its share of another one."""
    columns = (column,) if of is None else (column, of)
    statistic, write = "mean" if of is None else "ratio of sums", digits_of(percent_interval, known)
    return Figure(name=column, statistic=statistic, columns=columns, write=write)


def dose_sentence(entry: CrossSamplingDirection, summary: ProbeSummary) -> str:
    """Say what few tokens of the other model recover; empty where that was not measured."""
    title, dose, gap = direction_title(entry.direction, summary), least_dose(entry, summary.divergence), entry.gap
    if gap is not None and not gap.excludes(0):
        apart = f"{points_interval(gap)} points{would_show(gap)}"
        return f"{title}: no difference between the two models alone is to be seen that tokens could recover, {apart}."
    if gap is None or dose is None:
        return ""
    selector, point = dose
    taken = f"{percent(point.share_swapped)} of the tokens, chosen by {selector_word(selector.selector)}"
    both = f"right in {percent_interval(point.accuracy)} with {taken}, in {percent_interval(entry.base)} without"
    way = f"{percent_interval(point.recovered)} of the way to {percent_interval(entry.other)}"
    if point.gain is not None and not point.gain.excludes(0):
        way = f"no change is to be seen, {points_interval(point.gain)} points, on the way to "
        way += percent_interval(entry.other)
    said = f"{title}: {both}; {way}."
    if (more := selector.auc_over_random) is None:
        return said
    over, of_gap = f"{said} Over all budgets", f"{percent_interval(more)} of the gap"
    if not more.excludes(0):
        return f"{over} no difference from random choice is to be seen: {of_gap}."
    return (
        f"{over} that recovers {of_gap} more than random choice."
        if more.mean > 0
        else f"{over} random choice recovers more: a difference of {of_gap}."
    )


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
