"""A finished run whose models are compared with themselves, and what all comparisons share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.run import RunDirectory
from swerve.cli.runs import load_run_config
from swerve.estimates import Estimate
from swerve.functional.divergence import DivergenceStats
from swerve.models.model_folder import LoadedModel
from swerve.probe.engine.jobs import MeasureSettings
from swerve.probe.engine.measure import measure
from swerve.probe.engine.model_sources import LoadedSource
from swerve.probe.from_run import plan_run
from swerve.probe.plan import ProbePlan
from swerve.probe.rollouts.population import POPULATION, ProbeSequence
from swerve.problems import ProblemFamily, load_family
from swerve.prompts import encode_prompts
from swerve.rollout import TorchEngine
from swerve.seeds import derive_seed
from swerve.types import Prompt

Record = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NullSettings:
    """How often each experiment is repeated."""

    num_halves: int = 200
    """Random halves of the null pair: one calibrates, the other is tested."""
    num_repeats: int = 300
    """Pairs of samples of one model."""
    num_problems: int = 50
    """Of each of these."""
    num_pools: int = 60
    """Further pairs of samples of this many problems: a pool to draw comparisons of other sizes from."""
    num_drawn: int = 1000
    """Comparisons drawn for each size."""
    num_positions: int = 200
    """Rollouts with positions of the causal test."""
    num_searches: int = 1000
    """Rollouts searched for pivots."""
    length: int = 59
    """Tokens of each of these."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NullRun:
    """A finished run: what its probe would read, with reference and final checkpoint in memory."""

    plan: ProbePlan
    family: ProblemFamily
    prompts: tuple[Prompt, ...]
    reference: LoadedModel
    final: LoadedModel
    settings: NullSettings

    @classmethod
    def read(cls, run: RunDirectory, settings: NullSettings) -> NullRun:
        """Load the models of a run and what its probe would read."""
        config = load_run_config(run, ["probe.populations=[]"])
        plan = plan_run(config, run)
        family = load_family(config.task)
        reference = plan.reference.load()
        problems = family.problems("heldout", seed=derive_seed(config.seed, "problems"))
        return cls(
            plan=plan,
            family=family,
            prompts=tuple(encode_prompts(reference.tokenizer, problems[: config.eval.num_problems])),
            reference=reference,
            final=next(one for one in plan.checkpoints if one.label == plan.final).load(),
            settings=settings,
        )

    @property
    def headline(self) -> list[ProbeSequence]:
        """The reference's wrong rollouts of problems that the final checkpoint gets right."""
        return [one for one in self.plan.sequences if one.population == POPULATION]


def cut(values: NDArray[Any], lengths: Sequence[int]) -> list[NDArray[Any]]:
    """Return values of all tokens cut into sequences."""
    return list(np.split(values, np.cumsum(lengths)[:-1]))


def row(prompt: Prompt, token_ids: Sequence[int], *, first: bool) -> Record:
    """Return a completion as the row of a probe; `first` marks the first of two samples, as if it were right."""
    problem = prompt.problem
    return {
        "problem_id": problem.id,
        "question": problem.question,
        "gold": problem.answer,
        "kind": problem.kind,
        "prompt_ids": list(prompt.token_ids),
        "completion_ids": list(token_ids),
        "extracted": None,
        "correct": first,
    }


def against_reference(run: NullRun, sequences: Sequence[ProbeSequence]) -> DivergenceStats:
    """Return what the final checkpoint differs by from the reference on every token."""
    sources = [
        LoadedSource(label="final", loaded=run.final),
        LoadedSource(label="reference", loaded=run.reference),
    ]
    measured = measure(
        sources,
        [("final", "reference")],
        [(one.prompt_ids, one.completion_ids) for one in sequences],
        settings=MeasureSettings(),
    )
    return measured.stats["final", "reference"]


def engine(loaded: LoadedModel) -> TorchEngine:
    """Return an engine that samples from a model."""
    return TorchEngine(loaded.model, pad_id=int(loaded.tokenizer.pad_token_id or 0), max_rows=512)


def excludes(estimate: Estimate | None, value: float) -> bool:
    """Return whether an interval leaves a value out."""
    return estimate is not None and estimate.excludes(value)
