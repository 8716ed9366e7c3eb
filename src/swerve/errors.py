"""Errors a user can cause, each saying what was given, what is allowed and what to do.

The command line prints `str(error)` as one line and exits with `error.exit_status`; a traceback is shown only with
`--debug`. Anything that is not a `SwerveError` is a defect of swerve.
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable
from pathlib import Path


class SwerveError(Exception):
    """Base of every error that is shown to a user as one line."""

    exit_status = 1


class ConfigError(SwerveError):
    """A recipe, an override or a command-line argument is wrong."""

    exit_status = 2


class ArtifactError(SwerveError):
    """A file or directory written by an earlier stage is missing, damaged or of another schema."""


class NoResponseError(ArtifactError):
    """A record has no response, such as a request that failed."""


class WriteError(ArtifactError):
    """The operating system refuses to write a file: it is read-only, not permitted, or the device fails."""


class CheckpointError(ArtifactError):
    """A checkpoint is missing, damaged or not of the expected layout."""


class MissingShardsError(ArtifactError):
    """A shard needs what other shards have not made."""


class MismatchError(SwerveError):
    """Two inputs that must belong together do not (vocabularies, fingerprints, configurations)."""


class ProblemsError(SwerveError):
    """Several things are wrong at once: a line for each, shown as a line each."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


class ConfigErrors(ProblemsError, ConfigError):
    """Several things are wrong with a recipe or a command line."""


class MissingExtraError(SwerveError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package '{package}'; install it with: pip install 'swerve[{extra}]'")


class DiskFullError(SwerveError):
    """The file system ran out of space (or quota) while an artifact was written."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(
            f"disk full while writing {path}; nothing of it was kept and earlier artifacts are intact; "
            "free some space and run the command again (training continues with --resume)"
        )

    @staticmethod
    def matches(error: OSError) -> bool:
        """Whether `error` says that space, quota or the file-size limit is exhausted."""
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class CollapseError(SwerveError):
    """Training collapsed, and the recipe says to stop where it does."""


class StalledProcessError(SwerveError):
    """A process that others wait for failed or did not come in time, and this one reports it."""


class QuietExit(SwerveError):
    """Another rank has reported the failure: this one ends without a line."""


class EngineError(SwerveError):
    """The engine that samples does not answer, answers wrongly, or has other weights than it should."""


class InterruptedRunError(SwerveError):
    """A signal stopped the work after its state was saved; `exit_status` is 128 + the signal's number."""

    def __init__(self, message: str, *, signal_number: int) -> None:
        super().__init__(message)
        self.exit_status = 128 + signal_number


def nearest(value: str, allowed: Iterable[str]) -> str:
    """Return `"; did you mean 'x'?"` for the allowed word closest to `value`, or an empty string.

    Words that end in numbers are as close as their numbers are: `rl-81` is `rl-80` rather than `rl-1`.

    >>> nearest("group_sise", ["group_size", "steps"]), nearest("rl-81", ["rl-1", "rl-8", "rl-80"])
    ("; did you mean 'group_size'?", "; did you mean 'rl-80'?")
    >>> nearest("zebra", ["group_size", "steps"])
    ''
    """
    words = list(allowed)
    stem, _, number = value.rpartition("-")
    steps = [word for word in words if word.rpartition("-")[0] == stem and word.rpartition("-")[2].isdigit()]
    if number.isdigit() and steps:
        close = [min(steps, key=lambda word: abs(int(word.rpartition("-")[2]) - int(number)))]
    else:
        close = difflib.get_close_matches(value, words, n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def said_by(error: Exception) -> str:
    r"""Return the first line of an error's message, with what the line lacks to be understood.

    >>> said_by(KeyError("swoosh")), said_by(ValueError("in the field 'x':\n  not a number"))
    ("KeyError: 'swoosh'", "in the field 'x': not a number")
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    line = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    speaks_for_itself = isinstance(error, OSError | ValueError | RuntimeError)
    speaks_for_itself |= type(error).__name__ == "SafetensorError"  # which is not imported
    return line if speaks_for_itself else f"{type(error).__name__}: {line}"
