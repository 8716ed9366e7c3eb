"""The lines of Python that people write, as far as no model has to be trained for them."""

from __future__ import annotations

import inspect
import pkgutil
import pydoc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import swerve
from swerve.artifacts.run import RunDirectory
from swerve.errors import ArtifactError, ConfigError


@pytest.mark.parametrize(
    ("overrides", "changes"),
    [
        (("seed=7", "stages.rl.steps=40"), {}),
        ((["seed=7", "stages.rl.steps=40"],), {}),
        (({"seed": 7, "stages.rl.steps": 40},), {}),
        (({"stages": {"rl": {"steps": 40}}},), {"seed": 7}),
        ((), {"seed": 7, "stages": {"rl": {"steps": 40}}}),
    ],
)
def test_changes_of_a_recipe_in_every_form(overrides: tuple[Any, ...], changes: dict[str, Any]) -> None:
    config = swerve.load_config("demo_addition", *overrides, **changes)
    plain = swerve.load_config("demo_addition")
    assert (config.seed, config.stages[-1].steps) == (7, 40)
    assert config.stages[-1].optimizer == plain.stages[-1].optimizer
    assert swerve.load_config(config) == config
    assert swerve.load_config({"extends": "demo_addition"}, config.model_dump(mode="json")) == config


def test_a_mapping_is_merged_and_under_a_dotted_key_it_replaces() -> None:
    plain = swerve.load_config("demo_addition")
    merged = swerve.load_config("demo_addition", eval={"num_problems": 9}).eval
    assert merged == plain.eval.model_copy(update={"num_problems": 9})
    other = swerve.load_config("demo_addition", task={"kind": "palindrome", "spaced": True}).task
    assert other.kind == "palindrome"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sed": 1}, "sed=1: unknown key 'sed'; did you mean 'seed'?"),
        ({"seed": "x"}, "seed='x': 'seed' must be an integer, got 'x'"),
        ({"seed": object()}, "object is no value of a recipe"),
        ({"stages": {"rx": {"steps": 1}}}, "'stages' has no item 'rx'; it has sft, dpo, rl"),
    ],
)
def test_wrong_changes(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        swerve.load_config("demo_addition", **changes)
    assert message in str(caught.value)


def test_a_run_is_its_path_its_name_or_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = RunDirectory("runs/first")  # type: ignore[arg-type]
    made.create(
        config_yaml=swerve.recipes.dump_yaml(swerve.load_config("demo_addition", seed=5)), provenance={"seed": 5}
    )
    for named in ("runs/first", Path("runs/first"), "first", made, swerve.Run("first")):
        run = swerve.Run(named)
        assert (run.path, run.config.seed, run.status, run.checkpoints, run.summary) == (
            made.path,
            5,
            "created",
            [],
            None,
        )
    assert repr(run) == "Run('runs/first': created)"
    assert run._repr_html_().startswith("<table><tr><th")
    assert [entry.path for entry in swerve.runs()] == [made.path]
    with pytest.raises(ArtifactError, match=r"run directory frist does not exist; did you mean 'runs/first'\?"):
        swerve.Run("frist")
    with pytest.raises(ArtifactError, match="has no checkpoint to evaluate"):
        swerve.evaluate("first")
    with pytest.raises(ConfigError, match="there is no keyword 'seed' of a run"):
        swerve.evaluate("first", seed=1)
    with pytest.raises(ConfigError, match="seed=1.*: the run is trained already"):
        swerve.probe("first", "seed=1")
    for change in ("probe.divergance=js", {"probe.divergance": "js"}):
        with pytest.raises(ConfigError, match="'probe.divergance'; did you mean 'divergence'"):
            swerve.probe("first", change)
    with pytest.raises(ArtifactError, match="has nothing to report"):
        swerve.report("first")


def test_frames_of_a_run_that_has_nothing_are_empty(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    RunDirectory(tmp_path / "run").create(
        config_yaml=swerve.recipes.dump_yaml(swerve.load_config("demo_addition")), provenance={}
    )
    run = swerve.Run(tmp_path / "run")
    assert [len(getattr(run, name)) for name in ("metrics", "evaluations", "tokens", "spikes")] == [0, 0, 0, 0]
    assert "js" in run.tokens.columns


@pytest.mark.parametrize("name", ["train", "probe", "report"])
def test_a_package_has_the_signature_and_the_help_of_its_function(name: str) -> None:
    package = getattr(swerve, name)
    function = getattr(package, name)
    assert inspect.signature(package) == inspect.signature(function)
    shown = pydoc.plain(pydoc.render_doc(package))
    assert inspect.getdoc(function).splitlines()[0] in shown


@pytest.mark.parametrize(
    ("function", "arguments", "keywords"),
    [
        ("load_config", ("demo_addition",), {"seed": 1}),
        ("train", ("demo_addition",), {"out": "runs/x", "seed": 1}),
        ("train", ("demo_addition", "seed=1", {"stages.rl.steps": 4}), {"resume": True}),
        ("evaluate", ("runs/x",), {}),
        ("probe", ("runs/x",), {}),
        ("probe", ("path_a", "path_b", ["a text"]), {}),
        ("probe", ("path_a", "path_b", [("prompt", "answer")]), {"top_k": 5}),
        ("report", ("runs/x",), {}),
        ("runs", (), {}),
        ("equivalent", ("1/2", "0.5"), {}),
        ("rewards.math", ("a text", "gold"), {}),
        ("rewards.trl_reward", ("math",), {"gold": "answer", "missing": 0.0}),
        ("rewards.verl_reward", ("math",), {}),
        ("plot.accuracy", ("runs/x",), {}),
        ("Run", ("runs/x",), {}),
    ],
)
def test_lines_that_people_write_bind(function: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    found: Any = swerve
    for name in function.split("."):
        found = getattr(found, name)
    inspect.signature(found).bind(*arguments, **keywords)
    assert inspect.getdoc(found)


def test_public_modules_list_their_names_alone() -> None:
    for module in (swerve.plot, swerve.rewards, swerve.functional, swerve.train):
        assert dir(module) == sorted(module.__all__)


_IMPORTS = """
import contextlib, importlib, io, sys
from swerve.cli import main

def check(*heavy):
    assert not set(heavy) & set(sys.modules), set(heavy) & set(sys.modules)

help_texts = io.StringIO()
with contextlib.redirect_stdout(help_texts):
    for command in ([], ["probe"], ["bench", "estimators"]):
        with contextlib.suppress(SystemExit):
            main([*command, "--help"])
        if not command:
            check("numpy", "pyarrow", "pydantic")

orders = [
    "import swerve.probe; check('scipy')",
    "",
    "import swerve.train, swerve.probe, swerve.report",
    "from swerve.train import train; from swerve.probe import probe; from swerve.report import report",
    "import swerve.report.page, swerve.probe.recipe",
]
for order in orders:
    for name in [name for name in sys.modules if name.partition(".")[0] == "swerve"]:
        del sys.modules[name]
    exec(order)
    import swerve
    for name in ("train", "probe", "report"):
        package = getattr(swerve, name)
        assert callable(package) and package is sys.modules[f"swerve.{name}"], (order, name)
        try:
            package("no/such/run.yaml")
        except swerve.errors.SwerveError as error:
            assert "no/such/run.yaml" in str(error)

assert swerve.load_config("demo_addition").name == "demo-addition"
swerve.Run, swerve.runs, swerve.Config, swerve.SampleSettings, swerve.read_samples
check("jinja2")
for name in sys.argv[1:]:
    importlib.import_module(name)
check("torch", "transformers", "matplotlib", "pandas")
print(help_texts.getvalue())
"""


@pytest.mark.slow
def test_packages_are_callable_in_every_order_of_imports_and_nothing_heavy_is_imported() -> None:
    commands = [entry.name for entry in pkgutil.iter_modules([str(Path(swerve.__file__).parent / "cli")])]
    modules = ["swerve.report.estimators", *(f"swerve.cli.{name}" for name in commands)]
    done = subprocess.run([sys.executable, "-c", _IMPORTS, *modules], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in ("demo", "train", "eval", "probe", "report", "recipes", "config", "runs", "--use-responses", "--field"):
        assert name in done.stdout
