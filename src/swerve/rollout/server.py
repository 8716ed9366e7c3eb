"""A server that samples and takes weights: how it is asked, what it answers, and what families of them differ in."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from swerve.errors import EngineError
from swerve.rollout.engine import SamplingParams, served_completion
from swerve.rollout.server_client import (
    CONNECT_SECONDS,
    LateError,
    RefusedError,
    UnreachableError,
    answer_bytes,
    ask,
    excerpt,
    listed_models,
)
from swerve.types import Completion

UNNAMED = "default"
"""What a server that was just started calls its weights."""
LOADING = "loading"
"""What they are called by swerve until new ones are whole."""
FAILED = "failed"
"""And after new ones could not be loaded: parts of them may have been, and the next load does not mend all of that."""
NEUTRAL: Mapping[str, Any] = {
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "skip_special_tokens": False,
}
"""Of a request for samples: what the server or the model's folder could have other defaults for."""
Sampled = tuple[list[int], list[float], str]
"""Token ids of a completion, their log-probabilities, and the reason of its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """What a server is."""

    models: Mapping[str, int | None]
    """Names that it serves, with the tokens that prompt and completion may have."""
    dtype: str | None
    packs_head: bool = False
    """Whether its workers have `vllm_protocol.WORKER_EXTENSION`."""
    transfer_backend: str | None = None
    """What it takes weights from a trainer with."""


@dataclass(frozen=True, slots=True)
class Request:
    """All samples of a prompt."""

    prompt: Sequence[int]
    params: SamplingParams
    seed: int
    budget: int


class Server(ABC):
    """One server, asked in the thread of the network; a family of servers is a subclass.

    What fails to answer is an `UnreachableError`, what refuses a `RefusedError`.
    """

    route: ClassVar[str]
    """Samples: token ids in, token ids and log-probabilities out."""
    without_route: ClassVar[str]
    """What to do where it does not know that route."""
    has_label: ClassVar[str]
    """Where it says what it calls its weights."""
    label_options: ClassVar[Mapping[str, bool]] = {}
    """Given beside a new label."""
    cut_off: ClassVar[str]
    """What to ask where a completion ends too early."""
    min_temperature: ClassVar[float]
    """Temperatures between 0 and this are taken for others."""

    def __init__(self, url: str, *, timeout: float, num_ids: int, logit_bias: Mapping[int, float]) -> None:
        """Keep what is needed to ask.

        Args:
            url: of the server.
            timeout: seconds that an answer may take.
            num_ids: of the model; a completion has ids below it.
            logit_bias: of each request for samples.
        """
        self.url, self._timeout, self._num_ids, self._logit_bias = url, timeout, num_ids, logit_bias
        self.info: ServerInfo | None = None
        """None: not known yet, or another process may answer."""
        self.name = ""
        """What it calls the model."""
        self.was_there = False
        self.requests: set[asyncio.Task[Any]] = set()
        """For completions, that it works at."""
        self.failure: UnreachableError | None = None
        """Why it is not asked for completions."""

    # What families differ in.

    request_body: ClassVar[Callable[..., dict[str, Any]]]
    """Called with the model's name, a prompt and its parameters, `seed`, `max_tokens` and `logit_bias`: the body of a
    request for `num_asked` samples, which `stop_ids` alone end."""

    @staticmethod
    def num_asked(params: SamplingParams) -> int:
        """Return how many samples of a prompt to ask for."""
        return params.num_samples

    @staticmethod
    @abstractmethod
    def read(answer: Any, num_samples: int) -> tuple[list[Sampled], set[str]]:
        """Return each completion of an answer, in order, and the labels that it gives the weights which wrote them.

        Raises:
            ValueError: something is missing; what.
        """

    @abstractmethod
    async def look(self) -> ServerInfo:
        """Ask what it is.

        Raises:
            EngineError: it is no server of the family, or was started without what is needed.
        """

    @abstractmethod
    async def load_folder(self, folder: Path) -> None:
        """Let it load the weights in a folder that it sees by the same path."""

    @abstractmethod
    async def empty_prefix_cache(self) -> bool:
        """Let it forget the keys and values of prompts; whether it could, which requests that still run prevent."""

    @abstractmethod
    async def tokens_done(self) -> float | None:
        """Return a number that is another one each time, while it reads and writes tokens; None: it does not count."""

    @abstractmethod
    async def told(self, name: str) -> Any:
        """Return what it says of itself under a name."""

    # What is the same for all.

    async def weights_label(self) -> str:
        """Return what it calls its weights."""
        answer = await self.told(self.has_label)
        return str(answer.get("weight_version")) if isinstance(answer, Mapping) else ""

    async def set_weights_label(self, label: str) -> None:
        """Let it call its weights so from now on."""
        body = {"new_version": label, **self.label_options}
        await self.ask("POST", "/update_weight_version", body, within=CONNECT_SECONDS)

    async def ask(
        self, method: str, path: str, body: Any = None, *, within: float | None = None, **options: Any
    ) -> Any:
        """Return its answer, with the options of `server_client.ask`.

        Raises:
            UnreachableError: it does not answer, or not `within` so many seconds, where it is not to take long.
            LateError: it takes longer than its `timeout`.
        """
        try:
            return await ask(self.url, method, path, body, **{"timeout": within or self._timeout, **options})
        except LateError:
            if within is None:
                raise
            raise UnreachableError(f"{path} was not answered within {within:g} s") from None

    async def models_served(self) -> dict[str, int | None]:
        """Return the names that it has for its models, each with the tokens that prompt and completion may have."""
        listed = listed_models(await self.ask("GET", "/v1/models", within=CONNECT_SECONDS))
        return {name: entry.get("max_model_len") for name, entry in listed.items()}

    def check_lengths(self, prompts: Sequence[Sequence[int]], budgets: Sequence[int]) -> None:
        """Check what it would cut off silently.

        Raises:
            EngineError: a prompt and its completion do not fit.
        """
        limit = self.info.models[self.name] if self.info else None
        for index, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True)):
            if limit is not None and len(prompt) + budget > limit:
                raise EngineError(
                    f"{self.url} takes {limit} tokens, and prompt {index} has {len(prompt)} and may grow by {budget}; "
                    "start it with a higher --max-model-len (SGLang: --context-length), or lower max_new_tokens"
                )

    async def completions(self, request: Request, **time: float) -> tuple[tuple[Completion, ...], set[str]]:
        """Return the completions of one request, and the labels that the answer names.

        Args:
            request: what is sampled.
            time: `timeout` or `within`; see `ask`.

        Raises:
            UnreachableError: the server died, or aborted the request.
            EngineError: it cannot sample, or the answer is wrong.
        """
        params, num_asked = request.params, self.num_asked(request.params)
        body = self.request_body(
            self.name,
            request.prompt,
            params,
            seed=request.seed,
            max_tokens=request.budget,
            logit_bias=self._logit_bias,
        )
        max_bytes = answer_bytes(num_asked * request.budget)
        try:
            answer = await self.ask("POST", self.route, body, max_bytes=max_bytes, **time)
        except RefusedError as error:
            raise await self._refusal(error) from None

        # What came, one completion for each sample.
        try:
            sampled, labels = self.read(answer, num_asked)
        except ValueError as error:
            raise EngineError(f"{self.url}: the answer to POST {self.route} has {error}; see `swerve serve`") from None
        completions = [self._checked(request, *completion) for completion in sampled]
        return tuple(completions * (params.num_samples // num_asked)), labels

    async def _refusal(self, error: RefusedError) -> Exception:
        """Return what a refused request means: the server is dying, or it cannot do what is asked."""
        if error.status == 404:
            return EngineError(f"{error}; {self.without_route}")
        if error.status < 500:
            return error
        try:
            await self.ask("GET", "/health", within=CONNECT_SECONDS)
        except (UnreachableError, EngineError):
            return UnreachableError(f"{str(error).removeprefix(f'{self.url}: ')}, and it is not healthy")
        return EngineError(f"{error}, although /health says 200: it cannot sample; start the server again")

    def _checked(self, request: Request, ids: list[int], logprobs: list[float], reason: str) -> Completion:
        """Return a completion, if it is one of the request."""
        if reason not in ("stop", "length"):
            raise UnreachableError(f"it ended a completion ({excerpt(reason)})")
        params, budget = request.params, request.budget
        try:
            return served_completion(
                self.url, ids, logprobs, num_ids=self._num_ids, stop_ids=params.stop_ids, budget=budget
            )
        except EngineError as error:
            raise EngineError(f"{error}; {self.cut_off}") from None
