from __future__ import annotations

import copy
import io
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from swerve.artifacts.files import read_json
from swerve.artifacts.probe_summary import Compared, ProbeSummary
from swerve.artifacts.responses import Response
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import INTERVENTIONS_SCHEMA, SIGNALS_SCHEMA, SPIKES_SCHEMA, TOKENS_SCHEMA, read_table
from swerve.config.models import TinyModel
from swerve.config.probe import AttributionConfig, CausalConfig, CrossSamplingConfig, PivotConfig, ProbeConfig
from swerve.config.recipe import EvalConfig
from swerve.config.runtime import RuntimeConfig
from swerve.errors import ConfigError
from swerve.models.model_folder import LoadedModel
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.probe.engine.measure import measure
from swerve.probe.engine.measured import measure_plan
from swerve.probe.execute import execute
from swerve.probe.from_files import plan_responses
from swerve.probe.plan import ProbePlan
from swerve.probe.recipe import ProbeRecipe
from swerve.probe.rollouts.imported import ImportedResponses
from swerve.probe.rollouts.population import probe_sequences
from swerve.probe.steps import probe_in_steps
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.progress import LineProgress, SilentProgress
from swerve.prompts.encode import encode_prompts
from swerve.world import World
from tests.builders import LoadedSource, Notes

FAMILY = load_family(AdditionTask(digits=2, num_train=5, num_heldout=40, mistake_rate=1.0, slip_rate=0.0))
TOKENIZER = build_word_tokenizer(FAMILY.words)
HEADLINE = "reference_wrong_final_right"
ONE_TEST = ProbeConfig(
    min_rollouts=2, top_k=3, noise_models=0, causal=CausalConfig(max_rollouts=2, num_continuations=2)
)


def source(label: str, seed: int) -> LoadedSource:
    model = build_tiny_model(TinyModel(hidden_size=16, intermediate_size=24), TOKENIZER, seed=0).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return LoadedSource(label=label, loaded=LoadedModel(model=model, tokenizer=TOKENIZER))


def nearly(other: LoadedSource) -> LoadedSource:
    """The same model but for rounding: it has the same spikes and chooses the same tokens."""
    model = copy.deepcopy(other.loaded.model)
    with torch.no_grad():
        next(iter(model.parameters()))[0] += 1e-6
    return replace(other, loaded=LoadedModel(model=model, tokenizer=TOKENIZER))


SOURCES = {label: source(label, seed) for seed, label in enumerate(("sft-1", "dpo-1", "rl-1", "rl-2"))}


def sequences(*kinds: tuple[str, str, bool]) -> tuple[Response, ...]:
    """One rollout of (population, writer, correct) each, of problems of their own; wrong steps are marked."""
    found = []
    for problem in FAMILY.problems("heldout", seed=1):
        text = FAMILY.trace(problem, random.Random(0))
        if FAMILY.check(problem, text) and len(found) < len(kinds):
            population, writer, correct = kinds[len(found)]
            ids = [*TOKENIZER(text, add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id]
            known: dict[str, Any] = {"population": population, "label": writer, "correct": correct}
            prompt_ids = tuple(TOKENIZER(problem.question)["input_ids"])
            found.append(Response(problem=problem, prompt_ids=prompt_ids, completion_ids=tuple(ids), **known))
    return tuple(probe_sequences(found, family=FAMILY, tokenizer=TOKENIZER))


EVERY = sequences(
    (HEADLINE, "dpo-1", False),
    (HEADLINE, "dpo-1", False),
    (HEADLINE, "dpo-1", False),
    ("reference_right", "dpo-1", True),
    ("reference_right", "dpo-1", True),
    ("checkpoint_right", "rl-2", True),
    ("checkpoint_wrong", "rl-1", False),
)


COMPARED = Compared(
    reference="dpo-1",
    final="rl-2",
    baseline="sft-1",
    checkpoints=("rl-1", "rl-2"),
    weights_sha256={},
    num_problems=8,
    num_reference_wrong=None,
    num_reference_wrong_final_right=None,
    selection="split",
    mcnemar=None,
    reselected=None,
)


def plan(path: Path, **changes: Any) -> ProbePlan:
    """Return a plan; changes are its fields, keys of its recipe, or `settings`: those of the probe."""
    asked = {name: changes.pop(name) for name in list(changes) if name in ProbeRecipe.model_fields}
    recipe = ProbeRecipe(
        **{
            "seed": 3,
            "max_new_tokens": 40,
            "probe": changes.pop("settings", ONE_TEST),
            "runtime": RuntimeConfig(device="cpu", max_rows=32),
            "models": {label: label for label in SOURCES},
            "reference": "dpo-1",
            "baseline": "sft-1",
            "checkpoints": ("rl-1", "rl-2"),
            "steps": {"sft-1": 1, "dpo-1": 2, "rl-1": 3, "rl-2": 5},
            "responses": "responses.jsonl",
            "out": str(path),
            **asked,
        }
    )
    usual = {"recipe": recipe, "sources": SOURCES, "sequences": EVERY, "population": HEADLINE, "compared": COMPARED}
    return ProbePlan(**{**usual, **changes})


def run(plan: ProbePlan) -> ProbeSummary:
    summary = execute(plan, progress=SilentProgress())
    assert summary is not None
    return summary


class Spy:
    """Stands in for a function, and keeps what it was called with."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, name: str, *, module: str = "swerve.probe.causal.causal_tests"
    ) -> None:
        self.calls: list[tuple[tuple[Any, ...], Mapping[str, Any]]] = []
        self._function = getattr(__import__(module, fromlist=[name]), name)
        monkeypatch.setattr(f"{module}.{name}", self)

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.calls.append((args, options))
        return self._function(*args, **options)


def test_processes_agree_on_whether_there_is_anything_to_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Spy(monkeypatch, "measure_plan", module="swerve.probe.execute")
    others = plan(tmp_path, sequences=EVERY[3:])
    assert run(others).num_rollouts == 0
    second = World(rank=1, size=2)
    assert execute(others, progress=SilentProgress(), world=second) is None
    assert measured.calls == []  # else it would wait for the first process, which never comes

    def share(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("swerve.probe.execute.measure_plan", share)
    with pytest.raises(KeyboardInterrupt):
        execute(plan(tmp_path), progress=SilentProgress(), world=second)


def _with_problems(**changes: Any) -> tuple[Response, ...]:
    return tuple(replace(one, problem=replace(one.problem, **changes)) for one in EVERY)


def swaps_with(**changes: Any) -> dict[str, Any]:
    causal = CausalConfig(**{"max_rollouts": 2, "num_continuations": 2, **changes})
    return {"settings": ONE_TEST.model_copy(update={"causal": causal})}


CHANGES: dict[str, dict[str, Any]] = {
    "seed": {"seed": 4},
    "longest completion": {"max_new_tokens": 38},
    "confidence": {"eval": EvalConfig(confidence=0.9)},
    "rows": {"runtime": RuntimeConfig(device="cpu", max_rows=16)},
    "reference": {"sources": {**SOURCES, "dpo-1": nearly(SOURCES["dpo-1"])}},
    "final": {"sources": {**SOURCES, "rl-2": nearly(SOURCES["rl-2"])}},
    "gold answers": {"sequences": _with_problems(answer="0 0 0")},
    "other gold answers": {"sequences": _with_problems(alternatives=("0 0 0",))},
    "grader": {"sequences": _with_problems(grader="exact")},
    "policies of the grader": {"sequences": _with_problems(grader="exact", grading={"extraction": "number"})},
    "limits of the grader": {"runtime": RuntimeConfig(device="cpu", max_rows=32, grader_cpu_seconds=1.0)},
    "questions": {"sequences": _with_problems(question="?")},
    "prompts": {"sequences": tuple(replace(one, prompt_ids=one.prompt_ids[1:]) for one in EVERY)},
    "continuations": swaps_with(num_continuations=3),
    "most continuations": swaps_with(max_continuations=4),
    "temperature": swaps_with(temperature=0.5),
    "without a third token": swaps_with(alternative=False),
    "controls": swaps_with(controls=("random",)),
    "who continues": swaps_with(policies=("checkpoint",)),
}


@pytest.mark.slow
def test_kept_causal_units_are_only_read_for_the_same_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swaps = Spy(monkeypatch, "run_interventions")

    def kept(**changes: Any) -> ProbePlan:
        settings = changes.pop("settings", ONE_TEST).model_copy(update={"keep_states": True})
        return plan(tmp_path, settings=settings, **changes)

    first = run(kept())
    assert len(swaps.calls) == 1
    assert run(kept()) == first
    assert len(swaps.calls) == 1
    for number, (name, changes) in enumerate(CHANGES.items(), start=2):
        run(kept(**dict(changes)))
        assert len(swaps.calls) == number, name
    assert run(kept()) == first
    assert len(swaps.calls) == len(CHANGES) + 1


def test_kept_units_are_not_read_after_the_reward_file_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file stands in the problem by its path alone."""
    swaps = Spy(monkeypatch, "run_interventions")
    file = tmp_path / "reward.py"
    problems = _with_problems(grader="python", grading={"file": str(file)})
    settings = ONE_TEST.model_copy(update={"keep_states": True})
    for number, value in ((1, 0.0), (1, 0.0), (2, 1.0)):
        file.write_text(f"def reward(problem, text):\n    return {value}\n")
        summary = run(plan(tmp_path, sequences=problems, settings=settings))
        assert len(swaps.calls) == number
        assert summary.causal.selection("spike").reference.success == value


@pytest.mark.slow
def test_kept_cross_samples_and_attributions_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crossed, attributed = Spy(monkeypatch, "CrossSampler"), Spy(monkeypatch, "attribute")
    settings = ProbeConfig(
        keep_states=True,
        causal=CausalConfig(max_rollouts=0),
        cross_sampling=CrossSamplingConfig(
            max_problems=2, shares=(0.1,), selectors=("js",), directions=("checkpoint_into_reference",)
        ),
        attribution=AttributionConfig(method="attention", max_spikes=2),
    )
    prompts = encode_prompts(TOKENIZER, FAMILY.problems("heldout", seed=1)[:4])
    other_answers = [replace(one, problem=replace(one.problem, answer="0")) for one in prompts]
    renumbered = tuple(replace(one, sequence_id=one.sequence_id + 10) for one in EVERY)
    for num_crossed, num_attributed, changes in (
        (1, 2, {}),
        (1, 2, {}),
        (2, 2, {"prompts": other_answers}),
        (2, 4, {"sequences": renumbered}),
    ):
        run(plan(tmp_path, **{"settings": settings, "prompts": prompts, **changes}))
        assert (len(crossed.calls), len(attributed.calls)) == (num_crossed, num_attributed), changes
    models = [crossed.calls[0][1][name].model for name in ("base", "other")]
    assert models == [SOURCES["dpo-1"].loaded.model, SOURCES["rl-2"].loaded.model]
    spots = attributed.calls[0][0][1]
    assert len(spots) == 2
    columns = tokens_by_place(tmp_path, "rl-2", "dpo-1")
    heights = sorted((max(one["js"] for one in columns[index].values()) for index in range(3)), reverse=True)
    found = [columns[spot.sequence.sequence_id][spot.position]["js"] for spot in spots]
    assert found == pytest.approx(heights[:2])


def tokens_by_place(path: Path, checkpoint: str, reference: str) -> dict[int, dict[int, dict[str, Any]]]:
    """Rows of `tokens.parquet` of one pair: sequence -> position -> row; sequences count from 0."""
    rows = read_table(path / "probe" / "tokens.parquet", TOKENS_SCHEMA).to_pylist()
    least = min(row["sequence_id"] for row in rows)
    found: dict[int, dict[int, dict[str, Any]]] = {}
    for row in rows:
        if (row["checkpoint"], row["reference"]) == (checkpoint, reference):
            found.setdefault(row["sequence_id"] - least, {})[row["position"]] = row
    return found


def test_causal_tests_get_the_right_models_and_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned, run_swaps = Spy(monkeypatch, "plan_interventions"), Spy(monkeypatch, "run_interventions")
    predicted, pivots = Spy(monkeypatch, "summarise_prediction"), Spy(monkeypatch, "find_pivots")
    settings = ONE_TEST.model_copy(
        update={
            "causal": CausalConfig(max_rollouts=3, num_continuations=2, policies=("reference", "checkpoint")),
            "pivots": PivotConfig(max_rollouts=1, gap=0.5, num_continuations=2),
        }
    )
    run(plan(tmp_path, settings=settings))
    rows = tokens_by_place(tmp_path, "rl-2", "dpo-1")
    ((data, spikes), given), length = planned.calls[0], len(EVERY[1].completion_ids)
    pair = data.pair(given["checkpoint"])
    everywhere = {
        "argmax": pair.columns["argmax"],
        "entropy_ref": pair.columns["entropy_ref"],
        "category": np.array(data.categories),
        "argmax_ref": given["top_ref"][:, 0],
    }
    for column, values in everywhere.items():
        assert data.split(values)[1].tolist() == [rows[1][position][column] for position in range(length)], column
    tops = spikes.tops[given["checkpoint"], given["divergence"]]
    assert [rows[index][top]["js"] for index, top in enumerate(tops[:3])] == [
        max(row["js"] for row in rows[index].values()) for index in range(3)
    ]
    engines = {items[0].policy: sampler.engine._model for (items, sampler), _ in run_swaps.calls}
    assert engines == {
        "reference": SOURCES["dpo-1"].loaded.model,
        "checkpoint": SOURCES["rl-2"].loaded.model,
    }
    # Each is searched with a sampler, then read again from what that returned.
    continued = {given["policy"]: known for (_, known), given in pivots.calls if "policy" in given}
    assert list(continued) == ["reference", "checkpoint"]
    drawn = [sampler.engine._model for (_, sampler), given in pivots.calls if "policy" not in given]
    assert drawn == [SOURCES["dpo-1"].loaded.model, SOURCES["rl-2"].loaded.model]
    effects, scores = predicted.calls[0][0]
    assert {item.sequence.sequence_id for item in effects} >= {0, 1, 2}
    expected = [rows[item.sequence.sequence_id][item.position] for item in effects]
    assert scores["js"].tolist() == [row["js"] for row in expected]
    assert scores["logprob_drop"].tolist() == pytest.approx([row["logprob_ref"] - row["logprob"] for row in expected])


def test_two_looks_stay_apart_in_what_is_kept(tmp_path: Path) -> None:
    causal = CausalConfig(max_rollouts=2, num_continuations=2, max_continuations=4)
    run(plan(tmp_path, settings=ONE_TEST.model_copy(update={"causal": causal})))
    rows = read_table(tmp_path / "probe" / "interventions.parquet", INTERVENTIONS_SCHEMA).to_pylist()
    assert {row["first_continuations"] for row in rows} == {2}
    assert max(row["num_continuations"] for row in rows) == 4


def test_every_figure_is_about_its_own_rollouts_and_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    false_discoveries = Spy(monkeypatch, "null_false_discoveries", module="swerve.probe.summary_entries")
    summary = run(plan(tmp_path, stages={"early": "3..4", "all": ("rl-1", "rl-2")}))
    early, both = summary.stages
    assert (early.checkpoint, early.js, both.checkpoint) == ("early", summary.divergences[0].js, "all")
    assert both.js.mean == pytest.approx(sum(entry.js.mean for entry in summary.divergences) / 2)
    headline = np.mean([row["js"] for row in _flat(tokens_by_place(tmp_path, "rl-2", "rl-1"), 3)])
    consecutive, baseline = summary.pairs
    assert (consecutive.checkpoint, consecutive.reference) == ("rl-2", "rl-1")
    assert (baseline.checkpoint, baseline.reference) == ("dpo-1", "sft-1")
    assert consecutive.js.mean == pytest.approx(headline, rel=1e-5)
    entropy = np.mean([row["entropy"] for row in _flat(tokens_by_place(tmp_path, "rl-2", "dpo-1"), 3)])
    assert summary.entropy.means[1].entropy.mean == pytest.approx(entropy, rel=1e-5)
    for name in ("direction", "correlates"):  # a checkpoint's own text is likely under it whatever it learnt
        assert {one.source for one in getattr(summary, name)} == {"dpo-1"}
    assert [(one.num_right, one.num_wrong) for one in summary.direction] == [(2, 3)] * 2
    assert {one.checkpoint for one in summary.rank_shift} == {"rl-2"}
    assert {one.source for one in summary.rank_shift} == {"dpo-1", "rl-1", "rl-2"}
    recovery = summary.recovery
    assert recovery.num_rollouts == 3
    assert {one.checkpoint for one in (*recovery.selectors, *recovery.spikes)} == {"rl-2"}
    num_tokens = sum(len(one.completion_ids) for one in EVERY)
    assert summary.null.num_tokens == num_tokens
    assert summary.biographies.tokens["all"].num_tokens == sum(len(one.completion_ids) for one in EVERY[:3])
    pooled = {options["pooled"].size for _, options in false_discoveries.calls}
    assert pooled == {2 * sum(len(one.completion_ids) for one in EVERY[:3])}
    assert [len(options["clusters"]) for _, options in false_discoveries.calls] == [7] * 3
    spikes = read_table(tmp_path / "probe" / "spikes.parquet", SPIKES_SCHEMA).to_pylist()
    assert {row["sequence_id"] for row in spikes} == {0, 1, 2}
    assert "calibrated" in {row["method"] for row in spikes}


def test_noise_is_the_references_and_pairs_are_over_the_common_vocabulary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def padded(*args: Any, noise_of: str, **options: Any) -> Any:
        asked.append(noise_of)
        sizes = {"dpo-1": 30, "rl-1": 32, "rl-2": 32}
        return replace(measure(*args, noise_of=noise_of, **options), vocabulary_sizes=sizes)

    monkeypatch.setattr("swerve.probe.engine.measured.measure", padded)
    measured = measure_plan(plan(tmp_path, baseline=None), store=None, world=None, progress=SilentProgress())
    assert (asked, measured.vocabulary_size) == (["dpo-1"], 30)
    assert (measured.null.checkpoints, measured.null.references) == (("dpo-1",), ("dpo-1",))


def test_a_summary_is_reliable_from_the_least_number_of_rollouts_on(tmp_path: Path) -> None:
    def reliable(least: int) -> bool:
        settings = ProbeConfig(min_rollouts=least, noise_models=0, causal=CausalConfig(max_rollouts=0))
        return bool(run(plan(tmp_path, settings=settings)).reliable)

    assert (reliable(3), reliable(4)) == (True, False)


def test_a_probe_that_makes_way_is_named_with_what_both_are_of(tmp_path: Path) -> None:
    settings, notes = ProbeConfig(min_rollouts=2, noise_models=0, causal=CausalConfig(max_rollouts=0)), Notes()
    run(plan(tmp_path, settings=settings))
    fewer = COMPARED.model_copy(update={"num_problems": 5})
    execute(plan(tmp_path, settings=settings, sequences=EVERY[:1], compared=fewer), progress=notes)
    assert notes.notes[0] == (
        f"the probe in {tmp_path / 'probe'} was of other settings, evaluations or versions and is replaced: 3 rollouts "
        "from 8 problems, now 1 rollout from 5 problems"
    )


def test_the_causal_test_ends_at_its_total_where_units_have_prefixes_in_common(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("swerve.probe.causal.causal_tests._ROLLOUTS_PER_UNIT", 1)
    twice = tuple(replace(EVERY[0], sequence_id=number) for number in range(2))
    execute(plan(tmp_path, sequences=twice), progress=LineProgress(stream))
    (done,) = (line for line in stream.getvalue().splitlines() if line.startswith("causal test:") and "done in" in line)
    num, total = done.removeprefix("causal test: ").partition(",")[0].split("/")
    assert num == total != "0"


@pytest.mark.parametrize(
    ("steps", "start"),
    [
        ({"dpo-1": 2, "rl-1": 3, "rl-2": 5}, 2),
        ({"dpo-1": 3, "rl-1": 3, "rl-2": 5}, None),
        ({"rl-1": 3, "rl-2": 5}, None),
    ],
)
def test_biographies_begin_with_the_reference_where_it_comes_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: dict[str, int], start: int | None
) -> None:
    told = Spy(monkeypatch, "biographies", module="swerve.probe.summary_entries")
    settings = ProbeConfig(noise_models=0, causal=CausalConfig(max_rollouts=0))
    run(plan(tmp_path, settings=settings, steps=steps, baseline=None))
    args, options = told.calls[0]
    assert (args[1], options["start_step"]) == ([3, 5], start)
    assert 0 < options["noise"] < 1e-4  # nats: float32 in other batches is not the same to the last digit


def test_training_signals_are_kept_and_the_texts_of_many_writers_set_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = Spy(monkeypatch, "training_signals", module="swerve.probe.summary_entries")
    settings = ProbeConfig(noise_models=0, causal=CausalConfig(max_rollouts=0))
    kinds = [(HEADLINE, "dpo-1", False), ("reference_right", "dpo-1", True), ("training", "training", True)]
    mixed = sequences(*kinds)
    signals = [
        {"sequence_id": 2, "position": at, "step": 4, "advantage": 0.5, "clipped": 0.0, "kl": None, "used": True}
        for at in range(len(mixed[2].completion_ids))
    ]
    summary = run(plan(tmp_path, settings=settings, sequences=mixed, signals=signals))
    stored = read_table(tmp_path / "probe" / "signals.parquet", SIGNALS_SCHEMA).to_pylist()
    assert stored == signals
    seen = {one.checkpoint: one.num_rollouts_seen for one in summary.training_signal if one.reference != "rl-1"}
    assert seen == {"rl-1": 0, "rl-2": 1, "dpo-1": 0}  # of steps 3, 5 and 2; the rollout is of step 4
    assert compared.calls[0][1]["noise"] >= 0.01  # nats: what log-probabilities drift anyway
    assert {one.source for one in summary.direction} == {"dpo-1"}
    assert "training" in {one.population for one in summary.populations}


def _flat(rows: Mapping[int, Mapping[int, Any]], num: int) -> list[Any]:
    return [row for index in range(num) for row in rows[index].values()]


def test_notes_on_few_problems_and_on_rollouts_that_are_cut_off(tmp_path: Path) -> None:
    same = tuple(replace(one, problem=EVERY[0].problem) for one in EVERY[:3])
    longest = max(len(one.completion_ids) for one in same)
    summary = run(plan(tmp_path, sequences=same, max_new_tokens=longest - 1))
    assert (summary.num_rollouts, summary.num_rollout_problems) == (3, 1)
    longer = sum(len(one.completion_ids) == longest for one in same)
    assert list(summary.notes[-2:]) == [
        "the 3 rollouts are of 1 problem only: intervals are over problems and say little with so few",
        f"{longer} of 3 rollouts are longer than max_new_tokens={longest - 1}, where continuations are cut off and "
        f"graded as they stand: swaps late in them have no effect; set it to {longest} or more",
    ]
    whole = run(plan(tmp_path, sequences=same, max_new_tokens=longest))
    assert whole.notes == summary.notes[:-1]
    untested = ONE_TEST.model_copy(update={"causal": CausalConfig(max_rollouts=0)})
    assert run(plan(tmp_path, sequences=same, max_new_tokens=longest - 1, settings=untested)).notes == whole.notes


def test_a_note_says_that_wrong_rollouts_were_chosen_by_what_the_final_does(tmp_path: Path) -> None:
    counts = {"num_reference_wrong": 8, "num_reference_wrong_final_right": 3}
    compared = COMPARED.model_copy(update=counts)
    unread = ONE_TEST.model_copy(update={"populations": ("reference_right",)})
    (note,) = run(plan(tmp_path, compared=compared, settings=unread)).notes
    assert note.startswith("5 problems that both dpo-1 and rl-2 get wrong are not read")
    read = ONE_TEST.model_copy(update={"populations": ("reference_wrong", "reference_right")})
    assert run(plan(tmp_path, compared=compared, settings=read)).notes == ()
    assert (
        run(plan(tmp_path, compared=compared.model_copy(update={"num_reference_wrong": 3}), settings=unread)).notes
        == ()
    )


def test_a_probe_of_imported_responses(tmp_path: Path) -> None:
    imported = tuple(
        replace(one, population="imported_right" if one.correct else "imported_wrong", label="imported")
        for one in EVERY[::-1]
    )
    out = RunDirectory(tmp_path / "out")

    def probe(sequences: Sequence[Response], path: str = "responses.jsonl", out: RunDirectory = out) -> dict[str, Any]:
        recipe = ProbeRecipe(
            models={label: label for label in ("dpo-1", "rl-1", "rl-2")},
            reference="dpo-1",
            responses=path,
            out=str(out.path),
            probe=ONE_TEST,
            runtime=RuntimeConfig(device="cpu"),
            max_new_tokens=40,
        )
        imported = ImportedResponses(sequences=tuple(sequences), provenance={"path": path})
        return probe_in_steps(plan_responses(recipe, SOURCES, imported), progress=SilentProgress())

    summary = probe(imported)
    assert (summary.population, summary.num_rollouts, summary.final) == ("imported_wrong", 4, "rl-2")
    assert {one.population: one.num_rollouts for one in summary.populations} == {
        "imported_wrong": 4,
        "imported_right": 3,
    }
    assert [(one.num_right, one.num_wrong) for one in summary.direction] == [(3, 4)] * 2
    assert summary.causal.num_rollouts == 2
    again = probe(imported)  # into the same folder
    assert again == summary
    assert read_json(out.path / "run.json")["responses"] == "responses.jsonl"
    right = probe([one for one in imported if one.correct], "other.jsonl")
    assert (right.population, right.num_rollouts) == ("imported_right", 3)
    record = read_json(out.path / "run.json")
    assert (record["responses"], record["status"], record["schema_version"]) == ("other.jsonl", "probed", 1)
    assert {"date", "machine"} <= record.keys()  # of the first of them
    unknown = [replace(one, population="imported", correct=False) for one in imported]
    ungraded = probe(unknown, out=RunDirectory(tmp_path / "ungraded"))
    assert (ungraded.direction, ungraded.correlates) == ((), ())  # not graded is not wrong
    trained = RunDirectory(tmp_path / "trained")
    trained.create(config_yaml="", provenance={"status": "trained"})
    with pytest.raises(ConfigError, match="is a run, whose own probe would be lost"):
        probe(imported, out=trained)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(
        ConfigError, match="full already exists and is not a probe of responses; choose another directory"
    ):
        probe(imported, out=RunDirectory(tmp_path / "full"))
