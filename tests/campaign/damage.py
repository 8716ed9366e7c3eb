"""Damaged, foreign and stale files, and the commands that read them: named in one line, or the same result."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

from tests.campaign.kills import Events
from tests.campaign.states import contents, differences
from tests.campaign.worlds import Case, Worlds

Change = Callable[[bytes, random.Random], bytes]

_ALL = "train eval probe report"
READERS = ("train", "eval", "probe", "report", "grade")
"""The commands that are given damaged files."""
_TRAINED = "run/checkpoints/step_000004"
_READERS: Mapping[str, str] = {
    "run/run.json": _ALL,
    "run/config.yaml": _ALL,
    f"{_TRAINED}/MANIFEST.json": _ALL,
    "run/checkpoints/step_000007/MANIFEST.json": _ALL,
    f"{_TRAINED}/model.safetensors": "train eval",
    "run/checkpoints/step_000002/model.safetensors": "probe",
    f"{_TRAINED}/config.json": "train eval",
    f"{_TRAINED}/tokenizer.json": "train eval",
    "run/checkpoints/step_000002/tokenizer_config.json": "train probe",
    "run/checkpoints/step_000007/trainer_state/optimizer.safetensors": "train",
    "run/metrics.jsonl": "train report",
    "run/problems.jsonl": "train report",
    "run/rollouts/step_000006.parquet": "probe",
    "run/eval/step_000002.json": "eval probe report",
    "run/eval/step_000002.parquet": "eval probe report",
    "run/probe/summary.json": "probe report",
    "run/probe/sequences.parquet": "report",
    "run/probe/tokens.parquet": "probe report",
    "run/probe/topk.parquet": "report",
    "run/probe/spikes.parquet": "report",
    "run/probe/interventions.parquet": "report",
    "run/probe/biographies.parquet": "report",
}
"""The commands that read each file."""

_HALFWAY: Mapping[str, tuple[str, str, int, tuple[str, ...]]] = {
    "in-rl": (
        "train",
        "open run/metrics.jsonl",
        6,
        (
            "run/metrics.jsonl",
            "run/problems.jsonl",
            "run/checkpoints/step_000006/MANIFEST.json",
            "run/checkpoints/step_000006/model.safetensors",
            "run/checkpoints/step_000006/trainer_state/*.safetensors",
        ),
    ),
    "in-dpo": ("train", "open run/metrics.jsonl", 3, ("run/rollouts/dpo_pairs.parquet",)),
    "in-probe": (
        "probe",
        r"rename run/probe/.*-summary.json",
        0,
        (
            "run/probe/states/pair-*",
            "run/probe/states/swaps-*",
        ),
    ),
    "in-grade": ("grade", r"rename .*-verdicts.jsonl$", 0, ("verdicts.jsonl.partial/verdicts-*",)),
}
"""Killed at an event of a command (an expression, and which that fits), and files that its repetition reads."""

_OUTPUTS = {
    "train": r"run/(checkpoints|metrics|problems|rollouts|run.json|config.yaml)",
    "eval": "run/eval",
    "probe": "run/probe",
    "report": "run/report",
    "grade": "verdicts",
}


def _at(content: bytes, rng: random.Random, new: Callable[[int], bytes], *, among: bytes = b"") -> bytes:
    """Return the content with one byte replaced, of those that are `among` if there are such."""
    places = [place for place, byte in enumerate(content) if byte in among] or range(len(content))
    place = rng.choice(places)
    return content[:place] + new(content[place]) + content[place + 1 :]


def _lines(content: bytes, rng: random.Random, change: Callable[[list[bytes], int], list[bytes]]) -> bytes:
    lines = content.splitlines(keepends=True)
    return b"".join(change(lines, rng.randrange(len(lines))))


def _zeroed(content: bytes, rng: random.Random, size: int) -> bytes:
    start = rng.randrange(len(content))
    return content[:start] + bytes(len(content[start : start + size])) + content[start + size :]


_DIGITS = b"0123456789"
_CHANGES: Mapping[str, Change] = {
    "digit": lambda was, rng: _at(was, rng, lambda byte: b"%d" % ((byte - 47) % 10), among=_DIGITS),
    "other-digit": lambda was, rng: _at(was, rng, lambda byte: b"%d" % ((byte - 43) % 10), among=_DIGITS),
    "huge-number": lambda was, rng: _at(was, rng, lambda byte: b"9" * 5000, among=_DIGITS),
    "infinite-number": lambda was, rng: _at(was, rng, lambda byte: b"9e999", among=_DIGITS),
    "bit": lambda was, rng: _at(was, rng, lambda byte: bytes([byte ^ 1 << rng.randrange(8)])),
    "second-bit": lambda was, rng: _at(was, rng, lambda byte: bytes([byte ^ 1 << rng.randrange(8)])),
    "third-bit": lambda was, rng: _at(was, rng, lambda byte: bytes([byte ^ 1 << rng.randrange(8)])),
    "not-utf-8": lambda was, rng: _at(was, rng, lambda byte: b"\xff"),
    "nul": lambda was, rng: _at(was, rng, lambda byte: b"\0"),
    "byte-removed": lambda was, rng: _at(was, rng, lambda byte: b""),
    "byte-added": lambda was, rng: _at(was, rng, lambda byte: bytes([byte, 49])),
    "nested": lambda was, rng: _at(was, rng, lambda byte: b"[" * 200_000, among=b"[{:"),
    "zeroed-16": lambda was, rng: _zeroed(was, rng, 16),
    "zeroed-512": lambda was, rng: _zeroed(was, rng, 512),
    "all-zeros": lambda was, rng: bytes(len(was)),
    "emptied": lambda was, rng: b"",
    "cut-in-half": lambda was, rng: was[: len(was) // 2],
    "cut-by-one": lambda was, rng: was[:-1],
    "line-doubled": lambda was, rng: _lines(was, rng, lambda lines, n: [*lines[:n], lines[n], *lines[n:]]),
    "line-removed": lambda was, rng: _lines(was, rng, lambda lines, n: lines[:n] + lines[n + 1 :]),
    "last-line-first": lambda was, rng: _lines(was, rng, lambda lines, n: [lines[-1], *lines[:-1]]),
    "byte-order-mark": lambda was, rng: b"\xef\xbb\xbf" + was,
    "appended": lambda was, rng: was + b"{}\n",
    "huge": lambda was, rng: was + bytes(64 << 20),
}
_REPLACED = ("deleted", "folder", "other-step", "other-run", "stale")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Damaged:
    """A file, the directory that it is in, and the command that reads it."""

    command: str
    world: Path
    path: str

    def file(self, world: Path) -> Path:
        """Return it in another copy of the directory."""
        return world / self.path

    @property
    def is_output(self) -> bool:
        """Whether the command is the one that writes it."""
        return re.match(_OUTPUTS[self.command], self.path) is not None

    def is_named(self, said: str) -> bool:
        """Whether a line has the file's name, or that of its checkpoint or step."""
        names = {Path(self.path).name, *re.findall(r"step_\d+", self.path)}
        return any(name in line for line in said.splitlines() for name in names)


class Damages:
    """The cases, and the directories that they begin in or take files from."""

    def __init__(self, worlds: Worlds, folder: Path) -> None:
        self._worlds, self._folder = worlds, folder

    @cached_property
    def _other(self) -> Worlds:
        base = self._worlds.path / "base" / "checkpoints" / "step_000220"
        return Worlds(self._folder / "other", base=base, changes=[("seed: 7", "seed: 8")])

    @cached_property
    def _stale(self) -> Path:
        """The same training, evaluated and probed with other settings."""
        world = shutil.copytree(self._worlds.undisturbed("train").after, self._folder / "stale")
        for name in ("eval", "probe"):
            ended = self._worlds.run(name, world, "eval.samples_per_problem=1")
            assert ended.status == 0, ended.err
        return world

    @cache  # noqa: B019 - there is one
    def _halfway(self, name: str) -> Path:
        command, event, occurrence, _ = _HALFWAY[name]
        known = self._worlds.undisturbed(command)
        number = [place for place, one in enumerate(known.events, start=1) if re.match(event, one)][occurrence]
        world = shutil.copytree(known.before, self._folder / name)
        ended = self._worlds.run(command, world, before=partial(Events, world, last=number))
        assert ended.killed, ended.err
        return world

    def _files(self, commands: list[str]) -> Iterator[tuple[str, _Damaged]]:
        for path, readers in _READERS.items():
            for command in [one for one in readers.split() if one in commands]:
                known = self._worlds.undisturbed(command)
                damaged = _Damaged(command=command, world=known.before, path=path)
                if damaged.is_output:
                    damaged = _Damaged(command=command, world=known.after, path=path)
                yield f"{command}/{path}", damaged
        for name, (command, _, _, patterns) in _HALFWAY.items():
            for pattern in patterns if command in commands else ():
                for file in sorted(self._halfway(name).glob(pattern))[:3]:
                    path = str(file.relative_to(self._halfway(name)))
                    yield f"{command}/{name}/{path}", _Damaged(command=command, world=self._halfway(name), path=path)

    def files(self, commands: list[str], seed: int) -> Iterator[Case]:
        """Yield every change of every file, for each command that reads it."""
        self._halfway("in-rl")  # stale files come from it, and making it uses the directory that a case breaks
        for place, damaged in self._files(commands):
            for change in (*_CHANGES, *_REPLACED):
                name = f"damage/{place}:{change}"
                if change in _CHANGES:
                    new = partial(_changed, change=_CHANGES[change], seed=f"{seed} {name}")
                else:
                    new = partial(self._replaced, how=change, damaged=damaged)
                yield Case(name=name, check=partial(self._check, damaged, new))

    def digits(self, commands: list[str], seed: int) -> Iterator[Case]:
        """Yield every digit of what a run is known by, changed, each read by one of the commands in turn."""
        for path in ("run/run.json", "run/config.yaml", f"{_TRAINED}/MANIFEST.json"):
            world = self._worlds.undisturbed("train").after
            digits = [place for place, byte in enumerate((world / path).read_bytes()) if byte in _DIGITS]
            for number, place in enumerate(digits):
                command = _ALL.split()[number % 4]
                if command in commands:
                    start = world if command == "train" else self._worlds.undisturbed(command).before
                    damaged = _Damaged(command=command, world=start, path=path)
                    change = partial(_digit_changed, place=place)
                    yield Case(name=f"digits/{command}/{path}:{place}", check=partial(self._check, damaged, change))

    def _replaced(self, file: Path, *, how: str, damaged: _Damaged) -> bool:
        """Replace a file; return whether there is what it is replaced by."""
        found: list[Path] = []
        if how == "other-step":
            others = [re.sub(r"step_\d+", f"step_{step:06d}", damaged.path) for step in (2, 4, 5, 6, 7)]
            found = [damaged.world / one for one in others] if others[0] != others[1] else []
            found += sorted(damaged.file(damaged.world).parent.glob(f"*{file.suffix}"))
        elif how == "other-run":
            ends = [self._other.undisturbed(one).after for one in (damaged.command, "report") if one in _ALL.split()]
            found = [end / damaged.path for end in ends]
        elif how == "stale" and file.name != "run.json":  # one from before a kill is what a kill leaves
            found = [self._stale / damaged.path, self._halfway("in-rl") / damaged.path]
        was = file.read_bytes()
        new = next((one.read_bytes() for one in found if one.is_file() and one.read_bytes() != was), None)
        if new is None and how not in ("deleted", "folder"):
            return False
        file.unlink()
        if how == "folder":
            file.mkdir()
        elif new is not None:
            file.write_bytes(new)
        return True

    def _check(self, damaged: _Damaged, change: Callable[[Path], bool]) -> tuple[list[str], int]:
        """Return what is wrong with what a command makes of a damaged file."""
        world = self._worlds.copy(damaged.world)
        if not change(damaged.file(world)):
            return [], 0
        before, expected = contents(world), self._worlds.undisturbed(damaged.command).expected
        ended = self._worlds.run(damaged.command, world)
        said, after = ended.out + ended.err, contents(world)
        if "Traceback" in said or "internal error" in said:
            return [f"status {ended.status}: {ended.err}"], 0
        is_same_file = after.get(damaged.path) == expected.get(damaged.path)
        if ended.status:
            wrong = [] if damaged.is_named(said) else [f"status {ended.status}, not named: {ended.err}"]
            return wrong + self._put_back(damaged, world, before, after), 0
        if damaged.is_named(said):
            return [], 0
        wrong = [one for one in differences(after, expected) if one.partition(": ")[2] != damaged.path]
        if damaged.is_output and not is_same_file:
            wrong.append(f"silent: {damaged.path} stays as it is")
        return [*wrong, *([f"printed: {ended.err}"] if wrong else [])], 0

    def _put_back(self, damaged: _Damaged, world: Path, before: dict, after: dict) -> list[str]:
        """Return what differs once the file is put back and the command run again; nothing if nothing was changed."""
        if before == after:
            return []
        file = damaged.file(world)
        shutil.rmtree(file, ignore_errors=True)
        shutil.copy(damaged.file(damaged.world), file)
        ended = self._worlds.run(damaged.command, world)
        wrong = differences(contents(world), self._worlds.undisturbed(damaged.command).expected)
        return [
            f"after the refusal, with the file put back: {one}" for one in [*wrong, *([ended.err] if wrong else [])]
        ]


def _changed(file: Path, *, change: Change, seed: str) -> bool:
    was = file.read_bytes()
    new = change(was, random.Random(seed))
    file.write_bytes(new)
    return new != was


def _digit_changed(file: Path, *, place: int) -> bool:
    was = file.read_bytes()
    file.write_bytes(was[:place] + b"%d" % ((was[place] - 47) % 10) + was[place + 1 :])
    return True
