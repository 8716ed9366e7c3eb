"""What every rollout engine offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from swerve.types import Completion

__all__ = ["Engine", "SamplingParams"]


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

    def __post_init__(self) -> None:
        if self.num_samples < 1 or self.max_new_tokens < 1 or not self.temperature >= 0:
            raise ValueError(
                "num_samples and max_new_tokens must be at least 1 and temperature at least 0; got "
                f"{self.num_samples}, {self.max_new_tokens} and {self.temperature}"
            )


@runtime_checkable
class Engine(Protocol):
    """Samples completions of token-id prompts."""

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
            seeds: one a prompt.
            budgets: longest completion of each prompt, at most `params.max_new_tokens`; that by default.
            on_finished: called with the number of completions finished since the last call.
        """
        ...
