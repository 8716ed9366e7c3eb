"""Collapse of training: naming it from a stage's metrics, and the warning, the stop or the roll back that follows.

Both depend on the recorded metrics only, so that a resumed run decides the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal, NamedTuple

from torch import nn

from swerve.config.objectives import CollapseConfig
from swerve.config.stages import RlStage, StageConfig
from swerve.errors import CollapseError
from swerve.train.context import StageContext
from swerve.train.health.verdict import Verdict
from swerve.train.learner import load_trainer_state
from swerve.train.sharded_model import load_for

CollapseSign = Literal["reward", "entropy_low", "entropy_high", "length_short", "length_long", "truncated", "grad_norm"]
"""What shows that training has collapsed."""


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
    reward, H the entropy a token, L the completion length, U the truncated share and g the gradient's norm:

        reward        R_now <= (1 - reward_drop) R_best,  R_best - R_now >= num_sd standard errors
        entropy_low   H_now <= entropy_drop H_first                        and the reward does not pay for it
        entropy_high  H_now >= entropy_rise max(H_first, entropy_floor)    and the reward does not pay for it
        length_short  L_now <= length_drop L_first                         and the reward does not pay for it
        length_long   L_now >= length_rise L_first                         and the reward does not pay for it
        truncated     U_now >= U_first + truncated_rise                    and the reward does not pay for it
        grad_norm     median g_now >= grad_norm_rise max(median g_first, median g_before)

    The reward pays if it is within `reward_gain` of 1 or R_now - R_first >= max(reward_gain,
    (1 - reward_drop) (R_best - R_first)): it has risen, and kept its rise. R_best is the best mean over `window` steps
    (or over fewer first ones, set against as many more steps now) before now; a best reward that is not above 0 is not
    judged. The standard error is the largest that rewards in [0, 1] can have with one independent value a group
    (`num_groups`): R (1 - R) / groups, R the mean over both; without `num_groups` it is left out. H is `neg_logprob`,
    because steps without an update have that too; `entropy` where it is not recorded.

    Nothing shows before a figure has been measured `2 window` times; steps where it is None do not count. What has
    shown within the last `window` steps is not reported again. After a record with `rolled_back_to` all starts afresh.

    Args:
        records: the stage's lines of metrics.jsonl so far, in order.
        config: thresholds; its `action` is the caller's.

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
    stretch = _since_roll_back(records)
    begun = _signs(stretch, config)
    for num_dropped in range(1, config.window + 1):
        if not begun:  # the usual case: nothing shows, and earlier steps need no second look
            return None
        shown = {collapse.sign for collapse in _signs(stretch[:-num_dropped], config)}
        begun = [collapse for collapse in begun if collapse.sign not in shown]
    if not begun:
        return None
    message = "; ".join(collapse.message for collapse in begun)
    return replace(begun[0], message=message, since=min(collapse.since for collapse in begun))


@dataclass(frozen=True, slots=True)
class _Series:
    """The measured values of one figure, and the stage steps they belong to."""

    steps: tuple[int, ...]
    values: tuple[float, ...]

    def mean(self, start: int, stop: int) -> float:
        return fmean(self.values[start:stop])

    def span(self, start: int, stop: int) -> str:
        first, last = self.steps[start], self.steps[stop - 1]
        return f"step {first}" if first == last else f"steps {first} to {last}"


class _Quantity(NamedTuple):
    """What a sign is read off."""

    keys: tuple[str, ...]
    """Where it is recorded; the first that has been measured counts."""
    name: str
    unit: str


class _Change(NamedTuple):
    """A sign that is read off one quantity, now and in the stage's beginning."""

    sign: CollapseSign
    quantity: _Quantity
    rises: bool
    limit: Callable[[float, CollapseConfig], float]
    """(mean of the beginning, thresholds) -> the value from which on the sign shows."""


_ENTROPY = _Quantity(("neg_logprob", "entropy"), "entropy", " nats per token")
_LENGTH = _Quantity(("completion_length",), "completion length", " tokens")
_TRUNCATED = _Quantity(("truncated_share",), "truncated share", " of the completions")
_CHANGES = (
    _Change("entropy_low", _ENTROPY, False, lambda first, config: config.entropy_drop * first),
    _Change(
        "entropy_high", _ENTROPY, True, lambda first, config: config.entropy_rise * max(first, config.entropy_floor)
    ),
    _Change("length_short", _LENGTH, False, lambda first, config: config.length_drop * first),
    _Change("length_long", _LENGTH, True, lambda first, config: config.length_rise * first),
    _Change("truncated", _TRUNCATED, True, lambda first, config: first + config.truncated_rise),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RewardCourse:
    """Mean rewards of the stage's beginning, of the best window before now, and of now."""

    first: float
    best: float
    now: float

    def pays(self, config: CollapseConfig) -> bool:
        kept = (1.0 - config.reward_drop) * (self.best - self.first)
        risen = self.now - self.first >= max(config.reward_gain, kept)
        return risen or self.now >= 1.0 - config.reward_gain


def _since_roll_back(records: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    for index in range(len(records) - 1, -1, -1):
        if records[index].get("rolled_back_to") is not None:
            return records[index + 1 :]
    return records


def _series(records: Sequence[Mapping[str, Any]], key: str) -> _Series:
    measured = [(record["stage_step"], record[key]) for record in records if _is_measured(record.get(key))]
    return _Series(tuple(step for step, _ in measured), tuple(float(value) for _, value in measured))


def _is_measured(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _signs(records: Sequence[Mapping[str, Any]], config: CollapseConfig) -> list[Collapse]:
    """Return every sign that shows at the last record, whether or not it showed before."""
    found = [_reward_sign(records, config), *_unpaid_signs(records, config), _grad_norm_sign(records, config)]
    return [collapse for collapse in found if collapse is not None]


def _reward_sign(records: Sequence[Mapping[str, Any]], config: CollapseConfig) -> Collapse | None:
    rewards, groups = _series(records, "reward"), _series(records, "num_groups")
    total, window = len(rewards.values), config.window
    if total < 2 * window:
        return None
    best = max(range(total - 2 * window + 1), key=lambda start: rewards.mean(start, start + window))
    beginnings = [(0, num_steps) for num_steps in range(1, window)]
    for start, stop in [(best, best + window), *beginnings]:
        now = total - (2 * window - (stop - start))  # the fewer steps before, the more now
        if _has_dropped(rewards, (start, stop), now, fmean(groups.values) if groups.values else None, config):
            message = (
                f"the reward fell from {rewards.mean(start, stop):.3g} ({rewards.span(start, stop)}) to "
                f"{rewards.mean(now, total):.3g} ({rewards.span(now, total)})"
            )
            return Collapse(sign="reward", message=message, since=rewards.steps[now])
    return None


def _has_dropped(
    rewards: _Series, before: tuple[int, int], now: int, num_groups: float | None, config: CollapseConfig
) -> bool:
    high, low = rewards.mean(*before), rewards.mean(now, len(rewards.values))
    if high <= max(0.0, low) or high - low < config.reward_drop * high:
        return False
    if num_groups is None:
        return True
    num_before, num_now = before[1] - before[0], len(rewards.values) - now
    pooled = (num_before * high + num_now * low) / (num_before + num_now)
    # Values between two bounds with a given mean vary most when all of them lie at the bounds.
    variance = (max(1.0, *rewards.values) - pooled) * (pooled - min(0.0, *rewards.values)) / num_groups
    error = math.sqrt(variance * (1 / num_before + 1 / num_now))
    return high - low >= config.num_sd * error


def _unpaid_signs(records: Sequence[Mapping[str, Any]], config: CollapseConfig) -> list[Collapse | None]:
    """Return the signs that mean a collapse only where the reward does not pay for them."""
    course = _reward_course(_series(records, "reward"), config.window)
    if course is None or course.pays(config):
        return []
    return [_change_sign(change, records, course, config) for change in _CHANGES]


def _reward_course(rewards: _Series, window: int) -> _RewardCourse | None:
    total = len(rewards.values)
    if total < 2 * window:
        return None
    first = max(rewards.mean(0, stop) for stop in range(1, window + 1))
    windows = [rewards.mean(start, start + window) for start in range(total - 2 * window + 1)]
    return _RewardCourse(first=first, best=max(first, *windows), now=rewards.mean(total - window, total))


def _change_sign(
    change: _Change, records: Sequence[Mapping[str, Any]], course: _RewardCourse, config: CollapseConfig
) -> Collapse | None:
    measured = [series for key in change.quantity.keys if (series := _series(records, key)).values]
    if not measured or len(measured[0].values) < 2 * config.window:
        return None
    series, total = measured[0], len(measured[0].values)
    furthest = min if change.rises else max
    stop = furthest(range(1, config.window + 1), key=lambda stop: series.mean(0, stop))
    first, now = series.mean(0, stop), series.mean(total - config.window, total)
    limit = change.limit(first, config)
    if not (first < now and limit <= now if change.rises else now < first and now <= limit):
        return None
    moved, steps_now = "rose" if change.rises else "fell", series.span(total - config.window, total)
    message = (
        f"the {change.quantity.name} {moved} from {first:.3g} ({series.span(0, stop)}) to {now:.3g}"
        f"{change.quantity.unit} ({steps_now}), the reward went from {course.first:.3g} to {course.now:.3g}"
    )
    return Collapse(sign=change.sign, message=message, since=series.steps[total - config.window])


def _grad_norm_sign(records: Sequence[Mapping[str, Any]], config: CollapseConfig) -> Collapse | None:
    norms, window = _series(records, "grad_norm"), config.window
    pairs = [(step, value) for step, value in zip(norms.steps, norms.values, strict=True) if value > 0.0]
    if len(pairs) < 2 * window:
        return None
    steps, values = zip(*pairs, strict=True)
    # Medians, because one step with few rollouts may have a gradient far from the others'; the first window too,
    # because a solved task leaves hardly any gradient, against which an ordinary one would look large.
    usual, now = max(median(values[:window]), median(values[:-window])), median(values[-window:])
    if now < config.grad_norm_rise * usual:
        return None
    message = (
        f"the gradient's norm rose from {usual:.3g} (median until step {steps[-window - 1]}) to {now:.3g} "
        f"(median of steps {steps[-window]} to {steps[-1]})"
    )
    return Collapse(sign="grad_norm", message=message, since=steps[-window])


def judge_collapse(stage: StageConfig, context: StageContext, record: Mapping[str, Any]) -> Verdict:
    """Look for a collapse at the step of `record`, name it, and warn, stop or roll back as the recipe says.

    A return to an earlier checkpoint is done here: the learner has that checkpoint's weights and optimizer afterwards.
    """
    if not isinstance(stage, RlStage) or stage.collapse.action == "none":
        return Verdict()
    collapse = detect_collapse([*context.records, record], stage.collapse)
    if collapse is None:
        return Verdict()
    figures: dict[str, Any] = {"collapse": collapse.sign, "collapse_message": collapse.message}
    step = int(record["stage_step"])
    action = stage.collapse.action
    if (
        action == "roll_back"
        and sum("rolled_back_to" in old for old in context.records) < stage.collapse.max_roll_backs
    ):
        target = _return_to(stage, context, collapse, [*context.records, record])
        factor = context.learning_rate_factor() * stage.collapse.roll_back_lr
        dropped = "; the rollouts that were sampled ahead are sampled anew" if context.pending else ""
        context.pending.clear()
        whose = f"of step {target} of the stage" if target else "the stage began with"
        context.progress.note(
            f"{stage.label} step {step}: {collapse.message}; going back to the weights {whose}, "
            f"learning rate x {factor:g}{dropped}"
        )
        return Verdict(figures={**figures, "rolled_back_to": target, "lr_factor": factor}, must_save=True)
    if action == "warn":
        context.progress.note(f"{stage.label} step {step}: {collapse.message}")
        return Verdict(figures=figures)
    is_end = step == stage.steps and stage.label == context.config.stages[-1].label
    error = CollapseError(
        f"stage '{stage.label}' collapsed at its step {step}: {collapse.message}; the state is saved; lower the "
        f"learning rate{'' if is_end else ', or go on regardless with --resume'}"
    )
    return Verdict(figures=figures, must_save=True, error=error)


def _return_to(stage: RlStage, context: StageContext, collapse: Collapse, records: Sequence[Mapping[str, Any]]) -> int:
    """Put the newest weights from before the collapse into the learner; return their step in the stage, 0 its start.

    In a stage with phases none are from before the phase.
    """
    start = 0 if context.phase is None else context.phase.steps.start
    steps = [
        step
        for step in stage.kept_steps
        if start < step < collapse.since
        and not _was_lost(step, records)
        and not _was_ruined(step, records, stage.collapse.reward_drop)
    ]
    learner = context.learner
    target = max(steps, default=start)
    if target:
        path: Path = context.run.checkpoint_path(context.first_step + target)
        model = load_for(context.config.runtime, path, context.world).model
        load_trainer_state(path, learner)
        if context.phase is not None and target == start and context.phase.resets_optimizer:
            learner.optimizer.state.clear()
    else:
        model = context.stage_start()
        learner.optimizer.state.clear()
        for module in learner.weights.extra_modules.values():
            for parameter in module.parameters():
                nn.init.zeros_(parameter)
    learner.weights.load_weights(model)
    context.engine.forget_version()
    return target


def _was_lost(step: int, records: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an earlier return went back to before this step's checkpoint."""
    return any(
        record["rolled_back_to"] < step < record["stage_step"] for record in records if "rolled_back_to" in record
    )


def _was_ruined(step: int, records: Sequence[Mapping[str, Any]], reward_drop: float) -> bool:
    """Return whether the weights of this step had already lost their reward: the next step's rollouts are theirs."""
    rewards = {record["stage_step"]: record["reward"] for record in records if record.get("reward") is not None}
    best, own = max(rewards.values(), default=0.0), rewards.get(step + 1)
    return own is not None and best > 0 and own <= (1 - reward_drop) * best
