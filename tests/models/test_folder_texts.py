"""Which texts a model cannot read, by its folder's files alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from swerve.errors import ArtifactError, CheckpointError, ConfigError
from swerve.models import folder_metadata
from swerve.models.folder_texts import check_asked, longest, plain_texts
from swerve.probe.recipe import ProbeRecipe
from swerve.probe.rollouts.checks import check_recipe_files
from swerve.types import Problem
from tests.chat_models import byte_level, save_model
from tests.json_lines import write_json_lines
from tests.models.test_folder_metadata import configured


@pytest.fixture(autouse=True)
def _before_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("folder_texts", "folder_metadata"):
        monkeypatch.setattr(f"swerve.models.{module}.sys", SimpleNamespace(modules={}))


@pytest.fixture(scope="module")
def words(save_addition_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_addition_model(tmp_path_factory.mktemp("texts") / "words", seed=0)  # 40 positions


@pytest.fixture(scope="module")
def bytes_of(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts") / "bytes"
    save_model(folder, byte_level(), eos=0)  # 128 positions
    return folder


def asked(text: str) -> Problem:
    return Problem(id="p", family="table", question=text, answer="1")


def test_words_are_counted_and_known(words: Path) -> None:
    found = plain_texts(words, ["1 2 + 3 4 =", "1 zebra", ""])
    assert [(one.num_tokens, one.has_unknown) for one in found] == [(6, False), (2, True), (0, False)]
    check_asked({"m": words}, [asked("1 2 + 3 4 =")], None)
    with pytest.raises(ConfigError, match="a word of problem 'p'; 'zebra' is not in its vocab.*is '1 zebra'; ask"):
        check_asked({"m": words}, [asked("1 zebra")], None)


def test_questions_that_leave_no_room_are_refused(words: Path, bytes_of: Path) -> None:
    check_asked({"m": words}, [asked(" ".join("1" * 39))], None)
    with pytest.raises(ConfigError, match=r"'p' has at least 40 tokens for model 'm', more than the model's 40 pos"):
        check_asked({"m": words}, [asked(" ".join("1" * 40))], None)
    with pytest.raises(ConfigError, match=r"30 tokens for model 'm' and may grow by 11, together more .*; lower --max"):
        check_asked({"m": words}, [asked(" ".join("1" * 30))], 11)
    # Of others some tokens may merge with what stands around the text, and short texts are not looked at.
    check_asked({"m": bytes_of}, [asked("x" * 135)], None)
    assert [one.num_tokens for one in plain_texts(bytes_of, ["x" * 127, "x" * 200, "a zebra"], 1)] == [0, 192, 0]
    with pytest.raises(ConfigError, match="at least 192 tokens"):
        check_asked({"m": bytes_of}, [asked("x" * 200)], None)
    assert longest([words, bytes_of]) == 40
    assert longest([words, "owner/name"]) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a zebra", "r.jsonl, line 1: the tokenizer has no token for a word of the response; give models"),
        (" ".join("1" * 60), "none of its 1 responses can be read as tokens: each is longer than the 40 tokens"),
    ],
)
def test_responses_that_no_model_can_read_are_refused(words: Path, tmp_path: Path, text: str, said: str) -> None:
    write_json_lines(tmp_path / "r.jsonl", [{"prompt": "1", "response": text, "answer": "1"}])
    recipe = ProbeRecipe(
        models={"a": str(words), "b": str(words)}, reference="a", responses=str(tmp_path / "r.jsonl"), out="o"
    )
    with pytest.raises(ArtifactError, match=said):
        check_recipe_files(recipe)


def test_a_type_of_model_that_nobody_knows_is_named(save_addition_model: Callable[..., Path], tmp_path: Path) -> None:
    folder = save_addition_model(tmp_path / "m", seed=0)
    folder_metadata.check_metadata(folder)
    configured(folder, model_type="zebra")
    with pytest.raises(CheckpointError, match="has the model_type 'zebra', which the installed transformers does not"):
        folder_metadata.check_metadata(folder)
