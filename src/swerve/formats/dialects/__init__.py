"""The layouts in which programs write rollouts, each turned into the names that `swerve.formats.responses` reads."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from swerve.formats.dialects.chat import CHAT
from swerve.formats.dialects.layout import Dialect, Values
from swerve.formats.dialects.plain import PLAIN
from swerve.formats.dialects.rl_probe import RL_PROBE
from swerve.formats.dialects.tables import TABLES
from swerve.formats.dialects.trl import TRL
from swerve.formats.dialects.verl import VERL

__all__ = ["DIALECTS", "Dialect", "detect"]

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {one.name: one for one in (TABLES, RL_PROBE, VERL, TRL, CHAT, PLAIN)}
)
"""The layouts by name, in the order in which a record is held against them."""


def detect(values: Values) -> Dialect:
    """Return the layout of a record.

    >>> detect({"input": "1 + 1?", "output": "2", "score": 1.0, "step": 3}).name
    'verl'
    """
    return next((one for one in DIALECTS.values() if one.matches(values)), PLAIN)
