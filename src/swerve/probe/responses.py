"""Responses written elsewhere -> sequences for the probe: each with its own problem's prompt, tokenised once.

Prompt and response are tokenised together, as one text, and the boundary between them is taken from the tokens'
character offsets. Where a token stands for characters of both, the two are tokenised apart and the sequence says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.files import sha256_file
from swerve.errors import ArtifactError, ConfigError
from swerve.probe.population import ProbeSequence
from swerve.probe.response_files import ProblemRecord, ResponseRecord, read_responses
from swerve.probe.response_tokens import EncodedResponse, encode_after_ids, encode_response
from swerve.probe.spans import marked_positions, token_spans
from swerve.problems import ProblemFamily
from swerve.prompts import encode_prompts
from swerve.rewards import grade, known_families
from swerve.types import Problem

__all__ = ["ImportSettings", "ImportedResponses", "evaluated_problems", "import_responses"]

_SOURCE = "imported"
_POPULATIONS: Mapping[bool | None, str] = {True: "imported_right", False: "imported_wrong", None: "imported"}
_NUM_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSettings:
    """How responses become tokens.

    Raises:
        ConfigError: a value is not allowed.
    """

    template: Literal["auto", "raw"] = "auto"
    """auto: the tokenizer's chat template around a `problem`, where it has one; raw: the problem's text alone. A
    `prompt` is taken as it is either way."""
    ends: Literal["none", "eos"] = "none"
    """eos: the end-of-sequence token is added as the last position of each response."""

    def __post_init__(self) -> None:
        if self.template not in ("auto", "raw"):
            raise ConfigError(f"template '{self.template}' is not allowed; use auto or raw")
        if self.ends not in ("none", "eos"):
            raise ConfigError(f"ends '{self.ends}' is not allowed; use none or eos")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedResponses:
    """The sequences of a file of responses, and where they are from."""

    sequences: tuple[ProbeSequence, ...]
    """Population `imported_right`, `imported_wrong` or, where it is not known which, `imported`."""
    provenance: Mapping[str, Any]
    """JSON values: file and digest, settings, numbers of responses and of each kind of boundary."""


def import_responses(
    path: Path,
    *,
    tokenizer: PreTrainedTokenizerBase,
    problems: Mapping[str, ProblemRecord] | None = None,
    fields: Mapping[str, str] | None = None,
    settings: ImportSettings | None = None,
    family: ProblemFamily | None = None,
) -> ImportedResponses:
    """Read a file of responses and tokenise each with its own problem's prompt.

    Args:
        path: JSON, JSONL or Parquet; see `read_responses`.
        tokenizer: of the models that will be compared.
        problems: by id, for responses that do not bring their prompt.
        fields: names of the file's fields, where they are others than the known ones.
        settings: chat template and end of sequence.
        family: of `problems`: its step checker marks wrong positions, and its grader decides what the file leaves open.

    Raises:
        ArtifactError: the file cannot be read, responses have no prompt (none is made up), one id has two different
            prompts, or the tokenizer has no token for a text or for an id.
        ConfigError: end-of-sequence tokens are asked for and the tokenizer has none.
    """
    chosen = settings or ImportSettings()
    records = read_responses(path, fields=fields)
    joined = _with_prompts(path, records, problems or {})
    encoder = _Encoder(tokenizer, chosen)
    encoded = [encoder.encode(record, problem) for record, problem in zip(records, joined, strict=True)]
    sequences = tuple(
        _sequence(index, *parts, family=None if parts[0].problem.has_prompt else family, ends=chosen.ends)
        for index, parts in enumerate(zip(records, joined, encoded, strict=True))
    )
    provenance = {
        "path": str(path),
        "sha256": sha256_file(path),
        "fields": dict(fields or {}),
        "template": chosen.template,
        "ends": chosen.ends,
        "num_responses": len(records),
        "num_problems": len({problem.id for problem in joined}),
        "boundaries": dict(sorted(Counter(one.boundary for one in encoded).items())),
    }
    return ImportedResponses(sequences=sequences, provenance=provenance)


def evaluated_problems(rows: Sequence[Mapping[str, Any]]) -> dict[str, ProblemRecord]:
    """Return the problems of an evaluation's rows by id, for responses to a run's own problems."""
    return {
        row["problem_id"]: ProblemRecord(
            id=row["problem_id"], question=row["question"], gold=row["gold"], kind=row["kind"]
        )
        for row in rows
    }


def _with_prompts(
    path: Path, records: Sequence[ResponseRecord], problems: Mapping[str, ProblemRecord]
) -> list[ProblemRecord]:
    """Return each response's problem, prompt included."""
    joined = [one.problem if one.problem.has_prompt else problems.get(one.problem.id) for one in records]
    lacking = [one.problem.id for one, problem in zip(records, joined, strict=True) if problem is None]
    if lacking:
        names = list(dict.fromkeys(lacking))
        more = f" and {len(names) - _NUM_NAMED} more" if len(names) > _NUM_NAMED else ""
        raise ArtifactError(
            f"{path}: no prompt for {len(lacking)} of {len(records)} responses (problems "
            f"{', '.join(map(repr, names[:_NUM_NAMED]))}{more}); give the problems' file with --problems, or add a "
            "field problem or prompt to each response"
        )
    found = [problem for problem in joined if problem is not None]
    first: dict[str, ProblemRecord] = {}
    for record, problem in zip(records, found, strict=True):
        if first.setdefault(problem.id, problem).asked != problem.asked:
            raise ArtifactError(f"{record.place}: the id {problem.id!r} occurs with two different prompts in {path}")
    return found


def _sequence(
    index: int,
    record: ResponseRecord,
    known: ProblemRecord,
    encoded: EncodedResponse,
    *,
    family: ProblemFamily | None,
    ends: str,
) -> ProbeSequence:
    metadata = {"boundary": encoded.boundary, "ends": ends, **({"set": record.set} if record.set else {})}
    problem = Problem(
        id=known.id,
        family=family.name if family else "imported",
        question=known.question or encoded.prompt,
        answer=record.problem.gold or known.gold or "",
        kind=record.problem.kind or known.kind or "all",
        metadata=metadata,
    )
    correct, extracted = record.correct, record.extracted
    if correct is None and family is not None and family.name in known_families():
        reward = grade(problem, encoded.text)
        correct, extracted = reward.value == 1.0, extracted or reward.extracted
    return ProbeSequence(
        sequence_id=index,
        problem=problem,
        prompt_ids=encoded.prompt_ids,
        completion_ids=encoded.completion_ids,
        text=encoded.text,
        spans=encoded.spans,
        wrong=marked_positions(family.check(problem, encoded.text), encoded.spans) if family else {},
        extracted=extracted,
        correct=bool(correct),
        population=_POPULATIONS[correct],
        source=_SOURCE,
    )


@dataclass(frozen=True, slots=True)
class _Encoder:
    """Turns responses into tokens under one tokenizer and one setting."""

    tokenizer: PreTrainedTokenizerBase
    settings: ImportSettings

    def encode(self, record: ResponseRecord, problem: ProblemRecord) -> EncodedResponse:
        if record.completion_ids is not None:
            return self._given(record, problem)
        assert record.response is not None
        try:
            encoded = self._encode(record.response, problem)
        except ValueError as error:
            raise ArtifactError(f"{record.place}: {error}") from None
        self._refuse_unknown(record, encoded)
        return self._ended(encoded)

    def _encode(self, response: str, problem: ProblemRecord) -> EncodedResponse:
        if problem.prompt_ids is not None:
            return encode_after_ids(self.tokenizer, problem.prompt_ids, response)
        if problem.prompt is not None:
            return self._after_text(problem.prompt, response)
        assert problem.question is not None
        if self.settings.template == "raw" or not self.tokenizer.chat_template:
            return self._after_text(problem.question, response)
        asked = Problem(id=problem.id, family=_SOURCE, question=problem.question, answer=problem.gold or "")
        (prompt,) = encode_prompts(self.tokenizer, [asked])
        return encode_after_ids(self.tokenizer, prompt.token_ids, response)

    def _after_text(self, prompt: str, response: str) -> EncodedResponse:
        begin = self.tokenizer.bos_token
        already = isinstance(begin, str) and prompt.startswith(begin)  # a rendered template brings its begin token
        return encode_response(self.tokenizer, prompt, response, add_special_tokens=not already)

    def _given(self, record: ResponseRecord, problem: ProblemRecord) -> EncodedResponse:
        """Take ids as they are: no text is tokenised, and no end is added."""
        assert record.completion_ids is not None
        assert problem.prompt_ids is not None
        largest, size = max(*problem.prompt_ids, *record.completion_ids), _num_ids(self.tokenizer)
        if largest >= size:
            raise ArtifactError(
                f"{record.place} has the token id {largest}, but the tokenizer has ids below {size} only; "
                "probe it with the models it was sampled from"
            )
        text = str(self.tokenizer.decode(list(record.completion_ids), skip_special_tokens=True))
        return EncodedResponse(
            prompt=str(self.tokenizer.decode(list(problem.prompt_ids), skip_special_tokens=True)),
            text=text,
            prompt_ids=problem.prompt_ids,
            completion_ids=record.completion_ids,
            spans=tuple(token_spans(self.tokenizer, record.completion_ids, text)),
            boundary="ids",
        )

    def _ended(self, encoded: EncodedResponse) -> EncodedResponse:
        end = self.tokenizer.eos_token_id
        if self.settings.ends == "none" or encoded.completion_ids[-1] == end:
            return encoded
        if end is None:
            raise ConfigError("the tokenizer has no end-of-sequence token to add; leave the responses without one")
        length = len(encoded.text)
        return replace(
            encoded, completion_ids=(*encoded.completion_ids, int(end)), spans=(*encoded.spans, (length, length))
        )

    def _refuse_unknown(self, record: ResponseRecord, encoded: EncodedResponse) -> None:
        unknown, tokenizer = self.tokenizer.unk_token_id, self.tokenizer
        if unknown is None or unknown in (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id):
            return  # some tokenizers name another special token as the unknown one and never use it as that
        for what, ids in (("prompt", encoded.prompt_ids), ("response", encoded.completion_ids)):
            if unknown in ids:
                raise ArtifactError(
                    f"{record.place}: the tokenizer has no token for a word of the {what} of problem "
                    f"{record.problem.id!r}; give models whose vocabulary covers the text"
                )


def _num_ids(tokenizer: PreTrainedTokenizerBase) -> int:
    return 1 + max(tokenizer.get_vocab().values(), default=-1)
