"""What depends on the version of vLLM: which are supported, how one starts, takes new weights and ends."""

from __future__ import annotations

import gc
import os
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedConfig

from swerve.errors import ConfigError, MissingExtraError
from swerve.models.trial import said_by
from swerve.rollout.vllm_server import CPU_HEAD_SIZES, distribution

FIRST, LAST = (0, 27), (0, 32)
"""The supported versions: the contract test was run with each, on a CPU. Earlier ones need another torch."""
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


def installed_version() -> str:
    """Return the version of the vLLM that is installed.

    Raises:
        MissingExtraError: it is missing.
        ConfigError: it is not a supported one.
    """
    found = distribution()
    if found is None or find_spec("vllm") is None:
        raise MissingExtraError("vllm", "vllm", _PURPOSE)
    name, version = found
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if not FIRST <= numbers <= LAST:
        first, last, after = (f"{major}.{minor}" for major, minor in (FIRST, LAST, (LAST[0], LAST[1] + 1)))
        raise ConfigError(
            f"{_PURPOSE} works with vLLM {first} to {last}, and {version} is installed; "
            f"pip install '{name}>={first},<{after}'"
        )
    return version


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
