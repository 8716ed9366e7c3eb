"""Layers in place of a model's own: the same numbers and gradients, and less kept for them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, Gemma3TextConfig, Qwen3Config
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from swerve.models import fast_layers
from swerve.models.fast_layers import attention, linear, use_fast_layers


def _gradients(output: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Return the output and the gradients of something that weighs all of its numbers differently."""
    return [output.detach(), *torch.autograd.grad(output.double().sin().sum(), inputs)]


@contextmanager
def _keeping() -> Iterator[list[Tensor]]:
    """Collect what is kept for the backward pass."""
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept


@pytest.mark.parametrize(("outputs", "inputs"), [(64, 128), (128, 64)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_large_product_and_its_gradients_are_those_of_torch(outputs: int, inputs: int, has_bias: bool) -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(2, 130, inputs), torch.randn(outputs, inputs), *([torch.randn(outputs)] * has_bias)]
    wide, narrow = ([one.to(dtype).requires_grad_() for one in tensors] for dtype in (torch.float64, torch.float32))
    found = linear(*narrow)
    assert not fast_layers._HAS_ONEDNN or "_Linear" in str(found.grad_fn.next_functions)
    expected = _gradients(nn.functional.linear(*wide), wide)
    for one, other in zip(_gradients(found, narrow), expected, strict=True):
        assert one.dtype == torch.float32
        assert float((one - other).norm() / other.norm()) < 1e-5
    with torch.no_grad():
        torch.testing.assert_close(linear(*narrow), found.detach())
    frozen = linear(narrow[0], *(one.detach() for one in narrow[1:]))
    torch.testing.assert_close(_gradients(frozen, narrow[:1])[1], _gradients(linear(*narrow), narrow[:1])[1])


def test_a_large_product_may_be_changed_in_place() -> None:
    """As the code of Gemma 3n does."""
    states, weight = torch.randn(2, 130, 128), torch.ones(64, 128, requires_grad=True)
    product = linear(states, weight)
    product *= 3.0
    product.sum().backward()
    torch.testing.assert_close(weight.grad, 3.0 * states.sum((0, 1)).expand(64, 128), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("kind", "num_norms"), [(Qwen3Config, 9), (Gemma3TextConfig, 0)])
def test_norms_of_llamas_code_are_replaced_and_a_copy_has_weights_of_its_own(kind: Any, num_norms: int) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    model: Any = AutoModelForCausalLM.from_config(
        kind(vocab_size=12, num_key_value_heads=1, head_dim=8, pad_token_id=0, **sizes), dtype=torch.float32
    )
    for parameter in model.parameters():
        parameter.data.add_(torch.randn(parameter.shape), alpha=0.1)
    other = copy.deepcopy(model)
    use_fast_layers(other)
    copied = copy.deepcopy(other)
    for parameter in other.parameters():
        parameter.data.zero_()
    assert sum("forward" in vars(one) and hasattr(one, "variance_epsilon") for one in copied.modules()) == num_norms
    ids = torch.tensor([[1, 5, 7, 2, 9]])
    expected, found = (_gradients(one(ids).logits, list(one.parameters())) for one in (model, copied))
    for one, other in zip(found, expected, strict=True):
        assert float((one - other).norm() / other.norm()) < 1e-5


def test_a_norm_in_bfloat16_keeps_its_input_and_a_number_per_token() -> None:
    torch.manual_seed(0)
    wide = LlamaRMSNorm(32)
    wide.weight.data.uniform_(0.5, 2.0)
    narrow = copy.deepcopy(wide).bfloat16()
    narrow.load_state_dict(wide.bfloat16().state_dict())
    wide.double()
    use_fast_layers(narrow)
    states = torch.randn(3, 50, 32).bfloat16().requires_grad_()
    with _keeping() as kept:
        found = narrow(states)
    assert sorted(one.numel() * one.element_size() for one in kept) == [32 * 2, 150 * 4, 150 * 32 * 2]
    again = states.detach().double().requires_grad_()
    expected = _gradients(wide(again), [again, wide.weight])
    for one, other in zip(_gradients(found, [states, narrow.weight]), expected, strict=True):
        assert one.dtype == torch.bfloat16
        assert float((one - other).norm() / other.norm()) < 0.01


@pytest.mark.parametrize("num_keys", [1, 2, 4])
@pytest.mark.parametrize("window", [None, 5])
def test_attention_in_bfloat16_is_no_less_exact_than_torchs(
    num_keys: int, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against float64; and for the backward pass nothing is kept but its inputs."""
    torch.manual_seed(0)
    heads = (4, num_keys, num_keys)
    narrow = [2 * torch.randn(7, num, 40, 16).transpose(1, 2).contiguous().transpose(1, 2) for num in heads]
    narrow = [states.bfloat16().requires_grad_() for states in narrow]
    wide = [states.detach().double().requires_grad_() for states in narrow]
    place = torch.arange(40)
    distance = place[:, None] - place
    allowed = None if window is None else (distance >= 0) & (distance < window)

    expected = _gradients(attention(*wide, scaling=0.3, allowed=allowed), wide)

    def errors() -> tuple[int, list[float]]:
        with _keeping() as kept:
            output = attention(*narrow, scaling=0.3, allowed=allowed)
        found = _gradients(output, narrow)
        assert all(one.dtype == torch.bfloat16 for one in found)
        num_kept = sum(one.numel() for one in kept)
        return num_kept, [
            float((one - other).norm() / other.norm()) for one, other in zip(found, expected, strict=True)
        ]

    monkeypatch.setattr(fast_layers, "_SCORES", 3 * 40 * 40 * 4 // num_keys)  # several parts, the last of them smaller
    num_kept, own = errors()
    assert num_kept == sum(one.numel() for one in narrow) + 40 * 40 * 4 // num_keys
    assert max(own) < 2**-7
    monkeypatch.setattr(fast_layers, "_SHORT", 39)
    num_of_torch, theirs = errors()
    assert num_of_torch != num_kept
    assert sum(own) < 1.1 * sum(theirs)
