"""The command line: parses, calls the stages, prints. Nothing else."""

from __future__ import annotations

from swerve.cli.app import main

__all__ = ["main"]
