"""The commands of the published studies, as the pages have them: they parse, fit together and fit the card."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
import yaml
from torch.distributed.run import get_args_parser
from transformers import AutoConfig, AutoModelForCausalLM

from swerve.cli.app import app
from swerve.config.recipe import Config
from swerve.probe.recipe import ProbeRecipe
from swerve.problems.data_specs import parse_spec
from swerve.recipes import load_config
from swerve.recipes.data_sizes import data_sizes
from swerve.recipes.epochs import with_steps
from swerve.recipes.loader import dump_yaml, load_document
from swerve.study.order import named_models
from swerve.study.plan import plan_study
from tests.cases import each
from tests.command_line import exit_status

ROOT = Path(__file__).parents[2]
SHAPES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("shapes.yaml").read_text())
CARD_GB = 141
"""Memory of the card that the pages name, an NVIDIA H200."""


@dataclass(frozen=True)
class Command:
    """A line that runs something: its words, and by how many processes."""

    words: tuple[str, ...]
    processes: int = 1

    @property
    def kind(self) -> str:
        return self.words[0]

    def parameters(self) -> dict[str, Any]:
        group: Any = typer.main.get_command(app)
        parsed: dict[str, Any] = group.commands[self.kind].make_context(self.kind, list(self.words[1:])).params
        return parsed

    @cache  # noqa: B019 - as many as the pages have
    def document(self) -> Config | ProbeRecipe:
        """Return the recipe that it runs; of a study that of its first run."""
        found = self.parameters()
        overrides = list(found.get("overrides") or [])
        if self.kind == "probe":
            return load_document(ProbeRecipe, found["run"], overrides)
        if self.kind == "study":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("swerve.study.plan.data_sizes", partial(data_sizes, asks_hub=False))
                return plan_study(found["source"], overrides, out=None, runs=ROOT / "no-such-runs").all_jobs[0].config
        config = load_config(found["recipe"], overrides)
        return with_steps(config, data_sizes(config, asks_hub=False))


@dataclass(frozen=True)
class Section:
    """What a page says of its study at the published size."""

    lines: list[list[str]]
    commands: list[Command]
    rows: list[list[str]]

    def planned(self) -> list[tuple[Command, list[str]]]:
        """Return the rows of the table, each with the command that it is about: the first that has none yet."""
        left, found = [one for one in self.commands if one.kind in ("train", "study", "probe")], []
        for row in self.rows:
            recipe = row[0].split("`")[1]
            command = next(one for one in left if one.words[1] == recipe)
            left.remove(command)
            found.append((command, row))
        return found


def _section(page: str) -> Section:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    body = text.partition("\n## At the published size\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```console\n(.*?)^```$", body.replace("\\\n", ""), re.MULTILINE | re.DOTALL)
    lines = [shlex.split(line[2:].partition(" -- ")[0]) for block in blocks for line in block.splitlines()]
    commands = []
    for words in lines:
        processes = 1
        if words[0] == "torchrun":
            options = get_args_parser().parse_args(words[1:])
            assert (options.module, options.training_script) == (True, "swerve")
            words, processes = ["swerve", *options.training_script_args], int(options.nproc_per_node)
        if words[0] == "swerve":
            commands.append(Command(tuple(words[1:]), processes))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines() if line[:3] == "| `"]
    return Section(lines, commands, rows)


PAGES = {name: _section(name) for name in ("rl-probe", "spo", "k-and-k-study", "kl-study")}
"""Page -> its section; that of RL-Probe has the method note too."""
PLANNED = [(page, *case) for page, section in PAGES.items() for case in section.planned()]


@each("page", list(PAGES))
def test_every_command_parses_and_its_keys_are_known(page: str) -> None:
    """`tests/test_docs.py` reads the same lines for their options; here each becomes the recipe that it runs."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for words in PAGES[page].lines:
        if words[0] == "pip":
            assert set(re.findall(r"\w[\w-]*", words[2])) <= extras.keys()
        else:
            assert words[0] in ("hf", "torchrun", "swerve")
    for command in PAGES[page].commands:
        if command.kind in ("train", "serve", "study", "probe"):
            assert command.document()
        else:
            assert command.parameters()


def _on_hub(document: Config | ProbeRecipe) -> tuple[set[str], set[str]]:
    """Return the models and the data sets that a recipe takes from the hub."""
    if isinstance(document, ProbeRecipe):
        assert document.task is not None
        return {name.partition("#")[0] for name in document.models.values()}, _data_sets(
            document.task.model_dump()["heldout"]
        )
    models = {name for _, name in named_models(document) if not name.startswith("runs/")}
    return models, _data_sets([*document.task.train_sources, *document.task.model_dump().get("heldout", ())])


def _data_sets(specs: Sequence[str]) -> set[str]:
    return {parse_spec(spec).source for spec in specs if parse_spec(spec).is_on_hub}


@each("page", list(PAGES))
def test_what_the_commands_read_from_the_hub_is_downloaded_first(page: str) -> None:
    fetched = [words for words in PAGES[page].lines if words[0] == "hf"]
    assert {tuple(words[1:-1]) for words in fetched} <= {
        ("download",),
        ("download", "--repo-type", "dataset"),
        *(("download", "--revision", f"step_{step}") for step in (400, 1200, 2440)),
    }
    downloaded = {words[-1] for words in fetched}
    for command in PAGES[page].commands:
        if command.kind in ("train", "serve", "study", "probe"):
            models, data = _on_hub(command.document())
            assert models | data <= downloaded


def test_what_one_run_takes_from_another_is_kept_by_it() -> None:
    kept: dict[str, frozenset[int]] = {}
    taken = []
    for command in PAGES["k-and-k-study"].commands:
        if command.kind == "train":
            config = command.document()
            assert isinstance(config, Config)
            for _, name in named_models(config):
                if run := re.fullmatch(r"runs/(.+)/checkpoints/step_(\d+)", name):
                    taken.append((run[1], int(run[2])))
                    assert int(run[2]) in kept[run[1]]
            kept[config.name] = config.retained_steps(sum(stage.steps for stage in config.stages))
    assert taken == [("k-and-k", 380), ("k-and-k-distill", 56)]

    # The table reads what the runs end with, by stage, or a step of it.
    (table,) = [command.parameters() for command in PAGES["k-and-k-study"].commands if command.kind == "eval"]
    selectors = dict(model.partition("=")[2].split(":") for model in table["models"] if ":" in model)
    assert {"k-and-k", "k-and-k-curriculum", "k-and-k-distill", "k-and-k-cold-start"} == set(selectors) <= set(kept)
    for run, selector in selectors.items():
        _, _, step = selector.partition("-")
        assert not step or int(step) in kept[run]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "command", "row"), PLANNED, ids=[f"{page}-{row[0]}" for page, _, row in PLANNED])
def test_the_table_is_what_config_check_says_of_folders_with_shapes_alone(
    page: str, command: Command, row: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = command.document()
    source, changes = command.words[1], _in_folders(document, tmp_path)
    if command.kind == "study":
        source = str(tmp_path / "run.yaml")
        Path(source).write_text(dump_yaml(document), encoding="utf-8")
    else:
        changes = [*(command.parameters()["overrides"] or ()), *changes]
    processes = [] if command.kind == "probe" else ["--processes", str(command.processes)]
    assert exit_status("config", "check", source, *changes, *processes, "--memory", CARD_GB, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    _, memory, *counts = row
    assert found["memory"]["peak"] / 1e9 == pytest.approx(float(memory.removesuffix(" GB")), rel=0.15)

    # Beside the memory: of a probe its models, of a training its tokens and checkpoints.
    if isinstance(document, ProbeRecipe):
        assert counts == [f"{len(document.models)} of {_num_weights(tmp_path / 'dpo') * 2 / 1e9:.0f} GB"]
        return
    (stage,) = found["stages"]
    assert counts[0] == f"{stage['tokens'] / 1e6:,.0f} million"
    num = len(document.retained_steps(stage["steps"]))
    size = f"{_num_weights(tmp_path / 'path') * 4 / 1e9:.2g}"
    assert counts[1] == f"{num} of {size} GB"


def _in_folders(document: Config | ProbeRecipe, place: Path) -> list[str]:
    """Write a folder with nothing but the shapes for each model; return the changes that put these in their places."""
    if isinstance(document, ProbeRecipe):
        named = [(f"models.{label}", name.partition("#")[0]) for label, name in document.models.items()]
    else:
        teachers = {"runs/k-and-k/checkpoints/step_000380": "Qwen/Qwen2.5-7B-Instruct-1M"}
        students = {"runs/k-and-k-distill/checkpoints/step_000056": "Qwen/Qwen2.5-1.5B-Instruct"}
        named = [(key, {**teachers, **students}.get(name, name)) for key, name in named_models(document)]
    for key, name in named:
        folder = place / key.rpartition(".")[2]
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(SHAPES[name]))
    return [f"{key}={place / key.rpartition('.')[2]}" for key, _ in named]


def _num_weights(folder: Path) -> int:
    untyped: Any = AutoModelForCausalLM
    with torch.device("meta"):
        model = untyped.from_config(AutoConfig.from_pretrained(folder))
    return sum(parameter.numel() for parameter in model.parameters())
