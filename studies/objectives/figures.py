"""Figures of the comparison of objectives, from its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

from studies.drawing import save
from studies.objectives.findings import runs_of
from studies.pages import Record
from swerve.notebook import GREY, INK
from swerve.report.draw.figures import COLOURS, LINES, colour_map


def draw_figures(folder: Path, records: Sequence[Record]) -> None:
    """Draw reward, entropy and collapse of the runs of seed 0."""
    first = [record for record in records if record.get("seed") == 0]
    _draw_rewards(folder / "objectives-reward.png", first)
    _draw_paths(folder / "objectives-learning-rates.png", runs_of(first, "paths") + runs_of(first, "advantages"))
    _draw_damping(folder / "objectives-entropy.png", runs_of(first, "paths") + runs_of(first, "damped"))


def _shades(num: int) -> list[Mapping[str, Any]]:
    """Return shades for so many settings, from the lowest to the highest."""
    return [{"color": colour_map()(0.3 + 0.7 * place / (num - 1))} for place in range(num)]


def _curve(axis: Any, run: Record, name: str, label: str, look: Mapping[str, Any]) -> None:
    """Draw a metric over training, and a cross where a collapse was named."""
    trajectory = run["trajectory"]
    if name not in trajectory:
        return
    points = [pair for pair in zip(trajectory["step"], trajectory[name], strict=True) if pair[1] is not None]
    axis.plot(*zip(*points, strict=True), label=label, linewidth=1.4, **look)
    for step, _ in run["collapses"][:1]:
        nearest = min(points, key=lambda point: abs(point[0] - step))
        axis.plot(*nearest, marker="x", color=INK, markersize=7, zorder=5)


def _draw_rewards(path: Path, records: Sequence[Record]) -> None:
    """Reward of the step's completions, a panel for each study."""
    figure, axes = plt.subplots(2, 3, figsize=(15, 8), sharex=True, sharey=True)
    panels = ("advantages", "losses", "kl", "entropy", "reductions", "distillation")
    for axis, study in zip(axes.flat, panels, strict=True):
        runs = [run for run in runs_of(records, study) if run["lr"] == 5e-5]
        for run, color, line in zip(runs, cycle((*COLOURS, INK, GREY)), cycle(LINES), strict=False):
            _curve(axis, run, "reward", run["name"], {"color": color, "linestyle": line})
        axis.set_title(study)
        axis.grid(alpha=0.3)
        if runs:
            axis.legend(fontsize=6.5, loc="lower right", ncols=2 if len(runs) > 9 else 1)
    for axis in axes[-1]:
        axis.set_xlabel("step")
    for axis in axes[:, 0]:
        axis.set_ylabel("training reward")
    axes[0, 0].set_ylim(0, 1)
    save(figure, path)


def _panels(titles: Sequence[str], width: float) -> tuple[Any, Any]:
    """Return a figure with the reward above and the entropy below, a column for each title."""
    figure, axes = plt.subplots(2, len(titles), figsize=(width * len(titles), 6.4), sharex=True, sharey="row")
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    for column, title in enumerate(titles):
        axes[0, column].set_title(title, fontsize=10)
        axes[1, column].set_xlabel("step")
    axes[0, 0].set_ylabel("training reward")
    axes[1, 0].set_ylabel("entropy, nats a token")
    axes[1, 0].set_yscale("log")
    return figure, axes


def _draw_pair(axes: Any, run: Record | None, label: str, look: Mapping[str, Any]) -> None:
    if run is not None:
        _curve(axes[0], run, "reward", label, look)
        _curve(axes[1], run, "neg_logprob", label, look)


def _draw_paths(path: Path, runs: Sequence[Record]) -> None:
    """A column for each loss, a line for each learning rate; a cross where a collapse was named."""
    losses = ("rejection_fine_tuning", "max_prob_kl_live", "max_prob_kl_detached", "max_prob_js_live",
              "fixed_target_kl_q_0.5_all", "fixed_target_kl_q_0.5_below", "fixed_target_kl_q_0.99_all")  # fmt: skip
    figure, axes = _panels(losses, 3.1)
    rates = ("1e-5", "5e-5", "1e-4", "3e-4", "1e-3")
    by_name = {run["name"]: run for run in runs}
    by_name["rejection_fine_tuning_5e-5"] = by_name["rejection_fine_tuning"]
    for column, loss in enumerate(losses):
        for lr, look in zip(rates, _shades(len(rates)), strict=True):
            _draw_pair(axes[:, column], by_name.get(f"{loss}_{lr}"), f"lr {lr}", look)
    lines = [Line2D([], [], label=f"lr {lr}", **look) for lr, look in zip(rates, _shades(len(rates)), strict=True)]
    cross = Line2D([], [], color=INK, marker="x", linestyle="", label="collapse named")
    figure.legend(handles=[*lines, cross], loc="upper center", ncols=6, bbox_to_anchor=(0.5, 1.02), frameon=False)
    save(figure, path)


def _draw_damping(path: Path, runs: Sequence[Record]) -> None:
    """The same losses with an entropy coefficient."""
    losses = ("max_prob_kl_live", "max_prob_kl_detached", "max_prob_js_live", "fixed_target_kl_q_0.5_all")
    figure, axes = _panels(losses, 3.6)
    by_name = {run["name"]: run for run in runs}
    for column, loss in enumerate(losses):
        for coef, look in zip(("-1", "-0.5", "-0.1", "0", "0.1"), _shades(5), strict=True):
            name = f"{loss}_1e-4" if coef == "0" else f"{loss}_entropy_{coef}"
            _draw_pair(axes[:, column], by_name.get(name), f"coef {coef}", look)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=5, bbox_to_anchor=(0.5, 1.0), frameon=False)
    save(figure, path)
