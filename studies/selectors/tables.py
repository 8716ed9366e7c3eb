"""The tables of the page on selectors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from studies.markdown import number, percent, points, table
from studies.study import Record
from swerve.report.names import SELECTIONS, SELECTORS
from swerve.statistics.intervals import mean_interval


def _named(names: Mapping[Any, str], key: str) -> str:
    """Return what a score is called, with its bars escaped for a table."""
    return names.get(key, key).replace("|", r"\|")


def _seeds(records: Sequence[Record]) -> list[Record]:
    return sorted((one for one in records if one["kind"] == "seed"), key=lambda one: one["seed"])


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the tables by the names of their places."""
    seeds = _seeds(records)
    return {
        "selectors: models": _models(seeds),
        "selectors: mistakes": _mistakes(seeds),
        "selectors: recovery": _recovery(seeds),
        "selectors: swaps": _swaps(seeds),
        "selectors: dose": _dose(seeds),
        "selectors: prediction": _prediction(seeds),
        "selectors: pivots": _pivots(seeds),
    }


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers that sentences quote."""
    seeds = _seeds(records)
    found = {"selectors: seeds": str(len(seeds))}
    for name in ("spike", "abs_logprob_change", "logprob_drop", "entropy", "first_wrong"):
        found[f"selectors: {name}"] = points(_pooled(seeds, name))
        found[f"selectors: {name} over JS"] = points(_pooled(seeds, name, over_spike=True, other=False))
    return found


def _over_seeds(values: Sequence[float | None], bounds: tuple[float, float] = (-math.inf, math.inf)) -> Any:
    """Return the mean over seeds with its t interval, within bounds: of another training run."""
    known = [one for one in values if one is not None]
    estimate = mean_interval(known) if len(known) > 1 else None
    if estimate is None:
        return None
    return {"mean": estimate.mean, "low": max(bounds[0], estimate.low), "high": min(bounds[1], estimate.high)}


def _mean(estimate: Mapping[str, float] | None) -> float | None:
    return None if estimate is None else estimate["mean"]


def _models(seeds: Sequence[Record]) -> str:
    rows = [
        [
            str(one["seed"]),
            percent(one["evaluations"]["base"]["accuracy"]),
            percent(one["evaluations"]["rl-100"]["accuracy"]),
            percent(one["evaluations"]["base"]["trace_right"]),
            percent(one["evaluations"]["rl-100"]["trace_right"]),
            str(one["num_rollouts"]),
            str(one["recovery"]["num_wrong"]),
        ]
        for one in seeds
    ]
    return table(
        ["seed", "SFT, greedy", "after RL", "every step right, SFT", "after RL", "rollouts read", "wrong tokens"], rows
    )


def _mistakes(seeds: Sequence[Record]) -> str:
    """Return how many greedy completions of all seeds begin to go wrong in which way."""
    totals = {
        label: sum((Counter(one["evaluations"][label]["first_mistakes"]) for one in seeds), Counter())
        for label in ("base", "rl-100")
    }
    rows = [[kind, *(str(totals[label][kind]) for label in totals)] for kind in totals["base"]]
    return table(["first mistake", "after SFT", "after RL"], rows)


def _recovery(seeds: Sequence[Record]) -> str:
    rows = []
    for number_of, row in enumerate(seeds[0]["recovery"]["selectors"] if seeds else ()):
        same = [one["recovery"]["selectors"][number_of] for one in seeds]
        rows.append(
            [
                _named(SELECTORS, row["selector"]),
                *(number(one["auc_first"]) for one in same),
                number(_over_seeds([_mean(one["auc_first"]) for one in same], (0.0, 1.0))),
                number(_over_seeds([_mean(one["auc"]) for one in same], (0.0, 1.0))),
            ]
        )
    head = ["score", *(f"seed {one['seed']}" for one in seeds), "mean over seeds", "all wrong tokens, mean over seeds"]
    return table(head, rows)


def _pooled(seeds: Sequence[Record], selection: str, *, over_spike: bool = False, other: bool = True) -> Any:
    """Return the mean effect over the rollouts of all seeds, with its interval over problems within seeds."""
    values, clusters = [], []
    column = 3 if other else 2
    for one in seeds:
        spikes = {row[1]: row[column] for row in one["effects"]["spike"]}
        for row in one["effects"].get(selection, ()):
            base = spikes.get(row[1]) if over_spike else 0.0
            if row[column] is not None and base is not None:
                values.append(row[column] - base)
                clusters.append(f"{one['seed']} {row[0]}")
    estimate = (
        mean_interval(values, clusters=clusters, bounds=(-2.0, 2.0) if over_spike else (-1.0, 1.0), rare=True)
        if values
        else None
    )
    return None if estimate is None else {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}


def _swaps(seeds: Sequence[Record]) -> str:
    rows = []
    for name in SELECTIONS:
        same = [next((row for row in one["swaps"] if row["selection"] == name), None) for one in seeds]
        if not any(same):
            continue
        changed = [0 if one is None else one["num_different"] / one["num_positions"] for one in same]
        rows.append(
            [
                _named(SELECTIONS, name),
                percent(sum(changed) / len(changed), 0),
                *(points(None if one is None else one["effect"]) for one in same),
                points(_pooled(seeds, name, other=False)),
                points(_pooled(seeds, name)),
                "-" if name == "spike" else points(_pooled(seeds, name, over_spike=True, other=False)),
            ]
        )
    head = [
        "position",
        "token differs",
        *(f"seed {one['seed']}" for one in seeds),
        "all seeds",
        "over another token",
        "over the top JS spike",
    ]
    return table(head, rows)


def _dose(seeds: Sequence[Record]) -> str:
    found = [one["cross_sampling"]["directions"][0] for one in seeds if one["cross_sampling"]]
    rows = []
    for index, row in enumerate(found[0]["selectors"] if found else ()):
        same = [one["selectors"][index] for one in found]
        rows.append(
            [
                _named(SELECTORS, row["selector"]),
                *(number(one["auc"]) for one in same),
                number(_over_seeds([_mean(one["auc"]) for one in same])),
            ]
        )
    head = ["score", *(f"seed {one['seed']}" for one in seeds), "mean over seeds"]
    return table(head, rows)


def _prediction(seeds: Sequence[Record]) -> str:
    found = [
        next(row for row in one["prediction"] if row["positions"] == "all" and row["policy"] == "reference")
        for one in seeds
        if one["prediction"]
    ]
    rows = []
    for index, row in enumerate(found[0]["selectors"] if found else ()):
        same = [one["selectors"][index]["spearman"] for one in found]
        rows.append(
            [
                _named(SELECTORS, row["selector"]),
                *("-" if one is None else number(one) for one in same),
                number(_over_seeds([_mean(one) for one in same], (-1.0, 1.0))),
            ]
        )
    return table(["score", *(f"seed {one['seed']}" for one in seeds), "mean over seeds"], rows)


def _pivots(seeds: Sequence[Record]) -> str:
    rows = []
    for one in seeds:
        pivots = one["pivots"]
        if pivots is None:
            continue
        rows.append(
            [
                str(one["seed"]),
                f"{pivots['num_pivots']} in {pivots['num_rollouts']}",
                str(pivots["num_confirmed"]),
                *(
                    "-"
                    if pivots[where] is None
                    else f"{percent(pivots[where]['share'])} (chance {percent(pivots[where]['chance'])})"
                    for where in ("on_spike", "on_first_wrong", "on_wrong")
                ),
            ]
        )
    return table(
        [
            "seed",
            "pivotal tokens, rollouts",
            "confirmed",
            "on a JS spike",
            "on the first wrong token",
            "on any wrong token",
        ],
        rows,
    )
