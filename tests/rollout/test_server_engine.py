"""The engine whose model is in a server: through a real socket, to a stand-in that answers as vLLM 0.32 does."""

from __future__ import annotations

import copy
import fcntl
import os
import signal
import socket
import sys
import threading
import time
import weakref
from collections import namedtuple
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from swerve.artifacts.files import TEMPORARY_PREFIX
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.run import RunDirectory
from swerve.config.engines import RolloutConfig, ServerEngineConfig
from swerve.config.models import TinyModel
from swerve.errors import ConfigError, EngineError, InterruptedRunError, MissingExtraError
from swerve.interruption import deferred_signals
from swerve.models.head import limit_ids_of
from swerve.models.starting_model import new_tiny_model
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.rollout import vllm_protocol
from swerve.rollout.engine import Engine, SamplingParams, make_engine
from swerve.rollout.sync import PolicyEngine
from swerve.rollout.torch_engine import TorchEngine
from swerve.rollout.weights_folder import WeightsFolder, weights_path
from swerve.train.checks import check_machine
from swerve.train.loop import train_run
from swerve.world import World
from tests.rollout.servers import StandIn, vllm_server

PROMPTS = [[1, 4, 5, 6], [1, 7], [1, 4, 4, 9, 8, 6]]
GREEDY = SamplingParams(num_samples=1, max_new_tokens=6, temperature=0.0, stop_ids=(2,))
PARAMS = SamplingParams(num_samples=2, max_new_tokens=6, temperature=1.0, stop_ids=(2,))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr("swerve.rollout.server_engine._PAUSE", 0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the engines of `make` write weights."""
    return tmp_path / "weights" / "swerve-weights"


@pytest.fixture
def make(tiny, folder: Path) -> Iterator[Callable[..., Engine]]:
    """Make engines, closed at the end of the test."""
    made: list[Engine] = []

    def new(*servers: StandIn, **options: Any) -> Engine:
        urls = tuple(one.url for one in servers)
        config = ServerEngineConfig(**{"urls": urls, "folder": str(folder.parent), "patience": 0.0, **options})
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


def test_the_number_of_servers_does_not_change_a_completion(make, server, tiny):
    (expected, other) = (sampled(make(server)), StandIn(tiny[0]))
    other.start()
    asked = server.calls["/inference/v1/generate"]
    assert sampled(make(server, other)) == expected
    assert server.calls["/inference/v1/generate"] > asked
    assert other.calls["/inference/v1/generate"] > 2  # the first are the engine's own trials
    other.stop()


def test_servers_are_asked_not_to_sample_the_padding_of_a_head(make, server, tiny, folder):
    wide = copy.deepcopy(tiny[0])
    wide.resize_token_embeddings(14, mean_resizing=False)
    limit_ids_of(wide, 11)
    stand_in = StandIn(wide)
    stand_in.start()
    config = ServerEngineConfig(urls=(stand_in.url,), folder=str(folder.parent))
    with closing(make_engine(config, wide, tiny[1], max_rows=16)) as engine:
        sampled(engine)
    sampled(make(server))
    bodies = [[body for path, body in one.asked if path == ROUTE] for one in (stand_in, server)]
    stand_in.stop()
    assert {str(body["sampling_params"].get("logit_bias")) for body in bodies[0]} == {
        "{'11': -100.0, '12': -100.0, '13': -100.0}"
    }
    assert all("logit_bias" not in body["sampling_params"] for body in bodies[1])


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


def test_one_of_several_processes_collects_the_weights_and_all_give_them_to_a_server(make, server, tiny):
    model, told, barrier = changed(tiny, seed=1), {}, threading.Barrier(2)
    alive, most = weakref.WeakSet(), [0, 0]

    def weights(rank: int) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in model.state_dict().items():
            copied = tensor.clone()
            alive.add(copied)
            most[rank] = max(most[rank], len(alive))
            yield name, copied

    class Two(World):
        def gather(self, value: Any) -> list[Any]:
            told[self.rank] = value
            barrier.wait(20)
            return [told[0], told[1]]

    policies = [PolicyEngine(partial(make, server), world=Two(rank=rank, size=2)) for rank in range(2)]

    def sampled_by(rank: int) -> Any:
        with policies[rank].awake(weights(rank), version=1) as engine:
            return sampled(engine)

    with ThreadPoolExecutor() as pool:
        second = pool.submit(sampled_by, 1)
        second_done = futures.wait([second], timeout=1.0).done
        assert not second_done  # it waits for the first
        assert most == [0, 2]  # one tensor at a time, and the next
        expected = sampled_by(0)
        assert second.result() == expected
    assert most[0] > 10
    assert len(server.loaded) == 1
    policies[0].close()
    server.restart()
    with policies[1].awake((), version=1) as engine:
        assert sampled(engine) == expected
    assert len(server.loaded) == 2


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
        assert f"{server.url} does not sample with the weights of Qwen3ForCausalLM" in error_of(lambda: sampled(engine))


def test_a_server_that_could_not_load_weights_is_not_used_again(make, server, tiny):
    server.broken["/collective_rpc"] = lambda _: (500, {"error": {"message": "size 96"}})
    assert "(size 96): it could not load" in error_of(lambda: sampled(make(server)))
    server.broken.clear()
    assert f"{server.url} could not load weights earlier" in error_of(lambda: sampled(make(server)))
    server.restart()
    assert len(sampled(make(server))) == 3


def left_by_a_kill(folder: Path, name: str) -> Path:
    """Make a version's folder as a process leaves it; return its marker."""
    (folder / name).mkdir(parents=True)
    (folder / name / "model.safetensors").write_text("weights")
    (folder / name / ".swerve-weights").touch()
    return folder / name / ".swerve-weights"


def test_what_a_killed_run_left_goes_and_what_another_needs_stays(make, server, folder):
    made = weights_path(str(folder.parent))
    assert made == folder
    names = ("v000007-0123456789ab-00000001", f"{TEMPORARY_PREFIX}v000008-0123456789ab-00000002")
    for name in names:
        left_by_a_kill(folder, name)
    (folder / f"{TEMPORARY_PREFIX}v000008-0123456789ab-00000004").mkdir()  # killed before the marker
    with left_by_a_kill(folder, "v000009-0123456789ab-00000003").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        sampled(make(server))
    assert sorted(one.name[:7] for one in folder.iterdir() if one.is_dir()) == ["v000000", "v000009"]


def others_folders(path: Path) -> list[Path]:
    """Fill a folder with what is somebody else's though it has locks, markers or names like ours; return the files."""
    run, environment = path / "mine", path / ".venv"
    files = [run / "run.json", run / ".lock", environment / "pyvenv.cfg", environment / ".lock"]
    files += [path / "v000001-0123456789ab-00000001" / "model.safetensors", path / "kept" / ".swerve-weights"]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file.name)
    return files


def test_a_folder_of_runs_and_environments_is_left_as_it_is(make, server, folder):
    files = others_folders(folder.parent)
    engine = make(server)
    sampled(engine)
    engine.close()
    assert [file.read_text() for file in files] == [file.name for file in files]


def test_what_is_not_a_folder_of_swerves_own_is_refused_and_left_as_it_is(tmp_path, monkeypatch):
    """As the named folder's `swerve-weights`, and as the one in the temporary folder."""
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    marker = left_by_a_kill(target, "v000007-0123456789ab-00000001")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for place, name in (
        (tmp_path / "swerve-weights", str(tmp_path)),
        (tmp_path / f"swerve-weights-{os.getuid()}", None),
    ):
        place.symlink_to(target)
        with pytest.raises(ConfigError, match=f"{place} is a link: swerve keeps and deletes weights only in a folder"):
            weights_path(name)
        place.unlink()
        place.write_text("mine")
        with pytest.raises(ConfigError, match="is not a folder: "):
            weights_path(name)
        place.unlink()
        place.mkdir(mode=0o700)
        place.chmod(0o755)
        with pytest.raises(ConfigError, match=r"is open to other users \(mode 755\): .* rollout\.engine\.folder"):
            weights_path(name)
        place.chmod(0o700)
        assert weights_path(name) == place
        files = others_folders(place)
        with pytest.raises(ConfigError, match=r"holds \.venv: "):
            weights_path(name)
        assert all(file.is_file() for file in files)
    assert marker.is_file()


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    place = weights_path(str(tmp_path))
    monkeypatch.setattr("os.getuid", lambda: place.stat().st_uid + 1)
    with pytest.raises(ConfigError, match="swerve-weights belongs to another user"):
        weights_path(str(tmp_path))


def test_links_and_folders_without_the_marker_are_never_removed(tmp_path):
    """Though they lie in swerve's own folder and have its form of name."""
    target = left_by_a_kill(tmp_path / "elsewhere", "mine")
    folder = weights_path(str(tmp_path))
    (folder / "v000001-0123456789ab-00000001").symlink_to(target.parent, target_is_directory=True)
    for name in ("v000002-0123456789ab-00000002", "v000003-0123456789ab-00000003"):
        (folder / name).mkdir()
        (folder / name / "mine.txt").touch()
    (folder / "v000003-0123456789ab-00000003" / ".swerve-weights").symlink_to(target)
    (folder / f"{TEMPORARY_PREFIX}v000004-0123456789ab-00000004").mkdir()
    (folder / f"{TEMPORARY_PREFIX}v000004-0123456789ab-00000004" / "mine.txt").touch()
    WeightsFolder(weights_path(str(tmp_path)))
    assert len(list(folder.glob("v*"))) == 3
    assert len(list(folder.glob("*v*/*"))) == 6
    assert target.is_file()


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
    "no token endpoint": (ROUTE, lambda _: (404, "Not Found"), "start it with --enable-scale-out, as"),
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
    assert "the servers do not sample at temperature 0.001; take 0, or at least 0.01" in error_of(
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


def test_a_key_that_a_server_repeats_as_a_name_is_not_shown(make, server, monkeypatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "policy")
    assert "serves ***, not judge" in error_of(lambda: sampled(make(server, served_model="judge")))


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


def test_a_server_that_is_killed_and_started_again_gives_the_same_completions(make, server, tiny, caplog):
    engine = make(server, patience=20.0)
    engine.load(changed(tiny, seed=1).state_dict().items(), version=1)
    expected = sampled(engine)

    def die(_: Any) -> tuple[None, None]:
        del server.broken[ROUTE]
        server.kill()
        threading.Timer(0.1, server.restart).start()
        return None, None

    server.broken[ROUTE] = die
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


@pytest.fixture
def two(server, tiny) -> Iterator[tuple[StandIn, StandIn]]:
    """Two servers with the tiny model."""
    other = StandIn(tiny[0])
    other.start()
    yield server, other
    other.stop()


def test_a_server_that_dies_gives_its_prompts_to_the_others_and_is_taken_back(make, two, caplog):
    """Also between two calls; only when none is left does the engine's patience end it."""
    engine, first = make(*two), two[0]
    expected = sampled(engine)
    first.broken[ROUTE] = lambda _: (first.kill(), (None, None))[1]
    assert sampled(engine) == expected
    assert f"{first.url}: " in caplog.text
    assert "its prompts go to the other servers until it answers again" in caplog.text
    caplog.clear()
    assert sampled(engine) == expected
    assert not caplog.text  # it is known
    first.broken.clear()
    first.restart()
    before = first.calls[ROUTE]
    assert sampled(engine) == expected
    assert f"{first.url} answers again" in caplog.text
    assert first.calls[ROUTE] > before + 2  # the trials before and after it loads the weights
    for one in two:
        one.kill()
    assert "did not answer for 0 s (" in error_of(lambda: sampled(engine))


def test_all_servers_must_be_there_at_the_start(make, two):
    two[1].stop()
    assert f"{two[1].url} did not answer for 0 s (nothing listens there)" in error_of(lambda: sampled(make(*two)))


@pytest.mark.parametrize("num_servers", [1, 2])
@pytest.mark.slow
def test_a_server_that_hangs_is_left_long_before_its_answer_is_late(make, two, caplog, monkeypatch, num_servers):
    """It says that it is healthy; one that works on is left alone however long it takes."""
    monkeypatch.setattr("swerve.rollout.server_engine._SILENCE", 0.5)
    engine, hangs = make(*two[:num_servers], patience=20.0), two[0]
    expected = sampled(engine)

    def work_on() -> None:
        for _ in range(40):
            time.sleep(0.02)
            hangs.tokens_done += 1

    worker = threading.Thread(target=work_on)
    worker.start()
    hangs.hangs.set()
    threading.Timer(0.7, hangs.hangs.clear).start()
    assert sampled(engine) == expected
    assert not caplog.text
    worker.join()
    hangs.hangs.set()
    threading.Timer(1.2, hangs.hangs.clear).start()
    assert sampled(engine) == expected
    assert f"{hangs.url}: it has written no token for 0.5 s" in caplog.text


def test_a_server_that_does_not_count_its_tokens_has_all_the_time(make, server, caplog, monkeypatch):
    monkeypatch.setattr("swerve.rollout.server_engine._SILENCE", 0.1)
    server.broken["/metrics"] = lambda _: (404, "Not Found")
    engine = make(server)
    expected = sampled(engine)
    server.hangs.set()
    threading.Timer(0.5, server.hangs.clear).start()
    assert sampled(engine) == expected
    assert not caplog.text


@pytest.mark.parametrize("version", ["0.31.0", "dev"])
def test_a_server_of_an_older_version_is_refused(make, server, version):
    server.vllm_version = version
    assert error_of(lambda: sampled(make(server))) == (
        f"{server.url} is of vLLM {version}, and swerve needs 0.32 or newer; start one after pip install 'vllm>=0.32'"
    )


def test_a_server_of_a_newer_version_samples_and_is_named_once(make, server, caplog):
    expected = sampled(make(server))
    assert not caplog.text
    server.vllm_version, engine = "0.34.1rc2+cu130", make(server)
    assert sampled(engine) == sampled(engine) == expected
    assert caplog.text.count(f"the vLLM of {server.url} is 0.34.1rc2+cu130, and swerve was tested with 0.32;") == 1


class StandInSender:
    """Asks as vLLM's sender does, and hands tensors to the stand-in; a broadcast that nobody takes never ends."""

    def __init__(self, info: Any, client: Any, source: Any) -> None:
        self.client, self.source, self.is_over = client, source, threading.Event()
        client.init_weight_transfer_engine({**info, "rank_offset": 1})

    def send_weights(self) -> None:
        names = [one.name for one in self.source.metadata()]
        self.client.start_weight_update()
        self.server.broadcast = dict(self.source)
        with ThreadPoolExecutor(1) as pool:
            update = pool.submit(self.client.update_weights, {"names": names})
            if update.exception():
                self.is_over.wait()
            update.result()
        self.client.finish_weight_update()

    def shutdown(self) -> None:
        self.is_over.set()


@pytest.fixture
def transferring(server, monkeypatch) -> StandIn:
    """A server that takes weights from a trainer on a CPU, and what of vLLM sends them."""
    meta = namedtuple("ParamMeta", "name dtype shape")
    trainer = SimpleNamespace(trainer_init=lambda info, **parts: StandInSender(info, **parts))
    monkeypatch.setattr(StandInSender, "server", server, raising=False)
    for name, content in (("base", {"ParamMeta": meta}), ("factory", {"WeightTransferTrainerFactory": trainer})):
        monkeypatch.setitem(sys.modules, f"vllm.distributed.weight_transfer.{name}", SimpleNamespace(**content))
    monkeypatch.setitem(vllm_protocol.TRANSFER_BACKENDS, "cpu", "nccl")
    monkeypatch.setattr(vllm_protocol, "check_installed", lambda _: None)
    monkeypatch.setattr(vllm_protocol, "sender_info", lambda **where: where)
    server.backend = "nccl"
    return server


def test_weights_are_transferred_while_nothing_samples_and_no_file_is_written(make, transferring, tiny, folder):
    server, engine = transferring, make(transferring, weights="transfer")
    for version in (1, 2):
        model = changed(tiny, version)
        server.asked.clear()
        engine.load(model.state_dict().items(), version=version)
        given = sampled(engine)
        assert max(differences(model, PROMPTS, given, 1.0)) < 1e-5
        steps = [(path, body) for path, body in server.asked if path not in READS]
        (init,) = [body["init_info"] for path, body in steps if path == "/init_weight_transfer_engine"]
        assert init["master_address"] == "127.0.0.1"
        assert init["world_size"] == 3  # the server has two workers
        (update,) = [body["update_info"] for path, body in steps if path == "/update_weights"]
        assert set(update["names"]) == set(model.state_dict()) - {"lm_head.weight"}
        assert [path for path, _ in steps][:12] == [
            ROUTE,  # a trial
            "/update_weight_version",
            "/pause",
            "/init_weight_transfer_engine",
            "/start_weight_update",
            "/update_weights",
            "/finish_weight_update",
            "/resume",
            "/shutdown_weight_transfer_engine",
            "/reset_prefix_cache",
            ROUTE,
            "/update_weight_version",
        ]
    server.restart()
    assert sampled(engine) == given
    assert not list(folder.glob("v*"))


def test_a_transfer_that_fails_ends_at_once_and_the_server_is_not_used_again(make, transferring):
    transferring.broken["/update_weights"] = lambda _: (500, {"error": {"message": "size 96"}})
    for message in ("with 500 (size 96)); start it again", "could not load weights earlier"):
        assert message in error_of(lambda: sampled(make(transferring, weights="transfer")))


def test_a_server_that_dies_in_a_transfer_gets_the_weights_when_it_is_back(make, transferring, caplog):
    def die(_: Any) -> tuple[None, None]:
        transferring.broken.clear()
        transferring.kill()
        threading.Timer(0.1, transferring.restart).start()
        return None, None

    transferring.broken["/update_weights"] = die
    assert len(sampled(make(transferring, weights="transfer", patience=20.0))) == 3
    assert f"{transferring.url} answers again" in caplog.text


def test_weights_are_transferred_from_gpus_to_servers_that_take_them_only(
    make, server, transferring, monkeypatch, small_config, tiny
):
    engine = make(server, weights="transfer")
    server.backend = None
    said = 'start it with --weight-transfer-config \'{"backend": "nccl"}\', as `swerve serve` does'
    assert said in error_of(lambda: sampled(engine))
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"from GPU to GPU \(NCCL\), and the model is on the cpu; train on a GPU"):
        make(server, weights="transfer")
    rollout = RolloutConfig(engine=ServerEngineConfig(weights="transfer"))
    with pytest.raises(ConfigError, match="or take rollout.engine.weights=folder"):
        check_machine(small_config.model_copy(update={"rollout": rollout}))


@pytest.mark.parametrize(
    ("found", "error", "said"),
    [
        (None, MissingExtraError, "needs the package 'vllm'; install it with: pip install 'swerve[vllm]'"),
        ("0.31.0", ConfigError, "needs vLLM 0.32 or newer, and 0.31.0 is installed; pip install 'vllm>=0.32'"),
    ],
)
def test_a_vllm_that_is_missing_or_not_supported_is_named(monkeypatch, found, error, said):
    def version(name: str) -> str:
        if name == "vllm" and found is not None:
            return found
        raise PackageNotFoundError(name)

    monkeypatch.setattr(vllm_protocol, "version", version)
    monkeypatch.setattr(vllm_protocol, "find_spec", lambda name: found)
    with pytest.raises(error) as caught:
        vllm_protocol.check_transfer("cuda")
    assert said in str(caught.value)


READS = {"/v1/models", "/version", "/server_info", "/weight_info", "/metrics", "/get_world_size"}


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
    left = [signal.SIGINT]  # one, however many requests are under way

    def interrupt(found: Any) -> tuple[int, Any]:
        if left:
            os.kill(os.getpid(), left.pop())
        server.stopped.wait(30)
        return 200, found

    server.broken[ROUTE] = interrupt
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
        train_run(changed, run, resume=run.path.exists(), progress=SilentProgress())
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


def saved(folder: Path, *, tied: bool = True) -> tuple[Any, Any]:
    """Return a model of a head size that vLLM has on a CPU, saved in a folder, with its tokenizer."""
    tokenizer = build_word_tokenizer(load_family(AdditionTask()).words)
    sizes = TinyModel(hidden_size=64, num_heads=2, num_kv_heads=1, initializer_range=0.2, tie_embeddings=tied)
    model = build_tiny_model(sizes, tokenizer, seed=1).eval()
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return model, tokenizer


@pytest.fixture(scope="module", params=["tied", "untied"])
def real(request, tmp_path_factory) -> Iterator[tuple[Any, str, Path]]:
    """A model, the URL of a real server with it, and a folder."""
    folder = tmp_path_factory.mktemp("vllm")
    made = saved(folder, tied=request.param == "tied")
    with vllm_server(folder / "model", folder) as url:
        yield made, url, folder


@pytest.mark.vllm
def test_a_real_server_samples_with_the_weights_that_it_was_given_last(real):
    """Another policy and the first again, with a prompt that the server has kept: log-probs are the policy's."""
    made, url, folder = real
    prompts = [*PROMPTS, LONG]
    with closing(make_engine(ServerEngineConfig(urls=(url,), folder=str(folder)), *made, max_rows=16)) as one:
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
def test_a_real_server_that_hangs_is_noticed_and_continues_when_it_works_again(real, monkeypatch, caplog):
    """Its engine is stopped between two calls and in the middle of one; the process that says "healthy" is not."""
    monkeypatch.setattr("swerve.rollout.server_engine._SILENCE", 2.0)
    monkeypatch.setattr("swerve.rollout.server_engine._PROBE_SECONDS", 2.0)
    monkeypatch.setattr(vllm_protocol, "CONNECT_SECONDS", 2.0)
    psutil = pytest.importorskip("psutil")
    made, url, folder = real
    port = int(url.rpartition(":")[2])
    (api,) = {one.pid for one in psutil.net_connections("tcp") if one.laddr.port == port and one.status == "LISTEN"}
    below = psutil.Process(api).children(recursive=True)
    params = SamplingParams(num_samples=2, max_new_tokens=200, temperature=1.0, stop_ids=())
    config = ServerEngineConfig(urls=(url,), folder=str(folder), patience=60.0)
    with closing(make_engine(config, *made, max_rows=4)) as one:
        expected = sampled(one, params=params)
        for delay in (0.0, 0.3):
            for number, after in ((signal.SIGSTOP, delay), (signal.SIGCONT, delay + 8)):
                threading.Timer(after, lambda number=number: [each.send_signal(number) for each in below]).start()
            time.sleep(delay / 2)
            started = time.monotonic()
            found = sampled(one, params=params)
            assert [[each.token_ids for each in group] for group in found] == [
                [each.token_ids for each in group] for group in expected
            ]
            assert time.monotonic() - started > 5
            assert f"{url} answers again" in caplog.text
            caplog.clear()


@pytest.mark.vllm
def test_a_real_server_that_is_given_a_folder_that_it_cannot_see_is_named_and_not_used_again(real, monkeypatch):
    """It says that it is healthy afterwards. The last test of the server that the tests share."""
    made, url, folder = real
    with closing(make_engine(ServerEngineConfig(urls=(url,), folder=str(folder)), *made, max_rows=16)) as one:
        sampled(one)
        for name in ("write_missing", "hold"):
            monkeypatch.setattr(WeightsFolder, name, lambda *_: None)
        monkeypatch.setattr(WeightsFolder, "find", lambda *_: Path("/nowhere"))
        load = partial(one.load, changed(made, 3).state_dict().items(), version=1)
        assert "could not load the weights in /nowhere" in error_of(load)
        assert "could not load weights earlier" in error_of(load)


@pytest.mark.vllm
def test_a_real_server_takes_weights_from_the_trainer_as_vllm_transfers_them(tmp_path, monkeypatch):
    """On a CPU, with gloo in place of NCCL; requests, payloads, order and what the worker does are vLLM's own."""
    from tests.rollout import gloo_transfer

    monkeypatch.setitem(vllm_protocol.TRANSFER_BACKENDS, "cpu", "gloo")
    monkeypatch.setattr(
        vllm_protocol, "sender_info", lambda **where: gloo_transfer.TrainerInfo(rank=0, packed=False, **where)
    )
    extension = ["--worker-extension-cls", f"{gloo_transfer.__name__}.Extension"]
    options = ["--", "--weight-transfer-config", '{"backend": "gloo"}', *extension]
    made = saved(tmp_path)
    with vllm_server(tmp_path / "model", tmp_path, *options) as url:
        check_transfers(made, url, tmp_path)
        refused = ServerEngineConfig(urls=(url,), folder=str(tmp_path), weights="transfer")
        monkeypatch.setitem(vllm_protocol.TRANSFER_BACKENDS, "cpu", "nccl")
        with closing(make_engine(refused, *made, max_rows=16)) as one:
            assert "start it with --weight-transfer-config '{" in error_of(lambda: sampled(one))


@pytest.mark.gpu
@pytest.mark.vllm
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL needs a GPU for the trainer and one for the server")
def test_a_real_server_takes_weights_from_one_gpu_to_another(tmp_path):
    made = saved(tmp_path)
    changes = ["rollout.engine.kind=server", "rollout.engine.weights=transfer", "runtime.device=cuda"]
    with vllm_server(tmp_path / "model", tmp_path, *changes, "--gpus", "1") as url:
        check_transfers(made, url, tmp_path, device="cuda:0", bound=0.02)


def check_transfers(made: Any, url: str, folder: Path, *, device: str = "cpu", bound: float = 1e-4) -> None:
    """Check that a server samples with what it is sent, again and again, and that no file was written for it."""
    prompts = [*PROMPTS, LONG]
    params = SamplingParams(num_samples=2, max_new_tokens=8, temperature=1.0, stop_ids=())
    config = ServerEngineConfig(urls=(url,), folder=str(folder), weights="transfer")
    with closing(make_engine(config, copy.deepcopy(made[0]).to(device), made[1], max_rows=16)) as one:
        first = sampled(one, prompts=prompts, seeds=range(4), params=params)
        for version, model in ((1, changed(made, 1)), (2, changed(made, 2)), (3, made[0])):
            one.load(model.state_dict().items(), version=version)
            groups = sampled(one, prompts=prompts, seeds=range(4), params=params)
            assert max(differences(model, prompts, groups, 1.0)) < bound
        assert [[each.token_ids for each in group] for group in groups] == [
            [each.token_ids for each in group] for group in first
        ]
    assert not list(folder.glob("v*"))


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
