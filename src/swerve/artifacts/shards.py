"""Shards: a command divided over jobs that come and go, on one file system or on several.

Shard i of n is the same command with `--shard i/n`. Of the pieces of the work it does every n-th, leaves their results
as parts and says in a marker beside them that it is done. `swerve merge` takes the parts together and lets the command,
as shard `merge/n`, write what it would have written alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from swerve.artifacts.files import read_sealed, write_sealed
from swerve.artifacts.parts import SHARD_FILES, Parts, copy_file, digest_of, take_parts
from swerve.artifacts.run import RunDirectory
from swerve.errors import ArtifactError, ConfigError, MissingShardsError
from swerve.version import __version__

T = TypeVar("T")
_MERGE = "merge"
"""In the place of a shard's number: what writes the result, from the pieces of all."""
_BEGUN = "begun and not finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """How far a shard is, as the file beside its parts says."""

    number: int
    total: int
    inputs: str
    """Digest of what the parts depend on, of the version of swerve and of the number of shards."""
    folder: str
    """Of the parts, as the command named it."""
    within: str
    """The directory that the command writes to, which the folder is in or is."""
    command: str
    """As for a shell, without `--shard`; empty from Python."""
    left: str | None
    """What is still to do; None: nothing."""

    @property
    def name(self) -> str:
        """Of its files, without their endings."""
        return f"shard-{self.number}-of-{self.total}"

    def write(self, folder: Path) -> None:
        """Put it beside the parts in a folder, in the place of an earlier one."""
        write_sealed(folder / f"{self.name}.json", asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One of the jobs that share a command's work; piece k belongs to shard k mod n.

    >>> Shard.parse("2/3").own("abcdefg")
    ['b', 'e']
    """

    number: int
    """From 1 to `total`; 0: the one that merges, and owns nothing."""
    total: int
    command: str = ""
    """Of `swerve`, as for a shell, without `--shard`."""
    folders: list[str] = field(default_factory=list, compare=False)
    """Of the parts that it made."""

    @classmethod
    def parse(cls, text: str, command: str = "") -> Shard:
        """Return the shard that an option names.

        Raises:
            ConfigError: it is not I/N, with I from 1 to N.
        """
        match = re.fullmatch(rf"({_MERGE}|[1-9]\d{{0,5}})/([1-9]\d{{0,5}})", text)
        number, total = (0 if match[1] == _MERGE else int(match[1]), int(match[2])) if match else (1, 0)
        if number > total:
            raise ConfigError(f"--shard {text!r} is not I/N with I from 1 to N, such as 2/7")
        if os.environ.get("WORLD_SIZE", "1") != "1":
            raise ConfigError(
                "--shard divides work between jobs and torchrun within one; start each shard without torchrun"
            )
        return cls(number=number, total=total, command=command)

    def __str__(self) -> str:
        """Return it as `--shard` takes it."""
        return f"{self.number or _MERGE}/{self.total}"

    @property
    def merges(self) -> bool:
        """Whether it does no piece, and writes the result from those of all shards."""
        return self.number == 0

    def own(self, pieces: Sequence[T]) -> list[T]:
        """Return its share of all pieces, in their order."""
        return [piece for index, piece in enumerate(pieces) if self.owns(index)]

    def owns(self, index: int) -> bool:
        """Whether a piece, by its number from 0 on, is of its share."""
        return self.number == index % self.total + 1

    def check_none_missing(self, missing: Iterable[int], what: str) -> None:
        """Raise MissingShardsError, which names the shards that own them, if the number of any piece is given."""
        owners = sorted({piece % self.total + 1 for piece in missing})
        if owners:
            named = f"shard{'s' if len(owners) > 1 else ''} {', '.join(map(str, owners))} of {self.total}"
            raise MissingShardsError(f"{what} of {named} is missing")

    @contextmanager
    def at_work(self, parts: Parts, *, within: Path | None = None) -> Iterator[None]:
        """Do the work of this shard in here, beside other shards and nobody else; then it is done.

        Where MissingShardsError ends the block, the marker says what the shard waits for.

        Args:
            parts: whose folder has the marker.
            within: the directory that a process without shards would hold; by default the parts' folder.

        Raises:
            ArtifactError: another process does the work of this shard, or of all.
            ConfigError: another shard beside these parts is of other settings, another version or another number of
                shards.
        """
        folder = parts.folder
        assert folder is not None
        begun = Marker(
            number=self.number,
            total=self.total,
            inputs=digest_of(parts.inputs, __version__, self.total),
            folder=str(folder),
            within=str(within or folder),
            command=self.command,
            left=_BEGUN,
        )
        for other in read_markers(folder):
            if other.inputs != begun.inputs:
                raise ConfigError(
                    f"{folder} has a shard of other settings, another version of swerve or another number of shards "
                    f"({other.command} --shard {other.number}/{other.total}); give the same ones, or delete "
                    f"{folder}/{SHARD_FILES} to divide the work anew"
                )
        begun.write(folder)
        held = RunDirectory(Path(begun.within))
        with held.lock(shared=True), RunDirectory(folder).lock(name=f"{begun.name}.lock"):
            self.folders.append(str(folder))
            try:
                yield
            except MissingShardsError as error:
                replace(begun, left=str(error)).write(folder)
                raise
            replace(begun, left=None).write(folder)


def marked_folders(place: Path) -> list[Path]:
    """Return the folders at a place, or below it, in which shards have left markers.

    Args:
        place: a folder, or the file whose parts are in the folder beside it.

    Raises:
        ArtifactError: no folder of shards is there.
    """
    above = place if place.is_dir() else place.with_name(f"{place.name}.partial")
    folders = sorted({path.parent for path in above.rglob(f"{SHARD_FILES}.json") if read_markers(path.parent)})
    if not folders:
        raise ArtifactError(
            f"{place} has no parts of shards: none was run, or they are merged; give what --out says, or folders of "
            "parts"
        )
    return folders


def take_shards(folders: Sequence[Path]) -> list[Marker]:
    """Take the parts and markers of a command's shards into the folder that the command named.

    Args:
        folders: with markers of the same place, perhaps copies from several machines.

    Returns:
        The marker of each shard that has one, by number: one that says that it is done, if there is one.

    Raises:
        ArtifactError: a piece has different results in two folders.
        ConfigError: the shards are of different settings, versions or numbers of shards.
    """
    furthest: dict[int, Marker] = {}
    first = read_markers(folders[0])[0]
    target, within = Path(first.folder), Path(first.within)
    for folder in folders:
        for marker in read_markers(folder):
            if marker.inputs != first.inputs:
                raise ConfigError(
                    f"{folders[0]} and {folder} have shards of different settings, versions of swerve or numbers of "
                    f"shards: {first.command}, {marker.command}"
                )
            if marker.left is None or marker.number not in furthest:
                furthest[marker.number] = marker
        # A directory that is new here also needs what says whose it is.
        depth = len(target.relative_to(within).parts)
        for path in (folder, *folder.parents)[depth].iterdir():
            is_own = path.suffix in (".json", ".yaml") and not path.match(SHARD_FILES)
            if is_own and not (within / path.name).exists():
                copy_file(path, within / path.name)
        take_parts(folder, target)
    for marker in furthest.values():
        marker.write(target)
    return [furthest[number] for number in sorted(furthest)]


def read_markers(folder: Path) -> list[Marker]:
    """Return the markers beside the parts in a folder, by number; a damaged one counts as missing."""
    markers = []
    for path in folder.glob(f"{SHARD_FILES}.json"):
        with suppress(ArtifactError, TypeError):
            markers.append(Marker(**read_sealed(path)))
    return sorted(markers, key=lambda marker: marker.number)
