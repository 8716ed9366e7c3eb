"""Spikes at places of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from swerve.probe.engine.measured import Measurements
from swerve.probe.findings.spike_table import SpikeTable
from swerve.probe.findings.spikes import Spike

Places = Mapping[tuple[str, str], Mapping[int, Sequence[int]]]


def table_of(data: Measurements, places: Places | None = None) -> SpikeTable:
    """Return a table with spikes at (checkpoint, divergence) -> sequence_id -> positions; by default without any."""
    found = {
        (checkpoint, divergence, "zscore"): [
            [
                Spike(position=position, value=1.0, threshold=0.5, height=height)
                for height, position in enumerate(by_id.get(sequence.sequence_id, ()), start=1)
            ]
            for sequence in data.sequences
        ]
        for (checkpoint, divergence), by_id in (places or {}).items()
    }
    return SpikeTable(sequences=data.sequences, method="zscore", found=found, tops={})


@pytest.fixture
def spikes_at() -> Callable[..., SpikeTable]:
    return table_of
