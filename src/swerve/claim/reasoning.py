"""Does the reasoning matter: how probable is an answer after part of the reasoning, and after another problem's?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from swerve.artifacts.responses import Ids, Response
from swerve.claim.part import Cost, Part, Row, Share
from swerve.claim.settings import ClaimSettings
from swerve.claim.verdicts import ClaimVerdict, larger
from swerve.claim.work import NotMeasuredError, Work

KEPT = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Fractions of the reasoning's tokens."""
_FEWEST = 10
_MARKER = r"(?i:</think>|<answer>|boxed\s*\{|####|\banswers?\b|\bis\b|[=:])\D{0,60}"
"""What says that the answer comes; no digit stands between."""

Reasoned = tuple[Ids, Ids, Ids, Ids]
"""Token ids of a response: its prompt, its reasoning, what says that the answer comes, the answer."""


class ReasoningRow(Row):
    """How probable the answers are after part of the reasoning, mean over problems."""

    kept: Share
    """Of the reasoning's tokens."""
    base: Share
    """Probability of the answer after the base's own reasoning, cut."""
    trained: Share
    base_other: Share
    """After the reasoning on another problem, cut as far."""
    trained_other: Share


class ReasoningPart(Part):
    """Does the reasoning matter?"""

    curve: tuple[ReasoningRow, ...] = ()

    @classmethod
    def measure(cls, work: Work) -> ReasoningPart:
        """Measure it; see `Part.measure`."""
        means, verdicts, notes = [], [], []
        for side, model, responses in zip(work.sides, work.models, work.greedy, strict=True):
            tokenizer = work.load(model).tokenizer
            found = [(response.problem.id, reasoned_parts(response, tokenizer)) for response in responses]
            problems, reasoned = [name for name, parts in found if parts], [parts for _, parts in found if parts]
            if len(reasoned) < _FEWEST:
                raise NotMeasuredError(f"needs {_FEWEST} greedy responses of {side.label} that reason before an answer")
            notes.append(
                f"`{side.label}`: {len(reasoned)} of {len(responses)} greedy responses reason before an answer."
            )

            # The answer's probability is the product of its tokens'.
            logprobs = work.logprobs(f"reasoning-{side.label}", model, cut_sequences(reasoned))
            chances = np.exp([*map(sum, logprobs)]).reshape(-1, 2, len(KEPT))
            means.append(chances.mean(axis=0))
            verdicts.append(reasoning_verdict(side.label, chances, problems))
        (base, base_other), (trained, trained_other) = means
        rows = zip(KEPT, base, trained, base_other, trained_other, strict=True)
        fields = ReasoningRow.model_fields
        curve = tuple(ReasoningRow.model_validate(dict(zip(fields, row, strict=True))) for row in rows)
        return ReasoningPart(curve=curve, verdicts=tuple(verdicts), notes=tuple(notes))

    @classmethod
    def cost(cls, settings: ClaimSettings, num_problems: int, num_runs: int) -> Cost:
        """Return what it takes; see `Part.cost`."""
        # Own and other reasoning, cut at each place, by both models.
        return Cost(sequences=2 * 2 * len(KEPT) * num_problems)


def reasoned_parts(response: Response, tokenizer: Any) -> Reasoned | None:
    r"""Return the parts of a response; None where nothing is before the answer, or nothing says that it comes.

    The answer is what the grader read, where it stands last behind `</think>`, `\boxed{`, `answer`, `is`, `=` and the
    like. A token belongs to the part that has its last character.
    """
    text, answer, ids = response.text or "", response.extracted, response.completion_ids
    places = re.finditer(rf"({_MARKER})(?<!\w)({re.escape(answer or '')})(?!\w)", text)
    last_place = max(places, key=re.Match.start, default=None)
    if not answer or last_place is None:
        return None
    from swerve.probe.rollouts.tokenise import token_spans  # which imports transformers

    ends = [end for _, end in token_spans(tokenizer, ids, text)]
    borders = [last_place.start(1), last_place.start(2), last_place.end() - 1]
    marker, first, last = np.searchsorted(ends, borders, side="right")
    return (response.prompt_ids, ids[:marker], ids[marker:first], ids[first : last + 1]) if marker else None


def cut_sequences(reasoned: Sequence[Reasoned]) -> list[tuple[Ids, Ids]]:
    """Return each answer after the parts of its reasoning, then after as many tokens of the next longer reasoning."""
    ordered = sorted(reasoned, key=lambda parts: -len(parts[1]))
    return [
        ((*prompt, *read[: round(kept * len(own))], *marker), answer)
        for (prompt, own, marker, answer), other in zip(ordered, (ordered[1], *ordered), strict=False)
        for read in (own, other[1])
        for kept in KEPT
    ]


def reasoning_verdict(label: str, chances: NDArray[np.float64], problems: Sequence[str] = ()) -> ClaimVerdict:
    """Return whether a model's answers rest on their reasoning.

    Args:
        label: of the model.
        chances: `[N, 2, K]` probability of each problem's answer after each part of its own reasoning, the first one
            empty, and after another problem's.
        problems: their names.
    """
    own, other = chances[:, :, 1:].mean(axis=2).T.tolist()
    after = "the chance of an answer after 25 to 100% of its own reasoning and after another problem's"
    said = f"the answers of `{label}` rest on their reasoning, by {after}"
    unseen = f"the answers of `{label}` are not seen to rest on their reasoning, by {after}"
    named: Any = {"columns": ("another's reasoning", "own reasoning"), "problems": problems}
    return larger("reasoning_matters", label, own, other, said, unseen, null="another problem's reasoning", **named)
