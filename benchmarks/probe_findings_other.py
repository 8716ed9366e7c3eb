"""Tables of the null pairs and of the planted change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probe_findings_format import number, percent, size, table

__all__ = ["SELECTORS", "tables_of"]

Record = Mapping[str, Any]
SELECTORS = (
    "js",
    "kl_forward",
    "kl_reverse",
    "abs_logprob_change",
    "logprob_drop",
    "entropy",
    "entropy_change",
    "rank",
    "argmax_changed",
)


def tables_of(record: Record) -> dict[str, str]:
    """Return the tables of one JSON line by the names of their places; none of a line of another kind."""
    return _OF_KIND[record["kind"]](record) if record["kind"] in _OF_KIND else {}


def _null_spikes(record: Record) -> dict[str, str]:
    names = {"batching": "other batches, float32", "bfloat16": "bfloat16 against float32"}
    rows = []
    for row in record["rows"]:
        if row["divergence"] == "js":
            found = row["false_discoveries"]
            rows += [
                [
                    names[row["null"]],
                    method,
                    str(figures["num_spikes"]),
                    number(figures["per_1000_tokens"], 2),
                ]
                for method, figures in found.items()
            ]
    rows.append(
        [
            names["bfloat16"],
            "calibrated, on the wrong null (other batches)",
            str(record["bfloat16_calibrated_by_batching"]["js"]),
            "-",
        ]
    )
    halves = [
        [
            names[row["null"]],
            row["divergence"],
            size(row["mean"]),
            size(row["max"]),
            percent(row["calibrated_halves"]["any"]),
            f"{row['calibrated_halves']['mean_spikes']:.2f}",
            str(row["calibrated_halves"]["most"]),
        ]
        for row in record["rows"]
    ]
    power = [
        [
            row["method"].replace("batching", "other batches").replace("on bfloat16", "on bfloat16 against float32"),
            row["divergence"],
            str(row["num_spikes"]),
            percent(row["precision"]),
            percent(row["recall"]),
        ]
        for row in record["power"]
    ]
    return {
        "null_spikes": table(["null pair", "method", "spikes, all false", "per 1000 tokens"], rows),
        "null_halves": table(
            ["null pair", "divergence", "mean", "largest", "halves with any spike", "spikes a half", "most"], halves
        ),
        "null_power": table(["method", "divergence", "spikes", "precision", "recall"], power),
    }


def _null_samples(record: Record) -> dict[str, str]:
    rows = [[name, str(row["num"]), percent(row["rate"])] for name, row in record["rates"].items()]
    return {"null_samples": table(["comparison", "pairs of samples", "rejected at 5%"], rows)}


def _null_coverage(record: Record) -> dict[str, str]:
    rows = [
        [row["figure"], str(row["num_problems"]), percent(row["interval"]), percent(row["wilcoxon"])]
        for row in record["rows"]
    ]
    head = ["figure", "problems", "bootstrap interval rejects", "paired Wilcoxon rejects"]
    return {"null_coverage": table(head, rows)}


def _null_arms(record: Record) -> dict[str, str]:
    rows = [
        [
            row["positions"],
            str(row["num"]),
            str(row["num_open"]),
            percent(row["outside"]),
            percent(row["inside"]),
            percent(row["undecided"]),
            percent(row["interval_without_0"]),
            number(row["effect"]),
            f"{row['wilcoxon']['p_value']:.2f}",
        ]
        for row in record["rows"]
    ]
    head = ["positions", "number", "success between 10% and 90%", "verdict outside: false", "inside: right",
            "undecided", "95% interval without 0", "mean effect", "Wilcoxon p"]  # fmt: skip
    return {"null_arms": table(head, rows)}


def _null_pivots(record: Record) -> dict[str, str]:
    rows = [
        [
            f"{100 * row['rate']:.0f}%",
            percent(row["of_one_token"], 2),
            percent(row["all_positions"]["tokens"], 2),
            percent(row["all_positions"]["rollouts"]),
            percent(row["rollouts_with_pivot"], 2),
            percent(row["rollouts_with_confirmed"], 2),
        ]
        for row in record["rows"]
    ]
    head = ["success everywhere", "false rate of a token, computed", "seen, every token measured",
            "rollouts with a false one, every token measured", "rollouts with a false pivot, search",
            "with a confirmed one"]  # fmt: skip
    return {"null_pivots": table(head, rows)}


def _stories(record: Record) -> dict[str, str]:
    divergences = {row["checkpoint"]: row for row in record["divergences"]}
    steps = [
        [
            row["checkpoint"],
            size(divergences[row["checkpoint"]]["js"]),
            size(divergences[row["checkpoint"]]["kl_forward"]),
            percent(row["share_tokens"]),
            percent(row["share_js"]),
        ]
        for row in record["steps"]
    ]
    steps += [
        [f"pretrained with itself, {kind}", size(values["js"]), size(values["kl_forward"]), "-", "-"]
        for kind, values in record["noise"].items()
    ]
    able = record["able"]
    marked = {row["selector"]: row for row in record["recovery"]["selectors"]}
    selectors = [
        [
            name,
            number(marked[name]["auc"]),
            number(marked[name]["average_precision"]),
            number(able["selectors"][name]["auc"]),
            number(able["selectors"][name]["average_precision"]),
        ]
        for name in SELECTORS
    ]
    on_able = {(row["divergence"], row["method"]): row for row in record["spikes_able"]}
    methods = [
        [
            row["method"],
            str(row["num_spikes"]),
            percent(row["precision"]),
            percent(row["recall"]),
            percent(row["chance_precision"]),
            str(on_able[row["divergence"], row["method"]]["num_spikes"]),
            percent(on_able[row["divergence"], row["method"]]["precision"]),
        ]
        for row in record["recovery"]["spikes"]
        if row["divergence"] == "js"
    ]
    categories = [
        [
            row["category"],
            percent(row["share_tokens"]),
            percent(row["share_divergence"]),
            percent(row["spike_rate"], 2),
            percent(row["base_rate"], 2),
        ]
        for row in record["categories"]
    ]
    return {
        "stories_steps": table(
            ["model", "mean JS", "mean forward KL", "the name's share of tokens", "its share of JS"], steps
        ),
        "stories_selectors": table(
            [
                "selector",
                "the name: AUC",
                "average precision",
                "where the name could be: AUC",
                "average precision",
            ],
            selectors,
        ),
        "stories_methods": table(
            [
                "method",
                "spikes, stories with the name",
                "precision, the name",
                "recall, the name",
                "precision by chance",
                "spikes, all stories",
                "precision, where the name could be",
            ],
            methods,
        ),
        "stories_categories": table(
            ["category", "share of tokens", "share of JS", "spikes a token", "all categories"], categories
        ),
    }


def _stories_forced(record: Record) -> dict[str, str]:
    rows = [
        [
            row["selection"],
            str(row["num_rollouts"]),
            percent(row["reference"]["success"]),
            percent(row["checkpoint"]["success"]),
            number(row["effect"]),
            percent(row["share_same_token"], 0),
        ]
        for row in record["causal"]["selections"]
    ]
    head = ["position", "stories", "new name, own token", "new name, changed model's token", "effect",
            "changed model agrees"]  # fmt: skip
    return {"stories_forced": table(head, rows)}


def _stories_dose(record: Record) -> dict[str, str]:
    rows = [
        [
            row["selector"],
            percent(row["budget"]),
            percent(row["share_swapped"], 2),
            percent(row["share_changed"], 2),
            percent(row["with_new"]),
            percent(row["with_old"]),
        ]
        for row in record["points"]
    ]
    head = ["selector", "budget", "tokens swapped", "tokens changed", f"stories with {record['new']}",
            f"with {record['old']}"]  # fmt: skip
    return {record["kind"]: table(head, rows)}


def _stories_command(record: Record) -> dict[str, str]:
    rows = [
        [
            row["checkpoint"],
            size(row["js"]),
            size(record["noise_floor"]["js"]["mean"]),
            str(
                next(
                    one["num_spikes"]
                    for one in record["num_spikes"]
                    if (one["checkpoint"], one["divergence"]) == (row["checkpoint"], "js")
                )
            ),
        ]
        for row in record["divergences"]
    ]
    return {"stories_command": table(["checkpoint", "mean JS", "noise floor, JS", "spikes, zscore"], rows)}


_OF_KIND = {
    "null_spikes": _null_spikes,
    "null_samples": _null_samples,
    "null_coverage": _null_coverage,
    "null_arms": _null_arms,
    "null_pivots": _null_pivots,
    "stories_found": _stories,
    "stories_forced": _stories_forced,
    "stories_dose_into_reference": _stories_dose,
    "stories_dose_into_changed": _stories_dose,
    "stories_command": _stories_command,
}
