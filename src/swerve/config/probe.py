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
    """zscore, adaptive: standard deviations above the mean of the sequence or window."""
    percentile: Annotated[float, Field(gt=0.0, lt=100.0)] = 95.0
    """percentile: of all values of the run, all checkpoints together."""
    window: Annotated[int, Field(ge=3)] = 21
    """adaptive: positions of the local window, the position itself in the middle."""
    threshold: Positive = 0.1
    """absolute: divergence in nats."""
    false_discovery_rate: Share = 0.05
    """calibrated: expected share of spikes that are noise of the null pair."""
    min_distance: PositiveInt = 3
    """Keep only the highest of spikes closer together than this many tokens."""


class CausalConfig(Model):
    """Swaps: continuations from the same prefix with the reference's and with the checkpoint's token."""

    max_rollouts: Count = 100
    """Most rollouts tested; 0 leaves the test out."""
    controls: tuple[Literal["matched", "random"], ...] = ("matched", "random")
    """Control positions: `matched` to the spike in entropy, category and third of the rollout, or `random`."""
    num_random: PositiveInt = 1
    """Random positions per rollout."""
    selectors: tuple[SwapPlace, ...] = ()
    """Also swap the position with the highest value of these scores, or the first wrong token."""
    alternative: bool = True
    """Also force a control token: the reference's most likely one that neither model chose."""
    policies: tuple[Literal["reference", "checkpoint"], ...] = ("reference",)
    """Which model writes the continuations."""
    num_continuations: PositiveInt = 16
    """Continuations per prefix; with `max_continuations`, at the first look."""
    max_continuations: PositiveInt | None = None
    """Double the continuations until the effect's interval lies inside or outside +-delta, up to this many; null: one
    look."""
    delta: Share = 0.1
    """Smallest effect that matters, as a difference of success rates."""
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
    """Held-out problems answered per configuration; 0 leaves the test out."""
    directions: tuple[Literal["checkpoint_into_reference", "reference_into_checkpoint"], ...] = (
        "checkpoint_into_reference",
        "reference_into_checkpoint",
    )
    """Whose tokens are put into whose completions."""
    selectors: tuple[SwapSelector, ...] = ("js", "logprob_drop", "entropy", "random")
    """Scores that decide where the other model's token is taken; logprob_drop: how much less likely the other model
    finds the proposed token."""
    shares: tuple[Share, ...] = (0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
    """Shares of tokens taken from the other model, for each selector."""
    num_samples: PositiveInt = 1
    """Completions per problem and configuration."""
    temperature: Positive = 1.0
    """Sampling temperature."""

    @model_validator(mode="after")
    def _check_lists(self) -> CrossSamplingConfig:
        _check_distinct(self, "directions", "selectors", "shares", empty=False)
        return self


class PivotConfig(Model):
    """Values of prefixes along rollouts, and pivotal tokens by bisection."""

    max_rollouts: Count = 0
    """Most rollouts searched; 0 leaves the test out."""
    unit: Literal["token", "sentence"] = "token"
    """Search for single tokens by bisection, or measure the value after every sentence."""
    policies: tuple[Literal["reference", "checkpoint"], ...] = ("reference", "checkpoint")
    """Which model writes the continuations; each of the two searches on its own and costs as many. The reference is
    seldom right on problems that were selected because it is wrong there, and what is never right cannot fall."""
    gap: Share = 0.2
    """Smallest jump of the success rate that counts."""
    false_positive_rate: Share = 0.05
    """Largest chance that two equal success rates seem to differ by the gap."""
    num_continuations: PositiveInt | None = None
    """Continuations per prefix; null: the fewest with that false-positive rate."""
    temperature: Positive = 1.0
    """Sampling temperature."""

    @model_validator(mode="after")
    def _check_lists(self) -> PivotConfig:
        _check_distinct(self, "policies", empty=False)
        return self


class AttributionConfig(Model):
    """Which earlier tokens made the checkpoint disagree at its spikes."""

    method: Literal["none", "gradient", "attention"] = "none"
    """How earlier tokens are scored; none leaves the analysis out."""
    max_spikes: PositiveInt = 40
    """Most positions explained, the highest of each rollout first."""


class ProbeConfig(Model):
    """Which checkpoints are compared with which reference, on which rollouts."""

    reference: str | None = None
    """The checkpoint that others are compared with: a stage (its last checkpoint), a label (`rl-30`), a directory
    (`step_000538`) or `base`, the model that training began with. Null: the stage before the last, or the base."""
    final: str | None = None
    """The checkpoint that the headline metrics are about; null: the last one."""
    checkpoints: str | None = None
    """The stage whose checkpoints are compared with the reference; null: the last stage."""
    baseline: str | None = None
    """A checkpoint from before the reference: the difference between the two was there before the stage began. Null:
    the stage before the reference's, or the base."""
    every: PositiveInt | None = None
    """During training, measure the divergence from the policy that the stage began with, on its completions of 16
    held-out problems, every so many steps: the metrics `live_kl_forward`, `live_kl_reverse`, `live_js` and
    `live_entropy`. Null: never."""
    pairs: tuple[Literal["consecutive", "baseline"], ...] = ("consecutive", "baseline")
    """Pairs of models measured besides each checkpoint against the reference."""
    selection: Literal["greedy", "split"] = "greedy"
    """How `reference wrong, final right` is decided: by the greedy completions that are then read, or by one half of
    the sampled completions while the other half is read (`split`)."""
    populations: tuple[PopulationName, ...] = (
        "reference_wrong",
        "reference_right",
        "checkpoint_right",
        "checkpoint_wrong",
    )
    """Rollouts read besides the headline population."""
    max_rollouts: PositiveInt = 200
    """Most rollouts of the headline population: the reference's wrong answers to problems that the final checkpoint
    gets right."""
    max_other_rollouts: PositiveInt = 100
    """Most rollouts of each other population."""
    min_rollouts: PositiveInt = 20
    """Below this many rollouts the summary calls its metrics not reliable."""
    noise_models: Count = 5
    """Random models that serve as a null for where the divergence falls: the reference plus Gaussian noise, as far away
    as the final checkpoint. At least 3; 0 leaves them out."""
    divergence: DivergenceName = "js"
    """The divergence used where there is only one: causal tests, report, headline metrics."""
    top_k: PositiveInt = 5
    """Keep each model's so many most likely tokens at every position."""
    tokens_per_chunk: PositiveInt = 256
    """Rows of `[tokens, vocabulary]` in memory at a time."""
    tokens_per_batch: PositiveInt = 16384
    """Padded tokens of one forward pass, and of one saved part."""
    kernel: Literal["auto", "eager", "compiled"] = "auto"
    """How statistics over the vocabulary are computed; auto compiles where that pays."""
    keep_states: bool = False
    """Keep hidden states and statistics in `probe/states` after the probe is complete."""
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
