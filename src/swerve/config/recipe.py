"""The configuration: frozen models with the defaults, and nothing else. Free of torch.

Reading recipes and overrides is in `swerve.recipes`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "AdditionTask",
    "CausalConfig",
    "Config",
    "DpoStage",
    "EvalConfig",
    "KnightsKnavesTask",
    "ModelConfig",
    "OptimizerConfig",
    "PretrainedModel",
    "ProbeConfig",
    "ReportConfig",
    "RlStage",
    "RuntimeConfig",
    "SftStage",
    "SpikeConfig",
    "StageConfig",
    "TaskConfig",
    "TinyModel",
]

PositiveInt = Annotated[int, Field(gt=0)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class AdditionTask(_Model):
    """Column addition written out digit by digit."""

    kind: Literal["addition"] = "addition"
    digits: Annotated[int, Field(ge=2, le=12)] = 4
    num_train: PositiveInt = 16000
    """Distinct training problems; operand pairs never occur in both splits."""
    num_heldout: PositiveInt = 400
    mistake_rate: Probability = 0.75
    """Share of columns that sum to 10 or 11 whose carry the supervised traces forget."""
    slip_rate: Probability = 0.005
    """Share of the digits of column sums that are replaced by a random one."""


class KnightsKnavesTask(_Model):
    """Knights always tell the truth, knaves always lie: who is what?"""

    kind: Literal["knights_knaves"] = "knights_knaves"
    people: Annotated[int, Field(ge=2, le=3)] = 2
    num_train: PositiveInt = 16000
    """Training problems; statement structures never occur in both splits."""
    num_heldout: PositiveInt = 400
    mistake_rate: Probability = 0.75
    """Share of the misread cases of "if" and "or" that the supervised traces get wrong."""
    slip_rate: Probability = 0.005
    """Share of judged truth values that are flipped."""


TaskConfig = Annotated[AdditionTask | KnightsKnavesTask, Field(discriminator="kind")]


class TinyModel(_Model):
    """A randomly initialised transformer whose vocabulary is the task's words."""

    kind: Literal["tiny"] = "tiny"
    architecture: Literal["qwen3", "llama"] = "qwen3"
    hidden_size: PositiveInt = 64
    num_layers: PositiveInt = 2
    num_heads: PositiveInt = 4
    num_kv_heads: PositiveInt = 2
    intermediate_size: PositiveInt = 192
    initializer_range: Annotated[float, Field(gt=0.0)] = 0.08
    """Standard deviation of the initial weights; the usual 0.02 is meant for wide models and slows narrow ones."""
    tie_embeddings: bool = True
    max_positions: PositiveInt = 512

    @model_validator(mode="after")
    def _check_heads(self) -> TinyModel:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads ({self.num_heads}) must be a multiple of num_kv_heads ({self.num_kv_heads})")
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(f"hidden_size ({self.hidden_size}) must be a multiple of 2 x num_heads ({self.num_heads})")
        return self


class PretrainedModel(_Model):
    """A model in the Hugging Face layout, with its own tokenizer."""

    kind: Literal["pretrained"] = "pretrained"
    path: str
    """A local folder, or the name of a model on the hub."""


ModelConfig = Annotated[TinyModel | PretrainedModel, Field(discriminator="kind")]


class OptimizerConfig(_Model):
    """AdamW with a learning-rate schedule."""

    lr: Annotated[float, Field(gt=0.0)]
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.0
    beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.999
    eps: Annotated[float, Field(gt=0.0)] = 1e-8
    max_grad_norm: Annotated[float, Field(gt=0.0)] | None = 1.0
    """Gradients are scaled down to this global norm; null: never."""


class _Stage(_Model):
    kind: str
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]*$")] = ""
    """Names the stage's checkpoints, in letters, digits and underscores; its kind by default."""
    steps: PositiveInt
    optimizer: OptimizerConfig
    checkpoints: tuple[PositiveInt, ...] = ()
    """Steps of this stage after which a checkpoint is kept; the last step always has one, later ones do not count."""
    save_every: PositiveInt | None = None
    """Steps between checkpoints that only serve resuming; each replaces the one before."""
    tokens_per_batch: PositiveInt = 65536
    """Padded tokens of one forward pass (fewer for large vocabularies); more are split, with the same result."""

    @property
    def label(self) -> str:
        """What the stage is called in checkpoints and metrics."""
        return self.name or self.kind


class SftStage(_Stage):
    """Cross-entropy over the completion tokens of the task's supervised traces."""

    kind: Literal["sft"] = "sft"
    batch_size: PositiveInt = 32


class DpoStage(_Stage):
    """Direct preference optimisation on on-policy pairs: a right and a wrong completion of one prompt."""

    kind: Literal["dpo"] = "dpo"
    batch_size: PositiveInt = 32
    beta: Annotated[float, Field(gt=0.0)] = 0.1
    samples_per_prompt: Annotated[int, Field(ge=2)] = 8
    temperature: Annotated[float, Field(gt=0.0)] = 1.0
    max_prompts: PositiveInt = 1024
    """Prompts sampled at most in search of `steps x batch_size` pairs."""


class RlStage(_Stage):
    """Reinforcement learning with verifiable rewards."""

    kind: Literal["rl"] = "rl"
    prompts_per_step: PositiveInt = 16
    samples_per_prompt: Annotated[int, Field(ge=2)] = 8
    temperature: Annotated[float, Field(gt=0.0)] = 1.0
    advantages: Literal["dr_grpo"] = "dr_grpo"
    loss: Literal["reinforce"] = "reinforce"
    reduction: Literal["token_mean", "sequence_mean"] = "token_mean"
    kl: Literal["none"] = "none"
    drop_zero_advantage_groups: bool = True
    """Leave out groups whose rewards are all equal; their number is in the metrics."""
    failure_reward: float = 0.0
    """Reward of a completion the grader could not judge; such completions are counted in the metrics."""
    keep_rollouts: bool = True
    """Write every step's rollouts to the run directory."""


StageConfig = Annotated[SftStage | DpoStage | RlStage, Field(discriminator="kind")]


class EvalConfig(_Model):
    """Evaluation of every checkpoint on held-out problems."""

    num_problems: PositiveInt = 400
    samples_per_problem: PositiveInt = 2
    temperature: Annotated[float, Field(gt=0.0)] = 1.0
    confidence: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.95


class SpikeConfig(_Model):
    """A spike is a position whose divergence stands out of its sequence."""

    method: Literal["zscore"] = "zscore"
    num_sd: Annotated[float, Field(gt=0.0)] = 2.0
    """Threshold in standard deviations above the sequence's mean."""
    min_distance: PositiveInt = 3
    """Of spikes closer than this many tokens the highest is kept."""


class CausalConfig(_Model):
    """Continuations from the same prefix with the reference's and with the checkpoint's token."""

    max_rollouts: Annotated[int, Field(ge=0)] = 100
    """0 leaves the test out."""
    num_continuations: PositiveInt = 16
    temperature: Annotated[float, Field(gt=0.0)] = 1.0
    num_bootstrap: PositiveInt = 2000


class ProbeConfig(_Model):
    """Which checkpoints are compared with which reference, on which rollouts."""

    reference: str | None = None
    """Stage, label (`rl-30`) or directory name of the reference checkpoint; the last but one stage by default."""
    final: str | None = None
    """The checkpoint that must be right where the reference is wrong; the last stage's by default."""
    checkpoints: str | None = None
    """The stage whose checkpoints are compared with the reference; the last one by default."""
    max_rollouts: PositiveInt = 200
    min_rollouts: PositiveInt = 20
    """With fewer rollouts the summary says that its figures are not to be relied upon."""
    divergence: Literal["kl_forward", "kl_reverse", "js"] = "js"
    """The divergence whose spikes the causal test and the report use."""
    top_k: PositiveInt = 5
    tokens_per_chunk: PositiveInt = 256
    """Rows of `[tokens, vocabulary]` held at a time."""
    spikes: SpikeConfig = SpikeConfig()
    causal: CausalConfig = CausalConfig()


class ReportConfig(_Model):
    """What the page shows."""

    title: str = ""
    max_rollouts: PositiveInt = 40
    """Rollouts shown token by token."""


class RuntimeConfig(_Model):
    """Where and how the work runs; `device`, `dtype` and `threads` change results by their rounding."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights in evaluation and the probe; training needs float32."""
    threads: PositiveInt | None = None
    """torch threads of each process; null leaves torch's own choice."""
    max_rows: PositiveInt = 512
    """Sequences generated side by side."""
    trackers: tuple[Literal["tensorboard"], ...] = ()
    """Where training also records its metrics, beside metrics.jsonl."""


class Config(_Model):
    """A recipe: everything a run depends on."""

    name: str = "run"
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    task: TaskConfig
    model: ModelConfig
    max_new_tokens: PositiveInt = 128
    """Longest completion, in tokens, of every stage."""
    stages: tuple[StageConfig, ...] = Field(min_length=1)
    eval: EvalConfig = EvalConfig()
    probe: ProbeConfig = ProbeConfig()
    report: ReportConfig = ReportConfig()
    runtime: RuntimeConfig = RuntimeConfig()

    @model_validator(mode="after")
    def _check_probe_selectors(self) -> Config:
        labels = [stage.label for stage in self.stages]
        for name in ("reference", "final"):
            selector = getattr(self.probe, name)
            if selector is not None and not selector.startswith("step_") and selector.split("-")[0] not in labels:
                raise ValueError(f"probe.{name} '{selector}' names no stage of {labels}, nor one of its checkpoints")
        if self.probe.checkpoints not in (None, *labels):
            raise ValueError(f"probe.checkpoints '{self.probe.checkpoints}' is no stage of {labels}")
        return self

    @model_validator(mode="after")
    def _check_stage_names(self) -> Config:
        names = [stage.label for stage in self.stages]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"stages need different names; give 'name' to {repeated}")
        return self
