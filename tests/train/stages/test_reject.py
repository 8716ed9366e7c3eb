"""Rejection sampling in training: right completions are kept in the run and learned, and resumed to the same bytes."""

from __future__ import annotations

import pytest
import yaml

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.responses import read_provenance
from swerve.artifacts.run import RunDirectory
from swerve.errors import ConfigError, SwerveError
from swerve.formats.imported_responses import read_responses
from swerve.models.model_folder import load_model
from swerve.models.tiny import build_word_tokenizer
from swerve.recipes import load_config
from swerve.train.stages import reject
from tests.builders import trained_run

STAGE = {
    "kind": "reject",
    "steps": 4,
    "num_prompts": 150,
    "samples_per_prompt": 4,
    "batch_size": 6,
    "optimizer": {"lr": 1e-3},
}


@pytest.fixture
def load(small_run, tmp_path):
    """Load a recipe whose policy is the small run's SFT checkpoint."""

    def load_stage(**changes):
        document = {
            "seed": 5,
            "task": {"kind": "addition", "digits": 2, "num_train": 140, "num_heldout": 24, "mistake_rate": 0.5},
            "model": {"kind": "pretrained", "path": str(small_run.checkpoint_path(220))},
            "max_new_tokens": 36,
            "stages": [
                {**STAGE, **changes},
                {"kind": "rl", "steps": 1, "prompts_per_step": 4, "samples_per_prompt": 4, "optimizer": {"lr": 1e-4}},
            ],
            "runtime": {"device": "cpu", "threads": 1},
        }
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(document))
        return load_config(tmp_path / "recipe.yaml")

    return load_stage


def test_right_completions_of_distinct_problems_are_learned_before_rl(load, tmp_path):
    run = trained_run(load(per_problem=2), tmp_path / "run")
    path = run.selected_path("reject")
    kept, counts = read_responses(path), read_provenance(path)["counts"]
    assert counts["num_problems"] == 140  # asked for 150
    assert counts["num_responses"] == 560
    assert counts["num_kept"] == len(kept) > counts["num_problems_kept"] > 20
    assert all(one.correct and one.completion_ids for one in kept)
    per_problem = [one.problem.id for one in kept]
    assert max(map(per_problem.count, per_problem)) == 2
    assert len({(one.problem.id, one.text) for one in kept}) == len(kept)
    first = next(record for record in read_metrics(run.metrics_path) if record["stage"] == "reject")
    assert first["epoch"] == 6 / len(kept)
    assert [one.label for one in run.checkpoints] == ["reject-4", "rl-1"]


def test_another_teacher_and_parts_of_an_interrupted_stage(load, small_run, tmp_path, monkeypatch):
    # The teacher is better than the policy, and an engine of its own samples with it.
    config = load(teacher=str(small_run.checkpoint_path(226)), name="taught")
    whole = trained_run(config, tmp_path / "whole")
    assert {one.label for one in read_responses(whole.selected_path("taught"))} == {config.stages[0].teacher}
    original, seen = reject._selected, []

    def selected(stage, context, teacher, slots, problems):
        seen.append(slots.start)
        if slots.start == 64 and seen.count(64) == 1:
            raise RuntimeError("killed")
        return original(stage, context, teacher, slots, problems)

    monkeypatch.setattr(reject, "_selected", selected)
    with pytest.raises(RuntimeError, match="killed"):
        trained_run(config, tmp_path / "run")
    assert len(list((tmp_path / "run" / "rollouts" / "taught_selected.partial").glob("selected-*"))) == 1
    run = trained_run(config, tmp_path / "run", resume=True)
    assert seen == [0, 64, 64, 128]
    names = sorted(path.name for path in (run.path / "rollouts").iterdir())
    assert names == sorted(path.name for path in (whole.path / "rollouts").iterdir())
    for name in names:
        assert (run.path / "rollouts" / name).read_bytes() == (whole.path / "rollouts" / name).read_bytes()
    assert run.select_checkpoint("rl").weights_sha256 == whole.select_checkpoint("rl").weights_sha256


def test_a_stage_resumed_inside_learns_from_what_it_sampled_and_from_nothing_else(load, tmp_path, monkeypatch):
    config = load(num_prompts=60, save_every=2)
    whole = trained_run(config, tmp_path / "whole")
    original = reject.RejectRunner.step

    def step(self, index):
        if index == 3:
            raise RuntimeError("killed")
        return original(self, index)

    monkeypatch.setattr(reject.RejectRunner, "step", step)
    with pytest.raises(RuntimeError, match="killed"):
        trained_run(config, tmp_path / "run")
    monkeypatch.undo()
    path = RunDirectory(tmp_path / "run").selected_path("reject")
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"?")
    with pytest.raises(SwerveError, match=r"rollouts/reject_selected\.parquet was changed"):
        trained_run(config, tmp_path / "run", resume=True)
    path.write_bytes(content)
    run = trained_run(config, tmp_path / "run", resume=True)
    assert run.select_checkpoint("rl").weights_sha256 == whole.select_checkpoint("rl").weights_sha256


def _with_other_ids(checkpoint, folder):
    """Write the model again with its words numbered backwards: the same texts by other token ids."""
    loaded = load_model(checkpoint, device="cpu", dtype="float32")
    words = [word for word in loaded.tokenizer.get_vocab() if not word.startswith("<")]
    tokenizer = build_word_tokenizer(sorted(words, reverse=True))
    known = loaded.tokenizer.get_vocab()
    order = [known[word] for word, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    assert order != sorted(order)
    weight = loaded.model.get_input_embeddings().weight  # tied: also the output head
    weight.data = weight.data[order].clone()
    loaded.model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def test_a_teacher_of_another_tokenizer_is_learned_by_its_texts(load, small_run, tmp_path):
    _with_other_ids(small_run.checkpoint_path(226), tmp_path / "teacher")
    same = trained_run(load(teacher=str(small_run.checkpoint_path(226)), num_prompts=60), tmp_path / "same")
    other = trained_run(load(teacher=str(tmp_path / "teacher"), num_prompts=60), tmp_path / "other")
    names = [read_provenance(run.selected_path("reject"))["tokenizer"]["sha256"] for run in (same, other)]
    assert names[0] != names[1]
    for run in (same, other):  # the student would not know what is learned at all, were the ids taken as they are
        first = next(record for record in read_metrics(run.metrics_path) if record["stage"] == "reject")
        assert first["loss"] < 0.5
    assert len(read_responses(other.selected_path("reject"))) > 20


def test_nothing_right_is_said(load, tmp_path):
    with pytest.raises(
        SwerveError, match=r"stage 'reject': none of 4 completions of 4 problems was right; use another"
    ):
        trained_run(load(num_prompts=4, samples_per_prompt=1, temperature=100.0), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_teacher_of_a_later_stage_is_refused(load):
    with pytest.raises(ConfigError, match="teacher 'rl' of stage 'reject' is not of an earlier stage"):
        load(teacher="rl")
