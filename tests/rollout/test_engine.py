"""The engine a configuration names, and the calls that a training run makes of it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from swerve.batch import completion_logits, token_batches
from swerve.config import TorchEngineConfig
from swerve.config.engines import CustomEngineConfig
from swerve.functional import token_logprobs
from swerve.rollout.engine import Engine, SamplingParams, make_engine
from swerve.rollout.sync import PolicyEngine
from swerve.rollout.torch_engine import TorchEngine

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


@pytest.fixture(params=["torch", "custom", "server"])
def engine(request, tiny, custom_parts):
    """Each engine that ships or is shown in the documentation; what follows holds for any."""
    if request.param == "server":
        return request.getfixturevalue("server_engine")
    configs = {
        "torch": TorchEngineConfig(),
        "custom": CustomEngineConfig(path=f"{custom_parts}/my_engine.py:GenerateEngine"),
    }
    return make_engine(configs[request.param], *tiny, max_rows=16)


def test_contract_seeds_decide_and_nothing_else_in_the_call_does(engine):
    sampled = engine.generate(PROMPTS, PARAMS, seeds=[3, 4, 5])
    state = torch.get_rng_state()
    alone = engine.generate(PROMPTS[1:2], PARAMS, seeds=[4])
    assert [each.token_ids for each in alone[0]] == [each.token_ids for each in sampled[1]]
    assert bool((torch.get_rng_state() == state).all())
    assert engine.generate(PROMPTS, PARAMS, seeds=[6, 7, 8]) != sampled


def test_contract_completions_end_at_a_stop_token_or_their_budget(engine):
    finished: list[int] = []
    params = SamplingParams(num_samples=20, max_new_tokens=6, temperature=1.0, stop_ids=(2,))
    groups = engine.generate(PROMPTS, params, seeds=[3, 4, 5], budgets=[2, 6, 4], on_finished=finished.append)
    assert sum(finished) == 60
    reasons: Counter[str] = Counter()
    for budget, group in zip([2, 6, 4], groups, strict=True):
        for each in group:
            assert 2 not in each.token_ids[:-1]
            assert each.finish_reason == ("stop" if each.token_ids[-1] == 2 else "length")
            assert each.finish_reason == "stop" or len(each.token_ids) == budget
            reasons[each.finish_reason] += 1
    assert set(reasons) == {"stop", "length"}


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_contract_logprobs_are_those_of_the_distribution_sampled_from(engine, tiny, temperature):
    params = SamplingParams(num_samples=1, max_new_tokens=6, temperature=temperature, stop_ids=())
    groups = engine.generate(PROMPTS, params, seeds=[3, 4, 5])
    sequences = [(prompt, group[0].token_ids) for prompt, group in zip(PROMPTS, groups, strict=True)]
    with torch.inference_mode():
        (batch,) = token_batches(sequences, pad_id=0, tokens_per_batch=200)
        logits = completion_logits(tiny[0], batch) / (temperature or 1.0)
    logprobs = token_logprobs(logits, batch.completion_ids)
    for index, row in enumerate(batch.rows):
        assert logprobs[index].tolist() == pytest.approx(groups[row][0].logprobs, abs=1e-5)
    if not temperature:
        assert bool((logits.argmax(dim=-1) == batch.completion_ids).all())


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
    policy = PolicyEngine(lambda: pytest.fail("made"))
    policy.close()
