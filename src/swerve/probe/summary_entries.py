"""The entries of `summary.json` that need no further model run, and the notes that the entries call for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from swerve.config import ProbeConfig
from swerve.probe.engine.measured import DIVERGENCES, Measurement, Measurements
from swerve.probe.findings.biography import (
    Biographies,
    BiographySettings,
    biographies,
    biography_figures,
    biography_settings,
)
from swerve.probe.findings.correlates import correlate_figures, direction_figures
from swerve.probe.findings.entropy import entropy_figures, forking_figures
from swerve.probe.findings.parts import (
    Resampling,
    category_figures,
    rank_shift_figures,
    region_figures,
    style_figures,
)
from swerve.probe.findings.planted import recovery_figures
from swerve.probe.findings.spike_table import SpikeTable, spike_figures
from swerve.probe.findings.spikes import null_false_discoveries
from swerve.probe.findings.training_signal import signal_figures
from swerve.probe.plan import ProbePlan
from swerve.seeds import derive_seed
from swerve.statistics import Estimate, bootstrap_mean
from swerve.statistics.resampling import membership

# Enough for a 95% interval's ends; figures over many parts would take minutes with more.
_NUM_RESAMPLES = 500

_WITHOUT_OUTCOME = ("training", "imported")
"""Populations that do not tell right from wrong answers: written by changing weights, or not graded."""

_LEAST_MOVE = 0.01
"""Nats: where training says nothing of a token, its log-probability drifts by about this much."""


@dataclass(frozen=True, kw_only=True)
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
                headline, self.biographies, settings=self._biography_settings, resampling=resampling
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

    @cached_property
    def biographies(self) -> Biographies:
        """Every token of the headline population over the checkpoints."""
        steps = [self.plan.steps[label] for label in self.headline.checkpoints]
        start = self.plan.steps.get(self.plan.reference.label)
        first = start if start is not None and start < steps[0] else None
        return biographies(self.headline, steps, start_step=first, settings=self._biography_settings)

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


NOTHING_MEASURED: Mapping[str, Any] = {
    "noise_floor": None,
    "null": None,
    "spikes": [],
    "divergences": [],
    "pairs": [],
    "populations": [],
    "categories": [],
    "regions": [],
    "style": [],
    "entropy": None,
    "rank_shift": [],
    "recovery": None,
    "biographies": None,
    "direction": None,
    "correlates": None,
    "training_signal": [],
    "causal": None,
    "prediction": [],
    "pivots": None,
    "cross_sampling": None,
    "attribution": None,
}
"""Every entry of the summary that needs rollouts."""


def _cut_off(plan: ProbePlan, summary: Mapping[str, Any]) -> list[str]:
    """Say where rollouts go beyond what the causal tests let a completion be."""
    lengths = [len(one.completion_ids) for one in plan.headline]
    longer = sum(length > plan.max_new_tokens for length in lengths)
    if not longer or not (summary["causal"] or summary["pivots"]):
        return []
    return [
        f"{longer} of {len(lengths)} rollouts are longer than max_new_tokens={plan.max_new_tokens}, where "
        "continuations are cut off and graded as they stand: swaps late in them have no effect; set it to "
        f"{max(lengths)} or more"
    ]


_FLOOR_FACTOR = 10.0

_MOSTLY_SAME = 0.9


def divergence_figures(data: Measurements, *, confidence: float, num_resamples: int, seed: int) -> list[dict[str, Any]]:
    """Return each pair's mean divergences and entropies over all tokens (nats), problems resampled.

    A divergence that is infinite somewhere has no mean: None.
    """
    _, problems = membership(data.problem_ids, len(data.categories))  # sorts names once, not once a figure

    def estimate(name: str, index: int) -> Estimate | None:
        values = data.columns[name][index]
        if not np.isfinite(values).all():
            return None
        return bootstrap_mean(values, clusters=problems, confidence=confidence, num_resamples=num_resamples, seed=seed)

    names = (*DIVERGENCES, "entropy", "entropy_ref")
    return [
        {
            "checkpoint": checkpoint,
            "reference": reference,
            **{name: estimate(name, index) for name in names},
        }
        for index, (checkpoint, reference) in enumerate(zip(data.checkpoints, data.references, strict=True))
    ]


def noise_floor(null: Measurements) -> dict[str, dict[str, float]]:
    """Return mean and largest divergence (nats) of a model from itself, run with other batches."""
    columns = {name: null.columns[name].astype(np.float64) for name in DIVERGENCES}
    return {name: {"mean": float(values.mean()), "max": float(values.max())} for name, values in columns.items()}


def notes(summary: Mapping[str, Any], settings: ProbeConfig) -> list[str]:
    """Return the caveats that the figures themselves call for."""
    found = []
    num_rollouts, divergence = summary["num_rollouts"], summary["divergence"]
    if num_rollouts < settings.min_rollouts:
        found.append(
            f"only {num_rollouts} rollouts, fewer than the {settings.min_rollouts} asked for by "
            "probe.min_rollouts: the figures are not to be relied upon"
        )
    num_marked = summary["spikes"][0]["num_rollouts"] if summary["spikes"] else 0
    if num_marked < num_rollouts:
        found.append(f"{num_rollouts - num_marked} of {num_rollouts} rollouts have no step known to be wrong")
    floor = (summary["noise_floor"] or {}).get(divergence, {}).get("mean", 0.0)
    noisy = [
        entry["checkpoint"]
        for entry in summary["divergences"]
        if entry[divergence] is not None and entry[divergence].mean <= _FLOOR_FACTOR * floor
    ]
    if noisy:
        found.append(
            f"the mean {divergence} of {', '.join(noisy)} is within {_FLOOR_FACTOR:.0f} times the rounding noise: "
            "its spikes are noise"
        )
    for entry in (summary["causal"] or {}).get("selections", ()):
        if entry["selection"] != "spike" and entry["share_same_token"] >= _MOSTLY_SAME:
            found.append(
                f"at {100 * entry['share_same_token']:.0f}% of the {entry['selection']} positions "
                f"{summary['final']} chose the "
                "reference's own token, so the control says that nothing changed there, not what another token would do"
            )
    num_problems = summary.get("num_rollout_problems", num_rollouts)
    if num_problems < settings.min_rollouts <= num_rollouts:
        found.append(
            f"the {num_rollouts} rollouts are of {num_problems} problem{'s' * (num_problems != 1)} only: intervals "
            "resample problems and are too narrow with so few"
        )
    found += _left_out(summary, settings) if num_rollouts else []
    if num_rollouts and summary.get("selection") == "greedy":
        found.append(
            "problems were selected by the same greedy completions that are described here, so accuracies over them "
            f"are not estimates for new problems{_again(summary)}"
        )
    return found


def _left_out(summary: Mapping[str, Any], settings: ProbeConfig) -> list[str]:
    """Say that figures which set right rollouts against wrong ones lack wrong ones, because of what the final did."""
    missing = (summary.get("num_reference_wrong") or 0) - (summary.get("num_reference_wrong_final_right") or 0)
    if missing <= 0 or "reference_wrong" in settings.populations or not summary.get("direction"):
        return []
    reference, final = summary["reference"], summary["final"]
    return [
        f"{missing} problems that both {reference} and {final} get wrong are not read, so the wrong rollouts are those "
        f"{final} moved away from, and direction and correlates say too much about right and wrong: add "
        "reference_wrong to probe.populations"
    ]


def _again(summary: Mapping[str, Any]) -> str:
    """Say how much of the selection another draw would make again."""
    again = summary.get("reselected")
    if again is None:
        return ""
    return (
        f": of those selected, another draw of sampled completions would select {100 * again['mean']:.0f}% "
        f"[{100 * again['low']:.0f}, {100 * again['high']:.0f}] again"
    )
