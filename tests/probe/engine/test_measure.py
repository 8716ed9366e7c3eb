from __future__ import annotations

import copy
import dataclasses
import math
import random
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, Qwen3Config

from swerve.config.probe import ProbeConfig
from swerve.errors import MismatchError
from swerve.functional.divergence import DivergenceStats, topk_probs
from swerve.models.model_folder import LoadedModel
from swerve.models.sources import CheckedModel
from swerve.models.tiny import build_word_tokenizer
from swerve.probe.engine.forward import compare_positions, forced_states
from swerve.probe.engine.jobs import TokenStats
from swerve.probe.engine.measure import measure
from swerve.probe.engine.store import TENSORS
from tests.builders import LoadedSource

TOKENIZER = build_word_tokenizer([str(digit) for digit in range(10)])
SIZES: dict[str, Any] = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
    "pad_token_id": TOKENIZER.pad_token_id,
    "bos_token_id": TOKENIZER.bos_token_id,
    "eos_token_id": TOKENIZER.eos_token_id,
}
STATS = [one.name for one in dataclasses.fields(DivergenceStats)]
SETTINGS = ProbeConfig(tokens_per_batch=40, tokens_per_chunk=7, top_k=1)
PAIRS = [("b", "ref"), ("c", "ref"), ("c", "b"), ("ref", "base")]


def token_sequences(count: int = 8, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    draw = random.Random(seed)
    return [
        tuple([draw.randrange(4, 14) for _ in range(draw.randint(1, longest))] for longest in (5, 9))
        for _ in range(count)
    ]  # type: ignore[misc]


SEQUENCES = token_sequences()
NUM_TOKENS = sum(len(completion) for _, completion in SEQUENCES)
IDS = torch.tensor([token for _, completion in SEQUENCES for token in completion])


@dataclass
class Source:
    """A model in memory that counts how often it is loaded and run."""

    label: str
    model: Any
    tokenizer: Any = TOKENIZER
    fingerprint: str = ""
    loads: int = 0
    forwards: list[int] = field(default_factory=list)
    on_forward: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.fingerprint = self.fingerprint or LoadedSource(label=self.label, loaded=self._loaded()).fingerprint

    def _loaded(self) -> LoadedModel:
        return LoadedModel(model=self.model, tokenizer=self.tokenizer)

    def check(self) -> CheckedModel:
        return LoadedSource(label=self.label, loaded=self._loaded()).check()

    def load(self) -> LoadedModel:
        self.loads += 1
        loaded = dataclasses.replace(self._loaded(), model=copy.deepcopy(self.model))

        def count(module: Any, args: Any, kwargs: Any) -> None:
            self.on_forward()
            self.forwards.append(len(kwargs["input_ids"]))

        loaded.model.register_forward_pre_hook(count, with_kwargs=True)
        return loaded


def build(config: type = Qwen3Config, *, seed: int = 0, **options: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config(**{**SIZES, **options})).eval()


def perturbed(model: Any, amount: float, *, seed: int = 1) -> Any:
    model, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter) * amount)
    return model


BASE = build()
MODELS = {
    "base": BASE,
    "ref": perturbed(BASE, 0.1, seed=1),
    "b": perturbed(BASE, 0.1, seed=2),
    "c": perturbed(BASE, 0.1, seed=3),
}


def sources(models: dict[str, Any] | None = None, tokenizer: Any = TOKENIZER) -> dict[str, Source]:
    return {label: Source(label=label, model=model, tokenizer=tokenizer) for label, model in (models or MODELS).items()}


def run(
    found: dict[str, Source] | None = None,
    pairs: list[tuple[str, str]] | None = None,
    *,
    sequences: list[Any] | None = None,
    **options: Any,
) -> TokenStats:
    own = {name: options.pop(name) for name in ProbeConfig.model_fields if name in options}
    return measure(
        list((found or sources()).values()),
        PAIRS if pairs is None else pairs,
        SEQUENCES if sequences is None else sequences,
        settings=SETTINGS.model_copy(update=own),
        **options,
    )


def assert_identical(left: TokenStats, right: TokenStats) -> None:
    assert left.stats.keys() == right.stats.keys()
    assert left.tops.keys() == right.tops.keys()
    assert (left.vocabulary_sizes, left.pieces) == (right.vocabulary_sizes, right.pieces)
    assert torch.equal(left.noise_positions, right.noise_positions)
    both = [(left.stats[pair], right.stats[pair]) for pair in left.stats]
    assert (left.noise is None) == (right.noise is None)
    both += [(left.noise, right.noise)] if left.noise else []
    for one, other in both:
        for name in STATS:
            assert getattr(one, name).dtype == getattr(other, name).dtype
            assert torch.equal(getattr(one, name), getattr(other, name)), name
    for label in left.tops:
        assert torch.equal(left.tops[label].ids, right.tops[label].ids)
        assert torch.equal(left.tops[label].probs, right.tops[label].probs)


def states_of(model: Any, label: str, tokens_per_batch: int = 40) -> Any:
    loaded = LoadedModel(model=model, tokenizer=TOKENIZER)
    return forced_states(loaded, SEQUENCES, label=label, tokens_per_batch=tokens_per_batch)


def test_every_pair_is_what_two_whole_runs_of_its_models_give() -> None:
    measured = run(top_k=3)
    states = {label: states_of(model, label) for label, model in MODELS.items()}
    assert list(measured.stats) == PAIRS
    for p, q in PAIRS:
        expected = compare_positions(states[p], states[q], IDS, tokens_per_chunk=1000)
        for name in STATS:
            torch.testing.assert_close(
                getattr(measured.stats[p, q], name), getattr(expected, name), rtol=1e-4, atol=1e-6
            )
    for label, one in states.items():
        probs, ids = topk_probs(one.head(one.hidden).detach(), 3)
        assert torch.equal(measured.tops[label].ids.long(), ids.long())
        torch.testing.assert_close(measured.tops[label].probs, probs, rtol=1e-4, atol=1e-6)
    assert measured.pieces[4:14] == [str(digit) for digit in range(10)]
    assert measured.vocabulary_sizes == dict.fromkeys(["base", "ref", "b", "c"], 14)
    assert float(measured.stats["b", "ref"].js.min()) > 0


def test_agrees_with_a_float64_oracle() -> None:
    measured = run(sources({label: copy.deepcopy(model).double() for label, model in MODELS.items()}))
    offset = 0
    for prompt, completion in SEQUENCES:
        p, q = (
            torch.log_softmax(
                copy.deepcopy(MODELS[label]).double()(torch.tensor([[*prompt, *completion]])).logits[0].detach(), -1
            )[len(prompt) - 1 : -1]
            for label in ("c", "b")
        )
        part = slice(offset, offset + len(completion))
        found = measured.stats["c", "b"]
        torch.testing.assert_close(found.kl_forward[part], (p.exp() * (p - q)).sum(-1), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(found.kl_reverse[part], (q.exp() * (q - p)).sum(-1), rtol=1e-9, atol=1e-12)
        realised = p[torch.arange(len(completion)), torch.tensor(completion)]
        torch.testing.assert_close(found.logprob[part], realised, rtol=1e-9, atol=1e-12)
        offset += len(completion)


def test_a_response_of_two_turns_agrees_with_a_float64_oracle_at_its_sampled_tokens() -> None:
    prompt, turns = [4, 5], [([6, 7, 8], True), ([9, 4, 10, 11], False), ([12, 13], True)]
    completion = [token for tokens, _ in turns for token in tokens]
    sampled = [place for place in range(9) if place not in range(3, 7)]
    doubles = {label: copy.deepcopy(model).double() for label, model in MODELS.items()}
    measured = run(sources(doubles), [("c", "b")], sequences=[(prompt, completion)], positions=[sampled])
    p, q = (
        torch.log_softmax(doubles[label](torch.tensor([prompt + completion])).logits[0].detach(), -1)[1:-1][sampled]
        for label in ("c", "b")
    )
    m = torch.logaddexp(p, q) - math.log(2)
    js = ((p.exp() * (p - m)).sum(-1) + (q.exp() * (q - m)).sum(-1)) / 2
    found = measured.stats["c", "b"]
    torch.testing.assert_close(found.js, js, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.kl_forward, (p.exp() * (p - q)).sum(-1), rtol=1e-9, atol=1e-12)
    realised = torch.tensor([completion[place] for place in sampled])
    torch.testing.assert_close(found.logprob, p.gather(1, realised[:, None])[:, 0], rtol=1e-9, atol=1e-12)


def test_each_model_is_loaded_once_and_runs_over_each_sequence_once() -> None:
    found = sources()
    run(found)
    for source in found.values():
        assert source.loads == 1
        # Two forwards of one sequence compare the head with the model's own logits.
        assert source.forwards[:2] == [1, 1]
        assert sum(source.forwards[2:]) == len(SEQUENCES)


def test_no_more_than_the_needed_heads_and_states_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from swerve.probe.engine import measure as module

    kept: list[tuple[str, list[str], int]] = []
    original = module._Engine._run_model

    def watched(self: Any, label: str, units: set[int]) -> None:
        original(self, label, units)
        num = sum(name.startswith("states-") for name in self.units._in_memory)
        kept.append((label, sorted(self.heads), num // len(self.plan.units)))

    monkeypatch.setattr(module._Engine, "_run_model", watched)
    run(pairs=[("b", "ref"), ("c", "ref"), ("c", "b"), ("ref", "base")])
    assert kept == [("ref", ["ref"], 1), ("base", ["ref"], 1), ("b", ["b", "ref"], 2), ("c", [], 0)]


def test_checkpoints_without_an_update_between_them_share_their_states(tmp_path: Path) -> None:
    same = {"ref": MODELS["ref"], "b": MODELS["b"], "twin": MODELS["b"], "c": MODELS["c"]}
    pairs = [("b", "ref"), ("twin", "ref"), ("twin", "b"), ("c", "ref"), ("c", "twin")]
    assert_identical(run(sources(same), pairs), run(sources(same), pairs, store=tmp_path))
    assert not list(tmp_path.glob("states-*"))


def test_models_in_no_pair_are_left_alone() -> None:
    found = sources()
    measured = run(found, [("b", "ref")])
    assert found["c"].loads == found["base"].loads == 0
    assert set(measured.vocabulary_sizes) == {"b", "ref"}


def test_progress_counts_every_position_of_every_model(tmp_path: Path) -> None:
    for _ in range(2):
        counts: list[int] = []
        run(on_tokens=counts.append, store=tmp_path / "s")
        assert sum(counts) == 4 * NUM_TOKENS


def test_states_on_disk_give_the_same_bits(tmp_path: Path) -> None:
    expected = run(top_k=2, noise_of="ref")
    assert_identical(run(top_k=2, noise_of="ref", store=tmp_path / "s"), expected)


def test_a_finished_measurement_is_read_without_loading_a_model(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"top_k": 2, "noise_of": "ref", "store": tmp_path}
    expected = run(**settings)
    again = sources()
    assert_identical(run(again, **settings), expected)
    assert [source.loads for source in again.values()] == [0, 0, 0, 0]


def units_in(folder: Path) -> list[dict[str, Tensor]]:
    """Return the tensors of every unit in a store."""
    return [TENSORS.read(path.read_bytes().partition(b"\n")[2]) for path in sorted(folder.iterdir())]


def test_statistics_alone_stay_in_the_store_unless_states_are_kept(tmp_path: Path) -> None:
    tops = {f"{side}_{part}" for side in ("top", "top_ref") for part in ("probs", "ids")}
    run(store=tmp_path / "a")
    assert set().union(*units_in(tmp_path / "a")) == {*STATS, *tops}
    run(store=tmp_path / "b", keep_states=True)
    assert set().union(*units_in(tmp_path / "b")) == {*STATS, *tops, "hidden"}


def test_kept_states_give_a_new_pair_without_a_forward(tmp_path: Path) -> None:
    run(store=tmp_path, keep_states=True)
    found = sources()
    measured = run(found, [("c", "base")], store=tmp_path, keep_states=True)
    assert [source.forwards for source in found.values()] == [[], [], [], []]
    assert [source.loads for source in found.values()] == [1, 0, 0, 1]
    expected = run(pairs=[("c", "base")])
    assert torch.equal(measured.stats["c", "base"].js, expected.stats["c", "base"].js)


@pytest.mark.slow
def test_interruptions_anywhere_lose_at_most_one_unit_each(tmp_path: Path) -> None:
    """Fifty units, stopped at random forwards until it is done."""
    sequences = token_sequences(50, seed=3)
    settings: dict[str, Any] = {"sequences": sequences, "tokens_per_batch": 1, "noise_of": "ref"}
    settings["pairs"] = [("b", "ref"), ("c", "b")]
    expected = run(**settings)
    draw = random.Random(0)
    found = sources()
    interruptions = 0
    while True:
        left = [draw.randint(1, 60)]

        def tick(left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt

        for source in found.values():
            source.on_forward = tick
        try:
            measured = run(found, **settings, store=tmp_path / "s")
            break
        except KeyboardInterrupt:
            interruptions += 1
    assert interruptions > 3
    assert_identical(measured, expected)
    total = sum(len(source.forwards) for source in found.values())
    # 3 models and the null pair, 50 units each; an interruption loses a unit (two forwards,
    # where it has a null pair) and the check of the head (two forwards).
    assert 4 * 50 <= total <= 4 * 50 + 2 * 3 + interruptions * 4


def test_interruptions_while_statistics_are_computed_do_not_repeat_stored_forwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from swerve.probe.engine import measure as module

    original = module.pair_statistics
    calls: list[int] = []

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    monkeypatch.setattr(module, "pair_statistics", failing)
    found = sources()
    with pytest.raises(KeyboardInterrupt):
        run(found, [("b", "ref")], store=tmp_path / "s", tokens_per_batch=1)
    before = len(found["ref"].forwards)
    measured = run(found, [("b", "ref")], store=tmp_path / "s", tokens_per_batch=1)
    assert len(found["ref"].forwards) == before == 2 + len(SEQUENCES)
    assert found["ref"].loads == 2  # for its head
    assert len(found["b"].forwards) == 2 + 3 + 2 + len(SEQUENCES) - 2
    assert_identical(measured, run(pairs=[("b", "ref")], tokens_per_batch=1))


def test_damaged_files_are_computed_again(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"store": tmp_path, "keep_states": True, "tokens_per_batch": 1}
    expected = run(**settings)
    draw = random.Random(1)
    files = sorted([*tmp_path.glob("states-*"), *tmp_path.glob("pair-*")])
    assert len(files) == (4 + 4) * len(SEQUENCES)
    for path in draw.sample(files, 20):
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] if draw.random() < 0.5 else data[:-1] + bytes([data[-1] ^ 255]))
    assert_identical(run(**settings), expected)


CHANGES: dict[str, dict[str, Any]] = {
    "sequences": {"sequences": [*SEQUENCES[:-1], (SEQUENCES[-1][0], [*SEQUENCES[-1][1][:-1], 3])]},
    "boundary": {
        "sequences": [(SEQUENCES[0][0] + SEQUENCES[0][1][:1], SEQUENCES[0][1][1:]), *SEQUENCES[1:]],
    },
    "order": {"sequences": SEQUENCES[::-1]},
    "tokens_per_batch": {"tokens_per_batch": 20},
    "tokens_per_chunk": {"tokens_per_chunk": 8},
    "top_k": {"top_k": 2},
    "kernel": {"kernel": "eager"},
}


def test_results_of_other_settings_or_sequences_are_never_read(tmp_path: Path) -> None:
    assert len(SEQUENCES[0][1]) > 1
    run(store=tmp_path)
    for change, settings in CHANGES.items():
        found = sources()
        measured = run(found, store=tmp_path, **settings)
        assert all(source.loads == 1 for source in found.values()), change
        assert_identical(measured, run(**settings))


def test_results_of_other_weights_are_never_read(tmp_path: Path) -> None:
    run(store=tmp_path)
    models = {**MODELS, "b": perturbed(MODELS["b"], 0.01)}
    found = sources(models)
    measured = run(found, store=tmp_path)
    assert [found[label].loads for label in ("base", "ref", "b", "c")] == [0, 1, 1, 1]
    assert_identical(measured, run(sources(models)))


def test_a_pair_is_told_apart_from_its_reverse(tmp_path: Path) -> None:
    forward = run(pairs=[("b", "ref")], store=tmp_path).stats["b", "ref"]
    backward = run(pairs=[("ref", "b")], store=tmp_path).stats["ref", "b"]
    torch.testing.assert_close(forward.kl_forward, backward.kl_reverse)
    assert not torch.allclose(forward.kl_forward, backward.kl_forward)
    assert torch.equal(forward.argmax, backward.argmax_ref)


def test_heads_padded_to_different_sizes_are_compared_over_the_smaller_one() -> None:
    """Padding rows with large logits would change every figure if they counted."""
    for config in (Qwen3Config, Gemma2Config):
        options = {"tie_word_embeddings": False} if config is Qwen3Config else {"final_logit_softcapping": 5.0}
        reference = build(config, **options)
        checkpoint = perturbed(reference, 0.1)
        wide = copy.deepcopy(checkpoint)
        wide.resize_token_embeddings(20)
        with torch.no_grad():
            wide.get_output_embeddings().weight[14:] = 3.0
        expected = run(sources({"p": checkpoint, "q": reference}), [("p", "q")], top_k=20)
        for pair in (("p", "q"), ("q", "p")):
            models = {pair[0]: wide, pair[1]: reference}
            measured = run(sources(models), [(pair[0], pair[1])], top_k=20)
            assert measured.vocabulary_sizes == {pair[0]: 14, pair[1]: 14}
            assert len(measured.pieces) == 14
            left, right = measured.stats[pair], expected.stats["p", "q"]
            torch.testing.assert_close(left.js, right.js, rtol=1e-4, atol=1e-7)
            torch.testing.assert_close(left.entropy, right.entropy, rtol=1e-4, atol=1e-6)
            assert torch.equal(left.rank, right.rank)
            assert measured.tops[pair[0]].ids.shape == (NUM_TOKENS, 14)


def test_a_head_smaller_than_the_tokenizer_is_refused() -> None:
    small = build(vocab_size=13)
    with pytest.raises(MismatchError, match="p and q share 13 tokens, but their tokenizer has the id 13"):
        run(sources({"p": small, "q": BASE}), [("p", "q")], sequences=[([4], [5, 6])])


def test_a_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(MismatchError, match="token id 14, but ref has 14 tokens"):
        run(sequences=[([4], [14])])


def test_a_sequence_longer_than_a_models_positions_is_refused() -> None:
    assert run(pairs=[("b", "ref")], sequences=[([4] * 30, [5] * 34)]).stats["b", "ref"].js.shape == (34,)
    with pytest.raises(MismatchError, match="a sequence has 65 tokens, .* but ref has 64 positions"):
        run(pairs=[("b", "ref")], sequences=[([4], [5]), ([4] * 30, [5] * 35)])


def test_other_tokenizers_are_named_before_an_id_that_one_lacks() -> None:
    found = sources({"q": build(vocab_size=20), "p": BASE})
    found["q"].tokenizer = build_word_tokenizer(list("abcdefghijklmnop"))
    with pytest.raises(MismatchError, match="p has a vocabulary of 14 tokens and q one of 20"):
        run(found, [("p", "q")], sequences=[([4], [17])])


@pytest.mark.parametrize(
    ("size", "message"),
    [(14, "the tokenizers of p and q differ"), (20, "p has a vocabulary of 20 tokens and q one of 14")],
)
def test_other_tokenizers_are_refused_by_name_before_any_forward(size: int, message: str) -> None:
    found = sources({"q": BASE, "p": build(vocab_size=size)})
    found["p"].tokenizer = build_word_tokenizer(list("abcdefghijklmnop")[: size - 4])
    with pytest.raises(MismatchError, match=message):
        run(found, [("p", "q")])
    assert found["p"].forwards == []


def test_tokenizers_are_compared_also_when_everything_is_in_the_store(tmp_path: Path) -> None:
    run(store=tmp_path, keep_states=True, pairs=[("b", "ref")])
    found = sources()
    found["b"].tokenizer = build_word_tokenizer(list("abcdefghij"))  # under the fingerprint that it had before
    with pytest.raises(MismatchError, match="the tokenizers of b and ref differ"):
        run(found, store=tmp_path, keep_states=True, pairs=[("b", "ref")])


def test_bfloat16_states_stay_bfloat16_and_logits_are_float32(tmp_path: Path) -> None:
    models = {label: copy.deepcopy(MODELS[label]).bfloat16() for label in ("ref", "b")}
    measured = run(sources(models), [("b", "ref")], store=tmp_path, keep_states=True)
    assert_identical(run(sources(models), [("b", "ref")]), measured)
    states = {label: states_of(model, label) for label, model in models.items()}
    logits = {
        label: one.hidden.double() @ models[label].lm_head.weight.detach().double().T for label, one in states.items()
    }
    p, q = (torch.log_softmax(logits[label], -1) for label in ("b", "ref"))
    torch.testing.assert_close(
        measured.stats["b", "ref"].kl_forward.double(), (p.exp() * (p - q)).sum(-1), rtol=1e-4, atol=1e-6
    )
    assert {unit["hidden"].dtype for unit in units_in(tmp_path) if "hidden" in unit} == {torch.bfloat16}


def large_vocabulary(size: int) -> dict[str, Any]:
    reference = build(vocab_size=size, seed=6)
    return {"p": perturbed(reference, 0.05), "q": reference}


def test_a_vocabulary_that_is_streamed_agrees_with_float64() -> None:
    models = large_vocabulary(700)
    tokenizer = build_word_tokenizer([f"w{number}" for number in range(696)])
    sequences = [([*prompt, 600], [*completion, 699]) for prompt, completion in SEQUENCES]
    measured = run(sources(models, tokenizer), [("p", "q")], sequences=sequences, top_k=3)
    double = {label: copy.deepcopy(model).double() for label, model in models.items()}
    exact = run(sources(double, tokenizer), [("p", "q")], sequences=sequences, top_k=3)
    for name in STATS:
        torch.testing.assert_close(
            getattr(measured.stats["p", "q"], name).double(),
            getattr(exact.stats["p", "q"], name).double(),
            rtol=1e-3,
            atol=1e-5,
        )
    for label in ("p", "q"):
        assert torch.equal(measured.tops[label].ids, exact.tops[label].ids)
    assert float(exact.stats["p", "q"].kl_forward.mean()) > 1e-2


@pytest.mark.parametrize(
    ("kernel", "pays_from", "available", "expected"),
    [
        ("eager", 0, True, "eager"),
        ("compiled", 1e18, True, "compiled"),
        ("auto", NUM_TOKENS * 14, True, "compiled"),
        ("auto", NUM_TOKENS * 14 + 1, True, "eager"),
        ("auto", 0, False, "eager"),
    ],
)
def test_compiling_is_chosen_where_it_pays(
    monkeypatch: pytest.MonkeyPatch, kernel: str, pays_from: float, available: bool, expected: str
) -> None:
    from swerve.probe.engine import measure as module

    backends: list[str] = []
    original = module.pair_statistics

    def watched(*args: Any, backend: str, **kwargs: Any) -> Any:
        backends.append(backend)
        return original(*args, backend="eager", **kwargs)

    monkeypatch.setattr(module, "pair_statistics", watched)
    monkeypatch.setattr(module, "_COMPILED_PAYS_FROM", pays_from)
    monkeypatch.setattr(module, "compiled_available", lambda device_type: available and device_type == "cpu")
    run(pairs=[("b", "ref"), ("c", "ref")], kernel=kernel)
    assert set(backends) == {expected}


def test_a_kernel_that_cannot_be_had_is_refused_before_any_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swerve.probe.engine.measure.compiled_available", lambda device_type: False)
    found = sources()
    with pytest.raises(ValueError, match="kernel 'compiled' needs a C\\+\\+ compiler"):
        run(found, kernel="compiled")
    assert found["ref"].forwards == []


@pytest.mark.slow
def test_compiled_statistics_are_the_eager_ones() -> None:
    from swerve.functional.row_sums import compiled_available

    if not compiled_available():
        pytest.skip("needs a C++ compiler")
    found = [run(sources(large_vocabulary(300)), [("p", "q")], kernel=kernel) for kernel in ("eager", "compiled")]
    eager, compiled = (one.stats["p", "q"] for one in found)
    for name in STATS:
        torch.testing.assert_close(getattr(compiled, name), getattr(eager, name), rtol=1e-4, atol=1e-6)


def test_tied_heads_and_models_of_other_widths() -> None:
    tied = build(LlamaConfig, seed=4, tie_word_embeddings=True)
    wide = build(seed=5, hidden_size=24)
    measured = run(sources({"p": tied, "q": wide}), [("p", "q")])
    expected = compare_positions(states_of(tied, "p"), states_of(wide, "q"), IDS, tokens_per_chunk=100)
    torch.testing.assert_close(measured.stats["p", "q"].js, expected.js, rtol=1e-4, atol=1e-6)


def test_the_null_pair_is_noise_and_no_more() -> None:
    found = sources()
    found["narrow"] = Source(label="narrow", model=copy.deepcopy(MODELS["ref"]).bfloat16())
    measured = run(found, [*PAIRS, ("narrow", "ref")], noise_of="ref")
    assert torch.equal(measured.noise_positions, torch.arange(NUM_TOKENS))
    same, narrow, pair = measured.noise, measured.stats["narrow", "ref"], measured.stats["b", "ref"]
    assert same is not None
    assert float(same.js.max()) < 1e-9
    assert 0 < float(narrow.js.mean()) < float(pair.js.mean()) / 10
    for noise in (same, narrow):  # the null pair's reference is the run that the pairs use
        assert torch.equal(noise.logprob_ref, pair.logprob_ref)
        assert torch.equal(noise.rank_ref, pair.rank_ref)
    torch.testing.assert_close(same.logprob, pair.logprob_ref, rtol=1e-4, atol=1e-5)
    assert found["ref"].loads == 1


def test_the_second_run_has_other_batches_another_order_and_more_padding() -> None:
    inputs: list[Tensor] = []
    source = sources()["ref"]
    loaded = source.load()
    loaded.model.register_forward_pre_hook(
        lambda module, args, kwargs: inputs.append(kwargs["input_ids"]), with_kwargs=True
    )
    other = Source(label="b", model=MODELS["b"])
    keep = LoadedSource(label="ref", loaded=loaded)
    measure([keep, other], [("b", "ref")], SEQUENCES[:3], settings=ProbeConfig(), noise_of="ref")
    check, check_again, once, first, second = inputs
    assert check.shape == check_again.shape
    assert (len(once), len(first), len(second)) == (3, 2, 1)
    order = sorted(range(3), key=lambda index: sum(map(len, SEQUENCES[index])))
    last = SEQUENCES[order[2]]
    pad = TOKENIZER.pad_token_id
    assert first[0, 0] == first[1, 0] == second[0, 0] == pad
    assert [token for token in first[0].tolist() if token != pad] == [*last[0], *last[1]]
    shortest = SEQUENCES[order[0]]
    assert second[0].tolist() == [pad, *shortest[0], *shortest[1]]


def test_a_limited_null_pair_covers_whole_units_of_every_length() -> None:
    measured = run(noise_of="ref", noise_tokens=NUM_TOKENS // 2, tokens_per_batch=1)
    positions = measured.noise_positions.tolist()
    assert 0 < len(positions) <= NUM_TOKENS // 2
    assert positions == sorted(set(positions))
    whole = run(noise_of="ref", tokens_per_batch=1)
    for name in STATS:
        expected = getattr(whole.noise, name)[measured.noise_positions]
        assert torch.equal(getattr(measured.noise, name), expected)
    lengths = torch.tensor([len(completion) for _, completion in SEQUENCES])
    owner = torch.repeat_interleave(torch.arange(len(SEQUENCES)), lengths)
    for index in range(len(SEQUENCES)):  # a sequence is in the null pair whole or not at all
        inside = int((owner[measured.noise_positions] == index).sum())
        assert inside in (0, int(lengths[index]))
    assert len(run(noise_of="ref", noise_tokens=1, tokens_per_batch=1).noise_positions) in lengths.tolist()


def test_wrong_arguments_are_refused() -> None:
    found = list(sources().values())
    for pairs, sequences, noise_of, message in (
        ([("b", "nope")], SEQUENCES, None, "no model 'nope'; there are base, ref, b, c"),
        ([("b", "ref")], SEQUENCES, "nope", "no model 'nope'"),
        ([("b", "b")], SEQUENCES, None, "b cannot be paired with itself"),
        ([("b", "ref"), ("b", "ref")], SEQUENCES, None, "a pair is given twice"),
        ([], SEQUENCES, None, "no pairs of models to measure"),
        ([("b", "ref")], [], None, "no sequences to measure"),
        ([("b", "ref")], [([4], [])], None, "sequence 0 has an empty completion"),
    ):
        with pytest.raises(ValueError, match=message):
            measure(found, pairs, sequences, settings=SETTINGS, noise_of=noise_of)
    with pytest.raises(ValueError, match="every model needs a label of its own"):
        measure([*found, found[0]], PAIRS, SEQUENCES, settings=SETTINGS)


class Threads:
    """Processes that are threads here, to be tested without starting any."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size, timeout=60)
        self._values: list[Any] = [None] * size

    def world(self, rank: int) -> Any:
        outer = self

        class World:
            size = outer.size

            def __init__(self) -> None:
                self.rank = rank

            def barrier(self) -> None:
                outer._barrier.wait()

            def exchange(self, parts: list[bytes]) -> list[bytes]:
                outer._values[rank] = parts[0]  # the same for all
                outer._barrier.wait()
                values = list(outer._values)
                outer._barrier.wait()
                return values

        return World()

    def run(self, function: Callable[[Any], TokenStats]) -> list[TokenStats]:
        results: list[Any] = [None] * self.size

        def work(rank: int) -> None:
            results[rank] = function(self.world(rank))

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


@pytest.mark.parametrize("size", [2, 3, 20])
@pytest.mark.parametrize("on_disk", [False, True])
def test_any_number_of_processes_gives_the_same_bits(tmp_path: Path, size: int, on_disk: bool) -> None:
    settings: dict[str, Any] = {"top_k": 2, "noise_of": "ref", "store": tmp_path / "s" if on_disk else None}
    expected = run(**{**settings, "store": None})
    mine = [sources() for _ in range(size)]
    counts: list[int] = []
    for measured in Threads(size).run(
        lambda world: run(mine[world.rank], **settings, world=world, on_tokens=counts.append)
    ):
        assert_identical(measured, expected)
    assert sum(counts) == 4 * NUM_TOKENS
    per_model = [sum(sum(found[label].forwards) for found in mine) for label in ("base", "b", "c")]
    loaders = [sum(2 for found in mine if found[label].forwards) for label in ("base", "b", "c")]
    assert [forwards - checks for forwards, checks in zip(per_model, loaders, strict=True)] == [len(SEQUENCES)] * 3


def test_units_done_by_one_process_are_not_repeated_by_two(tmp_path: Path) -> None:
    expected = run(store=tmp_path)
    mine = [sources() for _ in range(2)]
    for measured in Threads(2).run(lambda world: run(mine[world.rank], store=tmp_path, world=world)):
        assert_identical(measured, expected)
    assert all(source.loads == 0 for found in mine for source in found.values())


@pytest.mark.slow
@pytest.mark.dist
def test_two_real_processes_give_the_same_bits(on_two_processes: Callable[..., Any], tmp_path: Path) -> None:
    on_two_processes(__file__, tmp_path)
    expected = flat(run(top_k=2, noise_of="ref"))
    from safetensors.torch import load_file

    for name in ("0", "1", "disk0", "disk1"):
        found = load_file(tmp_path / f"{name}.safetensors")
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in expected)


def flat(measured: TokenStats) -> dict[str, Tensor]:
    both = {**{"-".join(pair): one for pair, one in measured.stats.items()}, "noise": measured.noise}
    tensors = {f"{pair} {name}": getattr(one, name) for pair, one in both.items() for name in STATS}
    return {**tensors, **{f"top {label}": top.probs for label, top in measured.tops.items()}}


def _main(folder: Path) -> None:
    from safetensors.torch import save_file

    from swerve.world import joined_world

    torch.set_num_threads(1)
    with joined_world("cpu") as world:
        measured = run(top_k=2, noise_of="ref", world=world)
        save_file(flat(measured), folder / f"{world.rank}.safetensors")
        measured = run(top_k=2, noise_of="ref", world=world, store=folder / "s")
        save_file(flat(measured), folder / f"disk{world.rank}.safetensors")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
