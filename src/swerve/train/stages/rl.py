"""Reinforcement learning with verifiable rewards: sample groups, grade them, and reinforce what was better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from swerve.config.stages import RlStage
from swerve.train.columns import TokenSignals
from swerve.train.kl import KlTerm, kl_coefficient, kl_reference, kl_term
from swerve.train.learner import NotFiniteError
from swerve.train.policy_update import UPDATE_FIGURES, update_policy
from swerve.train.preparation import prepare_step
from swerve.train.rollouts import RolloutSchedule, rollout_metrics, write_rollouts
from swerve.train.stages.context import Metrics, StageContext, StepRollouts


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
        try:
            figures, signals = self._learn(found, index)
        except NotFiniteError:
            self._write(found, index, None)  # to look at
            raise
        # After the update, for what it did at each token. A kill in between loses nothing: rollouts of a step that no
        # checkpoint holds are sampled again on resuming, the same ones, or were saved with the one before.
        self._write(found, index, signals)
        return figures

    def _write(self, found: StepRollouts, index: int, signals: TokenSignals | None) -> None:
        if self._stage.keep_rollouts:
            write_rollouts(found, self._context, index, signals)

    def _learn(self, found: StepRollouts, index: int) -> tuple[Metrics, TokenSignals | None]:
        """Make the step's updates; return what to log, and the signal at each token (None: there was no update)."""
        kl, entropy_coef = self._terms()
        figures: dict[str, Any] = {
            **rollout_metrics(found, self._stage, self._context),
            **dict.fromkeys(UPDATE_FIGURES),
        }
        figures.update(kl_coef=kl.coef, entropy_coef=entropy_coef, num_tokens=0)
        used = found if self._stage.zero_variance == "keep" else _without_equal_rewards(found)
        num_used = self._context.world.sums({"n": sum(len(group.rollouts) for group in used.groups)})["n"]
        figures["num_used_rollouts"] = int(num_used)
        if not num_used:  # every group agreed: there is nothing to learn from
            return figures, None
        step = prepare_step(used, self._stage, self._context, kl)
        update = update_policy(step, self._stage, self._context, index, kl, entropy_coef)
        return {**figures, **update.figures}, update.signals

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


def _without_equal_rewards(found: StepRollouts) -> StepRollouts:
    """Leave out the groups whose rewards are all equal."""
    kept = [index for index, varied in enumerate(found.varied()) if varied]
    return replace(
        found,
        groups=[found.groups[index] for index in kept],
        numbers=[found.numbers[index] for index in kept],
        rewards=[found.rewards[index] for index in kept],
    )
