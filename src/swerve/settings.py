"""The base class of configuration models, and the types of their fields."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, field_validator

STAGE_SECTIONS = ("eval", "probe", "report", "rollout", "runtime")
"""Sections of a run's configuration that may change once it is trained."""

PositiveInt = Annotated[int, Field(gt=0)]
Positive = Annotated[float, Field(gt=0.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]
InnerShare = Annotated[float, Field(gt=0.0, lt=1.0)]
AboveOne = Annotated[float, Field(gt=1.0)]


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(strict=False)]
"""One text or a list of them."""


class Model(BaseModel):
    """Frozen, strict, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class Choice(Model):
    """One of several kinds: `kind` names a function, and the other keys are its keywords."""

    kind: str
    own_keys: ClassVar[frozenset[str]] = frozenset()
    """Further keys that are not the function's."""
    function: ClassVar[str] = ""
    """`package.module:NAME` of the function, where the keys are read from its signature."""
    takes: ClassVar[tuple[str, ...]] = ()
    """What the function is called with, by position."""

    @property
    def keywords(self) -> dict[str, Any]:
        """The keywords of the function that `kind` names."""
        return {name: value for name, value in self if name != "kind" and name not in self.own_keys}


class Custom(Choice):
    """A function or class of the user's own."""

    kind: Literal["custom"] = "custom"
    path: str
    """`FILE.py:NAME`, or `package.module:NAME` of what is installed. A relative file is taken from the current folder
    and kept as an absolute one, so that later commands find it from anywhere."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Keywords of the function or class."""

    @field_validator("path")
    @classmethod
    def _make_absolute(cls, path: str) -> str:
        place, _, name = path.rpartition(":")
        if not name.isidentifier() or not re.fullmatch(r".+\.py|\w+(\.\w+)*", place):
            raise ValueError(f"must have the form FILE.py:NAME or package.module:NAME, got {path!r:.100}")
        return f"{Path(place).expanduser().absolute()}:{name}" if place.endswith(".py") else path

    @property
    def keywords(self) -> dict[str, Any]:
        """See the base class."""
        return dict(self.options)
