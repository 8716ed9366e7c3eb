"""An engine whose model is in vLLM servers: prompts and completions go over HTTP, weights by a folder or NCCL."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from swerve.config.engines import CheckConfig
from swerve.errors import EngineError, InterruptedRunError
from swerve.interruption import asked_to_stop
from swerve.models.adapter import whole_tensors
from swerve.models.head import model_head
from swerve.models.model_folder import stored_tensors
from swerve.models.shards import tensors_digest
from swerve.rollout import vllm_protocol
from swerve.rollout.engine import Engine, NamedTensors, SamplingParams, check_request
from swerve.rollout.server_client import (
    CONNECT_SECONDS,
    MAX_BYTES,
    Calls,
    LateError,
    RefusedError,
    UnreachableError,
    in_parallel,
    own_address,
)
from swerve.rollout.sync import check_own_weights
from swerve.rollout.vllm_protocol import ROUTE, Ask, ServerInfo
from swerve.rollout.weights_folder import WeightsFolder, weights_path
from swerve.types import Completion

_LOG = logging.getLogger(__name__)
"""Says on stderr what is waited for; rich shows it above its progress."""
_PAUSE = 0.5
"""Seconds between two looks at a server that is waited for."""
_PROBE_SECONDS = 60.0
"""For one token, of a server without other requests."""
_SILENCE = 120.0
"""Seconds in which a server with open requests reads or writes some token, or it hangs."""
_BYTES_PER_TOKEN = 1024
"""Of an answer, at most, for each token that it may have: id, log-probability and their names."""
_TRIES = 6
"""For a request: each time its server died, and could sample again afterwards."""


@dataclass(slots=True)
class _Server:
    """What is known of one server."""

    url: str
    info: ServerInfo | None = None
    """None: not known yet, or another process may answer."""
    name: str = ""
    """What it calls the model."""
    was_there: bool = False
    num_open: int = 0
    """Requests for completions that it works at."""
    failure: UnreachableError | None = None
    """Why it is not asked for completions."""
    fault: EngineError | None = None
    """Why it cannot be, although it answers again."""


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
        served_model: str | None = None,
        folder: str | None = None,
        dtype: str = "auto",
        weights: Literal["folder", "transfer"] = "folder",
        patience: float = 300.0,
        timeout: float = 1800.0,
    ) -> None:
        """Keep what is needed; no server is asked before the first `load` or `generate`.

        Args:
            model: what is sampled from; its weights are read where there is something to sample before a `load`.
            pad_id: not needed.
            max_rows: completions asked for at a time at most.
            urls: see `ServerEngineConfig`, as for the rest.
            served_model: see there.
            folder: see there.
            dtype: see there.
            weights: see there.
            patience: see there.
            timeout: see there.

        Raises:
            MissingExtraError, ConfigError: see `check_transfer`.
        """
        if weights == "transfer":
            vllm_protocol.check_transfer(model.device.type)
        self._model, self._max_rows = model, max_rows
        self._num_ids, self._logit_bias = model_head(model).vocabulary_size, vllm_protocol.padding_bias(model)
        self._served_model, self._dtype = served_model, dtype
        self._patience, self._timeout = patience, timeout
        self._servers = [_Server(url) for url in urls]
        self._folder_name = folder
        self._folder: WeightsFolder | None = None
        self._transfers = weights == "transfer"
        self._weights: Mapping[str, Tensor] = {}
        """What is transferred, also to a server that was started again."""
        self.joins = not self._transfers  # which each process keeps weights for
        self._lock, self._transferring = threading.Lock(), threading.Lock()
        self._calls, self._is_closed = Calls(), False

    def load(self, weights: NamedTensors, *, version: int) -> None:
        """Give every server the weights, by a new folder or from GPU to GPU; see `Engine.load`.

        Raises:
            EngineError: the folder cannot be written, a server does not come back, or it cannot load them.
            InterruptedRunError: a signal asked for a stop while a server was waited for.
        """
        self._everywhere(self._look)
        dtype = self._dtype if self._dtype != "auto" else next(one.info.dtype for one in self._servers if one.info)
        tensors = {
            name: tensor.to(device="cpu", dtype=getattr(torch, dtype) if dtype and tensor.is_floating_point() else None)
            for name, tensor in stored_tensors(self._model, dict(weights)).items()
        }
        label = f"v{version:06d}-{tensors_digest('model', tensors)[:12]}"
        folder = self._made_folder()
        if self._transfers:
            self._weights = tensors
        else:
            folder.write_missing(label, self._model, tensors)
        self.join(label, version=version)

    def join(self, label: str, *, version: int) -> None:
        """Make sure that every server has the weights of this label, which are in the folder; see `Engine.join`.

        Raises:
            EngineError, InterruptedRunError: see `load`.
        """
        folder = self._made_folder()
        folder.hold(label)
        self.label = label
        self._everywhere(self._ready)
        folder.keep_only(label)
        super().join(label, version=version)

    def _made_folder(self) -> WeightsFolder:
        if self._folder is None:
            self._folder = WeightsFolder(weights_path(self._folder_name))
        return self._folder

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
            ValueError: an empty prompt, or a wrong number of seeds or budgets.
            EngineError: a server does not come back, or what it answers is wrong; the message names it.
            InterruptedRunError: a signal asked for a stop while a server was waited for.
        """
        budgets = [params.max_new_tokens] * len(prompts) if budgets is None else budgets
        check_request(self._model, prompts, params, seeds, budgets)
        if not prompts:
            return []
        if 0 < params.temperature < vllm_protocol.MIN_TEMPERATURE:
            raise EngineError(
                f"vLLM samples at temperature {vllm_protocol.MIN_TEMPERATURE} in place of {params.temperature}; take "
                "0, or a higher one"
            )
        has_own_weights = not self.label
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
            for server in self._servers:
                threading.Thread(target=self._keep, args=(server, calls), daemon=True).start()
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
        """Do something with every server, side by side; of those that were there before one is enough."""
        started = time.monotonic()
        while True:
            calls = self._new_calls()
            tasks = [partial(self._attempt, server, calls, act) for server in self._servers]
            with in_parallel(calls, tasks, len(tasks)) as results:
                for _ in results:
                    pass
            missing = [one for one in self._servers if one.failure]
            if not missing or (len(missing) < len(self._servers) and all(one.was_there for one in missing)):
                return
            self._pause(missing[0], started, self._new_calls())

    def _attempt(self, server: _Server, calls: Calls, act: Callable[[_Server, Calls], None]) -> None:
        """Do something with a server, which may not answer."""
        try:
            act(server, calls)
        except UnreachableError as error:
            self._lose(server, calls, error)
        else:
            if server.failure:
                _LOG.warning(f"{server.url} answers again")
            server.was_there, server.failure, server.fault = True, None, None

    def _lose(self, server: _Server, calls: Calls, failure: UnreachableError) -> None:
        """Ask a server for nothing until it answers again, and say so."""
        if calls.ended.is_set():
            raise EngineError(f"{server.url} is no longer waited for: the engine was closed")
        with self._lock:
            was_lost, server.failure, server.info = server.failure, failure, None  # what answers may be another process
            others = server.was_there and any(not one.failure for one in self._servers)
        if not was_lost:
            rest = "its prompts go to the other servers until it answers again"
            _LOG.warning(
                f"{server.url}: {failure}; {rest if others else f'waiting for it, {self._patience:g} s at most'}"
            )

    def _pause(self, server: _Server, started: float, calls: Calls) -> None:
        """Wait a little for a server, without which nothing can be done.

        Raises:
            EngineError: the engine's patience is over since it `started` to wait, or it is closed.
            InterruptedRunError: a signal asked for a stop.
        """
        number = asked_to_stop()
        if number is not None:
            raise InterruptedRunError(
                f"interrupted while waiting for {server.url}; continue with --resume", signal_number=number
            )
        if time.monotonic() - started >= self._patience:
            raise EngineError(
                f"{server.url} did not answer for {self._patience:g} s ({server.failure}): start it again (`swerve "
                "serve` says how), and continue with --resume; rollout.engine.patience is how long it is waited for"
            )
        if calls.ended.wait(_PAUSE):
            raise EngineError(f"{server.url} is no longer waited for: the engine was closed")

    def _keep(self, server: _Server, calls: Calls) -> None:
        """While completions are asked for: bring a server back that was lost, and lose one that hangs."""
        tokens: float | None = -1.0
        moved, looked = time.monotonic(), 0.0
        while not calls.ended.wait(_PAUSE):
            now = time.monotonic()
            try:
                if server.failure:
                    self._attempt(server, calls, self._revive)
                if server.failure or not server.num_open:
                    moved = now
                elif now - looked > _SILENCE / 10:
                    looked, before = now, tokens
                    with suppress(UnreachableError):  # it has no time for questions, or hangs
                        tokens = vllm_protocol.tokens_done(self._ask_of(server, calls))
                    if tokens is None or tokens != before:
                        moved = now
                    elif now - moved > _SILENCE:
                        self._lose(server, calls, UnreachableError(f"it has written no token for {_SILENCE:g} s"))
                        calls.drop(server.url)
            except EngineError as error:
                server.fault = None if calls.ended.is_set() else error
                return

    def _revive(self, server: _Server, calls: Calls) -> None:
        self._ready(server, calls)
        self._probe(server, calls)

    def _probe(self, server: _Server, calls: Calls) -> None:
        """Sample a token: that /health says 200 proves nothing."""
        params = SamplingParams(num_samples=1, max_new_tokens=1, temperature=1.0, stop_ids=())
        self._completions(server, _Request([0], params, 0, 1), calls, within=_PROBE_SECONDS)

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
        if server.info:
            return
        info = vllm_protocol.server_info(server.url, self._ask_of(server, calls))
        name = self._served_model or next(iter(info.models), "")
        if name not in info.models:
            raise EngineError(
                f"{server.url} serves {', '.join(info.models) or 'no model'}"
                + (f", not {name}; rollout.engine.served_model is to be one of these" if name else "")
            )
        if self._transfers:
            vllm_protocol.check_transfers(server.url, info, self._model.device.type)
        server.name, server.info = name, info

    def _has_weights(self, server: _Server, calls: Calls) -> bool:
        version = vllm_protocol.weights_label(self._ask_of(server, calls))
        if version == vllm_protocol.FAILED:
            raise EngineError(f"{server.url} could not load weights earlier, and has parts of them; start it again")
        return _same_weights(version, self.label)

    def _reload(self, server: _Server, calls: Calls) -> None:
        """Give a server the present weights, and make sure that it samples afterwards."""
        ask = self._ask_of(server, calls)
        self._probe(server, calls)  # to load weights may take long, also where it does not hang
        # A kill in between must not leave the label of weights that the server no longer has.
        vllm_protocol.set_weights_label(ask, vllm_protocol.LOADING)
        (self._transfer if self._transfers else self._load_folder)(server, ask)
        self._empty_cache(server, calls)
        self._probe(server, calls)
        vllm_protocol.set_weights_label(ask, self.label)

    def _load_folder(self, server: _Server, ask: Ask) -> None:
        assert self._folder is not None
        assert server.info is not None
        folder = self._folder.find(self.label)
        if folder is None:
            raise EngineError(f"the weights {self.label} are no longer in {self._folder.path}; start again")
        try:
            vllm_protocol.load_folder(ask, folder, packs_head=server.info.packs_head)
        except RefusedError as error:
            vllm_protocol.set_weights_label(ask, vllm_protocol.FAILED)
            raise EngineError(
                f"{error}: it could not load the weights in {folder}; it must see that folder by the same path "
                "(rollout.engine.folder) and serve a model of the same shape; start the server again"
            ) from None

    def _transfer(self, server: _Server, ask: Ask) -> None:
        """Send the weights, to one server at a time.

        Raises:
            EngineError: they could not be sent; the server is left with parts of them.
        """
        with self._transferring:
            host = own_address(server.url)
            try:
                vllm_protocol.transfer_weights(ask, self._weights, self._model.device, host=host)
            except UnreachableError:
                raise
            except Exception as error:
                with suppress(UnreachableError, EngineError):
                    vllm_protocol.set_weights_label(ask, vllm_protocol.FAILED)
                said = " ".join(str(error).split())
                raise EngineError(
                    f"{server.url}: weights could not be transferred to it ({said:.300}); start it again, and continue "
                    "with --resume"
                ) from error

    def _compare(self, server: _Server, calls: Calls) -> None:
        """Check that a server samples with the model's weights, where nobody else does: in evaluation."""
        self._ready(server, calls)
        types = [str(self._model.dtype).removeprefix("torch."), server.info.dtype if server.info else None]

        def sample(prompt: list[int], params: SamplingParams) -> tuple[Completion, ...]:
            return self._completions(server, _Request(prompt, params, 0, params.max_new_tokens), calls)[0]

        check_own_weights(self._model, sample, server.url, CheckConfig().bound(*types))

    def _empty_cache(self, server: _Server, calls: Calls) -> None:
        """Empty the prefix cache, which is of the old weights; requests that still run are waited for."""
        deadline = time.monotonic() + self._timeout
        while not vllm_protocol.empty_prefix_cache(self._ask_of(server, calls)):
            if time.monotonic() >= deadline or calls.ended.wait(_PAUSE):
                raise EngineError(f"{server.url} does not empty its prefix cache; is somebody else sampling with it?")

    def _check_lengths(self, prompts: Sequence[Sequence[int]], budgets: Sequence[int]) -> None:
        """Check what a server would cut off without a word.

        Raises:
            EngineError: a prompt and its completion do not fit.
        """
        for index, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True)):
            for server in self._servers:
                limit = server.info.models[server.name] if server.info else None
                if limit is not None and len(prompt) + budget > limit:
                    raise EngineError(
                        f"{server.url} takes {limit} tokens, and prompt {index} has {len(prompt)} and may grow by "
                        f"{budget}; start it with a higher --max-model-len, or lower max_new_tokens"
                    )

    def _sample(self, request: _Request, calls: Calls) -> tuple[Completion, ...]:
        """Return a prompt's completions from a server that answers."""
        for _ in range(_TRIES):
            server = self._next_server(calls)
            try:
                completions, versions = self._completions(server, request, calls)
                label = vllm_protocol.weights_label
                self._check_versions(server, versions or {label(self._ask_of(server, calls))})
                return completions
            except UnreachableError as error:
                self._lose(server, calls, error)
            finally:
                with self._lock:
                    server.num_open -= 1
        raise EngineError(f"{server.url} failed {_TRIES} times in a row to sample; look at its output")

    def _next_server(self, calls: Calls) -> _Server:
        """Return the server with the fewest open requests, as soon as there is one that answers."""
        started = time.monotonic()
        while True:
            with self._lock:
                server = min(self._servers, key=lambda one: (one.failure is not None, one.num_open))
                fault = next((one.fault for one in self._servers if one.fault), None)
                if fault:
                    raise fault
                if not server.failure:
                    server.num_open += 1
                    return server
            self._pause(server, started, calls)

    def _check_versions(self, server: _Server, versions: set[str]) -> None:
        """Check that a completion's weights were the engine's all along."""
        others = {one for one in versions if not _same_weights(one, self.label)}
        if others & {vllm_protocol.UNNAMED, vllm_protocol.LOADING}:
            raise UnreachableError("it was started again")
        if others:
            raise EngineError(
                f"{server.url} was given the weights {', '.join(sorted(others))} by somebody else while it sampled "
                f"with {self.label}; give each run servers of its own"
            )

    def _completions(
        self, server: _Server, request: _Request, calls: Calls, *, within: float | None = None
    ) -> tuple[tuple[Completion, ...], set[str]]:
        """Return the completions of one request, and the versions that the answer names.

        Raises:
            UnreachableError: the server died, or aborted the request.
            EngineError: it cannot sample, or the answer is wrong.
        """
        params = request.params
        asked = vllm_protocol.asked_samples(params)
        body = vllm_protocol.request_body(
            server.name,
            request.prompt,
            params,
            seed=request.seed,
            max_tokens=request.budget,
            logit_bias=self._logit_bias,
        )
        try:
            max_bytes = MAX_BYTES + _BYTES_PER_TOKEN * asked * request.budget
            answer = self._ask_of(server, calls)("POST", ROUTE, body, within=within, max_bytes=max_bytes)
        except RefusedError as error:
            raise self._refusal(server, calls, error) from None
        try:
            sampled, versions = vllm_protocol.completions_of(answer, num_samples=asked)
        except ValueError as error:
            raise EngineError(f"{server.url}: the answer to POST {ROUTE} has {error}; see `swerve serve`") from None
        completions = [self._checked(server, request, *one) for one in sampled]
        return tuple(completions * (params.num_samples // asked)), versions

    def _refusal(self, server: _Server, calls: Calls, error: RefusedError) -> Exception:
        """Return what a refused request means: the server is dying, or it cannot do what is asked."""
        if error.status == 404:
            return EngineError(f"{error}; start it with --enable-scale-out, as `swerve serve` does")
        if error.status < 500:
            return error
        try:
            self._ask_of(server, calls)("GET", "/health", within=CONNECT_SECONDS)
        except (UnreachableError, EngineError):
            return UnreachableError(f"{str(error).removeprefix(f'{server.url}: ')}, and it is not healthy")
        return EngineError(f"{error}, although /health says 200: it cannot sample; start the server again")

    def _checked(
        self, server: _Server, request: _Request, ids: list[int], logprobs: list[float], reason: str
    ) -> Completion:
        """Return a completion, if it is one of the request."""
        if reason not in ("stop", "length"):
            raise UnreachableError(f"it ended a completion ({reason})")
        stop_ids = request.params.stop_ids
        if not 0 <= min(ids) <= max(ids) < self._num_ids:
            raise EngineError(f"{server.url} sampled the token id {max(ids)}; the model has ids below {self._num_ids}")
        ends = ids[-1] in stop_ids
        if any(one in stop_ids for one in ids[:-1]) or not (ends or len(ids) == request.budget):
            raise EngineError(
                f"{server.url}: a completion of {len(ids)} tokens was to end with the first of the stop tokens "
                f"{list(stop_ids)}, or at {request.budget} tokens; does its --max-model-len leave that room?"
            )
        return Completion(token_ids=tuple(ids), logprobs=tuple(logprobs), finish_reason="stop" if ends else "length")

    def _ask_of(self, server: _Server, calls: Calls) -> Ask:
        def ask(method: str, path: str, body: Any = None, *, within: float | None = None, **options: Any) -> Any:
            try:
                return calls.ask(server.url, method, path, body, timeout=within or self._timeout, **options)
            except LateError:
                if within is None:
                    raise
                raise UnreachableError(f"{path} was not answered within {within:g} s") from None

        return ask


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
