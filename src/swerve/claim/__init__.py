"""What RL changed: two models, a task, and a page of questions with the minimum standard of evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from swerve.artifacts.shards import WHOLE, Shard
from swerve.callable_package import make_callable
from swerve.claim.record import ClaimCard
from swerve.claim.settings import ClaimSettings
from swerve.errors import ConfigError
from swerve.progress import Progress, shown_progress

__all__ = ["claim"]


def claim(
    base: str | Path | Sequence[str | Path],
    trained: str | Path | Sequence[str | Path],
    settings: ClaimSettings | None = None,
    *,
    labels: Sequence[str] = ("base", "rl"),
    fields: Mapping[str, str] | None = None,
    out: str | Path = "claim",
    shard: Shard = WHOLE,
    progress: Progress | bool | None = None,
) -> ClaimCard | None:
    """Measure what training changed from one model to another, and write the card to a folder.

    Args:
        base: the model before: a folder, `RUN:LABEL` or `owner/name#revision`; or a file of its samples.
            Files of other programs, with a verdict for each response, are read too. Of several the others are files of
            its samples under other prompts, for the part `prompts`.
        trained: the model after, or its samples; or those of several runs of the same training, of which the first
            is what all parts but `runs` are of.
        settings: task, sampling, and which parts; needed where models are given.
        labels: what they are called; of further runs `rl-2` and so on.
        fields: names of the files' fields where they differ from those known, such as `{"group": "template"}` for
            problems that are made from one template.
        out: the folder of `claim.json`, `index.html` and the samples.
        shard: whose share of the sampling is done, and nothing else; by default everything.
        progress: told what is done; None: shown in a terminal or a notebook; True and False: shown or not.

    Returns:
        The card; `to_pandas` has its tables as data frames. None of a shard.

    Raises:
        ConfigError: `out` has another card, models are given without settings, or with fields, or a field has a name
            that is not read.
        CheckpointError: there is no such model, or it is damaged.
        ArtifactError: a file cannot be read.

    Example:
        card = swerve.claim("base.parquet", "rl.parquet")
        card.to_pandas("accuracy.pass_at_k")
    """
    from swerve.claim.card import write_card
    from swerve.claim.sides import given_sides, settings_of_files
    from swerve.formats.typed_fields import parse_fields
    from swerve.models.named_models import split_name

    if isinstance(labels, str) or len(labels) != 2:
        raise ConfigError(f"labels are two names, of the model before and of the one after, got {labels!r}")
    if not isinstance(fields, Mapping | None):
        raise ConfigError(f"fields are names by field, such as {{'group': 'template'}}, got {fields!r}")
    prompts, runs = (
        list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
        for given in (base, trained)
    )
    if not (prompts and runs and all(isinstance(one, str | Path) for one in (*prompts, *runs))):
        raise ConfigError("swerve.claim takes models or files by their paths; write the table to a file first")
    first, *others = map(str, prompts)
    others = [f"{split_name(first)[0] or labels[0]}={other}" for other in others]
    names = parse_fields([f"{name}={field}" for name, field in (fields or {}).items()])
    sides = given_sides([first, *map(str, runs), *others], labels, fields=names)
    if settings is None:
        if sides[0].samples is None:
            raise ConfigError("give settings=swerve.ClaimSettings(task=...), or two files of samples")
        settings = settings_of_files(sides)
    return write_card(sides, settings, out=Path(out), shard=shard, progress=shown_progress(progress))


make_callable(__name__)
