"""Shards of a command: who does which piece, whose parts are taken, and who refuses whom."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from swerve.artifacts.parts import CopiedParts, Parts
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.shards import Shard
from swerve.errors import ArtifactError, ConfigError, MissingShardsError


@pytest.mark.parametrize("total", [1, 2, 7, 30])
def test_every_piece_belongs_to_one_shard(total: int) -> None:
    shards = [Shard.parse(f"{number}/{total}") for number in range(1, total + 1)]
    assert sorted(piece for shard in shards for piece in shard.own(range(20))) == list(range(20))


@pytest.mark.parametrize(
    "text",
    ["", "3", "0/7", "8/7", "1/0", "merge/7", "-1/7", "1/7/7", "1 / 7", "01/7", "1/7\n", "\N{FULLWIDTH DIGIT TWO}/7"],
)
def test_what_is_no_shard_is_named(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^--shard .* is not I/N with I from 1 to N, such as 2/7, and N at most 999999$"
    ):
        Shard.parse(text)


def test_torchrun_and_shards_are_not_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="without torchrun"):
        Shard.parse("1/2")


def test_missing_pieces_are_named_by_their_shards() -> None:
    shard = Shard.parse("1/7")
    shard.check_none_missing([], "measurement")
    with pytest.raises(MissingShardsError, match=r"^measurement of shard 2 of 7 is missing$"):
        shard.check_none_missing([1, 8], "measurement")
    with pytest.raises(MissingShardsError, match="shards 1, 7 of 7"):
        shard.check_none_missing([6, 0, 7], "measurement")


def test_shards_of_other_settings_refuse_each_other(tmp_path: Path) -> None:
    folder = tmp_path / "a.partial"
    with Shard.parse("2/3").at_work(Parts(folder, {"seed": 0})):
        pass
    with (
        pytest.raises(ConfigError, match=r"a.partial has parts of the same command with other settings"),
        Shard.parse("1/3").at_work(Parts(folder, {"seed": 1})),
    ):
        pass
    with Shard.parse("1/4").at_work(Parts(folder, {"seed": 0})):  # another number of shards does the same pieces
        pass
    Parts(folder, {"seed": 0}).finish()
    assert not folder.exists()


def test_parts_of_other_folders_stand_for_those_that_are_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in (("here", "h"), ("there/deep", "t"), ("other", "o")):
        parts = Parts(tmp_path / name, {"seed": 0})
        parts.begin()
        parts.put("squares", name == "here", value)
    copied = CopiedParts([tmp_path / "there"])
    parts = Parts(tmp_path / "here", {"seed": 0}, copied=copied)
    copied.check_fit(parts)
    assert [parts.get("squares", is_here) for is_here in (True, False, 2)] == ["h", "t", None]
    assert len(list((tmp_path / "here").glob("*.part"))) == 1

    # With different content a piece is nobody's; a damaged copy is none; and parts of other inputs are not looked at.
    both = CopiedParts([tmp_path / "there", tmp_path / "other"])
    with pytest.raises(ArtifactError, match="are the same piece of the work with different results"):
        Parts(tmp_path / "here", {"seed": 0}, copied=both).get("squares", False)
    (here,), (there,) = ((tmp_path / name).rglob("*.part") for name in ("here", "there"))
    renamed = tmp_path / "renamed" / there.name
    renamed.parent.mkdir()
    shutil.copy(here, renamed)  # of another piece of the work
    assert Parts(tmp_path / "new", {"seed": 0}, copied=CopiedParts([renamed.parent])).get("squares", False) is None
    assert f"{renamed} is damaged: its piece of the work is done again" in caplog.text
    (damaged,) = (tmp_path / "other").glob("*.part")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert Parts(tmp_path / "here", {"seed": 0}, copied=both).get("squares", False) == "t"
    with pytest.raises(ConfigError, match=r"there: the parts there are of other settings"):
        CopiedParts([tmp_path / "there"]).check_fit(Parts(None, {"seed": 1}))
    with pytest.raises(ConfigError, match="has no parts of shards"):
        CopiedParts([tmp_path / "nowhere"])


def test_a_command_that_was_killed_between_two_works_still_takes_parts_of_the_first(tmp_path: Path) -> None:
    """Shards leave parts of the sampling, which the whole command did before it was killed."""
    first, second = Parts(tmp_path / "samples", {"work": 1}), Parts(tmp_path / "probe", {"work": 2})
    first.begin()
    copied = CopiedParts([tmp_path / "samples"])
    copied.check_fit(first, is_done=True)
    copied.check_fit(second)  # nothing of it is there yet

    # Parts of neither work are refused, but not before there is work that may need them.
    other = CopiedParts([tmp_path / "samples"])
    other.check_fit(Parts(None, {"work": 3}), is_done=True)
    with pytest.raises(ConfigError, match="of other settings"):
        other.check_fit(second)


def test_shards_work_beside_each_other_and_beside_nobody_else(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "a.partial", 0)
    assert parts.folder is not None
    with Shard.parse("1/2").at_work(parts), Shard.parse("2/2").at_work(parts):
        with (
            pytest.raises(ArtifactError, match=r"shard-1-of-2.lock is in use by process \d+"),
            Shard.parse("1/2").at_work(parts),
        ):
            pass
        with pytest.raises(ArtifactError, match="in use by shards of its work"), RunDirectory(parts.folder).lock():
            pass
    with (
        RunDirectory(parts.folder).lock(),
        pytest.raises(ArtifactError, match=r"in use by process \d+"),
        Shard.parse("1/2").at_work(parts),
    ):
        pass
