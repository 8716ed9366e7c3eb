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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from swerve.artifacts.files import read_sealed, write_sealed
from swerve.artifacts.parts import SHARD_FILES, Parts, digest_of
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
    """Digest of what the parts depend on, and of the version of swerve."""
    folder: str
    """Of the parts, as the command named it."""
    command: tuple[str, ...]
    """Arguments of `swerve` without `--shard`."""
    left: str | None
    """What is still to do; None: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One of the jobs that share a command's work; piece k belongs to shard k mod n.

    >>> Shard.parse("2/3").own("abcdefg")
    ['b', 'e']
    """

    number: int
    """From 1 to `total`; 0: the one that merges, and owns nothing."""
    total: int
    command: tuple[str, ...] = ()
    """Arguments of `swerve` without `--shard`."""

    @classmethod
    def parse(cls, text: str, command: Sequence[str] = ()) -> Shard:
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
        return cls(number=number, total=total, command=tuple(command))

    def __str__(self) -> str:
        """Return it as `--shard` takes it."""
        return f"{self.number or _MERGE}/{self.total}"

    @property
    def merges(self) -> bool:
        """Whether it does no piece, and writes the result from those of all shards."""
        return self.number == 0

    def own(self, pieces: Sequence[T]) -> list[T]:
        """Return its share of all pieces, in their order."""
        return [] if self.merges else list(pieces[self.number - 1 :: self.total])

    def check_none_missing(self, missing: Iterable[int], what: str) -> None:
        """Raise MissingShardsError, which names the shards that own them, if the number of any piece is given."""
        owners = sorted({piece % self.total + 1 for piece in missing})
        if owners:
            named = f"shard{'s' if len(owners) > 1 else ''} {', '.join(map(str, owners))} of {self.total}"
            raise MissingShardsError(f"{what} of {named} is missing")

    def begin(self, parts: Parts) -> None:
        """Write down the inputs of the parts, unless another shard has, and the marker that this shard has begun.

        Raises:
            ConfigError: another shard beside these parts is of other settings, another version or another number of
                shards.
        """
        parts.begin()
        self._mark(parts, _BEGUN)

    @contextmanager
    def at_work(self, parts: Parts, *, within: Path | None = None) -> Iterator[None]:
        """Do the work of this shard in here, beside other shards and nobody else; then it is done.

        Where MissingShardsError ends the block, the marker says what the shard waits for.

        Args:
            parts: whose folder has the marker.
            within: the directory that a process without shards would hold; by default the parts' folder.

        Raises:
            ArtifactError: another process does the work of this shard, or of all.
            ConfigError: see `begin`.
        """
        assert parts.folder is not None
        self.begin(parts)
        held = RunDirectory(within or parts.folder)
        with held.lock(shared=True), RunDirectory(parts.folder).lock(name=f"shard-{self._name}.lock"):
            try:
                yield
            except MissingShardsError as error:
                self._mark(parts, str(error))
                raise
            self._mark(parts, None)

    @property
    def _name(self) -> str:
        return f"{self.number}-of-{self.total}"

    def _mark(self, parts: Parts, left: str | None) -> None:
        folder = parts.folder
        assert folder is not None
        marker = Marker(
            number=self.number,
            total=self.total,
            inputs=digest_of(parts.inputs, __version__),
            folder=str(folder),
            command=self.command,
            left=left,
        )
        for other in read_markers(folder):
            if (other.inputs, other.total) != (marker.inputs, marker.total):
                raise ConfigError(
                    f"{folder} has shard {other.number}/{other.total} of other settings, another version of swerve or "
                    f"another number of shards (swerve {' '.join(other.command)}); give the same ones, or delete "
                    f"{folder}/{SHARD_FILES}, and divide the work anew"
                )
        write_sealed(folder / f"shard-{self._name}.json", asdict(marker))


def read_markers(folder: Path) -> list[Marker]:
    """Return the markers beside the parts in a folder, by number; a damaged one counts as missing."""
    markers = []
    for path in folder.glob(f"{SHARD_FILES}.json"):
        with suppress(ArtifactError, TypeError):
            fields = read_sealed(path)
            markers.append(Marker(**{**fields, "command": tuple(fields["command"])}))
    return sorted(markers, key=lambda marker: marker.number)
