"""Answers of mathematics: reading them, and whether they are the gold answer."""

from swerve.grading.maths.equivalence import equivalent

__all__ = ["equivalent"]
