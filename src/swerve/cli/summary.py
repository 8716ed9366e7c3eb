"""A run's result in a few lines of words and numbers, every one of them read from the run's artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from swerve.artifacts.files import read_json
from swerve.artifacts.run import RunDirectory
from swerve.cli.console import format_duration, one_line

NOT_MEASURED = "not measured"
Record = Mapping[str, Any]
_FAILURES = {
    "unparsed": "without an answer",
    "timeout": "at a limit of the grader",
    "error": "on which the grader failed",
}
_MANY_SAMPLES = 4
"""From so many samples a problem on pass@k says more than the mean of the samples does."""
_MIN_UNPARSED_SHARE = 0.01
"""Texts without an answer are told of from this share of the completions on."""
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


def _reward(estimate: Record, *, is_share: bool) -> str:
    if is_share:
        return _interval(estimate)
    text = f"{estimate['mean']:.3g}"
    low, high = estimate.get("low"), estimate.get("high")
    return text if low is None or high is None else f"{text} [{low:.3g}, {high:.3g}]"


def _line(evaluation: Record, *, reward_is_share: bool) -> str:
    parts = [f"accuracy {_interval(evaluation.get('accuracy'))}"]
    if evaluation.get("trace_right") is not None:
        parts.append(f"trace fully right {_interval(evaluation['trace_right'])}")
    if evaluation.get("mean_reward") is not None:
        parts.append(f"mean reward of samples {_reward(evaluation['mean_reward'], is_share=reward_is_share)}")
    return f"  {one_line(str(evaluation.get('checkpoint', '?')))}: {', '.join(parts)}"


def _rewards_are_shares(evaluations: Sequence[Record]) -> bool:
    """Whether no mean reward leaves 0 to 1, so that it reads as a percentage beside the accuracy."""
    bounds = [one[key] for entry in evaluations if (one := entry.get("mean_reward")) for key in ("low", "mean", "high")]
    return all(0.0 <= bound <= 1.0 for bound in bounds if bound is not None)


def evaluation_lines(evaluations: Sequence[Record], *, last_of_stage: bool = False) -> list[str]:
    """Return one line a checkpoint under a heading; with `last_of_stage` only the last checkpoint of each stage."""
    if not evaluations:
        return [f"Held-out accuracy: {NOT_MEASURED}."]
    shown = list({entry["stage"]: entry for entry in evaluations}.values()) if last_of_stage else evaluations
    num_problems = evaluations[-1].get("num_problems")
    heading = f"Held-out problems: {num_problems}, answered greedily (intervals in brackets)."
    lines = [_line(entry, reward_is_share=_rewards_are_shares(evaluations)) for entry in shown]
    return [heading, *lines, *_sampling_line(shown), *_failure_line(shown)]


def _sampling_line(evaluations: Sequence[Record]) -> list[str]:
    """Say how often one of k samples is right, where there are enough samples to say more than their mean does."""
    largest = max((one["k"] for entry in evaluations for one in entry.get("by_num_samples") or ()), default=0)
    if largest < _MANY_SAMPLES:
        return []
    figures = [
        f"{one_line(str(entry['checkpoint']))} {_interval(one.get('pass_at_k'))}"
        for entry in evaluations
        for one in entry.get("by_num_samples") or ()
        if one["k"] == largest
    ]
    return [f"One of {largest} samples is right (pass@{largest}): {', '.join(figures)}."]


def _failure_line(evaluations: Sequence[Record]) -> list[str]:
    """Say how many completions were not graded: any that the grader gave up on, and texts without an answer if many."""
    figures = []
    for entry in evaluations:
        statuses = entry.get("statuses") or {}
        total = sum(statuses.values())
        given_up = statuses.get("timeout", 0) + statuses.get("error", 0)
        if given_up or statuses.get("unparsed", 0) >= max(1, _MIN_UNPARSED_SHARE * total):
            parts = [f"{statuses[key]} {words}" for key, words in _FAILURES.items() if statuses.get(key)]
            figures.append(f"{one_line(str(entry['checkpoint']))} {', '.join(parts)}, of {total}")
    return [f"Completions not graded, which count as wrong: {'; '.join(figures)}."] if figures else []


def _flip_line(probe: Record) -> str:
    reference, final = probe.get("reference"), probe.get("final")
    if probe.get("responses"):
        num, path = probe["responses"].get("num_responses"), probe["responses"].get("path")
        return f"{num} responses of {path}; the figures are about the {probe.get('num_rollouts')} {_named(probe)}."
    wrong, flipped = probe.get("num_reference_wrong"), probe.get("num_reference_wrong_final_right")
    if wrong is None or flipped is None:
        return f"Problems {reference} has wrong and {final} right: {NOT_MEASURED}."
    test = probe.get("mcnemar")
    change = "" if not test else f" Accuracy over all: {_points(test['difference'])}, McNemar p {test['p_value']:.2g}."
    return (
        f"Of {probe.get('num_problems')} problems {reference} has {wrong} wrong; {final} has {flipped} of these right."
        f"{change}"
    )


def _named(probe: Record) -> str:
    return {"imported_wrong": "wrong ones", "imported_right": "right ones"}.get(str(probe.get("population")), "of them")


def _divergence_line(probe: Record) -> str:
    """Say how far the final checkpoint is from the reference, beside what was there before and what is noise."""
    name = str(probe.get("divergence"))
    pairs = [entry for entry in probe.get("divergences") or () if entry["checkpoint"] == probe.get("final")]
    pairs += [entry for entry in probe.get("pairs") or () if entry["reference"] == probe.get("baseline")]
    means = [
        f"{entry['checkpoint']} against {entry.get('reference', probe.get('reference'))} {entry[name]['mean']:.2g}"
        for entry in pairs
        if entry.get(name)
    ]
    floor = ((probe.get("noise_floor") or {}).get(name) or {}).get("mean")
    noise = [] if floor is None else [f"noise {floor:.1g}"]
    if not means:
        return f"Mean divergence: {NOT_MEASURED}."
    return f"Mean {_DIVERGENCES.get(name, name)} divergence, nats a token: {', '.join([*means, *noise])}."


def _recovery_line(probe: Record) -> list[str]:
    """Say how well spikes find the known wrong tokens, and how many there are where there is nothing to find."""
    divergence, method = probe.get("divergence"), probe.get("spike_method")
    rows = (probe.get("recovery") or {}).get("spikes") or ()
    found = [row for row in rows if (row["divergence"], row["method"]) == (divergence, method)]
    null = (((probe.get("null") or {}).get("false_discoveries") or {}).get(divergence) or {}).get(method)
    parts = [
        f"on wrong tokens: precision {_interval(row['precision'])}, recall {_interval(row['recall'])}" for row in found
    ]
    if null and null.get("per_1000_tokens"):
        parts.append(f"{null['per_1000_tokens']['mean']:.1f} per 1,000 tokens of the model against itself")
    return [f"Spikes by {method}: {'; '.join(parts)}."] if parts else []


def _pivot_lines(probe: Record) -> list[str]:
    pivots = probe.get("pivots")
    if not pivots:
        return []
    where = (pivots.get("on_spike") or {}).get("share")
    return [
        f"Pivotal tokens: {pivots['num_pivots']} in {pivots['num_rollouts']} rollouts, {pivots['num_confirmed']} "
        f"confirmed by fresh continuations; on spikes {_interval(where)}."
    ]


def _crossing_lines(probe: Record) -> list[str]:
    """Say what taking the other model's token at few places does to accuracy."""
    lines = []
    for entry in (probe.get("cross_sampling") or {}).get("directions") or ():
        models = [str(probe.get("reference")), str(probe.get("final"))]
        base, other = models if entry["direction"] == "checkpoint_into_reference" else models[::-1]
        first = [
            f"{one['selector']} {_percent((one['points'][0].get('accuracy') or {}).get('mean'))}"
            for one in entry["selectors"]
            if one.get("points")
        ]
        budget = next((one["points"][0].get("budget") for one in entry["selectors"] if one.get("points")), None)
        lines.append(
            f"Cross-sampling, {other} into {base}: accuracy {_percent((entry.get('base') or {}).get('mean'))} -> "
            f"{_percent((entry.get('other') or {}).get('mean'))} with all tokens; "
            f"with {_percent(budget)} of them, chosen by {', '.join(first)}."
        )
    return lines


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
    if num_rollouts == 0:
        return [f"Where the spikes fall: {NOT_MEASURED}, as no step is known to be wrong."]
    heading = (
        f"The highest spike between {probe.get('reference')} and {probe.get('final')}, {num_rollouts} rollouts, falls"
    )
    return [heading, *map(_spike_line, spikes)]


def _success(selection: Record, arm: str) -> str:
    return _percent((selection.get(arm) or {}).get("success"))


_PLACES = {"spike": "at the highest spike", "matched": "at matched positions", "random": "at random positions"}


def _causal_line(selection: Record) -> str:
    place = _PLACES.get(selection["selection"], selection["selection"])
    other = selection.get("alternative_effect")
    beside = f"; a token of neither: {_points(other)}" if other else ""
    return (
        f"  {place}: success {_success(selection, 'reference')} -> {_success(selection, 'checkpoint')}, "
        f"{_points(selection.get('effect'))}{beside}"
    )


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
    lines = [
        _flip_line(probe),
        _divergence_line(probe),
        *_spike_lines(probe),
        *_recovery_line(probe),
        *_causal_lines(probe),
        *_pivot_lines(probe),
        *_crossing_lines(probe),
        *notes,
    ]
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
