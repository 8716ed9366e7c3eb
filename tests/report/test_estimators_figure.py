"""The figure of the estimator audit: drawn from its tables, safe with any label, absent where nothing was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from swerve.report.draw.figures import Drawing, Look, lay_out
from swerve.report.estimators import estimator_drawing, write_estimator_figure

NAMES = ("k1", "k2", "k3", "k3+", "abs")


def row(name: str, kl: float) -> dict[str, Any]:
    bias = {"k2": 0.05, "abs": 3.0}.get(name, 0.0)
    return {"estimator": name, "mean": kl * (1 + bias), "relative_bias": bias, "sd": 4 * kl**0.5}


def gradient(name: str, placement: str, kl: float) -> dict[str, Any]:
    zero = (name, placement) == ("k1", "loss")
    target = {"pooled_cosine": None if zero else 0.5 - kl}
    return {
        "estimator": name,
        "placement": placement,
        "is_zero": zero,
        "variance_to_signal": None if zero else 2 / kl,
        "targets": {"reverse_kl": target},
    }


def group(kl: float) -> dict[str, Any]:
    placements = ("loss", "loss_ratio", "reward")
    return {
        "kl_mean": kl,
        "values": [row(name, kl) for name in NAMES],
        "gradients": [gradient(name, place, kl) for place in placements for name in NAMES],
    }


@pytest.fixture
def audit() -> dict[str, Any]:
    return {
        "checkpoint": {"name": "rl-20"},
        "reference": {"name": "sft-500"},
        "num_tokens": 1000,
        "deciles": [group(10.0**power) for power in range(-7, 0)],
    }


def test_files_are_written_and_labels_are_not_read_as_formulas(audit: dict[str, Any], tmp_path: Path) -> None:
    audit["checkpoint"]["name"] = r"$\frac{$"
    written = write_estimator_figure(audit, tmp_path)
    assert [path.name for path in written] == ["estimators.png", "estimators.pdf", "estimators.csv"]


def lines(drawing: Drawing) -> list[dict[str, list[float]]]:
    """Return the drawn numbers of each estimator, by panel."""
    figure = lay_out(drawing, Look(width="column"))
    return [
        {name: list(line.get_ydata()) for name, line in zip(NAMES, axes.lines[: len(NAMES)], strict=True)}
        for axes in figure.axes
    ]


def test_curves_hold_the_numbers_of_the_tables(audit: dict[str, Any]) -> None:
    bias, noise, cosine_loss, noise_loss, cosine_reward, noise_reward = lines(estimator_drawing(audit))
    assert bias["abs"] == pytest.approx([300.0] * 7)
    assert bias["k2"] == pytest.approx([5.0] * 7)
    assert noise["k1"][6] == pytest.approx(4 / 0.1**0.5)  # in units of the KL
    assert (cosine_loss["k1"], noise_loss["k1"]) == ([], [])  # k1 in the loss has no direction
    assert cosine_reward["k1"] == pytest.approx([0.5 - 10.0**power for power in range(-7, 0)])
    assert noise_reward["k3"] == pytest.approx([2 * 10.0**power for power in range(7, 0, -1)])


def test_what_was_not_measured_leaves_gaps(audit: dict[str, Any]) -> None:
    audit["deciles"][2]["values"][0]["relative_bias"] = None
    audit["deciles"][3]["gradients"] = []
    bias, _, cosine_loss, *_ = lines(estimator_drawing(audit))
    assert [len(bias[name]) for name in ("k1", "k2")] == [6, 7]
    assert len(cosine_loss["k2"]) == 6
    assert {record["figure"] for record in estimator_drawing(audit).records if record["k1"] is None} >= {
        "Bias / exact KL (%)"
    }


def test_the_same_model_twice_draws_nothing(audit: dict[str, Any], tmp_path: Path) -> None:
    same = {**audit, "deciles": [{**tenth, "kl_mean": 0.0} for tenth in audit["deciles"]]}
    (tmp_path / "estimators.png").touch()  # of an earlier audit
    assert write_estimator_figure(same, tmp_path) == ()
    assert list(tmp_path.iterdir()) == []
