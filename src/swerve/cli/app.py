"""The command `swerve`: its commands, and one line on stderr for whatever stops one.

The stages are imported when a command runs, so that the command line answers at once.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import resource
import shlex
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import typer

from swerve.cli import STOPPING
from swerve.cli.behaviours import behaviours
from swerve.cli.bench import bench_estimators
from swerve.cli.claim import claim
from swerve.cli.console import MessageFormatter, set_quiet
from swerve.cli.data import list_tasks, show_problems, write_problems
from swerve.cli.data_export import export
from swerve.cli.data_import import import_rollouts
from swerve.cli.data_select import select
from swerve.cli.eval_command import evaluate
from swerve.cli.grade import grade
from swerve.cli.listing import check_config, list_runs, recipes_app, show_config, show_recipe, show_schema
from swerve.cli.options import PlainCommand, ResultCommand
from swerve.cli.pipeline import demo, export_checkpoint, report, train
from swerve.cli.plan import PLANS, plan_class, plan_help
from swerve.cli.probe_command import probe
from swerve.cli.replay_command import replay
from swerve.cli.sample import sample
from swerve.cli.serve import serve
from swerve.cli.study_command import study
from swerve.cli.view import view
from swerve.errors import (
    ArtifactError,
    ConfigError,
    InterruptedRunError,
    ProblemsError,
    QuietExit,
    StalledProcessError,
    SwerveError,
    UnknownKeyError,
    printable,
    redacted,
    refused,
    system_fault,
)
from swerve.progress import message_line, one_line
from swerve.version import __version__

app = typer.Typer(
    name="swerve",
    help="Train language models with verifiable rewards and see, token by token, what the training changed.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit status: 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted.",
)

_ANYWHERE = ("--debug", "--quiet")
"""Options of every command, wherever they stand."""
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
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress and no notes: results and errors.")] = False,
) -> None:
    pass


_COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": demo,
    "train": train,
    "eval": evaluate,
    "sample": sample,
    "probe": probe,
    "claim": claim,
    "grade": grade,
    "study": study,
    "serve": serve,
    "export": export_checkpoint,
    "replay": replay,
    "report": report,
    "view": view,
    "runs": list_runs,
    "recipes show": show_recipe,
    "config show": show_config,
    "config check": check_config,
    "config schema": show_schema,
    "bench estimators": bench_estimators,
    "data list": list_tasks,
    "data show": show_problems,
    "data write": write_problems,
    "data import": import_rollouts,
    "data select": select,
    "data export": export,
    "data behaviours": behaviours,
}
_SAME = {"evaluate": ["eval"], "tasks": ["data", "list"]}
"""Functions of Python, and the commands that they are."""
_GROUPS = {"recipes": recipes_app} | {
    name: typer.Typer(help=text, rich_markup_mode=None)
    for name, text in (
        ("config", "Look at a configuration without running it."),
        ("bench", "Audits of methods, by measurement."),
        ("data", "Tasks and their problems, and rollouts of other programs."),
        ("plan", "Say what a command takes before it is paid: memory, disk, tokens and hours."),
    )
}
for _words, _command in _COMMANDS.items():
    _group, _, _name = _words.rpartition(" ")
    _class = ResultCommand if "Result" in _command.__annotations__["return"] else PlainCommand
    _GROUPS.get(_group, app).command(name=_name, cls=getattr(_command, "command_class", _class))(_command)
for _name, _planned in ((_name, _COMMANDS[_name]) for _name in PLANS):
    _GROUPS["plan"].command(name=_name, cls=plan_class(_planned), help=plan_help(_name))(_planned)
for _name, _group_app in _GROUPS.items():
    app.add_typer(_group_app, name=_name)


@cache
def _built() -> Any:
    return typer.main.get_command(app)  # .1 s


def run_command(arguments: Sequence[str]) -> int:
    """Run a command in this process; return its exit status. An option that others have is read as what it is here."""
    first = next((place for place, word in enumerate(arguments) if not word.startswith("-")), None)
    if first is not None and arguments[first] in _SAME:
        arguments = [*arguments[:first], *_SAME[arguments[first]], *arguments[first + 1 :]]
    try:
        status = _built().main(list(arguments), prog_name="swerve", standalone_mode=False)
    except _UsageError as error:
        option, command = getattr(error, "option_name", None), _named(arguments)  # of an option that there is not
        if option is None or command is None:
            raise
        from swerve.cli.hints import taken_as

        own = taken_as(command, arguments, option)
        if own is None:
            raise
        return run_command(own)
    return status if isinstance(status, int) else 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (`sys.argv` by default) and exit with its status.

    `--debug` and `--quiet` are understood anywhere before `--`. A reader that closes the pipe ends the command quietly.
    """
    given, status = list(sys.argv[1:] if arguments is None else arguments), 1
    if arguments is None:
        atexit.register(lambda: _leave(status))  # before others register theirs, so that it is called after them
        _interrupt_on_signals()
        (logging.lastResort or logging.StreamHandler()).setFormatter(MessageFormatter())
        warnings.formatwarning = _warning
    end = given.index("--") if "--" in given else len(given)
    debug, quiet = (option in given[:end] for option in _ANYWHERE)
    rest = [argument for argument in given[:end] if argument not in _ANYWHERE] + given[end:]
    set_quiet(quiet)
    if not rest or rest in [[name] for name in _GROUPS if name != "recipes"]:  # a group without a command
        rest.append("--help")
    try:
        status = run_command(rest)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout again at exit; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (Exception, KeyboardInterrupt) as error:
        _leave_nothing()
        # A library may make an error of its own of what interrupts it, as one that is being imported does.
        is_known = not _signals or isinstance(error, KeyboardInterrupt | SwerveError | typer.Abort)
        words = ["--quiet"] * quiet + rest
        line, status = describe_failure(error if is_known else KeyboardInterrupt(), debug=debug, arguments=words)
        if line and _is_other_process() and not isinstance(error, StalledProcessError):
            time.sleep(_FIRST_WORD_SECONDS)
        _say(line)
    else:
        if status == 130:  # some versions of typer turn Ctrl-C into a status themselves
            line, status = _interrupted(["--quiet"] * quiet + rest, KeyboardInterrupt())
            _say(line)
    raise SystemExit(status)


def _leave_nothing() -> None:
    if "swerve.artifacts.parts" in sys.modules:  # else nothing was begun
        from swerve.artifacts.parts import leave_nothing

        with contextlib.suppress(OSError):  # what kept the command from its work keeps it from this, too
            leave_nothing()


def _say(line: str) -> None:
    try:
        sys.stderr.write(f"{line}\n" if line else "")
        sys.stderr.flush()
    except OSError:  # the terminal is gone, and Python flushes again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> str:
    return printable(redacted(_python_warning(message, category, *place, **more)))


_python_warning = warnings.formatwarning


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


def _interrupt_on_signals() -> None:
    """Treat SIGTERM, SIGHUP and SIGXCPU like Ctrl-C, for what cleans up and for the line that says how to continue."""
    process = os.getpid()

    def interrupt(number: int, _frame: object) -> None:
        if os.getpid() != process:  # a forked copy, which has nothing to save
            os._exit(128 + number)
        is_again = number == signal.SIGXCPU and number in _signals  # it comes every second
        _signals.append(number)
        if not is_again:
            raise KeyboardInterrupt

    for number in STOPPING:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt)

    # At the hard limit nothing can be said any more.
    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    if soft == hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_CPU, (max(1, hard - _LAST_CPU_SECONDS), hard))


_signals: list[int] = []
"""That interrupted the command."""
_LAST_CPU_SECONDS = 2
"""Before a limit of CPU time, for what is to be saved and said."""


def _interrupted(arguments: Sequence[str], error: BaseException) -> tuple[str, int]:
    """Return the line and the status of a command that a signal stopped."""
    line, status = "interrupted", 128 + (_signals or [signal.SIGINT])[-1]
    if signal.SIGXCPU in _signals:
        line = "interrupted by the CPU time limit of the shell or job (ulimit -t)"

    # Some work says itself what is kept of it; within a demo the whole is continued.
    continued = _continued(arguments)
    if isinstance(error, InterruptedRunError):
        status = status if _signals else error.exit_status
        if "demo" not in arguments[:2]:
            line, continued = one_line(str(error)), continued.rpartition("; ")[2]
    if continued and "continue with" not in line:
        line += f"; {continued}"
    return f"swerve: {line}", status


def _continued(arguments: Sequence[str]) -> str:
    """Return how a command is continued; nothing where the words are of none."""
    command = _named(arguments)
    return "" if command is None else command.continued(arguments)


def _named(arguments: Sequence[str]) -> PlainCommand | None:
    """Return the command that a command line names; None where it names none."""
    command = _built()
    for word in arguments:
        command = getattr(command, "commands", {}).get(word, command)
    return command if isinstance(command, PlainCommand) else None


def describe_failure(error: BaseException, *, debug: bool = False, arguments: Sequence[str] = ()) -> tuple[str, int]:
    """Return what to print on stderr and the exit status of a command; with `debug` the traceback comes first.

    There is no line where several processes work together and another one says it.

    >>> from swerve.errors import ConfigError
    >>> describe_failure(ConfigError("unknown recipe 'x'"))
    ("swerve: error: unknown recipe 'x'", 2)
    >>> describe_failure(KeyboardInterrupt(), arguments=["probe", "runs/x"])[0]
    'swerve: interrupted; what was written so far is kept; continue with: swerve probe runs/x'
    >>> describe_failure(InterruptedRunError("interrupted; 1 of 2 done", signal_number=2), arguments=["study", "x"])
    ('swerve: interrupted; 1 of 2 done; continue with: swerve study x', 130)
    """
    line, status = _describe(error, arguments)
    trace = "".join(traceback.format_exception(error)) if debug else ""
    said = "" if _is_said_by_another(error) else redacted(line)
    return printable(redacted(trace, quoted=True) + said), status


def _describe(error: BaseException, arguments: Sequence[str]) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt | typer.Abort | InterruptedRunError):
        return _interrupted(arguments, error)
    if isinstance(error, ProblemsError):
        return "swerve: error: " + "\n  ".join(map(one_line, error.lines)), error.exit_status
    if isinstance(error, SwerveError):
        return f"swerve: error: {one_line(_hinted(error, arguments))}", error.exit_status
    if isinstance(error, _UsageError):
        return f"swerve: error: {_usage(error, arguments)}", 2
    if isinstance(error, OSError) and (known := refused(error)) is not None:
        return f"swerve: error: {one_line(str(known))}", 1
    is_of_torch = type(error).__name__ == "OutOfMemoryError"  # which is not imported
    if fault := "out of memory" if is_of_torch else system_fault(error):
        hint = "; swerve config check RECIPE predicts it" if fault == "out of memory" else ""
        said = "" if isinstance(error, OSError) or not str(error) else f": {error}"
        return f"swerve: error: {one_line(fault + said)}{hint}", 1
    from swerve.recipes.custom import custom_place

    text = message_line(f"{type(error).__name__}: {error}", quoted=True)
    place = custom_place(error)
    if isinstance(error, OSError) and place is None and str(error):  # a library's, which says what and where in words
        return f"swerve: error: {message_line(str(error), quoted=True)}", 1
    return f"swerve: {f'error in {place}' if place else 'internal error'}: {text}; run again with --debug", 1


def _hinted(error: SwerveError, arguments: Sequence[str]) -> str:
    """Return a message; one about a key with the option that it is, one about a model as a run with the right form."""
    command = _named(arguments)
    if command is None or not isinstance(error, ConfigError | ArtifactError):
        return str(error)
    from swerve.cli.hints import models_in_place_of_run, with_option_meant

    if form := models_in_place_of_run(command, arguments):
        return form
    return with_option_meant(command, arguments, error) if isinstance(error, UnknownKeyError) else str(error)


def _usage(error: Exception, arguments: Sequence[str]) -> str:
    message = one_line(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
    context, command = getattr(error, "ctx", None), _named(arguments)
    option = getattr(error, "option_name", None)  # of one that there is not
    if option is not None and command is not None:
        from swerve.cli.hints import meant_by_option, models_in_place_of_run

        if form := models_in_place_of_run(command, arguments):
            return form
        if meant := meant_by_option(command, arguments, option):
            message = message.partition(" (Possible options")[0] + meant
    named = next((word for word in arguments if not word.startswith("-")), "")
    if command is None and named == "plan":
        from swerve.cli.hints import with_plan_meant

        message = with_plan_meant(arguments, message)
    if command is None and named not in ("", "plan", "help"):
        from swerve.cli.hints import command_meant

        if meant := command_meant(arguments):
            message = message.partition(". Did you mean")[0] + meant
    if command is not None and option is None:
        from swerve.cli.hints import out_meant

        message += out_meant(command, arguments)
    if named == "help":
        words = [word for word in arguments[arguments.index("help") + 1 :] if not word.startswith("-")]
        message = f"{message}; it is an option: {shlex.join(['swerve', *words, '--help'])}"
    return f"{message}; see: {context.command_path} --help" if context is not None else message
