"""`swerve replay`: a run's training made once more from its recorded rollouts, as it was or with one thing changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from swerve.cli.completion import completed
from swerve.cli.options import Result
from swerve.errors import MismatchError

if TYPE_CHECKING:
    from swerve.artifacts.replays import Replays, Taught
    from swerve.train.certificate import Certificate


_LEAST_RANK = 0.5
"""Rank correlation with the first step below which no ranking is believed."""


def replay(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run directory, or a run's name under runs/.", **completed("runs"))
    ],
    meant: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Of a copied run: code and servers that it names and are meant."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="LABEL|STEP",
            help="Where to begin: a label, a stage, or a step of the last stage.  [default: the beginning]",
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without",
            metavar="group=N|kind=NAME",
            help="Leave a group of the first step out, or all groups of a kind of problem; repeatable, a replay each.",
        ),
    ] = None,
    flip: Annotated[
        list[str] | None,
        typer.Option(
            "--flip", metavar="GROUP.SAMPLE", help="Turn a verdict of the first step round; repeatable, a replay each."
        ),
    ] = None,
    flip_share: Annotated[
        float | None, typer.Option("--flip-share", metavar="P", help="Turn this share of all verdicts round.")
    ] = None,
    taught: Annotated[
        str | None,
        typer.Option(
            "--taught",
            metavar="first_wrong|solution",
            help="Which tokens of the steps up to --to taught this target; proved by removing sets of them.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the last stage; repeatable, one replay."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="STEP|+N", help="Last step of replays with a change.  [default: the run's]"),
    ] = None,
    rollouts: Annotated[
        str,
        typer.Option("--rollouts", metavar="recorded|again", help="What later steps learn from."),
    ] = "recorded",
    denominators: Annotated[
        str,
        typer.Option("--denominators", metavar="kept|own", help="By whose tokens a step without groups divides."),
    ] = "kept",
) -> Result:
    """Make a run's training once more from its recorded rollouts: as it was, or with one thing changed.

    As it was, every checkpoint is compared, without an engine, and nothing is written. The first one whose weights do
    not come out bit for bit, or before which the rollouts are not what the metrics were made of, is named, with what
    could have changed; the exit status is 1 then.

    With a change, what differs after each step is caused by it: it is shown beside what rounding makes, and where
    rollouts are sampled again, beside what other seeds make. It is kept in the run's replay/; an interrupted command
    continues when it is given again.

    Examples:
      swerve replay demo-addition
      swerve replay demo-addition --from dpo
      swerve replay demo-addition --from 20 --without group=3 --without "kind=2 carries"
      swerve replay demo-addition --from 1 --taught first_wrong --to 20
      swerve replay demo-addition --from 20 --set kl.kind=loss --set kl.coef=0.1 --rollouts again --to +20
    """
    from swerve.artifacts.replays import Replays, Taught
    from swerve.cli.console import main_progress
    from swerve.door.replay import replay_run

    asked = {
        "without": without or (),
        "flip": flip or (),
        "flip_share": flip_share,
        "settings": settings or (),
        "rollouts": rollouts,
        "denominators": denominators,
    }
    found = replay_run(run, meant or (), asked, taught=taught, start=start, to=to, progress=main_progress())
    if isinstance(found, Taught):
        return Result(found, _taught_text(found))
    return Result(found, _text(found)) if isinstance(found, Replays) else _certified(run, found)


def _certified(run: str, certificate: Certificate) -> Result:
    from dataclasses import asdict

    different = certificate.first_difference
    value = {**asdict(certificate), "first_difference": None if different is None else different.label}
    error = None if different is None else MismatchError(f"{run}: {different.label} is not what its rollouts give")
    return Result(value, str(certificate), error)


def _text(replays: Replays) -> str:
    """Return the differences at each step that was measured, and what they are to be compared with."""
    from swerve.cli.text import safe, table
    from swerve.text import number

    steps = sorted({row.step for row in replays.rows})
    cells = {(row.replay, row.target, row.step): row for row in replays.rows}
    lines = [("REPLAY", "TARGET", *(f"+{step - replays.start}" for step in steps), "UP TO")]
    for name in replays.replays:
        for target in replays.floor:
            values = [number(cells[name, target, step].difference, 2, signed=True) for step in steps]
            horizon = replays.horizons[name][target]
            lines.append((safe(name), target, *values, "-" if horizon is None else f"{replays.stage}-{horizon}"))
    said = [
        f"{replays.stage}-{replays.start} to {replays.stage}-{replays.stop}, rollouts {replays.rollouts}; differences "
        "from the unchanged replay, by steps after the change",
        table(lines, are_numbers=True),
        "rounding alone: " + ", ".join(f"{target} {number(value, 2)}" for target, value in replays.floor.items()),
    ]
    if replays.spread:
        spread = ", ".join(f"{target} {number(value, 2)}" for target, value in replays.spread.items())
        said.append(f"other seeds alone, the largest of three: {spread}")
    for name, lost in replays.steps_lost.items():
        # Of single verdicts and groups it would be chance.
        known = [f"{target} {number(steps, 2)}" for target, steps in lost.items() if steps is not None]
        if name.startswith("flip share") and known:
            said.append(f"steps lost by {safe(name)}: {', '.join(known)}")
    for target, ranks in replays.ranks.items():
        unbelieved = (step for step, rank in ranks.items() if rank is None or rank < _LEAST_RANK)
        last = next(unbelieved, replays.stop)
        held = ", ".join(f"+{step - replays.start} {number(rank, 2)}" for step, rank in ranks.items() if step <= last)
        beyond = "; no ranking beyond" if last < replays.stop else ""
        said.append(f"rank correlation with the first step, {target}: {held}{beyond}")
    return "\n".join(said)


def _taught_text(taught: Taught) -> str:
    """Return who taught a target, where the estimates do not hold, and the proof."""
    from swerve.cli.text import safe, table
    from swerve.text import counted, listed, number, percent

    def effect(value: float) -> str:
        return number(value, 2, signed=True)

    groups = [(f"step {one.step}, group {one.group}", effect(one.effect)) for one in taught.groups]
    words = [(repr(safe(one.token)), f"{one.num:,}", percent(one.share)) for one in taught.words]
    removed = [(name, effect(taught.difference(name))) for name in taught.proof.replays]
    wrong = [str(step.step) for step in taught.steps if not step.holds]
    lines = [
        f"effects on {taught.target}, nats, of {taught.num_tokens:,} tokens of {counted(len(taught.steps), 'step')}",
        table([("GROUP", "EFFECT"), *groups], are_numbers=True),
        table([("TOKEN", "TIMES", "SHARE OF EFFECT"), *words], are_numbers=True),
        table([(f"WITHOUT {taught.num_removed:,} TOKENS", "DIFFERENCE"), *removed], are_numbers=True),
        f"rounding alone: {number(taught.proof.floor[taught.target], 2)}",
    ]
    if wrong:
        lines.append(f"the estimates do not hold at step {listed(wrong)}: only removal counts there")
    return "\n".join(lines)
