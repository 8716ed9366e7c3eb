"""Swaps: does the checkpoint's token at a position make a continuation succeed?

At a position of a rollout the same prefix gets the token that the rollout has, the one that the checkpoint finds most
likely, or a third one; from there a policy continues, several times. The difference in success is the effect of that
token alone. Matched and random positions are the controls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.probe_causes import Decision
from swerve.config.probe import CausalConfig
from swerve.probe.causal.continuations import ContinuationSampler
from swerve.probe.causal.interventions import Intervention
from swerve.statistics import difference_interval


def look_sizes(settings: CausalConfig) -> list[int]:
    """Return the number of continuations of a prefix at each look, earlier looks included.

    >>> look_sizes(CausalConfig(num_continuations=16, max_continuations=100))
    [16, 32, 64, 100]
    """
    most = settings.max_continuations or settings.num_continuations
    sizes = [settings.num_continuations]
    while sizes[-1] < most:
        sizes.append(min(2 * sizes[-1], most))
    return sizes


def decide(item: Intervention, *, settings: CausalConfig, confidence: float) -> Decision:
    """Return whether the interval of an effect, checkpoint - reference, is inside or outside of [-delta, delta].

    The interval is Newcombe's for two independent fractions, each look's at level 1 - (1 - confidence) / number of
    planned looks (Bonferroni), so that with probability `confidence` or more every look's interval holds the effect and
    the verdict at which a position stops is right. Arms with the same token have an effect of exactly 0.
    """
    if item.same_token:
        return "same_token"
    counts = [
        count
        for arm in (item.outcomes["checkpoint"], item.outcomes["reference"])
        for count in (arm.num_successes, arm.num_continuations)
    ]
    effect = difference_interval(*counts, confidence=1 - (1 - confidence) / len(look_sizes(settings)))
    assert effect is not None, "both arms have continuations"
    if -settings.delta <= effect.low and effect.high <= settings.delta:
        return "inside"
    return "outside" if effect.low > settings.delta or effect.high < -settings.delta else "undecided"


def count_continued(interventions: Sequence[Intervention], stop_ids: Sequence[int], max_new_tokens: int) -> int:
    """Return how many distinct prefixes the first look of `run_interventions` continues, each policy's counted."""
    return len(
        {
            (item.policy, item.forced(arm).key)
            for item in interventions
            for arm, token in item.tokens.items()
            if token not in stop_ids and item.position + 1 < max_new_tokens
        }
    )


def run_interventions(
    interventions: Sequence[Intervention],
    sampler: ContinuationSampler,
    *,
    settings: CausalConfig,
    confidence: float = 0.95,
) -> list[Intervention]:
    """Continue every arm of every intervention and grade the whole completions; return them with their outcomes.

    With `max_continuations` set, positions are looked at after `look_sizes(settings)` continuations; one whose effect
    `decide` decides gets no more. All open positions of a look are one call of the engine.

    The arms of a position share their random numbers, and equal prefixes are continued once, so a checkpoint that
    chooses the rollout's own token has an effect of exactly 0. Where the forced token ends the completion, or uses up
    `max_new_tokens`, there is nothing to continue: the completion is graded as it stands.

    Raises:
        ValueError: interventions of several policies; an engine is one policy.
    """
    if len({item.policy for item in interventions}) > 1:
        raise ValueError("interventions of several policies cannot share an engine; run each policy's apart")
    done = list(interventions)
    still_open = list(range(len(done)))
    before = 0
    for look, size in enumerate(look_sizes(settings)):
        prefixes = [done[index].forced(arm) for index in still_open for arm in done[index].tokens]
        if look:
            sampler.on_planned(sampler.num_continued(prefixes) * (size - before))
        outcomes = iter(sampler.sample(prefixes, size - before, look=look))
        for index in still_open:
            done[index] = done[index].continued({arm: next(outcomes) for arm in done[index].tokens})
        # Whether a position is clear matters only where there is another look.
        before = size
        if size < look_sizes(settings)[-1]:
            still_open = [
                index
                for index in still_open
                if decide(done[index], settings=settings, confidence=confidence) == "undecided"
            ]
    return done


def intervention_rows(
    interventions: Sequence[Intervention], tokenizer: PreTrainedTokenizerBase
) -> list[dict[str, Any]]:
    """Return the rows of `interventions.parquet`, one an arm."""
    rows = []
    for item in interventions:
        for arm, outcome in item.outcomes.items():
            # The first look's continuations are those whose number was fixed beforehand.
            first = outcome.first or outcome
            rows.append(
                {
                    "sequence_id": item.sequence.sequence_id,
                    "position": item.position,
                    "spike_sequence_id": item.spike.sequence_id,
                    "selection": item.selection,
                    "arm": arm,
                    "policy": item.policy,
                    "token_id": item.tokens[arm],
                    "token": str(tokenizer.decode([item.tokens[arm]])),
                    "num_continuations": outcome.num_continuations,
                    "num_successes": outcome.num_successes,
                    "num_failures": outcome.num_failures,
                    "first_continuations": first.num_continuations,
                    "first_successes": first.num_successes,
                    "first_even_successes": first.even_successes,
                }
            )
    return rows
