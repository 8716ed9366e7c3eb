"""The server of `swerve view`: read-only, on this machine only, for whoever knows the random token of its address."""

from __future__ import annotations

import json
import re
import secrets
import shlex
import sys
import threading
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from swerve.errors import ConfigError, SwerveError
from swerve.progress import one_line
from swerve.report.rollouts import Payload
from swerve.view.catalogue import NOT_FINISHED, Catalogue, Item, is_begun
from swerve.view.pages import list_state, live_state, make_report, view_page

_HOST = "127.0.0.1"
_NAMES = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?")
"""What this machine may be called, with any port, for tunnels: any other name is that of a page which points here."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Of every answer; what a page may load and run, it says itself."""
_LISTING_SECONDS = 0.3
_NUM_KEPT = 4
"""Reports that are kept until one of their files changes."""

Answer = tuple[HTTPStatus, str, bytes]
"""Status, type of content, content."""


class ViewServer(ThreadingHTTPServer):
    """Serves what is below a folder at `url`; `serve_forever` begins."""

    daemon_threads = True

    def __init__(self, folder: Path, *, port: int = 0) -> None:
        """Take a port; 0: any that is free.

        Raises:
            ConfigError: there is no such folder, or the port is taken.
        """
        if not folder.is_dir():
            raise ConfigError(f"{folder} is no folder; give one with runs in it")
        try:
            super().__init__((_HOST, port), _Handler)
        except OSError as error:
            raise ConfigError(f"--port {port}: {error.strerror}; give another, or none for any that is free") from None
        self.token = secrets.token_urlsafe(24)
        self.catalogue = Catalogue(folder)
        self._making = threading.Lock()
        self._report = lru_cache(_NUM_KEPT)(lambda item, stamp: make_report(item, self.catalogue.items.values()))

    @property
    def url(self) -> str:
        """Address of the list."""
        return f"http://{_HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, but for a browser that closed the page before it was whole."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def answer(self, host: str | None, origin: str | None, path: str) -> Answer:
        """Return what is served to a request.

        Args:
            host: its header `Host`.
            origin: its header `Origin`, if there is one.
            path: its path, without what follows a question mark.
        """
        token, _, place = path.removeprefix("/").partition("/")
        is_named = _NAMES.fullmatch(host or "") and origin in (None, f"http://{host}")
        if not is_named or not secrets.compare_digest(token.encode(), self.token.encode()):
            said = "Open the whole address that swerve view printed, in a browser of this machine."
            return _message(HTTPStatus.FORBIDDEN, "This address is not known", said)
        try:
            return self._answer(place)
        except SwerveError as error:
            return _message(HTTPStatus.UNPROCESSABLE_ENTITY, "This cannot be shown", str(error))
        except Exception as error:  # a folder that another program wrote ends no server
            said = f"{type(error).__name__}: {error}; swerve report --debug says where"
            return _message(HTTPStatus.INTERNAL_SERVER_ERROR, "This cannot be shown", said)

    def _answer(self, place: str) -> Answer:
        """Return what is at a place below the token: the list, or something of an item of the list."""
        if place in ("", "list.json"):
            folder = self.catalogue.folder
            state = list_state(folder, *self.catalogue.list(seconds=_LISTING_SECONDS))
            return _json(state) if place else _html(view_page("list", folder.resolve().name, state))
        key, _, wanted = place.partition("/")
        item = self.catalogue.find(key)
        if item and item.kind == "run" and wanted in ("live", "live.json"):
            state = live_state(item)
            return _json(state) if wanted == "live.json" else _html(view_page("live", item.name, state))
        if item and is_begun(item):
            command = f"swerve study {shlex.quote(str(item.path))}"
            said = f"Its runs are not compared yet. To do what is left: {command}. To compare those that are done: "
            return _message(HTTPStatus.OK, f"{item.name}: {NOT_FINISHED}", f"{said}{command} --gather")

        # Rollouts that are too many for the page have addresses of their own.
        if item and item.kind != "folder":
            page, rollouts = self._made(item)
            if not wanted:
                return _html(page)
            for number in range(len(rollouts.index["rollouts"]) if rollouts else 0):
                if rollouts and wanted == f"rollouts/{number}":
                    return HTTPStatus.OK, "application/octet-stream", rollouts.encode(number)
        return _message(HTTPStatus.NOT_FOUND, "Not here", "It may have been moved or removed.")

    def _made(self, item: Item) -> tuple[str, Payload | None]:
        """Return an item's report, made again where one of its files changed; one at a time."""
        with self._making:
            return self._report(item, item.stamp)


def _html(text: str, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return status, "text/html; charset=utf-8", text.encode("utf-8", errors="replace")


def _json(value: object) -> Answer:
    return HTTPStatus.OK, "application/json", json.dumps(value, allow_nan=False).encode()


def _message(status: HTTPStatus, title: str, message: str) -> Answer:
    return _html(view_page("message", title, {"title": title, "lead": one_line(message)}), status)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; every other method is refused."""

    server: ViewServer
    timeout = 60
    server_version, sys_version = "swerve", ""

    def do_GET(self) -> None:
        """Send an answer."""
        host, origin = self.headers["Host"], self.headers["Origin"]
        status, kind, body = self.server.answer(host, origin, self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def end_headers(self) -> None:
        """Send the headers of every answer, refusals too."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: the address holds the token."""
