"""How sure is the headline, how many intervals miss, and does the number of spikes say anything?"""

from __future__ import annotations

from collections.abc import Iterator

from swerve.artifacts.probe_findings import SpikeRate
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.record import num_intervals
from swerve.estimates import Estimate, false_by_chance
from swerve.report.evidence import Figure, with_interval
from swerve.report.format import FEW, mean_words, too_few
from swerve.report.names import METHODS, divergence_name, named
from swerve.report.page import Verdict
from swerve.report.read import ReportInputs
from swerve.report.summary_evidence import interval_evidence, null_evidence
from swerve.report.token_evidence import divergence_evidence, divergence_figure, spike_evidence
from swerve.report.topics.outcome import Accuracies, accuracies, accuracy_evidence
from swerve.report.topics.spikes import density_rows
from swerve.text import count, number, number_interval, points_interval


def sure(inputs: ReportInputs) -> Iterator[Verdict]:
    """Say how sure the first sentence of the page is, and how many intervals of the page miss."""
    measured, summary = accuracies(inputs), inputs.summary
    if measured is not None:
        yield _of_accuracy(inputs, measured)
    elif summary is not None and summary.final_divergence is not None:
        yield _of_divergence(inputs, summary, summary.final_divergence)

    # How many intervals miss what they are of.
    summaries = () if summary is None else (summary,)
    num = num_intervals(*inputs.evaluations, *summaries)
    said, _, because = false_by_chance(num, inputs.confidence).partition(". ")
    if said:
        of = Figure(name="intervals", statistic="sum", columns=("intervals",))
        yield Verdict(id="chance", title=f"{said.rstrip('.')}.", text=because, evidence=interval_evidence(inputs, of))


def _of_accuracy(inputs: ReportInputs, measured: Accuracies) -> Verdict:
    """Say how sure it is that accuracy changed."""
    difference, level = measured.difference, inputs.confidence or 0.95
    answer, figures = "Not determined, because the two were not compared problem by problem.", []
    if measured.first is None:
        answer = "Nothing is compared: one checkpoint was evaluated."
    elif difference is not None:
        gain = Figure(name="gain", statistic="paired difference of means", columns=measured.labels)
        figures = with_interval(gain, points_interval, difference, level)
        ends = points_interval(difference).partition(" (")[2].removesuffix(")")
        answer = f"Not of any change: it may be anything from {ends} points."
        if difference.excludes(0):
            answer = f"Sure that it is {'better' if difference.mean > 0 else 'worse'}, by {ends} points."
        elif measured.num < FEW:
            answer = f"{too_few(measured.num, 'problem', 'be sure of anything')}."
    other = "; whether another training run would be as good was not tested" if inputs.metrics else ""
    text = f"At {level:.0%}, of {measured.problems}{other}."
    if difference is not None:
        text += f" The difference: {points_interval(difference)} points."
    evidence = accuracy_evidence(inputs, measured, *figures)
    return Verdict(id="sure", title=f"How sure? {answer}", text=text, num=measured.num, evidence=evidence)


def _of_divergence(inputs: ReportInputs, summary: ProbeSummary, mean: Estimate) -> Verdict:
    """Say how sure it is that two models differ."""
    floor = None if summary.noise_floor is None else summary.noise_floor.get(summary.divergence)
    answer = "Sure that the two models differ."
    if summary.num_rollouts < FEW or not summary.reliable:
        answer = f"{too_few(summary.num_rollouts, 'answer', 'say how far the two models are apart')}."
    elif floor is not None and mean.low <= floor.mean:
        answer = "Not that the two models differ at all: one model run twice differs as much."
    least = "" if floor is None else "less than a millionth" if floor.mean < _NOTHING else number(floor.mean, 2)
    twice = f", where one model run twice gives {least}" if least else ""
    return Verdict(
        id="sure",
        title=f"How sure? {answer}",
        text=f"By {divergence_name(summary)} {mean_words(mean)} nats a token at {summary.confidence:.0%}{twice}.",
        num=summary.num_rollouts,
        evidence=divergence_evidence(inputs, divergence_figure(summary, mean)),
    )


_NOTHING = 1e-6
"""Nats: a divergence that is rounding."""


def counting(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[Verdict]:
    """Say whether the number of spikes says anything: only where there are more than between two runs of one model."""
    null = summary.false_discoveries(summary.divergence, summary.spike_method)
    if null is None or null.per_1000_tokens is None:
        return
    density = None if summary.rule is None else summary.spikes_per_1000(summary.rule)
    of = Figure(name="spikes of 1,000 tokens", statistic="per 1,000", columns=("spikes", "tokens"), write=number)
    yield Verdict(
        id="spikes-counted",
        title=_title(density, null, named(METHODS, summary.spike_method)),
        text=f"By the {named(METHODS, summary.spike_method)} rule, over {count(null.num_tokens)} tokens that one model "
        f"read twice, where every spike is false: {number_interval(null.per_1000_tokens)}.",
        rows=density_rows(summary).kept,
        evidence=spike_evidence(inputs, of) if density is not None else null_evidence(summary, of),
    )


def _title(density: float | None, null: SpikeRate, method: str) -> str:
    rate = null.per_1000_tokens
    assert rate is not None
    if density is None:
        return f"Do not count {method} spikes: one model run twice gives {number(rate.mean)} in 1,000 tokens."
    both = f"one model run twice gives {number(rate.mean)} in 1,000 tokens, this training {number(density)}"
    if density > rate.high:
        return f"There are more {method} spikes than by chance, but some are chance: {both}."
    return f"Do not count {method} spikes: {both}."
