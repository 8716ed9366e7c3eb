"""An engine whose model any OpenAI-compatible server has that takes and returns token ids, as vLLM does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

from transformers import PreTrainedModel

from swerve.config.engines import CheckConfig, OpenAIEngineConfig
from swerve.errors import EngineError
from swerve.models.head import model_head
from swerve.rollout import vllm_protocol
from swerve.rollout.engine import Engine, NamedTensors, SamplingParams, check_request
from swerve.rollout.openai_client import OpenAIClient, ServedText, TextRequest
from swerve.rollout.sync import OWN_PARAMS, check_own_weights, own_prompt
from swerve.types import Completion

_LOG = logging.getLogger(__name__)
_ROUTE = "/completions"
_LOOKS_EQUAL = 1e-3
"""Nats: the largest difference of log-probs that is not mentioned."""


class OpenAIEngine(Engine):
    """Samples a model's completions with a server that has its weights already, and that is checked for it.

    It serves evaluation and the causal tests. Log-probs are those that the server gives: unless it was started with
    `--logprobs-mode processed_logprobs` they are those at temperature 1.
    """

    shares_weights = False
    concurrent = True

    def __init__(self, model: PreTrainedModel, *, pad_id: int, max_rows: int, **options: Any) -> None:
        """Keep what is needed; the server is not asked before the first `generate`.

        Args:
            model: whose weights the server is to have.
            pad_id: not needed.
            max_rows: not needed.
            options: see `OpenAIEngineConfig`.

        Raises:
            ConfigError: see `OpenAIClient`.
        """
        self._model, self._config = model, OpenAIEngineConfig.model_validate(options)
        self._client = OpenAIClient(self._config)
        self._num_ids = model_head(model).vocabulary_size
        self._name: str | None = None

    def load(self, weights: NamedTensors, *, version: int) -> None:
        """Refuse new weights.

        Raises:
            EngineError: always.
        """
        raise EngineError(
            "rollout.engine.kind=openai cannot give a server new weights; train with rollout.engine.kind=server (vLLM) "
            "or torch"
        )

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
            EngineError: the server does not answer, returns no ids, or has other weights.
        """
        budgets = check_request(self._model, prompts, params, seeds, budgets)
        if not prompts:
            return []
        if self._name is None:
            self._name = self._served_model()
        requests = [
            self._request(self._name, prompt, params, seed, budget, number)
            for number, (prompt, seed, budget) in enumerate(zip(prompts, seeds, budgets, strict=True))
        ]
        sampled: dict[int, tuple[Completion, ...]] = {}
        with closing(self._answers(requests, params.stop_ids)) as answers:
            for request, completions in answers:
                # Where the most likely tokens are taken, one completion stands for all.
                sampled[request.depends] = tuple(completions * (params.num_samples // request.num))
                if on_finished is not None:
                    on_finished(params.num_samples)
        return [sampled[number] for number in range(len(requests))]

    def _served_model(self) -> str:
        """Return the name of the model that has the weights at hand: the one asked for, or the nearest that is listed.

        Raises:
            EngineError: none has.
        """
        named = self._config.served_model
        names = [named] if named is not None else list(self._client.models())
        differences: dict[str, float] = {}
        failure = EngineError(f"{self._config.url} lists no model; name it with rollout.engine.served_model")
        prompt, bound = own_prompt(self._model), CheckConfig().bound("bfloat16")  # the server's type is not known
        for name in names:
            request = self._request(name, prompt, OWN_PARAMS, 0, OWN_PARAMS.max_new_tokens, 0)
            try:
                ((_, completions),) = self._answers([request], ())
                who = f"{self._config.url} ({name})"
                differences[name] = check_own_weights(self._model, completions, who, bound)
            except EngineError as error:
                failure = error
        if not differences:
            raise failure
        name = min(differences, key=differences.__getitem__)
        if differences[name] > _LOOKS_EQUAL:
            _LOG.warning(
                f"{self._config.url}: log-probs of {name} differ from the model's own by up to {differences[name]:.2g} "
                "nats: rounding of another data type, or other weights that are near"
            )
        return name

    def _request(
        self, name: str, prompt: Sequence[int], params: SamplingParams, seed: int, budget: int, number: int
    ) -> TextRequest:
        body = vllm_protocol.request_body(name, prompt, params, seed=seed, max_tokens=budget)
        sampling: Mapping[str, Any] = body["sampling_params"]
        fields = {"model": name, "prompt": list(prompt), **sampling, "return_token_ids": True, **self._config.body}
        return TextRequest(
            place=f"prompt {number}",
            path=_ROUTE,
            body={key: value for key, value in fields.items() if value is not None and key != "detokenize"},
            num=vllm_protocol.asked_samples(params),
            depends=number,
        )

    def _answers(
        self, requests: Sequence[TextRequest], stop_ids: Sequence[int]
    ) -> Generator[tuple[TextRequest, list[Completion]]]:
        """Yield each request with its completions."""
        with closing(self._client.each(requests)) as answers:
            for request, texts in answers:
                yield request, [self._completion(text, request.body["max_tokens"], stop_ids) for text in texts]

    def _completion(self, text: ServedText, budget: int, stop_ids: Sequence[int]) -> Completion:
        """Return a completion, if it is one of the request."""
        url, ids = self._config.url, text.token_ids
        if not ids or not text.logprobs:
            raise EngineError(
                f"{url} returns texts without token ids and their log-probs, which evaluating checkpoints and causal "
                "tests need; serve the model with vLLM, or take another rollout.engine (swerve sample and eval --model "
                "need texts alone)"
            )
        if max(ids) >= self._num_ids:
            raise EngineError(f"{url} sampled the token id {max(ids)}; the model has ids below {self._num_ids}")
        ends = ids[-1] in stop_ids
        if any(token in stop_ids for token in ids[:-1]) or not (ends or len(ids) == budget):
            raise EngineError(
                f"{url}: a completion of {len(ids)} tokens was to end with the first of the stop tokens "
                f"{list(stop_ids)}, or at {budget} tokens; does its --max-model-len leave that room?"
            )
        return Completion(token_ids=ids, logprobs=text.logprobs, finish_reason="stop" if ends else "length")
