"""What is said of spikes and known wrong steps, and its rows."""

from __future__ import annotations

from typing import Any

from swerve.report.read import ReportInputs
from swerve.report.run_page import all_findings
from swerve.report.topics.spikes import TOPIC, density_rows


def test_the_sentences_on_wrong_steps_and_noise(entries: dict[str, Any], told: Any) -> None:
    assert told(entries)["Wrong steps"][1:] == (
        "As a score, JS ranks first wrong tokens above those that are not wrong with an AUC of 0.980 (0.960 to 1.000), "
        "more than chance (0.500) and matched noise (0.850), no different, as far as can be seen, from the reference's "
        "entropy (0.990).",
        "Each by an interval of its own, 3 of 4 scores rank the known wrong steps above chance; AUCs are 0.120 (rise "
        "of entropy) to 0.980 (Reverse KL).",
        "Of the 270 z-score spikes 95.0% (92.0 to 98.0) are on a wrong step (by chance 2.4%), and 99.0% (97.0 to "
        "100.0) of the wrong steps have one (by chance 2.8%).",
        "By the z-score rule 23.1 (22.2 to 24.0) of 1,000 tokens are spikes between two runs of one model (23,600 "
        "tokens), where every spike is false.",
        "rl-80 has 22.5 spikes in 1,000 tokens: as many as that, as far as can be seen.",
    )


def test_the_rows_of_spikes(inputs: ReportInputs, rows_of: Any) -> None:
    rows = rows_of(TOPIC, inputs)
    assert rows["top_first_wrong"].texts == (
        ("rl-80", "90.0% (88.0 to 92.0)", "\N{EN DASH}"),
        ("Chance", "2.6%", "+87.4 (+84.4 to +90.4)"),
        ("The reference's entropy", "91.0%", "\N{MINUS SIGN}1.0 (\N{MINUS SIGN}4.0 to +2.0)"),
        ("Matched noise", "1.0% (0.0 to 2.0)", "+89.0 (+86.0 to +92.0)"),
    )
    assert rows["auc_first_wrong"].texts[0] == ("rl-80", "0.980 (0.960 to 1.000)", "\N{EN DASH}")
    assert [row[:2] for row in rows["recovery"].texts] == [
        ("JS", "0.970 (0.950 to 0.990)"),
        ("Reverse KL", "0.980 (0.960 to 1.000)"),
        ("Rise of entropy", "0.120 (0.100 to 0.140)"),
        ("Rank", "0.750 (0.730 to 0.770)"),
    ]
    density = rows["spike_density_comparison"]
    assert density.title == "JS spikes per 1,000 tokens (absolute), by third of the rollout"
    assert density.texts[1] == (
        "rl-10", "3.00 (2.30 to 3.70)", "4.00 (3.30 to 4.70)", "5.00 (4.30 to 5.70)", "0 (0 to 0.161)",
    )  # fmt: skip
    assert density.plots[0].greys == ("Null pair",)
    assert list(rows["spikes"].columns)[:2] == ["Top spike", "Chance"]


def test_methods_stand_beside_the_null_pair(inputs: ReportInputs) -> None:
    assert inputs.summary is not None
    rows = density_rows(inputs.summary).kept
    assert rows.texts[0][:5] == ("z-score", "23.1 (22.2 to 24.0)", "22.5", "270", "95.0% (92.0 to 98.0)")
    (plot,) = rows.plots
    assert (plot.column, plot.null) == ("rl-80", "Null pair")
    other = density_rows(inputs.summary, "kl_forward")
    assert (other.id, other.plots) == ("null_spikes_kl_forward", ())


def test_without_known_wrong_steps_only_noise_is_left(answers_inputs: ReportInputs, rows_of: Any) -> None:
    assert "No step of the rollouts is known to be wrong" in " ".join(all_findings(answers_inputs)["Wrong steps"])
    rows = rows_of(TOPIC, answers_inputs)
    assert "spikes" not in rows
    assert rows["null_spikes"].texts == (("z-score", "54 (43 to 66)"),)
    assert rows["null_spikes"].plots[0].column == "Null pair"
