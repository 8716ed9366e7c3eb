"""On-policy distillation: the student's own completions, and at each of their tokens the divergence to a teacher."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from swerve.batch import TokenBatch
from swerve.config.stages import DistillStage
from swerve.functional.kl_divergence import exact_kl
from swerve.functional.logprobs import entropy
from swerve.train.context import Metrics, StageContext, StepRollouts
from swerve.train.frozen import load_frozen
from swerve.train.learner import learning_rate
from swerve.train.rollouts import deal_rollouts, rollout_metrics, write_rollouts
from swerve.train.sampling import StepSampler


class DistillRunner:
    """One rollout of groups and one update a step; rewards are measured, not trained on."""

    def __init__(self, stage: DistillStage, context: StageContext) -> None:
        self._stage = stage
        self._context = context
        self._teacher = load_frozen(stage.teacher, context)
        self._sampler = StepSampler(stage, context)

    def step(self, index: int) -> Metrics:
        """See `StageRunner.step`."""
        stage, context = self._stage, self._context
        rollouts = self._sampler.rollouts(index)
        with self._sampler.ahead(index + 1):
            if stage.keep_rollouts:
                write_rollouts([rollouts], context, index)
            updated = self._update(rollouts, index)
        return {**rollout_metrics(rollouts, stage, context), **updated, **self._sampler.figures(rollouts, index)}

    def _update(self, rollouts: StepRollouts, index: int) -> Metrics:
        """Make an update towards the teacher at the tokens of these rollouts; return what to log of it."""
        stage, context, teacher = self._stage, self._context, self._teacher
        sequences = deal_rollouts(rollouts, context).sequences()
        num_tokens = context.world.sums({"n": sum(len(completion) for _, completion in sequences)})["n"]

        def loss(batch: TokenBatch, hidden: Tensor) -> tuple[Tensor, Mapping[str, float]]:
            with torch.no_grad():
                teacher_hidden = teacher.completion_hidden(batch)
            entropies: list[Tensor] = []

            def divergence(logits: Tensor, rows: slice) -> Tensor:
                scaled = logits if stage.temperature == 1.0 else logits / stage.temperature
                with torch.no_grad():
                    teacher_logits = teacher.head(teacher_hidden[rows]) / stage.temperature
                    entropies.append(entropy(scaled).sum())
                return exact_kl(scaled, teacher_logits, direction=stage.divergence).sum() / num_tokens

            value = context.learner.head.loss(hidden, divergence)
            return value, {"entropy": float(sum(float(part) for part in entropies))}

        rate = learning_rate(stage.optimizer, index, stage.steps)
        batches = context.learner.batches(sequences, tokens_per_batch=stage.tokens_per_batch)
        result = context.learner.update(batches, loss, learning_rate=rate, metrics=("entropy",))
        return {
            "loss": result.loss,  # the mean divergence to the teacher, nats per token
            "grad_norm": result.grad_norm,
            "lr": rate,
            "entropy": result.sums["entropy"] / num_tokens,
            "num_tokens": int(num_tokens),
        }
