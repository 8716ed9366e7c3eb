"""The answers of a file: which field says what, and under which policies each is graded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from swerve.artifacts.problem_records import read_problem
from swerve.artifacts.responses import IMPORTED, from_json
from swerve.artifacts.samples import is_samples_file, iter_samples
from swerve.errors import ArtifactError, ConfigError, NoResponseError, nearest
from swerve.formats.countdown_rows import FAMILY as COUNTDOWN
from swerve.formats.countdown_rows import is_countdown, numbers_and_target, question
from swerve.formats.dialects import TABLE, detect
from swerve.formats.imported_problems import asked_by, has_made_id, ids_by_text, made_id, read_problems
from swerve.formats.imported_responses import LeftOut, iter_responses, with_fields
from swerve.formats.problem_joins import plain_text
from swerve.formats.records import FileRecord, iter_records
from swerve.formats.settled_fields import ended_without_text
from swerve.formats.typed_fields import PROBLEM_NAMES, RESPONSE_NAMES, Fields, Names, claimed
from swerve.grading.policies import MathGrading
from swerve.problems.record_values import texts_in
from swerve.recipes.layers import parse_override
from swerve.rewards import known_graders
from swerve.rewards.checks import outside_policies
from swerve.rewards.graders import GRADERS, nearest_grader
from swerve.rewards.python_file import check_reward_file
from swerve.types import Problem

FIELDS: Mapping[str, tuple[str, ...]] = {
    "id": (*RESPONSE_NAMES["id"], "idx"),
    "question": ("question", "problem"),
    "gold": RESPONSE_NAMES["gold"],
    "group": ("problem_group",),
    "alternatives": ("alternatives", "gold_alternatives"),
    "response": (*RESPONSE_NAMES["response"], "text"),
    "answer": ("answer",),
    "prefix": ("prefix",),
    "begun": ("begun",),
}
"""The fields of a file that each input is looked for in; later ones where a record lacks the earlier.

They are not `RESPONSE_NAMES`: what is graded may be an answer alone, which in a file of problems is the gold one.
"""

_OUTSIDE_ANSWER = ["auto", "whole"]


@dataclass(frozen=True, kw_only=True)
class GradingTask:
    """A grader, its policies, and where its inputs stand in a record."""

    grader: str
    policies: Mapping[str, Any]
    """What differs from the grader's defaults."""
    given: Mapping[str, Any]
    """The policies of the command line: they come before those of a known problem."""
    names: Mapping[str, tuple[str, ...]]
    fields: Mapping[str, str]
    """Those of the names that the caller gave."""
    known: Mapping[str, Problem]
    """Problems by id, for records that do not say what the answer is; where a record has no such id, by its question.
    """

    @cached_property
    def _of_question(self) -> dict[str, Problem]:
        return {text: problem for problem in self.known.values() if (text := plain_text(problem.question))}

    def asked(self, record: FileRecord | Fields) -> str:
        """Return the question of a record up to white space, else its prompt or messages; empty: it has none."""
        places = {"asked": (*self.names["question"], "prompt", "messages")}
        said = Fields(record.place, record.values, places).get("asked")
        if said is None and (found := numbers_and_target(record.values)):
            said = question(*found, use_all=True)
        return "" if said is None else plain_text(str(said))

    def pair(self, record: FileRecord) -> tuple[Problem, str] | None:
        """Return the problem and the text of a record; None: the field of its gold answer is null.

        Raises:
            NoResponseError: its text is null.
            ArtifactError: it has no field of a text to grade or of a gold answer, or one of the wrong type.
        """
        values = record.values
        if "problem_details" in values:  # of a table of responses: its problem's further fields
            try:
                details = from_json(values, "problem_details", dict) or {}
            except ValueError as error:
                raise ArtifactError(f"{record.place}: {error}") from None
            details["problem_group"] = details.pop("group", None)
            values = {**details.pop("metadata", {}), **details, **values}
        entry = Fields(record.place, values, self.names)

        # The text to grade is a response, or an answer alone; beside a response, an answer is the gold one.
        text, answer = entry.get("response"), entry.get("answer")
        # Where a response is null, the answer beside it is the gold one, as it is in other records.
        is_null = text is None and any(key in values for key in self.names["response"])
        is_answer = text is None and not (is_null and entry.get("gold") is None)
        if is_answer:
            text, answer = answer, None
        if text is None and values.get("completion_ids"):
            raise ArtifactError(
                f"{record.place} has token ids and no text; swerve data import --tokenizer MODEL makes a table of both"
            )
        if text is None and "problem_details" in record.values and not record.is_cells:
            raise ArtifactError(f"{record.place} has a verdict and no text to grade; give the file of the responses")
        if text is None and not any(key in values for name in ("response", "answer") for key in self.names[name]):
            raise ArtifactError(
                f"{record.place} has no response and no answer (it has {', '.join(values) or 'no fields'}); "
                "name its field with --field response=FIELD"
            )
        if text is None and ended_without_text(values):
            text = ""
        if text is None and not record.is_cells:  # an empty cell may be an empty text
            raise NoResponseError(f"{record.place} has null as its response")
        if isinstance(text, bool | list | dict):
            raise ArtifactError(f"{record.place}: the text to grade must be text, got {type(text).__name__}")
        problem = self._problem(entry, answer, is_answer=is_answer)
        return None if problem is None else (problem, "" if text is None else str(text))

    def _problem(self, entry: Fields, answer: Any, *, is_answer: bool) -> Problem | None:
        # A problem that is known says what the gold answer is, where the record does not.
        name, kind, asked = entry.get("id"), GRADERS[self.grader], self.asked(entry)
        known, gold = self.known.get(str(name)) or self._of_question.get(asked), entry.get("gold")
        group = entry.group()
        if gold is None and known is not None:
            return replace(self._known(known), group=known.group if group is None else group)
        gold = answer if gold is None else gold
        letters = entry.values.get("letters")
        if gold is None and self.grader == "palindrome":  # they decide, in any order
            gold = "".join(map(str, letters)) if isinstance(letters, list) else letters

        # Without a gold answer: an id that is not known, a null, or no such field.
        golds, metadata = self._golds(gold, entry)
        if not golds and kind.needs_gold:
            if gold in (None, [], {}) and self.known:
                raise ArtifactError(
                    f"{entry.place} has no gold answer, and no problem of the problems' file has its id {name!r}"
                    f"{nearest(str(name), self.known)}"
                )
            if gold in (None, [], {}) and any(key in entry.values for key in self.names["gold"]):
                return None
            place = entry.key("answer") if is_answer else None
            judged = f" (if {place!r} is the gold one, name the text to judge: --field response=FIELD)" if place else ""
            raise ArtifactError(
                f"{entry.place} has no gold answer (it has {', '.join(entry.values) or 'no fields'}); name its field "
                f"with --field gold=FIELD{judged}, or give the problems with --problems FILE"
            )
        alternatives = entry.get("alternatives") or []
        if not isinstance(alternatives, list):
            raise ArtifactError(f"{entry.place}: the alternative golds must be a list, got {alternatives!r:.40}")

        # An answer alone is read as it is, unless the command line says how.
        policies = dict(self.policies)
        if is_answer and kind.policies is MathGrading and "extraction" not in self.given:
            policies["extraction"] = _OUTSIDE_ANSWER
        if self.grader == COUNTDOWN and "numbers" not in metadata and (found := numbers_and_target(entry.values)):
            metadata = {**metadata, "numbers": found[0], "target": found[1]}
        prefix, begun = entry.get("prefix"), entry.get("begun")
        taken = {field for fields in self.names.values() for field in fields}
        return Problem(
            id=str(name) if name is not None else made_id(asked) if asked else entry.place,
            family=self.grader,
            question=str(entry.get("question") or ""),
            group=group,
            answer=golds[0] if golds else "",
            prefix=prefix if isinstance(prefix, str) else "",
            begun=begun if isinstance(begun, str) else None,
            alternatives=(*golds[1:], *texts_in(entry.place, "alternatives", alternatives)),
            grader=self.grader,
            grading=policies,
            metadata={**{key: value for key, value in entry.values.items() if key not in taken}, **metadata},
        )

    def _known(self, known: Problem) -> Problem:
        """Return a problem of the problems' file as it is graded.

        Raises:
            ConfigError: policies are given and it has another grader.
        """
        own = known.grader or known.family
        if self.given and own not in (self.grader, IMPORTED):
            raise ConfigError(
                f"problem {known.id!r} of the problems' file is judged by {own!r}, so policies of {self.grader!r} "
                f"({', '.join(self.given)}) do not fit it; give --task {own}, or leave them out"
            )
        if known.family == IMPORTED:  # of a file of plain records
            return replace(known, family=self.grader, grading=dict(self.policies))
        return replace(known, grading={**known.grading, **self.given})

    def _golds(self, gold: Any, entry: Fields) -> tuple[tuple[str, ...], Mapping[str, Any]]:
        """Return the gold answers, and what a mapping of names to roles says beyond them."""
        if self.grader == "k_and_k" and isinstance(gold, dict) and any(gold.values()):
            from swerve.problems.knights.english import answer_text

            present = {name: role for name, role in gold.items() if role is not None}
            return (answer_text(present),), {"names": list(present)}
        return () if gold is None or gold in ([], {}) else texts_in(entry.place, "gold answer", gold), {}


class GivenAnswer(NamedTuple):
    """A record of a file, the problem that it is an answer to, and the text to grade."""

    record: FileRecord
    problem: Problem
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFile:
    """The answers of a file, read anew by whoever iterates over them; none is held."""

    path: Path
    task: GradingTask
    is_samples: bool = False
    """Whether it is a file of samples, which have whole problems of their own."""
    is_named: bool = False
    """Whether the grader was named, and judges also the problems of samples that have another."""

    def __iter__(self) -> Iterator[GivenAnswer]:
        """Yield the answers in the file's order, but for records whose gold answer is null.

        Raises:
            ArtifactError: see `GradingTask.pair` and `read_samples`.
        """
        return (GivenAnswer(record, *pair) for record, pair in self.pairs() if pair is not None)

    def pairs(self, left_out: LeftOut | None = None) -> Iterator[tuple[FileRecord, tuple[Problem, str] | None]]:
        """Yield every record, and the problem and text of those whose gold answer is not null.

        Conversations of other programs are read as `swerve data import` reads them; `left_out` counts what has none.
        """
        if not self.is_samples:
            yield from self._joined(left_out or LeftOut())
            return
        for record, sample in zip(iter_records(self.path), iter_samples(self.path), strict=True):
            yield record, (self._sample_problem(sample.problem), sample.text or "")

    def _joined(self, left_out: LeftOut) -> Iterator[tuple[FileRecord, tuple[Problem, str] | None]]:
        """Yield records; one without an id is of the problem that others with its question have."""
        ids: dict[str, str | None] | None = None
        for record, pair in self._read(left_out):
            if pair is not None and has_made_id(pair[0]):
                if ids is None:
                    others = ((each, other[0]) for each, other in self._read(LeftOut()) if other)
                    named = ((each, problem) for each, problem in others if not has_made_id(problem))
                    ids = ids_by_text((problem, self.task.asked(each)) for each, problem in named)
                problem, text = pair
                pair = replace(problem, id=ids.get(self.task.asked(record)) or problem.id), text
            yield record, pair

    def _read(self, left_out: LeftOut) -> Iterator[tuple[FileRecord, tuple[Problem, str] | None]]:
        records = with_fields(self.path, iter_records(self.path), self.task.fields)
        for record in _answer_records(self.path, records, self.task.names, left_out):
            try:
                yield record, self.task.pair(record)
            except NoResponseError as error:
                left_out.add(str(error))
            except ArtifactError:
                deque(records, maxlen=0)  # where no record has a field that the caller named, that is what is wrong
                raise

    def _sample_problem(self, problem: Problem) -> Problem:
        if (problem.grader or problem.family) == self.task.grader:
            return replace(problem, grading={**problem.grading, **self.task.given})
        if self.is_named:
            return replace(problem, grader=self.task.grader, grading=dict(self.task.policies))
        return problem


def _answer_records(path: Path, records: Iterator[FileRecord], names: Names, left_out: LeftOut) -> Iterator[FileRecord]:
    """Yield the records of a file whose responses are texts of their own; of other layouts, one for each response.

    Args:
        path: see `read_responses`.
        records: of the file.
        names: fields of a text that is a record's own.
        left_out: counts records without a response.
    """
    first = next(records)
    records = chain([first], records)
    layout, entry = detect(first.values), Fields(first.place, first.values, names)
    is_list = layout.lists_responses(first.values) and entry.get("response") is None
    is_known = bool(layout.marks) and layout is not TABLE  # and may have its texts under names of its own
    has_names = any(key in first.values for name in ("response", "answer") for key in names[name])
    is_elsewhere = "turns" in layout.names or is_list or (is_known and not has_names)
    if entry.is_text("response") or not is_elsewhere:
        yield from records
        return
    for response in iter_responses(path, left_out=left_out):
        problem = response.problem
        known = {
            "id": problem.id,
            "question": problem.question or None,
            "gold": problem.answer or None,
            "alternatives": list(problem.alternatives) or None,
            **{name: getattr(response, name) for name in ("sample", "step", "label", "reward", "correct")},
            "response": response.text,
        }
        if response.prompt:
            known["prompt"] = response.prompt
        if response.turns:
            known["turns"] = list(response.turns)
        if response.finish_reason is not None:
            known["finish_reason"] = response.finish_reason
        if response.text is None:
            known["completion_ids"] = response.completion_ids
        yield FileRecord(response.place, {**response.extra, **response.parts, **known})


def grading_task(
    grader: str, overrides: Sequence[str], *, fields: Mapping[str, str], known: Mapping[str, Problem]
) -> GradingTask:
    """Return how a file is graded.

    Raises:
        ConfigError: there is no such grader, or it has no such policy.
    """
    if grader not in known_graders():
        names = known_graders()
        raise ConfigError(f"--task '{grader}' has no grader{nearest_grader(grader)} ({', '.join(names)})")
    # Policies of the command line; one form of answer is a list of one.
    given = {".".join(override.keys): override.value for override in map(parse_override, overrides)}
    if GRADERS[grader].policies and isinstance(given.get("extraction"), str):
        given["extraction"] = [given["extraction"]]

    # A reward file is checked, and known by its whole path.
    if grader == "python":
        if set(given) != {"file"} or not isinstance(given["file"], str):
            raise ConfigError("--task python takes file=PATH, a Python file with a function reward(problem, text)")
        path = Path(given["file"]).absolute()
        check_reward_file(path)
        given = {"file": str(path)}
    return GradingTask(
        grader=grader,
        policies=outside_policies(grader, given),
        given=given,
        names=claimed(FIELDS, fields),
        fields=fields,
        known=known,
    )


def samples_task(path: Path, grader: str | None, overrides: Sequence[str]) -> GradingTask:
    """Return how samples are graded again: by the grader that is named, else by that of their problems.

    Raises:
        ConfigError: policies are given and the problems have several graders, or as for `grading_task`.
        ArtifactError: see `read_samples`.
    """
    graders = {sample.problem.grader or sample.problem.family for sample in iter_samples(path)}
    task = grading_task(chosen_grader(grader, overrides, graders), overrides, fields={}, known={})
    return replace(task, policies=task.given) if task.grader in graders else task


def chosen_grader(name: str | None, overrides: Sequence[str], of_problems: Iterable[str]) -> str:
    """Return the grader that is named, else that of the problems.

    Raises:
        ConfigError: neither says one, or policies are given and the problems have several graders.
    """
    if name is not None:
        return name
    graders = sorted({*of_problems} & {*known_graders()})
    if not graders:
        raise ConfigError("--task is missing: which grader? Give --task math, gsm8k, k_and_k, ... (swerve data list)")
    if overrides and len(graders) > 1:
        raise ConfigError(
            f"the problems have several graders ({', '.join(graders)}); say with --task whose policies these are"
        )
    return graders[0]


def table_graders(path: Path) -> set[str]:
    """Return the graders that a table of responses, such as `swerve data import --task` writes, has for its problems.

    Any other file has none, but for rows of Countdown.

    Raises:
        ConfigError: it has several.
        ArtifactError: the file cannot be read.
    """
    records = iter_records(path)
    first = next(records)
    if detect(first.values) is not TABLE:
        return {COUNTDOWN} if is_countdown(first.values) else set()
    graders = set()
    for record in chain([first], records):
        try:
            details = from_json(record.values, "problem_details", dict) or {}
        except ValueError as error:
            raise ArtifactError(f"{record.place}: {error}") from None
        graders.add(str(details.get("grader") or record.values.get("family")))
    graders &= {*known_graders()}
    if len(graders) > 1:
        raise ConfigError(
            f"the problems of {path} have several graders ({', '.join(sorted(graders))}); choose by --task"
        )
    return graders


def read_known_problems(path: Path) -> dict[str, Problem]:
    """Return the problems of a file by id; those of other programs' files are of no family yet (`imported`).

    Raises:
        ArtifactError: the file cannot be read, or a record is not a problem.
    """
    first = next(iter_records(path)).values
    if "family" not in first and not is_countdown(first):
        return {name: asked.problem for name, asked in read_problems(path).items()}
    problems: dict[str, Problem] = {}
    for record in iter_records(path):
        is_puzzle = is_countdown(record.values)
        problem = asked_by(Fields(record.place, record.values, PROBLEM_NAMES)).problem if is_puzzle else None
        problem = problem or read_problem(record.values, record.place)
        problems[problem.id] = problem
    return problems


def answer_file(
    file: Path, policies: Sequence[str], task: str | None, problems: Path | None, fields: Mapping[str, str]
) -> AnswerFile:
    """Return the answers of a file with what grades them: samples have their own problems, others the task's grader.

    Args:
        file: of answers, or of samples.
        policies: `KEY=VALUE` of the grader.
        task: the grader; None: that of the samples or the problems.
        problems: a file of problems by id, for records without a gold answer.
        fields: names of the file's fields, where they differ from those known.

    Raises:
        ConfigError: no grader is known, or it has no such policy.
        ArtifactError: a file cannot be read.
    """
    if is_samples_file(file):
        return AnswerFile(
            path=file, task=samples_task(file, task, policies), is_samples=True, is_named=task is not None
        )
    known = read_known_problems(problems) if problems else {}
    graders = {problem.grader or problem.family for problem in known.values()}
    if task is None and not graders:
        graders = table_graders(file)
    own = grading_task(chosen_grader(task, policies, graders), policies, fields=fields, known=known)
    return AnswerFile(path=file, task=own, is_named=task is not None)
