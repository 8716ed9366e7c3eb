"""Turns whatever stopped a command into one line on stderr and an exit status."""

from __future__ import annotations

import signal
import traceback

import typer

from swerve.cli.console import one_line
from swerve.errors import DiskFullError, InterruptedRunError, SwerveError

__all__ = ["describe_failure", "interrupted"]

# typer carries its own copy of click in some versions; its public BadParameter is a UsageError in all of them.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def interrupted() -> tuple[str, int]:
    """Return the line and the status of a command that Ctrl-C stopped before it could save anything."""
    return "swerve: interrupted; what was written so far is kept", 128 + signal.SIGINT


def describe_failure(error: BaseException, *, debug: bool = False) -> tuple[str, int]:
    """Return what to print on stderr and the exit status; with `debug` the traceback comes first.

    >>> from swerve.errors import ConfigError
    >>> describe_failure(ConfigError("unknown recipe 'x'"))
    ("swerve: error: unknown recipe 'x'", 2)
    """
    line, status = _describe(error)
    trace = "".join(traceback.format_exception(error)) if debug else ""
    return trace + line, status


def _describe(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return interrupted()
    if isinstance(error, InterruptedRunError):
        return f"swerve: {one_line(str(error))}", error.exit_status
    if isinstance(error, SwerveError):
        return f"swerve: error: {one_line(str(error))}", error.exit_status
    if isinstance(error, _UsageError):
        return f"swerve: error: {_usage(error)}", 2
    if isinstance(error, OSError) and DiskFullError.matches(error):
        return f"swerve: error: {one_line(str(DiskFullError(error.filename or 'a file')))}", 1
    if isinstance(error, OSError) and error.filename is not None:
        return f"swerve: error: {one_line(f'{error.filename}: {error.strerror}')}", 1
    text = one_line(f"{type(error).__name__}: {error}")
    return f"swerve: internal error: {text}; run again with --debug", 1


def _usage(error: Exception) -> str:
    message = one_line(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    return f"{message}; see: {context.command_path} --help" if context is not None else message
