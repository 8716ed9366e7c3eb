"""Runs of a study that begin with checkpoints of others."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from swerve.errors import CheckpointError, ConfigError
from swerve.study.order import check_models, with_needed
from swerve.study.plan import plan_study
from swerve.study.schedulers import write_slurm_script

STUDY = """
name: chain
recipe: small.yaml
seeds: 2
steps: [train]
variants:
  last: {model: {kind: pretrained, path: "taught:sft-2"}}
  other: {}
  taught:
    stages:
      - {kind: distill, teacher: "other:sft", steps: 2, prompts_per_step: 2, optimizer: {lr: 1e-3}}
    model: {kind: pretrained, path: "other:sft"}
"""
FIRST = """
name: first
task: {kind: addition, num_train: 64, num_heldout: 8}
model: {kind: tiny, hidden_size: 16, num_layers: 1, num_heads: 2}
max_new_tokens: 64
stages:
  - {kind: sft, steps: 2, batch_size: 4, optimizer: {lr: 1e-3}, checkpoints: [1]}
eval: {num_problems: 4}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(FIRST)
    Path("chain.yaml").write_text(STUDY.replace("taught:sft-2", "taught:distill"))
    return tmp_path


def plan(*overrides: str):
    return plan_study("chain.yaml", overrides, out=None, runs=Path("runs"))


def test_a_run_stands_behind_those_of_its_seed_that_it_begins_with(folder):
    found = plan()
    assert [job.name for job in found.jobs] == [
        f"{name}/seed-{n}" for name in ("last", "other", "taught") for n in (0, 1)
    ]
    assert [job.name for job in found.all_jobs] == [
        f"{name}/seed-{n}" for name in ("other", "taught", "last") for n in (0, 1)
    ]
    after = {job.name: job.after for job in found.jobs}
    assert after["taught/seed-1"] == ("other/seed-1",)  # once, as model and as teacher
    assert after["last/seed-0"] == ("taught/seed-0",)
    config = found.jobs[5].config
    assert config.model.path == config.stages[0].teacher == "runs/studies/chain/runs/other/seed-1:sft"
    assert [job.name for job in with_needed(found.select(["last/seed-1"]), found.all_jobs)] == [
        "other/seed-1", "taught/seed-1", "last/seed-1",
    ]  # fmt: skip
    found.write()
    assert plan_study("runs/studies/chain", [], out=None, runs=Path("runs")) == found


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("taught:distill", "taught:distil", r"last': model\.path is 'taught:distil', .* but distill, distill-2;"),
        ("taught:distill", "taught:distill-1", "keep no checkpoint 'distill-1'"),
        ('"other:sft"}', '"last:sft"}', "runs of 'last' and 'taught' begin with each other"),
        ("teacher: \"other:sft\"", 'teacher: "taught:distill"', "runs of 'last' and 'taught' begin with each other"),
    ],
)  # fmt: skip
def test_what_cannot_be_begun_with_is_one_line(folder, old, new, message):
    text = Path("chain.yaml").read_text()
    assert old in text
    Path("chain.yaml").write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=message):
        plan()


def test_a_folder_of_the_name_is_a_folder(folder):
    Path("other:sft").mkdir()
    assert {job.after for job in plan().jobs if job.variant == "taught"} == {()}


def test_models_are_looked_for_before_anything_runs(folder, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    check_models(plan().jobs, plan().all_jobs, is_here=True)  # all are made by others
    for given, message in {
        "MODEL": "leaves the model open",
        "./none": r"model\.path=\./none: there is no such",
    }.items():
        found = plan(f"variants.other={{model: {{kind: pretrained, path: {given}}}}}")
        with pytest.raises(ConfigError, match=message):
            check_models(found.jobs, found.all_jobs, is_here=True)
    check_models(found.jobs, found.all_jobs, is_here=False)


SBATCH = """#!/usr/bin/env python3
import json, sys
from pathlib import Path
words = sys.argv[1:]
options = [word for word in words if word.startswith("-")]
script, *args = words[len(options):]
known = dict(option.lstrip("-").partition("=")[::2] for option in options)
queue = Path(__file__).parent / "queue.jsonl"
number = 100 + (len(queue.read_text().splitlines()) if queue.exists() else 0)
tasks = [int(task) for task in known["array"].split(",")]
text = Path(script).read_text()
entry = {"id": number, "tasks": tasks, "text": text, "args": args, "options": known}
with queue.open("a") as file:
    print(json.dumps(entry), file=file)
print(number)
"""


class Slurm:
    """A stand-in for Slurm: tasks begin in a random order that their dependencies allow; some are killed, once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in {"sbatch": SBATCH, "srun": '#!/bin/bash\nexec "$@"\n'}.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        self.began: list[str] = []

    def submit(self, script: Path, *options: str) -> None:
        subprocess.run(["bash", str(script), *options], env=self.environment, check=True, capture_output=True)

    @property
    def entries(self) -> list[dict]:
        return [json.loads(line) for line in (self.folder / "queue.jsonl").read_text().splitlines()]

    def run(self, *, kill: int, seed: int) -> None:
        draw, done = random.Random(seed), set[tuple[int, int]]()
        left = [(entry["id"], task) for entry in self.entries for task in entry["tasks"]]
        entries, killed = {entry["id"]: entry for entry in self.entries}, 0
        while left:
            free = [one for one in left if self._may_begin(entries[one[0]], one[1], done)]
            chosen = draw.choice(free)
            entry = entries[chosen[0]]
            script = self.folder / "spooled.sh"
            script.write_text(entry["text"])
            environment = {
                **self.environment,
                "SLURM_ARRAY_TASK_ID": str(chosen[1]),
                "SLURM_ARRAY_JOB_ID": str(chosen[0]),
            }
            process = subprocess.Popen(
                ["bash", str(script), *entry["args"]], env=environment, start_new_session=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            if killed < kill:  # a node that is lost: the task comes into the queue again
                killed += 1
                time.sleep(draw.uniform(0.5, 6))
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    continue
            assert process.wait() == 0, entry["args"]
            self.began.append(f"{entry['args'][0]} {chosen[1]}")
            left.remove(chosen)
            done.add(chosen)

    @staticmethod
    def _may_begin(entry: dict, task: int, done: set[tuple[int, int]]) -> bool:
        for wait in filter(None, entry["options"].get("dependency", "").split(",")):
            kind, _, number = wait.partition(":")
            assert kind == "aftercorr"
            if (int(number), task) not in done:
                return False
        return True


def test_a_script_submits_an_array_for_each_variant_that_waits_for_others(folder):
    found, slurm = plan(), Slurm(folder)
    assert write_slurm_script(folder / "jobs.sh", found, found.all_jobs, ["chain.yaml"]) == f"bash {folder}/jobs.sh"
    slurm.submit(folder / "jobs.sh", "--gpus=1")
    first, second, third = slurm.entries
    assert [entry["args"] for entry in slurm.entries] == [["other-1"], ["taught-2"], ["last-3"]]
    assert all(entry["options"]["gpus"] == "1" and entry["tasks"] == [0, 1] for entry in slurm.entries)
    assert "dependency" not in first["options"]
    assert second["options"]["dependency"] == f"aftercorr:{first['id']}"
    assert third["options"]["dependency"] == f"aftercorr:{second['id']}"


def test_what_waits_for_runs_that_are_done_waits_no_longer(folder):
    found, slurm = plan(), Slurm(folder)
    left = [job for job in found.all_jobs if job.name != "other/seed-0"]
    write_slurm_script(folder / "jobs.sh", found, left, ["chain.yaml"])
    slurm.submit(folder / "jobs.sh")
    known = {entry["args"][0]: entry for entry in slurm.entries}
    assert {name: (entry["tasks"], "dependency" in entry["options"]) for name, entry in known.items()} == {
        "other-1": ([1], False), "taught-2": ([0], False), "taught-3": ([1], True), "last-4": ([0], True),
        "last-5": ([1], True),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_study_under_slurm_comes_to_its_end_whatever_is_killed(folder):
    arguments = [sys.executable, "-m", "swerve", "study", "chain.yaml"]
    subprocess.run([*arguments, "--slurm", "jobs.sh"], check=True, capture_output=True)
    slurm = Slurm(folder)
    slurm.submit(folder / "jobs.sh")
    slurm.run(kill=2, seed=5)
    assert len(slurm.began) == 6
    assert {job.next_step() for job in plan().all_jobs} == {None}
    shutil.rmtree("runs/studies/chain/runs/other/seed-0")
    with pytest.raises(CheckpointError, match="other/seed-0 does not exist"):
        check_models(plan().jobs, (), is_here=True)
