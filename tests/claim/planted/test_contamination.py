"""Questions that a model knows by heart, and questions of which it can guess the end."""

from pathlib import Path

import numpy as np
import pytest

import swerve
from swerve.claim.verdicts import larger
from tests.claim.planted.models import planted_pair, table_settings
from tests.claim.planted.rates import check_rates

NUM, DRAWS = 200, 1000


def shown(rng: np.random.Generator, known: float, guessed: tuple[float, float, float]) -> bool:
    """Draw whether a claim is shown: some questions are known by heart, the rest of any other is guessed by chance."""
    own, others = (rng.random((3, NUM)) < np.array(guessed)[:, None] for _ in range(2))
    own[:, : round(known * NUM)] = True
    return larger("completes_questions", "rl", own.mean(0), others.mean(0), "", null="").shown


@pytest.mark.planted
def test_known_questions_are_found_and_guessed_ones_are_not() -> None:
    rng = np.random.default_rng(0)
    guessed = (0.0, 0.03, 0.1)  # the less is left, the easier

    def rate(known: float, guessed: tuple[float, float, float]) -> float:
        return sum(shown(rng, known, guessed) for _ in range(DRAWS)) / DRAWS

    check_rates(
        "completes_questions",
        size="6% of 200 questions known by heart",
        right=rate(0.06, guessed),
        right_more=rate(0.078, guessed),
        false=max(rate(0.0, each) for each in ((0.0, 0.0, 0.0), guessed, (0.1, 0.2, 0.4), (0.5, 0.7, 0.9))),
        draws=DRAWS,
    )


@pytest.mark.planted
def test_a_model_that_memorised_is_told_from_its_base(tmp_path: Path) -> None:
    pair = planted_pair(tmp_path, "memorised", size=0.3, num_problems=40)
    settings = table_settings(pair.problems, num_samples=1, parts=("contamination",))
    card = swerve.claim(pair.base, pair.rl, settings, out=tmp_path / "card", progress=False)
    assert card is not None
    assert [(line.of, line.shown) for line in card.contamination.verdicts] == [("base", False), ("rl", True)]
    for row in card.contamination.completions:
        # From two words on (40%) the chain of each known question is certain.
        assert row.exact.mean == (0.3 if row.model == "rl" else 0.0)
        assert row.exact_control.mean <= 0.03
