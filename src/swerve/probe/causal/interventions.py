"""Interventions: which tokens are forced at a rollout's highest spike and at its control positions.

At a position of a rollout the same prefix gets the token that the rollout has, the one that the checkpoint finds most
likely, or a third one. Control positions are matched to the spike, or random.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.probe_causes import Policy, SwapPositions
from swerve.artifacts.probe_findings import Divergence
from swerve.artifacts.responses import Response
from swerve.config.probe import CausalConfig
from swerve.probe.causal.continuations import Outcome, Prefix
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.spike_table import SpikeTable
from swerve.probe.findings.token_shares import token_regions
from swerve.seeds import derive_seed

Arm = Literal["reference", "checkpoint", "alternative"]


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
class Intervention:
    """The tokens forced at one position of one rollout, one an arm; who continues, and the outcome of each arm."""

    sequence: Response
    position: int
    selection: SwapPositions
    tokens: Mapping[Arm, int]
    spike: Response
    """The rollout whose spike this is, or is a control for; its problem is the unit of intervals."""
    policy: Policy = "reference"
    control: Control | None = None
    """Of matched positions; the control may be in another rollout."""
    outcomes: Mapping[Arm, Outcome] = field(default_factory=dict)
    """Empty until `run_interventions` has sampled the continuations."""

    def forced(self, arm: Arm) -> Prefix:
        """Return the completion up to and with an arm's token."""
        before = Prefix.of(self.sequence, self.position)
        return replace(before, completion_ids=(*before.completion_ids, self.tokens[arm]))

    def continued(self, drawn: Mapping[Arm, Outcome]) -> Intervention:
        """Return the intervention with further continuations of every arm."""
        known = self.outcomes
        return replace(self, outcomes={arm: known[arm].extended(new) if known else new for arm, new in drawn.items()})

    @property
    def same_token(self) -> bool:
        """Whether the checkpoint chooses the rollout's own token."""
        return self.tokens["checkpoint"] == self.tokens["reference"]

    def value(self, arm: Arm) -> float:
        """Return an arm's share of right continuations, without bias by when sampling stopped: for means."""
        return self.outcomes[arm].unbiased_value

    @property
    def effect(self) -> float:
        """Success with the checkpoint's token minus success with the rollout's own, without bias: for means."""
        return self.value("checkpoint") - self.value("reference")

    @property
    def squared_effect(self) -> float | None:
        """The effect in the even continuations times that in the odd ones: effect^2 on average, whatever the noise."""
        before, after = self.outcomes["reference"].half_values, self.outcomes["checkpoint"].half_values
        if before is None or after is None:
            return None
        return (after[0] - before[0]) * (after[1] - before[1])


def plan_interventions(
    data: Measurements,
    spikes: SpikeTable,
    *,
    checkpoint: str,
    divergence: Divergence,
    settings: CausalConfig,
    seed: int,
    top_ref: NDArray[np.integer] | None = None,
    others: Mapping[SwapPositions, Sequence[int | None]] | None = None,
) -> list[Intervention]:
    """Plan the top spike of each of the first rollouts, its controls and other positions, for every policy.

    A rollout of a single token has no random control; a spike without a position that is no spike and near enough in
    the reference's entropy (`ControlPool.matched`) has no matched one. A position where the reference's top tokens are
    all the rollout's or the checkpoint's has no `alternative` arm.

    Args:
        data: the measurements of the rollouts.
        spikes: those of the same rollouts.
        checkpoint: whose choices are forced.
        divergence: whose highest values are the top spikes.
        settings: rollouts, controls, arms and policies.
        seed: of the random positions.
        top_ref: `[N, K]`, the reference's most likely tokens everywhere, likeliest first; for `alternative`.
        others: further positions, by what they are called: one of each rollout; None: it has none.

    Raises:
        ValueError: the settings ask for the alternative arm without `top_ref`.
    """
    if settings.alternative and top_ref is None:
        raise ValueError("the alternative arm needs top_ref, the reference's top tokens; or set alternative to false")
    # All arrays are by position, the rollouts one after the other.
    sequences, pair = data.sequences[: settings.max_rollouts], data.pair(checkpoint)
    num = int(data.lengths[: len(sequences)].sum())
    starts, tops = data.starts.tolist(), spikes.tops[checkpoint, divergence]
    own, choices = data.token_ids[:num], pair.columns["argmax"][:num]
    pool = None
    if "matched" in settings.controls:
        pool = ControlPool.of(
            lengths=data.lengths[: len(sequences)].tolist(),
            categories=data.categories[:num],
            entropy=pair.nats("entropy_ref")[:num],
            is_spike=spikes.mask(checkpoint, divergence)[:num],
            tops=tops[: len(sequences)],
            differs=choices != own,
        )
    planned: list[Intervention] = []

    def add(
        selection: SwapPositions, spike: Response, index: int, position: int, control: Control | None = None
    ) -> None:
        place = starts[index] + position
        likely = top_ref[place].tolist() if settings.alternative and top_ref is not None else ()
        planned.append(
            Intervention(
                sequence=sequences[index],
                position=position,
                selection=selection,
                tokens=arm_tokens(int(own[place]), int(choices[place]), likely),
                spike=spike,
                control=control,
            )
        )

    # A control that one spike has is no other's.
    taken: set[tuple[int, int]] = set()
    num_random = settings.num_random if "random" in settings.controls else 0
    for index, sequence in enumerate(sequences):
        top, problem, length = tops[index], sequence.problem.id, len(sequence.completion_ids)
        add("spike", sequence, index, top)
        control = None if pool is None else pool.matched(index, top, taken=taken)
        if control is not None:
            taken.add((control.index, control.position))
            add("matched", sequence, control.index, control.position, control)
        for drawn in random_positions(length, top=top, seed=seed, problem_id=problem, num=num_random):
            add("random", sequence, index, drawn)
        for name, positions in (others or {}).items():
            position = positions[index]
            if position is not None:
                add(name, sequence, index, position)
    return [replace(item, policy=policy) for policy in settings.policies for item in planned]


def arm_tokens(own: int, choice: int, likely: Sequence[int]) -> dict[Arm, int]:
    """Return the token of each arm; the alternative is the likeliest one that is neither model's choice, if any is.

    >>> arm_tokens(7, 3, [3, 7, 5])
    {'reference': 7, 'checkpoint': 3, 'alternative': 5}
    """
    others: list[dict[Arm, int]] = [{"alternative": int(token)} for token in likely if token not in (own, choice)]
    return {"reference": own, "checkpoint": choice, **(others[0] if others else {})}


def random_positions(length: int, *, top: int, seed: int, problem_id: str, num: int = 1) -> list[int]:
    """Return `num` different positions other than `top`, drawn uniformly; all others where there are fewer."""
    others = [position for position in range(length) if position != top]
    rng = np.random.default_rng(derive_seed(seed, "probe", "random_position", problem_id))
    drawn: list[int] = []
    for _ in range(min(num, len(others))):
        drawn.append(others.pop(int(rng.integers(len(others)))))
    return drawn


_CALIPER = 0.2  # standard deviations

_LEAST_CALIPER = 0.05  # nats


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
        lengths: Sequence[int],
        categories: Sequence[str],
        entropy: NDArray[np.float64],
        is_spike: NDArray[np.bool_],
        tops: Sequence[int],
        differs: NDArray[np.bool_],
    ) -> ControlPool:
        """Lay the rollouts' positions side by side.

        The caliper is 0.2 standard deviations of the entropy, pooled over spikes and free positions: with it matching
        takes out 98% and more of the difference a confounder makes (Cochran and Rubin, Sankhya A 35 (1973); Austin,
        Pharmaceutical Statistics 10 (2011)). It is 0.05 nats at least, at which the likeliest of two tokens has 99%.

        Args:
            lengths: of the rollouts, one or more.
            categories: of every position, as are all but `tops`.
            entropy: the reference's, in nats.
            is_spike: whether it is a spike.
            tops: position of the highest divergence of each rollout.
            differs: whether the checkpoint chooses another token than the rollout's own.
        """
        highest = np.cumsum([0, *lengths[:-1]]) + np.array(tops, dtype=np.int64)
        free = ~is_spike
        free[highest] = False
        # Spread of the entropy, pooled over both kinds of position.
        caliper = _LEAST_CALIPER
        if free.any():
            spread = float(np.sqrt((entropy[highest].var() + entropy[free].var()) / 2))
            caliper = max(caliper, _CALIPER * spread)
        return cls(
            rollout=np.repeat(np.arange(len(lengths)), lengths),
            position=np.concatenate([np.arange(length) for length in lengths]),
            third=token_regions(lengths),
            category=np.array(categories, dtype=np.str_),
            entropy=entropy,
            free=free,
            differs=differs,
            caliper=caliper,
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
        # The candidates: free, near enough in entropy, nobody else's, and where something is swapped if possible.
        gaps = np.abs(self.entropy - self.entropy[own])
        near = self.free & (gaps <= self.caliper)
        near[own] = False
        for rollout, at in taken:
            near &= (self.rollout != rollout) | (self.position != at)
        if (near & self.differs).any():
            near &= self.differs
        # The first kind of likeness that any candidate has decides; of those the nearest is taken.
        same = {name: getattr(self, name) == getattr(self, name)[own] for name in ("category", "third", "rollout")}
        for names in _TIERS:
            candidates = np.flatnonzero(np.logical_and.reduce([near, *(same[name] for name in names)]))
            if len(candidates):
                chosen = int(candidates[np.argmin(gaps[candidates])])
                return Control(
                    index=int(self.rollout[chosen]),
                    position=int(self.position[chosen]),
                    same_rollout=bool(same["rollout"][chosen]),
                    same_category=bool(same["category"][chosen]),
                    same_third=bool(same["third"][chosen]),
                    entropy_gap=float(gaps[chosen]),
                )
        return None


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
