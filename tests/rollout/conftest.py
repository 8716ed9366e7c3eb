"""A server to sample with, and the engine that does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from swerve.config.engines import ServerEngineConfig
from swerve.rollout.engine import Engine, make_engine
from tests.rollout.servers import StandIn


@pytest.fixture
def server(tiny) -> Iterator[StandIn]:
    """A server with the tiny model."""
    stand_in = StandIn(tiny[0])
    stand_in.start()
    yield stand_in
    stand_in.stop()


@pytest.fixture
def server_engine(server: StandIn, tiny, tmp_path: Path) -> Iterator[Engine]:
    """The engine of that server."""
    config = ServerEngineConfig(urls=(server.url,), folder=str(tmp_path / "weights"), patience=0.0)
    with closing(make_engine(config, *tiny, max_rows=16)) as engine:
        yield engine
