"""Texts as token ids that say them: one after another, without unknown words, and with one end."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from swerve.errors import ConfigError

_ANCHORS = ("", "\n", ".", "1")
"""What a text is read after to see which of its tokens say it; nothing first."""
_TAIL = 8
"""Tokens of a prompt that decide how the next one is decoded."""
CUT = "\ufdd0"
"""Stands in a text where no token reaches across, so that the text of a special token is no such token. It is a code
point that Unicode keeps free of meaning; `tokenize` takes it out."""
_SPECIAL = "_texts_of_its_special_tokens"
_NUM_IDS = "_num_ids_of_its_model"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token ids with the characters each stands for; no offsets where the tokenizer has none."""

    ids: list[int]
    offsets: list[tuple[int, int]]

    def after(self, num: int, start: int) -> Tokens:
        """Return all but the first `num` tokens, of the text that begins at the character `start`."""
        offsets = [(max(begin - start, 0), max(end - start, 0)) for begin, end in self.offsets[num:]]
        return Tokens(self.ids[num:], offsets)


def special_texts(tokenizer: PreTrainedTokenizerBase) -> re.Pattern[str]:
    """Return what finds the first character of a special token's text; the group `token` is the whole."""
    known = getattr(tokenizer, _SPECIAL, None)
    if known is None or known[0] != len(tokenizer):
        added = [token for token in tokenizer.added_tokens_decoder.values() if token.special and len(token.content) > 1]
        longest_first = sorted(added, key=lambda token: -len(token.content))
        # A normaliser may lower what the tokenizer looks for a token in.
        texts = [
            f"(?i:{re.escape(one.content)})" if one.normalized else re.escape(one.content) for one in longest_first
        ]
        pattern = re.compile(f"(?=(?P<token>{'|'.join(texts) or '(?!)'})).", re.DOTALL)
        known = len(tokenizer), pattern
        setattr(tokenizer, _SPECIAL, known)
    return known[1]


def as_text(tokenizer: PreTrainedTokenizerBase, text: str, kept: Collection[str] = ()) -> str:
    """Return a text in which special tokens' texts, but for those that are kept, are cut: they are read as text."""
    return special_texts(tokenizer).sub(lambda at: at[0] if at["token"] in kept else at[0] + CUT, text)


def uncut(text: str) -> str:
    """Return a text without its cuts."""
    return text.replace(CUT, "")


def tokenize(tokenizer: PreTrainedTokenizerBase, text: str, *, special: bool = True) -> Tokens:
    """Tokenise a text that may go on; `special`: with what the tokenizer adds before it, never what it adds after.

    Some tokenizers end every text with a token: a completion does not follow an end. Offsets are of the uncut text.
    """
    first, *others = text.split(CUT)
    tokens, length = _tokenize_part(tokenizer, first, special=special), len(first)
    for part in filter(None, others):
        following = _apart(tokenizer, tokens.ids, part)
        offsets = [(start + length, end + length) for start, end in following.offsets]
        tokens = Tokens([*tokens.ids, *following.ids], [*tokens.offsets, *offsets])
        length += len(part)
    return tokens


def _tokenize_part(tokenizer: PreTrainedTokenizerBase, text: str, *, special: bool) -> Tokens:
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
        return joint.after(num, len(uncut(prompt))), True
    return _apart(tokenizer, prompt_ids, text), False


def _apart(tokenizer: PreTrainedTokenizerBase, prompt_ids: Sequence[int], text: str) -> Tokens:
    """Return the tokens of a text after others: as it stands, or as in the middle of a text where only this says it."""
    tail = list(prompt_ids[-_TAIL:])
    said = decoded(tokenizer, tail) + uncut(text)
    for anchor in _ANCHORS:
        head = tokenize(tokenizer, anchor, special=False).ids if anchor else []
        both = tokenize(tokenizer, anchor + text, special=False)
        if both.ids[: len(head)] == head and decoded(tokenizer, [*tail, *both.ids[len(head) :]]) == said:
            return both.after(len(head), len(anchor))
    return tokenize(tokenizer, text, special=False)


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
    text, unknown = uncut(text), tokenizer.unk_token_id
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


def num_ids(tokenizer: PreTrainedTokenizerBase) -> int:
    """Return how many ids a tokenizer has, added tokens included: the largest and those below it."""
    return 1 + max(tokenizer.get_vocab().values(), default=-1)


def limit_ids(tokenizer: PreTrainedTokenizerBase, num_embeddings: int) -> None:
    """Note how many ids the tokenizer's model can read: a text with a larger one is refused when it is encoded."""
    setattr(tokenizer, _NUM_IDS, num_embeddings)


def readable(tokenizer: PreTrainedTokenizerBase, ids: list[int], place: str) -> list[int]:
    """Return token ids that the model can read; `place` says which text they are of.

    Raises:
        ConfigError: the model has no embedding for one; see `limit_ids`.
    """
    limit = getattr(tokenizer, _NUM_IDS, math.inf)
    for number, token in enumerate(ids, start=1):
        if token >= limit:
            raise ConfigError(
                f"token {number} of {place} is {tokenizer.convert_ids_to_tokens(token)!r} (id {token}), and the model "
                f"has embeddings for {limit} tokens only; leave it out of the text"
            )
    return ids
