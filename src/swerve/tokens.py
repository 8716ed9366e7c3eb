"""Texts as token ids that say them: one after another, without unknown words, and with one end."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

_ANCHORS = ("", "\n", ".", "1")
"""What a text is read after to see which of its tokens say it; nothing first."""
_TAIL = 8
"""Tokens of a prompt that decide how the next one is decoded."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids with the characters each stands for; no offsets where the tokenizer has none."""

    ids: list[int]
    offsets: list[tuple[int, int]]

    def after(self, num: int, start: int) -> Tokens:
        """Return all but the first `num` tokens, of the text that begins at the character `start`."""
        offsets = [(max(begin - start, 0), max(end - start, 0)) for begin, end in self.offsets[num:]]
        return Tokens(self.ids[num:], offsets)


def tokenize(tokenizer: PreTrainedTokenizerBase, text: str, *, special: bool = True) -> Tokens:
    """Tokenise a text that may go on; `special`: with what the tokenizer adds before it, never what it adds after.

    Some tokenizers end every text with a token: a completion does not follow an end.
    """
    if not tokenizer.is_fast:
        ids = list(tokenizer(text, add_special_tokens=special)["input_ids"])
        plain = list(tokenizer(text, add_special_tokens=False)["input_ids"]) if special else ids
        added = len(ids) - len(plain)
        begin = next((num for num in range(added + 1) if ids[num : num + len(plain)] == plain), added)
        return Tokens(ids[: begin + len(plain)], [])
    encoded: Any = tokenizer(
        text, add_special_tokens=special, return_offsets_mapping=True, return_special_tokens_mask=True
    )
    ids, offsets = list(encoded["input_ids"]), [(int(start), int(end)) for start, end in encoded["offset_mapping"]]
    length = len(ids)
    while length > 1 and encoded["special_tokens_mask"][length - 1]:
        length -= 1
    return Tokens(ids[:length], offsets[:length])


def tokens_after(
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    prompt_ids: Sequence[int],
    text: str,
    *,
    special: bool = False,
) -> tuple[Tokens, bool]:
    """Return the tokens of a text that follows a prompt, and whether both are tokens of one text.

    Where the tokens of both as one text begin with the prompt's, they are the others. Else the text is tokenised apart:
    as it stands, or in the middle of a text where only this says it (SentencePiece begins a text with a space).

    Args:
        tokenizer: of the model that reads them.
        prompt: the prompt's text.
        prompt_ids: its tokens.
        text: what follows.
        special: whether the prompt's tokens have what the tokenizer adds before a text.
    """
    # As one text, where its tokens begin with the prompt's.
    num = len(prompt_ids)
    joint = tokenize(tokenizer, prompt + text, special=special)
    if joint.ids[:num] == list(prompt_ids):
        return joint.after(num, len(prompt)), True

    # Apart: as it stands, or in the middle of a text.
    tail = list(prompt_ids[-_TAIL:])
    said = decoded(tokenizer, tail) + text
    for anchor in _ANCHORS:
        head = tokenize(tokenizer, anchor, special=False).ids if anchor else []
        both = tokenize(tokenizer, anchor + text, special=False)
        if both.ids[: len(head)] == head and decoded(tokenizer, [*tail, *both.ids[len(head) :]]) == said:
            return both.after(len(head), len(anchor)), False
    return tokenize(tokenizer, text, special=False), False


def decoded(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> str:
    """Return the text of tokens as it is, special tokens included."""
    return str(tokenizer.decode(list(token_ids), clean_up_tokenization_spaces=False))


def concatenates(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether tokens of two texts say the one text that both make, as those of byte-level BPE do."""
    ids = tokenize(tokenizer, "1", special=False).ids
    return decoded(tokenizer, [*ids, *ids]) == "11"


def has_unknown(tokenizer: PreTrainedTokenizerBase, tokens: Tokens, text: str) -> bool:
    """Whether a text has a word without a token: an unknown token in a place where the text does not write it.

    Some tokenizers name a special token, such as the end of a text, as their unknown one.
    """
    unknown = tokenizer.unk_token_id
    if unknown is None or unknown not in tokens.ids:
        return False
    if not tokens.offsets:
        return tokens.ids.count(unknown) > text.count(str(tokenizer.unk_token))
    places = [span for token, span in zip(tokens.ids, tokens.offsets, strict=True) if token == unknown]
    return any(start < end and text[start:end].strip() != tokenizer.unk_token for start, end in places)


def with_end(
    tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int], end: int, stop_ids: Collection[int]
) -> tuple[int, ...]:
    """Return a completion's tokens to the stop token that it ends with, white space after it left out; else with `end`.

    Of several stop tokens at the end the first one counts: a model stops there.
    """
    stops, length = {end, *stop_ids}, len(token_ids)
    if stops.isdisjoint(token_ids):
        return (*token_ids, end)
    while length and (token_ids[length - 1] in stops or not decoded(tokenizer, [token_ids[length - 1]]).strip()):
        length -= 1
    first = next((place for place in range(length, len(token_ids)) if token_ids[place] in stops), None)
    return (*token_ids, end) if first is None else tuple(token_ids[: first + 1])
