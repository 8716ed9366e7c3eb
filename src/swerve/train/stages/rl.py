"""Reinforcement learning with verifiable rewards: sample groups, grade them, and reinforce what was better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from swerve.config.stages import RlStage
from swerve.train.columns import TokenSignals
from swerve.train.context import Metrics, StageContext, StepRollouts
from swerve.train.kl import KlTerm, kl_coefficient, kl_reference, kl_term
from swerve.train.learner import NotFiniteError
from swerve.train.policy_update import UPDATE_FIGURES, minibatches, update_policy
from swerve.train.preparation import prepare_step
from swerve.train.rollouts import deal_rollouts, rollout_metrics, write_rollouts
from swerve.train.sampling import StepSampler

_LARGEST_REWARD = 1e15
"""The squares of larger ones come near the end of 32 bits."""


class RlRunner:
    """One rollout of groups a step, and one update or several from it."""

    def __init__(self, stage: RlStage, context: StageContext) -> None:
        self._stage = stage
        self._context = context
        self._reference = kl_reference(stage, context)
        self._sampler = StepSampler(stage, context)

    def step(self, index: int) -> Metrics:
        """See `StageRunner.step`."""
        stage, context, sampler = self._stage, self._context, self._sampler
        # Draw problems, sample completions of them and grade these; or take those that were sampled ahead.
        rollouts = sampler.rollouts(index)
        kl, entropy_coef = self._terms()
        figures: dict[str, Any] = {**rollout_metrics(rollouts, stage, context), **dict.fromkeys(UPDATE_FIGURES)}
        figures.update(kl_coef=kl.coef, entropy_coef=entropy_coef, num_tokens=0)
        # Groups whose rewards agree may be left out; the completions of the others are dealt to the processes.
        used, left_out = self._used(rollouts)
        figures["num_used_rollouts"] = int(context.world.sums({"n": len(used.sequences())})["n"])
        used = self._dealt(used, index)
        # Advantages, and one update or several; where every group agreed there is nothing to learn from.
        signals: TokenSignals | None = None
        with sampler.ahead(index + 1), self._looked_at(left_out, used, index):
            if figures["num_used_rollouts"]:
                step = prepare_step(used, stage, context, kl)
                if context.reweigh is not None:
                    step = context.reweigh(step, used, index)
                update = update_policy(step, stage, context, index, kl, entropy_coef)
                figures.update(update.figures)
                signals = update.signals
            # Written after the update, for what it did at each token. A kill in between loses nothing: rollouts of a
            # step that no checkpoint holds are sampled again on resuming, the same ones, or were saved with the one
            # before.
            self._write([left_out, used], index, signals)
        return {**figures, **sampler.figures(rollouts, index)}

    def _used(self, rollouts: StepRollouts) -> tuple[StepRollouts, StepRollouts]:
        """Return the groups that the step learns from, and those that it leaves out."""
        is_used = [self._stage.zero_variance == "keep" or varied for varied in rollouts.varied()]
        used = rollouts.whole([number for number, used in enumerate(is_used) if used])
        return used, rollouts.whole([number for number, used in enumerate(is_used) if not used])

    def _dealt(self, used: StepRollouts, index: int) -> StepRollouts:
        """Return what this process learns from: its share of each minibatch, of groups that differ and that agree."""
        own = [number for number, varied in zip(used.numbers, used.varied(), strict=True) if not varied]
        agree = set(chain.from_iterable(self._context.world.gather(own)))

        def parts(numbers: set[int]) -> list[set[int]]:
            dealt = minibatches(numbers, self._stage, self._context, index, epoch=0)
            return [half for part in dealt for half in (part - agree, part & agree)]

        return deal_rollouts(used, self._context, parts=parts)

    @contextmanager
    def _looked_at(self, left_out: StepRollouts, used: StepRollouts, index: int) -> Iterator[None]:
        """Write the rollouts down, to look at, where an update is not finite; say so if a reward is why."""
        try:
            yield
        except NotFiniteError as error:
            self._write([left_out, used], index, None)
            largest = max((abs(reward) for rewards in used.rewards for reward in rewards), default=0.0)
            if largest > _LARGEST_REWARD:
                raise NotFiniteError(
                    f"a reward of {largest:.3g} is too large for the arithmetic of 32 bits, so the loss is not finite; "
                    "the weights were not changed by it; scale what the grader returns"
                ) from error
            raise

    def _write(self, rollouts: Sequence[StepRollouts], index: int, signals: TokenSignals | None) -> None:
        if self._stage.keep_rollouts:
            write_rollouts(rollouts, self._context, index, signals)

    def _terms(self) -> tuple[KlTerm, float]:
        """Return this step's KL term and coefficient of the entropy, from what the last step's record says."""
        stage, settings = self._stage, self._stage.entropy
        records = self._context.records
        last = records[-1] if records else {}
        kl = kl_term(
            stage.kl, coef=kl_coefficient(stage, last), reference=self._reference, temperature=stage.temperature
        )
        bonus = last.get("entropy_coef", settings.coef)
        if settings.target and last.get("entropy") is not None:
            change = settings.target_step if last["entropy"] < settings.target else -settings.target_step
            bonus = max(settings.coef, bonus + change)
        return kl, bonus
