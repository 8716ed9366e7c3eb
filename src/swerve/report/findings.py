"""Sentences of the report, each made from computed figures with their uncertainty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swerve.report.inputs import ReportInputs
from swerve.report.values import (
    DIVERGENCE_NAMES,
    NOT_MEASURED,
    count,
    interval,
    percent,
    percent_interval,
    points,
    points_interval,
)

__all__ = ["Tile", "findings", "spike_entry", "tiles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A headline figure of the page."""

    caption: str
    value: str
    detail: str


def findings(inputs: ReportInputs) -> tuple[str, ...]:
    """Return what the run shows, one claim a sentence, in the order of the argument."""
    sentences = [_accuracy(inputs), _traces(inputs)]
    if inputs.summary is None:
        sentences.append("Where the checkpoints differ from the reference was not measured.")
    else:
        sentences += [_population(inputs.summary), _spikes(inputs.summary), _causal(inputs.summary)]
        if not inputs.summary.get("reliable", True):
            sentences.append("The probe had too few rollouts for its figures to be relied upon.")
    return tuple(sentence for sentence in [*sentences, *_collapses(inputs)] if sentence)


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


def _traces(inputs: ReportInputs) -> str:
    last = inputs.final
    right = interval(last.get("trace_right")) if last else None
    if last is None or right is None:
        return ""
    return f"Of the traces of {last['checkpoint']}, {percent_interval(right)} have no wrong step at all."


def _population(summary: Mapping[str, Any]) -> str:
    wrong, changed = summary.get("num_reference_wrong"), summary.get("num_reference_wrong_final_right")
    return (
        f"Of the {count(wrong)} problems that {summary.get('reference')} gets wrong, {summary.get('final')} gets "
        f"{count(changed)} right; {count(summary.get('num_rollouts'))} of these wrong rollouts of "
        f"{summary.get('reference')} were read token by token."
    )


def spike_entry(summary: Mapping[str, Any], checkpoint: Any, divergence: Any) -> Mapping[str, Any] | None:
    """Return the summary's spike figures of one checkpoint and divergence, if they were measured."""
    for entry in summary.get("spikes") or []:
        if entry.get("checkpoint") == checkpoint and entry.get("divergence") == divergence:
            found: Mapping[str, Any] = entry
            return found
    return None


def _spikes(summary: Mapping[str, Any]) -> str:
    final, divergence = summary.get("final"), summary.get("divergence")
    entry = spike_entry(summary, final, divergence)
    first = interval(entry.get("top_on_first_wrong")) if entry else None
    if entry is None or first is None:
        return "Where the highest divergence of a rollout falls was not measured."
    name = DIVERGENCE_NAMES.get(str(divergence), str(divergence))
    return (
        f"The token where {final} differs most from {summary.get('reference')} ({name}) is the first wrong step in "
        f"{percent_interval(first)} of the rollouts and some wrong step in "
        f"{percent_interval(interval(entry.get('top_on_wrong')))}; a token drawn at random would be so in "
        f"{percent(entry.get('chance_first_wrong'))} and {percent(entry.get('chance_wrong'))}."
    )


def _selections(summary: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    causal = summary.get("causal") or {}
    return {str(entry.get("selection")): entry for entry in causal.get("selections") or []}


def _causal(summary: Mapping[str, Any]) -> str:
    selections = _selections(summary)
    spike = interval(selections.get("spike", {}).get("effect"))
    if spike is None:
        return "Whether the token at the spike causes the correction was not measured."
    sentence = (
        f"Putting the token of {summary.get('final')} in place of that of {summary.get('reference')} at the top spike, "
        f"and letting {summary.get('reference')} continue, changes its success by {points_interval(spike)} "
        "percentage points"
    )
    random = interval(selections.get("random", {}).get("effect"))
    if random is None:
        return f"{sentence}; random positions were not measured."
    verdict = "" if not spike.overlaps(random) else "; the intervals overlap, so no effect of the spike is shown"
    return f"{sentence}; at random positions by {points_interval(random)}{verdict}."


def tiles(inputs: ReportInputs) -> tuple[Tile, ...]:
    """Return the four headline figures; one that is missing says so."""
    return (_accuracy_tile(inputs), _population_tile(inputs), _spike_tile(inputs), _causal_tile(inputs))


def _accuracy_tile(inputs: ReportInputs) -> Tile:
    first, last = inputs.reference, inputs.final
    before = interval(first.get("accuracy")) if first else None
    after = interval(last.get("accuracy")) if last else None
    if first is None or last is None or before is None or after is None:
        return Tile(caption="Greedy accuracy", value=NOT_MEASURED, detail="run swerve eval")
    return Tile(
        caption="Greedy accuracy",
        value=f"{percent(before.mean)} → {percent(after.mean)}",
        detail=f"{first['checkpoint']} to {last['checkpoint']}, {count(last.get('num_problems'))} held-out problems",
    )


def _population_tile(inputs: ReportInputs) -> Tile:
    if inputs.summary is None:
        return Tile(caption="Wrong before, right after", value=NOT_MEASURED, detail="run swerve probe")
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
    if entry is None or share is None:
        return Tile(caption=caption, value=NOT_MEASURED, detail="run swerve probe")
    return Tile(
        caption=caption,
        value=percent(share.mean),
        detail=f"{100 * share.low:.1f} to {100 * share.high:.1f}; by chance {percent(entry.get('chance_first_wrong'))}",
    )


def _causal_tile(inputs: ReportInputs) -> Tile:
    caption = "Effect of the token at the spike"
    selections = _selections(inputs.summary or {})
    effect = interval(selections.get("spike", {}).get("effect"))
    if effect is None:
        return Tile(caption=caption, value=NOT_MEASURED, detail="run swerve probe")
    random = interval(selections.get("random", {}).get("effect"))
    control = NOT_MEASURED if random is None else f"{points(random.mean)} points"
    return Tile(caption=caption, value=f"{points(effect.mean)} points", detail=f"at random positions {control}")
