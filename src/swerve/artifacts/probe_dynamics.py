"""How a probe's findings relate to training and to right answers, as typed records of `probe/summary.json`.

A field that is None was not asked for or cannot be measured; moves are differences of log-probabilities in nats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from swerve.artifacts.probe_findings import Divergence
from swerve.artifacts.record import Record
from swerve.estimates import Correlation, Estimate, SkewedMean, WilcoxonResult


class OnsetStep(Record):
    """Tokens whose log-probability left the reference for good at one checkpoint."""

    step: int
    num_tokens: int


class JumpStep(Record):
    """Tokens whose log-probability jumped at one step."""

    step: int
    num_tokens: int
    median_size: float
    """Nats."""


class JumpCounts(Record):
    """Tokens that two levels explain better than a line; descriptive: many walks and smooth curves look like it too."""

    num_tokens: int
    share: Estimate | None
    """Of the tokens that moved."""
    by_step: tuple[JumpStep, ...]


class TokenBiographies(Record):
    """What became of some tokens' log-probabilities over the checkpoints."""

    num_tokens: int
    num_moved: int
    """Tokens that left the reference for good; what follows is about them."""
    share_moved: Estimate | None
    onset_steps: tuple[OnsetStep, ...]
    share_reversed: Estimate | None
    mean_reversals: Estimate | None
    median_linearity: float | None
    """R^2 of a straight line in training steps."""
    jumps: JumpCounts | None
    """Null with fewer than 4 points."""


class BiographySummary(Record):
    """Biographies of all tokens, of wrong steps and of the others beside them."""

    checkpoints: tuple[str, ...]
    steps: tuple[int, ...]
    threshold: float
    """A token has left the reference while its log-probability differs by more (nats)."""
    noise: float
    """Changes up to this size (nats) are noise."""
    tokens: Mapping[Literal["all", "wrong_steps", "others"], TokenBiographies]
    wrong_above_others: Estimate | None
    """`share_moved` of wrong steps minus that of the others."""


class WrongStepMoves(Record):
    """Moves on tokens known to be wrong, against the other tokens of the same rollouts."""

    num_rollouts: int
    num_tokens: int
    mean_move: Estimate | None
    mean_move_others: Estimate | None
    difference: Estimate | None
    wilcoxon: WilcoxonResult | None
    num_expected: int
    """Wrong steps for which the right token is known."""
    share_expected: Estimate | None
    """Fraction of these at which the checkpoint's most likely token is the right one."""
    share_expected_ref: Estimate | None
    """The reference's."""


class Direction(Record):
    """Whether training moved probability towards right rollouts, for one writer and checkpoint; moves in nats."""

    checkpoint: str
    source: str
    divergence: Divergence
    num_right: int
    num_wrong: int
    share_good: Estimate | None
    """Fraction of the divergence on tokens with a good move: up in right rollouts, down in wrong ones."""
    share_good_tokens: Estimate | None
    """Fraction of the tokens with a good move."""
    mean_move_right: Estimate | None
    mean_move_wrong: Estimate | None
    difference: Estimate | None
    """The first minus the second."""
    num_paired: int
    """Problems with right and wrong rollouts."""
    wilcoxon: WilcoxonResult | None
    cliffs_delta: float | None
    auc: Estimate | None
    """Of a rollout's summed move for right against wrong; 0.5 by chance."""
    wrong_steps: WrongStepMoves | None


class Correlate(Record):
    """Rank correlation of a divergence with one property of rollouts or tokens."""

    checkpoint: str
    source: str
    divergence: Divergence
    level: Literal["rollout", "token"]
    correlate: str
    num: int
    """Rollouts or tokens for which both are known."""
    estimate: Estimate | None
    p_value: float | None
    p_adjusted: float | None = None
    """Benjamini and Hochberg's over all correlates."""


class SignalTokens(Record):
    """Tokens of one class: with a training signal, without one, or not seen."""

    num_tokens: int
    mean: SkewedMean | None
    """Divergence."""
    mean_abs_move: SkewedMean | None


class SignalDirection(Record):
    """Whether log-probabilities moved the way the advantages pushed."""

    num_tokens: int
    num_moved: int
    agreement: Estimate | None
    """Fraction of the moved tokens with the sign of their advantage."""
    chance: float | None
    above_chance: Estimate | None
    mean_move_positive: Estimate | None
    mean_move_negative: Estimate | None
    difference: Estimate | None


class ClippedTokens(Record):
    """Tokens whose gradient was cut off at least once."""

    num_tokens: int
    share_of_tokens: Estimate | None
    share_of_divergence: Estimate | None


class SignalSteps(Record):
    """Divergence and direction on the rollouts of one part of the training."""

    first_step: int
    last_step: int
    share_seen: float
    num_tokens: int
    mean: SkewedMean | None
    above_chance: Estimate | None


class TrainingSignal(Record):
    """How the divergence of one pair relates to what training recorded at each token."""

    checkpoint: str
    reference: str
    num_rollouts_seen: int
    num_problems_seen: int
    divergence: Mapping[Literal["signal", "no_signal", "not_seen"], SignalTokens]
    spill_over: Estimate | None
    """Mean divergence of tokens without a signal over that of tokens with one."""
    advantage_correlation: Correlation | None
    """With |advantage|."""
    kl_correlation: Correlation | None
    direction: SignalDirection | None
    clipped: ClippedTokens | None
    by_step: tuple[SignalSteps, ...]
