"""`--shard` and `--parts-from`: the bytes of one process, and one clear line for what does not fit."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from swerve.artifacts.files import remove, write_sealed
from tests.campaign.states import contents
from tests.json_lines import write_json_lines

Swerve = Callable[..., tuple[int, str, str]]
TASK = ("--task", "addition", "digits=2", "num_heldout=5", "--max-new-tokens", "6", "--batch", "1")


@pytest.fixture(scope="module")
def model(save_addition_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_addition_model(tmp_path_factory.mktemp("cli") / "one", seed=1))


def files(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


def test_the_whole_command_finishes_what_shards_left(swerve: Swerve, model: str, tmp_path: Path) -> None:
    command = ("sample", f"one={model}", *TASK, "--out", "a.parquet")
    status, whole, err = swerve(*command)
    assert status == 0, err
    expected = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").unlink()
    for number in (3, 1):
        status, out, err = swerve(*command, "--shard", f"{number}/3")
        assert status == 0, err
        assert out == f"Shard {number}/3 is done. When all are: swerve {' '.join(command)}\n"
    partial = tmp_path / "a.parquet.partial"
    assert {path.name.split("-")[0] for path in partial.iterdir()} == {"samples", "parts.json", ".lock"}

    # A damaged part is done again, as is the second shard, which was never run.
    damaged = sorted(partial.glob("samples-*.part"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-9])
    status, out, err = swerve(*command)
    assert (status, out) == (0, whole), err
    assert (tmp_path / "a.parquet").read_bytes() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]

    # What is done is said to be so, by a shard that is run once more and by the whole.
    for more in (("--shard", "1/3"), ()):
        status, out, err = swerve(*command, *more)
        assert (status, out) == (0, whole)
        assert "a.parquet is complete: nothing to do" in err
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


@pytest.mark.slow
def test_an_evaluation_of_two_models_is_finished_from_copies(swerve: Swerve, model: str, tmp_path: Path) -> None:
    command = ("eval", "--model", f"a={model}", "--model", f"b={model}", *TASK, "--num-samples", "2", "--out", "out")
    assert swerve(*command)[0] == 0
    expected = files(tmp_path / "out")
    copies: list[str] = []
    for number in (2, 1):  # each on a machine of its own
        remove(tmp_path / "out")
        status, _, err = swerve(*command, "--shard", f"{number}/2")
        assert status == 0, err
        copies += ["--parts-from", str(shutil.move(tmp_path / "out", tmp_path / f"machine-{number}"))]
    status, out, err = swerve(*command, *copies)
    assert status == 0, err
    assert "T=1" in out
    assert files(tmp_path / "out") == expected

    # The same piece with another content is an error.
    remove(tmp_path / "out")
    part = sorted((tmp_path / "machine-1" / "samples" / "a-greedy.parquet.partial").glob("*.part"))[0]
    other = next(path for path in part.parent.glob("*.part") if path != part)
    shutil.copy(part, tmp_path / "machine-2" / "samples" / part.parent.name / part.name)
    content = other.read_bytes().partition(b"\n")[2]
    part.write_bytes(hashlib.sha256(part.name.encode() + b"\n" + content).hexdigest().encode() + b"\n" + content)
    status, _, err = swerve(*command, *copies)
    assert (status, "are the same piece of the work with different results" in err) == (1, True)

    # So are parts of other settings alone, and a folder without any.
    for changed, said in (
        ((*command, "--seed", "1", *copies), "the parts there are of other settings"),
        ((*command, "--parts-from", "empty"), "--parts-from empty has no parts of shards"),
    ):
        status, _, err = swerve(*changed)
        assert (status, said in err) == (2, True), err


def test_shards_refuse_what_does_not_fit(swerve: Swerve, model: str, tmp_path: Path) -> None:
    command = ("sample", model, *TASK, "--out", "a.parquet")
    assert swerve(*command, "--shard", "1/2")[0] == 0
    for changed, said in (
        ((*command, "--seed", "1", "--shard", "2/2"), "holds samples with other settings (seed 0, now 1)"),
        ((*command, "--shard", "0/2"), "--shard '0/2' is not I/N with I from 1 to N, such as 2/7"),
        (("eval", "runs/mine", "--shard", "1/2"), "only models are sampled in shards: give --model"),
    ):
        status, _, err = swerve(*changed)
        assert status == 2, err
        assert said in err

    # The whole command continues from what shards left, and takes it away.
    status, out, err = swerve(*command, "--json")
    assert status == 0, err
    assert json.loads(out)["rows"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_a_hostile_folder_of_parts_runs_nothing_and_writes_nothing_elsewhere(
    swerve: Swerve, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    command = ("sample", f"one={model}", *TASK, "--out", "a.parquet")
    assert swerve(*command)[0] == 0
    expected = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").unlink()
    assert swerve(*command, "--shard", "1/2")[0] == 0
    evil, precious = tmp_path / "evil", tmp_path / "precious"
    shutil.move(tmp_path / "a.parquet.partial", evil)
    precious.write_text("mine")

    # Records that name commands, paths, servers and variables, as other versions kept them; links; parts of nothing.
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    run = f"swerve sample x --shard 1/1 rollout.engine.kind=openai rollout.engine.url={url} rollout.engine.key=SECRET"
    marker = {"number": 2, "total": 2, "inputs": "", "left": None, "command": run}
    write_sealed(evil / "shard-2-of-2.json", {**marker, "folder": str(tmp_path / "b"), "within": str(tmp_path)})
    (evil / "reward.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    honest = next(iter(sorted(evil.glob("*.part"))))
    (evil / "loop").symlink_to(evil)
    content = b"no table"
    seal = hashlib.sha256(honest.name.encode() + b"\n" + content).hexdigest().encode()
    honest.write_bytes(seal + b"\n" + content)

    # What is no file is named.
    for name, make in (("samples-0.part", lambda path: path.symlink_to(precious)), ("samples-1.part", os.mkfifo)):
        make(evil / name)
        status, _, err = swerve(*command, "--parts-from", "evil")
        assert (status, f"{name} is no ordinary file; copy the files themselves" in err) == (2, True), err
        (evil / name).unlink()

    # A part whose digest fits and whose content does not is named; without it the rest stands.
    status, _, err = swerve(*command, "--parts-from", "evil")
    assert (status, f"{honest.name} was not written by this command" in err) == (1, True), err
    honest.unlink()
    status, _, err = swerve(*command, "--parts-from", "evil")
    assert status == 0, err
    assert (tmp_path / "a.parquet").read_bytes() == expected

    # As the place of the command's own parts: the lock is no link that is followed.
    (tmp_path / "a.parquet").unlink()
    shutil.move(evil, tmp_path / "a.parquet.partial")
    remove(tmp_path / "a.parquet.partial" / ".lock")
    (tmp_path / "a.parquet.partial" / ".lock").symlink_to(precious)
    status, _, err = swerve(*command)
    assert (status, "a.parquet.partial/.lock" in err, err.count("\n")) == (1, True, 1), err
    remove(tmp_path / "a.parquet.partial" / ".lock")
    assert swerve(*command)[0] == 0
    assert (tmp_path / "a.parquet").read_bytes() == expected
    assert precious.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "a.parquet.partial", "precious"]
    with pytest.raises(BlockingIOError):
        listener.accept()
    listener.close()


DIVIDED = {
    "eval": "eval --model a=one --model b=two --task addition digits=2 num_heldout=5 --max-new-tokens 6 --out out",
    "grade": "grade rows.jsonl --task math --out out.jsonl",
    "probe": "probe --reference one --checkpoint late=two --use-responses rows.jsonl --out out",
    "claim": "claim one two --task addition digits=2 num_heldout=6 --parts accuracy,weights --num-samples 2 "
    "--max-new-tokens 9 --some 4 --ranks 1 --directions 1 --out out",
}


@pytest.mark.slow
@pytest.mark.parametrize("command", DIVIDED.values(), ids=DIVIDED)
def test_forged_parts_of_each_command_are_named_and_the_rest_is_taken(
    swerve: Swerve, save_addition_model: Callable[..., Path], tmp_path: Path, command: str
) -> None:
    for seed, name in enumerate(("one", "two")):
        save_addition_model(tmp_path / name, seed=seed)
    rows = [
        {"id": f"p{k}", "problem": f"{k} + 1 =", "gold": "2", "response": f" {k}", "correct": k == 1} for k in (1, 2)
    ]
    write_json_lines(tmp_path / "rows.jsonl", rows)
    words = command.split()
    status, whole, err = swerve(*words)
    assert status == 0, err
    out = tmp_path / words[-1]
    expected = contents(out) if out.is_dir() else out.read_bytes()
    remove(out)
    assert swerve(*words, "--shard", "1/2")[0] == 0
    evil, precious = tmp_path / "evil", tmp_path / "precious"
    left = next(path for path in tmp_path.iterdir() if path.name in (out.name, f"{out.name}.partial"))
    shutil.move(left, evil)
    precious.write_text("mine")
    (evil / "loop").symlink_to(evil)
    write_sealed(evil / "shard-2-of-2.json", {"number": 2, "total": 2, "command": "swerve sample", "within": "/"})
    before = {path.name for path in tmp_path.iterdir()}

    # One part of each kind: a link, which is never followed, then content that its digest fits.
    kinds = {path.name.rpartition("-")[0]: path for path in sorted(evil.rglob("*.part"))}
    assert kinds
    for part in kinds.values():
        part.unlink()
        part.symlink_to(precious)
        status, _, err = swerve(*words, "--parts-from", "evil")
        assert (status, f"{part.name} is no ordinary file" in err) == (2, True), err
        part.unlink()
        seal = hashlib.sha256(part.name.encode() + b"\nforged").hexdigest().encode()
        part.write_bytes(seal + b"\nforged")
        status, _, err = swerve(*words, "--parts-from", "evil")
        last = err.splitlines()[-1]
        assert (status, part.name in last, "Internal" in err) == (1, True, False), err
        part.unlink()

    status, printed, err = swerve(*words, "--parts-from", "evil")
    assert (status, printed) == (0, whole), err
    assert (contents(out) if out.is_dir() else out.read_bytes()) == expected
    assert {path.name for path in tmp_path.iterdir()} == before | {out.name}
    assert precious.read_text() == "mine"
