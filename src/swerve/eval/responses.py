"""Graded completions of prompts at one temperature, for the evaluation of a run and for `swerve sample`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from swerve.artifacts.responses import Response
from swerve.batch import TokenBatch, checked_head, completion_hidden, token_batches
from swerve.functional import entropy, rows_per_chunk
from swerve.models.model_folder import LoadedModel, stop_ids
from swerve.rewards import grade_all
from swerve.rollout.engine import Engine, SamplingParams
from swerve.rollout.groups import rollout_groups
from swerve.types import Prompt

_TOKENS_PER_BATCH = 65536


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


def response_batches(loaded: LoadedModel, responses: Sequence[Response]) -> list[TokenBatch]:
    """Return batches of the tokens of responses, each row numbered by its place among them."""
    sequences = [(response.prompt_ids, response.completion_ids) for response in responses]
    return list(
        token_batches(sequences, pad_id=int(loaded.tokenizer.pad_token_id or 0), tokens_per_batch=_TOKENS_PER_BATCH)
    )


def mean_entropies(loaded: LoadedModel, batches: Iterable[TokenBatch]) -> dict[int, float]:
    """Return by row of the batches the mean entropy (nats, at temperature 1) over the completion's positions."""
    means: dict[int, float] = {}
    head = checked_head(loaded.model)
    rows = rows_per_chunk(head.vocabulary_size)
    with torch.inference_mode():
        for batch in batches:
            hidden = completion_hidden(loaded.model, batch.to(loaded.model.device), head)
            per_token = torch.cat([entropy(head(chunk)) for chunk in hidden.split(rows)]).cpu()
            for row, values in zip(batch.rows, per_token.split(batch.mask.sum(1).tolist()), strict=True):
                means[row] = float(values.mean())
    return means
