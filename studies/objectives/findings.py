"""The tables and numbers of the comparison of objectives, from what is kept of its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from studies.pages import Column, Record, percent, points, shown, size, table, table_of
from swerve.statistics import mean_interval, share
from swerve.text import listed, rounded

STUDIES = ("advantages", "losses", "kl", "entropy", "reductions", "presets", "distillation", "paths", "damped",
           "supervised")  # fmt: skip
"""Files of variants beside this one, each a table of the page."""
REPEATED = (
    "dr_grpo", "rejection_fine_tuning", "max_prob_kl_live_1e-4", "max_prob_kl_detached_1e-4",
    "fixed_target_kl_q_0.5_all_1e-4", "max_prob_kl_live_entropy_-0.1", "max_prob_kl_detached_entropy_-0.1",
    "max_prob_js_live_entropy_-0.1", "loss_k2_0.1", "loss_k3_0.1", "loss_exact_reverse_0.1", "loss_exact_forward_0.1",
    "loss_k1_0.1", "dr_grpo_1e-4", "dr_grpo_1e-3", "rejection_fine_tuning_1e-4",
)  # fmt: skip
"""The variants that have several seeds."""
_CONTRASTS = (
    ("loss_k3_0.1", "dr_grpo"),
    ("loss_k3_0.1", "loss_exact_reverse_0.1"),
    ("loss_exact_forward_0.1", "loss_exact_reverse_0.1"),
    ("loss_k2_0.1", "loss_exact_reverse_0.1"),
    ("loss_k1_0.1", "dr_grpo"),
    ("max_prob_kl_live_entropy_-0.1", "max_prob_kl_live_1e-4"),
    ("max_prob_kl_detached_entropy_-0.1", "max_prob_kl_detached_1e-4"),
    ("max_prob_kl_live_entropy_-0.1", "rejection_fine_tuning_1e-4"),
    ("rejection_fine_tuning", "dr_grpo"),
    ("rejection_fine_tuning_1e-4", "dr_grpo_1e-4"),
)
LEARNING_RATES = (1e-5, 5e-5, 1e-4, 3e-4, 1e-3)
_NUM_PROBLEMS = 400


@cache
def variants(study: str) -> tuple[str, ...]:
    """Return the names of a study's variants, in its order."""
    text = Path(__file__).with_name(f"{study}.yaml").read_text(encoding="utf-8")
    return tuple(yaml.safe_load(text)["variants"])


def runs_of(records: Sequence[Record], study: str) -> list[Record]:
    """Return the runs of a study, by variant and seed."""
    order = variants(study)
    runs = [run for run in records if run["kind"] == "run" and run["study"] == study and run["name"] in order]
    return sorted(runs, key=lambda run: (order.index(run["name"]), run["seed"]))


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the markdown tables by the names of their places in the page."""
    by_study = {study: runs_of(records, study) for study in STUDIES}
    runs = [run for own in by_study.values() for run in own]
    return {
        "headlines": _headlines(runs),
        "contrasts": _contrasts(runs),
        "grid": _grid(by_study["paths"]),
        "signals": _signals(records),
        **{study: _runs_table([run for run in own if run["seed"] == 0]) for study, own in by_study.items()},
    }


def _headlines(runs: Sequence[Record]) -> str:
    """Return a row for each repeated variant, whose cells list the seeds."""
    by_name = {name: [run for run in runs if run["name"] == name and run["after"]] for name in REPEATED}

    def each(cell: str) -> Callable[[Record], str]:
        return lambda row: ", ".join(shown(run, cell) for run in row["runs"])

    def entropy(at: int) -> Callable[[Record], str]:
        return lambda row: ", ".join(f"{run['trajectory']['neg_logprob'][at]:.3f}" for run in row["runs"])

    def collapse(row: Record) -> str:
        return ", ".join(str(run["collapses"][0][0]) if run["collapses"] else "-" for run in row["runs"])

    return table_of(
        [{"name": name, "runs": own} for name, own in by_name.items() if own],
        ("objective", "name"),
        ("seeds", lambda row: str(len(row["runs"]))),
        ("accuracy before", each("before.accuracy:percent")),
        ("at step 30", each("middle.accuracy:percent")),
        ("at the end", each("after.accuracy:percent")),
        ("sampled at the end", each("after.sampled:percent")),
        ("entropy first", entropy(0)),
        ("entropy last", entropy(-1)),
        ("collapse at step", collapse),
    )


def _contrasts(runs: Sequence[Record]) -> str:
    """Return differences of sampled accuracy between runs of one seed, with a t interval over the seeds."""
    sampled = {(run["name"], run["seed"]): run["after"]["sampled"] for run in runs if run["after"]}
    rows = []
    for run, less in _CONTRASTS:
        seeds = sorted(seed for name, seed in sampled if name == run and (less, seed) in sampled)
        differences = [sampled[run, seed] - sampled[less, seed] for seed in seeds]
        over = mean_interval(differences) if len(seeds) > 1 else None
        mean = "one seed" if over is None else points({"mean": over.mean, "low": over.low, "high": over.high})
        rows.append([run, less, ", ".join(map(str, seeds)), ", ".join(map(points, differences)), mean])
    head = ["run", "less", "seeds", "sampled accuracy, points, by seed", "mean (95% t interval over seeds)"]
    return table(head, rows)


def _runs_table(runs: Sequence[Record]) -> str:
    def accuracy(run: Record) -> str:
        interval = run["after"] and share(round(_NUM_PROBLEMS * run["after"]["accuracy"]), _NUM_PROBLEMS)
        return percent(interval and {"mean": interval.mean, "low": interval.low, "high": interval.high})

    def ends(name: str, form: str) -> Callable[[Record], str]:
        def cell(run: Record) -> str:
            values = [value for value in run["trajectory"].get(name, []) if value is not None]
            return f"{values[0]:{form}}, {values[-1]:{form}}" if values else "-"

        return cell

    def best(run: Record) -> str:
        first, last = run["best_steps"] or (None, None)
        return "-" if first is None else f"{run['best_reward']:.2f} ({first} to {last})"

    def collapses(run: Record) -> str:
        signs = [", ".join(f"{sign} @ {step}" for step, sign in run["collapses"])]
        stopped = [f"stopped: {run['error']}"] if run["error"] else []
        return "; ".join(filter(None, [*signs, *stopped])) or "-"

    columns: list[Column] = [
        ("objective", "name"),
        ("lr", lambda run: f"{run['lr']:g}"),
        ("accuracy at step 30", "middle.accuracy:percent"),
        ("at the end", accuracy),
        ("traces right", "after.trace_right:percent"),
        ("sampled", "after.sampled:percent"),
        ("best training reward (steps)", best),
        ("entropy, first and last", ends("neg_logprob", ".3f")),
        ("length", ends("completion_length", ".0f")),
        ("cut off at the end", "after.truncated:percent"),
        ("gradient norm at the end", "last_grad_norm:size"),
        ("collapse", collapses),
    ]
    return table_of(runs, *columns)


def _grid(paths: Sequence[Record]) -> str:
    """Return accuracy at step 30 and at the end by loss and learning rate; bold where a collapse was named."""
    losses: dict[str, dict[float, str]] = {}
    for run in paths:
        if run["seed"] == 0 and run["after"] and run["steps"] == 80:
            text = f"{100 * run['middle']['accuracy']:.0f}, {100 * run['after']['accuracy']:.0f}"
            text = f"**{text}** ({run['collapses'][0][0]})" if run["collapses"] else text
            losses.setdefault(run["name"].rpartition("_")[0], {})[run["lr"]] = text
    rows = [[loss, *(cells.get(lr, "") for lr in LEARNING_RATES)] for loss, cells in losses.items() if len(cells) > 1]
    return table(["loss", *(f"lr {lr:g}" for lr in LEARNING_RATES)], rows)


def _gradients(records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Yield the gradients of each loss at each checkpoint, with the run that the checkpoint is of."""
    for record in records:
        if record["kind"] == "signal":
            trained = record["name"].rpartition(", step ")[0]
            for loss, gradient in record["losses"].items():
                yield {**record, "trained": trained, "loss": loss, **gradient}


def _cosine(name: str) -> Callable[[Record], str]:
    return lambda row: "-" if row[name] is None else rounded(row[name], 2, signed=True)


def _signals(records: Sequence[Record]) -> str:
    return table_of(
        [row for row in _gradients(records) if row["trained"] in ("", row["loss"])],  # of a run only its own loss
        ("checkpoint", "name"),
        ("entropy", lambda row: f"{row['entropy']:.3f}"),
        ("loss", "loss"),
        ("tokens without gradient", "zero_share:percent2"),
        ("of the gradient, on the likeliest token", "likeliest_share:percent"),
        ("cosine with rising entropy", _cosine("entropy_cosine")),
        ("with the policy gradient", _cosine("policy_cosine")),
    )


_QUOTED = {
    "accuracy before": ("before", "accuracy"),
    "sampled before": ("before", "sampled"),
    "at step 30": ("middle", "accuracy"),
    "at the end": ("after", "accuracy"),
    "traces": ("after", "trace_right"),
    "sampled": ("after", "sampled"),
}
"""What sentences quote of a run: when it was evaluated, and which figure."""


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return what sentences quote: `VARIANT: at the end` of a run of seed 0, `STUDY: least at the end` of a study.

    `VARIANT: at the end by seed` has all seeds of a run, `signal CHECKPOINT, LOSS: policy` a cosine.
    """
    runs = [run for study in STUDIES for run in runs_of(records, study)]
    first = [run for run in runs if run["seed"] == 0]
    texts: dict[str, str] = {}

    # Of each run, and the ends of each study's range.
    for run in first:
        for what, (when, figure) in _QUOTED.items():
            if run[when] is not None:
                texts[f"{run['name']}: {what}"] = percent(run[when][figure])
        if entropies := [value for value in run["trajectory"].get("neg_logprob", []) if value is not None]:
            texts[f"{run['name']}: last entropy"] = f"{entropies[-1]:.3f}"
        if run["collapses"]:
            texts[f"{run['name']}: collapse"] = str(run["collapses"][0][0])
        texts[f"{run['name']}: gradient norm"] = size(run["last_grad_norm"])
    for study in STUDIES:
        ends = [run["after"]["accuracy"] for run in first if run["study"] == study and run["after"]]
        if ends:
            texts[f"{study}: least at the end"], texts[f"{study}: most at the end"] = (
                percent(min(ends)),
                percent(max(ends)),
            )

    # Of all seeds.
    for name, same in groupby(runs, key=lambda run: run["name"]):
        by_seed = [percent(run["after"]["accuracy"]) for run in same if run["after"]]
        texts |= {f"{name}: at the end by seed": listed(by_seed)} if by_seed else {}
    for row in _gradients(records):
        name = f"signal {row['name']}{'' if row['trained'] == row['loss'] else ', ' + row['loss']}"
        texts[f"{name}: zero"] = percent(row["zero_share"], 2)
        texts[f"{name}: likeliest"] = percent(row["likeliest_share"])
        texts[f"{name}: policy"], texts[f"{name}: entropy"] = (
            _cosine(f"{way}_cosine")(row) for way in ("policy", "entropy")
        )
    return {**texts, **_of_collapses(runs)}


def _of_collapses(runs: Sequence[Record]) -> dict[str, str]:
    """Return how many of the runs that ended badly, and well, the trainer named."""
    rl = [run for run in runs if run["study"] not in ("distillation", "supervised") and run["after"]]
    bad = [run for run in rl if run["after"]["accuracy"] < 0.2]
    good = [run for run in rl if run["after"]["accuracy"] >= 0.97]
    named = [run for run in bad if run["collapses"]]
    by_reward = [run for run in named if "reward" in [sign for _, sign in run["collapses"]]]
    return {
        "runs that end below 20%": str(len(bad)),
        "of these named": str(len(named)),
        "of these named by reward": str(len(by_reward)),
        "of these named by": str(max(run["collapses"][0][0] for run in named)),
        "runs that end at 97%": str(len(good)),
        "of those named": str(sum(bool(run["collapses"]) for run in good)),
        "objectives: runs": str(len(runs)),
        "objectives: median seconds": f"{median(run['seconds'] for run in runs):.0f}",
    }
