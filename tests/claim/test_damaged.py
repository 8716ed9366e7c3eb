"""A finished card looks at what it rests on: what is damaged is named, or made again with a line; never silent."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import swerve
from swerve.artifacts.parts import Parts
from swerve.errors import SwerveError
from tests.builders import Notes
from tests.claim.planted.models import planted_pair, table_settings, table_task
from tests.cli.test_claim import write_planted

Write = Callable[[], object]


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes() or b" ")
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped": _flip,
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "emptied": lambda path: path.write_bytes(b""),
    "deleted": Path.unlink,
    "a folder": _folder,
}


def check_each_damage(write: Callable[[Notes], object], card: Path, others: list[Path]) -> None:
    """Damage every file below a card, and others, in every way; ask for the finished card each time."""
    files = [*(path for path in sorted(card.rglob("*")) if path.is_file() and path.name != ".lock"), *others]
    assert {"claim.json", "index.html"} < {path.name for path in files}
    for path in files:
        whole = path.read_bytes()
        for kind, damage in DAMAGES.items():
            damage(path)
            if path.is_file() and path.read_bytes() == whole:  # nothing was in it
                continue
            notes, named = Notes(), ""
            try:
                write(notes)
            except SwerveError as error:
                named = str(error)
            said = [note for note in notes.notes if path.name in note and "again" in note]
            if named:
                assert path.name in named or str(path.parent) in named, (path, kind, named)
                assert "\n" not in named
            else:
                assert said, (path, kind, notes.notes)
                assert path.read_bytes() == whole
            if path.is_dir():
                path.rmdir()
            path.write_bytes(whole)
    notes = Notes()
    write(notes)
    assert not any("again" in note for note in notes.notes)


def test_a_card_of_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_planted(Path("base.parquet"), "base", 3)
    write_planted(Path("rl.parquet"), "rl", 6)

    settings = swerve.ClaimSettings(task={"kind": "math"}, parts=("accuracy",))  # type: ignore[arg-type]

    def write(notes: Notes) -> None:
        swerve.claim("base.parquet", "rl.parquet", settings, out="card", progress=notes)

    write(Notes())

    # What a kill after the whole has left goes; parts of a file that is not there stay.
    for name in ("claim.partial", "samples/a.parquet.partial", "samples/b.parquet.partial"):
        Parts(Path("card", name), 0).put("samples", 0, [])
    Path("card/samples/a.parquet").touch()
    write(Notes())
    assert [path.name for path in sorted(Path("card").rglob("*.partial"))] == ["b.parquet.partial"]
    shutil.rmtree("card/samples")
    check_each_damage(write, Path("card"), [Path("base.parquet"), Path("rl.parquet")])


@pytest.mark.slow
def test_a_card_of_two_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pair = planted_pair(tmp_path / "planted", "forgetting", size=0.1, num_problems=16)
    text = Path("text.txt")
    text.write_text("add subtract add 1 2 3\n" * 20)
    settings = table_settings(
        pair.problems, num_samples=2, others=(table_task(pair.others),), texts=("text.txt",), ranks=(1,), directions=2
    )

    def write(notes: Notes) -> None:
        swerve.claim(pair.base, pair.rl, settings, out="card", progress=notes)

    write(Notes())
    # A card that is made again, from its samples and its probe, is the same.
    shutil.copytree("card", "whole")
    check_each_damage(write, Path("card"), [pair.base / "model.safetensors", pair.rl / "config.json"])
    for path in sorted(Path("whole").rglob("*")):
        assert path.is_dir() or path.read_bytes() == (Path("card") / path.relative_to("whole")).read_bytes()
