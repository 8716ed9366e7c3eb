"""Import responses written elsewhere: each is tokenised once, with its own problem's prompt.

Prompt and response are tokenised together, as one text, and cut where the prompt's own tokens end. Where a token stands
for characters of both, they are tokenised apart and the sequence says so.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.messages import is_written
from swerve.artifacts.responses import IMPORTED, Response, read_provenance
from swerve.errors import ArtifactError, MismatchError
from swerve.formats.imported_responses import STEP_LABELS, LeftOut, read_responses
from swerve.formats.problem_joins import JoinCounts, check_prompts, join_problems, joined
from swerve.formats.table_files import digest_of_table, files_of
from swerve.formats.typed_fields import as_number
from swerve.grading.answers import find_answer
from swerve.models.model_folder import tokenizer_fingerprint
from swerve.probe.rollouts.checks import task_policies
from swerve.probe.rollouts.encoder import ResponseEncoder
from swerve.probe.rollouts.tokenise import (
    EncodedResponse,
    marked_positions,
    sentence_spans,
    starting_tokens,
)
from swerve.problems import ProblemFamily, Task, load_family
from swerve.problems.reading import ReadFamily
from swerve.prompts.templates import as_response, turn_end
from swerve.rewards import grade_all
from swerve.rewards.checks import check_graders, has_grader
from swerve.rewards.graders import entry_for
from swerve.tokens import CUT, as_text, decoded, num_ids
from swerve.types import StepMark

_NUM_NAMED = 5
_ANSWER_FORMS = ("boxed", "answer_tag", "hash", "phrase")
"""Where the answer is read for show, if the file says whether a response is right but not which answer was read."""
_CONDITIONED = ("subject", "level")
"""Other fields of responses that tell problems apart."""
_POPULATIONS: Mapping[bool | None, str] = {True: "imported_right", False: "imported_wrong", None: "imported"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedResponses:
    """The sequences of a file of responses, and where they are from."""

    sequences: tuple[Response, ...]
    """Population `imported_right`, `imported_wrong` or, where it is not known which, `imported`."""
    provenance: Mapping[str, Any]
    """JSON values: file and digest, settings, numbers of responses and of each kind of boundary."""


def import_responses(
    path: Path,
    *,
    tokenizer: PreTrainedTokenizerBase,
    problems: Mapping[str, Response] | None = None,
    fields: Mapping[str, str] | None = None,
    template: Literal["auto", "raw"] = "auto",
    ends: Literal["none", "eos"] = "none",
    family: ProblemFamily | None = None,
    task: Task | None = None,
    regrade: bool = False,
    most_tokens: int | None = None,
) -> ImportedResponses:
    """Read a file of responses and tokenise each with its own problem's prompt.

    Args:
        path: JSON, JSONL, CSV or Parquet; see `read_responses`. A table that `swerve data import` tokenised is taken
            with its ids and offsets.
        tokenizer: of the models that will be compared.
        problems: by id, for responses that do not bring their prompt or gold answer.
        fields: names of the file's fields, where they are others than the known ones.
        template: auto: the tokenizer's chat template around a `problem`, where it has one; raw: the problem's text
            alone. A `prompt` is taken as it is either way.
        ends: eos: the token that ends a turn in the chat template, without one (or with `raw`) the end-of-sequence
            token, is added as the last position of each response.
        family: of `problems`: its step checker marks wrong positions, and its grader decides what the file leaves open.
        task: what the problems are of: its step checker marks wrong positions, and its grader grades every response,
            whatever the file says, unless a problem names a grader of its own. Without a gold answer that it needs what
            the file says stands.
        regrade: grade every response that has a grader, whatever the file says, also without a task.
        most_tokens: prompt and response together; longer ones are left out and counted. None: all are taken.

    Raises:
        ArtifactError: the file cannot be read, responses have no prompt (none is made up), one id has two different
            prompts, or the tokenizer has no token for a text or for an id.
        ConfigError: end-of-sequence tokens are asked for and the tokenizer has none; a problem has no grader that its
            task could do without, or a grader does not exist or takes no such policy.
        MismatchError: the file was tokenised by another tokenizer.
    """
    # The responses with all that is known of their problems, as tokens.
    _check_tokenizer(path, tokenizer)
    left_out = LeftOut()
    read, num_cut = cut_at_padding(read_responses(path, fields=fields, left_out=left_out), tokenizer)
    records = list(join_problems(read, problems or {}, JoinCounts()))
    records = list(joined(records, lambda: records))
    check_prompts(path, records)
    unread = Counter[str]()
    tokens = ResponseEncoder(tokenizer, template=template, ends=ends).encode_all(records, unread)
    lengths = {number: len(one.prompt_ids) + len(one.completion_ids) for number, one in tokens.items()}
    if most_tokens is not None and (long := [number for number in tokens if lengths[number] > most_tokens]):
        named = ", ".join(f"{records[number].problem.id!r} with {lengths[number]:,}" for number in long[:_NUM_NAMED])
        more = f" and {len(long) - _NUM_NAMED} more" if len(long) > _NUM_NAMED else ""
        unread[f"longer than the {most_tokens:,} tokens that each of the models can read: {named}{more}"] += len(long)
        tokens = {number: one for number, one in tokens.items() if number not in long}
    if not tokens:
        raise ArtifactError(f"{path}: none of its {len(records)} responses can be read as tokens: {next(iter(unread))}")
    read, records = ([responses[number] for number in tokens] for responses in (read, records))
    encoded = list(tokens.values())
    # Who says what is wrong: the task, or the family of the problems of a run.
    families = [None if response.has_prompt else family for response in read]
    policies: Mapping[str, Any] | None = None
    if task is not None:
        policies, families = task_policies(path, task, records), [load_family(task)] * len(read)
    sequences = tuple(
        _sequence(index, *parts, policies, ends=ends)
        for index, parts in enumerate(zip(records, encoded, families, strict=True))
    )
    # Those without a verdict are graded, or all.
    check_graders(sequence.problem for sequence in sequences if has_grader(sequence.problem))
    texts = [parts.put_into(record).text or "" for record, parts in zip(records, encoded, strict=True)]
    graded = _with_verdicts(sequences, texts, regrade=regrade or task is not None)
    known = [(old, new) for old, new in zip(sequences, graded, strict=True) if old.population != IMPORTED]
    provenance = {
        "path": str(path),
        "sha256": digest_of_table(path),
        "format": records[0].dialect,
        "fields": dict(fields or {}),
        "template": template,
        "ends": ends,
        "num_responses": len(records),
        "num_problems": len({record.problem.id for record in records}),
        "boundaries": dict(sorted(Counter(parts.boundary for parts in encoded).items())),
        "task": None if task is None else task.kind,
        "num_recorded": len(known),
        "num_left_out": left_out.num_failed,
        "num_cut": num_cut,
        "unread_turns": dict(unread),
        "num_several_turns": sum(not sequence.is_one_turn for sequence in graded),
        "num_differing": sum(not _says(*pair) for pair in zip(records, encoded, strict=True)),
        "num_special_texts": sum(_holds_special(tokenizer, record) for record in records),
        "num_regraded": sum(old.correct != new.correct for old, new in known),
    }
    return ImportedResponses(sequences=graded, provenance=provenance)


def cut_at_padding(records: Sequence[Response], tokenizer: PreTrainedTokenizerBase) -> tuple[list[Response], int]:
    """Cut responses before the first id that the tokenizer has no token for, and count these responses.

    Engines that sample from the padding of a model's output head write such ids. They have no probability here; what
    stands before them is what it was. A response whose prompt has one, or that begins with one, is left out.

    Raises:
        ArtifactError: no response is left.
    """
    # Each is kept whole, cut before the first unknown id, or left out.
    size, num_cut = num_ids(tokenizer), 0
    kept: list[Response] = []
    for record in records:
        ids, prompt_ids = record.completion_ids, record.prompt_ids
        if max((*ids, *prompt_ids), default=0) < size:
            kept.append(record)
            continue
        num_cut += 1
        length = next((index for index, token in enumerate(ids) if token >= size), len(ids))
        sampled = record.sampled[:length]
        if sampled:  # nor does what follows its last token say anything of the model
            length = len(sampled) - (sampled[::-1].index(True) if True in sampled else len(sampled))
        if length and max(prompt_ids) < size:
            names = ("completion_ids", "spans", "sampled", "logprobs")
            cut: Any = {name: getattr(record, name)[:length] for name in names}
            kept.append(replace(record, **cut))
    if not kept:
        largest = max(*records[0].completion_ids, *records[0].prompt_ids)
        raise ArtifactError(
            f"{records[0].place} has the token id {largest}, but the tokenizer has ids below {size} only, and every "
            "response begins with such an id; probe them with the models that they were sampled from"
        )
    return kept, num_cut


def _holds_special(tokenizer: PreTrainedTokenizerBase, record: Response) -> bool:
    """Whether texts of a response, which are encoded here, hold those of special tokens."""
    if record.completion_ids:
        return False
    end = turn_end(tokenizer)
    ends = () if end is None else [decoded(tokenizer, [end])]
    asked = (
        [] if record.prompt is not None else [record.problem.question, *(text for _, text in record.problem.messages)]
    )
    own = [message for message in record.turns if is_written(message)]
    given = [str(message["content"]) for message in record.turns if message not in own]
    said = [str(message["content"]) for message in own] or [record.text or ""]
    cut = [as_text(tokenizer, text) for text in (*asked, *given)] + [
        as_response(tokenizer, text, ends) for text in said
    ]
    return any(CUT in text for text in cut)


def _says(record: Response, encoded: EncodedResponse) -> bool:
    """Whether the ids of a response decode to its text; true where it has no ids of its own or no text."""
    texts = [message["content"] for message in record.turns if is_written(message)] or [record.text]
    return encoded.boundary != "ids" or all(text.strip() in encoded.text for text in texts if text)


def _check_tokenizer(path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    for file in files_of(path):
        made_by = read_provenance(file).get("tokenizer")
        if not made_by or made_by["sha256"] == tokenizer_fingerprint(tokenizer):
            continue
        raise MismatchError(
            f"{file} holds the token ids of another tokenizer ({made_by['name']}); import the responses again with "
            "--tokenizer and one of these models, or without --tokenizer"
        )


def _sequence(
    index: int,
    response: Response,
    encoded: EncodedResponse,
    family: ProblemFamily | None,
    policies: Mapping[str, Any] | None,
    *,
    ends: str,
) -> Response:
    own = response.problem
    metadata = {**own.metadata, "boundary": encoded.boundary, "ends": ends}
    if response.population:
        metadata["set"] = response.population
    metadata |= {key: response.extra[key] for key in _CONDITIONED if key in response.extra and key not in metadata}
    problem = replace(own, question=own.question or encoded.prompt, metadata=metadata)
    # A file names no code to run: of reward files only the one of the task or the run is.
    reward_file = family.grading.get("file") if isinstance(family, ReadFamily) else None
    if (problem.grader or problem.family) == "python" and problem.grading.get("file") != reward_file:
        problem = replace(problem, family=IMPORTED, grader="", grading={})
    # What grades it: its own grader, the run's, or the task's.
    if family is None:
        needs_no_gold = has_grader(problem) and not entry_for(problem).needs_gold
        if not problem.answer and not needs_no_gold:  # there is nothing that a grader could verify
            problem = replace(problem, family=IMPORTED, grader="")
    elif policies is None:
        problem = replace(problem, family=family.name)
    elif not has_grader(problem):
        gradable = replace(problem, family=family.name, grading={**problem.grading, **policies})
        if problem.answer or not entry_for(gradable).needs_gold:  # else what the file says stands
            problem = gradable
    # Of several turns it is not known which characters of the text are whose.
    told = encoded.put_into(response)
    known = _labelled(response, encoded.text, encoded.spans) if told.is_one_turn else {}
    if known is None:
        marks = family.check(problem, encoded.text) if family else ()
        known = {"wrong": marked_positions(marks, encoded.spans)}
    answer = find_answer(told.text or "", _ANSWER_FORMS) if response.correct is not None else None
    return replace(
        told,
        text=encoded.text,
        spans=encoded.spans,
        sequence_id=index,
        problem=problem,
        **known,
        extracted=response.extracted or answer,
        correct=response.correct,
        population=_POPULATIONS[response.correct],
        label=IMPORTED,
    )


def _labelled(response: Response, text: str, spans: Sequence[tuple[int, int]]) -> dict[str, Any] | None:
    """Return what the file says of the first wrong step: fields of a response, empty where nothing is wrong.

    A character, or a piece of one word, is a wrong token: `wrong`. A sentence, a step or a piece of several words says
    only that the mistake is in it: it is one of the sentences of the text (`sentence_starts`, `wrong_sentence`), those
    that a piece touches together being one. None: the file says nothing.

    Raises:
        ArtifactError: the text has no such sentence, step or character.
    """
    labels = {name: value for name in STEP_LABELS if (value := response.extra.get(name)) is not None}
    if not labels:
        return None
    name, value = next(iter(labels.items()))
    label = _whole_numbers(value, f"{response.place}: {name}")
    if label[0] < 0:
        return {}
    pieces = _pieces(response, text)

    # A sentence without the white space before it, a piece between two characters, or one character.
    if name == "first_wrong":
        start, end, limit = label[0], label[-1] + (len(label) == 1), len(text)
    else:
        limit = len(pieces)
        start, end = pieces[label[0]] if label[0] < limit else (0, 0)
        start += len(text[start:end]) - len(text[start:end].lstrip())
    if not start < end <= len(text) or len(label) > (2 if name == "first_wrong" else 1):
        what = "characters" if name == "first_wrong" else "steps" if "step_starts" in response.extra else "sentences"
        raise ArtifactError(
            f"{response.place}: {name} is {', '.join(map(str, label))}, but the response has {what} 0 to {limit - 1}; "
            "name one of them, or -1 where nothing is wrong"
        )
    touched = [number for number, piece in enumerate(pieces) if max(start, piece[0]) < min(end, piece[1])]
    is_whole = any(text[slice(*pieces[number])].strip() in text[start:end] for number in touched)
    if name == "first_wrong" and not is_whole and len(text[start:end].split()) < _SEVERAL:
        return {"wrong": marked_positions((StepMark(start=start, end=end, expected=""),), spans)}

    # A sentence that shares its only token with the one before it has none of its own, and counts as part of that.
    first, after = touched[0], touched[-1] + 1
    starts = starting_tokens([begin for begin, _ in (*pieces[: first + 1], *pieces[after:])], spans)
    position = min(starts[first], [*starts, len(spans)][first + 1] - 1)
    known = sorted(set(starts) - {len(spans)})
    return {"sentence_starts": tuple(known), "wrong_sentence": bisect_right(known, position) - 1}


_SEVERAL = 2
"""Words of a piece of text, from which on its label does not say which token is wrong."""


def _pieces(response: Response, text: str) -> list[tuple[int, int]]:
    """Return where the sentences of a text begin and end, or the steps whose first characters the file names.

    Raises:
        ArtifactError: the text has no such characters.
    """
    given = response.extra.get("step_starts")
    if given is None:
        return sentence_spans(text)
    starts = [as_number(number) for number in given] if isinstance(given, list) else []
    steps = [int(start) for start in starts if start is not None and start.is_integer()]
    if len(steps) < len(starts) or steps[:1] != [0] or any(map(operator.ge, steps, [*steps[1:], len(text) + 1])):
        raise ArtifactError(
            f"{response.place}: step_starts must list the characters at which steps of the response begin, ascending, "
            f"the first 0 and none beyond {len(text)}, got {given!r:.80}"
        )
    # As with sentences, white space belongs to the step after it.
    begins = [0, *(len(text[:start].rstrip()) for start in steps[1:])]
    return [*pairwise([*begins, len(text)])]


def _whole_numbers(value: Any, what: str) -> list[int]:
    """Return a label, which is a whole number or a list of them."""
    numbers = [as_number(number) for number in (value if isinstance(value, list) else [value])]
    if not numbers or any(number is None or not number.is_integer() for number in numbers):
        raise ArtifactError(f"{what} must be a whole number, or two for a piece of the text, got {value!r}")
    return [int(number) for number in numbers if number is not None]


def _with_verdicts(sequences: tuple[Response, ...], texts: Sequence[str], *, regrade: bool) -> tuple[Response, ...]:
    """Grade the sequences of which the file does not say whether they are right, or all, where there is a grader.

    `texts` are what the model wrote.
    """
    left = [
        sequence
        for sequence in sequences
        if (regrade or sequence.population == IMPORTED) and has_grader(sequence.problem)
    ]
    rewards = grade_all([(sequence.problem, texts[sequence.sequence_id]) for sequence in left])
    # What reached a limit, or made the grader fail, is neither right nor wrong.
    verdicts = [None if reward.status in ("timeout", "error") else reward.is_right for reward in rewards]
    graded = {
        sequence.sequence_id: replace(
            sequence,
            correct=verdict,
            extracted=sequence.extracted or reward.extracted,
            population=_POPULATIONS[verdict],
        )
        for sequence, reward, verdict in zip(left, rewards, verdicts, strict=True)
    }
    return tuple(graded.get(sequence.sequence_id, sequence) for sequence in sequences)
