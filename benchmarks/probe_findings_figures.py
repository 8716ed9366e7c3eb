"""Figures of the probe's findings, from their JSON lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from probe_findings_page import DIRECTIONS

__all__ = ["draw_figures"]

Record = Mapping[str, Any]
_STORY_DIRECTIONS = {
    "stories_dose_into_reference": "changed model's tokens into the pretrained model's stories",
    "stories_dose_into_changed": "pretrained model's tokens into the changed model's stories",
}
_COLORS = {"js": "tab:blue", "logprob_drop": "tab:green", "entropy": "tab:orange", "random": "tab:gray"}


def draw_figures(folder: Path, records: Sequence[Record]) -> None:
    """Draw what there are records for."""
    import matplotlib as mpl

    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    demos = sorted((one for one in records if one["kind"] == "demo"), key=lambda one: one["seed"])
    if demos:
        _draw_dose(folder / "probe-dose.png", demos)
        _draw_causal(folder / "probe-causal.png", demos)
    kinds = {one["kind"]: one for one in records}
    if "null_samples" in kinds:
        _draw_null(folder / "probe-null.png", kinds["null_samples"])
    if set(_STORY_DIRECTIONS) <= set(kinds):
        _draw_stories(folder / "probe-stories-dose.png", [kinds[name] for name in _STORY_DIRECTIONS])


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.tight_layout()
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def _draw_dose(path: Path, demos: Sequence[Record]) -> None:
    """Accuracy against the share of swapped tokens: a column a direction, a row a seed."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(demos), 2, figsize=(10, 3.2 * len(demos)), sharey=True, squeeze=False)
    for row, one in enumerate(demos):
        for column, way in enumerate(one["cross_sampling"]["directions"]):
            axis = axes[row, column]
            for name, color in (("base", "black"), ("other", "tab:red")):
                axis.axhline(way[name]["mean"], color=color, linestyle=":", linewidth=1)
                label = "no swaps" if name == "base" else "all"
                axis.text(
                    1.01, way[name]["mean"], label, color=color, va="center", transform=axis.get_yaxis_transform()
                )
            for found in way["selectors"]:
                _errors(axis, found["points"], found["selector"], "accuracy")
            axis.set_title(f"{DIRECTIONS[way['direction']]} (seed {one['seed']})", fontsize=9)
            axis.grid(alpha=0.3)
            axis.set_xscale("symlog", linthresh=0.2, linscale=0.3)
            axis.set_xticks([0, 0.2, 0.5, 1, 2, 5, 10], ["0", "0.2", "0.5", "1", "2", "5", "10"])
            axis.set_xlim(0, 13)
        axes[row, 0].set_ylabel("accuracy")
    for axis in axes[-1]:
        axis.set_xlabel("tokens swapped, %")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=4, bbox_to_anchor=(0.5, 1.02), frameon=False)
    _save(figure, path)


def _errors(axis: Any, points: Sequence[Record], name: str, value: str) -> None:
    """Draw one selector's curve with its intervals."""
    x = [100 * point["share_swapped"] for point in points]
    y = [point[value]["mean"] for point in points]
    below = [point[value]["mean"] - point[value]["low"] for point in points]
    above = [point[value]["high"] - point[value]["mean"] for point in points]
    axis.errorbar(
        x, y, yerr=[below, above], color=_COLORS[name], marker="o", markersize=4, linewidth=1.2, capsize=2, label=name
    )


def _draw_causal(path: Path, demos: Sequence[Record]) -> None:
    """Success with each arm's token, by kind of position and seed."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(demos), figsize=(3.4 * len(demos) + 1, 3.6), sharey=True, squeeze=False)
    arms = {"reference": "rollout's own token", "checkpoint": "checkpoint's token", "alternative": "another token"}
    colors = ("tab:gray", "tab:green", "tab:orange")
    for axis, one in zip(axes[0], demos, strict=True):
        rows = one["causal"]["selections"]
        for index, ((arm, label), color) in enumerate(zip(arms.items(), colors, strict=True)):
            x = [place + 0.26 * (index - 1) for place in range(len(rows))]
            axis.bar(x, [row[arm]["success"] for row in rows], width=0.25, color=color, label=label)
        for place, row in enumerate(rows):
            effect, base = row["effect"], row["reference"]["success"]
            ends = [[effect["mean"] - effect["low"]], [effect["high"] - effect["mean"]]]
            axis.errorbar([place], [base + effect["mean"]], yerr=ends, color="black", capsize=3, linewidth=1)
        axis.set_xticks(range(len(rows)), [row["selection"] for row in rows])
        axis.set_title(f"seed {one['seed']}", fontsize=10)
        axis.grid(alpha=0.3, axis="y")
    axes[0, 0].set_ylabel("right continuations")
    axes[0, -1].legend(fontsize=8)
    _save(figure, path)


def _draw_null(path: Path, record: Record) -> None:
    """How often each comparison of two samples of one model finds a difference."""
    import matplotlib.pyplot as plt

    names = list(record["rates"])
    rates = [record["rates"][name]["rate"] for name in names]
    figure, axis = plt.subplots(figsize=(8.5, 0.32 * len(names) + 1.2))
    middle = [100 * rate["mean"] for rate in rates]
    ends = [
        [100 * (rate["mean"] - rate["low"]) for rate in rates],
        [100 * (rate["high"] - rate["mean"]) for rate in rates],
    ]
    axis.errorbar(middle, range(len(names)), xerr=ends, fmt="o", color="tab:blue", capsize=3, markersize=4)
    axis.axvline(5, color="tab:red", linestyle="--", linewidth=1)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.invert_yaxis()
    axis.set_xlim(left=0)
    axis.set_xlabel("pairs of samples of one model called different, %")
    axis.grid(alpha=0.3)
    _save(figure, path)


def _draw_stories(path: Path, records: Sequence[Record]) -> None:
    """Share of stories with the new name against the share of swapped tokens, both ways."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True)
    for axis, record in zip(axes, records, strict=True):
        for row, color in ((record["points"][0], "black"), (record["points"][1], "tab:red")):
            axis.axhline(row["with_new"]["mean"], color=color, linestyle=":", linewidth=1)
            label = "no swaps" if row["selector"] == "none" else "all"
            axis.text(
                1.01, row["with_new"]["mean"], label, color=color, va="center", transform=axis.get_yaxis_transform()
            )
        for selector in _COLORS:
            points = [point for point in record["points"] if point["selector"] == selector]
            _errors(axis, points, selector, "with_new")
        axis.set_title(_STORY_DIRECTIONS[record["kind"]], fontsize=9)
        axis.set_xlabel("tokens swapped, %")
        axis.set_xscale("symlog", linthresh=0.5, linscale=0.3)
        axis.set_xticks([0, 0.5, 1, 2, 5, 10], ["0", "0.5", "1", "2", "5", "10"])
        axis.set_xlim(0, 14)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel(f"stories with {records[0]['new']}")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=4, bbox_to_anchor=(0.5, 1.07), frameon=False)
    _save(figure, path)
