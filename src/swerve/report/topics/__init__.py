"""The topics of the report: a file each, in the order of the argument."""

from __future__ import annotations

from importlib import import_module

from swerve.report.topics.topic import Topic

__all__ = ["topics"]

# Each is a module beside this one with a `TOPIC`.
# (Those that are not yet on `Rows` are left out.)
_NAMES = (
    "outcome",
    "selection",
    "divergence",
    "spikes",
    "where",
    "causes",
    "dose",
    "training",
    "taught",
    "checkpoints",
    "training_curves",
    "case_studies",
    "dashboard",
)


def topics() -> tuple[Topic, ...]:
    """Return all topics, in order."""
    return tuple(import_module(f"{__name__}.{name}").TOPIC for name in _NAMES)
