"""What pip and uv install: ranges hold at both ends, constraints.txt is within them, nothing is a pre-release."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _requirements(*extras):
    """Return what the base and these extras ask for, by name; an extra of swerve's own as what it asks for."""
    optional = PROJECT["project"]["optional-dependencies"]
    found = [Requirement(line) for line in PROJECT["project"]["dependencies"]]
    found += [Requirement(line) for extra in extras for line in optional[extra]]
    own = {extra for requirement in found if requirement.name == "swerve" for extra in requirement.extras}
    found += [Requirement(line) for extra in own for line in optional[extra]]
    return {canonicalize_name(each.name): each for each in found if each.name != "swerve"}


EVERYTHING = _requirements(*PROJECT["project"]["optional-dependencies"])
TESTED = _requirements("dev")


def _end(requirement, operator):
    return next((Version(each.version) for each in requirement.specifier if each.operator == operator), None)


def _pinned(lines):
    """Return versions by name, of lines `NAME==VERSION` with or without a marker."""
    pins = [re.match(r"([\w.-]+)==([^\s;]+)", line) for line in lines]
    return {canonicalize_name(pin[1]): Version(pin[2]) for pin in pins if pin}


CONSTRAINTS = _pinned((ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines())


def _faults(versions):
    """Return the pre-releases among versions, and those outside the ranges of pyproject.toml."""
    outside = {name for name, of in EVERYTHING.items() if name in versions and versions[name] not in of.specifier}
    return {f"{name} {versions[name]}" for name in versions if versions[name].is_prerelease or name in outside}


def test_every_range_has_two_ends():
    assert len(EVERYTHING) > 30
    assert [name for name, of in EVERYTHING.items() if None in (_end(of, ">="), _end(of, "<"))] == []


def test_the_constraints_are_within_the_ranges_and_of_all_that_the_tests_need():
    assert TESTED.keys() - CONSTRAINTS.keys() == set()
    assert _faults(CONSTRAINTS) == set()
    assert _faults({**CONSTRAINTS, "mpmath": Version("1.4.1"), "sympy": Version("1.14.0rc1")}) == {
        *("mpmath 1.4.1", "sympy 1.14.0rc1")
    }


def _run(words, folder=ROOT):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("UV_FIND", "PYTHONPATH"))}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Return the folder of uv and of a pip that looks at wheels without downloading them."""
    folder = tmp_path_factory.mktemp("programs")
    venv.create(folder, with_pip=True)
    done = _run([folder / "bin" / "pip", "install", "-qq", "--retries", "1", "pip>=25", "uv"])
    if done.returncode:
        pytest.skip("needs an index of packages: pip cannot install uv here")
    return folder / "bin"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("resolution", ["highest", "lowest-direct"])
def test_uv_resolves_to_tested_versions(programs, python, resolution):
    wheels = [word for name in TESTED for word in ("--only-binary", name)]
    command = [programs / "uv", "pip", "compile", "-q", "--no-header", "--extra", "dev", "--python-version", python]
    done = _run([*command, "--resolution", resolution, *wheels, "pyproject.toml"])
    assert done.returncode == 0, done.stderr
    versions = _pinned(done.stdout.splitlines())
    assert TESTED.keys() <= versions.keys()
    assert _faults(versions) == set()
    if resolution == "lowest-direct":  # a lower end that cannot be had is not one; torch is held by [tool.uv]
        low = {name: _end(of, ">=") for name, of in TESTED.items() if name != "torch"}
        assert {name: versions[name] for name in low if versions[name] != low[name]} == {}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_uv_sync_takes_the_torch_of_the_constraints_and_no_prerelease(programs, tmp_path):
    for name in ("pyproject.toml", "README.md", "LICENSE", "src/swerve/version.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    done = _run([programs / "uv", "export", "-q", "--no-hashes", "--no-emit-project"], folder=tmp_path)
    assert done.returncode == 0, done.stderr
    versions = _pinned(done.stdout.splitlines())
    assert TESTED.keys() <= versions.keys()
    assert _faults(versions) == set()
    assert versions["torch"] == CONSTRAINTS["torch"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("constraints", [[], ["-c", "constraints.txt"]], ids=["newest", "constraints"])
def test_pip_resolves_to_tested_versions(programs, python, constraints):
    interpreter = shutil.which(f"python{python}")
    if interpreter is None or _run([interpreter, "-c", ""]).returncode:
        pytest.skip(f"needs a Python {python}")
    command = [programs / "pip", "--python", interpreter, "install", "-qq", "--break-system-packages"]
    done = _run([*command, "--dry-run", "--ignore-installed", "--report", "-", *constraints, ".[dev]"])
    assert done.returncode == 0, done.stderr
    found = [each["metadata"] for each in json.loads(done.stdout)["install"]]
    versions = {canonicalize_name(each["name"]): Version(each["version"]) for each in found}
    del versions["swerve"]
    assert TESTED.keys() <= versions.keys()
    assert _faults(versions) == set()
    if constraints:  # nothing is left open: CUDA comes with torch where there is no build without
        others = {name for name in versions.keys() - CONSTRAINTS.keys() if not name.startswith(("nvidia-", "cuda-"))}
        assert others <= {"triton", "setuptools"}
        assert {
            name for name in versions if versions[name].public != CONSTRAINTS.get(name, versions[name]).public
        } == set()
