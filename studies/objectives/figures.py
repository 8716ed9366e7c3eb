"""Figures of the comparison of objectives, from its records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

from studies.drawing import save
from studies.objectives.variants import LEARNING_RATES
from studies.study import Record


def draw_figures(directory: Path, records: Sequence[Record]) -> None:
    """Draw reward, entropy and collapse of the runs of seed 0."""
    runs = [record for record in records if record["kind"] == "run" and record["seed"] == 0]
    _draw_rewards(directory / "objectives-reward.png", runs)
    _draw_paths(directory / "objectives-learning-rates.png", runs)
    _draw_damping(directory / "objectives-entropy.png", runs)


def _curve(axis: Any, run: Record, name: str, label: str, **style: Any) -> None:
    trajectory = run["trajectory"]
    if name not in trajectory:
        return
    points = [pair for pair in zip(trajectory["step"], trajectory[name], strict=True) if pair[1] is not None]
    axis.plot(*zip(*points, strict=True), label=label, linewidth=1.4, **style)
    for step, _ in run["collapses"][:1]:
        nearest = min(points, key=lambda point: abs(point[0] - step))
        axis.plot(*nearest, marker="x", color="black", markersize=7, zorder=5)


def _draw_rewards(path: Path, runs: Sequence[Record]) -> None:
    """Reward of the step's completions, a panel per group."""
    panels = (
        "advantages",
        "policy loss, 2 x 2 updates",
        "kl",
        "entropy",
        "reduction",
        "distillation from the base run",
    )
    figure, axes = plt.subplots(2, 3, figsize=(15, 8), sharex=True, sharey=True)
    for axis, group in zip(axes.flat, panels, strict=True):
        chosen = [run for run in runs if run["group"] == group and run["lr"] == 5e-5]
        colors = plt.get_cmap("turbo")([(number + 0.5) / max(1, len(chosen)) for number in range(len(chosen))])
        for run, color in zip(chosen, colors, strict=True):
            _curve(axis, run, "reward", run["name"], color=color)
        axis.set_title(group)
        axis.grid(alpha=0.3)
        if chosen:
            axis.legend(fontsize=6.5, loc="lower right", ncols=2 if len(chosen) > 9 else 1)
    for axis in axes[-1]:
        axis.set_xlabel("step")
    for axis in axes[:, 0]:
        axis.set_ylabel("training reward")
    axes[0, 0].set_ylim(0, 1)
    save(figure, path)


_PATH_PANELS = (
    "reward (rejection fine-tuning)",
    "max_prob_kl, live",
    "max_prob_kl, detached",
    "max_prob_js, live",
    "fixed_target_kl, q 0.5, all",
    "fixed_target_kl, q 0.5, below",
    "fixed_target_kl, q 0.99, all",
)


def _draw_paths(path: Path, runs: Sequence[Record]) -> None:
    """Reward above, entropy below; a column per loss, a line per learning rate; a cross where a collapse was named."""
    figure, axes = plt.subplots(2, len(_PATH_PANELS), figsize=(3.1 * len(_PATH_PANELS), 6.4), sharex=True, sharey="row")
    colors = plt.get_cmap("viridis")([number / len(LEARNING_RATES) for number in range(len(LEARNING_RATES))])
    for column, name in enumerate(_PATH_PANELS):
        for lr, color in zip(LEARNING_RATES, colors, strict=True):
            for run in [run for run in runs if run["name"] == name and run["lr"] == lr]:
                _curve(axes[0, column], run, "reward", f"lr {lr:g}", color=color)
                _curve(axes[1, column], run, "neg_logprob", f"lr {lr:g}", color=color)
        axes[0, column].set_title(name, fontsize=10)
    _label(axes)
    lines = [Line2D([], [], color=color, label=f"lr {lr:g}") for lr, color in zip(LEARNING_RATES, colors, strict=True)]
    cross = Line2D([], [], color="black", marker="x", linestyle="", label="collapse named")
    figure.legend(handles=[*lines, cross], loc="upper center", ncols=6, bbox_to_anchor=(0.5, 1.02), frameon=False)
    save(figure, path)


def _label(axes: Any) -> None:
    """Name the axes of panels with the reward above and the entropy below."""
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    for axis in axes[1]:
        axis.set_xlabel("step")
    axes[0, 0].set_ylabel("training reward")
    axes[1, 0].set_ylabel("entropy, nats a token")
    axes[1, 0].set_yscale("log")


def _draw_damping(path: Path, runs: Sequence[Record]) -> None:
    """The same losses with an entropy coefficient."""
    bases = ("max_prob_kl, live", "max_prob_kl, detached", "max_prob_js, live", "fixed_target_kl, q 0.5, all")
    figure, axes = plt.subplots(2, len(bases), figsize=(3.6 * len(bases), 6.4), sharex=True, sharey="row")
    styles = dict(
        zip(("-1", "-0.5", "-0.1", "0", "+0.1"), plt.get_cmap("coolwarm")([0, 0.2, 0.35, 0.7, 1.0]), strict=True)
    )
    for column, base in enumerate(bases):
        for coef, color in styles.items():
            wanted = base if coef == "0" else f"{base}, entropy {coef}"
            for run in [run for run in runs if run["name"] == wanted and run["lr"] == 1e-4]:
                _curve(axes[0, column], run, "reward", f"coef {coef}", color=color)
                _curve(axes[1, column], run, "neg_logprob", f"coef {coef}", color=color)
        axes[0, column].set_title(base, fontsize=10)
    _label(axes)
    axes[0, 0].legend(fontsize=7, loc="center right")
    save(figure, path)
