"""A run's result in a few lines of words and numbers, each read from the run's artifacts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from swerve.artifacts.evaluation import MANY_SAMPLES, Evaluation, largest_k, rewards_are_fractions
from swerve.artifacts.probe_causes import SwapSelection
from swerve.artifacts.probe_findings import DIVERGENCE_NAMES
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.record import num_intervals
from swerve.cli.console import format_duration, one_line
from swerve.estimates import Estimate, SkewedMean, false_by_chance, hundredths, hundredths_interval

NOT_MEASURED = "not measured"
_FAILURES = {
    "unanswered": "without an answer",
    "timeout": "at a limit of the grader",
    "error": "on which the grader failed",
}
_MIN_UNANSWERED = 0.01
"""Texts without an answer are mentioned from this fraction of the completions on."""


def format_percent(value: float | None) -> str:
    """Return a fraction as a percentage with one decimal; with more where it would read as 0% or 100% and is not."""
    return NOT_MEASURED if value is None else f"{hundredths(value)}%"


def _interval(estimate: Estimate | None) -> str:
    return NOT_MEASURED if estimate is None else hundredths_interval(estimate, "%")


def _points(effect: Estimate | None) -> str:
    """Return a difference of two fractions in percentage points."""
    return NOT_MEASURED if effect is None else hundredths_interval(effect, " points", signed=True)


def evaluation_lines(evaluations: Sequence[Evaluation], *, last_of_stage: bool = False) -> list[str]:
    """Return a line per checkpoint under a heading; with `last_of_stage` only the last checkpoint of each stage."""
    if not evaluations:
        return [f"Held-out accuracy: {NOT_MEASURED}."]
    shown = (
        list({evaluation.stage: evaluation for evaluation in evaluations}.values()) if last_of_stage else evaluations
    )
    heading = f"Held-out problems: {evaluations[-1].greedy.num_problems}, answered greedily (intervals in brackets)."
    lines = [_accuracy_line(evaluation, reward_is_fraction=rewards_are_fractions(evaluations)) for evaluation in shown]
    return [heading, *lines, *_sampling_line(shown), *_failure_line(shown)]


def _accuracy_line(evaluation: Evaluation, *, reward_is_fraction: bool) -> str:
    greedy = evaluation.greedy
    parts = [f"accuracy {_interval(greedy.accuracy)}"]
    if greedy.trace_right is not None:
        parts.append(f"trace fully right {_interval(greedy.trace_right)}")
    if (reward := evaluation.sampled.mean_reward) is not None:
        text = f"{reward.mean:.3g} [{reward.low:.3g}, {reward.high:.3g}]"
        parts.append(f"mean reward of samples {_interval(reward) if reward_is_fraction else text}")
    return f"  {one_line(evaluation.checkpoint)}: {', '.join(parts)}"


def _sampling_line(evaluations: Sequence[Evaluation]) -> list[str]:
    """Say how often one of k samples is right, where there are enough samples to say more than their mean does."""
    k = largest_k(evaluations)
    if k < MANY_SAMPLES:
        return []
    shares = [
        f"{one_line(evaluation.checkpoint)} {_interval(rate)}"
        for evaluation in evaluations
        if (rate := evaluation.sampled.of_samples(k).pass_at_k)
    ]
    return [f"One of {k} samples is right (pass@{k}): {', '.join(shares)}."]


def _failure_line(evaluations: Sequence[Evaluation]) -> list[str]:
    """Say how many completions were not graded: any that the grader gave up on, and texts without an answer if many."""
    failures = []
    for evaluation in evaluations:
        num = {**dict.fromkeys(_FAILURES, 0), **evaluation.statuses, "unanswered": evaluation.num_unanswered}
        total = evaluation.statuses.total()
        if num["timeout"] + num["error"] or num["unanswered"] >= max(1, _MIN_UNANSWERED * total):
            parts = [f"{num[key]} {words}" for key, words in _FAILURES.items() if num[key]]
            failures.append(f"{one_line(evaluation.checkpoint)} {', '.join(parts)}, of {total}")
    said = f"Completions without an answer or a verdict, which count as wrong: {'; '.join(failures)}."
    return [said] if failures else []


def probe_lines(probe: ProbeSummary | None, evaluations: Sequence[Evaluation] = ()) -> list[str]:
    """Return what the probe found: the problems that turned right, the spikes, the causal test, and its caveats.

    The last line says how many of its intervals, and of those of the evaluations, are false by chance.
    """
    if probe is None:
        return [f"Probe: {NOT_MEASURED}."]
    # What limits all of it comes last.
    notes = [f"Note: {note}" for note in probe.notes]
    if not notes and not probe.reliable:
        notes = ["Note: too few rollouts for these metrics to be relied upon."]
    if chance := false_by_chance(num_intervals(probe, *evaluations), probe.confidence):
        notes.append(f"Note: {chance[:1].lower()}{chance[1:]}")
    lines = [
        _flip_line(probe),
        _divergence_line(probe),
        *_stage_line(probe),
        *_claim_lines(probe),
        *_recovery_line(probe),
        *_causal_lines(probe),
        *_pivot_lines(probe),
        *_crossing_lines(probe),
        *notes,
    ]
    # Names are shown as they are, an indent apart.
    return [line[: len(line) - len(line.lstrip())] + one_line(line) for line in lines]


def _flip_line(probe: ProbeSummary) -> str:
    reference, final = probe.reference, probe.final
    if probe.responses is not None:
        kinds = {"imported_wrong": "wrong ones", "imported_right": "right ones"}
        kind = kinds.get(probe.population, "of them")
        read = f"{probe.responses.num_responses} responses of {probe.responses.path}"
        return f"{read}; the metrics are about the {probe.num_rollouts} {kind}."
    wrong, flipped = probe.num_reference_wrong, probe.num_reference_wrong_final_right
    if wrong is None or flipped is None:
        return f"Problems that {reference} gets wrong and {final} gets right: {NOT_MEASURED}."
    return (
        f"Of {probe.num_problems} problems {reference} gets {wrong} wrong; {final} gets "
        f"{'all ' if flipped == wrong else ''}{flipped} of those right ({probe.by_itself}).{_change(probe)}"
        f"{_chosen(probe)}"
    )


def _chosen(probe: ProbeSummary) -> str:
    """Return the rest of the table that rollouts were chosen by, and how many were."""
    selected = probe.selected
    if selected is None:
        return ""
    table = f"right with both {selected.both_right}, with {probe.reference} alone {selected.only_reference_right}"
    rule = "samples of the half that did not decide" if probe.selection == "split" else "the samples that decided"
    return f" ({table}.) Compared: {probe.num_rollouts} rollouts, selection {selected.name}, {rule}."


def _change(probe: ProbeSummary) -> str:
    test, selected = probe.mcnemar, probe.selected
    difference, p_value, how = (None, None, "") if test is None else (test.difference, test.p_value, "McNemar p")
    if selected is not None:
        difference, p_value, how = selected.accuracy_difference, selected.p_value, "of all samples, p"
    if difference is None:
        return ""
    said = NOT_MEASURED if p_value is None else "< 0.001" if p_value < 0.001 else f"{p_value:.2g}"
    return f" Accuracy over all: {_points(difference)}, {how} {said}."


def _stage_line(probe: ProbeSummary) -> list[str]:
    means = [(stage.checkpoint, stage.of(probe.divergence)) for stage in probe.stages]
    texts = [f"{name} {_nats(mean)}" for name, mean in means if mean is not None]
    return [f"By stage, from {probe.reference}: {'; '.join(texts)} nats."] if texts else []


def _divergence_line(probe: ProbeSummary) -> str:
    """Say how far the final checkpoint is from the reference, beside what was there before and what is noise."""
    final = probe.at_final(probe.divergences)
    pairs = [*([] if final is None else [final]), *(pair for pair in probe.pairs if pair.reference == probe.baseline)]
    means = [
        f"{pair.checkpoint} against {pair.reference} {_nats(mean)}"
        for pair in pairs
        if (mean := pair.of(probe.divergence)) is not None
    ]
    if not means:
        return f"Divergence: {NOT_MEASURED}."
    if probe.noise_floor is not None and probe.divergence in probe.noise_floor:
        means.append(f"noise {probe.noise_floor[probe.divergence].mean:.1g}")
    over = f"{probe.num_rollouts} rollouts"
    return f"{DIVERGENCE_NAMES[probe.divergence]} divergence, nats per token, {over}: {'; '.join(means)}."


def _nats(mean: SkewedMean) -> str:
    """Return a mean divergence, after what no rare tail can move."""
    parts = [f"mean {_ends(mean)}{'' if mean.reliable else ', not reliable'}"]
    if mean.above is not None:
        parts.insert(0, f"above {mean.threshold:g} in {_interval(mean.above)} of problems")
    if mean.median is not None:
        parts.insert(0, f"median {_ends(mean.median)}")
    return ", ".join(parts)


def _ends(estimate: Estimate) -> str:
    return f"{estimate.mean:.2g} [{estimate.low:.2g}, {estimate.high:.2g}]"


def _claim_lines(probe: ProbeSummary) -> Iterator[str]:
    """Say where the final checkpoint's divergence falls, and which of its nulls each figure is above or below."""
    if probe.knows_no_wrong_step:
        yield f"Where the spikes fall: {NOT_MEASURED}, as no step is known to be wrong."
    if not probe.claims:
        yield f"Where the divergence falls: {NOT_MEASURED}."
        return
    # The heading says what the figures stand beside.
    noise, nulls = probe.noise_models, "no noise models"
    if noise is not None and noise.scales:
        ends = f"{min(noise.scales):.2g} to {max(noise.scales):.2g}"
        nulls = f"{len(noise.scales)} noise models ({ends} times the norm of what training changed)"
    elif noise is not None:
        nulls += f" ({noise.not_measured})"
    where = f"Where {DIVERGENCE_NAMES[probe.divergence]} falls in {probe.num_rollouts} rollouts"
    yield f"{where}, beside chance, the entropy of {probe.reference} and {nulls}"
    for claim in probe.claims:
        if claim.stands or not claim.part:
            text = "{:.3f}".format if claim.figure == "auc" else format_percent
            ends = ", ".join(text(end).rstrip("%") for end in (claim.estimate.low, claim.estimate.high))
            beside = ", ".join(f"{null.null} {text(null.value)}" for null in claim.nulls)
            yield f"  {claim.name}: {text(claim.estimate.mean)} [{ends}] ({beside}): {claim.verdict}"


def _recovery_line(probe: ProbeSummary) -> list[str]:
    """Say how well spikes find the known wrong tokens, and how many there are where there is nothing to find."""
    rule, null = probe.rule, probe.false_discoveries(probe.divergence, probe.spike_method)
    parts = []
    if rule is not None:
        parts.append(f"on wrong tokens: precision {_interval(rule.precision)}, recall {_interval(rule.recall)}")
    if null is not None and null.per_1000_tokens is not None:
        parts.append(f"{_ends(null.per_1000_tokens)} per 1,000 tokens of the model against itself")
    return [f"Spikes by {probe.spike_method}: {'; '.join(parts)}."] if parts else []


_PLACES = {
    "spike": "at the highest spike",
    "matched": "at matched positions",
    "random": "at random positions",
    "first_wrong": "at the first wrong token",
}


def _causal_lines(probe: ProbeSummary) -> list[str]:
    swaps = probe.causal
    if swaps is None:
        return [f"Causal test: {NOT_MEASURED}."]
    spike = swaps.selection("spike")
    headline = None if spike is None else spike.headline
    heading = (
        f"Causal test, {swaps.num_rollouts} rollouts x {swaps.num_continuations} continuations by {probe.reference}: "
        f"token of {probe.final} against another at the highest spike {_points(headline)}; against the rollout's own"
    )
    return [heading, *map(_causal_line, swaps.selections)]


def _causal_line(selection: SwapSelection) -> str:
    control = selection.alternative_effect
    beside = "" if control is None else f"; control token (neither model's choice): {_points(control)}"
    same = selection.num_positions - selection.num_different
    trivial = f" (the same token at {same} of {selection.num_positions})" if same else ""
    success = f"success {format_percent(selection.reference.success)} -> {format_percent(selection.checkpoint.success)}"
    where = _PLACES.get(selection.selection, f"where {selection.selection} is highest")
    return f"  {where}: {success}, {_points(selection.effect)}{trivial}{beside}"


def _pivot_lines(probe: ProbeSummary) -> Iterator[str]:
    pivots = probe.pivots
    if pivots is not None:
        where = None if pivots.on_spike is None else pivots.on_spike.share
        yield (
            f"Pivotal {pivots.unit}s: {pivots.num_pivots} in {pivots.num_rollouts} rollouts, {pivots.num_confirmed} "
            f"with a jump of {format_percent(pivots.gap)} or more confirmed by fresh continuations; on spikes "
            f"{_interval(where)}."
        )
        breaks = pivots.breaks
        if breaks.top_divergence is not None and breaks.top_entropy is not None:
            yield (
                f"  where success falls for good, in {breaks.num_rollouts} rollouts: the highest divergence is there "
                f"in {_interval(breaks.top_divergence.share)} (chance {format_percent(breaks.top_divergence.chance)}), "
                f"the reference's highest entropy in {_interval(breaks.top_entropy.share)}"
            )


def _crossing_lines(probe: ProbeSummary) -> Iterator[str]:
    """Say what taking the other model's token at few places does to accuracy."""
    crossing = probe.cross_sampling
    if crossing is None:
        return
    for direction in crossing.directions:
        models = probe.reference, probe.final
        base, other = models if direction.direction == "checkpoint_into_reference" else models[::-1]
        first = [(selector.selector, selector.points[0]) for selector in direction.selectors if selector.points]
        chosen = ", ".join(f"{name} {_interval(point.accuracy)}" for name, point in first)
        yield (
            f"Cross-sampling, {other} into {base}, {crossing.num_problems} problems: accuracy "
            f"{_interval(direction.base)} -> {_interval(direction.other)} with all tokens; with "
            f"{format_percent(first[0][1].budget if first else None)} of them, chosen by {chosen}."
        )


def run_summary(
    evaluations: Sequence[Evaluation], probe: ProbeSummary | None, *, seconds: float | None, report: Path | None
) -> str:
    """Return the summary of a whole chain as text.

    Args:
        evaluations: of every checkpoint, by step.
        probe: what the probe found; None: not probed.
        seconds: wall time of the command.
        report: path of the report's page.
    """
    took = NOT_MEASURED if seconds is None else format_duration(seconds)
    lines = [
        *evaluation_lines(evaluations, last_of_stage=True),
        *probe_lines(probe, evaluations),
        f"Wall time: {took}.",
    ]
    return "\n".join([*lines, f"Report: {report or 'not written'}"]) + "\n"
