"""What changed in the weights, and which part of the change suffices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from swerve.artifacts.claim import GraftRow, MatrixRow, Verdict, WeightsPart
from swerve.artifacts.samples import StoredSamples
from swerve.claim.work import Cost, Wanted, Work
from swerve.config.claim import ClaimSettings
from swerve.estimates import hundredths, hundredths_interval
from swerve.seeds import derive_seed
from swerve.statistics import mean_interval, paired_difference
from swerve.statistics.sufficiency import above_random, smallest_sufficient

if TYPE_CHECKING:
    from swerve.claim.grafts import Part, WeightChange

_LARGEST = 0.1
"""Share of the entries in the sparse part."""
_NEARLY_ALL = 0.9
"""Of a matrix's squared norm."""
_SIGNED = (-1.0, 1.0)


def cost(settings: ClaimSettings, num_problems: int) -> Cost:
    """Return what this part costs: each graft answers some problems once, greedily."""
    num_grafts = len(settings.ranks) + 5 + settings.directions
    return Cost(samples=num_grafts * min(settings.some, num_problems))


def measure(work: Work) -> WeightsPart:
    """Return what changed in the weights, and what the base does with parts of it and with random changes.

    Raises:
        NotMeasuredError: there are no models, or their weights have other names or shapes.
        ElsewhereError: other shards have the rest of the samples.
    """
    from swerve.claim.grafts import WeightChange, random_part

    settings, change = work.settings, WeightChange(*work.models)
    parts = _parts(change, settings.ranks)
    rank = f"rank {min(settings.ranks)}"
    randoms = {
        f"direction {number}": random_part(derive_seed(settings.seed, "direction", number), parts[rank])
        for number in range(1, settings.directions + 1)
    }

    # All answer the same problems as both models did, with the same limit.
    base, trained = ([bool(sample.correct) for sample in side[: settings.some]] for side in work.greedy)
    known = StoredSamples(work.out / "samples" / f"{work.trained.label}-greedy.parquet").info
    wanted = [
        Wanted(
            name=name.replace(" ", "-"),
            label=name,
            model=partial(change.folder, part, work.parts.folder),
            problems=work.problems[: settings.some],
            max_new_tokens=known.max_new_tokens,
        )
        for name, part in {**parts, **randoms}.items()
    ]
    answers = [[bool(sample.correct) for sample in samples] for samples in work.sample(wanted)]
    right = dict(zip(parts, answers, strict=False))
    directions = tuple(float(np.mean(own)) for own in answers[len(parts) :])

    verdicts = [suffices(base, trained, {size: right[f"rank {size}"] for size in settings.ranks}, settings.margin)]
    if directions:
        verdicts.append(beyond(rank, float(np.mean(right[rank])), directions))
    whole = change.energy(lambda _, own: own)
    return WeightsPart(
        verdicts=tuple(verdicts),
        matrices=tuple(_matrices(change)),
        grafts=tuple(
            GraftRow(
                graft=name,
                energy=change.energy(part) / whole,
                accuracy=mean_interval(right[name], bounds=(0.0, 1.0)),
                difference=paired_difference(trained, right[name], bounds=_SIGNED)[0],
            )
            for name, part in parts.items()
        ),
        directions=directions,
        margin=settings.margin,
    )


def suffices(
    base: Sequence[bool], whole: Sequence[bool], parts: Mapping[int, Sequence[bool]], margin: float
) -> Verdict:
    """Return the smallest rank that is shown to lose less accuracy than a margin, as every larger one.

    A whole change that is not itself shown to gain more than the margin has no part that suffices: nothing would, too.

    Args:
        base: whether each problem is right without the change.
        whole: the same with all of it.
        parts: the same with its part of a rank.
        margin: fixed before.
    """
    gain, _ = paired_difference(base, whole, bounds=_SIGNED)
    assert gain is not None
    shown = smallest_sufficient(whole, parts, margin) if gain.low > margin else None
    rank = shown or max(parts)
    lost, _ = paired_difference(whole, parts[rank], bounds=_SIGNED)
    assert lost is not None
    start = "Rank {} of the change and every larger rank tried lose" if shown else "Not shown that rank {} loses"
    points, gained = hundredths_interval(lost, signed=True), hundredths_interval(gain, signed=True)
    return Verdict(
        claim="part_suffices",
        of=f"rank {rank}",
        shown=shown is not None,
        sentence=f"{start.format(rank)} less than {hundredths(margin)} points: {points} of the whole's {gained}.",
        estimate=lost,
        unit="points",
        num=len(whole),
        null=f"it loses {hundredths(margin)} points",
    )


def beyond(name: str, accuracy: float, directions: Sequence[float]) -> Verdict:
    """Return whether a part does more than each random change of its size: the unit is the direction."""
    shown = above_random(accuracy, directions) is not None
    random = f"{len(directions)} random changes of its size"
    said = f"{name} alone has {hundredths(accuracy)}% right, the best of {random} {hundredths(max(directions))}%"
    return Verdict(
        claim="part_beyond_its_size",
        of=name,
        shown=shown,
        sentence=f"{'' if shown else 'Not shown to do more than any: '}{said}.",
        estimate=accuracy,
        num=len(directions),
        null=random,
    )


def _parts(change: WeightChange, ranks: Sequence[int]) -> dict[str, Part]:
    """Return the parts that are tried, by name."""
    from swerve.claim.grafts import layer_of, layers_part

    parts = {f"rank {rank}": change.rank(rank) for rank in ranks}
    layers = sorted({layer for name in change.weights if (layer := layer_of(name)) is not None})
    for third in np.array_split(layers, 3):
        if third.size:
            parts[f"layers {third[0]} to {third[-1]}"] = layers_part(third.tolist())
    return {**parts, "outside the layers": layers_part([None]), "largest tenth": change.largest(_LARGEST)}


def _matrices(change: WeightChange) -> Iterator[MatrixRow]:
    """Yield how weights changed: all of them, those of a kind, and those of a layer."""
    from swerve.claim.grafts import layer_of

    groups: defaultdict[str, list[Any]] = defaultdict(list)
    for name, (before, after) in change.weights.items():
        unchanged = [(before == after).sum(), (before.bfloat16() == after.bfloat16()).sum()]
        # Of each matrix that changed the rank that holds nearly all of its change.
        energies = change.factors[name][1].square().cumsum(-1) if name in change.factors else before.new_zeros(1)
        moved = energies[..., -1] > 0
        ranks = moved + (energies < _NEARLY_ALL * energies[..., -1:]).sum(-1)
        norms = [change.changes[name].square().sum(), before.double().square().sum()]
        figures = [before.numel(), *unchanged, *norms, moved.sum(), ranks.sum()]
        layer = layer_of(name)
        for group in ("all", name.split(".")[-2], f"layer {layer}" if layer is not None else "outside the layers"):
            groups[group].append([float(figure) for figure in figures])
    for group, rows in groups.items():
        size, same, rounded, change_square, square, matrices, rank = np.sum(rows, axis=0).tolist()
        yield MatrixRow(
            weights=group,
            unchanged=same / size,
            unchanged_bf16=rounded / size,
            relative_norm=(change_square / square) ** 0.5 if square else None,
            rank90=rank / matrices if matrices else None,
        )
