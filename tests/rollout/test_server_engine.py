"""The engine whose model is in a server: through a real socket, to a stand-in that answers as vLLM 0.32 does."""

from __future__ import annotations

import copy
import fcntl
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.config import AdditionTask, TinyModel
from swerve.config.engines import ServerEngineConfig
from swerve.errors import EngineError, InterruptedRunError
from swerve.interruption import deferred_signals
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.problems import load_family
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.rollout.engine import Engine, SamplingParams, make_engine
from swerve.rollout.torch_engine import TorchEngine
from swerve.rollout.weights_folder import WeightsFolder
from swerve.train import train
from swerve.train.initial import new_tiny_model
from tests.rollout.servers import StandIn, vllm_server

PROMPTS = [[1, 4, 5, 6], [1, 7], [1, 4, 4, 9, 8, 6]]
GREEDY = SamplingParams(num_samples=1, max_new_tokens=6, temperature=0.0, stop_ids=(2,))
PARAMS = SamplingParams(num_samples=2, max_new_tokens=6, temperature=1.0, stop_ids=(2,))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("swerve.rollout.server_engine._PAUSE", 0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "weights"


@pytest.fixture
def make(tiny, folder: Path) -> Iterator[Callable[..., Engine]]:
    """Make engines, closed at the end of the test."""
    made: list[Engine] = []

    def new(*servers: StandIn, **options: Any) -> Engine:
        urls = tuple(one.url for one in servers)
        config = ServerEngineConfig(**{"urls": urls, "folder": str(folder), "patience": 0.0, **options})
        made.append(make_engine(config, *tiny, max_rows=16))
        return made[-1]

    yield new
    for engine in made:
        engine.close()


def changed(tiny, seed: int) -> Any:
    """Return the tiny model with other weights."""
    generator = torch.Generator().manual_seed(seed)
    model = copy.deepcopy(tiny[0])
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model


def sampled(engine: Engine, **changes: Any) -> Any:
    request = {"prompts": PROMPTS, "params": PARAMS, "seeds": [3, 4, 5], **changes}
    return engine.generate(request.pop("prompts"), request.pop("params"), **request)


def error_of(act: Callable[[], Any]) -> str:
    with pytest.raises(EngineError) as caught:
        act()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_neither_the_api_nor_the_number_of_servers_changes_a_completion(make, server, tiny):
    (expected, other) = (sampled(make(server)), StandIn(tiny[0]))
    other.start()
    assert sampled(make(server, api="completions")) == expected
    asked = server.calls["/inference/v1/generate"]
    assert sampled(make(server, other)) == expected
    assert server.calls["/inference/v1/generate"] > asked
    assert other.calls["/inference/v1/generate"] > 2  # the first are the engine's own trials
    other.stop()


def test_new_weights_are_sampled_with_and_their_files_go_when_no_server_needs_them(make, server, tiny, folder):
    engine, models = make(server), [changed(tiny, seed) for seed in (1, 2)]
    numbers = []
    for version, model in ((0, models[0]), (1, models[1]), (2, models[0])):
        engine.load(model.state_dict().items(), version=version)
        assert engine.version == version
        numbers.append(sampled(engine))
        (written,) = folder.glob("v*")
        assert written.name.startswith(f"v{version:06d}-")
        assert {"config.json", "model.safetensors"} < {file.name for file in written.iterdir()}
        assert server.version == written.name.rpartition("-")[0]
        ((once,), *_) = sampled(engine, params=GREEDY)
        ((same,), *_) = TorchEngine(model, pad_id=0, max_rows=4).generate(PROMPTS, GREEDY, seeds=[3, 4, 5])
        assert once.token_ids == same.token_ids
        assert once.logprobs == pytest.approx(same.logprobs, abs=1e-5)
    assert numbers[0] == numbers[2] != numbers[1]
    assert len(set(server.loaded)) == 3
    engine.close()
    assert list(folder.glob("*")) == [one for one in folder.glob(".*") if one.is_file()]


def test_weights_are_written_in_the_type_of_the_server(make, server, tiny, folder):
    server.info["dtype"] = "torch.bfloat16"
    make(server).load(tiny[0].state_dict().items(), version=3)
    ((name, value), *_) = server.model.state_dict().items()
    assert bool((value == dict(tiny[0].state_dict())[name].bfloat16().float()).all())


def test_engines_that_share_a_server_each_sample_with_their_own_weights(server, tiny, folder):
    models = [changed(tiny, seed) for seed in (1, 2)]
    config = ServerEngineConfig(urls=(server.url,), folder=str(folder), patience=0.0)
    engines = [make_engine(config, model, tiny[1], max_rows=16) for model in models]
    first = [sampled(engine) for engine in engines]
    assert [sampled(engine) for engine in engines] == first
    assert first[0] != first[1]
    for engine in engines:
        engine.close()


def test_a_server_with_other_weights_than_it_says_is_not_evaluated_with(server, tiny, folder):
    server.keeps_weights = True
    config = ServerEngineConfig(urls=(server.url,), folder=str(folder), patience=0.0)
    with closing(make_engine(config, changed(tiny, 1), tiny[1], max_rows=16)) as engine:
        assert f"{server.url} does not sample with the model's weights" in error_of(lambda: sampled(engine))


def test_a_server_that_could_not_load_weights_is_not_used_again(make, server, tiny):
    server.broken["/collective_rpc"] = lambda _: (500, {"error": {"message": "size 96"}})
    assert "(size 96): it could not load" in error_of(lambda: sampled(make(server)))
    server.broken.clear()
    assert f"{server.url} could not load weights earlier" in error_of(lambda: sampled(make(server)))
    server.restart()
    assert len(sampled(make(server))) == 3


def test_what_a_killed_run_left_goes_and_what_another_needs_stays(make, server, folder):
    for name in ("v000007-abc-1", ".tmp-v000008-abc-2", "v000009-abc-3"):
        (folder / name).mkdir(parents=True)
        (folder / name / ".lock").touch()
    with (folder / "v000009-abc-3" / ".lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        sampled(make(server))
    assert sorted(one.name[:7] for one in folder.iterdir() if one.is_dir()) == ["v000000", "v000009"]


def answers(**values: Any) -> Callable[[Any], Any]:
    """Answer with these values in every choice; None takes one out."""

    def broken(answer: Any) -> Any:
        choices = [{**one, **values} for one in answer["choices"]]
        return 200, {"choices": [{key: one[key] for key in one if one[key] is not None} for one in choices]}

    return broken


ROUTE = "/inference/v1/generate"
FAULTS: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "not JSON": (ROUTE, lambda _: (200, "<html>hello"), "'<html>hello', which is not JSON"),
    "no choices": (ROUTE, lambda _: (200, {"text": "4"}), "the answer to POST /inference/v1/generate has no choices"),
    "too few": (ROUTE, lambda found: (200, {"choices": found["choices"][1:]}), "choices in place of"),
    "no ids": (ROUTE, answers(token_ids=None), "has no token ids"),
    "no log-probs": (ROUTE, answers(logprobs=None), "has no log-probability of each token"),
    "log-prob of minus infinity": (ROUTE, answers(logprobs={"content": [{"logprob": None}]}), "no log-probability"),
    "id beyond the model": (
        ROUTE,
        answers(token_ids=[99], logprobs={"content": [{"logprob": -1.0}]}),
        "sampled the token id 99; the model has ids below",
    ),
    "cut off": (
        ROUTE,
        answers(token_ids=[4], logprobs={"content": [{"logprob": -1.0}]}),
        "a completion of 1 tokens was to end",
    ),
    "another's weights": (
        ROUTE,
        answers(weight_versions=[{"version": "v000004-abc"}]),
        "was given the weights v000004-abc by somebody else",
    ),
    "cannot sample": (
        ROUTE,
        lambda _: (500, {"error": {"message": "EngineCore is\nbroken"}}),
        "was answered with 500 (EngineCore is broken), although /health says 200",
    ),
    "no token endpoint": (ROUTE, lambda _: (404, "Not Found"), "start it with --enable-scale-out, or set"),
    "bad request": (ROUTE, lambda _: (400, {"error": {"message": "n is too high"}}), "with 400 (n is too high)"),
    "reload fails": (
        "/collective_rpc",
        lambda _: (500, {"error": {"message": "no such file"}}),
        "no such file): it could not load the weights in",
    ),
    "no developer mode": ("/weight_info", lambda _: (404, ""), "VLLM_SERVER_DEV_MODE=1"),
    "cache": ("/reset_prefix_cache", lambda _: (200, {"success": False}), "does not empty its prefix cache"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_line_with_the_server(make, server, fault):
    route, broken, message = FAULTS[fault]
    server.broken[route] = broken
    found = error_of(lambda: sampled(make(server, timeout=0.5 if fault == "cache" else 60.0)))
    assert found.startswith(server.url)
    assert message in found


def test_what_does_not_fit_is_refused_before_it_is_asked_for(make, server):
    engine = make(server)
    sampled(engine)
    asked = server.calls[ROUTE]
    assert "prompt 1 has the token id 99, and the model has embeddings of the ids 0 to 10" in error_of(
        lambda: sampled(engine, prompts=[[1], [99], [1]])
    )
    assert "temperature 0.01 in place of 0.001" in error_of(
        lambda: sampled(engine, params=SamplingParams(num_samples=1, max_new_tokens=6, temperature=1e-3, stop_ids=()))
    )
    server.max_model_len = 9
    assert "takes 9 tokens, and prompt 0 has 4 and may grow by 6; start it with a higher --max-model-len" in error_of(
        lambda: sampled(make(server))
    )
    assert "serves policy, not judge" in error_of(lambda: sampled(make(server, served_model="judge")))
    server.info["logprobs_mode"] = "raw_logprobs"
    assert "--logprobs-mode processed_logprobs" in error_of(lambda: sampled(make(server)))
    assert server.calls[ROUTE] == asked


def test_a_server_that_is_not_there_or_does_not_answer_is_named(make, server):
    free = socket.socket()
    free.bind(("127.0.0.1", 0))
    missing = StandIn(None)
    missing.port = free.getsockname()[1]
    free.close()
    assert f"{missing.url} did not answer for 0 s (nothing listens there)" in error_of(lambda: sampled(make(missing)))
    engine = make(server)
    sampled(engine)
    engine._timeout = 0.1
    server.broken[ROUTE] = lambda found: (server.stopped.wait(0.5), found)
    assert "was not answered within 0.1 s" in error_of(lambda: sampled(engine))


@pytest.mark.parametrize("api", ["tokens", "completions"])
def test_a_server_that_is_killed_and_started_again_gives_the_same_completions(make, server, tiny, caplog, api):
    engine, route = make(server, patience=20.0, api=api), {"tokens": ROUTE, "completions": "/v1/completions"}[api]
    engine.load(changed(tiny, seed=1).state_dict().items(), version=1)
    expected = sampled(engine)

    def die(_: Any) -> tuple[None, None]:
        del server.broken[route]
        server.kill()
        threading.Timer(0.1, server.restart).start()
        return None, None

    server.broken[route] = die
    assert sampled(engine) == expected
    assert len(server.loaded) == 2
    assert f"{server.url} answers again" in caplog.text
    assert "waiting for it, 20 s at most" in caplog.text


def test_a_server_that_stays_dead_ends_the_call_after_the_patience(make, server):
    engine = make(server, patience=0.2)
    sampled(engine)
    server.stop()
    started = time.monotonic()
    assert "did not answer for 0.2 s (nothing listens there): start it again" in error_of(lambda: sampled(engine))
    assert 0.2 <= time.monotonic() - started < 10


def test_a_signal_ends_the_wait_for_a_server(make, server):
    engine = make(server, patience=60.0)
    sampled(engine)
    server.stop()
    with deferred_signals(), pytest.raises(InterruptedRunError, match="interrupted while waiting for http") as caught:
        os.kill(os.getpid(), signal.SIGINT)
        sampled(engine)
    assert caught.value.exit_status == 130


def test_ctrl_c_does_not_wait_for_an_answer(make, server):
    engine = make(server)
    sampled(engine)
    server.broken[ROUTE] = lambda found: (os.kill(os.getpid(), signal.SIGINT), server.stopped.wait(30), found)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        sampled(engine)
    assert time.monotonic() - started < 15


RECIPE = """
name: served
task: {kind: addition, digits: 2, num_train: 20, num_heldout: 8}
model: {kind: tiny, hidden_size: 32, intermediate_size: 48}
max_new_tokens: 31
stages:
  - {kind: rl, steps: 3, prompts_per_step: 2, samples_per_prompt: 2, zero_variance: keep, entropy: {coef: 0.1},
     save_every: 1, optimizer: {lr: 1e-2}}
rollout: {engine: {kind: server}}
runtime: {device: cpu, threads: 1}
"""


@pytest.mark.slow
def test_a_run_continues_after_its_server_was_killed_or_is_somewhere_else(tmp_path, caplog):
    """Three runs end with the same numbers: without a kill, with one that is waited for, and one that is not."""
    (tmp_path / "served.yaml").write_text(RECIPE)
    config = load_config(tmp_path / "served.yaml", [f"rollout.engine.folder={tmp_path / 'weights'}"])
    server = StandIn(new_tiny_model(config, load_family(config.task))[0])

    def trained(name: str, **options: Any) -> list[Any]:
        engine = config.rollout.engine.model_copy(update={"urls": (server.url,), "patience": 20.0, **options})
        changed = config.model_copy(update={"rollout": config.rollout.model_copy(update={"engine": engine})})
        run = RunDirectory(tmp_path / name)
        train(changed, run, resume=run.path.exists(), progress=SilentProgress())
        return [
            {name: value for name, value in one.items() if not name.endswith("seconds")}
            for one in read_metrics(run.metrics_path)
        ]

    def die_at(request: int, *, restarts: bool) -> None:
        def die(found: Any) -> Any:
            if server.calls[ROUTE] < request:
                return 200, found
            del server.broken[ROUTE]
            server.kill()
            if restarts:
                threading.Timer(0.1, server.restart).start()
            return None, None

        server.calls.clear()
        server.broken[ROUTE] = die

    server.start()
    whole = trained("whole")
    assert [one["logprob_gap"] < 1e-4 for one in whole] == [True] * 3
    assert len({path.name.rpartition("-")[0] for path in server.loaded}) == 3
    die_at(12, restarts=True)
    assert trained("restarted") == whole
    assert "answers again" in caplog.text
    die_at(12, restarts=False)
    assert "did not answer for 0 s" in error_of(lambda: trained("dead", patience=0.0))
    server.stop()
    server.port = 0
    server.restart()
    assert trained("dead") == whole
    server.stop()


def test_closing_ends_a_request_in_another_thread(make, server):
    engine, errors = make(server), list[str]()
    sampled(engine)
    server.broken[ROUTE] = lambda found: (server.stopped.wait(30), found)
    asked = server.calls[ROUTE]
    thread = threading.Thread(target=lambda: errors.append(error_of(lambda: sampled(engine))))
    thread.start()
    while server.calls[ROUTE] == asked:
        time.sleep(0.01)
    engine.close()
    thread.join(15)
    assert len(errors) == 1
    assert "the engine was closed" in errors[0]
    assert "the engine was closed" in error_of(lambda: sampled(engine))


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "http://host:x", "http://a?b"])
def test_a_url_that_is_none_is_refused(url):
    with pytest.raises(ValidationError, match="must have the form http://HOST:PORT"):
        ServerEngineConfig(urls=(url,))
    assert ServerEngineConfig(urls="http://host:8000/").urls == ("http://host:8000",)


LONG = [1, *range(4, 10), *[5, 6, 7, 8, 4] * 40]
"""Longer than the blocks, of 128 tokens on a CPU, in which vLLM keeps the keys and values of prompts."""


@pytest.fixture(scope="module", params=["tied", "untied"])
def real(request, tmp_path_factory) -> Iterator[tuple[Any, str, Path]]:
    """A model of a head size that vLLM has on a CPU, the URL of a real server with it, and a folder."""
    folder = tmp_path_factory.mktemp("vllm")
    tokenizer = build_word_tokenizer(load_family(AdditionTask()).words)
    sizes = TinyModel(
        hidden_size=64, num_heads=2, num_kv_heads=1, initializer_range=0.2, tie_embeddings=request.param == "tied"
    )
    model = build_tiny_model(sizes, tokenizer, seed=1).eval()
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    with vllm_server(folder / "model", folder) as url:
        yield (model, tokenizer), url, folder


@pytest.mark.vllm
@pytest.mark.parametrize("api", ["tokens", "completions"])
def test_a_real_server_samples_with_the_weights_that_it_was_given_last(real, api):
    """Another policy and the first again, with a prompt that the server has kept: log-probs are the policy's."""
    made, url, folder = real
    prompts = [*PROMPTS, LONG]
    with closing(make_engine(ServerEngineConfig(urls=(url,), folder=str(folder), api=api), *made, max_rows=16)) as one:
        first = sampled(one, prompts=prompts, seeds=range(4))
        for version, model in ((1, changed(made, 1)), (2, made[0])):
            one.load(model.state_dict().items(), version=version)
            for temperature in (0.0, 0.7, 1.0):
                params = SamplingParams(num_samples=2, max_new_tokens=8, temperature=temperature, stop_ids=())
                groups = sampled(one, prompts=prompts, seeds=range(4), params=params)
                assert max(differences(model, prompts, groups, temperature or 1.0)) < 1e-4
        again = sampled(one, prompts=prompts, seeds=range(4))
        assert [[each.token_ids for each in group] for group in again] == [
            [each.token_ids for each in group] for group in first
        ]
        alone = sampled(one, prompts=prompts[1:2], seeds=[1])
        assert [each.token_ids for each in alone[0]] == [each.token_ids for each in first[1]]
        assert len({each.token_ids for group in first for each in group}) > 4


@pytest.mark.vllm
def test_a_real_server_that_is_given_a_folder_that_it_cannot_see_is_named_and_not_used_again(real, monkeypatch):
    """It says that it is healthy afterwards."""
    made, url, folder = real
    with closing(make_engine(ServerEngineConfig(urls=(url,), folder=str(folder)), *made, max_rows=16)) as one:
        sampled(one)
        monkeypatch.setattr(WeightsFolder, "write_missing", lambda *_: None)
        monkeypatch.setattr(WeightsFolder, "find", lambda *_: Path("/nowhere"))
        load = partial(one.load, changed(made, 3).state_dict().items(), version=1)
        assert "could not load the weights in /nowhere" in error_of(load)
        assert "could not load weights earlier" in error_of(load)


def differences(model: Any, prompts: Any, groups: Any, temperature: float) -> list[float]:
    """Return the differences (nats) of completions' log-probs from those of a model."""
    found = []
    for prompt, group in zip(prompts, groups, strict=True):
        for each in group:
            with torch.inference_mode():
                logits = model(torch.tensor([[*prompt, *each.token_ids]])).logits[0, len(prompt) - 1 : -1]
            expected = (logits / temperature).log_softmax(-1).gather(1, torch.tensor(each.token_ids)[:, None])[:, 0]
            found.extend((expected - torch.tensor(each.logprobs)).abs().tolist())
    return found
