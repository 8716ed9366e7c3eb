"""Gather what the runs of a study measured, or what several runs did that were no study."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from swerve.artifacts.run import RunDirectory
from swerve.artifacts.study import MEASURES, Study
from swerve.behaviours.diversity import Embedder, load_embedder
from swerve.config.recipe import Config
from swerve.errors import ConfigError
from swerve.estimates import Estimate
from swerve.formats.text_tables import csv_text
from swerve.recipes.loader import differing_keys, load_config
from swerve.study.compare import compare_runs
from swerve.study.measure import MeasuredRun, measure_run
from swerve.study.plan import Plan
from swerve.study.study_file import StudyFile


def measure_jobs(plan: Plan, failures: Mapping[str, str] = {}, embed: Embedder | None = None) -> list[MeasuredRun]:
    """Read the runs of a study, by variant and seed.

    Args:
        plan: the study.
        failures: why a run failed, by name.
        embed: texts -> vectors, for the similarity of embeddings.
    """
    return [
        measure_run(
            job.run.path,
            variant=job.variant,
            seed=job.seed,
            shown_path=str(job.run.path.relative_to(plan.path)),
            failure=failures.get(job.name),
            embed=embed,
        )
        for job in plan.jobs
    ]


def gather_study(plan: Plan, failures: Mapping[str, str] = {}) -> Study:
    """Return the comparison of the runs that are done.

    Raises:
        MissingExtraError: the study names an embedding model, and the package that reads it is not installed.
    """
    num_problems = (*plan.starts, *plan.tuning, *plan.jobs)[-1].config.eval.num_problems
    name = plan.study.embedding_model
    embed = None if name is None else load_embedder(name)
    return compare_runs(plan.study, measure_jobs(plan, failures, embed), trials=plan.trials, num_problems=num_problems)


def compare_directories(paths: Sequence[Path], *, confidence: float = 0.95) -> Study:
    """Compare runs that were no study: a variant is a configuration but for its seed, the first is the baseline.

    Raises:
        ConfigError: two runs have the same configuration and seed.
        ArtifactError: a directory is no run.
    """
    for path in paths:
        RunDirectory(path).read_provenance()
    configs = [load_config(path / "config.yaml") for path in paths]

    # Runs whose configurations differ in the seed alone are of one variant.
    groups: list[list[int]] = []
    for at, config in enumerate(configs):
        own = next((group for group in groups if not _apart(configs[group[0]], config)), None)
        if own is None:
            groups.append([at])
        elif any(configs[other].seed == config.seed for other in own):
            raise ConfigError(f"{paths[at]} has the configuration and seed of another run; leave one of the two out")
        else:
            own.append(at)

    # What tells the variants apart are the keys in which they differ from the first.
    names = _group_names(paths, groups)
    keys = sorted({key for group in groups for key in _apart(configs[groups[0][0]], configs[group[0]])})
    measured = [
        measure_run(paths[at], variant=name, seed=configs[at].seed, shown_path=str(paths[at]))
        for name, group in zip(names, groups, strict=True)
        for at in group
    ]
    study = StudyFile.model_construct(  # names of directories may be any
        name=" and ".join(names) if len(names) < 4 else f"{names[0]} and {len(names) - 1} others",
        recipe="",
        variants={
            name: {key: _value_at(configs[group[0]], key) for key in keys}
            for name, group in zip(names, groups, strict=True)
        },
        seeds=tuple(sorted({config.seed for config in configs})),
        confidence=confidence,
    )
    return compare_runs(study, measured)


def _apart(first: Config, second: Config) -> list[str]:
    """Return the keys in which two configurations differ beside seed and name; of `X` and `X.kind` the shorter."""
    keys = [key for key in differing_keys(first, second) if key not in ("seed", "name")]
    return [key for key in keys if not any(key.startswith(f"{other}.") for other in keys)]


def _value_at(config: Config, key: str) -> Any:
    value: Any = config.model_dump(mode="json")
    for part in key.split("."):
        if isinstance(value, list):  # an item goes by its name or kind, else by its number
            labels = [item.get("name") or item.get("kind") if isinstance(item, dict) else None for item in value]
            place = labels.index(part) if part in labels else int(part) if part.isdigit() else len(value)
            value = value[place] if place < len(value) else None
        else:
            value = value.get(part) if isinstance(value, dict) else None
    return value


def _group_names(paths: Sequence[Path], groups: Sequence[Sequence[int]]) -> list[str]:
    """Return what variants are called: as the run's directory is, without the seed where there are several.

    >>> _group_names([Path("runs/kl-0"), Path("runs/kl-1"), Path("runs/s/runs/none/seed-0")], [[0, 1], [2]])
    ['kl', 'none']
    """
    names: list[str] = []
    for group in groups:
        path = paths[group[0]].absolute()
        name = path.name
        if len(group) > 1 or re.fullmatch(r"seed-\d+", name):
            name = re.sub(r"[-_]?(seed[-_]?)?\d+$", "", name) or path.parent.name
        names.append(name if name not in names else f"{name}-{len(names) + 1}")
    return names


def absences(study: Study) -> list[str]:
    """Return a line for each run that was not measured, and for each measure that some of the measured runs lack."""
    measured = [run for run in study.runs if run.measured]
    lines = [f"{run.path}: {run.state} ({run.reason}); it counts nowhere" for run in study.runs if not run.measured]
    for measure in study.measures:
        without = [run.path for run in measured if measure not in run.values]
        if without:
            lines.append(f"{MEASURES[measure].title}: not measured in {', '.join(without)}; means are of the others")
    return lines


_CSV = (
    "measure", "variant", "num_seeds", "mean", "low", "high",
    "difference_over_seeds", "difference_over_seeds_low", "difference_over_seeds_high", "p_seeds", "p_seeds_holm", "d",
    "num_problems", "difference_over_problems", "difference_over_problems_low", "difference_over_problems_high",
    "p_problems", "p_problems_holm",
)  # fmt: skip


def study_csv(study: Study) -> str:
    """Return a line for each measure and variant, with numbers as they are; what was not measured is empty."""
    rows = []
    for mean in study.means:
        row: list[Any] = [mean.measure, mean.variant, mean.num_seeds, mean.mean, *_ends(mean.over_seeds)]
        change = study.difference_of(mean.measure, mean.variant)
        if change is not None:
            over = change.over_problems
            row += [change.mean, *_ends(change.over_seeds), change.p_seeds, change.p_seeds_adjusted, change.effect_size]
            row += [change.num_problems, over.mean if over else None, *_ends(over), change.p_problems]
            row += [change.p_problems_adjusted]
        rows.append(dict(zip(_CSV, row, strict=False)))
    return csv_text(rows, _CSV, digits=6)


def _ends(interval: Estimate | None) -> tuple[float | None, float | None]:
    return (None, None) if interval is None else (interval.low, interval.high)
