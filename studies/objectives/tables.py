"""Tables of the comparison of objectives, from its records."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, stdev
from typing import Any

from scipy import stats

from studies.markdown import percent, points, size, table
from studies.objectives.variants import HEADLINES, LEARNING_RATES, VARIANTS
from studies.study import Record
from swerve.statistics.intervals import share

_NUM_PROBLEMS = 400
_CONTRASTS = (
    ("loss, k3, 0.1 @ 5e-05", "dr_grpo @ 5e-05"),
    ("loss, k3, 0.1 @ 5e-05", "loss, exact_reverse, 0.1 @ 5e-05"),
    ("loss, exact_forward, 0.1 @ 5e-05", "loss, exact_reverse, 0.1 @ 5e-05"),
    ("loss, k2, 0.1 @ 5e-05", "loss, exact_reverse, 0.1 @ 5e-05"),
    ("loss, k1, 0.1 @ 5e-05", "dr_grpo @ 5e-05"),
    ("max_prob_kl, live, entropy -0.1 @ 0.0001", "max_prob_kl, live @ 0.0001"),
    ("max_prob_kl, detached, entropy -0.1 @ 0.0001", "max_prob_kl, detached @ 0.0001"),
    ("max_prob_kl, live, entropy -0.1 @ 0.0001", "reward (rejection fine-tuning) @ 0.0001"),
    ("reward (rejection fine-tuning) @ 5e-05", "dr_grpo @ 5e-05"),
    ("reward (rejection fine-tuning) @ 0.0001", "dr_grpo @ 0.0001"),
)
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
    runs = known_runs(records)
    first = [run for run in runs if run["seed"] == 0]
    found = {
        "headlines": _headlines(runs),
        "contrasts": _contrasts(runs),
        "grid": _grid(first),
        "signals": _signals(records),
    }
    for name, groups in _GROUPS.items():
        chosen = [run for run in first if run["group"] in groups]
        found[name] = _runs_table(chosen, with_group=len(groups) > 1)
    return {name: text for name, text in found.items() if text}


def known_runs(records: Sequence[Record]) -> list[Record]:
    """Return the runs of the variants that there are, in their order and by seed."""
    return sorted(
        (record for record in records if record["kind"] == "run" and (record["group"], record["key"]) in _ORDER),
        key=lambda record: (_ORDER[record["group"], record["key"]], record["seed"]),
    )


def _contrasts(runs: Sequence[Record]) -> str:
    """Differences of sampled accuracy between runs of one seed, with a t interval over the seeds."""
    sampled = {(run["key"], run["seed"]): run["after"]["sampled"] for run in runs if run["after"]}
    rows = []
    for first, second in _CONTRASTS:
        seeds = sorted(seed for key, seed in sampled if key == first and (second, seed) in sampled)
        differences = [sampled[first, seed] - sampled[second, seed] for seed in seeds]
        by_seed = ", ".join(points(one) for one in differences)
        rows.append([first, second, ", ".join(map(str, seeds)), by_seed, _over_seeds(differences)])
    head = ["run", "less", "seeds", "sampled accuracy, points, by seed", "mean [95% t interval over seeds]"]
    return table(head, rows)


def _over_seeds(values: Sequence[float]) -> str:
    if len(values) < 2:
        return "one seed"
    half = float(stats.t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    mean = fmean(values)
    return points({"mean": mean, "low": mean - half, "high": mean + half})


def _accuracy(evaluation: Mapping[str, Any] | None) -> str:
    if evaluation is None:
        return "-"
    found = share(round(_NUM_PROBLEMS * evaluation["accuracy"]), _NUM_PROBLEMS)
    return percent(None if found is None else asdict(found))


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
        ("accuracy at step 30", lambda run: percent((run["middle"] or {}).get("accuracy"))),
        ("at the end", lambda run: _accuracy(run["after"])),
        ("traces right", lambda run: percent((run["after"] or {}).get("trace_right"))),
        ("sampled", lambda run: percent((run["after"] or {}).get("sampled"))),
        ("best training reward (steps)", _best),
        ("entropy, first and last", lambda run: _ends(run, "neg_logprob", ".3f")),
        ("length", lambda run: _ends(run, "completion_length", ".0f")),
        ("cut off at the end", lambda run: percent((run["after"] or {}).get("truncated"))),
        ("gradient norm at the end", lambda run: size(run["last_grad_norm"])),
        ("collapse", _collapses),
    ]
    return table([name for name, _ in columns], [[show(run) for _, show in columns] for run in runs])


def _headlines(runs: Sequence[Record]) -> str:
    rows = []
    for variant in HEADLINES:
        same = [run for run in runs if (run["group"], run["key"]) == (variant.group, variant.key) and run["after"]]
        if same:
            rows.append([variant.key, *map(", ".join, _headline_columns(same))])
    head = ["objective", "seeds", "accuracy before", "at step 30", "at the end", "sampled at the end", "entropy first",
            "entropy last", "collapse at step"]  # fmt: skip
    return table(head, rows)


def _headline_columns(runs: Sequence[Record]) -> list[list[str]]:
    entropies = [run["trajectory"]["neg_logprob"] for run in runs]
    return [
        [str(len(runs))],
        [percent(run["before"]["accuracy"]) for run in runs],
        [percent(run["middle"]["accuracy"]) for run in runs],
        [percent(run["after"]["accuracy"]) for run in runs],
        [percent(run["after"]["sampled"]) for run in runs],
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
    return table(["loss", *(f"lr {lr:g}" for lr in LEARNING_RATES)], rows)


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
        for name, found in record["losses"].items():
            if trained not in ("", name):
                continue
            rows.append(
                [
                    record["checkpoint"],
                    f"{record['entropy']:.3f}",
                    name,
                    percent(found["zero_share"], 2),
                    percent(found["likeliest_share"]),
                    _signed(found["entropy_cosine"]),
                    _signed(found["policy_cosine"]),
                ]
            )
    head = ["checkpoint", "entropy", "loss", "tokens without gradient", "of the gradient, on the likeliest token",
            "cosine with rising entropy", "with the policy gradient"]  # fmt: skip
    return table(head, rows)


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"
