"""A server to sample with, and the engine that does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rollout.servers import StandIn


@pytest.fixture
def server(tiny) -> Iterator[StandIn]:
    """A server with the tiny model."""
    stand_in = StandIn(tiny[0])
    stand_in.start()
    yield stand_in
    stand_in.stop()
