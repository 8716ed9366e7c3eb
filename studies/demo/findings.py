"""What the pages show of the demo: its results by seed, what the probe finds, an audit of the estimators of KL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from studies.pages import Column, Record, entries, fenced, first, number, of_kind, percent, shown, size, table, table_of
from swerve.progress import format_duration
from swerve.text import listed

DIRECTIONS = {
    "checkpoint_into_reference": "checkpoint's tokens into the reference's text",
    "reference_into_checkpoint": "reference's tokens into the checkpoint's text",
}
_SPIKES = {"kl_forward": "forward KL", "kl_reverse": "reverse KL", "js": "Jensen-Shannon"}


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the tables and printed texts by the names of their places."""
    wider, trainings = of_kind(records, "wider"), {record["name"]: record for record in of_kind(records, "training")}
    addition, knights = (_demos(records, task) for task in ("addition", "knights_knaves"))
    return {
        "demo addition": by_seed(addition),
        "demo knights_knaves": by_seed(knights),
        "demo wrong steps": _wrong_steps(addition),
        "demo rates": _rates(addition[0], trainings),
        "demo recipes": _recipes(trainings),
        "demo slips": _slips(trainings),
        "population": _population(wider),
        "recovery": _recovery(wider),
        "spikes": _spikes(wider),
        "causal": _causal(wider),
        "recovered": _recovered(wider),
        "pivots": _pivots(wider),
        "prediction": _prediction(wider),
        "signal": _signal(wider),
        "audit output": fenced(first(records, kind="audit", name="audit far")["printed"]),
    }


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers that sentences quote, by seed or over all seeds."""
    texts: dict[str, str] = {}

    # Of the demo: what it takes and ends with, and each checkpoint's spikes.
    for task in ("addition", "knights_knaves"):
        demos = _demos(records, task)
        texts[f"{task}: time"] = listed([format_duration(demo["cpu_seconds"]) for demo in demos])
        successes = [percent(swap(demo, "spike")["checkpoint"]["success"], 0) for demo in demos]
        texts[f"{task}: successes at the top spike"] = listed(successes)
        not_right = [percent(1 - last(demo, "rl")["trace_right"]["mean"], 0) for demo in demos]
        texts[f"{task}: traces not right"] = listed(not_right)
        for row in entries(demos, "by_checkpoint"):
            texts[f"{row['name']}: spikes of {row['checkpoint']}"] = str(row["num_spikes"])
            texts[f"{row['name']}: mean JS of {row['checkpoint']}"] = size(row["mean_js"]["mean"])

    # Of the wider probe: pivots, and success after a swap.
    wider = of_kind(records, "wider")
    pivots, swaps = [probe["pivots"] for probe in wider], [swap(probe, "spike") for probe in wider]
    on_wrong = [pivot["on_wrong"] for pivot in pivots if pivot["on_wrong"]]
    texts |= {
        "pivots found": str(sum(pivot["num_pivots"] for pivot in pivots)),
        "pivots on wrong tokens": str(sum(round(place["num"] * place["share"]["mean"]) for place in on_wrong)),
        "pivots confirmed": str(sum(pivot["num_confirmed"] for pivot in pivots)),
        "rollouts with a pivot": listed(
            [f"{row['num_rollouts_with_pivot']} of {row['num_rollouts']}" for row in pivots]
        ),
        "swaps: checkpoint's token": listed([percent(row["checkpoint"]["success"], 0) for row in swaps]),
        "swaps: another token": listed([percent(row["alternative"]["success"], 0) for row in swaps]),
    }
    for audit in of_kind(records, "audit"):
        texts |= {f"{audit['name']}: {key}": text for key, text in _audited(audit).items()}
    return texts


def _demos(records: Sequence[Record], task: str) -> list[Record]:
    return [record for record in of_kind(records, "demo") if record["task"] == task]


def last(run: Record, stage: str) -> Any:
    """Return the evaluation of the last checkpoint of a stage."""
    return [evaluation for evaluation in run["evaluations"].values() if evaluation["stage"] == stage][-1]


def swap(probe: Record, place: str) -> Any:
    """Return the causal test at one kind of positions."""
    return first(probe["causal"]["selections"], selection=place)


# Results by seed.


def by_seed(demos: Sequence[Record]) -> str:
    """Return the table of runs of one recipe, a column each; with the time where it was recorded."""

    def of_stage(stage: str, key: str) -> Callable[[Record], str]:
        return lambda demo: percent(last(demo, stage)[key])

    def at(place: str, cell: str) -> Callable[[Record], str]:
        return lambda demo: shown(swap(demo, place), cell)

    rows: list[Column] = [
        *((f"greedy accuracy after {stage.upper()}", of_stage(stage, "accuracy")) for stage in ("sft", "dpo", "rl")),
        *((f"traces fully right after {stage.upper()}", of_stage(stage, "trace_right")) for stage in ("sft", "rl")),
        *((f"mean reward of samples after {stage.upper()}", of_stage(stage, "mean_reward")) for stage in ("dpo", "rl")),
        (
            "problems the reference has wrong; the final checkpoint has right of these",
            lambda demo: f"{demo['num_reference_wrong']}; {demo['num_reference_wrong_final_right']}",
        ),
        *(row for divergence in _SPIKES for row in _spike_rows(divergence, demos)),
        (
            "causal test at the top spike: success with the reference's token, with the checkpoint's",
            lambda demo: (
                f"{at('spike', 'reference.success:percent')(demo)}, {at('spike', 'checkpoint.success:percent')(demo)}"
            ),
        ),
        ("effect of the checkpoint's token there, points", at("spike", "effect:points")),
        ("checkpoint's token less another token there, points", at("spike", "checkpoint_minus_alternative:points")),
        ("effect of the checkpoint's token at random positions, points", at("random", "effect:points")),
        ("random positions where both models choose one token", at("random", "share_same_token:percent0")),
        ("CPU time of `swerve demo`, one thread", lambda demo: format_duration(demo["cpu_seconds"])),
    ]
    rows = rows if all("cpu_seconds" in demo for demo in demos) else rows[:-1]
    body = [[name, *(shown(demo, cell) for demo in demos)] for name, cell in rows]
    return table(["", *_seeds(demos)], body)


def _seeds(records: Iterable[Record], what: str = "") -> list[str]:
    return [f"{what}seed {record['seed']}" for record in records]


def _spike_rows(divergence: str, demos: Sequence[Record]) -> list[Column]:
    """Return where the top spike of a divergence falls, and how often it would by chance."""
    rows: list[Column] = []
    for key, place in (("first_wrong", "the first wrong token"), ("wrong", "any wrong token")):

        def hits(demo: Record, cell: str) -> str:
            return shown(first(demo["spikes"], divergence=divergence), cell)

        chances = ", ".join(dict.fromkeys(hits(demo, f"chance_{key}:percent") for demo in demos))
        name = f"top spike on {place}, {_SPIKES[divergence]} (chance {chances})"
        rows.append((name, lambda demo, cell=f"top_on_{key}:percent", hits=hits: hits(demo, cell)))
    return rows


def _wrong_steps(demos: Sequence[Record]) -> str:
    """Return success with the checkpoint's token by the number of wrong steps and the one that has the top spike."""
    groups: dict[str, Callable[[Record], bool]] = {
        "one wrong step, the top spike on it": lambda row: row["wrong_steps"] == 1 and row["spike"] == "first",
        "several, the top spike on the first": lambda row: row["wrong_steps"] > 1 and row["spike"] == "first",
        "several, the top spike on a later one": lambda row: row["wrong_steps"] > 1 and row["spike"] == "later",
        "the top spike on no wrong step": lambda row: row["spike"] == "none",
    }

    def success(swaps: Sequence[Record]) -> str:
        done = sum(row["continuations"]["checkpoint"] for row in swaps)
        right = sum(row["successes"]["checkpoint"] for row in swaps)
        return f"{percent(right / done, 0)} of {len(swaps)}" if done else "none"

    rows = [
        [name, *(success(list(filter(holds, demo["swaps"]))) for demo in demos)]  #
        for name, holds in groups.items()
    ]
    return table(["rollouts of the causal test", *_seeds(demos)], rows)


def _rates(demo: Record, trainings: Mapping[str, Record]) -> str:
    """Return the table of learning rates of seed 0, the recipe's among them."""
    rows = [{"name": "DPO at 1e-5 (the recipe)", "stage": "dpo", **last(demo, "dpo")},
            {"name": "RL at 5e-5 (the recipe), 80 steps", "stage": "rl", **last(demo, "rl")}]  # fmt: skip
    for name, run in trainings.items():
        stage, _, rate = name.partition("-")
        for label, evaluation in run["evaluations"].items():
            if stage in ("dpo", "rl") and evaluation["stage"] == stage:
                steps = label.removeprefix(f"{stage}-")
                rows.append({"name": f"{stage.upper()} at {rate}, {steps} steps", **evaluation})
    in_order = sorted(rows, key=lambda row: ("dpo", "rl").index(row["stage"]))
    return table_of(
        in_order, ("", "name"), ("greedy accuracy", "accuracy:percent"), ("traces fully right", "trace_right:percent")
    )


def _recipes(trainings: Mapping[str, Record]) -> str:
    """Return what the recipes of generated tasks reach."""

    def after(stage: str, key: str) -> Callable[[Record], str]:
        return lambda run: percent(last(run, stage)[key])

    def of_four(stage: str) -> Callable[[Record], str]:
        return lambda run: percent(first(last(run, stage)["by_num_samples"], k=4)["pass_at_k"])

    titles = {"sequence": "`sequence`", "palindrome": "`palindrome`",
              "palindrome-500": "`palindrome`, 500 steps of SFT", "countdown": "`countdown`"}  # fmt: skip
    return table_of(
        [trainings[name] for name in titles],
        ("recipe", lambda run: titles[run["name"]]),
        ("held-out problems", lambda run: str(last(run, "sft")["num_problems"])),
        ("after SFT", after("sft", "accuracy")),
        ("after RL", after("rl", "accuracy")),
        ("samples after SFT", after("sft", "mean_reward")),
        ("after RL", after("rl", "mean_reward")),
        ("pass@4 after SFT", of_four("sft")),
        ("after RL", of_four("rl")),
    )


def _slips(trainings: Mapping[str, Record]) -> str:
    """Return what slips and the restated terms do to sequences."""
    rows = []
    for ending, what in (("", "no slips"), ("-slips", "`slip_rate: 0.15`")):
        runs = [trainings[f"sequence-{terms}{ending}"] for terms in ("alone", "restated")]
        rows.append([what, *(percent(last(run, "sft")["accuracy"]) for run in runs)])
    return table(["", "terms alone", "`restate`"], rows)


# What the wider probe finds.


def _population(probes: Sequence[Record]) -> str:
    return table_of(
        probes,
        ("seed", "seed"),
        ("reference", "reference"),
        ("final", "final"),
        ("reference wrong of 400", "num_reference_wrong"),
        ("of these final right", "num_reference_wrong_final_right"),
        ("gain in accuracy", "mcnemar.difference:percent"),
        ("rollouts read", "num_rollouts"),
        ("planted wrong tokens", "recovery.num_wrong"),
        ("share of tokens", "recovery.base_rate:percent"),
        ("noise floor, JS", "noise_floor.js.mean:size"),
    )


def _recovery(probes: Sequence[Record]) -> str:
    rows = []
    for scores in zip(*(probe["recovery"]["selectors"] for probe in probes), strict=True):
        rows.append([scores[0]["selector"], *(shown(score, "auc:number") for score in scores)])
    return table(["selector", *_seeds(probes, "AUC, ")], rows)


def _spikes(probes: Sequence[Record]) -> str:
    methods = ("zscore", "percentile", "adaptive", "absolute", "calibrated")
    rows = [row for row in entries(probes, "recovery.spikes") if row["divergence"] == "js"]
    return table_of(
        sorted(rows, key=lambda row: (row["seed"], methods.index(row["method"]))),
        ("seed", "seed"),
        ("method", "method"),
        ("spikes", "num_spikes"),
        ("precision", "precision:percent"),
        ("recall", "recall:percent"),
        ("precision by chance", "chance_precision:percent"),
    )


def _causal(probes: Sequence[Record]) -> str:
    return table_of(
        entries(probes, "causal.selections"),
        ("seed", "seed"),
        ("position", "selection"),
        ("number", "num_rollouts"),
        ("success with the rollout's own token", "reference.success:percent"),
        ("with the checkpoint's", "checkpoint.success:percent"),
        ("with another token", "alternative.success:percent"),
        ("effect of the checkpoint's token", "effect:number"),
        ("checkpoint's minus another", "checkpoint_minus_alternative:number"),
        ("checkpoint agrees with the rollout", "share_same_token:percent0"),
        ("verdict: effect beyond 0.1", "decisions.outside"),
    )


def _curves(probes: Sequence[Record]) -> list[dict[str, Any]]:
    """Return each selector's curve of cross-sampling in each direction, its points by budget."""
    curves = entries(entries(probes, "cross_sampling.directions"), "selectors")
    return [{**curve, "at": {point["budget"]: point for point in curve["points"]}} for curve in curves]


def _recovered(probes: Sequence[Record]) -> str:
    """Return what swaps at one and two tokens in a hundred win of the gap between the models, by JS and at random."""

    def swapped(budget: float) -> Callable[[Record], str]:
        def cell(curve: Record) -> str:
            point = curve["at"].get(budget)
            return (
                "-" if point is None else ", ".join(percent(point[f"share_{way}"], 2) for way in ("swapped", "changed"))
            )

        return cell

    def won(budget: float) -> Callable[[Record], str]:
        return lambda curve: percent(curve["at"].get(budget, {"recovered": None})["recovered"], 0)

    columns: list[Column] = []
    for budget in (0.01, 0.02):
        columns.append((f"budget {budget:.0%}: tokens swapped, of these other ones", swapped(budget)))
        columns.append(("share of the gap won", won(budget)))
    return table_of(
        [curve for curve in _curves(probes) if curve["selector"] in ("js", "random")],
        ("seed", "seed"),
        ("tokens into the text of", lambda curve: curve["direction"].split("_")[-1]),
        ("selector", "selector"),
        *columns,
    )


def _pivots(probes: Sequence[Record]) -> str:
    def on(place: str) -> Callable[[Record], str]:
        def cell(pivots: Record) -> str:
            hits = pivots[place] or {"share": None, "chance": None}
            return f"{percent(hits['share'])}; {percent(hits['chance'])}"

        return cell

    return table_of(
        [{"seed": probe["seed"], **probe["pivots"]} for probe in probes],
        ("seed", "seed"),
        ("rollouts", "num_rollouts"),
        ("continuations", "num_continuations"),
        ("pivots", lambda pivots: f"{pivots['num_pivots']} ({pivots['num_rises']} rises)"),
        ("confirmed on fresh samples", "num_confirmed"),
        ("jump on fresh samples", "size_estimate:number2"),
        ("on a spike; by chance", on("on_spike")),
        ("on a wrong token; by chance", on("on_wrong")),
        ("on the first wrong token; by chance", on("on_first_wrong")),
    )


def _prediction(probes: Sequence[Record]) -> str:
    """Return each score's rank correlation with the size of the effect, where the models' choices differ."""
    selectors = [row["selector"] for row in probes[0]["prediction"][0]["selectors"]]
    rows = []
    for selector in selectors:
        cells = []
        for probe in probes:
            scores = first(probe["prediction"], policy="reference")
            row = first(scores["selectors"], selector=selector) if scores else None
            cells.append("-" if row is None else shown(row, "spearman:number2"))
        if set(cells) != {"-"}:
            rows.append([selector, *cells])
    return table(["selector", *_seeds(probes)], rows)


def _signal(probes: Sequence[Record]) -> str:
    rows = []
    for probe in probes:
        for row in probe["training_signal"]:
            if (row["checkpoint"], row["reference"]) == (probe["final"], probe["reference"]) and row["direction"]:
                rows.append({"seed": probe["seed"], **row})
    return table_of(
        rows,
        ("seed", "seed"),
        ("pair", lambda row: f"{row['checkpoint']} / {row['reference']}"),
        ("mean JS on tokens with a signal", "divergence.signal.mean:size"),
        ("on tokens without", "divergence.no_signal.mean:size"),
        ("moved the way of the advantage", "direction.agreement:percent"),
        ("by chance", "direction.chance:percent"),
        ("above chance", "direction.above_chance:number"),
        ("rank correlation of JS with the size of the advantage", "advantage_correlation:number"),
    )


def _audited(audit: Record) -> dict[str, str]:
    """Return the numbers that sentences quote of an audit: `k2 bias`, `k3 in the loss, error`."""

    def plain(value: float | None) -> str:
        return "-" if value is None else f"{value:#.2g}" if abs(value) < 10 else f"{value:.0f}"

    kl = audit["exact"]["reverse_kl"]
    texts = {"tokens": f"{audit['num_tokens']:,}", "KL": f"{kl:.3g}"}
    texts["last decile"] = f"{100 * audit['last_decile_share']:.1f}%"
    for row in audit["values"]:
        name, mean = row["estimator"], row["realised"]
        texts[f"{name} bias"] = f"{100 * row['relative_bias']:.1f}%"
        texts[f"{name} to KL"] = plain(row["mean"] / kl)
        texts[f"{name} SD to KL"] = f"{row['sd'] / kl:.0f}"
        texts[f"{name} below 0"] = f"{row['share_negative']:.2f}"
        texts[f"{name} realised"] = number(mean)
    for row in audit["gradients"]:
        target, name = row["targets"]["reverse_kl"], f"{row['estimator']} in the {row['placement']}"
        texts[f"{name}, error"] = plain(target["pooled_relative_error"])
        texts[f"{name}, cosine"] = plain(target["pooled_cosine"])
        texts[f"{name}, norm"] = f"{100 * target['pooled_norm_ratio']:.1f}%"
        texts[f"{name}, noise"] = plain(row["variance_to_signal"])
    return texts
