"""The table of the page on reliability: what `python -m tests.campaign --keep` counted at the newest commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from studies.pages import Record, table

_KILLING = ("kills", "shards", "ranks")
"""Parts of the campaign in which commands are killed."""


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the sum of the parts of the newest commit, and how often each command was killed."""
    parts = [record for record in records if record["kind"] == "campaign"]
    if not parts:
        return {"campaign": "", "campaign kills": ""}
    own = [part for part in parts if part["name"] == parts[-1]["name"]]
    kills, cases, seconds = (_sum(own, key) for key in ("kills", "cases", "seconds"))
    num, days = kills.total(), sorted({part["date"] for part in own})
    rows = [
        ("commit", f"`{own[0]['name']}`"),
        ("date", " to ".join(dict.fromkeys((days[0], days[-1])))),
        ("kills", f"{num:,}, of each command at least {min(kills.values())}"),
        ("seconds a kill", f"{seconds.total() / max(1, num):.1f}"),
        *((name, f"{sum(part[name] for part in own):,}") for name in ("mismatches", "extra files", "orphans")),
        *((f"cases of `{name}`", f"{cases[name]:,}") for name in sorted(cases.keys() - {*_KILLING})),
    ]
    return {
        "campaign": table(("what", "found"), rows),
        "campaign kills": table(
            ("command", "kills", "seconds a kill"),
            [(f"`{name}`", f"{count:,}", f"{seconds[name] / max(1, count):.1f}") for name, count in kills.items()],
        ),
    }


def _sum(parts: Sequence[Record], key: str) -> Counter[str]:
    total = Counter[str]()
    for part in parts:
        total.update(part[key])
    return Counter(dict(sorted(total.items())))
