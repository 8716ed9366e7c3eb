"""The entries of `summary.json` that need no further model run, and the notes that the entries call for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from swerve.artifacts.probe_findings import (
    DIVERGENCES,
    Divergence,
    DivergenceMeans,
    EntropySummary,
    NoiseFloor,
    NullPair,
    Population,
)
from swerve.artifacts.probe_summary import DivergenceFindings, ProbeSummary
from swerve.config.probe import ProbeConfig
from swerve.probe.engine.measured import Measurement, Measurements, Pair
from swerve.probe.findings.biography import (
    Biographies,
    biographies,
    summarise_biographies,
)
from swerve.probe.findings.correlates import divergence_correlates, move_directions
from swerve.probe.findings.divergence_claims import divergence_claims
from swerve.probe.findings.entropy import checkpoint_entropies, forking_overlaps
from swerve.probe.findings.planted import planted_recovery, sentence_recovery
from swerve.probe.findings.spike_table import SpikeTable, spike_hits
from swerve.probe.findings.spikes import null_false_discoveries
from swerve.probe.findings.token_shares import (
    category_shares,
    rank_shifts,
    region_shares,
    spike_densities,
    style_shares,
    turn_shares,
)
from swerve.probe.findings.training_signal import training_signals
from swerve.probe.intervals import MOST
from swerve.probe.plan import ProbePlan
from swerve.statistics.clusters import membership
from swerve.text import counted, percent_interval

_FLOOR_FACTOR = 10.0
_MOSTLY_SAME = 0.9

_WITHOUT_OUTCOME = ("training", "imported")
"""Populations that do not tell right from wrong answers: written by changing weights, or not graded."""

_LEAST_MOVE = 0.01
"""Nats: where training says nothing of a token, its log-probability drifts by about this much."""


def findings(
    plan: ProbePlan, measured: Measurement, everything: Measurements, headline: Measurements, spikes: SpikeTable
) -> tuple[DivergenceFindings, Biographies]:
    """Return the entries of the summary that the measurements give, and every token's biography.

    Args:
        plan: what was asked for.
        measured: all that was measured.
        everything: of it the checkpoints against the reference, all populations.
        headline: the same on the headline population.
        spikes: of the headline population.
    """
    reference, divergence = plan.reference.label, plan.recipe.probe.divergence

    # What noise makes, and what else was measured on the headline population.
    moves = np.abs(measured.null.columns["logprob"] - measured.null.columns["logprob_ref"])
    move_noise = float(moves[np.isfinite(moves)].max(initial=0.0))
    histories = _biographies(plan, headline, move_noise)
    other_pairs = measured.pairs.pick(lambda _, other: other != reference)
    other_pairs = other_pairs.select(lambda sequence: sequence.population == plan.population)

    # At the final checkpoint: where wrong steps are known, and ranks of all populations.
    last = headline.pick(lambda checkpoint, _: checkpoint == plan.final)
    last_of_all = everything.pick(lambda checkpoint, _: checkpoint == plan.final)
    recovery = None
    if any(sequence.wrong for sequence in last.sequences):
        at_final = {key: by_sequence for key, by_sequence in spikes.found.items() if key[0] == plan.final}
        recovery = planted_recovery(last, at_final)

    # Rollouts that the reference (or somebody else) wrote, right and wrong ones.
    checkpoints = {model.label for model in plan.checkpoints}
    graded = everything.select(
        lambda sequence: (
            sequence.label not in checkpoints
            and sequence.population not in _WITHOUT_OUTCOME
            and sequence.correct is not None
        )
    )
    entries = DivergenceFindings(
        noise_floor=noise_floor(measured.null),
        null=_null(plan, measured.null, headline),
        spikes=spike_hits(headline, spikes, confidence=plan.confidence),
        spike_densities=spike_densities(headline, spikes, divergence=divergence),
        divergences=divergence_means(headline),
        stages=divergence_means(grouped(headline, plan.recipe.checkpoints_of_stages)),
        pairs=_paired(other_pairs, headline.pair(plan.final), baseline=plan.recipe.baseline, divergence=divergence),
        populations=_populations(everything, plan),
        categories=category_shares(headline, spikes, divergence=divergence),
        regions=region_shares(headline, spikes),
        turns=turn_shares(headline, spikes),
        style=style_shares(headline, divergence=divergence),
        entropy=EntropySummary(
            means=checkpoint_entropies(headline, vocabulary_size=measured.vocabulary_size),
            forking=forking_overlaps(headline, spikes),
        ),
        rank_shift=rank_shifts(last_of_all),
        recovery=recovery,
        sentence_recovery=sentence_recovery(last),
        noise_models=measured.noise_models,
        claims=divergence_claims(last, measured.noise, divergence=divergence),
        biographies=summarise_biographies(headline, histories),
        direction=move_directions(graded, pieces=measured.pieces, divergence=divergence),
        correlates=divergence_correlates(graded, divergence=divergence),
        training_signal=training_signals(
            measured.pairs, plan.signals, steps=plan.steps, noise=max(_LEAST_MOVE, move_noise), divergence=divergence
        ),
    )
    return entries, histories


def _biographies(plan: ProbePlan, headline: Measurements, move_noise: float) -> Biographies:
    """Return the biographies of tokens over the checkpoints, from the reference on where it comes before them."""
    steps = [plan.steps[label] for label in headline.checkpoints]
    start = plan.steps.get(plan.reference.label)
    first = start if start is not None and start < steps[0] else None
    return biographies(headline, steps, start_step=first, noise=move_noise)


def _paired(
    data: Measurements, final: Pair, *, baseline: str | None, divergence: Divergence
) -> tuple[DivergenceMeans, ...]:
    """Return the mean divergences of other pairs, each with how far it is behind what it is set against."""
    means, tokens = divergence_means(data), data.over
    neighbours = [entry for entry in means if entry.reference != baseline]
    largest = max(neighbours, key=lambda entry: mean.mean if (mean := entry.of(divergence)) else -1.0, default=None)
    entries = []
    for entry, pair in zip(means, data.pairs(), strict=True):
        against = final if entry.reference == baseline else data.pair(largest.checkpoint) if largest else None
        behind = None
        if against is not None and entry is not largest:
            with np.errstate(invalid="ignore"):  # infinite ones have no difference
                difference = against.nats(divergence) - pair.nats(divergence)
            behind = tokens.mean(difference, tokens.everywhere)
        entries.append(entry.model_copy(update={"behind": behind}))
    return tuple(entries)


def _populations(everything: Measurements, plan: ProbePlan) -> tuple[Population, ...]:
    """Return the size of each population, the checkpoints' mean divergences on it, and how the final one's differs."""
    values, tokens = everything.pair(plan.final).nats(plan.recipe.probe.divergence), everything.over
    of_tokens = np.repeat([str(sequence.population) for sequence in everything.sequences], everything.lengths)
    populations = []
    for name in dict.fromkeys(sequence.population for sequence in everything.sequences):
        above, correct = None, [each.correct for each in everything.sequences if each.population == name]
        if name != plan.population:
            above = tokens.mean_difference(values, of_tokens == name, of_tokens == plan.population)
        part = everything.select(lambda sequence, name=name: sequence.population == name)  # type: ignore[misc]
        populations.append(
            Population(
                population=name,
                source=part.sequences[0].label or "",
                num_rollouts=len(part.sequences),
                num_tokens=len(part.categories),
                num_correct=None if None in correct else correct.count(True),
                divergences=divergence_means(part),
                above_headline=above,
            )
        )
    return tuple(populations)


def _null(plan: ProbePlan, null: Measurements, headline: Measurements) -> NullPair:
    """Return what each method finds where there is nothing: in the null pair, by each divergence."""
    clusters = [sequence.problem.id for sequence in null.sequences]
    return NullPair(
        num_tokens=len(null.categories),
        false_discoveries={
            name: null_false_discoveries(
                null.by_sequence(name, plan.reference.label),
                plan.recipe.probe.spikes,
                pooled=headline.columns[name].ravel(),
                clusters=clusters,
                confidence=plan.confidence,
            )
            for name in DIVERGENCES
        },
    )


def divergence_means(data: Measurements) -> tuple[DivergenceMeans, ...]:
    """Return each pair's mean divergences and entropies over all tokens (nats), with intervals over problems.

    A divergence that is infinite somewhere has no mean: None.
    """
    _, problems = membership(data.problem_ids, len(data.categories))  # sorts names once, not once a figure
    return tuple(
        DivergenceMeans(
            checkpoint=checkpoint,
            reference=reference,
            **{
                name: data.intervals.skewed_mean(data.columns[name][index], problems, most=MOST.get(name, math.inf))
                for name in DIVERGENCES
            },
            entropy=data.intervals.entropy(data.columns["entropy"][index], problems),
            entropy_ref=data.intervals.entropy(data.columns["entropy_ref"][index], problems),
        )
        for index, (checkpoint, reference) in enumerate(zip(data.checkpoints, data.references, strict=True))
    )


def grouped(data: Measurements, groups: Mapping[str, Sequence[str]]) -> Measurements:
    """Return measurements whose checkpoints are groups: divergences and entropies of a token are means over a group."""
    rows = [[data.checkpoints.index(name) for name in names] for names in groups.values()]
    names = (*DIVERGENCES, "entropy", "entropy_ref")
    columns = {
        name: np.array([data.columns[name][own].mean(axis=0, dtype=np.float64) for own in rows]) for name in names
    }
    references = tuple(data.references[own[0]] for own in rows)
    return replace(data, checkpoints=tuple(groups), references=references, columns=columns)


def noise_floor(null: Measurements) -> dict[Divergence, NoiseFloor]:
    """Return mean and largest divergence (nats) of a model from itself, run with other batches."""
    columns = {name: null.columns[name].astype(np.float64) for name in DIVERGENCES}
    return {name: NoiseFloor(mean=float(values.mean()), max=float(values.max())) for name, values in columns.items()}


def summary_notes(summary: ProbeSummary, settings: ProbeConfig) -> list[str]:
    """Return the caveats that the metrics themselves call for."""
    num_rollouts = summary.num_rollouts
    notes = []

    # Too little to go on, or nothing but noise.
    if num_rollouts < settings.min_rollouts:
        notes.append(
            f"only {num_rollouts} rollouts, fewer than the {settings.min_rollouts} asked for by "
            "probe.min_rollouts: the metrics are not reliable"
        )
    num_marked = summary.spikes[0].num_rollouts + summary.spikes[0].num_sentence_rollouts if summary.spikes else 0
    if num_marked < num_rollouts:
        notes.append(
            f"no wrong step is marked in {num_rollouts - num_marked} of {num_rollouts} rollouts: at which token a "
            "wrong one of them goes wrong is not known"
        )
    noisy = _within_noise(summary)
    if noisy:
        notes.append(
            f"the mean {summary.divergence} of {', '.join(noisy)} is within {_FLOOR_FACTOR:.0f} times the rounding "
            "noise: its spikes are noise"
        )

    # Controls at which the checkpoint has nothing else to say.
    for entry in summary.causal.selections if summary.causal else ():
        if entry.selection != "spike" and entry.share_same_token >= _MOSTLY_SAME:
            says = "little" if entry.is_swapped else "nothing"
            notes.append(
                f"the {entry.selection} control positions say {says} about forcing a token: at "
                f"{100 * entry.share_same_token:.0f}% of them {summary.final} chooses the same token as "
                f"{summary.reference}, so that nothing was replaced"
            )

    # What the way the rollouts were chosen does to intervals and accuracies.
    num_problems = num_rollouts if summary.num_rollout_problems is None else summary.num_rollout_problems
    if num_problems < settings.min_rollouts <= num_rollouts:
        notes.append(
            f"the {num_rollouts} rollouts are of {counted(num_problems, 'problem')} only: intervals "
            "are over problems and say little with so few"
        )
    notes += _left_out(summary, settings) if num_rollouts else []
    if num_rollouts and summary.selection in ("greedy", "single"):
        which = "greedy completions" if summary.selection == "greedy" else "samples"
        again = ""
        if (share := summary.reselected) is not None:
            again = f": judged by other samples, {percent_interval(share)} of them would be chosen again"
        notes.append(
            f"the problems were chosen by the same {which} that are read here, so what holds for them need not hold "
            f"for new problems{again}"
        )
    return notes


def _within_noise(summary: ProbeSummary) -> list[str]:
    """Return the checkpoints whose mean divergence is hardly above that of the reference from itself."""
    floor = 0.0 if summary.noise_floor is None else summary.noise_floor[summary.divergence].mean
    means = [(entry.checkpoint, entry.of(summary.divergence)) for entry in summary.divergences]
    return [name for name, mean in means if mean is not None and mean.mean <= _FLOOR_FACTOR * floor]


def _left_out(summary: ProbeSummary, settings: ProbeConfig) -> list[str]:
    """Say that metrics which set right rollouts against wrong ones lack wrong ones, because of what the final did."""
    missing = (summary.num_reference_wrong or 0) - (summary.num_reference_wrong_final_right or 0)
    if missing <= 0 or "reference_wrong" in settings.populations or not summary.direction:
        return []
    reference, final = summary.reference, summary.final
    return [
        f"{missing} problems that both {reference} and {final} get wrong are not read, so the wrong rollouts are those "
        f"{final} moved away from, and direction and correlates say too much about right and wrong: add "
        "reference_wrong to probe.populations"
    ]


def untested_notes(summary: ProbeSummary, plan: ProbePlan) -> list[str]:
    """Say which rollouts the causal tests leave out, and where they go beyond what a completion may be."""
    notes = []
    lengths = [len(sequence.completion_ids) for sequence in plan.headline if sequence.is_one_turn]
    several = len(plan.headline) - len(lengths)
    if several and plan.has_verifier:
        notes.append(
            f"{several} of {len(plan.headline)} rollouts have several turns: swaps, pivots and cross-sampling leave "
            "them out, as a continuation would need who answered the model between its turns"
        )
    longer = sum(length > plan.max_new_tokens for length in lengths)
    if not longer or not (summary.causal or summary.pivots):
        return notes
    return [
        *notes,
        f"{longer} of {len(lengths)} rollouts are longer than max_new_tokens={plan.max_new_tokens}, where "
        "continuations are cut off and graded as they stand: swaps late in them have no effect; set it to "
        f"{max(lengths)} or more",
    ]
