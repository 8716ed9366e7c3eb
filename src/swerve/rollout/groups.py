"""Samples and grades rollouts, in groups of one prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.comparison import MEASURES
from swerve.artifacts.responses import Response
from swerve.behaviours.measures import OF_PROSE, problem_values
from swerve.rollout.engine import Engine, SamplingParams
from swerve.types import Problem, Prompt, Reward, Rollout, RolloutGroup

BatchGrader = Callable[[Sequence[tuple[Problem, str]]], Sequence[Reward]]
"""Problems, each with a completion's text -> their rewards, in order."""


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
    grade: BatchGrader,
    on_finished: Callable[[int], None] | None = None,
) -> list[RolloutGroup]:
    """Sample and grade `params.num_samples` completions of each prompt; one seed per prompt, graded in one call."""
    sampled = engine.generate([prompt.token_ids for prompt in prompts], params, seeds=seeds, on_finished=on_finished)
    texts, answers = [], []
    for prompt, completions in zip(prompts, sampled, strict=True):
        for completion in completions:
            texts.append(completion_text(tokenizer, completion.token_ids))
            answers.append((prompt.problem, texts[-1]))
    graded = iter(zip(texts, grade(answers), strict=True))
    groups = []
    for prompt, completions in zip(prompts, sampled, strict=True):
        rollouts = [
            Rollout(completion=completion, text=text, reward=reward, version=engine.version)
            for completion, (text, reward) in zip(completions, graded, strict=False)
        ]
        groups.append(RolloutGroup(prompt=prompt, rollouts=tuple(rollouts)))
    return groups


_METRICS = {
    "format_rate": "in_format",
    "dummy_thinking_share": "empty_thinking",
    "repeated_4gram_share": "repeated_4grams",
    "reflections_per_1000_words": "reflections",
}
"""Metric of a training step -> the measure of all its responses together."""


def response_metrics(groups: Sequence[RolloutGroup]) -> dict[str, float | None]:
    """Return what the responses look like; None is not measured."""
    responses = [
        Response(problem=group.prompt.problem, text=rollout.text) for group in groups for rollout in group.rollouts
    ]
    values = problem_values({"all": responses}, leave_out=MEASURES.keys() - OF_PROSE)
    return {metric: values.get(name, {}).get("all") for metric, name in _METRICS.items()}
