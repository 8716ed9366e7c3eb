"""Memory of commands on long files: at four times the rows it is what it was."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from swerve.artifacts import streams
from tests.json_lines import write_json_lines

Swerve = Callable[..., tuple[int, str, str]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("grade", "rows.jsonl", "--task", "gsm8k", "--audit", "correct", "--out", "out.jsonl"),
        ("data", "import", "rows.jsonl", "--out", "out.parquet"),
        ("data", "select", "rows.jsonl", "--where", "step=0", "--out", "out.parquet"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_four_times_the_rows_take_the_same_memory(
    swerve: Swerve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setattr(streams, "ROWS_AT_ONCE", 25)
    peaks = []
    for num in (10, 100, 400):
        lines = (
            {"id": f"p{n // 4}", "question": f"{n // 4}?", "gold": "3", "response": f"{n} {'x' * 8000} #### {n % 5}",
             "correct": n % 2, "step": 0 if n < 10 else 1}
            for n in range(num)
        )  # fmt: skip
        write_json_lines(tmp_path / "rows.jsonl", lines)
        if num > 10:  # after the imports
            tracemalloc.start()
        status, _, err = swerve(*command)
        peaks += [tracemalloc.get_traced_memory()[1]] if num > 10 else []
        tracemalloc.stop()
        assert status == 0, err
    at_n, at_4n = peaks
    assert at_4n < at_n + 400_000, peaks  # the further rows take 2,400,000
