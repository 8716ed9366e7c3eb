"""What is said of spikes and known wrong steps."""

from __future__ import annotations

from typing import Any

import pytest

from swerve.report.page import all_findings, all_tiles
from swerve.report.read import ReportInputs


def test_the_sentences_on_wrong_steps_and_noise(entries: dict[str, Any], told: Any) -> None:
    assert told(entries)["Wrong steps"][1:] == (
        "As a score, JS ranks first wrong tokens above those that are not wrong with an AUC of 0.980 (0.960 to 1.00; "
        "chance 0.500, entropy 0.990, noise 0.850 (0.840 to 0.860)): more than chance and matched noise, not "
        "distinguishable from the reference's entropy.",
        "Each by an interval of its own, 3 of 4 scores rank the known wrong steps above chance; AUCs are 0.120 (rise "
        "of entropy) to 0.980 (Reverse KL).",
        "Of the 270 z-score spikes 95.0% (92.0 to 98.0) are on a wrong step (by chance 2.4%), and 99.0% (97.0 to "
        "100.0) "
        "of the wrong steps have one (by chance 2.8%).",
        "Between two runs of one model, where every spike is false, the methods find per 1,000 tokens: z-score 23.1 "
        "(22.2 "
        "to 24.0), adaptive 18.8 (18.2 to 19.4), percentile none (at most 0.161), absolute none (at most 0.161) and "
        "calibrated none (at most 0.161); at rl-80 z-score finds 22.5.",
    )


def test_without_known_wrong_steps_the_tile_is_the_divergence(answers_inputs: ReportInputs) -> None:
    read = answers_inputs
    assert read.summary is not None
    mean = read.summary.divergences[-1].js
    assert mean is not None
    tile = all_tiles(read)[2]
    assert tile.caption == "JS from dpo-8"
    assert float(tile.value) == pytest.approx(mean.mean, rel=0.01)
    assert "No step of the rollouts is known to be wrong" in " ".join(all_findings(read)["Wrong steps"])
