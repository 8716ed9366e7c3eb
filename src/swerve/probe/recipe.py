"""What a probe is asked for: models, rollouts, settings and a place. `probe.yaml` says it. Free of torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from swerve.config.engines import RolloutConfig
from swerve.config.probe import ProbeConfig
from swerve.config.recipe import EvalConfig, ReportConfig
from swerve.config.runtime import RuntimeConfig
from swerve.config.sampling import Sampling
from swerve.errors import nearest
from swerve.models.named_models import SERVED
from swerve.problems.mixture import TaskConfig
from swerve.seeds import derive_seed
from swerve.settings import Model, PositiveInt

StepName = Literal["prepare", "sample", "divergence", "analysis", "report"]
STEPS: tuple[StepName, ...] = get_args(StepName)
"""In their order."""

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
    """What the recipe of a probe and that of a training both say, by the same names."""

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """All random numbers derive from it."""
    max_new_tokens: PositiveInt | None = None
    """Longest completion of the causal tests; null: as many tokens as the longest response has."""
    task: TaskConfig | None = None
    """Its grader judges the responses and the causal tests; null: the graders that the problems name."""
    rollout: RolloutConfig = RolloutConfig()
    """The engine of the causal tests."""
    eval: EvalConfig = EvalConfig()
    """`confidence` is the level of all intervals."""
    probe: ProbeConfig = ProbeConfig()
    """What is measured and tested, as in a recipe of training."""
    report: ReportConfig = ReportConfig()
    """The report of it."""
    runtime: RuntimeConfig = RuntimeConfig()
    """Device, type and threads."""


class SamplesFrom(Model):
    """Files of samples of two models on the same problems."""

    reference: str
    """Samples of the reference: a file of `swerve sample`, or of responses."""
    final: str
    """Samples of the final checkpoint on the same problems."""


class ProbeRecipe(ProbeSettings):
    """What `probe.yaml` says, and what the probe of a run is: models, rollouts, settings, and where results go."""

    models: dict[str, str] = Field(min_length=2)
    """Name in tables -> a folder, `RUN:LABEL` or `owner/name#revision`; in order of training. All may be in servers of
    vLLM (`URL#MODEL`): divergences are then bounds."""
    tokenizer: str | None = None
    """Of models in servers: a folder or hub name that has it; null: MODEL of the reference is one."""
    check: Annotated[int, Field(ge=0)] = 0
    """Of models in servers, responses whose bounds are compared with the exact divergences of local models MODEL."""
    reference: str
    """The model that checkpoints are compared with (in a recipe, its name among the models)."""
    baseline: str | None = None
    """A model from before the reference, which the reference is compared with."""
    checkpoints: tuple[str, ...] = ()
    """Models to compare with the reference, in order of training; by default all others."""
    final: str | None = None
    """Name of the checkpoint that the headline metrics are about; null: the last one."""
    steps: dict[str, int] = Field(default_factory=dict)
    """Training steps of the models by name, for biographies; empty: their order."""
    stages: dict[str, str | tuple[str, ...]] = Field(default_factory=dict)
    """Names for groups of checkpoints, whose means are reported too: a range of `steps` such as `100..300`, or names of
    checkpoints."""
    responses: str | None = None
    """A file of responses to probe: JSON, JSONL or Parquet."""
    samples: SamplesFrom | None = None
    """Two files of samples, from which rollouts are chosen; null, with `sample`: `OUT-samples/NAME.parquet`."""
    sample: Sampling | None = None
    """How the reference and the final checkpoint are sampled where the files are not there; needs `task`."""
    select: SelectionName = "reference_wrong_final_right"
    """Which rollouts of the reference are chosen from two files of samples."""
    where: tuple[str, ...] = ()
    """Of samples, only these problems or lengths, such as `level=3,4` or `length=..2000`."""
    problems: str | None = None
    """A file of problems by id, for responses without a prompt of their own."""
    fields: dict[str, str] = Field(default_factory=dict)
    """A field by the name that the files give it, such as response=completion."""
    template: Literal["auto", "raw"] = "auto"
    """`auto` puts problems into the tokenizer's chat template, if it has one; `raw` takes their text alone."""
    ends: Literal["none", "eos"] = "none"
    """`eos` adds the end-of-sequence token to responses."""
    out: str
    """Directory of the results; of responses and samples by default `probe-FILE`, inside the run if one is given."""

    @field_validator("reference", "baseline", "checkpoints", "final")
    @classmethod
    def _check_names(cls, value: str | tuple[str, ...] | None, info: ValidationInfo) -> str | tuple[str, ...] | None:
        models = info.data.get("models", {})
        for name in (value,) if isinstance(value, str) else value or ():
            if models and name not in models:
                raise ValueError(f"there is no model '{name}'{nearest(name, models)}; models are {', '.join(models)}")
        return value

    @model_validator(mode="after")
    def _check_rollouts(self) -> ProbeRecipe:
        if (self.responses is None) == (self.samples is None and self.sample is None):
            raise ValueError("give either responses, or samples (or sample, which makes them)")
        if self.sample is not None and self.task is None:
            raise ValueError("sample needs task: whose problems are sampled")
        return self

    @property
    def compared(self) -> tuple[str, ...]:
        """Names of the checkpoints."""
        others = (name for name in self.models if name not in (self.reference, self.baseline))
        return self.checkpoints or tuple(others)

    @property
    def checkpoints_of_stages(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the checkpoints of each stage."""
        members = {}
        for stage, given in self.stages.items():
            if isinstance(given, str):
                low, _, high = given.partition("..")
                within = range(int(low), int(high) + 1)
                given = tuple(name for name in self.compared if self.steps.get(name) in within)
            members[stage] = given
        return members

    @model_validator(mode="after")
    def _check_stages(self) -> ProbeRecipe:
        for stage, given in self.stages.items():
            if isinstance(given, str) and not re.fullmatch(r"\d+\.\.\d+", given):
                raise ValueError(f"stages.{stage}: must be a range of steps such as 100..300, or a list, got '{given}'")
        for stage, names in self.checkpoints_of_stages.items():
            if not names or not set(names) <= set(self.compared):
                raise ValueError(
                    f"stages.{stage}: {self.stages[stage]} names no checkpoint, or one that is not compared "
                    f"({', '.join(self.compared)}; with steps {dict(self.steps)})"
                )
        return self

    @property
    def used(self) -> tuple[str, ...]:
        """Names of all models that are compared, in order of training."""
        return (*([self.baseline] if self.baseline else []), self.reference, *self.compared)

    @property
    def is_served(self) -> bool:
        """Whether models are in servers."""
        return any(self.models[name].startswith(SERVED) for name in self.used)

    @property
    def final_name(self) -> str:
        """Name of the checkpoint that the headline metrics are about."""
        return self.final or self.compared[-1]

    @property
    def tie_seed(self) -> int:
        """Seed of the draws where as many samples of a problem are right as wrong."""
        return derive_seed(self.seed, "probe", "split", "ties")

    @property
    def sample_files(self) -> tuple[Path, Path] | None:
        """Samples of the reference and of the final checkpoint; None where responses are given."""
        if self.responses is not None:
            return None
        if self.samples is not None:
            return Path(self.samples.reference), Path(self.samples.final)
        folder = Path(f"{self.out}-samples")
        return folder / f"{self.reference}.parquet", folder / f"{self.final_name}.parquet"
