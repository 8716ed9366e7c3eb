"""Folders that hold what is no file: named pipes, sockets, devices, links and folders with the names of files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.files import regular_file
from swerve.artifacts.parts import Parts
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.samples import write_samples
from swerve.errors import ArtifactError, SwerveError
from swerve.recipes import dump_yaml, load_config
from swerve.report.read import model_words
from swerve.run import describe_run
from swerve.view.catalogue import Catalogue
from swerve.view.pages import live_state, make_report
from tests.artifacts.test_samples import EASY, INFO, LOST, RIGHT, _sample
from tests.cases import each
from tests.command_line import exit_status
from tests.report.synthetic_run import write_synthetic_run

Refused = Callable[..., str]


def _socket(path: Path) -> None:
    place = os.getcwd()
    os.chdir(path.parent)  # a socket's address is short
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(place)


SPECIAL: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "is a named pipe, and only ordinary files are read"),
    "socket": (_socket, "is a socket, and only ordinary files are read"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a device, and only ordinary files are read"),
    "folder": (Path.mkdir, "is a folder"),
    "dangling": (lambda path: path.symlink_to("nowhere"), ""),
    "loop": (lambda path: path.symlink_to(path.name), ""),
}
"""What stands in the place of a file, and what is said of it; of links that lead to nothing, that there is none."""


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    """A reader that waits for the other end of a pipe fails instead of waiting for ever."""

    def stop(number: int, frame: object) -> None:
        raise TimeoutError("a reader waits")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@each(("kind", "said"), [(kind, said) for kind, (_, said) in SPECIAL.items()])
def test_only_an_ordinary_file_is_read(tmp_path: Path, kind: str, said: str) -> None:
    path = tmp_path / f"{kind}.parquet"
    SPECIAL[kind][0](path)
    if said:
        with pytest.raises(ArtifactError, match=said):
            regular_file(path)
    else:
        assert regular_file(path) == path
    (tmp_path / "file").write_text("x")
    (tmp_path / f"link-{kind}").symlink_to("file")
    assert regular_file(tmp_path / f"link-{kind}").read_text() == "x"


@pytest.fixture(scope="module")
def whole(filled: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with everything that is read of it."""
    run = write_synthetic_run(tmp_path_factory.mktemp("whole") / "run", num_rollouts=2, filled=filled)
    run.config_path.write_text(dump_yaml(load_config("demo_addition")))
    return run.path


def test_a_pipe_in_the_place_of_any_file_of_a_run_ends_no_reader(whole: Path, tmp_path: Path) -> None:
    names = [str(path.relative_to(whole)) for path in sorted(whole.rglob("*")) if path.is_file()]
    assert {"run.json", "config.yaml", "metrics.jsonl", "probe/summary.json", "probe/tokens.parquet"} <= {*names}
    run = Path(shutil.copytree(whole, tmp_path / "run"))
    for name in names:
        (run / name).unlink()
        os.mkfifo(run / name)
        described = describe_run(run)
        assert described["name"] == "run"
        for item in _items(tmp_path):
            live_state(item)
            with suppress(SwerveError):
                assert make_report(item, [])[0].startswith("<!doctype html>")
        (run / name).unlink()
        shutil.copyfile(whole / name, run / name)


def _items(folder: Path) -> list[Any]:
    catalogue = Catalogue(folder)
    catalogue.list(seconds=60)
    return [*catalogue.items.values()]


@each("kind", SPECIAL)
def test_the_list_of_samples_has_files_alone(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / kind
    folder.mkdir()
    write_samples(folder / "samples.parquet", INFO, [_sample(EASY, 0, RIGHT), _sample(EASY, 1, LOST)])
    SPECIAL[kind][0](folder / "x.parquet")
    entries, num_unread = Catalogue(folder).list(seconds=60)
    assert [(entry["name"], entry["error"]) for entry in entries] == [("samples.parquet", None)]
    assert num_unread == 0


def test_a_report_of_a_folder_is_of_its_files(tmp_path: Path) -> None:
    write_samples(tmp_path / "samples.parquet", INFO, [_sample(EASY, 0, RIGHT), _sample(EASY, 1, LOST)])
    for kind, (make, _) in SPECIAL.items():
        make(tmp_path / f"{kind}.parquet")
    assert exit_status("report", str(tmp_path)) == 0
    assert (tmp_path / "report" / "index.html").is_file()


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder"])
def test_commands_name_what_is_no_file(
    refused: Refused, responses: Path, sound_folder: Path, tmp_path: Path, kind: str
) -> None:
    make, said = SPECIAL[kind]
    out = tmp_path / "out.parquet"
    for ending in (".jsonl", ".parquet", ".jsonl.gz"):
        path = tmp_path / f"{kind}{ending}"
        make(path)
        for command in (
            ("grade", "--task", "math", path),
            ("grade", "--problems", path, responses),
            ("data", "import", path, "--out", out),
            ("data", "import", responses, "--problems", path, "--out", out),
            ("probe", "--use-responses", path, "--reference", sound_folder, "--checkpoint", f"b={sound_folder}"),
            ("claim", path, responses),
            ("claim", responses, path),
        ):
            assert said in refused(*command)


@each("kind", ["pipe", "socket", "device"])
def test_a_model_folder_holds_ordinary_files(sound_folder: Path, tmp_path: Path, kind: str) -> None:
    from swerve.models.model_folder import load_model, load_tokenizer

    make, said = SPECIAL[kind]
    for path in sorted(sound_folder.iterdir()):
        folder = Path(shutil.copytree(sound_folder, tmp_path / f"{kind}-{path.name}"))
        (folder / path.name).unlink()
        make(folder / path.name)
        for load in (partial(load_model, device="cpu", dtype="float32"), load_tokenizer):
            with pytest.raises(ArtifactError, match=f"{path.name} {said}"):
                load(folder)
        assert isinstance(model_words(folder), str)


def test_kept_parts_and_locks_are_ordinary_files(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "work.partial", {})
    parts.begin()
    parts.put("one", None, [1])
    (part,) = (path for path in parts.folder.iterdir() if path.name != "parts.json")  # type: ignore[union-attr]
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(ArtifactError, match="is a named pipe"):
        parts.get("one", None)
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(ArtifactError, match="is a named pipe"), RunDirectory(tmp_path).lock():
        pass


def test_a_recipe_may_come_from_a_pipe(tmp_path: Path) -> None:
    receiver, sender = os.pipe()
    os.write(sender, json.dumps({"extends": "demo_addition", "seed": 8}).encode())
    os.close(sender)
    assert load_config(f"/dev/fd/{receiver}", "name=mine").seed == 8
    os.close(receiver)
