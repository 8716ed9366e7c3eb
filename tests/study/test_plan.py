from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from swerve.artifacts.run import RunDirectory
from swerve.errors import ConfigError
from swerve.recipes import dump_yaml, load_config, shipped_recipes
from swerve.study.plan import plan_study

STUDY = """
name: kl
recipe: small.yaml
set: {eval.num_problems: 9}
seeds: 2
variants:
  none: {}
  reverse: {stages.rl.kl: {kind: reward, estimator: k1, coef: 0.1}}
"""


@pytest.fixture
def folder(small_recipe, tmp_path, monkeypatch):
    """A folder with a recipe and a study of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()
    shutil.copy(small_recipe, tmp_path / "studies" / "small.yaml")
    (tmp_path / "studies" / "kl.yaml").write_text(STUDY)
    return tmp_path


def plan(*overrides: str, source: str = "studies/kl.yaml", out: Path | None = None):
    return plan_study(source, overrides, out=out, runs=Path("runs"))


def test_every_variant_has_a_run_for_every_seed(folder):
    found = plan("stages.rl.steps=3")
    assert [job.name for job in found.jobs] == ["none/seed-0", "none/seed-1", "reverse/seed-0", "reverse/seed-1"]
    assert [job.seed for job in found.jobs] == [job.config.seed for job in found.jobs] == [0, 1, 0, 1]
    assert {job.config.eval.num_problems for job in found.jobs} == {9}
    assert {job.config.stages[-1].steps for job in found.jobs} == {3}
    assert [job.config.stages[-1].kl.kind for job in found.jobs] == ["none", "none", "reward", "reward"]
    assert found.jobs[0].run.path == Path("runs/studies/kl/runs/none/seed-0")
    assert not (folder / "runs").exists()


def test_the_directory_of_a_study_is_the_study(folder):
    first = plan("stages.rl.steps=3", "seeds=[4, 2]")
    first.write()
    assert load_config(first.jobs[0].config_path) == first.jobs[0].config
    for source in ("kl", "runs/studies/kl", "runs/studies/kl/study.yaml"):
        assert plan(source=source) == first
    shutil.move("runs/studies/kl", "moved")
    assert plan(source="moved").jobs[0].run.path == Path("moved/runs/none/seed-4")
    assert plan("name=other", source="moved").path == Path("runs/studies/other")


def test_what_all_begin_with_is_a_run_of_its_own(folder):
    (folder / "start.yaml").write_text((folder / "studies" / "small.yaml").read_text().replace("small", "begin"))
    given = "start={recipe: start.yaml, set: {stages: [{kind: sft, steps: 7, optimizer: {lr: 1e-3}}]}}"
    model = "model={kind: pretrained}"
    found = plan(given, model)
    assert [job.name for job in found.starts] == ["start"]
    assert found.starts[0].run.path == Path("runs/begin")
    assert {job.config.model.path for job in found.jobs} == {"runs/begin/checkpoints/step_000007"}
    each = plan(given.replace("set:", "per_seed: true, set:"), model)
    assert [(job.name, str(job.run.path)) for job in each.starts] == [
        ("start/seed-0", "runs/begin-seed-0"), ("start/seed-1", "runs/begin-seed-1"),
    ]  # fmt: skip
    assert each.jobs[3].config.model.path == "runs/begin-seed-1/checkpoints/step_000007"
    assert found.select(["start", "none"]) == (*found.starts, *found.jobs[:2])


def test_a_variant_may_be_another_recipe(folder):
    text = (folder / "studies" / "small.yaml").read_text()
    (folder / "studies" / "other.yaml").write_text(re.sub(r"max_new_tokens: \d+", "max_new_tokens: 5", text))
    given = "variants={none: {}, other: {recipe: other.yaml, stages.rl.temperature: 0.5}}"
    first = plan(given, "stages.rl.steps=3")
    none, other = first.jobs[0].config, first.jobs[2].config
    assert (other.max_new_tokens, other.stages[-1].temperature) == (5, 0.5)
    assert none.max_new_tokens != 5
    assert none.stages[-1].steps == other.stages[-1].steps == 3
    first.write()
    assert plan(source="runs/studies/kl") == first  # its path is found from the study's directory too
    with pytest.raises(ConfigError, match=r"variant 'other': recipe file '.*others\.yaml' does not exist"):
        plan(given.replace("other.yaml", "others.yaml"))


def test_variants_and_seeds_may_be_added_but_not_changed(folder):
    first = plan()
    first.write()
    job = first.jobs[2]
    job.run.create(config_yaml=dump_yaml(job.config), provenance={})
    plan("seeds=5", "variants.other={}")
    with pytest.raises(
        ConfigError, match=r"variant 'reverse' .* runs/studies/kl/runs/reverse/seed-0 .* in stages\.rl\.kl\.coef"
    ):
        plan("variants.reverse={stages.rl.kl: {kind: reward, estimator: k1, coef: 0.2}}")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("recipe:", "recpie:", r"kl\.yaml:3: unknown key 'recpie'; did you mean 'recipe'\?"),
        ("small.yaml", "smal", "unknown recipe 'smal'"),
        ("coef: 0.1", "cof: 0.1", r"kl\.yaml: variant 'reverse': .*cof"),
        ("  none:", "  a/b:", "variant 'a/b': use up to 60 letters"),
        ("none: {}", "none: {seed: 3}", "variant 'none' changes its seed"),
        ("seeds: 2", "baseline: noen", "there is no variant 'noen'; did you mean 'none'"),
        ("seeds: 2", "measures: [acuracy]", "there is no measure 'acuracy'; did you mean 'accuracy'"),
        ("seeds: 2", "seeds: [1, 1]", "a seed is given twice"),
        ("seeds: 2", "seeds: 0", "list of seeds, or how many there are"),
    ],
)  # fmt: skip
def test_errors_name_file_variant_and_key(folder, old, new, message):
    (folder / "studies" / "kl.yaml").write_text(STUDY.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        plan()


def test_other_directories_and_names_are_refused(folder):
    RunDirectory(Path("runs/studies/kl")).create(config_yaml="", provenance={})
    with pytest.raises(ConfigError, match="runs/studies/kl exists and is not a study"):
        plan()
    (Path("begun") / ".swerve-tmp-5bce98f7-4153-309721-study.yaml").mkdir(parents=True)  # all that a kill left
    assert plan(out=Path("begun")).path == Path("begun")
    with pytest.raises(ConfigError, match="unknown recipe 'demo_stdy'; did you mean 'demo_study'"):
        plan(source="demo_stdy")
    with pytest.raises(ConfigError, match="a study has seeds=N"):
        plan("seed=1")
    with pytest.raises(ConfigError, match="--only 'nonne': the study has no such run"):
        plan(out=Path("other")).select(["nonne"])


def test_shipped_studies_can_be_planned(tmp_path):
    for name in shipped_recipes("study"):
        assert plan_study(name, (), out=None, runs=tmp_path).all_jobs


def test_a_run_is_done_once_its_checkpoints_are_evaluated(small_run, small_config, folder):
    job = plan().jobs[0]
    shutil.copytree(small_run.path, job.run.path)
    job = replace(job, config=small_config)
    assert job.next_step() is None
    assert replace(job, steps=("train", "eval", "probe")).next_step() == "probe"
    other = small_config.model_copy(update={"eval": small_config.eval.model_copy(update={"temperature": 0.5})})
    assert replace(job, config=other).next_step() == "eval"
    evaluation = job.run.evaluation_path(job.run.select_checkpoint("rl-2"))
    evaluation.write_text(evaluation.read_text().replace('"rl-2"', '"rl-3"'))
    assert job.next_step() == "eval"
    job.run.set_status("interrupted")
    assert job.next_step() == "train"


def test_a_profile_is_the_studys_where_it_has_it_and_the_recipes_otherwise(folder):
    recipe = folder / "studies" / "small.yaml"
    recipe.write_text(
        f"{recipe.read_text()}profiles:\n  short: {{stages.rl.steps: 2}}\n  both: {{stages.rl.steps: 3}}\n"
    )
    study = folder / "studies" / "kl.yaml"
    study.write_text(f"{STUDY}profiles:\n  both: {{set.profile: both, seeds: 1}}\n")
    short, both = plan("profile=short"), plan("profile=both")
    assert (len(short.jobs), short.jobs[0].config.stages[-1].steps) == (4, 2)
    assert (len(both.jobs), both.jobs[0].config.stages[-1].steps) == (2, 3)
    with pytest.raises(ConfigError, match="no profile 'shrt'; did you mean 'short'"):
        plan("profile=shrt")


def test_controls_are_the_baseline_with_another_reward(folder):
    found = plan("controls=[random, inverted]", "seeds=1", "baseline=reverse")
    assert {job.variant: (job.config.stages[-1].reward, job.config.stages[-1].kl.kind) for job in found.jobs} == {
        "none": ("real", "none"),
        "reverse": ("real", "reward"),
        "control-random": ("random", "reward"),
        "control-inverted": ("inverted", "reward"),
    }
    found.write()
    assert plan(source="kl") == found  # its file names them as variants


def test_a_recipe_with_controls_is_a_study_of_its_reward(folder):
    found = plan("controls=all", "seeds=[3]", "max_new_tokens=7", source="studies/small.yaml")
    assert (found.study.name, found.study.compared_with) == ("small-controls", "real")
    assert [(job.variant, job.config.stages[-1].reward, job.seed, job.config.max_new_tokens) for job in found.jobs] == [
        (name if name == "real" else f"control-{name}", name, 3, 7)
        for name in ("real", "random", "inverted", "format_only", "majority", "shuffled_gold", "same")
    ]
    extended = folder / "mine.yaml"
    extended.write_text("extends: studies/small.yaml\nname: mine\n")
    assert [job.variant for job in plan("controls=[same]", "seeds=1", source=str(extended)).jobs] == [
        "real", "control-same",
    ]  # fmt: skip
    assert plan("controls=[same]", "seeds=1", source="demo_addition").study.name == "demo_addition-controls"
    assert "control-same" in plan("controls=[same]", "seeds=1", source="demo_study").study.variants


@pytest.mark.parametrize(
    ("source", "given", "message"),
    [
        ("demo_addition", ["controls=[randon]"], r"'controls.0' must be one of 'random', .*did you mean 'random'\?"),
        ("demo_addition", ["controls=some"], "'controls' must be a list"),
        ("demo_addition", ["seeds=2"], "`swerve train demo_addition` runs it"),
        ("word_problems_sft", ["controls=all"], "variant 'control-random': .*'stages' has no item 'rl'"),
        (
            "demo_study",
            ["controls=all", "verdict={measure: accuracy}", "tuning={seeds: [9]}"],
            "controls have the baseline's settings",
        ),
    ],
)
def test_controls_that_there_are_not_are_named(folder, source, given, message):
    with pytest.raises(ConfigError, match=message):
        plan(*given, source=source)
