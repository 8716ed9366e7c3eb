"""`--shard` and `swerve merge`: the bytes of one process, and one clear line for what is missing or does not fit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from swerve.artifacts.files import read_sealed, remove, write_sealed

Swerve = Callable[..., tuple[int, str, str]]
TASK = ("--task", "addition", "digits=2", "num_heldout=5", "--max-new-tokens", "6", "--batch", "1")


@pytest.fixture(scope="module")
def model(save_addition_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_addition_model(tmp_path_factory.mktemp("cli") / "one", seed=1))


def test_merged_samples_are_the_bytes_and_the_words_of_one_process(swerve: Swerve, model: str, tmp_path: Path) -> None:
    command = ("sample", f"one={model}", *TASK, "--out", "a.parquet")
    status, whole, err = swerve(*command)
    assert status == 0, err
    expected = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").unlink()
    for number in (3, 1):
        status, out, err = swerve(*command, "--shard", f"{number}/3")
        assert status == 0, err
        assert out == f"Shard {number}/3 is done. When all are: swerve merge a.parquet.partial\n"

    # What is missing is named, with the command that makes it.
    status, out, err = swerve("merge", "a.parquet")
    assert (status, out) == (1, "")
    lines = err.splitlines()
    assert lines[0].startswith("swerve: error: a.parquet.partial: shard 2/3: never run; run swerve sample one=")
    assert lines[0].endswith("--out a.parquet --shard 2/3")
    assert lines[1:] == ["  then merge again: swerve merge a.parquet"]

    # A shard whose marker or part is damaged is run again.
    assert swerve(*command, "--shard=2/3")[0] == 0
    for kind, said in (("shard-2-of-3.json", "shard 2/3: never run"), ("samples-*.part", "a part of shard")):
        damaged = sorted((tmp_path / "a.parquet.partial").glob(kind))[0]
        damaged.write_bytes(damaged.read_bytes()[:-9])
        status, out, err = swerve("merge", "a.parquet")
        assert (status, out) == (1, "")
        assert said in err
        for number in (1, 2, 3):
            assert swerve(*command, "--shard", f"{number}/3")[0] == 0
    status, out, err = swerve("merge", "a.parquet")
    assert (status, out) == (0, whole), err
    assert (tmp_path / "a.parquet").read_bytes() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]

    # Run once more, a shard has nothing to do; nor has merge.
    assert swerve(*command, "--shard", "1/3")[1] == whole
    status, _, err = swerve("merge", "a.parquet")
    assert (status, err.startswith("swerve: error: a.parquet has no parts of shards")) == (1, True)


@pytest.mark.slow
def test_an_evaluation_of_two_models_is_merged_from_copies(swerve: Swerve, model: str, tmp_path: Path) -> None:
    command = ("eval", "--model", f"a={model}", "--model", f"b={model}", *TASK, "--num-samples", "2", "--out", "out")
    assert swerve(*command)[0] == 0
    expected = {path: path.read_bytes() for path in sorted((tmp_path / "out").rglob("*")) if path.is_file()}
    copies = []
    for number in (2, 1):  # each on a machine of its own
        remove(tmp_path / "out")
        status, out, err = swerve(*command, "--shard", f"{number}/2")
        assert status == 0, err
        folders = " ".join(f"out/samples/{name}.parquet.partial" for name in ("a-greedy", "a-t1", "b-greedy", "b-t1"))
        assert out == f"Shard {number}/2 is done. When all are: swerve merge {folders}\n"
        copies.append(str(shutil.move(tmp_path / "out", tmp_path / f"machine-{number}")))
    status, out, err = swerve("merge", *copies)
    assert status == 0, err
    assert "T=1" in out
    assert {path: path.read_bytes() for path in sorted((tmp_path / "out").rglob("*")) if path.is_file()} == expected

    # The same piece with another content is an error, and so are shards of other settings.
    remove(tmp_path / "out")
    part = sorted((tmp_path / "machine-1" / "samples" / "a-greedy.parquet.partial").glob("*.part"))[0]
    other = next(path for path in part.parent.glob("*.part") if path != part)
    shutil.copy(part, tmp_path / "machine-2" / "samples" / part.parent.name / part.name)
    shutil.copy(other, part)
    status, _, err = swerve("merge", *copies)
    assert (status, "are the same piece of the work with different results" in err) == (1, True)
    remove(tmp_path / "out")
    assert swerve(*command, "--seed", "1", "--shard", "2/2")[0] == 0
    status, _, err = swerve("merge", copies[1], "out")
    assert (status, "have shards of different settings" in err) == (2, True)


def test_shards_refuse_what_does_not_fit(swerve: Swerve, model: str, tmp_path: Path) -> None:
    command = ("sample", model, *TASK, "--out", "a.parquet")
    assert swerve(*command, "--shard", "1/2")[0] == 0
    for changed, said in (
        ((*command, "--shard", "1/3"), "another number of shards (swerve sample"),
        ((*command, "--seed", "1", "--shard", "2/2"), "holds samples with other settings (seed 0, now 1)"),
        ((*command, "--shard", "0/2"), "--shard '0/2' is not I/N with I from 1 to N, such as 2/7"),
        (("eval", "runs/mine", "--shard", "1/2"), "--shard needs --model MODEL"),
    ):
        status, _, err = swerve(*changed)
        assert status == 2, err
        assert said in err

    # A marker that another version left.
    marker = tmp_path / "a.parquet.partial" / "shard-1-of-2.json"
    write_sealed(marker, {**read_sealed(marker), "inputs": "0"})
    status, _, err = swerve(*command, "--shard", "2/2")
    assert (status, "another version of swerve" in err) == (2, True)

    # What a folder of somebody else's would have merge run is no command that can be divided.
    write_sealed(marker, {**read_sealed(marker), "total": 1, "command": "swerve train mine.yaml"})
    status, out, err = swerve("merge", "a.parquet")
    assert (status, out) == (2, "")
    assert "the shards are of 'swerve train mine.yaml', which is no command that can be divided" in err

    # The whole command continues from what shards left, and takes it away.
    status, out, err = swerve(*command, "--json")
    assert status == 0, err
    assert json.loads(out)["rows"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]
