"""A hub on this machine that speaks what huggingface_hub asks for, and a process that runs commands against it."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import environ
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

from tests.campaign.kills import Ended, forked


@dataclass(slots=True, kw_only=True)
class Repository:
    """A model of the hub."""

    revisions: Mapping[str, Path]
    """Folder of each branch and tag; the first is `main`."""
    is_gated: bool = False
    breaks: str | None = None
    """Name of a file whose connection is lost half-way, each time."""
    stalls: str | None = None
    """Name of a file of which half comes, and then nothing."""

    def folder(self, revision: str) -> Path | None:
        """Return the folder of a branch, tag or commit."""
        found = {**self.revisions, **{commit_of(one): one for one in self.revisions.values()}}
        return found.get(revision)


def commit_of(folder: Path) -> str:
    """Return the commit whose files lie in a folder."""
    return hashlib.sha1(str(folder).encode()).hexdigest()


@dataclass(slots=True)
class Hub:
    """The repositories by name, what was asked for, and whether the hub can be reached."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """Method and path of every request."""
    _server: ThreadingHTTPServer | None = None
    _port: int = 0

    @property
    def url(self) -> str:
        """Its address, which stays the same while it cannot be reached."""
        return f"http://127.0.0.1:{self._port}"

    def open(self) -> None:
        """Begin to listen."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), type("_Handler", (_Handler,), {"hub": self}))
        self._port = self._server.server_address[1]
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        """Stop listening: who connects is refused."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def unreachable(self) -> Iterator[None]:
        """Be closed inside the block."""
        self.close()
        try:
            yield
        finally:
            self.open()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        """Answer with headers alone."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answer a request for what a repository is, which files it has, or a file."""
        self.hub.asked.append(f"{self.command} {self.path}")
        parts = self.path.partition("?")[0].strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        owner, name, what, *rest = [*(parts[2:] if is_api else parts), "", "", ""]
        repository = self.hub.repositories.get(f"{owner}/{name}")
        revision, *path = [one for one in rest if one] or ["main"]
        if repository is None:
            return self._refuse(401, "RepoNotFound", "Invalid username or password.")
        folder = repository.folder(revision)
        if folder is None:
            return self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if repository.is_gated and not is_api:
            said = f"Access to model {owner}/{name} is restricted. You must be authenticated to access it."
            return self._refuse(401, "GatedRepo", said)
        if not is_api and what == "resolve":
            return self._file(repository, folder, "/".join(path))
        return self._json(self._described(f"{owner}/{name}", folder, what, "/".join(path)), commit_of(folder))

    def _described(self, name: str, folder: Path, what: str, path: str) -> object:
        files = [str(one.relative_to(folder)) for one in sorted(folder.rglob("*")) if one.is_file()]
        if what == "tree":
            known = [one for one in files if one.startswith(path)]
            return [{"type": "file", "path": one, "size": (folder / one).stat().st_size, "oid": "0"} for one in known]
        return {"id": name, "sha": commit_of(folder), "private": False, "tags": [], "downloads": 0, "likes": 0,
                "siblings": [{"rfilename": one, "size": (folder / one).stat().st_size} for one in files]}  # fmt: skip

    def _json(self, value: object, commit: str) -> None:
        content = json.dumps(value).encode()
        self._head(200, {"Content-Length": len(content), "Content-Type": "application/json", "X-Repo-Commit": commit})
        self.wfile.write(content)

    def _file(self, repository: Repository, folder: Path, name: str) -> None:
        if not (folder / name).is_file():
            return self._refuse(404, "EntryNotFound", "Entry not found", commit_of(folder))
        content = (folder / name).read_bytes()
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        headers = {
            "Content-Length": len(content) - start,
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": commit_of(folder),
        }
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._head(206 if start else 200, headers)
        if self.command == "HEAD":
            return None
        if name not in (repository.breaks, repository.stalls):
            self.wfile.write(content[start:])
            return None
        self.wfile.write(content[start : start + (len(content) - start) // 2])
        self.wfile.flush()
        if name == repository.stalls:
            sleep(3)
        self.close_connection = True
        return None

    def _refuse(self, status: int, code: str, said: str, commit: str | None = None) -> None:
        commits = {} if commit is None else {"X-Repo-Commit": commit}
        self._head(status, {"X-Error-Code": code, "X-Error-Message": said, "Content-Length": 0, **commits})

    def _head(self, status: int, headers: Mapping[str, object]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()


class Commands:
    """A process of its own that imports swerve once and runs each command in a copy of itself."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        """Start it; the environment replaces names of this one's."""
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hub"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
            env={**environ, **environment},
        )

    def run(self, *arguments: str, folder: Path | None = None, **options: Any) -> Ended:
        """Run a command in a folder; `file_bytes` is the size beyond which no file grows."""
        asked = {"arguments": arguments, "folder": str(folder or self._folder), **options}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**asked, "log": str(self._folder / "printed")}) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def _serve() -> None:
    """Run the commands that come as lines of JSON."""
    import os
    import resource
    from dataclasses import asdict

    import torch

    import swerve.eval.evaluate_models
    import swerve.probe.steps
    import swerve.train  # noqa: F401
    from swerve.cli import main

    torch.set_num_threads(1)

    def command(arguments: Sequence[str], folder: str, file_bytes: int | None = None) -> None:
        os.chdir(folder)
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
        main(arguments)

    for line in sys.stdin:
        asked = json.loads(line)
        log = Path(asked.pop("log"))
        ended = forked(lambda: command(**asked), log=log)  # noqa: B023 - it is called at once
        sys.stdout.write(json.dumps(asdict(ended)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
