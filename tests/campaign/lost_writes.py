"""Power cuts: at each rename a directory as of a disk that kept only what was flushed, and went on from there.

Content lasts from the flush of its file on, names from the flush of their directory on. A rename may reach the disk
before it is flushed. Of content that was not flushed nothing may be there, zeros, or half. A command that goes on after
a rename has said that the name is there for good.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.campaign.kills import watch_disk
from tests.campaign.states import contents, differences, is_temporary, without_writers
from tests.campaign.worlds import Case, Worlds

_TAILS = ("nothing", "zeros", "half")
_NUM_CUTS = 100
"""Of a command, about so many: with more renames only every second, third, ... is cut."""


class Disk:
    """What this process has flushed below a directory; at each rename and flush of a directory it is written down."""

    def __init__(self, root: Path, cuts: Path, every: int = 1) -> None:
        self._root, self._cuts, self._num, self._seen = root.resolve(), cuts, 0, set[str]()
        self._every, self._num_moments = every, 0
        self._held = dict[int, int]()  # by inode, an open descriptor: no number is used again for another file
        self._names = dict[int, dict[str, int]]()  # by inode of a directory
        self._content = dict[int, bytes]()  # by inode of a file
        self._renamed, self._reported = set[Path](), set[Path]()
        for folder, _, files in os.walk(self._root, topdown=False):
            for path in [*(Path(folder) / name for name in files), Path(folder)]:
                self._flush(path)
        watch_disk(root, self._on_event)

    def _hold(self, path: Path) -> int:
        inode = path.lstat().st_ino
        if inode not in self._held and not path.is_symlink():
            self._held[inode] = os.open(path, os.O_RDONLY)
        return inode

    def _flush(self, path: Path) -> None:
        inode = self._hold(path)
        if path.is_dir():
            self._names[inode] = {name: self._hold(path / name) for name in os.listdir(path)}
        else:
            self._content[inode] = path.read_bytes()

    def finish(self) -> None:
        """Cut once more, when the command says that it is done."""
        self._reported |= self._renamed
        self._every = 1
        self._cut("at the end")

    def _on_event(self, name: str, path: Path, target: Path | None) -> None:
        self._reported |= {one for one in self._renamed if (name, one.parent) != ("fsync", path)}
        self._renamed -= self._reported
        if name == "fsync":
            self._flush(path)
            if path.is_dir():
                self._reported |= self._renamed
                self._renamed.clear()
                self._cut(f"after a flush of {self._short(path)}")
        elif target is not None:
            self._cut(f"before {self._short(target)} is renamed")
            self._cut(f"after {self._short(target)} is renamed", renamed=(path, target))
            self._forget(target)
            self._renamed |= set() if is_temporary(target) else {target}
        elif name in ("os.remove", "os.rmdir"):
            self._forget(path)

    def _forget(self, path: Path) -> None:
        """Promise nothing of a name, or what was in it, any more."""
        for known in (self._renamed, self._reported):
            known -= {one for one in known if one.is_relative_to(path)}

    def _short(self, path: Path) -> str:
        return without_writers(str(path.relative_to(self._root)))

    def _cut(self, when: str, renamed: tuple[Path, Path] | None = None) -> None:
        """Write down what the disk has, in each form that differs from all before."""
        self._num_moments += 1
        for tail in _TAILS if self._num_moments % self._every == 0 else ():
            tree = dict(self._tree(self._root.stat().st_ino, Path(), tail))
            if renamed is not None:
                self._rename(tree, *renamed, tail)
            lost = sorted(one for one in self._reported if one.relative_to(self._root) not in tree)
            digest = hashlib.sha256(repr([lost, *sorted(tree.items())]).encode()).hexdigest()
            if digest not in self._seen:
                self._seen.add(digest)
                names = [f"lost: {self._short(one)}, which was reported as written" for one in lost]
                self._write(tree, {"when": f"{when} (not flushed: {tail})", "lost": names})

    def _tree(self, inode: int, at: Path, tail: str) -> Iterator[tuple[Path, bytes | None]]:
        """Yield each path with its content; None for a directory."""
        for name, child in self._names.get(inode, {}).items():
            if child not in self._held:  # a symbolic link
                continue
            if stat.S_ISDIR(os.fstat(self._held[child]).st_mode):
                yield at / name, None
                yield from self._tree(child, at / name, tail)
            else:
                yield at / name, self._kept(child, tail)

    def _kept(self, inode: int, tail: str) -> bytes:
        flushed, descriptor = self._content.get(inode, b""), self._held[inode]
        now = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        rest = now[len(flushed) :] if now.startswith(flushed) else b""
        return flushed + {"nothing": b"", "zeros": bytes(len(rest)), "half": rest[: len(rest) // 2]}[tail]

    def _rename(self, tree: dict[Path, bytes | None], path: Path, target: Path, tail: str) -> None:
        old, new, inode = path.relative_to(self._root), target.relative_to(self._root), self._hold(path)
        if new.parent != Path() and new.parent not in tree:
            return
        for one in [one for one in tree if one.is_relative_to(old) or one.is_relative_to(new)]:
            del tree[one]
        is_folder = path.is_dir()
        tree[new] = None if is_folder else self._kept(inode, tail)
        tree.update(self._tree(inode, new, tail) if is_folder else ())

    def _write(self, tree: dict[Path, bytes | None], said: object) -> None:
        folder = self._cuts / f"{self._num:04d}"
        (folder / "world").mkdir(parents=True)
        for path, content in tree.items():
            if content is None:
                (folder / "world" / path).mkdir()
            else:
                (folder / "world" / path).write_bytes(content)
        (folder / "cut.json").write_text(json.dumps(said))
        self._num += 1


def lost_write_cases(worlds: Worlds, names: Sequence[str]) -> Iterator[Case]:
    """Yield, for each command, states of the disk that a power cut at a rename or after a flush could leave."""
    for name in names:
        for cut in power_cuts(worlds, name):
            yield Case(name=f"lost/{name}/{cut.name}", check=partial(_check, worlds, name, cut))


def power_cuts(worlds: Worlds, name: str, fault: Callable[[], object] = lambda: None) -> list[Path]:
    """Return the folders with what power cuts of a command leave, where it has a fault that is planted first."""
    known, cuts = worlds.undisturbed(name), worlds.path / f"cuts-{name}-{getattr(fault, '__name__', '')}"
    if not cuts.exists():
        cuts.mkdir()
        world = worlds.copy(known.before)
        num = sum(event.startswith(("rename", "fsync")) for event in known.events)

        def watch() -> Disk:
            fault()
            return Disk(world, cuts, every=max(1, num // _NUM_CUTS))

        ended = worlds.run(name, world, before=watch)
        assert ended.status == 0, ended.err
    return sorted(cuts.iterdir())


def wrong_after_cut(worlds: Worlds, name: str, cut: Path) -> list[str]:
    """Return what a power cut lost or left that it must not."""
    said = json.loads((cut / "cut.json").read_text())
    found = [*said["lost"], *worlds.undisturbed(name).wrong(cut / "world")]
    return [f"power cut {said['when']}: {one}" for one in found]


def _check(worlds: Worlds, name: str, cut: Path) -> tuple[list[str], int]:
    """Return what is wrong after a power cut, before and after the command is run again."""
    wrong, world = wrong_after_cut(worlds, name, cut), worlds.copy(cut / "world")
    ended = worlds.run(name, world)
    if ended.status:
        return [*wrong, f"status {ended.status}: {ended.err}"], 0
    return [*wrong, *differences(contents(world), worlds.undisturbed(name).expected)], 0
