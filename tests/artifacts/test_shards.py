"""Shards of a command: who does which piece, what their markers say, and who refuses whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from swerve.artifacts.parts import Parts
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.shards import Shard, read_markers
from swerve.errors import ArtifactError, ConfigError, MissingShardsError

_COMMAND = "swerve sample model --out a.parquet"


def _shard(text: str) -> Shard:
    return Shard.parse(text, _COMMAND)


@pytest.mark.parametrize("total", [1, 2, 7, 30])
def test_every_piece_belongs_to_one_shard(total: int) -> None:
    shards = [_shard(f"{number}/{total}") for number in range(1, total + 1)]
    assert sorted(piece for shard in shards for piece in shard.own(range(20))) == list(range(20))
    assert _shard(f"merge/{total}").own(range(20)) == []


@pytest.mark.parametrize(
    "text",
    ["", "3", "0/7", "8/7", "1/0", "-1/7", "1/7/7", "a/7", "1 / 7", "01/7", "1/7\n", "\N{FULLWIDTH DIGIT TWO}/7"],
)
def test_what_is_no_shard_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--shard .* is not I/N with I from 1 to N, such as 2/7$"):
        Shard.parse(text)


def test_torchrun_and_shards_are_not_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="without torchrun"):
        Shard.parse("1/2")


def test_missing_pieces_are_named_by_their_shards() -> None:
    shard = _shard("merge/7")
    shard.check_none_missing([], "measurement")
    with pytest.raises(MissingShardsError, match=r"^measurement of shard 2 of 7 is missing$"):
        shard.check_none_missing([1, 8], "measurement")
    with pytest.raises(MissingShardsError, match="shards 1, 7 of 7"):
        shard.check_none_missing([6, 0, 7], "measurement")


def test_a_marker_says_how_far_a_shard_is(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "a.partial", {"seed": 0})
    assert parts.folder is not None
    with _shard("2/3").at_work(parts):
        assert [(marker.number, marker.left) for marker in read_markers(parts.folder)] == [
            (2, "begun and not finished")
        ]
    with pytest.raises(MissingShardsError), _shard("1/3").at_work(parts):
        _shard("1/3").check_none_missing([1], "measurement")
    with pytest.raises(KeyboardInterrupt), _shard("3/3").at_work(parts):
        raise KeyboardInterrupt
    markers = read_markers(parts.folder)
    lefts = ["measurement of shard 2 of 3 is missing", None, "begun and not finished"]
    assert [marker.left for marker in markers] == lefts
    assert {(marker.command, marker.folder) for marker in markers} == {(_COMMAND, str(parts.folder))}

    # A damaged marker is as good as none, and all of them go with the parts.
    (parts.folder / "shard-2-of-3.json").write_text("{", encoding="utf-8")
    assert [marker.number for marker in read_markers(parts.folder)] == [1, 3]
    parts.finish()
    assert not parts.folder.exists()


@pytest.mark.parametrize(("text", "seed"), [("1/3", 1), ("1/4", 0)])
def test_shards_of_other_settings_or_another_number_refuse_each_other(tmp_path: Path, text: str, seed: int) -> None:
    folder = tmp_path / "a.partial"
    with _shard("2/3").at_work(Parts(folder, {"seed": 0})):
        pass
    with (
        pytest.raises(ConfigError, match=r"has a shard of other settings, .*--out a.parquet --shard 2/3\)"),
        _shard(text).at_work(Parts(folder, {"seed": seed})),
    ):
        pass


def test_shards_work_beside_each_other_and_beside_nobody_else(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "a.partial", 0)
    assert parts.folder is not None
    with _shard("1/2").at_work(parts), _shard("2/2").at_work(parts):
        with (
            pytest.raises(ArtifactError, match=r"shard-1-of-2.lock is in use by process \d+"),
            _shard("1/2").at_work(parts),
        ):
            pass
        with pytest.raises(ArtifactError, match="in use by shards of its work"), RunDirectory(parts.folder).lock():
            pass
    with (
        RunDirectory(parts.folder).lock(),
        pytest.raises(ArtifactError, match=r"in use by process \d+"),
        _shard("1/2").at_work(parts),
    ):
        pass
