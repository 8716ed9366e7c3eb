"""The length of a stage in passes over its data, and what else schedules a run."""

from __future__ import annotations

import pytest

from swerve.errors import ConfigError
from swerve.recipes import dump_yaml, load_config
from swerve.recipes.data_sizes import data_sizes
from swerve.recipes.epochs import with_steps
from tests.json_lines import write_json_lines

RECIPE = """
name: mine
task: {{kind: addition, num_train: 50}}
model: tiny
stages:
  - {{kind: sft, batch_size: 8, optimizer: {{lr: 1e-3}}, {sft}}}
  - {{kind: rl, prompts_per_step: 5, optimizer: {{lr: 1e-3}}, {rl}}}
"""


def _load(tmp_path, *overrides, sft="steps: 3", rl="steps: 3"):
    (tmp_path / "mine.yaml").write_text(RECIPE.format(sft=sft, rl=rl))
    return load_config(tmp_path / "mine.yaml", overrides)


def _counted(config):
    return with_steps(config, data_sizes(config))


@pytest.mark.parametrize(
    ("sft", "rl", "steps", "num_examples"),
    [
        ("epochs: 2", "epochs: 0.5", (13, 5), (100, 25)),
        ("epochs: 1, validation_share: 0.2", "steps: 4", (5, 4), (40, None)),
        ("epochs: 0.01", "epochs: 1", (1, 10), (1, 50)),
        ("epochs: 0.3", "epochs: 0.46", (2, 5), (15, 23)),  # 0.3 x 50 is 15, not one more
    ],
)
def test_epochs_are_steps_once_the_data_is_counted(tmp_path, sft, rl, steps, num_examples):
    given = _load(tmp_path, sft=sft, rl=rl)
    (tmp_path / "given.yaml").write_text(dump_yaml(given))
    assert load_config(tmp_path / "given.yaml") == given
    config = _counted(given)
    assert tuple(stage.steps for stage in config.stages) == steps
    assert tuple(stage.num_examples for stage in config.stages) == num_examples
    assert [sum(map(stage.size_of, range(stage.steps))) for stage in config.stages] == [
        stage.num_examples or stage.steps * stage.step_size for stage in config.stages
    ]
    (tmp_path / "again.yaml").write_text(dump_yaml(config))
    assert load_config(tmp_path / "again.yaml") == config
    assert _counted(_load(tmp_path, "stages.sft.steps=null", "stages.sft.epochs=2")).stages[0].steps == 13


def test_epochs_of_files_are_of_their_records(tmp_path):
    records = [{"prompt": "1 + 1", "response": "2", "id": str(number)} for number in range(20)]
    write_json_lines(tmp_path / "chats.jsonl", records)
    config = _counted(_load(tmp_path, sft=f"epochs: 3, data: ['{tmp_path / 'chats.jsonl'}']"))
    assert config.stages[0].steps == 8  # 60 of 8
    (tmp_path / "text.txt").write_text("a b c")
    with pytest.raises(ConfigError, match="stage 'sft': epochs of plain text .* are not known before it is tokenised"):
        _counted(_load(tmp_path, sft=f"epochs: 3, data: ['{tmp_path / 'text.txt'}']"))


def test_a_recipe_is_read_without_its_data(tmp_path):
    config = _load(tmp_path, sft="epochs: 3, data: [nowhere.jsonl]")
    assert config.stages[0].epochs == 3
    assert with_steps(config, {"sft": 20}).stages[0].steps == 8  # 60 of 8


@pytest.mark.parametrize(
    ("sft", "rl", "message"),
    [
        ("epochs: 2, steps: 3", "steps: 1", "epochs stands in place of steps and of phases"),
        ("loss: cross_entropy", "steps: 1", "missing required key 'stages.sft.steps'"),
        ("steps: 3", "epochs: 2, phases: [{steps: 1}]", "epochs stands in place of steps and of phases"),
        ("steps: 2, num_examples: 17", "steps: 1", r"num_examples \(17\) do not take 2 steps of 8; leave it out"),
        ("steps: 3", "epochs: 1, zero_variance: refill", "refill draws further prompts than a pass .* has; give steps"),
        ("steps: 1, epochs: null", "epochs: 1, where: {kinds: [none]}", "of no examples"),
    ],
)
def test_lengths_that_say_two_things_or_nothing_are_refused(tmp_path, sft, rl, message):
    with pytest.raises(ConfigError, match=message):
        _counted(_load(tmp_path, sft=sft, rl=rl))


def test_checkpoints_every_so_many_steps_beside_the_list(tmp_path):
    config = _load(tmp_path, sft="steps: 9, checkpoints: [2, 4], checkpoint_every: 4", rl="steps: 4")
    assert sorted(config.scheduled_steps) == [2, 4, 8, 9, 13]


@pytest.mark.parametrize(
    ("overrides", "kept"),
    [
        ([], {3, 6, 7}),
        (["stages.rl.phases=[{steps: 1}, {steps: 3}]", "stages.rl.steps=4"], {3, 4, 6, 7}),
        (["probe.reference=sft-2"], {2, 3, 6, 7}),
        (["probe.checkpoints=sft"], {1, 2, 3, 6, 7}),
        (["stages.rl.kl={kind: loss, coef: 0.1, reference: sft-1}"], {1, 3, 6, 7}),
    ],
)
def test_retention_leaves_what_the_recipe_names(tmp_path, overrides, kept):
    every = "checkpoint_every: 1"
    config = _load(tmp_path, "retention.keep=2", *overrides, sft=f"steps: 3, {every}", rl=f"steps: 4, {every}")
    assert config.retained_steps(7) == kept
    assert config.retained_steps(0) == config.scheduled_steps == set(range(1, 8))
