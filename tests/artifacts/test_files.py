from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from swerve.artifacts.files import (
    MANIFEST_NAME,
    TEMPORARY_PREFIX,
    atomic_directory,
    atomic_path,
    fsync,
    read_json,
    read_sealed,
    remove,
    sha256_file,
    verify_manifest,
    write_json,
    write_sealed,
    write_text,
)
from swerve.errors import ArtifactError, DiskFullError, WriteError


def _names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_failing_write_leaves_the_old_content_and_no_leftovers(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError, match="boom"), atomic_path(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("boom")
    assert path.read_text() == "old"
    assert _names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_named_with_the_path(tmp_path, number):
    path = tmp_path / "a.txt"
    told = f"Error while serializing: I/O error: {os.strerror(number)} (os error {number})"  # by safetensors
    for error in (OSError(number, os.strerror(number)), RuntimeError(told)):
        what = "file too large" if number == errno.EFBIG else "disk full"
        with pytest.raises(DiskFullError, match=f"{what} while writing .*a.txt"), atomic_path(path):
            raise error
    assert _names(tmp_path) == []


def test_what_is_read_while_writing_is_not_said_to_be_the_target(tmp_path):
    other, target = tmp_path / "other.txt", tmp_path / "new" / "a.txt"
    with pytest.raises(FileNotFoundError, match=r"other\.txt"), atomic_path(target):
        other.read_text()
    for error in (
        PermissionError(errno.EACCES, "Permission denied", str(other)),
        ArtifactError(f"{other} cannot be read: Input/output error (os error 5)"),
        OSError("a page is damaged"),  # told by a library, not by the operating system
    ):
        with pytest.raises(type(error), match=re.escape(str(error))) as raised, atomic_path(target):
            raise error
        assert raised.value is error
    copied = OSError(errno.EIO, "Input/output error", str(other), None, str(target.parent / ".swerve-tmp-1-a.txt"))
    for error in (copied, OSError(errno.EIO, "Input/output error"), NotADirectoryError(20, "No", str(target.parent))):
        with pytest.raises(WriteError, match=r"cannot write .*new/a\.txt"), atomic_path(target):
            raise error
    assert not target.parent.exists()


def test_a_real_file_size_limit_is_reported_as_what_it_is(tmp_path):
    """A child process under RLIMIT_FSIZE really runs out of room in the middle of a write."""
    script = """
        import resource, signal, sys
        from pathlib import Path
        from swerve.artifacts.files import atomic_directory
        from swerve.errors import DiskFullError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            with atomic_directory(Path(sys.argv[1]) / "checkpoint") as folder:
                (folder / "weights").write_bytes(bytes(5000))
        except DiskFullError as error:
            print(error)
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], capture_output=True, text=True, check=True
    )
    said = f"file too large (the shell or job allows 4 KiB: ulimit -f) while writing {tmp_path}/checkpoint; nothing of"
    assert found.stdout.startswith(said)
    assert _names(tmp_path) == []


def test_killed_in_the_middle_leaves_the_previous_directory(tmp_path):
    target = tmp_path / "checkpoint"
    with atomic_directory(target, step=1) as folder:
        (folder / "weights").write_text("one")
    script = """
        import os, signal, sys
        from pathlib import Path
        from swerve.artifacts.files import atomic_directory
        with atomic_directory(Path(sys.argv[1]), step=2) as folder:
            (folder / "weights").write_text("two")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(target)], check=False)
    assert found.returncode == -signal.SIGKILL
    assert verify_manifest(target)["step"] == 1
    assert (target / "weights").read_text() == "one"


def _temporary(folder, name):
    """Return the name of the temporary file that a child leaves when it is killed."""
    script = """
        import os, signal, sys
        from pathlib import Path
        from swerve.artifacts.files import atomic_path
        with atomic_path(Path(sys.argv[1])):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script), str(folder / name)], check=False)
    (left,) = folder.glob(f"{TEMPORARY_PREFIX}*")
    return left.name


def test_the_next_write_removes_what_a_kill_left_but_nothing_of_a_process_at_work(tmp_path):
    """A process is known by its machine, its number and when it began; somebody else's files by their names."""
    left = _temporary(tmp_path, "a[1].txt")
    host, process, started = re.fullmatch(r"\.swerve-tmp-([0-9a-f]{8})-(\d+)-(\d+)-a\[1\]\.txt", left).groups()
    mine, now = os.getpid(), Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    kept = [
        f".swerve-tmp-{'0' * 8}-{process}-{started}-a[1].txt",  # another machine's
        f".swerve-tmp-{host}-{mine}-{now}-b.txt",  # of another file
        f".swerve-tmp-{host}-{mine}-notes-a[1].txt",
        f".tmp-{process}-a[1].txt",
        f"{left}.parquet",
    ]
    gone = f".swerve-tmp-{host}-{mine}-{int(now) - 1}-a[1].txt"  # its number was given to another process since
    for name in (*kept, gone):
        (tmp_path / name).write_text("half")
    write_text(tmp_path / "a[1].txt", "whole")
    assert _names(tmp_path) == sorted([*kept, "a[1].txt"])


def test_what_a_link_leads_to_is_never_deleted(tmp_path):
    """A checkpoint that was moved to another disk, for example; only the link is replaced."""
    target, link = tmp_path / "moved", tmp_path / "checkpoint"
    with atomic_directory(target, step=1) as folder:
        (folder / "weights").write_text("one")
    link.symlink_to(target, target_is_directory=True)
    with atomic_directory(link, step=2) as folder:
        (folder / "weights").write_text("two")
    assert [verify_manifest(one)["step"] for one in (target, link)] == [1, 2]
    (tmp_path / "again").symlink_to(target, target_is_directory=True)
    remove(tmp_path / "again")
    assert _names(tmp_path) == ["checkpoint", "moved"]
    assert verify_manifest(target)["step"] == 1


@pytest.mark.parametrize("name", ["fsync", "replace"])
def test_an_input_or_output_error_names_the_file_and_leaves_the_old_content(tmp_path, monkeypatch, name):
    write_text(tmp_path / "a.txt", "old")

    def failing(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, name, failing)
    with pytest.raises(WriteError, match=r"cannot write .*a\.txt: Input/output error"):
        write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "old"
    if name == "fsync":
        with pytest.raises(OSError, match=r"Input/output error: .*a\.txt"):
            fsync(tmp_path / "a.txt")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_files_have_the_permissions_that_the_umask_gives(tmp_path, umask, mode):
    """Also those of writers that make private files, as safetensors does."""

    def write_private(path):
        path.unlink(missing_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))

    before = os.umask(umask)
    try:
        with atomic_path(tmp_path / "a") as temporary:
            write_private(temporary)
        with atomic_directory(tmp_path / "c") as folder:
            (folder / "sub").mkdir()
            write_private(folder / "sub" / "weights")
    finally:
        os.umask(before)
    files = [tmp_path / "a", tmp_path / "c" / "sub" / "weights", tmp_path / "c" / MANIFEST_NAME]
    assert [file.stat().st_mode & 0o777 for file in files] == [mode] * 3


def test_manifest_lists_every_file_with_its_digest(tmp_path):
    with atomic_directory(tmp_path / "c", step=7) as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "a").write_text("x")
    assert read_json(tmp_path / "c" / MANIFEST_NAME) == {
        "step": 7,
        "files": {"sub/a": "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"},
        "sizes": {"sub/a": 1},
        # printf '{"files":{"sub/a":"2d71...4881"},"sizes":{"sub/a":1},"step":7}' | sha256sum
        "fields_sha256": "d81516f6fadada221cfe657809df0c78fdcdd75e230f0674e73c29e370128846",
    }
    assert sha256_file(tmp_path / "c" / "sub" / "a").startswith("2d711642")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-1]), "weights is damaged"),
        (
            lambda file: file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:]),
            "weights is damaged",
        ),
        (lambda file: file.unlink(), "weights is listed in its manifest but missing"),
        (lambda file: (file.parent / MANIFEST_NAME).unlink(), "is not a complete checkpoint"),
        (lambda file: (file.parent / MANIFEST_NAME).write_text("{"), "is not readable JSON"),
        (lambda file: write_sealed(file.parent / MANIFEST_NAME, {}), "lists no files"),
    ],
)
def test_damage_is_found_and_named(tmp_path, damage, message):
    with atomic_directory(tmp_path / "c") as folder:
        (folder / "weights").write_bytes(b"12345")
    damage(tmp_path / "c" / "weights")
    with pytest.raises(ArtifactError, match=message):
        verify_manifest(tmp_path / "c")


def test_a_changed_field_of_a_sealed_file_is_noticed_and_its_form_is_free(tmp_path):
    path = tmp_path / "a.json"
    write_sealed(path, {"step": 76, "mean": 0.1, "labels": ("é", None)})
    assert read_sealed(path) == {"step": 76, "mean": 0.1, "labels": ["é", None]}
    text = path.read_text()
    for old, new in [
        ("76", "86"),
        ("76", "76.0"),
        ("0.1", "0.10000000000000002"),
        ("null", '""'),
        ("é", "e"),
    ]:
        path.write_text(text.replace(old, new))
        with pytest.raises(ArtifactError, match=r"a\.json was changed after it was written"):
            read_sealed(path)
    path.write_text(json.dumps(dict(reversed(json.loads(text).items()))))
    assert read_sealed(path)["step"] == 76
    path.write_text("[76]")
    with pytest.raises(ArtifactError, match=r"a\.json is not a JSON object"):
        read_sealed(path)


def test_a_file_without_its_digest_is_refused(tmp_path):
    (tmp_path / "a.json").write_text('{"step": 76}')
    with pytest.raises(ArtifactError, match=r"a\.json has no digest of its fields, 'fields_sha256': it was changed"):
        read_sealed(tmp_path / "a.json")


def test_json_refuses_what_is_not_json(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    (tmp_path / "b.json").write_text('{"x": NaN}')
    with pytest.raises(ArtifactError, match="NaN is not JSON"):
        read_json(tmp_path / "b.json")
    (tmp_path / "b.json").write_text('{"x": 9e999}')
    with pytest.raises(ArtifactError, match="9e999 is too large a number"):
        read_json(tmp_path / "b.json")
    with pytest.raises(ArtifactError, match=r"missing\.json does not exist"):
        read_json(tmp_path / "missing.json")


def test_what_is_not_an_ordinary_file_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ArtifactError, match="pipe: it is not an ordinary file"):
        write_text(pipe, "x")
    assert pipe.is_fifo()


def test_folders_made_for_a_file_are_on_the_disk_with_it(tmp_path, monkeypatch):
    """A power cut would else take the file with its folder, whose name the folder above had not flushed."""
    synced, fsync = [], os.fsync

    def recording(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recording)
    write_text(tmp_path / "a" / "b" / "c.txt", "text")
    assert {str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")} <= set(synced)
