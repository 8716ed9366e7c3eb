"""Behaviours: what responses look like, measured without a model. Free of torch."""

from __future__ import annotations

from swerve.behaviours.label_summary import summarise
from swerve.behaviours.measures import problem_values
from swerve.behaviours.response_rows import behaviour_rows

__all__ = ["behaviour_rows", "problem_values", "summarise"]
