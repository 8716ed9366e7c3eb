"""Runs of studies as they are after measuring, from literal values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from swerve.artifacts.study import StudyRun
from swerve.study.measure import MeasuredRun


@pytest.fixture(scope="session")
def measured() -> Callable[..., MeasuredRun]:
    """Make a run of right and wrong answers to problems, and of other values."""

    def make(
        variant: str,
        seed: int,
        right: Mapping[str, float] | str,
        curves: Mapping[str, Mapping[int, float]] | None = None,
        **values: float,
    ) -> MeasuredRun:
        if isinstance(right, str):
            right = {f"p{place}": float(one) for place, one in enumerate(right)}
        run = StudyRun(
            variant=variant,
            seed=seed,
            path=f"runs/{variant}/seed-{seed}",
            state="trained",
            checkpoint="rl-4",
            weights_sha256="0" * 64,
            values={"accuracy": sum(right.values()) / len(right), **values},
        )
        return MeasuredRun(run=run, by_problem={"accuracy": right}, curves=curves or {})

    return make
