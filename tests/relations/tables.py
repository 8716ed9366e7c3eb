"""Tables of responses whose truth is known, and changes of them that no user expects to matter."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from swerve.formats.typed_fields import RESPONSE_NAMES

Row = dict[str, Any]
Rows = list[Row]
KNOWN = ("id", "question", "gold", "response", "correct")
"""Fields that the rows have; every other that swerve looks for is there and null."""
FORMS = ("jsonl", "json", "csv", "parquet", "jsonl.gz", "csv.gz")


def made_problems(num: int) -> Rows:
    """Return problems with their answers."""
    draws = random.Random(num)
    sums = [(draws.randrange(11, 99), draws.randrange(11, 99)) for _ in range(num)]
    return [
        {"id": f"p{k:02d}", "question": f"In week {k} Ann buys {a} and {b} apples. How many?", "gold": str(a + b)}
        for k, (a, b) in enumerate(sums)
    ]


def made_rows(share: float, num_problems: int = 12, num_samples: int = 4) -> Rows:
    """Return responses, about `share` of them right: each text differs, and no problem is as hard as the next."""
    draws, rows = random.Random(f"rows {share}"), []
    for problem in made_problems(num_problems):
        own = min(max(share + draws.uniform(-0.4, 0.4), 0.05), 0.95)
        for number in range(num_samples):
            right = draws.random() < own
            said = int(problem["gold"]) + (0 if right else draws.choice((1, 2, 10)))
            text = f"Try {number} of {problem['id']}: they are {said}. The answer is \\boxed{{{said}}}."
            rows.append(dict.fromkeys(RESPONSE_NAMES) | problem | {"response": text, "correct": right})
    return rows


def encoded(rows: Sequence[Mapping[str, Any]], form: str) -> bytes:
    """Return rows as a file of a form."""
    if form.endswith(".gz"):
        return gzip.compress(encoded(rows, form.removesuffix(".gz")), mtime=0)
    if form == "parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(list(rows)), sink)
        return bytes(sink.getvalue())
    if form == "csv":
        stream = io.StringIO()
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        return stream.getvalue().encode()
    return json.dumps(rows).encode() if form == "json" else "".join(json.dumps(row) + "\n" for row in rows).encode()


def shuffled(rows: Rows) -> Rows:
    """Return the rows in another order, which differs between files."""
    return random.Random(json.dumps(rows)).sample(rows, len(rows))


def renamed(rows: Rows) -> Rows:
    """Return the rows with other ids, in another order of the alphabet."""
    return [row | {"id": f"task/{int(row['id'][1:]) * 7 % 100:02d}"} for row in rows]


def widened(rows: Rows) -> Rows:
    """Return the rows with columns that nobody asks for, before and after theirs."""
    more = {"latency_ms": 12.5, "remarks": "nan", "annotator": None}
    return [{"worker": number % 3} | row | more for number, row in enumerate(rows)]


def some_messages(rows: Rows, first: int) -> Rows:
    """Return the rows with their question as a message in every other one from the first or the second on."""
    return [
        row | {"messages": [{"role": "user", "content": row["question"]}] if number % 2 == first else None}
        for number, row in enumerate(rows)
    ]


CHANGES: dict[str, Callable[[Rows], Rows]] = {
    "order of rows": shuffled,
    "order of columns": lambda rows: [dict(reversed(row.items())) for row in rows],
    "extra columns": widened,
    "a column that is absent and not null": lambda rows: [{name: row[name] for name in KNOWN} for row in rows],
    "other ids": renamed,
}
"""What is changed in all files alike."""
