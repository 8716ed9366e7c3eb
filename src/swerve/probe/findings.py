"""Measurements -> the entries of the summary that need no further model run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from swerve.probe.biography import (
    Biographies,
    BiographySettings,
    biographies,
    biography_figures,
    biography_rows,
    biography_settings,
)
from swerve.probe.correlates import correlate_figures
from swerve.probe.direction import direction_figures
from swerve.probe.entropy_dynamics import entropy_figures, forking_figures
from swerve.probe.measurement import Measurement
from swerve.probe.plan import ProbePlan
from swerve.probe.rank_shift import rank_shift_figures, style_figures
from swerve.probe.recovery import recovery_figures
from swerve.probe.regions import Resampling, region_figures
from swerve.probe.signal_figures import signal_figures
from swerve.probe.spikes import null_false_discoveries
from swerve.probe.summary import category_figures, divergence_figures, noise_floor, spike_figures
from swerve.probe.tables import DIVERGENCES, Measurements, SpikeTable
from swerve.seeds import derive_seed

__all__ = ["Findings"]

# Enough for a 95% interval's ends; figures over many parts would take minutes with more.
_NUM_RESAMPLES = 500
_WITHOUT_OUTCOME = ("training", "imported")
"""Populations that do not tell right from wrong answers: written by changing weights, or not graded."""
_LEAST_MOVE = 0.01
"""Nats: where training says nothing of a token, its log-probability drifts by about this much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything that is computed from the measurements of a plan."""

    plan: ProbePlan
    measured: Measurement
    everything: Measurements
    """The checkpoints against the reference, all populations."""
    headline: Measurements
    """The checkpoints against the reference, the headline population."""
    spikes: SpikeTable
    """Of the headline population."""

    def figures(self) -> dict[str, Any]:
        """Return the entries of the summary, by name."""
        plan, headline, spikes = self.plan, self.headline, self.spikes
        divergence, resampling = plan.settings.divergence, self._resampling
        rows = spikes.rows(spikes.method)
        last = headline.pick(lambda checkpoint, _: checkpoint == plan.final)
        return {
            "noise_floor": noise_floor(self.measured.null),
            "null": self._null(),
            "spikes": spike_figures(headline, spikes, confidence=plan.confidence),
            "divergences": self._means(headline),
            "pairs": self._means(self._other_pairs()),
            "populations": self._populations(),
            "categories": category_figures(headline, spikes, divergence=divergence, resampling=resampling),
            "regions": region_figures(headline, rows, resampling=resampling),
            "style": style_figures(headline, divergence=divergence, resampling=resampling),
            "entropy": {
                "means": entropy_figures(
                    headline, vocabulary_size=self.measured.vocabulary_size, resampling=resampling
                ),
                "forking": forking_figures(headline, rows, resampling=resampling),
            },
            "rank_shift": rank_shift_figures(
                self.everything.pick(lambda checkpoint, _: checkpoint == plan.final), resampling=resampling
            ),
            "recovery": self._recovery(last),
            "biographies": biography_figures(
                headline, self._biographies(), settings=self._biography_settings, resampling=resampling
            ),
            "direction": direction_figures(
                self._with_outcomes(), divergence=divergence, pieces=self.measured.pieces, resampling=resampling
            ),
            "correlates": correlate_figures(self._with_outcomes(), divergence=divergence, resampling=resampling),
            "training_signal": self._signals(),
        }

    @property
    def _resampling(self) -> Resampling:
        seed = derive_seed(self.plan.seed, "probe", "bootstrap", "findings")
        return Resampling(confidence=self.plan.confidence, num_resamples=_NUM_RESAMPLES, seed=seed)

    def _means(self, data: Measurements) -> list[dict[str, Any]]:
        return divergence_figures(
            data,
            confidence=self.plan.confidence,
            num_resamples=self.plan.settings.causal.num_bootstrap,
            seed=derive_seed(self.plan.seed, "probe", "bootstrap", "divergences"),
        )

    def _other_pairs(self) -> Measurements:
        """Return the pairs that are not a checkpoint against the reference, on the headline population."""
        reference = self.plan.reference.label
        others = self.measured.pairs.pick(lambda _, other: other != reference)
        return others.select(lambda one: one.population == self.plan.population)

    def _populations(self) -> list[dict[str, Any]]:
        """Return the size of each population and the checkpoints' mean divergences on it."""
        found = []
        for name in dict.fromkeys(one.population for one in self.everything.sequences):
            part = self.everything.select(lambda one, name=name: one.population == name)  # type: ignore[misc]
            found.append(
                {
                    "population": name,
                    "source": part.sequences[0].source,
                    "num_rollouts": len(part.sequences),
                    "num_tokens": len(part.categories),
                    "num_correct": sum(one.correct for one in part.sequences),
                    "divergences": self._means(part),
                }
            )
        return found

    def _with_outcomes(self) -> Measurements:
        """Return the rollouts that the reference (or somebody else) wrote, right and wrong ones."""
        labels = {one.label for one in self.plan.checkpoints}
        return self.everything.select(lambda one: one.source not in labels and one.population not in _WITHOUT_OUTCOME)

    def _null(self) -> dict[str, Any]:
        """Return what each method finds where there is nothing: in the null pair, by each divergence."""
        null, label = self.measured.null, self.plan.reference.label
        clusters = [one.problem.id for one in null.sequences]
        return {
            "num_tokens": len(null.categories),
            "false_discoveries": {
                name: null_false_discoveries(
                    null.by_sequence(name, label),
                    self.plan.settings.spikes,
                    pooled=self.headline.columns[name].ravel(),
                    clusters=clusters,
                    confidence=self.plan.confidence,
                    seed=self.plan.seed,
                )
                for name in DIVERGENCES
            },
        }

    def _recovery(self, last: Measurements) -> dict[str, Any] | None:
        """Return how well divergences and other scores find the steps known to be wrong, at the final checkpoint."""
        if not any(one.wrong for one in last.sequences):
            return None
        found = {key: spikes for key, spikes in self.spikes.found.items() if key[0] == self.plan.final}
        return recovery_figures(last, found, confidence=self.plan.confidence, seed=self.plan.seed)

    @property
    def _biography_settings(self) -> BiographySettings:
        return biography_settings(self._move_noise, confidence=self.plan.confidence)

    @property
    def _move_noise(self) -> float:
        """The largest difference of log-probabilities (nats) of the reference from itself."""
        moves = np.abs(self.measured.null.columns["logprob"] - self.measured.null.columns["logprob_ref"])
        return float(moves[np.isfinite(moves)].max(initial=0.0))

    def _biographies(self) -> Biographies:
        steps = [self.plan.steps[label] for label in self.headline.checkpoints]
        start = self.plan.steps.get(self.plan.reference.label)
        first = start if start is not None and start < steps[0] else None
        return biographies(self.headline, steps, start_step=first, settings=self._biography_settings)

    def biography_rows(self) -> list[dict[str, Any]]:
        """Return the rows of `biographies.parquet`."""
        return biography_rows(self.headline, self._biographies())

    def _signals(self) -> list[dict[str, Any]]:
        if not self.plan.signals:
            return []
        return signal_figures(
            self.measured.pairs,
            self.plan.signals,
            steps=self.plan.steps,
            divergence=self.plan.settings.divergence,
            confidence=self.plan.confidence,
            seed=self.plan.seed,
            noise=max(_LEAST_MOVE, self._move_noise),
        )
