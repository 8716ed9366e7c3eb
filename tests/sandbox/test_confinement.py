from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CONFINED = """
import builtins, collections, ctypes, dataclasses, json, os, pathlib, shutil, socket, subprocess, sys, tempfile
from swerve.sandbox.confinement import ConfinementError, confine
import sympy
from sympy.parsing.sympy_parser import parse_expr

confinement = confine()
marker = sys.argv[1]
run, read = builtins.exec, builtins.open
payload = "__import__('os').system('touch " + marker + "')"

def caught():
    try:
        builtins.eval(payload)
    except Exception:
        pass

ACTIONS = {
    "caught": caught,
    "eval": lambda: builtins.eval(payload),
    "exec": lambda: run(payload),
    "sympify": lambda: sympy.sympify(payload),
    "parse": lambda: parse_expr(payload),
    "attribute": lambda: parse_expr("Integer(1).__class__"),
    "lambda": lambda: parse_expr("(lambda: 1)()"),
    "simplify": lambda: sympy.simplify(payload),
    "matrix": lambda: sympy.Matrix([payload]),
    "write": lambda: read(marker, "w"),
    "append": lambda: read(marker, "a"),
    "update": lambda: read(__file__ if "__file__" in globals() else marker, "r+"),
    "low level": lambda: os.open(marker, os.O_WRONLY | os.O_CREAT),
    "path": lambda: pathlib.Path(marker).touch(),
    "system": lambda: os.system("touch " + marker),
    "popen": lambda: os.popen("touch " + marker),
    "subprocess": lambda: subprocess.run(["touch", marker]),
    "spawn": lambda: os.posix_spawn("/bin/touch", ["touch", marker], {}),
    "execv": lambda: os.execv("/bin/touch", ["touch", marker]),
    "fork": lambda: os.fork(),
    "kill": lambda: os.kill(os.getppid(), 0),
    "mkdir": lambda: os.mkdir(marker),
    "symlink": lambda: os.symlink("/etc", marker),
    "link": lambda: os.link(sys.executable, marker),
    "remove": lambda: os.remove(sys.argv[2]),
    "rename": lambda: os.rename(sys.argv[2], marker),
    "truncate": lambda: os.truncate(sys.argv[2], 0),
    "chmod": lambda: os.chmod(sys.argv[2], 0),
    "utime": lambda: os.utime(sys.argv[2]),
    "copy": lambda: shutil.copy(sys.argv[2], marker),
    "tempfile": lambda: tempfile.mkdtemp(),
    "socket": lambda: socket.socket(),
    "connect": lambda: socket.create_connection(("127.0.0.1", 9)),
    "ctypes": lambda: ctypes.CDLL(None),
    "address": lambda: ctypes.string_at(0),
}
ALLOWED = {
    "number": lambda: str(parse_expr("12 + 2/3*x")),
    "namedtuple": lambda: str(collections.namedtuple("Pair", "a b")(1, 2)),
    "dataclass": lambda: dataclasses.make_dataclass("Point", ["x"])(3).x,
    "read": lambda: read(sys.argv[2]).read(),
    "import": lambda: __import__("sympy.integrals.risch").__name__,
    "solve": lambda: str(sympy.solve(sympy.Symbol("x") ** 2 - 4)),
    "integrate": lambda: str(sympy.integrate(sympy.sin(sympy.Symbol("x")) ** 2, (sympy.Symbol("x"), 0, sympy.pi))),
    "units": lambda: __import__("sympy.physics.units").__name__,
}
found = {}
for name, action in {**ACTIONS, **ALLOWED}.items():
    try:
        result = ["returned", action()] if name in ALLOWED else ["returned", str(action())]
    except ConfinementError:
        result = ["refused"]
    except Exception as error:
        result = ["raised", repr(error)]
    found[name] = result + [confinement.take_violation()]
print(json.dumps(found))
"""
CODE, WRITE, FILES, PROCESS = "run text as code", "open a file for writing", "change files", "start a process"
REFUSED = {
    **dict.fromkeys(("eval", "exec", "sympify", "parse", "attribute", "lambda", "simplify", "matrix"), CODE),
    **dict.fromkeys(("write", "append", "update", "low level", "tempfile"), WRITE),
    **dict.fromkeys(("system", "popen", "subprocess", "spawn", "execv", "fork"), PROCESS),
    **dict.fromkeys(("mkdir", "symlink", "link", "remove", "rename", "truncate", "chmod", "utime"), FILES),
    **dict.fromkeys(("copy", "path"), FILES),
    **dict.fromkeys(("socket", "connect"), "open a connection"),
    **dict.fromkeys(("ctypes", "address"), "load compiled code"),
    "kill": "send a signal",
}
ALLOWED = {
    "number": "2*x/3 + 12",
    "namedtuple": "Pair(a=1, b=2)",
    "dataclass": 3,
    "read": "kept",
    "import": "sympy",
    "solve": "[-2, 2]",
    "integrate": "pi/2",
    "units": "sympy",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[object]]:
    folder = tmp_path_factory.mktemp("confined")
    (folder / "file").write_text("kept")
    done = subprocess.run(
        [sys.executable, "-c", CONFINED, str(folder / "marker"), str(folder / "file")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in Path(folder).iterdir()] == ["file"]
    assert (folder / "file").read_text() == "kept"
    results: dict[str, list[object]] = json.loads(done.stdout)
    return results


@pytest.mark.parametrize("action", REFUSED)
def test_what_a_grader_has_no_reason_to_do_is_refused(found: dict[str, list[object]], action: str) -> None:
    assert found[action][0] != "returned"
    assert found[action][-1] == f"the grader tried to {REFUSED[action]}; refused"


def test_a_librarys_own_handler_does_not_go_on(found: dict[str, list[object]]) -> None:
    assert found["caught"] == ["refused", "the grader tried to run text as code; refused"]


@pytest.mark.parametrize("action", ALLOWED)
def test_what_graders_need_goes_on(found: dict[str, list[object]], action: str) -> None:
    assert found[action] == ["returned", ALLOWED[action], None]
