"""The models of a card as they are named: a model each, or a file of responses of each. Free of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from swerve.artifacts.files import regular_file
from swerve.artifacts.samples import is_samples_file, read_samples_info
from swerve.claim.settings import ClaimSettings
from swerve.claim.work import Side
from swerve.errors import ArtifactError, ConfigError, MismatchError, not_there
from swerve.formats.table_files import files_of, is_table
from swerve.models.named_models import check_label, resolve_model, split_name
from swerve.recipes.layers import Override
from swerve.recipes.loader import load_settings


def given_sides(
    texts: Sequence[str], labels: Sequence[str] = ("base", "rl"), *, fields: Mapping[str, str] | None = None
) -> tuple[Side, ...]:
    """Return the models: of each `[NAME=]MODEL`, or `[NAME=]FILE` with its responses.

    Args:
        texts: the model before, and the model after; or several after, each of a run of the same training. Further
            files with the NAME of the first are the model before under other prompts.
        labels: what those without a NAME are called; further runs have the last one and a number.
        fields: names of the files' fields where they differ from those known.

    Returns:
        The model before, those after, and those under other prompts.

    Raises:
        ConfigError: they are fewer than two, two have one name, some are files and others models, or there are fields
            of models.
        CheckpointError: there is no such model.
        ArtifactError: there is no such file, or it cannot be read.
    """
    before = split_name(texts[0])[0] or labels[0] if texts else None
    prompts = [text for text in texts[1:] if split_name(text)[0] == before and _is_file(split_name(text)[1])]
    texts = [*texts[:1], *(text for text in texts[1:] if text not in prompts)]
    if prompts and len(texts) < 2:
        raise ConfigError(
            f"all files are called '{before}', as the base is under several prompts; give the model after another name"
        )
    if len(texts) < 2:
        raise ConfigError(
            f"a card is of the model before and the model after; {len(texts)} given: {' '.join(texts)}; a key of the "
            "task is given as KEY=VALUE, another setting by its option"
        )
    names = [*labels, *(f"{labels[-1]}-{number}" for number in range(2, len(texts) - len(labels) + 2))]
    sides = tuple(_side(label, text) for label, text in zip(names[: len(texts)], texts, strict=True))
    for label, count in Counter(side.label for side in sides).items():
        if count > 1:
            raise ConfigError(f"{count} models are called '{label}'; give them names, as in before=MODEL after=MODEL")
    for side, text in zip(sides, texts, strict=True):
        if (side.model is None) != (sides[0].model is None):
            raise ConfigError(f"{texts[0]} and {text} are a model and a file; give two models, or a file of each")
    others = [_side("", text) for text in prompts]
    others = [replace(other, label=f"{other.label} ({other.samples})", is_prompt=True) for other in others]
    if fields and not (sides[0].samples or others):
        raise ConfigError("--field names the fields of files of responses; models were given")
    return tuple(replace(side, fields=fields or {}) for side in (*sides, *others))


def _is_file(place: str) -> bool:
    return is_table(Path(place)) or Path(place).is_file()


def _side(label: str, text: str) -> Side:
    name, place = split_name(text)
    path = Path(place)
    if not _is_file(place):
        return Side(label=check_label(name or label, text), model=resolve_model(place).path)
    if not all(regular_file(file).is_file() for file in files_of(path)):
        raise ArtifactError(f"{path} {not_there(str(path), 'write it with swerve sample, or give a model')}")
    return Side(label=check_label(name or label, text), model=None, samples=path)


def settings_of_files(sides: Sequence[Side], given: Iterable[Override] = ()) -> ClaimSettings:
    """Return the settings of a card of two files.

    Args:
        sides: the two or more, each with its file.
        given: other settings than the defaults; the task is the files' own.

    Raises:
        ConfigError: the files are of different problems or were sampled otherwise, or a setting is wrong.
        ArtifactError: a file is damaged.
    """
    paths = [side.samples for side in sides if side.samples]
    infos = [read_samples_info(path) for path in paths if is_samples_file(path)]
    if len({(info.problems_sha256, info.temperatures, info.max_new_tokens) for info in infos}) > 1:
        files = " and ".join(map(str, paths))
        raise ConfigError(f"{files} differ in their problems, temperature or limit of tokens; sample both alike")
    of_others = {"kind": "table", "train": [str(paths[0])], "heldout": [str(paths[0])]}
    return load_settings(ClaimSettings, [*given], data={"task": infos[0].task if infos else of_others})


def check_vocabularies(sides: Sequence[Side]) -> None:
    """Check that all models have the same tokenizer, as training leaves it.

    Raises:
        MismatchError: they differ.
        CheckpointError: there is no such model, or it has no tokenizer.
    """
    if all(side.model is None for side in sides):
        return
    from swerve.models.model_folder import load_tokenizer, tokenizer_fingerprint

    if len({tokenizer_fingerprint(load_tokenizer(side.model)) for side in sides if side.model is not None}) > 1:
        raise MismatchError(
            f"{' and '.join(str(side.model) for side in sides)} have different tokenizers, so neither is trained from "
            "the other; "
            "give another model, or a file of samples of each"
        )
