from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from swerve import batch as batches
from swerve.batch import checked_head, completion_logits, token_batches
from swerve.errors import MismatchError

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
