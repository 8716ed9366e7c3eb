"""swerve trains language models with verifiable rewards and shows, token by token, what the training changed.

The names below load on first use, so that `import swerve` needs neither torch nor transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from swerve.version import __version__

if TYPE_CHECKING:
    from swerve import functional, plot, rewards
    from swerve.artifacts.run import RunDirectory
    from swerve.artifacts.samples import read_samples
    from swerve.claim import claim
    from swerve.claim.settings import ClaimSettings
    from swerve.config.recipe import Config
    from swerve.config.sampling import SampleSettings
    from swerve.eval import evaluate
    from swerve.eval.evaluate_models import evaluate_models
    from swerve.eval.sampling import sample
    from swerve.grading.maths.equivalence import equivalent
    from swerve.probe import probe
    from swerve.recipes import load_config
    from swerve.report import report
    from swerve.run import Run, runs
    from swerve.train import train

__all__ = [
    "ClaimSettings",
    "Config",
    "Run",
    "RunDirectory",
    "SampleSettings",
    "__version__",
    "claim",
    "equivalent",
    "evaluate",
    "evaluate_models",
    "functional",
    "load_config",
    "plot",
    "probe",
    "read_samples",
    "report",
    "rewards",
    "runs",
    "sample",
    "train",
]

_HOMES = {
    "ClaimSettings": "swerve.claim.settings",
    "Config": "swerve.config.recipe",
    "Run": "swerve.run",
    "RunDirectory": "swerve.artifacts.run",
    "SampleSettings": "swerve.config.sampling",
    "equivalent": "swerve.grading.maths.equivalence",
    "evaluate": "swerve.eval",
    "evaluate_models": "swerve.eval.evaluate_models",
    "load_config": "swerve.recipes",
    "read_samples": "swerve.artifacts.samples",
    "runs": "swerve.run",
    "sample": "swerve.eval.sampling",
}
_MODULES = ("claim", "functional", "plot", "probe", "report", "rewards", "train")


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name in _MODULES:
        return importlib.import_module(f"swerve.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'swerve' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)
