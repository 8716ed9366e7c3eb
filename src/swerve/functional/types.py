"""Types of tensors and of keywords, by the names that signatures have.

A key of a recipe has the type of its keyword, with the bounds that `swerve.settings` gives to a type of the same name
(see `swerve.config.signatures`). A function that is called without a recipe checks its keywords itself.
"""

from __future__ import annotations

from typing import TypeAlias

from jaxtyping import Bool, Float, Int
from torch import Tensor

Tokens: TypeAlias = Float[Tensor, "B T"]
"""A number for each token of B completions, a row each, of at most T tokens."""
TokenMask: TypeAlias = Bool[Tensor, "B T"]
"""Which places hold a token."""
Groups: TypeAlias = Float[Tensor, "G N"]
"""A number for each completion: G prompts, a row each, with N completions."""
Logits: TypeAlias = Float[Tensor, "N V"]
"""Of N positions, a row each, over V tokens."""
Rows: TypeAlias = Float[Tensor, " N"]
"""A number for each of N positions."""
Ids: TypeAlias = Int[Tensor, " N"]
"""A token for each of N positions."""

Number: TypeAlias = int | float
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
