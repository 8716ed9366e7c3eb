"""Reinforcement learning with verifiable rewards: sample groups, grade them, reinforce what beat its group's mean."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from swerve.artifacts.tables import ROLLOUTS_SCHEMA, write_table
from swerve.batch import TokenBatch, token_batches
from swerve.config import RlStage
from swerve.functional import (
    dr_grpo_advantages,
    entropy,
    reinforce_loss,
    sequence_mean,
    token_logprobs,
    token_mean,
)
from swerve.prompts import encode_prompts
from swerve.rewards import grade
from swerve.rollout import rollout_groups
from swerve.train.schedule import learning_rate
from swerve.train.stages.base import Figures, StageContext
from swerve.types import Reward, Rollout, RolloutGroup

__all__ = ["RlRunner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """One completion that the update learns from."""

    prompt_ids: tuple[int, ...]
    rollout: Rollout
    advantage: float


class RlRunner:
    """One rollout of groups and one update a step."""

    def __init__(self, stage: RlStage, context: StageContext) -> None:
        self._stage = stage
        self._context = context

    def step(self, index: int) -> Figures:
        """See `StageRunner.step`."""
        groups = self._sample(index)
        if self._stage.keep_rollouts:
            self._write(groups, index)
        rewards = [[reward_value(rollout.reward, self._stage) for rollout in group.rollouts] for group in groups]
        samples = self._samples(groups, rewards)
        world = self._context.world
        totals = world.sum_figures(
            {
                **_rollout_sums(groups, rewards),
                "used_tokens": sum(len(sample.rollout.completion.token_ids) for sample in samples),
                "used_sequences": len(samples),
            }
        )
        figures = _rollout_figures(totals)
        if totals["used_sequences"] == 0:  # every group agreed: there is nothing to learn from
            return {**figures, "loss": None, "grad_norm": None, "entropy": None, "logprob_gap": None, "lr": None}
        return {**figures, **self._update(samples, index, totals)}

    def _sample(self, index: int) -> list[RolloutGroup]:
        context, stage = self._context, self._stage
        count = stage.prompts_per_step
        problems = context.draw(stage.label, index * count, count)
        slots = context.world.shard(range(count))
        return rollout_groups(
            context.engine,
            context.learner.tokenizer,
            encode_prompts(context.learner.tokenizer, [problems[slot] for slot in slots]),
            context.sampling(num_samples=stage.samples_per_prompt, temperature=stage.temperature),
            seeds=[context.seed(stage.label, "rollout", index, slot) for slot in slots],
            grade=grade,
            version=context.first_step + index,
        )

    def _samples(self, groups: Sequence[RolloutGroup], rewards: Sequence[Sequence[float]]) -> list[_Sample]:
        if not groups:
            return []
        advantages = dr_grpo_advantages(torch.tensor(rewards, dtype=torch.float32)).tolist()
        return [
            _Sample(prompt_ids=group.prompt.token_ids, rollout=rollout, advantage=advantage)
            for group, row, values in zip(groups, advantages, rewards, strict=True)
            if not (self._stage.drop_zero_advantage_groups and len(set(values)) == 1)
            for rollout, advantage in zip(group.rollouts, row, strict=True)
        ]

    def _update(self, samples: Sequence[_Sample], index: int, totals: Mapping[str, float]) -> Figures:
        stage, learner = self._stage, self._context.learner
        sequences = [(sample.prompt_ids, sample.rollout.completion.token_ids) for sample in samples]
        batches = token_batches(
            sequences, pad_id=learner.pad_id, tokens_per_batch=learner.token_budget(stage.tokens_per_batch)
        )

        def loss(batch: TokenBatch, logits: Tensor) -> tuple[Tensor, Mapping[str, float]]:
            logprobs = token_logprobs(logits, batch.completion_ids, temperature=stage.temperature)
            rows = [samples[row] for row in batch.rows]
            advantages = logprobs.new_tensor([row.advantage for row in rows])[:, None].expand_as(logprobs)
            per_token = reinforce_loss(logprobs, advantages)
            reduced = (
                token_mean(per_token, batch.mask, num_tokens=totals["used_tokens"])
                if stage.reduction == "token_mean"
                else sequence_mean(per_token, batch.mask, num_sequences=totals["used_sequences"])
            )
            with torch.no_grad():
                gap = (logprobs - _padded_logprobs(rows, logprobs)).where(batch.mask, 0.0).abs().sum()
                spread = entropy(logits).where(batch.mask, 0.0).sum()
            return reduced, {"entropy": float(spread), "logprob_gap": float(gap)}

        rate = learning_rate(stage.optimizer, index, stage.steps)
        result = learner.update(batches, loss, learning_rate=rate, figures=("entropy", "logprob_gap"))
        return {
            "loss": result.loss,
            "grad_norm": result.grad_norm,
            "lr": rate,
            **{name: value / totals["used_tokens"] for name, value in result.sums.items()},
        }

    def _write(self, groups: Sequence[RolloutGroup], index: int) -> None:
        world = self._context.world
        slots = world.shard(range(self._stage.prompts_per_step))
        parts = world.gather(_rows(slots, groups))
        if world.is_main:
            rows = sorted((row for part in parts for row in part), key=lambda row: row["group"])
            write_table(self._context.run.rollouts_path(self._context.first_step + index + 1), rows, ROLLOUTS_SCHEMA)


def reward_value(reward: Reward, stage: RlStage) -> float:
    """Return the reward training uses: the graded value, or the stage's `failure_reward`."""
    return stage.failure_reward if reward.value is None else reward.value


def _padded_logprobs(samples: Sequence[_Sample], like: Tensor) -> Tensor:
    padded = torch.zeros_like(like)
    for row, sample in enumerate(samples):
        values = sample.rollout.completion.logprobs
        padded[row, : len(values)] = like.new_tensor(values)
    return padded


def _rollout_sums(groups: Sequence[RolloutGroup], rewards: Sequence[Sequence[float]]) -> dict[str, float]:
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    lengths = [len(rollout.completion.token_ids) for rollout in rollouts]
    return {
        "groups": len(groups),
        "rollouts": len(rollouts),
        "reward": sum(map(sum, rewards)),
        "tokens": sum(lengths),
        "truncated": sum(rollout.completion.finish_reason == "length" for rollout in rollouts),
        "failures": sum(rollout.reward.value is None for rollout in rollouts),
        "zero_advantage_groups": sum(len(set(values)) == 1 for values in rewards),
        "neg_logprob": -sum(sum(rollout.completion.logprobs) for rollout in rollouts),
    }


def _rollout_figures(totals: Mapping[str, float]) -> Figures:
    rollouts = totals["rollouts"]
    return {
        "reward": totals["reward"] / rollouts,
        "completion_length": totals["tokens"] / rollouts,  # tokens
        "truncated_share": totals["truncated"] / rollouts,
        "neg_logprob": totals["neg_logprob"] / totals["tokens"],  # nats a token: an estimate of the entropy
        "num_failures": int(totals["failures"]),
        "num_groups": int(totals["groups"]),
        "num_zero_advantage_groups": int(totals["zero_advantage_groups"]),
        "num_used_rollouts": int(totals["used_sequences"]),
        "num_tokens": int(totals["used_tokens"]),
    }


def _rows(slots: Sequence[int], groups: Sequence[RolloutGroup]) -> list[dict[str, Any]]:
    return [
        {
            "group": slot,
            "problem_id": group.prompt.problem.id,
            "prompt_ids": list(group.prompt.token_ids),
            "completion_ids": list(rollout.completion.token_ids),
            "logprobs": list(rollout.completion.logprobs),
            "text": rollout.text,
            "reward": rollout.reward.value,
            "parts": json.dumps(dict(rollout.reward.parts)),
            "status": rollout.reward.status,
            "finish_reason": rollout.completion.finish_reason,
            "version": rollout.version,
        }
        for slot, group in zip(slots, groups, strict=True)
        for rollout in group.rollouts
    ]
