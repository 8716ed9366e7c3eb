"""Grade the answers of a file: which field says what, under which policies, and where an interrupted run continues."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swerve.artifacts.files import sha256_file
from swerve.artifacts.parts import Parts
from swerve.artifacts.problem_records import read_problem
from swerve.artifacts.responses import from_json
from swerve.artifacts.samples import SampleFile
from swerve.errors import ArtifactError, ConfigError, nearest
from swerve.formats.records import Record, read_records
from swerve.formats.typed_fields import RESPONSE_NAMES, Fields
from swerve.grading.answers import find_answer
from swerve.grading.policies import MathGrading
from swerve.problems.record_values import texts_in
from swerve.progress import Progress
from swerve.recipes.layers import parse_override
from swerve.rewards import grade_all, known_graders
from swerve.rewards.checks import outside_policies
from swerve.rewards.graders import GRADERS
from swerve.rewards.sandbox.python_file import check_reward_file
from swerve.statistics.intervals import accuracy_interval
from swerve.types import Problem, Reward
from swerve.version import __version__

_ROWS_AT_A_TIME = 256
_RESULT_NAMES = ("value", "status", "answered", "extracted", "parts", "detail")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "id": (*RESPONSE_NAMES["id"], "idx"),
    "question": ("question", "problem"),
    "gold": RESPONSE_NAMES["gold"],
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
_MOST_UNPARSED = 0.2
"""Share of texts without an answer above which it is said which extraction reads them."""
_NEARLY_ALL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingTask:
    """A grader, its policies, and where its inputs stand in a record."""

    grader: str
    policies: Mapping[str, Any]
    """What differs from the grader's defaults."""
    given: Mapping[str, Any]
    """The policies of the command line: they come before those of a known problem."""
    names: Mapping[str, tuple[str, ...]]
    known: Mapping[str, Problem]
    """Problems by id, for records that do not say what the answer is."""

    def pair(self, record: Record) -> tuple[Problem, str] | None:
        """Return the problem and the text of a record; None: the field of its gold answer is null.

        Raises:
            ArtifactError: it has no text to grade or no field of a gold answer, or one of the wrong type.
        """
        values = record.values
        if "problem_details" in values:  # of a table of responses: its problem's further fields
            try:
                details = from_json(values, "problem_details", dict) or {}
            except ValueError as error:
                raise ArtifactError(f"{record.place}: {error}") from None
            values = {**details.pop("metadata", {}), **details, **values}
        entry = Fields(record.place, values, self.names)

        # The text to grade is a response, or an answer alone; beside a response, an answer is the gold one.
        text, answer = entry.get("response"), entry.get("answer")
        is_answer = text is None
        if is_answer:
            text, answer = answer, None
        if text is None and not any(key in values for name in ("response", "answer") for key in self.names[name]):
            raise ArtifactError(
                f"{record.place} has no response and no answer (it has {', '.join(values) or 'no fields'}); "
                "name its field with --field response=FIELD"
            )
        if isinstance(text, bool | list | dict):
            raise ArtifactError(f"{record.place}: the text to grade must be text, got {type(text).__name__}")
        problem = self._problem(entry, answer, is_answer=is_answer)
        return None if problem is None else (problem, "" if text is None else str(text))

    def _problem(self, entry: Fields, answer: Any, *, is_answer: bool) -> Problem | None:
        # A problem that is known says what the gold answer is, where the record does not.
        name, kind = entry.get("id"), GRADERS[self.grader]
        known, gold = self.known.get(str(name)), entry.get("gold")
        if gold is None and known is not None:
            own = known.grader or known.family
            if self.given and own != self.grader:
                raise ConfigError(
                    f"problem {known.id!r} of the problems' file is judged by {own!r}, so policies of {self.grader!r} "
                    f"({', '.join(self.given)}) do not fit it; give --task {own}, or leave them out"
                )
            return replace(known, grading={**known.grading, **self.given})
        gold = answer if gold is None else gold
        letters = entry.values.get("letters")
        if gold is None and self.grader == "palindrome":  # they decide, in any order
            gold = "".join(map(str, letters)) if isinstance(letters, list) else letters

        # Without a gold answer: an id that is not known, a null, or no such field.
        golds, metadata = self._golds(gold, entry)
        if not golds and kind.needs_gold:
            if gold is None and self.known:
                raise ArtifactError(
                    f"{entry.place} has no gold answer, and no problem of the problems' file has its id {name!r}"
                    f"{nearest(str(name), self.known)}"
                )
            if gold is None and any(key in entry.values for key in self.names["gold"]):
                return None
            raise ArtifactError(
                f"{entry.place} has no gold answer (it has {', '.join(entry.values) or 'no fields'}); name its field "
                "with --field gold=FIELD, or give the problems with --problems FILE"
            )
        alternatives = entry.get("alternatives") or []
        if not isinstance(alternatives, list):
            raise ArtifactError(f"{entry.place}: the alternative golds must be a list, got {alternatives!r:.40}")

        # An answer alone is read as it is, unless the command line says how.
        policies = dict(self.policies)
        if is_answer and kind.policies is MathGrading and "extraction" not in self.given:
            policies["extraction"] = _OUTSIDE_ANSWER
        prefix, begun = entry.get("prefix"), entry.get("begun")
        taken = {field for fields in self.names.values() for field in fields}
        return Problem(
            id=entry.place if name is None else str(name),
            family=self.grader,
            question=str(entry.get("question") or ""),
            answer=golds[0] if golds else "",
            prefix=prefix if isinstance(prefix, str) else "",
            begun=begun if isinstance(begun, str) else None,
            alternatives=(*golds[1:], *texts_in(entry.place, "alternatives", alternatives)),
            grader=self.grader,
            grading=policies,
            metadata={**{key: value for key, value in entry.values.items() if key not in taken}, **metadata},
        )

    def _golds(self, gold: Any, entry: Fields) -> tuple[tuple[str, ...], Mapping[str, Any]]:
        """Return the gold answers, and what a mapping of names to roles says beyond them."""
        if self.grader == "k_and_k" and isinstance(gold, dict) and any(gold.values()):
            from swerve.problems.knights.english import answer_text

            present = {name: role for name, role in gold.items() if role is not None}
            return (answer_text(present),), {"names": list(present)}
        return () if gold is None or gold in ([], {}) else texts_in(entry.place, "gold answer", gold), {}


def answered_pairs(
    records: Sequence[Record], task: GradingTask, file: Path
) -> tuple[list[Record], list[tuple[Problem, str]], str | None]:
    """Return the records with a gold answer, problem and text of each, and a line on those without one.

    Raises:
        ArtifactError: none has one, or as for `GradingTask.pair`.
    """
    # A record whose gold answer is null is left out.
    kept: list[Record] = []
    pairs: list[tuple[Problem, str]] = []
    without: list[str] = []
    for record in records:
        pair = task.pair(record)
        if pair is None:
            without.append(record.place)
        else:
            kept.append(record)
            pairs.append(pair)
    if records and not kept:
        raise ArtifactError(
            f"{file}: the gold answer of all {len(records)} records is null; --field gold=FIELD names it"
        )
    line = f"{len(without)} of {len(records)} left out: no gold answer ({without[0]})" if without else None
    return kept, pairs, line


def grading_task(
    grader: str, overrides: Sequence[str], *, fields: Mapping[str, str], known: Mapping[str, Problem]
) -> GradingTask:
    """Return how a file is graded.

    Raises:
        ConfigError: there is no such grader, or it has no such policy.
    """
    if grader not in known_graders():
        names = known_graders()
        raise ConfigError(f"--task '{grader}' has no grader{nearest(grader, names)} ({', '.join(names)})")
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
        names={name: (fields[name],) if name in fields else places for name, places in FIELDS.items()},
        known=known,
    )


def samples_task(file: SampleFile, grader: str | None, overrides: Sequence[str]) -> GradingTask:
    """Return how samples are graded again: by the grader that is named, else by that of their problems.

    Raises:
        ConfigError: policies are given and the problems have several graders, or as for `grading_task`.
    """
    problems = [sample.problem for sample in file.samples]
    task = grading_task(chosen_grader(grader, overrides, problems), overrides, fields={}, known={})
    is_own = task.grader in {problem.grader or problem.family for problem in problems}
    return replace(task, policies=task.given) if is_own else task


def chosen_grader(name: str | None, overrides: Sequence[str], problems: Iterable[Problem]) -> str:
    """Return the grader that is named, else that of the problems.

    Raises:
        ConfigError: neither says one, or policies are given and the problems have several graders.
    """
    if name is not None:
        return name
    graders = sorted({problem.grader or problem.family for problem in problems} & {*known_graders()})
    if not graders:
        raise ConfigError("--task is missing: which grader? Give --task math, gsm8k, k_and_k, ... (swerve data list)")
    if overrides and len(graders) > 1:
        raise ConfigError(
            f"the problems have several graders ({', '.join(graders)}); say with --task whose policies these are"
        )
    return graders[0]


def sample_pairs(file: SampleFile, task: GradingTask, *, is_named: bool) -> list[tuple[Problem, str]]:
    """Return each sample's problem and text; problems keep the grader and policies that the task does not replace.

    Args:
        file: the samples.
        task: of `samples_task`.
        is_named: whether its grader was named, and judges also the problems that have another.
    """
    pairs = []
    for sample in file.samples:
        problem = sample.problem
        if (problem.grader or problem.family) == task.grader:
            problem = replace(problem, grading={**problem.grading, **task.given})
        elif is_named:
            problem = replace(problem, grader=task.grader, grading=dict(task.policies))
        pairs.append((problem, sample.text or ""))
    return pairs


def read_known_problems(path: Path) -> dict[str, Problem]:
    """Return the problems of a file by id.

    Raises:
        ArtifactError: the file cannot be read, or a record is not a problem.
    """
    problems = [read_problem(record.values, record.place) for record in read_records(path)]
    return {problem.id: problem for problem in problems}


def kept_verdicts(
    out: Path, file: Path, problems: Path | None, task: GradingTask, limits: Sequence[float | None]
) -> Parts:
    """Return the verdicts so far, beside the output: they depend on the files, the grader, its policies and limits.

    Raises:
        ConfigError: what is there is somebody else's.
    """
    digests = [sha256_file(path) if path else None for path in (file, problems)]
    names = {name: list(fields) for name, fields in task.names.items()}
    inputs = [*digests, task.grader, dict(task.policies), names, list(limits), __version__]
    parts = Parts(out.with_name(f"{out.name}.partial"), inputs)
    parts.begin()
    return parts


def json_line(row: Mapping[str, Any]) -> str:
    """Return a row as one line of ASCII: a text of a model may hold half of a surrogate pair, which UTF-8 cannot."""
    return json.dumps(row, allow_nan=False, default=str)


def grade_pairs(pairs: Sequence[tuple[Problem, str]], progress: Progress, kept: Parts | None = None) -> list[Reward]:
    """Grade each text as an answer to its problem, in order; `kept` has the verdicts of an interrupted command."""
    rewards: list[Reward] = []
    with progress.task("grade", len(pairs)) as task:
        for start in range(0, len(pairs), _ROWS_AT_A_TIME):
            # What was graded before the interruption is read.
            known = kept.get("verdicts", start) if kept else None
            if known is not None:
                graded = [Reward(**verdict) for verdict in known]
            else:
                graded = grade_all(pairs[start : start + _ROWS_AT_A_TIME])
                if kept:
                    kept.put("verdicts", start, [_verdict(reward) for reward in graded])
            rewards += graded
            right = sum(reward.is_right for reward in rewards)
            failures = sum(reward.value is None for reward in rewards)
            task.advance(len(graded), right=right, failures=failures)
    return rewards


def _verdict(reward: Reward) -> dict[str, Any]:
    return {name: getattr(reward, name) for name in _RESULT_NAMES} | {"parts": dict(reward.parts)}


def graded_row(record: Record, reward: Reward) -> dict[str, Any]:
    """Return the record with the verdict; its own fields of the verdict's names are kept as `recorded_...`."""
    kept = {key: value for key, value in record.values.items() if key not in _RESULT_NAMES}
    for key in _RESULT_NAMES:
        if key in record.values:
            name = f"recorded_{key}"
            while name in record.values:  # verdicts that were graded before
                name = f"recorded_{name}"
            kept[name] = record.values[key]
    return {**kept, **_verdict(reward)}


def grading_summary(
    file: Path, task: GradingTask, pairs: Sequence[tuple[Problem, str]], rewards: Sequence[Reward]
) -> dict[str, Any]:
    """Return how many records are right, with the interval, and the counts of values, statuses and failures."""
    graded = [reward.value for reward in rewards if reward.value is not None]
    right = sum(reward.is_right for reward in rewards)
    # A problem counts once, however many records it has.
    by_problem: dict[str, list[bool]] = {}
    for (problem, _), reward in zip(pairs, rewards, strict=True):
        by_problem.setdefault(problem.id, []).append(reward.is_right)
    return {
        "file": str(file),
        "grader": task.grader,
        "policies": dict(task.policies),
        "graders": dict(Counter(problem.grader or problem.family for problem, _ in pairs)),
        "num_records": len(rewards),
        "num_right": right,
        "right": accuracy_interval(list(by_problem.values())),
        "mean_value": sum(graded) / len(graded) if graded else None,
        "values": {f"{value:g}": count for value, count in sorted(Counter(graded).items())},
        "statuses": dict(sorted(Counter(reward.status for reward in rewards).items())),
        "num_unanswered": sum(not reward.answered for reward in rewards),
        "failures": dict(Counter(reward.detail for reward in rewards if reward.detail).most_common(10)),
        "extraction_hint": extraction_hint(pairs, rewards),
    }


def extraction_hint(pairs: Sequence[tuple[Problem, str]], rewards: Sequence[Reward]) -> str | None:
    """Return which extraction reads the answers, where many texts of mathematics were found to have none."""
    maths = [
        (problem, text, reward)
        for (problem, text), reward in zip(pairs, rewards, strict=True)
        if GRADERS[problem.grader or problem.family].policies is MathGrading
    ]
    num_unanswered = sum(not reward.answered for _, _, reward in maths)
    if num_unanswered <= _MOST_UNPARSED * len(maths):
        return None
    # In how many texts each form finds an answer.
    forms = ("boxed", "answer_tag", "hash", "auto")
    read = {form: sum(find_answer(text, (form,)) is not None for _, text, _ in maths) for form in forms}
    if read["auto"] <= len(maths) - num_unanswered:
        return None
    form = next(form for form in forms if read[form] >= _NEARLY_ALL * read["auto"])
    asked: dict[str, None] = {}
    for problem, _, _ in maths:
        asked |= dict.fromkeys(problem.grading.get("extraction", MathGrading().extraction))
    named = " or ".join(r"\boxed{}" if name == "boxed" else name for name in asked)
    return f"{num_unanswered} of {len(maths)} answers have no {named}; extraction={form} reads {read[form]}"
