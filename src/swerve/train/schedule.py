"""Learning rates as a pure function of the step, so that resuming needs no state."""

from __future__ import annotations

import math

from swerve.config.stages import OptimizerConfig


def learning_rate(config: OptimizerConfig, step: int, total: int) -> float:
    """Return the learning rate of the update with 0-based index `step` out of `total`.

    Linear warm-up over `warmup_steps`, then constant, linear to 0 or half a cosine to 0.

    >>> config = OptimizerConfig(lr=1.0, schedule="cosine", warmup_steps=2)
    >>> [round(learning_rate(config, step, 6), 4) for step in range(6)]
    [0.5, 1.0, 1.0, 0.8536, 0.5, 0.1464]
    """
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    progress = (step - config.warmup_steps) / max(1, total - config.warmup_steps)
    factor = {
        "constant": 1.0,
        "linear": 1.0 - progress,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * progress)),
    }[config.schedule]
    return config.lr * factor
