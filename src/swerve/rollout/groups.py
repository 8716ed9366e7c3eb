"""Samples and grades rollouts, in groups of one prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from transformers import PreTrainedTokenizerBase

from swerve.behaviours.response_format import ResponseFormat, has_format
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
    flat = [(prompt, completion) for prompt, group in zip(prompts, sampled, strict=True) for completion in group]
    texts = [completion_text(tokenizer, completion.token_ids) for _, completion in flat]
    rewards = grade([(prompt.problem, text) for (prompt, _), text in zip(flat, texts, strict=True)])
    rollouts = iter(
        [
            Rollout(completion=completion, text=text, reward=reward, version=engine.version)
            for (_, completion), text, reward in zip(flat, texts, rewards, strict=True)
        ]
    )
    return [
        RolloutGroup(prompt=prompt, rollouts=tuple(islice(rollouts, len(group))))
        for prompt, group in zip(prompts, sampled, strict=True)
    ]


def response_metrics(groups: Sequence[RolloutGroup]) -> dict[str, float | None]:
    r"""Return what the responses look like: `behaviour_figures`, and `format_rate`.

    `format_rate` is over the responses whose prompt asks for `<answer>` or `\boxed{}`; None where none does.
    """
    return text_metrics([(group.prompt.problem, rollout.text) for group in groups for rollout in group.rollouts])


def text_metrics(found: Sequence[tuple[Problem, str]]) -> dict[str, float | None]:
    """Return `response_metrics` of texts, each with its problem."""
    given = [given_beginning(problem, text) for problem, text in found]
    metrics = behaviour_figures(
        [text for _, text in found],
        [problem.question for problem, _ in found],
        prefixes=given,
    )
    held = [
        has_format(beginning + text, form)
        for (problem, text), beginning in zip(found, given, strict=True)
        if (form := _asked_format(problem)) is not None
    ]
    return {**metrics, "format_rate": sum(held) / len(held) if held else None}


def _asked_format(problem: Problem) -> ResponseFormat | None:
    """Return the format that a prompt asks for, by the marks that stand in it."""
    asked = "\n".join(content for _, content in problem.messages)
    if "<answer>" in asked:
        return "think_answer" if "<think>" in asked else "answer_tag"
    return "boxed" if "\\boxed" in asked else None
