"""`swerve serve`: the vLLM server that a recipe needs."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from swerve.cli.console import print_message, print_text
from swerve.cli.options import Overrides, Recipe
from swerve.errors import ConfigError


def serve(
    recipe: Recipe,
    overrides: Overrides = None,
    run: Annotated[
        bool, typer.Option("--run", help="Start the server, say when it is ready, and stop it on Ctrl-C.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", min=1, max=65535, help="Port of the server.  [default: of the recipe, or 8000]"
        ),
    ] = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", metavar="N[,N]...", help="GPUs to use; the model is split over several.")
    ] = None,
) -> None:
    """Print the command of the vLLM server that a recipe samples with.

    Options after `--` go to vLLM. The server listens on this machine only: the developer mode that new weights need has
    no authentication.

    Examples:
      swerve serve gsm8k model.path=models/base --run
      swerve serve gsm8k --gpus 0,1
    """
    from swerve.recipes import load_config

    given = list(overrides or ())
    first = next((place for place, argument in enumerate(given) if argument.startswith("-")), len(given))
    devices = [] if gpus is None else gpus.split(",")
    if not all(device.isdigit() for device in devices):
        raise ConfigError(f"--gpus {gpus!r} is not a list of numbers such as 0,1")
    config = load_config(recipe, given[:first])
    from swerve.rollout.recipe_server import plan_server, run_server

    plan, note = plan_server(config, given[first:], port=port, devices=devices, is_here=run)

    # What training is told, and what whoever starts it has to know.
    more = " rollout.engine.weights=transfer" if "--weight-transfer-config" in plan.options else ""
    keys = (
        f"swerve: train with rollout.engine.kind=server rollout.engine.urls={plan.url}{more}; whoever reaches this "
        "port can run any method of the server, which has no authentication\n"
    )
    if run:
        run_server(plan, keys)
        return
    variables = [f"{name}={shlex.quote(value)}" for name, value in plan.environment.items()]
    print_text(" ".join([*variables, shlex.join(plan.command(sys.executable if plan.on_cpu else None))]))
    print_message(f"swerve: {note}\n{keys}" if note else keys)
