"""What the demo prints, and the tables of its results by seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from studies.markdown import percent, points, size, table
from studies.study import Record
from swerve.cli.console import format_duration
from swerve.report.format import listed

_STAGES = ("sft", "dpo", "rl")
_SPIKES = {"kl_forward": "forward KL", "kl_reverse": "reverse KL", "js": "Jensen-Shannon"}


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the tables and printed texts by the names of their places."""
    demos = {record["name"]: record for record in records if record["kind"] == "demo"}
    found: dict[str, str] = {}
    for task in ("addition", "knights_knaves"):
        runs = [demos[name] for name in sorted(demos) if demos[name]["task"] == task]
        if runs:
            found[f"demo {task}"] = _by_seed(runs)
    if addition := [demos[name] for name in sorted(demos) if demos[name]["task"] == "addition"]:
        found["demo wrong steps"] = _wrong_steps(addition)
    trainings = {record["name"]: record for record in records if record["kind"] == "training"}
    if "addition 0" in demos:
        found["demo rates"] = _rates(demos["addition 0"], trainings)
        found |= _printed(demos["addition 0"])
    if trainings:
        found["demo recipes"] = _recipes(trainings)
        found["demo slips"] = _slips(trainings)
    return found


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers that sentences quote of a task, by seed."""
    found: dict[str, str] = {}
    for task in ("addition", "knights_knaves"):
        demos = [record for record in records if record["kind"] == "demo" and record["task"] == task]
        shown = {
            "time": [format_duration(one["cpu_seconds"]) for one in demos],
            "successes at the top spike": [
                percent(_swap(one, "spike")["checkpoint"]["success"], 0) for one in demos
            ],
            "traces not right": [percent(1 - _of(one, "rl", "trace_right")["mean"], 0) for one in demos],
        }  # fmt: skip
        found |= {f"{task}: {name}": listed(texts) for name, texts in shown.items() if texts}
    for record in records:
        for one in record.get("by_checkpoint", ()):
            found[f"{record['name']}: spikes of {one['checkpoint']}"] = str(one["num_spikes"])
            found[f"{record['name']}: mean JS of {one['checkpoint']}"] = size(one["mean_js"]["mean"])
    return found


def _of(demo: Record, stage: str, name: str) -> Mapping[str, float]:
    """Return a mean of the last checkpoint of a stage."""
    last = [one for one in demo["evaluations"].values() if one["stage"] == stage][-1]
    return last[name]  # type: ignore[no-any-return]


def _swap(demo: Record, place: str) -> Record:
    return next(row for row in demo["causal"]["selections"] if row["selection"] == place)  # type: ignore[no-any-return]


def _by_seed(demos: Sequence[Record]) -> str:
    rows: list[tuple[str, Callable[[Record], str]]] = [
        *((f"greedy accuracy after {stage.upper()}", _stage(stage, "accuracy")) for stage in _STAGES),
        *((f"traces fully right after {stage.upper()}", _stage(stage, "trace_right")) for stage in ("sft", "rl")),
        *((f"mean reward of samples after {stage.upper()}", _stage(stage, "mean_reward")) for stage in _STAGES[1:]),
        ("problems the reference has wrong; the final checkpoint has right of these", _flips),
        *(row for name, word in _SPIKES.items() for row in _spike_rows(name, word, demos)),
        ("causal test at the top spike: success with the reference's token, with the checkpoint's", _successes),
        ("effect of the checkpoint's token there, points", _effect("spike", "effect")),
        ("checkpoint's token less another token there, points", _effect("spike", "checkpoint_minus_alternative")),
        ("effect of the checkpoint's token at random positions, points", _effect("random", "effect")),
        ("random positions where both models choose one token", _same),
        ("CPU time of `swerve demo`, one thread", lambda demo: format_duration(demo["cpu_seconds"])),
    ]  # fmt: skip
    return table(["", *(f"seed {demo['seed']}" for demo in demos)], [[name, *map(show, demos)] for name, show in rows])


def _stage(stage: str, name: str) -> Callable[[Record], str]:
    return lambda demo: percent(_of(demo, stage, name))


def _flips(demo: Record) -> str:
    return f"{demo['num_reference_wrong']}; {demo['num_reference_wrong_final_right']}"


def _spike_rows(name: str, word: str, demos: Sequence[Record]) -> Iterator[tuple[str, Callable[[Record], str]]]:
    """Yield where the top spike of a divergence falls, and how often it would by chance."""
    for key, place in (("first_wrong", "the first wrong token"), ("wrong", "any wrong token")):
        chances = ", ".join(dict.fromkeys(percent(_hits(demo, name)[f"chance_{key}"]) for demo in demos))
        yield (
            f"top spike on {place}, {word} (chance {chances})",
            lambda demo, key=key: percent(_hits(demo, name)[f"top_on_{key}"]),
        )


def _hits(demo: Record, divergence: str) -> Any:
    return next(row for row in demo["spikes"] if row["divergence"] == divergence)


def _successes(demo: Record) -> str:
    row = _swap(demo, "spike")
    return f"{percent(row['reference']['success'])}, {percent(row['checkpoint']['success'])}"


def _effect(place: str, name: str) -> Callable[[Record], str]:
    return lambda demo: points(_swap(demo, place)[name])


def _same(demo: Record) -> str:
    return percent(_swap(demo, "random")["share_same_token"], 0)


def _wrong_steps(demos: Sequence[Record]) -> str:
    """Return success with the checkpoint's token by the number of wrong steps and the one that has the top spike."""
    groups: dict[str, Callable[[Record], bool]] = {
        "one wrong step, the top spike on it": lambda row: row["wrong_steps"] == 1 and row["spike"] == "first",
        "several, the top spike on the first": lambda row: row["wrong_steps"] > 1 and row["spike"] == "first",
        "several, the top spike on a later one": lambda row: row["wrong_steps"] > 1 and row["spike"] == "later",
        "the top spike on no wrong step": lambda row: row["spike"] == "none",
    }
    rows = [[name, *(_success([row for row in demo["swaps"] if holds(row)]) for demo in demos)]
            for name, holds in groups.items()]  # fmt: skip
    return table(["rollouts of the causal test", *(f"seed {demo['seed']}" for demo in demos)], rows)


def _success(swaps: Sequence[Record]) -> str:
    done = sum(row["continuations"]["checkpoint"] for row in swaps)
    right = sum(row["successes"]["checkpoint"] for row in swaps)
    return f"{percent(right / done, 0)} of {len(swaps)}" if done else "none"


def _rates(demo: Record, trainings: Mapping[str, Record]) -> str:
    """Return the table of learning rates of seed 0, the recipe's among them."""
    found = {"dpo": [("DPO at 1e-5 (the recipe)", _last(demo, "dpo"))],
             "rl": [("RL at 5e-5 (the recipe), 80 steps", _last(demo, "rl"))]}  # fmt: skip
    for name, record in trainings.items():
        if record["recipe"] == "demo_addition":
            stage, rate = name.split()
            for label, one in record["evaluations"].items():
                if one["stage"] == stage:
                    found[stage].append((f"{stage.upper()} at {rate}, {label.removeprefix(f'{stage}-')} steps", one))
    rows = [
        [name, percent(one["accuracy"]), percent(one["trace_right"])] for row in found.values() for name, one in row
    ]
    return table(["", "greedy accuracy", "traces fully right"], rows)


def _recipes(trainings: Mapping[str, Record]) -> str:
    """Return what the recipes of generated tasks reach."""
    rows = []
    for name in ("sequence", "palindrome", "palindrome, 500 steps of SFT", "countdown"):
        if name in trainings:
            ends = [_last(trainings[name], stage) for stage in ("sft", "rl")]
            cells = [percent(one[key]) for key in ("accuracy", "mean_reward") for one in ends]
            all_right = [percent(_of_samples(one, 4)) for one in ends]
            rows.append([f"`{name.partition(',')[0]}`{name[len(name.partition(',')[0]) :]}",
                         str(ends[0]["num_problems"]), *cells, *all_right])  # fmt: skip
    head = ["recipe", "held-out problems", "after SFT", "after RL", "samples after SFT", "after RL", "pass@4 after SFT",
            "after RL"]  # fmt: skip
    return table(head, rows)


def _of_samples(evaluation: Mapping[str, Any], k: int) -> Any:
    return next((one["pass_at_k"] for one in evaluation["by_num_samples"] if one["k"] == k), None)


def _slips(trainings: Mapping[str, Record]) -> str:
    """Return what slips and the restated terms do to sequences."""
    rows = []
    for slips, shown in (("0", "no slips"), ("0.15", "`slip_rate: 0.15`")):
        names = [f"sequence, restate {restate}, slips {slips}" for restate in ("false", "true")]
        if all(name in trainings for name in names):
            rows.append([shown, *(percent(_last(trainings[name], "sft")["accuracy"]) for name in names)])
    return table(["", "terms alone", "`restate`"], rows)


def _last(demo: Record, stage: str) -> Mapping[str, Any]:
    return [one for one in demo["evaluations"].values() if one["stage"] == stage][-1]  # type: ignore[no-any-return]


def _printed(demo: Record) -> dict[str, str]:
    """Return what the demo printed: all of it, the lines that the README shows, and its progress by stage."""
    lines = demo["printed"]
    left_out = ("  sft", "  Forward KL", "  Reverse KL", "Note:", "Wall time:", "Report:")
    shown = [f"    {line}" for line in lines if not line.startswith(left_out)]
    parts = {"training": ("run directory", "train", "sample pairs"), "evaluation": ("evaluate",),
             "probe": ("probe", "causal test", "pivots", "cross-sampling")}  # fmt: skip
    progress = {f"demo progress {part}": _fenced(_progress(demo["progress"], names)) for part, names in parts.items()}
    return {"demo summary": "\n".join(shown), "demo output": _fenced(lines), **progress}


def _progress(lines: Sequence[str], beginnings: tuple[str, ...]) -> list[str]:
    """Return of each part of the run its second line, if it has more than two, and its last."""
    by_part: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith(beginnings):
            by_part.setdefault(line.partition(":")[0], []).append(line)
    return [line for found in by_part.values() for line in [*found[1:-1][:1], found[-1]]]


def _fenced(lines: Sequence[str]) -> str:
    return "\n".join(["```text", *lines, "```"])
