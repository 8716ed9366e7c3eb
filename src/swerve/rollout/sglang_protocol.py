"""Servers of SGLang, by their native protocol.

Written from SGLang's documentation and tested with a stand-in; never run with a real server.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from swerve.errors import EngineError
from swerve.rollout.engine import SamplingParams
from swerve.rollout.server import NEUTRAL, Sampled, Server, ServerInfo
from swerve.rollout.server_client import CONNECT_SECONDS, RefusedError, UnreachableError
from swerve.seeds import derive_seed

_LOG = logging.getLogger(__name__)
_TYPES = ("float32", "bfloat16", "float16")
"""What `--dtype` says, but for `auto` and other names of these."""
_HEALTH_SECONDS = 30.0
"""SGLang's own limit for a sign of life is 20."""


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
        **NEUTRAL,
        "max_new_tokens": max_tokens,
        "min_new_tokens": 0,
        "temperature": params.temperature,
        "top_k": -1,
        "stop_token_ids": list(params.stop_ids),
        "ignore_eos": not params.stop_ids,
        "no_stop_trim": True,
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


class SglangServer(Server):
    """A server of SGLang."""

    route = "/generate"
    without_route = "is it a server of SGLang?"
    has_label = "model_info"
    label_options: ClassVar[Mapping[str, bool]] = {"abort_all_requests": False}  # else it ends what it samples
    cut_off = "SGLang also ends at the end tokens of its own model, which have to be stop tokens here too"
    min_temperature = 1e-6
    request_body = staticmethod(request_body)

    @staticmethod
    def read(answer: Any, num_samples: int) -> tuple[list[Sampled], set[str]]:
        """See `Server.read`."""
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

    async def look(self) -> ServerInfo:
        """See `Server.look`.

        Raises:
            EngineError: it is no SGLang, or does not say which type it computes in.
        """
        try:
            info = await self.told("server_info")
            await self.weights_label()
        except RefusedError as error:
            if error.status != 404:
                raise
            raise EngineError(f"{error}: {self.without_route} (rollout.engine.dialect)") from None
        dtype = info.get("dtype") if isinstance(info, Mapping) else None
        if dtype not in _TYPES:
            raise EngineError(
                f"{self.url} does not say which type it computes in, and weights are sent and checked in that type; "
                f"start it with --dtype bfloat16 (one of {', '.join(_TYPES)})"
            )
        if not info.get("enable_deterministic_inference"):
            _LOG.warning(f"{self.url} ignores seeds: completions are not repeatable; --enable-deterministic-inference")
        # It calls its model after the last folder of weights, so the name says nothing.
        limits = [limit for limit in (await self.models_served()).values() if limit is not None]
        return ServerInfo(models={"": min(limits, default=None)}, dtype=dtype)

    async def told(self, name: str) -> Any:
        """See `Server.told`; older versions put `get_` before the name."""
        try:
            return await self.ask("GET", f"/{name}", within=CONNECT_SECONDS)
        except RefusedError as error:
            if error.status != 404:
                raise
        return await self.ask("GET", f"/get_{name}", within=CONNECT_SECONDS)

    async def empty_prefix_cache(self) -> bool:
        """See `Server.empty_prefix_cache`."""
        try:
            await self.ask("POST", "/flush_cache", {}, as_text=True)
        except RefusedError as error:
            if error.status != 400:
                raise
            return False
        return True

    async def tokens_done(self) -> float:
        """See `Server.tokens_done`: its counters move when requests end only, so it is the time.

        `/health` says 200 when a token has just been written.

        Raises:
            UnreachableError: none was.
        """
        try:
            await self.ask("GET", "/health", within=_HEALTH_SECONDS, as_text=True)
        except RefusedError as error:
            raise UnreachableError(str(error)) from None
        return time.monotonic()

    async def load_folder(self, folder: Path) -> None:
        """See `Server.load_folder`; running requests are waited for."""
        await self.ask("POST", "/update_weights_from_disk", {"model_path": str(folder), "flush_cache": True})
