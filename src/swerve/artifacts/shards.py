"""Shards: a command divided over jobs that come and go, on one file system or on several.

Shard i of n is the same command with `--shard i/n`. Of the pieces of the work it does every n-th and leaves their
results as parts. The command without `--shard` finds the parts, does what is missing, and writes what it would have
written alone. Nothing else is stored: what a shard did is what its parts hold.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from swerve.artifacts.files import remove
from swerve.artifacts.parts import CopiedParts, Parts
from swerve.artifacts.run import RunDirectory
from swerve.errors import ConfigError, MissingShardsError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One of the jobs that share a command's work, or the whole of it; piece k belongs to shard k mod n.

    >>> Shard.parse("2/3").own("abcdefg")
    ['b', 'e']
    >>> WHOLE.own("abcdefg") == list("abcdefg")
    True
    """

    number: int = 1
    """From 1 to `total`."""
    total: int = 1
    """1: this is the whole work, whose result is written."""
    copied: CopiedParts = field(default_factory=CopiedParts, compare=False)
    """Parts in other folders, which are taken where they fit."""

    @classmethod
    def parse(cls, text: str, copied: CopiedParts | None = None) -> Shard:
        """Return the shard that an option names.

        Raises:
            ConfigError: it is not I/N, with I from 1 to N.
        """
        match = re.fullmatch(r"([1-9]\d{0,5})/([1-9]\d{0,5})", text, re.ASCII)
        number, total = (int(match[1]), int(match[2])) if match else (1, 0)
        if number > total:
            raise ConfigError(f"--shard {text!r} is not I/N with I from 1 to N, such as 2/7, and N at most 999999")
        if os.environ.get("WORLD_SIZE", "1") != "1":
            raise ConfigError(
                "--shard divides work between jobs and torchrun within one; start each shard without torchrun"
            )
        return cls(number=number, total=total, copied=copied or CopiedParts())

    def __str__(self) -> str:
        """Return it as `--shard` takes it."""
        return f"{self.number}/{self.total}"

    @property
    def is_share(self) -> bool:
        """Whether a share of the work is done and left as parts; nothing else is written."""
        return self.total > 1

    @property
    def is_divided(self) -> bool:
        """Whether other jobs do, or did, a share of the work."""
        return self.is_share or self.copied.is_given

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
        """Do the work of this shard in here, beside other shards and nobody else.

        Args:
            parts: in whose folder the shard leaves its own.
            within: the directory that a process without shards would hold; by default the parts' folder.

        Raises:
            ArtifactError: another process does the work of this shard, or of all.
            ConfigError: the folder has parts of other settings.
        """
        folder = parts.folder
        assert folder is not None
        parts.check_same()
        parts.begin()
        held = f"shard-{self.number}-of-{self.total}.lock"
        with RunDirectory(within or folder).lock(shared=True), RunDirectory(folder).lock(name=held):
            try:
                yield
            finally:
                remove(folder / held)


WHOLE = Shard()
"""All of the work, and no parts from elsewhere."""
