from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import (
    AutoModelForCausalLM,
    DeepseekV32Config,
    DogeConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GptOssConfig,
    Lfm2Config,
    LlamaConfig,
    MistralConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from benchmarks.update import LENGTHS, row_places, sequences
from swerve import batch as batches
from swerve.batch import checked_head, completion_hidden, completion_logits, empty_batch, token_batches
from swerve.errors import ConfigError, MismatchError
from swerve.models import packed_attention
from swerve.models.head import model_head
from swerve.models.packed_attention import NAME
from swerve.train.packed_rows import reads_packed_rows

WINDOWED = ["sliding_attention", "full_attention"]
SEQUENCES = [([5, 6], [7, 8, 9]), ([4], [7]), ([4, 5, 6], [9, 9])]


def test_prompts_end_and_completions_begin_at_one_column():
    (batch,) = token_batches(SEQUENCES, pad_id=0, in_order=True)
    assert batch.input_ids.tolist() == [[0, 5, 6, 7, 8, 9], [0, 0, 4, 7, 0, 0], [4, 5, 6, 9, 9, 0]]
    assert batch.position_ids.tolist() == [[0, 0, 1, 2, 3, 4], [0, 0, 0, 1, 1, 1], [0, 1, 2, 3, 4, 4]]
    assert batch.completion_ids.tolist() == [[7, 8, 9], [7, 0, 0], [9, 9, 0]]
    assert batch.mask.tolist() == [[True, True, True], [True, False, False], [True, True, False]]
    assert (batch.prompt_width, batch.rows) == (3, (0, 1, 2))


def test_budget_counts_padded_tokens_and_rows_name_the_sequences():
    batches = token_batches(SEQUENCES, pad_id=0, tokens_per_batch=9)
    assert [batch.rows for batch in batches] == [(1,), (0,), (2,)]
    assert [batch.rows for batch in token_batches(SEQUENCES, pad_id=0, tokens_per_batch=10)] == [(1, 0), (2,)]


def test_a_head_whose_logits_are_not_the_models_is_refused_and_dropout_is_no_difference(tiny, monkeypatch):
    model = copy.deepcopy(tiny[0]).train()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    head = checked_head(model)
    assert model.training
    assert head.vocabulary_size == 11
    monkeypatch.setattr(batches, "model_head", lambda _model: replace(head, multiplier=1.01))
    with pytest.raises(MismatchError, match="Qwen3ForCausalLM turns hidden states into logits in a way that is not"):
        checked_head(model)


def test_a_sequence_over_the_budget_gets_its_own_batch():
    assert [batch.rows for batch in token_batches(SEQUENCES, pad_id=0, tokens_per_batch=1)] == [(1,), (0,), (2,)]


def test_no_sequences_make_no_batches():
    assert token_batches([], pad_id=0) == []


@pytest.mark.parametrize(("sequence", "what"), [(([], [1]), "prompt"), (([1], []), "completion")])
def test_empty_sides_are_refused(sequence, what):
    with pytest.raises(ValueError, match=f"sequence 0 has an empty {what}"):
        token_batches([sequence], pad_id=0)


def test_logits_predict_the_completion_token_at_their_position(tiny):
    """Against the plain definition: the row of an unpadded forward pass just before each completion token."""
    model, _ = tiny
    with torch.inference_mode():
        for batch in token_batches(SEQUENCES, pad_id=0, tokens_per_batch=14):
            logits = completion_logits(model, batch)
            for index, row in enumerate(batch.rows):
                prompt, completion = SEQUENCES[row]
                full = model(torch.tensor([prompt + completion])).logits[0]
                for position in range(len(completion)):
                    expected = full[len(prompt) + position - 1]
                    assert torch.allclose(logits[index, position], expected, atol=1e-5)


def test_a_batch_without_a_completion_is_read_and_has_no_states(tiny):
    model = copy.deepcopy(tiny[0])
    hidden = completion_hidden(model, empty_batch(pad_id=3), model_head(model))
    assert hidden.shape == (0, 32)
    hidden.sum().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert gradients
    assert not any(gradient.any() for gradient in gradients)


def test_a_packed_row_has_no_padding_and_a_repeated_prompt_once():
    sequences = [([4, 5], [7, 8, 9]), ([4, 5], [6]), ([5], [9, 9])]
    (batch,) = token_batches(sequences, pad_id=0, packed=True)
    assert batch.input_ids.tolist() == [[4, 5, 7, 8, 9, 6, 5, 9, 9]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 4, 2, 0, 1, 2]]
    assert batch.predicts.tolist() == [1, 2, 3, 1, 6, 7]
    assert batch.completion_ids.tolist() == [[7, 8, 9], [6, 0, 0], [9, 9, 0]]
    budgets = {8: [(0, 1), (2,)], 9: [(0, 1, 2)], 5: [(0,), (1,), (2,)]}
    for tokens, rows in budgets.items():
        found = token_batches(sequences, pad_id=0, packed=True, tokens_per_batch=tokens)
        assert [one.rows for one in found] == rows
    (first, second) = token_batches([*sequences, ([1], [1])], pad_id=0, packed=True, tokens_per_batch=1, together=2)
    assert (first.rows, second.rows) == ((0, 1), (2, 3))
    again = batch.padded()
    assert again.input_ids.tolist() == [[4, 5, 7, 8, 9], [4, 5, 6, 0, 0], [0, 5, 9, 9, 0]]
    assert again.rows == batch.rows


def test_what_sequences_of_a_packed_row_begin_with_is_there_once():
    sequences = [
        ([4, 5], [7, 8, 9]),
        ([4], [5, 7, 6]),  # another prompt, and another last token
        ([4, 5], [7, 8, 9]),
        ([4, 5, 7], [8]),
        ([5], [7]),
    ]
    (batch,) = token_batches(sequences, pad_id=0, packed=True)
    assert batch.input_ids.tolist() == [[4, 5, 7, 8, 9, 6, 5, 7]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 4, 3, 0, 1]]
    assert batch.predicts.tolist() == [1, 2, 3, 0, 1, 2, 1, 2, 3, 2, 6]
    assert batch.completion_ids.tolist() == [[7, 8, 9], [5, 7, 6], [7, 8, 9], [8, 0, 0], [7, 0, 0]]
    (block,) = batch.packed_row.blocks
    assert block.shape == (3, 5)  # what is there already is not attended to again
    assert [one.rows for one in token_batches(sequences, pad_id=0, packed=True, tokens_per_batch=9)] == [
        (0, 1),  # the budget is for whole completions
        (2, 3),
        (4,),
    ]


EXPERTS = {"num_experts": 4, "moe_intermediate_size": 16}
ARCHITECTURES = {
    "llama": (LlamaConfig, {}, True),
    "qwen3": (Qwen3Config, {"head_dim": 8}, True),
    "window": (MistralConfig, {"sliding_window": 3}, True),
    "windows": (Gemma3TextConfig, {"sliding_window": 3, "head_dim": 8, "layer_types": WINDOWED}, True),
    "experts": (Qwen3MoeConfig, {"head_dim": 8, "num_experts_per_tok": 2, **EXPERTS}, True),
    "soft caps": (Gemma2Config, {"head_dim": 8, "attn_logit_softcapping": 2.0}, False),
    "sinks": (GptOssConfig, {"head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1}, False),
    "convolutions": (Lfm2Config, {"layer_types": ["conv", "full_attention"]}, False),
    "learned masks": (DogeConfig, {}, False),  # all of one value at first: only their gradient tells
    "index": (
        DeepseekV32Config,  # which takes every token of a text of the trial
        {
            **{"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8},
            **{"num_key_value_heads": 2, "index_n_heads": 2, "index_head_dim": 8, "mlp_layer_types": ["dense"] * 2},
        },
        False,
    ),
}


SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


def _model(name):
    kind, keys, _ = ARCHITECTURES[name]
    torch.manual_seed(0)
    config = kind(**{"vocab_size": 12, "pad_token_id": 0, "num_key_value_heads": 1, **SIZES, **keys})
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def _states_and_gradients(model, head):
    """Of padded and of packed rows of the same sequences, some with a prompt or the start of a completion in common."""
    generator = torch.Generator().manual_seed(1)
    sequences = [
        ([1 + group] * (1 + group), torch.randint(12, (1 + 13 * sample + group,), generator=generator).tolist())
        for group in range(3)
        for sample in range(3)
    ]
    long = sequences[-1]
    sequences += [(long[0], [*long[1][:20], 5, 6]), long, (long[0], long[1][:9]), ([3], [*long[0][1:], *long[1][:30]])]
    for packed in (False, True):
        (batch,) = token_batches(sequences, pad_id=0, in_order=True, packed=packed)
        hidden = completion_hidden(model, batch, head)
        yield [hidden, *torch.autograd.grad(hidden.sin().sum(), [p for p in model.model.parameters() if p.dim() == 2])]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_packed_rows_give_the_states_and_gradients_of_padded_ones_or_are_not_used(name):
    packs, model = ARCHITECTURES[name][-1], _model(name)
    head = checked_head(model)
    before = model.config._attn_implementation
    assert reads_packed_rows(model, head) is packs
    assert reads_packed_rows(model, head) is packs  # the next stage asks again
    assert model.config._attn_implementation == (NAME if packs else before)
    if not packs:
        return
    for one, other in zip(*_states_and_gradients(model, head), strict=True):
        assert float((one - other).detach().abs().max() / one.detach().abs().max()) < 1e-5


def test_a_processor_reads_rows_of_few_lengths():
    model = _model("llama")
    head = checked_head(model)
    assert reads_packed_rows(model, head)
    read = []
    model.get_input_embeddings().register_forward_hook(lambda module, inputs, output: read.append(inputs[0].shape[1]))
    for length in range(60, 70):
        (batch,) = token_batches([([1, 2], [3] * 60), ([1, 2], [4] * length)], pad_id=0, packed=True)
        completion_hidden(model, batch, head)
        assert batch.input_ids.shape == (1, 62 + length)  # what is counted has no padding
    assert read == [122, 123, 124, 125, 126, 127, 128, 130, 130, 132]


def _flash(module, query, key, value, attention_mask, *, scaling, sliding_window=None, cu_seq_lens_q=None, **_kwargs):
    """What flash attention gives, by its definition."""
    place = torch.arange(query.shape[2])
    distance = place[:, None] - place
    allowed = (distance >= 0) & (distance < (sliding_window or len(place)))
    if cu_seq_lens_q is not None:
        sequence = torch.searchsorted(cu_seq_lens_q, place, right=True)
        allowed = allowed & (sequence[:, None] == sequence)
    if attention_mask is not None:
        allowed = allowed & attention_mask[:, None, None].bool() | (distance == 0)
    attended = scaled_dot_product_attention(query, key, value, attn_mask=allowed, scale=scaling, enable_gqa=True)
    return attended.transpose(1, 2), None


@pytest.mark.parametrize("name", ["llama", "windows", "experts"])
def test_flash_attention_reads_packed_rows_with_the_prompt_once(name, monkeypatch):
    monkeypatch.setattr(packed_attention, "flash_attention_forward", _flash)
    model = _model(name)
    expected = next(_states_and_gradients(model, checked_head(model)))
    model.config._attn_implementation = "flash_attention_2"
    head = checked_head(model)
    assert reads_packed_rows(model, head)
    for found in _states_and_gradients(model, head):
        for one, other in zip(found, expected, strict=True):
            assert float((one - other).detach().abs().max() / other.detach().abs().max()) < 1e-5


def test_attention_that_is_not_here_is_one_line(monkeypatch):
    model = _model("sinks")
    packed_attention.use_attention(model, "eager")
    with pytest.raises(ConfigError, match=r"model.attention=sdpa: GptOssForCausalLM .*; use auto or sdpa"):
        packed_attention.use_attention(model, "sdpa")
    for version, package in ((2, "flash-attn"), (3, "flash_attn_interface")):
        monkeypatch.setitem(packed_attention._FLASH, f"flash_attention_{version}", lambda: False)
        with pytest.raises(ConfigError, match=f"_{version}: it needs a CUDA device and the package {package}"):
            packed_attention.use_attention(model, f"flash_attention_{version}")


@pytest.mark.parametrize("name", ["GSM8K-like", "K&K-like"])
def test_rows_of_a_whole_step_have_hardly_more_places_than_tokens(name: str) -> None:
    found = row_places(name, sequences(LENGTHS[name]), tokens=16_384)
    assert found["packed_alone"] == 1.0  # each with its own prompt
    assert 1.0 <= found["attended"] <= 1.10  # side by side
    assert found["packed"] < 0.8  # a group's prompt once
