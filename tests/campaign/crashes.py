"""Commands that are killed, once or twice in a row, and run again: the same bytes, no extra file, nothing lost."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

from tests.campaign.kills import Events
from tests.campaign.worlds import COMMANDS, Case, Worlds, contents, differences, forked_command

_WEIGHTS = {"train": 10, "eval": 3, "probe": 3, "grade": 3, "report": 1}
"""How often each command is killed: reports take longest, and have the least to lose."""
_MODES = ("event", "event", "event", "time", "twice")


def crash_cases(worlds: Worlds, names: list[str], seed: int) -> Iterator[Case]:
    """Yield kills without end: at every event of a command once in random order, at random times, and twice in a row.

    A case is named after what is killed and when: `kills/train/17` at the 17th event, `kills/train/340ms`, and
    `kills/train/17+5` at the fifth event of the same command run again.
    """
    rng = random.Random(seed)
    events = {name: list[int]() for name in names}
    for number in range(10**9):
        name = rng.choices(names, [_WEIGHTS.get(one, 2) for one in names])[0]
        known, seconds = uninterrupted(worlds, name)
        num = len(known)
        if not events[name]:
            events[name] = rng.sample(range(1, num + 1), num)
        mode = _MODES[number % len(_MODES)]
        point = f"{round(1000 * seconds * rng.random())}ms" if mode == "time" else str(events[name].pop())
        again = f"+{rng.randint(1, num)}" if mode == "twice" else ""
        yield crash_case(worlds, f"kills/{name}/{point}{again}")


def crash_case(worlds: Worlds, case: str) -> Case:
    """Return a case by its name."""
    _, name, points = case.split("/")
    return Case(name=case, check=partial(_check, worlds, name, points.split("+")))


@cache
def uninterrupted(worlds: Worlds, name: str) -> tuple[list[str], float]:
    """Return the events of a command, and how many seconds it takes."""
    world, log = worlds.copy(worlds.before[name]), worlds.path / "events"
    started = time.monotonic()
    ended = forked_command(COMMANDS[name], world, worlds.log, before=partial(Events, world, log=log))
    assert ended.status == 0, ended.err
    return log.read_text().splitlines(), time.monotonic() - started


def _check(worlds: Worlds, name: str, points: list[str]) -> tuple[list[str], int]:
    """Return what is wrong after the kills, and how many of them there were."""
    world, num_kills, lost = worlds.copy(worlds.before[name]), 0, list[str]()
    for point in points:
        kept = _kept_work(world, worlds.after[name])
        if point.endswith("ms"):
            ended = forked_command(COMMANDS[name], world, worlds.log, kill_after=int(point[:-2]) / 1000)
        else:
            ended = forked_command(COMMANDS[name], world, worlds.log, before=partial(Events, world, last=int(point)))
        num_kills += ended.killed
        if not ended.killed and ended.status:
            return [f"status {ended.status}: {ended.err}"], num_kills
        lost += _lost(kept, _kept_work(world, worlds.after[name]))
    kept = _kept_work(world, worlds.after[name])
    ended = worlds.run(name, world)
    if ended.status:
        return [f"status {ended.status} when run again: {ended.err}"], num_kills
    wrong = [*lost, *_lost(kept, _kept_work(world, worlds.after[name]))]
    wrong += differences(contents(world), contents(worlds.after[name]))
    return [*([_describe(worlds, name, points)] if wrong else []), *wrong], num_kills


def _describe(worlds: Worlds, name: str, points: list[str]) -> str:
    events, _ = uninterrupted(worlds, name)
    at = f" at {points[0]}" if points[0].endswith("ms") else f" before: {events[int(points[0]) - 1]}"
    return f"swerve {' '.join(COMMANDS[name])}, killed{at}{', and again' if len(points) > 1 else ''}"


def _kept_work(world: Path, after: Path) -> tuple[list[bytes], dict[str, int]]:
    """Return the whole lines of the metrics, and the inodes of the checkpoints and evaluations that are to stay."""
    log = world / "run" / "metrics.jsonl"
    lines = [line for line in log.read_bytes().splitlines(True) if line.endswith(b"\n")] if log.is_file() else []
    names = [path.relative_to(after) for path in after.glob("run/*/step_*") if path.suffix != ".parquet"]
    whole = [one for one in names if (world / one).is_file() or (world / one / "MANIFEST.json").is_file()]
    return lines, {str(one): (world / one).stat().st_ino for one in whole}


def _lost(before: tuple[list[bytes], dict[str, int]], now: tuple[list[bytes], dict[str, int]]) -> list[str]:
    """Return what was done again though it was done: all but the last step of training, checkpoints, evaluations."""
    num = len(before[0]) - 1
    lost = [f"lost: {name}" for name, inode in before[1].items() if now[1].get(name) != inode]
    return [*lost, *(["lost: steps in metrics.jsonl"] if num > 0 and now[0][:num] != before[0][:num] else [])]
