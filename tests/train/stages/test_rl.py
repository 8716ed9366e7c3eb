"""The coefficients of a step from the records of the steps before it."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from swerve.config.stages import RlStage
from swerve.train.stages.rl import RlRunner

KL = {"kind": "loss", "coef": 0.5, "target": 0.2, "horizon": 80.0}
ENTROPY = {"coef": 0.01, "target": 0.3, "target_step": 0.02}


def _coefficients(*records: Mapping[str, Any], **keys: Any) -> tuple[float | None, float]:
    sampling = {"prompts_per_step": 10, "samples_per_prompt": 4}
    stage = RlStage.model_validate({"steps": 9, "optimizer": {"lr": 1e-3}, **sampling, **keys})
    runner = RlRunner.__new__(RlRunner)
    context: Any = SimpleNamespace(records=list(records))
    runner._stage, runner._context, runner._reference = stage, context, None
    kl, entropy = runner._terms()
    return kl.coef, entropy


def _record(step: int, **figures: Any) -> dict[str, Any]:
    return {"stage_step": step, "kl_coef": 0.4, "kl": 0.21, "entropy_coef": 0.05, "entropy": 0.2, **figures}


def test_the_first_step_has_those_of_the_recipe() -> None:
    assert _coefficients(kl=KL, entropy=ENTROPY) == (0.5, 0.01)
    assert _coefficients() == (None, 0.0)


@pytest.mark.parametrize(("kl", "expected"), [(0.21, 0.41), (0.9, 0.44), (0.19, 0.39), (0.0, 0.36), (None, 0.4)])
def test_the_coefficient_of_the_kl_follows_the_error_by_a_fifth_at_most(kl: float | None, expected: float) -> None:
    """40 completions of a horizon of 80: half of the error."""
    assert _coefficients(_record(1, kl=kl), kl=KL)[0] == pytest.approx(expected)


def test_without_a_target_the_coefficient_stays() -> None:
    assert _coefficients(_record(1, kl_coef=0.5), kl={"kind": "loss", "coef": 0.5})[0] == 0.5


@pytest.mark.parametrize(
    ("before", "entropy", "expected"), [(0.05, 0.2, 0.07), (0.05, 0.4, 0.03), (0.02, 0.4, 0.01), (0.05, None, 0.05)]
)
def test_the_entropy_bonus_rises_below_the_target_and_never_falls_below_its_coefficient(
    before: float, entropy: float | None, expected: float
) -> None:
    record = _record(1, entropy_coef=before, entropy=entropy)
    assert _coefficients(record, entropy=ENTROPY)[1] == pytest.approx(expected)
