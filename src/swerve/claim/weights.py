"""What changed in the weights, and which part of the change suffices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from swerve.artifacts.claim import GraftRow, MatrixRow, Verdict, WeightsPart
from swerve.artifacts.files import TEMPORARY_PREFIX
from swerve.claim.grafts import OUTSIDE, Part, WeightChange, part_in, place_of, random_part
from swerve.claim.work import Wanted, Work
from swerve.statistics import mcnemar, share
from swerve.statistics.sufficiency import above_random, smallest_sufficient
from swerve.text import percent, points_interval

_LARGEST = 0.1
"""Share of the entries in the sparse part."""
_NEARLY_ALL = 0.9
"""Of a matrix's squared norm."""


def measure(work: Work) -> WeightsPart:
    """Return what changed in the weights, and what the base does with parts of it and with random changes.

    Raises:
        NotMeasuredError: there are no models, or their weights have other names or shapes.
        ElsewhereError: other shards have the rest of the samples.
    """
    settings, problems = work.settings, work.problems[: work.settings.some]
    change = WeightChange(*work.models, largest_rank=max(settings.ranks))
    parts, smallest = _parts(change, settings.ranks), f"rank {min(settings.ranks)}"
    randoms = [f"direction {number}" for number in range(settings.directions)]
    parts |= {name: random_part(settings.seed, number, parts[smallest]) for number, name in enumerate(randoms)}

    # Files say what they are samples of: the folder has one name, but beside other shards its own.
    place = f"{work.out}/claim.partial/{TEMPORARY_PREFIX}{work.shard.number}-"
    wanted = []
    for name, part in parts.items():
        file = name.replace(" ", "-")
        wanted.append(Wanted(file, name, partial(change.folder, part, Path(place + file)), problems))
    samples = work.sample(wanted)

    # Beside both models on the same problems.
    base, trained, *others = (
        [bool(sample.correct) for sample in side[: len(problems)]] for side in (*work.greedy, *samples)
    )
    right = dict(zip(parts, others, strict=True))
    directions = [float(np.mean(right.pop(name))) for name in randoms]
    rows = [
        GraftRow(
            graft=name,
            energy=change.energy(parts[name]) / change.energy_of_all,
            accuracy=share(sum(answers), len(problems)),
            difference=mcnemar(trained, answers).difference,
        )
        for name, answers in right.items()
    ]
    return WeightsPart(
        verdicts=(
            suffices(base, trained, {rank: right[f"rank {rank}"] for rank in settings.ranks}, settings.margin),
            *beyond(smallest, float(np.mean(right[smallest])), directions),
        ),
        matrices=tuple(measure_matrices(change)),
        grafts=tuple(rows),
        directions=tuple(directions),
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
    gain = mcnemar(base, whole).difference
    rank = smallest_sufficient(whole, parts, margin) if gain and gain.low > margin else None
    tried = rank or max(parts)
    of, lost = f"rank {tried}", mcnemar(whole, parts[tried]).difference
    assert gain
    assert lost
    return Verdict(
        claim="part_suffices",
        of=of,
        shown=rank is not None,
        sentence=f"{of.capitalize() if rank else f'Not shown: {of}'} of the change and every larger rank tried lose "
        f"less than {percent(margin, ' points')} ({points_interval(lost)} of {points_interval(gain)}).",
        estimate=lost,
        num=len(whole),
    )


def beyond(part: str, accuracy: float, directions: Sequence[float]) -> tuple[Verdict, ...]:
    """Return whether a part does more than each random change of its size: the unit is the direction."""
    if not directions:
        return ()
    shown = above_random(accuracy, directions)
    null = f"{len(directions)} random changes of its size"
    best = percent(max(directions))
    unshown = "Not above random directions: " if accuracy <= max(directions) else "Not shown, too few directions: "
    said = f"{part.capitalize() if shown else part} alone has {percent(accuracy)} right, the best of {null} {best}"
    return (
        Verdict(
            claim="part_beyond_its_size",
            of=part,
            shown=shown,
            sentence=f"{'' if shown else unshown}{said}.",
            estimate=accuracy,
            null=null,
        ),
    )


def _parts(change: WeightChange, ranks: Sequence[int]) -> dict[str, Part]:
    """Return the parts that are tried, by name."""
    parts = {f"rank {rank}": change.rank(rank) for rank in ranks}
    layers = [place for place in dict.fromkeys(map(place_of, change.weights)) if place != OUTSIDE]
    for third in np.array_split(layers, min(3, len(layers))):
        name = third[0] if len(third) == 1 else f"{third[0]} to {third[-1]}"
        parts[name] = part_in(third.tolist())
    return {**parts, OUTSIDE: part_in([OUTSIDE]), "largest tenth": change.largest(_LARGEST)}


def measure_matrices(change: WeightChange) -> Iterator[MatrixRow]:
    """Yield how weights changed: all of them, those of a kind, and those of a layer."""
    groups: dict[str, list[str]] = {"all": list(change.weights)}
    for group_of in (lambda name: name.split(".")[-2], place_of):
        for name in change.weights:
            groups.setdefault(group_of(name), []).append(name)
    for group, names in groups.items():
        before, after = (torch.cat([change.weights[name][side].flatten() for name in names]) for side in (0, 1))
        size = float(before.norm())
        energies = [change.factors[name][1].square().cumsum(-1) for name in names if name in change.factors]
        # Of each matrix that changed the rank that holds nearly all of its change.
        ranks = [(own < _NEARLY_ALL * own[..., -1:]).sum(-1) + 1.0 for own in energies if own[..., -1].all()]
        yield MatrixRow(
            weights=group,
            unchanged=float((before == after).double().mean()),
            unchanged_bf16=float((before.bfloat16() == after.bfloat16()).double().mean()),
            relative_norm=float(torch.dist(before, after)) / size if size else None,
            rank90=float(torch.cat([own.flatten() for own in ranks]).mean()) if ranks else None,
        )
