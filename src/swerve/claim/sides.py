"""The two models of a card as they are named: a model, or a file of samples. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from swerve.artifacts.samples import StoredSamples
from swerve.claim.work import Side
from swerve.config.claim import PARTS, ClaimSettings
from swerve.errors import ConfigError
from swerve.models.named_models import resolve_model

OF_SAMPLES = ("accuracy", "gained", "answers")
"""Parts that need no model."""


def given_side(label: str, text: str) -> Side:
    """Return one of the two models: `[NAME=]MODEL`, or `[NAME=]FILE.parquet` with samples of it.

    Raises:
        CheckpointError: there is no such model.
        ArtifactError: there is no such file, or it has no samples.
    """
    name, equals, place = text.rpartition("=")
    path = Path(text) if Path(text).exists() or not equals else Path(place)
    label = name if equals and not Path(text).exists() else label
    if path.suffix == ".parquet":
        StoredSamples(path).info  # noqa: B018
        return Side(label=label, model=None, samples=path)
    return Side(label=label, model=resolve_model(str(path)).path)


def settings_of_files(sides: Sequence[Side]) -> ClaimSettings:
    """Return the settings of a card of two files of samples: their task, and the parts that need no model.

    Raises:
        ConfigError: the files are of different problems.
    """
    infos = [StoredSamples(side.samples).info for side in sides if side.samples]
    if len({info.problems_sha256 for info in infos}) > 1:
        raise ConfigError("the two files are samples of different problems; sample both with the same --task and seed")
    return ClaimSettings.model_validate(
        {"task": dict(infos[0].task), "parts": tuple(part for part in PARTS if part in OF_SAMPLES)}
    )
