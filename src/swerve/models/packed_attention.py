"""Attention of many sequences in one row: each sees itself alone, and what several begin with stands there once.

Everything but attention works on single tokens, so a row without padding costs what its tokens cost. For attention,
sequences of similar length are cut out of the row side by side, prompt and completion together, and attended causally;
what a shorter one has behind its end can reach nothing before it, so no mask is needed. Flash attention is told where
each of the sequences ends, and needs no blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding, pad
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.utils.import_utils import is_flash_attn_2_available, is_flash_attn_3_available

from swerve.errors import ConfigError, MismatchError, said_by
from swerve.models.fast_layers import attention

NAME = "swerve_packed"
"""What the attention is called in a model's configuration in memory; it is not saved."""
_FLASH = {"flash_attention_2": is_flash_attn_2_available, "flash_attention_3": is_flash_attn_3_available}
_SLACK = 1.15
"""Sequences are attended together where the longest is at most so many times the shortest, and a little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRow:
    """Where the sequences of a row of L tokens stand."""

    blocks: tuple[Int[Tensor, "b W"], ...]
    """Sequences of similar length, attended together: the places of each one's tokens in the row. Behind the end of a
    shorter one stand places of others."""
    order: Int[Tensor, " L"]
    """The number of each place of the row among the b x W outputs of all blocks, one after the other; of a token of
    several sequences that of the first."""
    places: Int[Tensor, " S"]
    """Of the tokens of every sequence, one after the other, shared ones repeated."""
    first: Int[Tensor, " L"]
    """Where in `places` each place of the row stands in the sequence whose output is kept."""
    ends: Int[Tensor, " n_plus_1"]
    """Where in `places` each sequence ends, after a 0."""
    longest: int
    """Tokens of the longest sequence."""

    @classmethod
    def of(cls, places: Int[Tensor, "B W"], lengths: Int[Tensor, " B"], num_shared: Int[Tensor, " B"]) -> PackedRow:
        """Return the row of some sequences.

        Args:
            places: in the row, of each one's tokens; what stands behind the end is not looked at.
            lengths: how many tokens each has.
            num_shared: how many of its first tokens, but not all, belong to an earlier sequence as well.
        """
        # The table of all sequences' places, and which of them are a sequence's own.
        columns = torch.arange(int(lengths.max()))
        is_token = columns < lengths[:, None]
        is_own = is_token & (columns >= num_shared[:, None])
        table = places[:, : len(columns)].where(is_token, 0)

        # Sequences of similar length make a block.
        widths, by_length = lengths.sort(stable=True)
        blocks, are_own, start = [], [], 0
        for end, width in enumerate([*widths.tolist(), math.inf]):
            if end and width > _SLACK * int(widths[start]) + 8:
                rows, longest = by_length[start:end], int(widths[end - 1])
                blocks.append(table[rows, :longest])
                are_own.append(is_own[rows, :longest].flatten())
                start = end

        # Of each place of the row: where its output is, in the blocks and in the sequences one after the other.
        outputs = torch.cat([block.flatten() for block in blocks])
        own = torch.cat(are_own).nonzero().squeeze(1)
        order, first = torch.empty_like(own), torch.empty_like(own)
        order[outputs[own]] = own
        own = is_own[is_token].nonzero().squeeze(1)
        first[table[is_token][own]] = own
        return cls(
            blocks=tuple(blocks),
            order=order,
            places=table[is_token],
            first=first,
            ends=pad(lengths.cumsum(0), (1, 0)).int(),
            longest=len(columns),
        )

    def extended(self, unused: int) -> PackedRow:
        """Return the row with padding behind it; its values are ignored."""
        return replace(self, order=pad(self.order, (0, unused)), first=pad(self.first, (0, unused)))

    def to(self, device: torch.device | str) -> PackedRow:
        """Return the row on another device."""
        moved: dict[str, Any] = {name: getattr(self, name).to(device) for name in ("order", "places", "first", "ends")}
        return replace(self, blocks=tuple(places.to(device) for places in self.blocks), **moved)


def packed_attention(
    module: torch.nn.Module,
    query: Float[Tensor, "1 H L D"],
    key: Float[Tensor, "1 K L D"],
    value: Float[Tensor, "1 K L E"],
    attention_mask: Tensor | None,
    *,
    packed_row: PackedRow | None = None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend as `transformers` asks its attention functions to; without a `packed_row` as its `sdpa` does.

    Raises:
        MismatchError: the layer's attention has what this one has not (soft caps, sinks, biases of positions, an
            index, a mask of its own).
    """
    if packed_row is None:
        output: tuple[Tensor, None] = sdpa_attention_forward(
            module,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=scaling,
            sliding_window=sliding_window,
            **kwargs,
        )
        return output
    # Each block of sequences is cut out of the row and attended causally.
    unknown = [name for name in ("softcap", "s_aux", "position_bias", "indices") if kwargs.get(name) is not None]
    if unknown:
        raise MismatchError(f"the attention of {type(module).__name__} has '{unknown[0]}'; give it padded rows")
    _check_no_mask(module, attention_mask)
    parts = []
    for places in packed_row.blocks:
        width = places.shape[1]
        mask = None
        if sliding_window is not None and width > sliding_window:
            columns = torch.arange(width, device=query.device)
            distance = columns[:, None] - columns
            mask = (distance >= 0) & (distance < sliding_window)
        q, k, v = (_chosen(states[0].transpose(0, 1), places).transpose(1, 2) for states in (query, key, value))
        parts.append(attention(q, k, v, scaling=scaling, allowed=mask, dropout=dropout).transpose(1, 2).flatten(0, 1))
    return _chosen(torch.cat(parts) if len(parts) > 1 else parts[0], packed_row.order)[None], None


def _check_no_mask(module: torch.nn.Module, mask: Tensor | None) -> None:
    """Check that a layer has left the mask of one truth that packed rows are read with, and made none of its own.

    Raises:
        MismatchError: it has, as Doge's learned masks and DeepSeek's index do.
    """
    if mask is not None and (mask.dtype != torch.bool or mask.numel() > 1):
        raise MismatchError(f"the attention of {type(module).__name__} has a mask of its own; give it padded rows")


def _chosen(states: Float[Tensor, "L H D"], places: Int[Tensor, "*n"]) -> Float[Tensor, "*n H D"]:
    """Return `states[places]`; the gradients of a state that is chosen several times are added up faster."""
    chosen: Tensor = embedding(places, states.flatten(1)).unflatten(-1, states.shape[1:])
    return chosen


def packed_flash_attention(
    module: torch.nn.Module,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B K T D"],
    value: Float[Tensor, "B K T E"],
    attention_mask: Tensor | None,
    *,
    packed_row: PackedRow | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend by flash attention; without a `packed_row` as `transformers` does.

    Raises:
        MismatchError: the layer has a mask of its own.
    """
    if packed_row is None:
        output: tuple[Tensor, None] = flash_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return output
    _check_no_mask(module, attention_mask)
    row, ends, longest = packed_row, packed_row.ends, packed_row.longest
    lengths = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": longest, "max_length_k": longest}
    q, k, v = (states[:, :, row.places] for states in (query, key, value))
    attended, _ = flash_attention_forward(module, q, k, v, None, **{**kwargs, **lengths})
    return attended[:, row.first], None


for _name in _FLASH:
    AttentionInterface.register(_name, packed_flash_attention)
AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


def use_attention(model: PreTrainedModel, name: str) -> None:
    """Let a model attend by one of transformers' implementations.

    Raises:
        ConfigError: the architecture does not have it, or what it needs is not here.
    """
    try:
        if name in _FLASH and not _FLASH[name]():  # transformers would fetch code for it
            package = "flash-attn" if name.endswith("2") else "flash_attn_interface (flash-attn 3)"
            raise ValueError(f"it needs a CUDA device and the package {package}, and does not find both here")
        model.set_attn_implementation(name)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"model.attention={name}: {said_by(error)}; use auto or sdpa") from error


def use_packed_attention(model: PreTrainedModel) -> bool:
    """Let a model attend to packed rows beside padded ones; return whether it can be asked to."""
    if model.config._attn_implementation in _FLASH:
        return True
    if model.config._attn_implementation != "sdpa":
        return bool(model.config._attn_implementation == NAME)
    try:
        model.set_attn_implementation(NAME)
    except ValueError:  # an architecture with an attention of its own
        return False
    return True


def sdpa_again(model: PreTrainedModel) -> None:
    """Take back what `use_packed_attention` did."""
    if model.config._attn_implementation == NAME:
        model.set_attn_implementation("sdpa")
