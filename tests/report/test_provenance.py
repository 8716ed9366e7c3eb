"""The line of every page that says where it is from."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from swerve.artifacts.study import Study, StudyRun, StudyVariant
from swerve.report.provenance import run_provenance, samples_provenance, study_provenance

RECORDED = {
    "date": "2026-11-26 18:56",
    "seconds": 83.6,
    "machine": "Linux x86_64, 2 CPU threads",
    "swerve_version": "0.1.0",
    "torch_version": "2.13.0",
    "seed": 0,
    "command": "swerve train demo_addition",
    "folder": 4406,
}


def test_the_line_of_a_run_has_what_people_ask_for_first(inputs_of: Any) -> None:
    summary = {"weights_sha256": {"dpo-8": "0123456789abcdef", "rl-80": "fedcba9876543210"}}
    inputs = replace(inputs_of(summary=summary), provenance=RECORDED, model="GPT-2 model of 1,000 parameters")
    facts = run_provenance(inputs)
    assert facts.date == "2026-11-26"
    assert facts.line == (
        "95% intervals; 2026-11-26, 1 min 24 s of training, Linux x86_64, 2 CPU threads, swerve 0.1.0, torch 2.13.0, "
        "seed 0, swerve train demo_addition; GPT-2 model of 1,000 parameters: dpo-8 0123456789ab, rl-80 fedcba987654"
    )
    assert "folder" not in dict(facts.rows)  # its number says nothing to people
    assert dict(facts.rows)["digest of rl-80"] == "fedcba9876543210"


def test_models_of_several_sizes_each_have_their_own(inputs_of: Any) -> None:
    models = {"dpo-8": "Qwen3 model of 10 parameters", "rl-80": "GPT-2 model of 20 parameters"}
    summary = {"weights_sha256": {"dpo-8": "0123456789abcdef", "rl-80": "fedcba9876543210"}}
    line = run_provenance(replace(inputs_of((), summary), provenance={"models": models})).line
    assert line == (
        "95% intervals; dpo-8 0123456789ab (Qwen3 model of 10 parameters), "
        "rl-80 fedcba987654 (GPT-2 model of 20 parameters)"
    )


def test_the_line_of_samples_says_when_the_page_was_written() -> None:
    assert re.fullmatch(
        r"99% intervals; 20\d\d-\d\d-\d\d, swerve \d+\.\S+, torch \d+\.\S+", samples_provenance(0.99, []).line
    )


def test_the_line_of_a_study_says_with_what_its_runs_were_trained_and_where_it_lies() -> None:
    def run(variant: str, seed: int, digest: str) -> StudyRun:
        known = {"torch_version": "2.13.0", "model": "GPT-2 model of 9 parameters"}
        return StudyRun(
            variant=variant, seed=seed, path=f"{variant}-{seed}", state="trained", weights_sha256=digest, **known
        )

    names = ("none", "kl")
    variants = tuple(
        StudyVariant(name=name, changes={}, num_runs=2, num_collapsed=0, first_collapse=None) for name in names
    )
    study = Study(
        swerve_version="0.1.0", name="s", recipe="r.yaml", baseline="none", seeds=(0, 1), confidence=0.95,
        variants=variants, means=(), differences=(), curves=(), detectable=(),
        runs=(
            run("none", 0, "aa"), run("none", 1, "ab"),
            run("kl", 0, "ba"), run("kl", 1, "bb"),
        ),
    )  # fmt: skip
    line = study_provenance(study, Path("runs/studies/a b")).line
    assert re.sub(r"20\d\d-\d\d-\d\d", "DATE", line) == (
        "95% intervals; DATE, swerve 0.1.0, torch 2.13.0, swerve report 'runs/studies/a b', "
        "recipe r.yaml, seeds 0, 1; GPT-2 model of 9 parameters: none aa, kl ba"
    )
