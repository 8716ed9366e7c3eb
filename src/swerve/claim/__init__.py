"""What RL changed: two models, a task, and a page of questions with the minimum standard of evidence."""

from __future__ import annotations

from swerve.callable_package import make_callable

__all__ = ["claim"]

make_callable(__name__, "swerve.door.claim")
