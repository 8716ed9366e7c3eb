"""The command `swerve`: its commands, and one line on stderr for whatever stops one.

The stages are imported when a command runs, so that the command line answers at once.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import typer

from swerve.cli import eval_command, probe_command, sample
from swerve.cli.behaviours import behaviours
from swerve.cli.bench import bench_app
from swerve.cli.data import list_tasks, show_problems, write_problems
from swerve.cli.data_files import export, import_responses, select
from swerve.cli.grade import grade
from swerve.cli.listing import config_app, list_runs, recipes_app
from swerve.cli.options import PlainCommand
from swerve.cli.pipeline import demo, export_checkpoint, report, train
from swerve.cli.serve import serve
from swerve.cli.study_command import study
from swerve.errors import (
    DiskFullError,
    InterruptedRunError,
    ProblemsError,
    QuietExit,
    StalledProcessError,
    SwerveError,
)
from swerve.progress import one_line
from swerve.version import __version__

app = typer.Typer(
    name="swerve",
    help="Train language models with verifiable rewards and see, token by token, what the training changed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit status: 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted.",
)
data_app = typer.Typer(
    help="Tasks and their problems, and rollouts of other programs.", no_args_is_help=True, rich_markup_mode=None
)

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


_EXAMPLES = {
    demo: ("swerve demo", "swerve demo task=knights_knaves seed=1", "swerve demo --resume"),
    train: (
        "swerve train demo_addition seed=1 stages.rl.steps=40",
        "swerve train mine.yaml --out runs/mine",
        "swerve train runs/mine --resume",
    ),
    eval_command.evaluate: (
        "swerve eval runs/mine",
        "swerve eval --model base=Qwen/Qwen2.5-0.5B --model rl=runs/mine:rl-80 --task gsm8k",
    ),
    sample.sample: (
        "swerve sample Qwen/Qwen2.5-0.5B --task gsm8k --limit 100 --out base.parquet",
        "swerve sample base=models/base rl=runs/mine:rl-80 --task math --num-samples 8 --out samples",
    ),
    probe_command.probe: (
        "swerve probe runs/mine",
        "swerve probe --use-responses answers.jsonl --reference models/base --checkpoint models/rl",
        "swerve probe --select all --reference-samples a.parquet --final-samples b.parquet ...",
    ),
    grade: (
        "swerve grade answers.jsonl --task math --out verdicts.jsonl",
        "swerve grade answers.jsonl --problems problems.jsonl --audit correct",
    ),
    study: (
        "swerve study demo_study --jobs 2",
        "swerve study mine.yaml seeds=3 --slurm jobs.sh",
        "swerve study runs/studies/mine --gather",
    ),
    serve: ("swerve serve gsm8k model.path=models/base --run", "swerve serve gsm8k --gpus 0,1"),
    export_checkpoint: ("swerve export runs/mine:rl-80 --out models/mine --dtype bfloat16",),
    report: (
        "swerve report runs/mine",
        "swerve report runs/a runs/b --out compared",
        "swerve report runs/mine --figures accuracy,divergence --format pdf",
    ),
    list_runs: ("swerve runs", "swerve runs --dir runs/studies/mine/runs/none"),
    list_tasks: ("swerve data list",),
    show_problems: ("swerve data show addition -n 5", "swerve data show gsm8k --split heldout"),
    write_problems: ("swerve data write k_and_k 'people=[2, 3]' --out puzzles.jsonl",),
    import_responses: ("swerve data import rollouts.jsonl --problems problems.jsonl --out rollouts.parquet",),
    select: ("swerve data select samples.parquet --correct --per-problem 4 --out sft.parquet",),
    export: ("swerve data export runs/mine/probe/tokens.parquet --out tokens.csv",),
    behaviours: ("swerve data behaviours runs/mine", "swerve data behaviours answers.jsonl --by level"),
}
"""Of the commands; help shows them at its end."""


def _add(app: typer.Typer, name: str, command: Callable[..., None], cls: Any = PlainCommand) -> None:
    examples = "\n".join(["\b\nExamples:", *(f"  {line}" for line in _EXAMPLES[command])])
    app.command(name=name, cls=cls, epilog=examples)(command)


_add(app, "demo", demo)
_add(app, "train", train)
_add(app, "eval", eval_command.evaluate, eval_command.SETTINGS)
_add(app, "sample", sample.sample, sample.SETTINGS)
_add(app, "probe", probe_command.probe, probe_command.SETTINGS)
_add(app, "grade", grade)
_add(app, "study", study)
_add(app, "serve", serve)
_add(app, "export", export_checkpoint)
_add(app, "report", report)
_add(app, "runs", list_runs)
for _app, _name in ((recipes_app, "recipes"), (config_app, "config"), (bench_app, "bench"), (data_app, "data")):
    app.add_typer(_app, name=_name)
_add(data_app, "list", list_tasks)
_add(data_app, "show", show_problems)
_add(data_app, "write", write_problems)
_add(data_app, "import", import_responses)
_add(data_app, "select", select)
_add(data_app, "export", export)
_add(data_app, "behaviours", behaviours)


@cache
def _built() -> Any:
    return typer.main.get_command(app)  # .1 s


def _run(arguments: Sequence[str]) -> int:
    status = _built().main(list(arguments), prog_name="swerve", standalone_mode=False)
    return status if isinstance(status, int) else 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (`sys.argv` by default) and exit with its status.

    `--debug` is understood anywhere. A reader that closes the pipe ends the command quietly.
    """
    given, status = list(sys.argv[1:] if arguments is None else arguments), 1
    if arguments is None:
        atexit.register(lambda: _leave(status))  # before others register theirs, so that it is called after them
        _interrupt_on_sigterm()
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
        line, status = describe_failure(error, debug=debug, arguments=rest)
        if line and _is_other_process() and not isinstance(error, StalledProcessError):
            time.sleep(_FIRST_WORD_SECONDS)
        sys.stderr.write(f"{line}\n" if line else "")
    else:
        if status == 130:  # some versions of typer turn Ctrl-C into a status themselves
            line, status = _interrupted(rest)
            sys.stderr.write(f"{line}\n")
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


def _interrupt_on_sigterm() -> None:
    """Treat SIGTERM like Ctrl-C, for what cleans up and for the line that says how to continue."""
    process = os.getpid()

    def interrupt(number: int, _frame: object) -> None:
        if os.getpid() != process:  # a forked copy, which has nothing to save
            os._exit(128 + number)
        _signals.append(number)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


_signals: list[int] = []
"""That interrupted the command, beside Ctrl-C."""
_CONTINUED = {"demo": ["--resume"], "eval": [], "sample": [], "probe": [], "study": []}
"""Commands that continue where they were interrupted -> what is added to the same command."""


def _interrupted(arguments: Sequence[str]) -> tuple[str, int]:
    """Return the line and the status of a command that Ctrl-C or SIGTERM stopped."""
    line, command = "swerve: interrupted; what was written so far is kept", arguments[0] if arguments else ""
    if command in _CONTINUED:
        again = [*arguments, *(word for word in _CONTINUED[command] if word not in arguments)]
        line += f"; continue with: swerve {shlex.join(again)}"
    return line, 128 + (_signals or [signal.SIGINT])[-1]


def describe_failure(error: BaseException, *, debug: bool = False, arguments: Sequence[str] = ()) -> tuple[str, int]:
    """Return what to print on stderr and the exit status of a command; with `debug` the traceback comes first.

    There is no line where several processes work together and another one says it.

    >>> from swerve.errors import ConfigError
    >>> describe_failure(ConfigError("unknown recipe 'x'"))
    ("swerve: error: unknown recipe 'x'", 2)
    >>> describe_failure(KeyboardInterrupt(), arguments=["probe", "runs/x"])[0]
    'swerve: interrupted; what was written so far is kept; continue with: swerve probe runs/x'
    """
    line, status = _describe(error, arguments)
    trace = "".join(traceback.format_exception(error)) if debug else ""
    return trace + ("" if _is_said_by_another(error) else line), status


def _describe(error: BaseException, arguments: Sequence[str]) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return _interrupted(arguments)
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
