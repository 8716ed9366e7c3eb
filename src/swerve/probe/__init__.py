"""Where and how much checkpoints differ from a reference, token by token, and whether it matters.

The package can be called like its function: `swerve.probe(model, reference, sequences, ...)` compares two models in
memory (`swerve.probe.in_memory.probe`). Everything loads on first use, so that importing the package needs neither
torch nor transformers.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swerve.probe.callback import DivergenceCallback
    from swerve.probe.from_run import probe_run
    from swerve.probe.in_memory import ProbeResult
    from swerve.probe.rollouts.imported import import_responses

__all__ = ["DivergenceCallback", "ProbeResult", "import_responses", "probe_run"]

_HOMES = {
    "DivergenceCallback": "swerve.probe.callback",
    "ProbeResult": "swerve.probe.in_memory",
    "import_responses": "swerve.probe.rollouts.imported",
    "probe_run": "swerve.probe.from_run",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'swerve.probe' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> ProbeResult:
        """Compare two models in memory; see `swerve.probe.in_memory.probe`."""
        from swerve.probe.in_memory import probe

        return probe(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
