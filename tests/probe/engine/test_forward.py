from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, CohereConfig, Gemma2Config, GraniteConfig, LlamaConfig, Qwen3Config

from swerve.errors import MismatchError
from swerve.models.head import Head, model_head
from swerve.models.model_folder import LoadedModel
from swerve.models.tiny import build_word_tokenizer
from swerve.probe.engine.forward import (
    checked_model_head,
    compare_positions,
    forced_states,
    pair_statistics,
    rebatched_hidden,
    unit_hidden,
)

WORDS = [str(digit) for digit in range(10)]
TOKENIZER = build_word_tokenizer(WORDS)
EOS = TOKENIZER.eos_token_id
X = 13  # the token whose embedding the two models of a pair do not share
SIZES: dict[str, Any] = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
    "pad_token_id": TOKENIZER.pad_token_id,
    "bos_token_id": TOKENIZER.bos_token_id,
    "eos_token_id": EOS,
}
SEQUENCES = [
    ((1, 4, 5), (6, 7, 8, EOS)),
    ((1, 9), (10, 11, 12, 4, 5, 6, 7, EOS)),
    ((1, 5, 6, 7, 8, 9, 10), (EOS,)),
]


def build(config: type = Qwen3Config, *, seed: int = 0, **options: Any) -> LoadedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config(**{**SIZES, **options})).eval()
    return LoadedModel(model=model, tokenizer=TOKENIZER)


def perturbed(loaded: LoadedModel, amount: float, *, seed: int = 1) -> LoadedModel:
    model, generator = copy.deepcopy(loaded.model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter) * amount)
    return LoadedModel(model=model, tokenizer=loaded.tokenizer)


def divergence(p: LoadedModel, q: LoadedModel, sequences: list[Any], *, tokens_per_batch: int = 4096) -> Any:
    ids = torch.tensor([token for _, completion in sequences for token in completion])
    states = [
        forced_states(one, sequences, label=label, tokens_per_batch=tokens_per_batch)
        for one, label in ((p, "rl-1"), (q, "dpo-1"))
    ]
    return compare_positions(*states, ids, tokens_per_chunk=3)


def pair_that_differs_at(token: int) -> tuple[LoadedModel, LoadedModel]:
    """Two models without attention, so each prediction depends on the previous token alone; only `token` differs."""
    reference = build(LlamaConfig, num_hidden_layers=1, tie_word_embeddings=False)
    with torch.no_grad():
        reference.model.model.layers[0].self_attn.o_proj.weight.zero_()
    checkpoint = copy.deepcopy(reference.model)
    with torch.no_grad():
        checkpoint.model.embed_tokens.weight[token] += 1.0
    return LoadedModel(model=checkpoint, tokenizer=TOKENIZER), reference


@pytest.mark.parametrize(
    ("prompt", "completion", "changed"),
    [
        ((1, 4), (5, X, 6, 7, EOS), [2]),  # the token after X
        ((1, X), (5, 6, 7, EOS), [0]),  # X ends the prompt: the first completion token
        ((X, 4), (5, 6, EOS), []),  # what X predicts is a prompt token, which is not measured
        ((1, 4), (5, 6, X, EOS), [3]),  # the end-of-sequence token is a position
        ((1, 4), (5, 6, X), []),  # nothing comes after the last token
        ((1, 4), (X,), []),
        ((1, X), (X, X, 5), [0, 1, 2]),
    ],
)
def test_divergence_falls_exactly_on_the_token_that_is_predicted(
    prompt: tuple[int, ...], completion: tuple[int, ...], changed: list[int]
) -> None:
    checkpoint, reference = pair_that_differs_at(X)
    longer = ((1, 4, 5, 6, 7), (8, 9, 10, 11, 12, 4, 5, 6))  # pads the other sequence on both sides
    for sequences in ([(prompt, completion)], [longer, (prompt, completion)]):
        stats = divergence(checkpoint, reference, sequences)
        offset = sum(len(ids) for _, ids in sequences[:-1])
        assert len(stats.js) == offset + len(completion)
        for name in ("kl_forward", "kl_reverse", "js"):
            values = getattr(stats, name)
            assert torch.equal(values[:offset], torch.zeros(offset))
            assert [index for index, value in enumerate(values[offset:].tolist()) if value != 0.0] == changed, name
        assert bool((stats.js[offset:][changed] > 1e-3).all())


def test_agrees_end_to_end_with_a_float64_oracle() -> None:
    reference = build()
    reference.model.double()
    checkpoint = perturbed(reference, 0.05)
    stats = divergence(checkpoint, reference, SEQUENCES)
    offset = 0
    for prompt, completion in SEQUENCES:
        logprobs = []
        for one in (checkpoint, reference):
            with torch.no_grad():
                logits = one.model(torch.tensor([[*prompt, *completion]])).logits[0]
            logprobs.append(torch.log_softmax(logits[len(prompt) - 1 : -1], dim=-1))
        part = slice(offset, offset + len(completion))
        for name, expected in oracle(*logprobs, torch.tensor(completion)).items():
            torch.testing.assert_close(getattr(stats, name)[part].double(), expected, rtol=0.0, atol=1e-6)
        offset += len(completion)
    assert float(stats.kl_forward.min()) > 1e-4


def oracle(p: Tensor, q: Tensor, ids: Tensor) -> dict[str, Tensor]:
    m = torch.logaddexp(p, q) - math.log(2)

    def kl(a: Tensor, b: Tensor) -> Tensor:
        return (a.exp() * (a - b)).sum(-1)

    def rank(logprobs: Tensor) -> Tensor:
        order = logprobs.argsort(dim=-1, descending=True)
        return 1 + (order == ids[:, None]).double().argmax(dim=-1).double()

    return {
        "kl_forward": kl(p, q),
        "kl_reverse": kl(q, p),
        "js": (kl(p, m) + kl(q, m)) / 2,
        "entropy": -(p.exp() * p).sum(-1),
        "entropy_ref": -(q.exp() * q).sum(-1),
        "logprob": p[torch.arange(len(ids)), ids],
        "logprob_ref": q[torch.arange(len(ids)), ids],
        "rank": rank(p),
        "rank_ref": rank(q),
        "argmax": p.argmax(-1).double(),
        "argmax_ref": q.argmax(-1).double(),
    }


def test_batching_padding_and_order_do_not_matter() -> None:
    reference = build()
    checkpoint = perturbed(reference, 0.05)
    together = divergence(checkpoint, reference, SEQUENCES)
    alone = [divergence(checkpoint, reference, [sequence]) for sequence in SEQUENCES]
    backwards = divergence(checkpoint, reference, SEQUENCES[::-1], tokens_per_batch=1)
    for name in ("kl_forward", "js", "entropy", "logprob"):
        parts = [getattr(one, name) for one in alone]
        torch.testing.assert_close(getattr(together, name), torch.cat(parts), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(getattr(backwards, name), torch.cat(parts[::-1]), rtol=1e-4, atol=1e-6)


def test_the_same_model_twice_has_no_divergence() -> None:
    model = build()
    stats = divergence(model, model, SEQUENCES)
    assert torch.equal(stats.kl_forward, torch.zeros(13))
    assert torch.equal(stats.js, torch.zeros(13))


POSTPROCESSED = [
    (Gemma2Config, {"final_logit_softcapping": 2.0}),
    (CohereConfig, {"logit_scale": 0.25}),
    (GraniteConfig, {"logits_scaling": 4.0}),
    (LlamaConfig, {"tie_word_embeddings": True}),
]


@pytest.mark.parametrize(("config", "options"), POSTPROCESSED, ids=lambda value: getattr(value, "__name__", ""))
def test_logits_formed_from_hidden_states_are_the_models_own(config: type, options: dict[str, Any]) -> None:
    loaded = build(config, **options)
    states = forced_states(loaded, SEQUENCES, label="m", tokens_per_batch=4096)
    prompt, completion = SEQUENCES[1]
    with torch.no_grad():
        own = loaded.model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
    torch.testing.assert_close(states.head(states.hidden[4:12]), own, rtol=1e-4, atol=1e-5)


def test_unknown_treatment_of_logits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = build(Gemma2Config, final_logit_softcapping=2.0)
    wrong = model_head(loaded.model)
    monkeypatch.setattr(
        "swerve.probe.engine.forward.model_head", lambda model: type(wrong)(projection=wrong.projection)
    )
    with pytest.raises(MismatchError, match="Gemma2ForCausalLM turns hidden states into logits in a way"):
        forced_states(loaded, SEQUENCES, label="m", tokens_per_batch=4096)


def test_bfloat16_models_get_float32_logits() -> None:
    reference = build()
    reference.model.bfloat16()
    checkpoint = perturbed(reference, 0.02)
    stats = divergence(checkpoint, reference, SEQUENCES)
    logprobs = []
    for one in (checkpoint, reference):
        states = forced_states(one, SEQUENCES, label="m", tokens_per_batch=4096)
        assert states.hidden.dtype == torch.bfloat16
        exact = states.hidden.double() @ one.model.lm_head.weight.detach().double().T
        logprobs.append(torch.log_softmax(exact, dim=-1))
    ids = torch.tensor([token for _, completion in SEQUENCES for token in completion])
    expected = oracle(*logprobs, ids)
    for name in ("kl_forward", "kl_reverse", "js", "entropy", "logprob"):
        torch.testing.assert_close(getattr(stats, name).double(), expected[name], rtol=1e-4, atol=1e-6)


def test_top_tokens_match_the_models_distribution() -> None:
    loaded = build()
    states = forced_states(loaded, SEQUENCES, label="m", tokens_per_batch=64)
    both = (states.hidden, states.hidden, states.head, states.head)
    top = pair_statistics(*both, IDS, vocabulary_size=14, tokens_per_chunk=5, top_k=3).top
    prompt, completion = SEQUENCES[1]
    with torch.no_grad():
        logits = loaded.model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
    expected = torch.softmax(logits, dim=-1).topk(3)
    torch.testing.assert_close(top.probs[4:12], expected.values, rtol=1e-4, atol=1e-6)
    assert torch.equal(top.ids[4:12].long(), expected.indices)


def test_other_vocabulary_or_tokenizer_is_refused_by_name() -> None:
    reference = forced_states(build(), SEQUENCES, label="dpo-8", tokens_per_batch=64)
    larger = forced_states(build(vocab_size=20), SEQUENCES, label="rl-5", tokens_per_batch=64)
    ids = torch.zeros(13, dtype=torch.long)
    with pytest.raises(MismatchError, match="rl-5 has a vocabulary of 20 tokens and dpo-8 one of 14"):
        compare_positions(larger, reference, ids, tokens_per_chunk=8)
    other = build()
    renamed = LoadedModel(model=other.model, tokenizer=build_word_tokenizer(list("abcdefghij")))
    with pytest.raises(MismatchError, match="the tokenizers of rl-5 and dpo-8 differ"):
        compare_positions(
            forced_states(renamed, SEQUENCES, label="rl-5", tokens_per_batch=64), reference, ids, tokens_per_chunk=8
        )


def test_no_logits_are_formed_while_hidden_states_are_collected() -> None:
    loaded = build()
    rows: list[int] = []
    loaded.model.lm_head.register_forward_hook(lambda module, args, output: rows.append(output[..., 0].numel()))
    forced_states(loaded, SEQUENCES, label="m", tokens_per_batch=4096)
    assert rows[0] == rows[2] == 4  # one short sequence, to compare with the model's own logits
    assert rows[1] == 0
    assert rows[3:] == [0]


def test_a_long_sequence_is_not_used_whole_to_check_the_head() -> None:
    loaded = build()
    rows: list[int] = []
    loaded.model.lm_head.register_forward_hook(lambda module, args, output: rows.append(output[..., 0].numel()))
    checked_model_head(loaded, ([4] * 40, [5] * 20))
    assert rows[0] == 8


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_rebatched_run_returns_the_same_states_in_the_same_order(count: int) -> None:
    loaded = build()
    head = model_head(loaded.model)
    once, again = (run(loaded, head, SEQUENCES[:count]) for run in (unit_hidden, rebatched_hidden))
    lengths = [len(completion) for _, completion in SEQUENCES[:count]]
    assert once.shape == (sum(lengths), 16)
    torch.testing.assert_close(once, again, rtol=1e-4, atol=1e-5)
    alone = [unit_hidden(loaded, head, [sequence]) for sequence in SEQUENCES[:count]]
    torch.testing.assert_close(once, torch.cat(alone), rtol=1e-4, atol=1e-5)


class Halved(torch.nn.Linear):
    """A head that is not what its weight says, as a quantised or adapted one."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) / 2


def heads_and_states() -> tuple[list[Head], list[Tensor]]:
    models = [build(tie_word_embeddings=False, seed=seed) for seed in (0, 1)]
    heads = [model_head(one.model) for one in models]
    return heads, [unit_hidden(one, head, SEQUENCES) for one, head in zip(models, heads, strict=True)]


IDS = torch.tensor([token for _, completion in SEQUENCES for token in completion])


def test_a_head_with_a_forward_of_its_own_is_not_taken_for_its_weight() -> None:
    heads, states = heads_and_states()
    special = Halved(16, 14, bias=False)
    special.weight = heads[0].projection.weight
    assert Head(projection=special).linear() is None
    linear = heads[0].linear()
    assert linear is not None
    assert linear.weight is not None
    assert not linear.weight.requires_grad
    halves = Head(projection=heads[0].projection, multiplier=0.5)
    options: dict[str, Any] = {"vocabulary_size": 14, "tokens_per_chunk": 5, "top_k": 3}
    found = pair_statistics(*states, Head(projection=special), heads[1], IDS, **options)
    expected = pair_statistics(*states, halves, heads[1], IDS, **options)
    for name in ("kl_forward", "kl_reverse", "js", "entropy", "entropy_ref", "logprob", "logprob_ref", "rank"):
        torch.testing.assert_close(getattr(found.stats, name), getattr(expected.stats, name), rtol=1e-4, atol=1e-6)
    for one, other in ((found.top, expected.top), (found.top_ref, expected.top_ref)):
        assert one is not None
        assert other is not None
        assert torch.equal(one.ids, other.ids)
        torch.testing.assert_close(one.probs, other.probs)
    assert found.top is not None
    assert found.top_ref is not None
    assert not torch.equal(found.top.ids, found.top_ref.ids)


@pytest.mark.parametrize("special", [False, True])
def test_tokens_beyond_the_vocabulary_take_no_part(special: bool) -> None:
    heads, states = heads_and_states()
    if special:
        projection = Halved(16, 14, bias=False)
        projection.weight = heads[0].projection.weight
        heads[0] = Head(projection=projection, multiplier=2.0)
    logits = [states[index].double() @ head.projection.weight.detach().double().T for index, head in enumerate(heads)]
    p, q = (torch.log_softmax(one[:, :12], dim=-1) for one in logits)
    ids = IDS.clamp(max=11)
    found = pair_statistics(*states, *heads, ids, vocabulary_size=12, tokens_per_chunk=5, top_k=0)
    assert found.top is found.top_ref is None
    for name, expected in oracle(p, q, ids).items():
        torch.testing.assert_close(getattr(found.stats, name).double(), expected, rtol=1e-4, atol=1e-5)
