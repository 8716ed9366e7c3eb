from __future__ import annotations

import math

import pytest

from benchmarks.coverage import Cell, cells, measure

DRAWS = 4000
DRAWS_OF_LARGE = 1000  # of rankings of 8,000 and 16,000 rows, which take longest
SEED = 20  # not that of the kept results

pytestmark = pytest.mark.planted

# Families that are neither the worst of their method nor an end of the range: the benchmark has them.
LEFT_OUT = ("0.10", "0.90", "sigma 1", "0.02 and 0.12", "0.80,", "lognormal of either sign", "0.50 and 0.60")
CELLS = [cell for cell in cells() if cell.bar and not any(words in cell.family for words in LEFT_OUT)]


@pytest.mark.parametrize("method", sorted({cell.method for cell in CELLS}))
def test_methods_keep_their_level(method: str) -> None:
    broken = [line for cell in CELLS if cell.method == method for line in failures(cell)]
    assert not broken, "\n".join(broken)


def failures(cell: Cell) -> list[str]:
    """Return a line where the rate is more than three Monte Carlo standard errors on the wrong side of the bar."""
    is_large = cell.num_problems == 400 and any(words in cell.family for words in ("20 rows", "40 rows"))
    draws = DRAWS_OF_LARGE if is_large else DRAWS
    measured = measure(cell, draws, SEED)
    if measured["num_counted"] < 0.1 * draws:  # of the samples hardly any is called reliable
        return []
    slack = 3 * math.sqrt(cell.bar * (1 - cell.bar) / measured["num_counted"])
    over = measured["rate"] - cell.bar if cell.is_test else cell.bar - measured["rate"]
    return [f"{method_of(cell)}: {measured['rate']:.4f}, bar {cell.bar}"] if over > slack else []


def method_of(cell: Cell) -> str:
    return f"{cell.method}, {cell.family}, {cell.num_problems} problems"
