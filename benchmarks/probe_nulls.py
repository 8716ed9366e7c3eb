"""False discoveries of the probe where there is nothing to find: what its figures report on null pairs.

- The same model with itself, run in other batches and in bfloat16: every spike is false.
- Two samples of the same model: every figure that compares populations should reject at its nominal 5%.
- The same token in both arms of a swap; a search for pivots where no token has an effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from probe_null_pairs import NullRun, NullSettings, coverage, samples, spikes
from probe_null_values import arms, pivots

from swerve.artifacts.run import RunDirectory

__all__ = ["NULL_PARTS", "NullSettings", "null_records"]

Record = dict[str, Any]


def null_records(path: RunDirectory, settings: NullSettings, parts: Sequence[str]) -> Iterator[Record]:
    """Yield one JSON line for each part asked for."""
    run = NullRun.read(path, settings)
    for name in parts:
        yield {"kind": f"null_{name}", **NULL_PARTS[name](run)}


NULL_PARTS: Mapping[str, Callable[[NullRun], Record]] = {
    "spikes": spikes,
    "samples": samples,
    "coverage": coverage,
    "arms": arms,
    "pivots": pivots,
}
"""By name: what is repeated on nothing."""
