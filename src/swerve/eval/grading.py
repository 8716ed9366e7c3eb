"""Grade the answers of a file a chunk at a time: memory does not grow with the file, and a kill costs one chunk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from swerve.artifacts.messages import calls_tools, no_answer
from swerve.artifacts.parts import CopiedParts, Parts
from swerve.artifacts.responses import from_json
from swerve.artifacts.shards import WHOLE, Shard
from swerve.artifacts.streams import RowKeys, chunks
from swerve.errors import ArtifactError
from swerve.eval.answer_files import AnswerFile, GivenAnswer
from swerve.eval.recorded_verdicts import FAILED, VerdictComparison
from swerve.formats.imported_responses import LeftOut
from swerve.formats.records import FileRecord
from swerve.formats.table_files import digest_of_table
from swerve.grading.answers import find_answer
from swerve.grading.policies import MathGrading
from swerve.grading.text import Misread, can_be_met
from swerve.progress import Progress
from swerve.rewards import grade_all
from swerve.rewards.graders import GRADERS
from swerve.statistics.intervals import mean_interval
from swerve.types import Problem, Reward
from swerve.version import __version__

_RESULT_NAMES = ("value", "status", "answered", "extracted", "parts", "detail")
MOST_KEPT = 1000
"""Disagreements of an audit, different values and different failures that are listed."""
_MOST_UNPARSED = 0.2
"""Share of texts without an answer above which it is said which extraction reads them."""
_NEARLY_ALL = 0.95


def check_answers(answers: AnswerFile, audits: Sequence[VerdictComparison]) -> tuple[int, str | None]:
    """Look at every answer of a file, and at what it records in the fields of audits; nothing is held.

    Returns:
        How many can be graded, and a line on the records without a gold answer or a response, and on gold answers that
        no answer can meet; None: there are none.

    Raises:
        ArtifactError: a record cannot be graded, none has a response or a gold answer, or a field records something
            else than a verdict.
        ConfigError: no record has a field.
    """
    num, num_without, first_without = 0, 0, ""
    unmet, nameless = list[str](), list[str]()
    failed = LeftOut()
    for record, pair in answers.pairs(failed):
        for audit in audits:
            audit.look(record, counts=pair is not None)
        num += 1
        if pair is None:
            num_without, first_without = num_without + 1, first_without or record.place
            continue
        nameless += [record.place] * (pair[0].id == record.place)
        unmet += [] if _can_be_met(pair[0]) else [f"{record.place}: {pair[0].answer!r:.40}"]
    for audit in audits:
        audit.check(answers.path)
    if not num:
        raise ArtifactError(
            f"{answers.path}: none of its {failed.num_failed} records has a response; {failed.first[0]}"
        )
    if num == num_without:
        raise ArtifactError(
            f"{answers.path}: the gold answer of all {num} records is null; --field gold=FIELD names it"
        )
    left_out = [f"{num_without} of {num} left out: no gold answer ({first_without})"] if num_without else []
    if failed.num_failed:
        left_out.append(f"{failed.num_failed} left out: no response ({failed.first[0]})")
    if 0 < len(nameless) < num - num_without:
        left_out.append(
            f"{len(nameless)} of {num} have neither id nor question and are problems of their own ({nameless[0]})"
        )
    if unmet:
        left_out.append(f"{len(unmet)} of {num} have a gold answer that no answer can meet ({unmet[0]})")
    return num - num_without, "; ".join(left_out) or None


def _can_be_met(problem: Problem) -> bool:
    grader = "math" if _is_maths(problem) else problem.grader or problem.family
    return can_be_met(grader, (problem.answer, *problem.alternatives))


def kept_verdicts(
    out: Path,
    answers: AnswerFile,
    problems: Path | None,
    limits: Sequence[float | None],
    copied: CopiedParts | None = None,
) -> Parts:
    """Return the verdicts so far, beside the output: they depend on the files, the grader, its policies and limits."""
    digests, task = [digest_of_table(path) if path else None for path in (answers.path, problems)], answers.task
    names = {name: list(fields) for name, fields in task.names.items()}
    inputs = [*digests, task.grader, dict(task.policies), names, list(limits), __version__]
    return Parts(out.with_name(f"{out.name}.partial"), inputs, copied=copied)


def grade_answers(
    answers: Iterable[GivenAnswer], num: int, progress: Progress, kept: Parts | None = None, shard: Shard = WHOLE
) -> Iterator[tuple[GivenAnswer, Reward]]:
    """Yield each answer with its reward; a chunk of them is held.

    Args:
        answers: of a file, or a list.
        num: of answers.
        progress: told of each chunk.
        kept: has the verdicts of an interrupted command, and of other shards; new ones are put into it.
        shard: whose chunks are graded here; the others are not yielded.
    """
    right = failures = 0
    with progress.task("grade", num) as task:
        for number, chunk in enumerate(chunks(answers, _size)):
            known = kept.get("verdicts", number) if kept else None
            if not shard.owns(number):
                task.advance(len(chunk))
                continue
            if known is None:
                rewards = grade_all([(answer.problem, answer.text) for answer in chunk])
                if kept:
                    kept.put("verdicts", number, list(map(_verdict, rewards)))
            else:
                rewards = [Reward(**verdict) for verdict in known]
            right += sum(reward.is_right for reward in rewards)
            failures += sum(reward.value is None for reward in rewards)
            task.advance(len(chunk), right=right, failures=failures)
            yield from zip(chunk, rewards, strict=True)


def _size(answer: GivenAnswer) -> int:
    values = answer.record.values.values()
    return sum(len(value) for value in values if isinstance(value, str | list | dict))


def _verdict(reward: Reward) -> dict[str, Any]:
    return {name: getattr(reward, name) for name in _RESULT_NAMES} | {"parts": dict(reward.parts)}


def graded_row(record: FileRecord, reward: Reward) -> dict[str, Any]:
    """Return the record with the verdict; its own fields of the verdict's names are kept as `recorded_...`."""
    row = dict(record.values)
    for key in _RESULT_NAMES:
        if key in row:
            name = f"recorded_{key}"
            while name in row:  # verdicts that were graded before
                name = f"recorded_{name}"
            row[name] = row.pop(key)
    return {**row, **_verdict(reward)}


class GradingSummary:
    """Running counts of what the grader said; of each answer 17 bytes are held, for the interval over problems."""

    def __init__(self, answers: AnswerFile, left_out: str | None, audits: Sequence[VerdictComparison]) -> None:
        self._answers, self._left_out, self._audits = answers, left_out, audits
        self._problems, self._clusters, self._right = RowKeys(), RowKeys(), bytearray()
        self._graders, self._statuses = Counter[str](), Counter[str]()
        self._values, self._failures, self._endings = Counter[float](), Counter[str](), Counter[str]()
        self._sum, self._num, self._misread = 0.0, Counter[str](), Misread()

    def add(self, answer: GivenAnswer, reward: Reward) -> None:
        """Count an answer; one that reached a limit, or made the grader fail, is neither right nor wrong."""
        if reward.status not in FAILED:
            self._problems.add(answer.problem.id)
            self._clusters.add(answer.problem.cluster)
            self._right.append(reward.is_right)
            if reward.answered and not reward.is_right:
                self._misread.add(answer.problem, answer.text)
        self._graders[answer.problem.grader or answer.problem.family] += 1
        self._statuses[reward.status] += 1
        turns = _turns(answer.record)
        self._num["calls"] += calls_tools(turns)
        if not reward.answered:
            reason = answer.record.values.get("finish_reason")
            known = no_answer(turns, reason if isinstance(reason, str) else None, answer.text)
            self._num["unanswered"] += 1
            self._endings.update(filter(None, [known]))
        if _is_maths(answer.problem):
            self._num["maths"] += 1
            self._num["maths_unanswered"] += not reward.answered
        if reward.value is not None:
            self._sum += reward.value
            _count(self._values, reward.value)
        if reward.detail:
            _count(self._failures, reward.detail)
        for audit in self._audits:
            audit.add(answer.record, answer.problem, reward)

    def summary(self) -> dict[str, Any]:
        """Return how many answers are right, with the interval, the counts, and the audits."""
        # A problem counts once, however many records it has, and problems of one group as one observation.
        _, places, groups = np.unique(self._problems.digests, return_index=True, return_inverse=True)
        clusters = np.unique(self._clusters.digests[places], return_inverse=True)[1]
        right = np.frombuffer(self._right, np.uint8)
        fractions = np.bincount(groups, right) / np.maximum(1, np.bincount(groups))
        num_graded = self._statuses["graded"]
        return {
            "file": str(self._answers.path),
            "grader": self._answers.task.grader,
            "policies": dict(self._answers.task.policies),
            "graders": dict(self._graders),
            "num_records": self._statuses.total(),
            "num_not_graded": self._statuses.total() - len(groups),
            "num_right": int(right.sum()),
            "right": mean_interval(fractions, clusters=clusters, bounds=(0.0, 1.0)),
            "mean_value": self._sum / num_graded if num_graded else None,
            "values": {f"{value:g}": count for value, count in sorted(self._values.items())},
            "statuses": dict(sorted(self._statuses.items())),
            "num_unanswered": self._num["unanswered"],
            "unanswered": dict(self._endings.most_common()),
            "num_calls": self._num["calls"],
            "failures": dict(self._failures.most_common(10)),
            "extraction_hint": self._extraction_hint(),
            "misread": self._misread.note,
            "left_out": self._left_out,
            "audits": [audit.summary() for audit in self._audits],
        }

    def _extraction_hint(self) -> str | None:
        """Return which extraction reads the answers, where many texts of mathematics were found to have none."""
        num, num_unanswered = self._num["maths"], self._num["maths_unanswered"]
        if num_unanswered <= _MOST_UNPARSED * num:
            return None
        # In how many texts each form finds an answer; the file is read once more.
        read, asked = dict.fromkeys(("boxed", "answer_tag", "hash", "auto"), 0), dict[str, None]()
        for answer in self._answers:
            if _is_maths(answer.problem):
                asked |= dict.fromkeys(answer.problem.grading.get("extraction", MathGrading().extraction))
                for form in read:
                    read[form] += find_answer(answer.text, (form,)) is not None
        if read["auto"] <= num - num_unanswered:
            return None
        form = next(form for form in read if read[form] >= _NEARLY_ALL * read["auto"])
        named = " or ".join(r"\boxed{}" if name == "boxed" else name for name in asked)
        return f"{num_unanswered} of {num} answers have no {named}; extraction={form} reads {read[form]}"


def _turns(record: FileRecord) -> Sequence[Mapping[str, Any]]:
    """Return the messages of a record's response where they are more than one text."""
    with suppress(ValueError):  # of others' records the field may be anything
        turns = from_json(record.values, "turns", list) or ()
        if all(isinstance(turn, dict) and "role" in turn for turn in turns):
            return turns
    return ()


def _is_maths(problem: Problem) -> bool:
    return GRADERS[problem.grader or problem.family].policies is MathGrading


def _count(counter: Counter[Any], key: Any) -> None:
    """Count a key, unless so many others are counted that it is no kind any more."""
    if key in counter or len(counter) < MOST_KEPT:
        counter[key] += 1
