"""Reinforcement learning with verifiable rewards: sample groups, grade them, and reinforce what was better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from swerve.config.stages import RlStage
from swerve.train.columns import TokenSignals
from swerve.train.context import Metrics, StageContext, StepRollouts
from swerve.train.kl import KlTerm, kl_coefficient, kl_reference, kl_term
from swerve.train.learner import NotFiniteError
from swerve.train.policy_update import UPDATE_FIGURES, PolicyUpdate, minibatches, update_policy
from swerve.train.preparation import prepare_step
from swerve.train.rollouts import RolloutSchedule, deal_rollouts, rollout_metrics, write_rollouts


class RlRunner:
    """One rollout of groups a step, and one update or several from it."""

    def __init__(self, stage: RlStage, context: StageContext) -> None:
        self._stage = stage
        self._context = context
        self._reference = kl_reference(stage, context)
        self._schedule = RolloutSchedule(stage, context)

    def step(self, index: int) -> Metrics:
        """See `StageRunner.step`."""
        return self._schedule.step(index, lambda found: self._update(found, index))

    def _update(self, found: StepRollouts, index: int) -> Metrics:
        stage, context = self._stage, self._context
        kl, entropy_coef = self._terms()
        figures: dict[str, Any] = {**rollout_metrics(found, stage, context), **dict.fromkeys(UPDATE_FIGURES)}
        figures.update(kl_coef=kl.coef, entropy_coef=entropy_coef, num_tokens=0)
        is_used = [stage.zero_variance == "keep" or varied for varied in found.varied()]
        left_out, used = (
            found.whole([number for number, one in enumerate(is_used) if one is wanted]) for wanted in (False, True)
        )
        num_used = context.world.sums({"n": len(used.sequences())})["n"]
        figures["num_used_rollouts"] = int(num_used)
        used = self._dealt(used, index)
        try:
            # Where every group agreed there is nothing to learn from.
            update = self._learn(used, index, kl, entropy_coef) if num_used else None
        except NotFiniteError:
            self._write([left_out, used], index, None)  # to look at
            raise
        # After the update, for what it did at each token. A kill in between loses nothing: rollouts of a step that no
        # checkpoint holds are sampled again on resuming, the same ones, or were saved with the one before.
        self._write([left_out, used], index, None if update is None else update.signals)
        return figures if update is None else {**figures, **update.figures}

    def _dealt(self, used: StepRollouts, index: int) -> StepRollouts:
        """Return what this process learns from: its share of each minibatch, of groups that differ and that agree."""
        own = [number for number, varied in zip(used.numbers, used.varied(), strict=True) if not varied]
        agree = set(chain.from_iterable(self._context.world.gather(own)))

        def parts(numbers: set[int]) -> list[set[int]]:
            dealt = minibatches(numbers, self._stage, self._context, index, epoch=0)
            return [half for part in dealt for half in (part - agree, part & agree)]

        return deal_rollouts(used, self._stage, self._context, parts=parts)

    def _learn(self, used: StepRollouts, index: int, kl: KlTerm, entropy_coef: float) -> PolicyUpdate:
        step = prepare_step(used, self._stage, self._context, kl)
        return update_policy(step, self._stage, self._context, index, kl, entropy_coef)

    def _write(self, found: Sequence[StepRollouts], index: int, signals: TokenSignals | None) -> None:
        if self._stage.keep_rollouts:
            write_rollouts(found, self._context, index, signals)

    def _terms(self) -> tuple[KlTerm, float]:
        """Return this step's KL term and coefficient of the entropy, from what the last step's record says."""
        stage, settings = self._stage, self._stage.entropy
        last = _last_record(self._context.records)
        kl = kl_term(
            stage.kl, coef=kl_coefficient(stage, last), reference=self._reference, temperature=stage.temperature
        )
        bonus = last.get("entropy_coef", settings.coef)
        if settings.target and last.get("entropy") is not None:
            change = settings.target_step if last["entropy"] < settings.target else -settings.target_step
            bonus = max(settings.coef, bonus + change)
        return kl, bonus


def _last_record(records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the record that the coefficients follow: after a roll back that of the checkpoint."""
    by_step = {record["stage_step"]: record for record in records}
    last = records[-1] if records else {}
    while "rolled_back_to" in last:
        last = by_step.get(last["rolled_back_to"], {})
    return last
