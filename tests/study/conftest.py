"""Runs of studies as they are after measuring, from literal values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from swerve.artifacts.study import StudyRun
from swerve.study.measure import Measured


@pytest.fixture(scope="session")
def measured() -> Callable[..., Measured]:
    """Make a run of right and wrong answers to problems, and of other values."""

    def make(
        variant: str,
        seed: int,
        right: Mapping[str, float] | str,
        curves: Mapping[str, Mapping[int, float]] | None = None,
        **values: float,
    ) -> Measured:
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
        return Measured(run=run, by_problem={"accuracy": right}, curves=curves or {})

    return make
