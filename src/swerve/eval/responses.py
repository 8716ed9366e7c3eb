"""Graded completions of prompts at one temperature, for the evaluation of a run and for `swerve sample`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swerve.artifacts.responses import Response
from swerve.models.model_folder import LoadedModel, stop_ids
from swerve.rewards import grade_all
from swerve.rollout.engine import Engine, SamplingParams
from swerve.rollout.groups import rollout_groups
from swerve.types import Prompt


def sample_responses(
    loaded: LoadedModel,
    engine: Engine,
    prompts: Sequence[Prompt],
    *,
    seeds: Sequence[int],
    num_samples: int,
    temperature: float,
    max_new_tokens: int,
    on_finished: Callable[[int], None],
) -> list[list[Response]]:
    """Sample and grade completions of each prompt, numbered from 0.

    Args:
        loaded: the model, and its tokenizer.
        engine: samples from it.
        prompts: may be none.
        seeds: one for all completions of a prompt.
        num_samples: completions of each prompt.
        temperature: 0: greedy.
        max_new_tokens: longest completion.
        on_finished: called with the number of completions finished since the last call.
    """
    if not prompts:
        return []  # of a process that has no problem of its own
    params = SamplingParams(
        num_samples=num_samples,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        stop_ids=stop_ids(loaded.model, loaded.tokenizer),
    )
    groups = rollout_groups(
        engine, loaded.tokenizer, prompts, params, seeds=seeds, grade=grade_all, on_finished=on_finished
    )
    return [
        [
            Response.of(group.prompt, rollout, sample=sample, temperature=temperature)
            for sample, rollout in enumerate(group.rollouts)
        ]
        for group in groups
    ]
