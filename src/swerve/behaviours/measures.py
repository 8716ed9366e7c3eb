"""What is compared of responses: one value for each problem, the same for runs, models, files and studies."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from swerve.artifacts.responses import Response
from swerve.behaviours.diversity import Embedder, embedding_similarity, ngram_similarity, num_distinct
from swerve.behaviours.response_format import asked_format, dummy_thinking, has_format, split_regions
from swerve.behaviours.response_rows import Lexicon, count_behaviours, default_lexicon
from swerve.behaviours.text_measures import repeated_ngram_share, split_words
from swerve.grading.text import given_beginning

Group = Sequence[Response]
"""The responses to one problem."""
OF_PROSE = frozenset(("in_format", "empty_thinking", "reflections", "repeated_4grams"))
"""Measures that say nothing of texts in a vocabulary of their own."""


class ProblemValues:
    """The value of each measure (a field of `Scores`) at each problem of which it is known; no response is held.

    >>> from swerve.types import Problem
    >>> problem, values = Problem(id="p", family="math", question="2 + 2?", answer="4"), ProblemValues()
    >>> values.add("p", [Response(problem=problem, text="so 4", correct=True)])
    >>> values.known["num_words"]
    {'p': 2.0}
    """

    def __init__(
        self, *, leave_out: Collection[str] = (), lexicon: Lexicon | None = None, embed: Embedder | None = None
    ) -> None:
        """Begin with no problem.

        Args:
            leave_out: measures that are not wanted.
            lexicon: the phrases of reflection; by default those that ship.
            embed: texts -> vectors (`load_embedder`), for the similarity of embeddings.
        """
        # Reflection and embeddings depend on what they are measured by.
        functions: dict[str, Callable[[Group], float | None]] = {**_VALUES}
        functions["reflections"] = partial(_reflections, lexicon=lexicon or default_lexicon())
        if embed is not None:
            functions["embedding_similarity"] = lambda group: embedding_similarity(list(map(_text, group)), embed)
        self._functions = {name: function for name, function in functions.items() if name not in leave_out}
        self._values: dict[str, dict[str, float]] = {name: {} for name in self._functions}

    def add(self, problem: str, group: Group) -> None:
        """Measure the responses to a problem."""
        for name, function in self._functions.items():
            if (value := function(group)) is not None:
                self._values[name][problem] = value

    @property
    def known(self) -> dict[str, dict[str, float]]:
        """Measure -> problem -> value, of measures that are known at a problem."""
        return {name: values for name, values in self._values.items() if values}


def problem_values(groups: Mapping[str, Group], **options: Any) -> dict[str, dict[str, float]]:
    """Return the value of each measure at each problem, of the responses to each; see `ProblemValues`."""
    values = ProblemValues(**options)
    for problem, group in groups.items():
        values.add(problem, group)
    return values.known


def _mean_of(function: Callable[[Response], float | None]) -> Callable[[Group], float | None]:
    """Return the mean of a function over those responses to a problem of which it is known."""

    def mean(group: Group) -> float | None:
        known = [value for response in group if (value := function(response)) is not None]
        return math.fsum(known) / len(known) if known else None

    return mean


def _text(response: Response) -> str:
    return response.written


def _whole(response: Response) -> str:
    """Return the whole answer, with the beginning that the model was given."""
    return given_beginning(response.problem, _text(response)) + _text(response)


def _in_format(response: Response) -> bool | None:
    asked = asked_format(response.problem)
    return None if asked is None or response.text is None else has_format(_whole(response), asked)


def _empty_thinking(response: Response) -> bool | None:
    thinking = split_regions(_whole(response)).thinking
    return None if thinking is None else dummy_thinking(thinking, response.problem.question or None) is not None


def _reflections(group: Group, lexicon: Lexicon) -> float | None:
    """Return the words of reflection per 1,000 words of all responses together."""
    texts = [split_words(_text(response)) for response in group]
    num_words = sum(map(len, texts))
    count = sum(sum(count_behaviours(words, lexicon).values()) for words in texts)
    return 1000 * count / num_words if num_words else None


def _distinct_right(group: Group) -> float | None:
    """Return how many different right answers several samples hold; right ones that were not recorded are alike."""
    if len(group) < 2 or any(response.verdict is None for response in group):
        return None
    right = [response for response in group if response.verdict]
    return num_distinct(response.extracted for response in right) or float(bool(right))


_VALUES: Mapping[str, Callable[[Group], float | None]] = {
    "accuracy": _mean_of(lambda response: response.verdict),
    "mean_reward": _mean_of(lambda response: 0.0 if response.reward is None and response.status else response.reward),
    "num_tokens": _mean_of(
        lambda response: len(response.sampled_positions) or response.extra.get("completion_tokens") or None
    ),
    "num_words": _mean_of(lambda response: None if response.text is None else len(split_words(response.written))),
    "entropy": _mean_of(lambda response: response.entropy),
    "trace_right": _mean_of(lambda response: response.trace_right),
    "unanswered": _mean_of(lambda response: None if response.answered is None else not response.answered),
    "truncated": _mean_of(
        lambda response: None if response.finish_reason is None else response.finish_reason == "length"
    ),
    "similarity": lambda group: ngram_similarity(list(map(_text, group))),
    "distinct_right": _distinct_right,
    "in_format": _mean_of(_in_format),
    "empty_thinking": _mean_of(_empty_thinking),
    "repeated_4grams": _mean_of(lambda response: repeated_ngram_share(split_words(_text(response)))),
}
"""Measure -> its value for the responses to one problem; None: not known."""
