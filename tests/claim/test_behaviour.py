"""Where behaviour changed: the probe's figures on the card, and its verdict against noise of the weights."""

from __future__ import annotations

import pytest

import swerve
from swerve.artifacts.probe_claims import DivergenceClaim, NullFigure
from swerve.artifacts.probe_summary import ProbeSummary, read_summary
from swerve.artifacts.run import RunDirectory
from swerve.claim.behaviour import DivergenceRow, behaviour_part
from swerve.claim.work import NotMeasuredError
from swerve.estimates import Estimate
from tests.claim.planted.models import planted_pair, table_settings


def summary(low: float, *, reliable: bool = True) -> ProbeSummary:
    apart = Estimate(mean=0.156, low=low, high=0.337)
    nulls = (
        NullFigure(null="chance", value=0.2, difference=None),
        NullFigure(null="entropy", value=0.885, difference=None),
        NullFigure(null="noise", value=0.843, low=0.7, high=0.9, difference=apart),
    )
    share = Estimate(mean=0.998, low=0.997, high=0.999)
    claims = [DivergenceClaim(figure="share", of="uncertain", estimate=share, nulls=nulls)]
    claims.append(DivergenceClaim(figure="auc", of="wrong", estimate=share, nulls=nulls[:1]))
    known = {"claims": tuple(claims), "reference": "base", "reliable": reliable, "num_rollout_problems": 120}
    return ProbeSummary.model_construct(**known, causal=None)


SENTENCE = (
    "Over 120 problems the models {differ} elsewhere than under noise of the weights as large: >99% of the divergence "
    "is on the fifth of the tokens at which `base` is least certain, against 84% with noise, +16 points ({low} to +34)."
)


@pytest.mark.parametrize(
    ("low", "reliable", "shown", "said", "differ"),
    [
        (0.05, True, True, "+5", "differ"),
        (-0.05, True, False, "\u22125", "are not seen to differ"),
        (0.05, False, False, "+5", "may differ (too few to tell)"),
    ],
)
def test_the_verdict_is_against_noise_of_the_weights(low, reliable, shown, said, differ):
    part = behaviour_part(summary(low, reliable=reliable))
    (verdict,) = part.verdicts
    assert verdict.shown is shown
    assert verdict.sentence == SENTENCE.format(low=said, differ=differ)
    value = Estimate(mean=0.998, low=0.997, high=0.999)
    figure = "Divergence on the most uncertain fifth"
    assert part.figures == (DivergenceRow(figure=figure, value=value, chance=0.2, entropy=0.885, noise=0.843),)


def test_models_that_differ_nowhere_have_no_verdict():
    with pytest.raises(NotMeasuredError, match="needs responses of the base in which the models differ"):
        behaviour_part(summary(0.05).model_copy(update={"claims": ()}))


@pytest.mark.slow
def test_a_card_probes_the_base_s_responses(tmp_path):
    pair = planted_pair(tmp_path, "sharpening", size=0.1, num_problems=32)
    settings = table_settings(pair.problems, num_samples=1, parts=("behaviour",))
    card = swerve.claim(pair.base, pair.rl, settings, out=tmp_path / "card", progress=False)
    shares = {row.figure: row.value.mean for row in card.behaviour.figures}

    # Training changed the first of the three tokens alone; of one kind in eight, .45 became more than one half.
    assert shares["Divergence on the first third"] == pytest.approx(1.0, abs=1e-9)
    assert card.behaviour.swap_effect.mean == 4 / 32
    assert not card.behaviour.missing
    assert [row.taken for row in card.behaviour.tokens_taken] == [0.01, 0.05, 0.2]
    probe = read_summary(RunDirectory(tmp_path / "card" / "probe"))
    assert probe.num_rollouts == 32
    assert len(probe.noise_models.scales) == 9
