"""How processes work: device, type, threads, memory, and how a model is divided over them."""

from __future__ import annotations

from typing import Literal

from swerve.settings import Model, Positive, PositiveInt


class ShardingConfig(Model):
    """How a model in training is divided over torchrun's processes."""

    kind: Literal["none", "fsdp"] = "none"
    """none: every process holds the whole model; fsdp: weights, gradients and optimizer states are divided (torch's
    FSDP2)."""
    reshard: bool = True
    """Drop a layer's gathered weights after its forward pass and gather them again for its gradients; false: less
    traffic, more memory."""
    replicas: PositiveInt = 1
    """Groups of processes that each hold the whole model, divided within the group: one group per machine with fast
    links."""
    offload: bool = False
    """Keep weights, gradients and optimizer states in CPU memory (CUDA only)."""


class RuntimeConfig(Model):
    """Where and how the work runs. It changes results by rounding at most."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """`auto` takes a CUDA device where there is one."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Data type of the weights in evaluation and the probe."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Data type in which training computes and samples, and in which references and teachers are loaded. Trained and
    saved weights, logits and losses stay float32."""
    activation_checkpointing: Literal["none", "every_second", "full"] = "none"
    """Decoder layers that the update recomputes for the gradients: less memory, for up to a third more time."""
    sharding: ShardingConfig = ShardingConfig()
    """How a model in training is divided over processes."""
    liger: bool = False
    """Use Liger Kernel's layers where it has some for the architecture (extra `liger`, CUDA only); that states and
    gradients stay the same is checked first."""
    threads: PositiveInt | None = None
    """torch threads of each process; null leaves torch's own choice."""
    rows: Literal["packed", "padded"] = "packed"
    """packed: sequences share a row, and common beginnings are read once; padded: one row each. Results agree to
    rounding; models that cannot read packed rows get padded ones."""
    max_rows: PositiveInt = 512
    """Completions sampled side by side, at most."""
    grader_workers: PositiveInt | None = None
    """Processes for isolated graders; null: one per core, at most 8, shared among torchrun's processes."""
    grader_cpu_seconds: Positive = 2.0
    """CPU seconds an isolated grader may take per answer; the wall-clock limit is 15 times that, at least 30 s."""
    grader_memory_mb: PositiveInt = 1024
    """Address space of an isolated grader, in MiB; torch with CUDA in your own reward needs more."""
    collective_timeout: PositiveInt = 1800
    """Seconds that torchrun's processes wait for each other before the run fails and names the missing one; must exceed
    the slowest sampling of a step and the longest save."""
    trackers: tuple[Literal["tensorboard", "wandb", "trackio", "mlflow"], ...] = ()
    """Where training also logs its metrics, besides metrics.jsonl; each is an extra of the same name."""


DEFAULT_RUNTIME = RuntimeConfig()
