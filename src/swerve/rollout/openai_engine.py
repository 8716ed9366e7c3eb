"""An engine whose model any OpenAI-compatible server has that takes and returns token ids, as vLLM does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from transformers import PreTrainedModel

from swerve.config.engines import CheckConfig, OpenAIEngineConfig
from swerve.errors import EngineError
from swerve.models.head import model_head
from swerve.rollout import vllm_protocol
from swerve.rollout.engine import Engine, NamedTensors, SamplingParams, check_request, served_completion
from swerve.rollout.openai_client import OpenAIClient, TextRequest
from swerve.rollout.sync import OWN_PARAMS, check_own_weights, own_prompt
from swerve.seeds import derive_seed
from swerve.types import Completion

_LOG = logging.getLogger(__name__)
_LOOKS_EQUAL = 1e-3
"""Nats: the largest difference of log-probs that is not mentioned."""


class OpenAIEngine(Engine):
    """Samples a model's completions with a server that has its weights already, and that is checked for it.

    It serves the causal tests and evaluations of one checkpoint. Log-probs are those that the server gives: unless it
    was started with `--logprobs-mode processed_logprobs` they are those at temperature 1.
    """

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
        self._name = ""

    def load(self, weights: NamedTensors, *, version: int) -> None:
        """Refuse new weights.

        Raises:
            EngineError: always.
        """
        raise EngineError(
            "rollout.engine.kind=openai cannot give a server new weights; train with kind=server or torch"
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
        if prompts and not self._name:
            self._check_model()
        return self._sampled(prompts, params, seeds, budgets, on_finished or (lambda _: None))

    def _check_model(self) -> None:
        """Check that the model which is named, or the first that the server lists, has the weights at hand.

        Raises:
            EngineError: it has not, or none is listed.
        """
        self._name = self._config.served_model or next(iter(self._client.models()), "model")
        who, budget = f"{self._config.url} ({self._name})", OWN_PARAMS.max_new_tokens
        (completions,) = self._sampled([own_prompt(self._model)], OWN_PARAMS, [0], [budget], lambda _: None)
        bound = CheckConfig().bound("bfloat16")  # the server's type is not known
        difference = check_own_weights(self._model, completions, who, bound)
        if difference > _LOOKS_EQUAL:
            _LOG.warning(
                f"{who}: log-probs differ from the model's own by up to {difference:.2g} nats: rounding of another "
                "data type, or other weights that are near"
            )

    def _sampled(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        seeds: Sequence[int],
        budgets: Sequence[int],
        on_finished: Callable[[int], None],
    ) -> list[tuple[Completion, ...]]:
        """Return the completions of each prompt; where the most likely tokens are taken, one stands for all."""
        num, num_ids = params.num_samples if params.temperature else 1, model_head(self._model).vocabulary_size
        requests = [
            self._request((index, sample), prompt, params, derive_seed(seed, "openai", sample), budget)
            for index, (prompt, seed, budget) in enumerate(zip(prompts, seeds, budgets, strict=True))
            for sample in range(num)
        ]
        sampled: dict[tuple[int, int], Completion] = {}
        with closing(self._client.each(requests)) as answers:
            for request, text in answers:
                if not text.logprobs:
                    raise EngineError(
                        f"{self._config.url} returns texts without token ids and their log-probs, which causal tests "
                        "and checkpoints of a run need; serve the model with vLLM, or take another rollout.engine "
                        "(swerve sample and eval --model need texts alone)"
                    )
                sampled[request.depends] = served_completion(
                    self._config.url,
                    text.token_ids,
                    text.logprobs,
                    num_ids=num_ids,
                    stop_ids=params.stop_ids,
                    budget=request.max_new,
                )
                on_finished(params.num_samples // num)
        copies = params.num_samples // num
        return [tuple(sampled[index, sample] for sample in range(num)) * copies for index in range(len(prompts))]

    def _request(
        self, place: tuple[int, int], prompt: Sequence[int], params: SamplingParams, seed: int, budget: int
    ) -> TextRequest:
        body = vllm_protocol.request_body(self._name, prompt, params, seed=seed, max_tokens=budget)
        sampling = {**body["sampling_params"], "n": 1, "detokenize": None, **self._config.body}
        fields = {"model": self._name, "prompt": list(prompt), "return_token_ids": True, **sampling}
        fields = {name: value for name, value in fields.items() if value is not None}
        return TextRequest(place=f"prompt {place[0]}", path="/completions", body=fields, max_new=budget, depends=place)
