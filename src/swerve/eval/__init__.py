"""Evaluation of checkpoints on held-out problems."""

from swerve.eval.evaluation import evaluate

__all__ = ["evaluate"]
