"""`swerve plan`: what a command takes, said before it is paid; with the command's own arguments."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from swerve.cli.options import Result, ResultCommand, options_of
from swerve.cli.text import table, wrapped
from swerve.errors import SwerveError

if TYPE_CHECKING:
    from swerve.plan.budget import Budget

_PLAN = "swerve.plan"
"""Key of a command's context: the options of `swerve plan`."""
PLANS: Mapping[str, str] = {
    "train": "swerve plan train spo_gsm8k profile=paper model.path=models/qwen3-4b --memory 80",
    "study": "swerve plan study kl_study profile=paper model.path=models/qwen --memory 80",
    "sample": "swerve plan sample models/base --task gsm8k --out base.parquet",
    "eval": "swerve plan eval --model base=models/base --model rl=mine:rl-80 --task gsm8k",
    "probe": "swerve plan probe rl_probe --measure",
    "claim": "swerve plan claim models/base mine:rl-80 --task gsm8k",
}
"""Commands that can be planned -> an example."""
Memory = Annotated[
    float | None,
    typer.Option(
        "--memory",
        metavar="GB",
        min=0.001,
        max=1e6,
        help="Memory of another machine's device; the packages and the disk of this machine are then not checked.  "
        "[default: this machine's]",
    ),
]
Processes = Annotated[
    int,
    typer.Option(
        "--processes", metavar="N", min=1, max=4096, help="Processes that torchrun will start, one device each."
    ),
]


Measures = Annotated[
    bool,
    typer.Option(
        "--measure",
        help="Measure the rates behind the hours on this machine: some seconds with random weights of the model's "
        "shapes, two layers.",
    ),
]


class Planning(NamedTuple):
    """What a plan is for."""

    memory_gb: float | None
    """Of another machine's device; None: this machine's."""
    processes: int
    """That work together, one device each."""
    measures: bool
    """Whether rates are measured here."""


class PlanCommand(ResultCommand):
    """A command that says what it would take, and does nothing; the command asks `asked_plan`."""

    @cached_property
    def _planning(self) -> list[Any]:
        kinds = {
            "plan_memory": (Memory, None), "plan_processes": (Processes, 1), "plan_measures": (Measures, False)
        }  # fmt: skip
        kind = inspect.Parameter.KEYWORD_ONLY
        return options_of(
            *(inspect.Parameter(name, kind, default=own, annotation=said) for name, (said, own) in kinds.items())
        )

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the command's own arguments and options, and those of a plan."""
        *own, help_option = super().get_params(ctx)
        taken = {option for param in own for option in param.opts}
        return [*own, *(param for param in self._planning if param.opts[0] not in taken), help_option]

    def continued(self, given: Sequence[str]) -> str:
        """Return how the plan is made again: nothing of it is kept."""
        return f"it begins anew, and leaves nothing half done; continue with: {shlex.join(['swerve', *given])}"

    def invoke(self, ctx: Any) -> None:
        """Tell the command that it is only planned."""
        memory, processes, measures = (ctx.params.pop(param.name, None) for param in self._planning)
        ctx.meta[_PLAN] = Planning(memory or ctx.params.get("memory"), processes or 1, bool(measures))
        super().invoke(ctx)


def plan_class(command: Any) -> type[PlanCommand]:
    """Return the class of the command that plans another one."""
    own = getattr(command, "command_class", ResultCommand)
    return type("Planned", (PlanCommand, own), {})


def plan_help(name: str) -> str:
    """Return the help of the command that plans another one."""
    return (
        f"Say what `swerve {name}` would take: memory by place, disk, tokens and hours. It has the same arguments."
        f"\n\nExamples:\n  {PLANS[name]}"
    )


def asked_plan(context: typer.Context) -> Planning | None:
    """Return what a plan is for where the command is only planned, else None."""
    planning: Planning | None = context.meta.get(_PLAN)
    return planning


def planned(budget: Budget) -> Result:
    """Return a plan as a command's result, with the refusal where it cannot fit."""
    error = None
    try:
        budget.check()
    except SwerveError as refused:
        error = refused
    return Result(budget.record(), budget_text(budget), error)


def budget_text(budget: Budget) -> str:
    """Return a plan as a table, and what its figures leave out."""
    rows = [("WHAT", "HOW MUCH", "OF WHAT"), *budget.rows()]
    return "\n".join([table(rows), *map(wrapped, budget.notes)])
