"""Tables and figures of the comparison, from its JSON lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from objectives_variants import HEADLINES, LEARNING_RATES, VARIANTS

__all__ = ["draw_figures", "tables", "write_page"]

Record = Mapping[str, Any]
_GROUPS = {
    "advantages": ("advantages", "learning rate"),
    "losses": ("policy loss, 2 x 2 updates", "correction, 2 x 2 updates"),
    "kl": ("kl",),
    "entropy": ("entropy",),
    "other": ("groups of equal reward", "reduction", "preset", "distillation from the base run"),
    "paths": ("paths", "paths, longer"),
    "damped": ("paths with an entropy coefficient",),
    "supervised": ("supervised, from the SFT checkpoint", "supervised, from random weights"),
}
_ORDER = {(variant.group, variant.key): number for number, variant in enumerate(VARIANTS)}


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the markdown tables by the names of their places in the page."""
    runs = sorted(
        (record for record in records if record["kind"] == "run" and (record["group"], record["key"]) in _ORDER),
        key=lambda record: (_ORDER[record["group"], record["key"]], record["seed"]),
    )
    first = [run for run in runs if run["seed"] == 0]
    found = {"headlines": _headlines(runs), "grid": _grid(first), "signals": _signals(records)}
    for name, groups in _GROUPS.items():
        chosen = [run for run in first if run["group"] in groups]
        found[name] = _runs_table(chosen, with_group=len(groups) > 1)
    return {name: text for name, text in found.items() if text}


def write_page(path: Path, records: Sequence[Record]) -> None:
    """Replace the tables between the page's markers `<!-- NAME -->` and `<!-- /NAME -->`."""
    text = path.read_text(encoding="utf-8")
    for name, table in tables(records).items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{path} has no place for the table '{name}': put <!-- {name} --> and <!-- /{name} -->")
        text = pattern.sub(lambda match, table=table: f"{match[1]}\n{table}\n\n{match[2]}", text)  # type: ignore[misc]
    path.write_text(text, encoding="utf-8")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]]) if rows else ""


def _percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{100 * value:.{digits}f}%"


def _accuracy(figures: Mapping[str, Any] | None) -> str:
    if figures is None:
        return "-"
    low, high = figures["interval"]
    return f"{_percent(figures['accuracy'])} [{100 * low:.1f}, {100 * high:.1f}]"


def _ends(run: Record, name: str, form: str) -> str:
    values = [value for value in run["trajectory"].get(name, []) if value is not None]
    return f"{values[0]:{form}}, {values[-1]:{form}}" if values else "-"


def _collapses(run: Record) -> str:
    signs = ", ".join(f"{sign} @ {step}" for step, sign in run["collapses"])
    return "; ".join(part for part in (signs, "stopped: " + run["error"] if run["error"] else "") if part) or "-"


def _best(run: Record) -> str:
    if run["best_reward"] is None:
        return "-"
    first, last = run["best_steps"]
    return f"{run['best_reward']:.2f} ({first} to {last})"


def _name(run: Record, *, with_group: bool) -> str:
    return f"{run['group']}: {run['name']}" if with_group else str(run["name"])


def _runs_table(runs: Sequence[Record], *, with_group: bool) -> str:
    columns: list[tuple[str, Callable[[Record], str]]] = [
        ("objective", lambda run: _name(run, with_group=with_group)),
        ("lr", lambda run: f"{run['lr']:g}"),
        ("accuracy at step 30", lambda run: _percent((run["middle"] or {}).get("accuracy"))),
        ("at the end", lambda run: _accuracy(run["after"])),
        ("traces right", lambda run: _percent((run["after"] or {}).get("trace_right"))),
        ("sampled", lambda run: _percent((run["after"] or {}).get("sampled"))),
        ("best training reward (steps)", _best),
        ("entropy, first and last", lambda run: _ends(run, "neg_logprob", ".3f")),
        ("length", lambda run: _ends(run, "completion_length", ".0f")),
        ("cut off at the end", lambda run: _percent((run["after"] or {}).get("truncated"))),
        ("gradient norm at the end", lambda run: _number(run["last_grad_norm"])),
        ("collapse", _collapses),
    ]
    return _table([name for name, _ in columns], [[show(run) for _, show in columns] for run in runs])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def _headlines(runs: Sequence[Record]) -> str:
    rows = []
    for variant in HEADLINES:
        same = [run for run in runs if (run["group"], run["key"]) == (variant.group, variant.key) and run["after"]]
        if same:
            rows.append([variant.key, *(_headline(figures) for figures in _headline_columns(same))])
    head = ["objective", "seeds", "accuracy before", "at step 30", "at the end", "sampled at the end", "entropy first",
            "entropy last", "collapse at step"]  # fmt: skip
    return _table(head, rows)


def _headline(values: Sequence[str]) -> str:
    return ", ".join(values)


def _headline_columns(runs: Sequence[Record]) -> list[list[str]]:
    entropies = [run["trajectory"]["neg_logprob"] for run in runs]
    return [
        [str(len(runs))],
        [_percent(run["before"]["accuracy"]) for run in runs],
        [_percent(run["middle"]["accuracy"]) for run in runs],
        [_percent(run["after"]["accuracy"]) for run in runs],
        [_percent(run["after"]["sampled"]) for run in runs],
        [f"{values[0]:.3f}" for values in entropies],
        [f"{values[-1]:.3f}" for values in entropies],
        [str(run["collapses"][0][0]) if run["collapses"] else "-" for run in runs],
    ]


def _grid(runs: Sequence[Record]) -> str:
    """Accuracy at step 30 and at the end by loss and learning rate; bold where the trainer named a collapse."""
    chosen = [run for run in runs if run["group"] == "paths"]
    rows = []
    for name in dict.fromkeys(run["name"] for run in chosen):
        cells = {run["lr"]: run for run in chosen if run["name"] == name}
        if len(cells) > 1:
            rows.append([name, *(_cell(cells.get(lr)) for lr in LEARNING_RATES)])
    return _table(["loss", *(f"lr {lr:g}" for lr in LEARNING_RATES)], rows)


def _cell(run: Record | None) -> str:
    if run is None or run["after"] is None:
        return ""
    text = f"{100 * run['middle']['accuracy']:.0f}, {100 * run['after']['accuracy']:.0f}"
    return f"**{text}** ({run['collapses'][0][0]})" if run["collapses"] else text


def _signals(records: Sequence[Record]) -> str:
    rows = []
    for record in records:
        if record["kind"] != "signal":
            continue
        trained = record["checkpoint"].rpartition(", step ")[0]  # of a run's checkpoint: only the run's own loss
        for name, figures in record["losses"].items():
            if trained not in ("", name):
                continue
            rows.append(
                [
                    record["checkpoint"],
                    f"{record['entropy']:.3f}",
                    name,
                    _percent(figures["zero_share"], 2),
                    _percent(figures["likeliest_share"]),
                    _signed(figures["entropy_cosine"]),
                    _signed(figures["policy_cosine"]),
                ]
            )
    head = ["checkpoint", "entropy", "loss", "tokens without gradient", "of the gradient, on the likeliest token",
            "cosine with rising entropy", "with the policy gradient"]  # fmt: skip
    return _table(head, rows)


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


def draw_figures(directory: Path, records: Sequence[Record]) -> None:
    """Draw the figures as PNG files."""
    import matplotlib

    matplotlib.use("Agg")
    directory.mkdir(parents=True, exist_ok=True)
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


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def _draw_rewards(path: Path, runs: Sequence[Record]) -> None:
    """Reward of the step's completions, a panel a group."""
    import matplotlib.pyplot as plt

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
    _save(figure, path)


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
    """Reward above, entropy below; a column a loss, a line a learning rate; a cross where a collapse was named."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

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
    _save(figure, path)


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
    import matplotlib.pyplot as plt

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
    _save(figure, path)
