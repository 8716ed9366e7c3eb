"""What training changed of each weight, and the base with a part of that in model folders made on demand.

A part takes the name of a weight and its change (float64) to what is added to the base's. Every folder has the trained
model's configuration and tokenizer: the base with the whole change is the trained model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from swerve.artifacts.files import TEMPORARY_PREFIX
from swerve.claim.work import NotMeasuredError
from swerve.models.folder_checks import quiet_transformers
from swerve.models.model_folder import load_base, load_tokenizer
from swerve.seeds import derive_seed

Part = Callable[[str, Tensor], Tensor]


class WeightChange:
    """Two models of one shape in memory, in float32, adapters merged; of tied weights one."""

    def __init__(self, base: Path | str, trained: Path | str) -> None:
        """Load them.

        Raises:
            NotMeasuredError: their weights have other names or shapes.
            CheckpointError: there is no such model, or it is damaged.
        """
        self._before, self._model = (load_base(path, device="cpu", dtype="float32") for path in (base, trained))
        self._tokenizer = load_tokenizer(trained)
        before, after = (dict(model.named_parameters()) for model in (self._before, self._model))
        odd = {(name, own.shape) for name, own in before.items()} ^ {(name, own.shape) for name, own in after.items()}
        if odd:
            raise NotMeasuredError(f"needs two models of one shape; these differ in {min(odd)[0]}")
        self.weights = {name: (own, after[name]) for name, own in before.items()}
        self.changes = {name: new.double() - own.double() for name, (own, new) in self.weights.items()}
        self.factors = {
            name: torch.linalg.svd(change, full_matrices=False)
            for name, change in self.changes.items()
            if change.dim() > 1
        }

    def rank(self, rank: int) -> Part:
        """Return the part of a rank that is nearest to each matrix's change; vectors are whole."""

        def part(name: str, change: Tensor) -> Tensor:
            if name not in self.factors:
                return change
            left, sizes, right = self.factors[name]
            return left[..., :rank] * sizes[..., None, :rank] @ right[..., :rank, :]

        return part

    def largest(self, share: float) -> Part:
        """Return the part that is the entries with the largest magnitudes, a share of all."""
        sizes = torch.cat([change.abs().flatten() for change in self.changes.values()])
        least = sizes.kthvalue(round((1 - share) * len(sizes))).values
        return lambda _, change: change * (change.abs() > least)

    def energy(self, part: Part) -> float:
        """Return the squared norm of a part."""
        return sum(float(part(name, change).square().sum()) for name, change in self.changes.items())

    @contextmanager
    def folder(self, part: Part, place: Path) -> Iterator[Path]:
        """Write the base with a part, the same bytes each time, into a folder in `place` that lasts for the block."""
        weights = {name: (self.weights[name][0] + part(name, change)).float() for name, change in self.changes.items()}
        with TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=place) as folder, quiet_transformers():
            self._model.save_pretrained(folder, state_dict=weights)
            self._tokenizer.save_pretrained(folder)
            yield Path(folder)


def random_part(seed: int, size_of: Part) -> Part:
    """Return a random change with, weight by weight, the norm of a part."""

    def part(name: str, change: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(derive_seed(seed, name))
        noise = torch.randn(change.shape, generator=generator, dtype=torch.float64)
        return noise * (size_of(name, change).norm() / noise.norm())

    return part


def layers_part(layers: Collection[int | None]) -> Part:
    """Return the change of some layers; None among them is what is outside of all."""
    return lambda name, change: change * (layer_of(name) in layers)


def layer_of(name: str) -> int | None:
    """Return the number of the layer that a weight belongs to.

    >>> layer_of("model.layers.12.mlp.up_proj.weight"), layer_of("lm_head.weight")
    (12, None)
    """
    return next((int(word) for word in name.split(".") if word.isdigit()), None)
