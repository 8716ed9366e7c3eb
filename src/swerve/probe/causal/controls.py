"""Control positions: what a spike is compared with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.seeds import derive_seed

__all__ = ["Control", "ControlPool", "random_positions", "third"]


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

    @classmethod
    def of(
        cls,
        *,
        categories: Sequence[Sequence[str]],
        entropy_ref: Sequence[Sequence[float]],
        spikes: Sequence[Collection[int]],
        tops: Sequence[int],
    ) -> ControlPool:
        """Lay the rollouts' positions side by side.

        Args:
            categories: category of every token of each rollout.
            entropy_ref: the reference's entropy at each, in nats.
            spikes: positions of each rollout's spikes.
            tops: position of the highest divergence of each.

        Raises:
            ValueError: the arguments are not of the same rollouts, or differ in length.
        """
        lengths = [len(row) for row in categories]
        if lengths != [len(row) for row in entropy_ref] or not len(lengths) == len(spikes) == len(tops):
            raise ValueError(
                "categories, entropies, spikes and tops must be of the same rollouts, position by position"
            )
        places = [(index, position) for index, length in enumerate(lengths) for position in range(length)]
        taken = {(index, int(spike)) for index, found in enumerate(spikes) for spike in found}
        taken |= {(index, int(top)) for index, top in enumerate(tops)}
        return cls(
            rollout=np.array([index for index, _ in places], dtype=np.int64),
            position=np.array([position for _, position in places], dtype=np.int64),
            third=np.array([third(position, lengths[index]) for index, position in places], dtype=np.int64),
            category=np.array([name for row in categories for name in row], dtype=np.str_),
            entropy=np.array([value for row in entropy_ref for value in row], dtype=np.float64),
            free=np.array([place not in taken for place in places], dtype=np.bool_),
        )

    def matched(self, index: int, position: int) -> Control | None:
        """Return the free position most like position `position` of rollout `index`; None where none is free.

        Category and third of the completion come before the rollout, that before either of the two alone: positions are
        looked for that agree in (category, third, rollout), else (category, third), (category, rollout), (category),
        (third, rollout), (third), (rollout), and at last anywhere; of those the nearest in the reference's entropy, of
        equally near ones the first.
        """
        own = int(np.flatnonzero((self.rollout == index) & (self.position == position))[0])
        same = {name: getattr(self, name) == getattr(self, name)[own] for name in ("category", "third", "rollout")}
        for names in _TIERS:
            candidates = self.free.copy()
            candidates[own] = False
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
