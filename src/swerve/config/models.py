"""What is trained."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from swerve.settings import Model, Positive, PositiveInt


class LoraConfig(Model):
    """A LoRA adapter: two low-rank matrices beside each frozen linear layer, W x + (alpha / rank) B A x.

    `lora: {}` takes the defaults. All stages train the same adapter; the extra `peft` is needed.
    """

    rank: PositiveInt = 32
    """Rows of A and columns of B."""
    alpha: Positive = 64.0
    """The adapter's part is multiplied by alpha / rank."""
    targets: Literal["all_linear"] | Annotated[tuple[str, ...], Field(strict=False, min_length=1)] = "all_linear"
    """Which linear layers: all but the output head, or those with these names, such as `q_proj`."""
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Dropout on the adapter's input, in supervised stages (`sft`, `reject`)."""


class TinyModel(Model):
    """A small randomly initialised transformer.

    Its tokenizer has one token per word of the task, or with `vocabulary` byte-level sub-words (BPE) learned from the
    task's training problems and solutions.
    """

    kind: Literal["tiny"] = "tiny"
    architecture: Literal["qwen3", "llama"] = "qwen3"
    """Architecture of `transformers`."""
    vocabulary: Annotated[int, Field(ge=300, le=65_536)] | None = None
    """Learn so many sub-word tokens from the task's texts; null: one token per word of the task."""
    hidden_size: PositiveInt = 64
    """Width; a multiple of 2 x `num_heads`."""
    num_layers: PositiveInt = 2
    """Layers."""
    num_heads: PositiveInt = 4
    """Attention heads; a multiple of `num_kv_heads`."""
    num_kv_heads: PositiveInt = 2
    """Key-value heads."""
    intermediate_size: PositiveInt = 192
    """Width of the feed-forward layers."""
    initializer_range: Positive = 0.08
    """Standard deviation of the initial weights; the usual 0.02 is meant for wide models and slows narrow ones."""
    tie_embeddings: bool = True
    """Use the input embedding as output head."""
    max_positions: PositiveInt = 512
    """Longest sequence, prompt and completion together, in tokens."""
    lora: LoraConfig | None = None
    """Train a LoRA adapter and leave the weights as they are; needs the extra `peft`."""

    @model_validator(mode="after")
    def _check_heads(self) -> TinyModel:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads ({self.num_heads}) must be a multiple of num_kv_heads ({self.num_kv_heads})")
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(f"hidden_size ({self.hidden_size}) must be a multiple of 2 x num_heads ({self.num_heads})")
        return self


class PretrainedModel(Model):
    """A model in the Hugging Face layout, with its own tokenizer.

    Weights are read from safetensors only, and code that comes with a model is never run.
    """

    kind: Literal["pretrained"] = "pretrained"
    path: str
    """A folder in the Hugging Face layout, a checkpoint of a run (`RUN:rl-30`), or the name of a model on the hub,
    optionally with `#revision`."""
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2", "flash_attention_3"] = "auto"
    """Attention implementation in training and its sampling; auto: as transformers chooses. Flash attention needs CUDA,
    its package and `runtime.precision: bfloat16`."""
    template_args: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments of the chat template, such as `enable_thinking: false`, in training, evaluation and the probe."""
    today: date = date(2024, 7, 26)
    """Date given to chat templates that print today's, so that a run resumed tomorrow has the same prompts."""
    lora: LoraConfig | None = None
    """Train a LoRA adapter and leave the weights as they are; needs the extra `peft`."""


ModelConfig = Annotated[TinyModel | PretrainedModel, Field(discriminator="kind")]
