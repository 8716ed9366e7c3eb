"""SGLang's native API, as its documentation describes it: through a real socket, to a stand-in with a real tiny model.

What holds for any engine is in `test_engine.py`, for any server in `test_server_engine.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from pydantic import ValidationError

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.config.engines import ServerEngineConfig
from swerve.errors import EngineError
from swerve.models.starting_model import new_tiny_model
from swerve.problems import load_family
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.rollout.engine import SamplingParams, make_engine
from swerve.rollout.sglang_protocol import request_body
from swerve.rollout.torch_engine import TorchEngine
from swerve.train.loop import train_run
from tests.rollout.servers import SglangStandIn, StandIn

PROMPTS = [[1, 4, 5, 6], [1, 7], [1, 4, 4, 9, 8, 6]]
GREEDY = SamplingParams(num_samples=1, max_new_tokens=6, temperature=0.0, stop_ids=(2,))
PARAMS = SamplingParams(num_samples=2, max_new_tokens=6, temperature=1.0, stop_ids=(2,))


@pytest.fixture
def server(tiny, monkeypatch) -> Iterator[SglangStandIn]:
    monkeypatch.setattr("swerve.rollout.server_engine._PAUSE", 0.01)
    stand_in = SglangStandIn(tiny[0])
    stand_in.start()
    yield stand_in
    stand_in.stop()


@pytest.fixture
def sample(server, tiny, tmp_path) -> Callable[..., Any]:
    def sample(params: SamplingParams = PARAMS, **options: Any) -> Any:
        config = ServerEngineConfig(
            urls=(server.url,), dialect="sglang", folder=str(tmp_path), **{"patience": 0.0, **options}
        )
        with closing(make_engine(config, *tiny, max_rows=16)) as engine:
            return engine.generate(PROMPTS, params, seeds=[3, 4, 5])

    return sample


def test_greedy_completions_are_those_of_the_embedded_engine_in_new_and_older_versions(sample, server, tiny):
    expected = TorchEngine(tiny[0], pad_id=0, max_rows=4).generate(PROMPTS, GREEDY, seeds=[3, 4, 5])
    for prefix in ("/", "/get_"):
        server.prefix = prefix
        for (own,), (other,) in zip(sample(GREEDY), expected, strict=True):
            assert own.token_ids == other.token_ids
            assert own.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_a_request_sets_what_the_folder_or_the_server_could_have_other_defaults_for():
    body = request_body("", [1, 4], PARAMS, seed=3, max_tokens=5, logit_bias={9: -100.0})
    assert body["input_ids"] == [[1, 4], [1, 4]]
    assert (body["return_logprob"], body["logprob_start_len"]) == (True, -1)
    first, second = body["sampling_params"]
    assert 0 <= first.pop("sampling_seed") != second.pop("sampling_seed") < 2**31
    assert first == second
    assert first == {
        "max_new_tokens": 5,
        "min_new_tokens": 0,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop_token_ids": [2],
        "ignore_eos": False,  # it would ignore the stop tokens too
        "no_stop_trim": True,
        "skip_special_tokens": False,
        "logit_bias": {9: -100.0},
    }


def meta(**values: Any) -> Callable[[Any], Any]:
    """Answer with these values in the `meta_info` of each completion."""
    return lambda answer: (200, [{**each, "meta_info": {**each["meta_info"], **values}} for each in answer])


FAULTS: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "too few": ("/generate", lambda answer: (200, answer[1:]), "has no list of"),
    "an error in place of a list": ("/generate", lambda _: (200, {"error": {}}), "has no list of"),
    "no log-probs": ("/generate", meta(output_token_logprobs=None), "no log-probability of each token"),
    "a log-prob without a value": ("/generate", meta(output_token_logprobs=[[None, 4, None]]), "no log-probability"),
    "id beyond the model": ("/generate", meta(output_token_logprobs=[[-1.0, 99, None]]), "sampled the token id 99"),
    "aborted": (
        "/generate",
        meta(output_token_logprobs=[], finish_reason={"type": "abort", "message": "Aborted"}),
        "did not answer for 0 s (it ended a completion (abort))",
    ),
    "another's weights": ("/generate", meta(weight_version="v000004-abc"), "was given the weights v000004-abc by"),
    "bad request": ("/generate", lambda _: (400, {"error": {"message": "too long"}}), "answered with 400 (too long)"),
    "cannot load": (
        "/update_weights_from_disk",
        lambda _: (400, {"success": False, "message": "Failed to load: size 96"}),
        "(Failed to load: size 96): it could not load the weights in",
    ),
    "type": ("/server_info", lambda info: (200, {**info, "dtype": "auto"}), "start it with --dtype bfloat16"),
    "cache": ("/flush_cache", lambda _: (400, "Cache flushed"), "does not empty its prefix cache"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_with_the_server(sample, server, fault):
    route, broken, message = FAULTS[fault]
    server.broken[route] = broken
    with pytest.raises(EngineError) as caught:
        sample(timeout=0.5 if fault == "cache" else 60.0)
    assert str(caught.value).startswith(server.url)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_busy_cache_is_waited_for_and_seeds_that_count_for_nothing_are_named(sample, server, caplog):
    server.busy, expected = 3, sample()
    assert sample() == expected
    assert not caplog.text
    server.info["enable_deterministic_inference"] = False
    sample()
    assert "ignores seeds" in caplog.text


def test_a_server_that_hangs_is_left_and_one_that_ends_at_its_own_end_tokens_is_named(sample, server, monkeypatch):
    monkeypatch.setattr("swerve.rollout.server_engine._SILENCE", 0.3)
    sample()

    def hang(answer: Any) -> Any:
        server.hangs.set()
        return 200, answer

    server.broken["/generate"] = hang
    with pytest.raises(EngineError, match="it has written no token for"):
        sample()
    server.hangs.clear()
    del server.broken["/generate"]
    server.end_ids = set(range(4, 11))
    with pytest.raises(EngineError, match="SGLang also ends at the end tokens of its own model"):
        sample()


def test_a_server_of_the_other_program_is_named(sample, server, tiny, tmp_path):
    config = ServerEngineConfig(urls=(server.url,), folder=str(tmp_path), patience=0.0)
    with closing(make_engine(config, *tiny, max_rows=16)) as engine, pytest.raises(EngineError) as caught:
        engine.generate(PROMPTS, PARAMS, seeds=[3, 4, 5])
    assert "if it is one of SGLang, set rollout.engine.dialect=sglang" in str(caught.value)
    server.prefix = "/none"
    with pytest.raises(EngineError, match=r"is it a server of SGLang\? \(rollout.engine.dialect\)"):
        sample()


def test_what_one_model_in_a_server_cannot_have_is_refused():
    for options in ({"weights": "transfer"}, {"served_model": "policy"}):
        with pytest.raises(ValidationError, match="dialect=sglang takes weights=folder and no served_model"):
            ServerEngineConfig(dialect="sglang", **options)


RECIPE = """
name: served
task: {kind: addition, digits: 2, num_train: 20, num_heldout: 8}
model: {kind: tiny, hidden_size: 32, intermediate_size: 48}
max_new_tokens: 31
stages:
  - {kind: rl, steps: 3, prompts_per_step: 2, samples_per_prompt: 2, zero_variance: keep, entropy: {coef: 0.1},
     optimizer: {lr: 1e-2}}
rollout: {engine: {kind: server}}
runtime: {device: cpu, threads: 1}
"""


@pytest.mark.slow
def test_training_with_it_gives_the_numbers_of_training_with_vllm(tmp_path, monkeypatch):
    """Both stand-ins draw with the seeds that they are sent, so the requests are made to have the same ones."""

    def small_seed(seed: int, _: str, index: int = 0) -> int:
        return seed % 2**10 * 2**20 + index

    monkeypatch.setattr("swerve.rollout.vllm_protocol.derive_seed", lambda *path: 2 * small_seed(*path))
    monkeypatch.setattr("swerve.rollout.sglang_protocol.derive_seed", small_seed)
    (tmp_path / "served.yaml").write_text(RECIPE)
    config = load_config(tmp_path / "served.yaml", [f"rollout.engine.folder={tmp_path / 'weights'}"])
    metrics = {}
    for dialect, kind in (("vllm", StandIn), ("sglang", SglangStandIn)):
        server = kind(new_tiny_model(config, load_family(config.task))[0])
        server.start()
        engine = config.rollout.engine.model_copy(update={"urls": (server.url,), "dialect": dialect})
        changed = config.model_copy(update={"rollout": config.rollout.model_copy(update={"engine": engine})})
        run = RunDirectory(tmp_path / dialect)
        train_run(changed, run, resume=False, progress=SilentProgress())
        server.stop()
        assert len(server.loaded) == 3
        metrics[dialect] = [
            {name: value for name, value in step.items() if not name.endswith("seconds")}
            for step in read_metrics(run.metrics_path)
        ]
    assert metrics["sglang"] == metrics["vllm"]
    assert [step["logprob_gap"] < 1e-4 for step in metrics["sglang"]] == [True] * 3
