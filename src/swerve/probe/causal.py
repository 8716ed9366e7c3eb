"""The causal test: does the checkpoint's token at a position make the reference's continuation succeed?

At a position of a rollout the same prefix gets either the token that the reference realised or the one that the
checkpoint finds most likely; from there the reference continues, several times. The difference in success is the
effect of that token alone. Random positions of the same rollouts are the control.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from transformers import PreTrainedTokenizerBase

from swerve.config import CausalConfig
from swerve.probe.population import ProbeSequence
from swerve.rewards import grade
from swerve.rollout import Engine, SamplingParams
from swerve.rollout.groups import completion_text
from swerve.seeds import derive_seed
from swerve.statistics import Estimate, bootstrap_mean
from swerve.types import Problem

__all__ = [
    "Intervention",
    "Outcome",
    "causal_summary",
    "count_continued",
    "intervention_rows",
    "plan_interventions",
    "run_interventions",
]

Selection = Literal["spike", "random"]
Arm = Literal["reference", "checkpoint"]
_SELECTIONS: tuple[Selection, ...] = ("spike", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """One token forced at one position of one rollout."""

    sequence: ProbeSequence
    position: int
    selection: Selection
    arm: Arm
    token_id: int

    @property
    def forced_ids(self) -> tuple[int, ...]:
        """The completion up to and with the forced token."""
        return (*self.sequence.completion_ids[: self.position], self.token_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the continuations of one intervention."""

    num_continuations: int
    num_successes: int
    num_failures: int
    """Continuations the grader could not judge; they count as wrong."""


def plan_interventions(
    sequences: Sequence[ProbeSequence], *, tops: Sequence[int], argmax: Sequence[Sequence[int]], seed: int
) -> list[Intervention]:
    """Return both arms at each rollout's top spike and at one other position, drawn uniformly.

    A rollout of a single token has no other position, so no control.

    Args:
        sequences: the rollouts.
        tops: position of the highest divergence of each.
        argmax: the checkpoint's most likely token at every position of each.
        seed: of the random positions.
    """
    planned: list[Intervention] = []
    for sequence, top, choices in zip(sequences, tops, argmax, strict=True):
        others = [position for position in range(len(sequence.completion_ids)) if position != top]
        rng = np.random.default_rng(derive_seed(seed, "probe", "random_position", sequence.problem.id))
        chosen: list[tuple[Selection, int]] = [("spike", top)]
        if others:
            chosen.append(("random", others[int(rng.integers(len(others)))]))
        for selection, position in chosen:
            arms: dict[Arm, int] = {
                "reference": sequence.completion_ids[position],
                "checkpoint": int(choices[position]),
            }
            planned += [
                Intervention(sequence=sequence, position=position, selection=selection, arm=arm, token_id=token_id)
                for arm, token_id in arms.items()
            ]
    return planned


_Prefix = tuple[int, tuple[int, ...]]


def _prefix(item: Intervention) -> _Prefix:
    return item.sequence.sequence_id, item.forced_ids


def _budgets(interventions: Sequence[Intervention], stop_ids: Sequence[int], max_new_tokens: int) -> dict[_Prefix, int]:
    """Return each distinct prefix that can be continued, with the most tokens it may grow by."""
    return {
        _prefix(item): max_new_tokens - len(item.forced_ids)
        for item in interventions
        if item.token_id not in stop_ids and len(item.forced_ids) < max_new_tokens
    }


def count_continued(interventions: Sequence[Intervention], stop_ids: Sequence[int], max_new_tokens: int) -> int:
    """Return how many distinct prefixes `run_interventions` continues."""
    return len(_budgets(interventions, stop_ids, max_new_tokens))


def run_interventions(
    interventions: Sequence[Intervention],
    engine: Engine,
    tokenizer: PreTrainedTokenizerBase,
    *,
    settings: CausalConfig,
    stop_ids: tuple[int, ...],
    max_new_tokens: int,
    seed: int,
    on_finished: Callable[[int], None] | None = None,
) -> list[Outcome]:
    """Continue every intervention and grade the whole completion's text; one outcome each, in order.

    The two arms of a position share their random numbers, and equal prefixes are continued once, so a checkpoint that
    chooses the reference's own token has an effect of exactly 0. Where the forced token ends the completion, or uses up
    `max_new_tokens`, there is nothing to continue: the completion is graded as it stands.
    """
    known = {item.sequence.sequence_id: item.sequence for item in interventions}
    budgets = _budgets(interventions, stop_ids, max_new_tokens)
    continued: dict[_Prefix, list[tuple[int, ...]]] = {}
    if budgets:
        params = SamplingParams(
            num_samples=settings.num_continuations,
            max_new_tokens=max(budgets.values()),
            temperature=settings.temperature,
            stop_ids=stop_ids,
        )
        generated = engine.generate(
            [(*known[index].prompt_ids, *forced) for index, forced in budgets],
            params,
            seeds=[
                derive_seed(seed, "probe", "continue", known[index].problem.id, len(forced))
                for index, forced in budgets
            ],
            budgets=list(budgets.values()),
            on_finished=on_finished,
        )
        for prefix, completions in zip(budgets, generated, strict=True):
            continued[prefix] = [(*prefix[1], *completion.token_ids) for completion in completions]
    outcomes = {}
    for prefix in {_prefix(item) for item in interventions}:
        whole = continued.get(prefix, [prefix[1]] * settings.num_continuations)
        outcomes[prefix] = _graded(known[prefix[0]].problem, [completion_text(tokenizer, ids) for ids in whole])
    return [outcomes[_prefix(item)] for item in interventions]


def _graded(problem: Problem, texts: Sequence[str]) -> Outcome:
    values = [grade(problem, text).value for text in texts]
    return Outcome(
        num_continuations=len(values),
        num_successes=sum(value == 1.0 for value in values),
        num_failures=sum(value is None for value in values),
    )


def intervention_rows(
    interventions: Sequence[Intervention], outcomes: Sequence[Outcome], tokenizer: PreTrainedTokenizerBase
) -> list[dict[str, Any]]:
    """Return the rows of `interventions.parquet`."""
    return [
        {
            "sequence_id": item.sequence.sequence_id,
            "position": item.position,
            "selection": item.selection,
            "arm": item.arm,
            "token_id": item.token_id,
            "token": str(tokenizer.decode([item.token_id])),
            "num_continuations": outcome.num_continuations,
            "num_successes": outcome.num_successes,
            "num_failures": outcome.num_failures,
        }
        for item, outcome in zip(interventions, outcomes, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Both arms at one position."""

    problem_id: str
    reference: float
    checkpoint: float
    same_token: bool

    @property
    def effect(self) -> float:
        return self.checkpoint - self.reference


def _pairs(
    interventions: Sequence[Intervention], outcomes: Sequence[Outcome], selection: Selection
) -> dict[int, _Pair]:
    arms: dict[int, dict[Arm, tuple[Intervention, float]]] = {}
    for item, outcome in zip(interventions, outcomes, strict=True):
        if item.selection == selection:
            success = outcome.num_successes / outcome.num_continuations
            arms.setdefault(item.sequence.sequence_id, {})[item.arm] = (item, success)
    return {
        index: _Pair(
            problem_id=both["reference"][0].sequence.problem.id,
            reference=both["reference"][1],
            checkpoint=both["checkpoint"][1],
            same_token=both["reference"][0].token_id == both["checkpoint"][0].token_id,
        )
        for index, both in arms.items()
    }


def causal_summary(
    interventions: Sequence[Intervention],
    outcomes: Sequence[Outcome],
    *,
    settings: CausalConfig,
    confidence: float,
    seed: int,
) -> dict[str, Any] | None:
    """Return the `causal` part of the summary: success of both arms and their paired difference, problems resampled.

    `difference` is the effect at the spike minus that at the same rollout's random position. None without rollouts.
    """
    by_selection = {name: _pairs(interventions, outcomes, name) for name in _SELECTIONS}
    spikes, controls = by_selection["spike"], by_selection["random"]
    if not spikes:
        return None

    def estimate(values: dict[int, float], name: str) -> Estimate | None:
        return bootstrap_mean(
            list(values.values()),
            clusters=[spikes[index].problem_id for index in values],
            confidence=confidence,
            num_resamples=settings.num_bootstrap,
            seed=derive_seed(seed, "probe", "bootstrap", name),
            bounds=(-2.0, 2.0) if name == "difference" else (-1.0, 1.0),
        )

    def described(name: Selection, pairs: dict[int, _Pair]) -> dict[str, Any]:
        return {
            "selection": name,
            "num_rollouts": len(pairs),
            "reference": {"success": _mean([pair.reference for pair in pairs.values()])},
            "checkpoint": {"success": _mean([pair.checkpoint for pair in pairs.values()])},
            "effect": estimate({index: pair.effect for index, pair in pairs.items()}, name),
            "share_same_token": _mean([float(pair.same_token) for pair in pairs.values()]),
        }

    return {
        "num_rollouts": len(spikes),
        "num_continuations": settings.num_continuations,
        "selections": [described(name, pairs) for name, pairs in by_selection.items() if pairs],
        "difference": estimate(
            {i: spikes[i].effect - controls[i].effect for i in spikes if i in controls}, "difference"
        ),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
