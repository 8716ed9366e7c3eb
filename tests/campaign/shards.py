"""Commands divided into seven shards, which run in any order, are killed and run again: merged, the same bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from tests.campaign.crashes import uninterrupted
from tests.campaign.worlds import COMMANDS, Case, Worlds, contents, differences, forked_command

ROUNDS: Mapping[str, Sequence[str | None]] = {
    "sample": ("samples",),
    "eval-models": ("evaluated",),
    "grade": ("verdicts.jsonl",),
    "probe": (None, "run"),
    "probe-select": (None, "probed"),
    "probe-file": ("probed-samples", None, "probed"),
}
"""How often all shards of a command are run, and what is merged after each time; None: nothing yet."""
_NUM_SHARDS = 7
_KILLED = 0.5
"""Share of the shards that are killed, once or more often."""


def shard_cases(worlds: Worlds, names: list[str], seed: int) -> Iterator[Case]:
    """Yield one order with its kills after the other without end, of the commands that can be divided.

    A case is named after the command and what the order and the kills are drawn from: `shards/sample/17`.
    """
    divided = [name for name in names if name in ROUNDS]
    for number in range(10**9 if divided else 0):
        yield shard_case(worlds, f"shards/{divided[number % len(divided)]}/{1000 * seed + number}")


def shard_case(worlds: Worlds, case: str) -> Case:
    """Return a case by its name."""
    _, name, seed = case.split("/")
    return Case(name=case, check=partial(_check, worlds, name, random.Random(case + seed)))


def _check(worlds: Worlds, name: str, rng: random.Random) -> tuple[list[str], int]:
    """Return what is wrong in the end, and how many shards were killed."""
    _, seconds = uninterrupted(worlds, name)
    world, num_kills = worlds.copy(worlds.before[name]), 0
    for place in ROUNDS[name]:
        for number in rng.sample(range(1, _NUM_SHARDS + 1), _NUM_SHARDS):
            arguments = (*COMMANDS[name], "--shard", f"{number}/{_NUM_SHARDS}")
            while rng.random() < _KILLED:
                ended = forked_command(arguments, world, worlds.log, kill_after=seconds * rng.random())
                num_kills += ended.killed
            ended = forked_command(arguments, world, worlds.log)
            if ended.status:
                return [f"shard {number}: status {ended.status}: {ended.err}"], num_kills
        if place is not None:
            ended = forked_command(("merge", place), world, worlds.log)
            if ended.status:
                return [f"merge {place}: status {ended.status}: {ended.err}"], num_kills
    return differences(contents(world), contents(worlds.after[name])), num_kills
