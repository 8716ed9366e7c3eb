"""Numbers that the page on objectives quotes in its sentences, from the records of the comparison."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from statistics import median

from studies.markdown import percent, size
from studies.objectives.tables import known_runs
from studies.study import Record
from swerve.report.format import listed


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return what sentences quote: `KEY: at the end` of a run of seed 0, `GROUP: least at the end` of a group of them.

    `KEY: at the end by seed` has all seeds of a run, `signal CHECKPOINT, LOSS: policy` a cosine.
    """
    runs = known_runs(records)
    first = [run for run in runs if run["seed"] == 0]
    found = {f"{run['key']}: {name}": text for run in first for name, (_, text) in _quoted(run).items()}
    for key, same in groupby(runs, key=lambda run: run["key"]):
        ends = [percent(run["after"]["accuracy"]) for run in same if run["after"]]
        found |= {f"{key}: at the end by seed": listed(ends)} if ends else {}
    return {**found, **_of_groups(first), **_of_signals(records), **_of_collapses(runs)}


def _quoted(run: Record) -> dict[str, tuple[float, str]]:
    """Return what sentences quote of a run: each value and how it is shown."""
    fractions = (
        ("accuracy before", "before", "accuracy"),
        ("sampled before", "before", "sampled"),
        ("at step 30", "middle", "accuracy"),
        ("at the end", "after", "accuracy"),
        ("traces", "after", "trace_right"),
        ("sampled", "after", "sampled"),
    )
    found = {name: (run[when][key], percent(run[when][key])) for name, when, key in fractions if run[when] is not None}
    entropies = [value for value in run["trajectory"].get("neg_logprob", []) if value is not None]
    if entropies:
        found["last entropy"] = (entropies[-1], f"{entropies[-1]:.3f}")
    if run["collapses"]:
        found["collapse"] = (run["collapses"][0][0], str(run["collapses"][0][0]))
    if run["last_grad_norm"] is not None:
        found["gradient norm"] = (run["last_grad_norm"], size(run["last_grad_norm"]))
    return found


def _of_groups(runs: Sequence[Record]) -> dict[str, str]:
    found = {}
    for group in dict.fromkeys(run["group"] for run in runs):
        quoted = [_quoted(run) for run in runs if run["group"] == group]
        for name in ("at step 30", "at the end", "traces", "sampled"):
            if values := sorted(one[name] for one in quoted if name in one):
                found[f"{group}: least {name}"], found[f"{group}: most {name}"] = values[0][1], values[-1][1]
    return found


def _of_signals(records: Sequence[Record]) -> dict[str, str]:
    found = {}
    for record in records:
        if record["kind"] == "signal":
            for loss, one in record["losses"].items():
                trained = record["checkpoint"].rpartition(", step ")[0]
                name = f"signal {record['checkpoint']}{'' if trained == loss else f', {loss}'}"
                found[f"{name}: zero"] = percent(one["zero_share"], 2)
                found[f"{name}: likeliest"] = percent(one["likeliest_share"])
                for cosine in ("policy", "entropy"):
                    value = one[f"{cosine}_cosine"]
                    found[f"{name}: {cosine}"] = "-" if value is None else f"{value:+.2f}"
    return found


def _of_collapses(runs: Sequence[Record]) -> dict[str, str]:
    """Return how many of the runs that ended badly, and well, the trainer named."""
    bad = [run for run in runs if run["stage"] == "rl" and run["after"] and run["after"]["accuracy"] < 0.2]
    good = [run for run in runs if run["stage"] == "rl" and run["after"] and run["after"]["accuracy"] >= 0.97]
    named = [run for run in bad if run["collapses"]]
    found = {
        "runs that end below 20%": str(len(bad)),
        "of these named": str(len(named)),
        "of these named by reward": str(sum("reward" in [sign for _, sign in run["collapses"]] for run in named)),
        "runs that end at 97%": str(len(good)),
        "of those named": str(sum(bool(run["collapses"]) for run in good)),
        "objectives: runs": str(len(runs)),
    }
    if named:
        found["of these named by"] = str(max(run["collapses"][0][0] for run in named))
    if runs:
        found["objectives: median seconds"] = f"{median(run['seconds'] for run in runs):.0f}"
    return found
