from __future__ import annotations

import pytest
from pydantic import ValidationError

from swerve.config.recipe import Config

SFT = {"kind": "sft", "steps": 1, "optimizer": {"lr": 1e-3}}
RL = {"kind": "rl", "steps": 1, "optimizer": {"lr": 1e-3}}
DISTILL = {"kind": "distill", "steps": 1, "optimizer": {"lr": 1e-3}}


def _config(*stages: dict[str, object]) -> Config:
    return Config.model_validate({"task": {"kind": "addition"}, "model": {"kind": "tiny"}, "stages": tuple(stages)})


@pytest.mark.parametrize("name", ["rl", "rl-1", "distill", "later", "later-30"])
def test_a_teacher_that_does_not_exist_yet_is_refused(name: str) -> None:
    stages = (SFT, {**DISTILL, "teacher": name}, RL, {**RL, "name": "later"})
    message = rf"teacher '{name}' of stage 'distill' is not of an earlier stage \(sft\); write ./{name} for a folder"
    with pytest.raises(ValidationError, match=message):
        _config(*stages)


@pytest.mark.parametrize("name", ["flash_attention_2", "flash_attention_3"])
def test_flash_attention_needs_16_bits(name: str) -> None:
    recipe = {"task": {"kind": "addition"}, "model": {"kind": "pretrained", "path": "x", "attention": name}}
    with pytest.raises(
        ValidationError, match=f"model.attention {name} has no float32; set runtime.precision: bfloat16"
    ):
        Config.model_validate({**recipe, "stages": (SFT,)})
    narrow = {**recipe, "stages": (SFT,), "runtime": {"precision": "bfloat16"}}
    assert Config.model_validate(narrow).attention == name


@pytest.mark.parametrize("name", ["rl", "rl-1"])
def test_a_reference_of_its_own_stage_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=rf"kl.reference '{name}' of stage 'rl' is not of an earlier stage"):
        _config({**RL, "kl": {"kind": "loss", "reference": name}})


@pytest.mark.parametrize("name", ["sft", "sft-1", "./rl", "organisation/model-7b"])
def test_earlier_stages_folders_and_hub_names_are_references(name: str) -> None:
    config = _config(SFT, {**RL, "kl": {"kind": "reward", "reference": name}}, {**DISTILL, "teacher": name})
    assert config.stages[1].frozen_models == {"kl.reference": name}
    assert config.stages[2].frozen_models == {"teacher": name}
