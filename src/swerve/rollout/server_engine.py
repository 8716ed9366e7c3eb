"""An engine whose model is in servers of vLLM or SGLang: prompts go over HTTP, weights by a folder or NCCL."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from swerve.config.engines import CheckConfig
from swerve.errors import EngineError, InterruptedRunError, said_by
from swerve.interruption import asked_to_stop
from swerve.models.adapter import whole_tensors
from swerve.models.head import model_head, padding_ids
from swerve.models.model_folder import stored_tensors
from swerve.models.shards import tensors_digest
from swerve.rollout import sglang_protocol, vllm_protocol
from swerve.rollout.engine import Engine, NamedTensors, SamplingParams, check_request, served_completion
from swerve.rollout.server_client import (
    CONNECT_SECONDS,
    MAX_BYTES,
    LateError,
    RefusedError,
    UnreachableError,
    ask,
    own_address,
    quoted,
)
from swerve.rollout.sync import OWN_PARAMS, check_own_weights, own_prompt
from swerve.rollout.vllm_protocol import FAILED, LOADING, MIN_BIAS, UNNAMED, Ask, ServerInfo
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
_Result = TypeVar("_Result")


@dataclass(slots=True, eq=False)
class _Server:
    """What is known of one server."""

    url: str
    info: ServerInfo | None = None
    """None: not known yet, or another process may answer."""
    name: str = ""
    """What it calls the model."""
    was_there: bool = False
    requests: set[asyncio.Task[Any]] = field(default_factory=set)
    """For completions, that it works at."""
    failure: UnreachableError | None = None
    """Why it is not asked for completions."""


@dataclass(frozen=True, slots=True)
class _Request:
    """All samples of a prompt."""

    prompt: Sequence[int]
    params: SamplingParams
    seed: int
    budget: int


class ServerEngine(Engine):
    """Samples with one or several servers of vLLM or SGLang.

    A server has the weights of a label, which it reports itself, so that one that was started again, or that another
    engine has used, is given the right ones before it samples. Requests are spread over the servers; what a prompt's
    completions are does not depend on which one answers. All that goes over the network does so in one thread.
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
        dialect: Literal["vllm", "sglang"] = "vllm",
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
            dialect: see there.
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
        self._protocol = sglang_protocol if dialect == "sglang" else vllm_protocol
        self._model, self._max_rows = model, max_rows
        self._num_ids = model_head(model).vocabulary_size
        # A server would sample ids that the model's tokenizer has no token for.
        self._logit_bias = dict.fromkeys(padding_ids(model), MIN_BIAS)
        self._served_model, self._dtype = served_model, dtype
        self._patience, self._timeout = patience, timeout
        self._servers = [_Server(url) for url in urls]
        self._folder_name = folder
        self._transfers = weights == "transfer"
        self._weights: Mapping[str, Tensor] = {}
        """What is transferred, also to a server that was started again."""
        self.joins = not self._transfers  # which each process keeps weights for
        self._transferring = asyncio.Lock()
        self._is_closed = False

    @cached_property
    def _folder(self) -> WeightsFolder:
        return WeightsFolder(weights_path(self._folder_name))

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """What runs in the thread of the network."""
        loop = asyncio.new_event_loop()

        def run() -> None:
            loop.run_forever()  # until `close`
            loop.close()

        threading.Thread(target=run, daemon=True).start()
        return loop

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Return what some work on the network returns; an exception in this thread, such as Ctrl-C, ends it."""
        if self._is_closed:
            work.close()
            raise EngineError("the engine was closed")
        done = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return done.result()
        except CancelledError:
            raise EngineError("the engine was closed") from None
        finally:
            done.cancel()

    def close(self) -> None:
        """End what is open, for other threads too, and remove the weights that were written; servers keep theirs."""

        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            self._loop.stop()

        if "_loop" in vars(self) and not self._is_closed:
            asyncio.run_coroutine_threadsafe(end(), self._loop)
        self._is_closed = True
        if "_folder" in vars(self):
            self._folder.keep_only(None)

    def load(self, weights: NamedTensors, *, version: int) -> None:
        """Give every server the weights, by a new folder or from GPU to GPU; see `Engine.load`.

        Raises:
            EngineError: the folder cannot be written, a server does not come back, or it cannot load them.
            InterruptedRunError: a signal asked for a stop while a server was waited for.
        """
        self._run(self._everywhere(self._look))
        dtype = self._dtype
        if dtype == "auto":
            dtype = next(server.info.dtype for server in self._servers if server.info) or ""
        wide = getattr(torch, dtype) if dtype else None
        # In the server's type, as a folder of the model has them.
        tensors = {
            name: tensor.to(device="cpu", dtype=wide if tensor.is_floating_point() else None)
            for name, tensor in stored_tensors(self._model, dict(weights)).items()
        }
        label = f"v{version:06d}-{tensors_digest('model', tensors)[:12]}"
        if self._transfers:
            self._weights = tensors
        else:
            self._folder.write_missing(label, self._model, tensors)
        self.join(label, version=version)

    def join(self, label: str, *, version: int) -> None:
        """Make sure that every server has the weights of this label, which are in the folder; see `Engine.join`.

        Raises:
            EngineError, InterruptedRunError: see `load`.
        """
        self._folder.hold(label)
        self.label = label
        self._run(self._everywhere(self._ready))
        self._folder.keep_only(label)
        super().join(label, version=version)

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seeds: Sequence[int],
        budgets: Sequence[int] | None = None,
        on_finished: Callable[[int], None] | None = None,
    ) -> list[tuple[Completion, ...]]:
        """See `Engine.generate`; `on_finished` is called in another thread.

        Raises:
            ValueError: an empty prompt, or a wrong number of seeds or budgets.
            EngineError: a server does not come back, or what it answers is wrong; the message names it.
            InterruptedRunError: a signal asked for a stop while a server was waited for.
        """
        budgets = check_request(self._model, prompts, params, seeds, budgets)
        if not prompts:
            return []
        if 0 < params.temperature < self._protocol.MIN_TEMPERATURE:
            raise EngineError(
                f"the servers do not sample at temperature {params.temperature}; take 0, or at least "
                f"{self._protocol.MIN_TEMPERATURE}"
            )

        # Before the first `load` the servers are given the model's own weights, and nobody else compares these.
        has_own_weights = not self.label
        if has_own_weights:
            self.load(whole_tensors(self._model), version=self.version)
        else:
            self._run(self._everywhere(self._ready))
        self._check_lengths(prompts, budgets)
        if has_own_weights:
            self._compare()
        requests = [
            _Request(prompt, params, seed, budget) for prompt, seed, budget in zip(prompts, seeds, budgets, strict=True)
        ]
        return self._run(self._sample_all(requests, on_finished or (lambda _: None)))

    def _compare(self) -> None:
        """Check that each server samples with the model's weights."""
        request = _Request(own_prompt(self._model), OWN_PARAMS, 0, OWN_PARAMS.max_new_tokens)
        sampled: dict[str, Sequence[Completion]] = {}

        async def sample(server: _Server) -> None:
            await self._ready(server)
            sampled[server.url], _ = await self._completions(server, request)

        self._run(self._everywhere(sample))
        for server in self._servers:
            if server.url in sampled:
                types = [str(self._model.dtype).removeprefix("torch."), server.info.dtype if server.info else None]
                check_own_weights(self._model, sampled[server.url], server.url, CheckConfig().bound(*types))

    def _check_lengths(self, prompts: Sequence[Sequence[int]], budgets: Sequence[int]) -> None:
        """Check what a server would cut off silently.

        Raises:
            EngineError: a prompt and its completion do not fit.
        """
        for server in self._servers:
            limit = server.info.models[server.name] if server.info else None
            for index, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True)):
                if limit is not None and len(prompt) + budget > limit:
                    raise EngineError(
                        f"{server.url} takes {limit} tokens, and prompt {index} has {len(prompt)} and may grow by "
                        f"{budget}; start it with a higher --max-model-len (SGLang: --context-length), or lower "
                        "max_new_tokens"
                    )

    # What follows runs in the thread of the network. First: servers that come and go.

    async def _everywhere(self, act: Callable[[_Server], Awaitable[None]]) -> None:
        """Do something with every server, side by side; of those that were there before one is enough."""
        started = time.monotonic()
        while True:
            await _side_by_side(self._attempt(server, act) for server in self._servers)
            missing = [server for server in self._servers if server.failure]
            if not missing or (len(missing) < len(self._servers) and all(server.was_there for server in missing)):
                return
            await self._pause(missing[0], started)

    async def _attempt(self, server: _Server, act: Callable[[_Server], Awaitable[None]]) -> None:
        """Do something with a server, which may not answer."""
        try:
            await act(server)
        except UnreachableError as error:
            self._lose(server, error)
        else:
            if server.failure:
                _LOG.warning(f"{server.url} answers again")
            server.was_there, server.failure = True, None

    def _lose(self, server: _Server, failure: UnreachableError) -> None:
        """Ask a server for nothing until it answers again, and say so."""
        was_lost, server.failure, server.info = server.failure, failure, None  # what answers may be another process
        if not was_lost:
            rest = f"waiting for it, {self._patience:g} s at most"
            if server.was_there and any(not other.failure for other in self._servers):
                rest = "its prompts go to the other servers until it answers again"
            _LOG.warning(f"{server.url}: {failure}; {rest}")

    async def _pause(self, server: _Server, started: float) -> None:
        """Wait a little for a server, without which nothing can be done.

        Raises:
            EngineError: the engine's patience is over since it `started` to wait.
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
        await asyncio.sleep(_PAUSE)

    async def _keep(self, server: _Server) -> None:
        """While completions are asked for: bring a server back that was lost, and lose one that hangs."""

        async def revive(server: _Server) -> None:
            await self._ready(server)
            await self._probe(server)

        tokens: float | None = -1.0
        moved, looked = time.monotonic(), 0.0
        while True:
            await asyncio.sleep(_PAUSE)
            now = time.monotonic()
            if server.failure:
                await self._attempt(server, revive)
            if server.failure or not server.requests:
                moved = now
            elif now - looked > _SILENCE / 10:
                # While it counts more tokens each time, or does not count them, it works.
                looked, before = now, tokens
                with suppress(UnreachableError):  # it has no time for questions, or hangs
                    tokens = await self._protocol.tokens_done(self._ask_of(server))
                if tokens is None or tokens != before:
                    moved = now
                elif now - moved > _SILENCE:
                    self._lose(server, UnreachableError(f"it has written no token for {_SILENCE:g} s"))
                    for request in server.requests:
                        request.cancel()

    # What a server is, and how it gets weights.

    def _ask_of(self, server: _Server) -> Ask:
        async def ask_it(
            method: str, path: str, body: Any = None, *, within: float | None = None, **options: Any
        ) -> Any:
            try:
                return await ask(server.url, method, path, body, timeout=within or self._timeout, **options)
            except LateError:
                if within is None:
                    raise
                raise UnreachableError(f"{path} was not answered within {within:g} s") from None

        return ask_it

    async def _look(self, server: _Server) -> None:
        """Find out what a server is, unless that is known.

        Raises:
            EngineError: it serves another model, or was started without what is needed.
        """
        if server.info:
            return
        info = await self._protocol.server_info(server.url, self._ask_of(server))
        name = self._served_model or next(iter(info.models), "")
        if name not in info.models:
            raise EngineError(
                f"{server.url} serves {quoted(', '.join(info.models)) or 'no model'}"
                + (f", not {name}; rollout.engine.served_model is to be one of these" if name else "")
            )
        if self._transfers:
            vllm_protocol.check_transfers(server.url, info, self._model.device.type)
        server.name, server.info = name, info

    async def _ready(self, server: _Server) -> None:
        """Make sure that a server is there, fits, and has the weights."""
        await self._look(server)
        if await self._has_weights(server):
            return
        async with self._folder.reserved(server.url):
            if not await self._has_weights(server):
                await self._reload(server)

    async def _has_weights(self, server: _Server) -> bool:
        label = await self._protocol.weights_label(self._ask_of(server))
        if label == FAILED:
            raise EngineError(f"{server.url} could not load weights earlier, and has parts of them; start it again")
        return _same_weights(label, self.label)

    async def _reload(self, server: _Server) -> None:
        """Give a server the present weights, and make sure that it samples afterwards."""
        ask_it = self._ask_of(server)
        await self._probe(server)  # to load weights may take long, also where it does not hang
        # A kill in between must not leave the label of weights that the server no longer has.
        await self._protocol.set_weights_label(ask_it, LOADING)
        await (self._transfer if self._transfers else self._load_folder)(server, ask_it)

        # The prefix cache is of the old weights; requests that still run are waited for.
        deadline = time.monotonic() + self._timeout
        while not await self._protocol.empty_prefix_cache(ask_it):
            if time.monotonic() >= deadline:
                raise EngineError(f"{server.url} does not empty its prefix cache; is somebody else sampling with it?")
            await asyncio.sleep(_PAUSE)
        await self._probe(server)
        await self._protocol.set_weights_label(ask_it, self.label)

    async def _load_folder(self, server: _Server, ask_it: Ask) -> None:
        folder = self._folder.find(self.label)
        if folder is None:
            raise EngineError(f"the weights {self.label} are no longer in {self._folder.path}; start again")
        assert server.info is not None
        try:
            await self._protocol.load_folder(ask_it, folder, packs_head=server.info.packs_head)
        except RefusedError as error:
            await self._protocol.set_weights_label(ask_it, FAILED)
            raise EngineError(
                f"{error}: it could not load the weights in {folder}; it must see that folder by the same path "
                "(rollout.engine.folder) and serve a model of the same shape; start the server again"
            ) from None

    async def _transfer(self, server: _Server, ask_it: Ask) -> None:
        """Send the weights, to one server at a time.

        Raises:
            EngineError: they could not be sent; the server is left with parts of them.
        """
        async with self._transferring:
            host = await own_address(server.url)
            try:
                await vllm_protocol.transfer_weights(ask_it, self._weights, self._model.device, host=host)
            except UnreachableError:
                raise
            except Exception as error:
                with suppress(UnreachableError, EngineError):
                    await self._protocol.set_weights_label(ask_it, FAILED)
                raise EngineError(
                    f"{server.url}: weights could not be transferred to it ({quoted(said_by(error))}); start it again, "
                    "and continue with --resume"
                ) from error

    async def _probe(self, server: _Server) -> None:
        """Sample a token: that /health says 200 proves nothing."""
        params = SamplingParams(num_samples=1, max_new_tokens=1, temperature=1.0, stop_ids=())
        await self._completions(server, _Request([0], params, 0, 1), within=_PROBE_SECONDS)

    # Requests for completions.

    async def _sample_all(
        self, requests: Sequence[_Request], on_finished: Callable[[int], None]
    ) -> list[tuple[Completion, ...]]:
        """Return the completions of all requests, of which so many are open at a time as there is room for."""
        room = asyncio.Semaphore(max(len(self._servers), ceil(self._max_rows / requests[0].params.num_samples)))

        async def sample(request: _Request) -> tuple[Completion, ...]:
            async with room:
                completions = await self._sample(request)
            on_finished(len(completions))
            return completions

        return await _side_by_side(map(sample, requests), beside=map(self._keep, self._servers))

    async def _sample(self, request: _Request) -> tuple[Completion, ...]:
        """Return a prompt's completions from a server that answers."""
        for _ in range(_TRIES):
            server = await self._next_server()
            sampling = asyncio.ensure_future(self._completions(server, request))
            server.requests.add(sampling)
            try:
                completions, labels = await sampling
                labels = labels or {await self._protocol.weights_label(self._ask_of(server))}
                self._check_labels(server, labels)
                return completions
            except UnreachableError as error:
                self._lose(server, error)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if server.failure is None or (task is not None and task.cancelling()):
                    raise  # else the server hangs, and `_keep` has ended its requests
            finally:
                server.requests.discard(sampling)
        raise EngineError(f"{server.url} failed {_TRIES} times in a row to sample; look at its output")

    async def _next_server(self) -> _Server:
        """Return the server with the fewest open requests, as soon as there is one that answers."""
        started = time.monotonic()
        while True:
            server = min(self._servers, key=lambda server: (server.failure is not None, len(server.requests)))
            if not server.failure:
                return server
            await self._pause(server, started)

    def _check_labels(self, server: _Server, labels: set[str]) -> None:
        """Check that a completion's weights were the engine's all along."""
        others = {label for label in labels if not _same_weights(label, self.label)}
        if others & {UNNAMED, LOADING}:
            raise UnreachableError("it was started again")
        if others:
            raise EngineError(
                f"{server.url} was given the weights {quoted(', '.join(sorted(others)))} by somebody else while it "
                f"sampled with {self.label}; give each run servers of its own"
            )

    async def _completions(
        self, server: _Server, request: _Request, *, within: float | None = None
    ) -> tuple[tuple[Completion, ...], set[str]]:
        """Return the completions of one request, and the labels that the answer names.

        Raises:
            UnreachableError: the server died, or aborted the request.
            EngineError: it cannot sample, or the answer is wrong.
        """
        # What is asked for, and how much the answer may be.
        params = request.params
        asked = self._protocol.asked_samples(params)
        body = self._protocol.request_body(
            server.name,
            request.prompt,
            params,
            seed=request.seed,
            max_tokens=request.budget,
            logit_bias=self._logit_bias,
        )
        try:
            max_bytes = MAX_BYTES + _BYTES_PER_TOKEN * asked * request.budget
            answer = await self._ask_of(server)("POST", self._protocol.ROUTE, body, within=within, max_bytes=max_bytes)
        except RefusedError as error:
            raise await self._refusal(server, error) from None

        # What came, one completion for each sample.
        try:
            sampled, labels = self._protocol.completions_of(answer, num_samples=asked)
        except ValueError as error:
            raise EngineError(
                f"{server.url}: the answer to POST {self._protocol.ROUTE} has {error}; see `swerve serve`"
            ) from None
        completions = [self._checked(server, request, *completion) for completion in sampled]
        return tuple(completions * (params.num_samples // asked)), labels

    async def _refusal(self, server: _Server, error: RefusedError) -> Exception:
        """Return what a refused request means: the server is dying, or it cannot do what is asked."""
        if error.status == 404:
            return EngineError(f"{error}; {self._protocol.WITHOUT_ROUTE}")
        if error.status < 500:
            return error
        try:
            await self._ask_of(server)("GET", "/health", within=CONNECT_SECONDS)
        except (UnreachableError, EngineError):
            return UnreachableError(f"{str(error).removeprefix(f'{server.url}: ')}, and it is not healthy")
        return EngineError(f"{error}, although /health says 200: it cannot sample; start the server again")

    def _checked(
        self, server: _Server, request: _Request, ids: list[int], logprobs: list[float], reason: str
    ) -> Completion:
        """Return a completion, if it is one of the request."""
        if reason not in ("stop", "length"):
            raise UnreachableError(f"it ended a completion ({quoted(reason)})")
        params, budget = request.params, request.budget
        try:
            return served_completion(
                server.url, ids, logprobs, num_ids=self._num_ids, stop_ids=params.stop_ids, budget=budget
            )
        except EngineError as error:
            raise EngineError(f"{error}; {self._protocol.CUT_OFF}") from None


def _same_weights(one: str, other: str) -> bool:
    """Whether two labels have the same digest; the number before it is for people."""
    return one.rpartition("-")[2] == other.rpartition("-")[2]


async def _side_by_side(
    work: Iterable[Coroutine[Any, Any, _Result]], beside: Iterable[Coroutine[Any, Any, None]] = ()
) -> list[_Result]:
    """Return what all of some work returns; its first exception, or one of what runs beside it, ends the rest."""
    tasks = [asyncio.ensure_future(one) for one in work]
    others = [asyncio.ensure_future(one) for one in beside]
    everything = asyncio.gather(*tasks)
    try:
        waited: set[asyncio.Future[Any]] = {everything, *others}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            if other.done():
                other.result()
        return await everything
    finally:
        for task in (*tasks, *others):
            task.cancel()
        await asyncio.gather(everything, *tasks, *others, return_exceptions=True)
