"""swerve trains language models with verifiable rewards and shows, token by token, what the training changed.

The names below load on first use, so that `import swerve` needs neither torch nor transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from swerve.version import __version__

if TYPE_CHECKING:
    from swerve import functional, probe, rewards
    from swerve.artifacts.run import RunDirectory
    from swerve.config import Config
    from swerve.eval.heldout import evaluate
    from swerve.probe import probe_run
    from swerve.recipes import load_config
    from swerve.report import build_report
    from swerve.train import train

__all__ = [
    "Config",
    "RunDirectory",
    "__version__",
    "build_report",
    "evaluate",
    "functional",
    "load_config",
    "probe",
    "probe_run",
    "rewards",
    "train",
]

_HOMES = {
    "Config": "swerve.config",
    "RunDirectory": "swerve.artifacts.run",
    "build_report": "swerve.report",
    "evaluate": "swerve.eval.heldout",
    "load_config": "swerve.recipes",
    "probe_run": "swerve.probe",
}
_MODULES = ("functional", "probe", "rewards", "train")


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
