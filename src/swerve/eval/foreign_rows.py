"""Rows of a comparison that were made elsewhere: responses of any file, and accuracies that somebody published."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from swerve.artifacts.comparison import PublishedRow
from swerve.artifacts.messages import message_notes
from swerve.artifacts.responses import Response
from swerve.errors import ArtifactError
from swerve.eval.answer_files import GivenAnswer
from swerve.eval.grading import grade_answers
from swerve.formats.imported_responses import LeftOut, responses_of
from swerve.formats.problem_joins import numbered, plain_text
from swerve.formats.records import FileRecord, read_records
from swerve.progress import Progress
from swerve.types import Problem

_PUBLISHED = ("name", "kind", "accuracy")
SHIPPED = Path(__file__).parent / "published"
"""Tables of published accuracies that come with swerve: `k_and_k.csv`."""
ALL = "all"
"""The kind of a published accuracy over all problems."""
_SHORTEST_QUOTED = 5
"""Words of the shortest question that is looked for within a longer prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRows:
    """What a file adds to a comparison, joined to its problems and not graded yet."""

    responses: Sequence[Response] = ()
    """Under the names of their rows; their problems are those of the comparison."""
    published: Sequence[PublishedRow] = ()

    @property
    def labels(self) -> list[str]:
        """The names of the rows of its responses."""
        return list(dict.fromkeys(response.label or "" for response in self.responses))

    def graded(self, progress: Progress) -> list[list[Response]]:
        """Return the responses of each row, judged by the graders of their problems."""
        answers = [GivenAnswer(FileRecord("", {}), response.problem, response.said) for response in self.responses]
        graded = grade_answers(answers, len(answers), progress) if answers else ()
        judged = [response.judged(reward) for response, (_, reward) in zip(self.responses, graded, strict=True)]
        return [[response for response in judged if response.label == label] for label in self.labels]


def read_rows(
    name: str, path: Path, problems: Sequence[Problem], progress: Progress, *, fields: Mapping[str, str] | None = None
) -> ForeignRows:
    """Return the rows of a file: published accuracies where it has `name`, `kind`, `accuracy`, else responses.

    A response belongs to the problem whose question, or prompt as the models are asked, it answers, else to that of its
    id. What is left out, and how much of the problems the file covers, is noted.

    Args:
        name: of the row; responses of several labels have a row each, `NAME LABEL`.
        path: see `read_responses`; a published table may be of any of its formats.
        problems: of the comparison.
        progress: told what is left out.
        fields: names of the file's fields where they differ from those known.

    Raises:
        ArtifactError: the file is damaged, has nothing on these problems, or an accuracy is no fraction.
    """
    records = read_records(path)
    if set(_PUBLISHED) <= records[0].values.keys():
        return ForeignRows(published=_published(path, records, problems, progress))
    left_out = LeftOut()
    responses = numbered(responses_of(path, records, fields=fields, left_out=left_out))

    # Each response gets its problem as it is here, but for what its own prompt had of the answer.
    find = _problem_finder(problems)
    joined, others = [], list[Response]()
    for response in responses:
        known = find(response)
        if known is None:
            others.append(response)
            continue
        own, messages = response.problem, response.problem.messages or known.messages
        group = own.group if known.group is None else known.group
        problem = replace(known, prefix=own.prefix, begun=own.begun, messages=messages, group=group)
        joined.append(replace(response, problem=problem))
    if not joined:
        raise ArtifactError(
            f"{path}: none of its {len(responses)} responses is to one of the {len(problems)} problems, by question or "
            f"id (such as {others[0].problem.id!r} there, {problems[0].id!r} here); name its fields with --field id= "
            "or --field problem=, or ask for the file's problems with --data"
        )

    # Rows by name; what they cover of the problems and what is left out is said.
    several = len({response.label for response in joined}) > 1
    named: dict[str, list[Response]] = {}
    for response in joined:
        label = f"{name} {response.label or 'no label'}" if several else name
        named.setdefault(label, []).append(replace(response, label=label))
    for line in _coverage(named, len(problems)):
        progress.note(f"{path}: {line}")
    if others:
        progress.note(f"{path}: responses to other problems, left out: {len(others)} (the first: {others[0].place})")
    if left_out.num_failed:
        progress.note(f"{path}: records without a response, left out: {left_out.num_failed}; {left_out.first[0]}")
    return ForeignRows(responses=[response for row in named.values() for response in row])


def _coverage(rows: Mapping[str, Sequence[Response]], num: int) -> Iterator[str]:
    """Say what each row covers of the problems, nothing where it is one response each, and what its messages hold."""
    for label, row in rows.items():
        yield from (f"'{label}': {note}" for note in message_notes((each.turns, each.no_answer) for each in row))
        counts = Counter(response.problem.id for response in row).values()
        least, most = min(counts), max(counts)
        if len(counts) < num or most > 1:
            samples = f"{most}" if least == most else f"{least} to {most}"
            few = ", and is compared over these" if len(counts) < num else ""
            yield f"'{label}' has responses to {len(counts)} of the {num} problems, {samples} each{few}"


def _problem_finder(problems: Sequence[Problem]) -> Callable[[Response], Problem | None]:
    """Return a function from a response to the problem that it answers, by what that asks or by its id."""
    by_id = {problem.id: problem for problem in problems}
    # Of two that ask the same the first is meant.
    by_text: dict[str, Problem] = {}
    for problem in problems:
        for text in (problem.question, *(text for role, text in problem.messages if role == "user")):
            by_text.setdefault(plain_text(text), problem)

    @functools.cache
    def asking(text: str) -> Problem | None:
        if text in by_text:
            return by_text[text]
        # A question may stand in a longer text; where several do none is meant.
        quoted = [
            problem
            for problem in by_id.values()
            if problem.question.count(" ") >= _SHORTEST_QUOTED - 1 and plain_text(problem.question) in text
        ]
        return quoted[0] if len(quoted) == 1 else None

    def find(response: Response) -> Problem | None:
        # An id is the file's own where another question stands beside it.
        by_question = next(filter(None, map(asking, map(plain_text, response.asked_texts))), None)
        return by_question or (None if response.problem.question else by_id.get(response.problem.id))

    return find


def _published(
    path: Path, records: Sequence[FileRecord], problems: Sequence[Problem], progress: Progress
) -> list[PublishedRow]:
    """Return published accuracies by kind; a kind may be named by its number alone, as 2 for `2 people`."""
    kinds = list(dict.fromkeys(problem.kind for problem in problems))
    numbers = Counter(kind.partition(" ")[0] for kind in kinds)
    named = {kind: kind for kind in (*kinds, ALL)}
    named |= {number: kind for kind in kinds if numbers[number := kind.partition(" ")[0]] == 1}

    # Each accuracy, under the name of its row and the kind as the problems have it.
    rows: dict[str, dict[str, float]] = {}
    unknown: dict[str, None] = {}
    for record in records:
        name, kind, value = (record.values.get(field) for field in _PUBLISHED)
        try:
            accuracy = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            accuracy = -1.0
        if not 0 <= accuracy <= 1 or name is None or kind is None:
            raise ArtifactError(
                f"{record.place}: a published accuracy has a name, a kind and a fraction from 0 to 1, got {name!r}, "
                f"{kind!r}, {value!r}"
            )
        known = named.get(str(kind))
        if known is None:
            unknown[str(kind)] = None
        elif rows.setdefault(str(name), {}).setdefault(known, accuracy) != accuracy:
            raise ArtifactError(f"{record.place}: {name!r} has two accuracies on {known!r}; give it one")
    if not rows:
        raise ArtifactError(f"{path}: no published kind is one of the problems' ({', '.join(kinds)})")
    if unknown:
        progress.note(f"{path}: published kinds that the problems do not have: {', '.join(unknown)}")
    return [PublishedRow(name=name, accuracy=row.pop(ALL, None), by_kind=row) for name, row in rows.items()]
