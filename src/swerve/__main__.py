"""`python -m swerve` is the command `swerve`."""

from __future__ import annotations

from swerve.cli import main

if __name__ == "__main__":
    main()
