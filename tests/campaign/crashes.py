"""Commands that are killed, once or twice in a row, and run again: the same bytes, no extra file, nothing lost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from tests.campaign.kills import Events
from tests.campaign.stand_ins import looked_at
from tests.campaign.states import contents, differences
from tests.campaign.worlds import COMMANDS, Case, Worlds

_MODES = ("event", "event", "event", "time", "twice")


def crash_cases(worlds: Worlds, names: Sequence[str], seed: int, num_kills: Counter[str]) -> Iterator[Case]:
    """Yield kills without end, of what was killed least: at random events, at random times, and twice in a row.

    A case is named after what is killed and when: `kills/train/17` at the 17th event, `kills/train/340ms`, and
    `kills/train/17+5` at the fifth event of the same command run again.
    """
    rng = random.Random(seed)
    order = rng.sample(list(names), len(names))
    for number in range(10**9):
        name = min(order, key=lambda one: num_kills[one])
        known = worlds.undisturbed(name)
        num, mode = len(known.events), _MODES[(number + seed) % len(_MODES)]
        point = f"{round(1000 * known.seconds * rng.random())}ms" if mode == "time" else str(rng.randint(1, num))
        again = f"+{rng.randint(1, num)}" if mode == "twice" else ""
        yield crash_case(worlds, f"kills/{name}/{point}{again}")


def crash_case(worlds: Worlds, case: str) -> Case:
    """Return a case by its name."""
    _, name, points = case.split("/")
    return Case(name=case, check=partial(_check, worlds, name, points.split("+")))


def _check(worlds: Worlds, name: str, points: Sequence[str]) -> tuple[list[str], int]:
    """Return what is wrong after the kills, and how many of them there were."""
    known, num_kills, wrong, seen = worlds.undisturbed(name), 0, list[str](), list[str]()
    world = worlds.copy(known.before)
    with looked_at(world, worlds.path / "looked") if name == "view" else nullcontext(seen) as seen:
        for point in [*points, ""]:
            kept = _kept_work(world, known.after)
            is_time = point.endswith("ms")
            ended = worlds.run(
                name,
                world,
                before=partial(Events, world, last=int(point)) if point and not is_time else None,
                kill_after=int(point[:-2]) / 1000 if is_time else None,
            )
            num_kills += ended.killed
            if not ended.killed and ended.status:
                return [f"status {ended.status}{'' if point else ' when run again'}: {ended.err}"], num_kills
            # What a kill left is looked at before it is mended.
            wrong += known.wrong(world) if ended.killed else []
            wrong += [f"orphan: {line}" for line in ended.orphans]
            wrong += _lost(kept, _kept_work(world, known.after))
    wrong += [*seen, *differences(contents(world), known.expected)]
    return [*([_describe(worlds, name, points)] if wrong else []), *wrong], num_kills


def _describe(worlds: Worlds, name: str, points: Sequence[str]) -> str:
    events = worlds.undisturbed(name).events
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
