"""Responses that Python hands to the probe, in any form, as token ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.given_rows import rows_of
from swerve.artifacts.responses import IMPORTED, Response
from swerve.errors import ConfigError, shown
from swerve.probe.rollouts.encoder import ResponseEncoder
from swerve.probe.rollouts.tokenise import token_spans
from swerve.prompts.templates import as_response
from swerve.tokens import tokenize
from swerve.types import Problem

_SUFFIXES = (".json", ".jsonl", ".csv", ".parquet", ".arrow", ".gz", ".zst")


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
            through the chat template; a list of messages, whose last one of the assistant is the response and those
            before it the prompt; (prompt ids, completion ids); a mapping such as a line of a file; a `Response`. One
            list of messages alone is one response. A table (pandas, polars, pyarrow, datasets, a mapping of columns) is
            read by row, as such mappings.
        tokenizer: of the models; None: the entries are ids.
        template: auto: the chat template around messages and problems, where the tokenizer has one; raw: their text.
        ends: eos: the token that ends a turn is added to responses that are texts after a prompt.

    Raises:
        ConfigError: an entry is not one of these, or is text and there is no tokenizer.
        ArtifactError: the file, or an entry, cannot be read as tokens.
    """
    if isinstance(responses, Path) or (isinstance(responses, str) and responses.endswith(_SUFFIXES)):
        from swerve.probe.rollouts.imported import import_responses

        path, words = Path(responses), _needed(tokenizer)
        return list(import_responses(path, tokenizer=words, template=template, ends=ends).sequences)

    # Texts with their prompt are encoded together; all else one by one.
    entries = _entries(responses)
    read = _read({number: entry for number, entry in enumerate(entries) if _has_text(entry)})
    sequences: dict[int, Response] = {}
    if read:
        encoder, records = ResponseEncoder(_needed(tokenizer), template=template, ends=ends), list(read.values())
        encoded = [entry.put_into(records[number]) for number, entry in encoder.encode_all(records).items()]
        sequences.update(zip(read, encoded, strict=True))
    for number, entry in enumerate(entries):
        if number not in read:
            sequences[number] = _tokens(entry, number, tokenizer)
    return [sequences[number] for number in range(len(entries))]


_FORM = (
    "give a list of texts, of pairs (prompt, response), of lists of messages or of mappings, a table with a row for "
    "each response, or a file"
)


def _entries(responses: Any) -> list[Any]:
    """Return the responses one by one; see `rows_of`."""
    is_pair = isinstance(responses, tuple) and all(isinstance(part, str) for part in responses)
    if isinstance(responses, str | Response) or is_pair or _is_conversation(responses):
        return [responses]
    return rows_of(responses, what="responses", form=_FORM)


def _tokens(entry: Any, number: int, tokenizer: PreTrainedTokenizerBase | None) -> Response:
    """Return an entry that is a text, a `Response` or a pair of token ids."""
    if isinstance(entry, Response) and entry.prompt_ids and entry.completion_ids:
        return entry
    parts = entry
    if isinstance(entry, str):
        words = _needed(tokenizer)
        ids = tokenize(words, as_response(words, entry), special=True).ids
        if len(ids) < 2:
            raise ConfigError(f"response {number}: a text needs two tokens, the first of which is the prompt")
        parts = ids[:1], ids[1:]
    prompt, said = map(_ids, parts) if isinstance(parts, Sequence) and len(parts) == 2 else (None, None)
    if prompt is None or said is None:
        raise ConfigError(
            f"response {number} is {shown(entry)}; give a text, a pair (prompt, response) of texts or of token ids "
            "such as ([1, 2], [3]), a list of messages, or a mapping with prompt and response"
        )
    unknown = Problem(id=f"response {number}", family=IMPORTED, question="", answer="")
    return Response(problem=unknown, prompt_ids=prompt, completion_ids=said)


def _as_messages(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a mapping whose prompt and response are lists of messages, as TRL has them, as one list."""
    said = next((name for name in ("completion", "response") if _is_conversation(record.get(name))), None)
    if said is None or not _is_conversation(record.get("prompt")):
        return record
    others = {name: value for name, value in record.items() if name not in ("prompt", said)}
    return {**others, "messages": [*record["prompt"], *record[said]]}


def _ids(part: Any) -> tuple[int, ...] | None:
    """Return token ids, of a list or an array of them; None: it holds something else."""
    listed = part.tolist() if hasattr(part, "tolist") else part
    if not isinstance(listed, Iterable) or isinstance(listed, str | Mapping):
        return None
    found = list(listed)
    is_ids = all(hasattr(one, "__index__") and not isinstance(one, bool) for one in found)
    return tuple(map(index, found)) if is_ids else None


def token_pieces(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]
) -> tuple[str, list[tuple[int, int]], list[str]]:
    """Return the text of a completion, and of each token its characters there and its piece; special tokens by name."""
    text = str(tokenizer.decode(list(ids), skip_special_tokens=True))
    spans = token_spans(tokenizer, ids, text)
    pieces = zip(ids, spans, strict=True)
    return text, spans, [text[start:end] or str(tokenizer.decode([int(token)])) for token, (start, end) in pieces]


def _has_text(entry: Any) -> bool:
    """Whether an entry is a mapping, messages, or a prompt with the text of its response."""
    if isinstance(entry, Mapping) or _is_conversation(entry):
        return True
    if not isinstance(entry, Sequence) or isinstance(entry, str) or len(entry) != 2:
        return False
    prompt, said = entry
    if isinstance(said, str):
        return isinstance(prompt, str) or _is_conversation(prompt)
    return _is_conversation(prompt) and _is_conversation(said)


def _is_conversation(entry: Any) -> bool:
    """Whether an entry is a list of messages, each a mapping with its role."""
    is_list = isinstance(entry, list | tuple) and len(entry) > 0
    return is_list and all(isinstance(message, Mapping) and "role" in message for message in entry)


def _read(entries: Mapping[int, Any]) -> dict[int, Response]:
    """Return such entries as responses without tokens, each with an id of its own unless it brings one."""
    read, records = dict[int, Response](), dict[int, Mapping[str, Any]]()
    for number, entry in entries.items():
        if isinstance(entry, Mapping):
            records[number] = _as_messages(entry)
        elif _is_conversation(entry):
            records[number] = {"messages": list(entry)}
        elif not isinstance(entry[1], str):
            records[number] = {"messages": [*entry[0], *entry[1]]}
        elif not isinstance(entry[0], str):
            records[number] = {"messages": list(entry[0]), "response": entry[1]}
        else:
            asked = Problem(id=str(number), family=IMPORTED, question="", answer="")
            read[number] = Response(problem=asked, prompt=entry[0], text=entry[1], place=f"response {number}")
    if records:  # written like lines of a file
        from swerve.formats.imported_responses import responses_of
        from swerve.formats.problem_joins import check_prompts
        from swerve.formats.records import FileRecord

        lines = [FileRecord(f"response {number}", {"id": str(number), **values}) for number, values in records.items()]
        responses = list(responses_of(Path("responses"), lines))
        check_prompts(Path("responses"), responses)
        read.update(zip(records, responses, strict=True))
    return {number: read[number] for number in entries}


def _needed(tokenizer: PreTrainedTokenizerBase | None) -> PreTrainedTokenizerBase:
    if tokenizer is None:
        raise ConfigError(
            "the responses are texts and the models bring no tokenizer; give tokenizer=, or (model, tokenizer)"
        )
    return tokenizer
