"""Keywords of Python are the options of the terminal, with the types of the settings."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import typer
from pydantic import TypeAdapter

import swerve
from swerve.artifacts.probe_causes import CrossSampling, Pivots, Prediction
from swerve.claim.settings import ClaimSettings
from swerve.cli.app import app
from swerve.config.recipe import Config, ReportConfig
from swerve.config.sampling import SampleSettings
from swerve.door.evaluate import EvaluateKeywords
from swerve.door.keywords import (
    CLAIM,
    COMMANDS,
    SAMPLING,
    TERMINAL_ONLY,
    ClaimKeywords,
    SampleKeywords,
    keywords_of,
    settings_of,
)
from swerve.door.spoken import _name
from swerve.errors import ConfigError

TASK = {"kind": "addition"}
ROOT = Path(__file__).parents[2]


def _field(model: Any, key: str) -> Any:
    """The annotation of a dotted key."""
    first, _, rest = key.partition(".")
    field = model.model_fields[first]
    return _field(type(field.default), rest) if rest else field.annotation


def _types(annotation: Any) -> set[str]:
    """What JSON says of a type: its kinds, and the words that it may be."""
    schema = TypeAdapter(annotation).json_schema()
    branches = [branch for one in schema.get("anyOf", [schema]) for branch in one.get("oneOf", [one])]
    found = {word for branch in branches for word in branch.get("enum", [branch.get("type", "object")])}
    return {"integer" if kind == "number" and "integer" in found else kind for kind in found} - {"null"}


@pytest.mark.parametrize(
    ("settings", "options", "hints"),
    [(SampleSettings, SAMPLING, SampleKeywords), (ClaimSettings, CLAIM, ClaimKeywords)],
)
def test_keywords_have_the_names_of_options_and_the_types_of_settings(settings: Any, options: Any, hints: Any) -> None:
    keywords, typed = keywords_of(options), get_type_hints(hints)
    assert list(typed) == sorted(keywords, key=list(typed).index)
    for name, key in keywords.items():
        own, wanted = _types(typed[name]), _types(_field(settings, key))
        assert own >= wanted, (name, own, wanted)
        beyond = {"temperature": {"number"}, "date": set[str](), "parts": {"string"}, "texts": {"string"}}
        assert own - wanted <= beyond.get(name, set()), (name, own, wanted)


@pytest.mark.parametrize("given", [{"runtime": {"device": "cpu"}}, {"device": "cpu"}, {"runtime": {}}, {}])
def test_a_keyword_leaves_the_defaults_of_the_others(given: dict[str, Any]) -> None:
    assert settings_of(SampleSettings, TASK, given, SAMPLING).runtime.max_rows == 64
    asked = {"kind": "math", "prompt": {"system": "Think."}}
    prompt: Any = settings_of(SampleSettings, asked, given, SAMPLING).task
    assert (prompt.prompt.format, prompt.prompt.system) == ("boxed", "Think.")
    hashed: Any = settings_of(SampleSettings, {"kind": "gsm8k", "grading": {"units": "ignore"}}, given, SAMPLING).task
    assert hashed.grading.extraction == ("hash", "auto")


def test_values_of_every_keyword_reach_the_settings() -> None:
    given: dict[str, Any] = {
        "split": "train", "limit": 3, "num_samples": 4, "max_new_tokens": 5, "temperature": (0.5, 1), "seed": 6,
        "system": "Think.", "template": "raw", "template_args": {"thinking": True}, "date": "2025-01-31", "batch": 7,
        "problem_seed": 8, "device": "cpu", "dtype": "bfloat16", "runtime": {"threads": 1},
        "rollout": {"engine": "torch"},
    }  # fmt: skip
    assert given.keys() == keywords_of(SAMPLING).keys()
    found = settings_of(SampleSettings, TASK, given, SAMPLING)
    assert (found.temperatures, found.num_samples, found.limit, found.split) == ((0.5, 1.0), 4, 3, "train")
    assert (found.runtime.max_rows, found.runtime.threads, found.runtime.device) == (7, 1, "cpu")
    assert (str(found.today), found.template_args, found.system) == ("2025-01-31", {"thinking": True}, "Think.")
    assert settings_of(SampleSettings, None, {"seed": 1}, SAMPLING, settings=found).limit == 3
    for one in (0.5, np.float64(0.5), [0.5], (0.5,)):
        assert settings_of(SampleSettings, TASK, {"temperature": one}, SAMPLING).temperatures == (0.5,)


def test_other_names_of_keywords_are_taken() -> None:
    found = settings_of(SampleSettings, TASK, {"n": 4, "batch_size": 7, "num_problems": 3}, SAMPLING)
    assert (found.num_samples, found.runtime.max_rows, found.limit) == (4, 7, 3)
    with pytest.raises(ConfigError, match="'num_samples' is given twice: 'n' is another name"):
        settings_of(SampleSettings, TASK, {"n": 4, "num_samples": 4}, SAMPLING)
    with pytest.raises(ConfigError, match=r"did you mean 'temperatures'\? Write temperatures=\[0.5\]"):
        SampleSettings(task="addition", temperature=0.5)
    with pytest.raises(ConfigError, match=r"must be a list, got 1; write temperatures=\[1\]"):
        SampleSettings(task="addition", temperatures=1)


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"num_sample": 2}, "there is no keyword 'num_sample'; did you mean 'num_samples'?"),
        ({"levels": [3]}, "it is a key of a task: task={'kind': 'math', 'levels': ...}"),
        ({"zebra": 3}, "there is no keyword 'zebra'; there are split, limit"),
        ({"grader": "exact"}, "task={'kind': 'table', 'grader': NAME}, or the field 'grader' of each row"),
        ({"reward": len}, "'reward_file': FILE}; swerve.rewards.trl_reward wraps graders"),
        ({"tokenizer": "x"}, "tokenizer.save_pretrained(FOLDER)"),
        ({"temperature": -1}, "temperature=-1 is no number of at least 0, nor a list of them"),
        ({"temperature": []}, "temperature=[] is no number of at least 0"),
        ({"temperature": True}, "temperature=True is no number of at least 0"),
        (
            {"device": "gpu"},
            "device='gpu': 'runtime.device' must be one of 'auto', 'cpu', 'cuda', got 'gpu'; did you mean 'cuda'?",
        ),
        ({"batch": 0}, "batch=0: 'runtime.max_rows' must be greater than 0, got 0"),
        ({"temperature": "hot"}, "temperature='hot' is no number of at least 0, nor a list of them"),
        ({"num_samples": 3, "temperature": [0.5, 1]}, "num_samples (3) must be a multiple of the 2 temperatures"),
        ({"dtype": "float8"}, "dtype='float8': 'runtime.dtype' must be one of 'float32', 'bfloat16', got"),
    ],
)
def test_what_is_wrong_with_a_keyword_is_said_by_its_name(keywords: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_of(SampleSettings, TASK, keywords, SAMPLING)
    assert said in str(caught.value)


def test_options_that_the_terminal_alone_has_are_those_of_its_commands() -> None:
    commands: Any = typer.main.get_command(app)
    hints: dict[str, Any] = {"sample": SampleKeywords, "evaluate": EvaluateKeywords, "claim": ClaimKeywords}
    for name in ("claim", "evaluate", "grade", "report", "sample"):
        function = vars(import_module(f"swerve.door.{name}"))[name]
        keywords = {*inspect.signature(function).parameters, *get_type_hints(hints.get(name, object))}
        keywords |= {*ReportConfig.model_fields} if name == "report" else set()
        command = commands.commands[COMMANDS.get(name, name)]
        options = {word for one in (*command.params, *command.more) for word in one.opts}
        words = {word[2:].replace("-", "_") for word in options if word.startswith("--")}
        lacking = {word for word in words if _name(word.replace("_", "-")) not in keywords and word not in keywords}
        assert set(TERMINAL_ONLY[name]) == lacking, name
    for name, options in TERMINAL_ONLY.items():
        option = options[0].replace("_", "-")
        said = f"{options[0]} is of the terminal alone: swerve {COMMANDS.get(name, name)} ... --{option}"
        with pytest.raises(ConfigError) as caught:
            vars(import_module(f"swerve.door.{name}"))[name]("x", **{options[0]: True})
        assert str(caught.value) == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"steps": 2}, "'stages.rl.steps'? Write stages={'rl': {'steps': 2}} or the text 'stages.rl.steps=2'"),
        ({"lr": 0.1}, "Write stages={'rl': {'optimizer': {'lr': 0.1}}} or the text 'stages.rl.optimizer.lr=0.1'"),
        ({"sed": 2}, "did you mean 'seed'?"),
    ],
)
def test_a_keyword_that_stands_deeper_in_a_recipe_is_said_as_python_has_it(changes: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        swerve.train("demo_addition", **changes)
    assert str(caught.value).endswith(said)
    config = swerve.load_config("demo_addition", stages={"rl": {"steps": 2}})
    assert config == swerve.load_config("demo_addition", "stages.rl.steps=2")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"task": "maths"}, "SampleSettings: 'task.kind' must be one of"),
        ({"task": "math", "num_sample": 3}, "unknown key 'num_sample'; did you mean 'num_samples'?"),
        ({}, "SampleSettings: missing required key 'task'"),
        ({"task": object()}, "task is of type object, which is no value of it"),
    ],
)
def test_settings_are_made_of_a_recipes_words(keys: Any, said: str) -> None:
    made = swerve.SampleSettings(task="math", temperatures=[0.5], runtime={"device": "cpu"})
    assert (made.task.kind, made.temperatures, made.runtime.device) == ("math", (0.5,), "cpu")
    assert made.runtime.max_rows == 64
    assert repr(made) == "SampleSettings(runtime={'device': 'cpu'}, temperatures=(0.5,), task='math')"
    assert swerve.ClaimSettings(task={"kind": "addition", "digits": 2}).num_samples == 16
    with pytest.raises(ConfigError) as caught:
        swerve.SampleSettings(**keys)
    assert said in str(caught.value)
    assert "pydantic.dev" not in str(caught.value)


def test_the_help_of_settings_has_a_sentence_for_each_key_with_its_default() -> None:
    for kind in (SampleSettings, ClaimSettings, Config):
        lines = " ".join(str(kind.__doc__).split())
        for name, field in kind.model_fields.items():
            assert f" {name}: {' '.join(str(field.description).split())}" in lines
            assert field.is_required() or "Default: " in lines.partition(f" {name}: ")[2]
        shown = pydoc.plain(pydoc.render_doc(kind))
        assert not {"model_dump", "__pydantic", "Methods"} & {*re.findall(r"model_dump|__pydantic|Methods", shown)}
        assert len(shown.splitlines()) < 80
    assert "num_samples: Completions per problem, over all temperatures. Default: 1." in str(SampleSettings.__doc__)


@pytest.mark.slow
def test_a_users_script_has_types(tmp_path: Path) -> None:
    script, options = Path(__file__).with_name("user_script.py"), ("--strict", "--cache-dir", str(tmp_path))
    config = ("--config-file", str(ROOT / "pyproject.toml"))
    command = [sys.executable, "-m", "mypy", *options, *config, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import swerve\nswerve.sample('a', [], num_sample=2)\nswerve.grade([]).wright\n")
    done = subprocess.run([*command[:-1], str(wrong)], capture_output=True, text=True, check=False, cwd=ROOT)
    assert "num_sample" in done.stdout
    assert "wright" in done.stdout


def test_causal_tests_show_themselves_in_three_lines() -> None:
    pivots = Pivots.model_construct(
        policy="reference", unit="token", num_rollouts=3, num_pivots=2, num_rises=1, num_falls=1, num_confirmed=1,
        size_estimate=None,
    )  # fmt: skip
    assert repr(pivots).splitlines()[0] == "Pivots(by reference: 2 tokens in 3 rollouts, 1 up and 1 down)"
    crossed = CrossSampling.model_construct(num_problems=3, num_samples=2, directions=())
    assert repr(crossed) == "CrossSampling(of 3 problems, 2 samples of each)"
    ranked = Prediction.model_construct(policy="reference", num_positions=3, selectors=())
    assert repr(ranked) == "Prediction(by reference: 3 positions)\nno score is ranked"
    assert all(repr(one).count("\n") < 3 for one in (pivots, crossed, ranked))
