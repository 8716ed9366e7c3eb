"""Servers to sample with: one that answers as vLLM 0.32 does, in a thread, and real ones."""

from __future__ import annotations

import copy
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from swerve.rollout.engine import SamplingParams
from swerve.rollout.torch_engine import TorchEngine


class StandIn:
    """Answers as a vLLM server does; what is wrong with it can be set."""

    def __init__(self, model: Any) -> None:
        self.given = model
        self.model = model
        """What it samples with: after a reload the files' weights."""
        self.version, self.name = "default", "policy"
        self.max_model_len = getattr(model, "config", None) and model.config.max_position_embeddings
        self.info: dict[str, Any] = {"logprobs_mode": "processed_logprobs", "dtype": "torch.float32"}
        self.vllm_version = "0.32.0"
        self.backend: str | None = None
        """What it takes weights from a trainer with."""
        self.broadcast: dict[str, Any] = {}
        """What the trainer sends."""
        self.asked: list[tuple[str, Any]] = []
        self.tokens_done = 0
        self.hangs = threading.Event()
        """Whether it is healthy, and requests for completions are not answered."""
        self.calls: Counter[str] = Counter()
        self.loaded: list[Path] = []
        self.keeps_weights = False
        """Whether a reload does nothing."""
        self.broken: dict[str, Callable[[Any], Any]] = {}
        """By route: what is done in place of answering, with the answer there would be."""
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None: ...

            def do_GET(self) -> None:
                self._answer({})

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}"))

            def _answer(self, body: Any) -> None:
                with suppress(ConnectionError):
                    status, answer = stand_in.answer(self.path.partition("?")[0], body)
                    if status is None:  # died
                        self.connection.shutdown(socket.SHUT_RDWR)
                        return
                    content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)

        class Server(ThreadingHTTPServer):
            request_queue_size = 128
            daemon_threads, block_on_close, allow_reuse_address = True, False, True

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self.stopped.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def kill(self) -> None:
        """Break every connection from now on."""
        self.stopped.set()

    def restart(self) -> None:
        """Come back as another process, with the weights it was first given."""
        self.model, self.version = self.given, "default"
        if self._server is None:
            self.start()
        self.stopped.clear()

    def answer(self, path: str, body: Any) -> tuple[int | None, Any]:
        if path == "/metrics" and path not in self.broken:
            return 200, f'vllm:generation_tokens_total{{engine="0"}} {self.tokens_done}.0\n'
        with self.lock:
            if self.stopped.is_set():
                return None, None
            self.calls[path] += 1
            self.asked.append((path, body))
            if "token_ids" in body or "input_ids" in body:
                self.lock.release()
                while self.hangs.is_set() and not self.stopped.is_set():
                    time.sleep(0.01)
                self.lock.acquire()
            found = self._answer(path, body)
            return self.broken[path](found) if path in self.broken else (200, found)

    def _answer(self, path: str, body: Any) -> Any:
        transfer = {"backend": self.backend} if self.backend else None
        told = {
            "/version": {"version": self.vllm_version},
            "/v1/models": {"data": [{"id": self.name, "max_model_len": self.max_model_len}]},
            "/weight_info": {"weight_version": self.version},
            "/server_info": {"vllm_config": {"model_config": self.info, "weight_transfer_config": transfer}},
            "/get_world_size": {"world_size": 2},
        }
        if path in told:
            return told[path]
        match path:
            case "/update_weights":
                self._take({name: self.broadcast[name] for name in body["update_info"]["names"]})
            case "/update_weight_version":
                self.version = body["new_version"]
            case "/collective_rpc":
                self._reload(Path(body["kwargs"]["weights_path"]))
            case "/v1/completions" if "prompt_logprobs" in body:
                return {"choices": [{"index": 0, "text": "", "prompt_logprobs": self._told(**body)}]}
            case "/inference/v1/generate":
                return {"choices": self._sample(body["token_ids"], body["sampling_params"])}
            case "/v1/completions":
                assert body["return_token_ids"]
                choices = self._sample(body["prompt"], body)
                for choice in choices:
                    logprobs = [token["logprob"] for token in choice["logprobs"]["content"]]
                    choice |= {"text": "", "prompt_token_ids": body["prompt"], "logprobs": {"token_logprobs": logprobs}}
                return {"choices": choices}
        return {"success": True}

    def _told(self, prompt: list[int], prompt_logprobs: int, **_: Any) -> list[Any]:
        """The most likely tokens and the realised one at each position but the first, as vLLM tells them."""
        with torch.inference_mode():
            logprobs = self.model(torch.tensor([prompt])).logits[0, :-1].log_softmax(dim=-1)
        told: list[Any] = [None]
        for row, token in zip(logprobs, prompt[1:], strict=True):
            ranks = {token: int((row >= row[token]).sum())}
            ranks |= {int(key): rank for rank, key in enumerate(row.topk(prompt_logprobs).indices, 1)}
            told.append({key: {"logprob": float(row[key]), "rank": rank} for key, rank in ranks.items()})
        return told

    def _reload(self, folder: Path) -> None:
        self.loaded.append(folder)
        if not self.keeps_weights:
            self._take(load_file(folder / "model.safetensors"))

    def _take(self, weights: Any) -> None:
        self.model = copy.deepcopy(self.given)
        self.model.load_state_dict(weights, strict=False)
        self.model.tie_weights()

    def _sample(self, prompt: list[int], sampling: Any) -> list[Any]:
        assert sampling["ignore_eos"]
        assert sampling["n"] == 1 or sampling["temperature"]  # as vLLM wants it
        params = SamplingParams(
            num_samples=1,
            max_new_tokens=sampling["max_tokens"],
            temperature=sampling["temperature"],
            stop_ids=tuple(sampling["stop_token_ids"]),
        )
        engine = TorchEngine(self.model, pad_id=0, max_rows=1)
        choices = []
        for index in range(sampling["n"]):
            ((completion,),) = engine.generate([prompt], params, seeds=[sampling["seed"] + index])
            num = len(completion.token_ids)
            self.tokens_done += num
            choices.append(
                {
                    "index": index,
                    "token_ids": completion.token_ids,
                    "logprobs": {"content": [{"logprob": one} for one in completion.logprobs]},
                    "weight_versions": [{"version": self.version, "start": 0, "end": num}],
                    "finish_reason": completion.finish_reason,
                }
            )
        return choices[::-1]


class SglangStandIn(StandIn):
    """Answers as SGLang's documentation says its native API does; never compared with a real server."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.info = {"dtype": "float32", "enable_deterministic_inference": True, "version": "0.5.10"}
        self.prefix = "/"
        """`/get_` in older versions."""
        self.busy = 0
        """How often the cache cannot be emptied yet."""
        self.end_ids = {2}

    def answer(self, path: str, body: Any) -> tuple[int | None, Any]:
        infos = [f"{start}{name}_info" for start in ("/", "/get_") for name in ("server", "model")]
        if path == "/health" and self.hangs.is_set():
            return 503, ""
        if path in ("/metrics", "/version") or (path in infos and not path.startswith(self.prefix)):
            return 404, {"detail": "Not Found"}
        status, answer = super().answer(path, body)
        return (
            (400, answer)
            if status == 200 and isinstance(answer, dict) and answer.get("success") is False
            else (
                status,
                answer,
            )
        )

    def _answer(self, path: str, body: Any) -> Any:
        match path.removeprefix("/").removeprefix("get_"):
            case "v1/models":
                return {"data": [{"id": self.name, "max_model_len": self.max_model_len}]}
            case "server_info":
                return self.info
            case "model_info":
                return {"model_path": self.name, "is_generation": True, "weight_version": self.version}
            case "update_weight_version":
                assert body["abort_all_requests"] is False
                self.version = body["new_version"]
            case "update_weights_from_disk":
                folder = Path(body["model_path"])
                if not folder.is_dir():
                    return {"success": False, "message": f"Failed to get weights: {folder}", "num_paused_requests": 0}
                self._reload(folder)
                self.name = str(folder)
            case "flush_cache":
                self.busy -= 1
                return "Cache flushed.\n" if self.busy < 0 else {"success": False}
            case "generate":
                return [self._complete(*each) for each in zip(body["input_ids"], body["sampling_params"], strict=True)]
            case "health":
                return ""
        return {"success": True}

    def _complete(self, prompt: list[int], sampling: Any) -> Any:
        stops = set() if sampling["ignore_eos"] else {*sampling["stop_token_ids"], *self.end_ids}
        params = SamplingParams(
            num_samples=1,
            max_new_tokens=sampling["max_new_tokens"],
            temperature=sampling["temperature"],
            stop_ids=tuple(stops),
        )
        engine = TorchEngine(self.model, pad_id=0, max_rows=1)
        ((completion,),) = engine.generate([prompt], params, seeds=[sampling["sampling_seed"]])
        ids, is_stop = list(completion.token_ids), completion.finish_reason == "stop"
        return {
            "text": "",
            "output_ids": ids,
            "meta_info": {
                "id": "0",
                "finish_reason": {"type": "stop", "matched": ids[-1]}
                if is_stop
                else {"type": "length", "length": len(ids)},
                "prompt_tokens": len(prompt),
                "completion_tokens": len(ids),
                "weight_version": self.version,
                "output_token_logprobs": [
                    [value, token, None] for value, token in zip(completion.logprobs, ids, strict=True)
                ],
            },
        }


@contextmanager
def stand_in(model: Any, kind: type[StandIn] = StandIn) -> Iterator[str]:
    """Start a stand-in for a model; yield its URL."""
    server = kind(model)
    server.start()
    yield server.url
    server.stop()


RECIPE = """
task: {{kind: addition, num_train: 20, num_heldout: 8}}
model: {{kind: pretrained, path: {model}}}
max_new_tokens: 400
stages: [{{kind: rl, steps: 1, prompts_per_step: 1, samples_per_prompt: 2, optimizer: {{lr: 1e-4}}}}]
runtime: {{device: cpu, max_rows: 64}}
"""


@contextmanager
def vllm_server(model: Path, folder: Path, *more: str) -> Iterator[str]:
    """Start a real server for a model's folder with `swerve serve --run`; yield its URL; Ctrl-C stops it.

    `more` are arguments of the command.
    """
    (folder / "served.yaml").write_text(RECIPE.format(model=model))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "swerve", "serve", str(folder / "served.yaml"), "--port", str(port), "--run"]
    command += more
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    log = folder / "server.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stderr=stream, env=environment, start_new_session=True)
    try:
        while f"http://127.0.0.1:{port} samples" not in log.read_text():
            assert process.poll() is None, log.read_text()
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()
        assert "stopping the server" in log.read_text()
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)  # which it ends its server at
        process.wait(60)
