from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, CLIPTextConfig, Gemma3Config, Qwen2VLConfig, T5Config

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.files import atomic_directory
from swerve.config.models import TinyModel
from swerve.config.runtime import RuntimeConfig
from swerve.errors import CheckpointError, ConfigError
from swerve.models.model_folder import (
    load_model,
    load_model_config,
    load_tokenizer,
    read_trainer_state,
    stop_ids,
    tokenizer_fingerprint,
    weights_fingerprint,
)
from swerve.models.saving import save_checkpoint
from swerve.models.sources import checkpoint_source
from swerve.models.tiny import build_tiny_model, build_word_tokenizer, learn_tokenizer
from swerve.prompts.encode import encode_completions, encode_prompts
from swerve.types import Problem


def _reference(path):
    return CheckpointRef(path=path, step=3, stage="sft", stage_step=3, scheduled=True, final=True)


@pytest.fixture
def saved(tiny, tmp_path):
    model = copy.deepcopy(tiny[0])
    with torch.no_grad():
        model.model.norm.weight += torch.linspace(0.0, 1.0, 32)
    state = {"optimizer": {"a/exp_avg": torch.arange(3.0)}, "value_head": {"bias": torch.tensor([0.5])}}
    path = tmp_path / "checkpoint"
    save_checkpoint(_reference(path), model=model, tokenizer=tiny[1], trainer_state=state, provenance={"seed": 1})
    return path, model, state


def test_a_checkpoint_gives_back_the_same_model_tokenizer_and_trainer_state(saved, tiny):
    path, model, state = saved
    loaded = load_model(path, device="cpu", dtype="float32")
    assert weights_fingerprint(loaded.model) == weights_fingerprint(model)
    assert tokenizer_fingerprint(loaded.tokenizer) == tokenizer_fingerprint(tiny[1])
    assert loaded.tokenizer.padding_side == "left"
    assert not loaded.model.training
    found = read_trainer_state(path)
    assert list(found) == ["optimizer", "value_head"]
    assert torch.equal(found["optimizer"]["a/exp_avg"], state["optimizer"]["a/exp_avg"])
    assert found["value_head"]["bias"].tolist() == [0.5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("model.norm.weight"), r"missing keys \['model.norm.weight'\]"),
        (lambda tensors: tensors.update(extra=torch.zeros(1)), r"unexpected keys \['extra'\]"),
        (
            lambda tensors: tensors["model.norm.weight"].fill_(float("nan")),
            "'model.norm.weight' has values that are not",
        ),
    ],
)
def test_incomplete_or_broken_weights_are_refused(saved, tmp_path, change, message):
    path = tmp_path / "copy"
    shutil.copytree(saved[0], path)
    (path / "MANIFEST.json").unlink()
    tensors = {name: tensor.clone() for name, tensor in load_file(path / "model.safetensors").items()}
    change(tensors)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=message):
        load_model(path, device="cpu", dtype="float32")


def test_pickled_weights_are_not_read(saved, tmp_path):
    """A folder with only a pickle is refused; the booby trap in it leaves no marker."""
    import pickle

    path, marker = tmp_path / "copy", tmp_path / "marker"
    shutil.copytree(saved[0], path, ignore=shutil.ignore_patterns("*.safetensors", "MANIFEST.json"))

    class Trap:
        def __reduce__(self):
            return (marker.write_text, ("ran",))

    (path / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(CheckpointError, match="cannot load a model from"):
        load_model(path, device="cpu", dtype="float32")
    assert not marker.exists()


def test_a_missing_folder_and_a_broken_tokenizer_are_one_line(saved, tmp_path):
    with pytest.raises(CheckpointError, match="cannot find a model .*nowhere: there is no such folder") as caught:
        load_model(tmp_path / "nowhere", device="cpu", dtype="float32")
    assert "\n" not in str(caught.value)
    path = tmp_path / "copy"
    shutil.copytree(saved[0], path)
    (path / "MANIFEST.json").unlink()
    (path / "tokenizer.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot load a tokenizer from"):
        load_model(path, device="cpu", dtype="float32")


def test_a_checkpoint_being_written_leaves_the_old_one_when_the_disk_is_full(saved, tiny, monkeypatch):
    from swerve.errors import DiskFullError

    path, model, state = saved
    before = (path / "model.safetensors").read_bytes()

    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("swerve.models.saving.write_shards", full)
    with pytest.raises(DiskFullError, match="disk full while writing .*checkpoint; nothing of it was kept"):
        save_checkpoint(_reference(path), model=model, tokenizer=tiny[1], trainer_state=state, provenance={})
    assert (path / "model.safetensors").read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["checkpoint"]


def test_seeds_decide_the_initial_weights_and_leave_the_global_generator_alone():
    tokenizer = build_word_tokenizer(["a", "b"])
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    prints = [weights_fingerprint(build_tiny_model(TinyModel(), tokenizer, seed=seed)) for seed in (1, 1, 2)]
    assert prints[0] == prints[1] != prints[2]
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("words", [["a", "a"], ["a b"], [""], ["<pad>"]])
def test_words_that_cannot_be_tokens_are_refused(words):
    with pytest.raises(ValueError, match="words must be distinct"):
        build_word_tokenizer(words)


def test_prompts_begin_with_the_begin_token_and_completions_end_with_the_end_token():
    tokenizer = build_word_tokenizer(["1", "+", "="])
    problem = Problem(id="p", family="addition", question="1 + 1 =", answer="1")
    (prompt,) = encode_prompts(tokenizer, [problem])
    assert tokenizer.convert_ids_to_tokens(list(prompt.token_ids)) == ["<bos>", "1", "+", "1", "="]
    (completion,) = encode_completions(tokenizer, [prompt], ["1 +"])
    assert tokenizer.convert_ids_to_tokens(list(completion)) == ["1", "+", "<eos>"]
    assert tokenizer.decode([*prompt.token_ids, *completion], skip_special_tokens=True) == "1 + 1 = 1 +"


def test_a_word_the_model_does_not_know_is_an_error():
    tokenizer = build_word_tokenizer(["1"])
    with pytest.raises(ConfigError, match="no token for a word of problem 'p'"):
        encode_prompts(tokenizer, [Problem(id="p", family="addition", question="1 + 1 =", answer="2")])


def test_chat_templates_are_used_where_there_is_one():
    tokenizer = build_word_tokenizer(["1", "user", ":"])
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }} : {{ m.content }}{% endfor %}"
    (prompt,) = encode_prompts(tokenizer, [Problem(id="p", family="x", question="1", answer="1")])
    assert "user : 1" in tokenizer.decode(list(prompt.token_ids), skip_special_tokens=True)


def test_a_tokenizer_without_an_end_token_is_refused_for_supervised_text():
    tokenizer = build_word_tokenizer(["1"])
    tokenizer.eos_token = None
    problem = Problem(id="p", family="x", question="1", answer="1")
    with pytest.raises(ConfigError, match="has no end-of-sequence token"):
        encode_completions(tokenizer, encode_prompts(tokenizer, [problem]), ["1"])


def test_a_tokenizer_larger_than_the_model_is_refused(saved, tmp_path):
    path = tmp_path / "copy"
    shutil.copytree(saved[0], path)
    (path / "MANIFEST.json").unlink()
    build_word_tokenizer([str(number) for number in range(99)]).save_pretrained(path)
    with pytest.raises(CheckpointError, match="token id 102, but the model has embeddings for 11 tokens only"):
        load_model(path, device="cpu", dtype="float32")


def _with_token(folder, token, **special):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": [token], **special})
    tokenizer.save_pretrained(folder)
    return tokenizer


def test_a_token_without_an_embedding_is_refused_where_it_occurs(saved, tmp_path):
    path = tmp_path / "copy"
    shutil.copytree(saved[0], path)
    (path / "MANIFEST.json").unlink()
    _with_token(path, "<image>")
    tokenizer = load_model(path, device="cpu", dtype="float32").tokenizer
    assert tokenizer.convert_tokens_to_ids("<image>") == 11
    sound = Problem(id="p", family="x", question="1 + 1", answer="2")
    assert encode_prompts(tokenizer, [sound])[0].token_ids == (1, 5, 8, 5)
    tokenizer.chat_template = "{% for message in messages %}1 <image>{% endfor %}"
    with pytest.raises(ConfigError, match=r"of the prompt of problem 'p' is '<image>' \(id 11\), and the model"):
        encode_prompts(tokenizer, [sound])
    source = checkpoint_source("m", path, RuntimeConfig(device="cpu"))
    assert source.check().vocabulary_size == 11
    _with_token(path, "<end>", eos_token="<end>")
    for read in (source.check, source.load):
        with pytest.raises(CheckpointError, match="the eos_token '<end>' is the token id 12, but the model has"):
            read()


KINDS = {
    "an encoder and a decoder": T5Config(),
    "a model of images, sound or video around one of text": Gemma3Config(),
    "a model of images, sound or video around one of text ": Qwen2VLConfig(),
    "not a causal language model": CLIPTextConfig(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_causal_model_of_text_is_one_line(saved, tmp_path, kind):
    KINDS[kind].save_pretrained(tmp_path)
    name = KINDS[kind].model_type
    with pytest.raises(CheckpointError, match=rf"\(model_type {name}\) is {kind.strip()}, and only causal") as caught:
        load_model_config(tmp_path)
    assert "\n" not in str(caught.value)


def test_loaded_weights_are_aligned_like_those_made_in_memory(saved):
    model = load_model(saved[0], device="cpu", dtype="float32").model
    assert all(tensor.data_ptr() % 64 == 0 for tensor in [*model.parameters(), *model.buffers()])


def test_stop_tokens_are_the_tokenizers_and_the_models(tiny):
    model, tokenizer = copy.deepcopy(tiny[0]), tiny[1]
    model.generation_config.eos_token_id = [2, 9]
    assert stop_ids(model, tokenizer) == (2, 9)
    model.generation_config.eos_token_id = "</s>"
    with pytest.raises(
        CheckpointError, match=r"eos_token_id in generation_config.json must be an id or a list of ids, got '</s>'"
    ):
        stop_ids(model, tokenizer)


def test_manifest_guards_every_file(saved):
    path, _, _ = saved
    with atomic_directory(path.parent / "other") as folder:
        (folder / "x").write_text("y")
    (path / "tokenizer_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json is damaged"):
        load_model(path, device="cpu", dtype="float32")


def test_a_learned_vocabulary_gives_every_text_back_and_keeps_digits_apart(tmp_path: Path) -> None:
    texts = ["Ann finds 12 more beads.", "Ann loses 3 beads."] * 20
    tokenizer = learn_tokenizer(texts, 300)
    tokenizer.save_pretrained(tmp_path)
    assert learn_tokenizer(texts, 300).get_vocab() == tokenizer.get_vocab()
    for text in (texts[0], "Zoë's 407 pens\n#### 407", "<eos>"):
        ids = load_tokenizer(tmp_path)(text)["input_ids"]
        assert ids[0] == tokenizer.bos_token_id
        assert tokenizer.decode(ids[1:]) == text
    words = tokenizer.convert_ids_to_tokens(tokenizer("Ann finds 12 beads")["input_ids"])
    assert words == ["<bos>", "Ann", "Ġfinds", "Ġ", "1", "2", "Ġbeads"]
    with pytest.raises(ValueError, match="more than 260 tokens, not 260"):
        learn_tokenizer(texts, 260)
