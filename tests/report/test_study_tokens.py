"""Accuracy by tokens: each variant stands where its own runs had generated as many."""

from __future__ import annotations

from swerve.artifacts.study import Study, StudyCurve, StudyVariant
from swerve.estimates import Estimate
from swerve.report.rows import Curves
from swerve.report.study_tokens import tokens_rows


def curve(metric: str, variant: str, steps: tuple[int, ...], mean: tuple[float, ...]) -> StudyCurve:
    low, high = (tuple(value + end for value in mean) for end in (-0.125, 0.125))
    return StudyCurve(metric=metric, variant=variant, steps=steps, mean=mean, low=low, high=high)


def study(*curves: StudyCurve) -> Study:
    variants = [StudyVariant(name=name, changes={}, num_runs=2, num_collapsed=0, first_collapse=None) for name in "ab"]
    return Study(
        swerve_version="0", name="s", recipe="r", baseline="a", seeds=(0, 1), confidence=0.95, variants=tuple(variants),
        runs=(), means=(), differences=(), curves=curves, detectable=(),
    )  # fmt: skip


def test_accuracy_stands_at_the_tokens_of_the_step_and_before_training_at_0() -> None:
    (rows,) = tokens_rows(
        study(
            curve("accuracy", "a", (100, 102, 104), (0.25, 0.5, 0.75)),
            curve("accuracy", "b", (100, 104), (0.25, 0.5)),
            curve("generated", "a", (101, 102, 103, 104), (10.0, 20.0, 30.0, 1240.0)),
            curve("generated", "b", (101, 102, 103, 104), (5.0, 10.0, 15.0, 20.0)),
        )
    )
    at = {mean: Estimate(mean=mean, low=mean - 0.125, high=mean + 0.125) for mean in (0.25, 0.5, 0.75)}
    assert list(rows.columns) == ["a", "b"]
    assert rows.rows == (("0", at[0.25], at[0.25]), ("20", at[0.5], at[0.5]), ("1,240", at[0.75], None))
    (plot,) = rows.plots
    assert isinstance(plot, Curves)
    assert (plot.x, plot.greys) == ((0.0, 20.0, 1240.0), ("a",))


def test_runs_that_sampled_nothing_have_no_such_figure() -> None:
    assert list(tokens_rows(study(curve("accuracy", "a", (100, 102), (0.25, 0.5))))) == []
