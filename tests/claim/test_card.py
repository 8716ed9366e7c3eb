from pathlib import Path
from types import SimpleNamespace

import pytest

from swerve.claim import weights
from swerve.claim.card import _measured, _rests_on
from swerve.errors import MismatchError


def test_models_that_do_not_fit_a_part_do_not_end_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(work: object) -> None:
        raise MismatchError("the text is longer than the model's positions")

    monkeypatch.setattr(weights.WeightsPart, "measure", measure)
    work = SimpleNamespace(check_models=lambda: None, parts=SimpleNamespace(get=lambda name: None))
    assert _measured("weights", work).missing == "the text is longer than the model's positions"  # type: ignore[arg-type]


def test_what_is_left_of_an_interruption_is_nothing_that_a_card_rests_on(tmp_path: Path) -> None:
    out = tmp_path / "a.partial" / "card"
    for name in ("base-t1.parquet", "rl-t1.parquet.partial/parts.json", "rl-t1.parquet.partial/.lock"):
        file = out / "samples" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    assert _rests_on(out) == [out / "samples" / "base-t1.parquet"]
