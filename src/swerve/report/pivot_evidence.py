"""The rows that sentences about pivots were made of: a rollout each, with the values measured along it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from swerve.artifacts.probe_causes import Pivots
from swerve.report.evidence import Evidence, Figure, Value
from swerve.report.read import ReportInputs
from swerve.report.read_tokens import ReadTokens, read_tokens
from swerve.report.run_evidence import frame_lines
from swerve.statistics import difference_interval

_EXACT = 1e-9  # as in the search: 0.3 - 0.1 is less than 0.2 in binary
_Counts = Mapping[int, tuple[int, int]]
"""By length of the prefix: right continuations, and all."""


class _Pivot(NamedTuple):
    start: int
    stop: int
    jump: float


def pivot_evidence(inputs: ReportInputs, pivots: Pivots, *figures: Figure) -> Evidence | None:
    """Return of each rollout the success of its prefixes, and the tokens across which that changes by the gap."""
    table = None if inputs.tables is None else inputs.tables.read("prefix_values")
    data = read_tokens(inputs)
    if table is None or data is None or inputs.tables is None:
        return None
    values: dict[int, dict[str, dict[int, tuple[int, int]]]] = {}
    for row in table.filter(pc.equal(table["policy"], pivots.policy)).to_pylist():
        of = values.setdefault(row["sequence_id"], {"search": {}, "estimate": {}})
        of[str(row["sample_set"])][row["position"]] = (row["num_successes"], row["num_continuations"])
    spikes, tops = _spikes(inputs, data), _tops(data)
    rows = [_row(own, pivots, spikes.get(number, []), tops[number], data) for number, own in values.items()]
    of_rollout = dict(zip(data.numbers, data.problems, strict=True))
    return Evidence(
        id=f"pivots-{pivots.policy}",
        table="probe/prefix_values.parquet",
        filter=f"continuations by the {pivots.policy} of the first tokens of a rollout",
        unit="rollout",
        columns={
            "problem": [of_rollout[number] for number in values],
            "rollout": [*values],
            **{name: [row[name] for row in rows] for name in (rows[0] if rows else ())},
        },
        figures=figures,
        command=f"{frame_lines(inputs, values='probe/prefix_values.parquet')}"
        f"values = values.query(\"policy == {pivots.policy!r} and sample_set == 'search'\")\n"
        "values['right'] = values.num_successes / values.num_continuations\n"
        "own = values.set_index('position').groupby('sequence_id').right\n"
        "rows = pd.DataFrame({'right from the prompt on': own.apply(lambda one: one.loc[0].mean()), "
        "'highest success along it': own.max()})",
        note=f"Found: success on either side differs by {pivots.gap:g} or more in the search; confirmed: the interval "
        "of the difference on fresh continuations (swerve.statistics.difference_interval) is at the gap or beyond.",
    )


def _row(
    own: Mapping[str, _Counts],
    pivots: Pivots,
    spikes: Sequence[int],
    tops: tuple[int, int],
    data: ReadTokens,
) -> Mapping[str, Value]:
    success = {length: right / num for length, (right, num) in sorted(own["search"].items())}
    found = [
        _Pivot(start, stop, success[stop] - success[start])
        for start, stop in pairwise(success)
        if abs(success[stop] - success[start]) >= pivots.gap - _EXACT
        and (stop - start == 1 or pivots.unit == "sentence")
    ]
    fall = min((one for one in found if _lasts(one, success, pivots.gap)), key=lambda one: one.jump, default=None)

    def is_at(place: int) -> int | None:
        return None if fall is None else int(fall.start <= place < fall.stop)

    return {
        "right from the prompt on": success.get(0),
        "highest success along it": max(success.values()),
        "could fall": int(max(success.values()) >= pivots.gap - _EXACT),
        "found": len(found),
        "confirmed": sum(_is_confirmed(one, own["estimate"], pivots.gap, data.summary.confidence) for one in found),
        "found on a spike": sum(any(one.start <= place < one.stop for place in spikes) for one in found),
        "falls for good": int(fall is not None),
        "token": None if fall is None else fall.start,
        "highest divergence there": is_at(tops[0]),
        "highest entropy there": is_at(tops[1]),
    }


def _lasts(pivot: _Pivot, success: Mapping[int, float], gap: float) -> bool:
    """Return whether it is a fall, and no later value is back within the gap."""
    later = [value for length, value in success.items() if length >= pivot.stop]
    return max(later) <= success[pivot.start] - gap + _EXACT


def _is_confirmed(pivot: _Pivot, fresh: _Counts, gap: float, confidence: float) -> bool:
    if pivot.start not in fresh or pivot.stop not in fresh:
        return False
    ends = (fresh[pivot.stop], fresh[pivot.start]) if pivot.jump > 0 else (fresh[pivot.start], fresh[pivot.stop])
    interval = difference_interval(*ends[0], *ends[1], confidence=confidence)
    return interval is not None and interval.low >= gap - _EXACT


def _spikes(inputs: ReportInputs, data: ReadTokens) -> Mapping[int, list[int]]:
    """Return the places of the spikes by the headline rule, by rollout."""
    assert inputs.tables is not None
    table, summary = inputs.tables.spikes, data.summary
    wanted = {"method": summary.spike_method, "divergence": summary.divergence, "checkpoint": summary.final}
    for name, value in wanted.items():
        table = table.filter(pc.equal(table[name], value))
    found: dict[int, list[int]] = {}
    for number, position in zip(table["sequence_id"].to_pylist(), table["position"].to_pylist(), strict=True):
        found.setdefault(number, []).append(position)
    return found


def _tops(data: ReadTokens) -> Mapping[int, tuple[int, int]]:
    """Return where the divergence is highest, and where the reference's entropy is, by rollout."""
    columns: tuple[Any, Any] = data.values, data.column("entropy_ref")
    positions = data.positions
    return {
        number: tuple(int(positions[own][np.argmax(column[own])]) for column in columns)  # type: ignore[misc]
        for number, own in zip(data.numbers, data.split(), strict=True)
    }
