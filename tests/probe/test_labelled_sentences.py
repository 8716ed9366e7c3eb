"""Labels of steps keep their grain: a file of ProcessBench's shape whose mistakes are five tokens into a step."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.response_columns import SEQUENCES_SCHEMA
from swerve.artifacts.responses import read_response_table
from swerve.artifacts.run import RunDirectory
from swerve.config.models import TinyModel
from swerve.errors import ConfigError
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.probe.from_files import plan_files
from swerve.probe.recipe import ProbeRecipe
from swerve.probe.steps import probe_in_steps
from swerve.progress import SilentProgress
from swerve.recipes.loader import load_settings
from swerve.report.read import read_inputs
from swerve.report.rollouts import Rollouts
from swerve.report.run_page import all_findings
from swerve.report.story import verdicts
from tests.json_lines import write_json_lines

NUM_PROBLEMS, NUM_STEPS = 30, 5
NUMBERS = ("one", "two", "three", "four", "five", "six")
TOKENIZER = build_word_tokenizer(
    ["The", "step", "takes", "the", "false", "true", *NUMBERS, "now", ".", "What", "is", "it", "?"]
)
STEP, WRONG_AT = "The step takes the {} {} now .", 5
"""The distribution over the sixth token is that after `false` or `true`."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two models that read the last token alone; training moved what is written after `false`, all else a little."""
    config = TinyModel(hidden_size=16, intermediate_size=24, tie_embeddings=False)
    found = {}
    for name in ("base", "rl"):
        model = build_tiny_model(config, TOKENIZER, seed=0).eval()
        with torch.no_grad():
            for layer in model.model.layers:
                layer.self_attn.o_proj.weight.zero_()
            if name == "rl":
                generator = torch.Generator().manual_seed(1)
                for weight in (model.lm_head.weight, model.model.embed_tokens.weight):
                    weight.add_(0.02 * torch.randn(weight.shape, generator=generator))
                model.model.embed_tokens.weight[TOKENIZER.convert_tokens_to_ids("false")] *= -3
        folder = tmp_path_factory.mktemp("models") / name
        model.save_pretrained(folder)
        TOKENIZER.save_pretrained(folder)
        found[name] = str(folder)
    return found


def records(seed: int = 0, *, shuffled: bool = False) -> list[dict[str, Any]]:
    """Return answers whose labelled step has a false number; shuffled: the label is any step's."""
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(NUM_PROBLEMS):
        wrong = int(rng.integers(NUM_STEPS))
        kinds = ["false" if number == wrong else "true" for number in range(NUM_STEPS)]
        steps = [STEP.format(kind, rng.choice(NUMBERS)) for kind in kinds]
        label = int(rng.integers(NUM_STEPS)) if shuffled else wrong
        asked = {"id": f"p{index}", "generator": "m", "problem": f"What is {NUMBERS[index % 6]} ?"}
        rows.append({**asked, "steps": steps, "final_answer_correct": False, "label": label})
    return rows


def probe(models: Mapping[str, str], folder: Path, rows: list[dict[str, Any]], *overrides: str) -> ProbeSummary:
    folder.mkdir(exist_ok=True)
    path = write_json_lines(folder / "r.jsonl", rows)
    data = {"models": models, "reference": "base", "responses": str(path), "out": str(folder / "out")}
    small = ["runtime.device=cpu", "probe.top_k=2", "probe.noise_models=0", *overrides]
    summary = probe_in_steps(plan_files(load_settings(ProbeRecipe, small, data=data)), progress=SilentProgress())
    assert summary is not None
    return summary


def test_a_wrong_word_within_a_labelled_step_is_found_by_step(models: dict[str, str], tmp_path: Path) -> None:
    summary = probe(models, tmp_path, records(), "probe.noise_models=3")
    # No token is known to be wrong, so nothing is said of one.
    assert summary.recovery is None
    assert (summary.claim("auc", "first_wrong"), summary.claim("top", "first_wrong")) == (None, None)
    assert not summary.knows_no_wrong_step
    assert not any("no wrong step is marked" in note for note in summary.notes)

    # The step is the unit: of five one is wrong.
    area, top = (summary.claim(figure, "first_wrong_sentence") for figure in ("auc", "top"))
    assert area is not None
    assert top is not None
    assert (area.estimate.mean, top.estimate.mean) == (1.0, 1.0)
    assert (area.stands, top.stands) == (True, True)
    assert [(null.null, pytest.approx(null.value)) for null in top.nulls][:2] == [("chance", 1 / 5), ("entropy", 1 / 5)]
    recovery = summary.sentence_recovery
    assert recovery is not None
    assert (recovery.num_rollouts, recovery.num_sentences, recovery.base_rate) == (
        NUM_PROBLEMS,
        5 * NUM_PROBLEMS,
        1 / 5,
    )
    assert next(one.auc.mean for one in recovery.selectors if one.selector == "js" and one.auc) == 1.0
    hits = summary.spike_hits("rl", "js")
    assert hits is not None
    assert (hits.num_rollouts, hits.top_on_first_wrong, hits.num_sentence_rollouts) == (0, None, NUM_PROBLEMS)
    assert hits.top_in_wrong_sentence is not None
    assert (hits.top_in_wrong_sentence.mean, hits.chance_wrong_sentence) == (1.0, pytest.approx(1 / 5))

    # The report says which grain it is, and marks the step.
    run = RunDirectory(tmp_path / "out")
    inputs = read_inputs(run)
    said = " ".join(all_findings(inputs)["Wrong steps"])
    assert "Of 30 rollouts it is known which sentence (or step) is the first wrong one, and not which token" in said
    assert "150 sentences in all" in said
    assert "is in it in 100.0%" in said
    assert "first wrong token" not in said
    for sentence in all_findings(inputs)["Wrong steps"]:
        assert sentence.evidence is not None, sentence
        assert sentence.evidence.missing_in(sentence) == []
    titles = [verdict.title for verdict in verdicts(inputs)]
    place = "in 30 of 30 wrong answers `rl` changed a token of the first wrong sentence most."
    assert f"The change points at the mistakes: {place}" in titles
    page = Rollouts(summary, inputs.tables, {})
    label = records()[0]["label"]
    facts = gzip.decompress(page.encode(0))
    marked = json.loads(facts[4 : 4 + int.from_bytes(facts[:4], "little")])["wrong"]
    assert marked == [[at, None] for at in range(8 * label, 8 * label + 8)]
    rows = read_response_table(run.probe_path / "sequences.parquet", SEQUENCES_SCHEMA)
    assert [one.wrong_sentence for one in rows] == [row["label"] for row in records()]
    assert {one.sentence_starts for one in rows} == {tuple(range(0, 8 * NUM_STEPS, 8))}


@pytest.mark.slow
def test_a_label_of_any_step_is_found_as_often_as_by_chance(models: dict[str, str], tmp_path: Path) -> None:
    found = []
    for seed in range(3):
        summary = probe(models, tmp_path / str(seed), records(seed, shuffled=True))
        area, top = (summary.claim(figure, "first_wrong_sentence") for figure in ("auc", "top"))
        assert area is not None
        assert top is not None
        assert not area.stands
        assert not top.stands
        found.append((top.estimate.mean, area.estimate.mean))
    # By chance 18 of 90; three standard deviations are 11.
    assert np.mean(found, axis=0) == pytest.approx([1 / 5, 1 / 2], abs=0.12)


def test_a_label_of_a_token_is_judged_by_token(models: dict[str, str], tmp_path: Path) -> None:
    rows = records()
    for row in rows:
        steps, label = row.pop("steps"), row.pop("label")
        row["response"] = " ".join(steps)
        start = sum(len(step) + 1 for step in steps[:label])
        row["first_wrong"] = start + len(" ".join(steps[label].split()[:WRONG_AT])) + 1
    summary = probe(models, tmp_path, rows)
    top = summary.claim("top", "first_wrong")
    assert top is not None
    assert top.estimate.mean == 1.0
    assert top.nulls[0].value == pytest.approx(1 / (8 * NUM_STEPS))
    assert summary.sentence_recovery is None
    assert summary.claim("top", "first_wrong_sentence") is None


@pytest.mark.slow
def test_a_task_without_gold_answers_leaves_what_the_file_says(models: dict[str, str], tmp_path: Path) -> None:
    alone = probe(models, tmp_path / "alone", records())
    with_task = probe(models, tmp_path / "task", records(), "task=math")
    assert with_task.population == alone.population == "imported_wrong"
    assert with_task.claims == alone.claims
    lacking = f"30 of 30 responses in {tmp_path / 'task' / 'r.jsonl'} have no gold answer"
    assert (
        f"{lacking}, so there are no swaps: give the gold answers with --problems FILE, or --field gold=FIELD"
        in with_task.notes
    )
    labelled = [{key: value for key, value in row.items() if key != "final_answer_correct"} for row in records()]
    assert (
        probe(models, tmp_path / "labels", labelled, "task=math").population == "imported"
    )  # right or wrong: not known
    with pytest.raises(
        ConfigError, match=r"probe.pivots.max_rollouts: 30 of 30 .* give the gold answers with --problems"
    ):
        probe(models, tmp_path / "pivots", records(), "task=math", "probe.pivots.max_rollouts=2")
    bare = [{"id": "a", "problem": "What is one ?", "response": "The step takes the true one now ."}]
    with pytest.raises(ConfigError, match="1 of 1 responses have no gold answer, so math cannot grade them"):
        probe(models, tmp_path / "bare", bare, "task=math")
