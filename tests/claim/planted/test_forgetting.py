"""A task on which accuracy fell, and one on which answers changed both ways."""

from pathlib import Path

import numpy as np
import pytest

import swerve
from swerve.claim.verdicts import larger
from tests.claim.planted.models import planted_pair, table_settings, table_task
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


@pytest.mark.planted
def test_a_model_that_forgot_another_task_is_told_though_nothing_changed_on_its_own(tmp_path: Path) -> None:
    pair = planted_pair(tmp_path, "forgetting", size=0.3, num_problems=80)
    assert pair.others is not None
    others = [table_task(pair.others), table_task(pair.problems)]
    settings = table_settings(pair.problems, num_samples=1, parts=("forgetting",), others=others)
    card = swerve.claim(pair.base, pair.rl, settings, out=tmp_path / "card", progress=False)
    assert card is not None
    part = card.forgetting
    # Greedy: the kinds with a chance above one half, before four of eight.
    chances = pair.chances(pair.other_questions)
    before, after = (sum(each[side] > 0.5 for each in chances) / 80 for side in range(2))
    assert [(row.base.mean, row.trained.mean) for row in part.tasks] == [(before, after), (0.5, 0.5)]
    assert before - after >= 0.25
    assert [line.shown for line in part.verdicts] == [True, False]
    assert (part.kl_from_base.mean, part.kl_from_trained.mean) == (0.0, 0.0)
