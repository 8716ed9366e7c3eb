"""The key-value cache of decoding: buffers with room, in which lines are kept, copied and joined."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from swerve.models.folder_checks import layer_configs

# Columns a cache grows by at least. Lines that stand close together are read faster.
_ROOM = 16

_CACHES = ("cache", "past_key_values")
"""What models call their cache since transformers 5.24, and before."""
_KEEPS_ALL = "swerve_keeps_every_position"
"""Attribute of a model; see `keep_every_position`."""


def is_croppable(cache: Cache) -> bool:
    """Whether all layers keep the keys and values of every position, so that the cache can be cut at any."""
    return all(type(layer) is GrowingLayer for layer in cache.layers)


def cache_bytes(cache: Cache) -> int:
    """Return the size of the keys and values of a cache, and of the room kept for more."""
    layers: Any = cache.layers
    return sum(
        tensor.untyped_storage().nbytes()
        for layer in layers
        if layer.is_initialized
        for tensor in (layer.keys, layer.values)
    )


def cache_bytes_per_token(model: PreTrainedModel) -> int | None:
    """Return the size of one token's keys and values in all layers, None where the configuration does not say."""
    num_kept = 0
    for layer in layer_configs(model.config):
        num_heads = getattr(layer, "num_attention_heads", None)
        if num_heads is None:
            return None
        width = getattr(layer, "head_dim", None) or layer.hidden_size // num_heads
        num_kept += (getattr(layer, "num_key_value_heads", None) or num_heads) * width
    return 2 * num_kept * model.dtype.itemsize


def free_memory(device: torch.device) -> int | None:
    """Return the bytes free on a device or, for a CPU, in this machine's memory; None where the system does not say."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)


class GrowingLayer(DynamicLayer):
    """A cache layer that appends in place to buffers with room, where the original copies every step."""

    _buffers: tuple[Tensor, Tensor] | None = None
    """Keys and values with room for more lines and columns; `keys` and `values` are the parts that are used."""
    bias: Tensor | None = None
    """What is added to the scores of the buffers' columns; of the first layer, for all of them."""

    def __init__(self, width: int | None) -> None:
        """Start without a column; there will be `width` at most (None: no limit)."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._width = width

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Add columns to each line; return the keys and values of all columns (`transformers` asks for it)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        length = self.get_seq_length()
        total = length + key_states.shape[-2]
        if self._buffers is None or self._buffers[0].shape[2] < total:
            num_lines = len(key_states if self._buffers is None else self._buffers[0])
            self._enlarge((key_states, value_states), num_lines, self.capacity(total))
        keys, values = self._show(len(key_states), total)
        keys[:, :, length:], values[:, :, length:] = key_states, value_states
        return keys, values

    def append(self, keys: Float[Tensor, "L K D"], values: Float[Tensor, "L K D"]) -> None:
        """Add a column to each line."""
        length = self.get_seq_length()
        if self._buffers is None or self._buffers[0].shape[2] == length:
            self.update(keys[:, :, None], values[:, :, None])
            return
        shown = self._show(keys.shape[0], length + 1)
        shown[0][:, :, length], shown[1][:, :, length] = keys, values

    def copy(self, lines: Int[Tensor, " K"], most: int) -> None:
        """Add copies of these lines behind the others; there will be at most `most` lines."""
        if self.keys is None or self.values is None:  # a layer that shares another's
            return
        num, length = len(self.keys), self.get_seq_length()
        total = num + len(lines)
        if self._buffers is None or len(self._buffers[0]) < total:
            room = max(total, min(most, total + total // 2))
            self._enlarge((self.keys, self.values), room, self.capacity(length + 1))
        copies = self.keys[lines], self.values[lines]
        keys, values = self._show(total, length)
        keys[num:], values[num:] = copies
        self.bias = None

    def _enlarge(self, like: tuple[Tensor, Tensor], num_lines: int, num_columns: int) -> None:
        """Make buffers of so many lines and columns, of the types and widths of some keys and values."""
        length = self.get_seq_length()
        keys, values = (new.new_zeros(num_lines, new.shape[1], num_columns, new.shape[3]) for new in like)
        if self.keys is not None and self.values is not None and length:
            keys[: len(self.keys), :, :length] = self.keys
            values[: len(self.values), :, :length] = self.values
        self._buffers = keys, values

    def _show(self, num_lines: int, num_columns: int) -> tuple[Tensor, Tensor]:
        """Let `keys` and `values` be so much of the buffers; return them."""
        assert self._buffers is not None
        keys, values = self._buffers
        self.keys, self.values = keys[:num_lines, :, :num_columns], values[:num_lines, :, :num_columns]
        return self.keys, self.values

    @property
    def buffers(self) -> tuple[Tensor, Tensor]:
        """Keys and values with the columns that are not used yet, whose numbers are finite."""
        assert self.keys is not None
        assert self._buffers is not None
        num_lines = self.keys.shape[0]
        return self._buffers[0][:num_lines], self._buffers[1][:num_lines]

    def capacity(self, total: int) -> int:
        """Return how many columns the buffers have when `total` of them are used."""
        if self._buffers is not None and self._buffers[0].shape[2] >= total:
            return self._buffers[0].shape[2]
        room = max(_ROOM, total // 8) if self.get_seq_length() else 0
        return max(total, min(total + room, self._width or total + room))

    def keep(self, lines: Int[Tensor, " K"], start: int) -> None:
        """Keep these lines, from this column on."""
        if self.keys is not None and self.values is not None:  # a layer that shares another's has none
            self.keys, self.values = self.keys[lines, :, start:], self.values[lines, :, start:]
        self._buffers = self.bias = None

    def join(self, other: GrowingLayer, total: int, own: int, others: int) -> None:
        """Add the lines of another layer; both end in column `total` and have `own` and `others` columns."""
        self._width = other._width
        if self.keys is not None and self.values is not None:
            self.keys = _joined(self.keys, other.keys, total - own, total - others)
            self.values = _joined(self.values, other.values, total - own, total - others)
        self._buffers = self.bias = None


def _joined(upper: Tensor, lower: Tensor | None, upper_start: int, lower_start: int) -> Tensor:
    assert lower is not None
    columns = upper_start + upper.shape[2]
    joined = upper.new_zeros(len(upper) + len(lower), upper.shape[1], columns, upper.shape[3])
    joined[: len(upper), :, upper_start:] = upper
    joined[len(upper) :, :, lower_start:] = lower
    return joined


def growing_cache(model: PreTrainedModel, width: int | None = None) -> Cache:
    """Return an empty cache of a model, of growing layers where the model keeps the keys and values of all positions.

    Args:
        model: whose cache it is.
        width: columns that there will be at most; None: no limit.
    """
    growing_layer: Any = GrowingLayer  # a typed handle: the class it extends is not typed
    cache = DynamicCache(config=model.config)
    grows = {DynamicLayer, DynamicSlidingWindowLayer} if getattr(model, _KEEPS_ALL, False) else {DynamicLayer}
    cache.layers = [growing_layer(width) if type(layer) in grows else layer for layer in cache.layers]
    return cache


def keep_every_position(model: PreTrainedModel, keeps: bool) -> None:
    """Let caches of a model hold all positions, or drop those behind the window that its configuration has.

    Some configurations have a window that the architecture's code does not look at.
    """
    setattr(model, _KEEPS_ALL, keeps)


def takes_no_cache(model_class: Any) -> str | None:
    """Return why a class of models takes no cache, and so does not continue what it has read; None: it takes one."""
    taken = _arguments(model_class)
    if any(name in taken for name in _CACHES):
        return None
    return "it keeps what it has read in a form of its own" if "use_cache" in taken else "it keeps nothing it has read"


def cache_argument(model_class: Any) -> str:
    """Return what a class of models calls its cache."""
    taken = _arguments(model_class)
    return next(name for name in _CACHES if name in taken)


def _arguments(model_class: Any) -> set[str]:
    forwards = [base.forward for base in model_class.__mro__ if hasattr(base, "forward")]
    return {name for forward in forwards for name in inspect.signature(forward).parameters}
