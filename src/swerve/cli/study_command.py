"""`swerve study`: variants of a recipe over seeds, run, resumed and compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swerve.cli.console import print_message
from swerve.cli.options import TABLE_FORMATS, Result, check_choice, out_option, with_settings
from swerve.cli.plan import asked_plan, planned
from swerve.cli.text import table
from swerve.errors import ArtifactError, ConfigError, ProblemsError
from swerve.formats.text_tables import table_of
from swerve.text import counted

if TYPE_CHECKING:
    from swerve.artifacts.study import Study
    from swerve.config.recipe import Config
    from swerve.progress import Progress
    from swerve.study.job import StudyJob
    from swerve.study.plan import Plan

_PROCESS_BYTES = 600_000_000
"""What a process takes with its libraries, which share a CPU's memory with the training."""


@with_settings("swerve.study.study_file:StudyFile", {})
def study(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="A shipped study, a YAML file, or the directory of a study; a recipe with controls=all.",
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the study, such as seeds=2, or to its recipe."),
    ] = None,
    out: Annotated[
        Path | None, out_option("Directory of the study.  [default: runs/studies/NAME]", folder=True)
    ] = None,
    num_jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", min=1, help="Runs side by side; they share the cores.")
    ] = 1,
    memory: Annotated[
        float | None,
        typer.Option(
            "--memory", metavar="GB", min=0.001, max=1e6, help="Run only as many side by side as are predicted to fit."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", metavar="RUN", help="Only these: a run such as none/seed-0, a variant, start or tuning."
        ),
    ] = None,
    job_list: Annotated[
        Path | None, typer.Option("--list", metavar="FILE", help="Write a shell line for each run, and run nothing.")
    ] = None,
    slurm: Annotated[
        Path | None, typer.Option("--slurm", metavar="FILE", help="Write a Slurm array script, and run nothing.")
    ] = None,
    gather: Annotated[bool, typer.Option("--gather", help="Only compare what is done; run nothing.")] = False,
    form: Annotated[
        str | None,
        typer.Option("--format", metavar="table|md|csv|latex|json", help="What is printed.  [default: table]"),
    ] = None,
) -> Result | None:
    """Run a recipe's variants with several seeds, and compare them.

    After an interruption the same command continues. Finished runs are skipped; a failed run is named and the others go
    on, unless all fail for the same reason. Where the study says so, settings are chosen first, on other seeds and
    problems. The comparison is over seeds and over problems: a table, study.json and a page.

    Examples:
      swerve study demo_study --jobs 2
      swerve study demo_addition controls=all seeds=3
      swerve study mine.yaml seeds=3 --slurm jobs.sh
      swerve study runs/studies/mine --gather
    """
    check_choice("--format", form, TABLE_FORMATS)
    from swerve.artifacts.run import RUNS
    from swerve.cli.console import main_progress
    from swerve.study.order import check_models, with_needed
    from swerve.study.plan import plan_study

    # Nothing is written before the whole study was checked.
    replan = partial(plan_study, source, overrides or (), out=out, runs=RUNS)
    plan, progress = replan(), main_progress()
    jobs = plan.select(only) if only else plan.all_jobs
    if (planning := asked_plan(context)) is not None:
        from swerve.plan.study import study_budget

        memory_gb, _, measures = planning
        return planned(study_budget(plan, with_needed(jobs, plan.all_jobs), memory_gb=memory_gb, measures=measures))
    given = [source, *(overrides or ()), *(["--out", str(out)] if out else [])]
    if not gather:
        left = [job for job in with_needed(jobs, plan.all_jobs) if job.next_step() == "train"]
        check_models(left, plan.all_jobs, is_here=not (job_list or slurm))
        _announce(plan, jobs if only else None, progress)
    if job_list or slurm:
        _hand_over(plan, jobs, given, job_list, slurm, progress)
        return None

    # Do the runs that are left.
    failures: dict[str, str] = {}
    if not gather:
        plan = _run(plan, replan, only or (), failures, num_jobs, memory, progress)

    error = None
    if failures:
        num = len(plan.select(only)) if only else len(plan.all_jobs)
        error = ProblemsError([f"{len(failures)} of {num} runs failed", *(f"{k}: {v}" for k, v in failures.items())])
    if only and error:
        raise error
    if only:
        return None

    # Compare what is there, also where runs failed.
    from swerve.study.gather import absences, gather_study

    comparison = gather_study(plan, failures)
    for line in absences(comparison):
        progress.note(line)
    page = _write(comparison, plan.path)
    return Result(comparison, study_text(comparison, page, form or "table"), error)


def _run(
    plan: Plan,
    replan: Callable[[], Plan],
    only: Sequence[str],
    failures: dict[str, str],
    num_jobs: int,
    memory: float | None,
    progress: Progress,
) -> Plan:
    """Do what is left, and what is known to be left after that; return the plan of the end, and fill `failures`."""
    from swerve.models.model_folder import resolve_device
    from swerve.plan.training import predicted_memory
    from swerve.study.order import with_needed
    from swerve.study.run import run_jobs

    def predict(config: Config) -> int:
        own = _PROCESS_BYTES if resolve_device(config.runtime.device) == "cpu" else 0
        return predicted_memory(config).peak + own

    def do(jobs: Sequence[StudyJob]) -> bool:
        left = [job for job in jobs if job.name not in failures and job.next_step() is not None]
        limit = None if memory is None else int(memory * 1e9)
        if left:
            failures.update(run_jobs(left, progress=progress, num_jobs=num_jobs, memory=limit, predict=predict))
        return bool(left)

    # Settings are tried, and when they are chosen, compared.
    plan.write()
    while do(with_needed(plan.select(only), plan.all_jobs) if only else plan.all_jobs):
        plan = replan()
        plan.write()
    return plan


def _announce(plan: Plan, some: Sequence[StudyJob] | None, progress: Progress) -> None:
    """Say which runs are left to do, what was decided before, and which difference it can show."""
    from swerve.report.study_sentences import design_words
    from swerve.study.gather import gather_study

    num = plan.num_jobs if some is None else len(some)
    done = _num_done(some or (*plan.tuning, *plan.jobs))
    variants, seeds = len(plan.study.variants), len(plan.study.seeds)
    size = f"variants: {variants}, seeds: {seeds}, runs: {num}"
    progress.note(f"{plan.path}: {size}, of which {done} are done and {num - done} to do")
    for line in design_words(gather_study(plan)):
        progress.note(line)


def _hand_over(
    plan: Plan,
    jobs: Sequence[StudyJob],
    given: Sequence[str],
    job_list: Path | None,
    slurm: Path | None,
    progress: Progress,
) -> None:
    """Write what is left to do for a scheduler."""
    from swerve.study.order import with_needed
    from swerve.study.schedulers import write_job_list, write_slurm_script

    left = [job for job in with_needed(jobs, plan.all_jobs) if job.next_step() is not None]
    if not left:
        progress.note("all runs are done; nothing is written")
        return
    plan.write()
    if job_list is not None:
        write_job_list(job_list, left, given)
        progress.note(f"{job_list}: a line for each of {len(left)} runs")
    if slurm is not None:
        submit = write_slurm_script(slurm, plan, left, given)
        progress.note(f"{slurm}: {len(left)} runs; submit them with: {submit}, and what a run may take")

    # Others may wait for settings that are not chosen yet.
    then = "compare them with the same command and --gather"
    if plan.num_jobs > len(plan.tuning) + len(plan.jobs):
        then = "the same command writes those that wait for them"
    progress.note(f"when they are done, {then}")


def _write(comparison: Study, folder: Path, runs: Mapping[str, Path] | None = None) -> Path:
    from swerve.artifacts.study import study_report_path
    from swerve.config.recipe import ReportConfig
    from swerve.report.study import write_study_page

    comparison.write(folder / "study.json")
    return write_study_page(comparison, study_report_path(folder), options=ReportConfig(), runs=runs)


def demo_seeds(recipe: str, overrides: Sequence[str], *, num_seeds: int, out: Path | None) -> Result:
    """Do the demo with seeds 0 to `num_seeds` - 1, as a study, and say in how many of them each headline holds.

    Finished runs are skipped, so that the same command continues after an interruption.

    Raises:
        ConfigError: an override is wrong, or names a seed.
        ProblemsError: a run failed; what the others found is in the directory.
    """
    from swerve.artifacts.run import RUNS
    from swerve.cli.console import main_progress
    from swerve.cli.summary import over_seeds
    from swerve.recipes.layers import parse_override
    from swerve.recipes.loader import load_config
    from swerve.report.run_page import write_page
    from swerve.study.gather import gather_study
    from swerve.study.plan import plan_study

    # The seeds are the study's; what else is given is checked as for one run.
    if given := next((text for text in overrides if parse_override(text).keys[0] == "seed"), None):
        raise ConfigError(
            f"override '{given}': --seeds {num_seeds} trains with seeds 0 to {num_seeds - 1}; leave it out"
        )
    config = load_config(recipe, overrides)
    changes = [text for text in overrides if parse_override(text).keys[0] != "name"]
    own = [f"recipe={recipe}", f"name={config.name}", f"seeds={num_seeds}", *changes]
    replan = partial(plan_study, "demo_seeds", own, out=out, runs=RUNS)
    plan, progress, failures = replan(), main_progress(), dict[str, str]()
    progress.note(f"{plan.path}: {counted(num_seeds, 'run')} of {recipe}, {_num_done(plan.jobs)} done")
    plan = _run(plan, replan, (), failures, 1, None, progress)

    # A page of each run, one of all, and the headlines over seeds.
    runs = {job.seed: job.run for job in plan.jobs if job.next_step() is None}
    for run in runs.values():
        write_page(run, options=config.report)
    page = _write(gather_study(plan, failures), plan.path)
    rows = over_seeds(runs)
    lines = [table(table_of(rows))] if rows else []
    error = ProblemsError([f"{len(failures)} of {num_seeds} runs failed", *(f"{k}: {v}" for k, v in failures.items())])
    paths = [str(run.path) for run in runs.values()]
    data = {"runs": paths, "headlines": rows, "report": str(page)}
    return Result(data, "\n".join([*lines, f"Report: {page}"]), error if failures else None)


def _num_done(jobs: Sequence[StudyJob]) -> int:
    return sum(job.next_step() is None for job in jobs)


def study_text(comparison: Study, page: Path, form: str) -> str:
    """Return the comparison in one of its forms."""
    from swerve.formats.text_tables import latex_table, markdown_table
    from swerve.report.study_rows import study_tables
    from swerve.study.gather import study_csv

    if form == "json":
        return comparison.model_dump_json(indent=2)
    if form == "csv":
        return study_csv(comparison)
    draw = {"md": markdown_table, "latex": latex_table}.get(form, lambda rows: f"{table(rows)}\n")
    tables = [*map(draw, study_tables(comparison))]
    return "\n".join([*tables, f"Report: {page}"] if form == "table" else tables)


def report_runs(paths: Sequence[Path], out: Path) -> Result:
    """Compare runs that were no study, and write the page.

    Raises:
        ArtifactError: `out` is a run.
    """
    from swerve.study.gather import absences, compare_directories

    if (out / "run.json").is_file():
        raise ArtifactError(f"{out} is a run; choose another directory with --out")
    comparison = compare_directories(paths)
    for line in absences(comparison):
        print_message(line)
    page = _write(comparison, out, {str(path): path for path in paths})
    return Result({"report": str(page)}, study_text(comparison, page, "table"))
