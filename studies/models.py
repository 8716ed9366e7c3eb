"""Models that are in memory already, for the probe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from swerve.models.adapter import whole_matrices
from swerve.models.model_folder import LoadedModel
from swerve.models.sources import CheckedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySource:
    """A model in memory, known by its label: its fingerprint costs nothing, as that of a checkpoint with a manifest."""

    label: str
    loaded: LoadedModel

    @property
    def fingerprint(self) -> str:
        """The label."""
        return self.label

    def check(self) -> CheckedModel:
        """Return what the model says of itself."""
        model = self.loaded.model
        dtype = str(model.dtype).removeprefix("torch.")
        return CheckedModel.of(self.fingerprint, model.config, self.loaded.tokenizer, dtype=dtype)

    def load(self) -> LoadedModel:
        """Return the model."""
        return self.loaded

    def matrices(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the parameters of two dimensions or more by name."""
        return whole_matrices(self.loaded.model)
