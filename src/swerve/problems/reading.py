"""Tasks whose problems are read from data: distinct problems, disjoint splits, filters and a seeded choice."""

from __future__ import annotations

import hashlib
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import model_validator

from swerve.artifacts.problem_records import is_problem_record
from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.formats.imported_problems import chat_row
from swerve.formats.records import Record
from swerve.grading.grader import GraderEntry
from swerve.grading.policies import ExtractionForm, MathGrading
from swerve.problems.data_specs import Sources, Specs, read_source
from swerve.problems.family import SolvedFamily, Split, is_heldout
from swerve.problems.held_out import HeldOut, question_key
from swerve.problems.prompt import PromptConfig, PromptFormat, with_prompt
from swerve.problems.record_values import has_value, missing_field, text_of
from swerve.problems.task import Task
from swerve.settings import Model, PositiveInt, Words
from swerve.types import Problem

_NUM_NAMED = 3
_DEFAULT_SPLITS: Mapping[Split, str] = {"train": "train", "heldout": "test"}


class FilterConfig(Model):
    """Which problems are used; every condition must hold."""

    min_difficulty: float | None = None
    max_difficulty: float | None = None
    kinds: Words = ()
    """Kinds (levels, numbers of people, ...) as evaluation names them; none: all."""
    max_question_chars: PositiveInt | None = None
    exclude: Specs = ()
    """Sources whose problems are left out: the same question up to white space and letter case."""


class DataTask(Task):
    """What every task that is read from files or a hub has."""

    train: Sources
    """Sources of training problems: `[split@]source[:config][#revision]`, a file, a folder or a name on the hub."""
    heldout: Specs = ()
    """Sources of held-out problems; none: about one in six of the training problems, chosen by their text."""
    num_train: PositiveInt | None = None
    """Training problems used, chosen by the seed; null: all."""
    num_heldout: PositiveInt | None = None
    where: FilterConfig = FilterConfig()
    """Problems used, of both splits."""
    prompt: PromptConfig = PromptConfig()


_ASKED_FORM: Mapping[PromptFormat, ExtractionForm] = {
    "boxed": "boxed",
    "step_by_step": "boxed",
    "hash": "hash",
    "think_answer": "answer_tag",
}
"""The form of the answer that a prompt format asks for."""


class MathsDataTask(DataTask):
    """A task whose answers are judged as mathematics."""

    grading: MathGrading = MathGrading()

    @model_validator(mode="after")
    def _check_extraction(self) -> MathsDataTask:
        form = _ASKED_FORM.get(self.prompt.format)
        if form and self.prompt.template is None and not {form, "auto"} & set(self.grading.extraction):
            raise ValueError(
                f"prompt.format '{self.prompt.format}' asks for an answer that grading.extraction does not read; "
                f"add {form} to it"
            )
        return self


Condition = tuple[str, Callable[[Problem], bool]]
"""What a note calls it, and whether a problem meets it."""
DataTaskT = TypeVar("DataTaskT", bound=DataTask)


@dataclass(frozen=True, slots=True)
class _Row:
    """A problem and where it was read."""

    problem: Problem
    place: str

    @property
    def key(self) -> str:
        return question_key(self.problem.question)


class ReadFamily(SolvedFamily, ABC, Generic[DataTaskT]):
    """Problems that are read from the sources of a task.

    Of problems with one question (up to white space and letter case) the first is used; one that is held out is never
    trained on. Rows without a gold answer are left out. What was left out, and why, is in `notes`.
    """

    name: ClassVar[str]
    reads_chats: ClassVar[bool] = True
    """Whether rows in a chat layout are read by it, and keep their messages; see `chat_row`."""

    def __init__(self, task: DataTaskT) -> None:
        self._task = task

    @abstractmethod
    def problem(self, record: Record) -> Problem | None:
        """Return a record as a problem, without prompt and the task's policies of grading; None: it has no gold answer.

        Raises:
            ArtifactError: a field is missing or wrong.
        """

    @property
    def grading(self) -> Mapping[str, Any]:
        """The task's policies of grading that differ from the grader's defaults; a problem's own come before them."""
        policies = getattr(self._task, "grading", None)
        return policies.model_dump(mode="json", exclude_defaults=True) if isinstance(policies, Model) else {}

    def conditions(self, problems: Sequence[Problem]) -> list[Condition]:
        """Return the conditions of the family's own settings, given all problems that were read."""
        return []

    def remarks(self, split: Split, problems: Sequence[Problem]) -> list[str]:
        """Return what else a person should know of the problems of a split."""
        return []

    def problems(self, split: Split, *, seed: int) -> list[Problem]:
        """Return the distinct problems of a split in a seeded order, the first `num_train` or `num_heldout` of it.

        Raises:
            ConfigError: there are fewer than asked for, or none, or a source cannot be found.
            ArtifactError: a source cannot be read.
        """
        found, notes = self._loaded
        problems = list(found[split])
        asked = self._task.num_train if split == "train" else self._task.num_heldout
        if not problems:
            raise ConfigError(f"task '{self.name}' has no {split} problems{_because(notes)}; give other sources")
        if asked is not None and asked > len(problems):
            raise ConfigError(
                f"task '{self.name}' has {len(problems):,} {split} problems, fewer than task.num_{split}={asked}"
                f"{_because(notes)}; lower it or give more sources"
            )
        random.Random(f"{self.name} {split} {seed}").shuffle(problems)
        return [self._finished(problem) for problem in problems[:asked]]

    def notes(self) -> list[str]:
        """Return a line for everything that was left out of the sources, and why.

        Raises:
            ConfigError: a source cannot be found.
            ArtifactError: a source cannot be read.
        """
        return list(self._loaded[1])

    def read(self, record: Record) -> Problem | None:
        """Return a record as `problem` does, one in a chat layout with its messages; None: it has no gold answer.

        Raises:
            ArtifactError: a field is missing or wrong.
        """
        chat = chat_row(record) if self.reads_chats and not is_problem_record(record.values) else None
        if chat is None:
            return self.problem(record)
        problem = self.problem(chat.record)
        if problem is None:
            return None
        solution = None if problem.solution is None else problem.solution.removeprefix(chat.prefix)
        return replace(problem, messages=chat.messages, prefix=chat.prefix, solution=solution)

    def _finished(self, problem: Problem) -> Problem:
        """Return the problem with the task's policies and prompt; a prompt of its own stays unless the task has one."""
        problem = replace(problem, grading={**self.grading, **problem.grading})
        return problem if problem.messages and self.keeps_prompts else with_prompt(problem, self._task.prompt)

    @property
    def keeps_prompts(self) -> bool:
        """Whether problems that come with messages keep them: the task does not set another prompt."""
        return bool(self._task.prompt == type(self._task).model_fields["prompt"].default)

    @cached_property
    def _loaded(self) -> tuple[dict[Split, list[Problem]], list[str]]:
        notes: list[str] = []
        train = self._rows("train", self._task.train, notes)
        if self._task.heldout:
            heldout = self._rows("heldout", self._task.heldout, notes)
            held_out = HeldOut([row.problem for row in heldout])
            also_held = {row.place for row in train if held_out.asked_in(row.problem.question)}
            _note(notes, "train", [row.place for row in train if row.place in also_held], "also held out")
            train = [row for row in train if row.place not in also_held]
        else:
            heldout = [row for row in train if is_heldout(row.key)]
            train = [row for row in train if not is_heldout(row.key)]
        _check_ids([*train, *heldout])
        splits: dict[Split, list[Problem]] = {
            "train": [row.problem for row in train],
            "heldout": [row.problem for row in heldout],
        }
        notes += [remark for split, problems in splits.items() for remark in self.remarks(split, problems)]
        chosen, left_out = _keep(splits, self.conditions([*splits["train"], *splits["heldout"]]))
        filtered, filtered_out = apply_filters(chosen, self._task.where)
        return filtered, [*notes, *left_out, *filtered_out]

    def _rows(self, split: Split, specs: Sequence[str], notes: list[str]) -> list[_Row]:
        """Return the problems of some sources, each question once, and add to `notes` what is left out."""
        found: dict[bytes, _Row] = {}  # by a digest: keys are as long as the questions
        unanswered: list[str] = []
        repeated: list[str] = []
        differing: list[str] = []
        for record in (record for spec in specs for record in _records(split, spec)):
            problem = self.read(record)
            if problem is None:
                unanswered.append(record.place)
                continue
            row = _Row(problem, record.place)
            first = found.setdefault(
                hashlib.blake2b(row.key.encode(errors="surrogatepass"), digest_size=16).digest(), row
            )
            if first is not row:
                repeated.append(row.place)
                if "".join(first.problem.answer.split()) != "".join(problem.answer.split()):
                    differing.append(row.place)
        _note(notes, split, unanswered, "no gold answer")
        _note(notes, split, repeated, "the same question as an earlier row")
        _note(notes, split, differing, "of them with another gold answer, which is not used", verb="")
        return list(found.values())


def _records(split: Split, spec: str) -> Iterable[Record]:
    try:
        return read_source(spec, default_split=_DEFAULT_SPLITS[split])
    except ConfigError as error:  # say which of the two sources: one may be the task's default
        raise ConfigError(f"task.{split}: {error}") from None


def _note(notes: list[str], split: str, places: Sequence[str], reason: str, *, verb: str = " left out:") -> None:
    if places:
        shown = [*places[:_NUM_NAMED], *(["..."] if len(places) > _NUM_NAMED else [])]
        count = f"{len(places):,} row{'' if len(places) == 1 else 's'}"
        notes.append(f"{split}: {count}{verb} {reason} ({'; '.join(shown)})")


def _because(notes: Sequence[str]) -> str:
    return f" ({'; '.join(notes)})" if notes else ""


def _check_ids(rows: Sequence[_Row]) -> None:
    places: dict[str, str] = {}
    for row in rows:
        first = places.setdefault(row.problem.id, row.place)
        if first != row.place:
            raise ArtifactError(
                f"{row.place} and {first} have different questions with one id {row.problem.id!r}; "
                "give each problem an id of its own, or none"
            )


_QUESTION_FIELDS = ("question", "problem", "quiz", "prompt", "input")
"""Names under which published data sets have the question."""

SplitName = TypeVar("SplitName", bound=str)


def read_question_keys(specs: Iterable[str]) -> frozenset[str]:
    """Return the keys of all questions of some sources, whatever published layout they have.

    A source without a split is read from its `test`.

    Raises:
        ArtifactError: a record has no question under any of the known names.
        ConfigError: a source cannot be found.
    """
    keys = set()
    for spec in specs:
        for record in read_source(spec, default_split="test"):
            names = [name for name in _QUESTION_FIELDS if has_value(record, name)]
            if not names:
                known = ", ".join(_QUESTION_FIELDS)
                raise missing_field(record, "question", fix=f"; task.where.exclude reads one of {known}")
            keys.add(question_key(text_of(record, *names)))
    return frozenset(keys)


def apply_filters(
    splits: Mapping[SplitName, Sequence[Problem]], where: FilterConfig
) -> tuple[dict[SplitName, list[Problem]], list[str]]:
    """Return the problems for which every condition holds, and a line for each condition that left some out.

    A problem is counted at the first condition that it does not meet; one without a difficulty meets no bound of it.

    Raises:
        ConfigError: a kind that is asked for does not occur; the message names those that do.
        ArtifactError: a source of `where.exclude` cannot be read.

    >>> problems = [Problem(id=str(d), family="math", question=f"{d}?", answer="1", difficulty=d) for d in (1, 2, 3)]
    >>> kept, notes = apply_filters({"train": problems}, FilterConfig(max_difficulty=2.0))
    >>> [problem.id for problem in kept["train"]], notes
    (['1', '2'], ['train: 1 left out by max_difficulty=2.0'])
    """
    _check_kinds(where, [problem for problems in splits.values() for problem in problems])
    return _keep(splits, _conditions(where))


def _keep(
    splits: Mapping[SplitName, Sequence[Problem]], conditions: Sequence[Condition]
) -> tuple[dict[SplitName, list[Problem]], list[str]]:
    kept = {split: list(problems) for split, problems in splits.items()}
    notes = []
    for split in kept:
        for name, holds in conditions:
            before = len(kept[split])
            kept[split] = [problem for problem in kept[split] if holds(problem)]
            if len(kept[split]) < before:
                notes.append(f"{split}: {before - len(kept[split]):,} left out by {name}")
    return kept, notes


def _check_kinds(where: FilterConfig, problems: Iterable[Problem]) -> None:
    known = sorted({problem.kind for problem in problems})
    for kind in where.kinds:
        if kind not in known:
            raise ConfigError(
                f"task.where.kinds has {kind!r}, which no problem is of; there are {', '.join(known) or 'none'}"
                f"{nearest(kind, known)}"
            )


def _conditions(where: FilterConfig) -> list[Condition]:
    low, high, chars = where.min_difficulty, where.max_difficulty, where.max_question_chars
    found: list[Condition] = []
    if low is not None:
        found.append((f"min_difficulty={low}", lambda one: one.difficulty is not None and one.difficulty >= low))
    if high is not None:
        found.append((f"max_difficulty={high}", lambda one: one.difficulty is not None and one.difficulty <= high))
    if where.kinds:
        found.append(("kinds", lambda one: one.kind in where.kinds))
    if chars is not None:
        found.append((f"max_question_chars={chars}", lambda one: len(one.question) <= chars))
    if where.exclude:
        excluded = read_question_keys(where.exclude)
        found.append(("exclude", lambda one: question_key(one.question) not in excluded))
    return found


MATHS = GraderEntry(
    module="swerve.rewards.maths",
    function="grade_math",
    isolated=True,
    quick="quick_math",
    preloads=("mpmath",),
    policies=MathGrading,
)
"""The grader of mathematics."""
