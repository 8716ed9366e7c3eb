"""Prompts -> graded rollout groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transformers import PreTrainedTokenizerBase

from swerve.rollout.engine import Engine, SamplingParams
from swerve.types import Completion, Problem, Prompt, Reward, Rollout, RolloutGroup

__all__ = ["completion_text", "rollout_groups"]


def completion_text(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> str:
    """Return the text of a completion, special tokens left out."""
    return str(tokenizer.decode(list(token_ids), skip_special_tokens=True))


def rollout_groups(
    engine: Engine,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Prompt],
    params: SamplingParams,
    *,
    seeds: Sequence[int],
    grade: Callable[[Problem, str], Reward],
    version: int,
    on_finished: Callable[[int], None] | None = None,
) -> list[RolloutGroup]:
    """Sample and grade `params.num_samples` completions of each prompt; one seed a prompt."""

    def graded(prompt: Prompt, completion: Completion) -> Rollout:
        text = completion_text(tokenizer, completion.token_ids)
        return Rollout(completion=completion, text=text, reward=grade(prompt.problem, text), version=version)

    sampled = engine.generate([prompt.token_ids for prompt in prompts], params, seeds=seeds, on_finished=on_finished)
    return [
        RolloutGroup(prompt=prompt, rollouts=tuple(graded(prompt, completion) for completion in completions))
        for prompt, completions in zip(prompts, sampled, strict=True)
    ]
