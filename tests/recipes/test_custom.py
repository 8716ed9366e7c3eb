"""Functions and classes of the user's own: what is loaded, and the line for each thing that can be wrong."""

from __future__ import annotations

import hashlib

import pytest
import torch

from swerve.cli.app import describe_failure
from swerve.errors import ConfigError, SwerveError
from swerve.recipes.custom import custom_class, custom_function, source_digest

SOURCE = '''
from dataclasses import dataclass
from fractions import Fraction

LIMIT = 3

def scaled(values, *, by=2.0):
    return values * by

def summed(values):
    return values.sum()

def failing(values):
    return values / undefined

@dataclass(frozen=True, kw_only=True)
class Half(Fraction.__mro__[0]):
    """A dataclass looks itself up in its module."""
'''


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def test_a_function_is_loaded_with_its_options(file):
    function = custom_function(f"{file}:scaled", ("values",), {"by": 3.0})
    assert function(torch.tensor([1.0, 2.0]), by=3.0).tolist() == [3.0, 6.0]
    assert source_digest(f"{file}:scaled") == hashlib.sha256(SOURCE.encode()).hexdigest()
    assert list(file.parent.iterdir()) == [file]  # no bytecode beside it


def test_a_digest_is_of_the_source_and_nothing_is_run_for_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "a_package_of_mine"
    package.mkdir()
    source = "raise RuntimeError('it ran')\n"
    for name in ("__init__.py", "part.py"):
        (package / name).write_text(source)
    digest = hashlib.sha256(source.encode()).hexdigest()
    for place in ("a_package_of_mine.part", "a_package_of_mine", str(package / "part.py")):
        assert source_digest(f"{place}:function") == digest
    for place in ("a_package_of_mine.none", "a_package_of_mine.part.none", "none_of_mine", "sys"):
        assert source_digest(f"{place}:function") is None
    with pytest.raises(ConfigError, match=r"none\.py cannot be read"):
        source_digest(f"{tmp_path}/none.py:function")


def test_an_installed_function_is_loaded_by_its_module():
    assert custom_function("swerve.functional:reinforce_loss", ("logprobs", "advantages"), {}) is not None
    assert len(source_digest("swerve.functional:reinforce_loss") or "") == 64


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("scald", r"mine\.py has no function or class 'scald'; did you mean 'scaled'\?"),
        ("LIMIT", r"mine\.py has no function or class 'LIMIT'; it has scaled, summed, failing, Half"),
    ],
)
def test_a_name_that_is_not_there_is_refused(file, name, message):
    with pytest.raises(ConfigError, match=message):
        custom_function(f"{file}:{name}", ("values",), {})


@pytest.mark.parametrize(
    ("takes", "options", "message"),
    [
        (("values",), {"bye": 1}, r"takes \(values, by\) and is called as scaled\(values, bye=\): got an unexpected"),
        (("values", "others"), {}, r"called as scaled\(values, others\): too many positional arguments"),
    ],
)
def test_options_that_the_function_does_not_take_are_refused(file, takes, options, message):
    with pytest.raises(ConfigError, match=message):
        custom_function(f"{file}:scaled", takes, options)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import not_there_at_all\n", r"bad\.py:1: ModuleNotFoundError: No module named 'not_there_at_all'"),
        ("x = 1\nx.y\n", r"bad\.py:2: AttributeError"),
        ("\ndef f(:\n", r"bad\.py:2: not valid Python: invalid syntax"),
        (None, r"bad\.py cannot be read: No such file or directory; give a Python file as FILE\.py:NAME"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named_with_the_line(tmp_path, source, message):
    if source is not None:
        (tmp_path / "bad.py").write_text(source)
    with pytest.raises(ConfigError, match=message):
        custom_function(f"{tmp_path}/bad.py:f", (), {})


def test_a_module_that_is_not_installed_is_named():
    with pytest.raises(ConfigError, match="there is no module 'not_there_at_all'; install its package, or give a file"):
        custom_function("not_there_at_all.losses:f", (), {})


def test_a_result_of_another_shape_is_refused(file):
    function = custom_function(f"{file}:summed", ("values",), {})
    with pytest.raises(
        SwerveError, match=r"mine\.py:summed returned shape \[\]; it must return a tensor as values, \[2\]"
    ):
        function(torch.ones(2))


def test_an_error_inside_the_users_code_is_shown_with_its_line(file):
    with pytest.raises(NameError) as caught:
        custom_function(f"{file}:failing", ("values",), {})(torch.ones(2))
    line = f"swerve: error in {file}:14: NameError: name 'undefined' is not defined; run again with --debug"
    assert describe_failure(caught.value) == (line, 1)
    assert describe_failure(NameError("undefined"))[0].startswith("swerve: internal error: NameError")


class _Base:
    def __init__(self, model: object, *, size: int) -> None: ...


def test_a_class_must_inherit_take_its_options_and_leave_swerves_own_alone(file, tmp_path):
    with pytest.raises(ConfigError, match=r"mine\.py:Half must be a class that inherits from .*test_custom\._Base"):
        custom_class(f"{file}:Half", _Base, ("model",), keywords=("size",), options={})
    here = f"{__name__}:_Base"
    assert custom_class(here, _Base, ("model",), keywords=("size",), options={}) is _Base
    with pytest.raises(ConfigError, match="got an unexpected keyword argument 'colour'"):
        custom_class(here, _Base, ("model",), keywords=("size",), options={"colour": 1})
    with pytest.raises(ConfigError, match="option 'size' is what swerve itself gives"):
        custom_class(here, _Base, ("model",), keywords=("size",), options={"size": 1})
