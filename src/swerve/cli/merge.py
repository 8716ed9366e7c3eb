"""`swerve merge`: the result of a command whose work was divided into shards."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swerve.errors import ArtifactError, ConfigError, MissingShardsError, ProblemsError
from swerve.progress import one_line

if TYPE_CHECKING:
    from swerve.artifacts.shards import Marker

_DIVIDED = ("sample", "eval", "grade", "probe", "claim")
"""Commands with `--shard`."""


def merge(
    context: typer.Context,
    places: Annotated[
        list[str],
        typer.Argument(metavar="OUT|FOLDER...", help="What --out of the shards says, or folders with their parts."),
    ],
) -> None:
    """Finish a command whose shards are done: write what it would have written alone, byte for byte.

    The parts of all folders, which may be copies from several machines, are taken together to where the command looks
    for them; what is missing is named. Then the command itself is run from here, and computes nothing again.

    Examples:
      swerve merge base.parquet
      swerve merge machine-1/base.parquet.partial machine-2/base.parquet.partial
    """
    from swerve.artifacts.files import remove
    from swerve.artifacts.parts import SHARD_FILES
    from swerve.artifacts.shards import marked_folders, read_markers, take_shards

    # Folders of the same place belong together; one command may have several places.
    works: dict[str, list[Path]] = {}
    for place in places:
        for folder in marked_folders(Path(place)):
            works.setdefault(read_markers(folder)[0].folder, []).append(folder)
    taken = {place: take_shards(folders) for place, folders in works.items()}

    lines = [line for place, markers in taken.items() for line in _missing(place, markers)]
    if lines:
        raise ProblemsError([*lines, f"then merge again: swerve merge {' '.join(places)}"])

    # Each command writes its result; what it does not need any more goes.
    for command, total in dict.fromkeys((markers[0].command, markers[0].total) for markers in taken.values()):
        name, *arguments = shlex.split(command)[1:] or [""]
        if name not in _DIVIDED:  # a folder of somebody else's says what is run here
            raise ConfigError(
                f"the shards are of '{command}', which is no command that can be divided; those of a Python function "
                "are merged by calling it with Shard.parse('merge/N')"
            )
        sys.stderr.write(f"{one_line(command)}\n")
        try:
            arguments = [name, "--shard", f"merge/{total}", *arguments]
            context.find_root().command.main(arguments, prog_name="swerve", standalone_mode=False)
        except MissingShardsError as error:
            raise ArtifactError(f"{error}, or damaged; run that shard again: {command} --shard I/{total}") from error
    for place in taken:
        for path in Path(place).glob(SHARD_FILES):
            remove(path)


def _missing(place: str, markers: Sequence[Marker]) -> Iterator[str]:
    """Yield a line for each shard that is not done, with the command that does it."""
    left, total = {marker.number: marker.left for marker in markers}, markers[0].total
    for number in range(1, total + 1):
        said = left.get(number, "never run")
        if said is not None:
            yield f"{place}: shard {number}/{total}: {said}; run {markers[0].command} --shard {number}/{total}"
