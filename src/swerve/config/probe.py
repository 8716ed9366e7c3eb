"""The probe's part of a recipe: which pairs and rollouts, which statistics, which causal tests."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from swerve.settings import Model, Positive, PositiveInt

DivergenceName = Literal["kl_forward", "kl_reverse", "js"]
SpikeMethod = Literal["zscore", "percentile", "adaptive", "absolute", "calibrated"]
PopulationName = Literal["reference_wrong", "reference_right", "checkpoint_wrong", "checkpoint_right", "training"]
SwapSelector = Literal[
    "js", "kl_forward", "kl_reverse", "abs_logprob_change", "logprob_drop", "entropy", "rank", "random"
]
SwapPlace = Literal[
    "js", "kl_forward", "kl_reverse", "abs_logprob_change", "logprob_drop", "entropy", "rank", "first_wrong"
]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(gt=0.0, lt=1.0)]


def _check_distinct(config: Model, *names: str, empty: bool = True) -> None:
    """Do nothing if these lists have no value twice and, unless `empty`, at least one.

    Raises:
        ValueError: one does not; the message names it.
    """
    for name in names:
        values = getattr(config, name)
        if len(set(values)) < len(values):
            raise ValueError(f"{name} has a value twice")
        if not values and not empty:
            raise ValueError(f"{name} is empty; give at least one value")


class SpikeConfig(Model):
    """A spike is a position whose divergence stands out; how far is the method's question."""

    method: SpikeMethod = "zscore"
    """The method of the headline metrics; the summary compares all five."""
    num_sd: Positive = 2.0
    """zscore and adaptive: standard deviations above the mean of the sequence, or of the window."""
    percentile: Annotated[float, Field(gt=0.0, lt=100.0)] = 95.0
    """percentile: of all values of the run, checkpoints together."""
    window: Annotated[int, Field(ge=3)] = 21
    """adaptive: positions of the local window, the position itself in the middle."""
    threshold: Positive = 0.1
    """absolute: in nats."""
    false_discovery_rate: Share = 0.05
    """calibrated: expected share of spikes that the null pair's noise explains."""
    min_distance: PositiveInt = 3
    """Of spikes closer than this many tokens the highest is kept."""


class CausalConfig(Model):
    """Swaps: continuations from the same prefix with the reference's and with the checkpoint's token."""

    max_rollouts: Count = 100
    """Maximum number of rollouts tested; 0 leaves the test out."""
    controls: tuple[Literal["matched", "random"], ...] = ("matched", "random")
    """Positions compared with the spike: `matched` in entropy, category and third of the rollout; `random`."""
    num_random: PositiveInt = 1
    """Random positions of each rollout."""
    selectors: tuple[SwapPlace, ...] = ()
    """Further positions swapped: the highest of each rollout by other scores, and its first wrong token."""
    alternative: bool = True
    """Also force the reference's most likely token that is neither model's choice."""
    policies: tuple[Literal["reference", "checkpoint"], ...] = ("reference",)
    """Who continues."""
    num_continuations: PositiveInt = 16
    """Continuations of each prefix; with sequential sampling the number at the first look."""
    max_continuations: PositiveInt | None = None
    """Sequential sampling: double the number until the interval of the effect lies inside or outside of +-delta, at
    most up to this many. null: one look."""
    delta: Share = 0.1
    """Smallest effect of interest, as a difference of success rates."""
    temperature: Positive = 1.0
    """Sampling temperature."""

    @model_validator(mode="after")
    def _check_looks(self) -> CausalConfig:
        _check_distinct(self, "controls", "selectors")
        _check_distinct(self, "policies", empty=False)
        if self.max_continuations is not None and self.max_continuations < self.num_continuations:
            raise ValueError("max_continuations must be at least num_continuations, or null")
        return self


class CrossSamplingConfig(Model):
    """Cross-sampling: one model generates and takes the other's token wherever a selector fires."""

    max_problems: Count = 0
    """Held-out problems answered in every configuration; 0 leaves the test out."""
    directions: tuple[Literal["checkpoint_into_reference", "reference_into_checkpoint"], ...] = (
        "checkpoint_into_reference",
        "reference_into_checkpoint",
    )
    """Whose tokens go into whose completions."""
    selectors: tuple[SwapSelector, ...] = ("js", "logprob_drop", "entropy", "random")
    """`logprob_drop`: how much less likely the other model finds the proposed token (signed)."""
    shares: tuple[Share, ...] = (0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
    """Budgets: shares of tokens at which each selector is set to fire."""
    num_samples: PositiveInt = 1
    """Completions of each problem and configuration."""
    temperature: Positive = 1.0
    """Sampling temperature."""

    @model_validator(mode="after")
    def _check_lists(self) -> CrossSamplingConfig:
        _check_distinct(self, "directions", "selectors", "shares", empty=False)
        return self


class PivotConfig(Model):
    """Values of prefixes along rollouts, and pivotal tokens by bisection."""

    max_rollouts: Count = 0
    """Maximum number of rollouts searched; 0 leaves the test out."""
    unit: Literal["token", "sentence"] = "token"
    """What is searched for: single tokens, by bisection, or sentences, whose values are all measured."""
    gap: Share = 0.2
    """Smallest change of the success rate across one of them that counts."""
    false_positive_rate: Share = 0.05
    """Largest probability that two equal success rates differ by the gap."""
    num_continuations: PositiveInt | None = None
    """Continuations of each prefix; null: the least number with that false positive rate."""
    temperature: Positive = 1.0
    """Sampling temperature."""


class AttributionConfig(Model):
    """Which earlier tokens made the checkpoint disagree at its spikes."""

    method: Literal["none", "gradient", "attention"] = "none"
    """How earlier tokens are scored."""
    max_spikes: PositiveInt = 40
    """Positions explained: the highest top positions, one per rollout."""


class ProbeConfig(Model):
    """Which checkpoints are compared with which reference, on which rollouts."""

    reference: str | None = None
    """Stage, label (`rl-30`) or directory name of the reference checkpoint, or `base`, the trained model that the run
    began with; the last but one stage by default, or the base."""
    final: str | None = None
    """The checkpoint that must be right where the reference is wrong; null: the last stage's last one."""
    checkpoints: str | None = None
    """The stage whose checkpoints are compared with the reference; the last one by default."""
    baseline: str | None = None
    """A checkpoint from before the reference; how the reference differs from it was there before the stage began. The
    stage before the reference's by default, or the base."""
    every: PositiveInt | None = None
    """While training, measure the divergence from the policy that the stage began with, on 16 of its rollouts, after
    each so many steps; the metrics have the means. Null: never."""
    pairs: tuple[Literal["consecutive", "baseline"], ...] = ("consecutive", "baseline")
    """Pairs measured besides each checkpoint against the reference."""
    selection: Literal["greedy", "split"] = "greedy"
    """How `reference wrong, final right` is decided: by the greedy completions that are then read, or (`split`) by one
    half of the sampled completions, and the other half is read."""
    populations: tuple[PopulationName, ...] = (
        "reference_wrong",
        "reference_right",
        "checkpoint_right",
        "checkpoint_wrong",
    )
    """Rollouts read besides the reference's wrong ones that the final checkpoint gets right."""
    max_rollouts: PositiveInt = 200
    """Of the headline population: the reference's wrong rollouts of problems that the final checkpoint gets right."""
    max_other_rollouts: PositiveInt = 100
    """The same of each other population."""
    min_rollouts: PositiveInt = 20
    """With fewer rollouts the summary says that its metrics are not reliable."""
    noise_models: Count = 5
    """Random models that figures about where the divergence falls are set against: the reference with Gaussian noise in
    the place of what training changed, as far from it as the final checkpoint. At least 3, as their spread counts; 0
    leaves them out."""
    divergence: DivergenceName = "js"
    """The divergence that the causal tests, the report and metrics with a single divergence use."""
    top_k: PositiveInt = 5
    """Most likely tokens kept of each model at each position."""
    tokens_per_chunk: PositiveInt = 256
    """Rows of `[tokens, vocabulary]` held at a time."""
    tokens_per_batch: PositiveInt = 16384
    """Padded tokens of one forward pass; also what is saved, resumed and shared out between processes at a time."""
    kernel: Literal["auto", "eager", "compiled"] = "auto"
    """How statistics over the vocabulary are computed; `auto` compiles where the work is large enough to pay for it."""
    keep_states: bool = False
    """Keep the hidden states and statistics in `probe/states`, which else go when the probe is complete."""
    spikes: SpikeConfig = SpikeConfig()
    causal: CausalConfig = CausalConfig()
    cross_sampling: CrossSamplingConfig = CrossSamplingConfig()
    pivots: PivotConfig = PivotConfig()
    attribution: AttributionConfig = AttributionConfig()

    @model_validator(mode="after")
    def _check_lists(self) -> ProbeConfig:
        _check_distinct(self, "pairs", "populations")
        if self.noise_models in (1, 2):
            raise ValueError(f"noise_models is {self.noise_models}; give 0 or at least 3, as their spread counts")
        return self
