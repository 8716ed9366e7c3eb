"""Divergence against the signal that training gave: does a token move where, and the way, it was pushed?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.probe_dynamics import ClippedTokens, SignalDirection, SignalSteps, SignalTokens, TrainingSignal
from swerve.estimates import Correlation, Estimate, SkewedMean
from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.parts import Intervals
from swerve.probe.rollouts.recorded import POPULATION
from swerve.statistics.association import spearman
from swerve.statistics.intervals import divided, statistic_interval
from swerve.statistics.jackknife import UNBOUNDED, Bounds

Array = NDArray[np.float64]

Mask = NDArray[np.bool_]

_NUM_BINS = 8


def training_signals(
    data: Measurements,
    signals: Sequence[Mapping[str, Any]],
    *,
    steps: Mapping[str, int],
    divergence: str,
    intervals: Intervals,
    noise: float = 0.01,
) -> tuple[TrainingSignal, ...]:
    """Return, for each pair of checkpoint and reference, how its divergence goes with the recorded training signal.

    A pair has *seen* the tokens of the steps after its reference's up to its checkpoint's. Of these a token *has a
    signal* if an update used it with an advantage other than 0. The move of a token is `logprob - logprob_ref`,
    nats. Agreement is the share of tokens with the sign of their advantage among those with a signal that moved, and
    chance the agreement that the shares of rises and of positive advantages give by themselves:

        chance = P(rise) P(A > 0) + P(fall) P(A < 0)

    Intervals are over problems. Tokens without a signal show how far training spills over, with a reservation:
    groups are left out of an update where all completions agree, so their problems are easier, or harder, than others.

    Args:
        data: measurements; only sequences of the population `training` are read.
        signals: rows of `signals.parquet`, one for each of their tokens.
        steps: global step of each checkpoint of the stage by label; pairs with other checkpoints are left out.
        divergence: `kl_forward`, `kl_reverse` or `js`.
        intervals: how intervals are made.
        noise: moves of at most this many nats count as none: most tokens are nearly certain, and the sign of what
            little they move is chance.

    Raises:
        ValueError: a token of the population has no row in `signals`.
    """
    part = data.select(lambda sequence: sequence.population == POPULATION)
    if not part.sequences:
        return ()
    tokens = _Tokens.of(part, signals)
    found = []
    for index, (label, reference) in enumerate(zip(part.checkpoints, part.references, strict=True)):
        if label in steps:
            move = part.columns["logprob"][index].astype(np.float64) - part.columns["logprob_ref"][index]
            pair = _Pair(
                tokens=tokens,
                divergence=part.columns[divergence][index].astype(np.float64),
                move=np.where(np.abs(move) <= noise, 0.0, move),
                seen=(tokens.step > steps.get(reference, -1)) & (tokens.step <= steps[label]),
                how=intervals,
            )
            found.append(pair.signal_of(label, reference))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tokens:
    """The signal at each of N tokens; NaN where training recorded nothing."""

    problem: NDArray[np.int64]
    """Index of the token's problem."""
    sequence: NDArray[np.int64]
    step: NDArray[np.int64]
    advantage: Array
    clipped: Array
    kl: Array
    used: Mask

    @classmethod
    def of(cls, data: Measurements, signals: Sequence[Mapping[str, Any]]) -> _Tokens:
        by_token = {(row["sequence_id"], row["position"]): row for row in signals}
        keys = [(one.sequence_id, position) for one in data.sequences for position in range(len(one.completion_ids))]
        missing = sum(key not in by_token for key in keys)
        if missing:
            raise ValueError(
                f"{missing} of {len(keys)} tokens of the population 'training' have no row in the signals; "
                "give the rows that were read with these rollouts"
            )
        rows = [by_token[key] for key in keys]

        def column(name: str) -> Array:
            return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)

        return cls(
            problem=np.unique(data.problem_ids, return_inverse=True)[1].astype(np.int64),
            sequence=data.sequence_index,
            step=np.array([row["step"] for row in rows], dtype=np.int64),
            advantage=column("advantage"),
            clipped=column("clipped"),
            kl=column("kl"),
            used=np.array([bool(row["used"]) for row in rows]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """One checkpoint against its reference."""

    tokens: _Tokens
    divergence: Array
    move: Array
    seen: Mask
    how: Intervals

    @property
    def signal(self) -> Mask:
        """Tokens seen with an advantage other than 0."""
        found: Mask = self.seen & self.tokens.used & (np.nan_to_num(self.tokens.advantage) != 0)
        return found

    @property
    def silent(self) -> Mask:
        """Tokens seen that no advantage pushed: of groups left out of the update, or with an advantage of 0."""
        found: Mask = self.seen & (~self.tokens.used | (self.tokens.advantage == 0))
        return found

    def signal_of(self, checkpoint: str, reference: str) -> TrainingSignal:
        tokens = self.tokens
        trained_on = self.seen & tokens.used & np.isfinite(tokens.advantage)
        return TrainingSignal(
            checkpoint=checkpoint,
            reference=reference,
            num_rollouts_seen=len(np.unique(tokens.sequence[self.seen])),
            num_problems_seen=len(np.unique(tokens.problem[self.seen])),
            divergence={
                "signal": self._class(self.signal),
                "no_signal": self._class(self.silent),
                "not_seen": self._class(~self.seen),
            },
            spill_over=self._ratio_of_means(self.silent, self.signal),
            advantage_correlation=self._correlation(np.abs(tokens.advantage), trained_on),
            kl_correlation=self._correlation(tokens.kl, self.seen & np.isfinite(tokens.kl)),
            direction=self._direction(self.signal),
            clipped=self._clipped(),
            by_step=self._by_step(),
        )

    def _class(self, mask: Mask) -> SignalTokens:
        """Return how much tokens of one class diverge and move."""
        return SignalTokens(
            num_tokens=int(mask.sum()),
            mean=self._skewed_mean(self.divergence, mask),
            mean_abs_move=self._skewed_mean(np.abs(self.move), mask),
        )

    def _mean(self, values: Array, mask: Mask) -> Estimate | None:
        """Return the mean over one class of tokens; None of nothing, and where a value is infinite."""
        return self.how.mean(values[mask], self.tokens.problem[mask])

    def _skewed_mean(self, values: Array, mask: Mask) -> SkewedMean | None:
        return self.how.skewed_mean(values[mask], self.tokens.problem[mask])

    def _correlation(self, signal: Array, mask: Mask) -> Correlation | None:
        """Return the rank correlation of the divergence with a signal over tokens; None where one is infinite."""
        if not np.isfinite(self.divergence[mask]).all():
            return None
        return spearman(
            self.divergence[mask],
            signal[mask],
            clusters=self.tokens.problem[mask],
            confidence=self.how.confidence,
        )

    def _statistic(
        self, function: Callable[[Array], Array], columns: Sequence[NDArray[Any]], bounds: Bounds = UNBOUNDED
    ) -> Estimate | None:
        return statistic_interval(
            function, columns, clusters=self.tokens.problem, confidence=self.how.confidence, bounds=bounds
        )

    def _ratio_of_means(self, above: Mask, below: Mask) -> Estimate | None:
        """Return the mean divergence of one class of tokens over that of another; None where one is infinite."""
        if not np.isfinite(self.divergence[above | below]).all():
            return None
        finite = np.where(above | below, self.divergence, 0.0)

        def ratio(sums: Array) -> Array:
            return divided(divided(sums[:, 0], sums[:, 1]), divided(sums[:, 2], sums[:, 3]))

        return self._statistic(ratio, (finite * above, 1.0 * above, finite * below, 1.0 * below), (0.0, math.inf))

    def _direction(self, mask: Mask) -> SignalDirection | None:
        """Return whether log-probabilities moved the way the advantages pushed; None where one is infinite."""
        if not mask.any() or not np.isfinite(self.move[mask]).all():
            return None
        move = np.where(mask, self.move, 0.0)
        pushed, rose = np.nan_to_num(self.tokens.advantage) > 0, move > 0
        up, down, moved = mask & pushed, mask & ~pushed, mask & (move != 0)
        cells = [1.0 * (moved & (pushed == push) & (rose == rise)) for push in (True, False) for rise in (True, False)]

        def above_chance(sums: Array) -> Array:
            agreement, chance = _agreement(sums)
            return agreement - chance

        def difference(sums: Array) -> Array:
            return divided(sums[:, 0], sums[:, 1]) - divided(sums[:, 2], sums[:, 3])

        chance = float(_agreement(np.array([[cell.sum() for cell in cells]]))[1][0])
        return SignalDirection(
            num_tokens=int(mask.sum()),
            num_moved=int(moved.sum()),
            agreement=self.how.share((pushed == rose)[moved], self.tokens.problem[moved]),
            chance=chance if math.isfinite(chance) else None,
            above_chance=self._statistic(above_chance, cells, (-1.0, 1.0)),
            mean_move_positive=self._mean(self.move, up),
            mean_move_negative=self._mean(self.move, down),
            difference=self._statistic(
                difference, (np.where(up, move, 0.0), 1.0 * up, np.where(down, move, 0.0), 1.0 * down)
            ),
        )

    def _clipped(self) -> ClippedTokens | None:
        """Return the share of the divergence that lies on tokens whose gradient was cut off at least once."""
        known = self.seen & np.isfinite(self.tokens.clipped)
        if not known.any():
            return None
        cut, problems = (self.tokens.clipped > 0)[known], self.tokens.problem[known]
        divergence = self.divergence[known]
        return ClippedTokens(
            num_tokens=int(cut.sum()),
            share_of_tokens=self.how.ratio(cut * 1.0, np.ones(len(cut)), problems),
            share_of_divergence=self.how.ratio(np.where(cut, divergence, 0.0), divergence, problems),
        )

    def _by_step(self) -> tuple[SignalSteps, ...]:
        """Return divergence and direction for successive parts of the training, whether seen or yet to come."""
        steps = np.unique(self.tokens.step)
        found = []
        for part in np.array_split(steps, min(_NUM_BINS, len(steps))) if len(steps) > 1 else ():
            here = np.isin(self.tokens.step, part)
            direction = self._direction(here & self.signal)
            found.append(
                SignalSteps(
                    first_step=int(part[0]),
                    last_step=int(part[-1]),
                    share_seen=float(self.seen[here].mean()),
                    num_tokens=int(here.sum()),
                    mean=self._skewed_mean(self.divergence, here),
                    above_chance=None if direction is None else direction.above_chance,
                )
            )
        return tuple(found)


def _agreement(cells: Array) -> tuple[Array, Array]:
    """Return the agreement of signs and what chance gives, from `[R, 4]` numbers of tokens by push and move.

    >>> agreement, chance = _agreement(np.array([[30.0, 10.0, 20.0, 40.0]]))  # up: 30 rose, 10 fell; down: 20, 40
    >>> agreement.tolist(), chance.tolist()
    ([0.7], [0.5])
    """
    up_rose, up_fell, down_rose, down_fell = cells.T
    number = cells.sum(axis=1)
    rose, up = divided(up_rose + down_rose, number), divided(up_rose + up_fell, number)
    return divided(up_rose + down_fell, number), rose * up + (1 - rose) * (1 - up)
