"""Experiments of published work in small, as `swerve study` runs them: their tables and what they say of the claims.

    python -m studies.experiments                        fill the pages from the kept results
    python -m studies.experiments --keep runs/kl-study   first keep what a study found, in place of what was kept of it

A study is made by its own command, which the page names. All of its record is kept but the curves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from studies.markdown import number, percent, points, table
from studies.study import Record, Study, append_record, read_records
from swerve.artifacts.study import MEASURES, StudyDifference, StudyMean, read_study
from swerve.artifacts.study import Study as Found
from swerve.estimates import Estimate


def _studies(records: Sequence[Record]) -> dict[str, Found]:
    kept = (record for record in records if record["kind"] == "study")
    return {record["name"]: Found.model_validate_json(json.dumps(record["study"])) for record in kept}


def tables(records: Sequence[Record]) -> dict[str, str]:
    """Return the tables by the names of their places."""
    found = {}
    for name, study in _studies(records).items():
        found[f"{name}: means"] = _means(study)
        found[f"{name}: differences"] = _differences(study)
    return found


def numbers(records: Sequence[Record]) -> dict[str, str]:
    """Return the differences that sentences quote, over seeds and over problems."""
    found = {}
    for name, study in _studies(records).items():
        found[f"{name}: seeds"] = str(len(study.seeds))
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
    measures = [
        one for one in study.measures if one not in ("best_accuracy", "peak_step", "truncated", "unparsed", "kl")
    ]
    rows = [
        [variant.name, *(_mean(study.mean_of(one, variant.name)) for one in measures), str(variant.num_collapsed)]
        for variant in study.variants
    ]
    return table(["variant", *(MEASURES[one].title for one in measures), "collapsed"], rows)


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
    results="experiments.jsonl", page="kl-study.md", other_pages=("docs/findings.md",), tables=tables, numbers=numbers
)


def keep(out: Path, folder: Path) -> None:
    """Keep what the study of a directory found, in place of what was kept of a study of its name."""
    found = read_study(folder).model_copy(update={"curves": ()})
    others = [record for record in read_records(out) if record.get("name") != found.name]
    out.write_text("".join(json.dumps(record) + "\n" for record in others), encoding="utf-8")
    append_record(out, {"kind": "study", "name": found.name, "study": found.model_dump(mode="json")})


def main() -> None:
    """Keep what is asked for, show what is kept."""
    parser = STUDY.parser(__doc__)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="directory of a study that is done")
    arguments = STUDY.parse(parser)
    if arguments.keep:
        keep(arguments.out, arguments.keep)
    STUDY.show(arguments)


if __name__ == "__main__":
    main()
