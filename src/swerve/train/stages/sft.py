"""Supervised fine-tuning on the completion tokens of the task's traces."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from swerve.batch import TokenBatch
from swerve.config.stages import SftStage
from swerve.functional.logprobs import token_logprobs
from swerve.functional.path_losses import max_prob_js, max_prob_kl
from swerve.prompts import encode_completions, encode_prompts
from swerve.train.learner import learning_rate
from swerve.train.stages.context import Metrics, StageContext
from swerve.types import Problem

_LOSSES: Mapping[str, Callable[[Tensor, Tensor, SftStage], Tensor]] = {
    "cross_entropy": lambda logits, ids, _stage: -token_logprobs(logits, ids),
    "greedy_kl": lambda logits, ids, stage: max_prob_kl(logits, ids, target_gradient=stage.target_gradient),
    "greedy_js": lambda logits, ids, stage: max_prob_js(logits, ids, target_gradient=stage.target_gradient),
}
"""(logits `[N, V]`, ids `[N]`, stage) -> the loss of each token `[N]`."""


class SftRunner:
    """Draws problems, writes a supervised trace for each, and imitates it."""

    def __init__(self, stage: SftStage, context: StageContext) -> None:
        self._stage = stage
        self._context = context

    def step(self, index: int) -> Metrics:
        """See `StageRunner.step`."""
        stage = self._stage
        problems = self._context.draw(range(stage.batch_size), step=index)
        sequences = self._context.world.shard(self._sequences(problems, index))
        num_tokens = self._context.world.sums({"n": sum(len(completion) for _, completion in sequences)})["n"]

        learner = self._context.learner

        def loss(batch: TokenBatch, hidden: Tensor) -> tuple[Tensor, Mapping[str, float]]:
            ids = batch.completion_ids[batch.mask]
            return learner.head.loss(
                hidden, lambda logits, rows: _LOSSES[stage.loss](logits, ids[rows], stage).sum() / num_tokens
            ), {}

        rate = learning_rate(self._stage.optimizer, index, self._stage.steps)
        batches = learner.batches(sequences, tokens_per_batch=self._stage.tokens_per_batch)
        result = learner.update(batches, loss, learning_rate=rate)
        return {
            "loss": result.loss,
            "grad_norm": result.grad_norm,
            "lr": rate,
            "num_tokens": int(num_tokens),
            **self._context.draw_metrics(problems, step=index),
        }

    def _sequences(self, problems: Sequence[Problem], index: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        context, label = self._context, self._stage.label
        tokenizer = context.learner.tokenizer
        traces = [
            context.family.trace(problem, random.Random(context.seed(label, "trace", index, slot)))
            for slot, problem in enumerate(problems)
        ]
        prompts = [prompt.token_ids for prompt in encode_prompts(tokenizer, problems)]
        return list(zip(prompts, encode_completions(tokenizer, problems, traces), strict=True))
