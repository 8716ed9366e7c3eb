"""Experiments of published work in small, made by `swerve study` and `swerve probe` as their pages say.

Of a study all but the curves is kept, of a probe its summary but for the lists that no table shows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from studies.pages import ROOT, Record, change, entries, first, number, percent, points, shown, size, table, table_of
from studies.runs import kept_summary
from swerve import text
from swerve.artifacts.probe_claims import NULL_NAMES, TOKEN_NULLS, DivergenceClaim, NullFigure
from swerve.artifacts.probe_findings import DIVERGENCE_NAMES, DIVERGENCES
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.study import MEASURES, Study, read_study
from swerve.estimates import Estimate
from swerve.report.draw.figures import Look
from swerve.report.figures import write_run_figures
from swerve.report.study_rows import trends_rows

_DROPPED = {"correlates", "biographies", "rank_shift", "tables", "training_signal", "regions", "style"}
_FIGURES = ("mean_kl_progression", "spike_density_comparison", "category_kl_breakdown", "entropy_reduction",
            "baseline_comparison")  # fmt: skip


def keep(folder: Path) -> Iterator[Record]:
    """Yield what is kept of the directory of a study or probe, and draw figures of a probe."""
    if not (folder / "probe").is_dir():
        study = read_study(folder)
        yield {"kind": "study", "name": study.name, "study": study.model_dump(mode="json", exclude={"curves"})}
        return
    summary = {name: value for name, value in kept_summary(folder).items() if name not in _DROPPED}
    yield {"kind": "probe", "name": folder.name, "summary": summary}
    for path in write_run_figures(RunDirectory(folder), _FIGURES, Look(formats=("png",))).figures:
        if path.suffix == ".png":
            shutil.copy(path, ROOT / "docs" / "images" / f"{folder.name}-{path.name}")


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the tables by the names of their places."""
    texts: dict[str, str] = {}
    for record in records:
        if record["kind"] == "probe":
            made = _probe_tables(record["summary"])
        elif record["kind"] == "study":
            study = record["study"]
            made = {"means": _means(study), "differences": _differences(study)}
            made |= {"kinds": _kinds(study)} if study.get("kinds") else {}
            made |= {"settings": _settings(study)} if study.get("trials") else {}
            made |= {"verdicts": _verdicts(study)} if study.get("verdicts") else {}
            if study.get("trends"):
                heading, *rows = trends_rows(Study.model_validate({**study, "curves": ()})).text_table
                made["trends"] = table(heading, rows)
        else:
            continue
        texts |= {f"{record['name']}: {name}": words for name, words in made.items()}
    return texts


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the numbers that sentences quote: of a study its differences, over seeds and over problems."""
    texts: dict[str, str] = {}
    for record in records:
        if record["kind"] == "probe":
            made = _probe_numbers(record["summary"])
        elif record["kind"] == "study":
            study = record["study"]
            made = {"seeds": str(len(study["seeds"]))}
            for row in study["means"]:
                made[f"{row['measure']} of {row['variant']}, mean"] = _mean(row)
            for row in study["differences"]:
                made[f"{row['measure']} of {row['variant']}"] = _difference("over_seeds")(row)
                made[f"{row['measure']} of {row['variant']}, problems"] = _difference("over_problems")(row)
            for row in study.get("verdicts", ()):
                made[f"verdict on {row['variant']}"] = row["words"].partition(";")[0]
                made[f"verdict on {row['variant']}, points"] = points(row["over_seeds"])
            if study.get("gain"):
                made["gain of the baseline"] = points(study["gain"])
        else:
            continue
        texts |= {f"{record['name']}: {name}": words for name, words in made.items()}
    return texts


# Of a study.


def _is_share(row: Record) -> bool:
    return MEASURES[row["measure"]].unit == "share"


def _mean(row: Record | None) -> str:
    if row is None:
        return "-"
    return (percent if _is_share(row) else number)(row["over_seeds"] or row["mean"])


def _difference(over: str) -> Callable[[Record], str]:
    def cell(row: Record) -> str:
        return (points if _is_share(row) else change)(row[over])

    return cell


def _means(study: Record) -> str:
    left_out = ("best_accuracy", "peak_step", "reflections", "truncated", "unanswered", "kl")
    measures = [name for name in dict.fromkeys(row["measure"] for row in study["means"]) if name not in left_out]

    def of(measure: str) -> Callable[[Record], str]:
        return lambda variant: _mean(first(study["means"], measure=measure, variant=variant["name"]))

    columns = [(MEASURES[measure].title, of(measure)) for measure in measures]
    return table_of(study["variants"], ("variant", "name"), *columns, ("collapsed", "num_collapsed"))


def _kinds(study: Record) -> str:
    kinds = list(dict.fromkeys(row["kind"] for row in study["kinds"]))
    rows = []
    for variant in dict.fromkeys(row["variant"] for row in study["kinds"]):
        means = {row["kind"]: row["mean"] for row in study["kinds"] if row["variant"] == variant}
        rows.append([variant, *(percent(means[kind]) for kind in kinds), percent(fmean(means.values()))])
    return table(["", *kinds, "average"], rows)


def _settings(study: Record) -> str:
    measure = study["design"]["measure"]
    return table_of(
        study["trials"],
        ("variant", "variant"),
        (
            "setting",
            lambda row: ", ".join(f"{key.rpartition('.')[2]} {value:g}" for key, value in row["changes"].items()),
        ),
        ("seeds", lambda row: ", ".join(map(str, row["seeds"]))),
        (MEASURES[measure].title, lambda row: percent(row["values"].get(measure))),
        ("token entropy", lambda row: number(row["values"].get("entropy"))),
        ("chosen", lambda row: "yes" if row["is_chosen"] else ""),
    )


def _verdicts(study: Record) -> str:
    measure = study["design"]["measure"]
    return table_of(
        study["verdicts"],
        ("variant", "variant"),
        (f"{MEASURES[measure].title} less {study['baseline']}", lambda row: points(row["over_seeds"])),
        ("p, Holm", "p:p"),
        ("verdict", "words"),
    )


def _differences(study: Record) -> str:
    headlines = ("accuracy", "sampled_accuracy", "entropy", "similarity", "distinct_right")
    return table_of(
        [row for row in study["differences"] if row["measure"] in headlines],
        ("measure", lambda row: MEASURES[row["measure"]].title),
        ("variant", "variant"),
        (f"less {study['baseline']}, over seeds", _difference("over_seeds")),
        ("p, Holm", "p_seeds_adjusted:p"),
        ("over problems", _difference("over_problems")),
        ("p, Holm", "p_problems_adjusted:p"),
        ("d over seeds", "effect_size:d"),
    )


# Of a probe.


def _named(row: Record) -> str:
    return DIVERGENCE_NAMES[row["divergence"]]


def _probe_tables(summary: Record) -> dict[str, str]:
    final, headline = summary["final"], summary["divergence"]

    def at_final(rows: Sequence[Record] | None) -> list[Record]:
        return [row for row in rows or () if row["checkpoint"] == final]

    pairs = [*summary["divergences"], *(row for row in summary["pairs"] if row not in summary["divergences"])]
    return {
        "divergences": table_of(
            pairs,
            ("pair", lambda row: f"{row['checkpoint']} against {row['reference']}"),
            *((DIVERGENCE_NAMES[divergence], f"{divergence}:size") for divergence in DIVERGENCES),
            ("entropy of the first", "entropy:number"),
            ("of the second", "entropy_ref:number"),
        ),
        "populations": table_of(
            at_final(entries(summary["populations"], "divergences")),
            ("rollouts", "population:words"),
            ("written by", "source"),
            ("number", "num_rollouts"),
            ("JS", "js:size"),
            ("forward KL", "kl_forward:size"),
        ),
        "claims": _claims(summary),
        "spikes": table_of(
            summary["spikes"],
            ("checkpoint", "checkpoint"),
            ("divergence", _named),
            ("on a wrong token", "top_on_wrong:percent"),
            ("chance", "chance_wrong:percent"),
            ("on the first wrong token", "top_on_first_wrong:percent"),
            ("chance ", "chance_first_wrong:percent"),
        ),
        "densities": _densities(summary),
        "categories": table_of(
            at_final(summary["categories"]),
            ("category", "category"),
            ("tokens", "num_tokens"),
            ("share of tokens", "share_tokens:percent"),
            ("share of divergence", "share_divergence_interval:percent"),
            ("of its tokens, spikes", "spike_rate_interval:percent"),
        ),
        "direction": table_of(
            [row for row in summary["direction"] or () if row["divergence"] == headline],
            ("checkpoint", "checkpoint"),
            ("rollouts of", "source"),
            ("right / wrong", lambda row: f"{row['num_right']} / {row['num_wrong']}"),
            ("share that is good", "share_good:percent"),
            ("AUC of right against wrong", "auc:number"),
        ),
        "selectors": table_of(
            at_final(summary["recovery"] and summary["recovery"]["selectors"]),
            ("score", "selector:words"),
            ("AUC, any wrong token", "auc:number"),
            ("AUC, the first wrong token", "auc_first:number"),
        ),
        "swaps": table_of(
            entries([summary], "causal.selections"),
            ("position", "selection:words"),
            ("rollouts", "num_rollouts"),
            ("right as it is", "reference.success:percent"),
            ("with the token of the last model", "checkpoint.success:percent"),
            ("less as it is", "effect:points"),
            (
                "less another token, where its own is not the answer's",
                "different_tokens.checkpoint_minus_alternative:points",
            ),
            ("of these", "num_different"),
        ),
    }


def null_words(claim: DivergenceClaim, null: NullFigure) -> str:
    """Return what a figure is under one null; of noise models from the lowest to the highest, too."""
    if null.low is None or null.high is None:
        return (text.number if claim.figure == "auc" else text.percent)(null.value)
    ends = Estimate(mean=null.value, low=null.low, high=null.high)
    return (text.number_interval if claim.figure == "auc" else text.percent_interval)(ends)


def _claims(summary: Record) -> str:
    """Return where the divergence falls beside what it would be without training; of categories, those that stand."""
    rows = []
    for record in summary["claims"]:
        claim = DivergenceClaim.model_validate(record)
        if claim.of != "category" or claim.stands:
            nulls = {null.null: null_words(claim, null) for null in claim.nulls}
            here = (number if claim.figure == "auc" else percent)(record["estimate"])
            rows.append([claim.name, here, *(nulls.get(name, "-") for name in TOKEN_NULLS), claim.verdict])
    return table(["figure", "here", *(NULL_NAMES[name] for name in TOKEN_NULLS), "here is"], rows)


def _densities(summary: Record) -> str:
    rows = [
        row
        for row in summary["spike_densities"]
        if (row["divergence"], row["method"]) == (summary["divergence"], "absolute")
    ]
    by_method = summary["null"]["false_discoveries"].get(summary["divergence"], {}) if summary["null"] else {}
    if rows and "absolute" in by_method:
        rows.append({"checkpoint": "reference against itself", "region": "all", **by_method["absolute"]})
    return table_of(
        rows,
        ("checkpoint", "checkpoint"),
        ("third", "region"),
        ("tokens", "num_tokens"),
        ("spikes per 1,000 tokens", "per_1000_tokens:number1"),
    )


def _probe_numbers(summary: Record) -> dict[str, str]:
    final, causal = summary["final"], summary["causal"] or {"selections": (), "policies": ()}
    rows: Mapping[str, Any] = {
        **summary,
        "hits": first(summary["spikes"], checkpoint=final, divergence="js"),
        "entropy": first(summary["entropy"]["means"], checkpoint=final) if summary["entropy"] else None,
        "divergence": first(summary["divergences"], checkpoint=final),
        "baseline": first(summary["pairs"], checkpoint=summary["reference"]),
        "direction": first(summary["direction"] or (), checkpoint=final, divergence="js"),
    }
    cells = {
        "problems": "num_problems",
        "rollouts": "num_rollouts",
        "both right": "selected.both_right",
        "only reference right": "selected.only_reference_right",
        "only final right": "selected.only_final_right",
        "both wrong": "selected.both_wrong",
        "reference accuracy": "selected.reference_accuracy:percent",
        "final accuracy": "selected.final_accuracy:percent",
        "turned by chance": "turned_by_itself:number1",
        "accuracy difference": "selected.accuracy_difference:points",
        "baseline js": "baseline.js:size",
        "top on first wrong": "hits.top_on_first_wrong:percent",
        "entropy change": "entropy.change:size",
    }
    texts = {name: shown(rows, cell) for name, cell in cells.items()}
    texts["final js"] = size(rows["divergence"] and rows["divergence"][summary["divergence"]])
    if summary["cross_sampling"]:
        scores = summary["cross_sampling"]["directions"][0]["selectors"]
        texts["dose over random"] = number(first(scores, selector="js")["auc_over_random"])
    for record in summary["claims"]:
        claim = DivergenceClaim.model_validate(record)
        texts[claim.name] = (number if claim.figure == "auc" else percent)(record["estimate"])
        texts[f"{claim.name}, verdict"] = claim.verdict
        texts |= {f"{claim.name}, {null.null}": null_words(claim, null) for null in claim.nulls}
    if rows["direction"]:
        texts["good"] = shown(rows["direction"], "share_good:percent")
    for row in causal["selections"]:
        texts[f"swap at {row['selection']}"] = points(row["different_tokens"]["checkpoint_minus_alternative"])
        texts[f"effect at {row['selection']}"] = points(row["effect"])
    for row in entries(causal["policies"], "differences"):
        texts[f"spike over {row['control']}"] = points(row["difference"])
    return texts
