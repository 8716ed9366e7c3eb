"""What the causal tests find where no token has an effect: equal arms, and searches for pivots."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from studies.nulls.null_run import NullRun, against_reference, cut, engine, excludes, row
from swerve.config import CausalConfig, PivotConfig
from swerve.models.model_folder import stop_ids
from swerve.probe.causal.continuations import ContinuationSampler, Outcome, Prefix
from swerve.probe.causal.pivots import PrefixValue, find_pivots, num_samples, prefix_values
from swerve.probe.causal.swaps import look_sizes, verdict
from swerve.probe.findings.spikes import top_position
from swerve.probe.rollouts.population import POPULATION, ProbeSequence, probe_sequences
from swerve.rewards import grade
from swerve.rollout import SamplingParams
from swerve.rollout.groups import completion_text
from swerve.seeds import derive_seed
from swerve.statistics import (
    bootstrap_mean,
    difference_interval,
    false_positive_rate,
    paired_wilcoxon,
    share,
)
from swerve.types import Problem

Record = dict[str, Any]


def arms(run: NullRun) -> Record:
    """The same prefix in both arms, with fresh random numbers: what the swaps call an effect."""
    settings = CausalConfig(num_continuations=16, max_continuations=64)
    sequences = run.headline[: run.settings.num_positions]
    stats = against_reference(run, sequences)
    series = cut(stats.js.numpy(), [len(one.completion_ids) for one in sequences])
    rng = np.random.default_rng(derive_seed(run.settings.seed, "nulls", "positions"))
    places = {
        "before the spike": [top_position(values) for values in series],
        "random": [int(rng.integers(len(values))) for values in series],
    }
    samplers = [_sampler(run, derive_seed(run.settings.seed, "nulls", "arm", arm)) for arm in (0, 1)]
    rows = []
    for name, positions in places.items():
        prefixes = [Prefix.of(one, at) for one, at in zip(sequences, positions, strict=True)]
        first, second = (_looks(sampler, prefixes, look_sizes(settings)) for sampler in samplers)
        rows.append({"positions": name, **_arm_figures(first, second, settings)})
    return {"looks": look_sizes(settings), "delta": settings.delta, "rows": rows}


def _sampler(run: NullRun, seed: int) -> ContinuationSampler:
    return ContinuationSampler(
        engine=engine(run.reference),
        tokenizer=run.reference.tokenizer,
        stop_ids=stop_ids(run.reference.model, run.reference.tokenizer),
        max_new_tokens=run.plan.max_new_tokens,
        temperature=1.0,
        seed=seed,
    )


def _looks(sampler: ContinuationSampler, prefixes: Sequence[Prefix], sizes: Sequence[int]) -> list[list[Outcome]]:
    """Return the outcomes of all prefixes after each look."""
    found: list[list[Outcome]] = []
    before = 0
    for look, size in enumerate(sizes):
        drawn = sampler.sample(prefixes, size - before, look=look)
        found.append([old.extended(new) for old, new in zip(found[-1], drawn, strict=True)] if look else drawn)
        before = size
    return found


def _arm_figures(
    first: Sequence[Sequence[Outcome]], second: Sequence[Sequence[Outcome]], settings: CausalConfig
) -> Record:
    num = len(first[0])
    decisions = []
    for index in range(num):
        verdicts = [
            verdict(a[index], b[index], same_token=False, settings=settings, confidence=0.95)
            for a, b in zip(first, second, strict=True)
        ]
        decisions.append(next((one for one in verdicts if one != "undecided"), "undecided"))
    misses = [_misses_zero(a, b) for a, b in zip(first[0], second[0], strict=True)]
    effects = [b.value - a.value for a, b in zip(first[0], second[0], strict=True)]
    values = [(a.value + b.value) / 2 for a, b in zip(first[-1], second[-1], strict=True)]
    return {
        "num": num,
        "num_open": sum(0.1 < value < 0.9 for value in values),
        "outside": share(decisions.count("outside"), num),
        "inside": share(decisions.count("inside"), num),
        "undecided": share(decisions.count("undecided"), num),
        "interval_without_0": share(sum(misses), num),
        "effect": bootstrap_mean(effects, num_resamples=2000),
        "wilcoxon": paired_wilcoxon([a.value for a in first[0]], [b.value for b in second[0]]),
    }


def _misses_zero(a: Outcome, b: Outcome) -> bool:
    interval = difference_interval(b.num_successes, b.num_continuations, a.num_successes, a.num_continuations)
    return excludes(interval, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SameChance:
    """A policy that succeeds with the same probability from every prefix: no token has an effect."""

    rate: float
    rng: np.random.Generator

    def sample(
        self,
        prefixes: Sequence[Prefix],
        num: int,
        *,
        look: int = 0,
        on_finished: Callable[[int], None] | None = None,
    ) -> list[Outcome]:
        drawn = self.rng.binomial(num, self.rate, size=len(prefixes)).tolist()
        return [Outcome(num_continuations=num, num_successes=one, num_failures=0) for one in drawn]


def pivots(run: NullRun) -> Record:
    """Searches for pivots where no token has an effect, with the default settings."""
    settings = run.settings
    config = PivotConfig(max_rollouts=1)
    num = num_samples(config)
    problem = Problem(id="none", family="none", question="", answer="")
    sequences = [
        ProbeSequence(
            sequence_id=index,
            problem=problem,
            prompt_ids=(0,),
            completion_ids=(0,) * settings.length,
            text="",
            spans=((0, 0),) * settings.length,
            wrong={},
            extracted=None,
            correct=False,
        )
        for index in range(settings.num_searches)
    ]
    rows = [_pivot_row(sequences, config, rate, settings.seed) for rate in (0.5, 0.2, 0.05)]
    return {
        "num_continuations": num,
        "gap": config.gap,
        "rows": rows,
        "right_rollouts": _right_rollouts(run, num, config.gap),
    }


def _pivot_row(sequences: Sequence[ProbeSequence], config: PivotConfig, rate: float, seed: int) -> Record:
    policy: Any = _SameChance(
        rate=rate, rng=np.random.default_rng(derive_seed(seed, "nulls", "coin", round(100 * rate)))
    )
    search = find_pivots(sequences, policy, settings=config)
    confirmed = [one for one in search.pivots if math.copysign(1, one.search) * one.estimate >= config.gap - 1e-9]
    num = len(sequences)
    every = prefix_values(sequences[:100], policy, search.num_continuations)
    return {
        "rate": rate,
        "of_one_token": false_positive_rate(search.num_continuations, config.gap, rate),
        "rollouts_with_pivot": share(len({one.sequence.sequence_id for one in search.pivots}), num),
        "rollouts_with_confirmed": share(len({one.sequence.sequence_id for one in confirmed}), num),
        "num_pivots": len(search.pivots),
        "num_confirmed": len(confirmed),
        "all_positions": _exhaustive(every, config.gap),
    }


def _exhaustive(values: Iterable[PrefixValue], gap: float) -> Record:
    """Return the same where every prefix is measured, without a search."""
    by_rollout: dict[int, list[float]] = {}
    for one in values:
        by_rollout.setdefault(one.sequence_id, []).append(one.outcome.value)
    jumps = [int((np.abs(np.diff(one)) >= gap - 1e-9).sum()) for one in by_rollout.values()]
    num = sum(len(one) - 1 for one in by_rollout.values())
    return {"tokens": share(sum(jumps), num), "rollouts": share(sum(count > 0 for count in jumps), len(jumps))}


def _right_rollouts(run: NullRun, num: int, gap: float) -> Record:
    """Return what a search finds along the reference's own right rollouts: no step in them is wrong."""
    kept = [replace(one, sequence_id=index) for index, one in enumerate(_right(run))]
    if not kept:
        return {"num": 0, "rollouts_with_pivot": None}
    config = PivotConfig(max_rollouts=len(kept), gap=gap, num_continuations=num)
    search = find_pivots(kept, _sampler(run, run.settings.seed), settings=config)
    found = len({one.sequence.sequence_id for one in search.pivots})
    return {"num": len(kept), "rollouts_with_pivot": share(found, len(kept))}


def _right(run: NullRun) -> list[ProbeSequence]:
    """Return up to 100 right greedy rollouts of the reference."""
    prompts = run.prompts[:200]
    params = SamplingParams(
        num_samples=1,
        max_new_tokens=run.plan.max_new_tokens,
        temperature=0.0,
        stop_ids=stop_ids(run.reference.model, run.reference.tokenizer),
    )
    groups = engine(run.reference).generate([one.token_ids for one in prompts], params, seeds=range(len(prompts)))
    tokenizer = run.reference.tokenizer
    rows = [
        (POPULATION, "reference", row(prompt, group[0].token_ids, first=True))
        for prompt, group in zip(prompts, groups, strict=True)
        if grade(prompt.problem, completion_text(tokenizer, group[0].token_ids)).value == 1.0
    ]
    return probe_sequences(rows[:100], family=run.family, tokenizer=tokenizer)
