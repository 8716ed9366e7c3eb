"""What a probe measured, as typed records: the entries of `probe/summary.json` that need no further model run.

A field that is None was not asked for or cannot be measured. An `Estimate` is a mean with its interval, at the level
`ProbeSummary.confidence`; divergences and entropies are in nats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator

from swerve.artifacts.record import Record
from swerve.estimates import Correlation, Estimate, WilcoxonResult

Divergence = Literal["kl_forward", "kl_reverse", "js"]
DIVERGENCES: tuple[Divergence, ...] = get_args(Divergence)
DIVERGENCE_NAMES: Mapping[Divergence, str] = {"kl_forward": "Forward KL", "kl_reverse": "Reverse KL", "js": "JS"}
"""What they are called wherever a person reads them."""
ByDivergence = Mapping[Divergence, Estimate | None]
Region = Literal["early", "mid", "late"]


def _with_mean(value: Any) -> Any:
    """Read what earlier versions wrote as `share`."""
    if isinstance(value, dict) and "mean" not in value and "share" in value:
        return {**value, "mean": value["share"]}
    return value


HitRate = Annotated[Estimate | None, BeforeValidator(_with_mean)]


# What noise looks like


class NoiseFloor(Record):
    """One divergence of the reference from itself, run with other batches."""

    mean: float
    max: float


class FalseDiscoveries(Record):
    """Spikes of one method in the null pair: each is a false discovery."""

    num_spikes: int
    num_tokens: int
    per_1000_tokens: Estimate | None


class NullPair(Record):
    """What the methods for spikes find between two runs of the reference."""

    num_tokens: int
    false_discoveries: Mapping[Divergence, Mapping[str, FalseDiscoveries]]
    """By divergence and method."""


# Divergences and spikes


class DivergenceMeans(Record):
    """Means over all tokens of one pair of models; null where a token's value is infinite."""

    checkpoint: str
    reference: str
    kl_forward: Estimate | None
    kl_reverse: Estimate | None
    js: Estimate | None
    entropy: Estimate | None
    """Of the checkpoint."""
    entropy_ref: Estimate | None
    """Of the reference."""

    def of(self, divergence: Divergence) -> Estimate | None:
        """Return the mean of one divergence."""
        found: Estimate | None = getattr(self, divergence)
        return found


class Population(Record):
    """Rollouts of one kind, and the checkpoints' mean divergences on them."""

    population: str
    source: str
    """Label of the writer."""
    num_rollouts: int
    num_tokens: int
    num_correct: int
    divergences: tuple[DivergenceMeans, ...]


class SpikeHits(Record):
    """How often the highest divergence of a rollout lies on a wrong step, against chance."""

    checkpoint: str
    divergence: Divergence
    num_rollouts: int
    """Rollouts with a known wrong step."""
    num_spikes: int
    """By the headline method, in all rollouts."""
    top_on_wrong: HitRate
    """Fraction of rollouts whose highest value is on a wrong step."""
    top_on_first_wrong: HitRate
    """On the first wrong step."""
    chance_wrong: float | None
    """Expected fraction if the position were drawn uniformly from the rollout's own."""
    chance_first_wrong: float | None


class SelectorRecovery(Record):
    """How well a score ranks the tokens of wrong steps above the others."""

    checkpoint: str
    selector: str
    auc: Estimate | None
    """0.5 by chance."""
    average_precision: Estimate | None
    """`base_rate` by chance."""


class SpikeRecovery(Record):
    """How well the spikes of one method find the tokens of wrong steps."""

    checkpoint: str
    divergence: Divergence
    method: str
    num_spikes: int
    precision: Estimate | None
    """Fraction of spikes on wrong tokens."""
    recall: Estimate | None
    """Fraction of wrong tokens with a spike."""
    f1: Estimate | None
    recall_first: Estimate | None
    """Fraction of rollouts with a spike on their first wrong token."""
    rollouts_hit: Estimate | None
    """Fraction of rollouts with a spike on any wrong token."""
    chance_precision: float | None
    """The same if each rollout's spikes lay on positions drawn uniformly from its own."""
    chance_recall: float | None
    chance_recall_first: float | None


class Recovery(Record):
    """How well scores and spikes find the steps known to be wrong, at the final checkpoint."""

    num_rollouts: int
    """Rollouts with a known wrong step."""
    num_rollouts_unknown: int
    num_tokens: int
    num_wrong: int
    """Tokens of wrong steps."""
    base_rate: float | None
    """`num_wrong / num_tokens`."""
    selectors: tuple[SelectorRecovery, ...]
    spikes: tuple[SpikeRecovery, ...]


# Where the divergence is


class CategoryShare(Record):
    """One category of tokens at one checkpoint: its part of the tokens, of the divergence and of the spikes."""

    checkpoint: str
    category: str
    num_tokens: int
    share_tokens: float
    share_divergence: float | None
    share_divergence_interval: Estimate | None
    num_spikes: int
    spike_rate: float
    """Spikes per token of the category."""
    spike_rate_interval: Estimate | None
    base_rate: float
    """Spikes per token of any category."""


class RegionShare(Record):
    """One third of the completions at one checkpoint."""

    checkpoint: str
    region: Region
    num_tokens: int
    share_tokens: float | None
    mean: ByDivergence
    """Mean divergence of a token there."""
    share_divergence: ByDivergence
    num_spikes: Mapping[Divergence, int]
    spike_rate: Mapping[Divergence, float | None]
    """Spikes per token there."""
    base_rate: Mapping[Divergence, float | None]
    """Spikes per token anywhere."""


class StyleShare(Record):
    """Style tokens at one checkpoint: their part of the divergence against their part of the tokens."""

    checkpoint: str
    divergence: Divergence
    num_tokens: int
    num_style_tokens: int
    share_tokens: Estimate | None
    share_divergence: Estimate | None
    excess: Estimate | None
    """The second minus the first."""


class EntropyChange(Record):
    """Mean entropies of a checkpoint and its reference on the same tokens."""

    entropy: Estimate | None
    entropy_ref: Estimate | None
    change: Estimate | None
    """The first minus the second."""


class RegionEntropy(EntropyChange):
    """Entropies in one third of the completions."""

    region: Region


class CategoryEntropy(EntropyChange):
    """Entropies on the tokens of one category."""

    category: str


class CheckpointEntropy(EntropyChange):
    """Entropies of one checkpoint, in all and by part."""

    checkpoint: str
    normalised: EntropyChange
    """Divided by ln V, so that 1 is the uniform distribution."""
    share_argmax_changed: Estimate | None
    """Fraction of tokens at which the two models' most likely tokens differ."""
    regions: tuple[RegionEntropy, ...]
    categories: tuple[CategoryEntropy, ...]


class ForkingOverlap(Record):
    """How many of some marked tokens are forking tokens."""

    num: int
    num_forking: int
    share: Estimate | None


class ForkingWrongSteps(ForkingOverlap):
    """How many tokens of wrong steps are forking tokens."""

    share_tokens: float | None
    """Fraction of forking tokens in the rollouts with a known wrong step."""


class ForkingCategory(Record):
    """Forking tokens of one category."""

    category: str
    num_tokens: int
    num_forking: int
    share_tokens: float
    share_forking: float
    """Of the forking tokens."""


class ForkingTokens(Record):
    """What falls on the tokens where the reference was least sure; shares are to be read against `share_tokens`."""

    checkpoint: str
    threshold: float | None
    """Least entropy of a forking token."""
    num_tokens: int
    num_forking: int
    share_tokens: float | None
    share_divergence: ByDivergence
    share_argmax_changed: Estimate | None
    spikes: Mapping[Divergence, ForkingOverlap]
    wrong_steps: ForkingWrongSteps
    categories: tuple[ForkingCategory, ...]


class EntropySummary(Record):
    """Entropy along training."""

    means: tuple[CheckpointEntropy, ...]
    forking: tuple[ForkingTokens, ...]


RankClass = Literal["unshifted", "marginal", "shifted"]


class RankShare(Record):
    """Tokens of one class of ranks."""

    num_tokens: int
    share: Estimate | None


class RankCategory(Record):
    """Number of tokens of one category in each class of ranks."""

    category: str
    num_tokens: int
    rank: Mapping[RankClass, int]
    rank_ref: Mapping[RankClass, int]


class RankShift(Record):
    """Ranks of the realised tokens of one writer's rollouts: 1 (unshifted), 2 or 3 (marginal), beyond (shifted)."""

    checkpoint: str
    source: str
    writer: Literal["checkpoint", "reference", "other"]
    shift: Literal["rank", "rank_ref"] | None
    """The ranks under the model that did not write the text (URIAL's); null: neither wrote it."""
    num_tokens: int
    rank: Mapping[RankClass, RankShare]
    """Under the checkpoint."""
    rank_ref: Mapping[RankClass, RankShare]
    """Under the reference."""
    categories: tuple[RankCategory, ...]


# When it came, and which way it went


class OnsetStep(Record):
    """Tokens whose log-probability left the reference for good at one checkpoint."""

    step: int
    num_tokens: int


class ChangePointStep(Record):
    """Tokens whose log-probability changed at one step."""

    step: int
    num_tokens: int
    median_low: float
    """Median first step that the data do not exclude."""
    median_high: float
    median_size: float
    """Nats."""


class ChangePointCounts(Record):
    """Tokens with a change point that a line does not explain as well."""

    num_tokens: int
    share: Estimate | None
    by_step: tuple[ChangePointStep, ...]


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
    share_line_better: Estimate | None
    """Fraction that a line explains at least as well as one change."""
    change_points: ChangePointCounts | None
    """Null with fewer than 4 points."""


class BiographySummary(Record):
    """Biographies of all tokens, of wrong steps and of the others beside them."""

    checkpoints: tuple[str, ...]
    steps: tuple[int, ...]
    threshold: float
    """A token has left the reference while its log-probability differs by more (nats)."""
    noise: float
    """Changes up to this size (nats) are noise."""
    confidence: float
    tokens: Mapping[Literal["all", "wrong_steps", "others"], TokenBiographies]


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
    significant: bool | None = None


class SignalTokens(Record):
    """Tokens of one class: with a training signal, without one, or not seen."""

    num_tokens: int
    mean: Estimate | None
    """Divergence."""
    mean_abs_move: Estimate | None


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
    mean: Estimate | None
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
