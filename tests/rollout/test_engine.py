"""The engine a configuration names, and the calls that a training run makes of it."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from swerve.batch import completion_logits, token_batches
from swerve.config.engines import (
    CustomEngineConfig,
    EngineConfig,
    OpenAIEngineConfig,
    ServerEngineConfig,
    TorchEngineConfig,
)
from swerve.config.models import TinyModel
from swerve.errors import EngineError
from swerve.functional import token_logprobs
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.rollout.engine import Engine, SamplingParams, make_engine
from swerve.rollout.openai_engine import OpenAIEngine
from swerve.rollout.sync import PolicyEngine
from swerve.rollout.torch_engine import TorchEngine
from swerve.train.replicated_model import ReplicatedModel
from swerve.world import World
from tests.rollout.openai_server import openai_server
from tests.rollout.servers import SglangStandIn, StandIn, stand_in, vllm_server

PARAMS = SamplingParams(num_samples=2, max_new_tokens=6, temperature=1.0, stop_ids=(2,))


def test_the_engine_of_a_configuration_has_its_options(tiny):
    prompts, seeds = [[1, 4, 5, 6, 7], [1, 4, 5, 6, 8]], [3, 4]
    made = {
        share: make_engine(TorchEngineConfig(share_prefixes=share), *tiny, max_rows=2) for share in ("auto", "never")
    }
    for share, engine in made.items():
        alone = TorchEngine(tiny[0], pad_id=0, max_rows=2, share_prefixes=share)
        assert engine.generate(prompts, PARAMS, seeds=seeds) == alone.generate(prompts, PARAMS, seeds=seeds)
        assert engine.version == 0
    with pytest.raises(ValueError, match="max_rows must be at least 1"):
        make_engine(TorchEngineConfig(), *tiny, max_rows=0)


PROMPTS = [[1, 4, 5, 6], [1, 7], [1, 4, 4, 9, 8, 6]]
LONG = [1, *range(4, 10), *[5, 6, 7, 8, 4] * 40]
"""Longer than the blocks, of 128 tokens on a CPU, in which vLLM keeps the keys and values of prompts."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An engine under contract, and the policy that it samples from."""

    engine: Engine
    model: Any

    def errors(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[float]:
        """Sample; return the differences (nats) of the completions' log-probs from those of the policy."""
        groups = self.engine.generate(prompts, params, seeds=range(len(prompts)))
        sequences = [(prompt, each.token_ids) for prompt, group in zip(prompts, groups, strict=True) for each in group]
        sampled = [each.logprobs for group in groups for each in group]
        with torch.inference_mode():
            (batch,) = token_batches(sequences, pad_id=0, tokens_per_batch=100_000)
            logits = completion_logits(self.model, batch) / (params.temperature or 1.0)
        expected = token_logprobs(logits, batch.completion_ids)
        return [
            abs(float(value) - other)
            for index, row in enumerate(batch.rows)
            for value, other in zip(expected[index], sampled[row], strict=False)
        ]

    def sync(self, other: Any, *, version: int) -> None:
        """Make the policy that of `other`, and give it to the engine as training does."""
        self.model.load_state_dict(other.state_dict())
        self.engine.sleep()
        self.engine.load(ReplicatedModel(self.model, World()).stream_weights(), version=version)
        self.engine.wake()


def _model(seed: int, *, tied: bool) -> Any:
    tokenizer = build_word_tokenizer(load_family(AdditionTask()).words)
    sizes = TinyModel(
        hidden_size=64, num_heads=2, num_kv_heads=1, intermediate_size=48, initializer_range=0.2, tie_embeddings=tied
    )
    return build_tiny_model(sizes, tokenizer, seed=seed).eval(), tokenizer


REAL = [pytest.param(kind, marks=pytest.mark.vllm) for kind in ("server tied", "server untied", "openai untied")]


@pytest.fixture(scope="module", params=["torch", "custom", "server", "sglang", "openai", *REAL])
def subject(request, custom_parts, tmp_path_factory):
    """Each engine that ships or is shown in the documentation; what follows holds for any."""
    name, _, head = request.param.partition(" ")
    model, tokenizer = _model(1, tied=head != "untied")
    configs: dict[str, EngineConfig] = {
        "torch": TorchEngineConfig(),
        "custom": CustomEngineConfig(path=f"{custom_parts}/my_engine.py:GenerateEngine"),
    }
    with ExitStack() as stack:
        if name in ("server", "sglang", "openai"):
            folder, kind = tmp_path_factory.mktemp("weights"), SglangStandIn if name == "sglang" else StandIn
            served = _served(model, tokenizer, folder) if head else stand_in(copy.deepcopy(model), kind)
            dialect = "sglang" if name == "sglang" else "vllm"
            url = stack.enter_context(served)
            configs[name] = ServerEngineConfig(urls=(url,), dialect=dialect, folder=str(folder), patience=20.0)
            if name == "openai":
                configs[name] = OpenAIEngineConfig(url=url, patience=20.0)
        engine = stack.enter_context(closing(make_engine(configs[name], model, tokenizer, max_rows=64)))
        yield Subject(engine, model)


@contextmanager
def _served(model: Any, tokenizer: Any, folder: Path) -> Iterator[str]:
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    with vllm_server(folder / "model", folder) as url:
        yield url


@pytest.fixture
def engine(subject):
    return subject.engine


def test_contract_seeds_decide_and_nothing_else_in_the_call_does(engine):
    state = torch.get_rng_state()
    sampled = engine.generate(PROMPTS, PARAMS, seeds=[3, 4, 2**63 - 1])
    assert engine.generate(PROMPTS, PARAMS, seeds=[3, 4, 2**63 - 1]) == sampled
    alone = engine.generate(PROMPTS[1:2], PARAMS, seeds=[4])
    assert [each.token_ids for each in alone[0]] == [each.token_ids for each in sampled[1]]
    assert bool((torch.get_rng_state() == state).all())
    assert engine.generate(PROMPTS, PARAMS, seeds=[6, 7, 8]) != sampled


def test_contract_samples_of_a_prompt_and_of_neighbouring_seeds_differ(engine):
    params = SamplingParams(num_samples=3, max_new_tokens=12, temperature=1.0, stop_ids=())
    first, second = engine.generate([PROMPTS[0]] * 2, params, seeds=[8, 9])
    assert len({each.token_ids for each in (*first, *second)}) == 6


def test_contract_an_empty_call_gives_nothing(engine):
    assert engine.generate([], PARAMS, seeds=[]) == []


def test_contract_completions_end_at_a_stop_token_or_their_budget(engine):
    finished: list[int] = []
    params = SamplingParams(num_samples=20, max_new_tokens=6, temperature=1.0, stop_ids=(2, 9))
    groups = engine.generate(PROMPTS, params, seeds=[3, 4, 5], budgets=[2, 6, 4], on_finished=finished.append)
    assert sum(finished) == 60
    reasons: Counter[str] = Counter()
    for budget, group in zip([2, 6, 4], groups, strict=True):
        for each in group:
            assert not {2, 9} & set(each.token_ids[:-1])
            assert each.finish_reason == ("stop" if each.token_ids[-1] in (2, 9) else "length")
            assert each.finish_reason == "stop" or len(each.token_ids) == budget
            reasons[each.finish_reason] += 1
    assert set(reasons) == {"stop", "length"}


def test_contract_only_the_given_stop_tokens_end_a_completion(engine):
    """Token 2 is the model's own end-of-sequence token, which counts only where it is asked for."""
    params = SamplingParams(num_samples=20, max_new_tokens=12, temperature=1.0, stop_ids=())
    ids = [each.token_ids for group in engine.generate(PROMPTS, params, seeds=[3, 4, 5]) for each in group]
    assert {len(each) for each in ids} == {12}
    assert any(2 in each[:-1] for each in ids)


def test_contract_more_tokens_of_prompts_than_one_forward_pass_takes(subject):
    prompts = [[1, 4 + number % 7, *(LONG[number % 5 :])] for number in range(80)]
    params = SamplingParams(num_samples=1, max_new_tokens=2, temperature=1.0, stop_ids=())
    assert max(subject.errors(prompts, params)) < 1e-4


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_contract_logprobs_are_those_of_the_distribution_sampled_from(subject, temperature):
    params = SamplingParams(num_samples=2, max_new_tokens=6, temperature=temperature, stop_ids=())
    assert max(subject.errors(PROMPTS, params)) < 1e-5
    if not temperature:
        (group,) = subject.engine.generate(PROMPTS[:1], params, seeds=[0])
        ids = list(PROMPTS[0])
        for token in group[0].token_ids:
            assert int(subject.model(torch.tensor([ids])).logits[0, -1].argmax()) == token
            ids.append(token)


def test_contract_what_the_model_has_no_room_or_embedding_for_is_named(subject):
    limit = subject.model.config.max_position_embeddings
    with pytest.raises(EngineError, match=f"prompt 1 has {limit - 2} tokens and may grow by 6"):
        subject.engine.generate([[1], [1] * (limit - 2)], PARAMS, seeds=[1, 2])
    with pytest.raises(ValueError, match="prompt 0 is empty"):
        subject.engine.generate([[]], PARAMS, seeds=[1])
    num = subject.model.get_input_embeddings().num_embeddings
    said = f"prompt 1 has the token id {num}, and the model has embeddings of the ids 0 to {num - 1}"
    with pytest.raises(EngineError, match=said):
        subject.engine.generate([[1], [1, num]], PARAMS, seeds=[1, 2])


def test_contract_new_weights_are_sampled_with_also_after_a_cached_prompt_and_back_again(subject):
    """A policy, another one, and the first again, with prompts that the engine has read before."""
    prompts, engine = [*PROMPTS, LONG], subject.engine
    if isinstance(engine, OpenAIEngine):
        with pytest.raises(EngineError, match="cannot give a server new weights"):
            engine.load([], version=7)
        return
    first, second = copy.deepcopy(subject.model), _model(2, tied=subject.model.config.tie_word_embeddings)[0]
    params = SamplingParams(num_samples=2, max_new_tokens=6, temperature=1.0, stop_ids=())
    before = engine.generate(prompts, params, seeds=range(4))
    subject.sync(second, version=7)
    assert engine.version == 7
    assert max(subject.errors(prompts, params)) < 1e-4
    assert engine.generate(prompts, params, seeds=range(4)) != before
    subject.sync(first, version=8)
    assert max(subject.errors(prompts, params)) < 1e-4
    again = engine.generate(prompts, params, seeds=range(4))
    for group, other in zip(before, again, strict=True):
        for each, same in zip(group, other, strict=True):
            assert each.token_ids == same.token_ids
            assert each.logprobs == pytest.approx(same.logprobs, abs=1e-5)


def test_a_server_with_other_weights_or_without_ids_is_refused():
    model, other = _model(1, tied=True)[0], _model(2, tied=True)[0]
    with ExitStack() as stack:
        url = stack.enter_context(stand_in(other))
        engine = OpenAIEngine(model, pad_id=0, max_rows=4, url=f"{url}/v1", patience=0.0)
        with pytest.raises(EngineError, match=r"\(policy\) does not sample with the weights of Qwen3ForCausalLM"):
            engine.generate(PROMPTS, PARAMS, seeds=[1, 2, 3])
        texts = stack.enter_context(openai_server())
        engine = OpenAIEngine(model, pad_id=0, max_rows=4, url=f"{texts.url}/v1", patience=0.0)
        with pytest.raises(EngineError, match="returns texts without token ids .* need; serve the model with vLLM"):
            engine.generate(PROMPTS, PARAMS, seeds=[1, 2, 3])


class _Recorder(Engine):
    """Writes down what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[Any] = ["make"]

    def generate(self, prompts: Any, params: Any, **_more: Any) -> Any:
        self.calls.append(("generate", self.version))
        return []

    def load(self, weights: Any, *, version: int) -> None:
        super().load(weights, version=version)
        self.calls.append(("load", version, [name for name, _ in weights]))

    def sleep(self) -> None:
        self.calls.append("sleep")

    def wake(self) -> None:
        self.calls.append("wake")

    def close(self) -> None:
        self.calls.append("close")


def test_the_engine_of_a_run_loads_new_weights_only_and_sleeps_in_between():
    made: list[_Recorder] = []

    def make() -> _Recorder:
        made.append(_Recorder())
        return made[-1]

    policy = PolicyEngine(make)
    assert not made
    for version in (0, 0, 1):
        with policy.awake([("head", torch.zeros(1))], version=version) as engine:
            engine.generate([], PARAMS, seeds=[])
    with pytest.raises(RuntimeError, match="out of memory"), policy.awake([], version=1):
        raise RuntimeError("out of memory")
    policy.close()
    (only,) = made
    sampled = ["wake", ("generate", 0), "sleep"]
    assert only.calls == [
        "make",
        ("load", 0, ["head"]),
        *sampled,
        *sampled,
        ("load", 1, ["head"]),
        "wake",
        ("generate", 1),
        "sleep",
        "wake",
        "sleep",
        "close",
    ]


def test_a_run_that_samples_nothing_makes_no_engine():
    made: list[str] = []
    policy = PolicyEngine(lambda: made.append("engine"))
    policy.close()
    assert not made
