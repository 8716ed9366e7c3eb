"""What the typed records of an artifact share: frozen, JSON is their image, the first line says what is missing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from swerve.artifacts.files import read_sealed, write_sealed
from swerve.errors import ArtifactError
from swerve.notebook import html_rows

_SHOWN_CHARS = 200


class Record(BaseModel):
    """A frozen record whose fields are the keys of a JSON object, each with its docstring.

    Keys that a reader does not know are ignored, so files of later versions can be read as far as they agree. NaN and
    infinity are refused: what was not measured is None.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, use_attribute_docstrings=True)

    def __str__(self) -> str:
        """Print as `repr`, which some records keep to a line."""
        return repr(self)

    def _repr_html_(self) -> str:
        """Return the fields as a table, for notebooks; long values are cut."""
        values = ((name, str(getattr(self, name))) for name in type(self).model_fields)
        return html_rows(
            (name, text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}...") for name, text in values
        )

    def write(self, path: Path) -> None:
        """Write the record as JSON with a digest of its fields, atomically."""
        write_sealed(path, self.model_dump(mode="json"))

    @classmethod
    def read(cls, path: Path, *, remedy: str) -> Self:
        """Return the record in a JSON file.

        Args:
            path: the file.
            remedy: what to do about a file that cannot be read, such as "run swerve eval again".

        Raises:
            ArtifactError: the file is missing, is not strict JSON, was changed, or lacks a key or has a value of
                another kind.
        """
        try:
            return cls.model_validate(read_sealed(path))
        except ArtifactError as error:
            raise ArtifactError(f"{error}; {remedy}") from None
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"])) or "the file"
            raise ArtifactError(
                f"{path}: {key}: {first['msg'].lower()}; the file is damaged or of another version: {remedy}"
            ) from None


def num_intervals(*records: Record) -> int:
    """Return how many different intervals some records hold; a figure that is repeated counts once."""
    ends: set[tuple[float, float, float]] = set()
    values: list[Any] = [record.model_dump() for record in records]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            if {"mean", "low", "high"} <= value.keys():
                ends.add((value["mean"], value["low"], value["high"]))
            value = value.values()
        if not isinstance(value, str) and isinstance(value, Iterable):
            values += value
    return len(ends)
