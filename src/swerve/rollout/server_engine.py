"""An engine whose model is in servers of vLLM or SGLang: prompts go over HTTP, weights by a folder or NCCL."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError, wait
from contextlib import suppress
from functools import cached_property
from math import ceil
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from swerve.config.engines import CheckConfig, ServerEngineConfig
from swerve.errors import EngineError, InterruptedRunError, said_by
from swerve.interruption import asked_to_stop
from swerve.models.adapter import whole_tensors
from swerve.models.head import model_head, padding_ids
from swerve.models.model_folder import stored_tensors
from swerve.models.weight_shards import tensors_digest
from swerve.rollout.engine import Engine, NamedTensors, SamplingParams, check_request
from swerve.rollout.server import FAILED, LOADING, UNNAMED, Request, Server
from swerve.rollout.server_client import Network, RefusedError, UnreachableError, excerpt, own_address, side_by_side
from swerve.rollout.sglang_protocol import SglangServer
from swerve.rollout.sync import OWN_PARAMS, check_own_weights, own_prompt
from swerve.rollout.vllm_protocol import VllmServer, check_transfer, check_transfers, transfer_weights
from swerve.rollout.weights_folder import WeightsFolder, weights_path
from swerve.types import Completion

_LOG = logging.getLogger(__name__)
"""Says on stderr what is waited for; rich shows it above its progress."""
_PAUSE = 0.5
"""Seconds between two looks at a server that is waited for."""
_HEARD_SECONDS = 1.0
"""After which a signal is heard that came just before a wait began."""
_PROBE_SECONDS = 60.0
"""For one token, of a server without other requests."""
_SILENCE = 120.0
"""Seconds in which a server with open requests reads or writes some token, or it hangs."""
_MIN_BIAS = -100.0
"""The lowest that servers take."""
_TRIES = 6
"""For a request: each time its server died, and could sample again afterwards."""
_Result = TypeVar("_Result")
_FAMILIES: Mapping[str, type[Server]] = {"vllm": VllmServer, "sglang": SglangServer}


class ServerEngine(Engine):
    """Samples with one or several servers of vLLM or SGLang.

    A server has the weights of a label, which it reports itself, so that one that was started again, or that another
    engine has used, is given the right ones before it samples. Requests are spread over the servers; what a prompt's
    completions are does not depend on which one answers. All that goes over the network does so in one thread.
    """

    concurrent = True
    shares_weights = False

    def __init__(self, model: PreTrainedModel, *, pad_id: int, max_rows: int, **options: Any) -> None:
        """Keep what is needed; no server is asked before the first `load` or `generate`.

        Args:
            model: what is sampled from; its weights are read where there is something to sample before a `load`.
            pad_id: not needed.
            max_rows: completions asked for at a time at most.
            options: see `ServerEngineConfig`.

        Raises:
            MissingExtraError, ConfigError: see `check_transfer`.
        """
        self._config = config = ServerEngineConfig.model_validate(options)
        self._transfers = config.weights == "transfer"
        if self._transfers:
            check_transfer(model.device.type)
        self._model, self._max_rows, self._timeout = model, max_rows, config.timeout
        num_ids = model_head(model).vocabulary_size
        # A server would sample ids that the model's tokenizer has no token for.
        logit_bias = dict.fromkeys(padding_ids(model), _MIN_BIAS)
        family = _FAMILIES[config.dialect]
        self._servers = [
            family(url, timeout=config.timeout, num_ids=num_ids, logit_bias=logit_bias) for url in config.urls
        ]
        self._least = family.min_temperature
        self._weights: Mapping[str, Tensor] = {}
        """What is transferred, also to a server that was started again."""
        self.joins = not self._transfers  # which each process keeps weights for
        self._transferring = asyncio.Lock()
        self._is_closed = False

    @cached_property
    def _folder(self) -> WeightsFolder:
        return WeightsFolder(weights_path(self._config.folder))

    @cached_property
    def _network(self) -> Network:
        return Network()

    def _run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Return what some work on the network returns; an exception in this thread, such as Ctrl-C, ends it."""
        if self._is_closed:
            work.close()
            raise EngineError("the engine was closed")
        done = self._network.start(work)
        try:
            while not wait([done], timeout=_HEARD_SECONDS).done:
                pass  # a signal that came just before the wait began is heard now
            return done.result()
        except CancelledError:
            raise EngineError("the engine was closed") from None
        finally:
            done.cancel()

    def close(self) -> None:
        """End what is open, for other threads too, and remove the weights that were written; servers keep theirs."""
        was_closed, self._is_closed = self._is_closed, True
        if "_network" in vars(self) and not was_closed:
            self._network.close()
        if "_folder" in vars(self):
            self._folder.keep_only(None)

    def load(self, weights: NamedTensors, *, version: int) -> None:
        """Give every server the weights, by a new folder or from GPU to GPU; see `Engine.load`.

        Raises:
            EngineError: the folder cannot be written, a server does not come back, or it cannot load them.
            InterruptedRunError: a signal asked for a stop while a server was waited for.
        """
        self._run(self._everywhere(self._look))
        dtype: str = self._config.dtype
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
        if 0 < params.temperature < self._least:
            raise EngineError(
                f"the servers do not sample at temperature {params.temperature}; take 0, or at least {self._least}"
            )

        # Before the first `load` the servers are given the model's own weights, and nobody else compares these.
        has_own_weights = not self.label
        if has_own_weights:
            self.load(whole_tensors(self._model), version=self.version)
        else:
            self._run(self._everywhere(self._ready))
        for server in self._servers:
            server.check_lengths(prompts, budgets)
        if has_own_weights:
            self._compare()
        requests = [
            Request(prompt, params, seed, budget) for prompt, seed, budget in zip(prompts, seeds, budgets, strict=True)
        ]
        return self._run(self._sample_all(requests, on_finished or (lambda _: None)))

    def _compare(self) -> None:
        """Check that each server samples with the model's weights."""
        request = Request(own_prompt(self._model), OWN_PARAMS, 0, OWN_PARAMS.max_new_tokens)
        sampled: dict[str, Sequence[Completion]] = {}

        async def sample(server: Server) -> None:
            await self._ready(server)
            sampled[server.url], _ = await server.completions(request)

        self._run(self._everywhere(sample))
        for server in self._servers:
            if server.url in sampled:
                types = [str(self._model.dtype).removeprefix("torch."), server.info.dtype if server.info else None]
                check_own_weights(self._model, sampled[server.url], server.url, CheckConfig().bound(*types))

    # What follows runs in the thread of the network. First: servers that come and go.

    async def _everywhere(self, act: Callable[[Server], Awaitable[None]]) -> None:
        """Do something with every server, side by side; of those that were there before one is enough."""
        started = time.monotonic()
        while True:
            await side_by_side(self._attempt(server, act) for server in self._servers)
            missing = [server for server in self._servers if server.failure]
            if not missing or (len(missing) < len(self._servers) and all(server.was_there for server in missing)):
                return
            await self._pause(missing[0], started)

    async def _attempt(self, server: Server, act: Callable[[Server], Awaitable[None]]) -> None:
        """Do something with a server, which may not answer."""
        try:
            await act(server)
        except UnreachableError as error:
            self._lose(server, error)
        else:
            if server.failure:
                _LOG.warning(f"{server.url} answers again")
            server.was_there, server.failure = True, None

    def _lose(self, server: Server, failure: UnreachableError) -> None:
        """Ask a server for nothing until it answers again, and say so."""
        was_lost, server.failure, server.info = server.failure, failure, None  # what answers may be another process
        if not was_lost:
            rest = f"waiting for it, {self._config.patience:g} s at most"
            if server.was_there and any(not other.failure for other in self._servers):
                rest = "its prompts go to the other servers until it answers again"
            _LOG.warning(f"{server.url}: {failure}; {rest}")

    async def _pause(self, server: Server, started: float) -> None:
        """Wait a little for a server, without which nothing can be done.

        Raises:
            EngineError: the engine's patience is over since it `started` to wait.
            InterruptedRunError: a signal asked for a stop.
        """
        number = asked_to_stop()
        if number is not None:
            raise InterruptedRunError(f"interrupted while waiting for {server.url}", signal_number=number)
        if time.monotonic() - started >= self._config.patience:
            raise EngineError(
                f"{server.url} did not answer for {self._config.patience:g} s ({server.failure}): start it again "
                "(`swerve serve` says how), and continue with --resume; rollout.engine.patience is how long it is "
                "waited for"
            )
        await asyncio.sleep(_PAUSE)

    async def _keep(self, server: Server) -> None:
        """While completions are asked for: bring a server back that was lost, and lose one that hangs."""

        async def revive(server: Server) -> None:
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
                    tokens = await server.tokens_done()
                if tokens is None or tokens != before:
                    moved = now
                elif now - moved > _SILENCE:
                    self._lose(server, UnreachableError(f"it has written no token for {_SILENCE:g} s"))
                    for request in server.requests:
                        request.cancel()

    # What a server is, and how it gets weights.

    async def _look(self, server: Server) -> None:
        """Find out what a server is, unless that is known.

        Raises:
            EngineError: it serves another model, or was started without what is needed.
        """
        if server.info:
            return
        info = await server.look()
        name = self._config.served_model or next(iter(info.models), "")
        if name not in info.models:
            raise EngineError(
                f"{server.url} serves {excerpt(', '.join(info.models)) or 'no model'}"
                + (f", not {name}; rollout.engine.served_model is to be one of these" if name else "")
            )
        if self._transfers:
            check_transfers(server.url, info, self._model.device.type)
        server.name, server.info = name, info

    async def _ready(self, server: Server) -> None:
        """Make sure that a server is there, fits, and has the weights."""
        await self._look(server)
        if await self._has_weights(server):
            return
        async with self._folder.reserved(server.url):
            if not await self._has_weights(server):
                await self._reload(server)

    async def _has_weights(self, server: Server) -> bool:
        label = await server.weights_label()
        if label == FAILED:
            raise EngineError(f"{server.url} could not load weights earlier, and has parts of them; start it again")
        return _same_weights(label, self.label)

    async def _reload(self, server: Server) -> None:
        """Give a server the present weights, and make sure that it samples afterwards."""
        await self._probe(server)  # to load weights may take long, also where it does not hang
        # A kill in between must not leave the label of weights that the server no longer has.
        await server.set_weights_label(LOADING)
        await (self._transfer if self._transfers else self._load_folder)(server)

        # The prefix cache is of the old weights; requests that still run are waited for.
        deadline = time.monotonic() + self._timeout
        while not await server.empty_prefix_cache():
            if time.monotonic() >= deadline:
                raise EngineError(f"{server.url} does not empty its prefix cache; is somebody else sampling with it?")
            await asyncio.sleep(_PAUSE)
        await self._probe(server)
        await server.set_weights_label(self.label)

    async def _load_folder(self, server: Server) -> None:
        folder = self._folder.find(self.label)
        if folder is None:
            raise EngineError(f"the weights {self.label} are no longer in {self._folder.path}; start again")
        try:
            await server.load_folder(folder)
        except RefusedError as error:
            await server.set_weights_label(FAILED)
            raise EngineError(
                f"{error}: it could not load the weights in {folder}; it must see that folder by the same path "
                "(rollout.engine.folder) and serve a model of the same shape; start the server again"
            ) from None

    async def _transfer(self, server: Server) -> None:
        """Send the weights, to one server at a time.

        Raises:
            EngineError: they could not be sent; the server is left with parts of them.
        """
        async with self._transferring:
            host = await own_address(server.url)
            try:
                await transfer_weights(server.ask, self._weights, self._model.device, host=host)
            except UnreachableError:
                raise
            except Exception as error:
                with suppress(UnreachableError, EngineError):
                    await server.set_weights_label(FAILED)
                raise EngineError(
                    f"{server.url}: weights could not be transferred to it ({excerpt(said_by(error))}); start it "
                    "again, and continue with --resume"
                ) from error

    async def _probe(self, server: Server) -> None:
        """Sample a token: that /health says 200 proves nothing."""
        params = SamplingParams(num_samples=1, max_new_tokens=1, temperature=1.0, stop_ids=())
        await server.completions(Request([0], params, 0, 1), within=_PROBE_SECONDS)

    # Requests for completions.

    async def _sample_all(
        self, requests: Sequence[Request], on_finished: Callable[[int], None]
    ) -> list[tuple[Completion, ...]]:
        """Return the completions of all requests, of which so many are open at a time as there is room for."""
        room = asyncio.Semaphore(max(len(self._servers), ceil(self._max_rows / requests[0].params.num_samples)))

        async def sample(request: Request) -> tuple[Completion, ...]:
            async with room:
                completions = await self._sample(request)
            on_finished(len(completions))
            return completions

        return await side_by_side(map(sample, requests), beside=map(self._keep, self._servers))

    async def _sample(self, request: Request) -> tuple[Completion, ...]:
        """Return a prompt's completions from a server that answers."""
        for _ in range(_TRIES):
            server = await self._next_server()
            sampling = asyncio.ensure_future(server.completions(request, timeout=self._timeout))
            server.requests.add(sampling)
            try:
                completions, labels = await sampling
                labels = labels or {await server.weights_label()}
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

    async def _next_server(self) -> Server:
        """Return the server with the fewest open requests, as soon as there is one that answers."""
        started = time.monotonic()
        while True:
            server = min(self._servers, key=lambda server: (server.failure is not None, len(server.requests)))
            if not server.failure:
                return server
            await self._pause(server, started)

    def _check_labels(self, server: Server, labels: set[str]) -> None:
        """Check that a completion's weights were the engine's all along."""
        others = {label for label in labels if not _same_weights(label, self.label)}
        if others & {UNNAMED, LOADING}:
            raise UnreachableError("it was started again")
        if others:
            raise EngineError(
                f"{server.url} was given the weights {excerpt(', '.join(sorted(others)))} by somebody else while it "
                f"sampled with {self.label}; give each run servers of its own"
            )


def _same_weights(one: str, other: str) -> bool:
    """Whether two labels have the same digest; the number before it is for people."""
    return one.rpartition("-")[2] == other.rpartition("-")[2]
