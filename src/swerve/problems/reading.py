"""Tasks whose problems are read from data: distinct problems, disjoint splits, filters and a seeded choice."""

from __future__ import annotations

import hashlib
import math
import random
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress, islice
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import model_validator

from swerve.artifacts.problem_records import is_problem_record
from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.formats.imported_problems import chat_row
from swerve.formats.records import FileRecord
from swerve.grading.policies import MathGrading
from swerve.grading.text import can_be_met
from swerve.problems.data_specs import Sources, Specs, read_source
from swerve.problems.family import SolvedFamily, Split, is_heldout
from swerve.problems.held_out import HeldOut, question_key
from swerve.problems.prompt import FORMATS, PromptConfig, with_prompt
from swerve.problems.record_values import has_value, missing_field, text_of
from swerve.problems.task import PromptedTask
from swerve.settings import Model, PositiveInt, Words
from swerve.text import counted
from swerve.types import Problem

_NUM_NAMED = 3
_MAX_CHARS_HELD = 32_000_000
"""Of a split's problems that are held once they were read; where there are more, each pass reads them again."""
_CHARS_BESIDE = 1_000
"""What a problem takes beside its texts, as characters."""
_DEFAULT_SPLITS: Mapping[Split, str] = {"train": "train", "heldout": "test"}


class FilterConfig(Model):
    """Which problems are used; every condition must hold."""

    min_difficulty: float | None = None
    """Lowest difficulty; with a bound, problems without a difficulty are left out."""
    max_difficulty: float | None = None
    """Highest difficulty."""
    kinds: Words = ()
    """Kinds (levels, numbers of people, ...) as evaluation names them; none: all."""
    max_question_chars: PositiveInt | None = None
    """Longest question, in characters."""
    exclude: Specs = ()
    """Leave out problems whose question, up to white space and case, is in these sources."""


class DataTask(PromptedTask):
    """What every task that is read from files or a hub has."""

    train: Sources
    """Sources of training problems: `[split@]source[:config][#revision]`, a file, a folder or a name on the hub."""
    heldout: Specs = ()
    """Sources of held-out problems; none: one in six of the training problems, chosen by their text."""
    num_train: PositiveInt | None = None
    """Use so many training problems, chosen by the seed; null: all."""
    num_heldout: PositiveInt | None = None
    """Use so many held-out problems, chosen by the seed; null: all."""
    where: FilterConfig = FilterConfig()
    """Problems used, of both splits."""
    prompt: PromptConfig = PromptConfig()

    @property
    def train_sources(self) -> tuple[str, ...]:
        """See the base class."""
        return self.train

    @property
    def sources(self) -> tuple[str, ...]:
        """See the base class; those of problems that are left out are read too."""
        return (*self.train, *self.heldout, *self.where.exclude)


class MathsDataTask(DataTask):
    """A task whose answers are judged as mathematics."""

    grading: MathGrading = MathGrading()

    @property
    def policies(self) -> MathGrading:
        """Of the grader of mathematics."""
        return self.grading

    @model_validator(mode="after")
    def _check_extraction(self) -> MathsDataTask:
        form = FORMATS[self.prompt.format].form
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
class _Rows:
    """Problems by the numbers of their records; each pass reads large sources again, and holds none of theirs."""

    records: Callable[[], Iterator[FileRecord]]
    read: Callable[[FileRecord], Problem | None]
    numbers: array[int]
    """Ascending."""
    ids: Sequence[bytes]
    """A digest of each one's id."""
    held: Mapping[int, tuple[str, Problem]]
    """Place and problem by number, of sources that are small; else empty."""

    def placed(self) -> Iterator[tuple[str, Problem]]:
        """Yield each problem with the place where it was read.

        Raises:
            ArtifactError: a source has fewer records than when it was read first.
        """
        if self.held:
            yield from (self.held[number] for number in self.numbers)
            return
        wanted = iter(self.numbers)
        number = next(wanted, None)
        for place, record in enumerate(self.records()):
            if number is None:
                return
            if place == number and (problem := self.read(record)) is not None:
                yield record.place, problem
                number = next(wanted, None)
        if number is not None:
            raise ArtifactError(
                "the sources of the problems changed while they were read; give files that stay as they are"
            )

    def __iter__(self) -> Iterator[Problem]:
        return (problem for _, problem in self.placed())

    def only(self, are_kept: Sequence[bool]) -> _Rows:
        """Return the rows whose flag is set."""
        numbers = array("q", compress(self.numbers, are_kept))
        return replace(self, numbers=numbers, ids=list(compress(self.ids, are_kept)))

    def at(self, places: Sequence[int]) -> list[Problem]:
        """Return the problems at some places among the rows, in the order of these."""
        in_order = sorted(places)
        rows = replace(self, numbers=array("q", (self.numbers[place] for place in in_order)))
        problems = dict(zip(in_order, rows, strict=True))
        return [problems[place] for place in places]


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
    def problem(self, record: FileRecord) -> Problem | None:
        """Return a record as a problem, without prompt and the task's policies of grading; None: it has no gold answer.

        Raises:
            ArtifactError: a field is missing or wrong.
        """

    @property
    def grading(self) -> Mapping[str, Any]:
        """The task's policies of grading that differ from the grader's defaults; a problem's own come before them."""
        policies = self._task.policies
        return {} if policies is None else policies.model_dump(mode="json", exclude_defaults=True)

    def conditions(self, problems: Iterable[Problem]) -> list[Condition]:
        """Return the conditions of the family's own settings, given all problems that were read."""
        return []

    def remarks(self, split: Split, problems: Iterable[Problem]) -> list[str]:
        """Return what else a person should know of the problems of a split."""
        return []

    def problems(self, split: Split, *, seed: int) -> list[Problem]:
        """Return the distinct problems of a split in a seeded order, the first `num_train` or `num_heldout` of it.

        Raises:
            ConfigError: there are fewer than asked for, or none, or a source cannot be found.
            ArtifactError: a source cannot be read.
        """
        return self.first_problems(split, None, seed=seed)[1]

    def first_problems(self, split: Split, num: int | None, *, seed: int) -> tuple[int, list[Problem]]:
        """Return how many `problems` there are, and the first `num` (None: all); no others are held.

        Raises:
            ConfigError, ArtifactError: see `problems`.
        """
        splits, notes = self._loaded
        rows = splits[split]
        order = array("q", range(len(rows.numbers)))
        asked = self._task.num_train if split == "train" else self._task.num_heldout
        because = f" ({'; '.join(notes)})" if notes else ""
        if not order:
            raise ConfigError(f"task '{self.name}' has no {split} problems{because}; give other sources")
        if asked is not None and asked > len(order):
            raise ConfigError(
                f"task '{self.name}' has {len(order):,} {split} problems, fewer than task.num_{split}={asked}"
                f"{because}; lower it or give more sources"
            )
        random.Random(f"{self.name} {split} {seed}").shuffle(order)
        order = order[:asked]
        return len(order), [self._finished(problem) for problem in rows.at(order[:num])]

    def notes(self) -> list[str]:
        """Return a line for everything that was left out of the sources, and why.

        Raises:
            ConfigError: a source cannot be found.
            ArtifactError: a source cannot be read.
        """
        return list(self._loaded[1])

    def read(self, record: FileRecord) -> Problem | None:
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

    def _grader(self, problem: Problem) -> str:
        return problem.grader or ("math" if isinstance(self._task, MathsDataTask) else problem.family)

    @property
    def keeps_prompts(self) -> bool:
        """Whether problems that come with messages keep them: the task does not set another prompt."""
        return bool(self._task.prompt == type(self._task).model_fields["prompt"].default)

    @cached_property
    def _loaded(self) -> tuple[dict[Split, _Rows], list[str]]:
        """Return the rows of each split that are used, and the notes on the others."""
        notes: list[str] = []
        train, are_held = self._rows("train", self._task.train, notes)
        if self._task.heldout:
            heldout, _ = self._rows("heldout", self._task.heldout, notes)
            held_out, places = HeldOut(list(heldout)), list[str]()
            for number, (place, problem) in enumerate(train.placed()):
                are_held[number] = held_out.asked_in(problem.question)
                if are_held[number]:
                    places.append(place)
            _note(notes, "train", places, "also held out")
        else:
            heldout = train.only(are_held)
        train = train.only([not held for held in are_held])
        _check_ids(train, heldout)

        # What is said of all problems comes before what the task leaves out of them.
        splits: dict[Split, _Rows] = {"train": train, "heldout": heldout}
        notes += [remark for split, rows in splits.items() for remark in self.remarks(split, rows)]
        splits, left_out = filtered(splits, self.conditions(chain(*splits.values())))
        splits, filtered_out = filtered(splits, conditions_of(self._task.where, chain(*splits.values())))
        return splits, [*notes, *left_out, *filtered_out]

    def _rows(self, split: Split, specs: Sequence[str], notes: list[str]) -> tuple[_Rows, list[bool]]:
        """Return the problems of some sources, each question once, and add to `notes` what is left out.

        Beside them: whether each is held out by its text, where the task names no problems that are.
        """
        whole: dict[str, list[FileRecord]] = {}

        def records() -> Iterator[FileRecord]:
            for spec in specs:
                source = whole[spec] if spec in whole else _records(split, spec)
                if isinstance(source, list):  # a data set, which is not fetched again
                    whole[spec] = source
                yield from source

        answers: dict[bytes, bytes] = {}  # of each question, both as digests: texts would fill the memory
        numbers, ids, are_held = array("q"), list[bytes](), list[bool]()
        held, num_chars = dict[int, tuple[str, Problem]](), 0
        unanswered, unmet, repeated, differing = list[str](), list[str](), list[str](), list[str]()
        for number, record in enumerate(records()):
            problem = self.read(record)
            if problem is None:
                unanswered.append(record.place)
                continue
            if not can_be_met(self._grader(problem), (problem.answer, *problem.alternatives)):
                unmet.append(f"{record.place}: {problem.answer!r:.40}")
                continue
            key, answer = question_key(problem.question), _digest("".join(problem.answer.split()))
            num_questions = len(answers)
            first_answer = answers.setdefault(_digest(key), answer)
            if len(answers) > num_questions:
                numbers.append(number)
                ids.append(_digest(problem.id))
                are_held.append(is_heldout(key))
                num_chars += _CHARS_BESIDE + len(problem.question) + len(problem.solution or "")
                if num_chars <= _MAX_CHARS_HELD:
                    held[number] = record.place, problem
                else:
                    held.clear()
            else:
                repeated.append(record.place)
                if first_answer != answer:
                    differing.append(record.place)
        _note(notes, split, unanswered, "no gold answer")
        _note(notes, split, unmet, "a gold answer that no answer can meet")
        _note(notes, split, repeated, "the same question as an earlier row")
        _note(notes, split, differing, "of them with another gold answer, which is not used", verb="")
        return _Rows(records, self.read, numbers, ids, held), are_held


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def _records(split: Split, spec: str) -> Iterable[FileRecord]:
    try:
        return read_source(spec, default_split=_DEFAULT_SPLITS[split])
    except ConfigError as error:  # say which of the two sources: one may be the task's default
        raise ConfigError(f"task.{split}: {error}") from None


def _note(notes: list[str], split: str, places: Sequence[str], reason: str, *, verb: str = " left out:") -> None:
    if places:
        shown = [*places[:_NUM_NAMED], *(["..."] if len(places) > _NUM_NAMED else [])]
        count = counted(len(places), "row")
        notes.append(f"{split}: {count}{verb} {reason} ({'; '.join(shown)})")


def _check_ids(*splits: _Rows) -> None:
    seen: set[bytes] = set()
    for digest in chain.from_iterable(rows.ids for rows in splits):
        if digest in seen:
            rows = (row for split in splits for row in split.placed())
            (first, _), (place, problem) = islice((row for row in rows if _digest(row[1].id) == digest), 2)
            raise ArtifactError(
                f"{place} and {first} have different questions with one id {problem.id!r}; "
                "give each problem an id of its own, or none"
            )
        seen.add(digest)


_QUESTION_FIELDS = ("question", "problem", "quiz", "prompt", "input")
"""Names under which published data sets have the question."""


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


def filtered(splits: Mapping[Split, _Rows], conditions: Sequence[Condition]) -> tuple[dict[Split, _Rows], list[str]]:
    """Return the problems for which every condition holds, and a line for each condition that left some out.

    A problem is counted at the first condition that it does not meet. Without conditions nothing is read.
    """
    kept, notes = dict(splits), list[str]()
    for split, rows in splits.items() if conditions else ():
        unmet = [next((name for name, holds in conditions if not holds(problem)), None) for problem in rows]
        counts = Counter(unmet)
        notes += [f"{split}: {counts[name]:,} left out by {name}" for name, _ in conditions if counts[name]]
        kept[split] = rows.only([name is None for name in unmet])
    return kept, notes


def conditions_of(where: FilterConfig, problems: Iterable[Problem]) -> list[Condition]:
    """Return the conditions of a filter, given all problems.

    Raises:
        ConfigError: no problem is of a kind that it asks for; the message names those that there are.
        ArtifactError: a source of `exclude` cannot be read.
    """
    low, high, chars = where.min_difficulty, where.max_difficulty, where.max_question_chars
    conditions: list[Condition] = []

    # A problem without a difficulty meets no bound of it.
    if low is not None:
        conditions.append((f"min_difficulty={low}", lambda problem: low <= _difficulty(problem)))
    if high is not None:
        conditions.append((f"max_difficulty={high}", lambda problem: high >= _difficulty(problem)))

    # Kinds that no problem has are mistakes.
    known = sorted({problem.kind for problem in problems}) if where.kinds else []
    for kind in where.kinds:
        if kind not in known:
            raise ConfigError(
                f"task.where.kinds has {kind!r}, which no problem is of; there are {', '.join(known) or 'none'}"
                f"{nearest(kind, known)}"
            )
    if where.kinds:
        conditions.append(("kinds", lambda problem: problem.kind in where.kinds))
    if chars is not None:
        conditions.append((f"max_question_chars={chars}", lambda problem: len(problem.question) <= chars))
    if where.exclude:
        excluded = read_question_keys(where.exclude)
        conditions.append(("exclude", lambda problem: question_key(problem.question) not in excluded))
    return conditions


def _difficulty(problem: Problem) -> float:
    return math.nan if problem.difficulty is None else problem.difficulty
