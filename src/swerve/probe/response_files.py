"""Reading responses and problems that other programs wrote; see `swerve.formats`."""

from swerve.formats.fields import parse_fields
from swerve.formats.problems import ProblemRecord, read_problems
from swerve.formats.responses import ResponseRecord, read_responses

__all__ = ["ProblemRecord", "ResponseRecord", "parse_fields", "read_problems", "read_responses"]
