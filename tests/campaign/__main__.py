"""The campaign: commands are killed, lose what was not flushed, and read damaged files; nothing may be lost or silent.

python -m tests.campaign --kills 400                    all of it, each command at least ten times, in some hours
python -m tests.campaign --seconds 300 --seed 1         some of every part
python -m tests.campaign --only kills,train             kills of training
python -m tests.campaign --only shards,probe            a divided probe, its shards killed
python -m tests.campaign --case kills/train/17+5        one case again
python -m tests.campaign --kills 100 --seed 2 --keep    a part that is added to the others of this commit
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import swerve
from studies.pages import ROOT
from studies.records import RESULTS, keep_records
from tests.campaign.crashes import crash_case, crash_cases
from tests.campaign.damage import Damages
from tests.campaign.lost_writes import lost_write_cases
from tests.campaign.planted import planted_cases
from tests.campaign.ranks import rank_case, rank_cases
from tests.campaign.shards import ROUNDS, shard_case, shard_cases
from tests.campaign.worlds import COMMANDS, Case, Worlds

_WEIGHTS = {"planted": 4, "kills": 6, "shards": 2, "ranks": 1, "lost": 3, "damage": 2, "digits": 1}
"""How the time is shared out between the parts, where it is limited; in this order."""
_ENDLESS = ("kills", "shards", "ranks")
"""Parts that go on until each command was killed so often."""
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
    parser.add_argument("--kills", type=int, default=400, help="number of killed commands, shared out evenly [400]")
    parser.add_argument("--seed", type=int, default=1, help="chooses places, times and the order [1]")
    parser.add_argument("--seconds", type=float, help="stop after so long, with some of every part [no limit]")
    parser.add_argument(
        "--only", default="", help=f"parts ({', '.join(_WEIGHTS)}) and commands ({', '.join(COMMANDS)})"
    )
    parser.add_argument("--case", help="one case, by its name")
    parser.add_argument("--keep", action="store_true", help="add what is counted to studies/results/campaign.jsonl")
    given = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "HF_HUB_OFFLINE"):
        os.environ.setdefault(name, "1")
    own = (one.name for one in pkgutil.walk_packages(swerve.__path__, "swerve.") if not one.name.endswith("__main__"))
    for name in (*_IMPORTED, *own):
        importlib.import_module(name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    memory = Path("/dev/shm")  # nothing here has to outlast a power cut
    folder = Path(tempfile.mkdtemp(prefix="swerve-campaign-", dir=memory if os.access(memory, os.W_OK) else None))
    campaign = Campaign(given, folder)
    try:
        sys.exit(campaign.run())
    finally:
        if given.keep:
            campaign.keep()
        campaign.worlds.close()
        shutil.rmtree(folder)


class Campaign:
    """What the command line asks for, and what was counted."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self._given, self._started = given, time.monotonic()
        words = given.case.split("/")[:2] if given.case else [word for word in given.only.split(",") if word]
        unknown = set(words) - {*_WEIGHTS, *COMMANDS}
        if unknown:
            raise SystemExit(f"--only, --case: {', '.join(sorted(unknown))} is neither a part nor a command")
        self._parts = [name for name in _WEIGHTS if name in words] or list(_WEIGHTS)
        self._commands = [name for name in COMMANDS if name in words] or list(COMMANDS)
        self._divided = [name for name in self._commands if name in ROUNDS]
        self._kills, self._cases, self._found = Counter[str](), Counter[str](), Counter[str]()
        self._seconds = Counter[str]()
        self.worlds = Worlds(folder / "worlds")
        self._damages = Damages(self.worlds, folder)
        self._commit = _commit() if given.keep else ""

    def run(self) -> int:
        """Run the parts; return the exit status."""
        if self._given.case:
            case = next(one for one in self._of_part(self._parts[0], self._commands) if one.name == self._given.case)
            self._try(case)
            print(f"{case.name}: {self._kills.total()} kills, {self._found['mismatches']} mismatches")
        for number, part in enumerate([] if self._given.case else self._parts):
            weights = [_WEIGHTS[one] for one in self._parts[number:]]
            left = None
            if self._given.seconds is not None:
                left = (self._given.seconds - (time.monotonic() - self._started)) * weights[0] / sum(weights)
            self._run_part(part, left)
        return int(self._found["mismatches"] > 0)

    def keep(self) -> None:
        """Add what was counted to the results, in place of the same part of this day."""
        record = {
            "kind": "campaign",
            "name": self._commit,
            "seed": self._given.seed,
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            **{name: dict(counts) for name, counts in (("kills", self._kills), ("cases", self._cases))},
            "seconds": dict(self._seconds),
            **{name: self._found[name] for name in ("mismatches", "extra files", "orphans")},
        }
        keep_records(RESULTS / "campaign.jsonl", [record])

    def _of_part(self, part: str, commands: list[str]) -> Iterator[Case]:
        one_of = {"kills": crash_case, "ranks": rank_case, "shards": shard_case}
        if self._given.case and part in one_of:
            return iter([one_of[part](self.worlds, self._given.case)])
        seed = self._given.seed
        match part:
            case "kills":
                return crash_cases(self.worlds, commands, seed, self._kills)
            case "shards":
                divided = [name for name in commands if name in ROUNDS]
                return shard_cases(self.worlds, divided, seed, self._kills) if divided else iter(())
            case "ranks":
                return rank_cases(self.worlds, seed) if "train" in commands else iter(())
            case "lost":
                return lost_write_cases(self.worlds, commands)
            case "planted":
                return planted_cases(self.worlds, commands)
            case "digits":
                return self._damages.digits(commands, seed)
        return self._damages.files(commands, seed)

    def _some(self, part: str, seconds: float) -> Iterator[Case]:
        """Yield cases of commands in random order as long as its share of the time lasts, of one command at least."""
        end, rng = time.monotonic() + seconds, random.Random(self._given.seed)
        for number, name in enumerate(rng.sample(self._commands, len(self._commands))):
            now = time.monotonic()
            if number and now > end:
                break
            last = now + (end - now) / (len(self._commands) - number)
            found = list(self._of_part(part, [name]))
            for case in rng.sample(found, len(found)):
                yield case
                if time.monotonic() > last:
                    break

    def _run_part(self, part: str, seconds: float | None) -> None:
        """Run a part's cases until the time is up or all are through."""
        started = said = time.monotonic()
        kills, cases, found = (counter.copy() for counter in (self._kills, self._cases, self._found))
        is_whole = seconds is None or part in _ENDLESS or part == "planted"
        labels = self._labels(part)

        def figures() -> str:
            num, bad = (self._cases - cases).total(), self._found["mismatches"] - found["mismatches"]
            each = ", ".join(f"{name} {number}" for name, number in sorted((self._kills - kills).items()))
            took = f"{time.monotonic() - started:.0f} s, seed {self._given.seed}"
            killed = f"{(self._kills - kills).total()} kills ({each}), " if part in _ENDLESS else ""
            return f"{part}: {num} cases, {killed}{bad} mismatches, {took}"

        for case in self._of_part(part, self._commands) if is_whole else self._some(part, seconds or 0.0):
            is_late = seconds is not None and time.monotonic() - started > seconds
            is_enough = all(self._kills[name] >= self._share for name in labels)
            if part in _ENDLESS and (is_late or is_enough):
                break
            self._try(case)
            if time.monotonic() - said > 60:
                said = time.monotonic()
                print(f"... {figures()}", file=sys.stderr, flush=True)
        print(figures(), flush=True)

    def _labels(self, part: str) -> list[str]:
        """Return under which names kills are counted."""
        of = {"kills": self._commands, "shards": [f"{name} --shard" for name in self._divided]}
        return of.get(part, ["torchrun train"] if part == "ranks" and "train" in self._commands else [])

    @property
    def _share(self) -> int:
        """How often each command is killed."""
        num = sum(len(self._labels(part)) for part in self._parts)
        return -(-self._given.kills // max(1, num))

    def _try(self, case: Case) -> None:
        """Try a case, count, and say what is wrong."""
        part, name = case.name.split("/")[:2]
        started = time.monotonic()
        wrong, num_kills = case.check()
        self._cases[part] += 1
        if part in _ENDLESS:
            label = {"shards": f"{name} --shard", "ranks": "torchrun train"}.get(part, name)
            self._kills[label] += num_kills
            self._seconds[label] += time.monotonic() - started
        if not wrong:
            return
        self._found["mismatches"] += 1
        for what, start in (("extra files", "extra: "), ("orphans", "orphan: ")):
            self._found[what] += sum(line.startswith(start) for line in wrong)
        print(f"MISMATCH {case.name} (seed {self._given.seed})")
        for line in wrong:
            print(f"  {line}")
        print(f"  again: python -m tests.campaign --seed {self._given.seed} --case {case.name}", flush=True)


def _commit() -> str:
    """Return the commit that is tried, with a plus where code or tests were changed since."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, text=True, capture_output=True, check=True).stdout.strip()

    return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "src", "tests") else "")


if __name__ == "__main__":
    main()
