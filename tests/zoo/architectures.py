"""The architectures of the zoo."""

from __future__ import annotations

from tests.zoo.dense import DENSE_ANIMALS
from tests.zoo.experts import EXPERT_ANIMALS
from tests.zoo.states import STATE_ANIMALS

ZOO = {**DENSE_ANIMALS, **EXPERT_ANIMALS, **STATE_ANIMALS}
