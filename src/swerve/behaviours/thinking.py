"""Thinking that is none: empty, a few words, filler, or about something else."""

from __future__ import annotations

from typing import Literal

from swerve.behaviours.words import split_words

__all__ = ["MIN_WORDS", "DummyThinking", "content_words", "dummy_thinking"]

DummyThinking = Literal["empty", "filler", "short", "off_question"]
MIN_WORDS = 5
"""Thinking of fewer words is short."""

_MIN_QUESTION_WORDS = 3
_MAX_REPEATED_WORDS = 2
# Words of the placeholders that models copy from prompts: "reasoning process here", "let me think".
_FILLER = frozenset(
    split_words(
        """a about an answer carefully final first go here hmm i i'll is it let let's me my need now of ok okay on
        process problem question reasoning should so solution some step step-by-step steps the then there think
        thinking this thought thoughts time to um use well will with your"""
    )
)
_FUNCTION_WORDS = frozenset(
    split_words(
        """about after all also and any are been but can could did does each every following for from given had has
        have her here him his how into its let may more most must not one only other our out over per same shall
        she should some such than that the their them then there these they this those too two under was way
        were what when where which while who whom whose why will with would you your"""
    )
)


def content_words(text: str) -> frozenset[str]:
    """Return the words that say what a text is about: numbers, and words of three letters or more but function words.

    >>> sorted(content_words("What is the sum of 12 and 7?"))
    ['12', '7', 'sum']
    """
    return frozenset(
        word
        for word in split_words(text)
        if any(character.isdigit() for character in word) or (len(word) > 2 and word not in _FUNCTION_WORDS)
    )


def dummy_thinking(thinking: str, question: str | None = None, *, min_words: int = MIN_WORDS) -> DummyThinking | None:
    """Return why a thinking region is no thinking, or None where nothing speaks against it.

    The first that holds: `empty`, no letter and no digit; `filler`, only words of the stock placeholders ("reasoning
    process here"), or five words and more of which no more than two differ; `short`, fewer than `min_words` words;
    `off_question`, none of the question's content words (`content_words`) occurs, of a question that has three or more.

    Wrongly flagged are trivial problems whose whole solution is `2 + 2`, and thinking in another language than the
    question. Nonsense that names one word of the question is not found.

    >>> dummy_thinking(" ... "), dummy_thinking("The reasoning process here."), dummy_thinking("Zoe lies, so Bob does")
    ('empty', 'filler', None)
    >>> dummy_thinking("the weather will be fine today again", "What is the sum of 12 and 7?")
    'off_question'
    """
    words = split_words(thinking)
    if not words:
        return "empty"
    distinct = set(words)
    if distinct <= _FILLER or (len(words) >= MIN_WORDS and len(distinct) <= _MAX_REPEATED_WORDS):
        return "filler"
    if len(words) < min_words:
        return "short"
    asked = frozenset[str]() if question is None else content_words(question)
    if len(asked) >= _MIN_QUESTION_WORDS and not asked & distinct:
        return "off_question"
    return None
