"""Everything in `probe/summary.json`, as a typed record: the probe returns it, report and command line read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol, TypeVar

from pydantic import field_validator

from swerve.artifacts.files import verify_file
from swerve.artifacts.probe_causes import Attribution, CrossSampling, Pivots, Prediction, Swaps, SwapSelection
from swerve.artifacts.probe_claims import DivergenceClaim, NoiseModels
from swerve.artifacts.probe_dynamics import BiographySummary, Correlate, Direction, TrainingSignal
from swerve.artifacts.probe_findings import (
    CategoryShare,
    Divergence,
    DivergenceMeans,
    EntropySummary,
    NoiseFloor,
    NullPair,
    Population,
    RankShift,
    Recovery,
    RegionShare,
    SentenceRecovery,
    SpikeDensity,
    SpikeHits,
    SpikeRate,
    SpikeRecovery,
    StyleShare,
    TurnShare,
)
from swerve.artifacts.record import Record
from swerve.artifacts.run import RunDirectory
from swerve.errors import ArtifactError
from swerve.estimates import Estimate, McNemarResult
from swerve.text import NOT_MEASURED, counted, number_interval, points_interval, whole_percent


class HasCheckpoint(Protocol):
    """An entry about one checkpoint."""

    @property
    def checkpoint(self) -> str:
        """Label of the checkpoint."""


AtCheckpoint = TypeVar("AtCheckpoint", bound=HasCheckpoint)


class Responses(Record):
    """Responses from a file, as they were read."""

    path: str | None = None
    sha256: str | None = None
    format: str | None = None
    fields: Mapping[str, str] | None = None
    template: str | None = None
    ends: str | None = None
    num_responses: int | None = None
    num_problems: int | None = None
    boundaries: Mapping[str, int] | None = None
    """How many have their prompt's boundary from `joint` or `split` tokenisation, or from given `ids`."""
    task: str | None = None
    """The task whose grader judged them; null: as the file says, or by the graders that the problems name."""
    num_left_out: int | None = None
    """How many records have no response, such as requests that failed."""
    num_cut: int | None = None
    """How many are read only up to an id that the tokenizer has no token for, or left out where that comes first."""
    unread_turns: Mapping[str, int] | None = None
    """How many are left out, by the reason: several turns that are no one sequence of tokens, or too many tokens."""
    num_several_turns: int | None = None
    num_differing: int | None = None
    """The ids of how many say another text than the file has beside them: they may be another tokenizer's."""
    num_special_texts: int | None = None
    """How many hold the text of special tokens, which is encoded as text."""
    num_recorded: int | None = None
    """Of how many the file says whether they are right."""
    num_regraded: int | None = None
    """For how many of these the grader says otherwise, which is taken."""


class Selected(Record):
    """Samples of two models from files, and what was chosen of them."""

    name: str
    """The selection, which is the headline population: `reference_wrong_final_right` and the like."""
    where: tuple[str, ...]
    """Conditions of problems and lengths."""
    reference: Responses
    """Samples of the reference."""
    final: Responses
    """Samples of the final checkpoint."""
    both_right: int
    """Problems that both have right. Right is what most of the samples that decide say (`selection`)."""
    only_reference_right: int
    only_final_right: int
    both_wrong: int
    num_unshared: int
    """Problems that one file lacks; they are left out."""
    reference_accuracy: Estimate | None = None
    """Mean over problems of the fraction of all samples that are right, those that decide and those that do not."""
    final_accuracy: Estimate | None = None
    accuracy_difference: Estimate | None = None
    """Mean over problems of the difference of these fractions, final minus reference: paired."""
    p_value: float | None = None
    """Of no difference: sign flips over problems, McNemar's mid-p with one sample of each."""


class Compared(Record):
    """What was compared, on which rollouts, and how they were chosen."""

    reference: str
    final: str
    """Label of the checkpoint that the headline metrics and the causal tests are about."""
    baseline: str | None
    checkpoints: tuple[str, ...]
    weights_sha256: Mapping[str, str]
    """Of the reference and of every checkpoint."""
    num_problems: int
    """Problems evaluated."""
    num_reference_wrong: int | None
    """Of these, the ones that the reference gets wrong."""
    num_reference_wrong_final_right: int | None
    selection: Literal["greedy", "split", "imported", "single"]
    """`imported`: responses from a file; `single`: by one sample of each problem, which is read as well."""
    num_ties: int | None = None
    """Only of `split`: verdicts, of a model on a problem, drawn by a coin as half of the deciding samples are right."""
    tie_seed: int | None = None
    """Of these draws."""
    mcnemar: McNemarResult | None
    """Greedy accuracies of reference and final over all problems, or accuracies of one sample each; null where files
    have several samples of a problem, whose accuracies are in `selected`."""
    turned_by_itself: Estimate | None = None
    """Problems that the reference set against itself would get wrong and right: the same selection on samples of its
    own, drawn apart. With `greedy`, of single sampled completions. Null where a problem has too few samples."""
    reselected: Estimate | None
    """Fraction of the selected rollouts that another draw would select again."""
    responses: Responses | None = None
    """Only of responses from a file."""
    selected: Selected | None = None
    """Only of rollouts chosen from two files of samples."""


class DivergenceFindings(Record):
    """What the models' distributions over the rollouts say; all of it needs rollouts."""

    noise_floor: Mapping[Divergence, NoiseFloor] | None = None
    null: NullPair | None = None
    spikes: tuple[SpikeHits, ...] = ()
    spike_densities: tuple[SpikeDensity, ...] = ()
    """By the methods with a threshold in nats, in thirds of the completions."""
    divergences: tuple[DivergenceMeans, ...] = ()
    """Of each checkpoint from the reference."""
    stages: tuple[DivergenceMeans, ...] = ()
    """Of named groups of checkpoints from the reference, each token's mean over the group; `checkpoint` is the name."""
    pairs: tuple[DivergenceMeans, ...] = ()
    """Of consecutive checkpoints, and of the reference against the baseline."""
    populations: tuple[Population, ...] = ()
    categories: tuple[CategoryShare, ...] = ()
    regions: tuple[RegionShare, ...] = ()
    turns: tuple[TurnShare, ...] = ()
    """Only where rollouts have several turns."""
    style: tuple[StyleShare, ...] = ()
    entropy: EntropySummary | None = None
    rank_shift: tuple[RankShift, ...] = ()
    recovery: Recovery | None = None
    """By token."""
    sentence_recovery: SentenceRecovery | None = None
    """By sentence, or step: of rollouts whose label says no more."""
    noise_models: NoiseModels | None = None
    """What the claims are set against besides chance and the reference's entropy."""
    claims: tuple[DivergenceClaim, ...] = ()
    """About where the final checkpoint's divergence falls."""
    biographies: BiographySummary | None = None
    direction: tuple[Direction, ...] | None = None
    """Of graded rollouts."""
    correlates: tuple[Correlate, ...] | None = None
    """Of graded rollouts."""
    training_signal: tuple[TrainingSignal, ...] = ()


class Tested(Record):
    """What further model runs said of causes; all of it needs rollouts, all but attribution a grader."""

    causal: Swaps | None = None
    prediction: tuple[Prediction, ...] = ()
    pivots: tuple[Pivots, ...] = ()
    """One for each model that continued."""
    cross_sampling: CrossSampling | None = None
    attribution: tuple[Attribution, ...] | None = None

    @field_validator("pivots", mode="before")
    @classmethod
    def _of_one_policy(cls, pivots: Any) -> Any:
        """Return the pivots of a summary from before there were two policies, or none, as those of a list."""
        if pivots is None:
            return ()
        return (pivots,) if isinstance(pivots, Mapping) else pivots


class ProbeSummary(Tested, DivergenceFindings, Compared):
    """Everything that `probe/summary.json` holds."""

    population: str
    """Name of the headline population."""
    divergence: Divergence
    """The divergence that single metrics are about."""
    spike_method: str
    confidence: float
    """Level of all intervals."""
    num_rollouts: int
    """Of the headline population."""
    num_rollout_problems: int | None = None
    """Problems that these rollouts are of."""
    reliable: bool
    """False: fewer rollouts than `probe.min_rollouts`."""
    notes: tuple[str, ...] = ()
    """Caveats that the metrics call for."""
    tables: Mapping[str, str] = {}
    """SHA-256 of each table of the probe, by name within `probe/`."""

    def __repr__(self) -> str:
        """Return three lines: what was compared on how much, how far it is apart, and what a forced token does."""
        compared = f"{', '.join(self.checkpoints)} against {self.reference}"
        far = (
            NOT_MEASURED
            if self.final_divergence is None
            else f"{number_interval(self.final_divergence)} nats per token"
        )
        return (
            f"ProbeSummary({compared}: {counted(self.num_rollouts, 'rollout')} of {self.population})\n"
            f"{self.final}: {self.divergence} {far}\n"
            f"{self.cause_line or 'not tested for cause: no token was forced at a spike'}"
        )

    @property
    def cause_line(self) -> str | None:
        """How often continuations end right after each token at the highest spikes, in words; None: not tested."""
        spike = self.spike_swaps
        if spike is None:
            return None
        if spike.effect is None:
            return f"at {counted(spike.num_positions, 'spike')} both models choose the same token: nothing was replaced"
        own, new, other = (whole_percent(arm.success) for arm in (spike.reference, spike.checkpoint, spike.alternative))
        tried = "" if spike.alternative.success is None else f", {other} after another"
        return (
            f"at {counted(spike.num_positions, 'spike')} {self.reference} ends right {own} after the answer's own "
            f"token, {new} after that of {self.final}{tried}: {points_interval(spike.effect)} points"
        )

    @property
    def by_itself(self) -> str:
        """How many problems the reference alone would turn (regression to the mean), in words."""
        turned = self.turned_by_itself
        if turned is None:
            return f"how many {self.reference} itself would on another try cannot be known from one completion each"
        how = "single samples" if self.selection == "greedy" else "another draw of its samples"
        return f"by {how} {self.reference} itself would turn {number_interval(turned)}"

    @property
    def is_imported(self) -> bool:
        """Whether the probe is of responses or samples from files, without an evaluation."""
        return self.selection == "imported" or self.selected is not None

    @property
    def knows_no_wrong_step(self) -> bool:
        """Whether no step is known to be wrong, as where the task does not check steps."""
        return bool(self.spikes) and all(one.num_rollouts + one.num_sentence_rollouts == 0 for one in self.spikes)

    @property
    def consecutive_pairs(self) -> tuple[DivergenceMeans, ...]:
        """The pairs of each checkpoint with the one before it."""
        return tuple(one for one in self.pairs if one.checkpoint != self.reference)

    @property
    def baseline_pairs(self) -> tuple[DivergenceMeans, ...]:
        """The pair of the reference with its baseline, from before the stage."""
        return tuple(one for one in self.pairs if one.checkpoint == self.reference)

    @property
    def final_divergence(self) -> Estimate | None:
        """Mean of the headline divergence at the final checkpoint."""
        found = self.at_final(self.divergences)
        return None if found is None else found.of(self.divergence)

    @property
    def rule(self) -> SpikeRecovery | None:
        """How well the headline method's spikes find wrong steps."""
        found = () if self.recovery is None else self.recovery.spikes
        key = self.divergence, self.spike_method
        return next((one for one in found if (one.divergence, one.method) == key), None)

    @property
    def spike_swaps(self) -> SwapSelection | None:
        """Swaps at the highest spike, continued by the reference."""
        return None if self.causal is None else self.causal.selection("spike")

    def claim(self, figure: str, of: str) -> DivergenceClaim | None:
        """Return the figure about where the divergence falls; of thirds and categories the largest."""
        found = [claim for claim in self.claims if (claim.figure, claim.of) == (figure, of)]
        return max(found, key=lambda claim: claim.estimate.mean, default=None)

    def at_final(self, entries: Iterable[AtCheckpoint] | None) -> AtCheckpoint | None:
        """Return the first entry of the final checkpoint, if there is one."""
        return next((one for one in entries or () if one.checkpoint == self.final), None)

    def spikes_per_1000(self, spikes: SpikeRecovery) -> float | None:
        """Return the density of a method's spikes at the final checkpoint, per 1,000 tokens."""
        num_tokens = 0 if self.recovery is None else self.recovery.num_tokens
        return 1000 * spikes.num_spikes / num_tokens if num_tokens else None

    def spike_hits(self, checkpoint: str, divergence: Divergence) -> SpikeHits | None:
        """Return the hits of one checkpoint and divergence, if they were measured."""
        found = (one for one in self.spikes if (one.checkpoint, one.divergence) == (checkpoint, divergence))
        return next(found, None)

    def false_discoveries(self, divergence: Divergence, method: str) -> SpikeRate | None:
        """Return what a method finds in the null pair, if it was measured."""
        by_method = {} if self.null is None else self.null.false_discoveries.get(divergence, {})
        return by_method.get(method)


def read_summary(run: RunDirectory) -> ProbeSummary | None:
    """Return the summary of a run's probe, or None if the run was not probed.

    Raises:
        ArtifactError: the file is damaged or of another version, or a table is not the one that was written with it.
    """
    path, remedy = run.probe_path / "summary.json", f"run swerve probe {run.quoted} again"
    if not path.is_file():
        return None
    found = ProbeSummary.read(path, remedy=remedy)
    for name, digest in found.tables.items():
        try:
            verify_file(path.parent / name, digest, listed_in=path.name)
        except ArtifactError as error:
            raise ArtifactError(f"{error}; {remedy}") from None
    return found
