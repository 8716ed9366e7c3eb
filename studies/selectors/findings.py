"""Which score finds the tokens that decide? What is kept of the study's runs, and the tables of its page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from studies.pages import Record, first, number, of_kind, percent, points, shown, table, table_of
from studies.runs import by_arm, kept_evaluations, kept_summary, run_folders
from swerve.report.names import SELECTIONS, SELECTORS
from swerve.statistics.intervals import mean_interval

_KEPT = ("num_problems", "num_rollouts", "num_reference_wrong", "num_reference_wrong_final_right", "divergences",
         "recovery", "prediction", "pivots", "cross_sampling")  # fmt: skip


def keep(folder: Path) -> Iterator[Record]:
    """Yield what is kept of each seed's run of the study."""
    for _, seed, run in run_folders(folder):
        summary = kept_summary(run)
        yield {
            "kind": "seed",
            "seed": seed,
            "evaluations": kept_evaluations(run),
            **{name: summary[name] for name in _KEPT},
            "swaps": first(summary["causal"]["policies"], policy="reference")["selections"],
            "effects": _effects(run / "probe"),
        }


def _effects(probe: Path) -> dict[str, list[list[Any]]]:
    """Return, by kind of position, of each rollout: its problem, the token's effect, and that over another token."""
    found: dict[str, list[list[Any]]] = {}
    for row, arms in by_arm(probe):
        success = {arm: each["num_successes"] / each["num_continuations"] for arm, each in arms.items()}
        over_own = success["checkpoint"] - success["reference"]
        over_other = success["checkpoint"] - success["alternative"] if "alternative" in success else None
        found.setdefault(row["selection"], []).append([row["problem_id"], row["sequence_id"], over_own, over_other])
    return found


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the tables by the names of their places."""
    seeds = of_kind(records, "seed")
    cross_sampled = [seed["cross_sampling"]["directions"][0] for seed in seeds if seed["cross_sampling"]]
    predicted = [first(seed["prediction"], policy="reference") for seed in seeds if seed["prediction"]]
    recovered = [seed["recovery"] for seed in seeds]
    return {
        "selectors: models": _models(seeds),
        "selectors: mistakes": _mistakes(seeds),
        "selectors: recovery": _scores(seeds, recovered, "auc_first", (0.0, 1.0), ("auc", "all wrong tokens, ")),
        "selectors: swaps": _swaps(seeds),
        "selectors: dose": _scores(seeds, cross_sampled, "auc"),
        "selectors: prediction": _scores(seeds, predicted, "spearman", (-1.0, 1.0)),
        "selectors: pivots": _pivots(seeds),
    }


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers that sentences quote."""
    seeds = of_kind(records, "seed")
    texts = {"selectors: seeds": str(len(seeds))}
    for name in ("spike", "abs_logprob_change", "logprob_drop", "entropy", "first_wrong"):
        texts[f"selectors: {name}"] = points(_pooled(seeds, name))
        texts[f"selectors: {name} over JS"] = points(_pooled(seeds, name, over_spike=True, other=False))
    return texts


def _named(names: Mapping[Any, str], key: str) -> str:
    """Return what a score is called, with its bars escaped for a table."""
    return names.get(key, key).replace("|", r"\|")


def _models(seeds: Sequence[Record]) -> str:
    def of(checkpoint: str, key: str) -> Callable[[Record], str]:
        return lambda seed: percent(seed["evaluations"][checkpoint][key])

    return table_of(
        seeds,
        ("seed", "seed"),
        ("SFT, greedy", of("base", "accuracy")),
        ("after RL", of("rl-100", "accuracy")),
        ("every step right, SFT", of("base", "trace_right")),
        ("after RL", of("rl-100", "trace_right")),
        ("rollouts read", "num_rollouts"),
        ("wrong tokens", "recovery.num_wrong"),
    )


def _mistakes(seeds: Sequence[Record]) -> str:
    """Return how many greedy completions of all seeds begin to go wrong in which way."""
    totals: dict[str, Counter[str]] = {"base": Counter(), "rl-100": Counter()}
    for seed in seeds:
        for label, total in totals.items():
            total.update(seed["evaluations"][label]["first_mistakes"])
    rows = [[kind, *(str(total[kind]) for total in totals.values())] for kind in totals["base"]]
    return table(["first mistake", "after SFT", "after RL"], rows)


def _scores(
    seeds: Sequence[Record],
    found: Sequence[Record],
    key: str,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    also: tuple[str, str] | None = None,
) -> str:
    """Return a row for each score: a figure of every seed, its mean over seeds, and the mean of another figure."""
    rows = []
    for same in zip(*(record["selectors"] for record in found), strict=True):
        cells = [shown(score, f"{key}:number") for score in same]
        means = [number(_over_seeds([score[figure] for score in same], bounds)) for figure in (key, *(also or ())[:1])]
        rows.append([_named(SELECTORS, same[0]["selector"]), *cells, *means])
    more = [f"{also[1]}mean over seeds"] if also else []
    return table(["score", *(f"seed {seed['seed']}" for seed in seeds), "mean over seeds", *more], rows)


def _over_seeds(estimates: Sequence[Any], bounds: tuple[float, float]) -> Any:
    """Return the mean over seeds with its t interval, within bounds: of another training run."""
    means = [estimate["mean"] for estimate in estimates if estimate is not None]
    interval = mean_interval(means) if len(means) > 1 else None
    if interval is None:
        return None
    return {"mean": interval.mean, "low": max(bounds[0], interval.low), "high": min(bounds[1], interval.high)}


def _pooled(seeds: Sequence[Record], selection: str, *, over_spike: bool = False, other: bool = True) -> Any:
    """Return the mean effect over the rollouts of all seeds, with its interval over problems within seeds."""
    effects, clusters = [], []
    column = 3 if other else 2
    for seed in seeds:
        spikes = {row[1]: row[column] for row in seed["effects"]["spike"]}
        for row in seed["effects"].get(selection, ()):
            base = spikes.get(row[1]) if over_spike else 0.0
            if row[column] is not None and base is not None:
                effects.append(row[column] - base)
                clusters.append(f"{seed['seed']} {row[0]}")
    bounds = (-2.0, 2.0) if over_spike else (-1.0, 1.0)
    estimate = mean_interval(effects, clusters=clusters, bounds=bounds) if effects else None
    return None if estimate is None else asdict(estimate)


def _swaps(seeds: Sequence[Record]) -> str:
    rows = []
    for name in SELECTIONS:
        same = [first(seed["swaps"], selection=name) for seed in seeds]
        if any(same):
            changed = [swap["num_different"] / swap["num_positions"] if swap else 0 for swap in same]
            over_spike = None if name == "spike" else _pooled(seeds, name, over_spike=True, other=False)
            rows.append(
                [
                    _named(SELECTIONS, name),
                    percent(sum(changed) / len(changed), 0),
                    *(points(swap and swap["effect"]) for swap in same),
                    points(_pooled(seeds, name, other=False)),
                    points(_pooled(seeds, name)),
                    points(over_spike),
                ]
            )
    head = ["position", "token differs", *(f"seed {seed['seed']}" for seed in seeds), "all seeds"]
    return table([*head, "over another token", "over the top JS spike"], rows)


def _pivots(seeds: Sequence[Record]) -> str:
    def on(place: str) -> Callable[[Record], str]:
        def cell(pivots: Record) -> str:
            hits = pivots[place]
            return "-" if hits is None else f"{percent(hits['share'])} (chance {percent(hits['chance'])})"

        return cell

    return table_of(
        [{"seed": seed["seed"], **seed["pivots"]} for seed in seeds if seed["pivots"]],
        ("seed", "seed"),
        ("pivotal tokens, rollouts", lambda pivots: f"{pivots['num_pivots']} in {pivots['num_rollouts']}"),
        ("confirmed", "num_confirmed"),
        ("on a JS spike", on("on_spike")),
        ("on the first wrong token", on("on_first_wrong")),
        ("on any wrong token", on("on_wrong")),
    )
