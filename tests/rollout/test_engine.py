"""The engine a configuration names, and the calls that a training run makes of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from swerve.config import TorchEngineConfig
from swerve.rollout.engine import Engine, PolicyEngine, SamplingParams, make_engine
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
