"""The campaign: commands are killed, lose what was not flushed, and read damaged files; nothing may be lost or silent.

python -m tests.campaign --kills 300                    all of it, in an hour or two
python -m tests.campaign --seconds 300 --seed 1         some of every part
python -m tests.campaign --only kills,train             kills of training
python -m tests.campaign --only shards,probe            a divided probe, its shards killed
python -m tests.campaign --case kills/train/17+5        one case again
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import swerve
from tests.campaign.crashes import crash_case, crash_cases
from tests.campaign.damage import READERS, Damages
from tests.campaign.lost_writes import lost_write_cases
from tests.campaign.ranks import rank_case, rank_cases
from tests.campaign.shards import shard_case, shard_cases
from tests.campaign.worlds import COMMANDS, Case, make_worlds

_WEIGHTS = {"kills": 4, "lost": 2, "damage": 3, "digits": 1, "ranks": 1, "shards": 1}
"""How the time is shared out between the parts, where it is limited."""
_IMPORTED = (
    "torch",
    "transformers.models.qwen3.modeling_qwen3",
    "pandas",
    "fontTools.subset",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_pdf",
)
"""What commands import beside swerve, imported once: each runs in a fork of this process."""


def main() -> None:
    """Run what the command line asks for; the exit status is 1 if anything is lost, silent or other than expected."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=300, help="number of killed commands [300]")
    parser.add_argument("--seed", type=int, default=1, help="chooses places, times and the order [1]")
    parser.add_argument("--seconds", type=float, help="stop after so long, with some of every part [no limit]")
    parser.add_argument(
        "--only", default="", help=f"parts ({', '.join(_WEIGHTS)}) and commands ({', '.join(COMMANDS)})"
    )
    parser.add_argument("--case", help="one case, by its name")
    given = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "HF_HUB_OFFLINE"):
        os.environ.setdefault(name, "1")
    own = (one.name for one in pkgutil.walk_packages(swerve.__path__, "swerve.") if not one.name.endswith("__main__"))
    for name in (*_IMPORTED, *own):
        importlib.import_module(name)
    folder = Path(tempfile.mkdtemp(prefix="swerve-campaign-"))
    try:
        sys.exit(Campaign(given, folder).run())
    finally:
        shutil.rmtree(folder)


class Campaign:
    """What the command line asks for."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self._given, self._started = given, time.monotonic()
        words = given.case.split("/")[:2] if given.case else [word for word in given.only.split(",") if word]
        unknown = set(words) - {*_WEIGHTS, *COMMANDS}
        if unknown:
            raise SystemExit(f"--only, --case: {', '.join(sorted(unknown))} is neither a part nor a command")
        self._parts = [name for name in _WEIGHTS if name in words] or list(_WEIGHTS)
        self._commands = [name for name in COMMANDS if name in words] or list(COMMANDS)
        needed = {*self._commands, *(READERS if {"damage", "digits"} & set(self._parts) else ())}
        self._worlds = make_worlds(folder / "worlds", commands=tuple(needed))
        self._damages = Damages(self._worlds, folder)

    def run(self) -> int:
        """Run the parts; return the exit status."""
        if self._given.case:
            case = next(one for one in self._cases(self._parts[0], self._commands) if one.name == self._given.case)
            failed, num_kills = self._try(case)
            print(f"{case.name}: {num_kills} kills, {failed} mismatches")
            return failed
        failed = 0
        for number, part in enumerate(self._parts):
            weights = [_WEIGHTS[one] for one in self._parts[number:]]
            left = None
            if self._given.seconds is not None:
                left = (self._given.seconds - (time.monotonic() - self._started)) * weights[0] / sum(weights)
            failed += self._run_part(part, left)
        return min(failed, 1)

    def _cases(self, part: str, commands: list[str]) -> Iterator[Case]:
        if part == "kills":
            if self._given.case:
                return iter([crash_case(self._worlds, self._given.case)])
            return crash_cases(self._worlds, commands, self._given.seed)
        if part == "lost":
            return lost_write_cases(self._worlds, commands)
        if part == "ranks":
            if self._given.case:
                return iter([rank_case(self._worlds, self._given.case)])
            return rank_cases(self._worlds, self._given.seed) if "train" in commands else iter(())
        if part == "shards":
            if self._given.case:
                return iter([shard_case(self._worlds, self._given.case)])
            return shard_cases(self._worlds, commands, self._given.seed)
        kinds = self._damages.digits if part == "digits" else self._damages.files
        return kinds(commands, self._given.seed)

    def _some(self, part: str, seconds: float) -> Iterator[Case]:
        """Yield cases of commands in random order as long as its share of the time lasts, of one command at least."""
        end, rng = time.monotonic() + seconds, random.Random(self._given.seed)
        for number, name in enumerate(rng.sample(self._commands, len(self._commands))):
            now = time.monotonic()
            if number and now > end:
                break
            last = now + (end - now) / (len(self._commands) - number)
            found = list(self._cases(part, [name]))
            for case in rng.sample(found, len(found)):
                yield case
                if time.monotonic() > last:
                    break

    def _run_part(self, part: str, seconds: float | None) -> int:
        """Run a part's cases until the time is up or all are through; return how many failed."""
        counts, num_kills, failed = Counter[str](), 0, 0
        started = said = time.monotonic()
        is_endless = part in ("kills", "ranks", "shards")
        cases = self._cases(part, self._commands) if seconds is None or is_endless else self._some(part, seconds)

        def figures() -> str:
            each = ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))
            kills = f"{num_kills} kills, " if is_endless else ""
            taken = f"{time.monotonic() - started:.0f} s, seed {self._given.seed}"
            return f"{part}: {counts.total()} cases ({each}), {kills}{failed} mismatches, {taken}"

        for case in cases:
            is_late = seconds is not None and time.monotonic() - started > seconds
            if is_endless and (is_late or num_kills >= self._given.kills):
                break
            bad, killed = self._try(case)
            counts[case.name.split("/")[1]] += 1
            num_kills, failed = num_kills + killed, failed + bad
            if time.monotonic() - said > 60:
                said = time.monotonic()
                print(f"... {figures()}", file=sys.stderr, flush=True)
        print(figures(), flush=True)
        return failed

    def _try(self, case: Case) -> tuple[int, int]:
        """Try a case; return 1 if something is wrong, and how many commands were killed."""
        wrong, num_kills = case.check()
        if not wrong:
            return 0, num_kills
        print(f"MISMATCH {case.name} (seed {self._given.seed})")
        for line in wrong:
            print(f"  {line}")
        print(f"  again: python -m tests.campaign --seed {self._given.seed} --case {case.name}", flush=True)
        return 1, num_kills


if __name__ == "__main__":
    main()
