"""`make` with a Python that is too old, without a GPU, and a second try; what uv installs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# What `make` asks of a Python, without the seconds that a real virtual environment takes.
TOO_OLD = '#!/bin/sh\ncase "$1" in -V) echo "Python 3.9.2";; -m) echo made by 3.9 > made; exit 1;; *) exit 1;; esac\n'
VENV = """#!/bin/sh
case "$1 $2" in "-m venv")
    echo "venv $3" >> made; rm -rf .venv; mkdir -p .venv/bin
    printf '#!/bin/sh\\necho "pip 1 from here (python {version})"\\n' > .venv/bin/python
    printf '#!/bin/sh\\necho "pip $*" >> made; exit {status}\\n' > .venv/bin/pip
    chmod +x .venv/bin/*;;
*) exec {python} "$@";; esac
"""


@pytest.fixture
def checkout(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("needs make")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def _program(path, source):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    path.chmod(0o755)


def _make(checkout, source, python="PYTHON=./python-here", has_gpu=True):
    """Return what `make` said, and what it called: of pip `pip install`, and the torch that it asked for alone."""
    _program(checkout / "python-here", source)
    (checkout / "made").unlink(missing_ok=True)
    _program(checkout / "programs" / ("nvidia-smi" if has_gpu else "none"), "#!/bin/sh\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTHON"))}
    environment["PATH"] = f"{checkout / 'programs'}{os.pathsep}{environment['PATH']}"
    words = ["make", *([python] if python else []), ".venv/installed"]
    done = subprocess.run(words, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    made = checkout / "made"
    lines = made.read_text().splitlines() if made.exists() else []
    return done, [re.sub(r"^(pip install) .*?( torch==\S+)?$", r"\1\2", line) for line in lines]


def _venv(*, status=0, version=f"{sys.version_info[0]}.{sys.version_info[1]}"):
    return VENV.format(python=sys.executable, status=status, version=version)


def test_a_python_that_is_too_old_is_named_before_anything_is_made(checkout):
    done, made = _make(checkout, TOO_OLD)
    line, *_ = done.stderr.splitlines()
    assert line == (
        "swerve needs Python 3.11 or newer; ./python-here is Python 3.9.2. Name another: "
        "make PYTHON=python3.12 .venv/installed"
    )
    assert (done.returncode, made, (checkout / ".venv").exists()) == (2, [], False)
    missing, _ = _make(checkout, "#!/bin/sh\necho sh: not found >&2\nexit 127\n")
    assert missing.stderr.startswith(
        "swerve needs Python 3.11 or newer; ./python-here is not there. Name another: make "
    )


def test_a_second_try_makes_anew_what_the_first_left_half_made(checkout):
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").write_text("#!/bin/sh\nexit 1\n")  # without pip
    (checkout / ".venv" / "bin" / "python").chmod(0o755)
    done, made = _make(checkout, _venv(status=1))
    assert (done.returncode, made) == (2, ["venv --clear", "pip install"])
    assert not (checkout / ".venv" / "installed").exists()
    done, made = _make(checkout, _venv())  # what is there has pip and the version asked for: only pip is tried again
    assert (done.returncode, made) == (2, ["pip install"])


def test_an_environment_of_another_python_is_made_anew_and_a_finished_one_is_kept(checkout):
    _make(checkout, _venv(status=1, version="3.99"))
    done, made = _make(checkout, _venv())
    assert (done.returncode, made) == (0, ["venv --clear", "pip install"])
    os.utime(checkout / "pyproject.toml")  # newer than what is installed
    os.utime(checkout / ".venv" / "installed", (0, 0))
    done, made = _make(checkout, TOO_OLD)
    assert (done.returncode, made) == (0, ["pip install"])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is one build of torch")
@pytest.mark.skipif(Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None, reason="a GPU is here")
def test_without_a_gpu_the_small_torch_is_asked_for_first_and_need_not_be_had(checkout):
    torch = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    source = _venv().replace("exit 0", 'case "$*" in *index-url*) exit $NOT_REACHED;; esac')
    for status, said in (("0", ""), ("1", "https://download.pytorch.org/whl/cpu has no torch for this machine")):
        shutil.rmtree(checkout / ".venv", ignore_errors=True)
        done, made = _make(checkout, source.replace("$NOT_REACHED", status), has_gpu=False)
        assert (done.returncode, made) == (0, ["venv --clear", f"pip install {torch}", "pip install"])
        assert done.stderr.startswith(said)
        assert bool(done.stderr) is bool(said)


def test_the_first_python_that_is_new_enough_is_taken(checkout):
    _program(checkout / "programs" / "python3", TOO_OLD)
    for version in ("3.13", "3.12"):
        _program(checkout / "programs" / f"python{version}", TOO_OLD)
    _program(checkout / "programs" / "python3.11", _venv())
    done, made = _make(checkout, "", python=None)
    assert (done.returncode, made) == (0, ["venv --clear", "pip install"])
    _program(checkout / "programs" / "python3.11", TOO_OLD)
    shutil.rmtree(checkout / ".venv")
    assert "; python3 is Python 3.9.2." in _make(checkout, "", python=None)[0].stderr


def test_uv_takes_the_torch_of_the_constraints():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert set(project["tool"]["uv"]["constraint-dependencies"]) < set(constraints)
