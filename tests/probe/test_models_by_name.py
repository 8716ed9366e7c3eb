"""`swerve.probe(reference, checkpoint, responses)`: models by name, and responses in the forms that people have."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

import swerve
from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.responses import Response
from swerve.artifacts.tables import data_frame
from swerve.errors import CheckpointError, ConfigError, MismatchError, MissingExtraError
from swerve.models.tiny import build_word_tokenizer
from swerve.probe.rollouts.given import given_sequences, token_pieces
from swerve.types import Problem

# The ids of "<bos> 1 + 2 =" and of "3 ; 0".
PROMPT, COMPLETION = (1, 5, 8, 6, 9), (7, 10, 4)


@pytest.fixture(scope="module")
def folders(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The tiny model, another with the same tokenizer, and one with another tokenizer."""
    model, tokenizer = tiny
    folder = tmp_path_factory.mktemp("models")
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.model.layers[0].mlp.down_proj.weight.add_(0.5)
    words = build_word_tokenizer(["3", "2", "1", "0", "+", "=", ";"])
    for name, saved, saved_words in (
        ("before", model, tokenizer),
        ("after", other, tokenizer),
        ("alien", model, words),
    ):
        saved.save_pretrained(folder / name)
        saved_words.save_pretrained(folder / name)
    return {name: str(folder / name) for name in ("before", "after", "alien")}


CONVERSATION = [{"role": "user", "content": "1 + 2 ="}, {"role": "assistant", "content": "3 ; 0"}]


@pytest.mark.parametrize(
    ("responses", "expected"),
    [
        ([("1 + 2 =", "3 ; 0")], [(PROMPT, COMPLETION)]),
        (("1 + 2 =", "3 ; 0"), [(PROMPT, COMPLETION)]),
        ([{"prompt": "1 + 2 =", "response": "3 ; 0"}] * 2, [(PROMPT, COMPLETION)] * 2),
        ([([{"role": "user", "content": "1 + 2 ="}], "3 ; 0")], [(PROMPT, COMPLETION)]),
        ("1 + 2 = 3 ; 0", [(PROMPT[:1], PROMPT[1:] + COMPLETION)]),
        (["1 + 2 ="], [(PROMPT[:1], PROMPT[1:])]),
        ([CONVERSATION], [(PROMPT, COMPLETION)]),
        (CONVERSATION, [(PROMPT, COMPLETION)]),
        ([(CONVERSATION[:1], CONVERSATION[1:])], [(PROMPT, COMPLETION)]),
        ([{"prompt": CONVERSATION[:1], "completion": CONVERSATION[1:]}], [(PROMPT, COMPLETION)]),
        ([([1, 5], [6]), ("1 + 2 =", "3 ; 0")], [((1, 5), (6,)), (PROMPT, COMPLETION)]),
        ([[[1, 5], np.array([6])]], [((1, 5), (6,))]),
        (
            [
                Response(
                    problem=Problem(id="p", family="x", question="?", answer=""),
                    prompt_ids=PROMPT,
                    completion_ids=COMPLETION,
                )
            ],
            [(PROMPT, COMPLETION)],
        ),
    ],
    ids=[
        "pairs",
        "pair",
        "mappings",
        "messages",
        "text",
        "texts",
        "conversations",
        "conversation",
        "halves",
        "trl",
        "mixed",
        "array",
        "records",
    ],
)
def test_responses_in_every_form(tiny: Any, responses: Any, expected: list[Any]) -> None:
    found = given_sequences(responses, tiny[1])
    assert [(response.prompt_ids, response.completion_ids) for response in found] == expected


ASKED, SAID = ["1 + 2 =", "1 + 2 ="], ["3 ; 0", "3 ; 0"]
FRAME = pd.DataFrame({"prompt": ASKED, "response": SAID, "gold": [3.0, float("nan")]})


@pytest.mark.parametrize(
    "table",
    [
        FRAME,
        FRAME[::-1],  # rows with an index of their own
        {"prompt": ASKED, "response": SAID},
        {"prompt": np.array(ASKED), "response": pd.Series(SAID)},
        {"prompt_ids": [[*PROMPT]] * 2, "completion_ids": [[*COMPLETION]] * 2},
        pa.table({"prompt": ASKED, "response": SAID}),
        ({"prompt": prompt, "response": said} for prompt, said in zip(ASKED, SAID, strict=True)),
    ],
    ids=["frame", "reversed", "columns", "arrays", "ids", "arrow", "records"],
)
def test_a_table_is_read_by_row(tiny: Any, table: Any) -> None:
    found = given_sequences(table, tiny[1])
    assert [(response.prompt_ids, response.completion_ids) for response in found] == [(PROMPT, COMPLETION)] * 2


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "1 + 2 =", "response": "3 ; 0"},
        {"prompt_ids": [*PROMPT], "completion_ids": [*COMPLETION]},
        {"messages": [{"role": "user", "content": "1 + 2 ="}, {"role": "assistant", "content": "3 ; 0"}]},
    ],
)
def test_one_record_is_one_response(tiny: Any, record: Any) -> None:
    (found,) = given_sequences(record, tiny[1])
    assert (found.prompt_ids, found.completion_ids) == (PROMPT, COMPLETION)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"prompt": ASKED, "response": SAID[:1]}, r"different lengths \(prompt 2, response 1\); give a list of texts"),
        ({"train": FRAME, "test": FRAME}, "the responses are a mapping of train, test; give a list"),
        ({}, "the responses are a mapping of nothing; give"),
        ({"prompt", "response"}, "of type set; give a list of texts, of pairs"),
        ({"prompt": 1}.keys(), "of type dict_keys; give a list"),
        ((text for text in SAID), "of type generator; give a list"),
        (7, "the responses are 7, of type int; give a list"),
        (
            [[1, 2], [3]],
            r"response 0 is \[1, 2\], of type list; give a text, a pair .* of token ids such as \(\[1, 2\], \[3\]\)",
        ),
        ([[["1", "2"], [3]]], "response 0 is .*; give a text, a pair"),
        ([[[True], [False]]], "response 0 is .*; give a text, a pair"),
        ([("1 + 2 =", None)], "response 0 is .*; give a text, a pair"),
        ([(5, "3 ; 0")], "response 0 is .*; give a text, a pair"),
        ([({"role": "user"}, "3 ; 0")], "response 0 is .*; give a text, a pair"),
        ([[{"role": "user", "content": "1 + 2 ="}, "3 ; 0"], []], "response 0 is .*; give a text, a pair"),
    ],
)
def test_what_is_no_list_of_responses_is_refused(tiny: Any, given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        given_sequences(given, tiny[1])


def test_a_file_of_responses(tiny: Any, tmp_path: Path) -> None:
    path = tmp_path / "responses.jsonl"
    path.write_text(json.dumps({"id": "a", "prompt": "1 + 2 =", "response": "3 ; 0"}) + "\n")
    (read,) = given_sequences(path, tiny[1])
    assert [read] == given_sequences(str(path), tiny[1])
    assert (read.prompt_ids, read.completion_ids) == (PROMPT, COMPLETION)


def test_wrong_responses(tiny: Any) -> None:
    with pytest.raises(ConfigError, match="response 1 is 3, of type int; give a text, a pair"):
        given_sequences(["1 + 2", 3], tiny[1])
    with pytest.raises(ConfigError, match="response 0: a text needs two tokens"):
        given_sequences([""], tiny[1])
    with pytest.raises(ConfigError, match="give tokenizer="):
        given_sequences(["1 + 2"], None)


def test_the_texts_of_tokens_make_the_text(tiny: Any) -> None:
    assert token_pieces(tiny[1], [*COMPLETION, tiny[1].eos_token_id])[2] == ["3", " ;", " 0", "<eos>"]


def test_models_by_folder_and_in_memory_agree(tiny: Any, folders: dict[str, str]) -> None:
    pairs = [("1 + 2 =", "3 ; 0"), ("2 + 2 =", "3")]
    result = swerve.probe(folders["before"], folders["after"], pairs)
    assert (result.reference, result.checkpoint, result.texts) == ("before", "after", ("3", " ;", " 0", "3"))
    assert result.js.min() > 0
    mixed = swerve.probe(tiny[0], folders["after"], pairs, tokenizer=tiny[1])
    assert mixed.js == pytest.approx(result.js, abs=1e-9)
    assert (mixed.reference, mixed.checkpoint) == ("reference", "after")
    # A checkpoint of a run is one by its path, under its label.
    entry = CheckpointRef(path=Path(folders["after"]), step=3, stage="rl", stage_step=3, scheduled=True, final=True)
    assert repr(entry) == f"CheckpointRef('rl-3': {folders['after']!r})"
    assert (of_run := swerve.probe(folders["before"], entry, pairs)).js == pytest.approx(result.js, abs=1e-9)
    assert of_run.checkpoint == "rl-3"
    # Several checkpoints give a result each, by label.
    several = swerve.probe(folders["before"], {"late": folders["after"], "same": folders["before"]}, pairs)
    assert list(several) == ["late", "same"]
    assert several["late"].js == pytest.approx(result.js, abs=1e-9)
    assert several["same"].js.max() < 1e-9
    assert list(swerve.probe(folders["before"], [folders["after"], folders["after"]], pairs)) == ["after", "after-2"]


def test_wrong_models(folders: dict[str, str]) -> None:
    with pytest.raises(MismatchError, match="alien and before have different tokenizers"):
        swerve.probe(folders["before"], folders["alien"], [("1 + 2 =", "3")])
    with pytest.raises(CheckpointError, match="does not exist"):
        swerve.probe(folders["before"], "no/such/folder/here", ["1 + 2"])
    with pytest.raises(ConfigError, match="give swerve.probe\\(run\\), or swerve.probe\\(reference, checkpoint"):
        swerve.probe(folders["before"], folders["after"])
    with pytest.raises(ConfigError, match="there is no keyword 'sed'; did you mean 'seed'"):
        swerve.probe(folders["before"], folders["after"], ["1 + 2"], sed=3)


def test_a_data_frame_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"js": [0.5]})
    monkeypatch.setitem(sys.modules, "pandas", None)
    message = r"a data frame needs the package 'pandas'; .* pip install 'swerve\[hub\]'"
    with pytest.raises(ImportError, match=message) as caught:
        data_frame(table)
    assert isinstance(caught.value, MissingExtraError)
