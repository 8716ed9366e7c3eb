"""The figure of the estimator audit: drawn from its tables, safe with any label, absent where nothing was measured."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest
from matplotlib.figure import Figure

from swerve.report import estimators
from swerve.report.estimators import write_estimator_figure

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


def test_the_figure_shows_something_and_labels_are_not_read_as_formulas(audit: dict[str, Any], tmp_path: Path) -> None:
    audit["checkpoint"]["name"] = r"$\frac{$"
    written = write_estimator_figure(audit, tmp_path)
    assert [path.name for path in written] == ["estimators.png", "estimators.pdf"]
    pixels = matplotlib.image.imread(written[0])
    assert pixels.shape[0] > 900
    assert pixels.shape[1] > 1500
    assert 0.01 < (pixels[..., :3].min(axis=-1) < 0.9).mean() < 0.5
    assert written[1].read_bytes().startswith(b"%PDF")


def drawn(audit: dict[str, Any]) -> Figure:
    figure = Figure()
    panels = figure.subplots(2, 3).flat
    estimators._draw(*panels, audit=audit, groups=[one for one in audit["deciles"] if one["kl_mean"]])
    return figure


def test_curves_hold_the_numbers_of_the_tables(audit: dict[str, Any]) -> None:
    values, cosine_loss, cosine_reward, bias, noise_loss, noise_reward = drawn(audit).axes
    lines = {line.get_label(): line for line in bias.lines if not str(line.get_label()).startswith("_")}
    assert set(lines) == set(NAMES)
    assert list(lines["abs"].get_ydata()) == pytest.approx([300.0] * 7)
    assert list(lines["k2"].get_xdata()) == [0, 1, 2, 3, 4, 5, 6]
    labels = [[line.get_label() for line in axes.lines] for axes in (cosine_loss, cosine_reward, noise_loss)]
    assert ["k1" in names for names in labels] == [False, True, False]  # k1 in the loss has no direction
    assert [text.get_text() for text in cosine_loss.texts] == ["k1: zero, no direction"]
    assert not list(cosine_reward.texts)
    k3 = next(line for line in noise_reward.lines if line.get_label() == "k3")
    assert list(k3.get_ydata()) == pytest.approx([2 * 10.0**power for power in range(7, 0, -1)])
    bars = {container.get_label(): container for container in values.containers}
    abs_line, _, (abs_bars,) = bars["abs"]
    assert list(abs_line.get_ydata()) == pytest.approx([4.0] * 7)
    low, high = abs_bars.get_segments()[6][:, 1]  # sd / KL = 4 / sqrt(0.1) around 4
    assert (low, high) == pytest.approx((4 - 4 / 0.1**0.5, 4 + 4 / 0.1**0.5))


def test_estimators_are_distinguishable_without_colour() -> None:
    assert set(estimators._LOOKS) == set(NAMES)
    assert len({look["marker"] for look in estimators._LOOKS.values()}) == len(NAMES)
    assert len({look["color"] for look in estimators._LOOKS.values()}) == len(NAMES)


def test_what_was_not_measured_leaves_gaps(audit: dict[str, Any]) -> None:
    gaps = copy.deepcopy(audit)
    gaps["deciles"][2]["values"][0]["relative_bias"] = None
    gaps["deciles"][3]["gradients"] = []
    figure = drawn(gaps)
    figure.canvas.draw()
    axes = figure.axes
    k1 = next(line for line in axes[3].lines if line.get_label() == "k1")
    assert list(k1.get_xdata()) == [0, 1, 3, 4, 5, 6]
    assert len(next(line for line in axes[1].lines if line.get_label() == "k2").get_xdata()) == 6


def test_the_same_model_twice_draws_nothing(audit: dict[str, Any], tmp_path: Path) -> None:
    same = {**audit, "deciles": [{**one, "kl_mean": 0.0} for one in audit["deciles"]]}
    assert write_estimator_figure(same, tmp_path) == ()
    assert list(tmp_path.iterdir()) == []
