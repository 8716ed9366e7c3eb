"""`probe.yaml`: one file that says everything of a probe of any models. Free of torch."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from swerve.config.sampling import Sampling
from swerve.errors import nearest
from swerve.probe.request import ProbeSettings, SampleFiles, SelectionName
from swerve.settings import Model

StepName = Literal["prepare", "sample", "divergence", "analysis", "figures", "report"]
STEPS: tuple[StepName, ...] = get_args(StepName)
"""In their order."""


class SamplesFrom(Model):
    """Files of samples of two models on the same problems."""

    reference: str
    """Samples of the reference: a file of `swerve sample`, or of responses."""
    final: str
    """Samples of the last checkpoint."""


class ProbeRecipe(ProbeSettings):
    """What `probe.yaml` says: models, rollouts, settings, and where the results go."""

    models: dict[str, str] = Field(min_length=2)
    """Name in tables -> a folder, `RUN:LABEL` or `owner/name#revision`; in order of training."""
    reference: str
    """Name of the model that checkpoints are compared with."""
    baseline: str | None = None
    """Name of a model from before the reference, which the reference is compared with."""
    checkpoints: tuple[str, ...] = ()
    """Names of the models that are compared with the reference, the last one is the final one; empty: all others."""
    responses: str | None = None
    """A file of responses, of which every one is read."""
    samples: SamplesFrom | None = None
    """Two files of samples, from which rollouts are chosen; null, with `sample`: `OUT-samples/NAME.parquet`."""
    sample: Sampling | None = None
    """How the reference and the last checkpoint are sampled where the files are not there; needs `task`."""
    select: SelectionName = "reference_wrong_final_right"
    """Which rollouts are chosen from samples."""
    where: tuple[str, ...] = ()
    """Conditions of problems and lengths, such as `level=3,4` and `length=..2000`."""
    problems: str | None = None
    """A file of problems by id, for responses without a prompt of their own."""
    fields: dict[str, str] = Field(default_factory=dict)
    """What the files call a field, such as `response: completion`."""
    template: Literal["auto", "raw"] = "auto"
    """`auto`: the tokenizer's chat template around problems, where it has one; `raw`: their text alone."""
    ends: Literal["none", "eos"] = "none"
    """`eos`: the end-of-sequence token is added to responses."""
    out: str
    """Directory of the results."""

    @field_validator("reference", "baseline", "checkpoints")
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
        return self.checkpoints or tuple(one for one in self.models if one not in (self.reference, self.baseline))

    @property
    def sampled(self) -> tuple[str, str]:
        """Names of the models whose samples rollouts are chosen from: the reference and the final one."""
        return self.reference, self.compared[-1]

    @property
    def samples_folder(self) -> Path:
        """Where samples go that no `samples` names."""
        return Path(f"{self.out}-samples")

    @property
    def sample_files(self) -> SampleFiles | None:
        """The files that rollouts are chosen from; None where responses are given."""
        if self.responses is not None:
            return None
        made = (self.samples_folder / f"{name}.parquet" for name in self.sampled)
        given = (self.samples.reference, self.samples.final) if self.samples else made
        first, last = map(Path, given)
        return SampleFiles(reference=first, final=last, selection=self.select, where=self.where)
