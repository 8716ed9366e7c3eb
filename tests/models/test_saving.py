"""What a folder says of its model is written as it was read, and what cannot be saved is refused before any work."""

from __future__ import annotations

import json

import pytest
import torch
import transformers as hf

from swerve.artifacts.run import RunDirectory
from swerve.errors import CheckpointError
from swerve.models.export import export_model
from swerve.models.model_card import WeightsOrigin
from swerve.models.model_folder import declare_stop_ids, load_model
from swerve.models.saving import check_saving
from swerve.recipes import load_config
from tests.builders import trained_run
from tests.zoo.animal import GROUPED, Animal
from tests.zoo.folders import few_steps, save, write_recipe

LLAMA = Animal(type="llama", keys=GROUPED)
VICUNA = '{"_from_model_config": true,\n "temperature": 0.9, "top_p": 0.6,\n "eos_token_id": 2}\n'


def llama(tmp_path, generation=VICUNA, **config):
    folder = save(LLAMA, tmp_path / "model")
    (folder / "generation_config.json").write_text(generation)
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**written, **config}))
    return folder


def checked(folder, place):
    """Try to save the model of a folder as training begins with it."""
    loaded = load_model(folder, device="cpu", dtype="float32")
    declare_stop_ids(loaded.model, loaded.tokenizer)
    check_saving(loaded.model, loaded.tokenizer, loaded.model.state_dict(), place)
    return loaded


@pytest.mark.parametrize(
    "generation",
    [
        VICUNA,
        '{"do_sample": false, "temperature": 0.7, "top_k": 5, "eos_token_id": [2, 4]}',
        '{"num_beams": 1, "early_stopping": true, "num_return_sequences": 4, "my_own": {"a": 1}}',
    ],
)
@pytest.mark.slow
def test_generation_settings_of_any_kind_train_save_resume_and_export(tmp_path, generation):
    """The template ends a turn with token 3, which is added; nothing else of the file changes."""
    folder = llama(tmp_path, generation)
    config = load_config(write_recipe(tmp_path, folder, few_steps("sft")))
    run = trained_run(config, tmp_path / "run")
    expected = {**json.loads(generation), "eos_token_id": [2, 3, 4] if "[2, 4]" in generation else [2, 3]}
    final = run.checkpoints[-1].path
    assert json.loads((final / "generation_config.json").read_text()) == expected
    trained_run(config, tmp_path / "run", resume=True)
    export_model(WeightsOrigin.of(final), tmp_path / "exported", dtype="bfloat16")
    assert json.loads((tmp_path / "exported" / "generation_config.json").read_text()) == expected
    assert not list(tmp_path.rglob(".swerve-tmp-*"))


def test_what_a_folder_says_is_written_as_it_was_read(tmp_path):
    """Keys that the class does not know are kept, and a file in which nothing changes keeps its bytes."""
    text = '{ "temperature": 0.9,"top_p": 0.6, "eos_token_id": [2, 3] }'
    folder = llama(tmp_path, text, temperature=0.5, my_key=[1], auto_map={"AutoModel": "x.Y"}, torch_dtype="float16")
    loaded = checked(folder, tmp_path / "trial")
    before = json.loads((folder / "config.json").read_text())
    from swerve.models.description import write_description

    out = tmp_path / "written"
    out.mkdir()
    write_description(out, loaded.model, torch.float32)
    assert (out / "generation_config.json").read_text() == text
    assert json.loads((out / "config.json").read_text()) == {**before, "dtype": "float32", "torch_dtype": "float32"}


def test_a_model_that_cannot_be_saved_is_refused_before_the_first_step(tmp_path, monkeypatch):
    folder = llama(tmp_path)
    monkeypatch.setattr("swerve.models.saving._tried", set())

    def refuse(*_args, **_keys):
        raise ValueError("no form for this\nat all")

    monkeypatch.setattr(hf.PreTrainedTokenizerFast, "save_pretrained", refuse)
    out = tmp_path / "run"
    with pytest.raises(CheckpointError, match="training begins with cannot be saved and read again: no form for this"):
        trained_run(load_config(write_recipe(tmp_path, folder, few_steps("sft"))), out)
    assert not RunDirectory(out).path.exists()


def test_a_large_model_is_tried_without_its_weights(tmp_path, monkeypatch):
    monkeypatch.setattr("swerve.models.saving._tried", set())
    monkeypatch.setattr("swerve.models.saving._TRIED_WHOLE", 0)
    monkeypatch.setattr("swerve.models.saving.write_shards", None)  # no weight is written
    checked(llama(tmp_path), tmp_path / "trial")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
