"""GSM8K: grade-school word problems with an integer answer (arXiv:2110.14168)."""

from __future__ import annotations

import re
from typing import Literal

from swerve.errors import ArtifactError
from swerve.formats.records import FileRecord
from swerve.grading.policies import MathGrading
from swerve.problems.data_specs import Sources, Specs
from swerve.problems.family import problem_id
from swerve.problems.prompt import PromptConfig
from swerve.problems.reading import MathsDataTask, ReadFamily
from swerve.problems.record_values import has_value, list_of_texts, text_of
from swerve.problems.task import MATHS, TaskKind
from swerve.text import counted
from swerve.types import Problem


class Gsm8kTask(MathsDataTask):
    """Grade-school word problems whose answer is an integer (GSM8K)."""

    kind: Literal["gsm8k"] = "gsm8k"
    train: Sources = ("train@openai/gsm8k:main",)
    """Sources of training problems: data specs, files or folders."""
    heldout: Specs = ("test@openai/gsm8k:main",)
    """Sources of held-out problems."""
    prompt: PromptConfig = PromptConfig(format="hash")
    grading: MathGrading = MathGrading(extraction=("hash", "auto"))


_CALCULATION = re.compile(r"<<[^<>]*>>")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


class Gsm8k(ReadFamily[Gsm8kTask]):
    """Rows with `question` and `answer`: a rationale with calculator marks `<<48/2=24>>`, then `#### 72`.

    Gold: the number after `####` without thousands commas; where the answer has none, the field `final_answer`, or an
    answer that is a number. In a chat layout the rationale may be the row's `solution`.
    Difficulty: the number of calculator marks; the few rationales without any have no difficulty. Kind: `2 steps`.
    """

    name = "gsm8k"

    def problem(self, record: FileRecord) -> Problem | None:
        """Return a record as a problem; None: it has no gold answer.

        Raises:
            ArtifactError: it has no question, or its gold answer is not a number.
        """
        question = text_of(record, "question")
        rationale, final = _parts(record)
        gold = _gold(record, final)
        if gold is None:
            return None

        # Calculator marks are counted and taken out of the written solution.
        num_steps = len(_CALCULATION.findall(rationale))
        steps = counted(num_steps, "step")
        written = _CALCULATION.sub("", rationale).strip()
        return Problem(
            id=problem_id(self.name, question),
            family=self.name,
            question=question,
            answer=gold,
            solution=f"{written}\n#### {gold}" if written else None,
            kind=steps if num_steps else "no marked steps",
            difficulty=float(num_steps) if num_steps else None,
        )


def _parts(record: FileRecord) -> tuple[str, str]:
    """Return the rationale and the final answer, each empty where the record has none."""
    for name in ("answer", "solution"):
        if "####" in str(record.values.get(name)):
            rationale, _, final = text_of(record, name).rpartition("####")
            return rationale, final
    if has_value(record, "final_answer"):
        return text_of(record, "answer") if has_value(record, "answer") else "", list_of_texts(record, "final_answer")[
            0
        ]
    answers = [answer for answer in list_of_texts(record, "answer") if _NUMBER.fullmatch(answer.replace(",", ""))]
    return "", answers[0] if answers else ""


def _gold(record: FileRecord, text: str) -> str | None:
    number = text.replace(",", "").strip().removeprefix("$")
    if not number:
        return None
    if not _NUMBER.fullmatch(number):
        raise ArtifactError(f"{record.place}: the final answer {text.strip()!r} is not a number")
    return number


TASK = TaskKind(Gsm8kTask, Gsm8k, MATHS)
