"""`swerve merge`: the result of a command whose work was divided into shards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swerve.errors import ArtifactError, ConfigError, MissingShardsError, ProblemsError

if TYPE_CHECKING:
    from swerve.artifacts.shards import Marker


def merge(
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
    from swerve.cli.app import run_command

    # Folders of the same place belong together; one command may have several places.
    works: dict[str, list[Path]] = {}
    for place in places:
        for folder in marked_folders(Path(place)):
            for marker in read_markers(folder)[:1]:
                works.setdefault(marker.folder, []).append(folder)
    taken = {place: take_shards(folders) for place, folders in works.items()}
    lines = [line for place, markers in taken.items() for line in _lines(place, markers)]
    if lines:
        raise ProblemsError([*lines, f"then merge again: swerve merge {' '.join(places)}"])

    # Each command writes its result; what it does not need any more goes.
    for markers in {markers[0].command: markers for markers in taken.values()}.values():
        name, *arguments = markers[0].command or [""]
        if not name:
            raise ConfigError("the shards were made from Python: call the same function with Shard.parse('merge/N')")
        try:
            run_command([name, "--shard", f"merge/{markers[0].total}", *arguments])
        except MissingShardsError as error:
            raise ArtifactError(f"{error}, or damaged; run that shard again: {markers[0].shown}") from error
    for place in taken:
        for path in Path(place).glob(SHARD_FILES):
            remove(path)


def _lines(place: str, markers: Sequence[Marker]) -> list[str]:
    """Return a line for each kind of shards that are not done, with their command."""
    total, command = markers[0].total, markers[0].shown.rpartition(" ")[0]
    known = {marker.number: marker for marker in markers if marker.left is not None}
    done = {marker.number for marker in markers} - known.keys()
    kinds: dict[str, list[int]] = {}
    for number in sorted({*range(1, total + 1)} - done):
        marker = known.get(number)
        said = "never run" if marker is None else "not finished" if marker.has_begun_only else "to be run once more"
        kinds.setdefault(said, []).append(number)
    return [
        f"{place}: {'shard' if len(numbers) == 1 else 'shards'} {', '.join(map(str, numbers))} of {total} {said}; run "
        f"{command} {numbers[0] if len(numbers) == 1 else 'I'}/{total}"
        for said, numbers in kinds.items()
    ]
