"""DeepScaleR's contest problems, and the sets by which it is evaluated: AIME, AMC, MATH, Minerva, OlympiadBench."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Literal

from swerve.errors import ArtifactError
from swerve.formats.records import FileRecord
from swerve.formats.typed_fields import as_number
from swerve.problems.data_specs import Sources, Specs
from swerve.problems.family import Split, problem_id
from swerve.problems.math import last_boxed
from swerve.problems.prompt import PromptConfig
from swerve.problems.reading import MathsDataTask, ReadFamily
from swerve.problems.record_values import has_value, list_of_texts, number_of, text_of
from swerve.problems.task import MATHS, TaskKind
from swerve.types import Problem


class DeepScalerTask(MathsDataTask):
    """Contest problems for training (DeepScaleR) and AIME, AMC, MATH, Minerva and Olympiad sets for evaluation."""

    kind: Literal["deepscaler"] = "deepscaler"
    train: Sources = ("train@agentica-org/DeepScaleR-Preview-Dataset",)
    """Sources of training problems: data specs, files or folders."""
    heldout: Specs = ("train@HuggingFaceH4/aime_2024",)
    """Sources of held-out problems."""
    prompt: PromptConfig = PromptConfig(format="step_by_step")


_GIVEN_ANSWER = "given_answer"
_DOLLAR = re.compile(r"(?<!\\)\$")
_LEADING_ZEROS = re.compile(r"^0+(?=\d+$)")
_AIME_URL = re.compile(r"(\d{4})_AIME_")
_FACT_NAMES = """
aime_number answer_type error idx is_multiple_answer problem_id problem_number subfield subject type unique_id unit url
year
"""
_FACTS = tuple(_FACT_NAMES.split())
"""Fields that are kept as they are, in the problem's metadata."""


class DeepScaler(ReadFamily[DeepScalerTask]):
    """Rows with `problem` and `answer` or `final_answer`, in the layouts of DeepScaleR and its evaluation sets.

    Gold: texts as they are, without dollar signs and leading zeros (AIME's `025`); whole floats without a fraction
    (AMC's `142.0`). A list holds writings of one answer (Minerva): the first is the gold, the others are alternatives.
    Where a Minerva row gives the answer of an earlier part of its question, the gold is what its solution's box holds.
    Several answers that are all asked for stand in one text (OlympiadBench's `$2,-1,-18$`). OlympiadBench's `error` is
    an absolute difference and becomes `rel_tolerance` of the problem's grading.
    Kind: the set, by the row's fields, such as `AIME 2024`; `contest` where they do not tell. Difficulty: the field, on
    the source's scale; 0 means unknown in rows of MATH, whose levels are 1 to 5.
    """

    name = "deepscaler"

    def problem(self, record: FileRecord) -> Problem | None:
        """Return a record as a problem; None: it has no gold answer.

        Raises:
            ArtifactError: it has no problem, or a field is of another kind than its set's.
        """
        question = text_of(record, "problem", "question")
        if has_value(record, "context"):
            question = f"{text_of(record, 'context').rstrip()}\n\n{question}"

        # The gold answer stands in one of two fields, a context before the question.
        field = "final_answer" if has_value(record, "final_answer") else "answer"
        answers = list_of_texts(record, field, _cleaned)
        if not answers:
            return None
        solution = next(iter(list_of_texts(record, "solution")), None)
        kind = _set_of(record)
        metadata = {name: record.values[name] for name in _FACTS if has_value(record, name)}

        # Minerva's golds answer several parts of a question; only the asked one is judged.
        asked = answer_of_asked_part(question, answers, solution or "") if kind == "Minerva" else None
        if asked is not None:
            metadata[_GIVEN_ANSWER] = answers[0]
            answers = (asked,)
        difficulty = number_of(record, "difficulty")
        return Problem(
            id=problem_id(self.name, question),
            family=self.name,
            question=question,
            answer=answers[0],
            alternatives=answers[1:],
            solution=solution,
            kind=kind,
            difficulty=None if kind == "MATH" and difficulty == 0 else difficulty,
            grading=_tolerance(record, answers[0]),
            metadata=metadata,
        )

    def remarks(self, split: Split, problems: Iterable[Problem]) -> list[str]:
        """Return how many problems have another gold answer than their row gives."""
        replaced = [problem.id for problem in problems if _GIVEN_ANSWER in problem.metadata]
        if not replaced:
            return []
        return [
            f"{split}: {len(replaced)} of Minerva have the answer of an earlier part of their question; "
            f"their gold is the solution's ({', '.join(replaced[:3])}{', ...' if len(replaced) > 3 else ''})"
        ]


def _cleaned(answer: str) -> str:
    return _LEADING_ZEROS.sub("", _DOLLAR.sub("", answer).strip())


def _set_of(record: FileRecord) -> str:
    """Return the name of the set that a row comes from, by the fields that only its rows have."""
    values = record.values
    url = str(values.get("url") or "")
    aime = _AIME_URL.search(url)
    if "aime_number" in values or aime:
        year = aime[1] if aime else values.get("year")
        return f"AIME {year}" if year else "AIME"
    if "AMC" in url:
        return "AMC"
    if "is_multiple_answer" in values:
        return "OlympiadBench"
    if "unique_id" in values or "level" in values:
        return "MATH"
    if "type" in values:
        return "Minerva" if "idx" in values else "MATH"
    return "contest"


def _tolerance(record: FileRecord, answer: str) -> dict[str, Any]:
    """Return the policy of a problem whose source allows an absolute difference from a single number."""
    error, number = as_number(record.values.get("error")), as_number(answer)
    if error is None or not number:
        return {}
    if error < 0:
        raise ArtifactError(f"{record.place}: the field 'error' is {error}, a difference, which cannot be negative")
    # Rounded up: a difference of just `error` must remain within it.
    return {"rel_tolerance": math.ceil(error / abs(number) * 1e12) / 1e12}


_PYTHON = re.compile(r"np\.(?=[a-z])")
_POWER_OF_TEN = re.compile(r"\\times\s*10\^(?:\{(-?\d+)\}|(-?\d+))")
_FRACTION = re.compile(r"\\frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
_FORM = re.compile(r"\\left|\\right|\\[ ,;]|[\s{}()$\\]")


def answer_of_asked_part(question: str, answers: Iterable[str], solution: str) -> str | None:
    r"""Return what the solution's last box holds if the answers given do not belong to what is asked, else None.

    A question that continues an earlier part quotes that part with its boxed answer. In the file of the project rLLM
    33 of the 70 such questions have the earlier part's answer as gold. Other questions are not looked at: there an
    answer that differs from the box is a correction of it.

    >>> question = r"Part 0: Mass? Solution: $m = \boxed{2}$. Part 1: Force?"
    >>> answer_of_asked_part(question, ["2"], r"$F = \boxed{6}$")
    '6'
    >>> answer_of_asked_part(question, ["6"], r"$F = \boxed{6}$")
    """
    asked = last_boxed(solution)
    if not asked or not last_boxed(question) or _answer_key(asked) in map(_answer_key, answers):
        return None
    return _PYTHON.sub(r"\\", asked)


def _answer_key(answer: str) -> str:
    r"""Return what `4.4 \times 10^{7}` and `4.4e7`, `\frac{x}{2}` and `x / 2` share."""
    text = _POWER_OF_TEN.sub(lambda power: f"e{power[1] or power[2]}", _PYTHON.sub("", answer))
    return _FORM.sub("", _FRACTION.sub(r"\1/\2", text))


TASK = TaskKind(DeepScalerTask, DeepScaler, MATHS)
