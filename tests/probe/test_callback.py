"""The callback, driven as a trainer drives it; a real trainer is in test_callback_against_trl.py."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import TrainerControl, TrainerState

from swerve.errors import ArtifactError, ConfigError, MismatchError
from swerve.probe import probe
from swerve.probe.callback import DivergenceCallback
from swerve.probe.engine import forward as teacher_forcing

SEQUENCES = [([2, 4, 5], [6, 7, 8, 3]), ([2, 9], [5]), ([2, 6, 6, 7], [4, 5, 6, 7, 8])]


class Loop:
    """Calls a callback as a trainer does; `steps` changes the weights by a known amount a step."""

    def __init__(self, model: Any, callback: DivergenceCallback, *, step: int = 0, rank: int = 0) -> None:
        self.model = model
        self.callback = callback
        self.state = TrainerState(epoch=0.0, global_step=step, is_world_process_zero=rank == 0)
        self.control = TrainerControl()

    def call(self, name: str, **more: Any) -> None:
        getattr(self.callback, name)(None, self.state, self.control, model=self.model, **more)

    def begin(self, **more: Any) -> Loop:
        self.call("on_train_begin", **more)
        return self

    def steps(self, count: int) -> Loop:
        for _ in range(count):
            self.state.global_step += 1
            self.state.epoch = self.state.global_step / 10
            change(self.model, self.state.global_step)
            self.call("on_step_end")
        return self

    def end(self) -> Loop:
        self.call("on_train_end")
        return self


def change(model: Any, step: int) -> None:
    generator = torch.Generator().manual_seed(step)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))


def after(model: Any, steps: int) -> Any:
    changed = copy.deepcopy(model)
    for step in range(1, steps + 1):
        change(changed, step)
    return changed


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_are_the_library_s_figures(tiny: Any, tmp_path: Path) -> None:
    model, path = tiny[0], tmp_path / "deep" / "probe.jsonl"
    callback = DivergenceCallback(SEQUENCES, every=2, path=path, divergence="kl_forward", num_top_positions=3)
    loop = Loop(copy.deepcopy(model), callback).begin().steps(5).end()
    found = lines(path)
    assert [line["step"] for line in found] == [2, 4, 5]
    assert [line["epoch"] for line in found] == [0.2, 0.4, 0.5]
    for line in found:
        expected = probe(model, after(model, line["step"]), SEQUENCES)
        assert (line["num_sequences"], line["num_tokens"]) == (3, 10)
        for name in ("js", "kl_forward", "kl_reverse", "entropy", "entropy_ref", "logprob", "logprob_ref"):
            values = np.sort(getattr(expected, name).astype(np.float64))
            assert line[name] == pytest.approx(
                {"mean": values.mean(), "p50": values[4], "p90": values[8], "p99": values[8], "max": values[9]},
                abs=1e-6,
            ), name
        assert line["argmax_changed"] == pytest.approx((expected.argmax != expected.argmax_ref).mean())
        order = np.argsort(-expected.kl_forward, kind="stable")[:3]
        assert [(one["sequence"], one["position"], one["token_id"]) for one in line["top_positions"]] == [
            (expected.sequence_ids[n], expected.positions[n], expected.token_ids[n]) for n in order
        ]
        assert [one["kl_forward"] for one in line["top_positions"]] == pytest.approx(
            expected.kl_forward[order].tolist(), abs=1e-6
        )
    assert found[-1]["js"]["mean"] > found[0]["js"]["mean"] > 1e-4
    logged = loop.state.log_history
    assert [one["step"] for one in logged] == [2, 4, 5]
    assert logged[0]["probe/js"] == found[0]["js"]["mean"]
    assert logged[0]["probe/argmax_changed"] == found[0]["argmax_changed"]


def test_no_step_twice_at_the_end(tiny: Any, tmp_path: Path) -> None:
    path = tmp_path / "probe.jsonl"
    Loop(copy.deepcopy(tiny[0]), DivergenceCallback(SEQUENCES, every=2, path=path)).begin().steps(4).end()
    assert [line["step"] for line in lines(path)] == [2, 4]


def test_resumed_training_is_compared_with_the_first_initial_model(tiny: Any, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    Loop(copy.deepcopy(tiny[0]), DivergenceCallback(SEQUENCES, every=2, path=whole)).begin().steps(6).end()
    Loop(copy.deepcopy(tiny[0]), DivergenceCallback(SEQUENCES, every=2, path=parts)).begin().steps(5)
    with parts.open("a") as stream:
        stream.write('{"step": 6, "js"')  # killed while writing
    resumed = Loop(after(tiny[0], 3), DivergenceCallback(SEQUENCES, every=2, path=parts), step=3)
    resumed.begin()
    assert [line["step"] for line in lines(parts)] == [2]  # step 4 is taken again
    resumed.steps(3).end()
    assert parts.read_text() == whole.read_text()


def test_a_reference_of_ones_own_needs_no_kept_states(tiny: Any, tmp_path: Path) -> None:
    path = tmp_path / "probe.jsonl"
    reference = after(tiny[0], 2)
    callback = DivergenceCallback(SEQUENCES, every=1, path=path, reference=reference)
    Loop(copy.deepcopy(tiny[0]), callback, step=0).begin().steps(2)
    assert not callback.initial_path.exists()
    assert lines(path)[1]["js"]["max"] == 0.0
    assert lines(path)[0]["js"]["mean"] == pytest.approx(
        float(probe(reference, after(tiny[0], 1), SEQUENCES).js.mean()), abs=1e-7
    )


def test_wrong_states_are_refused_on_resuming(tiny: Any, tmp_path: Path) -> None:
    from swerve.config.models import TinyModel
    from swerve.models.tiny import build_tiny_model

    model, tokenizer = tiny
    path = tmp_path / "probe.jsonl"
    with pytest.raises(ArtifactError, match=r"/probe.initial does not have .* or give reference=MODEL"):
        Loop(model, DivergenceCallback(SEQUENCES, path=path), step=3).begin()
    first = DivergenceCallback(SEQUENCES, path=path)
    Loop(model, first).begin()
    with pytest.raises(ArtifactError, match="on these sequences; resume with those that the training began with"):
        Loop(model, DivergenceCallback(SEQUENCES[:2], path=path), step=3).begin()
    wide = build_tiny_model(TinyModel(hidden_size=64, intermediate_size=48), tokenizer, seed=1)
    with pytest.raises(MismatchError, match="another output head"):
        Loop(wide, DivergenceCallback(SEQUENCES, path=path), step=3).begin()
    (part,) = first.initial_path.iterdir()
    part.write_bytes(part.read_bytes()[:50])
    with pytest.raises(ArtifactError, match="does not have the initial model's states"):
        Loop(model, DivergenceCallback(SEQUENCES, path=path), step=3).begin()


def test_lines_of_another_training_are_kept(tiny: Any, tmp_path: Path) -> None:
    path = tmp_path / "probe.jsonl"
    path.write_text('{"step": 2}\n')
    with pytest.raises(ConfigError, match="has the lines of another training; delete it or choose another path"):
        Loop(tiny[0], DivergenceCallback(SEQUENCES, path=path)).begin()
    assert path.read_text() == '{"step": 2}\n'
    path.write_text('oops\n{"step": 2}\n')
    with pytest.raises(ArtifactError, match="probe.jsonl:1 is not a JSON object: the file is damaged"):
        Loop(tiny[0], DivergenceCallback(SEQUENCES, path=path, reference=tiny[0]), step=5).begin()


def test_texts_and_the_trainer_s_tokenizer(tiny: Any, tmp_path: Path) -> None:
    model, tokenizer = tiny
    texts: dict[str, Any] = {"prompts": ["1 + 2 =", "2 +"], "completions": [" 3", " 1 ;"]}
    pairs = [
        (tokenizer(prompt)["input_ids"], tokenizer(text, add_special_tokens=False)["input_ids"])
        for prompt, text in zip(texts["prompts"], texts["completions"], strict=True)
    ]
    for index, (options, given) in enumerate(
        (({}, {"processing_class": tokenizer}), ({"tokenizer": tokenizer}, {"processing_class": None}))
    ):
        path = tmp_path / f"{index}.jsonl"
        Loop(copy.deepcopy(model), DivergenceCallback(**texts, **options, path=path)).begin(**given).steps(1).end()
        (line,) = lines(path)
        assert line["js"]["mean"] == pytest.approx(float(probe(model, after(model, 1), pairs).js.mean()), abs=1e-7)
    with pytest.raises(ConfigError, match="the trainer has no tokenizer; give tokenizer="):
        Loop(model, DivergenceCallback(**texts, path=tmp_path / "x.jsonl")).begin(processing_class=None)


def test_modes_gradients_and_random_numbers_stay(tiny: Any, tmp_path: Path) -> None:
    model = copy.deepcopy(tiny[0]).train()
    model.model.norm.eval()
    model(torch.tensor([SEQUENCES[0][0]]), labels=torch.tensor([SEQUENCES[0][0]])).loss.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    generator_state = torch.get_rng_state()
    loop = Loop(model, DivergenceCallback(SEQUENCES, every=1, path=tmp_path / "probe.jsonl")).begin()
    loop.state.global_step = 1
    loop.call("on_step_end")
    assert (model.training, model.model.norm.training) == (True, False)
    assert all(torch.equal(p.grad, one) for p, one in zip(model.parameters(), gradients, strict=True))
    assert torch.equal(torch.get_rng_state(), generator_state)
    # nothing that the callback touched keeps a later step from a gradient
    model(torch.tensor([SEQUENCES[0][0]]), labels=torch.tensor([SEQUENCES[0][0]])).loss.backward()


def test_only_the_first_process_measures(tiny: Any, tmp_path: Path) -> None:
    path = tmp_path / "probe.jsonl"
    Loop(copy.deepcopy(tiny[0]), DivergenceCallback(SEQUENCES, every=1, path=path), rank=1).begin().steps(2).end()
    assert list(tmp_path.iterdir()) == []


def test_what_is_infinite_is_null(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from swerve.probe import callback

    def compare(*args: Any, **options: Any) -> Any:
        stats = teacher_forcing.compare_positions(*args, **options)
        return dataclasses.replace(stats, kl_reverse=stats.kl_reverse.masked_fill(stats.rank < 9, float("inf")))

    monkeypatch.setattr(callback, "compare_positions", compare)
    path = tmp_path / "probe.jsonl"
    loop = Loop(copy.deepcopy(tiny[0]), DivergenceCallback(SEQUENCES, path=path, divergence="kl_reverse")).begin()
    loop.steps(1).end()
    (line,) = lines(path)
    assert (line["kl_reverse"]["max"], line["kl_reverse"]["mean"]) == (None, None)
    assert line["top_positions"][0]["kl_reverse"] is None
    assert line["kl_forward"]["mean"] > 0
    assert "probe/kl_reverse" not in loop.state.log_history[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give either sequences or prompts and completions"),
        ({"sequences": SEQUENCES, "prompts": ["a"]}, "give either sequences or prompts and completions"),
        ({"prompts": ["a"]}, "must be equally many"),
        ({"prompts": ["a"], "completions": ["b", "c"]}, "must be equally many"),
        ({"prompts": [], "completions": []}, "must be equally many"),
        ({"sequences": SEQUENCES, "every": 0}, "every must be an integer of at least 1, got 0"),
        ({"sequences": SEQUENCES, "num_top_positions": 0}, "num_top_positions must be an integer of at least 1"),
        ({"sequences": SEQUENCES, "divergence": "entropy"}, "divergence 'entropy' is not allowed; use one of js"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DivergenceCallback(**options)
