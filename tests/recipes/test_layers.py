"""Recipes that extend one another, and their profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from swerve.errors import ConfigError
from swerve.probe.recipe import ProbeRecipe
from swerve.recipes import config_schema, differing_keys, dump_yaml, load_config
from swerve.recipes.loader import load_document

BASE = """\
name: base
task: {kind: palindrome, min_length: 3, max_length: 5}
model: {kind: tiny, hidden_size: 32}
stages:
  - {kind: sft, steps: 10, optimizer: {lr: 4e-3}}
  - {kind: rl, steps: 20, kl: {kind: loss, estimator: k3, coef: 0.1}, optimizer: {lr: 5e-5, warmup_steps: 3}}
eval: {num_problems: 30, samples_per_problem: 2}
profiles:
  short:
    stages.rl.steps: 4
    stages.sft.steps: 2
  long: {stages.rl.steps: 400}
"""
CHILD = """\
extends: base.yaml
name: child
task: {max_length: 6}
eval:
  num_problems: 50
stages.rl.kl: {kind: reward, estimator: k1, coef: 0.2}
stages.rl.optimizer.lr: 1e-4
profiles:
  short: {stages.rl.steps: 5}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deeper").mkdir()
    for name, text in {"base": BASE, "child": CHILD}.items():
        (tmp_path / "deeper" / f"{name}.yaml").write_text(text, encoding="utf-8")
    return tmp_path


def failure(*overrides: str, old: str = "", new: str = "", file: str = "child") -> str:
    path = Path("deeper") / f"{file}.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config("deeper/child.yaml", overrides)
    return str(caught.value)


@pytest.mark.usefixtures("folder")
def test_a_recipe_has_what_it_extends_where_it_says_nothing_else() -> None:
    base, child = load_config("deeper/base.yaml"), load_config("deeper/child.yaml")
    assert child.task.model_dump() == {**base.task.model_dump(), "max_length": 6}
    assert child.eval == base.eval.model_copy(update={"num_problems": 50})
    changed = {"name", "task.max_length", "eval.num_problems"}
    changed |= {f"stages.rl.{key}" for key in ("kl.kind", "kl.estimator", "kl.coef", "optimizer.lr")}
    differing = set(differing_keys(base, child))
    assert changed <= differing
    assert all(key.startswith("stages.rl.kl.") for key in differing - changed)  # keys that one kind alone has
    assert child.stages[1].optimizer.warmup_steps == 3


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("task", ["countdown", "{kind: countdown}"])
def test_another_kind_replaces_a_mapping_and_a_list_replaces_a_list(task: str) -> None:
    Path("mine.yaml").write_text(
        f"extends: deeper/base.yaml\ntask: {task}\nstages: [{{kind: sft, steps: 3, optimizer: {{lr: 1e-3}}}}]\n"
    )
    config = load_config("mine.yaml")
    assert config.task == load_config("demo_addition", ["task=countdown"]).task
    assert [(stage.kind, stage.steps) for stage in config.stages] == [("sft", 3)]
    Path("mine.yaml").write_text("extends: deeper/base.yaml\ntask: palindrome\n")
    assert load_config("mine.yaml").task == load_config("deeper/base.yaml").task


def test_a_shipped_recipe_and_a_chain_are_extended(folder: Path) -> None:
    Path("one.yaml").write_text("extends: demo_addition\nseed: 5\nmodel: {num_layers: 3}\n")
    assert differing_keys(load_config("one.yaml"), load_config("demo_addition")) == ["seed", "model.num_layers"]
    Path("two.yaml").write_text("task: addition\nmodel: tiny\nstages: []\n")  # shorthand in what is extended
    Path("three.yaml").write_text(
        "extends: two.yaml\ntask: {digits: 2}\nstages: [{kind: sft, steps: 1, optimizer: {lr: 1}}]\n"
    )
    assert load_config("three.yaml").task.model_dump()["digits"] == 2
    (folder / "grandchild.yaml").write_text(f"extends: {folder}/deeper/child.yaml\nstages.sft.steps: 7\n")
    config = load_config("grandchild.yaml", ["profile=short"])
    assert (config.name, [stage.steps for stage in config.stages]) == ("child", [2, 5])


@pytest.mark.usefixtures("folder")
def test_a_profile_is_laid_over_the_recipe_and_overrides_over_the_profile() -> None:
    def steps(*overrides: str) -> list[int]:
        return [stage.steps for stage in load_config("deeper/child.yaml", overrides).stages]

    assert steps() == steps("profile=null") == [10, 20]
    assert steps("profile=short") == [2, 5]
    assert steps("profile=long") == [10, 400]
    assert steps("stages.rl.steps=9", "profile=short") == [2, 9]
    assert steps("profile=short", "profile=long") == [10, 400]
    # What is written into a run says the same without the recipe, its profiles and what it extends.
    config = load_config("deeper/child.yaml", ["profile=short"])
    Path("resolved.yaml").write_text(dump_yaml(config))
    assert load_config("resolved.yaml") == config
    assert not {"extends", "profiles", "profile"} & set(config.model_dump())


@pytest.mark.usefixtures("folder")
def test_an_inherited_profile_gives_way_to_the_keys_of_its_own_and_can_be_dropped() -> None:
    stages = "stages: [{kind: sft, steps: 9, optimizer: {lr: 1}}]"
    Path("mine.yaml").write_text(f"extends: deeper/base.yaml\nprofiles: {{short: {{{stages}, seed: 4}}, long: null}}\n")
    config = load_config("mine.yaml", ["profile=short"])
    assert ([stage.steps for stage in config.stages], config.seed) == ([9], 4)
    with pytest.raises(ConfigError, match=r"mine.yaml has no profile 'long' \(short\)"):
        load_config("mine.yaml", ["profile=long"])


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["profile=shrt"],
            "override 'profile=shrt': deeper/child.yaml has no profile 'shrt'; did you mean 'short'? (short, long)",
        ),
        (["profile.a=1"], "override 'profile.a=1': unknown key 'profile'; did you mean 'probe'?"),
        (["profile=short", "stages.rl.steps=x"], "override 'stages.rl.steps=x': 'stages.rl.steps' must be an integer"),
    ],
)
def test_a_wrong_choice_of_profile(overrides: list[str], message: str) -> None:
    assert failure(*overrides).startswith(message)


def test_a_recipe_without_profiles_says_so() -> None:
    with pytest.raises(ConfigError, match="sequence.yaml has no profiles"):
        load_config("sequence", ["profile=tiny"])


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("child", "num_problems: 50", "num_problem: 50", "child.yaml:5: unknown key 'eval.num_problem'; did you mean"),
        ("child", "num_problems: 50", "num_problems: no", "child.yaml:5: 'eval.num_problems' must be an integer"),
        ("child", "max_length: 6", "max_length: 2", "child.yaml:3: 'task'"),
        ("child", "estimator: k1", "estimator: k9", "child.yaml:6: 'stages.rl.kl.estimator' must be"),
        ("child", "stages.rl.kl", "stages.r.kl", "child.yaml:6: 'stages' has no item 'r'; it has sft, rl"),
        ("child", "stages.rl.kl", "stages..kl", "child.yaml:6: a part of the key 'stages..kl' is empty"),
        ("child", "rl.steps: 5", "rl.steps: 0", "child.yaml:9: 'stages.rl.steps' must be greater than 0"),
        ("child", "{stages.rl.steps: 5}", "[5]", "child.yaml:9: 'profiles.short' must be a mapping of dotted keys"),
        (
            "child",
            "profiles:\n  short: {stages.rl.steps: 5}",
            "profiles: [1]",
            "child.yaml:8: 'profiles' must be a mapping",
        ),
        ("child", "base.yaml", "[base]", "child.yaml:1: 'extends' must be the name of a shipped recipe or the path"),
        ("child", "base.yaml", "bas.yaml", "child.yaml:1: recipe file 'deeper/bas.yaml' does not exist"),
        ("child", "base.yaml", "sequenc", "child.yaml:1: unknown recipe 'sequenc'; did you mean 'sequence'?"),
        ("base", "hidden_size: 32", "hidden_size: a", "base.yaml:3: 'model.hidden_size' must be an integer"),
        ("base", "sft.steps: 2", "sft.steps: a", "base.yaml:11: 'stages.sft.steps' must be an integer"),
        ("base", "name: base", "name: base\nname: twice", "base.yaml:2: key 'name' is given twice, first in line 1"),
        (
            "base",
            "name: base",
            "name: base\nextends: ../deeper/child.yaml",
            "base.yaml:2: recipes extend one another in a circle: deeper/child.yaml ->",
        ),
    ],
)
def test_errors_name_the_file_and_the_line(file: str, old: str, new: str, message: str) -> None:
    said = failure("profile=short", file=file, old=old, new=new)
    assert said.replace("deeper/", "", 1).startswith(message)


def test_dotted_keys_are_of_recipes_that_extend_another(folder: Path) -> None:
    Path("mine.yaml").write_text(BASE + "stages.rl.steps: 3\n")
    with pytest.raises(ConfigError, match=r"mine.yaml:13: unknown key 'stages.rl.steps'"):
        load_config("mine.yaml")


def test_a_probe_has_profiles_and_extends_too(tmp_path: Path) -> None:
    base = "models: {a: x/a, b: x/b, c: x/c}\nreference: a\nresponses: r.json\nout: o\n"
    (tmp_path / "base.yaml").write_text(f"{base}profiles: {{few: {{probe.max_rollouts: 3}}}}\n")
    (tmp_path / "mine.yaml").write_text("extends: base.yaml\ncheckpoints: [c]\n")
    recipe = load_document(ProbeRecipe, tmp_path / "mine.yaml", ["profile=few", "probe.top_k=2"])
    assert (recipe.compared, recipe.probe.max_rollouts, recipe.probe.top_k) == (("c",), 3, 2)
    assert load_document(ProbeRecipe, tmp_path / "mine.yaml").probe.max_rollouts > 3


def test_the_schema_allows_what_a_recipe_may_have() -> None:
    schema = config_schema()
    assert {"extends", "profiles"} <= schema["properties"].keys()
    assert {"required": ["extends"]} in schema["anyOf"]
    assert list(schema["patternProperties"]) == [r"^[^.]+\."]


def test_an_override_of_the_kind_is_named_for_the_keys_that_do_not_fit_it() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("spo_gsm8k", ["stages.rl.loss.kind=fixed_target_kl"])
    message = str(caught.value)
    assert message.startswith("override 'stages.rl.loss.kind=fixed_target_kl': unknown key 'stages.rl.loss.")
    assert "(set in spo_gsm8k.yaml:" in message
