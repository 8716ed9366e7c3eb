"""Draws of all worlds, one line each in a work folder; interrupted, they go on where they stopped."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.stats import poisson

from studies.pages import ROOT, Record
from studies.planted.claims import LEVEL, LOOKED_FOR, Claim, by_lot, field, judge, walk
from studies.planted.draw import SPLIT, Draw, probe_world
from studies.planted.exact import Exact
from studies.planted.truths import truths
from studies.planted.worlds import WORLDS, World
from swerve.probe.causal.interventions import Intervention
from swerve.seeds import derive_seed

_DEPENDS = ("studies/planted", *(f"src/swerve/{name}" for name in ("artifacts", "functional", "grading", "models",
            "probe", "rewards", "rollout", "statistics")))  # fmt: skip


FAULTS: Mapping[str, tuple[str, Callable[[], AbstractContextManager[Any]]]] = {
    "noisy_effects": (
        "confounded",
        lambda: patch.object(Intervention, "squared_effect", property(lambda one: one.effect**2)),
    ),
    "narrow_intervals": ("pair", lambda: patch("studies.planted.draw.CONFIDENCE", 0.8)),
}
"""Faults of the statistics that the study has to find, each with a world: effects of all continuations ranked instead
of the product of two halves; intervals of 80% that claim 95%."""
FAULTY_DRAWS = 40
"""Of each fault."""


def judged_draw(name: str, number: int) -> Record:
    """Probe one draw of a world (or of a fault's) and judge its claims: which are false, and what was found."""
    world_name, fault = FAULTS.get(name, (name, nullcontext))
    seed = derive_seed(number, "planted", world_name) % 2**31
    world = WORLDS[world_name](seed)
    with fault():
        draw = probe_world(world, seed)
    exact = Exact(world=world, split=SPLIT)
    known = truths(exact, draw.summary)
    claims = list(walk(draw.summary))
    false = {**judge(iter(claims), known), **_units(draw, world, seed)}
    open_paths = {field(one.path) for one in claims if one.interval is not None and one.path not in known.values}
    found = _discoveries(claims, draw)
    return {"draw": number, "false": false, "found": found, "without_truth": sorted(open_paths)}


def _units(draw: Draw, world: World, seed: int) -> dict[str, bool]:
    """Judge verdicts of single positions, tokens and pivots: of those of a draw one, drawn by lot."""
    summary, rng = draw.summary, np.random.default_rng(derive_seed(seed, "planted", "lots"))
    found: dict[str, bool] = {}
    for policy in summary.causal.by_policy if summary.causal else ():
        for one in policy.selections:
            num = one.num_positions - one.decisions["same_token"]
            if num and world.is_null:
                path = f"causal.policies[{policy.policy}].selections[{one.selection}].decisions.outside: verdict"
                found[path] = by_lot(one.decisions["outside"] / num, rng)
    pivots = next(iter(summary.pivots), None)
    if world.name == "four_tokens" and pivots and pivots.num_pivots:
        found["pivots.num_confirmed: verdict"] = by_lot(pivots.num_confirmed / pivots.num_pivots, rng)
        most = pivots.max_confirmed_below_gap
        found["pivots.max_confirmed_below_gap: verdict"] = float(poisson.sf(pivots.num_confirmed - 1, most)) < LEVEL
    return found


def _discoveries(claims: Sequence[Claim], draw: Draw) -> dict[str, bool]:
    """Return what a reader looks for: is it found, with an interval beyond 0 (or chance)."""
    found = {
        one.path: one.interval.excludes(0.5 if one.path.endswith("auc") else 0.0)
        for one in claims
        if one.interval is not None and one.path in LOOKED_FOR
    }
    pivots = next(iter(draw.summary.pivots), None)
    return found | ({} if pivots is None else {"pivots.num_confirmed": pivots.num_confirmed > 0})


def work_folder(root: Path) -> Path:
    """Return where draws of this code are kept: other code, other draws."""
    files = sorted(path for name in _DEPENDS for path in (ROOT / name).rglob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    return root / digest[:12]


def read_draws(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the finished draws of a world; a line that an interruption cut off is none."""
    path = folder / f"{name}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    whole = [json.loads(line) for line in lines if line.endswith("\n")]
    if len(whole) < len(lines):
        path.write_text("".join(lines[: len(whole)]), encoding="utf-8")
    return whole


def make_draws(folder: Path, wanted: Mapping[str, int], *, jobs: int) -> None:
    """Draw what is missing of so many draws of each world, worlds in turn; append each draw as it is finished."""
    folder.mkdir(parents=True, exist_ok=True)
    known = {name: {one["draw"] for one in read_draws(folder, name)} for name in wanted}
    missing = [
        (name, number)
        for number in range(max(wanted.values()))
        for name, num in wanted.items()
        if number < num and number not in known[name]
    ]
    for done, (name, record) in enumerate(_drawn(missing, jobs), start=1):
        with (folder / f"{name}.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record) + "\n")
        print(f"\r{done} of {len(missing)} draws", end="", flush=True)
    if missing:
        print()


def _drawn(tasks: Sequence[tuple[str, int]], jobs: int) -> Iterator[tuple[str, Record]]:
    """Yield the draws as they are finished, a few begun at a time so that an interruption loses no more."""
    left = iter(tasks)
    if jobs == 1:
        one_thread()
        yield from ((name, judged_draw(name, number)) for name, number in left)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=one_thread) as pool:
        begun = {pool.submit(judged_draw, *task): task[0] for task in islice(left, jobs)}
        while begun:
            for future in wait(begun, return_when=FIRST_COMPLETED).done:
                yield begun.pop(future), future.result()
                begun |= {pool.submit(judged_draw, *task): task[0] for task in islice(left, 1)}


def one_thread() -> None:
    """Keep torch to one thread: sums are then rounded the same way everywhere."""
    import torch

    torch.set_num_threads(1)


def summarised(name: str, draws: Sequence[Mapping[str, Any]]) -> Record:
    """Return the counts of a world's draws: for each claim, in how many it was made and in how many it was false."""
    return {
        "kind": "planted_fault" if name in FAULTS else "planted",
        "world": name,
        "num": len(draws),
        "false": _counts([one["false"] for one in draws]),
        "found": _counts([one["found"] for one in draws]),
        "without_truth": sorted({path for one in draws for path in one["without_truth"]}),
    }


def _counts(rows: Sequence[Mapping[str, bool]]) -> dict[str, list[int]]:
    """Return by path: in how many rows it is true, and in how many it is."""
    paths = sorted({path for row in rows for path in row})
    return {path: [sum(row.get(path, False) for row in rows), sum(path in row for row in rows)] for path in paths}
