"""What a probe measured, as typed records: the entries of `probe/summary.json` that need no further model run.

A field that is None was not asked for or cannot be measured. An `Estimate` is a mean with its interval, at the level
`ProbeSummary.confidence`; divergences and entropies are in nats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from swerve.artifacts.record import Record
from swerve.estimates import Estimate, SkewedMean

Divergence = Literal["kl_forward", "kl_reverse", "js"]
DIVERGENCES: tuple[Divergence, ...] = get_args(Divergence)
DIVERGENCE_NAMES: Mapping[Divergence, str] = {"kl_forward": "Forward KL", "kl_reverse": "Reverse KL", "js": "JS"}
"""What they are called wherever a person reads them."""
ByDivergence = Mapping[Divergence, Estimate | None]
Region = Literal["early", "mid", "late"]


# What noise looks like


class NoiseFloor(Record):
    """One divergence of the reference from itself, run with other batches."""

    mean: float
    max: float


class SpikeRate(Record):
    """How many of some tokens are spikes of one method."""

    num_spikes: int
    num_tokens: int
    per_1000_tokens: Estimate | None


class NullPair(Record):
    """What the methods for spikes find between two runs of the reference."""

    num_tokens: int
    false_discoveries: Mapping[Divergence, Mapping[str, SpikeRate]]
    """By divergence and method: each spike is a false discovery."""


# Divergences and spikes


class DivergenceMeans(Record):
    """Means over all tokens of one pair of models; null where a token's value is infinite."""

    checkpoint: str
    reference: str
    kl_forward: SkewedMean | None
    kl_reverse: SkewedMean | None
    js: SkewedMean | None
    entropy: Estimate | None
    """Of the checkpoint."""
    entropy_ref: Estimate | None
    """Of the reference."""
    behind: Estimate | None = None
    """Only of `pairs`, of the headline divergence: by how much its mean is below that of the neighbouring checkpoints
    that differ most or, for the reference against its baseline, of the final checkpoint; paired over problems."""

    def of(self, divergence: Divergence) -> SkewedMean | None:
        """Return the mean of one divergence."""
        found: SkewedMean | None = getattr(self, divergence)
        return found


class Population(Record):
    """Rollouts of one kind, and the checkpoints' mean divergences on them."""

    population: str
    source: str
    """Label of the writer."""
    num_rollouts: int
    num_tokens: int
    num_correct: int | None
    """Null: it is not known of all whether they are right."""
    divergences: tuple[DivergenceMeans, ...]
    above_headline: Estimate | None = None
    """Mean headline divergence of the final checkpoint on these minus that on the headline population, by problem."""


class SpikeHits(Record):
    """How often the highest divergence of a rollout lies on a wrong step, against chance: by token, and by sentence."""

    checkpoint: str
    divergence: Divergence
    num_rollouts: int
    """Rollouts with a known wrong token."""
    num_spikes: int
    """By the headline method, in all rollouts."""
    top_on_wrong: Estimate | None
    """Fraction of rollouts whose highest value is on a wrong step."""
    top_on_first_wrong: Estimate | None
    """On the first wrong step."""
    chance_wrong: float | None
    """Expected fraction if the position were drawn uniformly from the rollout's own."""
    chance_first_wrong: float | None
    num_sentence_rollouts: int = 0
    """Rollouts of which it is known which sentence, or step, is the first wrong one, and not which of its tokens."""
    top_in_wrong_sentence: Estimate | None = None
    """Fraction of these whose highest value is in that sentence."""
    chance_wrong_sentence: float | None = None
    """Expected fraction if the sentence were drawn uniformly from the rollout's own."""


class SelectorRecovery(Record):
    """How well a score ranks wrong tokens, or wrong sentences, above the others."""

    checkpoint: str
    selector: str
    auc: Estimate | None
    """0.5 by chance."""
    auc_first: Estimate | None = None
    """Of the first wrong token of each rollout, above all that are not wrong."""
    average_precision: Estimate | None
    """`base_rate` by chance."""


class SentenceRecovery(Record):
    """How well scores find the first wrong sentence where no token is known to be wrong, at the final checkpoint."""

    num_rollouts: int
    """Rollouts with such a sentence."""
    num_sentences: int
    """Their sentences, or steps."""
    base_rate: float
    """`num_rollouts / num_sentences`."""
    selectors: tuple[SelectorRecovery, ...]
    """A sentence has the highest score of its tokens."""


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


class SpikeDensity(SpikeRate):
    """Spikes of one method in one third of the completions; its threshold is in nats, so checkpoints compare."""

    checkpoint: str
    region: Region
    divergence: Divergence
    method: Literal["percentile", "absolute", "calibrated"]
    threshold: float | None
    """Nats; null where no value was above it."""


# Where the divergence is


class CategoryShare(Record):
    """One category of tokens at one checkpoint: its part of the tokens, of the divergence and of the spikes."""

    checkpoint: str
    category: str
    num_tokens: int
    share_tokens: float
    mean: Mapping[Divergence, SkewedMean | None] = {}
    """Mean divergence of a token of the category."""
    share_divergence: float | None
    share_divergence_interval: Estimate | None
    num_spikes: int
    spike_rate: float
    """Spikes per token of the category."""
    spike_rate_interval: Estimate | None
    base_rate: float
    """Spikes per token of any category."""

    @property
    def forward_kl(self) -> SkewedMean | None:
        """Mean forward KL of a token; None: not measured."""
        return self.mean.get("kl_forward")


class RegionShare(Record):
    """One third of the completions at one checkpoint."""

    checkpoint: str
    region: Region
    num_tokens: int
    share_tokens: float | None
    mean: Mapping[Divergence, SkewedMean | None]
    """Mean divergence of a token there."""
    share_divergence: ByDivergence
    num_spikes: Mapping[Divergence, int]
    spike_rate: Mapping[Divergence, float | None]
    """Spikes per token there."""
    base_rate: Mapping[Divergence, float | None]
    """Spikes per token anywhere."""


class TurnShare(Record):
    """One turn of the rollouts of several turns, by its number, at one checkpoint: tokens that the model sampled."""

    checkpoint: str
    turn: int
    """From 1."""
    num_rollouts: int
    """That have such a turn."""
    num_tokens: int
    mean: Mapping[Divergence, SkewedMean | None]
    """Mean divergence of a token there."""
    spikes: Mapping[Divergence, SpikeRate]


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
