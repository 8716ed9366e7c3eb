"""A run's result in a few lines of words and numbers, every one of them read from the run's artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from swerve.artifacts.files import read_json
from swerve.artifacts.run import RunDirectory
from swerve.cli.console import format_duration, one_line

__all__ = ["NOT_MEASURED", "evaluation_lines", "probe_lines", "read_evaluations", "read_probe", "run_summary"]

NOT_MEASURED = "not measured"
Record = Mapping[str, Any]
_DIVERGENCES = {"kl_forward": "forward KL", "kl_reverse": "reverse KL", "js": "Jensen-Shannon"}


def read_evaluations(run: RunDirectory) -> list[dict[str, Any]]:
    """Return the summary of every evaluated checkpoint, by step."""
    return [read_json(path) for path in sorted((run.path / "eval").glob("step_*.json"))]


def read_probe(run: RunDirectory) -> dict[str, Any] | None:
    """Return the probe's summary, or None if the run was not probed."""
    path = run.probe_path / "summary.json"
    summary: dict[str, Any] | None = read_json(path) if path.is_file() else None
    return summary


def _percent(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{100 * value:.1f}%"


def _interval(estimate: Record | None, *, value: str = "mean") -> str:
    if not estimate or estimate.get(value) is None:
        return NOT_MEASURED
    text = _percent(estimate[value])
    low, high = estimate.get("low"), estimate.get("high")
    return text if low is None or high is None else f"{text} [{100 * low:.1f}, {100 * high:.1f}]"


def _points(effect: Record | None) -> str:
    """Return a difference of two shares in percentage points."""
    if not effect or effect.get("mean") is None:
        return NOT_MEASURED
    low, high = effect.get("low"), effect.get("high")
    interval = "" if low is None or high is None else f" [{100 * low:+.1f}, {100 * high:+.1f}]"
    return f"{100 * effect['mean']:+.1f} points{interval}"


def _line(evaluation: Record) -> str:
    parts = [f"accuracy {_interval(evaluation.get('accuracy'))}"]
    if evaluation.get("trace_right") is not None:
        parts.append(f"trace fully right {_interval(evaluation['trace_right'])}")
    if evaluation.get("mean_reward") is not None:
        parts.append(f"mean reward of samples {_interval(evaluation['mean_reward'])}")
    return f"  {one_line(str(evaluation.get('checkpoint', '?')))}: {', '.join(parts)}"


def evaluation_lines(evaluations: Sequence[Record], *, last_of_stage: bool = False) -> list[str]:
    """Return one line a checkpoint under a heading; with `last_of_stage` only the last checkpoint of each stage."""
    if not evaluations:
        return [f"Held-out accuracy: {NOT_MEASURED}."]
    shown = list({entry["stage"]: entry for entry in evaluations}.values()) if last_of_stage else evaluations
    num_problems = evaluations[-1].get("num_problems")
    return [f"Held-out problems: {num_problems}, answered greedily (intervals in brackets).", *map(_line, shown)]


def _flip_line(probe: Record) -> str:
    reference, final = probe.get("reference"), probe.get("final")
    wrong, flipped = probe.get("num_reference_wrong"), probe.get("num_reference_wrong_final_right")
    if wrong is None or flipped is None:
        return f"Problems {reference} has wrong and {final} right: {NOT_MEASURED}."
    return (
        f"Of {probe.get('num_problems')} problems {reference} has {wrong} wrong; {final} has {flipped} of these right."
    )


def _spike_line(entry: Record) -> str:
    """Say where the highest spike of a rollout falls."""
    places = []
    for name, words in (("wrong", "a wrong token"), ("first_wrong", "the first wrong token")):
        share = _interval(entry.get(f"top_on_{name}"), value="share")
        places.append(f"on {words} in {share} of rollouts (chance {_percent(entry.get(f'chance_{name}'))})")
    divergence = _DIVERGENCES.get(entry["divergence"], entry["divergence"])
    return f"  {divergence}: {', '.join(places)}"


def _spike_lines(probe: Record) -> list[str]:
    spikes = [entry for entry in probe.get("spikes") or () if entry.get("checkpoint") == probe.get("final")]
    if not spikes:
        return [f"Where the spikes fall: {NOT_MEASURED}."]
    num_rollouts = spikes[0].get("num_rollouts")
    heading = (
        f"The highest spike between {probe.get('reference')} and {probe.get('final')}, {num_rollouts} rollouts, falls"
    )
    return [heading, *map(_spike_line, spikes)]


def _success(selection: Record, arm: str) -> str:
    return _percent((selection.get(arm) or {}).get("success"))


def _causal_line(selection: Record) -> str:
    place = {"spike": "at the highest spike", "random": "at random positions"}.get(
        selection["selection"], selection["selection"]
    )
    effect = _points(selection.get("effect"))
    return f"  {place}: success {_success(selection, 'reference')} -> {_success(selection, 'checkpoint')}, {effect}"


def _causal_lines(probe: Record) -> list[str]:
    causal = probe.get("causal")
    if not causal:
        return [f"Causal test: {NOT_MEASURED}."]
    heading = (
        f"Causal test, {causal.get('num_rollouts')} rollouts x {causal.get('num_continuations')} continuations by "
        f"{probe.get('reference')}: its own token replaced by the one of {probe.get('final')}"
    )
    return [heading, *map(_causal_line, causal.get("selections") or ())]


def probe_lines(probe: Record | None) -> list[str]:
    """Return what the probe found: the problems that turned right, the spikes, the causal test, and its caveats."""
    if probe is None:
        return [f"Probe: {NOT_MEASURED}."]
    notes = [f"Note: {note}" for note in probe.get("notes") or ()]
    if not notes and not probe.get("reliable", True):
        notes = ["Note: too few rollouts for these figures to be relied upon."]
    lines = [_flip_line(probe), *_spike_lines(probe), *_causal_lines(probe), *notes]
    return [line[: len(line) - len(line.lstrip())] + one_line(line) for line in lines]


def run_summary(
    evaluations: Sequence[Record], probe: Record | None, *, seconds: float | None, report: Path | None
) -> str:
    """Return the summary of a whole chain as text.

    Args:
        evaluations: contents of `eval/*.json`, by step.
        probe: content of `probe/summary.json`; None: not probed.
        seconds: wall time of the command.
        report: path of the report's page.
    """
    took = NOT_MEASURED if seconds is None else format_duration(seconds)
    lines = [*evaluation_lines(evaluations, last_of_stage=True), *probe_lines(probe), f"Wall time: {took}."]
    return "\n".join([*lines, f"Report: {report or 'not written'}"]) + "\n"
