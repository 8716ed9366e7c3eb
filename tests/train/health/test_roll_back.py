"""A return to an earlier checkpoint: which one, and what the learner has of it afterwards."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from swerve.artifacts.run import CheckpointRef, RunDirectory
from swerve.config import OptimizerConfig, RlStage
from swerve.models.model_folder import save_checkpoint, weights_fingerprint
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.rollout.sync import PolicyEngine
from swerve.train.context import StageContext
from swerve.train.health import collapse as health_collapse
from swerve.train.health.collapse import Collapse
from swerve.train.learner import Learner, new_value_head
from swerve.train.phases import phases_of
from swerve.train.replicated_model import ReplicatedModel
from swerve.world import World

FIRST_STEP = 10


class _Scene:
    """A stage with checkpoints after its steps 2, 3 and 5, each with weights and a state of its own."""

    def __init__(self, tiny: Any, folder: Path, **collapse: Any) -> None:
        self.stage = RlStage.model_validate(
            {
                "steps": 9,
                "optimizer": {"lr": 1e-3},
                "checkpoints": [2, 3, 5],
                "advantages": {"kind": "gae"},
                "collapse": {"action": "roll_back", "max_roll_backs": 3, "roll_back_lr": 0.5, **collapse},
            }
        )
        model = copy.deepcopy(tiny[0])
        self.start = copy.deepcopy(model)
        optimizer = OptimizerConfig(lr=1e-3)
        self.learner = Learner(ReplicatedModel(model, World()), tiny[1], optimizer, value_head=new_value_head(model))
        unused: Any = None
        self.context = StageContext(
            config=load_config("demo_addition"),
            run=RunDirectory(folder),
            world=World(),
            family=unused,
            draws=unused,
            learner=self.learner,
            engine=PolicyEngine(lambda: unused),
            stop_ids=(),
            first_step=FIRST_STEP,
            resumed=False,
            progress=SilentProgress(),
            records=[],
            stage_start=lambda: copy.deepcopy(self.start),
            raise_if_interrupted=unused,
        )
        self.saved = {0: weights_fingerprint(model)}
        for step in (2, 3, 5):
            self._learn(float(step))
            self._save(step)
        self._learn(7.0)

    def _learn(self, amount: float) -> None:
        with torch.no_grad():
            for parameter in self.learner.named_parameters().values():
                parameter.fill_(amount / 100)
                tensors = {"step": torch.tensor(amount), "exp_avg": torch.full_like(parameter, amount)}
                self.learner.optimizer.state[parameter] = {**tensors, "exp_avg_sq": torch.full_like(parameter, amount)}

    def _save(self, step: int) -> None:
        path = self.context.run.checkpoint_path(FIRST_STEP + step)
        reference = CheckpointRef(
            path=path, step=FIRST_STEP + step, stage="rl", stage_step=step, scheduled=True, final=False
        )
        state = self.learner.weights.trainer_state(self.learner.optimizer)
        save_checkpoint(
            reference,
            model=self.learner.model,
            tokenizer=self.learner.tokenizer,
            trainer_state=state,
            provenance={},
        )
        self.saved[step] = weights_fingerprint(self.learner.model)

    def judge(self, step: int, **figures: Any) -> Mapping[str, Any]:
        verdict = health_collapse.judge_collapse(self.stage, self.context, {"stage_step": step, **figures})
        self.context.records.append({"stage_step": step, **figures, **verdict.figures})
        return verdict.figures

    def state(self) -> list[float]:
        """Return the means of the value head's weight and of the optimizer's averages of it and of the first matrix."""
        value = self.learner.value_head.weight
        first = next(iter(self.learner.model.parameters()))
        states = [self.learner.optimizer.state.get(parameter, {}) for parameter in (value, first)]
        averages = [float(state["exp_avg"].mean()) if state else 0.0 for state in states]
        return [float(value.detach().mean()), *averages]


@pytest.fixture
def scene(tiny, tmp_path, monkeypatch):
    def collapses(since: Mapping[int, int], **collapse: Any) -> _Scene:
        def detect(records: Any, _config: Any) -> Collapse | None:
            step = records[-1]["stage_step"]
            return Collapse(sign="reward", message="it fell", since=since[step]) if step in since else None

        monkeypatch.setattr(health_collapse, "detect_collapse", detect)
        return _Scene(tiny, tmp_path, **collapse)

    return collapses


@pytest.mark.parametrize(("since", "target"), [(6, 5), (5, 3), (4, 3), (3, 2), (2, 0), (1, 0)])
def test_the_newest_checkpoint_before_the_collapse_showed_is_taken_with_all_its_state(scene, since, target):
    stage = scene({7: since})
    figures = stage.judge(7)
    assert (figures["rolled_back_to"], figures["lr_factor"]) == (target, 0.5)
    assert weights_fingerprint(stage.learner.model) == stage.saved[target]
    assert stage.state() == pytest.approx([target / 100, float(target), float(target)])


def test_the_reference_of_the_stage_is_not_changed_by_training_on_from_its_start(scene):
    stage = scene({7: 1})
    stage.judge(7)
    stage._learn(8.0)
    assert weights_fingerprint(stage.start) == stage.saved[0]


def test_checkpoints_of_a_course_that_was_given_up_are_not_gone_back_to(scene):
    """Back from 6 to 2: those of 3 and 5 hold the course that collapsed."""
    stage = scene({6: 3, 8: 7})
    assert stage.judge(6)["rolled_back_to"] == 2
    stage.judge(7)
    assert stage.judge(8)["rolled_back_to"] == 2


def test_a_checkpoint_made_at_the_return_itself_holds_the_good_weights(scene):
    stage = scene({5: 3, 8: 7})
    assert stage.judge(5)["rolled_back_to"] == 2
    stage._save(5)  # what the loop does
    assert stage.judge(8)["rolled_back_to"] == 5
    assert weights_fingerprint(stage.learner.model) == stage.saved[2]


def test_weights_that_had_already_lost_their_reward_are_passed_over(scene):
    """The reward at a step is that of the weights after the step before: 5 and 3 are ruined, 2 is not."""
    stage = scene({7: 6})
    for step, reward in enumerate([0.5, 0.6, 0.55, 0.29, 0.1, 0.0], start=1):
        stage.judge(step, reward=reward)
    assert stage.judge(7, reward=0.0)["rolled_back_to"] == 2


def test_rewards_that_are_never_above_zero_judge_no_checkpoint(scene):
    stage = scene({7: 6})
    for step in range(1, 7):
        stage.judge(step, reward=-1.0 * step)
    assert stage.judge(7, reward=-7.0)["rolled_back_to"] == 5


@pytest.mark.parametrize(("keeps", "average"), [(True, 3.0), (False, 0.0)])
def test_a_phase_is_not_gone_back_beyond(scene, keeps, average):
    """The phase begins after step 3, whose reward was already lost; 5 had collapsed too."""
    stage = scene({7: 5})
    phases = [{"steps": 3}, {"steps": 6, "keep_optimizer": keeps}]
    phased = RlStage.model_validate({**stage.stage.model_dump(exclude={"steps"}), "phases": phases})
    _, phase = phases_of(phased)
    stage.stage, stage.context = phase.stage, replace(stage.context, phase=phase)
    for step, reward in [(4, 0.1), (5, 0.6), (6, 0.1)]:
        stage.judge(step, reward=reward)
    assert stage.judge(7, reward=0.1)["rolled_back_to"] == 3
    assert weights_fingerprint(stage.learner.model) == stage.saved[3]
    assert stage.state() == pytest.approx([0.03, average, average])


def test_the_learning_rate_falls_with_every_return_until_there_is_none_left(scene):
    stage = scene({4: 3, 6: 3, 8: 3}, max_roll_backs=2)
    assert [stage.judge(step).get("lr_factor") for step in (4, 6)] == [0.5, 0.25]
    verdict = health_collapse.judge_collapse(stage.stage, stage.context, {"stage_step": 8})
    assert verdict.must_save
    assert "stage 'rl' collapsed at its step 8: it fell; the state is saved" in str(verdict.error)


def test_the_step_itself_is_judged_with_those_before(scene, monkeypatch):
    stage = scene({})
    seen = []
    monkeypatch.setattr(health_collapse, "detect_collapse", lambda records, _config: seen.append(list(records)))
    stage.judge(1, reward=0.5)
    stage.judge(2, reward=0.25)
    assert [[record["reward"] for record in records] for records in seen] == [[0.5], [0.5, 0.25]]
