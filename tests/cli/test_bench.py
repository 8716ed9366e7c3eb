"""`swerve bench estimators`: what it writes and prints, and one clear line for every wrong input."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from swerve.artifacts.files import atomic_directory, read_json, sha256_file
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import write_table
from swerve.audit.rollout_audit import read_sequences
from swerve.models.model_folder import weights_fingerprint
from swerve.models.tiny import build_tiny_model, build_word_tokenizer

Swerve = Callable[..., tuple[int, str, str]]
SEQUENCES = [([2, 4, 5], [6, 7, 8, 3]), ([2, 9], [5, 4, 3]), ([2, 4], []), ([2, 6, 6, 7], [4, 5, 6, 7, 8])]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _save(folder: Path, model: Any, tokenizer: Any) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _perturbed(model: Any, amount: float) -> Any:
    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(amount * torch.randn(parameter.shape, generator=generator))
    return other


@pytest.fixture(scope="session")
def folders(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of a policy, a reference, and a model with another tokenizer."""
    from swerve.config.models import TinyModel

    model, tokenizer = tiny
    root = tmp_path_factory.mktemp("checkpoints")
    words = build_word_tokenizer(["9", "8", "7", "6", "+", "=", ";"])
    return {
        "policy": _save(root / "policy", _perturbed(model, 0.05), tokenizer),
        "reference": _save(root / "reference", model, tokenizer),
        "other": _save(
            root / "other", build_tiny_model(TinyModel(hidden_size=32, intermediate_size=48), words, seed=2), words
        ),
    }


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    path = tmp_path / "rollouts.jsonl"
    lines = [json.dumps({"prompt_ids": prompt, "completion_ids": completion}) for prompt, completion in SEQUENCES]
    path.write_text("\n".join(lines) + "\n\n")
    return path


def _table(path: Path) -> Path:
    rows = [
        {
            **dict.fromkeys(ROLLOUTS_SCHEMA.names),
            "prompt_ids": prompt,
            "completion_ids": completion,
            "logprobs": [-1.0] * len(completion),
        }
        for prompt, completion in SEQUENCES
    ]
    write_table(path, rows, ROLLOUTS_SCHEMA)
    return path


def _arguments(rollouts: Path | str, folders: dict[str, Path], *more: str, **names: str) -> list[str]:
    given = {"checkpoint": str(folders["policy"]), "reference": str(folders["reference"]), **names}
    options = [text for name, value in given.items() for text in (f"--{name}", value)]
    return ["bench", "estimators", "--rollouts", str(rollouts), *options, *more]


@pytest.mark.slow
def test_tables_figure_and_text(swerve: Swerve, folders: dict[str, Path], rollouts: Path) -> None:
    status, out, err = swerve(*_arguments(rollouts, folders))
    assert status == 0, err
    names = ["estimators.csv", "estimators.json", "estimators.pdf", "estimators.png"]
    assert sorted(path.name for path in Path("estimators").iterdir()) == names
    audit = read_json(Path("estimators/estimators.json"))
    assert (audit["num_tokens"], audit["num_sequences"], audit["num_left_out"]) == (12, 3, 0)
    assert audit["rollouts"] == {"path": str(rollouts), "sha256": sha256_file(rollouts)}
    assert audit["checkpoint"]["name"] == str(folders["policy"])
    assert len(audit["checkpoint"]["weights_sha256"]) == 64
    assert audit["checkpoint"]["weights_sha256"] != audit["reference"]["weights_sha256"]
    assert set(audit["versions"]) == {"swerve", "torch", "transformers"}
    assert "12 tokens of 3 sequences, temperature 1;" in out
    assert ["k1", "loss", "-", "1.000", "-", "zero:", "no", "pull", "at", "all"] in map(str.split, out.splitlines())
    assert out.splitlines()[-1] == "Wrote estimators/estimators.csv"
    assert "audit: 12/12, done" in err


def test_figures_are_those_of_the_models(swerve: Swerve, folders: dict[str, Path], rollouts: Path, tiny: Any) -> None:
    """One sequence by hand: the models' own logits at temperature 0.7."""
    prompt, completion = SEQUENCES[0]
    arguments = ("--json", "--max-tokens", "4", "--temperature", "0.7", "--dtype", "float64", "--out", "x")
    status, out, err = swerve(*_arguments(rollouts, folders, *arguments))
    assert status == 0, err
    audit = json.loads(out)
    logprobs = []
    for model in (_perturbed(tiny[0], 0.05), tiny[0]):
        with torch.no_grad():
            logits = copy.deepcopy(model).double()(torch.tensor([[*prompt, *completion]])).logits[0, 2:6]
        logprobs.append((logits / 0.7).log_softmax(-1))
    x = logprobs[0] - logprobs[1]
    kl = (logprobs[0].exp() * x).sum(-1).mean().item()
    realised = x.gather(-1, torch.tensor(completion)[:, None]).mean().item()
    assert audit["num_tokens"] == 4
    assert audit["temperature"] == 0.7
    assert audit["exact"]["reverse_kl"] == pytest.approx(kl, rel=1e-6)
    assert audit["values"][0]["realised"]["mean"] == pytest.approx(realised, rel=1e-6)
    assert audit["files"] == [f"x/estimators.{suffix}" for suffix in ("json", "png", "pdf", "csv")]


def test_a_table_of_rollouts_and_checkpoints_of_a_run(
    swerve: Swerve, tmp_path: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swerve.report.estimators.write_estimator_figure", lambda audit, directory: [])
    run = RunDirectory(tmp_path / "runs" / "mine")
    run.create(config_yaml="", provenance={})
    model, tokenizer = tiny
    for step, stage, amount in ((1, "sft", 0.0), (2, "rl", 0.02)):
        made, place = _perturbed(model, amount), {"step": step, "stage": stage, "stage_step": 1}
        record = {**place, "scheduled": True, "final": True, "weights_sha256": weights_fingerprint(made)}
        with atomic_directory(run.checkpoint_path(step), run_files={}, **record) as folder:
            _save(folder, made, tokenizer)
    table = _table(run.rollouts_path(2))
    assert read_sequences(table) == [pair for pair in SEQUENCES if pair[1]]
    names = {"checkpoint": "mine:rl-1", "reference": str(run.path) + ":sft"}
    status, _, err = swerve(*_arguments(table, {"policy": table, "reference": table}, **names))
    assert status == 0, err
    audit = read_json(run.path / "estimators" / "estimators.json")
    assert (audit["checkpoint"]["name"], audit["reference"]["name"]) == ("rl-1", "sft-1")
    assert audit["reference"]["weights_sha256"] == weights_fingerprint(model)
    status, _, err = swerve(*_arguments(table, {"policy": table, "reference": table}, **{**names, "reference": "mine"}))
    assert (status, "mine is a run; name one of its checkpoints as mine:SELECTOR (it has sft-1, rl-1)" in err) == (
        1,
        True,
    )
    status, _, err = swerve(
        *_arguments(table, {"policy": table, "reference": table}, **{**names, "reference": str(run.path)})
    )
    assert (status, "is a run; name one of its checkpoints as" in err, "it has sft-1, rl-1" in err) == (1, True, True)
    status, _, err = swerve(
        *_arguments(table, {"policy": table, "reference": table}, **{**names, "checkpoint": "mine:rl-9"})
    )
    assert (status, "has no checkpoint 'rl-9'; it has sft-1, rl-1" in err) == (1, True)


def test_other_line_separators_inside_a_string_do_not_end_a_line(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    path.write_text('{"prompt_ids": [1], "completion_ids": [2, 3], "text": "a\u2028b\x85"}\r\n', encoding="utf-8")
    assert read_sequences(path) == [([1], [2, 3])]


def test_max_tokens_cuts_the_last_sequence(rollouts: Path) -> None:
    assert read_sequences(rollouts, max_tokens=6) == [SEQUENCES[0], ([2, 9], [5, 4])]
    assert read_sequences(rollouts, max_tokens=1) == [([2, 4, 5], [6])]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "rollouts.jsonl has no completion tokens: there is nothing to audit"),
        ('{"prompt_ids": [2], "completion_ids": []}', "rollouts.jsonl has no completion tokens"),
        ('{"prompt_ids": [], "completion_ids": [3]}', "row 1 has an empty prompt"),
        ('{"prompt_ids": [2]}', "line 1 lacks completion_ids; each line needs prompt_ids and completion_ids"),
        ("[1, 2]", "line 1 lacks prompt_ids and completion_ids"),
        ('{"prompt_ids": [2], "completion_ids": [3]}\nPAR1', "line 2 is not JSON; a rollouts table ends in .parquet"),
        ('{"prompt_ids": "2", "completion_ids": [3]}', "line 1: prompt_ids must be a list of token ids"),
        ('{"prompt_ids": [2], "completion_ids": [true]}', "line 1: completion_ids must be a list of token ids"),
        ('{"prompt_ids": [2], "completion_ids": [-1]}', "line 1: completion_ids must be a list of token ids"),
        ('{"prompt_ids": [2], "completion_ids": [4000]}', "the rollouts have the token id 4000, but"),
    ],
)
def test_wrong_rollouts(swerve: Swerve, folders: dict[str, Path], rollouts: Path, content: str, message: str) -> None:
    rollouts.write_text(content)
    status, out, err = swerve(*_arguments(rollouts, folders))
    assert (status, out) == (1, "")
    line = err.splitlines()[-1]
    assert line.startswith("swerve: error: ")
    assert message in line
    assert not Path("estimators").exists()


def test_wrong_tables(swerve: Swerve, folders: dict[str, Path], tmp_path: Path) -> None:
    import pyarrow as pa

    path = tmp_path / "rollouts.parquet"
    write_table(path, [{"prompt_ids": [2]}], pa.schema([ROLLOUTS_SCHEMA.field("prompt_ids")]))
    cases = [("lacks the columns ['completion_ids']", path), ("does not exist", tmp_path / "none.parquet")]
    path.with_name("cut.parquet").write_bytes(path.read_bytes()[:40])
    cases += [("is damaged", tmp_path / "cut.parquet"), ("is a folder, and only ordinary files are read", tmp_path)]
    cases += [("give a rollouts table of a run or a JSONL file", tmp_path / "none.jsonl")]
    for message, given in cases:
        status, _, err = swerve(*_arguments(given, folders))
        assert (status, err.count("\n")) == (1, 1)
        assert message in err


def test_wrong_checkpoints(swerve: Swerve, folders: dict[str, Path], rollouts: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    cases = {
        "nowhere": "checkpoint nowhere does not exist; give a folder in the Hugging Face layout or RUN:SELECTOR",
        str(empty.parent / "emtpy"): f"emtpy does not exist; did you mean '{empty}'? Give a folder",
        "nowhere:rl-1": "run directory nowhere does not exist",
        str(empty): "has no config.json",
        str(folders["other"]): "only models with the same tokenizer can be compared",
    }
    for name, message in cases.items():
        status, out, err = swerve(*_arguments(rollouts, folders, reference=name))
        assert (status, out) == (1, "")
        assert message in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--temperature", "0", "--temperature: 'temperature' must be greater than 0, got 0"),
        ("--temperature", "nan", "--temperature: 'temperature' must be a number, got 'nan'"),
        ("--max-tokens", "0", "--max-tokens: 'max_tokens' must be greater than 0, got 0"),
        ("--dtype", "int8", "--dtype: 'dtype' must be one of 'float32', 'float64', 'bfloat16', got 'int8'"),
        ("--device", "toaster", "--device toaster is not available here"),
        ("--max-tokens", "many", "--max-tokens: 'max_tokens' must be an integer or null, got 'many'"),
    ],
)
def test_wrong_options(
    swerve: Swerve, folders: dict[str, Path], rollouts: Path, option: str, value: str, message: str
) -> None:
    status, out, err = swerve(*_arguments(rollouts, folders, option, value))
    assert (status, out) == (2, "")
    assert message in err.splitlines()[-1]


def test_the_same_model_twice_has_tables_but_no_figure(
    swerve: Swerve, folders: dict[str, Path], rollouts: Path
) -> None:
    Path("estimators").mkdir()
    Path("estimators/estimators.png").touch()  # of an earlier audit
    status, out, _ = swerve(*_arguments(rollouts, folders, checkpoint=str(folders["reference"])))
    assert status == 0
    assert "undecided: the two models do not differ" in out
    assert [path.name for path in Path("estimators").iterdir()] == ["estimators.json"]
