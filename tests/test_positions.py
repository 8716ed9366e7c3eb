"""How long a text may be, and texts read with the rotary angles that transformers gives each of them alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import (
    BloomConfig,
    DeepseekV3Config,
    Gemma3Config,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    MptConfig,
    Olmo3Config,
    OPTConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
)

from swerve import probe
from swerve.batch import TokenSequence, checked_head, completion_hidden, token_batches
from swerve.config.runtime import RuntimeConfig
from swerve.positions import angles_of, max_positions, max_sampled
from swerve.train.columns import TokenTable, score_logprobs
from swerve.train.packed_rows import reads_packed_rows
from swerve.train.replicated_model import ReplicatedModel
from swerve.world import World
from tests.cases import each

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def _rope(kind: str, factor: float, original: int | None = None) -> dict[str, Any]:
    own = {} if original is None else {"original_max_position_embeddings": original}
    return {"rope_type": kind, "rope_theta": 1e4, "factor": factor, **own}


@each(
    ("config", "longest"),
    [
        (LlamaConfig(max_position_embeddings=4096), 4096),
        (LlamaConfig(max_position_embeddings=131072, rope_parameters={**_rope("llama3", 8.0), **LLAMA3}), 131072),
        (LlamaConfig(max_position_embeddings=4096, rope_parameters=_rope("linear", 4.0)), 16384),
        (LlamaConfig(max_position_embeddings=4096, rope_parameters=_rope("dynamic", 2.0)), 8192),
        (LlamaConfig(max_position_embeddings=2048, rope_parameters=_rope("yarn", 16.0)), 32768),
        (Qwen3Config(max_position_embeddings=40960, rope_parameters=_rope("yarn", 4.0, 32768)), 131072),
        (Qwen3Config(max_position_embeddings=32768, rope_parameters=_rope("yarn", 4.0, 32768)), 131072),
        (DeepseekV3Config(max_position_embeddings=163840, rope_parameters=_rope("yarn", 40.0, 4096)), 163840),
        (Olmo3Config(max_position_embeddings=65536, rope_parameters=_rope("yarn", 8.0, 8192)), 65536),
        (Gemma3TextConfig(max_position_embeddings=131072, rope_scaling={"rope_type": "linear", "factor": 8.0}), 131072),
        (Gemma3Config(text_config={"max_position_embeddings": 512}), 512),
        (GPT2Config(n_positions=1024), 1024),
        (OPTConfig(max_position_embeddings=2048), 2048),
        (MptConfig(max_seq_len=2048), 2048),
        (BloomConfig(), None),
    ],
)
def test_what_is_stretched_already_is_not_multiplied(config: PreTrainedConfig, longest: int | None) -> None:
    assert max_positions(config) == longest


def test_a_completion_ends_before_the_angles_change(longrope: PreTrainedModel) -> None:
    phi, llama = longrope.config, LlamaConfig(max_position_embeddings=64, rope_parameters=_rope("dynamic", 2.0))
    assert [max_sampled(phi, length) for length in (1, 32, 33, 128)] == [32, 32, 128, 128]
    assert [max_sampled(llama, length) for length in (1, 64, 65)] == [64, 64, 65]
    assert [angles_of(phi, length) for length in (1, 32, 33, 128)] == [(0,), (0,), (1,), (1,)]
    assert [angles_of(llama, length) for length in (1, 64, 65, 66)] == [(0,), (0,), (1,), (2,)]
    assert max_sampled(BloomConfig(), 9) is None
    assert angles_of(GPT2Config(), 9) == ()


@pytest.fixture(scope="module")
def dynamic(longrope: PreTrainedModel) -> PreTrainedModel:
    sizes = {name: getattr(longrope.config, name) for name in ("vocab_size", "hidden_size", "intermediate_size")}
    config = LlamaConfig(
        **sizes,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
        rope_parameters={**_rope("dynamic", 4.0), "rope_theta": 100.0},
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model


def _ids(number: int) -> list[int]:
    return torch.randint(3, 23, (number,), generator=torch.Generator().manual_seed(number)).tolist()


SEQUENCES: list[TokenSequence] = [
    (_ids(5), _ids(10)),
    (_ids(20), _ids(60)),
    (_ids(9), _ids(8)),
    (_ids(9), _ids(59)),
    (_ids(16), _ids(16)),
    (_ids(16), _ids(17)),
    (_ids(9), _ids(7)),
]
"""On both sides of 32 tokens, two of them next to it; three share a prompt."""


def _alone(model: PreTrainedModel, sequence: TokenSequence) -> torch.Tensor:
    """Return what transformers gives a completion's tokens, in float64 and from a model that has read nothing else."""
    prompt, completion = sequence
    wide = copy.deepcopy(model).double()
    with torch.no_grad():
        logits = wide(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(completion)[:, None])[:, 0]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["longrope", "dynamic"])
def test_a_texts_states_and_gradients_do_not_depend_on_its_neighbours(
    request: pytest.FixtureRequest, name: str, packed: bool
) -> None:
    fresh = request.getfixturevalue(name)
    expected = torch.cat([_alone(fresh, one) for one in SEQUENCES])
    model = copy.deepcopy(fresh).double()
    head = checked_head(model)
    assert reads_packed_rows(model, head)
    (batch,) = token_batches(SEQUENCES, pad_id=0, packed=packed, in_order=True)
    ids = batch.completion_ids[batch.mask][:, None]

    def gradients(batches: Any) -> tuple[torch.Tensor, torch.Tensor]:
        model.zero_grad()
        for one in batches:
            states = completion_hidden(model, one, head)
            states.sin().sum().backward()
        return states.detach(), torch.cat([parameter.grad.flatten() for parameter in model.model.parameters()])

    states, together = gradients([batch])
    logprobs = torch.log_softmax(head(states), -1).gather(1, ids)[:, 0]
    assert logprobs.tolist() == pytest.approx(expected.tolist(), abs=1e-9)
    _, apart = gradients(token_batches(SEQUENCES, pad_id=0, packed=packed, tokens_per_batch=1))
    assert torch.allclose(together, apart, rtol=1e-6, atol=1e-6 * float(apart.abs().max()))


@pytest.mark.parametrize("rows", ["padded", "packed"])
def test_logprobs_of_the_trainer_are_those_of_each_text_alone(longrope: PreTrainedModel, rows: str) -> None:
    """The policy's, a reference's and a teacher's are all read in this way."""
    weights = ReplicatedModel(copy.deepcopy(longrope), World(), runtime=RuntimeConfig(rows=rows))
    table = TokenTable.of(SEQUENCES)
    batches = token_batches(SEQUENCES, pad_id=0, packed=weights.packs)
    assert weights.packs == (rows == "packed")
    assert len(batches) == 1
    found = score_logprobs(weights, batches, table, temperature=1.0)[table.mask]
    expected = torch.cat([_alone(longrope, one) for one in SEQUENCES])
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-5)


def test_the_probe_gives_a_text_the_same_numbers_beside_a_long_one(longrope: PreTrainedModel) -> None:
    other = copy.deepcopy(longrope)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.1)
    found, alone = (probe(longrope, other, some) for some in (SEQUENCES, SEQUENCES[:1]))
    assert found.logprob_ref.tolist() == pytest.approx(
        torch.cat([_alone(longrope, one) for one in SEQUENCES]).tolist(), abs=1e-5
    )
    assert found.js[: len(alone.js)].tolist() == pytest.approx(alone.js.tolist(), abs=1e-6)


def test_packed_rows_are_tried_on_both_sides(longrope: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = set()
    model = copy.deepcopy(longrope)
    model.model.rotary_emb.register_forward_pre_hook(
        lambda _module, _inputs, given: lengths.add(int(given["position_ids"].max()) + 1), with_kwargs=True
    )
    assert reads_packed_rows(model, checked_head(model))
    assert min(lengths) < 32 < max(lengths)
