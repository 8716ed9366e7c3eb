"""Tables of what the probe finds in the demo, from the records of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from studies.markdown import number, percent, size, table
from studies.study import Record
from swerve.report.format import listed

METHODS = ("zscore", "percentile", "adaptive", "absolute", "calibrated")
DIRECTIONS = {
    "checkpoint_into_reference": "checkpoint's tokens into the reference's text",
    "reference_into_checkpoint": "reference's tokens into the checkpoint's text",
}


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the markdown tables by the names of their places in the page."""
    demos = sorted((one for one in records if one["kind"] == "wider"), key=lambda one: one["seed"])
    found = {
        "population": _population(demos),
        "recovery": _recovery(demos),
        "spikes": _spikes(demos),
        "causal": _causal(demos),
        "dose": _dose(demos),
        "recovered": _recovered(demos),
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


def _recovered(demos: Sequence[Record]) -> str:
    """Return what swaps at one and two tokens in a hundred win of the gap between the models, by JS and at random."""
    rows = []
    for one in demos:
        for way in one["cross_sampling"]["directions"]:
            for row in way["selectors"]:
                points = {point["budget"]: point for point in row["points"]}
                if row["selector"] in ("js", "random"):
                    names = [str(one["seed"]), DIRECTIONS[way["direction"]], row["selector"]]
                    rows.append([*names, *_of_gap(points.get(0.01)), *_of_gap(points.get(0.02))])
    head = ["seed", "direction", "selector"]
    for budget in ("1%", "2%"):
        head += [f"budget {budget}: tokens swapped, of these other ones", "share of the gap won"]
    return table(head, rows)


def _of_gap(point: Record | None) -> list[str]:
    if point is None:
        return ["-", "-"]
    return [
        f"{percent(point['share_swapped'], 2)}, {percent(point['share_changed'], 2)}",
        percent(point["recovered"], 0),
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
                *_confirmed(found),
                number(found["size_search"], 2),
                number(found["size_estimate"], 2),
                *(f"{percent(place['share'])}; {percent(place['chance'])}" for place in places),
            ]
        )
    head = ["seed", "rollouts", "continuations", "pivots", "confirmed on fresh samples", "at most with a smaller jump",
            "jump as found", "jump on fresh samples", "on a spike; by chance", "on a wrong token; by chance",
            "on the first wrong token; by chance"]  # fmt: skip
    return table(head, rows)


def _confirmed(found: Record) -> tuple[str, str]:
    """Return how many pivots are confirmed; records of before confirming took an interval have none."""
    most = found.get("max_confirmed_below_gap")
    return ("-", "-") if most is None else (str(found["num_confirmed"]), f"{most:.2f}")


def _prediction(demos: Sequence[Record]) -> str:
    names = [row["selector"] for row in demos[0]["prediction"][0]["selectors"]] if demos else []
    rows = []
    for name in names:
        line = [name]
        for kind in ("all", "different_tokens"):
            for one in demos:
                entry = next((entry for entry in one["prediction"] if entry["positions"] == kind), None)
                found = {row["selector"]: row for row in entry["selectors"]} if entry else {}
                line.append(_ranked(found.get(name), entry))
        rows.append(line)
    head = ["selector", *_seeds(demos, "all positions"), *_seeds(demos, "where the models' choices differ")]
    return table(head, rows)


def _ranked(row: Record | None, entry: Record | None) -> str:
    """Return a score's rank correlation with the size of the effect; records of before the halves have none."""
    if row is None or entry is None or "mean_square_effect" not in entry:
        return "-"
    return number(row["spearman"], 2)


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


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers that sentences quote, over all seeds or by seed."""
    demos = sorted((one for one in records if one["kind"] == "wider"), key=lambda one: one["seed"])
    if not demos:
        return {}
    pivots = [one["pivots"] for one in demos]
    swaps = [next(row for row in one["causal"]["selections"] if row["selection"] == "spike") for one in demos]
    own, other = ([percent(row[arm]["success"], 0) for row in swaps] for arm in ("checkpoint", "alternative"))
    with_pivot = [f"{one['num_rollouts_with_pivot']} of {one['num_rollouts']}" for one in pivots]
    return {
        "pivots found": str(sum(one["num_pivots"] for one in pivots)),
        "pivots on wrong tokens": str(sum(_hits(one["on_wrong"]) for one in pivots)),
        "pivots confirmed": str(sum(one["num_confirmed"] for one in pivots)),
        "rollouts with a pivot": listed(with_pivot),
        "swaps: checkpoint's token": listed(own),
        "swaps: another token": listed(other),
    }


def _hits(place: Record | None) -> int:
    return 0 if place is None else round(place["num"] * place["share"]["mean"])
