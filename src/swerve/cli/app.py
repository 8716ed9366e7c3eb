"""The command `swerve`: what it accepts. What it does is in the other modules, imported when a command runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from swerve import __version__
from swerve.cli.data_app import data_app

__all__ = ["app", "main"]

app = typer.Typer(
    name="swerve",
    help="Train language models with verifiable rewards and see, token by token, what the training changed.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted.",
)
recipes_app = typer.Typer(help="Recipes that ship with swerve.", invoke_without_command=True)
config_app = typer.Typer(help="Look at a configuration without running it.", no_args_is_help=True)
app.add_typer(recipes_app, name="recipes")
app.add_typer(config_app, name="config")
bench_app = typer.Typer(help="Audits of methods, by measurement.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")
app.add_typer(data_app, name="data")

Recipe = Annotated[str, typer.Argument(metavar="RECIPE", help="Path of a YAML file, or the name of a shipped recipe.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="Run directory, or its name under runs/.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the recipe, such as seed=1 or stages.rl.steps=40."),
]
StageOverrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Changes under eval., probe., report. or runtime."),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Run directory.  [default: runs/NAME]")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run from its last checkpoint.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]


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
    from swerve.cli.stages import run_demo

    run_demo(overrides or (), out=out, resume=resume, as_json=as_json)


@app.command()
def train(
    recipe: Recipe, overrides: Overrides = None, out: Out = None, resume: Resume = False, as_json: Json = False
) -> None:
    """Train the stages of a recipe; with --resume, RECIPE may be the run directory."""
    from swerve.cli.stages import run_train

    run_train(recipe, overrides or (), out=out, resume=resume, as_json=as_json)


@app.command(name="eval")
def evaluate(run: Run, overrides: StageOverrides = None, as_json: Json = False) -> None:
    """Measure every checkpoint of a run on held-out problems."""
    from swerve.cli.stages import run_eval

    run_eval(run, overrides or (), as_json=as_json)


@app.command()
def probe(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Run directory, or its name under runs/.", show_default=False)
    ] = None,
    overrides: StageOverrides = None,
    use_responses: Annotated[
        Path | None,
        typer.Option(
            "--use-responses",
            metavar="FILE",
            help="Probe these responses: JSON {problem_id: {response, ...}}, JSONL(.gz) or Parquet.",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="MODEL",
            help="What checkpoints are compared with: a folder, RUN:LABEL, owner/name#revision, or a label of RUN.",
        ),
    ] = None,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option("--checkpoint", metavar="[NAME=]MODEL", help="A model to compare; several in order of training."),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="MODEL", help="A model from before the reference."),
    ] = None,
    problems: Annotated[
        Path | None,
        typer.Option(
            "--problems", metavar="FILE", help="Problems by id, for responses that do not bring their own prompt."
        ),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="NAME=FIELD", help="What FILE calls a field, such as response=completion."),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--template",
            metavar="auto|raw",
            help="auto: the tokenizer's chat template around problems, if it has one.  [default: auto]",
        ),
    ] = None,
    ends: Annotated[
        str | None,
        typer.Option(
            "--ends", metavar="none|eos", help="eos: add the end-of-sequence token to responses.  [default: none]"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where to write.  [default: probe-FILE, in RUN if given]"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the tokens that training changed, and test whether they matter.

    RUN alone: on the run's own rollouts. With --use-responses: on responses from elsewhere, with any models.
    """
    from swerve.cli.probe_models import ProbeOptions, run_probe_command

    options = ProbeOptions(
        use_responses=use_responses,
        reference=reference,
        checkpoints=tuple(checkpoint or ()),
        baseline=baseline,
        problems=problems,
        fields=tuple(field or ()),
        template=template,
        ends=ends,
        out=out,
    )
    run_probe_command(run, overrides or (), options, as_json=as_json)


@app.command()
def grade(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE [KEY=VALUE]...",
            help="JSON, JSONL, CSV (each also .gz) or Parquet; policies of the grader, such as extraction=hash.",
        ),
    ],
    task: Annotated[
        str | None, typer.Option("--task", metavar="KIND", help="The grader: math, gsm8k, k_and_k, palindrome, ...")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where the verdicts go, as JSONL.  [default: stdout]")
    ] = None,
    audits: Annotated[
        list[str] | None,
        typer.Option("--audit", metavar="FIELD", help="Compare with the verdicts recorded in a field; repeatable."),
    ] = None,
    disagreements: Annotated[
        Path | None, typer.Option("--disagreements", metavar="FILE", help="Write every disagreement, as JSONL.")
    ] = None,
    problems: Annotated[
        Path | None,
        typer.Option("--problems", metavar="FILE", help="Problems by id, for records without a gold answer."),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="NAME=FIELD", help="What FILE calls a field, such as gold=target."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", help="Processes that grade.  [default: one a core]")
    ] = None,
    cpu_seconds: Annotated[
        float | None, typer.Option("--cpu-seconds", metavar="S", help="CPU time for one answer.  [default: 2]")
    ] = None,
    memory_mb: Annotated[
        int | None, typer.Option("--memory-mb", metavar="N", help="Memory for one answer, MiB.  [default: 1024]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON instead of the verdicts.")] = False,
) -> None:
    """Grade the answers of a file; interrupted with --out, the same command goes on where it stopped."""
    from swerve.cli.grade import GradeOptions, run_grade

    options = GradeOptions(
        task=task,
        out=out,
        audits=tuple(audits or ()),
        disagreements=disagreements,
        problems=problems,
        fields=tuple(field or ()),
        workers=workers,
        cpu_seconds=cpu_seconds,
        memory_mb=memory_mb,
    )
    run_grade(arguments, options, as_json=as_json)


@app.command()
def report(run: Run, overrides: StageOverrides = None, as_json: Json = False) -> None:
    """Write the report of a run: one page that works offline, and figures."""
    from swerve.cli.stages import run_report

    run_report(run, overrides or (), as_json=as_json)


@app.command()
def runs(
    directory: Annotated[Path, typer.Option("--dir", metavar="DIR", help="Where to look.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List runs: name, status, stages and last step."""
    from swerve.cli.listing import list_runs

    list_runs(directory, as_json=as_json)


@recipes_app.callback()
def recipes(context: typer.Context, as_json: Json = False) -> None:
    """List the recipes that ship with swerve, or show one."""
    if context.invoked_subcommand is None:
        from swerve.cli.listing import list_recipes

        list_recipes(as_json=as_json)


@recipes_app.command(name="show")
def recipes_show(name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Print a recipe as it is written, comments included."""
    from swerve.cli.listing import show_recipe

    show_recipe(name)


@config_app.command(name="show")
def config_show(recipe: Recipe, overrides: Overrides = None, as_json: Json = False) -> None:
    """Print the resolved configuration, defaults included."""
    from swerve.cli.listing import show_config

    show_config(recipe, overrides or (), as_json=as_json)


@config_app.command(name="check")
def config_check(recipe: Recipe, overrides: Overrides = None, as_json: Json = False) -> None:
    """Say whether a recipe is valid."""
    from swerve.cli.listing import check_config

    check_config(recipe, overrides or (), as_json=as_json)


@config_app.command(name="schema")
def config_schema() -> None:
    """Print the JSON schema of recipes."""
    from swerve.cli.listing import show_schema

    show_schema()


@bench_app.command(name="estimators")
def bench_estimators(
    rollouts: Annotated[
        Path, typer.Option("--rollouts", metavar="FILE", help="Rollouts table of a run (.parquet), or JSONL.")
    ],
    checkpoint: Annotated[str, typer.Option("--checkpoint", metavar="CKPT", help="The policy: a folder or RUN:LABEL.")],
    reference: Annotated[str, typer.Option("--reference", metavar="CKPT", help="The reference, likewise.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where to write.  [default: RUN/estimators]")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="Completion tokens to use.  [default: all]")
    ] = None,
    temperature: Annotated[float, typer.Option("--temperature", metavar="T", help="Divides the logits of both.")] = 1.0,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="NAME", help="Of the weights: float32, float64, bfloat16.")
    ] = "float32",
    as_json: Json = False,
) -> None:
    """Compare estimators of KL with the exact one: value, bias, variance and gradient."""
    from swerve.cli.bench import AuditSettings, run_estimators

    settings = AuditSettings(max_tokens=max_tokens, temperature=temperature, device=device, dtype=dtype)
    run_estimators(rollouts, checkpoint=checkpoint, reference=reference, out=out, settings=settings, as_json=as_json)


def _run(arguments: Sequence[str]) -> int:
    status = app(list(arguments), prog_name="swerve", standalone_mode=False)
    return status if isinstance(status, int) else 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (`sys.argv` by default) and exit with its status.

    `--debug` is understood anywhere. A reader that closes the pipe ends the command quietly.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
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
        from swerve.cli.failures import describe_failure

        line, status = describe_failure(error, debug=debug)
        sys.stderr.write(line + "\n")
    else:
        if status == 130:  # some versions of typer turn Ctrl-C into a status themselves
            from swerve.cli.failures import interrupted

            sys.stderr.write(interrupted()[0] + "\n")
    raise SystemExit(status)
