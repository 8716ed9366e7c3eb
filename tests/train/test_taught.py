"""Which tokens taught a target: the estimates beside groups and gradients that are really removed."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import swerve
from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.replays import TAUGHT_SCHEMA, Taught
from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import read_table
from swerve.cli.app import run_command
from swerve.errors import ConfigError
from swerve.problems import load_family
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.train.changes import Variation, starting_point
from swerve.train.replay import ReplayedStep, replay_session, replayed_steps, training_problems
from swerve.train.targets import Targets
from swerve.train.taught import Watched, taught_step
from tests.builders import trained_run


class Bench:
    """Replays of single steps of a run, and what they make of the mean log-probability of written solutions."""

    def __init__(self, run: RunDirectory) -> None:
        self.run, self.config = run, load_config(run)
        self.targets: Targets | None = None

    def after(self, variation: Variation, start: str) -> tuple[ReplayedStep, float]:
        """Return the step after a checkpoint, and the target after it."""
        with replay_session(self.config, self.run, SilentProgress()) as session:
            place = starting_point(self.run, self.config, start)
            problems = training_problems(session)
            (step,) = replayed_steps(session, problems, start=place, stop=place.step + 1, variation=variation)
            if self.targets is None:
                family, tokenizer = load_family(self.config.task), step.context.learner.tokenizer
                self.targets = Targets.of_run(self.run, self.config, family, tokenizer)
            return step, self.targets.values(step.context.learner)["solution"]

    def without(self, reached: float, start: str, **change: object) -> float:
        """Return how far the target is from where the step without something leaves it."""
        return reached - self.after(Variation(name="removed", **change), start)[1]  # type: ignore[arg-type]


@pytest.mark.slow
def test_effects_add_up_and_what_is_removed_in_closed_form_is_what_a_replay_removes(small_run: RunDirectory) -> None:
    bench, watched = Bench(small_run), Watched(name="watched")
    step, reached = bench.after(watched, "rl-2")
    assert bench.targets is not None
    weights = {name: value.clone() for name, value in step.context.learner.weights.whole_weights().items()}
    found, tokens = taught_step(step, watched, bench.targets.solutions)
    # The weights are as they were, and the tokens' effects are the gradient's, group by group.
    assert all((value == weights[name]).all() for name, value in step.context.learner.weights.whole_weights().items())
    assert found.estimated == pytest.approx(found.gradient_product, rel=0.01)
    assert found.estimated == pytest.approx(sum(token.effect for token in tokens))
    own = sum(token.effect for token in tokens if token.group == found.group)
    assert found.group_estimated == pytest.approx(own)
    # The step without that group, and without any gradient, are really made.
    everything = tuple((token.index, token.group, token.sample, token.position) for token in tokens)
    assert found.group_measured == pytest.approx(
        bench.without(reached, "rl-2", without_group=found.group, first=2), rel=0.01
    )
    assert found.measured == pytest.approx(bench.without(reached, "rl-2", tokens=everything), rel=0.01)
    # AdamW's first step has the same length whatever its gradient's: no estimate of a part holds there.
    first, _ = bench.after(watched, "dpo")
    early, _ = taught_step(first, watched, bench.targets.solutions)
    assert early.estimated == pytest.approx(early.gradient_product, rel=0.01)
    assert not early.holds


@pytest.mark.slow
def test_removed_sets_prove_the_map(
    small_run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(small_run.path, tmp_path / "copy")
    words = ["replay", str(tmp_path / "copy"), "--from", "1", "--taught", "solution"]
    assert run_command([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    found = Taught.model_validate(said)
    randoms = [found.difference(f"random {number}") for number in range(1, 6)]
    assert found.difference("top") < min(randoms) < max(randoms) < found.difference("bottom")
    assert [step.step for step in found.steps] == [2, 3, 4]
    # The map is beside it, whole.
    (path,) = (tmp_path / "copy" / "replay").glob("*.parquet")
    rows = read_table(path, TAUGHT_SCHEMA).to_pylist()
    assert len(rows) == found.num_tokens
    assert found.num_removed == round(0.1 * len(rows))
    group = found.groups[0]
    own = [row["effect"] for row in rows if (row["index"] + 1, row["group"]) == (group.step, group.group)]
    assert group.effect == pytest.approx(sum(own))
    assert sum(word.share for word in found.words) <= 1.0 + 1e-9
    # Its strongest rollouts are told piece by piece.
    strongest = found.rollouts[0]
    place = (strongest.step, strongest.group, strongest.sample)
    own = [row["effect"] for row in rows if (row["index"] + 1, row["group"], row["sample"]) == place]
    assert strongest.effects == pytest.approx(own)
    assert strongest.effect == pytest.approx(sum(own))
    sums: dict[tuple[int, ...], float] = defaultdict(float)
    for row in rows:
        sums[row["index"], row["group"], row["sample"]] += row["effect"]
    assert abs(strongest.effect) == pytest.approx(max(map(abs, sums.values())))
    recorded = read_table(small_run.rollouts_path(222 + strongest.step), ROLLOUTS_SCHEMA).to_pylist()
    (row,) = (one for one in recorded if (one["group"], one["sample"]) == place[1:])
    assert "".join(strongest.pieces).removesuffix("<eos>") == row["text"]
    assert (strongest.correct, len(strongest.pieces)) == (row["correct"], len(row["completion_ids"]))
    assert run_command(words) == 0
    text = capsys.readouterr().out
    assert text.startswith("effects on solution, nats, of ")
    assert f"WITHOUT {found.num_removed:,} TOKENS" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [{"loss": {"kind": "clip", "low": 1e-4, "high": 1e-4}, "num_epochs": 4}, {"num_epochs": 3}],
    ids=["clips that bind", "epochs"],
)
def test_the_check_fails_where_a_step_is_not_one_update_along_its_gradient(
    small_run: RunDirectory, tmp_path: Path, keys: dict[str, Any]
) -> None:
    stage = {"kind": "rl", "steps": 8, "prompts_per_step": 6, "samples_per_prompt": 4, "optimizer": {"lr": 1e-3}}
    recipe = {
        "name": "updates",
        "seed": 5,
        "task": {"kind": "addition", "digits": 2, "num_train": 400, "num_heldout": 24, "mistake_rate": 0.5},
        "model": {"kind": "pretrained", "path": str(small_run.checkpoint_path(220))},
        "max_new_tokens": 36,
        "runtime": {"device": "cpu", "threads": 1, "max_rows": 64},
    }
    found = {}
    for name, more in (("one", {}), ("several", keys)):
        run = trained_run(load_config({**recipe, "stages": [{**stage, **more}]}), tmp_path / name)
        found[name] = swerve.replay(run, start=0, taught="solution")
    # One update a step: most estimates are those that are measured, and every sum is the gradient's. (Which ones do not
    # hold depends on the processor: where effects nearly cancel, a step is no straight line.)
    held = [step.holds for step in found["one"].steps if step.step > 1]
    assert sum(held) >= len(held) / 2
    assert all(step.estimated == pytest.approx(step.gradient_product, rel=0.01) for step in found["one"].steps)
    # Several: the tokens' effects are no longer the gradient's, and no step is believed.
    steps = found["several"].steps
    assert steps
    assert not any(step.holds for step in steps)
    apart = [abs(step.estimated - step.gradient_product) > 0.01 * abs(step.gradient_product) for step in steps]
    assert all(apart)
    if "loss" in keys:
        clipped = [line["clipped_share"] for line in read_metrics(tmp_path / "several" / "metrics.jsonl")]
        assert max(share or 0.0 for share in clipped) > 0.2


def test_what_is_not_taught(small_run: RunDirectory) -> None:
    with pytest.raises(ConfigError, match="taught='carry' must be first_wrong or solution"):
        swerve.replay(small_run, start=2, taught="carry")
    with pytest.raises(ConfigError, match="is asked of the run as it was: leave without=, flip= and settings= out"):
        swerve.replay(small_run, start=2, taught="solution", flip="0.0")
    with pytest.raises(ConfigError, match="has no target first_wrong: probe it first"):
        swerve.replay(small_run, start=2, taught="first_wrong")
