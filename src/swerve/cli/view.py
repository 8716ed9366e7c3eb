"""`swerve view`: look at runs in a browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from swerve.cli.console import print_message, print_text


def view(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where to look.")] = Path("runs"),
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", min=1, max=65535, help="Port.  [default: any that is free]"),
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Show the runs, probes, studies and samples below a folder in a browser.

    The list and runs in training follow what is written. The server runs on this machine only, changes nothing, and
    serves whoever knows the address that it prints; Ctrl-C stops it.

    Examples:
      swerve view
      swerve view runs/studies/mine --port 8080 --no-browser
    """
    # The reports that it makes take a second to import, which help must not.
    from swerve.view.server import ViewServer

    with ViewServer(folder, port=port or 0) as server:
        print_text(server.url)
        print_message("swerve: Ctrl-C stops it")
        has_window = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
        if has_window and not no_browser:
            import webbrowser

            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.stderr.write("\n")
