"""Limits of the shell: never raised, soft ones neither, and named where they are what stops a file from being read."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from swerve import limits
from swerve.errors import ArtifactError, system_fault, unreadable
from swerve.formats import columnar_check
from swerve.limits import lower_limit
from tests.cases import each


def in_a_copy(act: object) -> str:
    """Do something in a forked process, which may limit itself; what it raised or returned, as text."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = str(act())  # type: ignore[operator]
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(into, said.encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as stream:
        said = stream.read()
    os.waitpid(pid, 0)
    return said


@each(
    ("given", "wanted", "held"),
    [((100, 200), 150, 100), ((100, 100), 150, 100), ((100, 200), 50, 50), ((200, 300), 250, 200)],
)
def test_neither_limit_is_raised_and_the_hard_one_is_kept(given: tuple[int, int], wanted: int, held: int) -> None:
    def limited() -> tuple[int, int]:
        resource.setrlimit(resource.RLIMIT_CPU, given)
        lower_limit(resource.RLIMIT_CPU, 20)
        lower_limit(resource.RLIMIT_CPU, wanted)  # its own may grow again
        return resource.getrlimit(resource.RLIMIT_CPU)

    assert in_a_copy(limited) == str((held, given[1]))


@pytest.mark.slow
def test_a_file_is_not_damaged_where_the_shell_gives_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    # More than the tests before may have left free in this process.
    pq.write_table(pa.table({"a": ["x" * 150_000_000]}), path, compression="zstd")
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()

    def read(more: int, hard: bool) -> int:
        pa.set_memory_pool(pa.system_memory_pool())  # another may have reserved enough before
        given = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (used + more, used + more if hard else given))
        return columnar_check.check_columnar(path, limit=1 << 40)

    whole = columnar_check.check_columnar(path, limit=1 << 40)
    for hard in (True, False):
        assert in_a_copy(lambda hard=hard: read(1 << 30, hard)) == str(whole)
        said = in_a_copy(lambda hard=hard: read(4 << 20, hard))
        assert said.startswith(f"ArtifactError: {path} cannot be read: "), said
        assert f"{(used + (4 << 20)) >> 10} KiB: ulimit -v" in said
        assert "is damaged" not in said


@each(
    ("end", "said"),
    [
        (
            "os.kill(os.getpid(), 9)",
            "cannot be read: killed by SIGKILL: by somebody, or by the system where memory ran",
        ),
        ("os.kill(os.getpid(), 15)", "cannot be read: killed by SIGTERM"),
        ("os._exit(3)", "cannot be read: its process ended with status 3"),
        ("os.kill(os.getpid(), 11)", "is damaged: the library that reads it fails (its process died of SIGSEGV)"),
    ],
)
def test_what_ended_the_process_that_reads_is_said(
    end: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar_check, "_measured", lambda *_: exec(end))
    with pytest.raises(ArtifactError) as raised:
        columnar_check.check_columnar(tmp_path / "a.parquet", limit=1)
    assert str(raised.value) == f"{tmp_path / 'a.parquet'} {said}" or said in str(raised.value)


def test_errors_of_the_system_say_nothing_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {resource.RLIMIT_NOFILE: 32, resource.RLIMIT_AS: 3 << 30}
    monkeypatch.setattr(limits, "given_limit", given.get)
    monkeypatch.setattr("swerve.errors.given_limit", given.get)
    memory = "out of memory (the shell or job allows 3145728 KiB: ulimit -v)"
    for error, said in {
        OSError(errno.EMFILE, "Too many open files"): "too many open files (the shell or job allows 32: ulimit -n)",
        RuntimeError("Cannot allocate memory (os error 12)"): memory,
        pa.ArrowMemoryError("malloc of size 64 failed"): memory,
        ImportError("libx.so: failed to map segment from shared object"): memory,
        OSError(errno.EIO, "Input/output error"): "Input/output error",
        RuntimeError("can't start new thread"): (
            "no more processes or threads can be started (the shell or job allows 3145728 KiB: ulimit -v)"
        ),
    }.items():
        assert system_fault(error) == said
        assert unreadable("f", error) == f"f cannot be read: {said}"  # type: ignore[arg-type]
    assert unreadable("f", pa.ArrowInvalid("no magic bytes\nat the end")) == "f is damaged: no magic bytes"
    assert unreadable("f", OSError(errno.EINVAL, "Invalid argument")) == "f is damaged: [Errno 22] Invalid argument"


@pytest.mark.slow
@each(
    ("limit", "command", "said"),
    [
        ("-v 60000", "grade a.jsonl --task math", "out of memory (the shell or job allows 60000 KiB: ulimit -v)"),
        ("-n 5", "data import a.parquet --out g.parquet", "too many open files (the shell or job allows 5: ulimit -n)"),
        (
            "-f 1",
            "grade a.jsonl --task math --out g.jsonl",
            "file too large (the shell or job allows 1 KiB: ulimit -f)",
        ),
    ],
)
def test_a_command_under_a_limit_says_which(limit: str, command: str, said: str, tmp_path: Path) -> None:
    row = '{"problem_id": "a", "prompt": "1+1", "answer": "2", "completion": "2"}\n'
    (tmp_path / "a.jsonl").write_text(row * 100)
    pq.write_table(pa.Table.from_pylist([json.loads(row)]), tmp_path / "a.parquet")
    line = f"ulimit {limit}; exec {sys.executable} -m swerve {command}"
    ended = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1
    assert said in ended.stderr.splitlines()[-1]
    assert "internal error" not in ended.stderr
    assert not {"g.jsonl", "g.parquet"} & {path.name for path in tmp_path.iterdir()}
