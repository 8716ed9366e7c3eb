"""Which score finds the tokens that decide? What is kept of the study's runs, and the tables of its page."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from studies.pages import Record, change, first, number, of_kind, percent, points, table, table_of
from studies.runs import by_arm, kept_evaluations, kept_summary, run_folders
from swerve.artifacts.probe_claims import NULL_NAMES, TOKEN_NULLS, DivergenceClaim
from swerve.report.names import SELECTIONS, SELECTORS
from swerve.statistics.intervals import mean_interval

_KEPT = ("num_problems", "num_rollouts", "num_reference_wrong", "num_reference_wrong_final_right", "divergences",
         "recovery", "claims", "prediction", "cross_sampling")  # fmt: skip


def keep(folder: Path) -> Iterator[Record]:
    """Yield what is kept of each seed's run of the study."""
    for _, seed, run in run_folders(folder):
        summary = kept_summary(run)
        yield {
            "kind": "seed",
            "seed": seed,
            "evaluations": kept_evaluations(run),
            **{name: summary[name] for name in _KEPT},
            "pivots": first(summary["pivots"], policy="reference"),
            "swaps": first(summary["causal"]["policies"], policy="reference")["selections"],
            "effects": _effects(run / "probe"),
        }


def _effects(probe: Path) -> dict[str, list[list[Any]]]:
    """Return, by kind of position, of each rollout: its problem, the token's effect, and that over another token.

    The last is of positions at which the RL model chooses another token than the rollout's own; None at the others.
    """
    found: dict[str, list[list[Any]]] = {}
    for row, arms in by_arm(probe):
        success = {arm: each["num_successes"] / each["num_continuations"] for arm, each in arms.items()}
        over_own = success["checkpoint"] - success["reference"]
        is_other = arms["checkpoint"]["token_id"] != arms["reference"]["token_id"]
        over_other = success["checkpoint"] - success["alternative"] if is_other and "alternative" in success else None
        found.setdefault(row["selection"], []).append([row["problem_id"], row["sequence_id"], over_own, over_other])
    return found


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the tables by the names of their places."""
    seeds = of_kind(records, "seed")
    cross_sampled = [seed["cross_sampling"]["directions"][0] for seed in seeds if seed["cross_sampling"]]
    predicted = [first(seed["prediction"], policy="reference") for seed in seeds if seed["prediction"]]
    recovered = [seed["recovery"] for seed in seeds]
    return {
        "selectors: models": _models(seeds),
        "selectors: mistakes": _mistakes(seeds),
        "selectors: claims": _claims(seeds),
        "selectors: recovery": _scores(recovered, "auc_first", (0.0, 1.0), also="auc"),
        "selectors: swaps": _swaps(seeds),
        "selectors: dose": _scores(cross_sampled, "auc"),
        "selectors: prediction": _scores(predicted, "spearman", (-1.0, 1.0)),
        "selectors: pivots": _pivots(seeds),
    }


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers that sentences quote."""
    seeds = of_kind(records, "seed")
    texts = {"selectors: seeds": str(len(seeds))}
    for name in ("spike", "matched", "abs_logprob_change", "logprob_drop", "entropy", "first_wrong"):
        texts[f"selectors: {name}"] = points(_effect(seeds, name, "alternative"))
        if name != "spike":
            texts[f"selectors: {name} over JS"] = points(_effect(seeds, name, "spike"))
    for score in seeds[0]["recovery"]["selectors"] if seeds else ():
        name = score["selector"]
        texts[f"selectors: auc_first of {name}"] = number(_over_seeds(_areas(seeds, name), (0.0, 1.0)))
    for figure, of in _CLAIMS:
        for null in TOKEN_NULLS:
            texts[f"selectors: {figure} of {of} over {null}"] = _over_null(_claims_of(seeds, figure, of), null)
    return texts


def _areas(seeds: Sequence[Record], name: str) -> list[float]:
    return [first(seed["recovery"]["selectors"], selector=name)["auc_first"]["mean"] for seed in seeds]


def _named(names: Mapping[Any, str], key: str) -> str:
    """Return what a score is called, with its bars escaped for a table."""
    return names.get(key, key).replace("|", r"\|")


def _models(seeds: Sequence[Record]) -> str:
    def of(checkpoint: str, key: str) -> Callable[[Record], str]:
        return lambda seed: percent(seed["evaluations"][checkpoint][key])

    return table_of(
        seeds,
        ("seed", "seed"),
        ("SFT, greedy", of("base", "accuracy")),
        ("after RL", of("rl-100", "accuracy")),
        ("every step right, SFT", of("base", "trace_right")),
        ("after RL", of("rl-100", "trace_right")),
        ("rollouts read", "num_rollouts"),
        ("wrong tokens", "recovery.num_wrong"),
    )


def _mistakes(seeds: Sequence[Record]) -> str:
    """Return how many greedy completions of all seeds begin to go wrong in which way."""
    totals: dict[str, Counter[str]] = {"base": Counter(), "rl-100": Counter()}
    for seed in seeds:
        for label, total in totals.items():
            total.update(seed["evaluations"][label]["first_mistakes"])
    rows = [[kind, *(str(total[kind]) for total in totals.values())] for kind in totals["base"]]
    return table(["first mistake", "after SFT", "after RL"], rows)


def _scores(
    found: Sequence[Record], key: str, bounds: tuple[float, float] = (-math.inf, math.inf), also: str | None = None
) -> str:
    """Return a row for each score: a figure over seeds, its range, and another over seeds."""
    rows = []
    for same in zip(*(record["selectors"] for record in found), strict=True):
        values = [score[key]["mean"] for score in same if score[key]]
        row = [_named(SELECTORS, same[0]["selector"]), number(_over_seeds(values, bounds)), _range(values, number)]
        if also:
            row.append(number(_over_seeds([score[also]["mean"] for score in same if score[also]], bounds)))
        rows.append(row)
    more = ["all wrong tokens, mean over seeds"] if also else []
    return table(["score", "mean over seeds", "lowest and highest seed", *more], rows)


def _range(values: Sequence[float], show: Callable[[float], str]) -> str:
    return f"{show(min(values))} to {show(max(values))}" if values else "-"


def _over_seeds(means: Sequence[float], bounds: tuple[float, float]) -> Any:
    """Return the mean over seeds with its t interval, within bounds: of another training run."""
    interval = mean_interval(means) if len(means) > 1 else None
    if interval is None:
        return None
    return {"mean": interval.mean, "low": max(bounds[0], interval.low), "high": min(bounds[1], interval.high)}


def _effects_of(seeds: Sequence[Record], selection: str, over: str = "own") -> list[float]:
    """Return each seed's mean effect of a position, over its own token, another one, or the top spike's effect."""
    column = 3 if over == "alternative" else 2
    means = []
    for seed in seeds:
        spikes = {row[1]: row[column] for row in seed["effects"]["spike"]}
        effects = [
            row[column] - (spikes[row[1]] if over == "spike" else 0.0)
            for row in seed["effects"].get(selection, ())
            if row[column] is not None and (over != "spike" or spikes.get(row[1]) is not None)
        ]
        if effects:
            means.append(fmean(effects))
    return means


def _effect(seeds: Sequence[Record], selection: str, over: str = "own") -> Any:
    bound = 2.0 if over == "spike" else 1.0
    return _over_seeds(_effects_of(seeds, selection, over), (-bound, bound))


def _swaps(seeds: Sequence[Record]) -> str:
    rows = []
    for name in SELECTIONS:
        same = [swap for seed in seeds if (swap := first(seed["swaps"], selection=name))]
        if same:
            changed = fmean(swap["num_different"] / swap["num_positions"] for swap in same)
            rows.append(
                [
                    _named(SELECTIONS, name),
                    percent(changed, 0),
                    points(_effect(seeds, name)),
                    _range(_effects_of(seeds, name), points),
                    points(_effect(seeds, name, "alternative")),
                    "-" if name == "spike" else points(_effect(seeds, name, "spike")),
                ]
            )
    head = ["position", "token differs", "mean over seeds", "lowest and highest seed"]
    return table([*head, "over another token, where it differs", "less the top JS spike"], rows)


_CLAIMS = (("auc", "first_wrong"), ("top", "first_wrong"), ("share", "uncertain"), ("share", "style"))


def _claims_of(seeds: Sequence[Record], figure: str, of: str) -> list[DivergenceClaim]:
    claims = [first(seed["claims"], figure=figure, of=of) for seed in seeds]
    return [DivergenceClaim.model_validate(claim) for claim in claims if claim]


def _over_null(claims: Sequence[DivergenceClaim], name: str) -> str:
    """Return how far a figure is above one of its nulls, in points or of an AUC, with a t interval over seeds."""
    differences = [
        null.difference.mean for claim in claims for null in claim.nulls if null.null == name and null.difference
    ]
    estimate = _over_seeds(differences, (-1.0, 1.0))
    return (change if claims and claims[0].figure == "auc" else points)(estimate)


def _claims(seeds: Sequence[Record]) -> str:
    """Return, of figures about where the divergence falls, their means and how far these are above each null."""
    rows = []
    for figure, of in _CLAIMS:
        claims = _claims_of(seeds, figure, of)
        if claims:
            show = number if figure == "auc" else percent
            means = _over_seeds([claim.estimate.mean for claim in claims], (0.0, 1.0))
            rows.append([claims[0].name, show(means), *(_over_null(claims, name) for name in TOKEN_NULLS)])
    return table(
        ["figure", "mean over seeds", *(f"less {name}" for name in map(NULL_NAMES.__getitem__, TOKEN_NULLS))], rows
    )


def _pivots(seeds: Sequence[Record]) -> str:
    def on(place: str) -> Callable[[Record], str]:
        def cell(pivots: Record) -> str:
            hits = pivots[place]
            return "-" if hits is None else f"{percent(hits['share'])} (chance {percent(hits['chance'])})"

        return cell

    return table_of(
        [{"seed": seed["seed"], **seed["pivots"]} for seed in seeds if seed["pivots"]],
        ("seed", "seed"),
        ("pivotal tokens, rollouts", lambda pivots: f"{pivots['num_pivots']} in {pivots['num_rollouts']}"),
        ("confirmed", "num_confirmed"),
        ("on a JS spike", on("on_spike")),
        ("on the first wrong token", on("on_first_wrong")),
        ("on any wrong token", on("on_wrong")),
    )
