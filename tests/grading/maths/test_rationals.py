from __future__ import annotations

import random

import pytest

from swerve.grading.maths.limits import QUICK_LIMITS, LimitReached
from swerve.grading.maths.parser import parse
from swerve.grading.maths.rationals import NoValue, exact


@pytest.mark.parametrize("degree", [2, 3, 5, 16, 63])
def test_roots_of_powers_are_exact_and_others_have_no_value(degree: int) -> None:
    rng = random.Random(degree)
    for bits in (1, 2, 7, 60):
        root = rng.getrandbits(bits) | 1 << bits
        power = root**degree
        assert exact(parse(rf"({power})^{{1/{degree}}}")) == root
        for other in (power - 1, power + 1):
            with pytest.raises(NoValue):
                exact(parse(rf"({other})^{{1/{degree}}}"))


@pytest.mark.parametrize(
    "text", [r"2^{200} \cdot 2^{200} \cdot 2^{-200} \cdot 2^{-199}", "2^{256} + 2 - 2^{256}", "1 + 58! - 58!"]
)
def test_every_step_of_an_operation_is_within_the_limits(text: str) -> None:
    assert exact(parse(text)) in (1, 2)
    with pytest.raises(LimitReached):
        exact(parse(text), QUICK_LIMITS)
