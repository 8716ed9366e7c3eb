"""The tables of the zoo (`make zoo`): what of each architecture is how far from plain transformers in float64."""

from __future__ import annotations

from collections.abc import Sequence

from studies.pages import Record, of_kind, table

_STAGES = ("rl", "dpo", "sft")


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the tables by the names of their places."""
    rows = of_kind(records, "model")
    trained = [row for row in rows if not row["refused"]]
    refused = [[*_name(row), row["refused"], _works(row)] for row in rows if row["refused"]]
    head = ["`model_type`", "tried with", "rows", *_COLUMNS]
    cells = [[*_name(row), row["rows"], *(_shown(read(row)) for read in _COLUMNS.values())] for row in trained]
    worst = [_shown(max(read(row) for row in trained)) for read in _COLUMNS.values()]
    cells.append(["**largest**", "", "", *worst])
    return {
        "zoo": table(head, cells),
        "zoo: refused": table(["`model_type`", "tried with", "line", "works"], refused),
    }


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers that sentences quote."""
    rows = of_kind(records, "model")
    return {
        "zoo: models": str(len(rows)),
        "zoo: types": str(len({row["type"] for row in rows})),
        "zoo: refused types": str(len({row["type"] for row in rows if row["refused"]})),
        "zoo: minutes": f"{sum(row['seconds'] for row in rows) / 60:.0f}",
    }


_COLUMNS = {
    "log-probs": lambda row: row["rl"]["logprobs"],
    "gradient": lambda row: max(row[stage]["gradient"] for stage in _STAGES),
    "update": lambda row: max(row[stage]["update"] for stage in _STAGES),
    "SFT": lambda row: row["sft"]["loss"],
    "DPO": lambda row: row["dpo"]["loss"],
    "probe": lambda row: max(row["probe"][name] for name in ("js", "entropy", "logprobs")),
    "export": lambda row: max(row["export"].values()),
}
"""Head of a column -> what it reads off a row."""


def _name(row: Record) -> list[str]:
    own = ["dropout"] if row["drops"] else []
    return [f"`{row['type']}`", ", ".join([*([row["about"]] if row["about"] else []), *own])]


def _shown(error: float) -> str:
    return f"{error:.0e}" if error else "0"


def _works(row: Record) -> str:
    parts = {"SFT": row["sft"], "probe": row["probe"]}
    return ", ".join(name for name, found in parts.items() if found and "refused" not in found) or "nothing"
