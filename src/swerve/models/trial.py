"""A small copy of a model's architecture with random weights, on which ways of reading are tried before any work.

What is tried is the architecture's code as the configuration sets it, not the weights: whether a text's logits are the
same alone, beside others, packed and token by token. Texts are longer than every window and chunk of attention, which
are lowered in the copy, as are the widths of large models; so a trial takes a fraction of a second whatever the model's
size. What depends on the weights, or on numbers that only the large model has, is not seen.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from swerve.errors import CheckpointError, said_by, system_fault
from swerve.models.folder_checks import quiet_transformers
from swerve.models.head import head_inputs, head_tolerance, model_head
from swerve.positions import forget_lengths, max_sampled

_SMALL = 1 << 22
"""Parameters of a model that is tried as it is; of larger ones the copy has narrower layers."""
_LARGEST = 1 << 27
"""Parameters of a copy at most."""
_WINDOW = 16
"""Tokens of a window, chunk or block in the copy, at most."""
_VOCABULARY = 64
_LENGTHS = (40, 23, 9, 3)
"""Tokens of the texts."""
_LAYERS = 6
_WIDTH = 64
_EXPERTS = 8
_TOLERANCE = 1e-3
"""Of the largest logit: far above what rounding makes of float32, far below what other tokens or angles make."""
_SEEDS = (0, 1)
"""Of the weights: a choice among experts that rounding turns is not turned in both."""

_WINDOWS = re.compile(
    r"(sliding|keep)_window(_size)?|(attention_)?window_size|local_attention|attention_chunk_size|block_size"
    r"|index_topk(_blocks)?|index(er)?_(block_size|budget)"
    r"|(mamba_)?chunk_size(_linear_attn)?"
)
_TOKEN_IDS = re.compile(r"(pad|bos|eos|cls|sep|decoder_start)_token_id")
_INNER = re.compile(r"\w*intermediate_size\w*|(expert_)?ffn_hidden_size|ffn_dim|n_inner")
_NUM_EXPERTS = re.compile(r"(num|n|moe_num)_((local|routed)_)?experts")
_WIDTHS = (
    "hidden_size", "num_attention_heads", "num_key_value_heads", "attention_hidden_size", "num_heads", "mamba_n_heads",
    "mamba_num_heads", "n_mamba_heads", "mamba_d_ssm",
)  # fmt: skip
_HEADS_BESIDE = ("linear_num_key_heads", "linear_num_value_heads")
_NUM_CHOSEN = re.compile(r"num_experts_per_tok|moe_k|moe_topk|top_k_experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A small copy of a model in evaluation mode, some texts, and what it says of each of them alone."""

    model: PreTrainedModel
    texts: tuple[tuple[int, ...], ...]
    logits: tuple[Float[Tensor, "L V"], ...]
    """Of each text, at every token those of the next one."""

    @classmethod
    def of(cls, model: PreTrainedModel, texts: tuple[tuple[int, ...], ...]) -> Trial:
        """Read each text alone."""
        return cls(model=model, texts=texts, logits=tuple(alone(model, text) for text in texts))


def alone(model: PreTrainedModel, text: Sequence[int]) -> Float[Tensor, "L V"]:
    """Return the logits at every token of a text that is read without any other."""
    forget_lengths(model)
    untyped: Any = model
    logits: Tensor = untyped(input_ids=torch.tensor([text], device=model.device), use_cache=False).logits
    return logits[0]


def close(found: Tensor, expected: Tensor) -> bool:
    """Whether logits or states are the same but for rounding."""
    scale = float(expected.abs().amax())
    tolerance = max(_TOLERANCE, head_tolerance(found.dtype))
    return torch.allclose(found.float(), expected.float(), rtol=tolerance, atol=tolerance * scale)


OTHER_LOGITS = "it gives other logits than for the whole text"
Way = Callable[[Trial], bool]
"""A way of reading, tried on a copy: whether it is `close` to what the copy says of each text alone. It may fail in
whatever manner the architecture's code has."""


def passes(config: PreTrainedConfig, way: Way, *, attention: str | None = None) -> bool:
    """Whether a way of reading gives a model's architecture what it says of each text alone; see `fault_of`."""
    return fault_of(config, way, attention=attention) is None


def fault_of(config: PreTrainedConfig, way: Way, *, attention: str | None = None) -> str | None:
    """Return why a way of reading does not give what a model's architecture says of each text alone; None: it does.

    Each way is tried once for each configuration. Where no copy can be made there is nothing to say against it.

    Args:
        config: the model's.
        way: a function of a module.
        attention: which of transformers' implementations the copy has, those for a GPU on it; None: its choice.
    """
    about = f"{config.to_json_string(use_diff=False)} {attention}"
    key = f"{about} {way.__module__}.{way.__qualname__}"
    if key not in _faults:
        fault: str | None = None
        for seed in _SEEDS:
            fault = _fault(way, _trial(config, about, attention, seed))
            if fault != OTHER_LOGITS:
                break
        _faults[key] = fault
    return _faults[key]


_faults: dict[str, str | None] = {}
_last: dict[tuple[str, int], Trial | None] = {}
"""The trial that was made last."""


def _fault(way: Way, trial: Trial | None) -> str | None:
    if trial is None:
        return None
    try:
        with torch.inference_mode(), quiet_transformers():
            return None if way(trial) else OTHER_LOGITS
    except Exception as error:  # of the architecture's own code, which may not know what it is asked for
        _check_possible(error)
        return said_by(error)


def _check_possible(error: Exception) -> None:
    """Raise again what the machine lacked, which says nothing of the architecture and would be remembered."""
    if system_fault(error) or isinstance(error, torch.OutOfMemoryError):
        raise error


def _trial(config: PreTrainedConfig, about: str, attention: str | None, seed: int) -> Trial | None:
    """Return a copy with weights of a seed, None where none can be made; the last one is kept for the next way."""
    if (about, seed) not in _last:
        _last.clear()
        with torch.random.fork_rng(devices=[]), quiet_transformers(), torch.inference_mode():
            torch.manual_seed(seed)
            tried = (_try(config, level, attention) for level in _levels(config))
            _last[about, seed] = next((trial for trial in tried if trial is not None), None)
    return _last[about, seed]


def check_causal(source: Path | str, config: PreTrainedConfig) -> None:
    """Check that an architecture says of a token what it says without those behind it, and always the same.

    Raises:
        CheckpointError: it does not.
    """
    if not passes(config, _repeats):
        raise CheckpointError(
            f"the model in {source} (model_type {config.model_type}) gives one text other logits each time that it "
            "reads it, in evaluation mode; what is compared between models would be chance, so it is refused"
        )
    if not passes(config, _is_causal):
        raise CheckpointError(
            f"the model in {source} (model_type {config.model_type}) is not causal: what it says of a token depends on "
            "later ones, which sampling does not have yet; its config.json may say so (use_bidirectional_attention, "
            "is_causal, is_decoder)"
        )


def _repeats(trial: Trial) -> bool:
    return close(alone(trial.model, trial.texts[0]), trial.logits[0])


def _is_causal(trial: Trial) -> bool:
    """Whether the first half of the longest text has the same logits where the second is another."""
    half = len(trial.texts[0]) // 2
    most = max(max(text) for text in trial.texts)
    turned = [*trial.texts[0][:half], *(most - token for token in trial.texts[0][half:])]
    return close(alone(trial.model, turned)[:half], trial.logits[0][:half])


def forms_logits(trial: Trial) -> bool:
    """Whether a model's output head, applied to what it is given at chosen tokens, gives the model's logits there."""
    head, model, ids = model_head(trial.model), trial.model, torch.tensor([trial.texts[0]])
    keep = torch.arange(len(trial.texts[0]) // 2)
    untyped: Any = model
    with head_inputs(head.projection, skip_head=True) as captured:
        untyped(input_ids=ids.to(model.device), logits_to_keep=keep.to(model.device), use_cache=False)
    return len(captured) == 1 and close(head(captured[0][0]), trial.logits[0][: len(keep)])


_PADS = "swervepads"
"""Attribute of a model: what `reads_padded` returned."""


def reads_padded(model: PreTrainedModel) -> bool:
    """Whether a model reads a padded text beside others as it does alone; some ignore the mask of the padding."""
    if not hasattr(model, _PADS):
        setattr(model, _PADS, passes(model.config, pads))
    return bool(getattr(model, _PADS))


def pads(trial: Trial) -> bool:
    """Whether texts beside others are the same, padded on the left of their first half, on the right of the second."""
    halves = [(len(text) // 2, len(text)) for text in trial.texts]
    start, end = (max(sizes) for sizes in zip(*((half, whole - half) for half, whole in halves), strict=True))
    ids = torch.zeros(len(halves), start + end, dtype=torch.long)
    mask = torch.zeros_like(ids)
    places = [slice(start - half, start - half + whole) for half, whole in halves]
    for row, (text, place) in enumerate(zip(trial.texts, places, strict=True)):
        ids[row, place], mask[row, place] = torch.tensor(text), 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    model: Any = trial.model
    forget_lengths(model)
    logits = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).logits
    pairs = zip(logits, places, trial.logits, strict=True)
    return all(close(row[place], expected) for row, place, expected in pairs)


def _levels(config: PreTrainedConfig) -> list[set[str]]:
    """Return what is made smaller in the copies of a model that are tried, in their order.

    Where an architecture's sizes do not go together when they are changed, the next copy changes less.
    """
    try:
        if _num_parameters(config) <= _SMALL:
            return [{"windows"}, set()]
    except Exception as error:  # of the architecture's code: it says the same where the model itself is made
        _check_possible(error)
        return []
    layers, narrow = {"windows", "layers", "experts"}, {"windows", "experts", "width", "inner"}
    few = {*layers, "inner", "depth"}
    return [{*layers, *narrow}, narrow, {*layers, "inner"}, layers, few, layers - {"windows"}]


def _num_parameters(config: PreTrainedConfig) -> int:
    auto_model: Any = AutoModelForCausalLM
    with torch.device("meta"):
        return sum(weight.numel() for weight in auto_model.from_config(config).parameters())


def _try(config: PreTrainedConfig, smaller: set[str], attention: str | None) -> Trial | None:
    """Return the trial of a configuration with some sizes made smaller, None where it cannot be made or read."""
    auto_model: Any = AutoModelForCausalLM
    try:
        small = _smaller(config, smaller)
        if _num_parameters(small) > _LARGEST:
            return None
        small._attn_implementation = attention
        model = auto_model.from_config(small, dtype=torch.float32).eval()
        _draw_weights(model)
        if attention is not None and attention.startswith("flash"):  # which has no float32
            model.to("cuda", torch.bfloat16)
        trial = Trial.of(model, _texts(small))
        return trial if all(bool(torch.isfinite(logits).all()) for logits in trial.logits) else None
    except Exception as error:  # the architecture's code checks its sizes in its own ways
        _check_possible(error)
        return None


def _draw_weights(model: nn.Module) -> None:
    """Give matrices weights that keep the size of what they are given, so that every part of the model matters."""
    for weight in model.parameters():
        if weight.dim() >= 2:
            weight.normal_(std=weight.shape[-1] ** -0.5)


def _texts(config: PreTrainedConfig) -> tuple[tuple[int, ...], ...]:
    text: Any = config.get_text_config()
    most = min(int(text.vocab_size), _VOCABULARY)
    longest = max_sampled(config, 1) or _LENGTHS[0]
    draws = torch.randint(1 if most > 1 else 0, most, (len(_LENGTHS), _LENGTHS[0])).tolist()
    return tuple(tuple(draw[: min(length, longest)]) for draw, length in zip(draws, _LENGTHS, strict=True))


def _smaller(config: PreTrainedConfig, what: set[str]) -> PreTrainedConfig:
    """Return a copy of a configuration with some sizes made smaller."""
    changes: dict[str, Any] = {}
    for name, value in config.to_dict().items():
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        if "windows" in what and _WINDOWS.fullmatch(name) and value > _WINDOW:
            changes[name] = _WINDOW
        if "inner" in what and _INNER.fullmatch(name) and value > _WIDTH:
            changes[name] = _WIDTH
        if "experts" in what:
            changes |= _cut(name, value)
    if "layers" in what:
        changes |= _fewer_layers(config, least=2 if "depth" in what else _LAYERS)
    if "width" in what:
        changes |= _narrower(config)
    small = copy.deepcopy(config)
    for name, value in changes.items():
        setattr(small, name, value)
    return small


def _cut(name: str, value: int) -> dict[str, Any]:
    """Return what an entry of a configuration is changed to, for few experts and tokens."""
    if name in ("vocab_size", "vocab_size_per_layer_input"):
        return {name: min(value, _VOCABULARY)}
    if _TOKEN_IDS.fullmatch(name) and value >= _VOCABULARY:
        return {name: 0}
    if _NUM_EXPERTS.fullmatch(name):
        return {name: min(value, _EXPERTS)}
    if _NUM_CHOSEN.fullmatch(name):
        return {name: min(value, _EXPERTS // 2)}
    return {name: 1} if name in ("n_group", "topk_group") else {}


def _fewer_layers(config: PreTrainedConfig, least: int) -> dict[str, Any]:
    """Return the number of layers up to the first of each kind, and lists with an entry per layer cut to it."""
    num, lists = int(config.num_hidden_layers), {}
    for name, value in vars(config).items():
        if isinstance(value, list) and len(value) == num > len(set(map(str, value))):  # else numbers of some layers
            lists[name] = value
    kinds = [str(kind) for kind in zip(*lists.values(), strict=True)]
    kept = min(num, max([least, *(kinds.index(kind) + 1 for kind in kinds)]))
    blocks = {"num_blocks": kept} if hasattr(config, "num_blocks") else {}  # as xLSTM calls them
    return {"num_hidden_layers": kept, **blocks, **{name: value[:kept] for name, value in lists.items()}}


def _narrower(config: PreTrainedConfig) -> dict[str, Any]:
    """Return fewer heads, and the widths that go with them; a head is as wide as it was."""
    entries = config.to_dict()
    sizes = {name: size for name in _WIDTHS if (size := entries.get(name) or getattr(config, name, None))}
    common = gcd(*sizes.values())
    heads, least = (sizes["num_attention_heads"], 4) if "num_attention_heads" in sizes else (common, 16)
    factor = max(size for size in range(1, common + 1) if common % size == 0 and (size == 1 or heads // size >= least))
    heads_beside = {name: entries[name] for name in _HEADS_BESIDE if entries.get(name)}
    beside = max(1, gcd(*heads_beside.values()) // 2)
    return {name: size // factor for name, size in sizes.items()} | {
        name: number // beside for name, number in heads_beside.items()
    }
