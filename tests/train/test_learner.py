from __future__ import annotations

import copy

import pytest
import torch

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.config.models import TinyModel
from swerve.config.runtime import RuntimeConfig
from swerve.config.stage_base import OptimizerConfig
from swerve.errors import CheckpointError
from swerve.models.model_folder import load_model, read_trainer_state, weights_fingerprint
from swerve.models.saving import save_checkpoint
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.train.learner import Learner, load_trainer_state, new_value_head
from swerve.train.replicated_model import ReplicatedModel
from swerve.world import World

SEQUENCES = [((1, 4), (5, 6, 7)), ((1,), (8, 4))]


def _update(learner):
    """One update whose loss involves the value head and the logits."""

    def loss(batch, hidden):
        logits = learner.head.loss(hidden, lambda logits, rows: logits.logsumexp(dim=-1).sum())
        return logits + (learner.value_head(hidden) - 1.0).square().sum(), {}

    return learner.update(learner.batches(SEQUENCES, tokens_per_batch=64), loss, learning_rate=1e-2)


@pytest.mark.parametrize("rows", ["packed", "padded"])
@pytest.mark.parametrize("tokens", [1, 20])
def test_batches_are_as_many_as_another_process_has_and_keep_pairs_together(tiny, monkeypatch, rows, tokens):
    monkeypatch.setattr(ReplicatedModel, "needs_equal_batches", True)
    monkeypatch.setattr(World, "max", lambda _world, value: max(value, 6.0))
    runtime = RuntimeConfig(rows=rows)
    learner = Learner(
        ReplicatedModel(copy.deepcopy(tiny[0]), World(size=2), runtime=runtime), tiny[1], OptimizerConfig(lr=1e-2)
    )
    pairs = [((1,) * (1 + one % 2), (2,) * length) for one in range(4) for length in (1 + one, 2)]
    batches = learner.batches(pairs, tokens_per_batch=tokens, together=2)
    assert len(batches) == 6
    assert sorted(row for batch in batches for row in batch.rows) == list(range(8))
    for batch in batches:
        assert [row + 1 for row in batch.rows[::2]] == list(batch.rows[1::2])
        assert batch.input_ids.numel() <= tokens or len(batch.rows) == 2 or not batch.rows
    assert len(learner.batches([], tokens_per_batch=tokens)) == 6


def _learner(model, tokenizer):
    return Learner(
        ReplicatedModel(model, World()), tokenizer, OptimizerConfig(lr=1e-2), value_head=new_value_head(model)
    )


@pytest.fixture
def trained(tiny, tmp_path):
    learner = _learner(copy.deepcopy(tiny[0]), tiny[1])
    _update(learner)
    _update(learner)
    path = tmp_path / "checkpoint"
    reference = CheckpointRef(path=path, step=2, stage="rl", stage_step=2, scheduled=True, final=True)
    save_checkpoint(
        reference,
        model=learner.model,
        tokenizer=tiny[1],
        trainer_state=learner.weights.trainer_state(learner.optimizer),
        provenance={},
    )
    return path, learner


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(trained):
    path, learner = trained
    loaded = load_model(path, device="cpu", dtype="float32")
    resumed = _learner(loaded.model, loaded.tokenizer)
    assert resumed.value_head.weight.abs().sum() == 0
    load_trainer_state(path, resumed, read_trainer_state(path))
    assert resumed.value_head.weight.abs().sum() > 0
    first, second = _update(learner), _update(resumed)
    assert second == first
    assert weights_fingerprint(resumed.model) == weights_fingerprint(learner.model)
    assert torch.equal(resumed.value_head.weight, learner.value_head.weight)


def test_optimizer_state_of_another_model_is_refused(trained):
    words = build_word_tokenizer(["a"])
    other = _learner(build_tiny_model(TinyModel(num_layers=1, hidden_size=32), words, seed=0), words)
    with pytest.raises(CheckpointError, match="a parameter the model does not have"):
        load_trainer_state(trained[0], other, read_trainer_state(trained[0]))


def test_a_checkpoint_without_a_value_head_is_refused_where_one_is_needed(trained, tmp_path):
    learner = trained[1]
    state = {"optimizer": learner.weights.trainer_state(learner.optimizer)["optimizer"]}
    reference = CheckpointRef(path=tmp_path / "other", step=2, stage="rl", stage_step=2, scheduled=True, final=True)
    save_checkpoint(reference, model=learner.model, tokenizer=learner.tokenizer, trainer_state=state, provenance={})
    with pytest.raises(CheckpointError, match="no trainer state 'value_head'"):
        load_trainer_state(tmp_path / "other", learner, read_trainer_state(tmp_path / "other"))
