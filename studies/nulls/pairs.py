"""A model against itself, and two samples of one model: every difference that is found is false."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studies.nulls.null_run import NullRun, NullSettings, against_reference, cut, engine, excludes, row
from swerve.artifacts.probe_findings import DIVERGENCES, Divergence, SpikeRecovery
from swerve.config import SpikeConfig
from swerve.estimates import Estimate, WilcoxonResult
from swerve.models.model_folder import stop_ids
from swerve.probe.engine.jobs import MeasureSettings
from swerve.probe.engine.measure import measure
from swerve.probe.engine.measured import Measurements, stack_measurements
from swerve.probe.findings.correlates import move_directions
from swerve.probe.findings.parts import Resampling
from swerve.probe.findings.planted import planted_recovery
from swerve.probe.findings.spikes import find_spikes, null_false_discoveries
from swerve.probe.rollouts.population import POPULATION, probe_sequences
from swerve.probe.rollouts.token_categories import token_categories
from swerve.rewards import grade
from swerve.rollout import SamplingParams
from swerve.seeds import derive_seed
from swerve.statistics import bootstrap_mean, mcnemar, paired_wilcoxon, share
from swerve.types import Prompt

Record = dict[str, Any]
LEVEL = 0.05
SPIKES = SpikeConfig()


def spikes(run: NullRun) -> Record:
    """Spikes in a model's divergence from itself, and what calibration on either noise costs in recovery."""
    sequences, plan = run.headline, run.plan
    measured = measure(
        [plan.reference, *plan.checkpoints],
        [(one.label, plan.reference.label) for one in plan.checkpoints],
        [(one.prompt_ids, one.completion_ids) for one in sequences],
        settings=MeasureSettings(noise_dtype="bfloat16"),
        noise_of=plan.reference.label,
    )
    data = stack_measurements(sequences, measured.stats, [""] * sum(len(one.completion_ids) for one in sequences))
    clusters = [one.problem.id for one in sequences]
    lengths = [len(one.completion_ids) for one in sequences]
    series = {
        (kind, name): cut(getattr(stats, name).numpy(), lengths)
        for kind, stats in measured.noise.items()
        for name in DIVERGENCES
    }
    rows = []
    for (kind, name), values in series.items():
        found = null_false_discoveries(values, SPIKES, pooled=data.columns[name].ravel(), clusters=clusters)
        flat = np.concatenate(values)
        rows.append(
            {
                "null": kind,
                "divergence": name,
                "num_tokens": len(flat),
                "mean": float(flat.mean()),
                "max": float(flat.max()),
                "false_discoveries": found,
                "calibrated_halves": _halves(values, clusters, run.settings),
            }
        )
    wrong_null = {
        name: sum(
            map(
                len,
                find_spikes(
                    series["bfloat16", name],
                    SPIKES,
                    method="calibrated",
                    null=np.concatenate(series["batching", name]),
                ),
            )
        )
        for name in DIVERGENCES
    }
    return {"rows": rows, "bfloat16_calibrated_by_batching": wrong_null, "power": _power(data, series, plan.final)}


def _halves(series: Sequence[NDArray[Any]], clusters: Sequence[str], settings: NullSettings) -> Record:
    """Calibrate on a random half of the problems and count spikes in the other, again and again."""
    names = list(dict.fromkeys(clusters))
    rng = np.random.default_rng(derive_seed(settings.seed, "nulls", "halves"))
    counts = []
    for _ in range(settings.num_halves):
        chosen = {names[index] for index in rng.permutation(len(names))[: len(names) // 2]}
        null = [one for one, name in zip(series, clusters, strict=True) if name in chosen]
        tested = [one for one, name in zip(series, clusters, strict=True) if name not in chosen]
        found = find_spikes(tested, SPIKES, method="calibrated", null=np.concatenate(null))
        counts.append(sum(map(len, found)))
    any_spike = sum(count > 0 for count in counts)
    return {"any": share(any_spike, len(counts)), "mean_spikes": float(np.mean(counts)), "most": max(counts)}


def _power(
    data: Measurements, series: Mapping[tuple[str, Divergence], Sequence[NDArray[Any]]], final: str
) -> tuple[SpikeRecovery, ...]:
    """Return the recovery of the final checkpoint's planted truth when either noise calibrates."""
    last = data.pick(lambda label, _: label == final)
    found = {
        (final, name, f"calibrated on {kind}"): find_spikes(
            last.by_sequence(name, final), SPIKES, method="calibrated", null=np.concatenate(values)
        )
        for (kind, name), values in series.items()
    }
    return planted_recovery(last, found, resampling=Resampling(num_resamples=500)).spikes


def samples(run: NullRun) -> Record:
    """Two samples of one model, compared as if they were two populations; rates of rejection at 5%."""
    settings = run.settings
    rejected: dict[str, list[bool]] = {}
    batch = 10
    for start in range(0, settings.num_repeats, batch):
        repeats = range(start, min(start + batch, settings.num_repeats))
        for data in _pairs_of_samples(run, repeats):
            for name, found in _comparisons(data, settings.seed).items():
                rejected.setdefault(name, []).append(found)
    return {
        "num_repeats": settings.num_repeats,
        "num_problems": settings.num_problems,
        "level": LEVEL,
        "rates": {name: {"num": len(one), "rate": share(sum(one), len(one))} for name, one in rejected.items()},
    }


def _pairs_of_samples(run: NullRun, repeats: range) -> Iterator[Measurements]:
    """Yield, for each repeat, two fresh completions of some problems, the first marked as right: A against B."""
    settings, tokenizer = run.settings, run.reference.tokenizer
    chosen: list[tuple[int, Prompt]] = []
    for repeat in repeats:
        rng = np.random.default_rng(derive_seed(settings.seed, "nulls", "problems", repeat))
        places = rng.permutation(len(run.prompts))[: settings.num_problems]
        chosen += [(repeat, run.prompts[int(place)]) for place in places]
    groups = engine(run.reference).generate(
        [prompt.token_ids for _, prompt in chosen],
        SamplingParams(
            num_samples=2,
            max_new_tokens=run.plan.max_new_tokens,
            temperature=1.0,
            stop_ids=stop_ids(run.reference.model, tokenizer),
        ),
        seeds=[derive_seed(settings.seed, "nulls", "sample", repeat, prompt.problem.id) for repeat, prompt in chosen],
    )
    rows = [
        (POPULATION, "reference", row(prompt, one.token_ids, first=index == 0))
        for (_, prompt), group in zip(chosen, groups, strict=True)
        for index, one in enumerate(group)
    ]
    sequences = probe_sequences(rows, family=run.family, tokenizer=tokenizer)
    stats = against_reference(run, sequences)
    categories = [name for one in sequences for name in token_categories(one.text, one.spans)]
    everything = stack_measurements(sequences, {("final", "reference"): stats}, categories)
    of_repeat = {index: chosen[index // 2][0] for index in range(len(sequences))}
    for repeat in repeats:
        yield everything.select(lambda one, repeat=repeat: of_repeat[one.sequence_id] == repeat)  # type: ignore[misc]


def coverage(run: NullRun) -> Record:
    """Rates of rejection by number of problems: differences of two samples, drawn from a pool of such differences."""
    settings = run.settings
    parts = [
        _differences(data)
        for first in range(0, settings.num_pools, 10)
        for data in _pairs_of_samples(run, range(settings.num_repeats + first, settings.num_repeats + first + 10))
    ]
    rng = np.random.default_rng(derive_seed(settings.seed, "nulls", "coverage"))
    rows = []
    for name in parts[0]:
        pool = np.concatenate([part[name] for part in parts])
        for num in (20, 50, 100, 200, 400):
            signs = rng.choice([-1.0, 1.0], size=(settings.num_drawn, num))  # A and B are exchangeable
            drawn = signs * rng.choice(pool, size=(settings.num_drawn, num))
            intervals = [excludes(bootstrap_mean(one, num_resamples=1000), 0.0) for one in drawn]
            tests = [_significant(paired_wilcoxon(np.zeros(num), one)) for one in drawn]
            rows.append(
                {
                    "figure": name,
                    "num_problems": num,
                    "share_different": float((pool != 0).mean()),
                    "interval": share(sum(intervals), len(intervals)),
                    "wilcoxon": share(sum(tests), len(tests)),
                }
            )
    return {"num_pool": len(pool), "num_drawn": settings.num_drawn, "rows": rows}


def _differences(data: Measurements) -> dict[str, NDArray[np.float64]]:
    """Return A minus B of each problem."""
    sums = np.bincount(data.sequence_index, weights=data.columns["js"][0].astype(np.float64)) / data.lengths
    wrong = np.array([len(one.wrong) / len(one.completion_ids) for one in data.sequences])
    return {"mean JS": sums[0::2] - sums[1::2], "share of wrong steps": wrong[0::2] - wrong[1::2]}


def _comparisons(data: Measurements, seed: int) -> dict[str, bool]:
    """Return what each figure that compares two populations says of A and B: whether it finds a difference."""
    how = Resampling(num_resamples=500, seed=seed)
    clusters = np.unique(data.problem_ids, return_inverse=True)[1].astype(np.int64)
    first = np.repeat([one.correct for one in data.sequences], data.lengths).astype(np.float64)
    second = 1.0 - first
    js = data.columns["js"][0].astype(np.float64)
    wrong = np.array([t in one.wrong for one in data.sequences for t in range(len(one.completion_ids))], np.float64)
    sums = np.bincount(data.sequence_index, weights=js) / data.lengths
    a, b = sums[0::2], sums[1::2]
    right = [grade(one.problem, one.text).value == 1.0 for one in data.sequences]
    found = {
        "mean JS by problem: paired Wilcoxon": _significant(paired_wilcoxon(a, b)),
        "mean JS by problem: bootstrap interval": excludes(bootstrap_mean(a - b, num_resamples=500, seed=seed), 0.0),
        "share of wrong steps: bootstrap interval": excludes(
            how.ratio_difference((wrong * first, first), (wrong * second, second), clusters), 0.0
        ),
        "accuracy: McNemar": (mcnemar(right[0::2], right[1::2]).p_value or 1.0) < LEVEL,
        "entropy: bootstrap interval": excludes(_entropy(data, first, second, clusters, how), 0.0),
    }
    for category in sorted(set(data.categories)):
        mark = np.array([one == category for one in data.categories], np.float64) * js
        found[f"share of JS on {category}: bootstrap interval"] = excludes(
            how.ratio_difference((mark * first, js * first), (mark * second, js * second), clusters), 0.0
        )
    (direction,) = move_directions(data, divergence="js", resampling=Resampling(num_resamples=200, seed=seed))
    return found | {
        "direction, difference of moves: bootstrap interval": excludes(direction.difference, 0.0),
        "direction, by problem: paired Wilcoxon": _significant(direction.wilcoxon),
        "direction, AUC: bootstrap interval": excludes(direction.auc, 0.5),
    }


def _entropy(
    data: Measurements, first: NDArray[Any], second: NDArray[Any], clusters: NDArray[np.int64], how: Resampling
) -> Estimate | None:
    change = (data.columns["entropy"][0] - data.columns["entropy_ref"][0]).astype(np.float64)
    return how.ratio_difference((change * first, first), (change * second, second), clusters)


def _significant(result: WilcoxonResult | None) -> bool:
    return result is not None and result.p_value < LEVEL
