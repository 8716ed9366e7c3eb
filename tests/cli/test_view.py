"""`swerve view`: the address is printed and opened, and Ctrl-C ends the server."""

from __future__ import annotations

import os
import signal
import threading
import urllib.request
import webbrowser
from pathlib import Path

import pytest

from tests.command_line import exit_status


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_browser_opens_the_address_and_ctrl_c_ends_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = []

    def look(url: str) -> None:
        with urllib.request.urlopen(url) as reply:
            pages.append((url, reply.read().decode()))
        interrupt()

    def opened(url: str) -> bool:
        threading.Thread(target=look, args=(url,)).start()
        return True

    monkeypatch.setattr(webbrowser, "open", opened)
    monkeypatch.setenv("DISPLAY", ":0")
    assert exit_status("view", str(tmp_path)) == 0
    shown = capsys.readouterr()
    ((url, page),) = pages
    assert shown.out == f"{url}\n"
    assert f"0 items in {tmp_path}" in page
    assert "swerve: Ctrl-C stops it" in shown.err


@pytest.mark.parametrize("arguments", [("--no-browser",), ()])
def test_without_a_display_or_when_asked_the_address_is_only_printed(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: pytest.fail("a browser was opened"))
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
        if arguments:
            monkeypatch.setenv(name, ":0")
    timer = threading.Timer(0.5, interrupt)
    timer.start()
    assert exit_status("view", str(tmp_path), *arguments) == 0
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_status("view", str(tmp_path / "none")) == 2
    assert capsys.readouterr().err == f"swerve: error: {tmp_path}/none is no folder; give one with runs in it\n"
