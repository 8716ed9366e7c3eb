"""Evaluation: checkpoints on held-out problems, and the answers of a file. `evaluate` loads torch on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swerve.eval.heldout import evaluate

__all__ = ["evaluate"]


def __getattr__(name: str) -> Any:
    """Import `evaluate` when it is first used (PEP 562): files are graded without torch."""
    if name == "evaluate":
        from swerve.eval.heldout import evaluate

        return evaluate
    raise AttributeError(f"module 'swerve.eval' has no attribute {name!r}")
