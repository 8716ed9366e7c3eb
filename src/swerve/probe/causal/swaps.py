"""Swaps: does the checkpoint's token at a position make a continuation succeed?

At a position of a rollout the same prefix gets the token that the rollout has, the one that the checkpoint finds most
likely, or a third one; from there a policy continues, several times. The difference in success is the effect of that
token alone. Matched and random positions are the controls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from swerve.config import CausalConfig
from swerve.probe.causal.continuations import ContinuationSampler, Outcome
from swerve.probe.causal.interventions import Arm, Intervention, Place
from swerve.statistics import difference_interval

Verdict = Literal["inside", "outside", "undecided"]


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


def verdict(
    reference: Outcome, checkpoint: Outcome, *, same_token: bool, settings: CausalConfig, confidence: float
) -> Verdict:
    """Return whether the interval of an effect, checkpoint - reference, is inside or outside of [-delta, delta].

    The interval is Newcombe's for two independent fractions, each look's at level 1 - (1 - confidence) / number of
    planned looks (Bonferroni), so that with probability `confidence` or more every look's interval holds the effect and
    the verdict at which a position stops is right. Arms with the same token have an effect of exactly 0.
    """
    if same_token:
        return "inside"
    level = 1 - (1 - confidence) / len(look_sizes(settings))
    effect = difference_interval(
        checkpoint.num_successes,
        checkpoint.num_continuations,
        reference.num_successes,
        reference.num_continuations,
        confidence=level,
    )
    assert effect is not None, "both arms have continuations"
    if -settings.delta <= effect.low and effect.high <= settings.delta:
        return "inside"
    return "outside" if effect.low > settings.delta or effect.high < -settings.delta else "undecided"


def count_continued(interventions: Sequence[Intervention], stop_ids: Sequence[int], max_new_tokens: int) -> int:
    """Return how many distinct prefixes the first look of `run_interventions` continues, each policy's counted."""
    return len(
        {
            (item.policy, item.forced.key)
            for item in interventions
            if item.token_id not in stop_ids and len(item.forced.completion_ids) < max_new_tokens
        }
    )


def run_interventions(
    interventions: Sequence[Intervention],
    sampler: ContinuationSampler,
    *,
    settings: CausalConfig,
    confidence: float = 0.95,
    on_planned: Callable[[int], None] | None = None,
    on_finished: Callable[[int], None] | None = None,
) -> list[Outcome]:
    """Continue every intervention with its policy and grade the whole completions; one outcome each, in order.

    With `max_continuations` set, positions are looked at after `look_sizes(settings)` continuations; one whose effect
    `verdict` decides gets no more. All open positions of a look are one call of the engine.

    The arms of a position share their random numbers, and equal prefixes are continued once, so a checkpoint that
    chooses the rollout's own token has an effect of exactly 0. Where the forced token ends the completion, or uses up
    `max_new_tokens`, there is nothing to continue: the completion is graded as it stands.

    `on_planned` is called with the number of continuations of each look after the first, `on_finished` with the number
    finished since the last call.

    Raises:
        ValueError: interventions of several policies; an engine is one policy.
    """
    if len({item.policy for item in interventions}) > 1:
        raise ValueError("interventions of several policies cannot share an engine; run each policy's apart")
    outcomes: dict[int, Outcome] = {}
    still_open = list(range(len(interventions)))
    before = 0
    for look, size in enumerate(look_sizes(settings)):
        prefixes = [interventions[index].forced for index in still_open]
        if look and on_planned is not None:
            on_planned(sampler.num_continued(prefixes) * (size - before))
        drawn = sampler.sample(prefixes, size - before, look=look, on_finished=on_finished)
        for index, outcome in zip(still_open, drawn, strict=True):
            outcomes[index] = outcomes[index].extended(outcome) if look else outcome
        decided = _decided(interventions, outcomes, settings, confidence)
        still_open = [index for index in still_open if interventions[index].place not in decided]
        before = size
    return [outcomes[index] for index in range(len(interventions))]


def _decided(
    interventions: Sequence[Intervention], outcomes: dict[int, Outcome], settings: CausalConfig, confidence: float
) -> set[Place]:
    """Return the places whose effect is known to be inside or outside of +-delta."""
    arms: dict[Place, dict[Arm, int]] = {}
    for index, item in enumerate(interventions):
        arms.setdefault(item.place, {})[item.arm] = index
    return {
        place
        for place, found in arms.items()
        if "reference" in found
        and "checkpoint" in found
        and verdict(
            outcomes[found["reference"]],
            outcomes[found["checkpoint"]],
            same_token=interventions[found["reference"]].token_id == interventions[found["checkpoint"]].token_id,
            settings=settings,
            confidence=confidence,
        )
        != "undecided"
    }


def intervention_rows(
    interventions: Sequence[Intervention], outcomes: Sequence[Outcome], tokenizer: PreTrainedTokenizerBase
) -> list[dict[str, Any]]:
    """Return the rows of `interventions.parquet`."""
    return [
        {
            "sequence_id": item.sequence.sequence_id,
            "position": item.position,
            "spike_sequence_id": item.spike_sequence_id,
            "selection": item.selection,
            "arm": item.arm,
            "policy": item.policy,
            "token_id": item.token_id,
            "token": str(tokenizer.decode([item.token_id])),
            "num_continuations": outcome.num_continuations,
            "num_successes": outcome.num_successes,
            "num_failures": outcome.num_failures,
            "first_continuations": (outcome.first or outcome).num_continuations,
            "first_successes": (outcome.first or outcome).num_successes,
            "first_even_successes": (outcome.first or outcome).even_successes,
        }
        for item, outcome in zip(interventions, outcomes, strict=True)
    ]
