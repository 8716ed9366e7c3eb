"""Direct preference optimisation on on-policy pairs: a right and a wrong completion of one prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, get_args

import torch
from torch import Tensor

from swerve.artifacts.tables import PAIRS_SCHEMA, read_table
from swerve.batch import TokenBatch, TokenSequence
from swerve.config.stages import DpoStage
from swerve.errors import SwerveError
from swerve.functional.logprobs import token_logprobs
from swerve.functional.losses import dpo_loss
from swerve.rollout.engine import Engine
from swerve.train.context import Metrics, StageContext
from swerve.train.learner import learning_rate
from swerve.train.rollouts import write_together
from swerve.types import RewardStatus, RolloutGroup

_PROMPTS_AT_A_TIME = 64


class DpoRunner:
    """Samples pairs with the policy the stage begins with, once; then learns from them."""

    def __init__(self, stage: DpoStage, context: StageContext) -> None:
        self._stage = stage
        self._context = context
        path = context.run.pairs_path(stage.label)
        if not context.resumed:
            pairs = self._with_reference(self._collect())
            write_together(path, pairs, PAIRS_SCHEMA, context.world, order=("slot",))
            context.world.barrier()
        self._pairs: list[dict[str, Any]] = read_table(path, PAIRS_SCHEMA).to_pylist()

    def step(self, index: int) -> Metrics:
        """See `StageRunner.step`."""
        stage, learner = self._stage, self._context.learner
        size = stage.batch_size
        drawn = [self._pairs[number % len(self._pairs)] for number in range(index * size, (index + 1) * size)]
        pairs = [drawn[number] for number in learner.share([_sequences(pair) for pair in drawn])]

        def loss(batch: TokenBatch, hidden: Tensor) -> tuple[Tensor, Mapping[str, float]]:
            sums = self._completion_logprobs(batch, hidden)
            rows = [pairs[row // 2] for row in batch.rows[::2]]
            chosen, rejected = sums[0::2], sums[1::2]
            ref_chosen = sums.new_tensor([pair["ref_chosen_logprob"] for pair in rows])
            ref_rejected = sums.new_tensor([pair["ref_rejected_logprob"] for pair in rows])
            margin = (chosen - ref_chosen) - (rejected - ref_rejected)
            per_pair = dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta=stage.beta)
            return per_pair.sum() / size, {"margin": float(margin.detach().sum()), "wins": float((margin > 0).sum())}

        rate = learning_rate(stage.optimizer, index, stage.steps)
        batches = self._pair_batches(pairs)
        result = learner.update(batches, loss, learning_rate=rate, metrics=("margin", "wins"))
        return {
            "loss": result.loss,
            "grad_norm": result.grad_norm,
            "lr": rate,
            "margin": result.sums["margin"] / size,  # nats
            "preference_accuracy": result.sums["wins"] / size,
            "num_pairs": len(self._pairs),
        }

    def _collect(self) -> list[dict[str, Any]]:
        """Return a pair of each prompt that this process sampled and that has a right and a wrong completion.

        There is one `slot` for each prompt; sampling ends when all processes together have enough pairs.
        """
        stage, context = self._stage, self._context
        wanted = stage.steps * stage.batch_size
        own: list[dict[str, Any]] = []
        slots_of_pairs: list[int] = []
        outcomes: Counter[str] = Counter()
        with (
            context.awake_engine(step=0) as engine,
            context.progress.task(f"sample pairs for {stage.label}", wanted) as task,
        ):
            for start in range(0, stage.max_prompts, _PROMPTS_AT_A_TIME):
                # Some prompts by all processes together, and of each the right and wrong completion if it has both.
                context.raise_if_interrupted()
                slots = range(start, min(start + _PROMPTS_AT_A_TIME, stage.max_prompts))
                # Pairs are trained on in their order: the next ones are those of the step after the pairs so far.
                num = len(slots_of_pairs)
                groups = self._sample(engine, slots, pool_step=num // stage.batch_size)
                slots_found = []
                for slot, group in groups.items():
                    if (pair := _pair(group)) is not None:
                        own.append({"slot": slot, **pair})
                        slots_found.append(slot)
                slots_of_pairs += sorted(chain.from_iterable(context.world.gather(slots_found)))
                outcomes += self._outcomes(groups)
                task.advance(min(len(slots_of_pairs), wanted) - num)
                if len(slots_of_pairs) >= wanted:
                    break
        num = len(slots_of_pairs)
        if not num:
            counted = ", ".join(f"{count} {status}" for status, count in outcomes.most_common())
            raise SwerveError(
                f"stage '{stage.label}': none of {stage.max_prompts} prompts had both a right and a wrong completion "
                f"among {stage.samples_per_prompt} samples ({counted}); train the stage before it longer, "
                f"or raise stages.{stage.label}.samples_per_prompt or .max_prompts"
            )
        if num < wanted:
            context.progress.note(
                f"{stage.label}: {num} pairs from {stage.max_prompts} prompts for {wanted} wanted; they repeat"
            )
        kept = set(slots_of_pairs[:wanted])
        return [pair for pair in own if pair["slot"] in kept]

    def _sample(self, engine: Engine, slots: range, *, pool_step: int) -> dict[int, RolloutGroup]:
        """Return the groups of this process's prompts of some slots."""
        stage, context = self._stage, self._context
        problems = dict(zip(slots, context.draw(slots, step=0, pool_step=pool_step), strict=True))
        mine = context.world.shard(slots)
        params = context.sampling(num_samples=stage.samples_per_prompt, temperature=stage.temperature)
        seeds = [context.seed(stage.label, "rollout", slot) for slot in mine]
        prompts = context.encode([problems[slot] for slot in mine])
        groups = context.sample_groups(engine, prompts, params, seeds=seeds)
        return dict(zip(mine, groups, strict=True))

    def _outcomes(self, groups: Mapping[int, RolloutGroup]) -> Counter[str]:
        """Return how many completions of all processes had each outcome."""
        own = Counter(rollout.reward.status for group in groups.values() for rollout in group.rollouts)
        totals = self._context.world.sums({name: own[name] for name in get_args(RewardStatus)})
        return Counter({name: int(total) for name, total in totals.items() if total})

    def _with_reference(self, pairs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Add the completions' log-probabilities under the policy the stage begins with; all processes must call it."""
        model = self._context.learner.model
        model.eval()
        totals = torch.zeros(2 * len(pairs))
        with torch.inference_mode():
            for batch in self._pair_batches(pairs):
                moved = batch.to(model.device)
                hidden = self._context.learner.weights.completion_hidden(moved)
                totals[list(batch.rows)] = self._completion_logprobs(moved, hidden).cpu()
        values = totals.tolist()
        return [
            {**pair, "ref_chosen_logprob": values[2 * number], "ref_rejected_logprob": values[2 * number + 1]}
            for number, pair in enumerate(pairs)
        ]

    def _completion_logprobs(self, batch: TokenBatch, hidden: Tensor) -> Tensor:
        """Return each row's log-probability summed over its completion, `[B]`, nats."""
        ids = batch.completion_ids[batch.mask]
        per_token = self._context.learner.head.map(
            hidden, lambda logits, rows: token_logprobs(logits, ids[rows])[:, None]
        )[:, 0]
        if not batch.rows:
            return per_token
        return torch.stack([part.sum() for part in torch.split(per_token, batch.mask.sum(dim=1).tolist())])

    def _pair_batches(self, pairs: Sequence[Mapping[str, Any]]) -> list[TokenBatch]:
        """Batches in which row 2i is a pair's chosen completion and row 2i + 1 its rejected one."""
        sequences = [sequence for pair in pairs for sequence in _sequences(pair)]
        return self._context.learner.batches(sequences, tokens_per_batch=self._stage.tokens_per_batch, together=2)


def _pair(group: RolloutGroup) -> dict[str, Any] | None:
    right = [rollout for rollout in group.rollouts if rollout.reward.is_right]
    wrong = [rollout for rollout in group.rollouts if rollout.reward.status == "graded" and not rollout.reward.is_right]
    if not right or not wrong:
        return None
    return {
        "problem_id": group.prompt.problem.id,
        "prompt_ids": list(group.prompt.token_ids),
        "chosen_ids": list(right[0].completion.token_ids),
        "rejected_ids": list(wrong[0].completion.token_ids),
    }


def _sequences(pair: Mapping[str, Any]) -> list[TokenSequence]:
    return [(pair["prompt_ids"], pair[name]) for name in ("chosen_ids", "rejected_ids")]
