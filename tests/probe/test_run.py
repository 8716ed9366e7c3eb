from __future__ import annotations

import math
import random
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.evaluation import read_evaluation, read_evaluations
from swerve.artifacts.files import read_sealed, sha256_file, write_sealed
from swerve.artifacts.response_columns import EVALUATION_SCHEMA, SEQUENCES_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import (
    ATTRIBUTIONS_SCHEMA,
    CROSS_SAMPLES_SCHEMA,
    INTERVENTIONS_SCHEMA,
    SPIKES_SCHEMA,
    TOKENS_SCHEMA,
    TOPK_SCHEMA,
    read_table,
    write_table,
)
from swerve.config.models import PretrainedModel, TinyModel
from swerve.config.probe import AttributionConfig, CausalConfig, CrossSamplingConfig, PivotConfig, ProbeConfig
from swerve.config.recipe import Config
from swerve.config.stage_base import OptimizerConfig
from swerve.config.stages import RlStage
from swerve.config.supervised_stages import SftStage
from swerve.errors import ArtifactError, CheckpointError, MismatchError
from swerve.eval.heldout import evaluate_run
from swerve.models.model_folder import weights_fingerprint
from swerve.models.saving import save_checkpoint
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.probe import probe_run
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.progress import SilentProgress
from swerve.train.loop import train_run
from tests.builders import write_evaluation
from tests.conftest import TwoProcesses

TASK = AdditionTask(digits=2, num_train=50, num_heldout=60, mistake_rate=1.0, slip_rate=0.0)
FAMILY = load_family(TASK)
TOKENIZER = build_word_tokenizer(FAMILY.words)
CONFIG = Config(
    task=TASK,
    model=TinyModel(hidden_size=16, intermediate_size=24),
    max_new_tokens=36,
    stages=(
        SftStage(name="dpo", steps=1, optimizer=OptimizerConfig(lr=1e-3)),
        RlStage(steps=2, optimizer=OptimizerConfig(lr=1e-3)),
    ),
    probe=ProbeConfig(
        min_rollouts=4,
        top_k=3,
        noise_models=0,
        tokens_per_chunk=50,
        causal=CausalConfig(max_rollouts=3, num_continuations=2),
    ),
)


WITH_NOISE = CONFIG.model_copy(update={"probe": CONFIG.probe.model_copy(update={"noise_models": 3})})


def rows(*, correct: bool, num: int = 8) -> list[dict[str, Any]]:
    """Evaluation rows of traces that all forget a carry."""
    found: list[dict[str, Any]] = []
    for problem in FAMILY.problems("heldout", seed=1):
        text = FAMILY.trace(problem, random.Random(0))
        if not FAMILY.check(problem, text) or len(found) == num:
            continue
        ids = [*TOKENIZER(text, add_special_tokens=False)["input_ids"], TOKENIZER.eos_token_id]
        found.append(
            {
                **dict.fromkeys(EVALUATION_SCHEMA.names),
                "problem_id": problem.id,
                "kind": problem.kind,
                "question": problem.question,
                "gold": problem.answer,
                "prompt_ids": TOKENIZER(problem.question)["input_ids"],
                "completion_ids": ids,
                "text": text,
                "correct": correct,
                "temperature": 0.0,
            }
        )
    return found


def write_checkpoint(
    run: RunDirectory, step: int, stage: str, stage_step: int, *, change: float, vocabulary: Any = TOKENIZER
) -> CheckpointRef:
    model = build_tiny_model(CONFIG.model, vocabulary, seed=0).eval()  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(step)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * change)
    reference = CheckpointRef(
        path=run.checkpoint_path(step),
        step=step,
        stage=stage,
        stage_step=stage_step,
        scheduled=True,
        final=(stage, stage_step) != ("rl", 1),
        weights_sha256=weights_fingerprint(model),
    )
    save_checkpoint(reference, model=model, tokenizer=vocabulary, trainer_state={}, provenance={"run_files": {}})
    return reference


def evaluate_as(run: RunDirectory, checkpoint: CheckpointRef, table: list[dict[str, Any]]) -> None:
    path = run.evaluation_path(checkpoint)
    write_table(path.with_suffix(".parquet"), table, EVALUATION_SCHEMA)
    write_evaluation(run, checkpoint)


def make_run(path: Path, *, final_right: bool = True, config_yaml: str = "") -> RunDirectory:
    run = RunDirectory(path / "run")
    run.create(config_yaml=config_yaml, provenance={})
    reference = write_checkpoint(run, 1, "dpo", 1, change=0.3)
    write_checkpoint(run, 2, "rl", 1, change=0.3)
    final = write_checkpoint(run, 3, "rl", 2, change=0.3)
    evaluate_as(run, reference, rows(correct=False))
    evaluate_as(run, final, rows(correct=final_right))
    return run


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, dict[str, Any]]:
    run = make_run(tmp_path_factory.mktemp("probe"))
    return run, probe_run(WITH_NOISE, run, progress=SilentProgress())


def test_summary_counts_and_names(probed: tuple[RunDirectory, dict[str, Any]]) -> None:
    run, summary = probed
    assert read_sealed(run.probe_path / "summary.json") == summary.model_dump(mode="json")
    assert summary.tables["tokens.parquet"] == sha256_file(run.probe_path / "tokens.parquet")
    assert (summary.reference, summary.final, summary.checkpoints) == ("dpo-1", "rl-2", ("rl-1", "rl-2"))
    assert (summary.num_problems, summary.num_reference_wrong) == (8, 8)
    assert (summary.num_reference_wrong_final_right, summary.num_rollouts, summary.reliable) == (8, 8, True)
    assert len(summary.spikes) == 6
    assert summary.baseline is None
    assert summary.mcnemar.num_second_only == 8
    assert [one.population for one in summary.populations] == ["reference_wrong_final_right", "checkpoint_right"]
    assert [(one.checkpoint, one.reference) for one in summary.pairs] == [("rl-2", "rl-1")]
    assert summary.noise_floor["kl_forward"].max < 1e-8
    assert len(summary.noise_models.scales) == 3
    assert all([null.null for null in claim.nulls] == ["chance", "entropy", "noise"] for claim in summary.claims)
    assert summary.causal.num_rollouts == 3
    assert [one.selection for one in summary.causal.selections] == ["spike", "matched", "random"]
    assert not (run.probe_path / "states").exists()


Rows = list[dict[str, Any]]


def tables(run: RunDirectory) -> dict[str, Rows]:
    schemas = {
        "sequences": SEQUENCES_SCHEMA,
        "tokens": TOKENS_SCHEMA,
        "topk": TOPK_SCHEMA,
        "spikes": SPIKES_SCHEMA,
        "interventions": INTERVENTIONS_SCHEMA,
    }
    return {
        name: read_table(run.probe_path / f"{name}.parquet", schema).to_pylist() for name, schema in schemas.items()
    }


def at(rows: Rows, **wanted: object) -> Rows:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def test_tables_agree_with_each_other(probed: tuple[RunDirectory, dict[str, Any]]) -> None:
    run, summary = probed
    found = tables(run)
    tokens, topk = found["tokens"], found["topk"]
    headline = at(found["sequences"], population="reference_wrong_final_right")
    assert [one["sequence_id"] for one in headline] == list(range(8))
    assert {one["label"] for one in headline} == {"dpo-1"}
    assert {one["label"] for one in found["sequences"][8:]} == {"rl-2"}
    num_tokens = sum(len(one["completion_ids"]) for one in headline)
    assert (len(tokens), len(topk)) == (2 * 3 * num_tokens, 3 * num_tokens)  # the checkpoint wrote the same texts
    assert {(row["checkpoint"], row["reference"]) for row in tokens} == {
        ("rl-1", "dpo-1"),
        ("rl-2", "dpo-1"),
        ("rl-2", "rl-1"),
    }
    for one in found["sequences"]:
        part = at(tokens, sequence_id=one["sequence_id"], checkpoint="rl-2", reference="dpo-1")
        assert [row["token_id"] for row in part] == one["completion_ids"]
        assert [row["position"] for row in part] == list(range(len(one["completion_ids"])))
        assert part[-1]["category"] == "format"
        assert one["first_wrong"] == one["wrong_positions"][0]
    assert min(min(row["kl_forward"], row["kl_reverse"], row["js"]) for row in tokens) >= 0
    assert max(row["js"] for row in tokens) <= math.log(2)
    own, reference = at(topk, checkpoint="rl-2"), at(topk, checkpoint="dpo-1")
    last = [row for row in at(tokens, checkpoint="rl-2", reference="dpo-1") if row["sequence_id"] < 8]
    assert [row["token_ids"][0] for row in own] == [row["argmax"] for row in last]
    assert [row["token_ids"][0] for row in reference] == [row["argmax_ref"] for row in last]
    spikes = at(found["spikes"], divergence="js")
    assert {spike["method"] for spike in spikes} == {"zscore", "percentile", "adaptive", "absolute", "calibrated"}
    for spike in at(spikes, method="zscore"):
        place = {name: spike[name] for name in ("sequence_id", "position", "checkpoint")}
        (row,) = at(tokens, **place, reference="dpo-1")
        assert spike["value"] == row["js"] > spike["threshold"]
    means = {one.checkpoint: one.js.mean for one in summary.divergences}
    assert means["rl-2"] == pytest.approx(sum(row["js"] for row in last) / len(last), rel=1e-6)


def test_interventions_sit_at_the_top_of_the_final_checkpoint(probed: tuple[RunDirectory, dict[str, Any]]) -> None:
    found = tables(probed[0])
    items = found["interventions"]
    # one spike has no position as undecided as it is
    assert [len(at(items, selection=name, arm="checkpoint")) for name in ("spike", "matched", "random")] == [3, 2, 3]
    for item in items:
        part = at(found["tokens"], sequence_id=item["sequence_id"], checkpoint="rl-2", reference="dpo-1")
        top = max(part, key=lambda row: row["js"])["position"]
        assert (item["position"] == top) == (item["selection"] == "spike")
        own = part[item["position"]]
        if item["arm"] == "alternative":
            (likely,) = at(found["topk"], checkpoint="dpo-1", **{k: item[k] for k in ("sequence_id", "position")})
            others = [token for token in likely["token_ids"] if token not in (own["token_id"], own["argmax"])]
            assert item["token_id"] == others[0]
        else:
            assert item["token_id"] == own["token_id" if item["arm"] == "reference" else "argmax"]
        assert (item["num_continuations"], item["policy"]) == (2, "reference")


def test_the_same_probe_gives_the_same_files(tmp_path: Path, probed: tuple[RunDirectory, dict[str, Any]]) -> None:
    again = make_run(tmp_path)
    assert probe_run(WITH_NOISE, again, progress=SilentProgress()) == probed[1]
    for name in ("sequences", "tokens", "topk", "spikes", "interventions"):
        first, second = ((run.probe_path / f"{name}.parquet").read_bytes() for run in (probed[0], again))
        assert first == second, name


def test_no_rollouts_give_empty_tables_and_say_so(tmp_path: Path) -> None:
    run = make_run(tmp_path, final_right=False)
    summary = probe_run(CONFIG, run, progress=SilentProgress())
    assert (summary.num_rollouts, summary.reliable, summary.causal) == (0, False, None)
    assert list(summary.notes) == [
        "only 0 rollouts, fewer than the 4 asked for by probe.min_rollouts: the metrics are not reliable"
    ]
    assert read_table(run.probe_path / "tokens.parquet", TOKENS_SCHEMA).num_rows == 0


def test_progress_reaches_its_totals(tmp_path: Path) -> None:
    seen: dict[str, list[int]] = {}

    class Task:
        def __init__(self, counts: list[int]) -> None:
            self._counts = counts

        def advance(self, num: int = 1, **figures: object) -> None:
            self._counts[1] += num

        def extend(self, num: int) -> None:
            self._counts[0] += num

    class Counting(SilentProgress):
        @contextmanager
        def task(self, name: str, total: int):  # type: ignore[no-untyped-def]
            seen[name] = [total, 0]
            yield Task(seen[name])

    causal = CONFIG.probe.causal.model_copy(update={"max_continuations": 8})
    pivots = PivotConfig(max_rollouts=2, gap=0.5, num_continuations=4)
    probe = CONFIG.probe.model_copy(update={"causal": causal, "pivots": pivots})
    probe_run(CONFIG.model_copy(update={"probe": probe}), make_run(tmp_path), progress=Counting())
    for name in ("probe", "causal test", "pivots"):
        assert seen[name][0] == seen[name][1] > 0, name


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for change, error, message in [
        ({"reference": "sft"}, CheckpointError, "has no checkpoint 'sft'; it has dpo-1, rl-1, rl-2"),
        ({"checkpoints": "rlx"}, CheckpointError, "no checkpoint of a stage 'rlx' .*; it has dpo, rl"),
        ({"final": "rl-1"}, ArtifactError, "rl-1 has no evaluation .*; run swerve eval"),
    ]:
        probe = CONFIG.probe.model_copy(update=change)
        with pytest.raises(error, match=message):
            probe_run(CONFIG.model_copy(update={"probe": probe}), run, progress=SilentProgress())


def test_another_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write_checkpoint(run, 2, "rl", 1, change=0.3, vocabulary=build_word_tokenizer(FAMILY.words[::-1]))
    write_sealed(run.probe_path / "summary.json", {"old": True})
    with pytest.raises(MismatchError, match="the tokenizers of rl-1 and dpo-1 differ.*: [0-9]+ ids stand for other"):
        probe_run(CONFIG, run, progress=SilentProgress())
    assert (run.probe_path / "summary.json").exists()  # nothing was begun, so nothing earlier is lost


class _StopAt(SilentProgress):
    """Raises KeyboardInterrupt after a number of advances of one task, as Ctrl-C would."""

    def __init__(self, name: str, after: int) -> None:
        self._name, self._left = name, after

    @contextmanager
    def task(self, name: str, total: int, *, done: int = 0):  # type: ignore[no-untyped-def]
        if name == self._name:
            yield self
        else:
            with super().task(name, total) as task:
                yield task

    def advance(self, num: int = 1, **figures: object) -> None:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt

    def extend(self, num: int) -> None:
        pass


SMALL_UNITS = CONFIG.model_copy(update={"probe": CONFIG.probe.model_copy(update={"tokens_per_batch": 200})})


@pytest.mark.parametrize(("task", "after"), [("probe", 5), ("causal test", 1)])
def test_an_interrupted_probe_goes_on_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, after: int
) -> None:
    whole, broken = make_run(tmp_path / "whole"), make_run(tmp_path / "broken")
    expected = probe_run(SMALL_UNITS, whole, progress=SilentProgress())
    with pytest.raises(KeyboardInterrupt):
        probe_run(SMALL_UNITS, broken, progress=_StopAt(task, after))
    assert not (broken.probe_path / "summary.json").exists()
    assert any((broken.probe_path / "states").iterdir())
    if task == "causal test":  # everything was measured: no model runs over the rollouts again
        monkeypatch.setattr("swerve.probe.engine.measure.unit_hidden", None)
    assert probe_run(SMALL_UNITS, broken, progress=SilentProgress()) == expected
    for path in sorted(whole.probe_path.glob("*.parquet")):
        assert (broken.probe_path / path.name).read_bytes() == path.read_bytes(), path.name
    assert not (broken.probe_path / "states").exists()


def test_tables_of_an_earlier_probe_do_not_stay(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.probe_path.mkdir()
    for name in ("cross_samples", "signals"):
        (run.probe_path / f"{name}.parquet").write_text("of another probe")
    probe_run(CONFIG, run, progress=SilentProgress())
    assert sorted(path.stem for path in run.probe_path.glob("*.parquet")) == [
        "biographies",
        "interventions",
        "sequences",
        "spikes",
        "tokens",
        "topk",
    ]


ALL_CAUSAL = {
    "cross_sampling": CrossSamplingConfig(max_problems=5, shares=(0.1,), selectors=("js", "random")),
    "pivots": PivotConfig(max_rollouts=2, gap=0.5, num_continuations=4),
    "attribution": AttributionConfig(method="attention", max_spikes=2),
}


@pytest.mark.slow
def test_all_causal_tests_together(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    probe = CONFIG.probe.model_copy(update=ALL_CAUSAL)
    summary = probe_run(CONFIG.model_copy(update={"probe": probe}), run, progress=SilentProgress())
    assert [one.direction for one in summary.cross_sampling.directions] == [
        "checkpoint_into_reference",
        "reference_into_checkpoint",
    ]
    assert [(one.policy, one.num_rollouts) for one in summary.pivots] == [("reference", 2), ("checkpoint", 2)]
    assert {one.model for one in summary.attribution} == {"rl-2", "dpo-1"}
    samples = read_table(run.probe_path / "cross_samples.parquet", CROSS_SAMPLES_SCHEMA).to_pylist()
    assert len({row["problem_id"] for row in samples}) == 5
    rows = read_table(run.probe_path / "attributions.parquet", ATTRIBUTIONS_SCHEMA).to_pylist()
    highest = {(row["sequence_id"], row["position"]) for row in rows}
    assert len(rows) == 4
    assert highest <= {(row["sequence_id"], row["position"]) for row in tables(run)["spikes"]}


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_write_the_same_tables(on_two_processes: TwoProcesses, tmp_path: Path) -> None:
    more = {
        **ALL_CAUSAL,
        "noise_models": 3,
        "tokens_per_batch": 200,
        "pivots": PivotConfig(max_rollouts=4, gap=0.1, num_continuations=4),
    }
    config = CONFIG.model_copy(update={"probe": CONFIG.probe.model_copy(update=more)})
    recipe = yaml.safe_dump(config.model_dump(mode="json"))
    alone, together = make_run(tmp_path / "alone"), make_run(tmp_path / "together", config_yaml=recipe)
    probe_run(config, alone, progress=SilentProgress())
    done = on_two_processes("-m", "swerve", "probe", together.path)
    assert done.stdout.count("All findings: ") == 1, done.stdout  # only one process reports
    assert "done in" in done.stderr, done.stderr
    assert "stopped after" not in done.stderr, done.stderr
    written = sorted(one for one in alone.probe_path.rglob("*") if one.is_file())
    assert {"prefix_values.parquet", "cross_samples.parquet", "attributions.parquet"} <= {one.name for one in written}
    for path in written:
        assert (together.probe_path / path.relative_to(alone.probe_path)).read_bytes() == path.read_bytes(), path.name


def test_a_run_of_one_stage_is_compared_with_the_model_that_it_began_with(small_run, small_config, tmp_path) -> None:
    """The base's evaluation is that of the checkpoint it is; other scores choose positions, which predict nothing."""
    start = small_run.select_checkpoint("sft-100")
    swaps = CausalConfig(max_rollouts=3, num_continuations=2, selectors=("entropy", "first_wrong"))
    config = small_config.model_copy(
        update={
            "model": PretrainedModel(path=str(start.path)),
            "stages": (SftStage(steps=60, batch_size=24, optimizer=OptimizerConfig(lr=2e-3, beta2=0.95)),),
            "probe": ProbeConfig(causal=swaps, populations=(), noise_models=0),
        }
    )
    run = RunDirectory(tmp_path / "run")
    train_run(config, run, resume=False, progress=SilentProgress())
    base, final = evaluate_run(config, run, progress=SilentProgress())
    known = read_evaluation(small_run, small_run.evaluation_path(start))
    assert (base.checkpoint, base.step, base.greedy.accuracy) == ("base", 0, known.greedy.accuracy)
    assert [one.checkpoint for one in read_evaluations(run)] == ["base", final.checkpoint]
    summary = probe_run(config, run, progress=SilentProgress())
    assert summary is not None
    assert (summary.reference, summary.final, summary.baseline) == ("base", "sft-60", None)
    assert {one.selection for one in summary.causal.selections} >= {"spike", "entropy", "first_wrong"}
    (predicted,) = summary.prediction
    assert predicted.num_positions == sum(
        one.num_different for one in summary.causal.selections if one.selection in ("spike", "matched", "random")
    )
