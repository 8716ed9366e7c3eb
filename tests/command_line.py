"""The command line, run in this process."""

from __future__ import annotations

import pytest

from swerve.cli import main


def exit_status(*arguments: object) -> int:
    """Run `swerve` with these words; return its exit status."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code
