"""A card that is killed again and again and goes on has the bytes of one that never was."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

import swerve
from tests.campaign.kills import forked
from tests.claim.planted.models import planted_pair, table_settings, table_task

NUM_KILLS = 10


@pytest.mark.slow
def test_a_killed_card_goes_on_to_the_same_bytes(tmp_path):
    pair = planted_pair(tmp_path / "planted", "forgetting", size=0.1, num_problems=24)
    text = tmp_path / "text.txt"
    text.write_text("add subtract add 1 2 3\n" * 20)
    settings = table_settings(
        pair.problems, num_samples=4, others=(table_task(pair.others),), texts=(str(text),), ranks=(1,), directions=2
    )

    def write() -> None:
        os.chdir(tmp_path)
        swerve.claim(pair.base, pair.rl, settings, out="card", progress=False)

    started = time.monotonic()
    ended = forked(write, log=tmp_path / "log")
    seconds = time.monotonic() - started
    assert ended.status == 0, ended.err
    whole = tmp_path / "whole"
    (tmp_path / "card").rename(whole)

    # Killed at random moments, each time further on.
    chance, killed = random.Random(0), 0
    while killed < NUM_KILLS:
        ended = forked(write, log=tmp_path / "log", kill_after=chance.uniform(0, seconds / 3))
        assert ended.killed or ended.status == 0, ended.err
        killed += 1
    ended = forked(write, log=tmp_path / "log")
    assert ended.status == 0, ended.err
    assert contents(tmp_path / "card") == contents(whole)


def contents(card: Path) -> dict[str, bytes]:
    """Return the card, its page and all samples, by their names."""
    files = [card / "claim.json", card / "index.html", *sorted(card.glob("samples/*")), *card.glob("claim.partial")]
    return {str(path.relative_to(card)): path.read_bytes() for path in files}
