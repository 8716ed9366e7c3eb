"""`swerve data import`: rollouts of other programs, each joined to its problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swerve.cli.console import check_not_read
from swerve.cli.options import Fields, Result, check_choice, out_option
from swerve.errors import ArtifactError
from swerve.progress import one_line
from swerve.text import counted
from swerve.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

    from swerve.artifacts.responses import Response
    from swerve.formats.problem_joins import JoinCounts, PromptCheck

_SPECIALS_LEFT_OUT = ("verl", "trl")
"""Layouts whose prompts are decoded without special tokens, so that a chat template's marks are not in them."""

_PART = "with a part of the reward, "


def import_rollouts(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|DIR", help="Rollouts or responses of another program: a file, or a folder of them."
        ),
    ],
    out: Annotated[Path, out_option("Output table (.parquet).", ".parquet")],
    problems: Annotated[
        Path | None,
        typer.Option(
            "--problems",
            metavar="FILE",
            help="Problems, to be joined by id or question.  [default: of X_output.jsonl the requests X_input.jsonl]",
        ),
    ] = None,
    dialect: Annotated[
        str, typer.Option("--format", metavar="NAME", help="A layout, such as verl or inspect; auto: by the fields.")
    ] = "auto",
    fields: Fields = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer", metavar="MODEL", help="Model whose tokenizer makes the token ids; without it there are none."
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="KIND", help="Task whose grader judges the responses, such as math.")
    ] = None,
) -> Result:
    """Import rollouts of other programs, each joined to its problem.

    It reads files, or a folder of files, of verifiers, Inspect, lm-eval, verl, TRL and RL-Probe, batches and chats in
    OpenAI's form, and plain JSON, JSONL, CSV or Parquet. Records without a response, such as requests that failed, are
    named and left out.

    Examples:
      swerve data import rollouts.jsonl --problems problems.jsonl --out rollouts.parquet
      swerve data import grpo/completions --out completions.parquet
    """
    from swerve.artifacts.response_columns import RESPONSES_SCHEMA
    from swerve.artifacts.responses import write_responses
    from swerve.artifacts.tables import spilled_tables
    from swerve.formats.imported_problems import read_problems, requests_beside
    from swerve.formats.imported_responses import LeftOut, iter_responses
    from swerve.formats.problem_joins import JoinCounts, PromptCheck
    from swerve.formats.table_files import named_digest
    from swerve.formats.typed_fields import parse_fields
    from swerve.models.folder_metadata import check_tokenizer
    from swerve.rewards import known_graders

    # What is asked for, before anything is read.
    check_not_read(out, (file, problems))
    check_choice("--task", task, known_graders())
    if tokenizer is not None:
        check_tokenizer(tokenizer)
    named = parse_fields(fields or ())
    problems = problems or requests_beside(file)
    known = read_problems(problems, fields=named) if problems is not None else {}

    # The responses, each joined to its problem, counted as they are read.
    encoder, counts, joins, left_out = (
        _Encoder(tokenizer) if tokenizer else None,
        _ImportCounts(),
        JoinCounts(),
        LeftOut(),
    )
    prompts = PromptCheck(needs_all=bool(tokenizer or problems))
    responses = iter_responses(
        file,
        left_out=left_out,
        problems=known,
        joins=joins,
        fields=named,
        dialect=dialect,
        verdicts_suffice=tokenizer is None,
    )

    # What is known after the last response only, numbers and where all are from, comes in as the table is written.
    with spilled_tables(out, _tables(responses, prompts, task=task, encoder=encoder, counts=counts)) as spilled:
        named_rows = (table.select(["place", "problem_id"]).to_pylist() for table in spilled())
        prompts.check(file, (tuple(row.values()) for rows in named_rows for row in rows))
        del prompts  # what it holds is needed no more
        if encoder:
            encoder.check_some(file, len(counts.groups))
        provenance: dict[str, Any] = {
            "source": named_digest(file),
            "problems": None if problems is None else named_digest(problems),
            "format": counts.dialect,
            "fields": named,
            "task": task,
            "swerve_version": __version__,
            **(encoder.provenance() if encoder else {}),
        }
        rows = counts.numbered(spilled())
        write_responses(out, rows, RESPONSES_SCHEMA, table="responses", provenance=provenance)
    summary = {**counts.summary(joins, provenance), "left_out": asdict(left_out)}
    return Result({"out": str(out), **summary}, "\n".join(_lines(out, summary)))


def _tables(
    responses: Iterator[Response],
    prompts: PromptCheck,
    *,
    task: str | None,
    encoder: _Encoder | None,
    counts: _ImportCounts,
) -> Iterator[pa.Table]:
    """Yield tables of responses, some at a time, counted; none once one lacks its prompt, which is said at the end."""
    from swerve.artifacts.response_columns import RESPONSES_SCHEMA
    from swerve.artifacts.responses import response_chunks, responses_table

    for chunk in response_chunks(responses):
        for response in chunk:
            prompts.look(response)
        if prompts.lacking:
            continue
        own = [_of_task(response, task) for response in chunk] if task else chunk
        kept = encoder.encoded(own) if encoder else own
        for response in kept:
            counts.add(response)
        yield responses_table(kept, RESPONSES_SCHEMA)


def _of_task(response: Response, task: str) -> Response:
    """Return a response whose problem is judged by a task's grader, unless the problem is of a task already."""
    from swerve.artifacts.responses import IMPORTED

    if response.problem.family != IMPORTED:
        return response
    return replace(response, problem=replace(response.problem, family=task))


class _Encoder:
    """Gives responses their token ids; those that came as ids keep them, empty ones get none."""

    def __init__(self, name: str) -> None:
        from swerve.models.model_folder import load_tokenizer
        from swerve.probe.rollouts.encoder import ResponseEncoder

        self._name, self._tokenizer = name, load_tokenizer(name)
        self._encoder = ResponseEncoder(self._tokenizer)
        self.num_cut = 0
        self.none_left: ArtifactError | None = None
        """Why nothing was left of a chunk."""
        self.without_ids = Counter[str]()
        """Responses of several turns that have no token ids, by the reason."""

    def encoded(self, responses: Sequence[Response]) -> list[Response]:
        """Return responses with their ids, cut where the tokenizer has no token for one: see `cut_at_padding`."""
        from swerve.probe.rollouts.imported import cut_at_padding

        try:
            kept, num_cut = cut_at_padding(responses, self._tokenizer)
        except ArtifactError as error:  # of these none is left
            self.none_left = self.none_left or error
            kept, num_cut = [], len(responses)
        self.num_cut += num_cut
        written = [number for number, response in enumerate(kept) if not _is_empty(response)]
        encoded = self._encoder.encode_all([kept[number] for number in written], self.without_ids)
        for number, tokens in encoded.items():
            kept[written[number]] = tokens.put_into(kept[written[number]])
        return kept

    def check_some(self, file: Path, num_responses: int) -> None:
        """Check that some responses of a file have token ids, or need none.

        Raises:
            ArtifactError: nothing is left of any, or each is too long.
        """
        from swerve.probe.rollouts.encoder import TOO_LONG

        if self.none_left and not num_responses:
            raise self.none_left
        too_long = [reason for reason in self.without_ids if reason.startswith(TOO_LONG)]
        if too_long and len(too_long) == num_responses:
            raise ArtifactError(
                f"{file}: none of its {num_responses} responses can be read as tokens: {too_long[0]}; import them "
                "without --tokenizer"
            )

    def provenance(self) -> dict[str, Any]:
        """Return what the table says of its token ids: whose they are, and how many responses have none or were cut."""
        from swerve.models.model_folder import tokenizer_fingerprint

        label = Path(self._name).name if Path(self._name).exists() else self._name
        return {
            "tokenizer": {"name": label, "sha256": tokenizer_fingerprint(self._tokenizer)},
            "num_cut": self.num_cut,
            "without_ids": dict(self.without_ids),
        }


def _is_empty(response: Response) -> bool:
    return not response.text and not response.completion_ids and not response.turns


class _ImportCounts:
    """Running counts of what was imported; eight bytes of each response are held, for its problem and its number."""

    def __init__(self) -> None:
        from swerve.artifacts.streams import RowKeys

        self.dialect = ""
        self.groups, self._problems = RowKeys(), RowKeys()
        """Of each response who answered what, within which responses are numbered; and its problem."""
        self._num, self._beside = Counter[str](), Counter[str]()
        self._boundaries = Counter[str]()
        self._values = {name: Counter[Any]() for name in ("correct", "label", "step")}

    def add(self, response: Response) -> None:
        """Count a response."""
        problem = response.problem
        self.dialect = self.dialect or response.dialect
        self._problems.add(problem.id)
        self.groups.add(problem.id, response.label, response.step)
        self._beside.update(_beside(response))
        self._num["empty"] += _is_empty(response)
        self._num["without_gold"] += not problem.answer
        self._num["with_reward"] += response.reward is not None
        self._num["with_prompt"] += response.prompt is not None
        for name, counter in self._values.items():
            counter[getattr(response, name)] += 1
        if not _is_empty(response):
            self._boundaries[response.boundary or "none"] += 1

    def numbered(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield the tables of all responses; one without a number gets its place in its problem, label and step."""
        import pyarrow as pa
        import pyarrow.compute as pc

        places, done = self.groups.places(), 0
        for table in tables:
            column = table.schema.get_field_index("sample")
            counted = pc.coalesce(table["sample"], pa.array(places[done : done + len(table)]))
            yield table.set_column(column, table.schema.field(column), counted)
            done += len(table)

    def summary(self, joins: JoinCounts, provenance: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was read, and how responses met their problems."""
        import numpy as np

        problems, correct = self._problems.digests, self._values["correct"]
        return {
            "format": provenance["format"],
            "num_responses": len(problems),
            "num_problems": len(np.unique(problems)),
            "num_empty": self._num["empty"],
            "num_without_gold": self._num["without_gold"],
            "recorded_correct": {"true": correct[True], "false": correct[False], "null": correct[None]},
            "num_with_reward": self._num["with_reward"],
            "beside": _counts(self._beside),
            "labels": _counts(self._values["label"]),
            "steps": _counts(self._values["step"]),
            "join": asdict(joins),
            "boundaries": dict(sorted(self._boundaries.items())) if "tokenizer" in provenance else None,
            "prompts_without_special_tokens": provenance["format"] in _SPECIALS_LEFT_OUT
            and self._num["with_prompt"] > 0,
            "provenance": dict(provenance),
        }


def _lacking(response: Response) -> Iterator[str]:
    """Yield what is not known of a response."""
    if not response.has_prompt:
        yield "without a prompt, which --problems FILE adds"
    if response.text is None and not response.completion_ids:
        yield "with a verdict and no text"
    if response.extra.get("id_is_place"):
        yield "whose problem is known by its place in the file alone"


def _beside(response: Response) -> Iterator[str]:
    """Yield what a response has beside a text, and what of it the table has no room for."""
    yield from _lacking(response)
    if response.turns:
        yield "with messages after the first, tool calls or reasoning, kept in `turns`"
    if any("reasoning_content" in turn for turn in response.turns):
        yield "with reasoning, which is not in `text`"
    if (reason := response.no_answer) is not None:
        yield f"without an answer: {reason}"
    if response.completion_ids:
        yield "with token ids"
    if "token_logprobs" in response.extra:
        yield "with log-probabilities of token texts without ids, kept in `extra`"
    if not response.problem.answer and any(response.extra.get(name) for name in ("gts", "ground_truth", "gold")):
        yield "with a gold answer that is no text, kept in `extra`"
    if "trace_branch" in response.extra:
        yield "branches of traces, each a response"
    not_kept = response.extra.get("not_kept")
    for part in not_kept if isinstance(not_kept, dict) else ():
        yield f"with a part that was not kept, {part}"
    for part in response.parts:
        yield f"{_PART}{part}"


def _counts(counted: Mapping[Any, int]) -> dict[str, int]:
    return {str(value): counted[value] for value in sorted(value for value in counted if value is not None)}


def _lines(out: Path, summary: Mapping[str, Any]) -> list[str]:
    # What was read, and how responses met their problems.
    join, recorded, left_out = summary["join"], summary["recorded_correct"], summary["left_out"]
    lines = [
        f"{counted(summary['num_responses'], 'response')} to {counted(summary['num_problems'], 'problem')}, read as "
        f"{summary['format']}",
        f"recorded: {recorded['true']} right, {recorded['false']} wrong, {recorded['null']} unknown; "
        f"{summary['num_with_reward']} with a reward",
    ]
    if summary["provenance"]["problems"]:
        name = summary["provenance"]["problems"]["name"]
        lines.append(
            f"joined to {name}: {join['by_id']} by id, {join['by_question']} by their question; gold answers replaced: "
            f"{join['gold_replaced']}"
        )
    # What is said only where there is some.
    counts = (
        ("gold answers that were cut off and not used", join["gold_damaged"]),
        ("without a gold answer", summary["num_without_gold"]),
        ("empty", summary["num_empty"]),
        *summary["beside"].items(),
        (f"lines with another filter of the same text than {left_out['kind']}, left out", left_out["num_repeated"]),
        ("records without a response, left out", left_out["num_failed"]),
        ("labels", _listed(summary["labels"])),
        ("steps", _listed(summary["steps"])),
        ("cut before an id that the tokenizer has no token for", summary["provenance"].get("num_cut")),
        ("without token ids", _listed(summary["provenance"].get("without_ids") or {})),
        ("boundaries between prompt and response", _listed(summary["boundaries"] or {})),
    )
    lines += [f"{what}: {count}" for what, count in counts if count]
    lines += [f"note: {note}" for note in left_out["notes"]]
    lines += [f"left out: {error}" for error in left_out["first"]]
    num_parts = sum(what.startswith(_PART) for what in summary["beside"])
    if summary["format"] == "trl" and num_parts > 1 and "reward" not in summary["provenance"]["fields"]:
        lines.append(
            "note: the reward is the sum of its parts, as TRL adds them unless it is given weights, which it does not "
            "record; --field reward=COLUMN takes one of them"
        )
    if summary["prompts_without_special_tokens"]:
        lines.append(
            f"note: {summary['format']} writes prompts without special tokens, so they are not exactly what the "
            "model was given"
        )
    return [*map(one_line, lines), f"table: {out}"]


def _listed(counts: Mapping[str, int]) -> str:
    shown = [f"{name} {count}" for name, count in list(counts.items())[:12]]
    return ", ".join(shown if len(counts) <= 12 else [*shown, f"and {len(counts) - 12} more"])
