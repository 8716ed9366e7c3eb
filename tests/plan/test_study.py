"""What a study is said to take: the sum over its runs, and which of them wait for which."""

from __future__ import annotations

import json
from pathlib import Path

from swerve.plan.study import study_budget
from swerve.study.plan import plan_study
from swerve.train.disk import BYTES_PER_TOKEN, ONE_MORE
from tests.plan.test_training import SHAPES, WEIGHTS

STUDY = """
name: two
recipe: gsm8k
seeds: [0, 1]
processes: 2
steps: [train, eval]
set:
  model.path: FOLDER
  max_new_tokens: 16
  eval.num_problems: 10
  eval.samples_per_problem: 1
  stages.rl.steps: 5
  stages.rl.prompts_per_step: 2
  stages.rl.samples_per_prompt: 4
  stages.rl.num_minibatches: 1
  stages.rl.checkpoints: []
  stages.rl.save_every: null
variants:
  first: {}
  second: {model.path: "first:rl"}
"""


def test_one_checkpoint_is_written_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPES))
    (tmp_path / "two.yaml").write_text(STUDY.replace("FOLDER", str(tmp_path)))
    changes = ("retention={save_optimizer: false}",)
    plan = plan_study(str(tmp_path / "two.yaml"), changes, out=tmp_path / "out", runs=tmp_path)
    found = study_budget(plan, plan.all_jobs, memory_gb=8)
    assert found.disk["optimizer states"] == 4 * 8 * WEIGHTS
    assert found.disk[ONE_MORE] == (4 + 8) * WEIGHTS


def test_a_study_is_the_sum_over_its_runs_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPES))
    (tmp_path / "two.yaml").write_text(STUDY.replace("FOLDER", str(tmp_path)))
    plan = plan_study(str(tmp_path / "two.yaml"), (), out=tmp_path / "out", runs=tmp_path)
    found = study_budget(plan, plan.all_jobs, memory_gb=8)
    assert [(run.name, run.after, run.processes) for run in found.runs] == [
        ("first/seed-0", (), 2),
        ("first/seed-1", (), 2),
        ("second/seed-0", ("first/seed-0",), 2),
        ("second/seed-1", ("first/seed-1",), 2),
    ]
    # Each run has one checkpoint, which is evaluated when it is done, as is the model that it begins with: a greedy and
    # a sampled answer of each problem.
    sampled, evaluated = 5 * 2 * 4 * 16, 2 * 10 * 2 * 16
    assert found.tokens == {"training": 4 * sampled, "evaluation": 4 * evaluated}
    assert found.disk["weights of checkpoints"] == 4 * 4 * WEIGHTS
    assert found.disk["optimizer states"] == 4 * 8 * WEIGHTS
    assert found.disk["evaluations"] == 4 * evaluated * BYTES_PER_TOKEN
    assert found.disk[ONE_MORE] == 0
    assert found.memory is not None
    assert found.memory.weights == 4 * WEIGHTS
    assert found.work["sampling"] == 4 * (sampled + evaluated)
    assert not (tmp_path / "out").exists()
