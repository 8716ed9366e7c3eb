"""The curves of a run as plain numbers: drawn by the page and, from the same records, by matplotlib."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from swerve.report.charts_training import training_charts
from swerve.report.curves import Chart, Curve, Level, Unit, stages
from swerve.report.inputs import ReportInputs
from swerve.report.names import SELECTORS, direction_title
from swerve.report.sampling import MANY_SAMPLES, largest_k, rewards_are_shares, sampled
from swerve.report.values import DIVERGENCE_NAMES, Interval, interval

__all__ = ["all_charts", "consecutive_pairs", "dose_charts"]


def all_charts(inputs: ReportInputs) -> tuple[Chart, ...]:
    """Return the charts over training, in order; one whose figures are missing has no points.

    A probe of responses from elsewhere has no evaluations, so no charts of them either.
    """
    divergences = [_divergence_chart(inputs), *_pair_charts(inputs)]
    if not inputs.evaluations and inputs.is_imported:
        return tuple(divergences)
    accuracy = {"accuracy": "Greedy accuracy", "mean_reward": "Sampled reward", "trace_right": "Fully right traces"}
    # Rewards on another scale than shares have a chart of their own.
    others = {} if rewards_are_shares(inputs.evaluations) else {"mean_reward": accuracy.pop("mean_reward")}
    reward = _evaluation_chart(inputs, id="reward", title="Reward on held-out problems", unit="reward", keys=others)
    return (
        _evaluation_chart(inputs, id="accuracy", title="Accuracy on held-out problems", unit="share", keys=accuracy),
        *((reward,) if reward.measured else ()),
        *_sampling_charts(inputs),
        *divergences,
        _evaluation_chart(
            inputs, id="entropy", title="Token entropy", unit="nats", keys={"entropy": "Mean entropy of a token"}
        ),
        _evaluation_chart(
            inputs, id="length", title="Response length", unit="tokens", keys={"num_tokens": "Mean length"}
        ),
        *training_charts(inputs),
    )


def _evaluation_chart(
    inputs: ReportInputs,
    *,
    id: str,
    title: str,
    unit: Unit,
    keys: Mapping[str, str],
) -> Chart:
    entries = inputs.evaluations
    curves = [
        Curve(name=name, points=tuple(interval(entry.get(key)) for entry in entries)) for key, name in keys.items()
    ]
    return Chart(
        id=id,
        title=title,
        unit=unit,
        labels=tuple(entry["checkpoint"] for entry in entries),
        steps=tuple(entry["step"] for entry in entries),
        x_title="global step",
        # A curve that was never measured (a family without a step checker) has no line and no legend entry.
        curves=tuple(curve for curve in curves if curve.measured),
        stages=tuple(stages(entries)),
    )


def _sampling_charts(inputs: ReportInputs) -> Iterator[Chart]:
    """Yield the chart of what several samples are worth, where there are enough of them to tell."""
    entries, k = inputs.evaluations, largest_k(inputs.evaluations)
    if k < MANY_SAMPLES:
        return
    keys = (("pass@1", 1, "pass_at_k"), (f"pass@{k}", k, "pass_at_k"), (f"maj@{k}", k, "majority_at_k"))
    curves = [Curve(name=name, points=tuple(sampled(entry, num, key) for entry in entries)) for name, num, key in keys]
    yield Chart(
        id="sampling",
        title=f"Accuracy of {k} samples a problem",
        unit="share",
        labels=tuple(entry["checkpoint"] for entry in entries),
        steps=tuple(entry["step"] for entry in entries),
        x_title="global step",
        curves=tuple(curve for curve in curves if curve.measured),
        stages=tuple(stages(entries)),
    )


def _own_step(label: str) -> int:
    match = re.search(r"(\d+)$", label)
    return int(match.group(1)) if match else 0


def _divergence_chart(inputs: ReportInputs) -> Chart:
    entries = [] if inputs.summary is None else list(inputs.summary.get("divergences") or [])
    return _divergences_over(inputs, entries, id="divergence", title=_divergence_title(inputs))


def _divergence_title(inputs: ReportInputs) -> str:
    if inputs.is_imported:
        return "Divergence from the reference on the responses"
    return "Divergence from the reference on its wrong rollouts"


def consecutive_pairs(summary: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return the pairs of each checkpoint with the one before it: all but that of the reference with its baseline."""
    pairs = (summary or {}).get("pairs") or []
    return [entry for entry in pairs if entry.get("checkpoint") != (summary or {}).get("reference")]


def _pair_charts(inputs: ReportInputs) -> Iterator[Chart]:
    entries = consecutive_pairs(inputs.summary)
    if entries:
        title = "Divergence of each checkpoint from the one before"
        yield _divergences_over(inputs, entries, id="pairs", title=title)


def _divergences_over(inputs: ReportInputs, entries: Sequence[Mapping[str, Any]], *, id: str, title: str) -> Chart:
    labels = tuple(str(entry["checkpoint"]) for entry in entries)
    steps, x_title = _places(inputs, labels)
    rows = sorted(zip(steps, labels, entries, strict=True), key=lambda row: row[0])
    return Chart(
        id=id,
        title=title,
        unit="nats",
        labels=tuple(label for _, label, _ in rows),
        steps=tuple(step for step, _, _ in rows),
        x_title=x_title,
        curves=tuple(
            Curve(name=name, points=tuple(interval(entry.get(key)) for _, _, entry in rows))
            for key, name in DIVERGENCE_NAMES.items()
        ),
        stages=tuple(stages(inputs.evaluations)) if x_title == "global step" else (),
    )


def _places(inputs: ReportInputs, labels: Sequence[str]) -> tuple[list[int], str]:
    """Return where checkpoints stand on the x axis: at their step as far as it is known, else in order."""
    known = [step for step in map(inputs.step, labels) if step is not None]
    if len(known) == len(labels):
        return known, "global step"
    own = [_own_step(label) for label in labels]
    if len(set(own)) == len(own):
        return own, "step of the stage"
    return list(range(1, len(labels) + 1)), "checkpoint"


def dose_charts(summary: Mapping[str, Any] | None) -> tuple[Chart, ...]:
    """Return, for each direction of cross-sampling, accuracy against the share of tokens taken, a curve a selector.

    The lines across are the two ends: the base, of which every curve starts, and the other model.
    """
    sampling = (summary or {}).get("cross_sampling") or {}
    return tuple(_dose_chart(entry, summary or {}) for entry in sampling.get("directions") or [])


def _dose_chart(entry: Mapping[str, Any], summary: Mapping[str, Any]) -> Chart:
    names = (str(summary.get("reference")), str(summary.get("final")))
    base, other = names if entry.get("direction") == "checkpoint_into_reference" else names[::-1]
    ends = ((base, interval(entry.get("base"))), (other, interval(entry.get("other"))))
    selectors = [(str(one.get("selector")), _dose_points(one, ends[0][1])) for one in entry.get("selectors") or []]
    steps = sorted({x for _, points in selectors for x in points})
    return Chart(
        id=f"dose-{_slug(str(entry.get('direction')))}",
        title=direction_title(entry.get("direction"), summary),
        unit="share",
        labels=tuple(f"{100 * x:.1f}%" for x in steps),
        steps=tuple(steps),
        x_title="share of tokens taken",
        x_unit="share",
        curves=tuple(
            Curve(name=SELECTORS.get(name, name), points=tuple(points.get(x) for x in steps))
            for name, points in selectors
        ),
        stages=(),
        levels=tuple(Level(name=f"{name} alone", value=value) for name, value in ends if value is not None),
    )


def _dose_points(selector: Mapping[str, Any], base: Interval | None) -> dict[float, Interval]:
    found = {0.0: base} if base is not None else {}
    for point in selector.get("points") or []:
        accuracy = interval(point.get("accuracy"))
        if accuracy is not None and point.get("share_swapped") is not None:
            found[float(point["share_swapped"])] = accuracy
    return found


def _slug(text: str) -> str:
    """Return the text as an id of the page."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
