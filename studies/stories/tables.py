"""Tables of a change planted in a story model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from studies.markdown import number, percent, size, table
from studies.study import Record, tables_by_kind


def _found(record: Record) -> dict[str, str]:
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
    selectors = [
        [
            row["selector"],
            number(row["auc"]),
            number(row["average_precision"]),
            number(able["selectors"][row["selector"]]["auc"]),
            number(able["selectors"][row["selector"]]["average_precision"]),
        ]
        for row in record["recovery"]["selectors"]
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


def _forced(record: Record) -> dict[str, str]:
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


def _dose(record: Record) -> dict[str, str]:
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


def _command(record: Record) -> dict[str, str]:
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


_TABLES: Mapping[str, Callable[[Record], dict[str, str]]] = {
    "stories_found": _found,
    "stories_forced": _forced,
    "stories_dose_into_reference": _dose,
    "stories_dose_into_changed": _dose,
    "stories_command": _command,
}
"""Kind of record -> its tables."""


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the markdown tables by the names of their places in the page."""
    return tables_by_kind(records, _TABLES)


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers that sentences quote: success at the spike, and stories with the new name at each dose."""
    by_kind = {record["kind"]: record for record in records}
    found = {}
    if "stories_forced" in by_kind:
        spike = by_kind["stories_forced"]["causal"]["selections"][0]
        found["stories: new name at the spike"] = percent(spike["checkpoint"]["success"], 0)
    for kind in ("stories_dose_into_reference", "stories_dose_into_changed"):
        for row in by_kind.get(kind, {"points": []})["points"]:
            found[f"{kind}: {row['selector']} {row['budget']:g}"] = percent(row["with_new"], 0)
    return found
