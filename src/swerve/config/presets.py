"""Presets: one word that sets a library's conventions together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Preset = Literal["trl", "verl", "rl2", "openrlhf"]

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "trl": {
        "advantages": {"kind": "grpo", "eps": 1e-4, "std": "sample"},
        "loss": {"kind": "clip", "low": 0.2, "high": 0.2, "log_ratio_clamp": None},
        "kl": {"kind": "none"},
        "reduction": "token_mean",
        "correction": {"kind": "none"},
        "zero_variance": "keep",
    },
    "verl": {
        "advantages": {"kind": "grpo", "eps": 1e-6, "std": "sample"},
        "loss": {"kind": "dual_clip", "low": 0.2, "high": 0.2, "c": 3.0, "log_ratio_clamp": 20.0},
        "kl": {"kind": "loss", "estimator": "k3", "coef": 0.001, "input_clamp": 20.0, "output_clamp": 10.0},
        "reduction": "token_mean",
        "correction": {"kind": "none"},
        "zero_variance": "keep",
    },
    "rl2": {
        "advantages": {"kind": "dr_grpo"},
        "loss": {"kind": "clip", "low": 0.2, "high": 0.2, "log_ratio_clamp": None},
        "kl": {"kind": "none"},
        "reduction": "token_mean",
        "correction": {"kind": "none"},
        "zero_variance": "drop",
    },
    "openrlhf": {
        "advantages": {"kind": "grpo", "eps": 1e-9, "std": "sample"},
        "loss": {"kind": "clip", "low": 0.2, "high": 0.2, "log_ratio_clamp": 20.0},
        "kl": {"kind": "reward", "estimator": "k1", "coef": 0.01, "order": "after", "output_clamp": 10.0},
        "reduction": "token_mean",
        "correction": {"kind": "none"},
        "zero_variance": "keep",
    },
}
"""What each preset sets; docs/conventions.md says where it comes from and what it leaves out."""


_UPDATES = ("num_minibatches", "num_epochs")
_LEFT_OUT: Mapping[str, Sequence[tuple[Sequence[str], str]]] = {
    "trl": [
        (["optimizer.schedule"], "TRL's learning rate falls linearly to 0: optimizer: {schedule: linear}"),
    ],
    "verl": [
        (_UPDATES, "verl makes 4 updates per rollout (with one no clip acts): num_minibatches: 4"),
        (["optimizer.weight_decay"], "verl decays weights: optimizer: {weight_decay: 0.01}"),
    ],
    "rl2": [
        (["optimizer.weight_decay"], "RL2 decays weights: optimizer: {weight_decay: 0.01}"),
    ],
    "openrlhf": [
        (_UPDATES, "OpenRLHF makes 8 updates per rollout and sample (with one no clip acts): num_minibatches: 8"),
        (
            ["optimizer.schedule", "optimizer.warmup_steps"],
            "OpenRLHF warms up over 3% of the steps, then follows a cosine: optimizer: {schedule: cosine, "
            "warmup_steps: ...}",
        ),
        (["optimizer.beta2"], "OpenRLHF's second moment is shorter: optimizer: {beta2: 0.95}"),
    ],
}
"""What a library does by default beside its preset: the stage's keys for it, and what to say where none is set."""


def preset_notes(stage: Any) -> list[str]:
    """Return a line for all that an RL stage's preset leaves out and the stage does not set, with the keys for it."""
    return [
        f"stages.{stage.label}: beside its preset, {sentence}"
        for keys, sentence in _LEFT_OUT.get(stage.preset or "", ())
        if all(_is_default(stage, key) for key in keys)
    ]


def _is_default(stage: Any, key: str) -> bool:
    section, _, name = key.rpartition(".")
    model = getattr(stage, section) if section else stage
    return bool(getattr(model, name) == type(model).model_fields[name].default)


def with_preset(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stage's keys with those of its preset filled in; what is given wins.

    Inside a key that has a `kind`, the preset's details are kept where the kind is the same or not given.
    """
    preset = given.get("preset")
    if not isinstance(preset, str) or preset not in PRESETS:
        return dict(given)
    return {**given, **{key: merged_preset(value, given.get(key)) for key, value in PRESETS[preset].items()}}


def merged_preset(preset: Any, given: Any) -> Any:
    """Return a given value; inside a key with a `kind`, the preset's details stay where the kind is not another.

    >>> merged_preset({"kind": "clip", "low": 0.1}, {"high": 0.3})
    {'kind': 'clip', 'low': 0.1, 'high': 0.3}
    """
    if given is None:
        return preset
    if isinstance(preset, Mapping) and isinstance(given, Mapping) and given.get("kind") in (None, preset.get("kind")):
        return {**preset, **given}
    return given
