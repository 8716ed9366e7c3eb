"""The phases of a stage: which steps each has, with which settings, and what it takes over from those before."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

from swerve.config.stages import RlStage, StageConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Consecutive steps of a stage with the same settings; steps are counted from 0 within the stage."""

    stage: StageConfig
    """The stage with the phase's settings; its `steps` are those of the whole stage."""
    number: int | None
    """From 1; None in a stage without phases."""
    steps: range
    schedule: range
    """Steps that share the optimizer's state and one learning-rate schedule; they include the phase's."""
    reference_start: int
    """Steps made before the policy that the KL term refers to by default."""

    @property
    def resets_optimizer(self) -> bool:
        """Whether the phase begins without the optimizer's state from the phase before it."""
        return 0 < self.steps.start == self.schedule.start

    @property
    def title(self) -> str:
        """What messages call it."""
        return self.stage.label if self.number is None else f"{self.stage.label}, phase {self.number}"


def phases_of(stage: StageConfig) -> tuple[Phase, ...]:
    """Return the phases of a stage; one without phases is a single one.

    >>> from swerve.recipes import load_config
    >>> phases = ["{steps: 3}", "{steps: 2}", "{steps: 4, keep_optimizer: false}"]
    >>> config = load_config("demo_addition", ["stages.rl.steps=9", f"stages.rl.phases=[{', '.join(phases)}]"])
    >>> [(phase.steps, phase.schedule) for phase in phases_of(config.stages[-1])]
    [(range(0, 3), range(0, 5)), (range(3, 5), range(0, 5)), (range(5, 9), range(5, 9))]
    """
    if not isinstance(stage, RlStage) or not stage.phases:
        everything = range(stage.steps)
        return (Phase(stage=stage, number=None, steps=everything, schedule=everything, reference_start=0),)
    # Where the optimizer's state begins anew, and the policy that the KL term refers to.
    settings = [stage.in_phase(number) for number in range(len(stage.phases))]
    starts = list(accumulate((phase.steps for phase in stage.phases), initial=0))
    resets, references = [0], [0]
    for setting, start in zip(settings[1:], starts[1:-1], strict=True):
        if not setting.keep_optimizer:
            resets.append(start)
        if not setting.keep_reference:
            references.append(start)
    # Each phase is within one schedule, and has the last reference before it.
    phases = []
    for number, (setting, (start, stop)) in enumerate(zip(settings, pairwise(starts), strict=True), start=1):
        schedule = next(range(*span) for span in pairwise([*resets, stage.steps]) if start in range(*span))
        reference_start = max(reference for reference in references if reference <= start)
        phase = Phase(
            stage=setting,
            number=number,
            steps=range(start, stop),
            schedule=schedule,
            reference_start=reference_start,
        )
        phases.append(phase)
    return tuple(phases)
