"""Responses that Python hands to the probe, in any form, as token ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.responses import IMPORTED, Response
from swerve.errors import ConfigError
from swerve.formats.imported_responses import check_prompts, responses_of
from swerve.formats.records import Record
from swerve.probe.rollouts.imported import ResponseEncoder, import_responses
from swerve.probe.rollouts.tokenise import token_spans
from swerve.tokens import tokenize
from swerve.types import Problem

_SUFFIXES = (".json", ".jsonl", ".csv", ".parquet", ".gz")


def given_sequences(
    responses: Any,
    tokenizer: PreTrainedTokenizerBase | None,
    *,
    template: Literal["auto", "raw"] = "auto",
    ends: Literal["none", "eos"] = "none",
) -> list[Response]:
    """Return responses with their token ids.

    Args:
        responses: a file of responses, or a list whose entries are any of: a text (its first token is the prompt);
            (prompt, response) as texts, the prompt just as the model reads it, or as a list of messages that goes
            through the chat template; (prompt ids, completion ids); a mapping such as a line of a file; a `Response`.
        tokenizer: of the models; None: the entries are ids.
        template: auto: the chat template around messages and problems, where the tokenizer has one; raw: their text.
        ends: eos: the token that ends a turn is added to responses that are texts after a prompt.

    Raises:
        ConfigError: an entry is not one of these, or is text and there is no tokenizer.
        ArtifactError: the file, or an entry, cannot be read as tokens.
    """
    if isinstance(responses, Path) or (isinstance(responses, str) and responses.endswith(_SUFFIXES)):
        path, words = Path(responses), _needed(tokenizer)
        return list(import_responses(path, tokenizer=words, template=template, ends=ends).sequences)

    # Texts with their prompt are encoded together; all else one by one.
    is_one = isinstance(responses, str) or (isinstance(responses, tuple) and all(isinstance(x, str) for x in responses))
    entries = [responses] if is_one else list(responses)
    records = {number: values for number, entry in enumerate(entries) if (values := _record(entry)) is not None}
    sequences: dict[int, Response] = {}
    if records:
        encoder = ResponseEncoder(_needed(tokenizer), template=template, ends=ends)
        sequences.update(zip(records, _encoded(records, encoder), strict=True))
    for number, entry in enumerate(entries):
        if number not in records:
            sequences[number] = _tokens(entry, number, tokenizer)
    return [sequences[number] for number in range(len(entries))]


def _tokens(entry: Any, number: int, tokenizer: PreTrainedTokenizerBase | None) -> Response:
    """Return an entry that is a text, a `Response` or a pair of token ids."""
    if isinstance(entry, Response) and entry.prompt_ids and entry.completion_ids:
        return entry
    parts = entry
    if isinstance(entry, str):
        ids = tokenize(_needed(tokenizer), entry, special=True).ids
        if len(ids) < 2:
            raise ConfigError(f"response {number}: a text needs two tokens, the first of which is the prompt")
        parts = ids[:1], ids[1:]
    if isinstance(parts, Sequence) and len(parts) == 2 and not any(isinstance(part, str) for part in parts):
        unknown = Problem(id=f"response {number}", family=IMPORTED, question="", answer="")
        return Response(problem=unknown, prompt_ids=tuple(parts[0]), completion_ids=tuple(parts[1]))
    raise ConfigError(
        f"response {number} is {entry!r:.60}; give a text, a pair (prompt, response) of texts or of token ids, or a "
        "mapping with prompt and response"
    )


def token_texts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """Return the piece of the text that each token stands for; special tokens by their names."""
    text = str(tokenizer.decode(list(ids), skip_special_tokens=True))
    spans = token_spans(tokenizer, ids, text)
    pieces = zip(ids, spans, strict=True)
    return [text[start:end] or str(tokenizer.decode([int(token)])) for token, (start, end) in pieces]


def _record(entry: Any) -> Mapping[str, Any] | None:
    """Return a mapping, or a prompt with its response, as a record of a file; None: the entry is something else."""
    if isinstance(entry, Mapping):
        return entry
    is_pair = isinstance(entry, Sequence) and not isinstance(entry, str) and len(entry) == 2
    if not is_pair or not isinstance(entry[1], str):
        return None
    prompt, response = entry
    if isinstance(prompt, str):
        return {"prompt": prompt, "response": response}
    return {"messages": list(prompt), "response": response}


def _encoded(records: Mapping[int, Mapping[str, Any]], encoder: ResponseEncoder) -> list[Response]:
    """Return records with their tokens, each of which has an id of its own unless it brings one."""
    numbered = [Record(f"response {number}", {"id": str(number), **values}) for number, values in records.items()]
    read = list(responses_of(Path("responses"), numbered))
    check_prompts(Path("responses"), read)
    return [entry.put_into(read[number]) for number, entry in encoder.encode_all(read).items()]


def _needed(tokenizer: PreTrainedTokenizerBase | None) -> PreTrainedTokenizerBase:
    if tokenizer is None:
        raise ConfigError("the responses are texts and the models bring no tokenizer; give tokenizer=")
    return tokenizer
