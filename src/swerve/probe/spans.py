"""Which characters of a completion's text each of its tokens stands for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase

from swerve.types import StepMark

__all__ = ["marked_positions", "token_spans"]


def token_spans(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int], text: str) -> list[tuple[int, int]]:
    """Return the (start, end) character offsets of each token in `text`, the completion decoded as a whole.

    The span of token t is what decoding one more token adds to the text. Special tokens have an empty span, and so has
    a token that holds only part of a character (the token that completes it gets the character). Spans touch and
    together cover the text.
    """
    ends = _streamed_ends(tokenizer, token_ids)
    if ends is None or (ends and ends[-1] != len(text)):
        ends = _prefix_ends(tokenizer, token_ids, text)
    return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []


def _streamed_ends(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> list[int] | None:
    """Decode incrementally, in linear time; None for tokenizers that cannot."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    stream = DecodeStream(skip_special_tokens=True)
    ends, length = [], 0
    for token_id in token_ids:
        length += len(stream.step(backend, int(token_id)) or "")
        ends.append(length)
    return ends


def _prefix_ends(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int], text: str) -> list[int]:
    """Decode every prefix: quadratic, for the rare text whose pieces do not add up to the whole."""
    ends: list[int] = []
    for count in range(1, len(token_ids) + 1):
        prefix = str(tokenizer.decode(list(token_ids[:count]), skip_special_tokens=True))
        common = next((i for i, (a, b) in enumerate(zip(prefix, text, strict=False)) if a != b), None)
        agreed = min(len(prefix), len(text)) if common is None else common
        ends.append(max(agreed, ends[-1] if ends else 0))
    if ends:
        ends[-1] = len(text)
    return ends


def marked_positions(marks: Iterable[StepMark], spans: Sequence[tuple[int, int]]) -> dict[int, str]:
    """Return the wrong positions, ascending, each with what a right step has there.

    A mark falls on every token whose span overlaps it. One that overlaps none (a text that ends too early) falls on the
    first token that starts at or after it, such as the end-of-sequence token. Of two marks on a token the first counts.

    >>> marked_positions([StepMark(start=4, end=5, expected="1")], [(0, 3), (3, 5), (5, 7)])
    {1: '1'}
    """
    found: dict[int, str] = {}
    for mark in sorted(marks, key=lambda mark: (mark.start, mark.end)):
        touched = [t for t, (start, end) in enumerate(spans) if max(start, mark.start) < min(end, mark.end)]
        following = [t for t, (start, _) in enumerate(spans) if start >= mark.start]
        for position in touched or following[:1]:
            found.setdefault(position, mark.expected)
    return dict(sorted(found.items()))
