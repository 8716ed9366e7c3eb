"""Noise models: the reference with random directions in the place of what training changed of it.

Each matrix W of the reference becomes W + s ||D|| G / ||G||, with D what training changed of it, G a Gaussian matrix
and s one scale for all matrices, at which the mean divergence from the reference is the checkpoint's. Where such a
model differs from the reference is where any change would show.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from swerve.artifacts.parts import Parts, digest_of
from swerve.artifacts.probe_claims import NoiseModels
from swerve.artifacts.responses import Response
from swerve.artifacts.shards import WHOLE, Shard
from swerve.errors import MissingShardsError
from swerve.functional.divergence import DivergenceStats
from swerve.models.adapter import plain_name, sharing_copy, whole_matrices
from swerve.models.model_folder import LoadedModel
from swerve.models.sources import CheckedModel, ModelSource
from swerve.probe.engine.measure import measure, shared_progress
from swerve.probe.engine.store import kept_result
from swerve.probe.plan import ProbePlan
from swerve.progress import Progress, ProgressTask
from swerve.seeds import derive_seed
from swerve.version import __version__
from swerve.world import World

_ROWS = 1024
"""Of a matrix, in double precision at a time."""
SEARCH_TOKENS = 8192
"""The search for the scale reads about so many at most."""
_NEAR = 1.05
"""The search ends where the two mean divergences differ by no larger factor."""
_MAX_STEPS = 12
_INFINITE = "the mean of a noise model is infinite"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseSource:
    """The reference with a Gaussian matrix added to each of its matrices that training changed."""

    label: str
    reference: ModelSource
    norms: Mapping[str, float]
    """Of what training changed, by the name of the matrix."""
    scale: float
    """Of the noise's norms, in these."""
    seed: int
    fingerprint: str
    checked: CheckedModel
    """The reference."""

    def check(self) -> CheckedModel:
        """Return what is known of the reference."""
        return self.checked

    def load(self) -> LoadedModel:
        """Return the reference with the noise: the same for any number of processes."""
        loaded = self.reference.load()
        model, tokenizer = sharing_copy(loaded.model, whole=True), loaded.tokenizer
        del loaded  # so that each matrix that is replaced is freed
        for name, parameter in model.named_parameters():
            norm = self.norms.get(plain_name(name), 0.0)
            if norm:
                generator = torch.Generator(device=parameter.device)
                generator.manual_seed(derive_seed(self.seed, plain_name(name)))
                noise = torch.randn(parameter.shape, generator=generator, device=parameter.device)
                moved = parameter.detach().float() + noise * (self.scale * norm / float(noise.norm()))
                parameter.data = moved.to(parameter.dtype)
        return LoadedModel(model=model, tokenizer=tokenizer)

    def matrices(self) -> Iterator[tuple[str, Tensor]]:
        """Yield its matrices by name."""
        return whole_matrices(self.load().model)


def matrix_changes(reference: ModelSource, checkpoint: ModelSource) -> dict[str, tuple[float, float]] | None:
    """Return the norm of what changed of each matrix, and that of the matrix; None where the two have other matrices.

    Both models are read matrix by matrix. Those that did not change are left out.
    """
    changes: dict[str, tuple[float, float]] = {}
    nothing = ("", torch.empty(0))
    for own, other in itertools.zip_longest(reference.matrices(), checkpoint.matrices(), fillvalue=nothing):
        (name, weights), (other_name, moved) = own, other
        if name != other_name or weights.shape != moved.shape:
            return None
        change, size = 0.0, 0.0
        for part, new in zip(weights.split(_ROWS), moved.split(_ROWS), strict=True):
            before = part.cpu().double()
            change += float((new.cpu().double() - before).square().sum())
            size += float(before.square().sum())
        if change:
            changes[name] = (math.sqrt(change), math.sqrt(size))
    return changes


def matching_scale(mean_at: Callable[[float], float], target: float, *, most: float) -> tuple[float, float] | None:
    """Return the scale at which a mean divergence is the target, up to 5%, and the power of it that the mean goes with.

    Secant steps on the logarithms of both; for little noise the divergence is the square of its scale. None where no
    scale up to `most` reaches the target.

    >>> scales = []
    >>> scale, power = matching_scale(lambda scale: scales.append(scale) or 0.01 * scale**2, 0.09, most=100.0)
    >>> round(scale, 6), power, scales[0]
    (3.0, 2.0, 1.0)
    >>> matching_scale(lambda scale: 0.01 * min(scale, 2.0), 0.09, most=100.0) is None
    True
    """
    scale, slope, before = min(1.0, most), 2.0, (0.0, 0.0)
    for step in range(_MAX_STEPS):
        mean = min(1e12 * target, max(mean_at(scale), 1e-12 * target))  # NaN, of weights that overflow, is too much
        distance = math.log(target / mean)
        if abs(distance) <= math.log(_NEAR):
            return scale, slope
        if distance > 0 and scale >= most:
            return None
        place = math.log(scale)
        if step and place != before[0]:
            slope = min(4.0, max(0.5, (before[1] - distance) / (place - before[0])))
        before = (place, distance)
        scale = min(most, math.exp(place + min(4.0, max(-4.0, distance / slope))))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _NoiseRuns:
    """Runs noise models of a plan over rollouts."""

    plan: ProbePlan
    target: float
    """The checkpoint's mean divergence from the reference, nats."""
    world: World
    task: ProgressTask
    seed: int
    fingerprint: str
    """Of the models and the seed."""

    def measured(
        self,
        rows: Sequence[Response],
        scales: Mapping[int, float],
        norms: Mapping[str, float],
        *,
        store: Path | None = None,
        shard: Shard = WHOLE,
    ) -> dict[tuple[str, str], DivergenceStats]:
        """Run some noise models, by their number, and the reference."""
        reference = self.plan.reference
        checked = reference.check()
        sources = [
            NoiseSource(
                label=f"{reference.label} with noise {number}",
                reference=reference,
                norms=norms,
                scale=scale,
                seed=derive_seed(self.seed, number),
                fingerprint=digest_of(self.fingerprint, scale, number),
                checked=checked,
            )
            for number, scale in scales.items()
        ]
        # Their likeliest tokens are not read, and their hidden states are not kept.
        positions = [row.sampled_positions for row in rows]
        size = (len(sources) + 1) * sum(map(len, positions))
        self.task.extend(size)
        with shared_progress(self.task, size, self.world.size) as advance:
            return measure(
                [reference, *sources],
                [(source.label, reference.label) for source in sources],
                [(row.prompt_ids, row.completion_ids) for row in rows],
                settings=self.plan.recipe.probe.model_copy(update={"top_k": 1, "keep_states": False}),
                store=store,
                world=self.world,
                shard=shard,
                on_tokens=advance,
                positions=positions,
            ).stats

    def means(self, stats: Mapping[Any, DivergenceStats]) -> tuple[float, ...]:
        """Return the mean divergence of each noise model, nats."""
        name = self.plan.recipe.probe.divergence
        return tuple(float(getattr(own, name).double().mean()) for own in stats.values())

    def design(self, rows: Sequence[Response]) -> dict[str, Any]:
        """Return the scales and the norms that they are of, as JSON, from some of the rows; or why there are none.

        The scale is sought with the first noise model; each other one is run once to correct it.
        """
        # How far training moved each matrix, which the first process finds out.
        reference, checkpoint = self.plan.reference, self.plan.sources[self.plan.final]
        own = matrix_changes(reference, checkpoint) if self.world.is_main else None
        changes = self.world.gather(own)[0]
        if changes is None:
            return {"reason": f"{checkpoint.label} and {reference.label} have matrices of other names or shapes"}
        if not changes or not self.target:
            return {"reason": f"{checkpoint.label} does not differ from {reference.label}"}
        norms = {name: norm for name, (norm, _) in changes.items()}
        relative = math.hypot(*norms.values()) / math.hypot(*(size for _, size in changes.values()))

        # In memory: shards, which all do this, would take away each other's hidden states in the store.
        some = rows[:: -(-sum(len(row.sampled_positions) for row in rows) // SEARCH_TOKENS)]

        def mean_at(scale: float) -> float:
            return self.means(self.measured(some, {1: scale}, norms))[0]

        matched = matching_scale(mean_at, self.target, most=1 / relative)
        if matched is None:
            return {"reason": f"noise of up to the norm of the weights does not go as far as {checkpoint.label}"}
        (scale, power), others = matched, range(2, self.plan.recipe.probe.noise_models + 1)
        reached = self.means(self.measured(some, dict.fromkeys(others, scale), norms))
        scales = [scale, *(scale * (self.target / mean) ** (1 / power) for mean in reached)]
        if not math.isfinite(sum(scales)):
            return {"reason": _INFINITE}
        return {"scales": scales, "norms": norms, "relative": relative}


def measure_noise(
    plan: ProbePlan, target: float, *, store: Path | None, world: World, progress: Progress
) -> tuple[NoiseModels, dict[tuple[str, str], DivergenceStats]]:
    """Measure noise models that are as far from the reference as the final checkpoint; all processes must call it.

    The scale is sought on some of the headline rollouts (`_NoiseRuns.design`). Then each noise model is run once over
    all of these rollouts, as is the reference. A shard does its share of the latter.

    Args:
        plan: of the probe.
        target: the checkpoint's mean divergence over the tokens of the headline population, nats.
        store: folder for hidden states and statistics, so that interrupted work continues; None keeps them in memory.
        world: the processes that share the work.
        progress: told of the tokens done.

    Returns:
        What the noise models are, or why there are none; and their statistics by (noise model, reference).
    """
    reference, checkpoint = plan.reference, plan.sources[plan.final]

    def nothing(reason: str) -> tuple[NoiseModels, dict[tuple[str, str], DivergenceStats]]:
        return NoiseModels(target=target if math.isfinite(target) else None, not_measured=reason), {}

    if not plan.recipe.probe.noise_models:
        return nothing("probe.noise_models is 0")
    if not math.isfinite(target):
        return nothing("the checkpoint's mean is infinite, which no noise matches")

    rows = plan.headline
    seed = derive_seed(plan.recipe.seed, "probe", "noise")
    fingerprint = digest_of("noise", reference.fingerprint, checkpoint.fingerprint, seed)

    # The design is kept: who finds all measurements of shards runs no model.
    probe = plan.recipe.probe
    settings = [probe.tokens_per_batch, probe.tokens_per_chunk, probe.kernel, probe.divergence, probe.noise_models]
    tokens = [[*map(list, (row.prompt_ids, row.completion_ids, row.sampled_positions))] for row in rows]
    depends = [fingerprint, target, settings, tokens]
    with progress.task("noise models", 0) as task:
        runs = _NoiseRuns(plan=plan, target=target, world=world, task=task, seed=seed, fingerprint=fingerprint)
        parts = Parts(store, [__version__, torch.__version__], copied=plan.shard.copied)
        design = kept_result(parts, "noise", depends, partial(runs.design, rows), world=world)
        if "reason" in design:
            return nothing(design["reason"])
        scales = dict(enumerate(design["scales"], start=1))
        try:
            stats = runs.measured(rows, scales, design["norms"], store=store, shard=plan.shard)
        except MissingShardsError:
            if plan.shard.is_share:  # which does without them
                return nothing("other shards measure them, too")
            raise
    means = runs.means(stats)
    if not math.isfinite(sum(means)):
        return nothing(_INFINITE)
    relative: float = design["relative"]
    return NoiseModels(target=target, scales=tuple(scales.values()), relative_norm=relative, means=means), stats
