"""Token ids of a prompt and a response, and the characters of the text that each token stands for.

Prompt and response are tokenised as one text, which is cut where the prompt's own tokens end.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase

from swerve.artifacts.messages import is_thought_and_text
from swerve.artifacts.responses import Response
from swerve.tokens import Tokens, concatenates, decoded, has_unknown, tokenize, tokens_after, uncut
from swerve.types import StepMark

Boundary = Literal["joint", "split", "ids"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedResponse:
    """A prompt and a response as token ids."""

    prompt: str
    text: str
    """The response."""
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    """Character offsets of each completion token in `text`; they touch and begin at 0."""
    boundary: Boundary
    """joint: tokenised together, no token across the boundary; split: tokenised apart, or the boundary is between two
    words of which decoding may have dropped the space; ids: came as token ids."""
    sampled: tuple[bool, ...] = ()
    """Of several turns: of each completion token whether the model wrote it. Then `text` is all turns, decoded."""
    written: str = ""
    """Of several turns: what the model wrote in them."""

    def put_into(self, response: Response) -> Response:
        """Return a response with these tokens; its prompt's text stays as it was given, and so do several turns.

        A thought that was kept apart is in the text, as the tokens are.
        """
        tokens: Any = {name: getattr(self, name) for name in ("prompt_ids", "completion_ids", "boundary", "sampled")}
        text: Any = {"text": self.written, "spans": ()} if self.sampled else {"text": self.text, "spans": self.spans}
        is_one_text = not self.sampled and is_thought_and_text(response.turns)
        return replace(response, **tokens, **text, turns=() if is_one_text else response.turns)


def encode_response(
    tokenizer: PreTrainedTokenizerBase, prompt: str, response: str, *, add_special_tokens: bool = True
) -> EncodedResponse:
    """Tokenise a prompt and its response as one text and cut between them where the prompt's own tokens end.

    Where a token reaches across the cut both are tokenised apart, so that the tokens say the two texts if any do.

    Args:
        tokenizer: of the models.
        prompt: the text that the model read, perhaps with cuts (`tokens.CUT`).
        response: the text that it wrote, likewise; with at least one token.
        add_special_tokens: whether the tokenizer puts its own tokens, such as a begin token, before the prompt.

    Raises:
        ValueError: prompt or response has no tokens, or the tokenizer has none for a word of one.
    """
    before = tokenize(tokenizer, prompt, special=add_special_tokens)
    if not before.ids:
        raise ValueError("the prompt has no tokens; a position needs tokens before it")
    _check_known(tokenizer, before, prompt, "prompt")
    return _encode_after(tokenizer, prompt, tuple(before.ids), response, special=add_special_tokens)


def encode_after_ids(
    tokenizer: PreTrainedTokenizerBase, prompt_ids: tuple[int, ...], response: str, *, prompt: str | None = None
) -> EncodedResponse:
    """Tokenise a response after a prompt that is given as ids, such as a filled chat template.

    Together with the prompt's text where that text has the prompt's own ids again, else apart.

    Args:
        tokenizer: of the models.
        prompt_ids: what the model read.
        response: the text that it wrote; with at least one token.
        prompt: the text whose tokens `prompt_ids` are, no special token added; None: what they decode to.

    Raises:
        ValueError: the response has no tokens, or the tokenizer has none for a word of it.
    """
    return _encode_after(tokenizer, prompt or decoded(tokenizer, prompt_ids), prompt_ids, response, special=False)


def encode_pieces(
    tokenizer: PreTrainedTokenizerBase, pieces: Sequence[str], *, add_special_tokens: bool
) -> EncodedResponse:
    """Tokenise a conversation in pieces: a prompt, what the model wrote, what answered it, and so on in turn.

    Each piece is tokenised with all before it where their tokens stay as they are, else apart.

    Args:
        tokenizer: of the models.
        pieces: the texts; see `conversation_pieces`.
        add_special_tokens: whether the tokenizer puts its own tokens before the prompt.

    Raises:
        ValueError: prompt or response has no tokens, or the tokenizer has none for a word of one.
    """
    prompt, *others = pieces
    before = tokenize(tokenizer, prompt, special=add_special_tokens)
    if not before.ids:
        raise ValueError("the prompt has no tokens; a position needs tokens before it")
    _check_known(tokenizer, before, prompt, "prompt")
    said, ids, sampled = prompt, list(before.ids), list[bool]()
    for number, piece in enumerate(others):
        tokens, _ = tokens_after(tokenizer, said, ids, piece, special=add_special_tokens)
        _check_known(tokenizer, tokens, piece, "conversation")
        said, ids = said + piece, [*ids, *tokens.ids]
        sampled += [number % 2 == 0] * len(tokens.ids)
    if True not in sampled:
        raise ValueError("the response has no tokens; there is no position to look at")
    num_prompt = len(before.ids)
    end = num_prompt + len(sampled) - sampled[::-1].index(True)
    return conversation_tokens(
        tokenizer, ids[:num_prompt], ids[num_prompt:end], sampled[: end - num_prompt], prompt=prompt, boundary="split"
    )


def conversation_tokens(
    tokenizer: PreTrainedTokenizerBase,
    prompt_ids: Sequence[int],
    completion_ids: Sequence[int],
    sampled: Sequence[bool],
    *,
    prompt: str,
    boundary: Boundary,
) -> EncodedResponse:
    """Return the tokens of several turns, whose text is decoded: special tokens are not in it."""
    text = str(tokenizer.decode(list(completion_ids), skip_special_tokens=True))
    spans = token_spans(tokenizer, completion_ids, text)
    # What the model wrote: runs of sampled tokens.
    runs = groupby(zip(sampled, spans, strict=True), key=itemgetter(0))
    written = [[text[slice(*span)] for _, span in run] for is_sampled, run in runs if is_sampled]
    return EncodedResponse(
        prompt=prompt,
        text=text,
        prompt_ids=tuple(prompt_ids),
        completion_ids=tuple(completion_ids),
        spans=tuple(spans),
        boundary=boundary,
        sampled=() if all(sampled) else tuple(sampled),
        written="\n\n".join(map("".join, written)),
    )


def _encode_after(
    tokenizer: PreTrainedTokenizerBase, prompt: str, prompt_ids: tuple[int, ...], response: str, *, special: bool
) -> EncodedResponse:
    tokens, is_joint = tokens_after(tokenizer, prompt, prompt_ids, response, special=special)
    if not tokens.ids:
        raise ValueError("the response has no tokens; there is no position to look at")
    _check_known(tokenizer, tokens, response, "response")
    # Decoding alone may have dropped a space between two words: then the first token is a guess.
    prompt, response = uncut(prompt), uncut(response)
    touches = not (prompt[-1:].isspace() or response[:1].isspace()) and not concatenates(tokenizer)
    return EncodedResponse(
        prompt=prompt,
        text=response,
        prompt_ids=prompt_ids,
        completion_ids=tuple(tokens.ids),
        spans=_touching(tokenizer, tokens, response),
        boundary="joint" if is_joint and not touches else "split",
    )


def _check_known(tokenizer: PreTrainedTokenizerBase, tokens: Tokens, text: str, what: str) -> None:
    if has_unknown(tokenizer, tokens, text):
        raise ValueError(
            f"the tokenizer has no token for a word of the {what}; give models whose vocabulary covers the text"
        )


def _touching(tokenizer: PreTrainedTokenizerBase, pieces: Tokens, text: str) -> tuple[tuple[int, int], ...]:
    """Return spans that touch and cover the text; of tokens that share a character the last one has it."""
    if not pieces.offsets:
        return tuple(token_spans(tokenizer, pieces.ids, text))
    starts = [start for start, _ in pieces.offsets[1:]] + [len(text)]
    ends: list[int] = []
    for (_, end), following in zip(pieces.offsets, starts, strict=True):
        ends.append(max(min(end, following), ends[-1] if ends else 0))
    ends[-1] = len(text)
    return tuple(zip([0, *ends[:-1]], ends, strict=True))


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


_SENTENCE_ENDS = re.compile(r"[.!?][\"')\]*_\u2019\u201d]*(?=\s)|(?=\n)")
_LEAST_OF_SENTENCE = 3


def sentence_spans(text: str) -> list[tuple[int, int]]:
    r"""Return where each sentence of a text begins and ends; together they are the whole text.

    A sentence ends with `.`, `!` or `?` before white space, or where its line ends; white space belongs to the sentence
    after it. A piece with fewer than three letters and digits, such as the number of a list's entry, is part of the
    next one. Abbreviations are not known: `e.g. 5` is cut in two.

    >>> text = "First, 3.5 + 2 = 5.5.\n1. So she has 6!"
    >>> [text[start:end] for start, end in sentence_spans(text)]
    ['First, 3.5 + 2 = 5.5.', '\n1. So she has 6!']
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for end in (*(match.end() for match in _SENTENCE_ENDS.finditer(text)), len(text)):
        if sum(map(str.isalnum, text[start:end])) >= _LEAST_OF_SENTENCE:
            spans.append((start, end))
            start = end
    if start < len(text):  # what is left is no sentence of its own
        first = spans.pop()[0] if spans else 0
        spans.append((first, len(text)))
    return spans


def starting_tokens(starts: Sequence[int], spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return the first token of each piece of a text; one that holds characters of two pieces is the last of the first.

    >>> starting_tokens([0, 4, 6], [(0, 3), (3, 5), (5, 7), (7, 9)])
    [0, 2, 3]
    """
    begins = [begin for begin, _ in spans]
    return [0, *(bisect_left(begins, start) for start in starts[1:])]


def marked_positions(marks: Iterable[StepMark], spans: Sequence[tuple[int, int]]) -> dict[int, str]:
    """Return the wrong positions, ascending, each with what a right step has there.

    A mark falls on every token whose span overlaps it. One that overlaps none (a text that ends too early) falls on the
    first token that starts at or after it, such as the end-of-sequence token. Of two marks on a token the first counts.

    >>> marked_positions([StepMark(start=4, end=5, expected="1")], [(0, 3), (3, 5), (5, 7)])
    {1: '1'}
    """
    expected: dict[int, str] = {}
    for mark in sorted(marks, key=lambda mark: (mark.start, mark.end)):
        touched = [t for t, (start, end) in enumerate(spans) if max(start, mark.start) < min(end, mark.end)]
        following = [t for t, (start, _) in enumerate(spans) if start >= mark.start]
        for position in touched or following[:1]:
            expected.setdefault(position, mark.expected)
    return dict(sorted(expected.items()))
