"""Samples and grades rollouts, in groups of one prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transformers import PreTrainedTokenizerBase

from swerve.behaviours.response_format import asked_format, has_format
from swerve.behaviours.response_rows import behaviour_figures
from swerve.grading.text import given_beginning
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


def response_metrics(groups: Sequence[RolloutGroup]) -> dict[str, float | None]:
    r"""Return what the responses look like: `behaviour_figures`, and `format_rate`.

    `format_rate` is over the responses whose prompt asks for `<answer>` or `\boxed{}`; None where none does.
    """
    answers = [(group.prompt.problem, rollout.text) for group in groups for rollout in group.rollouts]
    begun = [given_beginning(problem, text) for problem, text in answers]
    questions = [problem.question for problem, _ in answers]
    metrics = behaviour_figures([text for _, text in answers], questions, prefixes=begun)
    has_asked = []
    for (problem, text), beginning in zip(answers, begun, strict=True):
        asked = asked_format(problem)
        if asked is not None:
            has_asked.append(has_format(beginning + text, asked))
    return {**metrics, "format_rate": sum(has_asked) / len(has_asked) if has_asked else None}
