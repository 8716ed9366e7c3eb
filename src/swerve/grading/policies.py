"""Policies of the grader of mathematics: what counts as an answer, and as the same answer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from swerve.settings import Model, NonNegative

ExtractionForm = Literal[
    "boxed", "answer_tag", "hash", "phrase", "formula", "last_number", "last_line", "whole", "auto"
]
r"""boxed: the last `\boxed{...}` or `\fbox{...}`; answer_tag: the last `<answer>...</answer>`; hash: the rest of the
line after the last `####`; phrase: what follows the last "answer is" or the like; formula: the last `$...$`, `\(...\)`
or `\[...\]` of a text with prose; last_number; last_line; whole: all of the text; auto: the first that holds something
of boxed, answer_tag, hash, phrase, a text that is nothing but an answer, formula, and the number that the last sentence
with one states."""


class MathGrading(Model):
    """How answers of mathematics are found in a text and compared with the gold answer."""

    extraction: Annotated[tuple[ExtractionForm, ...], Field(min_length=1, strict=False)] = ("auto",)
    """Forms in which the answer is looked for, in order; the first that holds something is taken. `gsm8k` has `["hash",
    "auto"]`."""
    thinking: Literal["after", "whole"] = "after"
    """after: look only at what follows the thinking; a text that never stops thinking has no answer."""
    percent: Literal["either", "strict"] = "either"
    """either: 50% may be 50 or 0.5; strict: 50% is 0.5."""
    units: Literal["ignore", "same"] = "ignore"
    """ignore: drop a unit that only one side has; same: both must have it. Different known units are always wrong."""
    order: Literal["any", "same"] = "any"
    """Whether the order of lists without brackets counts; pairs and tuples in brackets always keep theirs."""
    rel_tolerance: NonNegative = 0.0
    """Relative difference allowed between numbers; 0: they must be equal."""
    rounding: Literal["rounded", "exact"] = "rounded"
    """rounded: a decimal with 6 or more significant digits as gold, or 12 as answer, may stand for the number it is
    rounded from (0.333333333333 is 1/3); exact: it stands only for itself."""
    log: Literal["either", "natural", "ten"] = "either"
    r"""What `\log` without a base is; either: natural or of base ten, whichever makes the two answers equal."""
