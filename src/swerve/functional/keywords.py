"""Types of keywords that are numbers within bounds.

A key of a recipe has the type of its keyword, with the bounds that `swerve.settings` gives to a type of the same name
(see `swerve.config.signatures`). A function that is called without a recipe checks its keywords itself.
"""

from __future__ import annotations

from typing import TypeAlias

Positive: TypeAlias = int | float
"""Above 0."""
NonNegative: TypeAlias = int | float
"""0 or more."""
Probability: TypeAlias = int | float
"""From 0 to 1."""
InnerShare: TypeAlias = int | float
"""Between 0 and 1, neither of them."""
Share: TypeAlias = int | float
"""Above 0, and at most 1."""
AboveOne: TypeAlias = int | float
"""Above 1."""
