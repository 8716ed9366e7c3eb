"""What every rollout engine offers, and how the one a recipe names is made."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from swerve.config.engines import EngineConfig
from swerve.errors import EngineError
from swerve.positions import limit_said, max_sampled
from swerve.recipes.custom import custom_class
from swerve.types import Completion

NamedTensors = Iterable[tuple[str, Tensor]]
"""Whole weights by their Hugging Face names; tied ones once: `lm_head.weight` may be missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How completions are sampled."""

    num_samples: int
    """Completions of each prompt."""
    max_new_tokens: int
    temperature: float
    """Divides the logits; 0 takes the most likely token."""
    stop_ids: tuple[int, ...]
    """A completion ends with the first of these; it is kept as the last token."""
    with_entropy: bool = False
    """Whether completions come with their entropy, from engines that know it."""

    def __post_init__(self) -> None:
        if self.num_samples < 1 or self.max_new_tokens < 1 or not self.temperature >= 0:
            raise ValueError(
                "num_samples and max_new_tokens must be at least 1 and temperature at least 0; got "
                f"{self.num_samples}, {self.max_new_tokens} and {self.temperature}"
            )


@runtime_checkable
class Engine(Protocol):
    """Samples completions of token-id prompts.

    A new engine inherits from this class and defines `generate`, and of the other methods those that do something.
    """

    version: int = 0
    """Of the weights it samples with: the number of updates behind them in training, 0 elsewhere."""
    shares_weights: bool = False
    """Whether it samples with the trained model itself, so that it always has the policy's weights."""
    concurrent: bool = False
    """Whether it may sample in another thread while the policy is updated."""
    joins: bool = False
    """Whether the weights that one process's engine loads are there for those of all, which then only `join`."""
    label: str = ""
    """Of the weights that it samples with, where engines `join`."""

    @abstractmethod
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        seeds: Sequence[int],
        budgets: Sequence[int] | None = None,
        on_finished: Callable[[int], None] | None = None,
    ) -> list[tuple[Completion, ...]]:
        """Return `num_samples` completions for each prompt, in order.

        The result for a prompt depends on its seed, the parameters and the weights, not on what else is in the call.

        Args:
            prompts: token ids, at least one each.
            params: how to sample.
            seeds: one per prompt.
            budgets: longest completion of each prompt, at most `params.max_new_tokens`; that by default.
            on_finished: called with the number of completions finished since the last call.
        """
        ...

    def load(self, weights: NamedTensors, *, version: int) -> None:
        """Sample with these weights from now on; may be called while the engine sleeps.

        Args:
            weights: an engine that samples with the trained model itself need not read them.
            version: what `version` is from now on.
        """
        self.version = version

    def join(self, label: str, *, version: int) -> None:
        """Sample from now on with the weights of this label, which another process's engine has loaded.

        Args:
            label: see there.
            version: what `version` is from now on.
        """
        self.label, self.version = label, version

    def sleep(self) -> None:
        """Give up memory that only sampling needs: the policy is about to be updated."""
        return  # without it the body counts as abstract

    def wake(self) -> None:
        """Make ready to sample; nothing happens to an engine that is awake."""
        return

    def close(self) -> None:
        """Let go of processes, connections and memory; no other method is called afterwards."""
        return


def make_engine(
    config: EngineConfig, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, max_rows: int
) -> Engine:
    """Return the engine of a configuration, awake, with the weights of `model`.

    It is made as `engine_class(model, pad_id=..., max_rows=..., **options)`. Evaluation and the probe never call
    `load`, so an engine with weights of its own copies them here.

    Args:
        config: names the class and has its options.
        model: what is sampled from.
        tokenizer: the model's.
        max_rows: completions decoded side by side at most.

    Raises:
        ConfigError: see `engine_class`.
    """
    pad_id = int(tokenizer.pad_token_id or 0)
    return engine_class(config)(model, pad_id=pad_id, max_rows=max_rows, **config.keywords)


def engine_class(config: EngineConfig) -> Callable[..., Engine]:
    """Return the class of an engine.

    Raises:
        ConfigError: a class of the user's own cannot be loaded, is no `Engine`, or does not take the options.
    """
    given = ("pad_id", "max_rows")
    kind: Callable[..., Engine] = custom_class(config.path, Engine, ("model",), keywords=given, options=config.keywords)
    return kind


def check_request(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    seeds: Sequence[int],
    budgets: Sequence[int] | None = None,
) -> Sequence[int]:
    """Check that the model can sample what is asked for; return the longest completion of each prompt.

    Raises:
        ValueError: an empty prompt, or a wrong number of seeds or budgets.
        EngineError: a prompt has an id that the model has no embedding for, or may grow beyond `max_sampled`.
    """
    budgets = [params.max_new_tokens] * len(prompts) if budgets is None else budgets
    if not len(prompts) == len(seeds) == len(budgets):
        raise ValueError(f"{len(prompts)} prompts need as many seeds and budgets, got {len(seeds)}, {len(budgets)}")
    limits = {length: max_sampled(model.config, length) for length in set(map(len, prompts))}
    num_ids = cast(Any, model).get_input_embeddings().num_embeddings
    # Each prompt has tokens, room to grow within the model's positions, and ids that it knows.
    for index, (prompt, budget) in enumerate(zip(prompts, budgets, strict=True)):
        if not len(prompt):
            raise ValueError(f"prompt {index} is empty; a model needs at least one token")
        if not 1 <= budget <= params.max_new_tokens:
            raise ValueError(f"budget {budget} of prompt {index} is not within 1..{params.max_new_tokens}")
        limit = limits[len(prompt)]
        if limit is not None and len(prompt) + budget > limit:
            raise EngineError(
                f"prompt {index} has {len(prompt)} tokens and may grow by {budget}, together more than "
                f"{limit_said(model.config, len(prompt))}; lower max_new_tokens"
            )
        if not 0 <= min(prompt) <= max(prompt) < num_ids:
            wrong = next(token for token in prompt if not 0 <= token < num_ids)
            raise EngineError(
                f"prompt {index} has the token id {wrong}, and the model has embeddings of the ids 0 to {num_ids - 1}; "
                "take the tokenizer that belongs to it"
            )
    return budgets


def served_completion(
    who: str, ids: Sequence[int], logprobs: Sequence[float], *, num_ids: int, stop_ids: Sequence[int], budget: int
) -> Completion:
    """Return a completion that a server has sampled, if it can be what was asked for.

    Raises:
        EngineError: it has an id that the model lacks, or ends elsewhere than at a stop token or its budget.
    """
    if not 0 <= min(ids) <= max(ids) < num_ids:
        raise EngineError(f"{who} sampled the token id {max(ids)}; the model has ids below {num_ids}")
    ends = ids[-1] in stop_ids
    if any(token in stop_ids for token in ids[:-1]) or not (ends or len(ids) == budget):
        raise EngineError(
            f"{who}: a completion of {len(ids)} tokens was to end with the first of the stop tokens {list(stop_ids)}, "
            f"or at {budget} tokens"
        )
    return Completion(token_ids=tuple(ids), logprobs=tuple(logprobs), finish_reason="stop" if ends else "length")
