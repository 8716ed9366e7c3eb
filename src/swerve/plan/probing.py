"""What a probe takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from swerve.artifacts.responses import Response
from swerve.config.sampling import SampleSettings, Sampling
from swerve.plan.budget import Budget
from swerve.plan.sampling import LONGEST_PROMPT, counted_problems, read_models, work_budget
from swerve.probe.engine.measured import MAX_NOISE_TOKENS
from swerve.probe.engine.noise import SEARCH_TOKENS
from swerve.probe.model_checks import states_bytes
from swerve.probe.plan import ProbePlan
from swerve.probe.recipe import ProbeRecipe

_SEARCHES = 4
"""Times that the scale of noise is tried, as a rule."""
_LONGEST = 512
"""Tokens of a response where the recipe sets no bound."""


def probe_budget(
    recipe: ProbeRecipe,
    plan: ProbePlan | None = None,
    *,
    memory_gb: float | None = None,
    processes: int = 1,
    measures: bool = False,
) -> Budget:
    """Return what a probe takes: one model at a time beside the other's output head, reading or sampling.

    Batches are taken to be full, and responses as long as is allowed; statistics over the vocabulary are held for
    `probe.tokens_per_chunk` tokens at a time and not counted. The search for the scale of noise is taken to end after
    four tries.

    Args:
        recipe: the probe's.
        plan: with the responses that are read; None: they are not there yet, and only what the recipe samples counts.
        memory_gb: of another machine's device; None: this machine's.
        processes: that probe together.
        measures: whether rates are measured here.

    Raises:
        ConfigError: a model's configuration cannot be read.
        CheckpointError: it is no causal model of text, or its weights are quantised.
    """
    models = {name: path for name, path in recipe.models.items() if Path(path).is_dir()}
    architectures = read_models(dict(list(models.items())[:1])).architectures
    sample = recipe.sample
    longest = (sample and sample.max_new_tokens) or recipe.max_new_tokens or _LONGEST
    tokens, notes, reading, prompt, disk = dict[str, int](), list[str](), 0, LONGEST_PROMPT, 0
    if plan is None and sample is not None:
        number = _num_problems(recipe, sample)
        tokens["samples"] = 2 * number * sample.num_samples * longest
        notes.append("not counted: what is read of the samples, which are not there yet")
        notes += [] if number else ["not counted: the samples, as the problems are not at hand"]
    elif plan is None:
        notes.append("not counted: the responses, which were not read")
    else:
        reading, disk = _tokens_read(plan), states_bytes(plan, {one.label: one.check() for one in plan.models})
        prompt, longest = max(len(row.prompt_ids) for row in plan.sequences), plan.max_new_tokens
        tokens = _tokens_sampled(plan)
    budget = work_budget(
        "probe",
        architectures,
        runtime=recipe.runtime,
        engine=recipe.rollout.engine,
        length=prompt + longest,
        longest=longest,
        tokens=tokens,
        reading=reading,
        read_at_once=None if plan is None else _num_tokens(plan.sequences),
        place=Path(recipe.out),
        memory_gb=memory_gb,
        processes=processes,
        measures=measures,
        tokens_per_batch=recipe.probe.tokens_per_batch,
        lower="lower probe.tokens_per_batch, or take a larger device",
        kept={"hidden states and statistics": disk},
        notes=notes,
    )
    return budget


def _num_problems(recipe: ProbeRecipe, sample: Sampling) -> int:
    """Return how many problems the recipe samples; 0 where it sets no limit and they are not at hand."""
    assert recipe.task is not None, "checked with the recipe"
    return sample.limit or counted_problems(SampleSettings(task=recipe.task, **dict(sample)))[1]


def _num_tokens(rows: Sequence[Response]) -> int:
    return sum(len(row.prompt_ids) + len(row.completion_ids) for row in rows)


def _tokens_read(plan: ProbePlan) -> int:
    """Return the tokens of all forward passes: by each model, by the reference again, and by noise models."""
    whole, headline = _num_tokens(plan.sequences), _num_tokens(plan.headline)
    noise = plan.recipe.probe.noise_models
    total = len(plan.models) * whole + min(whole, MAX_NOISE_TOKENS)
    if noise:
        # The scale is sought by one of them beside the reference; the others are tried once; then all are measured.
        some = min(headline, SEARCH_TOKENS)
        total += some * (2 * _SEARCHES + noise) + headline * (1 + noise)
    return total


def _tokens_sampled(plan: ProbePlan) -> dict[str, int]:
    """Return the tokens that causal tests sample at most, by test; see `CausalConfig` and its neighbours."""
    probe, longest = plan.recipe.probe, plan.max_new_tokens
    if not plan.has_verifier:
        return {}
    swaps, taken, rows = probe.causal, probe.cross_sampling, len(plan.headline)
    places = 1 + len(swaps.selectors) + sum(swaps.num_random if one == "random" else 1 for one in swaps.controls)
    most = swaps.max_continuations or swaps.num_continuations
    continued = min(rows, swaps.max_rollouts) * places * (2 + swaps.alternative) * most * len(swaps.policies)
    configurations = len(taken.directions) * len(taken.selectors) * len(taken.shares) + 2
    answered = min(len(plan.prompts), taken.max_problems) * configurations * taken.num_samples
    return {"causal tests": continued * longest, "cross-sampling": answered * longest}
