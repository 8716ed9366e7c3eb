"""Responses that Python hands to the probe, in any form, as token ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.responses import IMPORTED, Response
from swerve.errors import ConfigError
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
            through the chat template; (prompt ids, completion ids); a mapping such as a line of a file; a `Response`.
            A table (pandas, polars, pyarrow, datasets, a mapping of columns) is read by row, as such mappings.
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
    "give a list of texts, of pairs (prompt, response) or of mappings, a table with a row for each response, or a file"
)


def _entries(responses: Any) -> list[Any]:
    """Return the responses one by one: the rows of a table, the entries of a list, or one alone.

    Raises:
        ConfigError: it is something else, or columns have different lengths.
    """
    is_pair = isinstance(responses, tuple) and all(isinstance(part, str) for part in responses)
    if isinstance(responses, str | Response) or is_pair:
        return [responses]
    if isinstance(responses, Mapping):
        return _rows(responses) if _has_columns(responses) else [responses]
    for method in ("to_dicts", "to_pylist"):  # polars, pyarrow
        if hasattr(responses, method):
            return list(getattr(responses, method)())
    if hasattr(responses, "columns"):  # pandas
        return _rows({name: responses[name] for name in responses.columns})
    entries = list(responses) if isinstance(responses, Iterable) else []
    is_list = isinstance(responses, Sequence) or hasattr(responses, "tolist")
    if not isinstance(responses, Iterable) or (not is_list and any(isinstance(entry, str) for entry in entries)):
        raise ConfigError(f"the responses are {responses!r:.60}, of type {type(responses).__name__}; {_FORM}")
    return entries


def _has_columns(given: Mapping[str, Any]) -> bool:
    """Whether a mapping is of columns, and no record: a record's own lists are of token ids or of messages.

    Raises:
        ConfigError: it holds tables.
    """
    if not given or any(hasattr(value, "column_names") or hasattr(value, "columns") for value in given.values()):
        raise ConfigError(f"the responses are a mapping of {', '.join(map(str, given)) or 'nothing'}; {_FORM}")
    if not all(isinstance(value, Collection) and not isinstance(value, str | Mapping) for value in given.values()):
        return False
    entries = [entry for column in given.values() for entry in column]
    return any(isinstance(entry, str | list | tuple) or getattr(entry, "shape", ()) for entry in entries)


def _rows(columns: Mapping[str, Any]) -> list[Any]:
    """Return the rows of columns.

    Raises:
        ConfigError: columns have different lengths.
    """
    lengths = {str(name): len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ConfigError(f"the columns of the responses have different lengths ({said}); {_FORM}")
    values = [map(_plain, column) for column in columns.values()]
    return [dict(zip(map(str, columns), row, strict=True)) for row in zip(*values, strict=True)]


def _plain(value: Any) -> Any:
    """Return a cell without numpy's types; None for NaN, which pandas writes for it."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return None if isinstance(value, float) and value != value else value


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


def _has_text(entry: Any) -> bool:
    """Whether an entry is a mapping, or a prompt with the text of its response."""
    is_pair = isinstance(entry, Sequence) and not isinstance(entry, str) and len(entry) == 2
    return isinstance(entry, Mapping) or (is_pair and isinstance(entry[1], str))


def _read(entries: Mapping[int, Any]) -> dict[int, Response]:
    """Return such entries as responses without tokens, each with an id of its own unless it brings one."""
    read, records = dict[int, Response](), dict[int, Mapping[str, Any]]()
    for number, entry in entries.items():
        if isinstance(entry, Mapping):
            records[number] = entry
        elif not isinstance(entry[0], str):
            records[number] = {"messages": list(entry[0]), "response": entry[1]}
        else:
            asked = Problem(id=str(number), family=IMPORTED, question="", answer="")
            read[number] = Response(problem=asked, prompt=entry[0], text=entry[1], place=f"response {number}")
    if records:  # written like lines of a file
        from swerve.formats.imported_responses import check_prompts, responses_of
        from swerve.formats.records import FileRecord

        lines = [FileRecord(f"response {number}", {"id": str(number), **values}) for number, values in records.items()]
        responses = list(responses_of(Path("responses"), lines))
        check_prompts(Path("responses"), responses)
        read.update(zip(records, responses, strict=True))
    return {number: read[number] for number in entries}


def _needed(tokenizer: PreTrainedTokenizerBase | None) -> PreTrainedTokenizerBase:
    if tokenizer is None:
        raise ConfigError("the responses are texts and the models bring no tokenizer; give tokenizer=")
    return tokenizer
