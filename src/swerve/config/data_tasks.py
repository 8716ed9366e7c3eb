"""Problems that are read: their sources, filters, prompt formats and graders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, field_validator, model_validator

from swerve.config.base import Model, PositiveInt
from swerve.config.grading import ExtractionForm, MathGrading
from swerve.errors import nearest

__all__ = [
    "DataTask",
    "DeepScalerTask",
    "FilterConfig",
    "Gsm8kTask",
    "MathTask",
    "MathsDataTask",
    "PromptConfig",
    "PromptFormat",
    "Specs",
    "TableTask",
]

PromptFormat = Literal["plain", "boxed", "step_by_step", "hash", "think_answer"]
_ASKED_FORM: Mapping[PromptFormat, ExtractionForm] = {
    "boxed": "boxed",
    "step_by_step": "boxed",
    "hash": "hash",
    "think_answer": "answer_tag",
}
"""The form of the answer that a prompt format asks for."""

_TABLE_FIELDS = ("id", "question", "answer", "alternatives", "solution", "kind", "difficulty")


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Specs = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(strict=False)]
"""One data spec or several: `[split@]source[:config][#revision]`."""
Sources = Annotated[Specs, Field(min_length=1)]
"""At least one data spec."""
Words = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(strict=False)]


class PromptConfig(Model):
    """What the model is given around a question."""

    format: PromptFormat = "plain"
    """plain: the question alone; boxed, step_by_step: asks for reasoning and a `\\boxed{}`; hash: asks for `#### N`;
    think_answer: asks for `<think>` and `<answer>`."""
    system: str | None = None
    """System message; null: the format's own."""
    template: str | None = None
    """User message in which `{question}` stands for the question; null: the format's own."""
    prefix: str | None = None
    """The beginning of the answer, given to the model; null: the format's own."""


class FilterConfig(Model):
    """Which problems are used; every condition must hold."""

    min_difficulty: float | None = None
    max_difficulty: float | None = None
    kinds: Words = ()
    """Kinds (levels, numbers of people, ...) as evaluation names them; none: all."""
    max_question_chars: PositiveInt | None = None
    exclude: Specs = ()
    """Sources whose problems are left out: the same question up to white space and letter case."""


class DataTask(Model):
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


class MathsDataTask(DataTask):
    """A task whose answers are judged as mathematics."""

    grading: MathGrading = MathGrading()

    @model_validator(mode="after")
    def _check_extraction(self) -> MathsDataTask:
        form = _ASKED_FORM.get(self.prompt.format)
        if form and self.prompt.template is None and form not in self.grading.extraction:
            raise ValueError(
                f"prompt.format '{self.prompt.format}' asks for an answer that grading.extraction does not read; "
                f"add {form} to it"
            )
        return self


class Gsm8kTask(MathsDataTask):
    """Grade-school word problems whose answer is an integer (GSM8K)."""

    kind: Literal["gsm8k"] = "gsm8k"
    train: Sources = ("train@openai/gsm8k:main",)
    heldout: Specs = ("test@openai/gsm8k:main",)
    prompt: PromptConfig = PromptConfig(format="hash")
    grading: MathGrading = MathGrading(extraction=("hash", "boxed", "phrase", "last_number"))


class MathTask(MathsDataTask):
    """Competition problems of five levels and seven subjects (MATH)."""

    kind: Literal["math"] = "math"
    train: Sources = ("train@DigitalLearningGmbH/MATH-lighteval",)
    heldout: Specs = ("test@HuggingFaceH4/MATH-500",)
    levels: Annotated[tuple[Annotated[int, Field(ge=1, le=5)], ...], Field(strict=False)] = ()
    """Levels used, 1 to 5; none: all, also problems without one."""
    subjects: Words = ()
    """Subjects used, such as Algebra; none: all."""
    prompt: PromptConfig = PromptConfig(format="boxed")


class DeepScalerTask(MathsDataTask):
    """Contest problems for training (DeepScaleR) and AIME, AMC, MATH, Minerva and Olympiad sets for evaluation."""

    kind: Literal["deepscaler"] = "deepscaler"
    train: Sources = ("train@agentica-org/DeepScaleR-Preview-Dataset",)
    heldout: Specs = ("train@HuggingFaceH4/aime_2024",)
    prompt: PromptConfig = PromptConfig(format="step_by_step")


class TableTask(DataTask):
    """Your own problems: JSON, JSONL, CSV or Parquet, with any names of the fields."""

    kind: Literal["table"] = "table"
    fields: dict[str, str] = Field(default_factory=dict)
    """The file's field for each of id, question, answer, alternatives, solution, kind, difficulty, where it has another
    name. An id is read only if it is named here; otherwise it is made from the question."""
    grader: str | None = None
    """Name of the grader; null: math, or the problem's own where swerve wrote the file. `python`: the function
    `reward(problem, text)` of `reward_file`."""
    grading: dict[str, JsonValue] = Field(default_factory=dict)
    """Policies of the grader that differ from its defaults."""
    reward_file: str | None = None
    """Python file with a function `reward(problem, text)`; it runs in the graders' processes. A relative path is taken
    from the current folder and kept as an absolute one, so that later commands find the file from anywhere."""

    @field_validator("fields")
    @classmethod
    def _check_fields(cls, fields: dict[str, str]) -> dict[str, str]:
        for name in fields:
            if name not in _TABLE_FIELDS:
                raise ValueError(
                    f"{name!r} is not a field of a problem ({', '.join(_TABLE_FIELDS)}){nearest(name, _TABLE_FIELDS)}"
                )
        return fields

    @field_validator("reward_file")
    @classmethod
    def _make_absolute(cls, path: str | None) -> str | None:
        return None if path is None else str(Path(path).expanduser().absolute())

    @model_validator(mode="after")
    def _check_reward_file(self) -> TableTask:
        if (self.grader == "python") != (self.reward_file is not None):
            raise ValueError("grader 'python' and a reward_file go together; give both or neither")
        return self
