"""The report of a run: figures, and one self-contained page. Free of torch; drawing libraries load when used."""

from __future__ import annotations

from swerve.callable_package import make_callable

__all__ = ["report"]

make_callable(__name__, "swerve.door.report")
