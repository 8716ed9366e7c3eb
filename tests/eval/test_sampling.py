"""Samples of any model: what a row says is so, and neither batches nor kills change it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from swerve.artifacts import files
from swerve.artifacts.parts import Parts
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.samples import read_samples
from swerve.config.runtime import RuntimeConfig
from swerve.config.sampling import SampleSettings
from swerve.errors import ArtifactError, CheckpointError, ConfigError
from swerve.eval import sample_files, sampling
from swerve.eval.sampling import sample
from swerve.models.model_folder import load_model
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.problems.table import TableTask
from swerve.rewards import grade
from tests.builders import Notes

TASK = AdditionTask(digits=2, num_heldout=7)
TEMPLATE = (
    "{% for m in messages %}{{ m.content }} {% endfor %}{{ strftime_now('%d') }}"
    "{% if thinking is defined and thinking %} step{% endif %}"
)


def _settings(**changes: Any) -> SampleSettings:
    given: dict[str, Any] = {
        "task": TASK,
        "num_samples": 4,
        "temperatures": (0.5, 1.5),
        "max_new_tokens": 6,
        "runtime": RuntimeConfig(max_rows=4),
    }
    return SampleSettings(**{**given, **changes})


Save = Callable[..., Path]


@pytest.fixture(scope="module")
def folder(save_addition_model: Save, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_addition_model(tmp_path_factory.mktemp("models") / "one", seed=1)


@pytest.fixture(scope="module")
def file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven problems, four samples each, in four chunks; treat it as read-only."""
    path = tmp_path_factory.mktemp("samples") / "one.parquet"
    assert sample({"one": folder}, _settings(), out=path) == {"one": path}
    return path


def test_every_problem_has_its_samples_in_order(file: Path) -> None:
    found = read_samples(file)
    problems = load_family(TASK).problems("heldout", seed=sampling.derive_seed(0, "problems"))
    assert list(found.by_problem()) == [problem.id for problem in problems]
    for problem in problems:
        rows = found.by_problem()[problem.id]
        assert [row.problem for row in rows] == [replace(problem, begun="")] * 4  # without a template
        assert [row.sample for row in rows] == [0, 1, 2, 3]
        assert [row.temperature for row in rows] == [0.5, 1.5, 0.5, 1.5]
        assert len({row.seed for row in rows}) == 4
    assert not file.with_name("one.parquet.partial").exists()


def test_a_row_can_be_graded_and_its_logprobs_found_again(file: Path, folder: Path) -> None:
    model = load_model(folder, device="cpu", dtype="float32").model
    for row in read_samples(file).samples:
        assert grade(row.problem, row.text or "") == row.rollout.reward
        ids = torch.tensor([row.prompt_ids + row.completion_ids])
        with torch.inference_mode():
            logits = model(ids).logits[0, len(row.prompt_ids) - 1 : -1] / row.temperature
        expected = torch.log_softmax(logits.double(), -1).gather(1, ids[0, len(row.prompt_ids) :, None]).squeeze(1)
        assert row.logprobs == pytest.approx(expected.tolist(), abs=1e-4)


def test_neither_batch_nor_number_of_samples_changes_a_sample(file: Path, folder: Path, tmp_path: Path) -> None:
    expected = {(row.problem.id, row.sample): row.completion_ids for row in read_samples(file).samples}
    changes = (
        _settings(runtime=RuntimeConfig(max_rows=100)),
        _settings(num_samples=2),
        _settings(limit=3),
    )
    for number, settings in enumerate(changes):
        path = sample({"one": folder}, settings, out=tmp_path / f"{number}.parquet")["one"]
        found = {(row.problem.id, row.sample): row.completion_ids for row in read_samples(path).samples}
        assert len(found) == settings.num_samples * (settings.limit or 7)
        assert found == {key: expected[key] for key in found}


def test_another_seed_gives_other_samples(file: Path, folder: Path, tmp_path: Path) -> None:
    other = read_samples(sample({"one": folder}, _settings(seed=1), out=tmp_path / "b.parquet")["one"])
    same = [
        row.completion_ids == before.completion_ids
        for row, before in zip(other.samples, read_samples(file).samples, strict=True)
    ]
    assert sum(same) < len(same) / 2


def test_models_share_the_problems(save_addition_model: Save, folder: Path, tmp_path: Path) -> None:
    other = save_addition_model(tmp_path / "other", seed=2)
    settings = _settings(num_samples=1, temperatures=(0.0,))
    paths = sample({"a": folder, "b": other}, settings, out=tmp_path / "out")
    assert paths == {"a": tmp_path / "out" / "a.parquet", "b": tmp_path / "out" / "b.parquet"}
    first, second = (read_samples(path) for path in paths.values())
    assert [one.problem for one in first.samples] == [one.problem for one in second.samples]
    assert first.info.tokenizer.sha256 == second.info.tokenizer.sha256
    assert first.info.model.fingerprint != second.info.model.fingerprint
    assert first.info.problems_sha256 == second.info.problems_sha256


_POINTS = 9


@pytest.mark.parametrize("point", range(_POINTS))
def test_killed_at_any_write_it_continues_to_the_same_bytes(
    file: Path, folder: Path, tmp_path: Path, point: int
) -> None:
    path = tmp_path / "one.parquet"
    child = os.fork()
    if child == 0:  # killed before or after the rename number point // 2
        _kill_at(point)
        sample({"one": folder}, _settings(), out=path)
        os._exit(0)  # not reached: there are more renames than points
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not path.exists()
    written = list(path.with_name("one.parquet.partial").glob("samples-*"))
    sample({"one": folder}, _settings(), out=path)
    assert path.read_bytes() == file.read_bytes()
    assert len(written) == max(0, (point - 1) // 2)
    assert [one.name for one in tmp_path.iterdir()] == ["one.parquet"]


def _kill_at(point: int) -> None:
    rename, number = os.replace, iter(range(_POINTS + 1))

    def replace_or_die(source: Any, target: Any) -> None:
        for act in (lambda: None, lambda: rename(source, target)):
            act()
            if next(number) == point:
                os.kill(os.getpid(), signal.SIGKILL)

    files.os.replace = replace_or_die  # type: ignore[attr-defined]


def test_ctrl_c_keeps_what_was_sampled(
    file: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, put = tmp_path / "one.parquet", Parts.put

    def interrupted(*arguments: Any) -> None:
        put(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(Parts, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sample({"one": folder}, _settings(), out=path)
    sampled: list[list[int]] = []
    monkeypatch.setattr(Parts, "put", lambda *rest: (sampled.append(list(rest[2])), put(*rest)))
    sample({"one": folder}, _settings(), out=path)
    assert sampled == [[2, 4], [4, 6], [6, 7]]
    assert path.read_bytes() == file.read_bytes()


def _interrupted(folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sample all chunks and stop before they are joined; return the folder of the chunks."""
    with monkeypatch.context() as patched:
        patched.setattr(sample_files, "write_samples", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sample({"one": folder}, _settings(), out=path)
    return path.with_name(f"{path.name}.partial")


def test_a_damaged_part_is_sampled_again(
    file: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one.parquet"
    partial = _interrupted(folder, path, monkeypatch)
    damaged, missing, *_ = sorted(partial.glob("samples-*"))
    data = bytearray(damaged.read_bytes())
    data[len(data) // 6] ^= 0xFF
    damaged.write_bytes(data)
    missing.unlink()
    sample({"one": folder}, _settings(), out=path)
    assert path.read_bytes() == file.read_bytes()


def test_a_complete_file_is_left_alone(file: Path, folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    path = shutil.copy2(file, tmp_path / "one.parquet")
    before = path.stat().st_mtime_ns
    monkeypatch.setattr(sample_files, "make_engine", None)
    moved = shutil.copytree(folder, tmp_path / "moved")
    sample({"one": moved}, _settings(), out=path)  # the same files in another place are the same model
    assert path.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"temperatures": (0.5, 1.0)}, r"temperatures \[0.5, 1.5\], now \[0.5, 1.0\]"),
        ({"seed": 5}, "seed 0, now 5"),
        ({"limit": 2}, "num_problems 7, now 2; of other problems, or graded otherwise"),
        ({"max_new_tokens": 5}, "max_new_tokens 6, now 5"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_other_settings_are_refused_by_name(
    file: Path, folder: Path, tmp_path: Path, monkeypatch: Any, changes: Any, said: str, whole: bool
) -> None:
    path = tmp_path / "one.parquet"
    if whole:
        shutil.copy2(file, path)
    else:
        Parts(path.with_name("one.parquet.partial"), sample_files._compared(read_samples(file).info)).begin()
    with pytest.raises(ConfigError, match=rf"holds samples with other settings \({said}"):
        sample({"one": folder}, _settings(**changes), out=path)


def test_another_model_is_refused(save_addition_model: Save, file: Path, tmp_path: Path) -> None:
    path = shutil.copy2(file, tmp_path / "one.parquet")
    other = save_addition_model(tmp_path / "other", seed=2)
    with pytest.raises(ConfigError, match="of another model, or its files have changed"):
        sample({"one": other}, _settings(), out=path)


def test_a_template_takes_arguments_and_the_same_date_every_day(save_addition_model: Save, tmp_path: Path) -> None:
    folder = save_addition_model(tmp_path / "chat", seed=1, template=TEMPLATE, words=("26", "step"))
    settings = _settings(num_samples=1, temperatures=(0.0,), template_args={"thinking": True}, limit=1)
    found = read_samples(sample({"chat": folder}, settings, out=tmp_path / "a.parquet")["chat"])
    (row,) = found.samples
    assert row.prompt == f"{row.problem.question} 26 step"
    tokenizer = load_model(folder, device="cpu", dtype="float32").tokenizer
    assert tokenizer.convert_ids_to_tokens(list(row.prompt_ids))[-2:] == ["26", "step"]
    assert (found.info.template_args, found.info.today) == ({"thinking": True}, "2024-07-26")


def test_raw_problems_stand_outside_the_template(save_addition_model: Save, tmp_path: Path) -> None:
    folder = save_addition_model(tmp_path / "chat", seed=1, template=TEMPLATE, words=("26", "step"))
    settings = _settings(num_samples=1, temperatures=(0.0,), template="raw", limit=1)
    found = read_samples(sample({"chat": folder}, settings, out=tmp_path / "a.parquet")["chat"])
    (row,) = found.samples
    assert (row.prompt, found.info.template) == (row.problem.question, "raw")
    with pytest.raises(ConfigError, match=r"has no chat template, so it takes no template arguments"):
        sample({"chat": folder}, settings.model_copy(update={"template_args": {"thinking": True}}), out=tmp_path / "b")
    with pytest.raises(ConfigError, match=r"other settings \(template \"raw\", now \"auto\"\)"):
        sample({"chat": folder}, settings.model_copy(update={"template": "auto"}), out=tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        (
            {"max_new_tokens": 60},
            ConfigError,
            r"tokens for model 'one' and may grow by 60, together more than .* 40 po",
        ),
        ({"template_args": {"thinking": True}}, ConfigError, "has no chat template, so it takes no template arguments"),
        ({"limit": 8}, ConfigError, "there are 7 heldout problems, fewer than --limit 8"),
        ({"system": "Be brief."}, ConfigError, "no token for a word"),
    ],
)
def test_what_is_wrong_is_said_before_any_model_is_loaded(
    folder: Path, tmp_path: Path, monkeypatch: Any, changes: Any, error: type[Exception], said: str
) -> None:
    monkeypatch.setattr("swerve.models.sources.load_model", None)
    with pytest.raises(error, match=said):
        sample({"one": folder}, _settings(**changes), out=tmp_path / "one.parquet")
    assert list(tmp_path.iterdir()) == []


def _with_config(folder: Path, new: Path, **changes: Any) -> Path:
    shutil.copytree(folder, new)
    config = json.loads((new / "config.json").read_text())
    (new / "config.json").write_text(json.dumps({**config, **changes}))
    return new


def test_completions_are_as_long_as_fits_every_model(folder: Path, tmp_path: Path) -> None:
    """Models of one command write equally far."""
    shorter = _with_config(folder, tmp_path / "shorter", max_position_embeddings=30)
    progress, settings = Notes(), _settings(num_samples=1, temperatures=(1.0,), max_new_tokens=None, limit=1)
    paths = sample({"one": folder, "two": shorter}, settings, out=tmp_path / "out", progress=progress)
    found = [read_samples(path) for path in paths.values()]
    length = len(found[0].samples[0].prompt_ids)
    assert [one.info.max_new_tokens for one in found] == [30 - length] * 2
    assert progress.notes == [
        f"completions end after {30 - length} new tokens: with the prompt of {length} tokens no more fit the model's "
        "30 positions ('two'); --max-new-tokens sets another number"
    ]


def test_positions_that_are_stretched_already_are_not_multiplied(folder: Path, tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    stretched = _with_config(
        folder, tmp_path / "llama3", rope_parameters={**rope, "original_max_position_embeddings": 10}
    )
    with pytest.raises(ConfigError, match=r"together more than the model's 40 positions; at most 3\d new tokens fit"):
        sample({"one": stretched}, _settings(max_new_tokens=60), out=tmp_path / "one.parquet")


def test_a_changed_reward_file_is_noticed(folder: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"question": "0 5 + 7 6 =", "answer": "0 8 1"}\n')
    reward = tmp_path / "mine.py"
    reward.write_text("def reward(problem, text):\n    return 1.0\n")
    task = TableTask(train=(str(rows),), heldout=(str(rows),), grader="python", reward_file=str(reward))
    path = tmp_path / "one.parquet"
    sample({"one": folder}, _settings(task=task), out=path)
    assert {one.reward for one in read_samples(path).samples} == {1.0}
    reward.write_text("def reward(problem, text):\n    return 0.0\n")
    with pytest.raises(ConfigError, match="of other problems, or graded otherwise"):
        sample({"one": folder}, _settings(task=task), out=path)


def test_two_problems_of_one_id_are_refused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_family(TASK).problems("heldout", seed=0)[0]
    monkeypatch.setattr(type(load_family(TASK)), "problems", lambda *_, **__: [first, replace(first, question="0 =")])
    with pytest.raises(ConfigError, match=f"two problems have the id '{re.escape(first.id)}'"):
        sample({"one": folder}, _settings(), out=tmp_path / "one.parquet")


def test_two_commands_do_not_work_at_one_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "one.parquet"
    partial = _interrupted(folder, path, monkeypatch)
    with RunDirectory(partial).lock(), pytest.raises(ArtifactError, match=f"in use by process {os.getpid()}"):
        sample({"one": folder}, _settings(), out=path)
    assert not path.exists()


def test_every_model_is_checked_before_the_first_is_loaded(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("swerve.models.sources.load_model", None)
    wrong = shutil.copytree(folder, tmp_path / "wrong")
    config = json.loads((wrong / "config.json").read_text())
    (wrong / "config.json").write_text(json.dumps({**config, "hidden_size": 64}))
    with pytest.raises(CheckpointError, match="the two files are not of one model"):
        sample({"one": folder, "wrong": wrong}, _settings(), out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_template_that_does_not_take_an_argument_is_named(save_addition_model: Save, tmp_path: Path) -> None:
    folder = save_addition_model(tmp_path / "chat", seed=1, template=TEMPLATE, words=("26", "step"))
    with pytest.raises(ConfigError, match="takes no argument 'thinkng'; did you mean 'thinking'"):
        sample({"chat": folder}, _settings(template_args={"thinkng": True}), out=tmp_path / "a.parquet")


def test_a_full_disk_is_noticed_before_any_sampling(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    from swerve.errors import DiskFullError

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("swerve.models.sources.load_model", None)
    monkeypatch.setattr(files, "fsync", full)
    with pytest.raises(DiskFullError, match=r"disk full while writing .*parts.json"):
        sample({"one": folder}, _settings(), out=tmp_path / "one.parquet")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_samples": 3}, r"num_samples \(3\) must be a multiple of the 2 temperatures"),
        ({"temperatures": (0.0, 1.0)}, "at temperature 0 all samples of a problem are the same"),
        ({"temperatures": (1.0, 1.0)}, "name one twice"),
        ({"temperatures": (float("nan"),)}, "finite number"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        _settings(**changes)


def test_a_system_message_takes_the_place_of_the_tasks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = load_family(TASK).problems("heldout", seed=0)[0]
    own = replace(problem, id="own", messages=(("system", "old"), ("user", "q")))
    monkeypatch.setattr(type(load_family(TASK)), "problems", lambda *_, **__: [problem, own])

    def messages(system: str) -> list[Any]:
        return [each.messages for each in sampling.chosen_problems(_settings(system=system), Notes())]

    asked = (("user", problem.question),)
    assert messages("S") == [(("system", "S"), *asked), (("system", "S"), ("user", "q"))]
    assert messages("") == [asked, (("user", "q"),)]
