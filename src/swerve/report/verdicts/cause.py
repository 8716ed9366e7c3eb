"""Does the token that training changed most decide the answer?"""

from __future__ import annotations

from collections.abc import Iterator

from swerve.artifacts.probe_causes import SwapSelection
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.estimates import Estimate
from swerve.report.cause_evidence import swap_evidence
from swerve.report.evidence import Figure, with_interval
from swerve.report.format import is_few, too_few, would_show
from swerve.report.page import Verdict
from swerve.report.read import ReportInputs
from swerve.report.rows import SHARE
from swerve.report.summary_evidence import held_evidence
from swerve.report.topics.causes import spike_effect_rows
from swerve.text import count, counted, points_interval, whole_percent


def cause(inputs: ReportInputs, summary: ProbeSummary) -> Iterator[Verdict]:
    """Say whether the token at the spike decides the answer, and whether another would, too."""
    spike = summary.spike_swaps
    if summary.causal is None or spike is None:
        title, said = "Not tested: whether the changed token causes the answer.", "Not tested for cause"
        text = f"No token was forced at a spike: {_untested(summary)}."
        yield Verdict(id="cause", title=title, text=text, said=said, evidence=held_evidence(inputs))
        return
    if spike.effect is None:
        title = "Not determined: whether the changed token causes the answer."
        text = "Because both models choose the same token at every spike, so that nothing was replaced."
        yield Verdict(id="cause", title=title, text=text, said="Not tested for cause", evidence=swap_evidence(inputs))
        return
    title, said = _title(spike, spike.effect, summary)
    arms = {"the rollout's own token": spike.reference, f"that of `{summary.final}`": spike.checkpoint,
            "a token of neither model": spike.alternative}  # fmt: skip
    columns = {
        "own token": spike.reference,
        f"token of {summary.final}": spike.checkpoint,
        "other token": spike.alternative,
    }
    numbers = [
        Figure(name=f"right after the {name}", statistic="mean", columns=(name,), write=whole_percent)
        for name, arm in columns.items()
        if arm.success is not None
    ]
    gain = Figure(
        name="difference", statistic="mean of differences", columns=("own token", f"token of {summary.final}")
    )
    numbers += with_interval(gain, points_interval, spike.effect, summary.confidence)
    if spike.headline is not None:
        pair = ("other token where it differs", f"token of {summary.final} where it differs")
        contrast = Figure(name="against another token", statistic="mean of differences", columns=pair)
        numbers += with_interval(contrast, points_interval, spike.headline, summary.confidence)
    yield Verdict(
        id="cause",
        title=title,
        text=_text(spike, spike.effect, summary),
        said=said,
        num=spike.num_positions,
        figures={f"right after {name}": (SHARE, arm.success) for name, arm in arms.items()},
        rows=spike_effect_rows(summary).kept,
        evidence=swap_evidence(inputs, *numbers),
    )


def _title(spike: SwapSelection, effect: Estimate, summary: ProbeSummary) -> tuple[str, str]:
    """Return the verdict with both ends, and without its numbers."""
    final, other = f"`{summary.final}`", spike.alternative_effect
    before, after = whole_percent(spike.reference.success), whole_percent(spike.checkpoint.success)
    said = f"{final}'s token at the spike "
    if is_few(spike.num_positions, effect):
        both = f"{after} right with the token of {final}, {before} without"
        few = too_few(spike.num_positions, "spike", "say whether one token decides")
        return f"{few}: {both}.", f"{said}is not shown to change success"
    if not effect.excludes(0):
        both = f"{before} right with the answer's own, {after} with that of {final}"
        return (
            f"Replacing the most changed token does nothing to be seen: {both}.",
            f"{said}is not shown to change success",
        )

    # A control that is not shown to do anything is said so, and one that does as much takes the credit.
    title = f"Replacing one token {'repairs' if effect.mean > 0 else 'spoils'} answers: {after} right, from {before}."
    said += "changes success"
    if other is None or spike.alternative.success is None:
        return f"{title} Another token in its place was not tried.", said
    share = whole_percent(spike.alternative.success)
    if not other.excludes(0):
        return (
            f"{title} Another token in its place does not ({share}): it is this token that counts.",
            f"{said}; another is not shown to",
        )
    said += "; so does another"
    if other.mean * effect.mean < 0:
        return f"{title} Another token in its place does the opposite ({share}).", said
    more = spike.headline
    if more is None or not more.excludes(0):
        return f"{title} So does another token ({share}): what counts is leaving the answer's own.", said
    return f"{title} Another token does {'less' if more.mean * effect.mean > 0 else 'more'} ({share}).", said


def _text(spike: SwapSelection, effect: Estimate, summary: ProbeSummary) -> str:
    """Return on how many spikes, what the token does, and what it does more than another."""
    num = 0 if summary.causal is None else summary.causal.num_continuations
    seen = "" if effect.excludes(0) else would_show(effect)
    text = (
        f"At {counted(spike.num_positions, 'spike')} of answers of `{summary.reference}`, which writes {count(num)} "
        f"continuations after each token: {points_interval(effect)} points with the token of "
        f"`{summary.final}`{_same(spike)}{seen}."
    )
    if (more := spike.headline) is None:
        return text
    # What neither token does is said once.
    seen = would_show(more) if effect.excludes(0) and not more.excludes(0) else ""
    where = f"At the other {counted(spike.num_different, 'spike')}, against" if _same(spike) else "Against"
    return f"{text} {where} another token in its place: {points_interval(more)} points{seen}."


def _same(spike: SwapSelection) -> str:
    """Return at how many spikes nothing was replaced; empty where something was replaced at each."""
    num = spike.num_positions - spike.num_different
    return f", which is the answer's own at {count(num)} of them" if num > 0 else ""


def _untested(summary: ProbeSummary) -> str:
    """Return why no token was forced, or what forces one."""
    if not summary.num_rollouts:
        return "there is no rollout to compare"
    if summary.is_imported and any("no swaps" in note for note in summary.notes):
        return "it needs gold answers, and a grader by --task KIND"
    return "run swerve probe with probe.causal.max_rollouts above 0"
