"""Shards of a probe, killed and run again in any order: finished, they are the probe of one process."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.parts import CopiedParts, Parts
from swerve.artifacts.shards import Shard
from swerve.config.probe import AttributionConfig, CausalConfig, CrossSamplingConfig, PivotConfig, ProbeConfig
from swerve.errors import ArtifactError, ConfigError, MissingShardsError
from swerve.probe.causal import causal_tests
from swerve.probe.execute import execute
from swerve.probe.plan import ProbePlan
from swerve.probe.steps import analysis_key, do_share, probe_in_steps
from swerve.progress import SilentProgress
from swerve.prompts.encode import encode_prompts
from tests.builders import LoadedSource, Notes
from tests.probe.test_execute import FAMILY, TOKENIZER, plan

EVERYTHING = ProbeConfig(
    min_rollouts=2,
    top_k=3,
    noise_models=3,
    tokens_per_batch=64,
    causal=CausalConfig(max_rollouts=3, num_continuations=2, policies=("reference", "checkpoint")),
    pivots=PivotConfig(max_rollouts=3, gap=0.5, num_continuations=2),
    cross_sampling=CrossSamplingConfig(max_problems=2, shares=(0.1,), selectors=("js", "random")),
    attribution=AttributionConfig(method="attention", max_spikes=2),
)
PROMPTS = encode_prompts(TOKENIZER, FAMILY.problems("heldout", seed=1)[:4])


@pytest.fixture(autouse=True)
def _small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal_tests, "_ROLLOUTS_PER_UNIT", 1)


def asked(path: Path, shard: str | None, **changes: Any) -> ProbePlan:
    path.mkdir(exist_ok=True)
    wanted = plan(path, **{"settings": EVERYTHING, "prompts": PROMPTS, **changes})
    return wanted if shard is None else replace(wanted, shard=Shard.parse(shard))


def files(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


class Killed(BaseException):
    """A kill, at a write."""


@pytest.mark.slow
def test_shards_in_any_order_with_kills_make_the_probe_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(asked(tmp_path / "whole", None), progress=SilentProgress())
    put, chance, left = Parts.put, random.Random(0), [4]

    def killed(self: Parts, *args: Any) -> None:
        if left[0] and chance.random() < 0.15:
            left[0] -= 1
            raise Killed
        put(self, *args)

    # All of them, in any order: first the measurement, then the causal tests.
    monkeypatch.setattr(Parts, "put", killed)
    path, waited = tmp_path / "shards", list[str]()
    for _ in range(2):
        for number in chance.sample(range(1, 4), 3):
            while True:
                try:
                    do_share(asked(path, f"{number}/3"), progress=SilentProgress())
                except Killed:
                    continue
                except MissingShardsError as error:
                    waited.append(str(error))
                break
    assert (left[0], len(waited), all("the measurement of shard" in line for line in waited)) == (0, 2, True)

    # Nothing is left to be computed, and no model is loaded.
    monkeypatch.setattr(Parts, "put", None)
    monkeypatch.setattr(LoadedSource, "load", None)
    execute(asked(path, None), progress=SilentProgress())
    assert files(path) == files(tmp_path / "whole")


def test_a_shard_names_what_is_missing_and_the_whole_continues(tmp_path: Path) -> None:
    causal = CausalConfig(max_rollouts=2, num_continuations=2)
    small = {"settings": ProbeConfig(min_rollouts=2, noise_models=0, tokens_per_batch=64, causal=causal)}
    execute(asked(tmp_path / "whole", None, **small), progress=SilentProgress())
    path = tmp_path / "shards"
    with pytest.raises(MissingShardsError, match=r"^the measurement of shard 1 of 2 is missing$"):
        do_share(asked(path, "2/2", **small), progress=SilentProgress())
    do_share(asked(path, "1/2", **small), progress=SilentProgress())

    # Other settings and another process are refused.
    with pytest.raises(ConfigError, match="has parts of the same command with other settings"):
        do_share(asked(path, "2/2", **small, seed=4), progress=SilentProgress())
    states = Parts(path / "probe" / "states", analysis_key(asked(path, None, **small)))
    with (
        Shard.parse("1/2").at_work(states, within=path),
        pytest.raises(ArtifactError, match="in use by shards of its work"),
    ):
        execute(asked(path, None, **small), progress=SilentProgress())
    execute(asked(path, None, **small), progress=SilentProgress())
    assert files(path) == files(tmp_path / "whole")


def test_shards_of_one_step_are_finished_before_the_next(tmp_path: Path) -> None:
    small = {"settings": ProbeConfig(min_rollouts=2, noise_models=0, causal=CausalConfig(max_rollouts=0))}
    for shard in ("1/2", "2/2", "1/2"):
        with suppress(MissingShardsError):  # for the table of this step the whole measurement is needed
            assert probe_in_steps(asked(tmp_path, shard, **small), ("divergence",), progress=SilentProgress()) is None
    whole = asked(tmp_path, None, **small, keep_statistics=True)
    assert probe_in_steps(whole, ("divergence",), progress=SilentProgress()) is None
    notes = Notes()
    summary = probe_in_steps(asked(tmp_path, None, **small), progress=notes)
    assert summary is not None
    assert "divergence: skipped, it is done" in notes.notes


@pytest.mark.slow
def test_machines_without_a_common_file_system_make_the_probe_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"settings": ProbeConfig(min_rollouts=2, noise_models=0, causal=CausalConfig(max_rollouts=2))}
    (tmp_path / "home").mkdir()
    for number in (1, 2):
        (tmp_path / f"machine-{number}").mkdir()
    places = [tmp_path / f"machine-{number}" / "p" for number in (1, 2)]

    def probed(shard: str | None, copies: Sequence[Path] = (), out: str = "p") -> Any:
        copied = CopiedParts(copies)
        share = Shard(copied=copied) if shard is None else Shard.parse(shard, copied)
        wanted = replace(plan(Path(out), prompts=PROMPTS, **small), shard=share)
        with suppress(MissingShardsError):
            return probe_in_steps(wanted, progress=SilentProgress())

    # Each machine has what all have measured before it begins with the causal tests.
    for is_second in (False, True):
        for number, place in enumerate(places, start=1):
            monkeypatch.chdir(place.parent)
            assert probed(f"{number}/2", [one for one in places if is_second and one != place]) is None
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.setattr(LoadedSource, "load", None)
    assert probed(None, places) is not None
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path / "home")
    assert probed(None, out="whole") is not None
    assert files(Path("p/probe")) == files(Path("whole/probe"))
