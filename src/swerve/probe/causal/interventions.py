"""Interventions: which tokens are forced at a rollout's highest spike and at its control positions.

At a position of a rollout the same prefix gets the token that the rollout has, the one that the checkpoint finds most
likely, or a third one. Control positions are matched to the spike, or random.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.probe_causes import SwapPositions
from swerve.config import CausalConfig
from swerve.probe.causal.continuations import Prefix
from swerve.probe.rollouts.population import ProbeSequence
from swerve.seeds import derive_seed

Arm = Literal["reference", "checkpoint", "alternative"]

Policy = Literal["reference", "checkpoint"]

Place = tuple[Policy, SwapPositions, int, int]
"""Policy, selection, rollout of the spike, position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Whose control a matched position is, and in what it resembles the spike."""

    sequence_id: int
    """Of the rollout with the spike; the control may be in another."""
    problem_id: str
    same_rollout: bool
    same_category: bool
    same_third: bool
    entropy_gap: float
    """Under the reference, in nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """One token forced at one position of one rollout, and who continues."""

    sequence: ProbeSequence
    position: int
    selection: SwapPositions
    arm: Arm
    token_id: int
    policy: Policy = "reference"
    match: Match | None = None
    """Of matched positions."""

    @property
    def forced(self) -> Prefix:
        """The completion up to and with the forced token."""
        before = Prefix.of(self.sequence, self.position)
        return replace(before, completion_ids=(*before.completion_ids, self.token_id))

    @property
    def spike_sequence_id(self) -> int:
        """The rollout whose spike this is, or is a control for."""
        return self.match.sequence_id if self.match else self.sequence.sequence_id

    @property
    def spike_problem_id(self) -> str:
        """The problem of that rollout: the unit of intervals."""
        return self.match.problem_id if self.match else self.sequence.problem.id

    @property
    def place(self) -> Place:
        """What the arms of one position have in common, and no other position has."""
        return self.policy, self.selection, self.spike_sequence_id, self.position


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    sequence: ProbeSequence
    index: int
    position: int
    selection: SwapPositions
    match: Match | None = None


def plan_interventions(
    sequences: Sequence[ProbeSequence],
    *,
    settings: CausalConfig,
    tops: Sequence[int],
    argmax: Sequence[Sequence[int]],
    seed: int,
    top_ref: Sequence[Sequence[Sequence[int]]] | None = None,
    spikes: Sequence[Collection[int]] | None = None,
    categories: Sequence[Sequence[str]] | None = None,
    entropy_ref: Sequence[Sequence[float]] | None = None,
    others: Mapping[SwapPositions, Sequence[int | None]] | None = None,
) -> list[Intervention]:
    """Return the arms at each rollout's top spike, its controls and other positions, for every policy of the settings.

    A rollout of a single token has no random control; a spike without a position that is no spike and near enough in
    the reference's entropy (`ControlPool.matched`) has no matched one. A position where the reference's top tokens are
    all the rollout's or the checkpoint's has no `alternative` arm.

    Args:
        sequences: the rollouts.
        settings: controls, arms and policies.
        tops: position of the highest divergence of each.
        argmax: the checkpoint's most likely token at every position of each.
        seed: of the random positions.
        top_ref: the reference's most likely tokens at every position of each, likeliest first; for `alternative`.
        spikes: positions of the spikes of each; for matched controls, as are the next two.
        categories: category of every token of each.
        entropy_ref: the reference's entropy at every position of each, in nats.
        others: further positions, by what they are called: one of each rollout; None: it has none.

    Raises:
        ValueError: the settings ask for what the arguments do not give, or these differ in length.
    """
    if settings.alternative and top_ref is None:
        raise ValueError("the alternative arm needs top_ref, the reference's top tokens; or set alternative to false")
    pool = None
    if "matched" in settings.controls:
        if spikes is None or categories is None or entropy_ref is None:
            raise ValueError("matched controls need spikes, categories and entropy_ref; or leave 'matched' out")
        differs = [
            [int(choice) != own for choice, own in zip(choices, one.completion_ids, strict=True)]
            for one, choices in zip(sequences, argmax, strict=True)
        ]
        pool = ControlPool.of(categories=categories, entropy_ref=entropy_ref, spikes=spikes, tops=tops, differs=differs)
    places: list[_Place] = []
    for index, top in enumerate(tops):
        places += _places(sequences, index, int(top), settings, pool, seed, places)
        for name, positions in (others or {}).items():
            position = positions[index]
            if position is not None:
                places.append(_Place(sequence=sequences[index], index=index, position=position, selection=name))
    planned: list[Intervention] = []
    for policy in settings.policies:
        for place in places:
            choice = int(argmax[place.index][place.position])
            likely = top_ref[place.index][place.position] if settings.alternative and top_ref is not None else ()
            planned += _arms(place, policy, choice, likely)
    return planned


def _places(
    sequences: Sequence[ProbeSequence],
    index: int,
    top: int,
    settings: CausalConfig,
    pool: ControlPool | None,
    seed: int,
    before: Sequence[_Place],
) -> list[_Place]:
    """Return the spike of one rollout and its controls, given the places of the rollouts before it."""
    own = sequences[index]
    found = [_Place(sequence=own, index=index, position=top, selection="spike")]
    taken = {(one.index, one.position) for one in before if one.match is not None}
    control = pool.matched(index, top, taken=taken) if pool is not None else None
    if control is not None:
        match = Match(
            sequence_id=own.sequence_id,
            problem_id=own.problem.id,
            same_rollout=control.same_rollout,
            same_category=control.same_category,
            same_third=control.same_third,
            entropy_gap=control.entropy_gap,
        )
        other = sequences[control.index]
        found.append(
            _Place(sequence=other, index=control.index, position=control.position, selection="matched", match=match)
        )
    if "random" in settings.controls:
        drawn = random_positions(
            len(own.completion_ids), top=top, seed=seed, problem_id=own.problem.id, num=settings.num_random
        )
        found += [_Place(sequence=own, index=index, position=position, selection="random") for position in drawn]
    return found


def _arms(place: _Place, policy: Policy, choice: int, likely: Sequence[int]) -> list[Intervention]:
    own = place.sequence.completion_ids[place.position]
    tokens: dict[Arm, int] = {"reference": own, "checkpoint": choice}
    others = [int(token) for token in likely if token not in (own, choice)]
    if others:
        tokens["alternative"] = others[0]
    return [
        Intervention(
            sequence=place.sequence,
            position=place.position,
            selection=place.selection,
            arm=arm,
            token_id=token,
            policy=policy,
            match=place.match,
        )
        for arm, token in tokens.items()
    ]


def third(position: int, length: int) -> int:
    """Return which third of a completion a position is in: 0 early, 1 middle, 2 late; exact thirds.

    >>> [third(position, 7) for position in range(7)]
    [0, 0, 0, 1, 1, 2, 2]
    """
    return 3 * position // length


def random_positions(length: int, *, top: int, seed: int, problem_id: str, num: int = 1) -> list[int]:
    """Return `num` different positions other than `top`, drawn uniformly; all others where there are fewer."""
    others = [position for position in range(length) if position != top]
    rng = np.random.default_rng(derive_seed(seed, "probe", "random_position", problem_id))
    drawn: list[int] = []
    for _ in range(min(num, len(others))):
        drawn.append(others.pop(int(rng.integers(len(others)))))
    return drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A position that resembles a spike, and in what."""

    index: int
    """Of its rollout, among those of the pool."""
    position: int
    same_rollout: bool
    same_category: bool
    same_third: bool
    entropy_gap: float
    """|entropy at the control - entropy at the spike| under the reference, in nats."""


_CALIPER = 0.2  # standard deviations

_LEAST_CALIPER = 0.05  # nats


def _caliper(spikes: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    if not spikes.size or not others.size:
        return _LEAST_CALIPER
    return max(_LEAST_CALIPER, _CALIPER * float(np.sqrt((spikes.var() + others.var()) / 2)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPool:
    """All positions of all rollouts that are no spike."""

    rollout: NDArray[np.int64]
    """`[N]`: index of the rollout of each position; all arrays are by position."""
    position: NDArray[np.int64]
    third: NDArray[np.int64]
    category: NDArray[Any]
    entropy: NDArray[np.float64]
    free: NDArray[np.bool_]
    """No spike, nor the highest divergence of its rollout."""
    differs: NDArray[np.bool_]
    """The checkpoint chooses another token than the rollout's own."""
    caliper: float
    """Largest gap of the reference's entropy between a spike and its control, in nats."""

    @classmethod
    def of(
        cls,
        *,
        categories: Sequence[Sequence[str]],
        entropy_ref: Sequence[Sequence[float]],
        spikes: Sequence[Collection[int]],
        tops: Sequence[int],
        differs: Sequence[Sequence[bool]],
    ) -> ControlPool:
        """Lay the rollouts' positions side by side.

        The caliper is 0.2 standard deviations of the entropy, pooled over spikes and free positions: with it matching
        takes out 98% and more of the difference a confounder makes (Cochran and Rubin, Sankhya A 35 (1973); Austin,
        Pharmaceutical Statistics 10 (2011)). It is 0.05 nats at least, at which the likeliest of two tokens has 99%.

        Args:
            categories: category of every token of each rollout.
            entropy_ref: the reference's entropy at each, in nats.
            spikes: positions of each rollout's spikes.
            tops: position of the highest divergence of each.
            differs: whether the checkpoint chooses another token than the rollout's own, at every position of each.

        Raises:
            ValueError: the arguments are not of the same rollouts, or differ in length.
        """
        lengths = [len(row) for row in categories]
        same = all(lengths == [len(row) for row in rows] for rows in (entropy_ref, differs))
        if not same or not len(lengths) == len(spikes) == len(tops):
            raise ValueError(
                "categories, entropies, choices, spikes and tops must be of the same rollouts, position by position"
            )
        places = [(index, position) for index, length in enumerate(lengths) for position in range(length)]
        taken = {(index, int(spike)) for index, found in enumerate(spikes) for spike in found}
        taken |= {(index, int(top)) for index, top in enumerate(tops)}
        free = np.array([place not in taken for place in places], dtype=np.bool_)
        entropy = np.array([value for row in entropy_ref for value in row], dtype=np.float64)
        highest = np.array([row[int(top)] for row, top in zip(entropy_ref, tops, strict=True)], dtype=np.float64)
        return cls(
            rollout=np.array([index for index, _ in places], dtype=np.int64),
            position=np.array([position for _, position in places], dtype=np.int64),
            third=np.array([third(position, lengths[index]) for index, position in places], dtype=np.int64),
            category=np.array([name for row in categories for name in row], dtype=np.str_),
            entropy=entropy,
            free=free,
            differs=np.array([mark for row in differs for mark in row], dtype=np.bool_),
            caliper=_caliper(highest, entropy[free]),
        )

    def matched(self, index: int, position: int, *, taken: Collection[tuple[int, int]] = ()) -> Control | None:
        """Return the free position most like position `position` of rollout `index`; None where none is near enough.

        How undecided the reference is decides how much a token can do, so the entropy comes first: only positions
        within the caliper are candidates. Of these the ones at which the checkpoint chooses another token than the
        rollout's own, if there are any: at the others nothing is swapped. Then category and third of the completion
        come before the rollout, that before either of the two alone: positions are looked for that agree in (category,
        third, rollout), else (category, third), (category, rollout), (category), (third, rollout), (third), (rollout),
        and at last any; of those the nearest in entropy, of equally near ones the first.

        A control stands for one spike: were it another's too, their effects would be one measurement counted as two,
        and intervals over problems too narrow.

        Args:
            index: rollout of the spike.
            position: the spike.
            taken: (rollout, position) of the controls of other spikes.
        """
        own = int(np.flatnonzero((self.rollout == index) & (self.position == position))[0])
        near = self.free & (np.abs(self.entropy - self.entropy[own]) <= self.caliper)
        near[own] = False
        for rollout, at in taken:
            near &= (self.rollout != rollout) | (self.position != at)
        if (near & self.differs).any():
            near &= self.differs
        same = {name: getattr(self, name) == getattr(self, name)[own] for name in ("category", "third", "rollout")}
        for names in _TIERS:
            candidates = near.copy()
            for name in names:
                candidates &= same[name]
            if candidates.any():
                return self._nearest(np.flatnonzero(candidates), own, same)
        return None

    def _nearest(self, candidates: NDArray[np.int64], own: int, same: dict[str, NDArray[np.bool_]]) -> Control:
        gaps = np.abs(self.entropy[candidates] - self.entropy[own])
        chosen = int(candidates[int(np.argmin(gaps))])
        return Control(
            index=int(self.rollout[chosen]),
            position=int(self.position[chosen]),
            same_rollout=bool(same["rollout"][chosen]),
            same_category=bool(same["category"][chosen]),
            same_third=bool(same["third"][chosen]),
            entropy_gap=float(gaps.min()),
        )


_TIERS = (
    ("category", "third", "rollout"),
    ("category", "third"),
    ("category", "rollout"),
    ("category",),
    ("third", "rollout"),
    ("third",),
    ("rollout",),
    (),
)
