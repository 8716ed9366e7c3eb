"""`swerve claim`: what RL changed, in one command and one page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from swerve.cli import sample
from swerve.cli.completion import completed
from swerve.cli.options import (
    Fields,
    PartsFrom,
    Result,
    ShardOption,
    given_settings,
    given_shard,
    out_option,
    with_settings,
)
from swerve.cli.plan import asked_plan, planned
from swerve.cli.text import wrapped
from swerve.door.keywords import CLAIM
from swerve.errors import ConfigError

if TYPE_CHECKING:
    from swerve.claim.record import ClaimCard
    from swerve.claim.settings import ClaimSettings
    from swerve.claim.work import Side
    from swerve.recipes.layers import Override


@with_settings("swerve.claim.settings:ClaimSettings", CLAIM)
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
    out: Annotated[Path, out_option("Card, page and samples.", folder=True)] = Path("claim"),
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
    from swerve.claim.sides import given_sides
    from swerve.cli.console import main_progress
    from swerve.eval.sampling import chosen_problems
    from swerve.formats.typed_fields import parse_fields

    shard, progress = given_shard(context, share, parts_from), main_progress()
    named, changes = sample.split_arguments(arguments, task)
    sides, given = given_sides(named, fields=parse_fields(fields or ())), _given(context)
    planning = asked_plan(context)
    _check_folders(sides, is_planned=planning is not None)

    # Files have their problems and samples; models are sampled from.
    if sides[0].samples:
        if planning is not None:
            raise ConfigError("a card of files samples nothing and reads no model: there is nothing to plan")
        more = {"--task": task, "--data": data, "--other": others, "--costs": costs, "--shard": shard.is_divided}
        settings = _of_files(sides, given, [*(name for name, value in more.items() if value), *changes], task)
    else:
        settings = _of_models(given, task, data, changes, others or ())
        _check_folders(sides, settings.max_new_tokens, is_planned=planning is not None)
        if costs or planning is not None:
            from swerve.plan.sampling import claim_budget, counted_problems

            problems, number = counted_problems(settings)
            models = {side.label: side.model for side in sides if side.model is not None}
            asked = {} if planning is None else planning._asdict()
            return planned(claim_budget(models, settings, problems, num_problems=number, place=out, **asked))
        problems = chosen_problems(settings, progress)
        from swerve.claim.costs import costs_said

        if not (out / "claim.json").exists():
            num = sum(not side.is_prompt for side in sides)
            progress.note("; ".join(costs_said(settings, len(problems), num_models=num)))

    from swerve.claim.card import write_card

    card = write_card(sides, settings, out=out, shard=shard, progress=progress)
    return None if card is None else _said(card, out, figures=figures)


def _given(context: typer.Context) -> dict[str, Override]:
    """Return the settings that were given; the words of a list stand between commas."""
    from swerve.recipes.layers import parse_override

    given = given_settings(context)
    for key in given.keys() & {"parts", "ranks"}:
        words = parse_override(f"{key}=[{','.join(given[key].value)}]").value
        given[key] = replace(given[key], value=words)
    return given


def _of_files(
    sides: Sequence[Side], given: Mapping[str, Override], more: Sequence[str], task: str | None
) -> ClaimSettings:
    """Return the settings of a card of files.

    Args:
        sides: each with its file.
        given: what was given of the settings.
        more: words that were given and are of models alone.
        task: that was given.
    """
    from swerve.artifacts.samples import is_samples_file
    from swerve.claim.sides import settings_of_files

    more = [*more, *(override.text for name, override in given.items() if name not in ("parts", "common", "study"))]
    if more:
        path = sides[0].samples
        graded = f"{path.name.partition('.')[0]}-graded.jsonl" if path else ""
        command = shlex.join(["swerve", "grade", str(path), "--task", str(task), "--out", graded])
        ungraded = f"; files without verdicts are graded first: {command}"
        raise ConfigError(
            f"{', '.join(more)}: leave it out, for files have their task, their samples and their verdicts; beside "
            "them there are --parts, --common, --field, --study, --out and --figures"
            f"{ungraded if task and path and not is_samples_file(path) else ''}"
        )
    return settings_of_files(sides, given.values())


def _of_models(
    given: Mapping[str, Override],
    task: str | None,
    data: str | None,
    changes: Sequence[str],
    others: Sequence[str],
) -> ClaimSettings:
    """Return the settings of a card of models."""
    from swerve.claim.settings import ClaimSettings
    from swerve.recipes.task_names import load_task

    tasks = [load_task(name, keys)[0].model_dump(mode="json") for name, *keys in map(str.split, others)]
    return sample.sample_settings(ClaimSettings, task, data, changes, {"others": tasks, **given})


def _said(card: ClaimCard, out: Path, *, figures: bool) -> Result:
    """Return the lines of a card as the terminal has them, and write its figures where they are asked for."""
    from swerve.claim.page import claim_page, write_claim_figures

    lines = []
    for question in claim_page(card).verdicts:
        lines.append(question.title)
        for line, basis in question.lines:
            lines.append(wrapped(line.replace("**", ""), indent="  "))
            lines += [wrapped(f"({basis})", indent="    ")] if basis else []
    paths = write_claim_figures(card, out / "figures") if figures else ()
    return Result(card, "\n".join([*lines, *map(str, paths), f"Card: {out / 'index.html'}"]))


def _check_folders(sides: Sequence[Side], max_new_tokens: int | None = None, *, is_planned: bool = False) -> None:
    """Check the folders of models before torch is imported; for a plan those with a configuration alone will do."""
    from swerve.models.folder_metadata import check_metadata, check_one_tokenizer, check_positions, is_description

    models = {side.label: side.model for side in sides if side.model is not None}
    for label, model in models.items():
        if is_planned and is_description(str(model)):
            continue
        check_metadata(model)
        check_positions(label, model, max_new_tokens)
    if not is_planned:
        check_one_tokenizer(models.values())
