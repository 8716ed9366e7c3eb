"""The command `swerve`: its commands, and one line on stderr for whatever stops one.

The stages are imported when a command runs, so that the command line answers at once.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from swerve.cli.behaviours import behaviours
from swerve.cli.bench import bench_app
from swerve.cli.console import one_line
from swerve.cli.data import list_tasks, show_problems, write_problems
from swerve.cli.data_files import export, import_responses, select
from swerve.cli.eval_command import evaluate
from swerve.cli.grade import grade
from swerve.cli.listing import config_app, list_runs, recipes_app
from swerve.cli.options import Json, Out, Overrides, Recipe, Resume, ResumeOrStart, Verify
from swerve.cli.probe_command import probe
from swerve.cli.sample import sample
from swerve.cli.serve import serve
from swerve.cli.study_command import study
from swerve.errors import (
    ConfigError,
    DiskFullError,
    InterruptedRunError,
    ProblemsError,
    QuietExit,
    StalledProcessError,
    SwerveError,
)
from swerve.version import __version__

app = typer.Typer(
    name="swerve",
    help="Train language models with verifiable rewards and see, token by token, what the training changed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted.",
)
data_app = typer.Typer(help="Tasks and their problems, and rollouts of other programs.", no_args_is_help=True)

_FIRST_WORD_SECONDS = 2.0
"""What other processes than torchrun's first wait before they say what it may say too: it then ends them."""

# typer carries its own copy of click in some versions; its public BadParameter is a UsageError in all of them.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def _show_version(value: bool) -> None:
    if value:
        sys.stdout.write(f"swerve {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something fails.")] = False,
) -> None:
    pass


@app.command()
def demo(overrides: Overrides = None, out: Out = None, resume: Resume = False, as_json: Json = False) -> None:
    """Run the whole chain on this machine in minutes; task=knights_knaves chooses the harder puzzles."""
    from swerve.cli.pipeline import run_demo

    run_demo(overrides or (), out=out, resume=resume, as_json=as_json)


@app.command()
def train(
    recipe: Recipe,
    overrides: Overrides = None,
    out: Out = None,
    resume: Resume = False,
    resume_or_start: ResumeOrStart = False,
    verify: Verify = False,
    as_json: Json = False,
) -> None:
    """Train the stages of a recipe; with --resume, RECIPE may be the run directory."""
    from swerve.cli.pipeline import run_train

    run_train(recipe, overrides or (), out=out, resume=resume, or_start=resume_or_start, verify=verify, as_json=as_json)


app.command(name="eval")(evaluate)
app.command()(sample)
app.command()(probe)
app.command()(grade)
app.command()(study)
app.command()(serve)


@app.command(name="export")
def export_checkpoint(
    source: Annotated[
        str, typer.Argument(metavar="RUN:LABEL|FOLDER", help="A checkpoint of a run, or a folder with safetensors.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder to make; it must not exist.")],
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="float32|bfloat16|float16", help="Of the weights.  [default: as stored]"),
    ] = None,
    max_shard_size: Annotated[
        str, typer.Option("--max-shard-size", metavar="SIZE", help="Largest file of weights, such as 500MB.")
    ] = "5GB",
    as_json: Json = False,
) -> None:
    """Write a checkpoint, another trainer's folder or a LoRA adapter as a Hugging Face folder with a model card."""
    from swerve.cli.pipeline import run_export

    run_export(source, out, dtype=dtype, max_shard_size=max_shard_size, as_json=as_json)


@app.command()
def report(
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN|SAMPLES", help="A run, a probe's or a study's directory, or a file or folder of samples."
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
        typer.Option("--out", metavar="DIR", help="Of several runs' comparison.  [default: compared-RUN-RUN]"),
    ] = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Only the figures: those named by NAME[,NAME]..., or all.")
    ] = False,
    problem: Annotated[
        list[str] | None,
        typer.Option("--problem", metavar="ID", help="With --figures, the problem of a case study; repeatable."),
    ] = None,
    formats: Annotated[
        str | None, typer.Option("--format", metavar="png,pdf,svg", help="With --figures.  [default: all three]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write one page, which works offline, and its figures: of a run, probe, study or samples, or of several runs."""
    from swerve.cli.pipeline import run_figures, run_report

    if figures:
        run_figures(source, rest or (), problems=problem or (), formats=formats, as_json=as_json)
        return
    if problem or formats:
        raise ConfigError("--problem and --format are of figures; add --figures")
    run_report(source, rest or (), out=out, as_json=as_json)


app.command(name="runs")(list_runs)
for _app, _name in ((recipes_app, "recipes"), (config_app, "config"), (bench_app, "bench"), (data_app, "data")):
    app.add_typer(_app, name=_name)
data_app.command(name="list")(list_tasks)
data_app.command(name="show")(show_problems)
data_app.command(name="write")(write_problems)
data_app.command(name="import")(import_responses)
data_app.command(name="select")(select)
data_app.command(name="export")(export)
data_app.command(name="behaviours")(behaviours)


@cache
def _command() -> Any:
    return typer.main.get_command(app)  # .1 s


def _run(arguments: Sequence[str]) -> int:
    status = _command().main(list(arguments), prog_name="swerve", standalone_mode=False)
    return status if isinstance(status, int) else 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (`sys.argv` by default) and exit with its status.

    `--debug` is understood anywhere. A reader that closes the pipe ends the command quietly.
    """
    given, status = list(sys.argv[1:] if arguments is None else arguments), 1
    if arguments is None:  # before others register theirs, so that it is called after them
        atexit.register(lambda: _leave(status))
    debug = "--debug" in given
    rest = [argument for argument in given if argument != "--debug"]
    try:
        status = _run(rest)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout again at exit; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (Exception, KeyboardInterrupt) as error:
        line, status = describe_failure(error, debug=debug)
        if line and _is_other_process() and not isinstance(error, StalledProcessError):
            time.sleep(_FIRST_WORD_SECONDS)
        sys.stderr.write(f"{line}\n" if line else "")
    else:
        if status == 130:  # some versions of typer turn Ctrl-C into a status themselves
            sys.stderr.write(f"{interrupted()[0]}\n")
    raise SystemExit(status)


def _leave(status: int) -> None:
    """End the program without taking down the interpreter, which with torch takes seconds and saves nothing."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody reads it, or it is closed
            stream.flush()
    os._exit(status)


def _is_said_by_another(error: BaseException) -> bool:
    is_common = isinstance(error, KeyboardInterrupt | InterruptedRunError) and _is_other_process()
    return isinstance(error, QuietExit) or is_common


def _is_other_process() -> bool:
    return os.environ.get("RANK", "0") != "0"


def interrupted() -> tuple[str, int]:
    """Return the line and the status of a command that Ctrl-C stopped before it could save anything."""
    return "swerve: interrupted; what was written so far is kept", 128 + signal.SIGINT


def describe_failure(error: BaseException, *, debug: bool = False) -> tuple[str, int]:
    """Return what to print on stderr and the exit status; with `debug` the traceback comes first.

    There is no line where several processes work together and another one says it.

    >>> from swerve.errors import ConfigError
    >>> describe_failure(ConfigError("unknown recipe 'x'"))
    ("swerve: error: unknown recipe 'x'", 2)
    """
    line, status = _describe(error)
    trace = "".join(traceback.format_exception(error)) if debug else ""
    return trace + ("" if _is_said_by_another(error) else line), status


def _describe(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return interrupted()
    if isinstance(error, InterruptedRunError):
        return f"swerve: {one_line(str(error))}", error.exit_status
    if isinstance(error, ProblemsError):
        return "swerve: error: " + "\n  ".join(map(one_line, error.lines)), error.exit_status
    if isinstance(error, SwerveError):
        return f"swerve: error: {one_line(str(error))}", error.exit_status
    if isinstance(error, _UsageError):
        return f"swerve: error: {_usage(error)}", 2
    if isinstance(error, OSError) and DiskFullError.matches(error):
        return f"swerve: error: {one_line(str(DiskFullError(error.filename or 'a file')))}", 1
    if isinstance(error, OSError) and error.filename is not None:
        return f"swerve: error: {one_line(f'{error.filename}: {error.strerror}')}", 1
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, which is not imported
        return f"swerve: error: {one_line(f'out of memory: {error}')}; swerve config check RECIPE predicts it", 1
    from swerve.recipes.custom import custom_place

    text = one_line(f"{type(error).__name__}: {error}")
    place = custom_place(error)
    if isinstance(error, OSError) and place is None and str(error):  # a library's, which says what and where in words
        return f"swerve: error: {one_line(str(error))}", 1
    return f"swerve: {f'error in {place}' if place else 'internal error'}: {text}; run again with --debug", 1


def _usage(error: Exception) -> str:
    message = one_line(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    return f"{message}; see: {context.command_path} --help" if context is not None else message
