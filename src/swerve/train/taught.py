"""Which tokens of the rollouts taught a target: an estimate of each one's effect, checked step by step."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from swerve.artifacts.replays import StepCheck
from swerve.batch import TokenBatch, TokenSequence
from swerve.config.stages import RlStage
from swerve.functional.logprobs import token_logprobs
from swerve.train.changes import Variation
from swerve.train.columns import PolicyStep, score_logprobs
from swerve.train.context import StageContext, StepRollouts
from swerve.train.learner import Learner
from swerve.train.policy_update import weighted_columns
from swerve.train.replay import ReplayedStep
from swerve.train.targets import TOKENS_PER_BATCH, completion_logprobs

_RELATIVE_STEPS = (3e-4, 1e-4, 3e-5)
"""Of the weights, along a direction in which a derivative is formed: the first whose sum is the gradient's is taken. In
late steps of sharp models the first is too long; with little of a gradient rounding shows in the last."""
_SAME = 0.01
"""Share of the gradient's by which a sum may miss it; see `StepCheck.holds`."""
_MOMENTS = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched(Variation):
    """No change: it keeps how each step was before its update, by parameter, and what the update learns from."""

    weights: dict[str, Tensor] = field(default_factory=dict)
    moments: dict[str, list[Tensor]] = field(default_factory=dict)
    """The first and the second."""
    steps: list[PolicyStep] = field(default_factory=list)

    def rollouts(self, sampled: StepRollouts, stage: RlStage, context: StageContext, index: int) -> StepRollouts:
        """See the base class."""
        learner = context.learner
        for name, parameter in learner.named_parameters().items():
            state = learner.optimizer.state.get(parameter) or {}
            self.weights[name] = parameter.detach().clone()
            self.moments[name] = [state.get(moment, torch.zeros_like(parameter)).clone() for moment in _MOMENTS]
        self.steps.clear()
        return sampled

    def weighted(self, step: PolicyStep, rollouts: StepRollouts, index: int) -> PolicyStep:
        """See the base class."""
        self.steps[:] = [step]
        return step


@dataclass(frozen=True, slots=True, kw_only=True)
class TaughtToken:
    """A token and its effect on the target through the update of its step, in the target's unit (nats)."""

    index: int
    """Of the step in its stage, from 0."""
    group: int
    sample: int
    position: int
    token_id: int
    effect: float


def taught_step(
    step: ReplayedStep, watched: Watched, target: Sequence[TokenSequence]
) -> tuple[StepCheck, list[TaughtToken]]:
    """Return what each token of a step that was just made taught, and whether that holds; the weights stay as they are.

    To first order in the step's gradient, with the second moments as they are after it, a token with the advantage A
    and the weight w in the loss moves the target by A w d log p(token) / dP along

        P = lr (1 - beta1) / (1 - beta1^t) * grad(target) / (sqrt(v) + eps),    v = moments / (1 - beta2^t)

    The derivatives of all tokens are formed from two forward passes, at the weights before the step plus and minus a
    small multiple of P.

    Args:
        step: made with the change `watched`.
        watched: which kept what was before it.
        target: sequences whose completions' mean log-probability is the target.
    """
    learner, (policy,) = step.context.learner, watched.steps
    parameters, stage = learner.named_parameters(), step.context.phase.stage
    assert isinstance(stage, RlStage)
    rate, limit = float(step.metrics["lr"]), stage.optimizer.max_grad_norm
    after = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    reached = _mean(learner, target)
    # The gradient as it was before it was clipped, and the direction along which the target grows.
    clip = _clipped(float(step.metrics["grad_norm"]), limit)
    gradient = {name: value / clip for name, value in _gradient(learner, watched).items()}
    _put(parameters, watched.weights)
    wanted = _gradient_of(learner, target, torch.full((len(target), _longest(target)), 1 / len(target)))
    direction = _direction(learner, wanted, rate=rate * clip)
    # Every token, and what the step would have done without any gradient and without that of the strongest group.
    columns, _ = weighted_columns(policy, range(len(policy.sequences)), stage, step.context)
    weights = columns.policy_weights * columns.advantages
    product = -sum(float((gradient[name] * direction[name]).sum()) for name in direction)
    tokens, missed = list[TaughtToken](), math.inf
    for length in _RELATIVE_STEPS:
        found = list(_tokens(step, policy, weights, watched.weights, direction, length, stage.temperature))
        by = abs(sum(token.effect for token in found) - product)
        tokens, missed = (found, by) if not tokens or by < missed else (tokens, missed)
        if missed <= _SAME * abs(product):
            break
    sums: dict[int, float] = defaultdict(float)
    for token in tokens:
        sums[token.group] += token.effect
    group = max(sums, key=lambda number: abs(sums[number]))
    _put(parameters, watched.weights)
    rows = [row for row, member in enumerate(policy.members) if member.group == group]
    own = _gradient_of(learner, [policy.sequences[row] for row in rows], -weights[rows], stage.temperature)
    measured = []
    for left in (
        {name: torch.zeros_like(value) for name, value in gradient.items()},
        {name: value - own[name] for name, value in gradient.items()},
    ):
        _put(parameters, _updated(learner, watched, left, rate, _clipped(_norm(left), limit)))
        measured.append(reached - _mean(learner, target))
    _put(parameters, after)
    check = StepCheck(
        step=int(step.metrics["stage_step"]),
        estimated=sum(token.effect for token in tokens),
        gradient_product=product,
        measured=measured[0],
        group=group,
        group_estimated=sums[group],
        group_measured=measured[1],
    )
    return check, tokens


def _longest(sequences: Sequence[TokenSequence]) -> int:
    return max(len(completion) for _, completion in sequences)


def _mean(learner: Learner, target: Sequence[TokenSequence]) -> float:
    return float(completion_logprobs(learner, target).mean())


def _norm(values: Mapping[str, Tensor]) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in values.values()))


def _clipped(norm: float, limit: float | None) -> float:
    """Return the factor that clipping puts on a gradient with this norm; see `clip_grad_norm_`."""
    return 1.0 if limit is None else min(1.0, limit / (norm + 1e-6))


def _put(parameters: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, value in values.items():
            parameters[name].copy_(value)


def _with_settings(learner: Learner) -> Iterator[tuple[str, Mapping[str, Tensor], Mapping[str, Any], float]]:
    """Yield each parameter that was updated: name, state, settings of its group, updates so far."""
    names = {id(parameter): name for name, parameter in learner.named_parameters().items()}
    for group in learner.optimizer.param_groups:
        for parameter in group["params"]:
            if state := learner.optimizer.state.get(parameter):
                yield names[id(parameter)], state, group, float(state["step"])


def _gradient(learner: Learner, watched: Watched) -> dict[str, Tensor]:
    """Return the gradient that the optimizer was given, from what it did to the first moments."""
    found = {}
    for name, state, group, _ in _with_settings(learner):
        beta = group["betas"][0]
        found[name] = (state["exp_avg"] - beta * watched.moments[name][0]) / (1 - beta)
    return found


def _direction(learner: Learner, wanted: Mapping[str, Tensor], *, rate: float) -> dict[str, Tensor]:
    """Return P; see `taught_step`."""
    found = {}
    for name, state, group, made in _with_settings(learner):
        (beta1, beta2), eps = group["betas"], group["eps"]
        roots = (state["exp_avg_sq"] / (1 - beta2**made)).sqrt() + eps
        found[name] = rate * (1 - beta1) / (1 - beta1**made) * wanted[name] / roots
    return found


def _updated(
    learner: Learner, watched: Watched, gradient: Mapping[str, Tensor], rate: float, clip: float
) -> dict[str, Tensor]:
    """Return the weights after the step with another gradient, as AdamW makes them."""
    found = {}
    for name, _, group, made in _with_settings(learner):
        (beta1, beta2), (first, second), own = group["betas"], watched.moments[name], clip * gradient[name]
        first, second = beta1 * first + (1 - beta1) * own, beta2 * second + (1 - beta2) * own.square()
        roots = (second / (1 - beta2**made)).sqrt() + group["eps"]
        kept = watched.weights[name] * (1 - rate * group["weight_decay"])
        found[name] = kept - rate / (1 - beta1**made) * first / roots
    return found


def _gradient_of(
    learner: Learner, sequences: Sequence[TokenSequence], weights: Tensor, temperature: float = 1.0
) -> dict[str, Tensor]:
    """Return the gradient of the sum of all tokens' weighted log-probabilities; none is left in the model.

    Args:
        learner: with the model.
        sequences: prompts and completions.
        weights: `[len(sequences), T]`, of each token of the completions.
        temperature: of the log-probabilities.
    """

    def loss(batch: TokenBatch, logits: Tensor, chunk: slice) -> Tensor:
        ids = batch.completion_ids[batch.mask]
        own = weights[list(batch.rows), : batch.mask.shape[1]][batch.mask.cpu()].to(logits.device)
        return (own[chunk] * token_logprobs(logits, ids[chunk], temperature=temperature)).sum()

    learner.drop_gradients()
    learner.model.eval()
    for batch in learner.batches(sequences, tokens_per_batch=TOKENS_PER_BATCH):
        moved = batch.to(learner.model.device)
        learner.head.loss(learner.weights.completion_hidden(moved), partial(loss, moved)).backward()
    found = {}
    for name, parameter in learner.named_parameters().items():
        found[name] = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.detach().clone()
    learner.drop_gradients()
    return found


def _tokens(
    step: ReplayedStep,
    policy: PolicyStep,
    weights: Tensor,
    before: Mapping[str, Tensor],
    direction: Mapping[str, Tensor],
    length: float,
    temperature: float,
) -> Iterator[TaughtToken]:
    """Yield the tokens that the update learned from; the weights are left elsewhere."""
    learner, scores = step.context.learner, []
    size = length * _norm(before) / max(_norm(direction), 1e-30)
    for sign in (1.0, -1.0):
        moved = {name: before[name] + sign * size * value for name, value in direction.items()}
        _put(learner.named_parameters(), moved)
        scores.append(score_logprobs(learner.weights, policy.batches(), policy.table, temperature=temperature).double())
    effects = (weights.double() * (scores[0] - scores[1]) / (2 * size)).tolist()
    index = int(step.metrics["stage_step"]) - 1
    for own, member, (_, ids) in zip(effects, policy.members, policy.sequences, strict=True):
        for position, token in enumerate(ids):
            place = {"group": member.group, "sample": member.place, "position": position}
            yield TaughtToken(index=index, token_id=int(token), effect=own[position], **place)
