"""Collapse of training: naming it from a stage's metrics, and the warning or the stop that follows.

Both depend on the recorded metrics only, so that a resumed run decides the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any, Literal, NamedTuple

from swerve.config.objectives import CollapseConfig
from swerve.config.recipe import Config
from swerve.config.stages import RlStage, StageConfig
from swerve.errors import CollapseError
from swerve.train.health.verdict import HealthVerdict

CollapseSign = Literal["reward", "entropy_low", "entropy_high", "length_short", "length_long", "truncated", "grad_norm"]
"""What shows that training has collapsed."""

_REWARD_DROP = 0.5
"""Share of the best window's mean reward that is lost, and of a rise above the beginning's."""
_NUM_ERRORS = 4.0
"""Standard errors that the reward must fall by: what chance alone can do with so few groups is no collapse."""
_REWARD_GAIN = 0.05
"""Rise of the mean reward since the beginning that pays for a change of entropy or length."""
_GRAD_NORM_RISE = 30.0
"""The gradient's norm has exploded at this multiple of its median before."""


class _Change(NamedTuple):
    """A sign that is read off one figure, now and in the stage's beginning."""

    sign: CollapseSign
    key: str
    name: str
    unit: str
    rises: bool
    limit: Callable[[float], float]
    """Mean of the beginning -> the value from which on the sign shows."""


_ENTROPY = ("neg_logprob", "entropy", " nats per token")  # steps without an update have `neg_logprob`, too
_LENGTH = ("completion_length", "completion length", " tokens")
_TRUNCATED = ("truncated_share", "truncated share", " of the completions")
_CHANGES = (
    _Change("entropy_low", *_ENTROPY, rises=False, limit=lambda first: 0.1 * first),
    # A nearly deterministic policy has not exploded at a few hundredths.
    _Change("entropy_high", *_ENTROPY, rises=True, limit=lambda first: 5 * max(first, 0.02)),
    _Change("length_short", *_LENGTH, rises=False, limit=lambda first: 0.25 * first),
    _Change("length_long", *_LENGTH, rises=True, limit=lambda first: 3 * first),
    _Change("truncated", *_TRUNCATED, rises=True, limit=lambda first: first + 0.3),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collapse:
    """A collapse and where it shows."""

    sign: CollapseSign
    message: str
    """One line: what, how much before and now, in which steps of the stage."""
    since: int
    """First stage step (from 1) of the window in which it shows."""


def detect_collapse(records: Sequence[Mapping[str, Any]], config: CollapseConfig) -> Collapse | None:
    """Return the collapse that begins to show at the last record, if one does.

    Means over the last `window` steps (now) are compared with the stage's beginning: of the means over its first 1 to
    `window` steps (first) the one furthest from now, because a policy can be ruined by a single update. With R the
    reward, H the entropy a token (`neg_logprob`), L the completion length, U the truncated share and g the gradient's
    norm:

        reward        R_now <= R_best / 2,  R_best - R_now >= 4 standard errors
        entropy_low   H_now <= H_first / 10            and the reward does not pay for it
        entropy_high  H_now >= 5 max(H_first, 0.02)    and the reward does not pay for it
        length_short  L_now <= L_first / 4             and the reward does not pay for it
        length_long   L_now >= 3 L_first               and the reward does not pay for it
        truncated     U_now >= U_first + 0.3           and the reward does not pay for it
        grad_norm     median g_now >= 30 max(median g_first, median g_before)

    The reward pays if it is within 0.05 of 1 or R_now - R_first >= max(0.05, (R_best - R_first) / 2): it has risen, and
    kept its rise. R_best is the best mean over `window` steps (or over fewer first ones, set against as many more steps
    now) before now; a best reward that is not above 0 is not judged. The standard error is the largest that rewards in
    [0, 1] can have with one independent value a group (`num_groups`): R (1 - R) / groups, R the mean over both; without
    `num_groups` it is left out.

    Nothing shows before a figure has been measured `2 window` times; steps where it is None do not count. What has
    shown within the last `window` steps is not reported again.

    Args:
        records: the stage's lines of metrics.jsonl so far, in order.
        config: with the window; its `action` is the caller's.

    Returns:
        The first of the signs, in the order above, that begins to show; its message names all that do.

    Example:
        >>> rewards = [0.5, 0.6, 0.7, 0.7, 0.1, 0.0]
        >>> records = [
        ...     {"stage_step": step, "reward": reward, "num_groups": 64} for step, reward in enumerate(rewards, start=1)
        ... ]
        >>> collapse = detect_collapse(records, CollapseConfig(window=2))
        >>> collapse.sign, collapse.since
        ('reward', 5)
        >>> collapse.message
        'the reward fell from 0.7 (steps 3 to 4) to 0.05 (steps 5 to 6)'
    """
    begun = list(_signs(records, config.window))
    for num_dropped in range(1, config.window + 1):
        if not begun:  # the usual case: nothing shows, and earlier steps need no second look
            return None
        shown = {collapse.sign for collapse in _signs(records[:-num_dropped], config.window)}
        begun = [collapse for collapse in begun if collapse.sign not in shown]
    if not begun:
        return None
    message = "; ".join(collapse.message for collapse in begun)
    return replace(begun[0], message=message, since=min(collapse.since for collapse in begun))


class _Series:
    """The measured values of one figure, and the stage steps they belong to."""

    def __init__(self, records: Sequence[Mapping[str, Any]], key: str) -> None:
        self.steps: list[int] = []
        self.values: list[float] = []
        for record in records:
            value = record.get(key)
            if value is not None and math.isfinite(value):
                self.steps.append(record["stage_step"])
                self.values.append(float(value))

    def mean(self, start: int, stop: int | None = None) -> float:
        return fmean(self.values[start:stop])

    def span(self, start: int, stop: int | None = None) -> str:
        steps = self.steps[start:stop]
        return f"step {steps[0]}" if len(steps) == 1 else f"steps {steps[0]} to {steps[-1]}"


def _signs(records: Sequence[Mapping[str, Any]], window: int) -> Iterator[Collapse]:
    """Yield every sign that shows at the last record, whether or not it showed before."""
    rewards = _Series(records, "reward")
    if len(rewards.values) >= 2 * window:
        yield from _reward_sign(rewards, _Series(records, "num_groups").values, window)
        yield from _unpaid_changes(records, rewards, window)
    yield from _grad_norm_sign(_Series(records, "grad_norm"), window)


def _reward_sign(rewards: _Series, num_groups: Sequence[float], window: int) -> Iterator[Collapse]:
    """Yield the fall of the reward from the best window, or else from the first steps."""
    total = len(rewards.values)
    best = max(range(total - 2 * window + 1), key=lambda start: rewards.mean(start, start + window))
    for start, stop in [(best, best + window), *((0, num_steps) for num_steps in range(1, window))]:
        now = total - (2 * window - (stop - start))  # the fewer steps before, the more now
        high, low = rewards.mean(start, stop), rewards.mean(now)
        if high <= max(0.0, low) or high - low < _REWARD_DROP * high:
            continue
        if num_groups:
            num_before, num_now = stop - start, total - now
            pooled = (num_before * high + num_now * low) / (num_before + num_now)
            # Values between two bounds with a given mean vary most when all of them lie at the bounds.
            variance = (max(1.0, *rewards.values) - pooled) * (pooled - min(0.0, *rewards.values)) / fmean(num_groups)
            if high - low < _NUM_ERRORS * math.sqrt(variance * (1 / num_before + 1 / num_now)):
                continue
        fell = f"{high:.3g} ({rewards.span(start, stop)}) to {low:.3g} ({rewards.span(now)})"
        yield Collapse(sign="reward", message=f"the reward fell from {fell}", since=rewards.steps[now])
        return


def _unpaid_changes(records: Sequence[Mapping[str, Any]], rewards: _Series, window: int) -> Iterator[Collapse]:
    """Yield the signs that mean a collapse only where the reward does not pay for them."""
    # The reward pays where it is near 1, or has risen and kept its rise.
    first_reward = max(rewards.mean(0, stop) for stop in range(1, window + 1))
    starts = range(len(rewards.values) - 2 * window + 1)
    best_reward = max(first_reward, *(rewards.mean(start, start + window) for start in starts))
    reward = rewards.mean(-window)
    risen = max(_REWARD_GAIN, (1 - _REWARD_DROP) * (best_reward - first_reward))
    if reward >= 1 - _REWARD_GAIN or reward - first_reward >= risen:
        return
    for change in _CHANGES:
        series = _Series(records, change.key)
        if len(series.values) < 2 * window:
            continue
        # Of the beginnings the one furthest from now.
        beginnings = [series.mean(0, stop) for stop in range(1, window + 1)]
        first, now = (min if change.rises else max)(beginnings), series.mean(-window)
        stop = beginnings.index(first) + 1
        limit = change.limit(first)
        if not (first < now and limit <= now if change.rises else now < first and now <= limit):
            continue
        message = (
            f"the {change.name} {'rose' if change.rises else 'fell'} from {first:.3g} ({series.span(0, stop)}) to "
            f"{now:.3g}{change.unit} ({series.span(-window)}), the reward went from {first_reward:.3g} to {reward:.3g}"
        )
        yield Collapse(sign=change.sign, message=message, since=series.steps[-window])


def _grad_norm_sign(norms: _Series, window: int) -> Iterator[Collapse]:
    """Yield the rise of the gradient's norm, of the steps that have a gradient."""
    updates = [(step, value) for step, value in zip(norms.steps, norms.values, strict=True) if value > 0.0]
    if len(updates) < 2 * window:
        return
    steps, values = zip(*updates, strict=True)
    # Medians, because one step with few rollouts may have a gradient far from the others'; the first window too,
    # because a solved task leaves hardly any gradient, against which an ordinary one would look large.
    usual, now = max(median(values[:window]), median(values[:-window])), median(values[-window:])
    if now >= _GRAD_NORM_RISE * usual:
        message = (
            f"the gradient's norm rose from {usual:.3g} (median until step {steps[-window - 1]}) to {now:.3g} "
            f"(median of steps {steps[-window]} to {steps[-1]})"
        )
        yield Collapse(sign="grad_norm", message=message, since=steps[-window])


def judge_collapse(stage: StageConfig, config: Config, records: Sequence[Mapping[str, Any]]) -> HealthVerdict:
    """Look for a collapse at the last record's step; name it, and warn or stop as the recipe says.

    Args:
        stage: of the records.
        config: the recipe.
        records: the stage's lines of metrics.jsonl so far, the last one of the step that was just made.
    """
    if not isinstance(stage, RlStage) or stage.collapse.action == "none":
        return HealthVerdict()
    collapse, step = detect_collapse(records, stage.collapse), records[-1]["stage_step"]
    if collapse is None:
        return HealthVerdict()
    figures = {"collapse": collapse.sign, "collapse_message": collapse.message}
    # A line, or the end of the run.
    if stage.collapse.action == "warn":
        return HealthVerdict(figures=figures, note=f"{stage.label} step {step}: {collapse.message}")
    is_end = step == stage.steps and stage.label == config.stages[-1].label
    error = CollapseError(
        f"stage '{stage.label}' collapsed at its step {step}: {collapse.message}; the state is saved; lower the "
        f"learning rate{'' if is_end else ', or go on regardless with --resume'}"
    )
    return HealthVerdict(figures=figures, error=error)
