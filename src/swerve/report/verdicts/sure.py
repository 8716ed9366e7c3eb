"""How much of what the page says would chance say too?"""

from __future__ import annotations

from collections.abc import Iterator

from swerve.artifacts.probe_findings import SpikeRate
from swerve.artifacts.record import num_intervals
from swerve.estimates import false_by_chance
from swerve.report.evidence import Figure
from swerve.report.page import Verdict
from swerve.report.read import ReportInputs
from swerve.report.token_evidence import spike_evidence
from swerve.report.topics.spikes import density_rows, null_sentence
from swerve.text import number


def sure(inputs: ReportInputs) -> Iterator[Verdict]:
    """Say how many intervals miss, and whether the number of spikes says anything."""
    summary = inputs.summary
    summaries = () if summary is None else (summary,)
    chance = false_by_chance(num_intervals(*inputs.evaluations, *summaries), inputs.confidence)
    if not chance:
        return
    null = None if summary is None else summary.false_discoveries(summary.divergence, summary.spike_method)
    density = None if summary is None or summary.rule is None else summary.spikes_per_1000(summary.rule)
    if summary is None or null is None or null.per_1000_tokens is None:
        yield Verdict(id="sure", title="How sure? Some intervals here miss.", text=chance)
        return
    of = Figure(name="spikes of 1,000 tokens", statistic="per 1,000", columns=("spikes", "tokens"), write=number)
    yield Verdict(
        id="sure",
        title=_title(density, null),
        text=f"{chance} {null_sentence(summary)}",
        rows=density_rows(summary).kept,
        evidence=spike_evidence(inputs, of) if density is not None else None,
    )


def _title(density: float | None, null: SpikeRate) -> str:
    """Say whether spikes can be counted: only where there are more than between two runs of one model."""
    rate = null.per_1000_tokens
    assert rate is not None
    if density is None:
        return "How sure? Do not count spikes: a model run twice has them, too."
    both = f"one model run twice gives {number(rate.mean)} in 1,000 tokens, this training {number(density)}"
    if density > rate.high:
        return f"How sure? There are more spikes than by chance, but some are chance: {both}."
    return f"How sure? Do not count spikes: {both}."
