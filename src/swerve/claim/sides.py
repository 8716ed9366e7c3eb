"""The two models of a card as they are named: a model each, or a file of responses of each. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from swerve.artifacts.claim import PartName
from swerve.artifacts.samples import StoredSamples, is_samples_file
from swerve.claim.work import Side
from swerve.config.claim import ClaimSettings
from swerve.errors import ArtifactError, ConfigError, MismatchError, nearest
from swerve.models.named_models import check_label, resolve_model, split_name

OF_FILES: tuple[PartName, ...] = ("accuracy", "gained", "answers")
"""Parts that need no model."""


def given_sides(texts: Sequence[str], labels: Sequence[str] = ("base", "rl")) -> tuple[Side, Side]:
    """Return the two models: of each `[NAME=]MODEL`, or `[NAME=]FILE` with its responses.

    Args:
        texts: the model before, and the model after.
        labels: what those without a NAME are called.

    Raises:
        ConfigError: they are not two, have one name, or one is a file and the other a model.
        CheckpointError: there is no such model.
        ArtifactError: there is no such file, or it cannot be read.
    """
    if len(texts) != 2:
        raise ConfigError(f"a card is of the model before and the model after; {len(texts)} given: {' '.join(texts)}")
    base, trained = (_side(label, text) for label, text in zip(labels, texts, strict=True))
    if base.label == trained.label:
        raise ConfigError(f"both models are called '{base.label}'; give them names, as in before=MODEL after=MODEL")
    if (base.model is None) != (trained.model is None):
        raise ConfigError(f"{texts[0]} and {texts[1]} are a model and a file; give two models, or a file of each")
    return base, trained


def _side(label: str, text: str) -> Side:
    name, place = split_name(text)
    path = Path(place)
    if path.suffix not in (".parquet", ".jsonl", ".json", ".csv", ".gz"):
        return Side(label=check_label(name or label, text), model=resolve_model(place).path)
    if not path.is_file():
        raise ArtifactError(f"{path} does not exist; write it with swerve sample, or give a model")
    return Side(label=check_label(name or label, text), model=None, samples=path)


def settings_of_files(sides: Sequence[Side], parts: Sequence[PartName] = OF_FILES) -> ClaimSettings:
    """Return the settings of a card of two files: their task, and parts that need no model.

    Raises:
        ConfigError: the files are of different problems or were sampled otherwise, or a part needs the models.
        ArtifactError: a file is damaged.
    """
    if others := [part for part in parts if part not in OF_FILES]:
        hint = nearest(others[0], OF_FILES) or "; other parts need the models"
        raise ConfigError(f"--parts {others[0]}: of two files there are {', '.join(OF_FILES)}{hint}")
    paths = [str(side.samples) for side in sides]
    infos = [StoredSamples(Path(path)).info for path in paths if is_samples_file(Path(path))]
    if len({(info.problems_sha256, info.temperatures, info.max_new_tokens) for info in infos}) > 1:
        files = " and ".join(paths)
        raise ConfigError(f"{files} differ in their problems, temperature or limit of tokens; sample both alike")
    task = infos[0].task if infos else {"kind": "table", "train": paths[:1], "heldout": paths[:1]}
    return ClaimSettings.model_validate({"task": dict(task), "parts": tuple(parts)})


def check_vocabularies(sides: Sequence[Side]) -> None:
    """Check that both models have the same tokenizer, as training leaves it.

    Raises:
        MismatchError: they differ.
        CheckpointError: there is no such model, or it has no tokenizer.
    """
    from swerve.models.model_folder import load_tokenizer, tokenizer_fingerprint

    if len({tokenizer_fingerprint(load_tokenizer(side.model)) for side in sides if side.model is not None}) > 1:
        raise MismatchError(
            f"{sides[0].model} and {sides[1].model} have different tokenizers, so neither is trained from the other; "
            "give another model, or a file of samples of each"
        )
