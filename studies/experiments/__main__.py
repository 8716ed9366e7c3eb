"""Experiments of published work in small, as `swerve study` and `swerve probe` run them: tables for their pages.

    python -m studies.experiments                        fill the pages from the kept results
    python -m studies.experiments --keep runs/studies/kl-study   first keep what was found, in place of what was kept

A study or a probe is made by its own command, which its page names. Of a study all but the curves is kept, of a
probe its summary but for the lists that no table shows.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from studies.experiments.probe_tables import kept, probe_numbers, probe_tables
from studies.markdown import number, percent, points, table
from studies.study import IMAGES, Record, Study, append_record, read_records
from swerve.artifacts.probe_summary import ProbeSummary, read_summary
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.study import MEASURES, StudyDifference, StudyMean, read_study
from swerve.artifacts.study import Study as Found
from swerve.estimates import Estimate


def _studies(records: Sequence[Record]) -> dict[str, Found]:
    kept = (record for record in records if record["kind"] == "study")
    return {record["name"]: Found.model_validate_json(json.dumps(record["study"])) for record in kept}


def _probes(records: Sequence[Record]) -> dict[str, ProbeSummary]:
    return {
        record["name"]: ProbeSummary.model_validate_json(json.dumps(record["summary"]))
        for record in records
        if record["kind"] == "probe"
    }


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the tables by the names of their places."""
    found = {}
    for name, summary in _probes(records).items():
        found |= probe_tables(name, summary)
    for name, study in _studies(records).items():
        found[f"{name}: means"] = _means(study)
        found[f"{name}: differences"] = _differences(study)
        if study.kinds:
            found[f"{name}: kinds"] = _kinds(study)
    return found


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the differences that sentences quote, over seeds and over problems."""
    found = {}
    for name, summary in _probes(records).items():
        found |= probe_numbers(name, summary)
    for name, study in _studies(records).items():
        found[f"{name}: seeds"] = str(len(study.seeds))
        for one in study.means:
            found[f"{name}: {one.measure} of {one.variant}, mean"] = _mean(one)
        for one in study.differences:
            key = f"{name}: {one.measure} of {one.variant}"
            found[key] = _difference(one, one.over_seeds)
            found[f"{key}, problems"] = _difference(one, one.over_problems)
    return found


def _is_share(measure: str) -> bool:
    return MEASURES[measure].unit == "share"


def _mapping(estimate: Estimate) -> Mapping[str, float]:
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high}


def _difference(one: StudyDifference, estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    return (points if _is_share(one.measure) else _signed)(_mapping(estimate))


def _signed(value: Mapping[str, float]) -> str:
    mean, low, high = (f"{value[name]:+.3g}" for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def _mean(one: StudyMean | None) -> str:
    if one is None:
        return "-"
    value: Any = one.mean if one.over_seeds is None else _mapping(one.over_seeds)
    return (percent if _is_share(one.measure) else number)(value)


def _means(study: Found) -> str:
    left_out = ("best_accuracy", "peak_step", "reflections", "truncated", "unanswered", "kl")
    measures = [one for one in study.measures if one not in left_out]
    rows = [
        [variant.name, *(_mean(study.mean_of(one, variant.name)) for one in measures), str(variant.num_collapsed)]
        for variant in study.variants
    ]
    return table(["variant", *(MEASURES[one].title for one in measures), "collapsed"], rows)


def _kinds(study: Found) -> str:
    kinds = list(dict.fromkeys(one.kind for one in study.kinds))
    rows = []
    for variant in dict.fromkeys(one.variant for one in study.kinds):
        means = {one.kind: one for one in study.kinds if one.variant == variant}
        average = fmean(one.mean for one in means.values())
        rows.append([variant, *(percent(means[kind].mean) for kind in kinds), percent(average)])
    return table(["", *kinds, "average"], rows)


def _differences(study: Found) -> str:
    rows = [
        [
            MEASURES[one.measure].title,
            one.variant,
            _difference(one, one.over_seeds),
            "-" if one.p_seeds_adjusted is None else number(one.p_seeds_adjusted),
            _difference(one, one.over_problems),
            "-" if one.p_problems_adjusted is None else number(one.p_problems_adjusted),
            "-" if one.effect_size is None else f"{one.effect_size:+.1f}",
        ]
        for one in study.differences
        if one.measure in ("accuracy", "sampled_accuracy", "entropy", "similarity", "distinct_right")
    ]
    head = [
        "measure",
        "variant",
        f"less {study.baseline}, over seeds",
        "p, Holm",
        "over problems",
        "p, Holm",
        "d over seeds",
    ]
    return table(head, rows)


STUDY = Study(
    results="experiments.jsonl",
    page="kl-study.md",
    other_pages=("docs/rl-probe.md", "docs/spo.md", "docs/k-and-k-study.md", "docs/findings.md"),
    tables=tables,
    numbers=numbers,
)


_FIGURES = (
    "mean_kl_progression",
    "spike_density_comparison",
    "category_kl_breakdown",
    "entropy_reduction",
    "baseline_comparison",
)


def keep(out: Path, folder: Path) -> None:
    """Keep what the study or probe of a directory found, in place of what was kept of one of its name."""
    summary = read_summary(RunDirectory(folder)) if (folder / "probe").is_dir() else None
    if summary is not None:
        record: Record = {"kind": "probe", "name": folder.name, "summary": kept(summary)}
        for figure in _FIGURES:
            shutil.copy(folder / "report" / "figures" / f"{figure}.png", IMAGES / f"{folder.name}-{figure}.png")
    else:
        found = read_study(folder).model_copy(update={"curves": ()})
        record = {"kind": "study", "name": found.name, "study": found.model_dump(mode="json")}
    others = [one for one in read_records(out) if one.get("name") != record["name"]]
    out.write_text("".join(json.dumps(one) + "\n" for one in others), encoding="utf-8")
    append_record(out, record)


def main() -> None:
    """Keep what is asked for, show what is kept."""
    parser = STUDY.parser(__doc__)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="directory of a study or probe that is done")
    arguments = STUDY.parse(parser)
    if arguments.keep:
        keep(arguments.out, arguments.keep)
    STUDY.show(arguments)


if __name__ == "__main__":
    main()
