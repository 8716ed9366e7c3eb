"""Tables of what the probe finds in the demo, from the records of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from studies.markdown import number, percent, size, table
from studies.study import Record

METHODS = ("zscore", "percentile", "adaptive", "absolute", "calibrated")
DIRECTIONS = {
    "checkpoint_into_reference": "checkpoint's tokens into the reference's text",
    "reference_into_checkpoint": "reference's tokens into the checkpoint's text",
}


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the markdown tables by the names of their places in the page."""
    demos = sorted((one for one in records if one["kind"] == "demo"), key=lambda one: one["seed"])
    found = {
        "population": _population(demos),
        "recovery": _recovery(demos),
        "spikes": _spikes(demos),
        "causal": _causal(demos),
        "dose": _dose(demos),
        "pivots": _pivots(demos),
        "prediction": _prediction(demos),
        "signal": _signal(demos),
    }
    return {name: text for name, text in found.items() if text}


def _seeds(demos: Sequence[Record], what: str) -> list[str]:
    return [f"{what}, seed {one['seed']}" for one in demos]


def _population(demos: Sequence[Record]) -> str:
    rows = [
        [
            str(one["seed"]),
            one["reference"],
            one["final"],
            str(one["num_reference_wrong"]),
            str(one["num_reference_wrong_final_right"]),
            percent(one["mcnemar"]["difference"]),
            str(one["num_rollouts"]),
            str(one["recovery"]["num_wrong"]),
            percent(one["recovery"]["base_rate"]),
            size(one["noise_floor"]["js"]["mean"]),
        ]
        for one in demos
    ]
    head = ["seed", "reference", "final", "reference wrong of 400", "of these final right", "gain in accuracy",
            "rollouts read", "planted wrong tokens", "share of tokens", "noise floor, JS"]  # fmt: skip
    return table(head, rows)


def _recovery(demos: Sequence[Record]) -> str:
    rows = [
        [
            seeds[0]["selector"],
            *(number(row["auc"]) for row in seeds),
            *(number(row["average_precision"]) for row in seeds),
        ]
        for seeds in zip(*(one["recovery"]["selectors"] for one in demos), strict=True)
    ]
    return table(["selector", *_seeds(demos, "AUC"), *_seeds(demos, "average precision")], rows)


def _spikes(demos: Sequence[Record]) -> str:
    rows = []
    for one in demos:
        found = {(row["divergence"], row["method"]): row for row in one["recovery"]["spikes"]}
        for method in METHODS:
            row = found["js", method]
            rows.append(
                [
                    str(one["seed"]),
                    method,
                    str(row["num_spikes"]),
                    percent(row["precision"]),
                    percent(row["recall"]),
                    percent(row["recall_first"]),
                    percent(row["chance_precision"]),
                    percent(row["chance_recall"]),
                ]
            )
    head = ["seed", "method", "spikes", "precision", "recall", "recall of first wrong tokens", "precision by chance",
            "recall by chance"]  # fmt: skip
    return table(head, rows)


def _causal(demos: Sequence[Record]) -> str:
    rows = []
    for one in demos:
        for row in one["causal"]["selections"]:
            alternative = row["alternative"]
            rows.append(
                [
                    str(one["seed"]),
                    row["selection"],
                    str(row["num_rollouts"]),
                    percent(row["reference"]["success"]),
                    percent(row["checkpoint"]["success"]),
                    percent(alternative["success"]),
                    number(row["effect"]),
                    number(row["checkpoint_minus_alternative"]),
                    percent(row["share_same_token"], 0),
                    str(row["decisions"]["outside"]),
                ]
            )
    head = ["seed", "position", "number", "success with the rollout's own token", "with the checkpoint's",
            "with another token", "effect of the checkpoint's token", "checkpoint's minus another",
            "checkpoint agrees with the rollout", "verdict: effect beyond 0.1"]  # fmt: skip
    return table(head, rows)


def _dose(demos: Sequence[Record]) -> str:
    budgets = sorted({point["budget"] for point in _points(demos)})
    rows = []
    for one in demos:
        for way in one["cross_sampling"]["directions"]:
            for row in way["selectors"]:
                points = {point["budget"]: point for point in row["points"]}
                rows.append(
                    [
                        str(one["seed"]),
                        DIRECTIONS[way["direction"]],
                        row["selector"],
                        percent(way["base"], 0),
                        *(percent(points[budget]["accuracy"], 0) if budget in points else "-" for budget in budgets),
                        percent(way["other"], 0),
                        number(row["auc_over_random"], 2),
                    ]
                )
    head = ["seed", "direction", "selector", "no swaps", *(f"{100 * budget:g}% of tokens" for budget in budgets),
            "all", "area beyond random"]  # fmt: skip
    return table(head, rows)


def _points(demos: Sequence[Record]) -> list[Record]:
    return [
        point
        for one in demos
        for way in one["cross_sampling"]["directions"]
        for row in way["selectors"]
        for point in row["points"]
    ]


def _pivots(demos: Sequence[Record]) -> str:
    rows = []
    for one in demos:
        found = one["pivots"]
        places = [found[name] or {"share": None, "chance": None} for name in ("on_spike", "on_wrong", "on_first_wrong")]
        rows.append(
            [
                str(one["seed"]),
                str(found["num_rollouts"]),
                str(found["num_continuations"]),
                f"{found['num_pivots']} ({found['num_rises']} rises)",
                str(found["num_confirmed"]),
                f"{found['max_false_confirmed']:.2f}",
                number(found["size_search"], 2),
                number(found["size_estimate"], 2),
                *(f"{percent(place['share'])}; {percent(place['chance'])}" for place in places),
            ]
        )
    head = ["seed", "rollouts", "continuations", "pivots", "confirmed on fresh samples", "at most false among these",
            "jump as found", "jump on fresh samples", "on a spike; by chance", "on a wrong token; by chance",
            "on the first wrong token; by chance"]  # fmt: skip
    return table(head, rows)


def _prediction(demos: Sequence[Record]) -> str:
    names = [row["selector"] for row in demos[0]["prediction"][0]["selectors"]] if demos else []
    rows = []
    for name in names:
        line = [name]
        for kind in ("all", "different_tokens"):
            for one in demos:
                entry = next((entry for entry in one["prediction"] if entry["positions"] == kind), None)
                found = {row["selector"]: row for row in entry["selectors"]} if entry else {}
                line.append(number(found[name]["auc"], 2) if name in found else "-")
        rows.append(line)
    head = ["selector", *_seeds(demos, "all positions"), *_seeds(demos, "where the models' choices differ")]
    return table(head, rows)


def _signal(demos: Sequence[Record]) -> str:
    rows = []
    for one in demos:
        for row in one["training_signal"]:
            if (row["checkpoint"], row["reference"]) != (one["final"], one["reference"]) or not row["direction"]:
                continue
            parts, direction = row["divergence"], row["direction"]
            correlation = row["advantage_correlation"]
            rows.append(
                [
                    str(one["seed"]),
                    f"{row['checkpoint']} / {row['reference']}",
                    size(parts["signal"]["mean"]),
                    size(parts["no_signal"]["mean"]),
                    percent(direction["agreement"]),
                    percent(direction["chance"]),
                    number(direction["above_chance"]),
                    number(correlation and correlation["estimate"]) if _has_estimate(correlation) else _plain(row),
                ]
            )
    head = ["seed", "pair", "mean JS on tokens with a signal", "on tokens without", "moved the way of the advantage",
            "by chance", "above chance", "rank correlation of JS with the size of the advantage"]  # fmt: skip
    return table(head, rows)


def _has_estimate(correlation: Any) -> bool:
    return isinstance(correlation, Mapping) and isinstance(correlation.get("estimate"), Mapping)


def _plain(row: Record) -> str:
    correlation = row["advantage_correlation"]
    return "-" if correlation is None else number(correlation)
