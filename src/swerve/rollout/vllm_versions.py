"""What depends on vLLM's version: which are supported, and how one in the process and the server of one are used.

In the process: how one starts, takes new weights and ends. The server: its options, its routes, what they take and
answer, and how weights are transferred to it.
"""

from __future__ import annotations

import gc
import json
import math
import os
import random
import re
import shlex
import socket
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedConfig, PreTrainedModel

from swerve.errors import ConfigError, EngineError, MissingExtraError
from swerve.models.head import padding_ids
from swerve.models.trial import said_by
from swerve.rollout.engine import SamplingParams
from swerve.rollout.server_client import CONNECT_SECONDS, RefusedError
from swerve.seeds import derive_seed

FIRST, LAST = (0, 27), (0, 32)
"""The supported versions: the contract test was run with each, on a CPU. Earlier ones need another torch."""
SERVER_FIRST = (0, 29)
"""The first one whose token endpoint returns all samples of a prompt; before, some of them are left out."""
TRANSFER_FIRST = (0, 32)
"""The first one that lets a trainer leave again (`/shutdown_weight_transfer_engine`)."""
TRANSFER_BACKENDS = {"cuda": "nccl"}
"""By the type of the trainer's device: what vLLM sends weights with."""
_PURPOSE = "rollout.engine: {kind: vllm}"

# What vLLM reads from the environment; what is set there already stays. It would else write to stdout and bind the
# trainer's threads to cores; on a CPU it needs to know how many GiB its cache may take.
_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}


def installed_version(purpose: str = _PURPOSE, *, first: tuple[int, int] = FIRST) -> str:
    """Return the version of the vLLM that is installed.

    Args:
        purpose: what it is needed for.
        first: the first version that can do that.

    Raises:
        MissingExtraError: it is missing.
        ConfigError: it is not a supported one.
    """
    found = distribution()
    if found is None or find_spec("vllm") is None:
        raise MissingExtraError("vllm", "vllm", purpose)
    name, version = found
    if not _is_supported(version, first):
        raise ConfigError(
            f"{purpose} works with vLLM {_supported(first)}, and {version} is installed; "
            f"pip install '{name}{_bounds(first)}'"
        )
    return version


def _is_supported(version: str, first: tuple[int, int] = FIRST) -> bool:
    """Whether swerve works with a version; with "dev", a build without a number, it does not.

    >>> [_is_supported(version) for version in ("0.26.1", "0.27.0", "0.32.1+cpu", "0.33.0", "dev")]
    [False, True, True, False, False]
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    return found is not None and first <= (int(found[1]), int(found[2])) <= LAST


def _supported(first: tuple[int, int] = FIRST) -> str:
    """Return the supported versions in words."""
    names = [f"{major}.{minor}" for major, minor in (first, LAST)]
    return " to ".join(dict.fromkeys(names))


def _bounds(first: tuple[int, int] = FIRST) -> str:
    """Return the supported versions for pip."""
    return f">={first[0]}.{first[1]},<{LAST[0]}.{LAST[1] + 1}"


def check_vllm(config: PreTrainedConfig) -> None:
    """Check that the vLLM that is installed can sample from models of a configuration.

    Raises:
        MissingExtraError: vLLM is not installed.
        ConfigError: it is not a supported version, cannot be imported, does not know the architecture, or has no
            attention on a CPU for its head size; or there are several processes.
    """
    version = installed_version()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            f"{_PURPOSE} samples in a training of one process, not under torchrun; for several use "
            "rollout.engine: {kind: server}"
        )
    text = config.get_text_config()
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    with kept_process():
        prepare_environment()
        try:
            from vllm import ModelRegistry
            from vllm.platforms import current_platform
        except Exception as error:  # of packages beside it, too
            raise ConfigError(f"{_PURPOSE}: vLLM {version} cannot be imported: {said_by(error):.300}") from error

        known, is_cpu = ModelRegistry.get_supported_archs(), current_platform.is_cpu()
    model_class: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    architecture = model_class.__name__
    if architecture not in known:
        raise ConfigError(
            f"vLLM {version} does not know the architecture {architecture}; sample with another engine (rollout.engine)"
        )
    if is_cpu and size not in CPU_HEAD_SIZES:
        sizes = ", ".join(map(str, CPU_HEAD_SIZES))
        raise ConfigError(
            f"vLLM on a CPU has no attention for heads of size {size}, but for {sizes} (head_dim, or "
            "hidden_size / num_attention_heads); take another model, or another engine (rollout.engine)"
        )


def prepare_environment() -> None:
    """Set what vLLM reads from the environment; it must run in this process."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


@contextmanager
def kept_process() -> Iterator[None]:
    """Keep what vLLM changes for the whole process: generators of random numbers, torch's threads and default type."""
    states, dtype = (random.getstate(), np.random.get_state()), torch.get_default_dtype()
    set_threads, threads = torch.set_num_threads, torch.get_num_threads()
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
            torch.set_default_dtype(dtype)
            torch.set_num_threads = set_threads  # vLLM on a CPU puts a function there that does nothing
            torch.set_num_threads(threads)


def start(folder: Path, *, sleep: bool, eager: bool, **options: Any) -> tuple[Any, bool]:
    """Start a vLLM in this process for the model whose configuration is in a folder, with random weights.

    Return it, and whether it runs on a CPU: there it is always eager and cannot sleep.
    """
    prepare_environment()
    from vllm import LLM
    from vllm.platforms import current_platform

    is_cpu = current_platform.is_cpu()
    llm = LLM(
        str(folder),
        load_format="dummy",
        skip_tokenizer_init=True,
        generation_config="vllm",  # not the folder's, which may say top_p, top_k and penalties
        logprobs_mode="processed_logprobs",  # of the distribution sampled from
        enable_sleep_mode=sleep and not is_cpu,
        enforce_eager=eager or is_cpu,
        # Where a prompt is read in parts, a seed takes back what the part drew, which fails on a CPU.
        enable_chunked_prefill=False if is_cpu else None,
        **options,
    )
    return llm, is_cpu


def replace_weights(llm: Any, weights: Iterator[tuple[str, Tensor]] | Path) -> list[str]:
    """Give a vLLM whole weights by the names of published files; return the names of those it did not get.

    Args:
        llm: the vLLM.
        weights: them, or a safetensors file: vLLM in several processes cannot be given an iterator.
    """
    (missing, *_) = llm.collective_rpc(_replace_in_worker, args=(weights,))
    return list(missing)


def _replace_in_worker(worker: Any, weights: Iterator[tuple[str, Tensor]] | Path) -> list[str]:
    model, loaded = worker.get_model(), set[str]()
    names = {name for name, _ in model.named_parameters()}
    load_weights = model.load_weights

    def recorded(pairs: Iterator[tuple[str, Tensor]]) -> Any:
        found = load_weights(pairs)
        loaded.update(names if found is None else found)
        return found

    model.load_weights = recorded  # `reload_weights` only logs what was missing
    try:
        worker.reload_weights(weights_iterator=_read(weights) if isinstance(weights, Path) else weights)
    finally:
        del model.load_weights
    pack_heads(model)
    return sorted(names - loaded)


def _read(path: Path) -> Iterator[tuple[str, Tensor]]:
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - it is no mapping
            yield name, file.get_tensor(name)


def pack_heads(model: Any) -> None:
    """Pack embeddings and heads again for the CPU: a tied head would keep its packed copy of the old weights."""
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

    for module in model.modules():
        if isinstance(module, VocabParallelEmbedding) and hasattr(module, "cpu_linear"):
            module.quant_method.process_weights_after_loading(module)


def end(llm: Any) -> None:
    """Stop a vLLM; its memory is freed by `free_memory` when nothing refers to it any more."""
    llm.llm_engine.engine_core.shutdown()


def free_memory(*, owns_group: bool) -> None:
    """Free the memory of a vLLM that has ended, and the process group of torch if it was one that vLLM had made."""
    from vllm.distributed import cleanup_dist_env_and_memory
    from vllm.platforms import current_platform

    if owns_group:
        cleanup_dist_env_and_memory()
    gc.collect()
    if not current_platform.is_cpu():
        torch.accelerator.empty_cache()


# The server: its options, its routes, what they take and answer.

ServerApi = Literal["tokens", "completions"]

ROUTES: Mapping[ServerApi, str] = {"tokens": "/inference/v1/generate", "completions": "/v1/completions"}
LOCAL = "127.0.0.1"
MODULE = "vllm.entrypoints.openai.api_server"
"""The same as `vllm serve`, whose script does not find its version where the package is called vllm-cpu."""
UNNAMED = "default"
"""What a server that was just started calls its weights."""
LOADING = "loading"
"""What they are called by swerve until new ones are whole."""
FAILED = "failed"
"""And after new ones could not be loaded: parts of them may have been, and the next load does not mend all of that."""
MIN_TEMPERATURE = 0.01
"""vLLM takes temperatures between 0 and this for this."""
MIN_BIAS = -100.0
"""The lowest that vLLM's server takes."""
CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""What attention on a CPU supports."""
WORKER_EXTENSION = "swerve.rollout.vllm_worker.PackedHead"
"""What makes `reload_weights` right for a tied head on a CPU; see there."""
_CPU_FLAGS = ("enforce-eager", "no-enable-chunked-prefill")
"""Where a prompt is read in parts, a seed takes back what the part drew, which fails on a CPU and ends the server."""
_SPACING = 1 << 20
"""Between seeds: sample i of a prompt has seed + i."""


def asked_samples(params: SamplingParams) -> int:
    """Return how many samples of a prompt to ask for: vLLM gives one where the most likely tokens are taken."""
    return params.num_samples if params.temperature else 1


def padding_bias(model: PreTrainedModel) -> dict[int, float]:
    """Return the `logit_bias` without which vLLM would sample ids that the model's tokenizer has no token for."""
    return dict.fromkeys(padding_ids(model), MIN_BIAS)


def request_body(
    api: ServerApi,
    model: str,
    prompt: Sequence[int],
    params: SamplingParams,
    *,
    seed: int,
    max_tokens: int,
    logit_bias: Mapping[int, float] | None = None,
) -> dict[str, Any]:
    """Return the body of a request for `asked_samples(params)` samples of a prompt.

    Everything that the server or the model's folder could have other defaults for is in it. The model's own end tokens
    do not end a completion: `stop_ids` alone do.
    """
    sampling: dict[str, Any] = {
        "n": asked_samples(params),
        "temperature": params.temperature,
        "seed": derive_seed(seed, "vllm") // 2 // _SPACING * _SPACING,
        "max_tokens": max_tokens,
        "min_tokens": 0,
        "logprobs": 0,
        "stop_token_ids": list(params.stop_ids),
        "ignore_eos": True,
        "skip_special_tokens": False,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        **({"logit_bias": logit_bias} if logit_bias else {}),
    }
    if api == "tokens":
        return {"model": model, "token_ids": list(prompt), "sampling_params": {**sampling, "detokenize": False}}
    own = {"prompt": list(prompt), "add_special_tokens": False, "return_token_ids": True}
    return {"model": model, **own, **sampling}


def completions_of(
    answer: Any, api: ServerApi, *, num_samples: int
) -> tuple[list[tuple[list[int], list[float], str]], set[str]]:
    """Return token ids, log-probs and reason of the end of each completion of an answer, in order.

    Beside them the labels of the weights that wrote them, where the answer names those.

    Raises:
        ValueError: something is missing; what.
    """
    choices = answer.get("choices") if isinstance(answer, Mapping) else None
    if not isinstance(choices, list) or not all(isinstance(one, Mapping) for one in choices):
        raise ValueError("no choices")
    numbered = {one.get("index"): one for one in choices}
    if len(choices) != num_samples or set(numbered) != set(range(num_samples)):
        raise ValueError(f"{len(choices)} choices in place of {num_samples}")
    completions, versions = [], set()
    for _, choice in sorted(numbered.items()):
        ids, logprobs = choice.get("token_ids"), _logprobs(choice.get("logprobs"), api)
        if not isinstance(ids, list) or not ids or not all(isinstance(one, int) for one in ids):
            raise ValueError("no token ids")
        if len(logprobs) != len(ids) or not all(isinstance(one, float) and math.isfinite(one) for one in logprobs):
            raise ValueError("no log-probability of each token")
        completions.append((ids, logprobs, str(choice.get("finish_reason"))))
        versions |= {str(span["version"]) for span in choice.get("weight_versions") or ()}
    return completions, versions


def _logprobs(found: Any, api: ServerApi) -> list[Any]:
    key = "content" if api == "tokens" else "token_logprobs"
    values = found.get(key) if isinstance(found, Mapping) else None
    if not isinstance(values, list):
        return []
    return [one.get("logprob") for one in values] if api == "tokens" else values


Ask = Callable[..., Any]
"""`ask(method, path, body=None, within=None, **options)` returns the answer of a server, with options of `Calls.ask`;
`within`: the seconds that it may take, where it is not to take long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What a server is."""

    models: Mapping[str, int | None]
    """Names that it serves, with the tokens that prompt and completion may have."""
    version: str
    dtype: str | None
    packs_head: bool
    """Whether its workers have `WORKER_EXTENSION`."""
    transfer_backend: str | None
    """What it takes weights from a trainer with."""


def server_info(url: str, ask: Ask) -> ServerInfo:
    """Ask a server what it is.

    Raises:
        EngineError: it is no vLLM in developer mode, not of a supported version, or gives log-probabilities of another
            distribution than the one sampled from.
    """
    models = ask("GET", "/v1/models", within=CONNECT_SECONDS)
    served = {one["id"]: one.get("max_model_len") for one in _entries(models) if "id" in one}
    try:
        version = str(ask("GET", "/version", within=CONNECT_SECONDS)["version"])
        if not _is_supported(version, SERVER_FIRST):
            raise EngineError(
                f"{url} is of vLLM {version}, and swerve works with servers of {_supported(SERVER_FIRST)}; start one "
                f"after pip install 'vllm{_bounds(SERVER_FIRST)}'"
            )
        info = ask("GET", "/server_info?config_format=json")
        weights_label(ask)
    except RefusedError as error:
        if error.status != 404:
            raise
        raise EngineError(
            f"{url} cannot be given weights: {error}; start it in developer mode, with VLLM_SERVER_DEV_MODE=1, as "
            "`swerve serve` does"
        ) from None
    mode = _setting(info, "model_config", "logprobs_mode")
    if mode not in (None, "processed_logprobs"):
        raise EngineError(
            f"{url} gives {mode}, which ignore the temperature; start it with --logprobs-mode processed_logprobs, as "
            "`swerve serve` does"
        )
    dtype = _setting(info, "model_config", "dtype")
    return ServerInfo(
        models=served,
        version=version,
        dtype=str(dtype).removeprefix("torch.") if dtype else None,
        packs_head=_setting(info, "parallel_config", "worker_extension_cls") == WORKER_EXTENSION,
        transfer_backend=_setting(info, "weight_transfer_config", "backend"),
    )


def _entries(models: Any) -> list[Mapping[str, Any]]:
    found = models.get("data") if isinstance(models, Mapping) else None
    return [one for one in found or () if isinstance(one, Mapping)] if isinstance(found, list) else []


def _setting(info: Any, section: str, name: str) -> Any:
    """Return an entry of `/server_info`, None where it does not say."""
    for key in ("vllm_config", section, name):
        info = info.get(key) if isinstance(info, Mapping) else None
    return info


def weights_label(ask: Ask) -> str:
    """Return what a server calls its weights."""
    found = ask("GET", "/weight_info", within=CONNECT_SECONDS)
    return str(found.get("weight_version")) if isinstance(found, Mapping) else ""


def set_weights_label(ask: Ask, label: str) -> None:
    """Let a server call its weights so from now on."""
    ask("POST", "/update_weight_version", {"new_version": label}, within=CONNECT_SECONDS)


def empty_prefix_cache(ask: Ask) -> bool:
    """Let a server forget the keys and values of prompts; whether it could, which requests that still run prevent."""
    answer = ask("POST", "/reset_prefix_cache", {})
    return not isinstance(answer, Mapping) or bool(answer.get("success", True))


def tokens_done(ask: Ask) -> float | None:
    """Return how many tokens a server has read and written, None where it does not count them."""
    try:
        text = ask("GET", "/metrics", within=CONNECT_SECONDS, as_text=True)
    except RefusedError:
        return None
    found = re.findall(r"^vllm:(?:prompt|generation)_tokens_total(?:\{.*\})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, found)) if found else None


def load_folder(ask: Ask, folder: Path, *, packs_head: bool) -> None:
    """Let a server load the weights in a folder that it sees by the same path."""
    method = "reload_weights_and_head" if packs_head else "reload_weights"
    ask("POST", "/collective_rpc", {"method": method, "kwargs": {"weights_path": str(folder)}})


def check_transfer(device: str) -> None:
    """Check that weights can be transferred from a type of device to servers.

    Raises:
        MissingExtraError: vLLM, which sends them, is not installed.
        ConfigError: it is not a version that can, or the device is not a GPU.
    """
    if device not in TRANSFER_BACKENDS:
        raise ConfigError(
            f"rollout.engine.weights=transfer sends weights from GPU to GPU (NCCL), and the model is on the {device}; "
            "train on a GPU (runtime.device=cuda), or take rollout.engine.weights=folder"
        )
    installed_version("rollout.engine.weights=transfer", first=TRANSFER_FIRST)


def check_transfers(url: str, server: ServerInfo, device: str) -> None:
    """Check that a server takes weights from a trainer on a type of device.

    Raises:
        EngineError: it is of another version, or was started without the option.
    """
    if not _is_supported(server.version, TRANSFER_FIRST):
        raise EngineError(
            f"{url} is of vLLM {server.version}, and rollout.engine.weights=transfer works with "
            f"{_supported(TRANSFER_FIRST)}; start one of these, or take rollout.engine.weights=folder"
        )
    backend = TRANSFER_BACKENDS[device]
    if server.transfer_backend != backend:
        raise EngineError(
            f"{url} takes no weights by rollout.engine.weights=transfer; start it with "
            f"{shlex.join(_transfer(backend))}, as `swerve serve` does, or take rollout.engine.weights=folder"
        )


def _transfer(backend: str) -> list[str]:
    return ["--weight-transfer-config", json.dumps({"backend": backend})]


def transfer_weights(ask: Ask, weights: Mapping[str, Tensor], device: torch.device, *, host: str) -> None:
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
    ask("POST", "/pause?mode=keep")
    world_size = 1 + int(ask("GET", "/get_world_size", within=CONNECT_SECONDS)["world_size"])
    where = sender_info(master_address=host, master_port=_free_port(host), world_size=world_size)

    def send() -> None:
        try:
            with torch.accelerator.device_index(device.index):
                senders.append(WeightTransferTrainerFactory.trainer_init(where, client=routes, source=source))
                senders[0].send_weights()
            routes.outcome.put(None)
        except BaseException as error:
            routes.outcome.put(error)

    # A broadcast to a server that has failed never ends: this thread hears of it from the route that failed.
    threading.Thread(target=send, daemon=True).start()
    try:
        failure = routes.outcome.get()
        if failure is not None:
            raise failure
    finally:
        for sender in senders:
            sender.shutdown()
    ask("POST", "/resume")
    ask("POST", "/shutdown_weight_transfer_engine")


def sender_info(**where: Any) -> Any:
    """Return what vLLM's sender is made from."""
    from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

    return NCCLTrainerInitInfo(rank=0, **where)


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as free:
        return int(free.getsockname()[1])


class _TransferRoutes:
    """What vLLM's sender asks of a server: a `VLLMWeightSyncClient`."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.outcome = SimpleQueue[BaseException | None]()
        """The first failure, or None when all is sent."""

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        self._post("init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self) -> None:
        self._post("start_weight_update")

    def update_weights(self, update_info: Any) -> None:
        self._post("update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._post("finish_weight_update", None if weight_version is None else {"weight_version": weight_version})

    def _post(self, route: str, body: Any = None) -> None:
        try:
            self._ask("POST", f"/{route}", body)
        except BaseException as error:
            self.outcome.put(error)
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


def server_options(
    *,
    name: str,
    port: int,
    dtype: str,
    max_model_len: int,
    max_num_seqs: int,
    on_cpu: bool,
    num_gpus: int,
    transfer: bool,
) -> list[str]:
    """Return the options of `vllm serve MODEL`, for a server that only this machine reaches."""
    options: dict[str, object] = {
        "served-model-name": name,
        "host": LOCAL,
        "port": port,
        "dtype": dtype,
        "max-model-len": max_model_len,
        "max-num-seqs": max_num_seqs,
        "logprobs-mode": "processed_logprobs",
        "generation-config": "vllm",
        "seed": 0,
        **({"worker-extension-cls": WORKER_EXTENSION} if on_cpu else {}),
        **({"tensor-parallel-size": num_gpus} if num_gpus > 1 else {}),
    }
    flags = [*_scale_out(), "disable-uvicorn-access-log", *(_CPU_FLAGS if on_cpu else ())]
    return [
        *(word for key, value in options.items() for word in (f"--{key}", str(value))),
        *(f"--{one}" for one in flags),
        *(_transfer(TRANSFER_BACKENDS["cuda"]) if transfer else ()),
    ]


def _scale_out() -> list[str]:
    """Return the option for the token endpoint, which the vLLM that is installed, or the newest, may need."""
    found = distribution()
    numbers = (0, 30) if found is None else tuple(int(part) for part in found[1].split(".")[:2])
    return ["enable-scale-out"] if numbers >= (0, 30) else []


def distribution() -> tuple[str, str] | None:
    """Return name and version of the package of vLLM that is installed, None if it is missing."""
    for name in ("vllm", "vllm-cpu"):
        with suppress(PackageNotFoundError):
            return name, version(name)
    return None


def server_environment(*, on_cpu: bool) -> dict[str, str]:
    """Return the variables that such a server needs: of developer mode, whose routes have no authentication."""
    cpu = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"} if on_cpu else {}
    return {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", **cpu}
