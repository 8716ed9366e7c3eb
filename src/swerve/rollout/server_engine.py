"""An engine whose model is in vLLM servers: prompts and completions go over HTTP, weights through a folder."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any

import torch
from transformers import PreTrainedModel

from swerve.errors import EngineError, InterruptedRunError
from swerve.interruption import asked_to_stop
from swerve.models.adapter import whole_tensors
from swerve.models.model_folder import stored_tensors
from swerve.models.shards import tensors_digest
from swerve.rollout import vllm_server
from swerve.rollout.engine import Engine, NamedTensors, SamplingParams, check_request
from swerve.rollout.server_client import (
    CONNECT_SECONDS,
    Calls,
    RefusedError,
    UnreachableError,
    call,
    in_parallel,
)
from swerve.rollout.sync import model_logprobs
from swerve.rollout.vllm_server import ServerApi
from swerve.rollout.weights_folder import WeightsFolder, weights_path
from swerve.types import Completion

_LOG = logging.getLogger(__name__)
"""Says on stderr what is waited for; rich shows it above its progress."""
_PAUSE = 0.5
"""Seconds between two looks at a server that is waited for."""
_BOUND, _COARSE_BOUND = 1e-3, 1.0
"""Largest difference (nats) of a log-probability from the model's, in float32 and in narrower types."""
_EXACT = {None, "float32", "torch.float32"}
_TRIES = 6
"""For a request: each time its server died, and could sample again afterwards."""


@dataclass(slots=True)
class _Server:
    """What is known of one server."""

    url: str
    name: str = ""
    """What it calls the model."""
    max_model_len: int | None = None
    """Most tokens of prompt and completion."""
    dtype: str | None = None
    packs_head: bool = False
    """Whether its workers have `vllm_server.WORKER_EXTENSION`."""
    num_open: int = 0
    """Requests that it works at."""
    is_down: bool = False
    waiting: threading.Lock = field(default_factory=threading.Lock)
    """Held by the thread that waits for the server."""


class ServerEngine(Engine):
    """Samples with one or several vLLM servers.

    A server has the weights of a label, which it reports itself, so that one that was started again, or that another
    engine has used, is given the right ones before it samples. Requests are spread over the servers; what a prompt's
    completions are does not depend on which one answers.
    """

    concurrent = True
    shares_weights = False

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        pad_id: int,
        max_rows: int,
        urls: Sequence[str],
        api: ServerApi = "tokens",
        served_model: str | None = None,
        folder: str | None = None,
        dtype: str = "auto",
        patience: float = 300.0,
        timeout: float = 1800.0,
    ) -> None:
        """Keep what is needed; no server is asked before the first `load` or `generate`.

        Args:
            model: what is sampled from; its weights are read where there is something to sample before a `load`.
            pad_id: not needed.
            max_rows: completions asked for at a time at most.
            urls: see `ServerEngineConfig`, as for the rest.
            api: see there.
            served_model: see there.
            folder: see there.
            dtype: see there.
            patience: see there.
            timeout: see there.
        """
        self._model, self._max_rows = model, max_rows
        self._api: ServerApi = api
        self._served_model, self._dtype = served_model, dtype
        self._patience, self._timeout = patience, timeout
        self._servers = [_Server(url) for url in urls]
        self._folder_name = folder
        self._folder: WeightsFolder | None = None
        self._label = ""
        self._lock = threading.Lock()
        self._calls, self._is_closed = Calls(), False

    def load(self, weights: NamedTensors, *, version: int) -> None:
        """Write the weights to a new folder and let every server load them; see `Engine.load`.

        Raises:
            EngineError: the folder cannot be written, a server does not come back, or it cannot load them.
            InterruptedRunError: a signal asked for a stop while a server was waited for.
        """
        self._everywhere(self._look)
        dtype = self._dtype if self._dtype != "auto" else self._servers[0].dtype
        tensors = {
            name: tensor.to(device="cpu", dtype=getattr(torch, dtype) if dtype and tensor.is_floating_point() else None)
            for name, tensor in stored_tensors(self._model, dict(weights)).items()
        }
        label = f"v{version:06d}-{tensors_digest('model', tensors)[:12]}"
        if self._folder is None:
            self._folder = WeightsFolder(weights_path(self._folder_name))
        self._folder.write_missing(label, self._model, tensors)
        self._label = label
        self._everywhere(self._ready)
        self._folder.keep_only(label)
        super().load((), version=version)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seeds: Sequence[int],
        budgets: Sequence[int] | None = None,
        on_finished: Callable[[int], None] | None = None,
    ) -> list[tuple[Completion, ...]]:
        """See `Engine.generate`.

        Raises:
            ValueError: an empty prompt, a wrong number of seeds or budgets, more tokens than the model has positions.
            EngineError: a server does not come back, or what it answers is wrong; the message names it.
            InterruptedRunError: a signal asked for a stop while a server was waited for.
        """
        budgets = [params.max_new_tokens] * len(prompts) if budgets is None else budgets
        check_request(self._model, prompts, params, seeds, budgets)
        if not prompts:
            return []
        if 0 < params.temperature < vllm_server.MIN_TEMPERATURE:
            raise EngineError(
                f"vLLM samples at temperature {vllm_server.MIN_TEMPERATURE} in place of {params.temperature}; take "
                "0, or a higher one"
            )
        has_own_weights = not self._label
        if has_own_weights:
            self.load(whole_tensors(self._model), version=self.version)
        else:
            self._everywhere(self._ready)
        self._check_lengths(prompts, budgets)
        if has_own_weights:
            self._everywhere(self._compare)
        requests = [
            _Request(prompt, params, seed, budget) for prompt, seed, budget in zip(prompts, seeds, budgets, strict=True)
        ]
        calls, found = self._new_calls(), dict[int, tuple[Completion, ...]]()
        num_threads = max(len(self._servers), ceil(self._max_rows / params.num_samples))
        tasks = [partial(self._sample, request, calls) for request in requests]
        with in_parallel(calls, tasks, num_threads) as results:
            for index, completions in results:
                found[index] = completions
                if on_finished is not None:
                    on_finished(len(completions))
        return [found[index] for index in range(len(prompts))]

    def close(self) -> None:
        """End what is open, in other threads too, and remove the weights that were written; the servers keep theirs."""
        self._is_closed = True
        self._calls.end()
        if self._folder is not None:
            self._folder.keep_only(None)

    def _new_calls(self) -> Calls:
        self._calls = Calls()
        if self._is_closed:
            self._calls.end()
        return self._calls

    def _everywhere(self, act: Callable[[_Server, Calls], None]) -> None:
        """Do something with every server, side by side, and wait for those that do not answer."""
        calls = self._new_calls()
        tasks = [partial(self._patiently, server, calls, partial(act, server, calls)) for server in self._servers]
        with in_parallel(calls, tasks, len(tasks)) as results:
            for _ in results:
                pass

    def _patiently(
        self, server: _Server, calls: Calls, act: Callable[[], None], failure: UnreachableError | None = None
    ) -> None:
        """Do something with a server as soon as it answers, after a `failure` or not.

        Raises:
            EngineError: it does not within the engine's patience.
            InterruptedRunError: a signal asked for a stop.
        """
        deadline = time.monotonic() + self._patience
        has_noted = False
        while not calls.ended.is_set():
            try:
                if failure is None:
                    act()
                    if has_noted:
                        _LOG.warning(f"{server.url} answers again")
                    return
            except UnreachableError as error:
                failure = error
            number = asked_to_stop()
            if number is not None:
                raise InterruptedRunError(
                    f"interrupted while waiting for {server.url}; continue with --resume", signal_number=number
                )
            if time.monotonic() >= deadline:
                raise EngineError(
                    f"{server.url} did not answer for {self._patience:g} s ({failure}): start it again (`swerve serve` "
                    "says how), and continue with --resume; rollout.engine.patience is how long it is waited for"
                )
            if not has_noted:
                _LOG.warning(f"{server.url}: {failure}; waiting for it, {self._patience:g} s at most")
                has_noted = True
            calls.ended.wait(_PAUSE)
            server.name, failure = "", None  # what answers may be another process
        raise EngineError(f"{server.url} is no longer waited for: the engine was closed")

    def _ready(self, server: _Server, calls: Calls) -> None:
        """Make sure that a server is there, fits, and has the weights."""
        self._look(server, calls)
        if self._has_weights(server, calls):
            return
        assert self._folder is not None
        with self._folder.locked(server.url, calls.ended):
            if not self._has_weights(server, calls):
                self._reload(server, calls)

    def _look(self, server: _Server, calls: Calls) -> None:
        """Find out what a server is, unless that is known.

        Raises:
            EngineError: it serves another model, or was started without what is needed.
        """
        if server.name:
            return
        models = self._call(server, calls, "GET", "/v1/models", timeout=CONNECT_SECONDS)
        served = {one["id"]: one.get("max_model_len") for one in _entries(models) if "id" in one}
        name = self._served_model or next(iter(served), "")
        if name not in served:
            raise EngineError(
                f"{server.url} serves {', '.join(served) or 'no model'}"
                + (f", not {name}; rollout.engine.served_model is to be one of these" if name else "")
            )
        try:
            info = self._call(server, calls, "GET", "/server_info?config_format=json")
            self._version(server, calls)
        except RefusedError as error:
            if error.status != 404:
                raise
            raise EngineError(
                f"{server.url} cannot be given weights: {error}; start it in developer mode, with "
                f"VLLM_SERVER_DEV_MODE=1 and vLLM {vllm_server.SUPPORTED}, as `swerve serve` does"
            ) from None
        vllm_server.check_served(server.url, info)
        dtype = vllm_server.model_entry(info, "dtype")
        server.dtype = str(dtype).removeprefix("torch.") if dtype else None
        extension = vllm_server.model_entry(info, "worker_extension_cls", section="parallel_config")
        server.packs_head = extension == vllm_server.WORKER_EXTENSION
        server.max_model_len, server.name = served[name], name

    def _version(self, server: _Server, calls: Calls) -> str:
        """Return the label of the weights that a server says it has."""
        found = self._call(server, calls, "GET", "/weight_info", timeout=CONNECT_SECONDS)
        return str(found.get("weight_version")) if isinstance(found, Mapping) else ""

    def _has_weights(self, server: _Server, calls: Calls) -> bool:
        version = self._version(server, calls)
        if version == vllm_server.FAILED:
            raise EngineError(f"{server.url} could not load weights earlier, and has parts of them; start it again")
        return _same_weights(version, self._label)

    def _reload(self, server: _Server, calls: Calls) -> None:
        """Let a server load the present weights, and make sure that it samples afterwards."""
        assert self._folder is not None
        folder = self._folder.find(self._label)
        if folder is None:
            raise EngineError(f"the weights {self._label} are no longer in {self._folder.path}; start again")
        post = partial(self._call, server, calls, "POST")
        # A kill in between must not leave the label of weights that the server no longer has.
        post("/update_weight_version", {"new_version": vllm_server.LOADING})
        method = vllm_server.RELOAD_PACKED if server.packs_head else vllm_server.RELOAD
        try:
            post("/collective_rpc", {"method": method, "kwargs": {"weights_path": str(folder)}})
        except RefusedError as error:
            post("/update_weight_version", {"new_version": vllm_server.FAILED})
            raise EngineError(
                f"{error}: it could not load the weights in {folder}; it must see that folder by the same path "
                "(rollout.engine.folder) and serve a model of the same shape; start the server again"
            ) from None
        self._reset_cache(server, calls)
        params = SamplingParams(num_samples=1, max_new_tokens=1, temperature=1.0, stop_ids=())
        self._ask(server, _Request([0], params, 0, 1), calls)  # that /health says 200 proves nothing
        post("/update_weight_version", {"new_version": self._label})

    def _compare(self, server: _Server, calls: Calls) -> None:
        """Check that a server samples with the model's weights, where nobody else does: in evaluation.

        Raises:
            EngineError: its log-probabilities are not the model's.
        """
        prompt = [token % self._num_ids() for token in range(4)]
        params = SamplingParams(num_samples=4, max_new_tokens=4, temperature=1.0, stop_ids=())
        completions, _ = self._ask(server, _Request(prompt, params, 0, params.max_new_tokens), calls)
        expected = model_logprobs(self._model, prompt, [one.token_ids for one in completions])
        largest = float((expected - torch.tensor([one.logprobs for one in completions])).abs().max())
        if not largest <= (_BOUND if {server.dtype, str(self._model.dtype)} <= _EXACT else _COARSE_BOUND):
            raise EngineError(
                f"{server.url} does not sample with the model's weights: log-probabilities differ by {largest:.3g} "
                "nats from the model's; start it again, with the options that `swerve serve` prints"
            )

    def _reset_cache(self, server: _Server, calls: Calls) -> None:
        """Empty the prefix cache, which is of the old weights; requests that still run are waited for."""
        deadline = time.monotonic() + self._timeout
        while True:
            answer = self._call(server, calls, "POST", "/reset_prefix_cache", {})
            if not isinstance(answer, Mapping) or answer.get("success", True):
                return
            if time.monotonic() >= deadline or calls.ended.wait(_PAUSE):
                raise EngineError(f"{server.url} does not empty its prefix cache; is somebody else sampling with it?")

    def _check_lengths(self, prompts: Sequence[Sequence[int]], budgets: Sequence[int]) -> None:
        """Check what a server would cut off without a word.

        Raises:
            EngineError: a prompt and its completion do not fit.
        """
        for index, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True)):
            for server in self._servers:
                limit = server.max_model_len
                if limit is not None and len(prompt) + budget > limit:
                    raise EngineError(
                        f"{server.url} takes {limit} tokens, and prompt {index} has {len(prompt)} and may grow by "
                        f"{budget}; start it with a higher --max-model-len, or lower max_new_tokens"
                    )

    def _num_ids(self) -> int:
        embeddings: Any = self._model.get_input_embeddings()
        return int(embeddings.weight.shape[0])

    def _sample(self, request: _Request, calls: Calls) -> tuple[Completion, ...]:
        """Return a prompt's completions from the server with the fewest open requests."""
        for _ in range(_TRIES):
            with self._lock:
                server = min(self._servers, key=lambda one: (one.is_down, one.num_open))
                server.num_open += 1
            try:
                completions, versions = self._ask(server, request, calls)
                self._check_versions(server, versions or {self._version(server, calls)})
                return completions
            except UnreachableError as error:
                self._recover(server, calls, error)
            finally:
                with self._lock:
                    server.num_open -= 1
        raise EngineError(f"{server.url} failed {_TRIES} times in a row to sample; look at its output")

    def _recover(self, server: _Server, calls: Calls, failure: UnreachableError) -> None:
        """Wait until a server can sample again: one thread does; the others take other servers or wait for it."""
        server.is_down = True
        others = any(not one.is_down for one in self._servers)
        if not server.waiting.acquire(blocking=not others):
            return
        try:
            if server.is_down:
                self._patiently(server, calls, partial(self._ready, server, calls), failure)
                server.is_down = False
        finally:
            server.waiting.release()

    def _check_versions(self, server: _Server, versions: set[str]) -> None:
        """Check that a completion's weights were the engine's all along."""
        others = {one for one in versions if not _same_weights(one, self._label)}
        if others & {vllm_server.UNNAMED, vllm_server.LOADING}:
            raise UnreachableError("it was started again")
        if others:
            raise EngineError(
                f"{server.url} was given the weights {', '.join(sorted(others))} by somebody else while it sampled "
                f"with {self._label}; give each run servers of its own"
            )

    def _ask(self, server: _Server, request: _Request, calls: Calls) -> tuple[tuple[Completion, ...], set[str]]:
        """Return the completions of one request, and the versions that the answer names.

        Raises:
            UnreachableError: the server died, or aborted the request.
            EngineError: it cannot sample, or the answer is wrong.
        """
        params = request.params
        asked = vllm_server.asked_samples(params)
        body = vllm_server.request_body(
            self._api, server.name, request.prompt, params, seed=request.seed, max_tokens=request.budget
        )
        route = vllm_server.ROUTES[self._api]
        try:
            answer = self._call(server, calls, "POST", route, body)
        except RefusedError as error:
            raise self._refusal(server, calls, error) from None
        try:
            sampled, versions = vllm_server.completions_of(answer, self._api, num_samples=asked)
        except ValueError as error:
            raise EngineError(f"{server.url}: the answer to POST {route} has {error}; see `swerve serve`") from None
        completions = [self._checked(server, request, *one) for one in sampled]
        return tuple(completions * (params.num_samples // asked)), versions

    def _refusal(self, server: _Server, calls: Calls, error: RefusedError) -> Exception:
        """Return what a refused request means: the server is dying, or it cannot do what is asked."""
        if error.status == 404 and self._api == "tokens":
            return EngineError(f"{error}; start it with --enable-scale-out, or set rollout.engine.api=completions")
        if error.status < 500:
            return error
        try:
            self._call(server, calls, "GET", "/health", timeout=CONNECT_SECONDS)
        except (UnreachableError, EngineError):
            return UnreachableError(f"{str(error).removeprefix(f'{server.url}: ')}, and it is not healthy")
        return EngineError(f"{error}, although /health says 200: it cannot sample; start the server again")

    def _checked(
        self, server: _Server, request: _Request, ids: list[int], logprobs: list[float], reason: str
    ) -> Completion:
        """Return a completion, if it is one of the request."""
        if reason not in ("stop", "length"):
            raise UnreachableError(f"it ended a completion ({reason})")
        num_ids, stop_ids = self._num_ids(), request.params.stop_ids
        if not 0 <= min(ids) <= max(ids) < num_ids:
            raise EngineError(f"{server.url} sampled the token id {max(ids)}; the model has ids below {num_ids}")
        ends = ids[-1] in stop_ids
        if any(one in stop_ids for one in ids[:-1]) or not (ends or len(ids) == request.budget):
            raise EngineError(
                f"{server.url}: a completion of {len(ids)} tokens was to end with the first of the stop tokens "
                f"{list(stop_ids)}, or at {request.budget} tokens; does its --max-model-len leave that room?"
            )
        return Completion(token_ids=tuple(ids), logprobs=tuple(logprobs), finish_reason="stop" if ends else "length")

    def _call(
        self, server: _Server, calls: Calls, method: str, path: str, body: Any = None, *, timeout: float | None = None
    ) -> Any:
        return call(calls, server.url, method, path, body, timeout=timeout or self._timeout)


@dataclass(frozen=True, slots=True)
class _Request:
    """All samples of a prompt."""

    prompt: Sequence[int]
    params: SamplingParams
    seed: int
    budget: int


def _same_weights(one: str, other: str) -> bool:
    """Whether two labels have the same digest; the number before it is for people."""
    return one.rpartition("-")[2] == other.rpartition("-")[2]


def _entries(models: Any) -> list[Mapping[str, Any]]:
    found = models.get("data") if isinstance(models, Mapping) else None
    return [one for one in found or () if isinstance(one, Mapping)] if isinstance(found, list) else []
