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
    from swerve.claim.settings import ClaimSettings
    from swerve.config.recipe import Config
    from swerve.config.sampling import SampleSettings
    from swerve.door.catalogue import recipes, tasks
    from swerve.door.claim import claim
    from swerve.door.compare import compare
    from swerve.door.evaluate import evaluate
    from swerve.door.grade import grade
    from swerve.door.probe import probe
    from swerve.door.replay import replay
    from swerve.door.report import report
    from swerve.door.sample import sample
    from swerve.grading.maths.equivalence import equivalent
    from swerve.recipes.loader import load_config
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
    "compare",
    "equivalent",
    "evaluate",
    "functional",
    "grade",
    "load_config",
    "plot",
    "probe",
    "read_samples",
    "recipes",
    "replay",
    "report",
    "rewards",
    "runs",
    "sample",
    "tasks",
    "train",
]

_HOMES = {
    "ClaimSettings": "swerve.claim.settings",
    "Config": "swerve.config.recipe",
    "Run": "swerve.run",
    "RunDirectory": "swerve.artifacts.run",
    "SampleSettings": "swerve.config.sampling",
    "equivalent": "swerve.grading.maths.equivalence",
    "compare": "swerve.door.compare",
    "evaluate": "swerve.door.evaluate",
    "grade": "swerve.door.grade",
    "load_config": "swerve.recipes",
    "read_samples": "swerve.artifacts.samples",
    "replay": "swerve.door.replay",
    "runs": "swerve.run",
    "sample": "swerve.door.sample",
    "tasks": "swerve.door.catalogue",
}
_MODULES = ("claim", "functional", "plot", "probe", "recipes", "report", "rewards", "train")
_IN_TERMINAL = ("bench", "config", "data", "demo", "export", "plan", "serve", "study", "view")
"""Commands that are no function."""


_INSTEAD = {
    "load": "swerve.Run(FOLDER) opens a run or a kept probe, swerve.read_samples(FILE) samples",
    "eval": "swerve.evaluate(models, problems) evaluates",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name in _MODULES:
        return importlib.import_module(f"swerve.{name}")
    if name not in _HOMES:
        from swerve.errors import nearest

        hint = f"; {_INSTEAD[name]}" if name in _INSTEAD else nearest(name, __all__)
        if name in _IN_TERMINAL:
            hint = f"; `swerve {name}` is a command of the terminal: swerve {name} --help"
        raise AttributeError(f"module 'swerve' has no attribute {name!r}{hint}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(__all__)
