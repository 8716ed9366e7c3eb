"""`swerve demo`, `train`, `eval`, `probe`, `export` and `report`: run a stage and print its result.

What a stage needs is imported inside the functions, so that help and wrong usage are answered at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from swerve.artifacts.output_names import check_output
from swerve.cli.completion import completed
from swerve.cli.options import Out, Overrides, Recipe, Result, check_choice, out_option
from swerve.cli.plan import asked_plan, planned
from swerve.cli.text import wrapped
from swerve.errors import ArtifactError, ConfigError, InterruptedRunError, nearest

if TYPE_CHECKING:
    from swerve.config.recipe import Config
    from swerve.progress import Progress
    from swerve.recipes.layers import Change
    from swerve.report.draw.figures import Look


def train(
    context: typer.Context,
    recipe: Recipe,
    overrides: Overrides = None,
    out: Out = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue an interrupted run from its last checkpoint; RECIPE may be the run."),
    ] = False,
    resume_or_start: Annotated[
        bool,
        typer.Option("--resume-or-start", help="Continue the run if it exists, start it otherwise: for requeued jobs."),
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="When resuming, also check the checkpoints before the last one.")
    ] = False,
) -> Result:
    """Train the stages of a recipe, one after another.

    Examples:
      swerve train demo_addition seed=1 stages.rl.steps=40
      swerve train mine.yaml --out runs/mine
      swerve train runs/mine --resume
    """
    from swerve.cli.console import main_progress
    from swerve.models.folder_metadata import check_metadata, is_description
    from swerve.recipes.loader import load_config
    from swerve.train import known_run, run_directory
    from swerve.train import train as train_recipe

    # A job that torchrun started again continues by itself, and so does a run that was begun, where that is asked for.
    changes, progress = overrides or (), main_progress()
    known = known_run(recipe) if resume or resume_or_start else None
    config = load_config(known or recipe, changes)
    planning = asked_plan(context)
    if config.model.kind == "pretrained" and not (planning and is_description(config.model.path)):
        check_metadata(config.model.path)
    if planning is not None:
        from swerve.plan.training import training_budget

        return planned(training_budget(_counted(config), out=out, **planning._asdict()))
    there = run_directory(config, out or known)
    if not resume and there.is_of_this_job():
        resume_or_start = True
        progress.note("torchrun started the processes again: the run continues")
    if resume_or_start:
        resume = (there.path / "run.json").is_file()
    run = train_recipe(known or recipe, changes, out=there, resume=resume, verify=verify, progress=progress)
    return Result({"run": str(run.path), "checkpoints": [entry.label for entry in run.checkpoints]}, "")


def _counted(config: Config) -> Config:
    """Return a recipe with the steps that its data gives it, as far as the data is on this machine."""
    from swerve.recipes.data_sizes import data_sizes
    from swerve.recipes.epochs import with_steps

    return with_steps(config, data_sizes(config, asks_hub=False))


def demo_recipe(overrides: Sequence[str]) -> tuple[str, list[str]]:
    """Return the shipped recipe that `task=...` chooses, and the other overrides.

    Raises:
        ConfigError: no demo has that task; the message lists those there are.

    >>> demo_recipe(["seed=1", "task=knights_knaves"])
    ('demo_knights_knaves', ['seed=1'])
    """
    from swerve.recipes.files import shipped_recipes

    tasks = [name.removeprefix("demo_") for name in shipped_recipes() if name.startswith("demo_")]
    chosen = [override.partition("=")[2].strip() for override in overrides if override.startswith("task=")]
    task = chosen[-1] if chosen else "multiplication"
    if task not in tasks:
        raise ConfigError(f"override 'task={task}': no demo has this task{nearest(task, tasks)} ({', '.join(tasks)})")
    return f"demo_{task}", [override for override in overrides if not override.startswith("task=")]


def _demo_path(config: Config, overrides: Sequence[str], *, resume: bool, progress: Progress) -> Path:
    """Return where the demo goes: to the last run of its name if it is continued, else to a new one.

    Raises:
        ConfigError: the last run of the same settings was interrupted; the message says how to continue it.
    """
    from swerve.artifacts.run import RUNS, RunDirectory, check_name
    from swerve.recipes.loader import config_hash, load_config

    # name, name-2, name-3, ... up to the last that is there.
    path = first = RUNS / check_name(config.name)
    latest, number = None, 1
    while path.exists():
        latest, number = path, number + 1
        path = first.with_name(f"{first.name}-{number}")
    if latest is None or resume:
        return latest or first
    run = RunDirectory(latest)
    is_same = run.config_path.is_file() and config_hash(load_config(run.config_path)) == config_hash(config)
    if is_same and not (run.report_path / "index.html").is_file() and not run.is_held():
        command = " ".join(["swerve demo", *overrides, "--resume"])
        raise ConfigError(f"{latest} was interrupted; continue it with: {command}, or begin another with --out DIR")
    progress.note(f"{first} exists; this run goes to {path}")
    return path


def demo(
    overrides: Overrides = None,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the last demo where it was interrupted.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print every finding, not only the headline.")] = False,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", metavar="N", min=2, max=100, help="Train seeds 0 to N-1; say which headlines hold."),
    ] = None,
) -> Result:
    """Train, evaluate and probe a tiny model, and write its report.

    It takes a minute or two on one CPU core; with --seeds as long for each, and the same command continues.

    Examples:
      swerve demo
      swerve demo task=knights_knaves seed=1
      swerve demo --seeds 3
      swerve demo --resume
    """
    from swerve.artifacts.evaluation import read_evaluations
    from swerve.artifacts.probe_summary import read_summary
    from swerve.cli.console import main_progress
    from swerve.cli.summary import demo_text, evaluation_text, findings_text
    from swerve.recipes.data_sizes import data_sizes
    from swerve.recipes.epochs import with_steps
    from swerve.recipes.loader import load_config

    # Everything is checked before training begins.
    started, progress = time.monotonic(), main_progress()
    recipe, rest = demo_recipe(overrides or ())
    if seeds is not None:
        from swerve.cli.study_command import demo_seeds

        return demo_seeds(recipe, rest, num_seeds=seeds, out=out)
    config = load_config(recipe, rest)
    config = with_steps(config, data_sizes(config))
    path = out or _demo_path(config, overrides or (), resume=resume, progress=progress)
    from swerve.train import train as train_recipe

    run = train_recipe(config, out=path, resume=resume, progress=progress)
    from swerve.eval.heldout import evaluate_run
    from swerve.probe.from_run import probe_run
    from swerve.report.run_page import write_page

    evaluate_run(config, run, progress=progress)
    probe_run(config, run, progress=progress)
    page = write_page(run, options=config.report)
    seconds = time.monotonic() - started
    evaluations = read_evaluations(run)
    measured = {"evaluations": evaluations, "probe": read_summary(run), "seconds": round(seconds, 1)}
    lines = [evaluation_text(evaluations), findings_text(run), ""] if verbose else []
    lines.append(demo_text(run, page, seconds=seconds, changes=overrides or ()))
    return Result({"run": str(run.path), **measured, "report": str(page)}, "\n".join(lines))


def run_eval(run: str, overrides: Sequence[Change], *, form: str | None, **compared: Any) -> Result:
    """Evaluate the checkpoints of a run that lack an evaluation.

    Args:
        run: its name.
        overrides: changes for this call.
        form: one of a comparison's, or `table`; None: a line for each checkpoint.
        **compared: how the checkpoints are compared; see `compare_checkpoints`.
    """
    from swerve.artifacts.metrics import read_metrics
    from swerve.artifacts.run import find_run
    from swerve.cli.console import main_progress
    from swerve.cli.sample import comparison_text
    from swerve.cli.summary import evaluation_text
    from swerve.eval import evaluate

    evaluations, directory = evaluate(run, *overrides, progress=main_progress()), find_run(run)

    def text() -> str:
        if form is not None:
            from swerve.eval.evaluate_models import compare_checkpoints

            return comparison_text(compare_checkpoints(directory, **compared), form)
        # Without a form asked for: a line for each checkpoint, and the courses and phases of the training.
        from swerve.eval.phases import path_phases, stage_courses

        records = read_metrics(directory.metrics_path)
        lines = [course.described() for course in stage_courses(records)]
        lines += [phases.described() for phases in path_phases(records)]
        return "\n".join([evaluation_text(evaluations), *map(wrapped, lines)])

    return Result(evaluations, text)


_DTYPES = ("float32", "bfloat16", "float16")


def export_checkpoint(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN:LABEL|FOLDER",
            help="A checkpoint of a run, or a folder with safetensors.",
            **completed("models"),
        ),
    ],
    out: Annotated[Path, out_option("New folder.", folder=True)],
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="|".join(_DTYPES), help="Type of the weights.  [default: as stored]"),
    ] = None,
) -> Result:
    """Write a checkpoint as a Hugging Face folder with a model card.

    It may also be another trainer's folder of safetensors, or a LoRA adapter, which is merged into its base.

    Examples:
      swerve export runs/mine:rl-80 --out models/mine --dtype bfloat16
    """
    from swerve.models.named_models import resolve_checkpoint

    check_choice("--dtype", dtype, _DTYPES)
    if out.exists() or out.is_symlink():
        raise ConfigError(f"--out {out} exists; give the name of a new folder")
    # A folder of pickled shards or of an adapter is no checkpoint; what it is, is said where it is read.
    is_folder = Path(source).is_dir() and not (Path(source) / "run.json").is_file()
    folder = Path(source) if is_folder else resolve_checkpoint(source).path
    from swerve.models.folder_metadata import check_metadata

    check_metadata(folder)
    from swerve.models.export import export_model
    from swerve.models.model_card import WeightsOrigin

    try:
        exported = export_model(WeightsOrigin.of(folder), out, dtype=dtype)
    except KeyboardInterrupt:
        raise InterruptedRunError(f"interrupted; nothing was written to {out}", signal_number=2) from None
    said = f"{exported.num_parameters:,} parameters in {exported.dtype}: {out}"
    return Result(exported, f"{said}\nweights SHA-256: {exported.weights_sha256}")


def report(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN|SAMPLES",
            help="A run, the directory of a probe or a study, or a file or folder of samples.",
            **completed("runs"),
        ),
    ],
    rest: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN|SAMPLES]... [NAME]... [KEY=VALUE]...",
            help="More of them; names of figures, with --figures; changes under report.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where several runs are compared.  [default: compared-RUN-RUN]"),
    ] = None,
    figures: Annotated[bool, typer.Option("--figures", help="Write only figures: NAME[,NAME]..., or all.")] = False,
    problem: Annotated[
        list[str] | None,
        typer.Option("--problem", metavar="ID", help="With --figures, the problem of a case study; repeatable."),
    ] = None,
    formats: Annotated[
        str | None, typer.Option("--format", metavar="png,pdf,svg", help="With --figures.  [default: all three]")
    ] = None,
    width: Annotated[
        str | None,
        typer.Option("--width", metavar="column|text", help="With --figures: 3.25 or 6.75 inches.  [default: text]"),
    ] = None,
    no_titles: Annotated[bool, typer.Option("--no-titles", help="With --figures: without titles above them.")] = False,
) -> Result:
    """Write one offline page of runs, probes or samples, or figures for a paper.

    Several runs are compared. A study's page is written again from its record.

    Examples:
      swerve report runs/mine
      swerve report runs/a runs/b --out compared
      swerve report runs/mine --figures accuracy,causal --width column --format pdf
    """
    given = rest or ()
    if figures:
        if out is not None:
            raise ConfigError("--out is where several runs are compared; figures are in the folder of their run")
        from swerve.report.draw.figures import FORMATS, Look

        look = Look(formats=_words(formats or "") or tuple(FORMATS), width=width or "text", has_titles=not no_titles)
        return _write_figures(source, given, problems=problem or (), look=look)
    if problem or formats or width or no_titles:
        raise ConfigError("--problem, --format, --width and --no-titles are of figures; add --figures")
    from swerve.artifacts.run import find_run
    from swerve.cli.console import main_progress
    from swerve.cli.study_command import report_runs
    from swerve.door.report import sample_files

    # Samples have a page of their own; several runs are compared; one run, probe or study has its page.
    more = [word for word in given if "=" not in word or Path(word).exists()]
    files = sample_files(Path(source))
    if out is not None and (files or not more):
        raise ConfigError(
            f"--out is where several runs are compared; the report of one is in its folder: swerve report {source}"
        )
    if files:
        return _report_samples(Path(source), files, more, given)
    if more:
        if samples := next((place for place in more if sample_files(Path(place))), None):
            raise ConfigError(f"{samples} is samples, which have a page of their own: swerve report {samples}")
        if out is not None:
            check_output(out, folder=True)
        paths = [find_run(place).path for place in (source, *more)]
        others = paths[1].name if len(paths) == 2 else f"{len(paths) - 1}-others"
        return report_runs(paths, out or paths[0].parent / f"compared-{paths[0].name}-{others}")
    from swerve.door.report import report as write_report

    page = write_report(source, given, progress=main_progress())
    return Result({"report": str(page)}, f"Report: {page}")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _write_figures(name: str, rest: Sequence[str], *, problems: Sequence[str], look: Look) -> Result:
    """Write figures of a run or a probe, all or those that are named, and print their paths.

    Raises:
        ConfigError: there is no such figure or problem.
        ArtifactError: none of them could be drawn.
    """
    from swerve.door.report import sample_files

    if sample_files(Path(name)):
        raise ConfigError(f"--figures: {name} is samples; give a run, or the directory of a probe")
    from swerve.artifacts.run import find_run
    from swerve.artifacts.study import find_study, read_study, study_report_path
    from swerve.cli.console import main_progress
    from swerve.report.figures import missing_lines, write_run_figures

    names = tuple(word for text in rest for word in _words(text))
    names = () if names == ("all",) else names

    # A study has figures of its own.
    study = find_study(name)
    if study is not None:
        if problems:
            raise ConfigError("--problem: a study has no figure of a problem; give one of its runs")
        from swerve.report.study import write_study_figures

        paths = write_study_figures(read_study(study), study_report_path(study) / "figures", names, look)
        return Result({"figures": list(map(str, paths)), "missing": {}}, "\n".join(map(str, paths)))

    # Figures whose numbers were not measured are named, each with what would measure them.
    run = find_run(name)
    written = write_run_figures(run, names, look, problems=problems)
    lines = missing_lines(written.missing, run)
    if not written.figures:
        raise ArtifactError("; ".join(lines))
    for line in lines:
        main_progress().note(line)
    figures = [str(path) for path in written.figures]
    return Result({"figures": figures, "missing": dict(written.missing)}, "\n".join(figures))


def _report_samples(path: Path, files: Sequence[Path], more: Sequence[str], rest: Sequence[str]) -> Result:
    """Write the page of files of samples: in their folder, or beside the first file."""
    from swerve.probe.recipe import ProbeSettings
    from swerve.recipes.loader import load_settings

    options = load_settings(ProbeSettings, [file for file in rest if file not in more]).report
    from swerve.artifacts.samples import StoredSamples
    from swerve.cli.sample import comparison_text
    from swerve.door.report import samples_folder, write_samples

    stored = [StoredSamples(file) for file in (*files, *map(Path, more))]
    page, comparison = write_samples(stored, samples_folder(path, stored), options)
    shown = comparison.model_copy(update={"rows": tuple(comparison.headlines().values())})
    return Result({"report": str(page)}, f"{comparison_text(shown)}\nReport: {page}")
