"""Tables of false discoveries on null pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from studies.markdown import number, percent, size, table
from studies.study import Record, tables_by_kind


def _spikes(record: Record) -> dict[str, str]:
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


def _samples(record: Record) -> dict[str, str]:
    rows = [[name, str(row["num"]), percent(row["rate"])] for name, row in record["rates"].items()]
    return {"null_samples": table(["comparison", "pairs of samples", "rejected at 5%"], rows)}


def _coverage(record: Record) -> dict[str, str]:
    rows = [
        [row["figure"], str(row["num_problems"]), percent(row["interval"]), percent(row["wilcoxon"])]
        for row in record["rows"]
    ]
    head = ["figure", "problems", "bootstrap interval rejects", "paired Wilcoxon rejects"]
    return {"null_coverage": table(head, rows)}


def _arms(record: Record) -> dict[str, str]:
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


def _pivots(record: Record) -> dict[str, str]:
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


_TABLES: Mapping[str, Callable[[Record], dict[str, str]]] = {
    "null_spikes": _spikes,
    "null_samples": _samples,
    "null_coverage": _coverage,
    "null_arms": _arms,
    "null_pivots": _pivots,
}
"""Kind of record -> its tables."""


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the markdown tables by the names of their places in the page."""
    return tables_by_kind(records, _TABLES)
