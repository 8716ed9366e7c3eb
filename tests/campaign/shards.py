"""Commands divided into shards, which run in any order and are killed; so is the command that finishes their parts."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from tests.campaign.kills import Events
from tests.campaign.states import contents, differences, parts_of_shards
from tests.campaign.worlds import Case, Worlds

ROUNDS: Mapping[str, Sequence[bool]] = {
    "sample": (True,),
    "eval-models": (True,),
    "grade": (True,),
    "probe": (False, True),
    "probe-select": (False, True),
    "probe-file": (True,),
    "claim": (True,),
}
"""How often all shards of a command are run, and whether the command without `--shard` follows each time."""
_NUM_SHARDS = 3
_APART = 0.5
"""Share of the cases of one round whose shards have no file system in common: their folders are copied."""
_KILLED = 0.4
"""Share of the shards, and of the commands that finish their parts, that are killed, once or more often."""


def shard_cases(worlds: Worlds, names: Sequence[str], seed: int, num_kills: Counter[str]) -> Iterator[Case]:
    """Yield one order with its kills after the other without end, of what was killed least.

    A case is named after the command and what the order and the kills are drawn from: `shards/sample/17`.
    """
    for number in range(10**9):
        name = min(names, key=lambda one: num_kills[f"{one} --shard"])
        yield shard_case(worlds, f"shards/{name}/{10000 * seed + number}")


def shard_case(worlds: Worlds, case: str) -> Case:
    """Return a case by its name."""
    _, name, seed = case.split("/")
    return Case(name=case, check=partial(_check, worlds, name, random.Random(case + seed)))


def _check(worlds: Worlds, name: str, rng: random.Random) -> tuple[list[str], int]:
    """Return what is wrong before anything is run again and in the end, and how many were killed."""
    known, num_kills, wrong = worlds.undisturbed(name), 0, list[str]()
    is_apart, copies = ROUNDS[name] == (True,) and rng.random() < _APART, list[str]()
    world = worlds.copy(known.before)
    for is_finished in ROUNDS[name]:
        shards = [f"--shard={number}/{_NUM_SHARDS}" for number in range(1, _NUM_SHARDS + 1)]
        for more in [*rng.sample(shards, _NUM_SHARDS), *([""] if is_finished else [])]:
            words = [more] if more else copies
            if is_apart:  # each shard is done on a machine of its own, and so is what finishes them
                world = worlds.copy(known.before)
            parts = [] if more else parts_of_shards(world)
            while rng.random() < _KILLED:
                last = int(len(known.events) ** rng.random())  # of a few events as often as of many
                ended = worlds.run(name, world, *words, before=partial(Events, world, last=last))
                num_kills += ended.killed
                wrong += [*known.wrong(world), *known.lost(world, parts)]
                wrong += [f"orphan: {line}" for line in ended.orphans]
            ended = worlds.run(name, world, *words)
            if is_apart and more:
                machine = worlds.path / f"machine-{len(copies)}"
                shutil.rmtree(machine, ignore_errors=True)
                copies.append(f"--parts-from={world.rename(machine)}")
            if ended.status:
                return [*wrong, f"{more or 'without --shard'}: status {ended.status}: {ended.err}"], num_kills
    return [*wrong, *differences(contents(world), known.expected)], num_kills
