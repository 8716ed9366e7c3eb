"""What a probe tested, as typed records: swaps, pivots, prediction, cross-sampling and attribution in `summary.json`.

A field that is None was not asked for or cannot be measured; `success` is a fraction of right continuations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from swerve.artifacts.record import Record
from swerve.estimates import Correlation, Estimate, WilcoxonResult
from swerve.text import counted, number_interval, points_interval, whole_percent


class ArmSuccess(Record):
    """Success of the continuations after one arm's token."""

    success: float | None
    num_rollouts: int | None = None
    """Positions that have this arm; only of `alternative`."""


class SwapEffects(Record):
    """Differences of success between the arms of a position."""

    num_different: int
    """Positions at which the checkpoint chooses another token than the rollout's own."""
    effect: Estimate | None
    """Checkpoint's token minus the rollout's own; null where the two are the same at every position."""
    alternative_effect: Estimate | None
    """Another token minus the rollout's own."""
    checkpoint_minus_alternative: Estimate | None
    """Checkpoint's token minus another at the same place."""


class ControlMatch(Record):
    """In what matched controls resemble their spikes: fractions, and the mean gap of entropy (nats)."""

    num_same_token: int = 0
    """Controls at which the checkpoint chooses the rollout's own token, so that nothing is swapped."""
    same_rollout: float | None
    same_category: float | None
    same_third: float | None
    entropy_gap: float | None


SwapPositions = Literal[
    "spike",
    "matched",
    "random",
    "js",
    "kl_forward",
    "kl_reverse",
    "abs_logprob_change",
    "logprob_drop",
    "entropy",
    "rank",
    "first_wrong",
]
"""The highest spike, its controls, and positions that another score would have chosen."""

Decision = Literal["same_token", "inside", "outside", "undecided"]

Policy = Literal["reference", "checkpoint"]
"""Which of the two models wrote the continuations."""


class SwapSelection(SwapEffects):
    """Swaps at one kind of position."""

    selection: SwapPositions
    num_rollouts: int
    num_positions: int
    reference: ArmSuccess
    """The rollout's own token."""
    checkpoint: ArmSuccess
    alternative: ArmSuccess
    share_same_token: float
    different_tokens: SwapEffects
    """The same effects without positions at which the checkpoint chooses the rollout's own token."""
    mean_continuations: float
    decisions: Mapping[Decision, int]
    """Positions with an effect of exactly 0, inside of +-delta, outside of it, or neither."""
    match: ControlMatch | None
    """Of matched controls."""
    test: WilcoxonResult | None
    """The checkpoint's token against the rollout's own."""

    @property
    def headline(self) -> Estimate | None:
        """Checkpoint's token minus another at the same place, where it is not the rollout's own.

        Against the rollout's own token any other does better where that one was the mistake, and against another
        position every token does more where more is undecided; this contrast is about this token.
        """
        return self.different_tokens.checkpoint_minus_alternative

    @property
    def is_swapped(self) -> bool:
        """Whether the checkpoint chooses another token than the rollout's own at any of these positions."""
        return self.num_different > 0


class SwapDifference(Record):
    """Effect at spikes minus effect at one kind of control."""

    control: SwapPositions
    num_pairs: int
    difference: Estimate | None
    test: WilcoxonResult | None


class SwapPolicy(Record):
    """Swaps continued by one of the two models."""

    policy: Policy
    selections: tuple[SwapSelection, ...]
    differences: tuple[SwapDifference, ...]


class Swaps(Record):
    """What a single token does to the success of a continuation."""

    num_rollouts: int
    num_continuations: int
    looks: tuple[int, ...]
    """Continuations of a prefix at each look."""
    delta: float
    """Smallest effect of interest."""
    selections: tuple[SwapSelection, ...]
    """Those that the reference continued."""
    difference: Estimate | None
    """Of these: spike minus random."""
    policies: tuple[SwapPolicy, ...] = ()
    """The same by the model that continued."""

    @property
    def by_policy(self) -> tuple[SwapPolicy, ...]:
        """What each policy says; a summary that does not tell policies apart is of the reference's continuations."""
        if self.policies or not self.selections:
            return self.policies
        return (SwapPolicy(policy="reference", selections=self.selections, differences=()),)

    def __repr__(self) -> str:
        """Return the success after each token, a line for each kind of position."""
        lines = [f"Swaps(of {self.num_rollouts} rollouts, {self.num_continuations} continuations of each token)"]
        for one in self.selections:
            arms = {"own token": one.reference, "checkpoint's": one.checkpoint, "another": one.alternative}
            rates = (f"{name} {whole_percent(arm.success)}" for name, arm in arms.items() if arm.success is not None)
            lines.append(f"{one.selection}: {', '.join(rates)}")
        return "\n".join(lines)

    def selection(self, name: SwapPositions) -> SwapSelection | None:
        """Return what the reference's continuations say of one kind of position."""
        return next((one for one in self.selections if one.selection == name), None)


class PredictionSelector(Record):
    """How well one score ranks positions by the size of their effect."""

    selector: str
    spearman: Correlation | None
    """With the size of the effect: the product of a position's effects in two independent halves of its
    continuations, which is 0 on average without an effect, however noisy. 0 by chance."""
    p_adjusted: float | None


class Prediction(Record):
    """Whether scores rank positions by the size of their effect, under one policy, where the models' tokens differ."""

    policy: Policy
    num_positions: int
    """Positions at which the checkpoint chooses another token than the rollout's own: elsewhere the effect is 0."""
    mean_square_effect: Estimate | None
    """Mean of these products: the squared effect without the noise of sampling; 0 without effects."""
    selectors: tuple[PredictionSelector, ...]

    def __repr__(self) -> str:
        """Return two lines: on how many positions, and which score ranks their effects best."""
        ranked = [one for one in self.selectors if one.spearman is not None]
        best = max(ranked, key=lambda one: one.spearman.mean if one.spearman else 0.0, default=None)
        said = "no score is ranked" if best is None else f"highest: {best.selector}, {number_interval(best.spearman)}"
        return f"Prediction(by {self.policy}: {counted(self.num_positions, 'position')})\n{said}"


class PivotOverlap(Record):
    """How often pivots lie on marked positions, against chance."""

    num: int
    share: Estimate | None
    chance: float
    above_chance: Estimate | None


class Breaks(Record):
    """Where the chance of a right answer falls for good: of each rollout the largest pivot that is a fall and lasts."""

    num_rollouts: int
    """Rollouts with such a pivot."""
    num_confirmed: int
    top_divergence: PivotOverlap | None
    """How often it is where the divergence is highest."""
    top_entropy: PivotOverlap | None
    """How often it is where the reference's entropy is highest."""
    above_entropy: Estimate | None
    """The first less the second, over the same rollouts."""


class Pivots(Record):
    """Tokens, or sentences, at which one model's probability of success jumps."""

    policy: Policy = "reference"
    """Whose continuations these are; before there were two, the reference's."""
    unit: Literal["token", "sentence"]
    num_rollouts: int
    start: Estimate | None = None
    """Mean success from the prompt on."""
    num_could_fall: int | None = None
    """Rollouts with a measured value of the gap or more: in the others no fall can be found."""
    num_rollouts_with_pivot: int
    gap: float
    """Smallest jump that is searched."""
    num_continuations: int
    num_rounds: int
    num_prefixes: int
    num_compared: int
    false_positive_rate: float
    """Of one comparison of equal success rates."""
    num_pivots: int
    num_rises: int
    num_falls: int
    num_confirmed: int
    """Pivots for which the interval of the jump on fresh continuations excludes jumps below the gap."""
    max_confirmed_below_gap: float
    """How many of these have a smaller true jump, on average, at most."""
    size_search: Estimate | None
    """Mean jump on the continuations that found the pivots."""
    size_estimate: Estimate | None
    """On fresh ones."""
    on_spike: PivotOverlap | None
    on_wrong: PivotOverlap | None
    on_first_wrong: PivotOverlap | None
    in_wrong_sentence: PivotOverlap | None = None
    """In the first wrong sentence, or step, of rollouts whose label says no more; by chance any of its sentences."""
    breaks: Breaks

    def __repr__(self) -> str:
        """Return two lines: how many tokens or sentences make success jump, and how many of them are confirmed."""
        return (
            f"Pivots(by {self.policy}: {counted(self.num_pivots, self.unit)} in "
            f"{counted(self.num_rollouts, 'rollout')}, {self.num_rises} up and {self.num_falls} down)\n"
            f"confirmed on fresh ones: {self.num_confirmed}; mean jump {points_interval(self.size_estimate)} points"
        )


class CrossSamplingPoint(Record):
    """One selector at one budget of swapped tokens."""

    budget: float
    threshold: float | None
    share_swapped: float
    """Fraction of the tokens that are the other model's."""
    share_changed: float
    """Fraction at which the two models proposed different tokens."""
    accuracy: Estimate | None
    gain: Estimate | None
    """Accuracy minus that of the base."""
    recovered: Estimate | None
    """Gain over the whole gap."""


class CrossSamplingSelector(Record):
    """The curve of one selector: accuracy against the fraction of swapped tokens."""

    selector: str
    points: tuple[CrossSamplingPoint, ...]
    mean_accuracy: Estimate | None
    """Mean height of the curve up to the largest common share."""
    auc: Estimate | None
    """The same as a fraction of the gap: 0 for swaps that do nothing."""
    mean_accuracy_over_random: Estimate | None
    auc_over_random: Estimate | None


class CrossSamplingDirection(Record):
    """Tokens of one model put into the completions of the other."""

    direction: str
    base: Estimate | None
    """Accuracy without swaps."""
    other: Estimate | None
    """Accuracy of the model whose tokens are taken."""
    gap: Estimate | None
    largest_common_share: float | None
    selectors: tuple[CrossSamplingSelector, ...]


class CrossSampling(Record):
    """How much of the gap between two models a few tokens carry."""

    num_problems: int
    num_samples: int
    directions: tuple[CrossSamplingDirection, ...]

    def __repr__(self) -> str:
        """Return a line, and one for each direction: how far apart the two models' accuracies are."""
        lines = [f"CrossSampling(of {counted(self.num_problems, 'problem')}, {self.num_samples} samples of each)"]
        for one in self.directions[:2]:
            lines.append(f"{one.direction}: {points_interval(one.gap)} points apart")
        return "\n".join(lines)


class AttributionScore(Record):
    """How much of the attribution lies on one kind of earlier token, or how far back it lies (tokens)."""

    num_spots: int
    score: Estimate | None
    uniform: float | None
    """What equal scores would give."""
    above_uniform: Estimate | None = None


class Attribution(Record):
    """Where the scores of one method lie for one model's choices at spikes."""

    model: str
    method: str
    num_spots: int
    prompt: AttributionScore
    recent: AttributionScore
    wrong: AttributionScore
    """On earlier wrong steps."""
    distance: AttributionScore
