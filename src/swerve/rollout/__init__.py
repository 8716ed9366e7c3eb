"""Sampling of completions by an engine: token ids in, token ids and log-probabilities out."""

from swerve.rollout.engine import Engine, SamplingParams
from swerve.rollout.groups import rollout_groups
from swerve.rollout.torch_engine import TorchEngine

__all__ = ["Engine", "SamplingParams", "TorchEngine", "rollout_groups"]
