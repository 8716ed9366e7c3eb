"""What a probe of responses from elsewhere is asked for: settings without a recipe, models by name. Free of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.config import EvalConfig, ProbeConfig, ReportConfig, RolloutConfig, RuntimeConfig
from swerve.errors import CheckpointError, ConfigError
from swerve.problems import TaskConfig
from swerve.settings import Model, PositiveInt

SelectionName = Literal[
    "reference_wrong_final_right",
    "reference_right_final_right",
    "reference_wrong_final_wrong",
    "reference_right_final_wrong",
    "all",
]
SELECTIONS: Mapping[SelectionName, tuple[bool, bool] | None] = {
    "reference_wrong_final_right": (False, True),
    "reference_right_final_right": (True, True),
    "reference_wrong_final_wrong": (False, False),
    "reference_right_final_wrong": (True, False),
    "all": None,
}
"""Which rollouts of the reference are the headline population: whether reference and final have the problem right."""


class ProbeSettings(Model):
    """What can be set where there is no run, and so no recipe."""

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    max_new_tokens: PositiveInt | None = None
    """Longest completion of the causal tests; null: as many tokens as the longest response has."""
    task: TaskConfig | None = None
    """Its grader judges the responses and the causal tests; null: the graders that the problems name."""
    rollout: RolloutConfig = RolloutConfig()
    """The engine of the causal tests."""
    eval: EvalConfig = EvalConfig()
    probe: ProbeConfig = ProbeConfig()
    report: ReportConfig = ReportConfig()
    runtime: RuntimeConfig = RuntimeConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFiles:
    """Samples of two models on the same problems, and which rollouts of the reference are asked for."""

    reference: Path
    final: Path
    selection: SelectionName = "reference_wrong_final_right"
    where: tuple[str, ...] = ()
    """Conditions `KEY=VALUE,VALUE` or `KEY=LOW..HIGH`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedModel:
    """A model with its label in tables."""

    label: str
    path: Path | str
    """Folder in the Hugging Face layout, or `owner/name` with an optional `#revision`."""
    step: int | None = None
    """Global step, where it is a checkpoint of the run at hand."""


def name_checkpoint(checkpoint: CheckpointRef, label: str | None = None) -> NamedModel:
    """Return a run's checkpoint under its own label or another."""
    return NamedModel(label=label or checkpoint.label, path=checkpoint.path, step=checkpoint.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedModels:
    """The models of a probe, each with a label of its own.

    Raises:
        ConfigError: two have the same label.
    """

    reference: NamedModel
    baseline: NamedModel | None
    checkpoints: tuple[NamedModel, ...]
    """The last is the one the headline metrics are about."""

    def __post_init__(self) -> None:
        repeated = [label for label, count in Counter(one.label for one in self.by_step).items() if count > 1]
        if repeated:
            raise ConfigError(
                f"two models are called '{repeated[0]}'; give them different names, as in --checkpoint late=MODEL "
                "(also for --reference and --baseline)"
            )

    @property
    def by_step(self) -> tuple[NamedModel, ...]:
        """All models in the order of training: baseline, reference, checkpoints."""
        return (*([self.baseline] if self.baseline else []), self.reference, *self.checkpoints)

    @property
    def steps(self) -> dict[str, int]:
        """Each model's global step by label if all are of one run and the steps increase, else their order."""
        steps = [one.step for one in self.by_step]
        known = [step for step in steps if step is not None]
        increasing = all(first < second for first, second in pairwise(known))
        chosen = known if len(known) == len(steps) and increasing else list(range(len(steps)))
        return {one.label: step for one, step in zip(self.by_step, chosen, strict=True)}


def choose_models(
    run: RunDirectory | None,
    settings: ProbeConfig,
    *,
    reference: str | None,
    baseline: str | None,
    checkpoints: Sequence[str],
    resolve: Callable[[str], NamedModel],
) -> ComparedModels:
    """Return the models that were named; a run has defaults for those that were not.

    Args:
        run: whose stages give the defaults; None if every model is named.
        settings: name models of the run.
        reference: as named; by default what the settings say, else the stage before the last.
        baseline: as named; by default what the settings of a run say.
        checkpoints: as named; by default those of the last stage, or of the stage that the settings say.
        resolve: a name to the model.

    Raises:
        ConfigError: two models have the same label, or the run has no stage before its last.
        CheckpointError: the run has no checkpoints, or none of the stage.
    """
    if run is not None:
        reference = reference or settings.reference or _default_reference(run)
        baseline = baseline or settings.baseline
    assert reference is not None, "without a run every model is named"
    chosen = [resolve(name) for name in checkpoints]
    if all(one.step is not None for one in chosen):
        chosen.sort(key=lambda one: one.step or 0)
    found = resolve(reference)
    if run is not None and not chosen:
        chosen = [one for one in _stage_checkpoints(run, settings.checkpoints) if one.path != found.path]
    return ComparedModels(
        reference=found, baseline=None if baseline is None else resolve(baseline), checkpoints=tuple(chosen)
    )


def _stages(run: RunDirectory) -> list[str]:
    stages = list(dict.fromkeys(one.stage for one in run.checkpoints()))
    if not stages:
        raise CheckpointError(f"{run.path} has no checkpoints; train it first, or name models with --checkpoint")
    return stages


def _default_reference(run: RunDirectory) -> str:
    stages = _stages(run)
    if len(stages) == 1:
        raise ConfigError("a run of one stage has no stage before it; name the reference with --reference")
    return stages[-2]


def _stage_checkpoints(run: RunDirectory, stage: str | None) -> list[NamedModel]:
    wanted = stage or _stages(run)[-1]
    found = [name_checkpoint(one) for one in run.checkpoints() if one.stage == wanted and one.scheduled]
    if not found:
        raise CheckpointError(f"{run.path} has no checkpoint of a stage '{wanted}'; name one with --checkpoint")
    return found
