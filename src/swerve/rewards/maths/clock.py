"""Times of the day, such as `8:34 p.m.`."""

from __future__ import annotations

import re

__all__ = ["clock_times", "is_marked"]

_TIME = re.compile(r"([0-9]{1,2})(?: ?: ?([0-9]{2}))?(?: ?: ?([0-9]{2}))? ?(?:([AaPp])\.? ?[Mm]\.?)?")
_NOISE = re.compile(r"\\(?:text|mbox|textrm|mathrm)(?![a-z])|\\[!,;: ]|[{}$]")
_HALF_DAY = 12 * 3600


def clock_times(text: str) -> frozenset[int] | None:
    """Return the seconds after midnight that a time of the day can mean; two without a.m. or p.m. None: it is no time.

    >>> sorted(clock_times("8:34 p.m.")), sorted(clock_times("08:34")), clock_times("8")
    ([74040], [30840, 74040], None)
    """
    match = _TIME.fullmatch(" ".join(_NOISE.sub(" ", text).split()).replace(" :", ":").replace(": ", ":").strip(" ."))
    if match is None or (match[2] is None and match[4] is None):
        return None
    hours, minutes, seconds = (int(part or 0) for part in match.group(1, 2, 3))
    if hours > 23 or minutes > 59 or seconds > 59 or (match[4] and not 1 <= hours <= 12):
        return None
    time = hours * 3600 + minutes * 60 + seconds
    if match[4]:
        return frozenset({time % _HALF_DAY + _HALF_DAY * (match[4] in "Pp")})
    return frozenset({time}) if hours > 12 else frozenset({time % _HALF_DAY, time % _HALF_DAY + _HALF_DAY})


def is_marked(text: str) -> bool:
    """Return whether a text says a.m. or p.m.

    >>> is_marked("4 pm"), is_marked("4:30")
    (True, False)
    """
    return re.search(r"[AaPp]\.? ?[Mm]\b", text) is not None
