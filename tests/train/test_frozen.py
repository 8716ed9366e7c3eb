"""References and teachers whose heads are padded to other widths than the policy's, beside plain transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table
from swerve.errors import CheckpointError, MismatchError
from swerve.models.tiny import build_word_tokenizer
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train.checks import check_recipe
from swerve.train.loop import train_run

NUM_IDS = 400
TEMPERATURE = 0.7


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models of one tokenizer of 400 ids, with heads of 400, 512 and 380 rows; padding is likelier than any token."""
    words = load_family(AdditionTask()).words
    tokenizer = build_word_tokenizer([*words, *(f"w{number}" for number in range(NUM_IDS - 4 - len(words)))])
    assert len(tokenizer) == NUM_IDS
    made = {}
    for name, width, tied in (("narrow", 400, True), ("wide", 512, False), ("other", 512, True), ("short", 380, True)):
        torch.manual_seed(width + tied)
        sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "max_position_embeddings": 64}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2}
        ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
        model = Qwen2ForCausalLM(Qwen2Config(vocab_size=width, tie_word_embeddings=tied, **sizes, **heads, **ends))
        with torch.no_grad():
            model.get_output_embeddings().weight[NUM_IDS:] *= 3
        made[name] = tmp_path_factory.mktemp(name)
        model.save_pretrained(made[name])
        tokenizer.save_pretrained(made[name])
    return made


def _recipe(folder: Path, policy: Path, *stages: dict[str, object]) -> Path:
    document = {
        "name": "padded",
        "seed": 5,
        "task": {"kind": "addition", "digits": 2, "num_train": 100, "num_heldout": 8},
        "model": {"kind": "pretrained", "path": str(policy)},
        "max_new_tokens": 36,
        "stages": [
            {
                **{"steps": 1, "prompts_per_step": 2, "samples_per_prompt": 2, "temperature": TEMPERATURE},
                **{"optimizer": {"lr": 1e-3}, **one},
            }
            for one in stages
        ],
        "runtime": {"device": "cpu", "threads": 1},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@torch.no_grad()
def _logprobs(folder: Path, rows: list[dict[str, list[int]]]) -> list[Tensor]:
    """Return a model's log-probabilities at each completion position: float64, over the tokenizer's ids alone."""
    model, found = AutoModelForCausalLM.from_pretrained(folder, dtype="float64").eval(), []
    for row in rows:
        ids = torch.tensor([[*row["prompt_ids"], *row["completion_ids"]]])
        logits = model(ids).logits[0, len(row["prompt_ids"]) - 1 : -1, :NUM_IDS]
        found.append(torch.log_softmax(logits / TEMPERATURE, dim=-1))
    return found


def _mean(rows, policy: Path, other: Path, value: Callable[[Tensor, Tensor, Tensor], Tensor]) -> float:
    """Return the mean over all tokens of a function of both models' log-probabilities and the tokens' ids."""
    values = [
        value(p, q, torch.tensor(row["completion_ids"])[:, None])
        for p, q, row in zip(_logprobs(policy, rows), _logprobs(other, rows), rows, strict=True)
    ]
    return float(torch.cat(values).mean())


def _reverse(p: Tensor, q: Tensor, _ids: Tensor) -> Tensor:
    return (p.exp() * (p - q)).sum(-1)


def _forward(p: Tensor, q: Tensor, _ids: Tensor) -> Tensor:
    return _reverse(q, p, _ids)


def _js(p: Tensor, q: Tensor, _ids: Tensor) -> Tensor:
    middle = torch.logaddexp(p, q) - torch.log(torch.tensor(2.0))
    return (_reverse(p, middle, _ids) + _reverse(q, middle, _ids)) / 2


def _k1(p: Tensor, q: Tensor, ids: Tensor) -> Tensor:
    return (p - q).gather(1, ids)[:, 0]


def _k3(p: Tensor, q: Tensor, ids: Tensor) -> Tensor:
    log_ratio = -_k1(p, q, ids)
    return log_ratio.exp() - 1 - log_ratio


@pytest.mark.parametrize(("policy", "other"), [("wide", "narrow"), ("narrow", "other")])
def test_divergences_are_over_the_tokenizers_ids(folders, tmp_path, policy, other):
    """A learning rate of next to nothing keeps every stage's policy the one in the folder."""
    optimizer = {"lr": 1e-12, "weight_decay": 0.0}
    reference = {"reference": str(folders[other]), "coef": 0.1}
    kls = {
        "k3": ({"kind": "loss", "estimator": "k3"}, _k3),
        "k1": ({"kind": "reward", "estimator": "k1"}, _k1),
        "exact": ({"kind": "loss", "estimator": "exact_reverse"}, _reverse),
    }
    teachers = {"reverse": _reverse, "forward": _forward, "js": _js}
    stages = [
        {"kind": "rl", "name": name, "kl": {**reference, **kl}, "optimizer": optimizer} for name, (kl, _) in kls.items()
    ]
    stages += [
        {"kind": "distill", "name": name, "teacher": str(folders[other]), "divergence": name, "optimizer": optimizer}
        for name in teachers
    ]
    path, run = _recipe(tmp_path, folders[policy], *stages), RunDirectory(tmp_path / "run")
    check_recipe(load_config(path))
    train_run(load_config(path), run, resume=False, progress=SilentProgress())
    values = [*(value for _, value in kls.values()), *teachers.values()]
    for record, value in zip(read_metrics(run.metrics_path), values, strict=True):
        rows = read_table(run.rollouts_path(record["step"]), ROLLOUTS_SCHEMA).to_pylist()
        assert max(max(row["completion_ids"]) for row in rows) < NUM_IDS
        expected = _mean(rows, folders[policy], folders[other], value)
        assert record["kl" if record["stage"] in kls else "loss"] == pytest.approx(expected, rel=1e-5)
        sampled = _logprobs(folders[policy], rows)
        for row, logprobs in zip(rows, sampled, strict=True):
            own = logprobs.gather(1, torch.tensor(row["completion_ids"])[:, None])[:, 0]
            assert row["logprobs"] == pytest.approx(own.tolist(), abs=1e-4)
        if "logprob_gap_max" in record:
            assert record["logprob_gap_max"] < 1e-4


def test_padding_is_not_learned(folders, tmp_path):
    stage = {"kind": "rl", "kl": {"kind": "loss", "estimator": "exact_reverse", "reference": str(folders["narrow"])}}
    path = _recipe(tmp_path, folders["wide"], {**stage, "optimizer": {"lr": 1e-2, "weight_decay": 0.0}})
    run = RunDirectory(tmp_path / "run")
    train_run(load_config(path), run, resume=False, progress=SilentProgress())
    before, after = (
        AutoModelForCausalLM.from_pretrained(one).lm_head.weight for one in (folders["wide"], run.checkpoint_path(1))
    )
    assert after.shape == (512, 32)
    assert torch.equal(after[NUM_IDS:], before[NUM_IDS:])
    assert not torch.equal(after[:NUM_IDS], before[:NUM_IDS])


def test_a_head_without_a_row_for_each_token_is_refused_before_the_first_step(folders, tmp_path):
    stage = {"kind": "distill", "teacher": str(folders["short"])}
    path = _recipe(tmp_path, folders["narrow"], stage)
    message = "short.*: the tokenizer has the token id 399, but the model has embeddings for 380 tokens only"
    for check in (
        check_recipe,
        lambda config: train_run(config, RunDirectory(tmp_path / "run"), resume=False, progress=SilentProgress()),
    ):
        with pytest.raises(CheckpointError, match=message):
            check(load_config(path))


def test_a_frozen_model_without_an_added_token_of_the_policy_is_refused(folders, tmp_path):
    """As Gemma 3's smallest model lacks one that the others have; the other way round the token is left out."""
    made = {}
    for name in ("narrow", "wide"):
        tokenizer = AutoTokenizer.from_pretrained(folders[name])
        tokenizer.add_tokens(["<image>"])
        made[name] = tmp_path / name
        AutoModelForCausalLM.from_pretrained(folders[name]).save_pretrained(made[name])
        tokenizer.save_pretrained(made[name])
    path = _recipe(tmp_path, made["wide"], {"kind": "distill", "teacher": str(made["narrow"])})
    with pytest.raises(
        MismatchError, match="narrow: its output head has 400 tokens, and that of the model in training 401"
    ):
        train_run(load_config(path), RunDirectory(tmp_path / "one"), resume=False, progress=SilentProgress())
    path = _recipe(tmp_path, made["narrow"], {"kind": "distill", "teacher": str(made["wide"])})
    run = RunDirectory(tmp_path / "two")
    train_run(load_config(path), run, resume=False, progress=SilentProgress())
    (record,) = read_metrics(run.metrics_path)
    rows = read_table(run.rollouts_path(1), ROLLOUTS_SCHEMA).to_pylist()
    assert record["loss"] == pytest.approx(_mean(rows, folders["narrow"], folders["wide"], _reverse), rel=1e-5)
