"""Tables of planted truths: how often each claim of a summary is false, and how often what is there is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from scipy.stats import binom

from studies.markdown import table
from studies.planted.claims import LEVEL, LOOKED_FOR, field
from studies.study import Record

_SURE = 0.9965
"""At a true error of 5%, 200 draws have more than 19 misses as rarely as 1 - this; other numbers are held alike."""

Counts = Mapping[str, Sequence[int]]


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


def _overview(records: Sequence[Record]) -> str:
    rows = []
    for record in records:
        counts = record["false"].values()
        by_chance = sum(float(binom.sf(allowed(num), num, LEVEL)) for _, num in counts)
        rates = [false / num for false, num in counts if num]
        worst = max(record["false"].items(), key=lambda one: one[1][0] / max(one[1][1], 1))
        rows.append(
            [
                f"`{record['world']}`",
                str(record["num"]),
                str(len(rates)),
                f"{100 * sum(rates) / len(rates):.1f}%",
                str(sum(false > allowed(num) for false, num in counts)),
                f"{by_chance:.1f}",
                f"{worst[1][0]} of {worst[1][1]}: `{worst[0]}`",
            ]
        )
    head = ["world", "draws", "claims", "false, on average", "false too often", "by chance at 5%", "most often false"]
    return table(head, rows)


def _claims(records: Sequence[Record]) -> str:
    """One row a field of the summary, one column a world: mean and largest count of its entries."""
    by_field: dict[str, dict[str, list[tuple[int, int]]]] = {}
    for record in records:
        for path, (false, num) in record["false"].items():
            by_field.setdefault(field(path), {}).setdefault(record["world"], []).append((false, num))
    worlds = [record["world"] for record in records]
    rows = [
        [f"`{name}`", *(_cell(by_world.get(world, [])) for world in worlds)]
        for name, by_world in sorted(by_field.items())
    ]
    return table(["claim", *(f"`{world}`" for world in worlds)], rows)


def _cell(counts: Sequence[tuple[int, int]]) -> str:
    if not counts:
        return "-"
    if len(counts) == 1:
        return f"{counts[0][0]} of {counts[0][1]}"
    mean = sum(false for false, _ in counts) / len(counts)
    return f"{mean:.1f}, most {max(false for false, _ in counts)} of {max(num for _, num in counts)}"


def _power(records: Sequence[Record]) -> str:
    rows = [[what, *(_rate(record["found"].get(path)) for record in records)] for path, what in LOOKED_FOR.items()]
    return table(["what is looked for", *(f"`{record['world']}`" for record in records)], rows)


def _open(records: Sequence[Record]) -> str:
    """List the fields that no world decides."""
    known = {field(path.partition(":")[0]) for record in records for path in record["false"]}
    paths = {path for record in records for path in record["without_truth"]} - known
    return ", ".join(f"`{path}`" for path in sorted(paths)) + "."


def _rate(counts: Sequence[int] | None) -> str:
    return "-" if not counts or not counts[1] else f"{counts[0]} of {counts[1]}"


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the markdown tables by the names of their places in the page."""
    worlds = [record for record in records if record["kind"] == "planted"]
    if not worlds:
        return {}
    return {
        "planted_overview": _overview(worlds),
        "planted_faults": _overview([record for record in records if record["kind"] == "planted_fault"]),
        "planted_claims": _claims(worlds),
        "planted_power": _power(worlds),
        "planted_open": _open(worlds),
    }
