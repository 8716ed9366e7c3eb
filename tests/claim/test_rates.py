"""The rates that the card prints are those of its claims."""

from __future__ import annotations

import json
import re

import pytest

from swerve.claim.rates import claim_rates
from tests.claim.planted import rates
from tests.claim.planted.rates import RATES


def test_every_claim_has_rates_that_meet_the_bars():
    source = "".join(path.read_text() for path in RATES.parent.glob("*.py"))
    assert [claim for claim in claim_rates() if f'"{claim}"' not in source] == []
    said = {first or second for first, second in re.findall(r'(?:verdict|larger)\(\s*"(\w+)"|claim="(\w+)"', source)}
    assert len(said) >= 10
    assert said <= claim_rates().keys()
    for claim, known in claim_rates().items():
        assert (known.right >= 0.8, known.right_more >= 0.95, known.false <= 0.09, known.draws >= 100) == (True,) * 4, (
            claim
        )


MEASURED = {"size": "8 points", "right": 0.85, "right_more": 0.97, "false": 0.04, "draws": 200}


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(rates, "RATES", tmp_path / "rates.json")
    rates.RATES.write_text("{}")
    monkeypatch.setenv(rates.RECORDS, "1")
    rates.check_rates("forgot", **MEASURED)
    monkeypatch.delenv(rates.RECORDS)
    return rates.RATES


def test_rates_are_recorded_and_agree_within_noise(recorded):
    assert json.loads(recorded.read_text()) == {"forgot": MEASURED}
    # Four standard errors of two fractions of 200 near .9: 4 sqrt(.905 .095 2/200) = .117.
    rates.check_rates("forgot", **{**MEASURED, "right": 0.96})
    with pytest.raises(AssertionError, match="right is recorded as 0.85"):
        rates.check_rates("forgot", **{**MEASURED, "right": 0.98, "right_more": 1.0})


@pytest.mark.parametrize(
    ("name", "value"), [("right", 0.79), ("right_more", 0.94), ("false", 0.1), ("size", "9 points")]
)
def test_rates_below_the_bars_or_of_another_size_fail(recorded, name, value):
    with pytest.raises(AssertionError):
        rates.check_rates("forgot", **{**MEASURED, name: value})
