"""What the problems are."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from swerve.config.base import Model, Positive, PositiveInt, Probability, Share
from swerve.config.data_tasks import (
    DataTask,
    DeepScalerTask,
    Gsm8kTask,
    MathTask,
    PromptConfig,
    Specs,
    TableTask,
)
from swerve.config.grading import KAndKGrading

__all__ = [
    "AdditionTask",
    "ArithmeticSequenceTask",
    "CountdownTask",
    "KAndKTask",
    "KnightsKnavesTask",
    "MixturePart",
    "MixtureTask",
    "PalindromeTask",
    "ReasoningGymTask",
    "SingleTaskConfig",
    "TaskConfig",
]


class AdditionTask(Model):
    """Column addition written out digit by digit."""

    kind: Literal["addition"] = "addition"
    digits: Annotated[int, Field(ge=2, le=12)] = 4
    num_train: PositiveInt = 16000
    """Distinct training problems; operand pairs never occur in both splits."""
    num_heldout: PositiveInt = 400
    mistake_rate: Probability = 0.75
    """Share of columns that sum to 10 or 11 whose carry the supervised traces forget."""
    slip_rate: Probability = 0.005
    """Share of the digits of column sums that are replaced by a random one."""


class KnightsKnavesTask(Model):
    """Knights always tell the truth, knaves always lie: who is what?"""

    kind: Literal["knights_knaves"] = "knights_knaves"
    people: Annotated[int, Field(ge=2, le=3)] = 2
    num_train: PositiveInt = 16000
    """Training problems; statement structures never occur in both splits."""
    num_heldout: PositiveInt = 400
    mistake_rate: Probability = 0.75
    """Share of the misread cases of "if" and "or" that the supervised traces get wrong."""
    slip_rate: Probability = 0.005
    """Share of judged truth values that are flipped."""


class KAndKTask(DataTask):
    """Knights and knaves in English sentences, two to eight people, generated or read (the K-and-K schema)."""

    kind: Literal["k_and_k"] = "k_and_k"
    train: Specs = ()
    """Sources of training puzzles; none: they are generated."""
    heldout: Specs = ()
    """Sources of held-out puzzles; none: generated, or about one in six of the training ones where those are read."""
    people: Annotated[tuple[Annotated[int, Field(ge=2, le=8)], ...], Field(min_length=1, strict=False)] = (3, 4, 5)
    """Numbers of people, in equal shares where puzzles are generated; of others none are used."""
    num_train: PositiveInt | None = None
    """Training puzzles; null: all that are read, 3,000 where they are generated."""
    num_heldout: PositiveInt | None = None
    """Held-out puzzles; null: all that are read, 300 where they are generated."""
    max_depth: Annotated[int, Field(ge=2, le=4)] = 2
    """Nesting of a generated statement: 2 joins or negates single facts. (Of single facts alone no puzzle has just one
    solution.)"""
    max_width: Annotated[int, Field(ge=2, le=4)] = 2
    """Facts that one "and" or "or" of a generated statement joins."""
    heldout_variant: Literal[
        "clean",
        "perturbed_leaf",
        "perturbed_statement",
        "reorder_statement",
        "random_pair",
        "uncommon_name",
        "flip_role",
    ] = "clean"
    """How generated held-out puzzles are changed: one fact, one statement, the order of speaking, the words for the
    roles, the names, or the words exchanged (knaves tell the truth)."""
    prompt: PromptConfig = PromptConfig(format="think_answer")
    grading: KAndKGrading = KAndKGrading()


class PalindromeTask(Model):
    """Form a palindrome from all the given letters; many answers are right."""

    kind: Literal["palindrome"] = "palindrome"
    min_length: Annotated[int, Field(ge=1, le=40)] = 3
    max_length: Annotated[int, Field(ge=1, le=40)] = 10
    spaced: bool = False
    """Short questions and answers with a space between letters, for word tokenizers such as the tiny model's."""
    num_train: PositiveInt = 4000
    num_heldout: PositiveInt = 200
    prompt: PromptConfig = PromptConfig()

    @model_validator(mode="after")
    def _check_lengths(self) -> PalindromeTask:
        if self.min_length > self.max_length:
            raise ValueError(f"min_length ({self.min_length}) must be at most max_length ({self.max_length})")
        return self


class CountdownTask(Model):
    """Reach a target from the given numbers, each used at most once, with + - * /; many answers are right."""

    kind: Literal["countdown"] = "countdown"
    min_numbers: Annotated[int, Field(ge=2, le=6)] = 3
    max_numbers: Annotated[int, Field(ge=2, le=6)] = 4
    max_value: PositiveInt = 50
    max_target: PositiveInt = 200
    use_all: bool = True
    """Whether every number must be used."""
    spaced: bool = False
    """Short questions and answers with a space between symbols, for word tokenizers such as the tiny model's."""
    num_train: PositiveInt = 4000
    num_heldout: PositiveInt = 200
    prompt: PromptConfig = PromptConfig()

    @model_validator(mode="after")
    def _check_numbers(self) -> CountdownTask:
        if self.min_numbers > self.max_numbers:
            raise ValueError(f"min_numbers ({self.min_numbers}) must be at most max_numbers ({self.max_numbers})")
        return self


class ArithmeticSequenceTask(Model):
    """Continue a sequence of constant difference modulo a number: a toy that a tiny model learns in minutes."""

    kind: Literal["arithmetic_sequence"] = "arithmetic_sequence"
    max_number: Annotated[int, Field(ge=2, le=1000)] = 9
    """Terms are taken modulo this."""
    num_terms: PositiveInt = 8
    """Terms asked for, at most."""
    restate: bool = False
    """Whether the answer begins with the two given terms, so that every next term stands right after the two that it
    follows from."""
    num_train: PositiveInt = 400
    num_heldout: PositiveInt = 80
    mistake_rate: Probability = 0.0
    """Share of the terms that wrap around whose supervised traces are one too high."""
    slip_rate: Probability = 0.0
    """Share of the terms that are replaced by a random one; the terms after it follow from it."""
    prompt: PromptConfig = PromptConfig()


class ReasoningGymTask(Model):
    """A data set of the package reasoning-gym; its score counts as right from `threshold` on."""

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    dataset: str
    """Name of the data set, such as palindrome_generation."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Its configuration, without seed and size."""
    threshold: Share = 1.0
    """Scores from here on are right."""
    num_train: PositiveInt = 4000
    num_heldout: PositiveInt = 200
    prompt: PromptConfig = PromptConfig()


_SingleTask = (
    AdditionTask
    | KnightsKnavesTask
    | Gsm8kTask
    | MathTask
    | DeepScalerTask
    | KAndKTask
    | PalindromeTask
    | CountdownTask
    | ArithmeticSequenceTask
    | ReasoningGymTask
    | TableTask
)
SingleTaskConfig = Annotated[_SingleTask, Field(discriminator="kind")]


class MixturePart(Model):
    """One task of a mixture."""

    task: SingleTaskConfig
    weight: Positive = 1.0
    """Share of the problems drawn, relative to the other parts."""


class MixtureTask(Model):
    """Several tasks side by side, drawn in the proportion of their weights."""

    kind: Literal["mixture"] = "mixture"
    parts: Annotated[tuple[MixturePart, ...], Field(min_length=2, strict=False)]


TaskConfig = Annotated[_SingleTask | MixtureTask, Field(discriminator="kind")]
