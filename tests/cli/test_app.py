from __future__ import annotations

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from swerve import __version__
from swerve.artifacts.evaluation import Evaluation
from swerve.artifacts.metrics import append_metrics
from swerve.artifacts.probe_summary import ProbeSummary
from swerve.artifacts.run import RunDirectory
from swerve.cli.app import describe_failure
from swerve.config.recipe import Config, ReportConfig
from swerve.errors import InterruptedRunError, MissingExtraError, QuietExit, StalledProcessError, SwerveError
from swerve.progress import Progress
from swerve.recipes import config_hash, dump_yaml, load_config, shipped_recipes
from swerve.recipes.files import RECIPE_USES
from swerve.report import run_page
from swerve.study.job import StudyJob

Swerve = Callable[..., tuple[int, str, str]]


SUMMARY = ProbeSummary(
    reference="dpo-8",
    final="rl-80",
    baseline=None,
    checkpoints=("rl-80",),
    weights_sha256={},
    num_problems=4,
    num_reference_wrong=None,
    num_reference_wrong_final_right=None,
    selection="greedy",
    mcnemar=None,
    reselected=None,
    population="reference_wrong_final_right",
    divergence="js",
    spike_method="zscore",
    confidence=0.95,
    num_rollouts=0,
    reliable=False,
)


class Stages:
    """Stand-ins for the stages, recording how they were called."""

    def __init__(self, filled: Any) -> None:
        self.filled = filled
        self.calls: list[tuple[str, Config | ReportConfig, Path, bool | None]] = []
        self.error: BaseException | None = None
        self.environment: dict[str, str | None] = {}
        self.profile: str | None = None

    def train_run(
        self,
        config: Config,
        run: RunDirectory,
        *,
        resume: bool,
        progress: Progress,
        verify: bool = False,
        profile: str | None = None,
    ) -> None:
        if self.error is not None:
            raise self.error
        self.profile = profile
        self.environment = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")}
        if not resume:
            run.create(config_yaml=dump_yaml(config), provenance={})
        self.calls.append(("train", config, run.path, resume))

    def evaluate_run(self, config: Config, run: RunDirectory, *, progress: Progress) -> list[Evaluation]:
        self.calls.append(("evaluate", config, run.path, None))
        accuracy = {"mean": 0.5, "low": 0.1, "high": 0.9}
        given = {"checkpoint": "rl-80", "stage": "rl", "step": 588}
        given["greedy"] = {"num_problems": 4, "accuracy": accuracy}
        evaluation = Evaluation.model_validate(self.filled(Evaluation, given))
        evaluation.write(run.path / "eval" / "step_000588.json")
        return [evaluation]

    def probe_run(self, config: Config, run: RunDirectory, *, progress: Progress, shard: object = None) -> ProbeSummary:
        self.calls.append(("probe", config, run.path, None))
        SUMMARY.write(run.probe_path / "summary.json")
        return SUMMARY

    def write_page(self, run: RunDirectory, *, options: ReportConfig) -> Path:
        self.calls.append(("report", options, run.path, None))
        return run.report_path / "index.html"


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch, filled: Any) -> Stages:
    stages = Stages(filled)
    homes = {"train.loop": "train_run", "eval.heldout": "evaluate_run", "probe.from_run": "probe_run"}
    for place, function in homes.items():
        module = ModuleType(f"swerve.{place}")
        setattr(module, function, getattr(stages, function))
        monkeypatch.setitem(sys.modules, module.__name__, module)
    # What else others import of it, such as the problems of which the disk is counted.
    others = ("evaluate_checkpoint", "evaluate_problems", "heldout_scores", "write_evaluation")
    vars(sys.modules["swerve.eval.heldout"]).update(dict.fromkeys(others), heldout_problems=lambda *_: [])
    monkeypatch.setattr(run_page, "write_page", stages.write_page)
    return stages


def make_run(path: Path, *overrides: str, recipe: str = "demo_addition") -> RunDirectory:
    run = RunDirectory(path)
    config = load_config(recipe, overrides)
    stages = {stage.label: stage.steps for stage in config.stages}
    run.create(config_yaml=dump_yaml(config), provenance={"stages": stages})
    return run


# Starting up


def test_version(swerve: Swerve) -> None:
    assert swerve("--version") == (0, f"swerve {__version__}\n", "")


# Usage errors: one line, status 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["config", "check", "demo_additon"],
            "unknown recipe 'demo_additon'; did you mean 'demo_addition'? "
            f"(shipped: {', '.join(shipped_recipes())}; or give the path of a YAML file)",
        ),
        (["train", "demo_addition", "sed=1"], "override 'sed=1': unknown key 'sed'; did you mean 'seed'?"),
        (
            ["demo", "task=addit"],
            "override 'task=addit': no demo has this task; did you mean 'addition'? "
            "(addition, knights_knaves, multiplication)",
        ),
        (
            ["train", "demo_addition", "name=../up"],
            "run name '../up' is not allowed: use 1 to 100 letters, digits, '.', '_' and '-', starting with a letter, "
            "a digit or '_'; set it with name=NAME, or choose a directory with --out",
        ),
        (
            ["train", "runs/none", "--resume"],
            "--resume: 'runs/none' is neither a run nor a recipe; `swerve runs` "
            "lists the runs under runs/, and a new run starts without --resume",
        ),
        (["demo", "--resume"], "run directory runs/demo-multiplication does not exist; start it without --resume"),
    ],
)
def test_wrong_arguments(swerve: Swerve, stages: Stages, arguments: list[str], message: str) -> None:
    status, out, err = swerve(*arguments)
    assert (status, out) == (2, "")
    assert err == f"swerve: error: {message}\n"
    assert stages.calls == []


@pytest.mark.parametrize("command", ["sample", "probe", "claim"])
def test_a_long_example_of_help_goes_on_in_a_line_of_its_own(swerve: Swerve, command: str) -> None:
    status, out, _ = swerve(command, "--help")
    examples = out.split("Examples:")[1].splitlines()
    assert status == 0
    assert not any("  " in line.strip() for line in examples)


@pytest.mark.parametrize(
    ("arguments", "start", "end"),
    [
        (["trian"], "No such command 'trian'", "; see: swerve --help"),
        (["train"], "Missing argument 'RECIPE'", "; see: swerve train --help"),
        (["train", "demo_addition", "--outt", "x"], "No such option: --outt", "; see: swerve train --help"),
        (["runs", "--dir"], "Option '--dir' requires an argument", ""),
    ],
)
def test_wrong_usage(swerve: Swerve, arguments: list[str], start: str, end: str) -> None:
    status, out, err = swerve(*arguments)
    assert (status, out) == (2, "")
    # What stands between them, such as a suggestion, differs with typer's version.
    assert err.startswith(f"swerve: error: {start}")
    assert err.endswith(f"{end}\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["", ".", "..", "/tmp/x", "a/b", "a\0b", "a b", "a" * 101, "é", "-rf", "--out"])
def test_run_names_stay_in_the_runs_directory(swerve: Swerve, stages: Stages, name: str) -> None:
    status, _, err = swerve("train", "demo_addition", f"name={json.dumps(name)}")
    assert status == 2
    assert "is not allowed: use 1 to 100 letters" in err
    assert stages.calls == []


@pytest.mark.parametrize("command", [["train", "demo_addition"], ["train", "demo_addition", "--resume-or-start"]])
@pytest.mark.parametrize("out", ["-rf", "runs/--resume"])
def test_directories_of_runs_do_not_look_like_options(
    swerve: Swerve, stages: Stages, command: list[str], out: str
) -> None:
    status, _, err = swerve(*command, "--out", out)
    assert status == 2
    assert err.startswith(f"swerve: error: --out {out!r} is not allowed: the directory's name starts with '-'")
    assert stages.calls == []


# Failures of stages


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (SwerveError("it broke\nbadly [/bold]"), 1, "swerve: error: it broke badly [/bold]"),
        (
            MissingExtraError("vllm", "vllm", "the vllm engine"),
            1,
            "swerve: error: the vllm engine needs the package 'vllm'; install it with: pip install 'swerve[vllm]'",
        ),
        (
            InterruptedRunError("stopped after step 3; continue with: swerve train x", signal_number=15),
            143,
            "swerve: stopped after step 3; continue with: swerve train x",
        ),
        (
            KeyboardInterrupt(),
            130,
            "swerve: interrupted; what was written so far is kept; continue with: swerve train demo_addition "
            "--resume-or-start",
        ),
        (KeyError("x"), 1, "swerve: internal error: KeyError: 'x'; run again with --debug"),
        (PermissionError(errno.EACCES, "Permission denied", "runs/x"), 1, "swerve: error: runs/x: Permission denied"),
        (OSError("no file named\nmodel.safetensors in m"), 1, "swerve: error: no file named model.safetensors in m"),
        (
            OSError(errno.ENOSPC, "No space left on device", "runs/x"),
            1,
            "swerve: error: disk full while writing runs/x; nothing of it was kept and earlier artifacts are intact; "
            "free some space and run the command again (training continues with --resume)",
        ),
    ],
)
def test_failures_are_one_line(swerve: Swerve, stages: Stages, error: BaseException, status: int, line: str) -> None:
    stages.error = error
    code, out, err = swerve("train", "demo_addition")
    assert (code, out) == (status, "")
    assert err.splitlines() == ["run directory: runs/demo-addition", line]


@pytest.mark.parametrize("arguments", [["--debug", "train", "demo_addition"], ["train", "demo_addition", "--debug"]])
def test_debug_shows_the_traceback_before_the_line(swerve: Swerve, stages: Stages, arguments: list[str]) -> None:
    stages.error = KeyError("x")
    status, _, err = swerve(*arguments)
    assert status == 1
    assert "Traceback (most recent call last):" in err
    assert err.endswith("swerve: internal error: KeyError: 'x'; run again with --debug\n")


def test_a_reader_that_closes_the_pipe_ends_the_command_quietly() -> None:
    command = f"'{sys.executable}' -m swerve config schema | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


# train


def test_train_calls_the_stage_and_prepares_the_environment(swerve: Swerve, stages: Stages) -> None:
    status, out, err = swerve("train", "demo_addition", "seed=5", "--out", "here")
    assert (status, out, err) == (0, "", "run directory: here\n")
    assert stages.calls == [("train", load_config("demo_addition", ["seed=5"]), Path("here"), False)]
    assert stages.environment == {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def test_the_users_environment_wins(swerve: Swerve, stages: Stages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    swerve("train", "demo_addition")
    assert stages.environment == {"OMP_NUM_THREADS": "7", "OMP_WAIT_POLICY": "PASSIVE"}


def test_an_existing_run_is_not_overwritten(swerve: Swerve, stages: Stages) -> None:
    make_run(Path("runs/demo-addition"))
    assert swerve("train", "demo_addition") == (
        2,
        "",
        "swerve: error: run directory runs/demo-addition exists; continue it with --resume (in Python resume=True), "
        "choose another with --out (out=), or delete it\n",
    )
    assert stages.calls == []


@pytest.mark.parametrize("recipe", ["demo_addition", "runs/demo-addition", "demo-addition"])
def test_resume_by_recipe_or_by_run(swerve: Swerve, stages: Stages, recipe: str) -> None:
    make_run(Path("runs/demo-addition"))
    status, out, _ = swerve("train", recipe, "--resume", "--json")
    assert status == 0
    assert json.loads(out) == {"run": "runs/demo-addition", "checkpoints": []}
    assert [(call[0], call[2], call[3]) for call in stages.calls] == [("train", Path("runs/demo-addition"), True)]


def test_a_requeued_job_starts_a_run_and_continues_it(swerve: Swerve, stages: Stages) -> None:
    command = ("train", "demo_addition", "seed=3", "--resume-or-start")
    assert swerve(*command)[::2] == (0, "run directory: runs/demo-addition\n")
    assert swerve(*command)[::2] == (0, "run directory: runs/demo-addition\n")
    assert swerve("train", "demo-addition", "--resume-or-start")[0] == 0
    assert [(call[2], call[3]) for call in stages.calls] == [
        (Path("runs/demo-addition"), False),
        (Path("runs/demo-addition"), True),
        (Path("runs/demo-addition"), True),
    ]
    status, _, err = swerve("train", "demo_addition", "seed=4", "--resume-or-start")
    assert status == 2
    assert "cannot resume runs/demo-addition: its configuration differs in 'seed'" in err
    assert swerve("train", "demo_addition", "--resume-or-start", "--out", "here")[0] == 0
    assert stages.calls[-1][2:] == (Path("here"), False)


def test_resume_refuses_another_configuration(swerve: Swerve, stages: Stages) -> None:
    make_run(Path("runs/demo-addition"))
    status, _, err = swerve("train", "demo_addition", "seed=1", "stages.rl.steps=90", "--resume")
    assert status == 2
    assert err == (
        "swerve: error: cannot resume runs/demo-addition: its configuration differs in 'seed', 'stages.rl.steps'; "
        "give the same recipe and overrides, or start another run with --out\n"
    )
    assert stages.calls == []


# demo


def test_demo_runs_every_stage(swerve: Swerve, stages: Stages) -> None:
    status, out, err = swerve("demo", "seed=2", "task=knights_knaves")
    assert status == 0
    config = load_config("demo_knights_knaves", ["seed=2"])
    path = Path("runs/demo-knights-knaves")
    assert stages.calls == [
        ("train", config, path, False),
        ("evaluate", config, path, None),
        ("probe", config, path, None),
        ("report", config.report, path, None),
    ]
    *verdicts, last = out.splitlines()
    assert verdicts == [
        "One training run; what holds over several: swerve demo task=knights_knaves --seeds 5",
        "Not tested: whether the changed token causes the answer. No token was forced at a spike: there is no rollout "
        "to compare.",
    ]
    assert last.endswith(": runs/demo-knights-knaves/report/index.html")
    assert err == "run directory: runs/demo-knights-knaves\n"


def test_demo_takes_the_next_free_name_and_says_so(swerve: Swerve, stages: Stages) -> None:
    for name in ("demo-multiplication", "demo-multiplication-2"):
        page = make_run(Path("runs") / name, recipe="demo_multiplication").report_path / "index.html"
        page.parent.mkdir()
        page.touch()
    status, _, err = swerve("demo", "--json")
    assert status == 0
    assert err.splitlines()[0] == "runs/demo-multiplication exists; this run goes to runs/demo-multiplication-3"
    assert stages.calls[0][2] == Path("runs/demo-multiplication-3")


def test_an_interrupted_demo_is_not_begun_anew(swerve: Swerve, stages: Stages) -> None:
    make_run(Path("runs/demo-multiplication"), "seed=3", recipe="demo_multiplication")
    assert swerve("demo", "seed=3")[::2] == (
        2,
        "swerve: error: runs/demo-multiplication was interrupted; continue it with: swerve demo seed=3 --resume, or "
        "begin another with --out DIR\n",
    )
    assert swerve("demo", "seed=4")[0] == 0
    assert stages.calls[0][2] == Path("runs/demo-multiplication-2")


def test_demo_resumes_the_latest(swerve: Swerve, stages: Stages) -> None:
    for name in ("demo-multiplication", "demo-multiplication-2"):
        make_run(Path("runs") / name, recipe="demo_multiplication")
    assert swerve("demo", "--resume")[0] == 0
    assert stages.calls[0][2:] == (Path("runs/demo-multiplication-2"), True)


@pytest.fixture
def study_runs(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that a study has done, without a process: none of seed 1 at first."""
    done: list[str] = []

    def do(jobs: Sequence[StudyJob], *, progress: Progress, **_: object) -> dict[str, str]:
        failures = {}
        for job in jobs:
            if job.seed == 1 and "demo/seed-0" not in done[1:]:
                failures[job.name] = "killed"
            else:
                job.run.create(config_yaml=dump_yaml(job.config), provenance={"seed": job.seed})
                job.run.set_status("trained")
                stages.evaluate_run(job.config, job.run, progress=progress)
                stages.probe_run(job.config, job.run, progress=progress)
            done.append(job.name)
        return failures

    monkeypatch.setattr("swerve.study.run.run_jobs", do)
    return done


def test_demo_of_several_seeds_is_a_study_that_continues(swerve: Swerve, stages: Stages, study_runs: list[str]) -> None:
    # A run that failed is named, beside what the others found.
    status, out, err = swerve("demo", "--seeds", "2", "task=addition", "stages.rl.steps=40")
    assert status == 1
    assert "1 of 2 runs failed" in err
    assert "demo/seed-1: killed" in err
    assert out.startswith("HEADLINE              SEED 0  OVER SEEDS (95%)\nNot tested for cause  yes     1 of 1\n")
    folder = Path("runs/studies/demo-addition")
    assert load_config(folder / "runs" / "demo" / "seed-0" / "config.yaml") == load_config(
        "demo_addition", ["stages.rl.steps=40", "name=demo-addition-demo-seed-0"]
    )

    # The same command does what is left; its pages are those of the runs, and one of all.
    study_runs.insert(0, "")
    status, out, err = swerve("demo", "--seeds", "2", "task=addition", "stages.rl.steps=40", "--json")
    assert (status, study_runs) == (0, ["", "demo/seed-0", "demo/seed-1", "demo/seed-1"])
    assert "runs/studies/demo-addition: 2 runs of demo_addition, 1 done" in err
    told = json.loads(out)
    assert told["headlines"][0]["OVER SEEDS (95%)"] == "2 of 2"
    assert told["runs"] == [str(folder / "runs" / "demo" / f"seed-{seed}") for seed in (0, 1)]
    assert [call[2].name for call in stages.calls if call[0] == "report"] == ["seed-0", "seed-0", "seed-1"]
    assert Path(told["report"]).is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "3", "seed=1"], "override 'seed=1': --seeds 3 trains with seeds 0 to 2; leave it out"),
        (["--seeds", "2", "sed=1"], "override 'sed=1': unknown key 'sed'; did you mean 'seed'?"),
        (["--seeds", "2", "variants={}"], "override 'variants={}': unknown key 'variants'"),
        (["--seeds", "2", "name=../up"], "../up"),
    ],
)
def test_demo_of_several_seeds_takes_what_one_takes(
    swerve: Swerve, stages: Stages, arguments: list[str], message: str
) -> None:
    status, out, err = swerve("demo", *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert not Path("runs").exists()


# eval, probe, report


def test_stages_run_alone_on_a_run(swerve: Swerve, stages: Stages) -> None:
    make_run(Path("runs/mine"))
    overrides = ["probe.max_rollouts=3", "eval.num_problems=2"]
    config = load_config("demo_addition", overrides)
    status, out, _ = swerve("eval", "runs/mine", *overrides)
    assert (status, out.splitlines()[2]) == (0, "rl-80       50% (10 to 90)")
    status, out, _ = swerve("probe", "mine", *overrides, "--json")
    assert (status, json.loads(out)) == (0, SUMMARY.model_dump(mode="json"))
    status, out, _ = swerve("report", "runs/mine", "report.title=Mine")
    assert (status, out) == (0, "Report: runs/mine/report/index.html\n")
    report = ReportConfig(title="Mine")
    assert [call[:3] for call in stages.calls] == [
        ("evaluate", config, Path("runs/mine")),
        ("probe", config, Path("runs/mine")),
        ("report", report, Path("runs/mine")),
    ]


def test_the_profile_that_is_chosen_reaches_training(swerve: Swerve, stages: Stages, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: demo_addition\nprofiles: {short: {stages.rl.steps: 3}}\n")
    assert swerve("train", "mine.yaml", "profile=short", "seed=2")[0] == 0
    assert stages.calls[0][1] == load_config("demo_addition", ["seed=2", "stages.rl.steps=3"])
    assert stages.profile == "short"
    assert swerve("train", "mine.yaml", "--out", "plain")[0] == 0
    assert stages.profile is None


def test_what_was_trained_cannot_be_overridden(swerve: Swerve, stages: Stages) -> None:
    make_run(Path("runs/mine"))
    assert swerve("probe", "runs/mine", "seed=1") == (
        2,
        "",
        "swerve: error: override 'seed=1': the run is trained already; "
        "only keys under eval., probe., report., rollout., runtime. can be changed\n",
    )


def test_a_run_that_is_not_one(swerve: Swerve, stages: Stages, tmp_path: Path) -> None:
    assert swerve("report", "nothing")[2] == (
        "swerve: error: run directory nothing does not exist; `swerve runs` lists those under runs/\n"
    )
    (tmp_path / "empty").mkdir()
    status, _, err = swerve("report", "empty")
    assert (status, err) == (1, "swerve: error: empty is not a run directory (it has no run.json)\n")


# Looking

RECIPES = [name for use in RECIPE_USES for name in shipped_recipes(use)]


def test_recipes(swerve: Swerve) -> None:
    status, out, _ = swerve("recipes")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines() if not line.startswith(" ")] == RECIPES
    names = [entry["name"] for entry in json.loads(swerve("recipes", "--json")[1])]
    assert names == RECIPES
    assert all(entry["description"].endswith((".", "?")) for entry in json.loads(swerve("recipes", "--json")[1]))
    assert {"demo_addition", "demo_knights_knaves", "sequence"} <= set(names)
    assert swerve("recipes", "show", "demo_addition")[1].startswith("# Column addition")


def test_recipes_of_every_command_are_listed_shown_and_checked(swerve: Swerve) -> None:
    entries = {(one["command"], one["name"]): one for one in json.loads(swerve("recipes", "--json")[1])}
    assert "tiny" in entries["train", "kl_study"]["profiles"]
    assert entries["train", "k_and_k_curriculum"]["profiles"] == entries["train", "k_and_k"]["profiles"]  # inherited
    assert entries["train", "sequence"]["profiles"] == []
    assert swerve("recipes", "show", "kl_study")[1].startswith("# RL without a KL term")
    assert swerve("recipes", "show", "kl_study", "--command", "study")[1].startswith("# KL regularisers")
    assert swerve("recipes", "show", "rl_probe")[1].startswith("# At which tokens")
    status, _, err = swerve("recipes", "show", "sequence", "--command", "prob")
    assert (status, err) == (
        2,
        "swerve: error: --command 'prob' is not one of train, probe, study; did you mean 'probe'?\n",
    )
    assert "word-problems-dpo:rl-10" in swerve("config", "show", "rl_probe", "profile=tiny")[1]
    assert swerve("config", "check", "rl_probe", "reference=step-40")[2] == (
        "swerve: error: override 'reference=step-40': 'reference': there is no model 'step-40'; did you mean "
        "'step-400'?; models are sft, dpo, step-400, step-1200, step-2440\n"
    )


@pytest.mark.slow
def test_a_shown_recipe_and_a_shown_config_can_be_used(swerve: Swerve, tmp_path: Path) -> None:
    config = load_config("demo_addition", ["seed=4"])
    (tmp_path / "mine.yaml").write_text(swerve("config", "show", "demo_addition", "seed=4")[1], encoding="utf-8")
    assert load_config("mine.yaml") == config
    assert json.loads(swerve("config", "show", "mine.yaml", "--json")[1]) == config.model_dump(mode="json")
    status, out, _ = swerve("config", "check", "mine.yaml")
    first, *stages, heading, memory, disk, tokens, _ = out.splitlines()
    assert [line.partition(" steps")[0] for line in stages] == ["stage sft: 500", "stage dpo: 8", "stage rl: 80"]
    assert (status, first) == (0, f"mine.yaml: valid, configuration {config_hash(config)}")
    assert heading.split() == ["WHAT", "HOW", "MUCH", "OF", "WHAT"]
    held = r"memory +0.4 of [\d.]+ GB +stage rl: weights 0.0004, .*, sampling 0.0\d+, libraries 0.34"
    assert re.fullmatch(held, memory)
    assert re.fullmatch(r"disk +0.02\d GB +weights of 10 checkpoints 0.004, .*; \d+ GB are free in .*", disk)
    assert re.fullmatch(r"tokens, training +2,479,104 +at most", tokens)  # 500 x 64, 8 x 2 x 32, 80 x 128 texts
    status, _, error = swerve("config", "check", "mine.yaml", "--memory", "0.02")
    assert (status, error.startswith("swerve: error: stage 'rl' needs about 0.4")) == (2, True)
    assert error.endswith("lower stages.rl.tokens_per_batch, or set runtime.activation_checkpointing=full\n")
    rerun = "runtime.activation_checkpointing=full"
    status, _, error = swerve("config", "check", "mine.yaml", rerun, "--memory", "0.01")
    assert (status, error.endswith("lower stages.rl.tokens_per_batch\n")) == (2, True)
    given = ("mine.yaml", "rollout.engine={kind: server}", "--memory", "1")
    out = swerve("config", "check", *given)[1]
    assert re.search(r"server, same device +0\.\d+ GB or more .*; --gpu-memory-utilization 0\.[56]\d at most\n", out)
    assert re.search(r"server, elsewhere +0 GB +it holds its own\n", out)
    assert not re.search("memory .*sampling", out)
    for size in ("0", "nan", "inf"):
        status, _, error = swerve("config", "check", "mine.yaml", "--memory", size)
        assert (status, "'--memory': Input should be" in error) == (2, True)
    status, out, _ = swerve("config", "check", "gsm8k", "--json")
    assert (status, json.loads(out)["memory"]) == (0, None)
    assert json.loads(swerve("config", "schema")[1])["title"] == "Config"


def test_config_check_loads_custom_parts_and_lists_what_presets_leave_out(swerve: Swerve, tmp_path: Path) -> None:
    Path("mine.py").write_text("def loss(logprobs, old_logprobs, advantages):\n    return -advantages * logprobs\n")
    check = ("config", "check", "demo_addition")
    status, out, _ = swerve(*check, "stages.rl.preset=rl2", "stages.rl.loss={kind: custom, path: mine.py:loss}")
    note = "stages.rl: beside its preset, RL2 decays weights: optimizer: {weight_decay: 0.01}"
    assert (status, out.partition("WHAT")[0].splitlines()[1:]) == (
        0,
        [
            note,
            "stage sft: 500 steps",
            "stage dpo: 8 steps, at most 8,192 completions, 589,824 tokens",
            "stage rl: 80 steps, at most 10,240 completions, 737,280 tokens",
        ],
    )
    status, _, error = swerve(*check, "stages.rl.loss={kind: custom, path: mine.py:los}")
    place = tmp_path / "mine.py"
    assert (status, error) == (
        2,
        f"swerve: error: stages.rl.loss: {place} has no function or class 'los'; did you mean 'loss'?\n",
    )


def test_runs(swerve: Swerve) -> None:
    assert swerve("runs")[:2] == (0, "No runs in runs/.\n")
    run = make_run(Path("runs/mine"))
    for step, reward in ((40, 0.5), (41, 0.25)):
        place = {"step": step, "stage": "rl", "stage_step": step - 40 + 1}
        append_metrics(run.metrics_path, {**place, "reward": reward, "eval_accuracy": step / 100})
    dates = {"date": "2025-06-15 15:06", "seconds": 75.0}, {"date": "2027-01-15 08:00"}
    for each, record in zip((run, make_run(Path("runs/other"))), dates, strict=True):
        each.write_provenance({**each.read_provenance(), **record})
    make_run(Path("runs/[red]"))
    Path("runs/[red]/run.json").write_text("{", encoding="utf-8")
    status, out, err = swerve("runs")
    assert status == 0
    assert out.splitlines() == [
        "RUN    BEGAN                 TRAINED FOR  STATUS      STAGES        STEPS   BEST ACCURACY  BEST REWARD",
        "[red]  -                     -            unreadable  unreadable    -       -              -",
        "mine   2025-06-15 15:06 UTC  1 min 15 s   created     sft, dpo, rl  41/588  41.0% (rl-2)   0.500 (rl-1)",
        "other  2027-01-15 08:00 UTC  -            created     sft, dpo, rl  -       -              -",
    ]
    assert err.startswith("swerve: warning: runs/[red]/run.json is not readable JSON")
    entries = json.loads(swerve("runs", "--json")[1])
    assert entries[1] == {
        "name": "mine",
        "date": "2025-06-15 15:06",
        "seconds": 75.0,
        "status": "created",
        "stages": ["sft", "dpo", "rl"],
        "last_step": 41,
        "num_steps": 588,
        "accuracy": {"value": 0.41, "at": "rl-2"},
        "reward": {"value": 0.5, "at": "rl-1"},
    }


def test_runs_says_of_a_run_that_trains_no_more_that_it_was_killed(swerve: Swerve) -> None:
    run = make_run(Path("runs/mine"))
    run.set_status("training")
    with run.lock():
        assert json.loads(swerve("runs", "--json")[1])[0]["status"] == "training"
    assert json.loads(swerve("runs", "--json")[1])[0]["status"] == "killed"
    with run.lock():  # looking does not hold it
        pass
    assert run.read_provenance()["status"] == "training"


@pytest.mark.parametrize(
    ("error", "rank", "said"),
    [
        (StalledProcessError("rank 0 was killed"), "1", "swerve: error: rank 0 was killed"),
        (QuietExit("rank 2 was killed"), "0", ""),
        (InterruptedRunError("interrupted", signal_number=2), "1", ""),
        (InterruptedRunError("interrupted", signal_number=2), "0", "swerve: interrupted"),
        (
            MemoryError("3 GiB"),
            "0",
            "swerve: error: out of memory: 3 GiB; swerve config check RECIPE predicts it",
        ),
    ],
)
def test_one_of_several_processes_says_what_went_wrong(
    monkeypatch: pytest.MonkeyPatch, error: Exception, rank: str, said: str
) -> None:
    monkeypatch.setenv("RANK", rank)
    assert describe_failure(error)[0] == said


def test_a_restarted_job_continues_the_run_that_it_began_and_no_other(
    swerve: Swerve, stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job 1")
    assert swerve("train", "demo_addition")[0] == 0
    status, _, err = swerve("train", "demo_addition")
    assert (status, stages.calls[-1][3]) == (0, True)
    assert "torchrun started the processes again: the run continues" in err
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job 2")
    status, _, err = swerve("train", "demo_addition")
    assert (status, "exists; continue it with --resume" in err) == (2, True)


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_only_the_first_process_reports(
    swerve: Swerve, stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    make_run(tmp_path / "runs" / "mine")
    monkeypatch.setenv("RANK", "1")
    assert swerve("probe", "mine", *more) == (0, "", "")
    assert [call[0] for call in stages.calls] == ["probe"]
    monkeypatch.setenv("RANK", "0")
    assert "rl-80" in swerve("probe", "mine", *more)[1]


def test_an_interrupted_training_of_a_demo_is_continued_as_a_demo() -> None:
    line, status = describe_failure(InterruptedRunError("saved", signal_number=15), arguments=["demo", "seed=1"])
    assert line.endswith("; continue with: swerve demo seed=1 --resume")
    assert status == 143


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--from", "2", "--flip=0.1"], "what was written so far is kept"),
        ([], "it begins anew, and leaves nothing half done"),
    ],
)
def test_an_interrupted_replay_keeps_what_it_has_of_changes(words: list[str], kept: str) -> None:
    line, _ = describe_failure(KeyboardInterrupt(), arguments=["replay", "mine", *words])
    assert line == f"swerve: interrupted; {kept}; continue with: {shlex.join(['swerve', 'replay', 'mine', *words])}"


_SIGNALLED = """
import os, signal, sys

class Signalling:
    def find_spec(self, name, *_):
        if name == module:
            try:
                os.kill(os.getpid(), number)
            except KeyboardInterrupt:
                raise ImportError("a library makes an error of its own of it")

module, number = sys.argv[1], signal.Signals[sys.argv[2]]
if sys.argv[3] == "ignored":
    signal.signal(number, signal.SIG_IGN)
elif number == signal.SIGHUP:  # whatever the tests themselves run under
    signal.signal(number, signal.SIG_DFL)
sys.meta_path.insert(0, Signalling())
from swerve.cli import main
sys.argv[1:] = ["grade", "a.jsonl", "--task", "math", "--out", "g.jsonl"]
main()
"""


@pytest.mark.parametrize(
    "number", ["SIGHUP", *(pytest.param(n, marks=pytest.mark.slow) for n in ("SIGTERM", "SIGINT"))]
)
def test_a_signal_at_the_start_ends_with_a_line_and_its_status(number: str, tmp_path: Path) -> None:
    begun = (
        "swerve: interrupted; what was written so far is kept; continue with: swerve grade a.jsonl --task math --out g"
    )
    cases = {
        ("swerve.cli.app", "heard"): "swerve: interrupted before it began; run the same command again\n",
        ("swerve.eval.answer_files", "heard"): f"{begun}.jsonl\n",
    }
    if number == "SIGHUP":  # as under nohup
        cases["swerve.cli.app", "ignored"] = "swerve: error: a.jsonl does not exist; give a file that ends in"
    for (module, mode), said in cases.items():
        ended = subprocess.run(
            [sys.executable, "-c", _SIGNALLED, module, number, mode], cwd=tmp_path, capture_output=True, text=True
        )
        status = {"SIGHUP": 129, "SIGTERM": 143, "SIGINT": 130}[number] if mode == "heard" else 1
        assert (ended.returncode, ended.stderr[: len(said)]) == (status, said)
    assert list(tmp_path.iterdir()) == []
