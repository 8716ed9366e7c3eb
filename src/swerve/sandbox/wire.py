"""What a process and its helper send each other: messages with their length in front."""

from __future__ import annotations

import os
import struct

_LENGTH = struct.Struct(">I")
_CHUNK = 1 << 16


def frame(message: bytes) -> bytes:
    """Return a message with its length in front."""
    return _LENGTH.pack(len(message)) + message


class FrameBuffer:
    """Puts the pieces of a stream together to messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, piece: bytes) -> None:
        """Add the next piece of the stream."""
        self._bytes += piece

    def take(self) -> bytes | None:
        """Return the next message, or None while it is not complete."""
        end = _LENGTH.size + (_LENGTH.unpack_from(self._bytes)[0] if len(self._bytes) >= _LENGTH.size else 0)
        if len(self._bytes) < max(end, _LENGTH.size):
            return None
        message = bytes(self._bytes[_LENGTH.size : end])
        del self._bytes[:end]
        return message


def read_frame(descriptor: int) -> bytes | None:
    """Wait for the next message of a stream; None at its end."""
    buffer = FrameBuffer()
    while (message := buffer.take()) is None:
        piece = os.read(descriptor, _CHUNK)
        if not piece:
            return None
        buffer.feed(piece)
    return message


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data, waiting as long as it takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def error_line(error: BaseException) -> str:
    """Return an exception's type and the first line of its message.

    >>> error_line(KeyError("gold"))
    "KeyError: 'gold'"
    """
    try:
        lines = str(error).splitlines()
    except Exception:  # a grader's own exception class may fail here as well
        lines = []
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
