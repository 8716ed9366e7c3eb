"""Where and how much checkpoints differ from a reference, token by token, and whether it matters.

Loads on first use, so that importing the package needs neither torch nor transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swerve.probe.run import probe_run

__all__ = ["probe_run"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name == "probe_run":
        from swerve.probe.run import probe_run

        return probe_run
    raise AttributeError(f"module 'swerve.probe' has no attribute {name!r}")
