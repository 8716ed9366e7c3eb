"""What training changed of each weight, and the base with a part of that in model folders made on demand.

A part takes the name of a weight and its change (float64) to what is added to the base's. Every folder has the trained
model's configuration and tokenizer: the base with the whole change is the trained model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from swerve.artifacts.files import remove
from swerve.claim.work import NotMeasuredError
from swerve.models.adapter import whole_folder
from swerve.models.description import write_description
from swerve.models.export import write_tokenizer
from swerve.models.folder_checks import quiet_transformers
from swerve.models.hub import local_folder
from swerve.models.model_folder import WEIGHTS, load_base, load_tokenizer, stored_tensors
from swerve.models.weight_shards import write_shards
from swerve.seeds import derive_seed

Graft = Callable[[str, Tensor], Tensor]

_LARGEST = 0.1
"""Share of the entries in the sparse part."""


class WeightChange:
    """Two models of one shape in memory, in float32, adapters merged; of tied weights one."""

    def __init__(self, base: Path | str, trained: Path | str, *, largest_rank: int) -> None:
        """Load them.

        Args:
            base: the model before.
            trained: the model after.
            largest_rank: of the parts that are asked for.

        Raises:
            NotMeasuredError: their weights are the same, or have other names or shapes.
            CheckpointError: there is no such model, or it is damaged.
        """
        self._tokenizer = load_tokenizer(trained)
        places = (local_folder(trained), whole_folder(local_folder(trained)))
        self._read_tokenizer = next((place for place in places if (place / "tokenizer_config.json").is_file()), None)
        models = [load_base(path, device="cpu", dtype="float32") for path in (base, trained)]
        before, after = ({(name, own.shape): own for name, own in model.named_parameters()} for model in models)
        if odd := before.keys() ^ after.keys():
            raise NotMeasuredError(f"needs two models of one shape; these differ in {min(odd)[0]}")
        self._model = models[1]
        self.weights = {key[0]: (own, after[key]) for key, own in before.items()}
        self.energy_of_all = self.energy(lambda _, change: change)
        if not self.energy_of_all:
            raise NotMeasuredError("needs a change; the two models have the same weights")
        self.factors = {}
        for name, change in self.changes():
            if change.dim() > 1:
                left, sizes, right = torch.linalg.svd(change, full_matrices=False)
                self.factors[name] = left[..., :largest_rank].clone(), sizes, right[..., :largest_rank, :].clone()

    def changes(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the change of each weight (float64), one in memory at a time."""
        for name, (before, after) in self.weights.items():
            yield name, after.double() - before.double()

    def rank(self, rank: int) -> Graft:
        """Return the part of a rank that is nearest to each matrix's change; vectors are whole."""

        def part(name: str, change: Tensor) -> Tensor:
            if name in self.factors:
                left, sizes, right = self.factors[name]
                change = left[..., :rank] * sizes[..., None, :rank] @ right[..., :rank, :]
            return change

        return part

    def largest(self, share: float) -> Graft:
        """Return the part that is the entries with the largest magnitudes, a share of all."""
        sizes = torch.cat([change.abs().flatten().float() for _, change in self.changes()])
        least = sizes.kthvalue(round((1 - share) * len(sizes))).values
        return lambda _, change: change * (change.abs().float() > least)

    def energy(self, part: Graft) -> float:
        """Return the squared norm of a part."""
        return sum(float(part(name, change).square().sum()) for name, change in self.changes())

    @contextmanager
    def folder(self, part: Graft, folder: Path) -> Iterator[Path]:
        """Write the base with a part into a folder that lasts for the block.

        Its bytes are the same each time, whatever version of transformers writes them: samples are known by them.
        """
        remove(folder)
        weights = {name: (self.weights[name][0] + part(name, change)).float() for name, change in self.changes()}
        folder.mkdir(parents=True)
        write_description(folder, self._model, torch.float32)
        write_shards(folder, WEIGHTS, stored_tensors(self._model, weights))
        with quiet_transformers():
            write_tokenizer(folder, self._tokenizer, self._read_tokenizer)
        try:
            yield folder
        finally:
            remove(folder)


def random_part(seed: int, number: int, size_of: Graft) -> Graft:
    """Return one of many random changes with, weight by weight, the norm of a part."""

    def part(name: str, change: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(derive_seed(seed, "direction", number, name))
        noise = torch.randn(change.shape, generator=generator, dtype=torch.float64)
        return noise.mul(size_of(name, change).norm() / noise.norm())

    return part


def part_in(places: Collection[str]) -> Graft:
    """Return the change of the weights in some places, see `place_of`."""
    return lambda name, change: change * (place_of(name) in places)


def place_of(name: str) -> str:
    """Return where a weight is.

    >>> place_of("model.layers.12.mlp.up_proj.weight"), place_of("lm_head.weight")
    ('layer 12', 'outside the layers')
    """
    return next((f"layer {word}" for word in name.split(".") if word.isdigit()), OUTSIDE)


OUTSIDE = "outside the layers"
"""Embeddings, the head and the last norm."""


def tried_grafts(change: WeightChange, ranks: Sequence[int], num_pieces: int) -> dict[str, Graft]:
    """Return the parts that are tried, by name."""
    parts = {f"rank {rank}": change.rank(rank) for rank in ranks}
    layers = [place for place in dict.fromkeys(map(place_of, change.weights)) if place != OUTSIDE]
    for third in np.array_split(layers, min(num_pieces, len(layers))):
        name = third[0] if len(third) == 1 else f"{third[0]} to {third[-1]}"
        parts[name] = part_in(third.tolist())
    return {**parts, OUTSIDE: part_in([OUTSIDE]), "largest tenth": change.largest(_LARGEST)}
