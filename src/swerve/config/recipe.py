"""A recipe, and the parts of it that are not training."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from swerve.artifacts.checkpoint import BASE
from swerve.config.engines import RolloutConfig
from swerve.config.models import ModelConfig, PretrainedModel
from swerve.config.probe import ProbeConfig
from swerve.config.runtime import RuntimeConfig
from swerve.config.stages import StageConfig
from swerve.problems.mixture import TaskConfig
from swerve.schema import AlsoCalled
from swerve.settings import Model, Positive, PositiveInt, with_keys_said


class EvalConfig(Model):
    """Evaluation of every checkpoint on held-out problems."""

    num_problems: Annotated[PositiveInt, AlsoCalled(("limit",))] = 400
    """Held-out problems; at most `task.num_heldout` are used."""
    skip: Annotated[int, Field(ge=0)] = 0
    """Skip so many held-out problems first, such as those kept for a verdict while settings are tuned."""
    samples_per_problem: Annotated[PositiveInt, AlsoCalled(("num_samples", "samples_per_prompt"))] = 2
    """Completions sampled per problem, besides the greedy one."""
    temperature: Positive = 1.0
    """Sampling temperature."""
    confidence: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.95
    """Level of all intervals, the probe's included."""
    every: PositiveInt | None = None
    """Also evaluate during training, every so many steps of a stage and after its last, without changing it: the
    metrics `eval_accuracy`, `eval_reward`, `eval_num_tokens`, `eval_entropy` and `eval_truncated`. Null: never."""


class RetentionConfig(Model):
    """Which checkpoints stay on the disk, and with what.

    A checkpoint is deleted only once a later one is complete. `swerve eval` and `swerve probe` leave deleted ones out
    and say so; evaluations made before stay.
    """

    keep: PositiveInt | None = None
    """Keep only the newest so many, plus the last of each stage and phase and those that later stages or `probe` name;
    null: keep all."""
    save_optimizer: bool = True
    """false: a checkpoint keeps only its weights once a later one is there; training cannot resume from it."""


class ReportConfig(Model):
    """What the page shows."""

    title: str = ""
    """Title of the page; the run's name by default."""


@with_keys_said
class Config(Model):
    """A recipe: everything a run depends on."""

    name: str = "run"
    """Name of the run, and of its directory under `runs/`: 1 to 100 letters, digits, `.`, `_`, `-`, starting with a
    letter, a digit or `_`."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """The only source of randomness: every random number of the run derives from it."""
    task: TaskConfig
    """What the problems are."""
    model: ModelConfig
    """What is trained."""
    max_new_tokens: PositiveInt = 128
    """Longest completion, in tokens."""
    stages: tuple[StageConfig, ...] = Field(min_length=1)
    """Stages of training, in order, each continuing from the one before; two of the same kind need a `name`."""
    keep_heldout: bool = False
    """Also learn from held-out problems of the task where `data` or `validation` contains some."""
    rollout: RolloutConfig = RolloutConfig()
    """How rollouts are sampled."""
    eval: EvalConfig = EvalConfig()
    """Evaluation."""
    retention: RetentionConfig = RetentionConfig()
    """Which checkpoints stay."""
    probe: ProbeConfig = ProbeConfig()
    """Probe and causal tests."""
    report: ReportConfig = ReportConfig()
    """Report."""
    runtime: RuntimeConfig = RuntimeConfig()
    """Where and how the work runs."""

    def __repr__(self) -> str:
        """Return three lines: what is trained on what, the stages, and how to see every key."""
        stages = ", ".join(f"{stage.label} ({stage.kind}, {stage.steps:,} steps)" for stage in self.stages)
        model = self.model.path if isinstance(self.model, PretrainedModel) else self.model.kind
        return (
            f"Config of {self.name}: task {self.task.kind}, model {model}, seed {self.seed}\nstages: {stages}\n"
            "every key: swerve.recipes.dump_yaml(config), or config.model_dump()"
        )

    def __str__(self) -> str:
        """Return the same."""
        return repr(self)

    @property
    def evaluation_settings(self) -> dict[str, Any]:
        """What an evaluation depends on beside the weights and the content of the problems, as JSON values."""
        return {
            "seed": self.seed,
            "max_new_tokens": self.max_new_tokens,
            "dtype": self.runtime.dtype,
            "task": self.task.model_dump(mode="json"),
            "eval": self.eval.model_dump(mode="json", exclude={"every", "skip"}),
        }

    def is_own(self, name: str) -> bool:
        """Whether a model's name is that of a stage of the recipe, or of one of its checkpoints."""
        labels = [stage.label for stage in self.stages]
        return name in labels or (name.rpartition("-")[0] in labels and not Path(name).exists())

    @property
    def scheduled_steps(self) -> frozenset[int]:
        """Global steps, over all stages, after which a checkpoint is kept."""
        return frozenset(first + step for first, stage in self._begun_stages() for step in stage.kept_steps)

    def retained_steps(self, step: int) -> frozenset[int]:
        """Return the global steps whose checkpoints there are, or will be, once training has reached a step."""
        done = sorted(one for one in self.scheduled_steps if one <= step)
        outdated = done[: -self.retention.keep] if self.retention.keep is not None else []
        return self.scheduled_steps.difference(outdated) | (self.scheduled_steps & self._needed_steps())

    def _needed_steps(self) -> frozenset[int]:
        """Return the global steps whose checkpoints something else of the recipe names."""
        probe = self.probe
        named = {probe.reference, probe.final, probe.baseline}
        needed: set[int] = set()
        for first, stage in self._begun_stages():
            named.update(stage.frozen_models.values())
            needed |= {first + step for step in stage.lasting_steps}
            if probe.checkpoints == stage.label:
                needed |= {first + step for step in stage.kept_steps}
        return frozenset(needed) | {
            first + step
            for first, stage in self._begun_stages()
            for step in stage.kept_steps
            if named & {f"{stage.label}-{step}", f"step_{first + step:06d}"}
        }

    def _begun_stages(self) -> list[tuple[int, StageConfig]]:
        """Return the stages, each with the global step that it begins after."""
        firsts = accumulate((stage.steps for stage in self.stages), initial=0)
        return list(zip(firsts, self.stages, strict=False))

    @property
    def attention(self) -> str:
        """How the model attends in training."""
        return "auto" if self.model.kind == "tiny" else self.model.attention

    @model_validator(mode="after")
    def _check_attention(self) -> Config:
        if self.attention.startswith("flash") and self.runtime.precision != "bfloat16":
            raise ValueError(
                f"model.attention {self.attention} has no float32; set runtime.precision: bfloat16, or take sdpa"
            )
        return self

    @model_validator(mode="after")
    def _check_sharding(self) -> Config:
        narrow = [stage.label for stage in self.stages if stage.optimizer.moments == "int8"]
        if self.runtime.sharding.kind == "fsdp" and narrow:
            raise ValueError(
                f"runtime.sharding.kind fsdp divides float32 moments only, and stage '{narrow[0]}' has "
                "optimizer.moments int8; leave one of the two out"
            )
        return self

    @model_validator(mode="after")
    def _check_probe_selectors(self) -> Config:
        labels = [stage.label for stage in self.stages]
        known = [BASE, *labels] if isinstance(self.model, PretrainedModel) else labels
        for name in ("reference", "final", "baseline"):
            selector = getattr(self.probe, name)
            if selector is not None and not selector.startswith("step_") and selector.split("-")[0] not in known:
                raise ValueError(f"probe.{name} '{selector}' names no stage of {known}, nor one of its checkpoints")
        if self.probe.checkpoints not in (None, *labels):
            raise ValueError(f"probe.checkpoints '{self.probe.checkpoints}' is no stage of {labels}")
        return self

    @model_validator(mode="after")
    def _check_frozen_models(self) -> Config:
        labels = [stage.label for stage in self.stages]
        for index, stage in enumerate(self.stages):
            for key, name in stage.frozen_models.items():
                label = name if name in labels else name.rpartition("-")[0]
                if label in labels[index:]:
                    raise ValueError(
                        f"{key} '{name}' of stage '{stage.label}' is not of an earlier stage"
                        f" ({', '.join(labels[:index]) or 'the first stage has none'}); write ./{name} for a folder"
                    )
        return self

    @model_validator(mode="after")
    def _check_stage_names(self) -> Config:
        names = [stage.label for stage in self.stages]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"stages need different names; give 'name' to {repeated}")
        return self
