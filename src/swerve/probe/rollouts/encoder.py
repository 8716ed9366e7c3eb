"""Responses as token ids: each is tokenised once, after its own problem's prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.messages import is_thought_and_text
from swerve.artifacts.responses import Response
from swerve.errors import ArtifactError, ConfigError
from swerve.probe.rollouts.tokenise import (
    Boundary,
    EncodedResponse,
    conversation_tokens,
    encode_after_ids,
    encode_pieces,
    encode_response,
    token_spans,
)
from swerve.prompts.conversations import conversation_pieces
from swerve.prompts.encode import encode_prompts, looks_words_up, prompt_texts
from swerve.prompts.templates import TemplateArguments, as_response, turn_end, with_thought
from swerve.sandbox.bounded import BoundedCallError, call_each
from swerve.sandbox.limits import shared_limits
from swerve.tokens import as_text, decoded
from swerve.types import Problem, Prompt

_BOUNDARIES: Mapping[str, Boundary] = {"joint": "joint", "split": "split"}


TOO_LONG = "too long for the tokenizer"
"""How the reason begins for which a response of many characters is left out."""
_Asked = tuple[Response, tuple[Prompt, str] | None, list[str] | None]
"""A response, its prompt through the chat template, and the pieces of its turns."""


@dataclass(frozen=True, slots=True)
class ResponseEncoder:
    """Turns responses into tokens; see `import_responses`."""

    tokenizer: PreTrainedTokenizerBase
    template: Literal["auto", "raw"] = "auto"
    ends: Literal["none", "eos"] = "none"
    arguments: TemplateArguments = field(default_factory=TemplateArguments)
    """Of the chat template."""

    def encode_all(self, records: Sequence[Response], unread: Counter[str] | None = None) -> dict[int, EncodedResponse]:
        """Return the tokens of responses by their numbers; ids that they have are taken as they are.

        Args:
            records: the responses.
            unread: counts, by reason, responses that are left out: of several turns that no one sequence of tokens
                holds, or too long for the tokenizer's limits; None: such a response is an error.

        Raises:
            ArtifactError: a text has no tokens, or the tokenizer has none for a word or an id of it, or fails on it.
            ConfigError: end-of-sequence tokens are asked for and the tokenizer has none; the chat template fails.
        """
        records = list(map(self._inline, records))
        through = [number for number, record in enumerate(records) if self._goes_through_template(record)]
        problems = [records[number].problem for number in through]
        pieces = self._pieces(records, unread)
        prompts = zip(
            encode_prompts(self.tokenizer, problems, self.arguments),
            prompt_texts(self.tokenizer, problems, self.arguments),
            strict=True,
        )
        templated = dict(zip(through, prompts, strict=True))
        kept = [number for number in range(len(records)) if isinstance(pieces.get(number, []), list)]
        asked = [(records[number], templated.get(number), pieces.get(number)) for number in kept]
        # First where it may fail, then here: the tokens are too many to be sent.
        fails = set[int]() if looks_words_up(self.tokenizer) else self._failing(asked, unread)
        return {
            number: self._encode_record(*parts)
            for place, (number, parts) in enumerate(zip(kept, asked, strict=True))
            if place not in fails
        }

    def _failing(self, asked: Sequence[_Asked], unread: Counter[str] | None) -> set[int]:
        """Return the places of responses that the tokenizer reaches a limit on, because they are long.

        Raises:
            ArtifactError: it fails on another one, or `unread` is None.
        """
        fails, limits, start = set[int](), shared_limits(), 0
        count = lambda record: len(self._encode_record(*record).completion_ids)  # noqa: E731
        while start < len(asked):
            left = asked[start:]
            num_chars = sum(len(record.text or "") + len(record.prompt or "") for record, _, _ in left)
            num_chars += sum(len(text) for _, _, texts in left for text in texts or ())
            try:
                call_each(count, left, limits, num_chars=num_chars)
                break
            except BoundedCallError as error:
                start += error.number + 1
                record = left[error.number][0]
                if unread is None or len(record.text or "") <= limits.max_chars:
                    raise ArtifactError(
                        f"{record.place}: the tokenizer of {self.tokenizer.name_or_path} (tokenizer.json) "
                        f"fails on the response: {error}; leave the record out, or give another model"
                    ) from None
                fails.add(start - 1)
                unread[f"{TOO_LONG}, {error}: {record.problem.id!r} ({record.place})"] += 1
        return fails

    def _inline(self, record: Response) -> Response:
        """Return a response whose one message is a thought and a text as one text, where it is still to be encoded."""
        if record.completion_ids or not record.turns or not is_thought_and_text(record.turns):
            return record
        return replace(record, text=with_thought(self._words, record.turns[0], self.arguments), turns=())

    @property
    def _words(self) -> Any:
        """The tokenizer, without its chat template where texts are raw."""
        if self.template == "auto":
            return self.tokenizer
        words: Any = copy(self.tokenizer)
        words.chat_template = None
        return words

    def _pieces(self, records: Sequence[Response], unread: Counter[str] | None) -> dict[int, list[str] | None]:
        """Return the pieces of texts of several turns by the numbers of their responses; None: left out."""
        turned = [number for number, record in enumerate(records) if record.turns and not record.completion_ids]
        told = [(records[number].problem, records[number].turns) for number in turned]
        split = conversation_pieces(self._words, told, self.arguments)
        pieces: dict[int, list[str] | None] = {}
        for number, parts in zip(turned, split, strict=True):
            record = records[number]
            if record.prompt is not None:
                parts = "its prompt is a text, which does not say how turns are separated"
            if isinstance(parts, str):
                if unread is None:
                    raise ArtifactError(f"{record.place} cannot be read as tokens: {parts}")
                unread[parts] += 1
            pieces[number] = None if isinstance(parts, str) else parts
        return pieces

    def _goes_through_template(self, record: Response) -> bool:
        is_given = record.prompt_ids or record.completion_ids or record.prompt is not None or record.turns
        is_templated = self.template == "auto" and bool(self.tokenizer.chat_template)
        return is_templated and not is_given and bool(record.text)

    def _encode_record(
        self, record: Response, templated: tuple[Prompt, str] | None, pieces: Sequence[str] | None = None
    ) -> EncodedResponse:
        if record.completion_ids:
            return self._given(record)
        if pieces is not None:
            bare = self.template == "raw" or not self.tokenizer.chat_template
            try:
                encoded = encode_pieces(self.tokenizer, pieces, add_special_tokens=bare)
            except ValueError as error:
                raise ArtifactError(f"{record.place}: {error}") from None
            return self._ended(replace(encoded, written=record.text or encoded.written))
        if not record.text:
            raise ArtifactError(f"{record.place}: response is empty; leave the record out or give the text")
        try:
            encoded = self._encode(record, record.text, templated)
        except ValueError as error:
            raise ArtifactError(f"{record.place}: {error}") from None
        return self._ended(encoded)

    def _encode(self, record: Response, text: str, templated: tuple[Prompt, str] | None) -> EncodedResponse:
        end = turn_end(self.tokenizer)
        text = as_response(self.tokenizer, text, () if end is None else [decoded(self.tokenizer, [end])])
        if record.prompt_ids:
            return encode_after_ids(self.tokenizer, record.prompt_ids, text)
        if templated is not None:
            prompt, filled = templated
            return encode_after_ids(self.tokenizer, prompt.token_ids, text, prompt=filled)
        bare = as_text(self.tokenizer, _bare_text(record.problem))
        return self._after_text(bare if record.prompt is None else record.prompt, text)

    def _after_text(self, prompt: str, response: str) -> EncodedResponse:
        begin = self.tokenizer.bos_token
        already = isinstance(begin, str) and prompt.startswith(begin)  # a rendered template brings its begin token
        return encode_response(self.tokenizer, prompt, response, add_special_tokens=not already)

    def _given(self, record: Response) -> EncodedResponse:
        """Take ids as they are: no text is tokenised, and no end is added."""
        ids, text, spans = record.completion_ids, record.text, record.spans
        if not record.is_one_turn:
            prompt = str(self.tokenizer.decode(list(record.prompt_ids), skip_special_tokens=True))
            encoded = conversation_tokens(
                self.tokenizer, record.prompt_ids, ids, record.sampled, prompt=prompt, boundary="ids"
            )
            return encoded if text is None else replace(encoded, written=text)
        if not spans or text is None:
            text = str(self.tokenizer.decode(list(ids), skip_special_tokens=True))
            spans = tuple(token_spans(self.tokenizer, ids, text))
        return EncodedResponse(
            prompt=str(self.tokenizer.decode(list(record.prompt_ids), skip_special_tokens=True)),
            text=text,
            prompt_ids=record.prompt_ids,
            completion_ids=ids,
            spans=spans,
            boundary=_BOUNDARIES.get(record.boundary or "", "ids"),
        )

    def _ended(self, encoded: EncodedResponse) -> EncodedResponse:
        if self.ends == "none":
            return encoded
        end = turn_end(self.tokenizer) if self.template == "auto" else None
        end = self.tokenizer.eos_token_id if end is None else end
        if end is None:
            raise ConfigError("the tokenizer has no end-of-sequence token to add; leave the responses without one")
        if encoded.completion_ids[-1] in (end, self.tokenizer.eos_token_id):
            return encoded
        length = len(encoded.text)
        return replace(
            encoded,
            completion_ids=(*encoded.completion_ids, int(end)),
            spans=(*encoded.spans, (length, length)),
            sampled=(*encoded.sampled, True) if encoded.sampled else (),
        )


def _bare_text(problem: Problem) -> str:
    """Return the texts of a prompt as a model without a chat template reads them."""
    texts = [text for _, text in problem.messages] or [problem.question]
    return "\n\n".join([*texts, *([problem.prefix] if problem.prefix else [])])
