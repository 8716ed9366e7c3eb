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
    """Where the answer is; the first of these forms found in the text is taken, and what it holds is read further;
    `gsm8k` has `["hash", "auto"]`."""
    thinking: Literal["after", "whole"] = "after"
    """after: only what follows the last thinking is looked at; nothing of a text that still thinks."""
    percent: Literal["either", "strict"] = "either"
    """either: 50% may be 50 or 0.5; strict: 50% is 0.5."""
    units: Literal["ignore", "same"] = "ignore"
    """ignore: a unit that only one side has is left out; known units that differ are different answers."""
    order: Literal["any", "same"] = "any"
    """Of lists without brackets; pairs and tuples in brackets always keep their order."""
    rel_tolerance: NonNegative = 0.0
    """Relative difference that numbers may have; 0: they must be equal."""
    rounding: Literal["rounded", "exact"] = "rounded"
    """rounded: a decimal stands for the number without an end that it is rounded to or cut from, where it has six
    significant digits or more as a gold answer, twelve as an answer (0.333333333333 is 1/3, 0.333333 is not); exact: it
    stands for itself only."""
    log: Literal["either", "natural", "ten"] = "either"
    r"""What `\log` without a base is; either: natural or of base ten, whichever makes the two answers equal."""
