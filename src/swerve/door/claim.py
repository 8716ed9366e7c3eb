"""`swerve.claim`: what training changed from one model to another, as a card."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, cast

from swerve.artifacts.given_rows import rows_of
from swerve.artifacts.output_names import check_output
from swerve.artifacts.shards import WHOLE, Shard
from swerve.claim.record import ClaimCard
from swerve.claim.settings import ClaimSettings
from swerve.door.given import is_place, place_of, several, task_of, temporary_folder, working_folder, write_rows
from swerve.door.grade import Grades
from swerve.door.keywords import CLAIM, ClaimKeywords, as_called, check_keywords, keywords_of, settings_of
from swerve.door.kinds import kind_of
from swerve.door.sample import SampleSet
from swerve.door.spoken import spoken
from swerve.errors import ConfigError
from swerve.progress import Progress, shown_progress

_OF_FILES = ("parts", "common", "study")
"""Keywords that a card of files has, too."""
_ANSWERS = "give a table, or a list of mappings, with id or question, gold, response and correct"


@spoken
def claim(
    base: Any,
    trained: Any = None,
    settings: ClaimSettings | None = None,
    *,
    problems: Any = None,
    task: Any = None,
    data: Any = None,
    others: Sequence[Any] = (),
    labels: Sequence[str] = ("base", "rl"),
    fields: Mapping[str, str] | None = None,
    out: str | Path | None = None,
    shard: Shard = WHOLE,
    progress: Progress | bool | None = None,
    **keywords: Unpack[ClaimKeywords],
) -> ClaimCard:
    """Measure what training changed from one model to another, and write the card to a folder, as `swerve claim` does.

    Args:
        base: the model before, as of `swerve.sample`; or a file of its samples, or what `swerve.sample` returned of it.
            Files of other programs, with a verdict for each response, are read too, and so are their rows. Of several
            the others are files of
            its samples under other prompts, for the part `prompts`.
        trained: the model after, or its samples; or those of several runs of the same training, of which the first is
            what all parts but `runs` are of. None: `base` is what `swerve.sample` returned of all of them.
        settings: task, sampling, and which parts, in place of problems or a task.
        problems: of models: a file, a list of mappings with `question` and `answer`, a table, or the name of a task.
        task: what the problems are of, or whose are sampled; see `swerve.sample`.
        data: another name of `problems`, as in the terminal.
        others: other tasks, before and after: names, or mappings as in a recipe.
        labels: what the two are called; of further runs `rl-2` and so on.
        fields: names of the fields of files, or of problems, where they differ from those known, such as
            `{"group": "template"}` for problems that are made from one template.
        out: the folder of `claim.json`, `index.html` and the samples; interrupted, the same call continues. None: a
            temporary folder, which lasts as long as the card.
        shard: whose share of the sampling is done, and nothing else; by default everything.
        progress: told what is done; None: shown in a terminal or a notebook; True and False: shown or not.
        keywords: of models `num_samples` (16) and all others of `swerve.sample`; `parts`, `some`, `texts`, `ranks`,
            `directions`, `margin`, `study`; of files `parts`, `common`, `study`. `help(swerve.ClaimSettings)` explains
            them.

    Returns:
        The card; `to_pandas` has its tables as data frames. (Of a shard None, whatever the annotation says.)

    Raises:
        ConfigError: `out` has another card or is a run, models are given without problems, or a keyword is wrong.
        CheckpointError: there is no such model, or it is damaged.
        ArtifactError: a file cannot be read.

    Example:
        card = swerve.claim("owner/base", "owner/rl", problems="problems.jsonl", num_samples=16)
        card.to_pandas("accuracy.pass_at_k")
    """
    from swerve.artifacts.torchrun import is_main_process
    from swerve.claim.card import write_card
    from swerve.claim.sides import given_sides
    from swerve.formats.typed_fields import parse_fields
    from swerve.models.named_models import split_name

    if isinstance(labels, str) or len(labels) != 2:
        raise ConfigError(f"labels are two names, of the model before and of the one after, got {labels!r}")
    if not isinstance(fields, Mapping | None):
        raise ConfigError(f"fields are names by field, such as {{'group': 'template'}}, got {fields!r}")
    if out is None and (shard != WHOLE or not is_main_process()):
        raise ConfigError("several processes need one place for the card; give out=")
    if out is not None:
        check_output(Path(out), folder=True)
    asked = data if problems is None else problems
    if trained is None and isinstance(base, SampleSet) and len(base.files) > 1:
        base, *trained = base.files.values()
    temporary = temporary_folder() if out is None else None
    place = Path(temporary.name if temporary is not None else out or "")
    with working_folder() as folder:
        if trained is None:
            raise ConfigError("a card is of two models: swerve.claim(base, trained, problems=...)")
        prompts = [_side(one, folder, labels[0], 0) for one in _sides(base)]
        runs = [_side(one, folder, labels[1], number) for number, one in enumerate(_sides(trained))]
        if not prompts or not runs:
            raise ConfigError("a card is of the model before and of the model after; one of them is empty")
        of_files = any(Path(split_name(text)[1]).is_file() for text in (*prompts, *runs))
        named = fields if of_files else None
        others_of_base = [f"{split_name(prompts[0])[0] or labels[0]}={text}" for text in prompts[1:]]
        names = parse_fields([f"{name}={field}" for name, field in (named or {}).items()])
        sides = given_sides([prompts[0], *runs, *others_of_base], labels, fields=names)
        if sides[0].samples is not None:
            given = [name for name, value in (("problems", asked), ("task", task), ("others", others or None)) if value]
            settings = _settings_of_files(sides, settings, given, keywords)
        else:
            record, asked_in = task_of(asked if settings is None else settings, task, place, fields=fields)
            own = asked_in if isinstance(asked_in, ClaimSettings) else None
            if asked_in is not None and own is None:
                raise ConfigError(
                    "settings of a card are swerve.ClaimSettings(task=...); or give problems= and keywords"
                )
            settings = settings_of(
                ClaimSettings, record, _worded(keywords), CLAIM, settings=own, defaults=_other_tasks(others)
            )
        card = write_card(sides, settings, out=place, shard=shard, progress=shown_progress(progress))
    return cast("ClaimCard", card if temporary is None or card is None else card.in_temporary(temporary))


def _sides(given: Any) -> list[Any]:
    """Return what is given of one side: rows are one thing."""
    return [given] if kind_of(given) in ("rows", "grades") else several(given)


def _side(given: Any, folder: Path, label: str, number: int) -> str:
    """Return the place of a model, or of a file of its samples."""
    if isinstance(given, SampleSet):
        if len(given.files) > 1:
            raise ConfigError(f"these are samples of {len(given.files)} models; give one's: samples['NAME']")
        given = next(iter(given.files.values()))
    if is_place(given):
        return str(os.fspath(given))
    if isinstance(given, Grades):
        return str(write_rows(folder, f"answers-{label}", list(given)))
    if kind_of(given) == "rows":
        return str(write_rows(folder, f"answers-{label}", rows_of(given, what="answers", form=_ANSWERS)))
    return place_of(given, folder, label=f"{label}-{number}")


def _settings_of_files(
    sides: Any, settings: ClaimSettings | None, given: Sequence[str], keywords: Mapping[str, Any]
) -> ClaimSettings:
    from swerve.claim.sides import settings_of_files
    from swerve.recipes.layers import overrides_of

    keywords = as_called(keywords, keywords_of(CLAIM))
    check_keywords(keywords, keywords_of(CLAIM))
    more = [*given, *(name for name in keywords if name not in _OF_FILES)]
    if more:
        raise ConfigError(
            f"{more[0]}= is of models, leave it out; files have their task and their samples: beside them give parts, "
            "common, study, fields and out"
        )
    return settings or settings_of_files(sides, overrides_of([_worded(keywords)]))


def _worded(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return keywords with `parts="accuracy,weights"` as a list."""
    parts = keywords.get("parts")
    return {**keywords, **({"parts": parts.split(",")} if isinstance(parts, str) else {})}


def _other_tasks(others: Sequence[Any]) -> dict[str, Any]:
    from swerve.recipes.task_names import load_task

    tasks = []
    for task in [others] if isinstance(others, str | Mapping) else others:
        if isinstance(task, str):
            name, *keys = task.split()
            task = load_task(name, keys)[0]
        tasks.append(dict(task) if isinstance(task, Mapping) else task.model_dump(mode="json"))
    return {"others": tasks} if tasks else {}
