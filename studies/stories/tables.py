"""Tables of a change planted in a story model."""

from __future__ import annotations

from collections.abc import Sequence

from studies.pages import Record, percent, table_of

_DOSES = ("stories_dose_into_reference", "stories_dose_into_changed")


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the markdown tables by the names of their places in the page."""
    kinds = {record["kind"]: record for record in records}
    found = kinds["stories_found"]
    return {
        "stories_steps": _steps(found),
        "stories_selectors": table_of(
            [{**row, "able": found["able"]["selectors"][row["selector"]]} for row in found["recovery"]["selectors"]],
            ("selector", "selector"),
            ("the name: AUC", "auc:number"),
            ("average precision", "average_precision:number"),
            ("where the name could be: AUC", "able.auc:number"),
            ("average precision", "able.average_precision:number"),
        ),
        "stories_methods": _methods(found),
        "stories_forced": table_of(
            kinds["stories_forced"]["causal"]["selections"],
            ("position", "selection"),
            ("stories", "num_rollouts"),
            ("new name, own token", "reference.success:percent"),
            ("new name, changed model's token", "checkpoint.success:percent"),
            ("effect", "effect:number"),
            ("changed model agrees", "share_same_token:percent0"),
        ),
    }


def _steps(found: Record) -> str:
    divergences = {row["checkpoint"]: row for row in found["divergences"]}
    rows = [{**divergences[row["checkpoint"]], **row} for row in found["steps"]]
    for kind, values in found["noise"].items():
        rows.append({"checkpoint": f"pretrained with itself, {kind}", "share_tokens": None, "share_js": None, **values})
    return table_of(
        rows,
        ("model", "checkpoint"),
        ("mean JS", "js:size"),
        ("mean forward KL", "kl_forward:size"),
        ("the name's share of tokens", "share_tokens:percent"),
        ("its share of JS", "share_js:percent"),
    )


def _methods(found: Record) -> str:
    able = {row["method"]: row for row in found["spikes_able"] if row["divergence"] == "js"}
    rows = [row for row in found["recovery"]["spikes"] if row["divergence"] == "js"]
    return table_of(
        [{**row, "able": able[row["method"]]} for row in rows],
        ("method", "method"),
        ("spikes, stories with the name", "num_spikes"),
        ("precision, the name", "precision:percent"),
        ("recall, the name", "recall:percent"),
        ("precision by chance", "chance_precision:percent"),
        ("spikes, all stories", "able.num_spikes"),
        ("precision, where the name could be", "able.precision:percent"),
    )


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers that sentences quote: success at the spike, and stories with the new name at each dose."""
    kinds = {record["kind"]: record for record in records}
    spike = kinds["stories_forced"]["causal"]["selections"][0]
    texts = {"stories: new name at the spike": percent(spike["checkpoint"]["success"], 0)}
    for kind in _DOSES:
        for row in kinds[kind]["points"]:
            texts[f"{kind}: {row['selector']} {row['budget']:g}"] = percent(row["with_new"], 0)
    return texts
