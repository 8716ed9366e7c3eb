"""Nothing in the package unpickles, evaluates text as code, starts a shell or runs code that came with a model."""

from __future__ import annotations

import ast
from pathlib import Path

import swerve
from tests.cases import each

SOURCES = sorted(Path(swerve.__file__).parent.rglob("*.py"))
BANNED_MODULES = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
BANNED_CALLS = {"eval", "exec", "compile", "__import__"}
BANNED_NAMES = {"sympify", "parse_expr", "nsimplify", "lambdify", "sympy_parser"}
"""Of sympy, however they are imported: they turn text into code."""
BANNED_ATTRIBUTES = {
    ("torch", "load"),
    ("os", "system"),
    ("sympy", "sympify"),
    ("sympy", "parse_expr"),
    ("sympy", "nsimplify"),
    ("sympy", "lambdify"),
    ("yaml", "load"),
}


def violations(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            found += [name for name in names if name.split(".")[0] in BANNED_MODULES]
            found += [name for name in names if name.split(".")[-1] in BANNED_NAMES]
        elif isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name) and function.id in BANNED_CALLS:
                found.append(function.id)
            if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                pair = (function.value.id, function.attr)
                safe_loader = any(keyword.arg == "Loader" for keyword in node.keywords) or len(node.args) > 1
                if pair in BANNED_ATTRIBUTES and not (pair == ("yaml", "load") and safe_loader):
                    found.append(".".join(pair))
            found += [
                f"{keyword.arg}=True"
                for keyword in node.keywords
                if keyword.arg in ("shell", "trust_remote_code") and not _is_false(keyword.value)
            ]
    return found


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


@each("path", SOURCES)
def test_no_source_file_executes_what_it_reads(path: Path) -> None:
    assert violations(path.read_text()) == []


@each(
    ("source", "expected"),
    [
        ("import pickle", ["pickle"]),
        ("from joblib import load", ["joblib"]),
        ("eval(text)", ["eval"]),
        ("torch.load(path)", ["torch.load"]),
        ("yaml.load(text)", ["yaml.load"]),
        ("from sympy import sympify", ["sympify"]),
        ("from sympy.parsing.sympy_parser import parse_expr", ["parse_expr", "sympy.parsing.sympy_parser"]),
        ("sympy.nsimplify(text)", ["sympy.nsimplify"]),
        ("yaml.load(text, Loader=Safe)", []),
        ("model.eval()", []),
        ("run(command, shell=True)", ["shell=True"]),
        ("load(name, trust_remote_code=flag)", ["trust_remote_code=True"]),
        ("load(name, trust_remote_code=False)", []),
    ],
)
def test_the_check_finds_what_it_is_for(source: str, expected: list[str]) -> None:
    assert violations(source) == expected
