"""The native protocol of SGLang's server, the second dialect of `ServerEngine`.

Written from SGLang's documentation and tested with a stand-in; never run with a real server. It has the names of
`vllm_protocol` that the engine uses.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from swerve.errors import EngineError
from swerve.rollout.engine import SamplingParams
from swerve.rollout.server_client import CONNECT_SECONDS, RefusedError, UnreachableError
from swerve.rollout.vllm_protocol import Ask, ServerInfo, models_served
from swerve.seeds import derive_seed

_LOG = logging.getLogger(__name__)
ROUTE = "/generate"
"""Samples: token ids in, token ids and log-probabilities out."""
MIN_TEMPERATURE = 1e-6
"""SGLang takes temperatures below this for 0."""
WITHOUT_ROUTE = "is it a server of SGLang?"
CUT_OFF = "SGLang also ends at the end tokens of its own model, which have to be stop tokens here too"
_TYPES = ("float32", "bfloat16", "float16")
"""What `--dtype` says, but for `auto` and other names of these."""
_HEALTH_SECONDS = 30.0
"""SGLang's own limit for a sign of life is 20."""


def asked_samples(params: SamplingParams) -> int:
    """Return how many samples of a prompt to ask for."""
    return params.num_samples


def request_body(
    model: str,
    prompt: Sequence[int],
    params: SamplingParams,
    *,
    seed: int,
    max_tokens: int,
    logit_bias: Mapping[int, float] | None = None,
) -> dict[str, Any]:
    """Return the body of a request for the samples of a prompt, as a batch: each has a seed of its own.

    `ignore_eos` would also ignore the stop tokens, so it is set where there are none only. `model` is not asked for.
    """
    sampling: dict[str, Any] = {
        "max_new_tokens": max_tokens,
        "min_new_tokens": 0,
        "temperature": params.temperature,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop_token_ids": list(params.stop_ids),
        "ignore_eos": not params.stop_ids,
        "no_stop_trim": True,
        "skip_special_tokens": False,
    }
    if logit_bias:
        sampling["logit_bias"] = logit_bias
    seeds = [derive_seed(seed, "sglang", index) % 2**31 for index in range(params.num_samples)]
    return {
        "input_ids": [list(prompt)] * params.num_samples,
        "sampling_params": [{**sampling, "sampling_seed": seed} for seed in seeds],
        "return_logprob": True,
        "logprob_start_len": -1,
    }


def completions_of(answer: Any, *, num_samples: int) -> tuple[list[tuple[list[int], list[float], str]], set[str]]:
    """Return token ids, log-probs and reason of the end of each completion of an answer, in order.

    Beside them the labels of the weights that wrote them.

    Raises:
        ValueError: something is missing; what.
    """
    if not isinstance(answer, list) or len(answer) != num_samples:
        raise ValueError(f"no list of {num_samples} completions")
    completions, labels = [], set()
    for completion in answer:
        # Of each token: its log-probability, its id, perhaps its text.
        try:
            meta = completion["meta_info"]
            tokens = [(int(token[1]), float(token[0])) for token in meta["output_token_logprobs"]]
            reason = str(meta["finish_reason"]["type"])
        except (KeyError, IndexError, TypeError, ValueError):
            raise ValueError("no log-probability of each token or no finish_reason") from None
        # An aborted request may have no tokens yet; the engine asks again.
        if not (tokens or reason == "abort") or not all(math.isfinite(logprob) for _, logprob in tokens):
            raise ValueError("no finite log-probability of each token")
        completions.append(([token for token, _ in tokens], [logprob for _, logprob in tokens], reason))
        if "weight_version" in meta:
            labels.add(str(meta["weight_version"]))
    return completions, labels


async def server_info(url: str, ask: Ask) -> ServerInfo:
    """Ask a server what it is.

    Raises:
        EngineError: it is no SGLang, or does not say which type it computes in.
    """
    try:
        info = await _get_info(ask, "server_info")
        await weights_label(ask)
    except RefusedError as error:
        if error.status != 404:
            raise
        raise EngineError(f"{error}: {WITHOUT_ROUTE} (rollout.engine.dialect)") from None
    dtype = info.get("dtype") if isinstance(info, Mapping) else None
    if dtype not in _TYPES:
        raise EngineError(
            f"{url} does not say which type it computes in, and weights are sent and checked in that type; start it "
            f"with --dtype bfloat16 (one of {', '.join(_TYPES)})"
        )
    if not info.get("enable_deterministic_inference"):
        _LOG.warning(f"{url} ignores seeds: completions are not repeatable; --enable-deterministic-inference")
    # It calls its model after the last folder of weights, so the name says nothing.
    limits = [limit for limit in (await models_served(ask)).values() if limit is not None]
    return ServerInfo(models={"": min(limits, default=None)}, dtype=dtype, packs_head=False, transfer_backend=None)


async def _get_info(ask: Ask, name: str) -> Any:
    """Return what a server says of itself; older versions put `get_` before the name."""
    try:
        return await ask("GET", f"/{name}", within=CONNECT_SECONDS)
    except RefusedError as error:
        if error.status != 404:
            raise
    return await ask("GET", f"/get_{name}", within=CONNECT_SECONDS)


async def weights_label(ask: Ask) -> str:
    """Return what a server calls its weights."""
    info = await _get_info(ask, "model_info")
    return str(info.get("weight_version")) if isinstance(info, Mapping) else ""


async def set_weights_label(ask: Ask, label: str) -> None:
    """Let a server call its weights so from now on; by default it would also abort what it samples."""
    body = {"new_version": label, "abort_all_requests": False}
    await ask("POST", "/update_weight_version", body, within=CONNECT_SECONDS)


async def empty_prefix_cache(ask: Ask) -> bool:
    """Let a server forget the keys and values of prompts; whether it could, which requests that still run prevent."""
    try:
        await ask("POST", "/flush_cache", {}, as_text=True)
    except RefusedError as error:
        if error.status != 400:
            raise
        return False
    return True


async def tokens_done(ask: Ask) -> float:
    """Return a number that is another one each time, while a server writes tokens.

    Its counters move when requests end only; `/health` says 200 when a token has just been written.

    Raises:
        UnreachableError: none was.
    """
    try:
        await ask("GET", "/health", within=_HEALTH_SECONDS, as_text=True)
    except RefusedError as error:
        raise UnreachableError(str(error)) from None
    return time.monotonic()


async def load_folder(ask: Ask, folder: Path, *, packs_head: bool) -> None:
    """Let a server load the weights in a folder that it sees by the same path; running requests are waited for."""
    await ask("POST", "/update_weights_from_disk", {"model_path": str(folder), "flush_cache": True})
