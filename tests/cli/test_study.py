"""`swerve study` on runs that are there already, without training any."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from swerve.artifacts.files import read_sealed, sha256_file, write_sealed
from swerve.artifacts.run import RunDirectory
from swerve.recipes import dump_yaml, load_config
from swerve.recipes.loader import config_hash

STUDY = "name: pair\nrecipe: small.yaml\nseeds: 1\nvariants: {none: {}, long: {max_new_tokens: 40}}\n"


@pytest.fixture
def study(swerve, small_run, small_recipe):
    """Two variants of the small recipe that are done, made of one run."""
    shutil.copy(small_recipe, "small.yaml")
    Path("pair.yaml").write_text(STUDY)
    for variant, changes in {"none": [], "long": ["max_new_tokens=40"]}.items():
        config = load_config("small.yaml", [*changes, "seed=0", f"name=pair-{variant}-seed-0"])
        path = Path("runs/studies/pair/runs") / variant / "seed-0"
        shutil.copytree(small_run.path, path)
        _become(RunDirectory(path), config)
    shutil.copytree("runs/studies/pair/runs", "apart")
    Path("runs/studies/pair/study.yaml").write_text(STUDY.replace("small.yaml", str(Path("small.yaml").absolute())))
    return swerve


def _become(run: RunDirectory, config) -> None:
    """Let a run be one of this configuration."""
    run.config_path.write_text(dump_yaml(config))
    digest = config_hash(config)
    record = read_sealed(run.path / "run.json")
    write_sealed(
        run.path / "run.json",
        {**record, "config_hash": digest, "seed": config.seed, "config_sha256": sha256_file(run.config_path)},
    )
    for path in [*run.checkpoint_manifests(), *(run.path / "eval").glob("*.json")]:
        entry = read_sealed(path)
        if "settings" in entry:
            entry["settings"] |= config.evaluation_settings
        write_sealed(path, {**entry, "config_hash": digest, **({"seed": config.seed} if "seed" in entry else {})})


def test_a_study_that_is_done_is_only_compared(study):
    status, out, err = study("study", "pair.yaml")
    assert (status, out.splitlines()[1].split()[:2]) == (0, ["none", "1"])
    assert err.splitlines()[0] == "runs/studies/pair: variants: 2, seeds: 1, runs: 2, of which 2 are done and 0 to do"
    assert "a true difference of 27 points in greedy accuracy would be shown by 80 of 100 such studies" in err
    assert out.splitlines()[-1] == "Report: runs/studies/pair/report/index.html"
    assert study("report", "runs/studies/pair")[:2] == (0, "Report: runs/studies/pair/report/index.html\n")
    assert study("report", "pair")[:2] == (0, "Report: runs/studies/pair/report/index.html\n")
    again = study("study", "pair", "--json")
    assert json.loads(again[1])["differences"][0]["over_problems"]["mean"] == 0
    assert study("study", "pair", "--gather", "--format", "md")[1].startswith("| Variant | Seeds |")
    assert study("study", "pair", "--gather", "--format", "latex")[1].startswith(r"\begin{tabular}")
    assert study("study", "pair", "--gather", "--format", "csv")[1].startswith("measure,variant,num_seeds")


def test_what_is_left_is_listed_for_a_scheduler(study):
    shutil.rmtree("runs/studies/pair/runs/long")
    status, out, err = study("study", "pair.yaml", "--list", "jobs.txt", "--slurm", "array.sh")
    assert (status, out) == (0, "")
    (line,) = Path("jobs.txt").read_text().splitlines()
    assert line.endswith("swerve study pair.yaml --only long/seed-0")
    assert "--array=0-0" in Path("array.sh").read_text()
    assert "jobs.txt: a line for each of 1 runs" in err
    assert Path("runs/studies/pair/configs/long/seed-0.yaml").is_file()


def test_failed_runs_end_the_command_with_status_1(study, monkeypatch):
    shutil.rmtree("runs/studies/pair/runs/long")
    monkeypatch.setattr("swerve.study.run.run_jobs", lambda jobs, **_: {job.name: "no room; see x.log" for job in jobs})
    status, out, err = study("study", "pair.yaml")
    assert status == 1
    assert err.endswith("swerve: error: 1 of 2 runs failed\n  long/seed-0: no room; see x.log\n")
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["none", "long"]  # what is done is compared


def test_several_runs_are_compared(study):
    status, out, _ = study("report", "apart/none/seed-0", "apart/long/seed-0", "--out", "both")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["none", "long"]
    found = json.loads(Path("both/study.json").read_text())
    assert [one["changes"] for one in found["variants"]] == [{"max_new_tokens": 36}, {"max_new_tokens": 40}]
    assert study("report", "apart/none/seed-0", "--out", "x")[0] == 2
    assert study("report", "apart/none/seed-0", "nothing")[0] == 1
