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
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from swerve.artifacts.parts import digest_of
from swerve.artifacts.probe_claims import NoiseModels
from swerve.artifacts.responses import Response
from swerve.functional.divergence import DivergenceStats
from swerve.models.adapter import plain_name, sharing_copy, whole_matrices
from swerve.models.model_folder import LoadedModel
from swerve.models.sources import CheckedModel, ModelSource
from swerve.probe.engine.measure import measure, shared_progress
from swerve.probe.plan import ProbePlan
from swerve.progress import Progress
from swerve.seeds import derive_seed
from swerve.world import World

_ROWS = 1024
"""Of a matrix, in double precision at a time."""
_SEARCH_TOKENS = 8192
"""The search for the scale reads about so many at most."""
_NEAR = 1.05
"""The search ends where the two mean divergences differ by no larger factor."""
_MAX_STEPS = 12


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


def measure_noise(
    plan: ProbePlan, target: float, *, store: Path | None, world: World, progress: Progress
) -> tuple[NoiseModels, dict[tuple[str, str], DivergenceStats]]:
    """Measure noise models that are as far from the reference as the final checkpoint; all processes must call it.

    The scale is sought with the first of them on some of the headline rollouts; there each other one is run once to
    correct it. Then each of them is run once over all of these rollouts, as is the reference.

    Args:
        plan: of the probe.
        target: the checkpoint's mean divergence over the tokens of the headline population, nats.
        store: folder for hidden states and statistics, so that interrupted work continues; None keeps them in memory.
        world: the processes that share the work.
        progress: told of the tokens done.

    Returns:
        What the noise models are, or why there are none; and their statistics by (noise model, reference).
    """
    reference, checkpoint, settings = plan.reference, plan.sources[plan.final], plan.recipe.probe

    def nothing(reason: str) -> tuple[NoiseModels, dict[tuple[str, str], DivergenceStats]]:
        return NoiseModels(target=target if math.isfinite(target) else None, not_measured=reason), {}

    if not settings.noise_models:
        return nothing("probe.noise_models is 0")
    if not math.isfinite(target):
        return nothing("the checkpoint's mean is infinite, which no noise matches")

    seed = derive_seed(plan.recipe.seed, "probe", "noise")
    fingerprint = digest_of("noise", reference.fingerprint, checkpoint.fingerprint, seed)

    # How far training moved each matrix, which the first process finds out.
    changes = world.gather(matrix_changes(reference, checkpoint) if world.is_main else None)[0]
    if changes is None:
        return nothing(f"{checkpoint.label} and {reference.label} have matrices of other names or shapes")
    if not changes or not target:
        return nothing(f"{checkpoint.label} does not differ from {reference.label}")
    norms = {name: norm for name, (norm, _) in changes.items()}
    relative = math.hypot(*norms.values()) / math.hypot(*(size for _, size in changes.values()))
    checked = reference.check()

    def measured(rows: Sequence[Response], scales: Mapping[int, float]) -> dict[tuple[str, str], DivergenceStats]:
        """Run some noise models, by their number, and the reference."""
        sources = [
            NoiseSource(
                label=f"{reference.label} with noise {number}",
                reference=reference,
                norms=norms,
                scale=scale,
                seed=derive_seed(seed, number),
                fingerprint=digest_of(fingerprint, scale, number),
                checked=checked,
            )
            for number, scale in scales.items()
        ]
        # Their likeliest tokens are not read, and their hidden states are not kept.
        positions = [row.sampled_positions for row in rows]
        size = (len(sources) + 1) * sum(map(len, positions))
        task.extend(size)
        with shared_progress(task, size, world) as advance:
            return measure(
                [reference, *sources],
                [(source.label, reference.label) for source in sources],
                [(row.prompt_ids, row.completion_ids) for row in rows],
                settings=settings.model_copy(update={"top_k": 1, "keep_states": False}),
                store=store,
                world=world,
                on_tokens=advance,
                positions=positions,
            ).stats

    def means(stats: Mapping[Any, DivergenceStats]) -> tuple[float, ...]:
        return tuple(float(getattr(own, settings.divergence).double().mean()) for own in stats.values())

    # The scale, from some of the rollouts; then all noise models on all of them.
    rows = plan.headline
    some = rows[:: -(-sum(len(row.sampled_positions) for row in rows) // _SEARCH_TOKENS)]
    with progress.task("noise models", 0) as task:
        matched = matching_scale(lambda scale: means(measured(some, {1: scale}))[0], target, most=1 / relative)
        if matched is None:
            return nothing(f"noise of up to the norm of the weights does not go as far as {checkpoint.label}")
        (scale, power), others = matched, range(2, settings.noise_models + 1)
        reached = means(measured(some, dict.fromkeys(others, scale)))
        corrected = (scale * (target / mean) ** (1 / power) for mean in reached)
        scales = {1: scale, **dict(zip(others, corrected, strict=True))}
        stats = measured(rows, scales)
    if not math.isfinite(sum(means(stats))):
        return nothing("the mean of a noise model is infinite")
    factors = tuple(scales.values())
    return NoiseModels(target=target, scales=factors, relative_norm=relative, means=means(stats)), stats
