"""Nothing in the package unpickles, evaluates text as code, starts a shell or runs code that came with a model."""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import swerve
from swerve.artifacts.problem_records import problem_record
from swerve.artifacts.response_columns import RESPONSES_SCHEMA
from swerve.artifacts.responses import Response, write_responses
from swerve.artifacts.run import RunDirectory
from swerve.cli import main
from swerve.errors import ArtifactError, ConfigError, SwerveError
from swerve.recipes import dump_yaml, load_config
from swerve.recipes.layers import overrides_of
from swerve.recipes.loader import check_copied, load_run_config
from swerve.types import Problem
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


TRAP = """
from pathlib import Path
Path({marker!r}).touch()
def reward(problem, text):
    return 1.0
def loss(*tensors, **options):
    return tensors[0]
"""


def sent_run(tmp_path: Path, **changes: Any) -> tuple[RunDirectory, Path]:
    """Return a run that somebody sent, with a trap in its folder, and the marker that the trap leaves."""
    made, run, marker = tmp_path / "made" / "run", tmp_path / "sent", tmp_path / "marker"
    config = load_config("demo_addition", changes)
    RunDirectory(made).create(config_yaml=dump_yaml(config), provenance={"status": "trained", "stages": {}})
    (made / "trap.py").write_text(TRAP.format(marker=str(marker)))
    assert not RunDirectory(made).is_copy()
    return RunDirectory(shutil.copytree(made, run)), marker


def continuations(run: RunDirectory) -> list[Any]:
    return [
        lambda: swerve.train(run.path, resume=True, progress=False),
        lambda: swerve.evaluate(run.path, progress=False),
        lambda: swerve.probe(run.path, progress=False),
    ]


def test_a_run_that_was_sent_runs_no_code_of_its_folder(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text(json.dumps({"question": "1 + 1?", "answer": "2"}) + "\n")
    trap = str(tmp_path / "sent" / "trap.py")
    task = {"kind": "table", "train": [str(problems)], "heldout": [str(problems)]}
    task |= {"grader": "python", "reward_file": trap}
    for changes in ({"task": task}, {"stages.rl.loss": {"kind": "custom", "path": f"{trap}:loss"}}):
        run, marker = sent_run(tmp_path, **changes)
        for go_on in continuations(run):
            with pytest.raises(
                ConfigError,
                match=r"would run the code in .*trap.py(:loss)?; if that is meant, say ",
            ):
                go_on()
        # What only reads a run does not load it either.
        for read in (swerve.report, lambda path: repr(swerve.Run(path))):
            try:
                read(run.path)
            except SwerveError as error:
                print(error)
        assert not marker.exists()
        shutil.rmtree(tmp_path / "made")
        shutil.rmtree(tmp_path / "sent")


def test_a_run_that_was_sent_reaches_no_server_that_nobody_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "s3cret")
    for url in ("https://collector.example/v1", "http://127.0.0.1:9/v1"):
        engine = {"kind": "openai", "url": url, "served_model": "m", "key": "MY_SECRET"}
        run, _ = sent_run(tmp_path, **{"rollout.engine": engine})
        for go_on in continuations(run):
            with pytest.raises(ConfigError, match=f"to {url}; if that is meant, say rollout.engine.url={url}"):
                go_on()
        check_copied(load_config(run), run, overrides_of([f"rollout.engine.url={url}"], {}))
        shutil.rmtree(tmp_path / "made")
        shutil.rmtree(tmp_path / "sent")
    url = "http://127.0.0.1:9"
    run, _ = sent_run(tmp_path, **{"rollout.engine": {"kind": "server", "urls": [url]}})
    for go_on in continuations(run):
        with pytest.raises(ConfigError, match=rf"to {url}; if that is meant, say rollout.engine.urls=\[{url}\]"):
            go_on()
    check_copied(load_config(run), run, overrides_of([f"rollout.engine.urls=[{url}]"], {}))


def test_what_a_copied_run_is_asked_to_run_may_be_typed(tmp_path: Path) -> None:
    problems, reward = tmp_path / "problems.jsonl", tmp_path / "reward.py"
    problems.write_text(json.dumps({"question": "1 + 1?", "answer": "2"}) + "\n")
    reward.write_text("def reward(problem, text):\n    return 1.0\n")
    task = {"kind": "table", "train": [str(problems)], "heldout": [str(problems)], "grader": "python"}
    run, _ = sent_run(tmp_path, task=task | {"reward_file": str(reward)})
    typed = [f"task.reward_file={reward}"]
    check_copied(load_run_config(run, typed), run, overrides_of(typed, {}))
    with pytest.raises(ConfigError, match="the run is trained already"):
        load_run_config(run, ["task.reward_file=other.py"])


@pytest.mark.slow
def test_a_file_of_responses_names_no_code(tmp_path: Path, save_addition_model: Callable[..., Path]) -> None:
    marker, trap, file = tmp_path / "marker", tmp_path / "trap.py", tmp_path / "responses.parquet"
    trap.write_text(TRAP.format(marker=str(marker)))
    grader = {"grader": "python", "grading": {"file": str(trap)}}
    problem = Problem(id="a", family="table", question="1 1 + 7 6 =", answer="0 8 7", **grader)
    response = Response(problem=problem, sequence_id=0, text="1 + 6 = 0 8 7")
    write_responses(file, [response], RESPONSES_SCHEMA, table="responses")
    base, rl = (str(save_addition_model(tmp_path / name, seed=seed)) for seed, name in enumerate(("base", "rl")))
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "probe",
                "--use-responses",
                str(file),
                "--reference",
                base,
                "--checkpoint",
                rl,
                "--out",
                str(tmp_path / "p"),
            ]
        )
    assert ended.value.code == 0
    assert not marker.exists()


def test_a_record_names_no_code(tmp_path: Path) -> None:
    marker, trap, rows = tmp_path / "marker", tmp_path / "trap.py", tmp_path / "rows.jsonl"
    trap.write_text(TRAP.format(marker=str(marker)))
    problem = Problem(
        id="a", family="table", question="1 + 1?", answer="2", grader="python", grading={"file": str(trap)}
    )
    rows.write_text(json.dumps(problem_record(problem)) + "\n")
    config = load_config("demo_addition", {"task": {"kind": "table", "train": [str(rows)], "heldout": [str(rows)]}})
    from swerve.problems import load_family

    with pytest.raises(ArtifactError, match="rows.jsonl, line 1 has the grader python: what a record names is not run"):
        load_family(config.task).problems("heldout", seed=0)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["report", "metrics.jsonl", "probe/steps"])
def test_what_is_written_into_a_run_that_was_sent_stays_in_it(tmp_path: Path, name: str) -> None:
    run, _ = sent_run(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (run.path / name).parent.mkdir(exist_ok=True)
    (run.path / name).symlink_to(elsewhere)
    for write in (*continuations(run), lambda: swerve.report(run.path)):
        with pytest.raises(ArtifactError, match=rf"{name} is a link to .*elsewhere in a run that was copied"):
            write()
    assert not list(elsewhere.iterdir())


def test_a_lock_that_is_a_link_empties_nothing(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / ".lock").symlink_to(precious)
    with (
        pytest.raises(ArtifactError, match="is a link, and a lock is a file of its own"),
        RunDirectory(tmp_path).lock(),
    ):
        pass
    assert precious.read_text() == "kept"
