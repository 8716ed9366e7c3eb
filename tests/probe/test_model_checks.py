from __future__ import annotations

import json
import shutil
from collections import namedtuple
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from swerve.artifacts.responses import Response
from swerve.cli.app import describe_failure
from swerve.config.engines import OpenAIEngineConfig, RolloutConfig
from swerve.config.models import TinyModel
from swerve.config.probe import CausalConfig, PivotConfig, ProbeConfig
from swerve.config.runtime import RuntimeConfig
from swerve.errors import CheckpointError, ConfigError, MismatchError, ProblemsError, SwerveError
from swerve.models.model_folder import load_model
from swerve.models.sources import CheckpointSource
from swerve.models.tiny import build_tiny_model, build_word_tokenizer
from swerve.probe import model_checks
from swerve.probe.engine.measured import measure_plan
from swerve.probe.from_files import model_sources, plan_files, plan_responses
from swerve.probe.model_checks import check_models, states_bytes
from swerve.probe.plan import ProbePlan
from swerve.probe.recipe import ProbeRecipe
from swerve.probe.rollouts.imported import ImportedResponses
from swerve.probe.steps import probe_in_steps
from swerve.problems import load_family
from swerve.problems.addition import AdditionTask
from swerve.progress import SilentProgress
from swerve.types import Problem
from tests.builders import Notes, response

WORDS = load_family(AdditionTask(digits=2)).words
TOKENIZER = build_word_tokenizer(WORDS)
RUNTIME = RuntimeConfig(device="cpu")
LABELS = ("sft", "dpo", "rl-1", "rl-2", "rl-3")


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for number, label in enumerate(LABELS):
        found[label] = tmp_path / "models" / label
        build_tiny_model(TinyModel(hidden_size=16, intermediate_size=24), TOKENIZER, seed=number).save_pretrained(
            found[label]
        )
        TOKENIZER.save_pretrained(found[label])
    return found


def sequence(index: int, length: int) -> Response:
    ids = tuple(TOKENIZER("0 1 2 + = 3 4 5")["input_ids"])
    return response(
        index,
        length,
        problem=Problem(id=f"p{index}", family="imported", question="q", answer="a"),
        prompt_ids=ids[:3],
        completion_ids=tuple(ids[3 + at % 5] for at in range(length)),
        spans=((0, 0),) * length,
        population="imported",
        label="imported",
    )


def recipe(folders: Mapping[str, Path], out: Path, **probe: Any) -> ProbeRecipe:
    return ProbeRecipe(
        models={label: str(folder) for label, folder in folders.items()},
        reference="dpo",
        baseline="sft" if "sft" in folders else None,
        responses="responses.jsonl",
        out=str(out),
        probe=ProbeConfig(top_k=2, **probe),
        runtime=RUNTIME,
    )


def plan(folders: Mapping[str, Path], out: Path, **probe: Any) -> ProbePlan:
    asked = recipe(folders, out, **probe)
    imported = ImportedResponses(sequences=tuple(map(sequence, range(6), range(4, 28, 4))), provenance={})
    return plan_responses(asked, model_sources(asked), imported)


def change_config(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_every_problem_of_every_model_is_one_line(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_word_tokenizer(WORDS[::-1]).save_pretrained(folders["sft"])
    change_config(folders["rl-1"], max_position_embeddings=26)  # the longest rollout has 27 tokens
    change_config(folders["rl-2"], quantization_config={"quant_method": "fp8"})
    (folders["rl-3"] / "model.safetensors").unlink()

    def load(self: CheckpointSource) -> None:
        raise AssertionError("no model is loaded")

    monkeypatch.setattr(CheckpointSource, "load", load)
    out = tmp_path / "out"
    with pytest.raises(ProblemsError) as caught:
        probe_in_steps(plan(folders, out), progress=SilentProgress())
    heading, *lines = caught.value.lines
    assert heading == "4 problems with the 5 models of this probe; nothing was computed"
    assert "rl-2 are quantised (fp8 in config.json)" in lines[0]
    assert "rl-3 has no weights in safetensors files" in lines[1]
    assert lines[2].startswith("a sequence has 27 tokens, prompt and completion, but rl-1 has 26 positions")
    assert lines[3].startswith("the tokenizers of sft and dpo differ; only models with the same tokenizer can be")
    assert not out.exists()
    shown, status = describe_failure(caught.value)
    assert (shown.count("\n"), status) == (4, 1)
    assert shown.startswith("swerve: error: 4 problems with the 5 models of this probe; nothing was computed\n  ")


def test_a_server_of_one_model_is_not_asked_to_continue_for_two(folders: dict[str, Path], tmp_path: Path) -> None:
    def check(policies: tuple[str, ...], **tests: Any) -> None:
        pivots = PivotConfig(max_rollouts=2, policies=policies)
        asked = recipe(folders, tmp_path / "out", pivots=pivots, **tests)
        asked = asked.model_copy(update={"rollout": RolloutConfig(engine=OpenAIEngineConfig())})
        rollouts = tuple(map(sequence, range(2), (4, 8)))
        graded = tuple(replace(one, problem=replace(one.problem, grader="math")) for one in rollouts)
        imported = ImportedResponses(sequences=graded, provenance={})
        check_models(plan_responses(asked, model_sources(asked), imported), progress=SilentProgress())

    check(("reference",))
    check(("checkpoint",), causal=CausalConfig(max_rollouts=0))
    message = r"kind=openai continues with the one model .*; name the one .* probe.pivots.policies=\[reference\]"
    with pytest.raises(ConfigError, match=message):
        check(("reference", "checkpoint"))
    with pytest.raises(ConfigError, match=message):  # swaps are continued by the reference
        check(("checkpoint",))


def test_how_tokenizers_differ_is_said_of_the_responses_first(folders: dict[str, Path], tmp_path: Path) -> None:
    swapped = list(WORDS)
    one, two = swapped.index("1"), swapped.index("write")
    swapped[one], swapped[two] = swapped[two], swapped[one]
    build_word_tokenizer(swapped).save_pretrained(folders["rl-2"])
    own = TOKENIZER.get_vocab()
    with pytest.raises(MismatchError) as caught:
        check_models(plan(folders, tmp_path / "out"), progress=SilentProgress())
    assert str(caught.value).endswith(
        f": 2 ids stand for other tokens, 1 of them in the responses, such as {own['1']}: 'write' in rl-2, '1' in dpo"
    )


def test_what_a_reader_should_know_is_noted(folders: dict[str, Path], tmp_path: Path) -> None:
    other = build_word_tokenizer(WORDS)
    other.eos_token = "write"
    other.save_pretrained(folders["rl-1"])
    halved = plan(folders, tmp_path / "out")
    narrow = {one.label: replace(one, dtype="bfloat16") for one in halved.checkpoints}  # type: ignore[type-var]
    progress = Notes()
    check_models(replace(halved, sources={**halved.sources, **narrow}), progress=progress)
    eos, *rounded, disk = progress.notes
    assert eos == "rl-1 has the eos_token 'write', dpo has '<eos>': each uses its own"
    assert rounded == [
        f"{label} is stored in float32 and read in bfloat16: its weights are rounded (runtime.dtype)"
        for label in LABELS[2:]
    ]
    assert disk.startswith("disk: about 0.1 MiB for hidden states and statistics in ")
    assert disk.endswith(" free")


def test_a_full_disk_is_seen_before(folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(model_checks.shutil, "disk_usage", lambda path: usage(0, 0, 1000))
    with pytest.raises(SwerveError, match=r"disk: about 0.1 MiB for .* in .*/probe, 0.0 MiB free: free some, choose"):
        check_models(plan(folders, tmp_path / "out", keep_states=True), progress=SilentProgress())


@pytest.mark.parametrize("keep", [True, False])
def test_the_room_is_that_which_the_states_take(folders: dict[str, Path], tmp_path: Path, keep: bool) -> None:
    asked = plan(folders, tmp_path / "out", keep_states=keep, tokens_per_batch=32)
    longer = tuple(replace(sequence(index, 500), sequence_id=index) for index in range(4))
    asked = replace(asked, sequences=longer)
    most = 0

    class Watched(SilentProgress):
        def task(self, *args: Any, **options: Any) -> Any:
            class Task:
                def __enter__(self) -> Task:
                    return self

                def __exit__(self, *args: Any) -> None:
                    return None

                def advance(self, *args: Any, **options: Any) -> None:
                    nonlocal most
                    sizes = [one.stat().st_size for one in asked.states_path.rglob("*") if one.is_file()]
                    most = max(most, sum(sizes))

                extend = advance

            return Task()

    checked = {one.label: one.check() for one in asked.models}
    estimate = states_bytes(asked, checked)
    measure_plan(asked, store=asked.states_path, world=None, progress=Watched())
    num_tokens = sum(len(one.completion_ids) for one in asked.sequences)
    table = num_tokens * (7 * 11 * 4 + 5 * 2 * 2 * 4)  # of seven pairs and of five models' two tokens, once more
    # Without keeping them, hidden states are gone by the time that the last statistics are there.
    assert 0.9 * most < estimate - table < (1.1 if keep else 1.4) * most
    if keep:  # what is there already is not needed again
        assert states_bytes(asked, checked) < estimate - 0.8 * most


def test_a_reference_without_tokenizer_is_said_with_the_rest(folders: dict[str, Path], tmp_path: Path) -> None:
    (folders["dpo"] / "tokenizer.json").unlink()
    shutil.rmtree(folders["rl-1"])
    folders["rl-1"].mkdir()
    three = {label: folders[label] for label in ("dpo", "rl-1", "rl-2")}
    with pytest.raises(ProblemsError) as caught:
        plan_files(recipe(three, tmp_path / "out"))
    assert caught.value.lines[0].startswith("2 problems with the 3 models")
    shutil.rmtree(folders["dpo"])
    with pytest.raises(CheckpointError, match="dpo"):
        plan_files(recipe({label: folders[label] for label in ("dpo", "rl-2")}, tmp_path / "out"))


def test_torch_is_not_asked_for_weights(folders: dict[str, Path], tmp_path: Path) -> None:
    """A folder's weights are only looked at by their headers: values that are not finite are found on loading."""
    from safetensors.torch import load_file, save_file

    file = folders["rl-2"] / "model.safetensors"
    weights = {name: torch.full_like(value, float("nan")) for name, value in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})
    check_models(plan(folders, tmp_path / "out"), progress=SilentProgress())
    with pytest.raises(CheckpointError, match="not finite"):
        load_model(folders["rl-2"], device="cpu", dtype="float32")
