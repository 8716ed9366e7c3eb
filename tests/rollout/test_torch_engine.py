from __future__ import annotations

import copy
import json
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)
from transformers.cache_utils import LinearAttentionLayer

from swerve.batch import completion_logits, token_batches
from swerve.config.runtime import RuntimeConfig
from swerve.errors import ConfigError, EngineError
from swerve.functional import entropy, token_logprobs
from swerve.models.fast_layers import many_rows
from swerve.models.head import limit_ids_of
from swerve.models.model_folder import load_model
from swerve.rollout import SamplingParams, TorchEngine
from swerve.rollout.cache import cache_bytes_per_token
from swerve.rollout.decoding import Decoding, row_draws, sample_tokens
from swerve.rollout.torch_engine import prefix_hosts
from swerve.train.replicated_model import ReplicatedModel
from swerve.world import World

PROMPTS = [[1, 4, 5, 6], [1, 7], [1, 4, 4, 9, 8, 6]]


def _params(**changes) -> SamplingParams:
    return SamplingParams(**{"num_samples": 6, "max_new_tokens": 24, "temperature": 1.0, "stop_ids": (2,), **changes})


@pytest.fixture(scope="module")
def sampled(tiny):
    return TorchEngine(tiny[0], pad_id=0, max_rows=64).generate(PROMPTS, _params(), seeds=[3, 4, 5])


def test_greedy_text_of_a_pretrained_model(shared_data):
    folder = shared_data("tiny_models") / "stories260K"
    loaded = load_model(folder / "hf", device="cpu", dtype="float32")
    golden = json.loads((folder / "greedy_golden.json").read_text())["token_ids"]
    params = _params(num_samples=1, max_new_tokens=len(golden) - 1, temperature=0.0)
    (((completion,)),) = TorchEngine(loaded.model, pad_id=0, max_rows=8).generate([golden[:1]], params, seeds=[0])
    assert [*golden[:1], *completion.token_ids] == golden
    assert completion.finish_reason == "length"


def test_greedy_decoding_equals_generate_of_transformers(tiny):
    model, _ = tiny
    found = TorchEngine(model, pad_id=0, max_rows=8).generate(
        PROMPTS, _params(num_samples=1, temperature=0.0), seeds=[0, 0, 0]
    )
    for prompt, (completion,) in zip(PROMPTS, found, strict=True):
        expected = model.generate(
            torch.tensor([prompt]), max_new_tokens=24, do_sample=False, eos_token_id=2, pad_token_id=0
        )
        assert list(completion.token_ids) == expected[0, len(prompt) :].tolist()


def test_logprobs_equal_the_trainers(tiny, sampled):
    _check_logprobs(tiny[0], sampled)


def _check_logprobs(model, sampled):
    """Compare what was recorded with a forward pass over whole sequences."""
    sequences = [(PROMPTS[index], each.token_ids) for index in range(3) for each in sampled[index]]
    recorded = [each.logprobs for group in sampled for each in group]
    with torch.inference_mode():
        for batch in token_batches(sequences, pad_id=0, tokens_per_batch=2000):
            logprobs = token_logprobs(completion_logits(model, batch), batch.completion_ids)
            for index, row in enumerate(batch.rows):
                assert logprobs[index, : len(recorded[row])].tolist() == pytest.approx(recorded[row], abs=1e-5)


@pytest.mark.parametrize("max_rows", [64, 5])
def test_entropies_are_those_of_the_distributions_sampled_from(tiny, monkeypatch, max_rows):
    """Of the tokens of each completion alone, whatever is decoded beside it and however long."""
    monkeypatch.setattr("swerve.rollout.decoding._MAX_LOGITS", 40)
    engine, params = TorchEngine(tiny[0], pad_id=0, max_rows=max_rows), _params(num_samples=8, temperature=0.7)
    plain, found = (
        engine.generate(PROMPTS, replace(params, with_entropy=asked), seeds=[3, 4, 5]) for asked in (False, True)
    )
    assert len({len(each.token_ids) for group in found for each in group}) > 2
    for prompt, group, others in zip(PROMPTS, found, plain, strict=True):
        for each, other in zip(group, others, strict=True):
            assert other.entropy is None
            assert replace(each, entropy=None) == other
            with torch.inference_mode():
                logits = tiny[0](torch.tensor([[*prompt, *each.token_ids]])).logits[0, len(prompt) - 1 : -1]
            assert each.entropy == pytest.approx(float(entropy(logits / 0.7).sum()), abs=1e-4)


@pytest.mark.parametrize("num_samples", [2, 64])
def test_layers_with_biases_are_those_of_the_short_forward_pass_in_small_and_large_products(num_samples):
    config = LlamaConfig(
        vocab_size=11,
        hidden_size=64,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        attention_bias=True,
        mlp_bias=True,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(0.5 * torch.randn_like(parameter) if name.endswith("bias") else 0)
    many = many_rows(model.model.layers[0].mlp.up_proj.weight)
    assert 6 < many < 192 or math.isinf(many)  # where torch comes without oneDNN there are no large ones
    engine = TorchEngine(model, pad_id=0, max_rows=512)
    _check_logprobs(model, engine.generate(PROMPTS, _params(num_samples=num_samples), seeds=[3, 4, 5]))
    assert engine._one_token.checked
    assert engine._one_token.usable


def test_in_bfloat16_the_short_forward_pass_rounds_as_the_trainer_does(tiny):
    """Its log-probs are nearer to the trainer's than those of the model's own forward pass."""
    learner = ReplicatedModel(copy.deepcopy(tiny[0]), World(), runtime=RuntimeConfig(precision="bfloat16"))

    def gap(*, is_short: bool) -> float:
        engine = TorchEngine(learner.model, pad_id=0, max_rows=64)
        engine._one_token._is_equal &= is_short
        groups = engine.generate(PROMPTS, _params(num_samples=20), seeds=[3, 4, 5])
        assert engine._one_token.usable is engine._one_token.checked is is_short
        completions = [each for group in groups for each in group]
        prompts = [prompt for prompt in PROMPTS for _ in range(20)]
        sequences = [(prompt, each.token_ids) for prompt, each in zip(prompts, completions, strict=True)]
        (batch,) = token_batches(sequences, pad_id=0, packed=True)
        ids = batch.completion_ids[batch.mask]
        recorded = torch.tensor([value for row in batch.rows for value in completions[row].logprobs])
        with torch.inference_mode():
            found = learner.head.map(
                learner.completion_hidden(batch), lambda logits, rows: token_logprobs(logits, ids[rows])[:, None]
            )[:, 0]
        return float((found - recorded).abs().mean())

    assert gap(is_short=True) < 0.95 * gap(is_short=False)


def test_columns_of_the_cache_that_are_not_used_yet_are_finite(tiny, sampled):
    """torch then fills memory that is not set with NaN, and 0 times that would be NaN."""
    torch.use_deterministic_algorithms(True)
    try:
        again = TorchEngine(tiny[0], pad_id=0, max_rows=64).generate(PROMPTS, _params(), seeds=[3, 4, 5])
    finally:
        torch.use_deterministic_algorithms(False)
    assert again == sampled


def test_result_does_not_depend_on_what_else_is_sampled(tiny, sampled):
    alone = TorchEngine(tiny[0], pad_id=0, max_rows=5).generate(PROMPTS[1:2], _params(), seeds=[4])
    assert [each.token_ids for each in alone[0]] == [each.token_ids for each in sampled[1]]


def test_seed_decides(tiny, sampled):
    engine = TorchEngine(tiny[0], pad_id=0, max_rows=64)
    assert engine.generate(PROMPTS, _params(), seeds=[3, 4, 5]) == sampled
    assert engine.generate(PROMPTS, _params(), seeds=[6, 7, 8])[0] != sampled[0]


def test_completions_end_at_the_first_stop_token_which_is_kept(sampled):
    everything = [each for group in sampled for each in group]
    assert {each.finish_reason for each in everything} == {"stop", "length"}
    for each in everything:
        assert 2 not in each.token_ids[:-1]
        assert (each.token_ids[-1] == 2) == (each.finish_reason == "stop")
        assert each.finish_reason == "stop" or len(each.token_ids) == 24


def test_sampling_frequencies_are_the_models_probabilities(tiny):
    """Chi-squared of 4,000 first tokens against the exact distribution; 11 tokens, 99.99% quantile of 10 degrees."""
    model, _ = tiny
    (group,) = TorchEngine(model, pad_id=0, max_rows=1000).generate(
        PROMPTS[:1], _params(num_samples=4000, max_new_tokens=1, temperature=0.7), seeds=[11]
    )
    with torch.inference_mode():
        expected = 4000 * torch.softmax(model(torch.tensor(PROMPTS[:1])).logits[0, -1] / 0.7, dim=-1)
    observed = torch.bincount(torch.tensor([each.token_ids[0] for each in group]), minlength=len(expected))
    assert float(((observed - expected) ** 2 / expected).sum()) < 35.6


def test_budgets_and_callback(tiny):
    finished = []
    groups = TorchEngine(tiny[0], pad_id=0, max_rows=7).generate(
        PROMPTS, _params(stop_ids=()), seeds=[3, 4, 5], budgets=[2, 24, 7], on_finished=finished.append
    )
    assert [{len(each.token_ids) for each in group} for group in groups] == [{2}, {24}, {7}]
    assert sum(finished) == 18


@pytest.mark.parametrize(
    ("prompts", "options", "message"),
    [
        ([[]], {}, "prompt 0 is empty"),
        ([[1]], {"seeds": []}, "1 prompts need as many seeds"),
        ([[1]], {"budgets": [25]}, r"budget 25 of prompt 0 is not within 1\.\.24"),
    ],
)
def test_bad_calls_are_refused(tiny, prompts, options, message):
    with pytest.raises(ValueError, match=message):
        TorchEngine(tiny[0], pad_id=0, max_rows=4).generate(prompts, _params(), **{"seeds": [0], **options})


def test_sampling_in_tiles_changes_nothing(tiny, sampled, monkeypatch):
    monkeypatch.setattr("swerve.rollout.decoding._MAX_LOGITS", 40)
    assert TorchEngine(tiny[0], pad_id=0, max_rows=64).generate(PROMPTS, _params(), seeds=[3, 4, 5]) == sampled


def test_models_that_keep_a_state_of_their_own_are_refused():
    model = MambaForCausalLM(MambaConfig(vocab_size=11, hidden_size=16, num_hidden_layers=1, state_size=4)).eval()
    with pytest.raises(ConfigError, match="cannot sample from MambaForCausalLM: "):
        TorchEngine(model, pad_id=0, max_rows=4)


def test_convolutions_and_attention_are_sampled_where_their_states_follow_the_rows(monkeypatch):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1}
    kinds = {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]}
    model = Lfm2ForCausalLM(Lfm2Config(vocab_size=11, initializer_range=0.5, **sizes, **kinds)).eval()
    groups = TorchEngine(model, pad_id=0, max_rows=4).generate(PROMPTS, _params(), seeds=[3, 4, 5])
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for each in group:
            with torch.inference_mode():
                logits = model(torch.tensor([[*prompt, *each.token_ids]])).logits[:, len(prompt) - 1 : -1]
            expected = token_logprobs(logits, torch.tensor([each.token_ids]))[0].tolist()
            assert each.logprobs == pytest.approx(expected, abs=1e-5)
    monkeypatch.setattr(LinearAttentionLayer, "reorder_cache", lambda _self, rows: None)
    monkeypatch.setattr("swerve.models.trial._faults", {})
    with pytest.raises(ConfigError, match=r"cannot sample from Lfm2ForCausalLM: .*; sft stages, and the probe of"):
        TorchEngine(model, pad_id=0, max_rows=4)


def _same_to_rounding(ours, theirs):
    for own, other in zip(ours, theirs, strict=True):
        assert [each.token_ids for each in own] == [each.token_ids for each in other]
        for one, two in zip(own, other, strict=True):
            assert one.logprobs == pytest.approx(two.logprobs, abs=2e-6)


@pytest.fixture
def cache_sizes(monkeypatch):
    """The bytes of all caches before each step, and the number of rows; two batches that join count together."""
    seen: list[tuple[int, int]] = []
    advance, join = Decoding.advance, Decoding.joined_by

    def spy_advance(self, ids, keep, **options):
        advance(self, ids, keep, **options)
        seen.append((self.cache_bytes(), len(self.logits)))

    def spy_join(self, others):
        seen.append((self.cache_bytes() + others.cache_bytes(), len(self.logits) + len(others.logits)))
        return join(self, others)

    monkeypatch.setattr(Decoding, "advance", spy_advance)
    monkeypatch.setattr(Decoding, "joined_by", spy_join)
    return seen


@pytest.mark.parametrize("num_rows", [1, 3, 10])
def test_the_cache_stays_within_its_limit(tiny, sampled, cache_sizes, num_rows):
    limit = num_rows * (6 + 24) * cache_bytes_per_token(tiny[0])  # rows as long as the longest may become
    engine = TorchEngine(tiny[0], pad_id=0, max_rows=64, cache_gb=limit / 1e9)
    _same_to_rounding(engine.generate(PROMPTS, _params(), seeds=[3, 4, 5]), sampled)
    assert max(size for size, _ in cache_sizes) <= limit
    assert num_rows <= max(rows for _, rows in cache_sizes) < 18


def test_shared_prefixes_count_as_cache(tiny, cache_sizes):
    alone = _generated(tiny[0], 500, "never")
    cache_sizes.clear()
    limit = 6 * 24 * cache_bytes_per_token(tiny[0])
    engine = TorchEngine(tiny[0], pad_id=0, max_rows=64, cache_gb=limit / 1e9)
    budgets = [24 - len(prompt) for prompt in FORCED]
    found = engine.generate(FORCED, _params(), seeds=range(len(FORCED)), budgets=budgets)
    _same_to_rounding(found, alone)
    assert max(size for size, _ in cache_sizes) <= limit - 10 * cache_bytes_per_token(tiny[0])


def test_rows_join_as_others_finish(tiny, sampled, processed):
    engine = TorchEngine(tiny[0], pad_id=0, max_rows=6)
    _same_to_rounding(engine.generate(PROMPTS, _params(), seeds=[3, 4, 5]), sampled)
    by_length = sorted(range(3), key=lambda index: len(PROMPTS[index]))
    assert len(processed) < sum(max(len(each.token_ids) for each in sampled[index]) for index in by_length)
    assert max(processed[1:]) <= 6


def test_rows_of_models_with_a_sliding_window_wait_for_each_other():
    model = _sliding_model()
    few, many = (
        TorchEngine(model, pad_id=0, max_rows=num).generate(PROMPTS, _params(), seeds=[3, 4, 5]) for num in (4, 64)
    )
    _same_to_rounding(few, many)


def test_the_short_forward_pass_is_not_used_where_it_is_not_the_models(tiny):
    """A hook that changes a layer, which the short pass does not see."""
    model, _ = tiny
    handle = model.model.layers[0].register_forward_hook(lambda module, inputs, output: 0.5 * output)
    try:
        test_greedy_decoding_equals_generate_of_transformers(tiny)
    finally:
        handle.remove()


def test_prompts_on_both_sides_of_a_turn_are_read_with_the_angles_that_they_have_alone(longrope):
    """Some begin with one another, and two lie next to the turn, at 32 tokens."""
    long = torch.randint(3, 23, (60,), generator=torch.Generator().manual_seed(0)).tolist()
    prompts = [long[:9], long[:12], long[:24], long[:33], long[:34], long[:50]]
    engine = TorchEngine(longrope, pad_id=0, max_rows=8)
    params = _params(num_samples=2, max_new_tokens=8, stop_ids=())
    groups = engine.generate(prompts, params, seeds=range(6))
    for prompt, group in zip(prompts, groups, strict=True):
        for completion in group:
            found = _teacher_forced(copy.deepcopy(longrope).double(), prompt, completion.token_ids)
            assert list(completion.logprobs) == pytest.approx(found, abs=1e-5)
    said = (
        "prompt 1 has 25 tokens and may grow by 8, together more than the 32 tokens beyond which the model takes other"
    )
    with pytest.raises(EngineError, match=said):
        engine.generate([long[:24], long[:25]], params, seeds=[0, 1])


def _teacher_forced(model, prompt, completion):
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(completion)[:, None])[:, 0].tolist()


def test_every_call_samples_from_the_weights_as_they_are(tiny):
    model = copy.deepcopy(tiny[0])
    engine = TorchEngine(model, pad_id=0, max_rows=8)
    before = engine.generate(PROMPTS, _params(), seeds=[3, 4, 5])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    after, expected = (
        each.generate(PROMPTS, _params(), seeds=[3, 4, 5])
        for each in (engine, TorchEngine(model, pad_id=0, max_rows=8))
    )
    assert after == expected != before


def test_drawing_from_a_large_vocabulary():
    """The same tokens as by the cumulative distribution in double precision; never one of probability 0."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2000, 1000, generator=generator)
    logits[:, ::3] = -torch.inf
    uniforms = torch.rand(2000, generator=generator, dtype=torch.float64)
    uniforms[:2] = torch.tensor([0.0, 1 - 2**-53])
    ids, logprobs, entropies = sample_tokens(logits, torch.arange(2000), uniforms, 0.7, with_entropy=True)
    probabilities = torch.softmax(logits.double() / 0.7, dim=-1)
    upper = probabilities.cumsum(-1).gather(-1, ids[:, None]).squeeze(1)
    own = probabilities.gather(-1, ids[:, None]).squeeze(1)
    assert bool((own > 0).all())
    assert bool(((uniforms < upper + 1e-6) & (uniforms > upper - own - 1e-6)).all())
    assert logprobs.tolist() == pytest.approx(own.log().tolist(), abs=1e-5)
    assert entropies.tolist() == pytest.approx(torch.special.entr(probabilities).sum(-1).tolist(), abs=1e-5)


@pytest.mark.parametrize("name", ["short pass", "own pass"])
@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_padding_of_the_output_head_is_never_sampled(tiny, name, temperature):
    """Rows that are likelier than any token change nothing once the model's number of tokens is known."""
    model = tiny[0] if name == "short pass" else _gpt2()
    size, wide = model.config.vocab_size, copy.deepcopy(model)
    wide.resize_token_embeddings(size + 90, mean_resizing=False)
    with torch.no_grad():
        wide.get_output_embeddings().weight[size:] = 9.0
    limit_ids_of(wide, size)
    found, expected = (
        TorchEngine(one, pad_id=0, max_rows=64).generate(PROMPTS, _params(temperature=temperature), seeds=[3, 4, 5])
        for one in (wide, model)
    )
    for ours, theirs in zip(found, expected, strict=True):
        assert [one.token_ids for one in ours] == [one.token_ids for one in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_a_cache_of_no_size_is_refused(tiny):
    with pytest.raises(ValueError, match=r"cache_gb must be above 0, got 0\.0"):
        TorchEngine(tiny[0], pad_id=0, max_rows=4, cache_gb=0.0)


def test_training_mode_is_restored(tiny):
    model, _ = tiny
    model.train()
    try:
        TorchEngine(model, pad_id=0, max_rows=4).generate([[1]], _params(), seeds=[0])
        assert model.training
    finally:
        model.eval()


ROLLOUT = [1, 4, 5, 6, 9, 8, 4, 5, 7, 7, 4]
OTHER_ROLLOUT = [1, 7, 9, 4, 6, 5]
FORCED = [
    *([*ROLLOUT[:position], token] for position in (2, 5, 10) for token in (ROLLOUT[position], 3)),
    *([*OTHER_ROLLOUT[:position], token] for position in (1, 5) for token in (OTHER_ROLLOUT[position], 8)),
    [6],
]


@pytest.fixture
def processed(tiny):
    """The number of tokens of each forward pass, in order."""
    seen: list[int] = []
    embedding = tiny[0].get_input_embeddings()
    handle = embedding.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].numel()))
    yield seen
    handle.remove()


def _generated(model, max_rows, share_prefixes, prompts=FORCED, **changes):
    engine = TorchEngine(model, pad_id=0, max_rows=max_rows, share_prefixes=share_prefixes)
    budgets = [24 - len(prompt) for prompt in prompts]
    return engine.generate(prompts, _params(**changes), seeds=range(len(prompts)), budgets=budgets)


@pytest.mark.parametrize("max_rows", [3, 7, 500])
@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_shared_prefixes_give_the_same_completions(tiny, max_rows, temperature):
    shared = _generated(tiny[0], max_rows, "auto", temperature=temperature)
    alone = _generated(tiny[0], 500, "never", temperature=temperature)
    for ours, theirs in zip(shared, alone, strict=True):
        assert [(each.token_ids, each.finish_reason) for each in ours] == [
            (each.token_ids, each.finish_reason) for each in theirs
        ]
        for own, other in zip(ours, theirs, strict=True):
            assert own.logprobs == pytest.approx(other.logprobs, abs=2e-6)


@pytest.mark.parametrize("name", ["GPT2", "GPTNeoX", "Bloom", "Llama"])
def test_shared_prefixes_under_other_kinds_of_positions(name):
    """Learned positions, rotated ones of a part of the head, and ALiBi."""
    import transformers

    options = {"vocab_size": 11, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = getattr(transformers, f"{name}Config")(**options, intermediate_size=24, bos_token_id=1, eos_token_id=2)
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)
    shared, alone = (_generated(model, 64, how) for how in ("auto", "never"))
    for ours, theirs in zip(shared, alone, strict=True):
        assert [each.token_ids for each in ours] == [each.token_ids for each in theirs]
        for own, other in zip(ours, theirs, strict=True):
            assert own.logprobs == pytest.approx(other.logprobs, abs=2e-5)


def test_each_rollout_is_prefilled_once(tiny, processed):
    _generated(tiny[0], 500, "auto", num_samples=1)
    # the two longest prompts and the single token, up to the longest prompt's last token but one; then one token each
    assert processed[:2] == [3 * 10, len(FORCED)]
    processed.clear()
    _generated(tiny[0], 500, "never", num_samples=1)
    assert processed[0] == len(FORCED) * 11


def test_prompts_that_share_nothing_are_prefilled_on_their_own(tiny, processed):
    TorchEngine(tiny[0], pad_id=0, max_rows=64).generate(PROMPTS, _params(), seeds=[3, 4, 5])
    assert processed[0] == 3 * 6


FEW = _params(num_samples=8, max_new_tokens=10, temperature=0.3)  # of which many begin alike


def _one_by_one(model, params):
    """The tokens that each completion's random numbers choose, one sequence at a time and read as a whole."""
    rows = [(prompt, sample) for prompt in range(len(PROMPTS)) for sample in range(params.num_samples)]
    found = []
    for (prompt, _), uniforms in zip(rows, row_draws(rows, params, [3, 4, 5]), strict=True):
        ids: list[int] = []
        while len(ids) < params.max_new_tokens and ids[-1:] != [2]:
            with torch.inference_mode():
                logits = model(torch.tensor([[*PROMPTS[prompt], *ids]])).logits[0, -1].double()
            cumulative = (logits / params.temperature).softmax(-1).cumsum(0)
            ids.append(int(torch.searchsorted(cumulative, uniforms[len(ids)], right=True)))
        found.append(tuple(ids))
    return [found[start : start + params.num_samples] for start in range(0, len(rows), params.num_samples)]


def _gpt2():
    torch.manual_seed(2)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=11, n_embd=16, n_layer=2, n_head=2, n_positions=64)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
    return model


@pytest.mark.parametrize("name", ["short pass", "own pass", "windows"])
def test_samples_that_begin_alike_are_those_drawn_one_by_one(tiny, name):
    model = {"short pass": lambda: tiny[0], "own pass": _gpt2, "windows": _sliding_model}[name]()
    expected = _one_by_one(model, FEW)
    assert any(1 < len({ids[:3] for ids in group}) < 8 for group in expected)
    for max_rows in (64, 5):
        found = TorchEngine(model, pad_id=0, max_rows=max_rows).generate(PROMPTS, FEW, seeds=[3, 4, 5])
        assert [[each.token_ids for each in group] for group in found] == expected
        for prompt, group in zip(PROMPTS, found, strict=True):
            for each in group:
                with torch.inference_mode():
                    logits = model(torch.tensor([[*prompt, *each.token_ids]])).logits[:, len(prompt) - 1 : -1]
                own = token_logprobs(logits, torch.tensor([each.token_ids]), temperature=FEW.temperature)[0].tolist()
                assert each.logprobs == pytest.approx(own, abs=2e-5)


def test_what_samples_begin_with_is_read_once(tiny, processed):
    found = TorchEngine(tiny[0], pad_id=0, max_rows=64).generate(PROMPTS, FEW, seeds=[3, 4, 5])
    steps = range(1, max(len(each.token_ids) for group in found for each in group))
    alive = [[{e.token_ids[:t] for e in group if len(e.token_ids) > t} for group in found] for t in steps]
    distinct = [sum(map(len, prefixes)) for prefixes in alive]
    assert distinct[0] < 24
    assert max(distinct) > distinct[0]
    # Of the lines that have ended, less than an eighth stay in the batch.
    read = processed[-len(distinct) :]
    assert all(least <= number < max(least / 0.875, least + 1) for least, number in zip(distinct, read, strict=True))


def _sliding_model():
    from transformers import MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=11, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, sliding_window=4,
    )  # fmt: skip
    return MistralForCausalLM(config).eval()


def test_sliding_windows_are_never_cut():
    shared, alone = (_generated(_sliding_model(), 64, how) for how in ("auto", "never"))
    assert shared == alone


ANY_PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), max_size=12)


def brute_force(prompts: list[list[int]]) -> list[int] | None:
    order = sorted(range(len(prompts)), key=lambda index: -len(prompts[index]))
    hosts = list(range(len(prompts)))
    for place, index in enumerate(order):
        head = prompts[index][:-1]
        for earlier in order[:place]:
            if head and hosts[earlier] == earlier and prompts[earlier][: len(head)] == head:
                hosts[index] = earlier
                break
    saved = sum(len(prompts[index]) - 1 for index in range(len(prompts)) if hosts[index] != index)
    return hosts if saved and 3 * saved >= sum(map(len, prompts)) else None


@given(ANY_PROMPTS)
def test_equals_brute_force(prompts: list[list[int]]) -> None:
    assert prefix_hosts(prompts) == brute_force(prompts)


def test_prefixes_of_a_rollout_with_two_forced_tokens_each() -> None:
    rollout = [1, 5, 6, 7, 8, 9, 2]
    prompts = [[*rollout[:t], token] for t in (3, 5) for token in (rollout[t], 0)]
    assert prefix_hosts(prompts) == [2, 2, 2, 2]  # the longest prompt, its twin, and both shorter ones


def test_unrelated_prompts_and_single_tokens_are_not_shared() -> None:
    assert prefix_hosts([[1, 2, 3], [4, 2, 3], [5]]) is None
    assert prefix_hosts([[1], [1], [1]]) is None
    assert prefix_hosts([]) is None


def test_little_saving_is_left_alone() -> None:
    assert prefix_hosts([[1, 2, 3, 4, 5, 6], [1, 2, 9]]) is None  # 2 of 9 tokens
    assert prefix_hosts([[1, 2, 3, 4, 5], [1, 2, 3, 9]]) == [0, 0]  # 3 of 9
