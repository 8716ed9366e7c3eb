from types import SimpleNamespace

import pytest

from swerve.claim import weights
from swerve.claim.card import _measured
from swerve.errors import MismatchError


def test_models_that_do_not_fit_a_part_do_not_end_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(work: object) -> None:
        raise MismatchError("the text is longer than the model's positions")

    monkeypatch.setattr(weights.WeightsPart, "measure", measure)
    work = SimpleNamespace(check_models=lambda: None, parts=SimpleNamespace(get=lambda name: None))
    assert _measured("weights", work).missing == "the text is longer than the model's positions"  # type: ignore[arg-type]
