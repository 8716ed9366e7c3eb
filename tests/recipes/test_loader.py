from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from swerve.config.recipe import Config
from swerve.errors import ConfigError
from swerve.recipes import (
    config_hash,
    config_schema,
    differing_keys,
    dump_yaml,
    load_config,
    recipe_text,
    shipped_recipes,
)

RECIPE = """\
name: mine
seed: 3
task: addition
model:
  kind: tiny
  hidden_size: 32
stages:
  - kind: sft
    steps: 10
    optimizer:
      lr: 4e-3
  - kind: rl
    name: polish
    steps: 20
    optimizer: {lr: 5e-5}
    checkpoints: [5, 20]
"""

KINDS = (
    "addition", "multiplication", "knights_knaves", "gsm8k", "math", "deepscaler", "k_and_k", "palindrome", "countdown",
    "arithmetic_sequence", "word_problems", "reasoning_gym", "table", "mixture",
)  # fmt: skip
KINDS_QUOTED = ", ".join(f"'{kind}'" for kind in KINDS)
SHIPPED = (
    "countdown", "demo_addition", "demo_knights_knaves", "demo_multiplication", "distill_addition", "gsm8k", "k_and_k",
    "k_and_k_cold_start", "k_and_k_curriculum", "k_and_k_direct", "k_and_k_distill", "kl_study", "math", "palindrome",
    "sequence", "spo_gsm8k", "spo_pretraining", "word_problems", "word_problems_dpo", "word_problems_sft",
)  # fmt: skip


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("recipe.yaml")
    path.write_text(RECIPE, encoding="utf-8")
    return path


def failure(source: str | Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(source, overrides)
    return str(caught.value)


def changed(recipe: Path, old: str, new: str) -> str:
    assert old in RECIPE
    recipe.write_text(RECIPE.replace(old, new, 1), encoding="utf-8")
    return failure(recipe)


def test_values_and_defaults(recipe: Path) -> None:
    config = load_config(recipe)
    assert config.task.kind == "addition"
    assert config.task.digits == 4
    assert config.model.kind == "tiny"
    assert config.stages[0].optimizer.lr == 0.004
    assert config.stages[1].label == "polish"
    assert config.stages[1].checkpoints == (5, 20)
    assert config == load_config("recipe.yaml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "    steps: 10\n",
            "    stepz: 10\n",
            "recipe.yaml:9: unknown key 'stages.sft.stepz'; did you mean 'steps'?\n"
            "recipe.yaml:8: missing required key 'stages.sft.steps'",
        ),
        (
            "    steps: 20\n",
            "    steps: 20\n    samples_per_promt: 4\n",
            "recipe.yaml:15: unknown key 'stages.polish.samples_per_promt'; did you mean 'samples_per_prompt'?",
        ),
        (
            "  hidden_size: 32",
            "  hidden_siz: 32",
            "recipe.yaml:6: unknown key 'model.hidden_siz'; did you mean 'hidden_size'?",
        ),
        (
            "    steps: 10\n",
            "    steps: 10\n    lr: 1\n",
            "recipe.yaml:10: unknown key 'stages.sft.lr'; did you mean 'stages.sft.optimizer.lr'?",
        ),
        (
            "task: addition",
            "task: {kind: addition, q: 1}",
            "recipe.yaml:3: unknown key 'task.q'; allowed: kind, digits, "
            "num_train, num_heldout, mistake_rate, slip_rate",
        ),
        ("seed: 3", "seed: abc", "recipe.yaml:2: 'seed' must be an integer, got 'abc'"),
        ("seed: 3", "seed: 3.5", "recipe.yaml:2: 'seed' must be an integer, got 3.5"),
        ("seed: 3", "seed: true", "recipe.yaml:2: 'seed' must be an integer, got true"),
        ("seed: 3", "seed: -1", "recipe.yaml:2: 'seed' must be at least 0, got -1"),
        ("seed: 3", "seed: 2147483648", "recipe.yaml:2: 'seed' must be less than 2147483648, got 2147483648"),
        ("name: mine", "name: 7", "recipe.yaml:1: 'name' must be text, got 7; put it in quotes"),
        ("name: mine", "name: [a]", "recipe.yaml:1: 'name' must be text, got a list"),
        ("lr: 4e-3", "lr: fast", "recipe.yaml:11: 'stages.sft.optimizer.lr' must be a number, got 'fast'"),
        ("lr: 4e-3", "lr: 0", "recipe.yaml:11: 'stages.sft.optimizer.lr' must be greater than 0, got 0"),
        (
            "{lr: 5e-5}",
            "{lr: 5e-5, max_grad_norm: none}",
            "recipe.yaml:15: 'stages.polish.optimizer.max_grad_norm' must be a number or null, got 'none'",
        ),
        (
            "{lr: 5e-5}",
            "{lr: 5e-5, schedule: cosin}",
            "recipe.yaml:15: 'stages.polish.optimizer.schedule' must be one of 'constant', 'linear', 'cosine', got "
            "'cosin'; did you mean 'cosine'?",
        ),
        (
            "kind: tiny",
            "kind: tinny",
            "recipe.yaml:5: 'model.kind' must be one of 'tiny', 'pretrained', got 'tinny'; did you mean 'tiny'?",
        ),
        (
            "task: addition",
            "task: sums",
            f"recipe.yaml:3: 'task.kind' must be one of {KINDS_QUOTED}, got 'sums'",
        ),
        (
            "task: addition",
            "task: {digits: 3}",
            f"recipe.yaml:3: missing required key 'task.kind'; allowed: {', '.join(KINDS)}",
        ),
        ("task: addition", "task: 3", "recipe.yaml:3: 'task' must be a mapping, got 3"),
        ("task: addition\n", "", "recipe.yaml: missing required key 'task'"),
        ("    steps: 20\n", "", "recipe.yaml:12: missing required key 'stages.polish.steps'"),
        ("[5, 20]", "[5, x]", "recipe.yaml:16: 'stages.polish.checkpoints.1' must be an integer, got 'x'"),
        ("[5, 20]", "5", "recipe.yaml:16: 'stages.polish.checkpoints' must be a list, got 5; write checkpoints=[5]"),
        ("    name: polish\n", "    name: sft\n", "recipe.yaml: stages need different names; give 'name' to ['sft']"),
        (
            "hidden_size: 32",
            "num_heads: 3",
            "recipe.yaml:4: 'model': num_heads (3) must be a multiple of num_kv_heads (2)",
        ),
        (
            "seed: 3",
            "seed: 3\nrollout: {ahead: '1'}",
            "recipe.yaml:3: 'rollout.ahead' must be one of 0, 1, got '1'",
        ),
        (
            "steps: 10\n",
            "steps: 2000000000\n",
            "recipe.yaml:9: 'stages.sft.steps' must be at most 1000000000, got 2000000000",
        ),
        (
            "steps: 10\n",
            "epochs: 1e9\n",
            "recipe.yaml:9: 'stages.sft.epochs' must be at most 1000000, got 1000000000.0",
        ),
        ("seed: 3", "seed: 3\neval: []", "recipe.yaml:3: 'eval' must be a mapping, got an empty list"),
        (
            "seed: 3\ntask: addition",
            "seed: x\ntask: sums\nmax_new_tokens: 0",
            "recipe.yaml:2: 'seed' must be an integer, got 'x'\n"
            f"recipe.yaml:3: 'task.kind' must be one of {KINDS_QUOTED}, got 'sums'\n"
            "recipe.yaml:4: 'max_new_tokens' must be greater than 0, got 0",
        ),
    ],
)
def test_error_lines(recipe: Path, old: str, new: str, message: str) -> None:
    assert changed(recipe, old, new) == message


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "stages.rl.lr=1",
            "override 'stages.rl.lr=1': unknown key 'stages.polish.lr'; did you mean 'stages.polish.optimizer.lr'?",
        ),
        (
            "stages.polsh.steps=1",
            "override 'stages.polsh.steps=1': 'stages' has no item 'polsh'; it has sft, polish; did you mean 'polish'?",
        ),
        ("stages.2.steps=1", "override 'stages.2.steps=1': 'stages' has no item '2'; it has sft, polish"),
        ("sed=1", "override 'sed=1': unknown key 'sed'; did you mean 'seed'?"),
        (
            "stages.polish.kl={kind: none, coef: 1}",
            "override 'stages.polish.kl={kind: none, coef: 1}': unknown key 'stages.polish.kl.coef': it belongs to "
            "stages.polish.kl.kind='reward' or 'loss' or 'custom', here it is 'none'; set stages.polish.kl.kind, too",
        ),
        ("seed=x", "override 'seed=x': 'seed' must be an integer, got 'x'"),
        ("seed", "override 'seed': must have the form KEY=VALUE, such as seed=1 or stages.rl.steps=40"),
        ("a..b=1", "override 'a..b=1': must have the form KEY=VALUE, such as seed=1 or stages.rl.steps=40"),
        ("seed.x=1", "override 'seed.x=1': 'seed' is a single value and has no key 'x'"),
        ("model=[", "override 'model=[': not valid YAML: expected the node content, but found '<stream end>'"),
        (
            "task=knights",
            "override 'task=knights': "
            f"'task.kind' must be one of {KINDS_QUOTED}, got 'knights'; "
            "did you mean 'knights_knaves'?",
        ),
        (
            "model.num_heads=3",
            "override 'model.num_heads=3': 'model': num_heads (3) must be a multiple of num_kv_heads (2)",
        ),
        ("stages=[]", "override 'stages=[]': 'stages' must have at least 1 item"),
        (  # of which other defaults depend
            "stages.polish.kl=[]",
            "override 'stages.polish.kl=[]': 'stages.polish.kl' must be a mapping, got an empty list",
        ),
        (
            "rollout.check.max_difference=-1",
            "override 'rollout.check.max_difference=-1': "
            "'rollout.check.max_difference' must be 'auto' or a number above 0, got -1",
        ),
        (
            "model={kind: pretrained, path: x, lora: {targets: q_proj}}",
            "override 'model={kind: pretrained, path: x, lora: {targets: q_proj}}': "
            "'model.lora.targets' must be 'all_linear' or a list of texts, got 'q_proj'",
        ),
        (
            "model={kind: pretrained, path: x, today: {}}",
            "override 'model={kind: pretrained, path: x, today: {}}': "
            "'model.today' must be a date such as 2026-01-31, got an empty mapping",
        ),
        ("name=\x1b[1m", "override 'name=\\x1b[1m': not valid YAML: character U+001B is not allowed"),
    ],
)
def test_override_error_lines(recipe: Path, override: str, message: str) -> None:
    assert failure(recipe, override) == message


def test_override_forms(recipe: Path) -> None:
    config = load_config(
        recipe,
        [
            "seed=9",
            "eval.num_problems=7",
            "stages.0.steps=3",
            "stages.polish.optimizer.lr=1e-4",
            "stages.rl.samples_per_prompt=2",
            "stages.rl.checkpoints=[1, 2]",
            "task=knights_knaves",
            "task.people=3",
            "runtime.threads=null",
            "report.title='a: b'",
        ],
    )
    assert config.seed == 9
    assert config.eval.num_problems == 7
    assert config.stages[0].steps == 3
    assert config.stages[1].optimizer.lr == 1e-4
    assert config.stages[1].samples_per_prompt == 2  # type: ignore[union-attr]
    assert config.stages[1].checkpoints == (1, 2)
    assert config.task.model_dump()["people"] == 3
    assert config.runtime.threads is None
    assert config.report.title == "a: b"


def test_later_overrides_win_and_are_blamed(recipe: Path) -> None:
    assert load_config(recipe, ["seed=1", "seed=2"]).seed == 2
    assert failure(recipe, "seed=1", "seed=y") == "override 'seed=y': 'seed' must be an integer, got 'y'"


def test_an_ambiguous_stage_is_refused(recipe: Path) -> None:
    recipe.write_text(RECIPE.replace("kind: sft", "kind: rl\n    name: first"), encoding="utf-8")
    assert failure(recipe, "stages.rl.steps=1") == (
        "override 'stages.rl.steps=1': 'rl' names 2 items; use an index: [0, 1]"
    )


def test_sources_that_cannot_be_read(recipe: Path) -> None:
    shipped = f"(shipped: {', '.join(SHIPPED)}; or give the path of a YAML file)"
    assert failure("demo_additon") == f"unknown recipe 'demo_additon'; did you mean 'demo_addition'? {shipped}"
    assert failure("zzz") == f"unknown recipe 'zzz' {shipped}"
    assert failure("missing.yaml") == "recipe file 'missing.yaml' does not exist"
    assert failure(Path()) == "recipe file '.' is a folder; give a YAML file, such as the config.yaml of a run"
    recipe.write_bytes(b"name: a\nseed: \xff")
    assert failure(recipe) == "recipe.yaml:2: not UTF-8 text"
    recipe.write_text("- 1", encoding="utf-8")
    assert failure(recipe) == "recipe.yaml: a recipe is a mapping with the keys task, model and stages"
    recipe.write_text("", encoding="utf-8")
    assert failure(recipe) == "recipe.yaml: a recipe is a mapping with the keys task, model and stages"


def test_shipped_recipes_hold_the_values_of_the_demo() -> None:
    assert shipped_recipes() == SHIPPED
    addition, puzzles = map(load_config, ("demo_addition", "demo_knights_knaves"))
    assert addition.name == "demo-addition"
    assert [stage.kind for stage in addition.stages] == ["sft", "dpo", "rl"]
    assert addition.stages[2].checkpoints[-1] == addition.stages[2].steps
    assert addition.runtime.threads == 1
    assert puzzles.name == "demo-knights-knaves"
    assert puzzles.task.kind == "knights_knaves"
    for name in shipped_recipes():
        assert recipe_text(name).startswith("# ")


@pytest.mark.parametrize("name", ["sequence", "palindrome", "countdown"])
def test_recipes_for_a_tiny_model_have_words_and_solutions_that_fit(name: str) -> None:
    from swerve.problems import load_family

    config = load_config(name)
    family = load_family(config.task)
    train, heldout = (family.problems(split, seed=0) for split in ("train", "heldout"))
    assert len(heldout) >= config.eval.num_problems
    assert not {one.id for one in train} & {one.id for one in heldout}
    for problem in [*train, *heldout]:
        assert {*problem.question.split(), *(problem.solution or "").split()} <= set(family.words)
        assert len((problem.solution or "").split()) < config.max_new_tokens


def test_phases_of_the_curriculum_have_the_puzzles_of_their_number_of_people() -> None:
    from swerve.problems import load_family
    from swerve.train.curriculum import stage_draws
    from swerve.train.phases import phases_of

    config = load_config("k_and_k_curriculum", ["task.num_train=35", "task.num_heldout=7"])
    (stage,) = config.stages
    family = load_family(config.task)
    phases = phases_of(stage)
    draws = stage_draws(phases, family, family.problems("train", seed=0), seed=0)
    assert sorted(config.scheduled_steps) == [110, 220, 330, 440, 550]
    for people, phase, drawn in zip(range(3, 8), phases, draws, strict=True):
        problems = drawn.draw(range(5), step=phase.steps.start)
        assert {one.kind for one in problems} == {f"{people} people"}
        assert {one.difficulty for one in problems} == {float(people)}
        # Each begins as a stage of its own would, with the same settings.
        assert phase.steps == phase.schedule
        assert phase.reference_start == phase.steps.start
        assert phase.stage.model_dump(exclude={"where", "checkpoints"}) == stage.model_copy(
            update={"phases": ()}
        ).model_dump(exclude={"where", "checkpoints"})


@pytest.mark.parametrize("name", ["gsm8k", "math", "k_and_k", "kl_study"])
def test_recipes_that_leave_the_model_open_say_so(name: str, tmp_path: Path) -> None:
    from swerve.artifacts.run import RunDirectory
    from swerve.models.starting_model import starting_model
    from swerve.world import World

    config = load_config(name, ["runtime.device=cpu"])
    with pytest.raises(ConfigError, match=r"the recipe leaves the model open .*model.path=FOLDER"):
        starting_model(config, RunDirectory(tmp_path), None, World())  # type: ignore[arg-type]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@settings(max_examples=30)
@given(
    name=TEXTS,
    title=TEXTS,
    lr=st.floats(min_value=1e-12, max_value=10, exclude_min=True),
    seed=st.integers(0, 2**31 - 1),
)
def test_dump_reads_back_to_an_equal_config(
    tmp_path_factory: pytest.TempPathFactory, name: str, title: str, lr: float, seed: int
) -> None:
    base = load_config("demo_addition").model_dump(mode="json")
    base["stages"][0]["optimizer"]["lr"] = lr
    base["report"]["title"] = title
    config = Config.model_validate_json(json.dumps({**base, "name": name, "seed": seed}))
    path = tmp_path_factory.mktemp("round") / "config.yaml"
    path.write_text(dump_yaml(config), encoding="utf-8", newline="")
    assert load_config(path) == config
    assert config_hash(load_config(path)) == config_hash(config)


def test_dump_means_the_same_to_readers_of_yaml_1_1() -> None:
    config = load_config("demo_addition", ["name=no", "report.title='1:30'"])
    data = yaml.safe_load(dump_yaml(config))
    assert data["name"] == "no"
    assert data["report"]["title"] == "1:30"
    assert data["stages"][1]["optimizer"]["lr"] == 1e-5


def test_hash_depends_on_values_only(recipe: Path) -> None:
    first = config_hash(load_config(recipe))
    recipe.write_text("# a comment\n" + RECIPE.replace("task: addition", "task: {kind: addition, digits: 4}"))
    assert config_hash(load_config(recipe)) == first
    assert config_hash(load_config(recipe, ["seed=4"])) != first


def test_differing_keys_of_lists_of_unequal_length() -> None:
    base = load_config("demo_addition")
    other = load_config("demo_addition", ["stages.rl.checkpoints=[1, 2, 4, 6, 10, 20, 40]", "runtime.threads=2"])
    assert differing_keys(base, base) == []
    assert differing_keys(base, other) == ["stages.rl.checkpoints.7", "runtime.threads"]


def test_schema_describes_every_section() -> None:
    schema = config_schema()
    assert {"required": ["task", "model", "stages"]} in schema["anyOf"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["seed"]["default"] == 0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("probe.reference=nothing", r"probe.reference 'nothing' names no stage of \['sft', 'dpo', 'rl'\]"),
        ("probe.final=pg-3", "probe.final 'pg-3' names no stage"),
        ("probe.checkpoints=rl-3", "probe.checkpoints 'rl-3' is no stage of"),
        ("stages.rl.name=../../escaped", "should match pattern|letters"),
        ("stages.rl.optimizer.beta1=1.0", "less than 1|below 1|< 1"),
    ],
)
def test_what_would_fail_later_is_refused_at_once(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config("demo_addition", [override])
    assert load_config("demo_addition", ["probe.reference=rl-30", "probe.final=step_000588"])
