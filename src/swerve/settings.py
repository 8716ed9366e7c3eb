"""The base class of configuration models, and the types of their fields."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError, field_validator
from pydantic_core import PydanticSerializationError, to_jsonable_python

from swerve.errors import ConfigError, shown
from swerve.schema import expand_shorthand, explain_errors, with_section_defaults

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


if TYPE_CHECKING:  # pydantic tells it to nobody else
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class _OfKeys(ModelMetaclass):
    """Has the help of settings list their keys, and none of pydantic's methods."""

    def __dir__(cls) -> list[str]:
        return sorted(vars(cls).get("__pydantic_fields__", ()))


class Model(BaseModel, metaclass=_OfKeys):
    """Frozen, strict, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


class _AsInRecipes(_OfKeys):
    """Makes settings from what a recipe would say, and says what is wrong in one line."""

    def __call__(cls, *given: Any, **values: Any) -> Any:
        name = cls.__name__
        if given:
            raise ConfigError(f"{name} takes keywords alone, such as {name}(task='math'), got {shown(given[0])}")
        plain = {}
        for key, value in values.items():
            try:
                plain[key] = to_jsonable_python(value, fallback=lambda number: number.item())
            except (PydanticSerializationError, AttributeError, ValueError):
                raise ConfigError(f"{name}: {key} is {shown(value)}, which is no value of it") from None
        model: Any = cls
        data = expand_shorthand(model, plain)
        try:
            # Through JSON, as recipes are read: the classes are strict, and in JSON a list may become a tuple.
            return model.model_validate_json(json.dumps(with_section_defaults(model, data)))
        except ValidationError as error:
            raise explain_errors(model, error.errors(include_url=False), data, name, ()) from None


class Asked(Model, metaclass=_AsInRecipes):
    """Settings that Python makes by their class: `SampleSettings(task="math")`. Their help has a line for each key."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Put keys and defaults into the documentation and the signature."""
        with_keys_said(cls)

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield what differs from the defaults, as it would be given."""
        yield from _as_given(self).items()


_Settings = TypeVar("_Settings", bound=type[Model])


def with_keys_said(settings: _Settings) -> _Settings:
    """Put keys and defaults into the documentation and the signature of a class of settings; return it."""
    kind: type[Model] = settings
    parameters, lines = [], list[str]()
    for name, field in sorted(kind.model_fields.items(), key=lambda entry: not entry[1].is_required()):
        default: Any = inspect.Parameter.empty
        said = " ".join((field.description or "").split())
        if not field.is_required():
            made = not field.default_factory_takes_validated_data
            default = _Written(_short(field.get_default(call_default_factory=True)) if made else "...")
            said += f" Default: {default}." if made else ""
        lines.append(textwrap.fill(f"{name}: {said}", 100, initial_indent=" " * 4, subsequent_indent=" " * 8))
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
    kind.__signature__ = inspect.Signature(parameters)
    kind.__doc__ = "\n".join([inspect.cleandoc(kind.__dict__.get("__doc__") or ""), "", "Keys:", *lines])
    return settings


class _Written(str):
    """What a signature shows as it is."""

    __slots__ = ()
    __repr__ = str.__str__


def _as_given(settings: BaseModel, usual: BaseModel | None = None) -> dict[str, Any]:
    """Return the keys whose values are not the defaults; what has a kind and nothing else is its kind.

    Args:
        settings: or a section of some.
        usual: of a section what it is by default where it stands; None: as everywhere.
    """
    given: dict[str, Any] = {}
    is_usual = type(usual) is type(settings)
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        default = getattr(usual, name) if is_usual else field.get_default(call_default_factory=True)
        if name == "kind" or value != default or (field.is_required() and not is_usual):
            section = default if isinstance(default, BaseModel) else None
            given[name] = _as_given(value, section) if isinstance(value, BaseModel) else value
            if isinstance(value, BaseModel) and given[name].keys() == {"kind"}:
                given[name] = given[name]["kind"]
    return given


def _short(value: Any) -> str:
    """Return a default as it is written, of a section its kind alone."""
    if isinstance(value, BaseModel):
        return f"{type(value).__name__}()"
    return str(value) if isinstance(value, date) else repr(value)


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
