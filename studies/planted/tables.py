"""Tables of planted truths: how often each claim of a summary is false, and how often what is there is found."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from scipy.stats import binom

from studies.pages import Record, table
from studies.planted.claims import LEVEL, LOOKED_FOR, field

_SURE = 0.9965
"""At a true error of 5%, 200 draws have more than 19 misses as rarely as 1 - this; other numbers are held alike."""


@cache
def allowed(num: int) -> int:
    """Return the most false claims among so many at a true error of 5%.

    >>> allowed(200), allowed(20)
    (19, 4)
    """
    return int(binom.ppf(_SURE, num, LEVEL))


def too_often(records: Sequence[Record]) -> list[str]:
    """Return the claims that are false more often than their stated error explains."""
    return [
        f"{record['world']}: {path}: {false} of {num}"
        for record in records
        if record["kind"] == "planted"
        for path, (false, num) in record["false"].items()
        if false > allowed(num)
    ]


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the markdown tables by the names of their places in the page."""
    worlds = [record for record in records if record["kind"] == "planted"]
    names = [f"`{record['world']}`" for record in worlds]
    power = [[what, *(_of(record["found"].get(path)) for record in worlds)] for path, what in LOOKED_FOR.items()]

    # The fields that no world decides.
    known = {field(path.partition(":")[0]) for record in worlds for path in record["false"]}
    undecided = {path for record in worlds for path in record["without_truth"]} - known
    return {
        "planted_overview": _overview(worlds),
        "planted_faults": _overview([record for record in records if record["kind"] == "planted_fault"]),
        "planted_claims": table(["claim", *names], _claims(worlds)),
        "planted_power": table(["what is looked for", *names], power),
        "planted_open": ", ".join(f"`{path}`" for path in sorted(undecided)) + ".",
    }


def _overview(records: Sequence[Record]) -> str:
    rows = []
    for record in records:
        counts = record["false"]
        by_chance = sum(float(binom.sf(allowed(num), num, LEVEL)) for _, num in counts.values())
        rates = {path: false / num for path, (false, num) in counts.items() if num}
        worst = max(counts, key=lambda path: rates.get(path, 0.0))
        rows.append(
            [
                f"`{record['world']}`",
                str(record["num"]),
                str(len(rates)),
                f"{100 * sum(rates.values()) / len(rates):.1f}%",
                str(sum(false > allowed(num) for false, num in counts.values())),
                f"{by_chance:.1f}",
                f"{_of(counts[worst])}: `{worst}`",
            ]
        )
    head = ["world", "draws", "claims", "false, on average", "false too often", "by chance at 5%", "most often false"]
    return table(head, rows)


def _claims(records: Sequence[Record]) -> list[list[str]]:
    """Return a row for each field of the summary, a column for each world: mean and largest count of its entries."""
    by_field: dict[str, dict[str, list[Sequence[int]]]] = {}
    for record in records:
        for path, counts in record["false"].items():
            by_field.setdefault(field(path), {}).setdefault(record["world"], []).append(counts)

    rows = []
    for name, by_world in sorted(by_field.items()):
        row = [f"`{name}`"]
        for record in records:
            counts = by_world.get(record["world"], [])
            if len(counts) > 1:
                mean = sum(false for false, _ in counts) / len(counts)
                most = max(false for false, _ in counts)
                row.append(f"{mean:.1f}, most {most} of {max(num for _, num in counts)}")
            else:
                row.append(f"{counts[0][0]} of {counts[0][1]}" if counts else "-")
        rows.append(row)
    return rows


def _of(counts: Sequence[int] | None) -> str:
    return "-" if not counts or not counts[1] else f"{counts[0]} of {counts[1]}"
