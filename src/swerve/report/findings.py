"""Sentences of the report, each made from computed figures with their uncertainty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from swerve.report.findings_causal import causal_sentences, dose_sentences, selections, training_sentences
from swerve.report.findings_where import divergence_sentences, reading_sentences, step_sentences, where_sentences
from swerve.report.inputs import ReportInputs
from swerve.report.names import divergence_name
from swerve.report.sampling import MANY_SAMPLES, largest_k, sampled
from swerve.report.sections_selection import entry_at
from swerve.report.sections_spikes import knows_no_wrong_step, spike_entry
from swerve.report.values import (
    NOT_MEASURED,
    count,
    interval,
    number,
    percent,
    percent_interval,
    points,
)

__all__ = ["FindingGroup", "Tile", "finding_groups", "findings", "tiles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A headline figure of the page."""

    caption: str
    value: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingGroup:
    """Sentences on one thing."""

    name: str
    sentences: tuple[str, ...]


def findings(inputs: ReportInputs) -> tuple[str, ...]:
    """Return what the run shows, one claim a sentence, in the order of the argument."""
    return tuple(sentence for group in finding_groups(inputs) for sentence in group.sentences)


def finding_groups(inputs: ReportInputs) -> tuple[FindingGroup, ...]:
    """Return the findings by topic; topics without any are left out."""
    summary = inputs.summary
    outcome = [_accuracy(inputs), _samples(inputs), _traces(inputs)]
    if summary is None:
        outcome.append("Where the checkpoints differ from the reference was not measured.")
    groups = {"Outcome": outcome}
    if summary is not None:
        groups |= {name: write(summary) for name, write in _PROBE_GROUPS.items()}
    groups["Caution"] = [*_unreliable(summary), *_collapses(inputs), *_ungraded(inputs)]
    kept = {name: tuple(one for one in sentences if one) for name, sentences in groups.items()}
    return tuple(FindingGroup(name=name, sentences=found) for name, found in kept.items() if found)


_PROBE_GROUPS: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "Read": reading_sentences,
    "Divergence": divergence_sentences,
    "Wrong steps": step_sentences,
    "Where": where_sentences,
    "Cause": causal_sentences,
    "Dose": dose_sentences,
    "Training": training_sentences,
}


def _unreliable(summary: Mapping[str, Any] | None) -> list[str]:
    if summary is None or summary.get("reliable", True):
        return []
    return ["The probe had too few rollouts for its figures to be relied upon."]


def _collapses(inputs: ReportInputs) -> list[str]:
    """Say where training was found to have collapsed, and what followed."""
    sentences = []
    for record in inputs.metrics:
        if record.get("collapse") is None:
            continue
        back = record.get("rolled_back_to")
        after = "" if back is None else f" Training went back to the weights of step {count(back)} of the stage."
        sentences.append(
            f"Stage {record['stage']} collapsed at its step {count(record['stage_step'])}: "
            f"{record.get('collapse_message', record['collapse'])}.{after}"
        )
    return sentences


def _accuracy(inputs: ReportInputs) -> str:
    first, last = inputs.reference, inputs.final
    before = interval(first.get("accuracy")) if first else None
    after = interval(last.get("accuracy")) if last else None
    if first is None or last is None or before is None or after is None:
        return "Accuracy was not measured."
    names = first["checkpoint"], last["checkpoint"]
    figures = f"{percent_interval(before)} at {names[0]}", f"{percent_interval(after)} at {names[1]}"
    lead = f"On {count(last.get('num_problems'))} held-out problems, greedy accuracy"
    if before.overlaps(after):
        return f"{lead} was {figures[0]} and {figures[1]}: the intervals overlap, so no change is shown."
    verb = "rose" if after.mean > before.mean else "fell"
    return f"{lead} {verb} from {figures[0]} to {figures[1]}."


def _samples(inputs: ReportInputs) -> str:
    """Say whether one of many samples is right more often than before: what is new, not only what is more likely."""
    k = largest_k(inputs.evaluations)
    first, last = inputs.reference, inputs.final
    if first is None or last is None or first is last or k < MANY_SAMPLES:
        return ""
    before, after = sampled(first, k, "pass_at_k"), sampled(last, k, "pass_at_k")
    if before is None or after is None:
        return ""
    figures = (
        f"{percent_interval(before)} at {first['checkpoint']}",
        f"{percent_interval(after)} at {last['checkpoint']}",
    )
    lead = f"The chance that one of {k} samples is right (pass@{k})"
    if before.overlaps(after):
        return f"{lead} was {figures[0]} and {figures[1]}: the intervals overlap, so no change is shown."
    verb = "rose" if after.mean > before.mean else "fell"
    return f"{lead} {verb} from {figures[0]} to {figures[1]}."


def _ungraded(inputs: ReportInputs) -> list[str]:
    """Say of how many completions the grader could not judge the answer, and where training stopped for it."""
    statuses: Counter[str] = Counter()
    for entry in inputs.evaluations:
        statuses.update(entry.get("statuses") or {})
    sentences = []
    if statuses["timeout"] or statuses["error"]:
        sentences.append(
            f"In the evaluations, {count(statuses['timeout'])} of {count(statuses.total())} completions reached a "
            f"limit of the grader and {count(statuses['error'])} made it fail; they count as wrong."
        )
    sentences += [
        f"Stage {record['stage']} stopped at its step {count(record['stage_step'])}, as "
        f"{percent(record['stopped_error_share'])} of its last completions could not be graded."
        for record in inputs.metrics
        if record.get("stopped_error_share") is not None
    ]
    return sentences


def _traces(inputs: ReportInputs) -> str:
    last = inputs.final
    right = interval(last.get("trace_right")) if last else None
    if last is None or right is None:
        return ""
    return f"Of the traces of {last['checkpoint']}, {percent_interval(right)} have no wrong step at all."


def tiles(inputs: ReportInputs) -> tuple[Tile, ...]:
    """Return the four headline figures; one that is missing says so."""
    return (_accuracy_tile(inputs), _population_tile(inputs), _spike_tile(inputs), _causal_tile(inputs))


def _accuracy_tile(inputs: ReportInputs) -> Tile:
    first, last = inputs.reference, inputs.final
    before = interval(first.get("accuracy")) if first else None
    after = interval(last.get("accuracy")) if last else None
    if first is None or last is None or before is None or after is None:
        detail = "responses from elsewhere" if inputs.is_imported else "run swerve eval"
        return Tile(caption="Greedy accuracy", value=NOT_MEASURED, detail=detail)
    return Tile(
        caption="Greedy accuracy",
        value=f"{percent(before.mean)} → {percent(after.mean)}",
        detail=f"{first['checkpoint']} to {last['checkpoint']}, {count(last.get('num_problems'))} held-out problems",
    )


def _population_tile(inputs: ReportInputs) -> Tile:
    if inputs.summary is None:
        return Tile(caption="Wrong before, right after", value=NOT_MEASURED, detail="run swerve probe")
    if inputs.is_imported:
        read = f"of {count((inputs.summary.get('responses') or {}).get('num_responses'))} responses from a file"
        return Tile(caption="Responses read", value=count(inputs.summary.get("num_rollouts")), detail=read)
    wrong = inputs.summary.get("num_reference_wrong")
    return Tile(
        caption="Wrong before, right after",
        value=count(inputs.summary.get("num_reference_wrong_final_right")),
        detail=f"of {count(wrong)} problems {inputs.summary.get('reference')} gets wrong",
    )


def _spike_tile(inputs: ReportInputs) -> Tile:
    caption = "Top spike on the first wrong step"
    summary = inputs.summary or {}
    entry = spike_entry(summary, summary.get("final"), summary.get("divergence"))
    share = interval(entry.get("top_on_first_wrong")) if entry else None
    if knows_no_wrong_step(summary):
        return _divergence_tile(summary)
    if entry is None or share is None:
        return Tile(caption=caption, value=NOT_MEASURED, detail="run swerve probe")
    return Tile(
        caption=caption,
        value=percent(share.mean),
        detail=f"{100 * share.low:.1f} to {100 * share.high:.1f}; by chance {percent(entry.get('chance_first_wrong'))}",
    )


def _divergence_tile(summary: Mapping[str, Any]) -> Tile:
    """Return how far the final checkpoint went, for a probe that has no wrong steps to look for."""
    entry = entry_at(summary.get("divergences"), summary.get("final")) or {}
    mean = interval(entry.get(str(summary.get("divergence", "js"))))
    if mean is None:
        value, detail = NOT_MEASURED, "run swerve probe"
    else:
        value, detail = number(mean.mean), f"{number(mean.low)} to {number(mean.high)} nats a token"
    return Tile(caption=f"{divergence_name(summary)} from {summary.get('reference')}", value=value, detail=detail)


def _causal_tile(inputs: ReportInputs) -> Tile:
    caption = "Effect of the token at the spike"
    found = selections(inputs.summary or {})
    effect = interval(found.get("spike", {}).get("effect"))
    if effect is None:
        detail = "responses from elsewhere" if inputs.is_imported else "run swerve probe"
        return Tile(caption=caption, value=NOT_MEASURED, detail=detail)
    random = interval(found.get("random", {}).get("effect"))
    control = NOT_MEASURED if random is None else f"{points(random.mean)} points"
    return Tile(caption=caption, value=f"{points(effect.mean)} points", detail=f"at random positions {control}")
