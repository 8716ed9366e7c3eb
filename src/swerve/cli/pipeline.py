"""`swerve demo`, `train`, `eval`, `probe`, `export` and `report`: run a stage and print its result.

torch is imported inside the functions, so that wrong usage is reported at once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from swerve.artifacts.evaluation import Evaluation, read_evaluations
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.probe_summary import ProbeSummary, read_summary
from swerve.artifacts.run import RUNS, RunDirectory, check_name, find_run, is_main_process
from swerve.artifacts.samples import is_samples_file, read_samples
from swerve.cli.console import print_json, print_result, print_text
from swerve.cli.runs import find_study, free_run_path, main_progress
from swerve.cli.study_command import report_runs, report_study
from swerve.cli.summary import evaluation_lines, probe_lines, run_summary
from swerve.config import Config
from swerve.errors import ArtifactError, ConfigError, InterruptedRunError, nearest
from swerve.models.named_models import resolve_checkpoint
from swerve.models.runtime import set_thread_environment
from swerve.probe.recipe import ProbeSettings
from swerve.progress import Progress
from swerve.recipes.epochs import with_steps
from swerve.recipes.files import shipped_recipes
from swerve.recipes.loader import load_config, load_run_config, load_settings


def run_train(
    recipe: str,
    overrides: Sequence[str],
    *,
    out: Path | None,
    resume: bool,
    or_start: bool = False,
    verify: bool = False,
    as_json: bool,
) -> None:
    """Train every stage of a recipe; with `resume`, `recipe` may be the run itself.

    With `or_start` a run that was begun is continued, and another one started.
    """
    from swerve.train import known_run, run_directory, train

    # A job that torchrun started again continues by itself, and so does a run that was begun, where that is asked for.
    progress = main_progress()
    known = known_run(recipe) if resume or or_start else None
    there = run_directory(load_config(known or recipe, overrides), out or known)
    if not resume and there.is_of_this_job():
        or_start = True
        progress.note("torchrun started the processes again: the run continues")
    if or_start:
        resume = (there.path / "run.json").is_file()
    run = train(known or recipe, overrides, out=there, resume=resume, verify=verify, progress=progress)
    if as_json and is_main_process():
        print_json({"run": str(run.path), "checkpoints": [entry.label for entry in run.checkpoints]})


def demo_recipe(overrides: Sequence[str]) -> tuple[str, list[str]]:
    """Return the shipped recipe that `task=...` chooses, and the other overrides.

    Raises:
        ConfigError: no demo has that task; the message lists those there are.

    >>> demo_recipe(["seed=1", "task=knights_knaves"])
    ('demo_knights_knaves', ['seed=1'])
    """
    tasks = [name.removeprefix("demo_") for name in shipped_recipes() if name.startswith("demo_")]
    chosen = [override.partition("=")[2].strip() for override in overrides if override.startswith("task=")]
    task = chosen[-1] if chosen else "addition"
    if task not in tasks:
        raise ConfigError(f"override 'task={task}': no demo has this task{nearest(task, tasks)} ({', '.join(tasks)})")
    return f"demo_{task}", [override for override in overrides if not override.startswith("task=")]


def _latest_run_path(path: Path) -> Path:
    """Return the last of `path`, `path-2`, `path-3`, ... that exists, or `path`."""
    number, latest = 2, path
    while (candidate := path.with_name(f"{path.name}-{number}")).exists():
        number, latest = number + 1, candidate
    return latest


def _demo_path(config: Config, *, resume: bool, progress: Progress) -> Path:
    default = RUNS / check_name(config.name)
    if resume:
        return _latest_run_path(default)
    path = free_run_path(default)
    if path != default:
        progress.note(f"{default} exists; this run goes to {path}")
    return path


def run_demo(overrides: Sequence[str], *, out: Path | None, resume: bool, as_json: bool) -> None:
    """Run a shipped recipe through every stage and print what came out."""
    started = time.monotonic()
    progress = main_progress()
    recipe, rest = demo_recipe(overrides)
    config = with_steps(load_config(recipe, rest))
    from swerve.eval.heldout import evaluate_run
    from swerve.probe.from_run import probe_run
    from swerve.report.page import build_report
    from swerve.train import train

    run = train(
        config, out=out or _demo_path(config, resume=resume, progress=progress), resume=resume, progress=progress
    )
    evaluate_run(config, run, progress=progress)
    probe_run(config, run, progress=progress)
    page = build_report(run, options=config.report)
    seconds = time.monotonic() - started
    evaluations, probe = read_evaluations(run), read_summary(run)
    result = {"evaluations": evaluations, "probe": probe, "report": str(page), "seconds": round(seconds, 1)}
    text = run_summary(evaluations, probe, seconds=seconds, report=page)
    print_result({"run": str(run.path), **result}, text, as_json=as_json)


def _run_stage(
    name: str,
    overrides: Sequence[str],
    stage: Callable[[Config, RunDirectory, Progress], Any],
    *,
    as_json: bool,
    describe: Callable[[RunDirectory, Any], str],
) -> None:
    run = find_run(name)
    config = load_run_config(run, overrides)
    set_thread_environment(config.runtime)
    result = stage(config, run, main_progress())
    if not is_main_process():
        return
    if as_json:
        print_json(result)
    else:
        print_text(describe(run, result))


def run_eval(run: str, overrides: Sequence[str], *, form: str | None, as_json: bool, **compared: Any) -> None:
    """Evaluate the checkpoints of a run that lack an evaluation.

    Args:
        run: its name.
        overrides: changes for this call.
        form: one of a comparison's, or `table`; None: a line for each checkpoint.
        as_json: whether JSON is printed.
        **compared: how the checkpoints are compared; see `compare_checkpoints`.
    """

    def stage(config: Config, run: RunDirectory, progress: Progress) -> list[Evaluation]:
        from swerve.eval.heldout import evaluate_run

        return evaluate_run(config, run, progress=progress)

    def describe(run: RunDirectory, result: Sequence[Evaluation]) -> str:
        if form is None:
            from swerve.eval.phases import path_phases, stage_courses

            records = read_metrics(run.metrics_path)
            lines = [course.described() for course in stage_courses(records)]
            lines += [phases.described() for phases in path_phases(records)]
            return "\n".join([*evaluation_lines(read_evaluations(run)), *lines])
        from swerve.cli.sample import comparison_text
        from swerve.eval.evaluate_models import compare_checkpoints

        return comparison_text(compare_checkpoints(run, **compared), form)

    _run_stage(run, overrides, stage, as_json=as_json, describe=describe)


def run_probe(run: str, overrides: Sequence[str], *, as_json: bool) -> None:
    """Compare the checkpoints of a run with its reference, token by token."""

    def stage(config: Config, run: RunDirectory, progress: Progress) -> ProbeSummary | None:
        from swerve.probe.from_run import probe_run

        return probe_run(config, run, progress=progress)

    def describe(run: RunDirectory, result: ProbeSummary | None) -> str:
        return "\n".join(probe_lines(result))

    _run_stage(run, overrides, stage, as_json=as_json, describe=describe)


_DTYPES = ("float32", "bfloat16", "float16")


def run_export(source: str, out: Path, *, dtype: str | None, max_shard_size: str, as_json: bool) -> None:
    """Write a folder in the Hugging Face layout."""
    if dtype not in (None, *_DTYPES):
        raise ConfigError(f"--dtype '{dtype}' is not known{nearest(str(dtype), _DTYPES)}; use {', '.join(_DTYPES)}")
    if not re.fullmatch(r"0*[1-9]\d*(KB|MB|GB)", max_shard_size):
        raise ConfigError(f"--max-shard-size '{max_shard_size}' must be a whole number of KB, MB or GB, such as 500MB")
    if out.exists() or out.is_symlink():
        raise ConfigError(f"--out {out} exists; give the name of a new folder")
    # A folder of pickled shards or of an adapter is no checkpoint; what it is, is said where it is read.
    is_folder = Path(source).is_dir() and not (Path(source) / "run.json").is_file()
    folder = Path(source) if is_folder else resolve_checkpoint(source).path
    from swerve.models.export import export_model
    from swerve.models.model_card import Origin

    try:
        exported = export_model(Origin.of(folder), out, dtype=dtype, max_shard_size=max_shard_size)
    except KeyboardInterrupt:
        raise InterruptedRunError(f"interrupted; nothing was written to {out}", signal_number=2) from None
    lines = [
        f"{exported.num_parameters:,} parameters in {exported.dtype}: {out}",
        f"weights SHA-256: {exported.weights_sha256}",
    ]
    print_result(exported, "\n".join(lines), as_json=as_json)


def run_figures(name: str, rest: Sequence[str], *, problems: Sequence[str], formats: str | None, as_json: bool) -> None:
    """Write figures of a run or a probe, all or those that are named, and print their paths.

    Raises:
        ConfigError: there is no such figure, format or problem.
        ArtifactError: none of them could be drawn.
    """
    if _sample_files(Path(name)):
        raise ConfigError(f"--figures: {name} is samples; give a run, or the directory of a probe")
    from swerve.report.draw.figures import FORMATS
    from swerve.report.figures import missing_lines, write_run_figures

    names, chosen = _words(rest), tuple(FORMATS) if formats is None else _words([formats])

    # A study has figures of its own.
    study = find_study(name)
    if study is not None:
        if problems:
            raise ConfigError("--problem: a study has no figure of a problem; give one of its runs")
        from swerve.artifacts.study import read_study
        from swerve.report.study import write_study_figures

        paths = write_study_figures(read_study(study), study / "report" / "figures", names, formats=chosen)
        print_result({"figures": list(map(str, paths)), "missing": {}}, "\n".join(map(str, paths)), as_json=as_json)
        return

    # Figures whose numbers were not measured are named, each with what would measure them.
    run = find_run(name)
    written = write_run_figures(run, names, problems=problems, formats=chosen)
    lines = missing_lines(written.missing, run)
    if not written.figures:
        raise ArtifactError("; ".join(lines))
    for line in lines:
        main_progress().note(line)
    result = {"figures": [str(path) for path in written.figures], "missing": dict(written.missing)}
    print_result(result, "\n".join(result["figures"]), as_json=as_json)


def _words(given: Sequence[str]) -> tuple[str, ...]:
    """Return words that stand one by one or with commas between them."""
    return tuple(word for text in given for word in text.split(",") if word)


def run_report(run: str, overrides: Sequence[str], *, out: Path | None, as_json: bool) -> None:
    """Write the report of a run, a probe, a study, files of samples, or of several runs compared, from artifacts."""
    more = [override for override in overrides if "=" not in override or Path(override).exists()]
    study = find_study(run)
    sample_files = _sample_files(Path(run))
    if out is not None and (sample_files or study or not more):
        raise ConfigError("--out is where several runs are compared; give two runs or more")
    if sample_files:
        _report_samples(Path(run), sample_files, more, overrides, as_json=as_json)
    elif study is not None:
        report_study(study, as_json=as_json)
    elif more:
        paths = [find_run(place).path for place in (run, *more)]
        report_runs(paths, out or paths[0].parent / _compared(paths), as_json=as_json)
    else:
        from swerve.report import report

        page = report(run, overrides, progress=main_progress())
        print_result({"report": str(page)}, f"Report: {page}", as_json=as_json)


def _compared(paths: Sequence[Path]) -> str:
    """Return the name of the directory in which runs are compared."""
    rest = [paths[1].name] if len(paths) == 2 else [f"{len(paths) - 1}-others"]
    return "-".join(["compared", paths[0].name, *rest])


def _sample_files(path: Path) -> list[Path]:
    """Return a file of samples, or those in a folder; none where a path is something else."""
    if (path / "run.json").is_file():
        return []
    return [file for file in ([path] if path.is_file() else sorted(path.glob("*.parquet"))) if is_samples_file(file)]


def _report_samples(
    path: Path, files: Sequence[Path], more: Sequence[str], rest: Sequence[str], *, as_json: bool
) -> None:
    """Write the page of files of samples: in their folder, or beside the first file."""
    options = load_settings(ProbeSettings, [file for file in rest if file not in more]).report
    from swerve.cli.sample import comparison_text
    from swerve.eval.comparison import compare
    from swerve.report.samples import write_samples_page

    read = [read_samples(file) for file in (*files, *map(Path, more))]
    comparison = compare([file.samples for file in read], pooled=True)
    folder = path / "report" if path.is_dir() else path.with_name(f"{path.stem}-report")
    page = write_samples_page(folder / "index.html", comparison, read, options=options)
    shown = comparison.model_copy(update={"rows": tuple(comparison.headlines().values())})
    text = f"{comparison_text(shown)}\nReport: {page}"
    print_result({"report": str(page)}, text, as_json=as_json)
