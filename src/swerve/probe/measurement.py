"""A plan's measurements: every pair of models on every rollout, and a null pair that says what is noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.functional.divergence import DivergenceStats
from swerve.probe.categories import token_categories
from swerve.probe.measure import MeasureSettings, MeasureWorld, measure
from swerve.probe.plan import ProbePlan
from swerve.probe.population import ProbeSequence
from swerve.probe.tables import Measurements, stack_measurements
from swerve.probe.teacher_forcing import TopTokens
from swerve.progress import Progress, ProgressTask

__all__ = ["Measurement", "measure_plan", "plan_pairs"]

_MAX_NOISE_TOKENS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was measured on all rollouts of a plan."""

    pairs: Measurements
    """Every pair: each checkpoint against the reference, consecutive ones, the reference against the baseline."""
    null: Measurements
    """The reference against itself, run in other batches, on whole rollouts."""
    tops: dict[str, TopTokens]
    """By label: the likeliest tokens of the reference and the checkpoints at every position."""
    pieces: list[str]
    """Text of every token id."""
    vocabulary_size: int
    """Number of tokens that the distributions are over."""

    def against(self, reference: str) -> Measurements:
        """Return the pairs with this reference."""
        return self.pairs.pick(lambda _, other: other == reference)


@dataclass(slots=True)
class _SharedProgress:
    """Shows the work of all processes by this one's share: the others do about as much in the same time."""

    task: ProgressTask
    left: int
    num_processes: int

    def advance(self, num: int) -> None:
        done = min(num * self.num_processes, self.left)
        self.left -= done
        self.task.advance(done)

    def finish(self) -> None:
        """Say that the other processes are done too."""
        if self.left:
            self.advance(self.left)


def plan_pairs(plan: ProbePlan) -> list[tuple[str, str]]:
    """Return the pairs (checkpoint, reference) that a plan asks for, by label, each once."""
    labels = [one.label for one in plan.checkpoints]
    pairs = [(label, plan.reference.label) for label in labels]
    if "consecutive" in plan.settings.pairs:
        pairs += zip(labels[1:], labels, strict=False)
    if plan.baseline is not None:
        pairs.append((plan.reference.label, plan.baseline.label))
    return list(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))


def measure_plan(plan: ProbePlan, *, store: Path | None, world: MeasureWorld | None, progress: Progress) -> Measurement:
    """Run every model of a plan once over all rollouts; all processes must call it.

    Raises:
        MismatchError: the models have different tokenizers or vocabularies.
        CheckpointError: a model is missing or damaged.
    """
    settings = plan.settings
    models = [plan.reference, *plan.checkpoints]
    if plan.baseline is not None and plan.baseline.label not in {one.label for one in models}:
        models.append(plan.baseline)
    lengths = [len(one.completion_ids) for one in plan.sequences]
    with progress.task("probe", len(models) * sum(lengths)) as task:
        shown = _SharedProgress(task, left=len(models) * sum(lengths), num_processes=1 if world is None else world.size)
        measured = measure(
            models,
            plan_pairs(plan),
            [(one.prompt_ids, one.completion_ids) for one in plan.sequences],
            settings=MeasureSettings(
                tokens_per_batch=settings.tokens_per_batch,
                tokens_per_chunk=settings.tokens_per_chunk,
                top_k=settings.top_k,
                kernel=settings.kernel,
                store=store,
                keep=settings.keep_states,
                clear=False,
                noise_tokens=_MAX_NOISE_TOKENS,
            ),
            noise_of=plan.reference.label,
            world=world,
            on_tokens=shown.advance,
        )
        shown.finish()
    categories = [category for one in plan.sequences for category in token_categories(one.text, one.spans)]
    return Measurement(
        pairs=stack_measurements(plan.sequences, measured.stats, categories),
        null=_null(plan, measured.noise["batching"], measured.noise_positions.numpy(), categories),
        tops=measured.tops,
        pieces=measured.pieces,
        vocabulary_size=min(measured.vocabulary_sizes.values()),
    )


def _null(plan: ProbePlan, stats: DivergenceStats, positions: NDArray[Any], categories: Sequence[str]) -> Measurements:
    """Return the null pair on the rollouts it covers."""
    ends = np.cumsum([len(one.completion_ids) for one in plan.sequences])
    known = set(positions.tolist())
    covered: list[ProbeSequence] = [
        one for one, end in zip(plan.sequences, ends.tolist(), strict=True) if end - 1 in known
    ]
    label = plan.reference.label
    return stack_measurements(covered, {(label, label): stats}, [categories[index] for index in positions.tolist()])
