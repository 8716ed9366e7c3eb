"""Errors a user can cause, each saying what was given, what is allowed and what to do.

The command line prints `str(error)` as one line and exits with `error.exit_status`; a traceback is shown only with
`--debug`. Anything that is not a `SwerveError` is a defect of swerve.
"""

from __future__ import annotations

import difflib
import errno
import html
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from resource import RLIMIT_AS
from typing import Any
from urllib.parse import quote

from swerve.limits import given_limit, system_said

_SECRET_NAMES = re.compile(r"_(?:KEY|TOKEN|PASSWORD|SECRET)\Z")
"""Of environment variables whose values are in no message."""
_URL_SECRET = r"(?<=://)[^\s/?#@'\"]+(?=@)"
"""Name and password in the address of a server, a proxy or a mirror."""
_LONG, _TINY = 8, 3
"""Characters. A shorter key may be one of swerve's own words, so only what others say is searched for it; one that is
tiny, such as `1`, is looked for as a word of its own, or nothing could be read."""
_secrets: set[str] = set()


def keep_secret(value: str | None) -> None:
    """Have no message repeat a key or a token, from now on."""
    if value:
        _secrets.add(value)


def redacted(text: str, *, quoted: bool = False) -> str:
    """Return a message with `***` for keys, tokens, and passwords in addresses. Data is never given to this.

    Args:
        text: the message, before it is cut off or put on one line.
        quoted: whether somebody else says it, a server for instance: then short keys are found, too.

    >>> redacted("http://me:word@proxy:3128 cannot be reached")
    'http://***@proxy:3128 cannot be reached'
    """
    named = {value.strip() for name, value in os.environ.items() if _SECRET_NAMES.search(name)}
    secrets = {secret for secret in named | _secrets if len(secret) >= _LONG}
    return _pattern(frozenset(secrets | _secrets if quoted else secrets)).sub("***", text)


@lru_cache(maxsize=8)
def _pattern(secrets: frozenset[str]) -> re.Pattern[str]:
    """Return what finds secrets as they are, and as Python, JSON, HTML and addresses write them."""
    words = [_URL_SECRET]
    for secret in sorted(secrets, key=len, reverse=True):
        forms = {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], html.escape(secret), quote(secret, safe="")}
        either = "|".join(map(re.escape, sorted(forms, key=len, reverse=True)))
        words.append(rf"(?<!\w)(?:{either})(?!\w)" if len(secret) <= _TINY else either)
    return re.compile("|".join(words), re.IGNORECASE)


def printable(text: str) -> str:
    r"""Return lines without what a terminal acts on: control characters, marks that turn the direction of writing.

    >>> printable("a\tb\x1b[31m\u202e\u00a0c\n")
    'a\tb\ufffd[31m\ufffd c\n'
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in "\n\t" else " " if character.isspace() else "\ufffd"
        for character in text
    )


class SwerveError(Exception):
    """Base of every error that is shown to a user as one line."""

    exit_status = 1

    def __str__(self) -> str:
        """Return the message, with no key in it and nothing that a terminal acts on."""
        return printable(redacted(super().__str__()))


class ConfigError(SwerveError):
    """A recipe, an override or a command-line argument is wrong."""

    exit_status = 2


class UnknownKeyError(ConfigError):
    """There is no such key as a KEY=VALUE names."""

    def __init__(self, message: str, *, word: str, bare: str) -> None:
        super().__init__(message)
        self.word = word
        """The KEY=VALUE, as it was typed."""
        self.bare = bare
        """The message without the key that may have been meant."""


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

    def __init__(self, package: str, extra: str | None, purpose: str) -> None:
        place = package if extra is None else f"'swerve[{extra}]'"
        super().__init__(f"{purpose} needs the package '{package}'; install it with: pip install {place}")


class DiskFullError(SwerveError):
    """The file system ran out of space (or quota) while an artifact was written."""

    def __init__(self, path: Path | str, error: OSError | None = None) -> None:
        is_limit = error is not None and error.errno == errno.EFBIG
        what, fix = (system_said(errno.EFBIG), "raise the limit") if is_limit else ("disk full", "free some space")
        super().__init__(
            f"{what} while writing {path}; nothing of it was kept and earlier artifacts are intact; "
            f"{fix} and run the command again (training continues with --resume)"
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


def shown(given: Any) -> str:
    """Return what something is, for a message: its value where that is short, and its type.

    >>> shown(7), shown(object())
    ('7, of type int', 'of type object')
    """
    is_plain = isinstance(given, str | int | float | list | tuple | Mapping | None)
    text = f"{given!r}" if is_plain else ""
    value = f"{text:.60}, " if text and "\n" not in text[:60] else ""
    return f"{value}of type {type(given).__name__}"


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


def not_there(place: str, fix: str) -> str:
    """Return that a file does not exist, with the nearest one in its folder, and what to do.

    >>> not_there("nowhere/at_all.jsonl", "give a file")
    'does not exist; give a file'
    """
    path = Path(place)
    near = [str(file) for file in path.parent.glob("*") if nearest(path.stem, [file.stem])]  # whatever their ending
    hint = nearest(place, near)
    return f"does not exist{hint} {fix[:1].upper()}{fix[1:]}" if hint else f"does not exist; {fix}"


_NOT_OF_THE_FILE = (errno.EACCES, errno.EPERM, errno.EIO, errno.ENFILE, errno.ESTALE)
"""Error numbers of a read that say nothing of what the file holds."""
_NUMBERS = {
    errno.ENOMEM: re.compile(r"(?i)can ?'?no?t allocate memory|failed to map segment|bad_alloc|not enough memory"),
    errno.EAGAIN: re.compile(r"(?i)can't start new thread|resource temporarily unavailable"),
}
"""What libraries say in place of a number."""


def system_fault(error: BaseException) -> str | None:
    """Return what the system lacked, with the limit that may be behind it; None where an error says something else.

    >>> system_fault(MemoryError()), system_fault(ValueError("memory"))
    ('out of memory', None)
    """
    text = str(error)
    told = re.search(r"\(os error (\d+)\)", text)
    number = getattr(error, "errno", None) or (int(told[1]) if told else None)
    if isinstance(error, MemoryError):
        number = errno.ENOMEM
    number = number or next((number for number, words in _NUMBERS.items() if words.search(text)), None)
    return system_said(number) or (os.strerror(number) if number in _NOT_OF_THE_FILE else None)


def refused(error: OSError) -> SwerveError | None:
    """Return the refusal of the system to read or write a file as an error of swerve; None where it names no file.

    >>> print(refused(FileNotFoundError(2, "No such file or directory", "/proc/x")))
    /proc/x: No such file or directory
    """
    if DiskFullError.matches(error):
        return DiskFullError(error.filename or "a file", error)
    if error.filename is None:
        return None
    return ArtifactError(f"{error.filename}: {system_fault(error) or error.strerror}")


@contextmanager
def refusals_told() -> Iterator[None]:
    """Raise what `refused` returns of the system's refusals."""
    try:
        yield
    except OSError as error:
        known = refused(error)
        if known is None:
            raise
        raise known from error


def unreadable(path: Path | str, error: Exception) -> str:
    """Return that a file is damaged, unless the system, or a limit of the shell or job, keeps it from being read."""
    fault = system_fault(error)
    if fault and isinstance(error, MemoryError) and given_limit(RLIMIT_AS) is None:
        return f"{path} is damaged, or holds more than the memory: {str(error) or fault}"
    return f"{path} cannot be read: {fault}" if fault else f"{path} is damaged: {said_by(error)}"


def said_by(error: Exception) -> str:
    r"""Return the first line of an error's message, with what the line lacks to be understood.

    >>> said_by(KeyError("swoosh")), said_by(ValueError("in the field 'x':\n  not a number"))
    ("KeyError: 'swoosh'", "in the field 'x': not a number")
    """
    if fault := system_fault(error):
        return f"{error.filename}: {fault}" if isinstance(error, OSError) and error.filename else fault
    lines = [line.strip() for line in redacted(str(error)).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    line = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    speaks_for_itself = isinstance(error, OSError | ValueError | RuntimeError)
    # Those of safetensors and pyarrow are not imported.
    speaks_for_itself |= type(error).__name__ == "SafetensorError" or type(error).__module__.startswith("pyarrow")
    return line if speaks_for_itself else f"{type(error).__name__}: {line}"
