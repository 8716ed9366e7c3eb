"""Divergence against the signal that training gave: does a token move where, and the way, it was pushed?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.probe_dynamics import ClippedTokens, SignalDirection, SignalSteps, SignalTokens, TrainingSignal
from swerve.estimates import Correlation, Estimate
from swerve.probe.engine.measured import Measurements, Pair
from swerve.probe.intervals import MOST, Array, Mask, TokenIntervals
from swerve.probe.rollouts.recorded import POPULATION
from swerve.statistics.association import spearman
from swerve.statistics.ratios import divided

_NUM_BINS = 8


def training_signals(
    data: Measurements,
    signals: Sequence[Mapping[str, Any]],
    *,
    steps: Mapping[str, int],
    divergence: str,
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
        noise: moves of at most this many nats count as none: most tokens are nearly certain, and the sign of what
            little they move is chance.

    Raises:
        ValueError: a token of the population has no row in `signals`.
    """
    part = data.select(lambda sequence: sequence.population == POPULATION)
    if not part.sequences:
        return ()
    tokens = _Tokens.of(part, signals)
    over = TokenIntervals(problems=tokens.problem, intervals=data.intervals)
    entries = []
    for pair in part.pairs():
        # A pair has seen the steps after its reference's, up to its checkpoint's.
        if pair.checkpoint in steps:
            moves = pair.moves
            exposure = _Exposure(
                tokens=tokens,
                over=over,
                divergence=pair.nats(divergence),
                most=MOST.get(divergence, math.inf),
                move=np.where(np.abs(moves) <= noise, 0.0, moves),
                seen=(tokens.step > steps.get(pair.reference, -1)) & (tokens.step <= steps[pair.checkpoint]),
            )
            entries.append(exposure.signal_of(pair))
    return tuple(entries)


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
        # Each token of the population has a row.
        by_token = {(row["sequence_id"], row["position"]): row for row in signals}
        keys = [(one.sequence_id, position) for one in data.sequences for position in one.sampled_positions]
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
class _Exposure:
    """Which tokens one pair has seen in training, and how it changed them."""

    tokens: _Tokens
    over: TokenIntervals
    divergence: Array
    most: float
    """Largest possible divergence."""
    move: Array
    seen: Mask

    @property
    def signal(self) -> Mask:
        """Tokens seen with an advantage other than 0."""
        return np.asarray(self.seen & self.tokens.used & (np.nan_to_num(self.tokens.advantage) != 0))

    @property
    def silent(self) -> Mask:
        """Tokens seen that no advantage pushed: of groups left out of the update, or with an advantage of 0."""
        return np.asarray(self.seen & (~self.tokens.used | (self.tokens.advantage == 0)))

    def signal_of(self, pair: Pair) -> TrainingSignal:
        """Return the entry of the summary."""
        tokens = self.tokens
        classes: dict[Literal["signal", "no_signal", "not_seen"], Mask] = {
            "signal": self.signal,
            "no_signal": self.silent,
            "not_seen": ~self.seen,
        }
        # Correlations are over the tokens of which training recorded the signal.
        trained_on = self.seen & tokens.used & np.isfinite(tokens.advantage)
        return TrainingSignal(
            checkpoint=pair.checkpoint,
            reference=pair.reference,
            num_rollouts_seen=len(np.unique(tokens.sequence[self.seen])),
            num_problems_seen=len(np.unique(tokens.problem[self.seen])),
            divergence={
                name: SignalTokens(
                    num_tokens=int(mask.sum()),
                    mean=self.over.skewed_mean(self.divergence, mask, most=self.most),
                    mean_abs_move=self.over.skewed_mean(np.abs(self.move), mask),
                )
                for name, mask in classes.items()
            },
            spill_over=self._ratio_of_means(self.silent, self.signal),
            advantage_correlation=self._correlation(np.abs(tokens.advantage), trained_on),
            kl_correlation=self._correlation(tokens.kl, self.seen & np.isfinite(tokens.kl)),
            direction=self._direction(self.signal),
            clipped=self._clipped(),
            by_step=self._by_step(),
        )

    def _correlation(self, signal: Array, mask: Mask) -> Correlation | None:
        """Return the rank correlation of the divergence with a signal over tokens; None where one is infinite."""
        if not np.isfinite(self.divergence[mask]).all():
            return None
        clusters, confidence = self.tokens.problem[mask], self.over.intervals.confidence
        return spearman(self.divergence[mask], signal[mask], clusters=clusters, confidence=confidence)

    def _ratio_of_means(self, above: Mask, below: Mask) -> Estimate | None:
        """Return the mean divergence of one class of tokens over that of another; None where one is infinite."""

        def ratio(sums: Array) -> Array:
            return divided(divided(sums[:, 0], sums[:, 1]), divided(sums[:, 2], sums[:, 3]))

        columns = [column for mask in (above, below) for column in (np.where(mask, self.divergence, 0.0), 1.0 * mask)]
        return self.over.statistic(ratio, columns, (0.0, math.inf))

    def _direction(self, mask: Mask) -> SignalDirection | None:
        """Return whether log-probabilities moved the way the advantages pushed; None where one is infinite."""
        if not mask.any() or not np.isfinite(self.move[mask]).all():
            return None
        # Every token that moved is in one of four cells: pushed up or down, rose or fell.
        move = np.where(mask, self.move, 0.0)
        pushed, rose = np.nan_to_num(self.tokens.advantage) > 0, move > 0
        up, down, moved = mask & pushed, mask & ~pushed, mask & (move != 0)
        cells = [1.0 * (moved & (pushed == push) & (rose == rise)) for push in (True, False) for rise in (True, False)]

        def above_chance(sums: Array) -> Array:
            agreement, chance = _agreement(sums)
            return agreement - chance

        chance = float(_agreement(np.array([[cell.sum() for cell in cells]]))[1][0])
        return SignalDirection(
            num_tokens=int(mask.sum()),
            num_moved=int(moved.sum()),
            agreement=self.over.share(pushed == rose, moved),
            chance=chance if math.isfinite(chance) else None,
            above_chance=self.over.statistic(above_chance, cells, (-1.0, 1.0)),
            mean_move_positive=self.over.mean(self.move, up),
            mean_move_negative=self.over.mean(self.move, down),
            difference=self.over.mean_difference(move, up, down),
        )

    def _clipped(self) -> ClippedTokens | None:
        """Return the share of the divergence that lies on tokens whose gradient was cut off at least once."""
        known = self.seen & np.isfinite(self.tokens.clipped)
        if not known.any():
            return None
        cut = (self.tokens.clipped > 0)[known]
        trained = TokenIntervals(problems=self.tokens.problem[known], intervals=self.over.intervals)
        return ClippedTokens(
            num_tokens=int(cut.sum()),
            share_of_tokens=trained.share_of(np.ones(len(cut)), cut),
            share_of_divergence=trained.share_of(self.divergence[known], cut),
        )

    def _by_step(self) -> tuple[SignalSteps, ...]:
        """Return divergence and direction for successive parts of the training, whether seen or yet to come."""
        steps = np.unique(self.tokens.step)
        entries = []
        for part in np.array_split(steps, min(_NUM_BINS, len(steps))) if len(steps) > 1 else ():
            here = np.isin(self.tokens.step, part)
            direction = self._direction(here & self.signal)
            entries.append(
                SignalSteps(
                    first_step=int(part[0]),
                    last_step=int(part[-1]),
                    share_seen=float(self.seen[here].mean()),
                    num_tokens=int(here.sum()),
                    mean=self.over.skewed_mean(self.divergence, here, most=self.most),
                    above_chance=direction.above_chance if direction else None,
                )
            )
        return tuple(entries)


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
