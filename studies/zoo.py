"""The tables of the zoo (`make zoo`): what of each architecture is how far from plain transformers in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from studies.pages import Record, code, of_kind, table

_STAGES = ("rl", "dpo", "sft")
_COLUMNS: Mapping[str, Callable[[Record], float]] = {
    "log-probs": lambda row: row["rl"]["logprobs"],
    "gradient": lambda row: max(row[stage]["gradient"] for stage in _STAGES),
    "update": lambda row: max(row[stage]["update"] for stage in _STAGES),
    "SFT": lambda row: row["sft"]["loss"],
    "DPO": lambda row: row["dpo"]["loss"],
    "probe": lambda row: max(row["probe"][name] for name in ("js", "entropy", "logprobs")),
    "export": lambda row: max(row["export"].values()),
}
"""Head of a column -> what it reads off a row."""
_WORKS = {"SFT": lambda row: row["sft"], "probe": lambda row: row["probe"]}


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the tables by the names of their places."""
    rows = of_kind(records, "model")
    right = [row for row in rows if not row["wrong"]]
    trained = [row for row in right if not row["refused"]]
    worst = ["**largest**", "", "", *(_shown(max(map(read, trained))) for read in _COLUMNS.values())]
    cells = [[*_name(row), row["rows"], *(_shown(read(row)) for read in _COLUMNS.values())] for row in trained]
    refused = [[*_name(row), code(row["refused"]), _works(row)] for row in right if row["refused"]]
    wrong = [[*_name(row), code("; ".join(row["wrong"]))] for row in rows if row["wrong"]]
    return {
        "zoo": table(["`model_type`", "tried with", "rows", *_COLUMNS], [*cells, worst]),
        "zoo: refused": table(["`model_type`", "tried with", "line", "works"], refused),
        "zoo: wrong": table(["`model_type`", "tried with", "what is wrong"], wrong) or "None.",
    }


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers that sentences quote."""
    rows = of_kind(records, "model")
    return {
        "zoo: models": str(len(rows)),
        "zoo: types": str(len({row["type"] for row in rows})),
        "zoo: minutes": f"{sum(row['seconds'] for row in rows) / 60:.0f}",
    }


def _name(row: Record) -> list[str]:
    return [f"`{row['type']}`", ", ".join([*([row["about"]] if row["about"] else []), *row["chance"]])]


def _shown(error: float) -> str:
    return f"{error:.0e}" if error else "0"


def _works(row: Record) -> str:
    """Return what was tried and is right although training as a whole is refused."""
    return ", ".join(name for name, read in _WORKS.items() if "refused" not in (read(row) or ["refused"])) or "nothing"
