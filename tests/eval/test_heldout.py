from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from swerve.artifacts.evaluation import Evaluation, read_evaluations
from swerve.artifacts.files import read_sealed, write_sealed
from swerve.artifacts.response_columns import EVALUATION_SCHEMA
from swerve.artifacts.responses import Response
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table
from swerve.errors import ArtifactError, CheckpointError, ConfigError
from swerve.eval.heldout import _note_ungraded, evaluate_run, heldout_problems, heldout_scores, write_evaluation
from swerve.models.model_folder import load_model
from swerve.problems import load_family
from swerve.problems.mixture import Mixture
from swerve.progress import SilentProgress, shown_progress
from swerve.statistics import share
from swerve.types import Problem, StepMark
from tests.builders import Notes


def _rows(run, checkpoint, *, greedy=True):
    rows = read_table(run.evaluation_path(checkpoint).with_suffix(".parquet"), EVALUATION_SCHEMA).to_pylist()
    return [row for row in rows if (row["temperature"] == 0) == greedy]


def test_every_checkpoint_has_an_evaluation_that_adds_up(small_run):
    for checkpoint in small_run.checkpoints:
        summary = Evaluation.read(small_run.evaluation_path(checkpoint), remedy="")
        rows = _rows(small_run, checkpoint)
        assert summary.checkpoint == checkpoint.label
        assert summary.greedy.num_problems == len(rows) == 24
        accuracy = summary.greedy.accuracy
        assert accuracy.mean == sum(row["correct"] for row in rows) / 24
        assert accuracy.low <= accuracy.mean <= accuracy.high
        assert sum(kind.num_problems for kind in summary.greedy.by_kind.values()) == 24
        for row in rows:
            assert row["correct"] == (row["extracted"] == row["gold"])
            assert not row["trace_right"] or row["correct"]


def test_problems_that_are_left_out_are_the_first(small_config):
    def asked(**values):
        config = small_config.model_copy(update={"eval": small_config.eval.model_copy(update=values)})
        return [problem.id for problem in heldout_problems(config, load_family(config.task))]

    everything = asked()
    assert asked(num_problems=10) + asked(skip=10, num_problems=14) == everything
    assert asked(skip=20) == everything[20:]
    with pytest.raises(
        ConfigError, match=f"eval.skip: 24 leaves none of the task's {len(everything)} held-out problems"
    ):
        asked(skip=24)


def test_entropy_is_that_of_the_greedy_completion(small_run):
    checkpoint = small_run.select_checkpoint("rl")
    row = _rows(small_run, checkpoint)[0]
    model = load_model(checkpoint.path, device="cpu", dtype="float32").model
    ids = torch.tensor([row["prompt_ids"] + row["completion_ids"]])
    with torch.inference_mode():
        logprobs = torch.log_softmax(model(ids).logits[0, len(row["prompt_ids"]) - 1 : -1].double(), dim=-1)
    assert logprobs.argmax(-1).tolist() == row["completion_ids"]
    assert row["entropy"] == pytest.approx(-(logprobs.exp() * logprobs).sum(-1).mean().item(), abs=1e-5)


def test_entropies_are_formed_from_a_few_rows_of_logits_at_a_time(small_run, monkeypatch):
    from swerve.eval import responses
    from swerve.models.head import Head

    checkpoint = small_run.select_checkpoint("rl")
    rows = _rows(small_run, checkpoint)
    problem = Problem(id="p", family="addition", question="", answer="")
    ids = [(tuple(row["prompt_ids"]), tuple(row["completion_ids"])) for row in rows]
    written = [Response(problem=problem, prompt_ids=prompt, completion_ids=completion) for prompt, completion in ids]
    sizes = []
    original = Head.__call__

    def counted(head, hidden):
        sizes.append(len(hidden))
        return original(head, hidden)

    loaded = load_model(checkpoint.path, device="cpu", dtype="float32")
    monkeypatch.setattr(responses, "rows_per_chunk", lambda _size: 7)
    monkeypatch.setattr(Head, "__call__", counted)
    found = responses.mean_entropies(loaded, responses.response_batches(loaded, written))
    assert [found[row] for row in range(len(rows))] == pytest.approx([row["entropy"] for row in rows], abs=1e-5)
    assert max(sizes) == 7
    assert sum(sizes[1:]) == sum(len(row["completion_ids"]) for row in rows)  # the first is the check of the head


def test_a_second_call_does_no_work_and_other_settings_do(small_config, small_run, tmp_path, monkeypatch):
    path = tmp_path / "run"
    shutil.copytree(small_run.path, path)
    run = RunDirectory(path)
    first = evaluate_run(small_config, run, progress=SilentProgress())
    with monkeypatch.context() as patch:
        patch.setattr("swerve.eval.heldout.load_model", lambda *_, **__: pytest.fail("evaluated again"))
        assert evaluate_run(small_config, run, progress=SilentProgress()) == first
    changed = small_config.model_copy(
        update={"eval": small_config.eval.model_copy(update={"num_problems": 5, "samples_per_problem": 1})}
    )
    notes = Notes()
    assert [summary.greedy.num_problems for summary in evaluate_run(changed, run, progress=notes)] == [5] * 5
    # What was there is kept, as it was, and said in one line.
    (kept,) = (run.path / "eval").glob("earlier-*")
    assert [line for line in notes.notes if "earlier-" in line] == [
        f"evaluations under other settings (num_problems 24, now 5, samples_per_problem 2, now 1, other problems) are "
        f"kept in {kept}"
    ]
    for summary in first:
        assert Evaluation.read(kept / f"{summary.file_name}.json", remedy="") == summary
        assert (kept / f"{summary.file_name}.parquet").is_file()
    assert [evaluation.greedy.num_problems for evaluation in read_evaluations(run)] == [5] * 5
    # Where nobody watches, it is a warning, which names the line that called.
    with pytest.warns(UserWarning, match=r"num_problems 5, now 24, samples_per_problem 1, now 2") as said:
        evaluate_run(small_config, run, progress=shown_progress(False))
    assert [Path(one.filename) for one in said] == [Path(__file__)]


def _halved(run, path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _digit_changed(run, path):
    path.write_text(path.read_text().replace('"mean": 0.', '"mean": 0.1', 1))


def _of_another_step(run, path):
    shutil.copy(run.evaluation_path(run.select_checkpoint("dpo")).with_suffix(path.suffix), path)


@pytest.mark.parametrize(
    ("suffix", "change"),
    [
        (".json", _halved),
        (".parquet", _halved),
        (".json", _digit_changed),
        (".json", _of_another_step),
        (".parquet", _of_another_step),
    ],
)
def test_a_damaged_or_foreign_evaluation_is_refused_and_made_again(small_config, small_run, tmp_path, suffix, change):
    path = tmp_path / "run"
    shutil.copytree(small_run.path, path)
    run = RunDirectory(path)
    changed = run.evaluation_path(run.select_checkpoint("sft")).with_suffix(suffix)
    before = changed.read_bytes()
    change(run, changed)
    with pytest.raises(ArtifactError, match=rf"{changed.name}.*; run swerve eval {path} again"):
        read_evaluations(run)
    evaluate_run(small_config, run, progress=SilentProgress())
    assert changed.read_bytes() == before
    read_evaluations(run)


def test_evaluations_of_another_run_or_of_other_weights_are_named(small_run, tmp_path):
    shutil.copytree(small_run.path, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    checkpoint = run.select_checkpoint("sft")
    path = run.evaluation_path(checkpoint)
    own = read_sealed(path)
    write_sealed(path, {**own, "config_hash": "b" * 16})
    with pytest.raises(ArtifactError, match=r"step_000220\.json is of another run \(its configuration is b{16}\)"):
        read_evaluations(run)
    write_sealed(path, {**own, "weights_sha256": "b" * 64})
    with pytest.raises(ArtifactError, match=r"step_000220\.json is of other weights than sft-220; run swerve eval"):
        read_evaluations(run)
    shutil.rmtree(run.path / "checkpoints")  # kept elsewhere: nothing to compare with
    assert len(read_evaluations(run)) == 5


def test_another_dtype_is_another_evaluation(small_config, small_run, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(small_run.path, path)
    runtime = small_config.runtime.model_copy(update={"dtype": "bfloat16"})
    summaries = evaluate_run(
        small_config.model_copy(update={"runtime": runtime}), RunDirectory(path), progress=SilentProgress()
    )
    assert {summary.settings["dtype"] for summary in summaries} == {"bfloat16"}


def test_a_checkpoint_that_should_be_there_is_named(small_config, small_run, tmp_path):
    shutil.copytree(small_run.path, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    shutil.rmtree(run.checkpoint_path(224))
    progress = Notes()
    evaluate_run(small_config, run, progress=progress)
    assert progress.notes[0] == "step_000224 is missing; restore it from a copy, or continue without it"


def test_nothing_to_evaluate_says_what_to_run(small_config, tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.create(config_yaml="", provenance={})
    with pytest.raises(ArtifactError, match="has no checkpoint to evaluate; train it first"):
        evaluate_run(small_config, run, progress=SilentProgress())


def test_a_damaged_checkpoint_is_named(small_config, small_run, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(small_run.path, path)
    shutil.rmtree(path / "eval")
    run = RunDirectory(path)
    (run.checkpoint_path(100) / "model.safetensors").write_bytes(b"not a model")
    with pytest.raises(CheckpointError, match=r"step_000100/model\.safetensors is damaged"):
        evaluate_run(small_config, run, progress=SilentProgress())


def _row(kind, correct, reward, *, status="graded", samples=(True,), trace_right=None):
    """Return the greedy completion of a problem of a kind, and samples that have this reward."""
    problem = Problem(id=kind, family="addition", kind=kind, question="", answer="1")
    greedy = Response(
        problem=problem, correct=correct, trace_right=trace_right, status=status, answered=False, entropy=0.5,
        completion_ids=(1,) * 10, finish_reason="stop" if correct else "length", temperature=0.0,
    )  # fmt: skip
    sampled = [
        Response(
            problem=problem, correct=right, reward=reward, status="graded", answered=True, extracted=str(int(right)),
            temperature=1.0,
        )
        for right in samples
    ]  # fmt: skip
    return [greedy, *sampled]


def _summary(*rows, **options):
    return heldout_scores(rows, confidence=0.95, **options)


class _Steps(Mixture):
    """A mixture whose parts are the first letters of ids, and whose mistakes are the texts themselves."""

    def __init__(self):
        pass

    def label_of(self, problem):
        return problem.id[0]

    def family_of(self, problem):
        return self

    checks_steps = True
    is_prose = False

    def check(self, problem, text):
        return [StepMark(start=0, end=1, expected="", kind=text)] if text else []


def test_first_mistakes_are_counted_by_kind(small_config, small_run, tmp_path):
    run = RunDirectory(tmp_path / "run")
    shutil.copytree(small_run.path, run.path)
    rows = []
    for kind in ("slip", "slip", "", "dropped step"):
        greedy, *samples = _row("a", True, 0.0)
        rows.append([replace(greedy, text=kind), *samples])
    problems = [greedy.problem for greedy, *_ in rows]
    checkpoint = run.select_checkpoint("sft")
    found = write_evaluation(small_config, run, checkpoint, _Steps(), problems, rows)
    assert found.first_mistakes == {"slip": 2, "dropped step": 1}
    assert found.greedy.trace_right.mean == 0.25  # right answers, and one without a mark


def test_summary_of_literal_rows():
    row = _row
    greedy, sampled = _summary(
        row("a", True, 1.0), row("a", False, 0.5, status="error"), row("b", True, 0.0), row("b", True, 0.5)
    )
    assert greedy.accuracy.mean == 0.75
    assert sampled.mean_reward.mean == 0.5
    _, never = _summary(*[row("a", False, 0.0)] * 30)
    high = 1 - 0.025 ** (1 / 30)  # of 0 of 30
    assert asdict(never.mean_reward) == pytest.approx({"mean": 0.0, "low": 0.0, "high": high}, rel=1e-4)
    assert asdict(greedy.num_tokens) == pytest.approx(
        {"mean": 10.0, "low": 10 * 0.05**0.25, "high": 10 * (2 - 0.05**0.25)}
    )
    assert (greedy.truncated, greedy.ungraded, greedy.unanswered) == (share(1, 4), 0.25, share(4, 4))
    assert {kind: part.accuracy.mean for kind, part in greedy.by_kind.items()} == {"a": 0.5, "b": 1.0}
    assert {kind: part.mean_reward.mean for kind, part in sampled.by_kind.items()} == {"a": 0.75, "b": 0.25}
    assert {kind: part.num_problems for kind, part in greedy.by_kind.items()} == {"a": 2, "b": 2}


def test_trace_right_is_over_the_problems_whose_steps_are_checked():
    rows = [_row("a", True, 1.0, trace_right=True), _row("a", True, 1.0, trace_right=False), _row("b", True, 1.0)]
    greedy, _ = _summary(*rows)
    assert greedy.trace_right.mean == 0.5
    assert greedy.by_kind["b"].trace_right is None


def test_statuses_are_counted_apart():
    rows = [_row("a", False, 0.0, status=status) for status in ("timeout", "unparsed", "unparsed", "error")]
    greedy, sampled = _summary(*rows)
    assert greedy.statuses == {"graded": 0, "unparsed": 2, "timeout": 1, "error": 1}
    assert sampled.statuses == {"graded": 4, "unparsed": 0, "timeout": 0, "error": 0}
    assert (greedy.num_unanswered, sampled.num_unanswered) == (4, 0)
    whole = Evaluation.model_construct(greedy=greedy, sampled=sampled)
    assert whole.statuses == {"graded": 4, "unparsed": 2, "timeout": 1, "error": 1}
    assert whole.num_unanswered == 4


def test_pass_at_k_of_the_samples():
    rows = [_row("a", False, 0.5, samples=(True, False)), _row("a", False, 0.0, samples=(False, False))]
    greedy, sampled = _summary(*rows)
    first, second = sampled.curve
    assert (first.k, first.pass_at_k.mean) == (1, 0.25)
    assert (second.k, second.pass_at_k.mean, second.pass_hat_k.mean) == (2, 0.5, 0.0)
    assert (sampled.of_samples(2), sampled.of_samples(4).pass_at_k) == (second, None)
    assert greedy.curve == ()


def test_mixtures_are_summed_up_by_part():
    rows = [_row("x: 1", True, 1.0), _row("x: 2", False, 0.0), _row("y", True, 1.0)]
    greedy, sampled = _summary(*rows, family=_Steps())
    assert {name: part.accuracy.mean for name, part in greedy.by_part.items()} == {"x": 0.5, "y": 1.0}
    assert {name: part.mean_reward.mean for name, part in sampled.by_part.items()} == {"x": 0.5, "y": 1.0}
    assert _summary(_row("a", True, 1.0))[0].by_part is None


def test_rewards_beyond_one_have_an_interval_without_bounds():
    _, sampled = _summary(_row("a", True, 3.0), _row("a", True, 3.0))
    assert sampled.mean_reward.mean == 3.0
    assert sampled.mean_reward.high == pytest.approx(3 * (2 - 0.05**0.5))


def test_completions_that_a_limit_or_a_failure_kept_from_judgement_are_told():
    progress = Notes()
    given = _row("a", True, 1.0, samples=(True,) * 7)
    for label, status in (("rl-3", "timeout"), ("rl-4", "unparsed")):
        given[1] = replace(given[1], status=status)
        greedy, sampled = _summary(given)
        _note_ungraded(Evaluation.model_construct(checkpoint=label, greedy=greedy, sampled=sampled), progress)
    assert progress.notes == [
        "rl-3: of 8 completions 1 reached a limit of the grader and 0 made it fail; they count as wrong"
    ]


def test_diversity_is_in_the_evaluation(small_run):
    for one in read_evaluations(small_run):
        checkpoint = small_run.select_checkpoint(one.checkpoint)
        right = {}
        for row in _rows(small_run, checkpoint, greedy=False):
            answers = right.setdefault(row["problem_id"], set())
            answers |= {row["extracted"]} if row["correct"] else set()
        mean = sum(map(len, right.values())) / len(right)
        assert one.sampled.distinct_right.mean == pytest.approx(mean)
