"""Grafts against checkpoints made by hand, figures of the change, and what is said of parts."""

from __future__ import annotations

import io
import json
import math
import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

import swerve
from swerve.claim.grafts import OUTSIDE, WeightChange, part_in, random_part
from swerve.claim.weights import beyond, measure_matrices, suffices
from swerve.claim.work import NotMeasuredError
from swerve.eval import sample_files
from swerve.models.tiny import build_word_tokenizer
from swerve.progress import LineProgress
from swerve.statistics import paired_difference
from tests.claim.planted.models import planted_pair, table_settings

OF_LAYER = "model.layers.{}.mlp.up_proj.weight"


def llama(folder, *, hidden=8, layers=3):
    """Write a small model with tied embeddings."""
    tokenizer = build_word_tokenizer(["a", "b"])
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=12,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def changed(folder, base, change):
    """Write a copy of a model with other weights: `change(name, weight)`."""
    folder.mkdir()
    for file in base.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = load_file(base / "model.safetensors")
    moved = {name: change(name, weight) for name, weight in weights.items()}
    save_file(moved, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    generator = torch.Generator().manual_seed(1)

    def moved(_, weight):
        return weight + 0.01 * torch.randn(weight.shape, generator=generator)

    base = llama(folder / "base")
    return base, changed(folder / "rl", base, moved)


def by_hand(kind, name, before, after, everything):
    """Return a graft's weight in float64."""
    change = after.double() - before.double()
    if kind == "rank 2" and change.dim() == 2:
        left, sizes, right = torch.linalg.svd(change, full_matrices=False)
        change = (left[:, :2] * sizes[:2]) @ right[:2]
    elif kind == "layers 1 to 2":
        change = change if name.startswith(("model.layers.1.", "model.layers.2.")) else 0 * change
    elif kind == OUTSIDE:
        change = change if name in ("model.embed_tokens.weight", "model.norm.weight") else 0 * change
    elif kind == "largest tenth":
        ordered = torch.cat([(after.double() - before.double()).abs().flatten() for before, after in everything])
        least = ordered.sort(descending=True).values[round(0.1 * len(ordered)) - 1]
        change = torch.where(change.abs() >= least, change, 0.0)
    return before.double() + change


@pytest.mark.parametrize("kind", ["rank 2", "rank 99", "layers 1 to 2", OUTSIDE, "largest tenth"])
def test_grafts_are_the_checkpoints_made_by_hand(pair, tmp_path, kind, monkeypatch):
    change = WeightChange(*pair, largest_rank=99)
    part = {
        "rank 2": change.rank(2),
        "rank 99": change.rank(99),
        "layers 1 to 2": part_in(["layer 1", "layer 2"]),
        OUTSIDE: part_in([OUTSIDE]),
        "largest tenth": change.largest(0.1),
    }[kind]
    base, trained = (load_file(folder / "model.safetensors") for folder in pair)
    assert "lm_head.weight" not in base
    everything = [(base[name], trained[name]) for name in base]
    with change.folder(part, tmp_path / "graft") as folder:
        graft = load_file(folder / "model.safetensors")
        assert graft.keys() == base.keys()
        for name, weight in graft.items():
            assert torch.equal(weight, by_hand(kind, name, base[name], trained[name], everything).float()), name
        if kind == "rank 99":  # the whole change is the trained model
            assert all(torch.equal(graft[name], trained[name]) for name in graft)
        first = {file.name: file.read_bytes() for file in folder.iterdir()}
        assert LlamaForCausalLM.from_pretrained(folder).config.to_dict() == {
            **LlamaForCausalLM.from_pretrained(pair[1]).config.to_dict(),
            "_name_or_path": str(folder),
        }
    assert not list(tmp_path.iterdir())

    # Another version of transformers writes the same, so that the samples of a graft are taken for its own.
    monkeypatch.setattr("transformers.configuration_utils.__version__", "5.99.0")
    with change.folder(part, tmp_path / "graft") as folder:
        assert {file.name: file.read_bytes() for file in folder.iterdir()} == first


def test_random_changes_have_the_norm_of_the_part_weight_by_weight(pair):
    change = WeightChange(*pair, largest_rank=99)
    first, again, other = (random_part(0, number, change.rank(1)) for number in (3, 3, 4))
    for name, own in change.changes():
        size = torch.linalg.svdvals(own)[0] if own.dim() > 1 else own.norm()
        assert float(first(name, own).norm()) == pytest.approx(float(size), rel=1e-9)
        assert torch.equal(first(name, own), again(name, own))
        assert not torch.equal(first(name, own), other(name, own))


def test_energies_of_ranks_are_their_singular_values(pair):
    change = WeightChange(*pair, largest_rank=99)
    base, trained = (load_file(folder / "model.safetensors") for folder in pair)
    expected = 0.0
    for name, before in base.items():
        own = trained[name].double() - before.double()
        expected += float((torch.linalg.svdvals(own)[:2] if own.dim() > 1 else own).square().sum())
    assert change.energy(change.rank(2)) == pytest.approx(expected, rel=1e-9)


def test_figures_of_a_change_of_one_matrix(tmp_path):
    base = llama(tmp_path / "base")
    column, row = torch.arange(1.0, 13.0), torch.eye(8)[2]

    def moved(name, weight):
        return weight + torch.outer(column, row) if name == OF_LAYER.format(1) else weight

    change = WeightChange(base, changed(tmp_path / "rl", base, moved), largest_rank=99)
    rows = {row.weights: row for row in measure_matrices(change)}
    assert list(rows)[:3] == ["all", "embed_tokens", "q_proj"]
    assert list(rows)[-4:] == [OUTSIDE, "layer 0", "layer 1", "layer 2"]

    # 12 of the 288 entries of this kind move, each far.
    weight = load_file(base / "model.safetensors")
    assert rows["up_proj"].unchanged == pytest.approx(1 - 12 / 288)
    assert rows["up_proj"].unchanged_bf16 == pytest.approx(1 - 12 / 288)
    size = math.sqrt(sum(float(weight[OF_LAYER.format(layer)].square().sum()) for layer in range(3)))
    assert rows["up_proj"].relative_norm == pytest.approx(math.sqrt(650) / size, rel=1e-5)
    assert rows["up_proj"].rank90 == rows["layer 1"].rank90 == rows["all"].rank90 == 1.0
    assert (rows["layer 0"].unchanged, rows["layer 0"].relative_norm, rows["layer 0"].rank90) == (1.0, 0.0, None)


def test_rounding_hides_small_changes(tmp_path):
    base = llama(tmp_path / "base")
    one = changed(tmp_path / "one", base, lambda _, weight: torch.ones_like(weight))
    near = changed(tmp_path / "near", base, lambda _, weight: torch.full_like(weight, 1 + 2**-9))
    whole = next(iter(measure_matrices(WeightChange(one, near, largest_rank=99))))
    assert (whole.unchanged, whole.unchanged_bf16) == (0.0, 1.0)
    assert whole.relative_norm == pytest.approx(2**-9)


def test_models_of_other_shapes_are_told_apart(tmp_path):
    with pytest.raises(NotMeasuredError, match=r"one shape; these differ in model.layers.1.input_layernorm.weight"):
        WeightChange(llama(tmp_path / "one", layers=1), llama(tmp_path / "two", layers=2), largest_rank=1)
    with pytest.raises(NotMeasuredError, match="the two models have the same weights"):
        WeightChange(tmp_path / "one", tmp_path / "one", largest_rank=1)


BASE, WHOLE = [False] * 60 + [True] * 60, [True] * 120


@pytest.mark.parametrize(
    ("base", "parts", "of", "shown"),
    [
        (BASE, {1: BASE, 4: WHOLE, 8: WHOLE}, "rank 4", True),
        (BASE, {1: WHOLE, 4: BASE, 8: WHOLE}, "rank 8", True),  # stops at the first from the top that is not shown
        (BASE, {1: WHOLE, 8: BASE}, "rank 8", False),
        (WHOLE, {1: WHOLE, 8: WHOLE}, "rank 8", False),  # the whole gains nothing
    ],
)
def test_the_smallest_rank_that_suffices(base, parts, of, shown):
    verdict = suffices(base, WHOLE, parts, 0.05)
    assert (verdict.of, verdict.shown, verdict.num) == (of, shown, 120)


def test_what_is_said_of_parts():
    assert suffices(BASE, WHOLE, {4: WHOLE}, 0.05).sentence == (
        "Over 120 problems rank 4 of the change loses less than 5 points, as every larger rank tried: 100.0% of greedy "
        "answers are right with it, 100.0% with all of the change and 50.0% without, 0.0 points (\u22122.3 to +2.3)."
    )
    assert suffices(BASE, WHOLE, {8: BASE}, 0.05).sentence == (
        "Over 120 problems no rank up to 8 is seen to lose less than 5 points: of rank 8 50.0% of greedy answers are "
        "right with it, 100.0% with all of the change and 50.0% without, \u221250.0 points (\u221259.0 to \u221240.9)."
    )
    assert suffices(WHOLE, WHOLE, {8: WHOLE}, 0.05).sentence == (
        "Over 120 problems no part of the change can be told to suffice, as all of it is not seen to gain more than 5 "
        "points: 100.0% of greedy answers are right with it and 100.0% without, 0.0 points (\u22122.3 to +2.3)."
    )
    (verdict,) = beyond("rank 1", 0.9, [0.5] * 38 + [0.6])
    assert (verdict.shown, verdict.estimate) == (True, 0.9)
    assert verdict.sentence == (
        "Rank 1 of the change alone has 90.0% of greedy answers right, the best of 39 random changes of its size 60.0%."
    )
    (verdict,) = beyond("rank 1", 0.6, [0.5] * 38 + [0.6])
    assert not verdict.shown
    assert verdict.sentence.endswith("the best of 39 random changes of its size 60.0%. It is not above them.")
    (verdict,) = beyond("rank 1", 0.9, [0.5] * 4 + [0.6])
    assert not verdict.shown
    assert verdict.sentence.endswith("the best of 5 random changes of its size 60.0%. These are too few to tell.")
    assert beyond("rank 1", 0.9, []) == ()


@pytest.mark.slow
def test_a_change_of_rank_one_is_found(tmp_path):
    """Training that is one outer product: rank 1 is the whole model, and no random change of its size is as good."""
    planted = planted_pair(tmp_path, "rank1", size=0.15, num_problems=160)
    settings = table_settings(planted.problems, num_samples=2, parts=("weights",), directions=19, ranks=(1, 2))
    part = swerve.claim(planted.base, planted.rl, settings, out=tmp_path / "card", progress=False).weights
    rank1 = part.grafts[0]
    assert (rank1.graft, rank1.energy) == ("rank 1", pytest.approx(1.0))
    assert rank1.difference.mean == 0.0
    assert [(verdict.claim, verdict.of, verdict.shown) for verdict in part.verdicts] == [
        ("part_suffices", "rank 1", True),
        ("part_beyond_its_size", "rank 1", True),
    ]
    assert {row.weights: row.rank90 for row in part.matrices}["lm_head"] == 1.0
    assert len(part.directions) == 19
    assert np.mean(part.directions) < rank1.accuracy.mean


@pytest.mark.parametrize("stopped_at", ["rl-greedy", "direction-1"])
def test_a_card_goes_on_under_another_version_of_transformers(tmp_path, monkeypatch, stopped_at):
    planted = planted_pair(tmp_path, "rank1", size=0.15, num_problems=8)
    settings = table_settings(
        planted.problems, num_samples=2, parts=("weights",), directions=2, ranks=(1,), runtime={"max_rows": 4}
    )
    sample_chunks, seen = sample_files._sample_chunks, []

    def stopped(plan, *rest):
        seen.append(plan.job.path.stem)
        if seen[-1] != stopped_at:
            return sample_chunks(plan, *rest)
        loaded, chunks, *further = rest
        sample_chunks(plan, loaded, chunks[:1], *further)  # one piece is kept
        raise KeyboardInterrupt

    monkeypatch.setattr(sample_files, "_sample_chunks", stopped)
    with pytest.raises(KeyboardInterrupt):
        swerve.claim(planted.base, planted.rl, settings, out=tmp_path / "card", progress=False)
    monkeypatch.setattr(sample_files, "_sample_chunks", sample_chunks)
    assert list((tmp_path / "card").glob(f"samples/{stopped_at}.parquet.partial/samples-*"))

    # The library was replaced by another version, and the models were saved again by it.
    monkeypatch.setattr("transformers.configuration_utils.__version__", "5.99.0")
    for folder in (planted.base, planted.rl):
        entries = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**entries, "transformers_version": "5.99.0"}))
    shown = io.StringIO()
    part = swerve.claim(
        planted.base, planted.rl, settings, out=tmp_path / "card", progress=LineProgress(shown, seconds_between_lines=0)
    ).weights
    assert len(part.directions) == 2
    assert not list((tmp_path / "card").glob("samples/*.partial"))

    # The parts of the change that are left are one task, however many directions there are.
    lines = [line for line in shown.getvalue().splitlines() if "of the change" in line]
    assert "direction" not in shown.getvalue()
    if stopped_at == "direction-1":  # of its 8 samples 4 are there
        assert lines[0] == "sample 1 part of the change: 0/8"
        assert re.fullmatch("sample 1 part of the change: 8/8, done in .*", lines[-1])


def test_a_loop_of_many_directions_is_one_line_of_progress(tmp_path):
    planted = planted_pair(tmp_path, "rank1", size=0.15, num_problems=8)
    settings = table_settings(planted.problems, num_samples=2, parts=("weights",), directions=5, ranks=(1, 2))
    shown = io.StringIO()
    swerve.claim(planted.base, planted.rl, settings, out=tmp_path / "card", progress=LineProgress(shown))
    lines = [line for line in shown.getvalue().splitlines() if line.startswith("sample")]
    names = [
        "sample 10 parts of the change",
        "sample base",
        "sample rl",
    ]  # 5, 2 ranks, the layer, the rest, the largest
    assert list(dict.fromkeys(line.partition(":")[0] for line in lines)) == names
    ends = [line for line in lines if " left" not in line]  # a slow machine says more in between
    assert ends[0].endswith("0/80")
    assert ends[1].startswith("sample 10 parts of the change: 80/80, done in")
    assert len(ends) == 6


def test_the_rates_of_each_problem_stand_behind_the_rank_that_suffices():
    part = [*WHOLE[:117], *[False] * 3]
    verdict = suffices(BASE, WHOLE, {8: part}, 0.05, names=[f"p{number}" for number in range(120)])
    rows = verdict.rows
    assert list(rows) == ["problem", "all of the change", "rank 8", "base"]
    sides = (np.array(rows[name]) for name in ("all of the change", "rank 8"))
    again, _ = paired_difference(*sides, bounds=(-1.0, 1.0))  # as a page's line of Python makes it from the rows
    assert verdict.estimate.mean == -0.025
    assert (again.low, again.high) == pytest.approx((verdict.estimate.low, verdict.estimate.high))
    assert suffices(WHOLE, WHOLE, {8: WHOLE}, 0.05, names=["p"] * 120).rows == {}  # is no line of a difference
