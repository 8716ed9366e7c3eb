"""How many tokens a model can read, and which texts it reads with the same rotary angles.

With the rotary types `longrope` and `dynamic` of transformers the angles of all tokens depend on the longest text of
the forward pass: beyond a length, the turn, others are taken. So texts on both sides of it must not share a pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel


def max_positions(config: PreTrainedConfig) -> int | None:
    """Return how many tokens a model can read, prompt and completion together; None: its configuration does not say.

    `max_position_embeddings` is the length after stretching wherever transformers keeps the original one beside it
    (`llama3`, `longrope`), and may be either one with `yarn`. With `linear` and `dynamic` it is the original one, but
    not where the types are given by kind of layer: not all of these are stretched.

    >>> from transformers import LlamaConfig
    >>> rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    >>> max_positions(LlamaConfig(max_position_embeddings=40960, rope_parameters=rope))
    131072
    """
    text: Any = config.get_text_config(decoder=True)
    limit = getattr(text, "max_position_embeddings", None) or getattr(text, "max_seq_len", None)  # the latter of MPT
    if limit is None:
        return None
    stretched = [int(limit)]
    for rope in _rotations(text):
        kind, factor = rope.get("rope_type", "default"), rope.get("factor") or 1.0
        if kind == "yarn":
            stretched.append(int(factor * (rope.get("original_max_position_embeddings") or limit)))
        elif kind in ("linear", "dynamic") and rope is text.rope_parameters:
            stretched.append(int(factor * limit))
    return max(stretched)


def max_sampled(config: PreTrainedConfig, num_prompt: int) -> int | None:
    """Return how many tokens a prompt of `num_prompt` tokens and its completion may have; None: any number.

    A completion must end before other angles are taken: the tokens written before were drawn with those of a short
    text, and the whole text is read with those of a long one.

    >>> from transformers import Phi3Config
    >>> factors = {"short_factor": [1.0] * 48, "long_factor": [2.0] * 48}
    >>> config = Phi3Config(
    ...     max_position_embeddings=131072,
    ...     original_max_position_embeddings=4096,
    ...     rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, **factors},
    ...     pad_token_id=0,
    ... )
    >>> max_positions(config), max_sampled(config, 4096), max_sampled(config, 4097)
    (131072, 4096, 131072)
    """
    # What the model can read, and where its angles change.
    limits = [max_positions(config)]
    for turn, is_gradual in turns(config):
        if num_prompt <= turn:
            limits.append(turn)
        elif is_gradual:
            limits.append(num_prompt)
    return min((limit for limit in limits if limit is not None), default=None)


def limit_said(config: PreTrainedConfig, num_prompt: int) -> str:
    """Return `max_sampled` in words, of a model that has a limit."""
    limit = max_sampled(config, num_prompt)
    if limit == max_positions(config):
        return f"the model's {limit} positions"
    return f"the {limit} tokens beyond which the model takes other rotary angles for a whole text"


def angles_of(config: PreTrainedConfig, length: int) -> tuple[int, ...]:
    """Return which rotary angles a text of `length` tokens is read with; texts of equal ones may share a forward pass.

    Zeros up to the turn; empty for a model whose angles depend on positions alone.
    """
    return tuple(max(0, length - turn) if is_gradual else int(length > turn) for turn, is_gradual in turns(config))


def forget_lengths(model: PreTrainedModel) -> None:
    """Let a model with `dynamic` angles take those of the next text, whatever it read before.

    transformers keeps the angles of the longest text so far until a much shorter one comes.
    """
    if not any(is_gradual for _, is_gradual in turns(model.config)):
        return
    modules: Any = model.modules()
    for module in modules:
        if hasattr(module, "max_seq_len_cached") and hasattr(module, "original_inv_freq"):
            module.inv_freq = module.original_inv_freq.to(module.inv_freq.device)
            module.max_seq_len_cached = module.original_max_seq_len


def turns(config: PreTrainedConfig) -> list[tuple[int, bool]]:
    """Return the lengths beyond which a model takes other angles, and whether every longer text then has its own."""
    text: Any = config.get_text_config(decoder=True)
    turns = []
    for rope in _rotations(text):
        kind = rope.get("rope_type", "default")
        if kind == "longrope":
            turns.append((int(rope["original_max_position_embeddings"]), False))
        elif "dynamic" in kind:
            turns.append((int(text.max_position_embeddings), True))
    return turns


def _rotations(text: Any) -> list[Mapping[str, Any]]:
    """Return the parameters of a model's rotary angles: one set, or one of each kind of layer."""
    parameters = getattr(text, "rope_parameters", None) or {}
    return [rope for rope in parameters.values() if isinstance(rope, dict)] or [parameters]
