"""`swerve claim`: what RL changed, in one command and one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from swerve.cli import sample
from swerve.cli.completion import completed
from swerve.cli.options import Result, ShardOption, given_settings, given_shard, with_settings


@with_settings(
    "swerve.config.claim:ClaimSettings",
    {**sample.SAMPLING, "some": "--some N", "margin": "--margin SHARE", "study": "--study DIR"},
)
def claim(
    context: typer.Context,
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]BASE [NAME=]RL [KEY=VALUE]...",
            help="The model before and the model after (a folder, RUN:LABEL, owner/name#revision), or a .parquet file "
            "of samples of each; keys of the task, such as 'levels=[3, 4]'.",
            **completed("models"),
        ),
    ],
    task: sample.TaskOption = None,
    data: sample.Data = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Card, page and samples.")] = Path("claim"),
    share: ShardOption = None,
) -> Result | None:
    """Measure what RL changed from one model to another: accuracy, what the base could do, format, weights and more.

    Examples:
      swerve claim models/base mine:rl-80 --task gsm8k
      swerve claim base.parquet rl.parquet
    """
    from swerve.claim.card import costs_said, write_card
    from swerve.claim.sides import given_side, settings_of_files
    from swerve.cli.runs import main_progress
    from swerve.config.claim import ClaimSettings

    shard = given_shard(context, share)
    named, changes = sample.split_arguments(arguments, task)
    base, trained = (given_side(label, text) for label, text in zip(("base", "rl"), named, strict=True))
    if base.samples and trained.samples:
        settings = settings_of_files([base, trained])
    else:
        settings = sample.sample_settings(ClaimSettings, task, data, changes, given_settings(context))
    progress = main_progress()
    if said := costs_said(settings, settings.limit or 0):
        progress.note(said)
    card = write_card(base, trained, settings, out=out, shard=shard, progress=progress)
    if card is None:
        return None
    lines = [verdict.sentence for verdict in card.verdicts]
    return Result(card, "\n".join([*lines, f"Card: {out / 'index.html'}"]))
