"""Several processes, each with its share of the work, make the updates that one process makes, in float64."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.campaign.ranks import run_on_copies

CASES = Path(__file__).with_name("test_policy_update.py")
LONE, ONE = "dr_grpo with one group", "reward with one completion"
RUNS: dict[str, dict[str, Any]] = {
    "dr_grpo": {},
    "clip, KL in the loss": {
        "loss": {"kind": "clip"},
        "kl": {"kind": "loss", "estimator": "exact_reverse", "coef": 0.5},
        "num_epochs": 2,
        "num_minibatches": 2,
        "zero_variance": "keep",
    },
    "clip, KL in the reward": {"loss": {"kind": "clip"}, "kl": {"kind": "reward", "coef": 0.5}, "num_epochs": 2},
    "gae": {"advantages": {"kind": "gae"}, "kl": {"kind": "reward", "coef": 0.5}},
    "reinforce_pp_baseline": {"advantages": {"kind": "reinforce_pp_baseline"}, "entropy": {"top_share": 0.5}},
    "SPO": {"loss": {"kind": "max_prob_kl", "normalize": "correct"}},
    "SFT": {"kind": "sft", "batch_size": 5, "validation_share": 0.3},
    "SFT of one": {"kind": "sft", "batch_size": 1},
    "DPO": {"kind": "dpo", "batch_size": 3},
    "DPO of one": {"kind": "dpo", "batch_size": 1},
    "distill": {"kind": "distill", "teacher": "", "divergence": "js"},
}
STEPS = 3


def _cases() -> Any:
    spec = importlib.util.spec_from_file_location("update_cases", CASES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _share(cases: Any, world: Any, numbers: Sequence[int]) -> Any:
    """Return the groups that a process has sampled."""
    return cases.rollouts().whole(numbers[world.rank :: world.size])


def _first_of(share: Any) -> Any:
    """Return only the first completion of each group."""
    groups = [replace(group, rollouts=group.rollouts[:1]) for group in share.groups]
    return replace(share, groups=groups, rewards=[values[:1] for values in share.rewards])


def _updates(cases: Any, models: Any, world: Any) -> dict[str, dict[str, Any]]:
    """Return gradient, figures and recorded signals of every variant's update, made by the processes of `world`."""
    found: dict[str, dict[str, Any]] = {}
    for name in [*cases.VARIANTS, LONE, ONE]:
        share = _share(cases, world, [1] if name in (LONE, ONE) else range(len(cases.SIZES)))
        changes = {"samples_per_prompt": 1, "zero_variance": "keep"} if name == ONE else {}
        share = _first_of(share) if name == ONE else share
        stage = cases.stage_of(name.split(" with ")[0], tokens_per_batch=24, **changes)
        update = cases.Update(models, stage, share, world=world)
        own = [[*member, row] for member, row in update.signals.by_member().items()]
        signals = sorted((one for part in world.gather(own) for one in part), key=lambda one: one[:2])
        found[name] = {"gradient": update.gradient, "figures": dict(update.figures), "signals": signals}
    return found


def _runner(name: str, stage: Any, cases: Any, models: Any, world: Any, folder: Path) -> Any:
    """Return a stage's runner, which learns from sequences that are given."""
    from swerve.artifacts.run import RunDirectory
    from swerve.artifacts.tables import PAIRS_SCHEMA, write_table
    from swerve.progress import SilentProgress
    from swerve.train.examples import Example
    from swerve.train.stages import distill, dpo, rl, sft

    run = RunDirectory(folder / name)
    context = replace(
        cases.context_of(models, stage, world),
        run=run,
        family=SimpleNamespace(is_prose=False),
        draws=SimpleNamespace(validation=[]),
        resumed=stage.kind == "dpo",
        progress=SilentProgress(),
    )
    whole = cases.rollouts()
    if stage.kind == "sft":
        return sft.SftRunner(stage, context, [Example(str(n), (one,)) for n, one in enumerate(whole.sequences())])
    if stage.kind == "distill":
        with patch.object(distill, "load_frozen", lambda *_: models[1]):
            return distill.DistillRunner(stage, context)
    if stage.kind == "dpo":
        pairs = [
            {
                "problem_id": group.prompt.problem.id,
                "prompt_ids": group.prompt.token_ids,
                "chosen_ids": group.rollouts[0].completion.token_ids,
                "rejected_ids": group.rollouts[1].completion.token_ids,
                "ref_chosen_logprob": -8.0,
                "ref_rejected_logprob": -7.0,
            }
            for group in whole.groups
        ]
        if world.is_main:
            write_table(run.pairs_path(stage.label), pairs, PAIRS_SCHEMA)
        world.barrier()
        return dpo.DpoRunner(stage, context)
    return rl.RlRunner(stage, context)


def _stage(name: str, cases: Any) -> Any:
    from swerve.config.stages import DistillStage, DpoStage, RlStage
    from swerve.config.supervised_stages import SftStage

    kinds = {"sft": SftStage, "dpo": DpoStage, "distill": DistillStage, "rl": RlStage}
    keys = {"steps": STEPS, "optimizer": {"lr": 1e-2}, "tokens_per_batch": 16, **RUNS[name]}
    kind = kinds[keys.get("kind", "rl")]
    samples = {"samples_per_prompt": cases.GROUP} if keys.get("kind") in (None, "distill") else {}
    return kind.model_validate({**keys, **samples})


def _runs(cases: Any, models: Any, world: Any, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the metrics of several steps of every kind of stage; the rollouts tables are in `folder`."""
    found = {}
    for name in RUNS:
        stage = _stage(name, cases)
        runner = _runner(name, stage, cases, models, world, folder)
        whole = _share(cases, world, range(len(cases.SIZES)))
        if hasattr(runner, "_sampler"):
            runner._sampler = SimpleNamespace(
                rollouts=lambda _index, whole=whole: whole,
                ahead=lambda _index: nullcontext(),
                figures=lambda _rollouts, _index: {},
            )
        found[name] = [dict(runner.step(index)) for index in range(STEPS)]
    return found


def _assert_close(found: Any, expected: Any, place: Any, *, abs_tol: float = 1e-7) -> None:
    """Check JSON values, numbers up to rounding."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), place
        for key, value in expected.items():
            _assert_close(found[key], value, (place, key), abs_tol=abs_tol)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), place
        for number, value in enumerate(expected):
            _assert_close(found[number], value, (place, number), abs_tol=abs_tol)
    elif isinstance(expected, float) and found is not None:
        assert math.isclose(found, expected, rel_tol=1e-5, abs_tol=abs_tol), (place, found, expected)
    else:
        assert found == expected, place


@pytest.mark.dist
@pytest.mark.slow
@pytest.mark.parametrize("num", [2, 3])
def test_several_processes_make_the_updates_of_one(num, tmp_path):
    """With 2 each makes as many forward passes, and those that have less to do read batches without a completion."""
    from swerve.artifacts.response_columns import ROLLOUTS_SCHEMA
    from swerve.artifacts.tables import read_table
    from swerve.world import World

    run_on_copies(num, partial(_main, tmp_path), folder=tmp_path)
    together = json.loads((tmp_path / "found.json").read_text())
    gradients = load_file(tmp_path / "gradients.safetensors")
    cases = _cases()
    models = cases.two_models()
    for name, one in _updates(cases, models, World()).items():
        gradient = one.pop("gradient")
        assert gradient.norm() > 1e-6
        assert float((gradients[name] - gradient).norm() / gradient.norm()) < 1e-6, name
        _assert_close(together["updates"][name], one, name)
    runs = _runs(cases, models, World(), tmp_path / "alone")
    _assert_close(together["runs"], runs, "")
    for path in sorted((tmp_path / "alone").rglob("step_*.parquet")):
        other = tmp_path / "together" / path.relative_to(tmp_path / "alone")
        one, two = (read_table(table, ROLLOUTS_SCHEMA).to_pylist() for table in (path, other))
        assert len(one) == cases.GROUP * len(cases.SIZES)
        _assert_close(two, one, str(other), abs_tol=5e-6)  # KL: differences of log-probs in float32


@contextmanager
def _counted_passes() -> Iterator[list[int]]:
    from swerve.train.replicated_model import ReplicatedModel

    sizes: list[int] = []
    read = ReplicatedModel.completion_hidden

    def counted(weights: Any, batch: Any) -> torch.Tensor:
        sizes.append(len(batch.rows))
        return read(weights, batch)

    with patch.object(ReplicatedModel, "completion_hidden", counted):
        yield sizes


def _exchange(world: Any) -> None:
    """Check what processes give one another: parts of different lengths, some empty."""
    received = world.exchange([b"%d to %d" % (world.rank, rank) * rank for rank in range(world.size)])
    assert received == [b"%d to %d" % (rank, world.rank) * world.rank for rank in range(world.size)]
    assert world.exchange([b""] * world.size) == [b""] * world.size
    assert world.gather({"rank": world.rank}) == [{"rank": rank} for rank in range(world.size)]
    assert world.max(-world.rank - 0.5) == -0.5


def _check_shares(cases: Any, models: Any, world: Any, folder: Path) -> None:
    """Groups that agree, which take a third of the work, are dealt out by themselves."""
    runner = _runner("clip, KL in the loss", _stage("dr_grpo", cases), cases, models, world, folder)
    share = _share(cases, world, range(len(cases.SIZES)))
    agree = {0, 2}
    rewards = [[1.0] * cases.GROUP if number in agree else [1.0, 0.0, 0.0] for number in share.numbers]
    dealt = runner._dealt(replace(share, rewards=rewards), 0)
    for numbers in (agree, {1, 3}):
        own = [
            len(two)
            for member, (_, two) in zip(dealt.members(), dealt.sequences(), strict=True)
            if member.group in numbers
        ]
        tokens = world.gather(sum(own))
        assert max(tokens) - min(tokens) <= 5, (numbers, tokens)


def _main(folder: Path) -> None:
    from swerve.train.replicated_model import ReplicatedModel
    from swerve.world import joined_world

    torch.set_num_threads(1)
    ReplicatedModel.needs_equal_batches = os.environ["WORLD_SIZE"] == "2"
    with joined_world("cpu") as world:
        _exchange(world)
        cases = _cases()
        models = cases.two_models()
        with _counted_passes() as sizes:
            updates = _updates(cases, models, world)
            runs = _runs(cases, models, world, folder / "together")
        _check_shares(cases, models, world, folder / "shares")
        if ReplicatedModel.needs_equal_batches:
            everybody = world.gather(sizes)
            assert len({len(one) for one in everybody}) == 1
            assert all(sum(one) for one in zip(*everybody, strict=True))
            assert 0 in everybody[1]
        if world.is_main:
            save_file({name: one.pop("gradient") for name, one in updates.items()}, folder / "gradients.safetensors")
            (folder / "found.json").write_text(json.dumps({"updates": updates, "runs": runs}))
        world.barrier()  # a process that leaves while the other still writes can be torn down with it
