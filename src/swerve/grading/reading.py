r"""What the answer of a text says: its mark's content, read further as long as it is words.

The steps are a path: a value with its unit, a choice, a date or a time is the answer, and what stands in it is not
looked at again. `10 \text{ cents}` in a box is never 10, `5 in 7` never 5. Only words are read further: a label or a
sentence.
"""

from __future__ import annotations

from collections.abc import Iterator

from swerve.grading.answers import said_in, states_more
from swerve.grading.maths.answer import Answer
from swerve.grading.maths.equivalence import check_sizes
from swerve.grading.maths.limits import LIMITS, Limits

_MOST_STEPS = 4


def steps(found: str, limits: Limits = LIMITS) -> Iterator[Answer]:
    """Yield what an answer's mark holds, and what that states; the last one is the answer.

    Raises:
        LimitReached: it is larger than what is read.

    >>> [step.text for step in steps("The answer is: x = 10 cents")]
    ['The answer is: x = 10 cents', 'x = 10 cents']
    """
    seen: list[str] = []
    text: str | None = found
    while text and text not in seen and len(seen) < _MOST_STEPS:
        answer = Answer(text)
        yield answer
        seen.append(text)
        if not states_more(text):
            check_sizes(answer, limits)
            if not answer.is_words:
                return
        text = said_in(text)
