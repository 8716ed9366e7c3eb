"""Noise models: what of the weights they change and by how much, and that they are as far away as they should be."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from swerve.artifacts.probe_claims import NoiseModels
from swerve.artifacts.probe_summary import Compared
from swerve.config.models import TinyModel
from swerve.config.probe import ProbeConfig
from swerve.config.runtime import RuntimeConfig
from swerve.models.model_folder import LoadedModel
from swerve.models.sources import CheckpointSource, shared_bases
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.probe.engine.noise import NoiseSource, matching_scale, matrix_changes, measure_noise
from swerve.probe.plan import ProbePlan
from swerve.probe.recipe import ProbeRecipe
from swerve.progress import SilentProgress
from swerve.world import ALONE
from tests.builders import LoadedSource, response

TOKENIZER = build_word_tokenizer([str(digit) for digit in range(10)])
SIZES = TinyModel(hidden_size=16, intermediate_size=24)
ROWS = tuple(
    replace(
        response(number, 8),
        prompt_ids=(1, 4 + number),
        completion_ids=tuple(4 + (number * step) % 10 for step in range(1, 9)),
        population="all",
    )
    for number in range(9)
)


def source(label: str, *, moved: float = 0.0, only: str = "") -> LoadedSource:
    """A tiny model, of which some weights are moved at random."""
    model = build_tiny_model(SIZES, TOKENIZER, seed=0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if only in name:
                parameter.add_(moved * torch.randn(parameter.shape, generator=generator))
    return LoadedSource(label=label, loaded=LoadedModel(model=model, tokenizer=TOKENIZER))


REFERENCE, TRAINED = source("sft"), source("rl", moved=0.05)


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def noise_source(**changes: Any) -> NoiseSource:
    changed = matrix_changes(REFERENCE, TRAINED)
    assert changed is not None
    norms = {name: change for name, (change, _) in changed.items()}
    known = {"label": "noise", "reference": REFERENCE, "norms": norms, "scale": 3.0, "seed": 5, "fingerprint": "f"}
    return NoiseSource(**{**known, "checked": REFERENCE.check(), **changes})


def test_each_matrix_gets_noise_of_the_norm_of_its_change_times_the_scale():
    before, trained = weights(REFERENCE.loaded.model), weights(TRAINED.loaded.model)
    model = noise_source().load().model
    for name, parameter in model.named_parameters():
        added = parameter.detach() - before[name]
        if parameter.dim() < 2:
            assert not added.any(), name
        else:
            assert float(added.norm()) == pytest.approx(3 * float((trained[name] - before[name]).norm()), rel=1e-4), (
                name
            )
    after = weights(REFERENCE.loaded.model)
    assert all(torch.equal(after[name], value) for name, value in before.items()), "the reference stays as it is"
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_noise_is_gaussian_and_the_same_for_its_seed_and_the_name_of_the_matrix_alone():
    one, again, other = (weights(noise_source(seed=seed).load().model) for seed in (5, 5, 6))
    assert all(torch.equal(value, again[name]) for name, value in one.items())
    before = weights(REFERENCE.loaded.model)
    name = next(name for name, value in one.items() if "gate_proj" in name)
    added = one[name] - before[name]
    assert not torch.allclose(added, other[name] - before[name])
    assert float((added / added.std()).pow(4).mean()) == pytest.approx(3.0, abs=0.7)
    alone = noise_source(norms={name: matrix_changes(REFERENCE, TRAINED)[name][0]}).load().model
    assert torch.equal(weights(alone)[name], one[name])


def test_changes_are_of_matrices_that_changed_and_none_of_other_models():
    one = source("rl", moved=0.1, only="layers.0.mlp.up_proj")
    (name,), before = matrix_changes(REFERENCE, one), weights(REFERENCE.loaded.model)
    change = (weights(one.loaded.model)[name] - before[name]).double().norm()
    assert matrix_changes(REFERENCE, one)[name] == pytest.approx((float(change), float(before[name].double().norm())))
    assert matrix_changes(REFERENCE, REFERENCE) == {}
    wider = build_tiny_model(TinyModel(hidden_size=32, intermediate_size=24), TOKENIZER, seed=0)
    assert matrix_changes(REFERENCE, replace(one, loaded=LoadedModel(model=wider, tokenizer=TOKENIZER))) is None


def folder(path: Path, model: Any) -> CheckpointSource:
    model.save_pretrained(path)
    TOKENIZER.save_pretrained(path)
    return CheckpointSource(label=path.name, path=path, device="cpu", dtype="float32")


def test_models_in_files_have_the_changes_of_those_in_memory(tmp_path: Path):
    base = folder(tmp_path / "sft", copy.deepcopy(REFERENCE.loaded.model))
    trained = folder(tmp_path / "rl", copy.deepcopy(TRAINED.loaded.model))
    expected = matrix_changes(REFERENCE, TRAINED)
    assert matrix_changes(base, trained).keys() == expected.keys()
    for name, norms in matrix_changes(base, trained).items():
        assert norms == pytest.approx(expected[name])


@pytest.mark.parametrize("kept", [True, False])
def test_the_change_of_an_adapter_is_that_of_the_merged_weights(tmp_path: Path, kept: bool):
    base = folder(tmp_path / "base", copy.deepcopy(REFERENCE.loaded.model))
    wrapped = get_peft_model(
        copy.deepcopy(REFERENCE.loaded.model),
        LoraConfig(r=2, lora_alpha=6, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM"),
    )
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    wrapped.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    wrapped.save_pretrained(tmp_path / "lora")
    adapter = CheckpointSource(label="lora", path=tmp_path / "lora", device="cpu", dtype="float32")

    @contextmanager
    def block() -> Iterator[None]:
        if kept:
            with shared_bases([adapter]):
                yield
        else:
            yield

    with block():
        changes = matrix_changes(base, adapter)
        norms = {name: change for name, (change, _) in changes.items()}
        noisy = noise_source(reference=adapter, norms=norms, scale=1.0)
        after = dict(noisy.matrices())
    merged = weights(wrapped.merge_and_unload())
    before = weights(REFERENCE.loaded.model)
    expected = {name: float((merged[name] - before[name]).norm()) for name in before}
    assert {name: change for name, (change, _) in changes.items()} == pytest.approx(
        {name: change for name, change in expected.items() if change}, rel=1e-4
    )
    # Noise on a reference with an adapter is added to what the adapter makes of the weights.
    for name, change in expected.items():
        assert float((after.get(name, merged[name]) - merged[name]).norm()) == pytest.approx(change, rel=1e-3, abs=1e-5)


def test_the_scale_is_found_where_the_divergence_levels_off():
    tried: list[float] = []

    def mean_at(scale: float) -> float:
        tried.append(scale)
        return 0.69 * (1 - math.exp(-0.002 * scale**2))

    found = matching_scale(mean_at, 0.4, most=1000.0)
    assert found is not None
    assert mean_at(found[0]) == pytest.approx(0.4, rel=0.05)
    assert len(tried) <= 7
    assert matching_scale(mean_at, 0.4, most=5.0) is None
    overflowing = matching_scale(lambda scale: math.nan if scale > 0.1 else scale**2, 0.0025, most=10)
    assert overflowing == pytest.approx((0.05, 2.0), rel=0.03)


def plan(path: Path, **changes: Any) -> ProbePlan:
    settings = ProbeConfig(noise_models=3, tokens_per_batch=60, tokens_per_chunk=16)
    settings = settings.model_copy(update=changes.pop("settings", {}))
    models = {"sft": REFERENCE, "rl": TRAINED, **changes.pop("sources", {})}
    recipe = ProbeRecipe(
        models={name: name for name in models},
        reference="sft",
        responses="r",
        out=str(path),
        probe=settings,
        runtime=RuntimeConfig(device="cpu"),
    )
    compared = Compared(
        reference="sft", final="rl", baseline=None, checkpoints=("rl",), weights_sha256={}, num_problems=9,
        num_reference_wrong=None, num_reference_wrong_final_right=None, selection="imported", mcnemar=None,
        reselected=None,
    )  # fmt: skip
    return ProbePlan(recipe=recipe, sources=models, compared=compared, sequences=ROWS, population="all")


def measured(plan: ProbePlan, target: float, store: Path | None = None) -> tuple[NoiseModels, Any]:
    return measure_noise(plan, target, store=store, world=ALONE, progress=SilentProgress())


def test_noise_models_are_as_far_from_the_reference_as_was_asked(tmp_path: Path):
    noise, stats = measured(plan(tmp_path), 0.02)
    assert noise.not_measured is None
    assert list(stats) == [(f"sft with noise {number}", "sft") for number in (1, 2, 3)]
    means = [float(own.js.double().mean()) for own in stats.values()]
    assert noise.means == pytest.approx(means)
    assert noise.means[0] == pytest.approx(0.02, rel=0.05)
    assert noise.means == pytest.approx((0.02, 0.02, 0.02), rel=0.25)
    assert len({*noise.means}) == len({*noise.scales}) == 3
    changes = matrix_changes(REFERENCE, TRAINED).values()
    whole = math.hypot(*(size for _, size in changes))
    assert noise.relative_norm == pytest.approx(math.hypot(*(change for change, _ in changes)) / whole)


def test_what_was_measured_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    noise, stats = measured(plan(tmp_path), 0.02, tmp_path / "states")
    loads: list[str] = []
    monkeypatch.setattr(NoiseSource, "load", lambda source: loads.append(source.label))
    again, same = measured(plan(tmp_path), 0.02, tmp_path / "states")
    assert (again, loads) == (noise, [])
    assert all(torch.equal(same[pair].js, own.js) for pair, own in stats.items())


@pytest.mark.parametrize(
    ("changes", "target", "reason"),
    [
        ({"settings": {"noise_models": 0}}, 0.02, "probe.noise_models is 0"),
        ({}, math.inf, "the checkpoint's mean is infinite, which no noise matches"),
        ({"sources": {"rl": replace(REFERENCE, label="rl")}}, 0.02, "rl does not differ from sft"),
        ({}, 0.69, "noise of up to the norm of the weights does not go as far as rl"),
    ],
)
def test_why_there_are_no_noise_models_is_said(tmp_path: Path, changes: Any, target: float, reason: str):
    noise, stats = measured(plan(tmp_path, **changes), target)
    assert (noise.not_measured, noise.scales, stats) == (reason, (), {})


def test_other_matrices_are_a_reason_too(tmp_path: Path):
    wider = build_tiny_model(TinyModel(hidden_size=32, intermediate_size=24), TOKENIZER, seed=0).eval()
    other = LoadedSource(label="rl", loaded=LoadedModel(model=wider, tokenizer=TOKENIZER))
    noise, _ = measured(plan(tmp_path, sources={"rl": other}), 0.02)
    assert noise.not_measured == "rl and sft have matrices of other names or shapes"


@pytest.mark.parametrize("num", [1, 2])
def test_a_spread_needs_three_models(num: int):
    with pytest.raises(ValueError, match=f"noise_models is {num}; give 0 or at least 3"):
        ProbeConfig(noise_models=num)
