"""Presets: one word that sets a library's conventions together."""

from __future__ import annotations

from collections.abc import Mapping
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


def with_preset(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stage's keys with those of its preset filled in; what is given wins.

    Inside a key that has a `kind`, the preset's details are kept where the kind is the same or not given.
    """
    preset = given.get("preset")
    if not isinstance(preset, str) or preset not in PRESETS:
        return dict(given)
    return {**given, **{key: _merged(value, given.get(key)) for key, value in PRESETS[preset].items()}}


def _merged(preset: Any, given: Any) -> Any:
    if given is None:
        return preset
    if isinstance(preset, Mapping) and isinstance(given, Mapping) and given.get("kind") in (None, preset.get("kind")):
        return {**preset, **given}
    return given
