"""A task on which accuracy fell, and one on which answers changed both ways."""

import numpy as np
import pytest

from swerve.claim.paired import larger
from tests.claim.planted.rates import check_rates

NUM, DRAWS = 200, 1000


def shown(rng: np.random.Generator, lost: float, changed: float) -> bool:
    """Draw whether a claim is shown.

    Args:
        rng: draws.
        lost: the mean loss of accuracy.
        changed: fraction of answers that become right, and as many that become wrong beside the lost ones.
    """
    base = rng.random(NUM) < 0.6
    turned = rng.random(NUM) < np.where(base, (lost + changed) / 0.6, changed / 0.4)
    return larger("forgot", "task", base, base ^ turned, "", null="").shown


@pytest.mark.planted
def test_a_fall_is_found_and_change_alone_is_none() -> None:
    rng = np.random.default_rng(0)

    def rate(lost: float, changed: float) -> float:
        return sum(shown(rng, lost, changed) for _ in range(DRAWS)) / DRAWS

    check_rates(
        "forgot",
        size="a loss of 9 points on 200 problems",
        right=rate(0.09, 0.05),
        right_more=rate(0.117, 0.05),
        false=max(rate(0.0, changed) for changed in (0.0, 0.02, 0.1, 0.25)),
        draws=DRAWS,
    )
