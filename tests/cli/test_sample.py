"""`swerve sample` and `swerve eval --model`: what is printed, and one clear line for every wrong input."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from swerve.artifacts.samples import read_samples
from swerve.cli.eval_command import model_temperatures
from swerve.cli.sample import split_arguments
from swerve.errors import ConfigError
from tests.conftest import TwoProcesses
from tests.json_lines import write_json_lines

Swerve = Callable[..., tuple[int, str, str]]
TASK = ("--task", "addition", "digits=2", "num_heldout=4", "--max-new-tokens", "6", "--batch", "8")


@pytest.fixture(scope="module")
def model(save_addition_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_addition_model(tmp_path_factory.mktemp("cli") / "one", seed=1))


def test_samples_are_written_and_summarised(swerve: Swerve, model: str, tmp_path: Path) -> None:
    command = ("sample", model, *TASK, "--num-samples", "4", "--temperature", "0.5,1", "--out", "a.parquet")
    status, out, err = swerve(*command)
    assert status == 0, err
    lines = out.splitlines()
    assert lines[0] == "Percent of the responses that are right (95% interval over problems)."
    assert [line.split()[:3] for line in lines[2:4]] == [["one", "T=0.5", "2"], ["one", "T=1", "2"]]
    assert lines[-1] == "Samples: a.parquet"
    assert "sample one: 16/16, done" in err
    found = read_samples(tmp_path / "a.parquet")
    assert (len(found.samples), found.info.temperatures, found.info.num_problems) == (16, (0.5, 1.0), 4)
    before = (tmp_path / "a.parquet").read_bytes()
    status, again, err = swerve(*command)
    assert (status, again) == (0, out)
    assert err.strip() == "a.parquet is complete: nothing to do"
    assert (tmp_path / "a.parquet").read_bytes() == before


def test_several_models_have_a_file_each(swerve: Swerve, model: str) -> None:
    status, out, err = swerve("sample", f"a={model}", f"b={model}", *TASK, "--out", "both", "--json")
    assert status == 0, err
    found = json.loads(out)
    assert found["files"] == {"a": "both/a.parquet", "b": "both/b.parquet"}
    assert found["rows"][1]["differences"]["accuracy"]["estimate"]["mean"] == 0.0


def test_samples_have_a_page_of_their_own(swerve: Swerve, model: str, tmp_path: Path) -> None:
    given = (*TASK, "--num-samples", "4", "--temperature", "0.5,1")
    assert swerve("sample", f"a={model}", f"b={model}", *given, "--out", "both")[0] == 0
    status, out, err = swerve("report", "both", "report.title=Both")
    assert status == 0, err
    assert [line.split()[:3] for line in out.splitlines()[3:5]] == [[label, "all", "temperatures"] for label in "ab"]
    assert out.splitlines()[-1] == "Report: both/report/index.html"
    page = (tmp_path / "both" / "report" / "index.html").read_text(encoding="utf-8")
    assert "<title>Both - swerve samples</title>" in page
    assert "b, all temperatures" in page
    assert "Over training" not in page  # there is no run
    status, out, err = swerve("report", "both/b.parquet", "both/a.parquet", "--json")
    assert (status, json.loads(out)) == (0, {"report": "both/b-report/index.html"}), err
    status, _, err = swerve("report", "a-probe", "both")
    assert (status, "both is samples, which have a page of their own: swerve report both" in err) == (2, True)


def test_problems_of_a_file_are_all_sampled_and_graded_again(swerve: Swerve, model: str, tmp_path: Path) -> None:
    status, _, err = swerve("data", "write", "addition", "digits=2", "num_train=5", "--out", "mine.jsonl")
    assert status == 0, err
    command = ("sample", model, "--data", "mine.jsonl", "--max-new-tokens", "6", "--num-samples", "2")
    status, _, err = swerve(*command, "--out", "mine.parquet")
    assert status == 0, err
    assert "left out" not in err  # every one is sampled
    ids = {json.loads(line)["id"] for line in (tmp_path / "mine.jsonl").read_text().splitlines()}
    assert {one.problem.id for one in read_samples(tmp_path / "mine.parquet").samples} == ids
    # A file beside the model is that of the problems, and a task says how they are graded.
    status, _, err = swerve(
        "sample", model, "mine.jsonl", "--task", "multiplication", *command[4:], "--out", "b.parquet"
    )
    assert status == 0, err
    assert {(one.problem.id, one.problem.grader) for one in read_samples(tmp_path / "b.parquet").samples} == {
        (id, "multiplication") for id in ids
    }
    (tmp_path / "mine.jsonl").unlink()  # the samples have all that grading needs
    status, out, err = swerve("grade", "mine.parquet", "--audit", "correct", "--json")
    assert status == 0, err
    found = json.loads(out)
    assert (found["num_records"], found["graders"]) == (10, {"addition": 10})
    assert found["audits"][0]["disagreements"] == []


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["MODEL", "nothere", *TASK, "--out", "o"], 1, "checkpoint nothere does not exist"),
        (["MODEL", "owner/none", *TASK, "--out", "o"], 1, "cannot find a model owner/none: HF_HUB_OFFLINE is set"),
        (["MODEL", "--task", "adition", "--out", "o"], 2, "did you mean 'addition'?"),
        (
            ["MODEL", *TASK, "digit=2", "--out", "o"],
            2,
            "'digit=2' is neither KEY=VALUE of the task; did you mean 'digits'",
        ),
        (["MODEL", *TASK, "digits=x", "--out", "o"], 2, "override 'task.digits=x'"),
        (["MODEL", *TASK, "runtime.dtyp=x", "--out", "o"], 2, "did you mean 'dtype'?"),
        (["MODEL", *TASK, "--temperature", "0.3;1", "--out", "o"], 2, "--temperature '0.3;1': '0.3;1' is not a number"),
        (["MODEL", *TASK, "--temperature", "-1", "--out", "o"], 2, "'-1' is not a number of at least 0"),
        (
            ["MODEL", *TASK, "--split", "test", "--out", "o"],
            2,
            "--split: 'split' must be one of",
        ),
        (["MODEL", *TASK, "--limit", "9", "--out", "o"], 2, "there are 4 heldout problems, fewer than --limit 9"),
        (
            ["MODEL", *TASK, "--date", "today", "--out", "o"],
            2,
            "--date: 'today' must be a date such as 2026-01-31, got 'today'",
        ),
        (["MODEL", *TASK, "--template-arg", "x=1", "--out", "o"], 2, "has no chat template, so it takes no template"),
        (["MODEL", *TASK, "--max-new-tokens", "40", "--out", "o"], 2, "more than the model's 40 positions"),
        (["MODEL", "--out", "o"], 2, "give either --task TASK (see: swerve data list) or --data SPEC"),
        (
            ["MODEL", *TASK, "--data", "x.jsonl", "--out", "o"],
            2,
            "'digits=2' is of the problems that addition makes; with",
        ),
        (["MODEL", "--data", "x.jsonl", "--split", "train", "--out", "o"], 2, "named in it: --data train@x.jsonl"),
        (["digits=2", "--task", "addition", "--out", "o"], 2, "no model is given"),
        (["MODEL", "MODEL", *TASK, "--out", "o"], 2, "two models are called 'one'; give them names"),
        (["a=MODEL", "b=MODEL", *TASK, "--out", "o.parquet"], 2, "one file for 2 models; give a folder"),
        (["MODEL", *TASK, "--out", "MODEL/config.json"], 2, "must end in .parquet, or be the name of a folder"),
    ],
)
def test_wrong_input_is_one_line_and_nothing_is_written(
    swerve: Swerve, model: str, tmp_path: Path, arguments: list[str], status: int, said: str
) -> None:
    found, out, err = swerve("sample", *(one.replace("MODEL", model) for one in arguments))
    assert (found, out) == (status, "")
    assert said in err.replace(model, "MODEL")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_file_of_samples_is_not_replaced_and_a_damaged_one_is_named(
    swerve: Swerve, model: str, tmp_path: Path
) -> None:
    path, begun = tmp_path / "notes.parquet", tmp_path / "notes.parquet.partial"
    path.write_text("mine")
    command = ("sample", model, *TASK, "--out", "notes.parquet")
    status, _, err = swerve(*command)
    assert (status, path.read_text()) == (2, "mine")
    assert "--out notes.parquet exists and is no file of samples; give another name, or delete it if it was one" in err
    path.unlink()
    assert swerve(*command)[0] == 0
    whole = path.read_bytes()
    (begun / "000000").mkdir(parents=True)  # somebody else's folder
    assert swerve(*command)[0] == 0
    assert (begun / "000000").is_dir()
    remedy = "to sample again, delete notes.parquet or give another --out"
    for damaged in (whole[:-9], whole[:300] + bytes(60) + whole[360:]):
        path.write_bytes(damaged)
        status, _, err = swerve(*command)
        assert (status, path.read_bytes()) == (1, damaged)
        assert "notes.parquet is damaged: " in err
        assert remedy in err
    status, _, err = swerve("report", "notes.parquet", str(path))
    assert status == 1
    assert "notes.parquet is damaged: " in err


def test_an_adapter_from_elsewhere_is_sampled_as_it_is_merged(swerve: Swerve, model: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    base = AutoModelForCausalLM.from_pretrained(model)
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["q_proj", "up_proj"], use_rslora=True))
    for name, parameter in adapted.named_parameters():
        if ".lora_B." in name:
            parameter.data.fill_(0.1)
    adapted.save_pretrained(tmp_path / "lora")
    status, _, err = swerve("export", "lora", "--out", "merged")
    assert status == 0, err
    status, _, err = swerve(
        "sample", model, "lora", "merged", *TASK, "--temperature", "0", "--num-samples", "1", "--out", "o"
    )
    assert status == 0, err
    one, lora, merged = (read_samples(tmp_path / "o" / f"{name}.parquet").samples for name in ("one", "lora", "merged"))
    ids = [[sample.completion_ids for sample in samples] for samples in (one, lora, merged)]
    assert ids[1] == ids[2] != ids[0]


def test_keys_of_the_task_and_models_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits=3").mkdir()
    given = ["owner/a#main", "b=owner/b", "digits=2", "runtime.dtype=bfloat16", "seed=3", "digits=3", "late=x/y"]
    models, changes = split_arguments(given, "addition")
    assert models == ["owner/a#main", "b=owner/b", "digits=3", "late=x/y"]
    assert changes == ["digits=2", "runtime.dtype=bfloat16", "seed=3"]


def test_eval_prints_a_table_in_any_form(swerve: Swerve, model: str, tmp_path: Path) -> None:
    command = ("eval", "--model", f"a={model}", "--model", f"b={model}", *TASK, "--num-samples", "2", "--out", "out")
    status, table, err = swerve(*command, "--temperature", "a=0")
    assert status == 0, err
    assert "Differences are from a, paired over the problems that both have; p is adjusted for all" in table
    assert [line.split()[:2] for line in table.splitlines()[3:6]] == [["a", "greedy"], ["b", "greedy"], ["b", "T=1"]]
    for form, ending in (("md", "md"), ("csv", "csv"), ("latex", "tex"), ("json", "json")):
        status, out, err = swerve(*command, "--temperature", "a=0", "--format", form)
        assert status == 0, err
        assert out == (tmp_path / "out" / f"comparison.{ending}").read_text()
        assert err.count("is complete: nothing to do") == 3
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "comparison.csv").read_text())))
    assert {row["kind"] for row in rows} >= {"all"}


def test_rows_from_elsewhere_stand_in_the_table(swerve: Swerve, model: str, tmp_path: Path) -> None:
    status, _, err = swerve(
        "data", "write", "addition", "digits=2", "num_heldout=4", "--split", "heldout", "--out", "p.jsonl"
    )
    assert status == 0, err
    problems = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    answers = [{"id": row["id"], "response": f"so answer {row['answer']}"} for row in problems[:3]]
    write_json_lines(tmp_path / "openai.jsonl", answers)
    (tmp_path / "published.csv").write_text("name,kind,accuracy\no1,all,0.5\n", encoding="utf-8")
    given = ("--rows", "openai.jsonl", "--rows", "published.csv", *TASK, "--out", "out")
    status, table, err = swerve("eval", "--model", f"a={model}", *given, "--num-samples", "2", "--format", "json")
    assert status == 0, err
    assert "openai.jsonl: 'openai' has responses to 3 of the 4 problems, 1 each, and is compared over these" in err
    found = json.loads(table)
    assert [(row["model"], row["origin"]) for row in found["rows"]] == [("a", "model")] * 2 + [("openai", "file")]
    assert found["rows"][2]["accuracy"]["mean"] == 1.0
    assert found["rows"][2]["differences"]["accuracy"]["num_problems"] == 3
    assert found["rows"][2]["entropy"] is None
    assert found["rows"][0]["entropy"]["mean"] > 0
    assert found["published"] == [{"name": "o1", "by_kind": {}, "accuracy": 0.5}]
    # Files alone are compared, too; what is wrong with a row is said before anything is sampled.
    assert swerve("eval", *given[:2], "--rows", "late=openai.jsonl", *given[2:])[0] == 0
    for more, said in {
        ("--rows", "openai.jsonl"): "two rows are called 'openai'; give them names, as in --rows late=openai.jsonl",
        ("--baseline", "b"): "--baseline 'b' is not one of the models",
        ("--rows", "a=gone.jsonl"): "--rows a=gone.jsonl: gone.jsonl does not exist; give a file of responses or "
        "accuracies, or a published table (k_and_k)",
    }.items():
        status, out, err = swerve("eval", "--model", f"openai2={model}", *given, *more)
        assert (status, out) == (2 if "gone" not in said else 1, "")
        assert said in err
    status, _, err = swerve("eval", "--model", f"openai={model}", *given)
    assert (status, "two rows are called 'openai'; give them names, as in --rows late=FILE" in err) == (2, True)
    status, _, err = swerve("eval", "--rows", "published.csv", *TASK)
    assert (status, "published accuracies stand beside models or responses" in err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing is given to evaluate; give a run (swerve eval RUN), or models"),
        (["--task", "addition"], "--task needs --model MODEL"),
        (["RUN", "--temperature", "0.5"], "--temperature (of a run eval.temperature=T) needs --model MODEL"),
        (["RUN", "--seed", "3"], "--seed needs --model MODEL; a run is evaluated as its recipe says"),
        (["--model", "MODEL", "MODEL", *TASK], "is no key of the task; models are given with --model"),
        (["--model", "MODEL", *TASK, "--temperature", "b=1"], "no model is called 'b'; there are one"),
        (
            ["--model", "MODEL", *TASK, "--format", "tex"],
            "--format 'tex' is not one of table, md, csv, latex, json",
        ),
    ],
)
def test_wrong_questions_to_eval_are_one_line(
    swerve: Swerve, model: str, tmp_path: Path, arguments: list[str], said: str
) -> None:
    status, out, err = swerve("eval", *(one.replace("MODEL", model) for one in arguments))
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_has_the_same_table_and_its_first_model(swerve: Swerve, small_run: Any, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(small_run.path, tmp_path / "run")
    status, out, err = swerve("eval", "run", "--format", "md")
    assert status == 0, err
    assert [line.split(" | ")[0] for line in out.splitlines()[2:5]] == ["| sft-100", "| sft-100", "| sft-220"]
    command = ("eval", "--model", "run:base", "--model", "run:sft", "--task", "run/config.yaml", "--temperature", "0")
    status, out, err = swerve(*command, "--max-new-tokens", "8", "--limit", "3", "--out", "out", "--json")
    assert status == 0, err
    assert [row["model"] for row in json.loads(out)["rows"]] == ["base", "sft-220"]
    assert (tmp_path / "run" / "initial" / "MANIFEST.json").is_file()


def test_temperatures_of_unknown_models_are_named() -> None:
    with pytest.raises(ConfigError, match="no model is called 'bas'; did you mean 'base'?"):
        model_temperatures(["bas=0"], ["base"])
    assert model_temperatures([], ["base"]) == {}  # those that evaluate_models takes by itself


@pytest.mark.slow
@pytest.mark.dist
def test_two_processes_share_the_problems_and_write_the_same_file(
    model: str, on_two_processes: TwoProcesses, tmp_path: Path
) -> None:
    command = ("-m", "swerve", "sample", model, *TASK, "--num-samples", "4", "--out")
    subprocess.run([sys.executable, *command, str(tmp_path / "one.parquet")], check=True, capture_output=True)
    on_two_processes(*command, tmp_path / "two.parquet")
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["one.parquet", "two.parquet"]
