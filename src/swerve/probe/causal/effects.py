"""Interventions and their outcomes -> the effect at each position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swerve.probe.causal.swaps import Arm, Intervention, Match, Place, Policy, Selection
from swerve.probe.causal.values import Outcome

__all__ = ["MeasuredEffect", "measured_effects"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEffect:
    """All arms at one position under one policy."""

    policy: Policy
    selection: Selection
    sequence_id: int
    """Of the rollout with the position."""
    position: int
    spike_sequence_id: int
    """Of the rollout whose spike this is, or is a control for."""
    problem_id: str
    """Of that rollout: the unit of resampling."""
    arms: Mapping[Arm, tuple[int, Outcome]]
    """The token each arm forced, and what became of it; `reference` and `checkpoint` at least."""
    match: Match | None = None
    """Of matched controls."""

    def value(self, arm: Arm) -> float:
        """Return an arm's share of right continuations, without bias by when sampling stopped: for means."""
        return self.arms[arm][1].unbiased_value

    @property
    def effect(self) -> float:
        """Success with the checkpoint's token minus success with the rollout's own, without bias: for means."""
        return self.value("checkpoint") - self.value("reference")

    @property
    def precise_effect(self) -> float:
        """The same from all continuations: what is known of this position."""
        return self.arms["checkpoint"][1].value - self.arms["reference"][1].value

    @property
    def same_token(self) -> bool:
        """Whether the checkpoint chooses the rollout's own token."""
        return self.arms["checkpoint"][0] == self.arms["reference"][0]


def measured_effects(interventions: Sequence[Intervention], outcomes: Sequence[Outcome]) -> list[MeasuredEffect]:
    """Put the arms of each position together, in the order of the plan.

    Raises:
        ValueError: a position lacks the reference's or the checkpoint's arm.
    """
    places: dict[Place, dict[Arm, tuple[Intervention, Outcome]]] = {}
    for item, outcome in zip(interventions, outcomes, strict=True):
        places.setdefault(item.place, {})[item.arm] = (item, outcome)
    return [_effect(arms) for arms in places.values()]


def _effect(arms: Mapping[Arm, tuple[Intervention, Outcome]]) -> MeasuredEffect:
    missing = {"reference", "checkpoint"} - arms.keys()
    if missing:
        item = next(iter(arms.values()))[0]
        raise ValueError(
            f"position {item.position} of rollout {item.sequence.sequence_id} lacks the arm {sorted(missing)[0]}; an "
            "effect needs both"
        )
    item = arms["reference"][0]
    return MeasuredEffect(
        policy=item.policy,
        selection=item.selection,
        sequence_id=item.sequence.sequence_id,
        position=item.position,
        spike_sequence_id=item.spike_sequence_id,
        problem_id=item.spike_problem_id,
        arms={arm: (item.token_id, outcome) for arm, (item, outcome) in arms.items()},
        match=item.match,
    )
