"""Where and how much checkpoints differ from a reference, token by token, and whether it matters.

Everything loads on first use, so that importing the package needs neither torch nor transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from swerve.callable_package import make_callable

if TYPE_CHECKING:
    from swerve.probe.callback import DivergenceCallback
    from swerve.probe.from_run import probe_run
    from swerve.probe.result import ProbeResult
    from swerve.probe.rollouts.imported import import_responses

__all__ = ["DivergenceCallback", "ProbeResult", "import_responses", "probe", "probe_run"]

_HOMES = {
    "DivergenceCallback": "swerve.probe.callback",
    "ProbeResult": "swerve.probe.result",
    "import_responses": "swerve.probe.rollouts.imported",
    "probe_run": "swerve.probe.from_run",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'swerve.probe' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


make_callable(__name__, "swerve.door.probe")
