"""`swerve claim`: what RL changed, in one command and one page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from swerve.cli import sample
from swerve.cli.completion import completed
from swerve.cli.options import Fields, PartsFrom, Result, ShardOption, given_settings, given_shard, with_settings
from swerve.cli.text import wrapped
from swerve.errors import ConfigError

_OPTIONS = {
    **sample.SAMPLING,
    "parts": "--parts PART[,PART]... all",
    "some": "--some N",
    "texts": "--text FILE",
    "ranks": "--ranks R[,R]... 1,2,4,8,16",
    "directions": "--directions N",
    "margin": "--margin SHARE",
    "common": "--common",
    "study": "--study DIR",
}


@with_settings("swerve.claim.settings:ClaimSettings", _OPTIONS)
def claim(
    context: typer.Context,
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]BASE [NAME=]RL... [KEY=VALUE]...",
            help="The model before and the model after (a folder, RUN:LABEL, owner/name#revision), or a file of "
            "graded responses of each; several after are runs of one training, further files with the "
            "NAME of the first the base under other prompts; keys of the task, such as 'levels=[3, 4]'.",
            **completed("models"),
        ),
    ],
    task: sample.TaskOption = None,
    data: sample.Data = None,
    others: Annotated[
        list[str] | None,
        typer.Option("--other", metavar="TASK", help="Another task, before and after, with its keys; repeatable."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Card, page and samples.")] = Path("claim"),
    share: ShardOption = None,
    parts_from: PartsFrom = None,
    costs: Annotated[bool, typer.Option("--costs", help="Say what it would cost, and stop.")] = False,
    fields: Fields = None,
    figures: Annotated[
        bool, typer.Option("--figures", help="Write plots and tables for papers to DIR/figures.")
    ] = False,
) -> Result | None:
    """Measure what RL changed from one model to another: accuracy, what the base could do, format, weights and more.

    Every claim stands with its interval, and with how often a card of two equal models shows it. The page is
    DIR/index.html. After an interruption the same command continues; with other --parts it adds to the card.

    Examples:
      swerve claim models/base mine:rl-80 --task gsm8k --num-samples 64
      swerve claim base.parquet rl.parquet
      swerve claim base.jsonl rl-seed0.jsonl rl-seed1.jsonl rl-seed2.jsonl
      swerve claim base=base.jsonl base=base-fewshot.jsonl rl.jsonl
      swerve claim models/base mine:rl-80 --task gsm8k --parts accuracy,weights --costs
    """
    from swerve.claim.card import write_card
    from swerve.claim.costs import costs_said
    from swerve.claim.settings import ClaimSettings
    from swerve.claim.sides import given_sides, settings_of_files
    from swerve.cli.data import load_task
    from swerve.cli.runs import main_progress
    from swerve.eval.sampling import chosen_problems
    from swerve.formats.typed_fields import parse_fields
    from swerve.recipes.layers import parse_override

    shard, progress = given_shard(context, share, parts_from), main_progress()
    named, changes = sample.split_arguments(arguments, task)
    sides, given = given_sides(named, fields=parse_fields(fields or ())), given_settings(context)
    for key in given.keys() & {"parts", "ranks"}:
        words = parse_override(f"{key}=[{','.join(given[key].value)}]").value
        given[key] = replace(given[key], value=words)

    # Files have their problems and samples; models are sampled from.
    if sides[0].samples:
        if (
            task
            or data
            or others
            or shard.is_divided
            or changes
            or costs
            or given.keys() - {"parts", "common", "study"}
        ):
            raise ConfigError(
                "two files have their task and their samples: beside them give --parts, --common, --field, --study, "
                "--out and --figures"
            )
        settings = settings_of_files(sides, given.values())
    else:
        tasks = [load_task(name, keys)[0].model_dump(mode="json") for name, *keys in map(str.split, others or ())]
        settings = sample.sample_settings(ClaimSettings, task, data, changes, {"others": tasks, **given})
        lines = costs_said(
            settings, len(chosen_problems(settings, progress)), num_models=sum(not side.is_prompt for side in sides)
        )
        if costs:
            return Result(lines, "\n".join(lines))
        if not (out / "claim.json").exists():
            progress.note("; ".join(lines))

    card = write_card(sides, settings, out=out, shard=shard, progress=progress)
    if card is None:
        return None
    from swerve.claim.page import claim_page, write_claim_figures

    lines = []
    for question in claim_page(card).verdicts:
        lines.append(question.title)
        for line, basis in question.lines:
            lines.append(wrapped(line.replace("**", ""), indent="  "))
            lines += [wrapped(f"({basis})", indent="    ")] if basis else []
    paths = write_claim_figures(card, out / "figures") if figures else ()
    return Result(card, "\n".join([*lines, *map(str, paths), f"Card: {out / 'index.html'}"]))
