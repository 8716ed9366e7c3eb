"""What changed in the weights, and which part of the change suffices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from swerve.artifacts.files import TEMPORARY_PREFIX
from swerve.claim.part import Cost, Number, Part, Points, Row, Share
from swerve.claim.settings import ClaimSettings
from swerve.claim.verdicts import ClaimVerdict
from swerve.claim.work import Wanted, Work
from swerve.statistics import mcnemar, share
from swerve.statistics.sufficiency import above_random, smallest_sufficient
from swerve.text import counted, percent, percent_as, points_interval

if TYPE_CHECKING:
    from swerve.claim.grafts import WeightChange

_PIECES = 3
"""Of the layers, at most."""
_NEARLY_ALL = 0.9
"""Of a matrix's squared norm."""


class MatrixRow(Row):
    """What changed in the weights of one kind or layer."""

    weights: str
    unchanged: Share
    unchanged_bf16: Share
    """After rounding to bfloat16."""
    relative_norm: Number
    """Norm of the change over the norm of the weights."""
    rank90: Number
    """Rank that holds 90% of the change's energy, mean over matrices."""


class GraftRow(Row):
    """The base with a part of the change."""

    graft: str
    energy: Share
    """Of the change's squared norm."""
    accuracy: Share
    difference: Points
    """From the trained model's, paired."""


class WeightsPart(Part):
    """What changed in the weights?"""

    matrices: tuple[MatrixRow, ...] = ()
    grafts: tuple[GraftRow, ...] = ()
    directions: tuple[float, ...] = ()
    """Accuracy of the base with each random change."""
    margin: Share = None

    @classmethod
    def measure(cls, work: Work) -> WeightsPart:
        """Measure it; see `Part.measure`."""
        from swerve.claim.grafts import WeightChange, random_part, tried_grafts

        settings, problems = work.settings, work.problems[: work.settings.some]
        change = WeightChange(*work.models, largest_rank=max(settings.ranks))
        parts, smallest = tried_grafts(change, settings.ranks, _PIECES), f"rank {min(settings.ranks)}"
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
                suffices(
                    base,
                    trained,
                    {rank: right[f"rank {rank}"] for rank in settings.ranks},
                    settings.margin,
                    names=[problem.id for problem in problems],
                ),
                *beyond(smallest, float(np.mean(right[smallest])), directions),
            ),
            matrices=tuple(measure_matrices(change)),
            grafts=tuple(rows),
            directions=tuple(directions),
            margin=settings.margin,
        )

    @classmethod
    def cost(cls, settings: ClaimSettings, num_problems: int, num_runs: int) -> Cost:
        """Return what it takes; see `Part.cost`."""
        # The base with each part of the change and each random one. Beside ranks and pieces of the layers a part is of
        # what is outside them, and one of the largest entries.
        num = len(settings.ranks) + _PIECES + 2 + settings.directions
        return Cost(samples=num * min(settings.some, num_problems))


def suffices(
    base: Sequence[bool],
    whole: Sequence[bool],
    parts: Mapping[int, Sequence[bool]],
    margin: float,
    *,
    names: Sequence[str] = (),
) -> ClaimVerdict:
    """Return the smallest rank that is shown to lose less accuracy than a margin, as every larger one.

    A whole change that is not itself shown to gain more than the margin has no part that suffices: nothing would, too.

    Args:
        base: whether each problem is right without the change.
        whole: the same with all of it.
        parts: the same with its part of a rank.
        margin: fixed before.
        names: of the problems, for the rows behind the line.
    """
    gain = mcnemar(base, whole).difference
    rank = smallest_sufficient(whole, parts, margin) if gain and gain.low > margin else None
    tried = rank or max(parts)
    of, lost = f"rank {tried}", mcnemar(whole, parts[tried]).difference
    assert gain
    assert lost
    # What is right with the part, with the whole change and without it.
    with_part, with_all, without = (percent_as(fmean(side), lost) for side in (parts[tried], whole, base))
    ends = f"{with_part} of greedy answers are right with it, {with_all} with all of the change and {without} without, "
    ends += points_interval(lost, " points")
    points = f"{100 * margin:g} points"
    said = f"{of} of the change loses less than {points}, as every larger rank tried: {ends}"
    sides = {"all of the change": whole, of: parts[tried], "base": base} if names and gain.low > margin else {}
    rows: dict[str, tuple[str | float, ...]] = {name: tuple(map(float, side)) for name, side in sides.items()}
    if rank is None and gain.low > margin:
        said = f"no rank up to {tried} is seen to lose less than {points}: of rank {tried} {ends}"
    elif rank is None:
        said = f"no part of the change can be told to suffice, as all of it is not seen to gain more than {points}: "
        said += (
            f"{with_all} of greedy answers are right with it and {without} without, {points_interval(gain, ' points')}"
        )
    return ClaimVerdict(
        claim="part_suffices",
        of=of,
        shown=rank is not None,
        sentence=f"Over {counted(len(whole), 'problem')} {said}.",
        estimate=lost,
        num=len(whole),
        rows={"problem": tuple(names), **rows} if rows else {},
    )


def beyond(part: str, accuracy: float, directions: Sequence[float]) -> tuple[ClaimVerdict, ...]:
    """Return whether a part does more than each random change of its size: the unit is the direction."""
    if not directions:
        return ()
    shown = above_random(accuracy, directions)
    null = f"{len(directions)} random changes of its size"
    said = (
        f"{part.capitalize()} of the change alone has {percent(accuracy)} of greedy answers right, the best of {null} "
    )
    said += percent(max(directions))
    if not shown:
        said += ". It is not above them" if accuracy <= max(directions) else ". These are too few to tell"
    return (
        ClaimVerdict(
            claim="part_beyond_its_size",
            of=part,
            shown=shown,
            sentence=f"{said}.",
            estimate=accuracy,
            num=len(directions),
            null=null,
        ),
    )


def measure_matrices(change: WeightChange) -> Iterator[MatrixRow]:
    """Yield how weights changed: all of them, those of a kind, and those of a layer."""
    import torch

    from swerve.claim.grafts import place_of

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
