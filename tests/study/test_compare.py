from __future__ import annotations

import csv
import io
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from scipy.stats import ttest_rel

from swerve.artifacts.evaluation import read_evaluations
from swerve.artifacts.response_columns import EVALUATION_SCHEMA
from swerve.artifacts.responses import read_response_table
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.study import Study
from swerve.artifacts.tables import read_table
from swerve.errors import ConfigError
from swerve.recipes import dump_yaml
from swerve.recipes.loader import config_hash
from swerve.statistics import mcnemar
from swerve.study.compare import compare_runs, detectable
from swerve.study.gather import absences, compare_directories, study_csv
from swerve.study.measure import measure_run
from swerve.study.study_file import StudyFile
from tests.report.topics.test_taught import RANDOM, taught

STUDY = StudyFile(name="s", recipe="r", variants={"none": {}, "kl": {"a.b": 1}, "clip": {}}, seeds=(0, 1, 2))


@pytest.fixture
def runs(measured):
    return [
        measured("none", 0, "1100000000", entropy=0.5),
        measured("none", 1, "1110000000", entropy=0.6),
        measured("none", 2, "1000000000", entropy=0.4),
        measured("kl", 0, "1111000000", entropy=0.7),
        measured("kl", 1, "1111110000", entropy=0.7),
        measured("kl", 2, "1111000000", entropy=0.7),
        measured("clip", 0, "1100000000"),
        measured("clip", 1, "1010000000"),
    ]


def test_differences_over_seeds_are_of_the_runs_of_one_seed(runs):
    found = compare_runs(STUDY, runs)
    kl, clip = (found.difference_of("accuracy", name) for name in ("kl", "clip"))
    assert (kl.num_seeds, kl.mean) == (3, pytest.approx(0.8 / 3))
    p = ttest_rel([0.4, 0.6, 0.4], [0.2, 0.3, 0.1]).pvalue
    assert kl.p_seeds == pytest.approx(p)
    # Student's t of 2 degrees of freedom, 4.303, and a standard deviation of .0577.
    reach = 4.302652729911275 * 0.0577350269 / 3**0.5
    assert (kl.over_seeds.low, kl.over_seeds.high) == pytest.approx((kl.mean - reach, kl.mean + reach))
    assert kl.effect_size == pytest.approx(kl.mean / 0.0577350269)
    assert (clip.num_seeds, clip.mean) == (2, pytest.approx(-0.05))  # the third seed has no run
    assert kl.p_seeds_adjusted == pytest.approx(2 * p)
    assert found.mean_of("entropy", "none").over_seeds.mean == pytest.approx(0.5)
    assert found.difference_of("entropy", "clip") is None


def test_differences_over_problems_average_a_problem_over_seeds(runs):
    kl = compare_runs(STUDY, runs).difference_of("accuracy", "kl")
    # By problem, of three seeds: 0, 1/3, 2/3, 3/3, 1/3, 1/3, 0, 0, 0, 0.
    assert (kl.num_problems, kl.over_problems.mean) == (10, pytest.approx(0.8 / 3))
    assert kl.p_problems == pytest.approx(2 / 2**5)  # all five signs alike
    assert kl.over_problems.low < 0.8 / 3 < kl.over_problems.high


def test_accuracy_by_kind_is_a_mean_over_seeds_of_the_start_and_of_each_variant(runs):
    def with_kinds(one, easy, hard, start):
        update = {"by_kind": {"easy": easy, "hard": hard}, "start_by_kind": {"easy": start}}
        return replace(one, run=one.run.model_copy(update=update))

    changed = [*(with_kinds(one, 0.2 * one.run.seed, 0.5, 0.1) for one in runs[:3]), with_kinds(runs[3], 1, 0, 0.1)]
    found = {(one.variant, one.kind): one for one in compare_runs(STUDY, changed).kinds}
    assert set(found) == {("start", "easy"), ("none", "easy"), ("none", "hard"), ("kl", "easy"), ("kl", "hard")}
    easy = found["none", "easy"]
    assert (easy.num_seeds, easy.mean) == (3, pytest.approx(0.2))
    reach = 4.302652729911275 * 0.2 / 3**0.5  # Student's t of 2 degrees of freedom, a standard deviation of .2
    assert (easy.over_seeds.low, easy.over_seeds.high) == (0.0, pytest.approx(0.2 + reach))
    assert (found["start", "easy"].mean, found["none", "hard"].over_seeds) == (pytest.approx(0.1), None)


def test_with_one_seed_nothing_is_said_over_seeds(runs):
    found = compare_runs(STUDY, [one for one in runs if one.run.seed == 0]).difference_of("accuracy", "kl")
    assert (found.mean, found.over_seeds, found.p_seeds, found.effect_size) == (pytest.approx(0.2), None, None, None)
    test = mcnemar([True] * 2 + [False] * 8, [True] * 4 + [False] * 6)
    assert (found.p_problems, found.over_problems) == (test.p_value, test.difference)


def test_problems_of_each_seed_are_compared_with_their_own(measured):
    """Generated tasks have other problems for each seed: no problem has two runs of a variant."""
    runs = [
        measured(variant, seed, {f"p{seed}{place}": float(place < right) for place in range(4)})
        for variant, seed, right in [("none", 0, 1), ("none", 1, 1), ("kl", 0, 2), ("kl", 1, 3)]
    ]
    found = compare_runs(STUDY, runs).difference_of("accuracy", "kl")
    assert (found.num_problems, found.over_problems.mean) == (8, pytest.approx(3 / 8))
    assert (
        found.p_problems
        == mcnemar([True, False, False, False] * 2, [True, True, False, False, True, True, True, False]).p_value
    )


def test_variants_on_other_problems_are_not_compared_over_problems(measured):
    runs = [measured("none", 0, {"a": 1.0}), measured("kl", 0, {"b": 1.0})]
    found = compare_runs(STUDY, runs).difference_of("accuracy", "kl")
    assert (found.num_problems, found.over_problems, found.p_problems) == (None, None, None)


def test_curves_are_means_over_seeds_between_the_lowest_and_the_highest(measured):
    runs = [
        measured("none", 0, "1", {"reward": {1: 0.2, 2: 0.4}}),
        measured("none", 1, "1", {"reward": {1: 0.4}}),
    ]
    (curve,) = compare_runs(STUDY, runs).curves_of("reward")
    assert (curve.steps, curve.mean, curve.low, curve.high) == ((1, 2), (0.3, 0.4), (0.2, 0.4), (0.4, 0.4))


def test_what_a_study_can_find_is_assumed_until_runs_are_done(runs):
    seeds, problems = detectable(STUDY, [], num_problems=400)
    assert (seeds.is_assumed, seeds.num, seeds.sd) == (True, 3, 0.03)
    assert (problems.num, problems.sd) == (400, pytest.approx(0.2**0.5))
    seeds, problems = detectable(STUDY, runs, num_problems=400)
    # The variance of kl's differences is .0033, that of clip's 0 and -.1 is .005.
    assert (seeds.is_assumed, seeds.sd) == (False, pytest.approx(((0.01 / 3 + 0.005) / 2) ** 0.5))
    assert (problems.num, problems.is_assumed) == (10, False)


def test_csv_has_a_line_for_each_measure_and_variant(runs):
    found = compare_runs(STUDY, runs)
    rows = list(csv.DictReader(io.StringIO(study_csv(found))))
    assert [(row["measure"], row["variant"]) for row in rows] == [
        ("accuracy", "none"), ("accuracy", "kl"), ("accuracy", "clip"), ("entropy", "none"), ("entropy", "kl"),
    ]  # fmt: skip
    assert float(rows[1]["difference_over_seeds"]) == pytest.approx(0.8 / 3, rel=1e-5)
    assert rows[0]["d"] == rows[0]["p_problems"] == ""
    assert Study.model_validate_json(found.model_dump_json()) == found


def test_what_was_not_measured_is_named(measured):
    runs = [measured("a", 0, "11", similarity=0.5), measured("a", 1, "01"), measured("b", 0, "00", similarity=0.25)]
    study = StudyFile(name="s", recipe="r", variants={"a": {}, "b": {}}, seeds=(0, 1))
    gone = measure_run(Path("nowhere"), variant="b", seed=1, shown_path="runs/b/seed-1")
    assert absences(compare_runs(study, [*runs, gone])) == [
        "runs/b/seed-1: missing (not begun); it counts nowhere",
        "similarity of samples: not measured in runs/a/seed-1; means are of the others",
    ]
    assert absences(compare_runs(study, [runs[0], runs[2]])) == []


def _sampled(run):
    right = {}
    path = run.evaluation_path(run.select_checkpoint("rl")).with_suffix(".parquet")
    rows = read_table(path, EVALUATION_SCHEMA).to_pylist()
    for row in [row for row in rows if row["temperature"] > 0]:
        right.setdefault(row["problem_id"], []).append(row["correct"])
    return right


def test_the_similarity_of_embeddings_is_that_of_a_problem_s_samples(small_run):
    def embed(texts):
        return [[1.0, 0.0] if "0" in text else [0.0, 1.0] for text in texts]

    found = measure_run(small_run.path, variant="a", seed=5, shown_path="x", embed=embed)
    assert "embedding_similarity" not in measure_run(small_run.path, variant="a", seed=5, shown_path="x").by_problem
    last = read_evaluations(small_run)[-1]
    responses = read_response_table(small_run.path / "eval" / f"{last.file_name}.parquet", EVALUATION_SCHEMA)
    sampled = [one for one in responses if one.temperature > 0]
    for problem in {one.problem.id for one in sampled}:
        has = [("0" in one.written) for one in sampled if one.problem.id == problem]
        pairs = [left == right for at, left in enumerate(has) for right in has[:at]]
        values = {key.partition("\n")[0]: value for key, value in found.by_problem["embedding_similarity"].items()}
        assert values[problem] == pytest.approx(sum(pairs) / len(pairs))


def test_what_the_strongest_tokens_taught_is_measured_over_the_most_steps(small_run, tmp_path) -> None:
    """What removing them costs the target, less what removing random ones does."""
    run = RunDirectory(shutil.copytree(small_run.path, tmp_path / "run"))
    before = measure_run(run.path, variant="a", seed=5, shown_path="x").run.values
    assert not [name for name in before if "taught" in name]
    (run.path / "replay").mkdir()
    longer = taught(top=-0.5)  # of two steps; the random sets of `RANDOM`
    shorter = longer.model_copy(update={"proof": longer.proof.model_copy(update={"stop": longer.proof.start + 1})})
    for name, found in (("1-3-recorded", longer), ("1-9-recorded", shorter)):
        found.write(run.path / "replay" / f"{name}-first_wrong.json")
    values = measure_run(run.path, variant="a", seed=5, shown_path="x").run.values
    expected = 0.5 + sum(RANDOM.values()) / len(RANDOM)
    assert {name: value for name, value in values.items() if "taught" in name} == {
        "taught_first_wrong": pytest.approx(expected)
    }
    (run.path / "replay" / "1-3-recorded-first_wrong.json").write_text("{}")
    damaged = measure_run(run.path, variant="a", seed=5, shown_path="x").run
    assert (damaged.state, "swerve replay" in str(damaged.reason)) == ("failed", True)


def test_a_run_is_measured_from_its_files(small_run, tmp_path):
    found = measure_run(small_run.path, variant="a", seed=5, shown_path="x")
    last = small_run.select_checkpoint("rl")
    assert (found.run.state, found.run.checkpoint) == ("trained", "rl-4")
    assert found.run.weights_sha256 == last.weights_sha256
    assert found.run.values["accuracy"] == sum(found.by_problem["accuracy"].values()) / 24
    solved = [max(each) for each in _sampled(small_run).values()]  # all that are right are alike: one answer each
    assert found.run.values["distinct_right"] == pytest.approx(sum(solved) / len(solved))
    kinds = read_evaluations(small_run)[-1].greedy.by_kind
    assert found.run.by_kind == {kind: one.accuracy.mean for kind, one in kinds.items()}
    assert len(kinds) > 1
    assert found.run.values["first_accuracy"] == found.curves["accuracy"][100]
    assert found.run.start_by_kind == {}  # its first evaluation is of a trained model
    assert set(found.curves["accuracy"]) == {100, 220, 222, 224, 226}
    assert set(found.curves["reward"]) == {223, 224, 225, 226}
    lengths = [
        len(row["completion_ids"])
        for path in sorted(small_run.path.glob("rollouts/step_*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]
    assert list(found.curves["generated"]) == [223, 224, 225, 226]
    assert found.curves["generated"][226] == pytest.approx(sum(lengths))
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(small_run.path, run.path)
    run.set_status("collapsed")
    run.metrics_path.write_text(run.metrics_path.read_text().replace('"loss"', '"collapse": "reward", "loss"'))
    collapsed = measure_run(run.path, variant="a", seed=5, shown_path="x").run
    assert (collapsed.state, collapsed.collapse, collapsed.values) == ("collapsed", "reward", found.run.values)
    run.set_status("interrupted")
    assert measure_run(run.path, variant="a", seed=5, shown_path="x").run.state == "missing"
    (run.path / "run.json").unlink()
    assert measure_run(run.path, variant="a", seed=5, shown_path="x").run.reason == "its run.json is missing"
    failed = measure_run(tmp_path / "none", variant="a", seed=5, shown_path="x", failure="out of memory").run
    assert (failed.state, failed.reason, failed.measured) == ("failed", "out of memory", False)


def test_runs_that_were_no_study_are_grouped_by_what_differs_beside_the_seed(small_config, tmp_path):
    for name, update in {
        "a-5": {}, "a-6": {"seed": 6, "name": "other"}, "b": {"max_new_tokens": 30}, "c": {"max_new_tokens": 30},
    }.items():  # fmt: skip
        config = small_config.model_copy(update=update)
        RunDirectory(tmp_path / name).create(
            config_yaml=dump_yaml(config), provenance={"config_hash": config_hash(config), "seed": config.seed}
        )
    found = compare_directories([tmp_path / name for name in ("a-5", "b", "a-6")])
    assert {one.name: dict(one.changes) for one in found.variants} == {
        "a": {"max_new_tokens": 36}, "b": {"max_new_tokens": 30},
    }  # fmt: skip
    assert found.seeds == (5, 6)
    with pytest.raises(ConfigError, match="c has the configuration and seed of another run"):
        compare_directories([tmp_path / "b", tmp_path / "c"])
