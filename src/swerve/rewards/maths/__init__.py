"""Answers of mathematics: where they stand in a text, and whether they are the gold answer."""

from swerve.rewards.maths.extract import extract_answer
from swerve.rewards.maths.grade import equivalent, grade_math, quick_math
from swerve.rewards.maths.limits import LimitReached

__all__ = ["LimitReached", "equivalent", "extract_answer", "grade_math", "quick_math"]
