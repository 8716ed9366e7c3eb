"""Scheduling, with children that are shell commands and say what they did by the files that they make."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from swerve.artifacts.run import RunDirectory
from swerve.errors import InterruptedRunError
from swerve.progress import SilentProgress
from swerve.recipes import load_config
from swerve.study.job import StudyJob
from swerve.study.plan import plan_study
from swerve.study.run import run_jobs, step_command
from swerve.study.schedulers import job_lines, write_slurm_script

CONFIG = load_config("demo_addition")


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch):
    monkeypatch.setattr("swerve.study.run._POLL_SECONDS", 0.02)


class MarkedJob(StudyJob):
    """A run whose steps are done when there is a file of their name."""

    def next_step(self):
        return next((step for step in self.steps if not (self.run.path / step).is_file()), None)


def jobs_in(folder: Path, *names: str) -> list[StudyJob]:
    return [
        MarkedJob(
            name=name,
            variant=name,
            config=CONFIG,
            run=RunDirectory(folder / name),
            folder=folder,
            steps=("train", "eval"),
        )
        for name in names
    ]


def shell(script: str):
    """Return a command that runs a script in the run's directory; `$step` is the step."""

    def command(job: StudyJob, step: str) -> list[str]:
        here = shlex.quote(str(job.run.path))
        return ["bash", "-c", f"mkdir -p {here}; cd {here}; step={step}; name={job.name}; {script}"]

    return command


def run(jobs, script, **budget):
    return run_jobs(jobs, **budget, progress=SilentProgress(), command=shell(script))


COUNT = """
touch ../on-$name
while [ $(ls ../on-* | wc -l) -lt MOST ] && [ ! -f ../reached ]; do sleep .01; done
touch ../reached; sleep .05; ls ../on-* | wc -l >> ../side; rm ../on-$name; echo $step >> steps; touch $step
"""


@pytest.mark.parametrize(
    ("budget", "most"),
    [({"num_jobs": 1}, 1), ({"num_jobs": 3}, 3), ({"num_jobs": 3, "memory": 10, "predict": lambda config: 5}, 2)],
)
def test_as_many_run_side_by_side_as_fit(tmp_path, budget, most):
    jobs = jobs_in(tmp_path, "a", "b", "c", "d")
    assert run(jobs, COUNT.replace("MOST", str(most)), **budget) == {}
    assert max(map(int, (tmp_path / "side").read_text().split())) <= most  # and as many were there, or all would wait
    assert {(tmp_path / job.name / "steps").read_text() for job in jobs} == {"train\neval\n"}
    assert run(jobs, "exit 1", **budget) == {}  # nothing is left to do


def test_failed_runs_are_named_and_the_others_go_on(tmp_path):
    jobs = jobs_in(tmp_path, "good", "bad", "idle", "killed")
    script = 'case $name in bad) echo "swerve: error: no room"; exit 1;; idle) exit 0;; killed) kill -9 $$;; esac; '
    script += "touch $step"
    failures = run(jobs, script, num_jobs=2)
    log = tmp_path / "logs"
    assert failures == {
        "bad": f"no room; see {log}/bad.log",
        "idle": f"train ended without what it was to make; see {log}/idle.log",
        "killed": f"killed by SIGKILL: by somebody, or by the system where memory ran out; see {log}/killed.log",
    }
    assert (tmp_path / "good" / "eval").is_file()


def test_no_further_run_starts_once_two_variants_failed_for_one_reason(tmp_path):
    jobs = jobs_in(tmp_path, "a", "a2", "b", "c")
    jobs[1] = replace(jobs[1], variant="a")  # a further seed, which says nothing of the others
    failures = run(jobs, "echo swerve: error: stage one is wrong; exit 1", num_jobs=1)
    assert not (tmp_path / "a2").exists()
    assert not (tmp_path / "c").exists()
    assert [failures[name].partition(";")[0].partition(":")[0] for name in ("a2", "c")] == ["not started"] * 2
    assert failures["a"].partition("; see ")[0] == failures["b"].partition("; see ")[0]


def test_runs_go_on_where_the_reasons_differ_or_one_is_done(tmp_path):
    failures = run(jobs_in(tmp_path, "a", "b", "c"), "echo swerve: error: $name is wrong; exit 1", num_jobs=1)
    assert [reason.startswith("not started") for reason in failures.values()] == [False] * 3
    (tmp_path / "more").mkdir()
    script = "[ $name = a ] && { touch $step; exit; }; echo swerve: error: wrong; exit 1"
    failures = run(jobs_in(tmp_path / "more", "a", "b", "c"), script, num_jobs=1)
    assert [reason.startswith("not started") for reason in failures.values()] == [False] * 2


def test_a_run_begins_when_those_are_done_that_it_waits_for(tmp_path):
    jobs = jobs_in(tmp_path, "last", "middle", "first", "alone")
    jobs[0], jobs[1] = replace(jobs[0], after=("middle",)), replace(jobs[1], after=("first", "elsewhere"))
    assert run(jobs, "echo $name >> ../order; touch $step", num_jobs=4) == {}
    order = (tmp_path / "order").read_text().split()
    assert [name for name in order if name != "alone"] == ["first"] * 2 + ["middle"] * 2 + ["last"] * 2


def test_what_waits_for_a_run_that_failed_is_not_started_and_the_others_go_on(tmp_path):
    jobs = jobs_in(tmp_path, "last", "middle", "first", "alone")
    jobs[0], jobs[1] = replace(jobs[0], after=("middle",)), replace(jobs[1], after=("first",))
    failures = run(jobs, "[ $name = alone ] || { echo swerve: error: wrong; exit 1; }; touch $step", num_jobs=1)
    assert failures == {
        "first": f"wrong; see {tmp_path}/logs/first.log",
        "middle": "not started: first, which it needs a model of, failed",
        "last": "not started: middle, which it needs a model of, failed",
    }
    assert (tmp_path / "alone" / "eval").is_file()


def test_a_run_of_several_processes_is_started_by_torchrun(tmp_path):
    job = replace(jobs_in(tmp_path, "a")[0], processes=3)
    assert step_command(job, "eval")[1:] == [
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", "-m", "swerve", "eval", str(job.run.path),
    ]  # fmt: skip


def test_a_collapse_is_a_result(tmp_path):
    (job,) = jobs_in(tmp_path, "a")
    job.run.create(config_yaml="", provenance={})
    job.run.set_status("collapsed")
    assert run([job], "touch $step; [ $step = eval ]") == {}
    job.run.set_status("failed")
    (job.run.path / "train").unlink()
    assert list(run([job], "touch $step; [ $step = eval ]")) == ["a"]


def test_what_needs_more_than_all_memory_fails_and_says_so(tmp_path):
    failures = run(jobs_in(tmp_path, "a"), "touch $step", memory=10**9, predict=lambda config: 3 * 10**9)
    assert failures == {"a": "needs about 3 of the 1 GB that --memory gives"}


def test_a_run_that_another_process_holds_is_waited_for(tmp_path):
    held, free = jobs_in(tmp_path, "held", "free")
    held.run.path.mkdir()
    holding = threading.Event()

    def hold():
        with held.run.lock():
            holding.set()
            time.sleep(0.8)
            (tmp_path / "released").touch()

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait()
    failures = run([held, free], "[ $name = free ] || [ -f ../released ] || exit 1; touch $step")
    thread.join()
    assert failures == {}


def test_an_interrupted_study_asks_its_children_to_stop_and_waits_for_them(tmp_path):
    jobs = jobs_in(tmp_path, "a", "b", "c")
    script = "trap 'sleep .2; touch saved; exit 130' INT; touch begun; while :; do sleep .05; done"

    def interrupt():
        while not ((tmp_path / "a" / "begun").is_file() and (tmp_path / "b" / "begun").is_file()):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(InterruptedRunError, match="0 of 3 runs are done") as caught:
        run(jobs, script, num_jobs=2)
    thread.join()
    assert caught.value.exit_status == 130
    assert [(tmp_path / name / "saved").is_file() for name in "abc"] == [True, True, False]


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells children of their parent's end on Linux alone")
def test_children_of_a_killed_study_are_asked_to_stop(tmp_path):
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_run import *
run(jobs_in(Path({str(tmp_path)!r}), "a"), "trap 'touch saved; exit 130' INT; touch begun; while :; do sleep .05; done")
"""
    parent = subprocess.Popen([sys.executable, "-c", code])
    _wait_for(tmp_path / "a" / "begun")
    parent.kill()
    parent.wait()
    saved = tmp_path / "a" / "saved"
    _wait_for(saved)
    assert saved.is_file()


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.is_file():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_children_share_the_cores_unless_told_otherwise(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    (job,) = jobs_in(tmp_path, "a")
    script = "echo $OMP_NUM_THREADS > threads; touch $step"
    run([job], script, num_jobs=3)
    assert (job.run.path / "threads").read_text() == "\n"  # the recipe says one
    object.__setattr__(job, "config", load_config("gsm8k", ["model.path=x"]))
    (job.run.path / "train").unlink()
    run([job], script, num_jobs=3)
    assert (job.run.path / "threads").read_text() == "2\n"


def test_lists_for_schedulers_have_a_line_for_each_run(tmp_path, monkeypatch):
    tmp_path /= "it's 5% $HOME"
    tmp_path.mkdir()
    monkeypatch.chdir(tmp_path)
    plan = plan_study("demo_study", ["seeds=1"], out=None, runs=Path("runs"))
    arguments = ["demo_study", "variants.kl={stages.rl.kl.coef: '0'}"]
    lines = job_lines(plan.jobs, arguments)
    assert len(lines) == 3
    words = shlex.split(lines[1])
    assert words[:4] == ["cd", str(tmp_path), "&&", "exec"]
    assert words[4:] == [sys.executable, "-m", "swerve", "study", *arguments, "--only", "reward/seed-0"]
    write_slurm_script(tmp_path / "array.sh", plan, plan.jobs, arguments)
    script = (tmp_path / "array.sh").read_text()
    assert "--array=0-2" in script
    (output,) = [line for line in script.splitlines() if line.startswith("#SBATCH --output=")]
    logs = tmp_path / "runs/studies/demo-study/logs/slurm"
    # Slurm splits options as a shell does, and reads % as the beginning of a field.
    assert shlex.split(output, comments=False)[1] == f"--output={str(logs).replace('5%', '5%%')}/%A_%a.log"
    stub = f"srun() {{ printf '%s\\n' \"$3\"; }}\nSLURM_ARRAY_TASK_ID=1\n{script}"
    shown = subprocess.run(["bash", "-c", stub], capture_output=True, text=True, check=True)
    assert shown.stdout == f"{lines[1]}\n"


def test_commands_are_those_of_swerve(tmp_path):
    (job,) = jobs_in(tmp_path, "a")
    assert step_command(job, "train")[1:] == [
        "-m", "swerve", "train", str(job.config_path), "--out", str(job.run.path), "--resume-or-start",
    ]  # fmt: skip
    assert step_command(job, "eval")[1:] == ["-m", "swerve", "eval", str(job.run.path)]
