"""The file of a study: what varies, with which seeds, and by which rule it is judged."""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from swerve.artifacts.study import (
    CURVES,
    MEASURES,
    PAIR_MEASURES,
    TREND_WORDS,
    StudyDesign,
    Trend,
)
from swerve.config.stages import Control
from swerve.settings import InnerShare, Model, PositiveInt, Words
from swerve.study.tune import Changes, Seeds, Tuning, check_known
from swerve.study.verdict import VerdictRule

StudyStep = Literal["train", "eval", "probe"]
RUN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,59}")
"""Of a study and of its variants."""
START, TUNING = "start", "tuning"
"""Names that no variant has: of the runs that others begin with, and of those that try settings."""


class StudyStart(Model):
    """A run whose last checkpoint the runs of the study begin with."""

    recipe: str
    """Name of a shipped recipe, or path of a YAML file."""
    set: Changes = Field(default_factory=dict)
    """Changes to it."""
    per_seed: bool = False
    """Whether each seed has a start of its own, trained with that seed."""


class Expectation(Model):
    """What somebody found elsewhere, which the study is asked to confirm."""

    variants: Words = Field(min_length=1)
    """Of which it is expected, each for itself."""
    measure: str
    """A curve over training, for a shape; a measure, or `tokens_at_equal_accuracy`, for a difference."""
    shape: Trend
    """How the curve goes, or on which side of the baseline the variant is."""

    @property
    def is_of_curve(self) -> bool:
        """Whether it is of a curve's shape, and not of the difference from the baseline."""
        return self.shape not in ("higher", "lower", "no_difference_shown")

    @model_validator(mode="after")
    def _check_measure(self) -> Expectation:
        what, known = ("curve", CURVES) if self.is_of_curve else ("measure", {**MEASURES, **PAIR_MEASURES})
        check_known(self.measure, known, f"there is no {what} '{self.measure}' that is '{TREND_WORDS[self.shape]}'")
        return self


class StudyFile(Model):
    """What a study's YAML file says."""

    name: str
    """Name of the study, and of its directory."""
    recipe: str
    """Name of a shipped recipe, or path of a YAML file, from the study's folder."""
    set: Changes = Field(default_factory=dict)
    """Changes to the recipe for all variants: dotted keys and values, as on the command line."""
    seeds: Seeds = (0, 1, 2)
    """Each variant is run with each; a number n stands for 0 to n - 1."""
    variants: dict[str, Changes] = Field(min_length=1)
    """Name -> changes to the recipe; with `recipe` among them, another recipe and changes to it; with `processes`, so
    many. A model `VARIANT:rl-30` is a checkpoint of that variant's run of the same seed, which is done before."""
    baseline: str | None = None
    """The variant that others are compared with; null: the first."""
    start: StudyStart | None = None
    """What all runs begin with; null: what the recipe says."""
    measures: tuple[str, ...] = ()
    """What is compared, the headline first; empty: everything that was measured."""
    embedding_model: str | None = None
    """Folder or hub name of a model of sentence-transformers, by which `embedding_similarity` is measured."""
    steps: tuple[StudyStep, ...] = ("train", "eval")
    """What is done of each run."""
    processes: PositiveInt = 1
    """Of each run, started by torchrun on one machine, such as one for each GPU."""
    expected: tuple[Expectation, ...] = ()
    """Trends that were found elsewhere, each answered with yes or no."""
    confidence: InnerShare = 0.95
    """Coverage of the intervals."""
    controls: Annotated[
        tuple[Control, ...],
        Field(strict=False),
        BeforeValidator(lambda given: get_args(Control) if given == "all" else given),
    ] = ()
    """Further variants `control-NAME`: the baseline with another reward (`stages.rl.reward`); a list, or `all`."""
    verdict: VerdictRule | None = None
    """The measure and the rule by which variants are judged, named before they run; null: nothing is judged."""
    tuning: Tuning | None = None
    """How each variant's settings are chosen before the runs that are judged; null: they are as given."""

    @field_validator("variants")
    @classmethod
    def _check_variants(cls, variants: dict[str, Changes]) -> dict[str, Changes]:
        for name, changes in variants.items():
            if not RUN_NAME.fullmatch(name) or name in (START, TUNING):
                raise ValueError(
                    f"variant {name!r}: use up to 60 letters, digits, '.', '_' and '-', and not '{START}' or '{TUNING}'"
                )
            if not isinstance(changes.get("recipe", ""), str):
                raise ValueError(f"variant {name!r}: recipe is a name or a path")
            processes = changes.get("processes", 1)
            if not isinstance(processes, int) or isinstance(processes, bool) or processes < 1:
                raise ValueError(f"variant {name!r}: processes is a number of at least 1, got {processes!r}")
            if "seed" in changes or "name" in changes:
                raise ValueError(f"variant {name!r} changes its seed or name; seeds are given under 'seeds'")
        return variants

    @field_validator("baseline")
    @classmethod
    def _check_baseline(cls, name: str | None, info: ValidationInfo) -> str | None:
        if name is not None and "variants" in info.data:
            check_known(name, info.data["variants"], f"there is no variant '{name}'")
        return name

    @field_validator("measures")
    @classmethod
    def _check_measures(cls, measures: tuple[str, ...]) -> tuple[str, ...]:
        for name in measures:
            check_known(name, MEASURES, f"there is no measure '{name}'")
        return measures

    @model_validator(mode="after")
    def _check_expected(self) -> StudyFile:
        for expectation in self.expected:
            for name in expectation.variants:
                said = f"expected names a variant '{name}' that there is not"
                check_known(name, self.variants, said, otherwise=", or expected=[]")
        return self

    @field_validator("tuning")
    @classmethod
    def _check_tuning(cls, tuning: Tuning | None, info: ValidationInfo) -> Tuning | None:
        if tuning is not None and info.data.keys() >= {"variants", "seeds", "verdict"}:
            if info.data["verdict"] is None:
                raise ValueError("settings are chosen by the verdict's measure; give verdict: {measure: accuracy}")
            if info.data.get("controls"):
                raise ValueError("controls have the baseline's settings; give it those that were chosen, and no tuning")
            tuning.check(tuple(info.data["variants"]), info.data["seeds"])
        return tuning

    @property
    def compared_with(self) -> str:
        """Name of the variant that others are compared with."""
        return self.baseline or next(iter(self.variants))

    @property
    def changes(self) -> dict[str, Changes]:
        """What each variant changes, the one that others are compared with first."""
        return {self.compared_with: self.variants[self.compared_with], **self.variants}

    @property
    def design(self) -> StudyDesign | None:
        """What was decided before the runs; None: nothing."""
        if self.verdict is None:
            return None
        design = StudyDesign(**self.verdict.model_dump())
        if (tuning := self.tuning) is None:
            return design
        tuned = {name: getattr(tuning, name) for name in ("num_by_seed", "num_problems")}
        return design.model_copy(
            update={**tuned, "tuning_seeds": tuning.seeds, "widening": tuning.widening(len(self.seeds))}
        )
