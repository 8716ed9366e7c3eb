"""Models of a hub, by commands in a process of their own: what works, and one line for what does not."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from swerve.artifacts.samples import read_samples
from tests.campaign.kills import Ended
from tests.hub import Commands, Hub, Repository, commit_of

TASK = ("--task", "addition", "digits=2", "num_heldout=4", "--max-new-tokens", "6", "--batch", "8")
RECIPE = """
name: run
task: {kind: addition, digits: 2, num_train: 40, num_heldout: 4}
model: {kind: pretrained, path: owner/name}
max_new_tokens: 33
stages: [{kind: sft, steps: 1, batch_size: 2, optimizer: {lr: 1e-3}}]
runtime: {device: cpu, threads: 1}
"""
Swerve = Callable[..., Ended]


@pytest.fixture(scope="module")
def folders(save_addition_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two models, and folders that lack what a model needs."""
    path = tmp_path_factory.mktemp("models")
    found = {name: save_addition_model(path / name, seed=seed) for name, seed in (("first", 1), ("later", 2))}
    found["lora"] = path / "lora"
    found["lora"].mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (found["lora"] / name).write_text("{}")
    for name in ("pickled", "none"):
        found[name] = shutil.copytree(found["first"], path / name)
        (found[name] / "model.safetensors").unlink()
    (found["pickled"] / "pytorch_model.bin").write_bytes(b"x")
    (found["none"] / "code.py").write_text("raise SystemExit")
    return found


@pytest.fixture(scope="module")
def hub(folders: dict[str, Path]) -> Iterator[Hub]:
    first = folders["first"]
    found = Hub(
        {
            "owner/name": Repository(revisions={"main": first, "step_1": folders["later"]}),
            "owner/gated": Repository(revisions={"main": first}, is_gated=True),
            **{f"owner/{name}": Repository(revisions={"main": folders[name]}) for name in ("pickled", "none", "lora")},
            **{f"owner/{name}": Repository(revisions={"main": first}) for name in ("full", "unfetched")},
            "owner/breaks": Repository(revisions={"main": first}, breaks="model.safetensors"),
        }
    )
    found.open()
    yield found
    found.close()


@pytest.fixture(scope="module")
def commands(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    home = tmp_path_factory.mktemp("home")
    found = Commands(home, {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0"})
    yield found
    found.end()


@pytest.fixture
def swerve(commands: Commands, tmp_path: Path) -> Swerve:
    """Run a command in an empty folder."""

    def run(*arguments: str, file_bytes: int | None = None) -> Ended:
        return commands.run(*arguments, folder=tmp_path, file_bytes=file_bytes)

    return run


@pytest.mark.slow
def test_a_model_of_the_hub_is_its_folder_also_without_a_network(
    swerve: Swerve, hub: Hub, folders: dict[str, Path], tmp_path: Path
) -> None:
    models = {"hub": "owner/name", "later": "owner/name#step_1", "folder": str(folders["first"])}
    ended = swerve("sample", *(f"{name}={model}" for name, model in models.items()), *TASK, "--out", "samples")
    assert ended.status == 0, ended.err
    said = [line.partition(":")[0] for line in ended.err.splitlines()]
    assert set(said) == {f"sample {name}" for name in models}  # and nothing of other libraries
    read = {name: read_samples(tmp_path / "samples" / f"{name}.parquet") for name in models}
    ids = {name: [one.completion_ids for one in found.samples] for name, found in read.items()}
    assert ids["hub"] == ids["folder"] != ids["later"]
    assert read["hub"].info.model.fingerprint != read["later"].info.model.fingerprint
    with hub.unreachable():
        again = swerve("sample", "hub=owner/name", *TASK, "--out", "again.parquet")
        assert (again.status, again.out) == (0, again.out), again.err
        assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "samples" / "hub.parquet").read_bytes()
        assert {line.partition(":")[0] for line in again.err.splitlines()} == {"sample hub"}


@pytest.mark.slow
def test_evaluation_and_probe_take_models_of_the_hub(swerve: Swerve, tmp_path: Path) -> None:
    models = ("--model", "owner/name", "--model", "later=owner/name#step_1")
    ended = swerve("eval", *models, *TASK, "--num-samples", "2", "--temperature", "1", "--out", "evaluated")
    assert (ended.status, "later" in ended.out) == (0, True), ended.err
    samples = str(next((tmp_path / "evaluated").rglob("name*.parquet")))
    compared = ("--reference", "owner/name", "--checkpoint", "later=owner/name#step_1")
    options = ("probe.causal.max_rollouts=1", "probe.causal.num_continuations=1", "runtime.device=cpu")
    ended = swerve("probe", "--use-responses", samples, *compared, "--out", "probed", *options)
    assert ended.status == 0, ended.err
    assert (tmp_path / "probed" / "probe" / "summary.json").is_file()
    differ, where, cause, *nothing, findings = ended.out.splitlines()
    assert re.search("later (differs from what|writes almost what) .* nats a token apart", differ)
    assert "where the change lies" in where
    assert "token" in cause
    assert [line.partition(":")[0] for line in nothing] in ([], ["Nothing can be seen of which tokens decide"])
    assert findings.startswith("All findings: swerve report probed")


@pytest.mark.slow
def test_training_begins_with_a_model_of_the_hub(
    swerve: Swerve, hub: Hub, folders: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    for name, changes in (("hub", ()), ("folder", (f"model.path={folders['first']}",))):
        ended = swerve("train", "recipe.yaml", *changes, "--out", name)
        assert ended.status == 0, ended.err
    weights = [tmp_path / name / "checkpoints/step_000001/model.safetensors" for name in ("hub", "folder")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    with hub.unreachable():
        ended = swerve("config", "check", "recipe.yaml")
        assert (ended.status, "valid" in ended.out) == (0, True), ended.err
        ended = swerve("config", "check", "recipe.yaml", "model.path=owner/unfetched")
        assert (ended.status, ended.err.count("\n"), "cannot be reached" in ended.err) == (2, 1, True), ended.err
    ended = swerve("train", "recipe.yaml", "model.path=owner/gated", "--out", "refused")
    assert (ended.status, ended.err.count("\n")) == (1, 2)  # where the run was to be, and why it is not
    assert "cannot find a model owner/gated: it is gated" in ended.err
    assert not (tmp_path / "refused").exists()


REFUSED = {
    "owner/gated": "it is gated; ask for access on the model's page, then log in with: hf auth login",
    "owner/absent": "the hub has no model of this name, or it is private (log in with: hf auth login)",
    "owner/name#nope": "the model has no revision 'nope'; its page lists branches and tags",
    "owner/pickled": "no weights in safetensors files, and pytorch_model.bin is pickled: reading a pickle runs",
    "owner/none": "cannot fetch owner/none: it has no weights in safetensors files",
    "owner/lora": "adapter_config.json names no base_model_name_or_path; put the model's folder there",
    "owner/full": "while writing",
    "owner/unfetched": "cannot be reached, and the cache in",
}


@pytest.mark.slow
@pytest.mark.parametrize(("model", "said"), REFUSED.items(), ids=list(REFUSED))
def test_what_cannot_be_had_is_one_line_before_the_first_model_samples(
    swerve: Swerve, hub: Hub, folders: dict[str, Path], tmp_path: Path, model: str, said: str
) -> None:
    command = ("sample", str(folders["first"]), f"other={model}", *TASK, "--out", "samples")
    if model == "owner/unfetched":
        with hub.unreachable():
            ended = swerve(*command)
    else:
        ended = swerve(*command, file_bytes=20_000 if model == "owner/full" else None)
    assert (ended.status, ended.out, ended.err.count("\n")) == (1, "", 1), ended.err
    assert said in ended.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_nothing_but_what_a_model_is_read_from_is_fetched(swerve: Swerve, hub: Hub, folders: dict[str, Path]) -> None:
    (folders["first"] / "notes.md").write_text("mine")
    (folders["first"] / "modeling.py").write_text("raise SystemExit")
    hub.asked.clear()
    hub.repositories["owner/extra"] = hub.repositories["owner/full"]
    assert swerve("sample", "owner/extra", *TASK, "--out", "a.parquet").status == 0
    fetched = {
        line.rpartition("/")[2] for line in hub.asked if line.startswith("GET") and commit_of(folders["first"]) in line
    }
    assert "model.safetensors" in fetched
    assert not fetched & {"notes.md", "modeling.py"}


@pytest.mark.slow
def test_a_connection_that_is_lost_is_one_line_and_the_same_command_continues(
    swerve: Swerve, hub: Hub, tmp_path: Path
) -> None:
    command = ("sample", "owner/breaks", *TASK, "--out", "a.parquet")
    ended = swerve(*command)
    assert (ended.status, ended.out, ended.err.count("\n")) == (1, "", 1), ended.err
    assert "cannot fetch owner/breaks: the connection was lost" in ended.err
    assert list(tmp_path.iterdir()) == []
    hub.repositories["owner/breaks"].breaks = None
    assert swerve(*command).status == 0
