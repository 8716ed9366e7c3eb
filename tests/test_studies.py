"""The pages that studies make are what their results say, and no script imports what does not exist."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted([*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "studies").rglob("*.py")])
PAGE = (ROOT / "docs" / "graded-data.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _root_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def _missing(script: Path) -> list[str]:
    """Return the lines of a script that import from this repository what is not there."""
    tree = ast.parse(script.read_text(encoding="utf-8"))
    compile(tree, str(script), "exec")
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module is not None]
    return [
        f"{script.relative_to(ROOT)}:{node.lineno}: {node.module} has no {alias.name}"
        for node in imported
        if node.module.split(".")[0] in ("swerve", "studies", "benchmarks")
        for alias in node.names
        if not _exists(node.module, alias.name)
    ]


def _exists(module: str, name: str) -> bool:
    if module.startswith("swerve"):
        return _is_importable(module) and (
            hasattr(importlib.import_module(module), name) or _is_importable(f"{module}.{name}")
        )
    path = ROOT.joinpath(*module.split("."))
    if path.is_dir():
        return (path / f"{name}.py").exists()
    names = ast.walk(ast.parse(path.with_suffix(".py").read_text(encoding="utf-8")))
    return any(name in (getattr(node, "name", None), getattr(node, "id", None)) for node in names)


def _is_importable(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        return False
    return True


def test_whatever_a_script_imports_from_this_repository_is_there():
    assert [line for script in SCRIPTS for line in _missing(script)] == []


def test_an_import_of_what_moved_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "pages.py").write_text("def table(): ...\nnumber = 1\n")
    script = tmp_path / "studies" / "moved.py"
    script.write_text(
        "from studies.pages import number, percent, table\n"
        "from swerve.nowhere import name\n"
        "from swerve import version\n"
        "from swerve.types import Problem, Gone\n"
    )
    assert _missing(script) == [
        "studies/moved.py:1: studies.pages has no percent",
        "studies/moved.py:2: swerve.nowhere has no name",
        "studies/moved.py:4: swerve.types has no Gone",
    ]


STUDIES = (
    *("any_model", "benchmarks", "campaign", "demo", "demo_seeds", "experiments", "grading"),
    *("objectives", "planted", "selectors", "stories", "zoo"),
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _texts(name):
    """Return the tables and numbers of a study, of the kept results."""
    return importlib.import_module("studies.__main__").texts(name)


def test_all_studies_are_known():
    assert set(importlib.import_module("studies.__main__").NAMES) == set(STUDIES)


@pytest.mark.parametrize("name", STUDIES)
def test_pages_are_made_from_the_results(name):
    pages = importlib.import_module("studies.pages")
    tables, numbers = _texts(name)
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert tables
    assert set(tables) <= {place for text in texts for place in pages.places(text)}
    for text in texts:
        assert pages.filled(text, {**tables, **numbers}) == text


@pytest.mark.parametrize("path", sorted(ROOT.glob("*/results/*.jsonl")), ids=lambda path: path.stem)
def test_results_name_no_folder_of_the_machine_that_made_them(path):
    assert re.findall(r"[\"'= (]/[a-zA-Z]+/[^\" ]*", path.read_text(encoding="utf-8")) == []


def test_every_place_of_a_page_is_filled_by_one_study():
    pages = importlib.import_module("studies.pages")
    names = Counter(name for study in STUDIES for texts in _texts(study) for name in texts)
    places = [(page, place) for page in PAGES for place in pages.places(page.read_text(encoding="utf-8"))]
    assert len(places) > 200
    assert [(page.name, place) for page, place in places if names[place] != 1] == []


def test_the_studies_that_make_the_results_can_be_planned(tmp_path):
    plan = importlib.import_module("swerve.study.plan")
    files = sorted((ROOT / "studies").glob("*/*.yaml"))
    studies = [path for path in files if "variants:" in path.read_text(encoding="utf-8")]
    jobs = [job for path in studies for job in plan.plan_study(str(path), ["seeds=1"], out=None, runs=tmp_path).jobs]
    kept = importlib.import_module("studies.records").read_records(ROOT / "studies" / "results" / "objectives.jsonl")
    assert {record["name"] for record in kept if record["kind"] == "run"} <= {job.variant for job in jobs}


def test_no_line_begins_with_a_number_that_is_filled_in():
    # Markdown takes a comment at the beginning of a line as the end of the paragraph.
    lines = [(page.name, line) for page in PAGES for line in page.read_text(encoding="utf-8").splitlines()]
    assert [line for line in lines if re.match(r"\s*<!-- [^>]+ -->.+<!-- / -->", line[1])] == []


@pytest.mark.parametrize(
    "name", ["README.md", "docs/results.md", "docs/probe-results.md", "docs/objectives-compared.md"]
)
def test_no_measured_percentage_is_written_by_hand(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    text = re.sub(r"<!-- ([^/>]+) -->\n.*?<!-- /\1 -->|```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"<!-- [^>]+ -->[^<\n]+<!-- / -->", "", text)
    assert re.findall(r".*\d\.\d+%.*|.*\d\.\d+ points.*|.*\[[+-]?\d+\.\d+, .*", text) == []


@pytest.fixture
def grading():
    return importlib.import_module("studies.grading.tables")


@pytest.fixture
def records():
    return importlib.import_module("studies.records").read_records(ROOT / "studies" / "results" / "grading.jsonl")


def test_every_disagreement_was_looked_at(grading, records):
    assert grading.NOT_LOOKED_AT not in "".join(grading.tables(records).values())
    assert grading.stale_reasons(records) == []


def test_a_new_disagreement_is_shown_as_not_looked_at(grading, records):
    [maths] = [record for record in records if record["kind"] == "math"]
    new = {**maths["disagreements"][0], "id": "test/algebra/1.json, sample 0", "gold": "a|b", "value": 0.0}
    changed = [{**maths, "disagreements": [new]} if record is maths else record for record in records]
    [row] = [
        line
        for text in grading.tables(changed).values()
        for line in text.splitlines()
        if line.startswith("| `test/algebra/1.json")
    ]
    assert row == r"| `test/algebra/1.json, sample 0` | `a\|b` | `10000` | wrong | 0 | **not looked at yet** |"
    assert grading.stale_reasons(changed) == ["math: test/prealgebra/1130.json, sample 7"]


def test_numbers_tables_and_code_in_markdown():
    pages = importlib.import_module("studies.pages")
    estimate = {"mean": 0.0625, "low": 0.01234, "high": 0.1}
    assert [pages.percent(None), pages.percent(0.0625, 0), pages.percent(estimate)] == [
        "-",
        "6%",
        "6.2% (1.2 to 10.0)",
    ]
    assert [pages.number(0.0625, 2), pages.number(estimate)] == ["0.06", "0.062 (0.012 to 0.100)"]
    near = {"mean": 0.9975, "low": 0.98602, "high": 0.99956}
    assert [pages.percent(near), pages.percent(1.0), pages.percent(0.0)] == [
        "99.8% (98.6 to 99.96)",
        "100.0%",
        "0.0%",
    ]
    assert [pages.points(0.0625), pages.points(-0.0004), pages.points(estimate), pages.points(0.0)] == [
        "+6.2",
        "\u22120.04",
        "+6.2 (+1.2 to +10.0)",
        "0.0",
    ]
    assert [pages.number(near), pages.number(0.99961)] == ["0.998 (0.986 to 0.9996)", "0.9996"]
    assert [pages.size(0.0012345), pages.size(529.3), pages.size(estimate)] == [
        "0.0012",
        "529",
        "0.062 (0.012 to 0.100)",
    ]
    assert pages.code("a\n| `b`") == r"`a \| 'b'`"
    assert pages.code("123456789", longest=8) == "`1234 ...`"
    assert pages.table(["a", "b"], [["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |"
    assert pages.table(["a"], []) == ""


def test_tables_and_numbers_go_to_their_places():
    pages = importlib.import_module("studies.pages")
    page = "<!-- t -->\nold\n<!-- /t -->\nIt won <!-- demo: gain -->+1.0<!-- / --> of <!-- other -->2<!-- / -->.\n"
    assert pages.places(page) == ["t", "demo: gain", "other"]
    assert pages.filled(page, {"t": "| a |", "demo: gain": "+2.5 (+1.0 to +4.0)"}) == (
        "<!-- t -->\n\n| a |\n\n<!-- /t -->\n"
        "It won <!-- demo: gain -->+2.5 (+1.0 to +4.0)<!-- / --> of <!-- other -->2<!-- / -->.\n"
    )


def test_a_table_without_a_place_is_refused(tmp_path):
    pages = importlib.import_module("studies.pages")
    page = tmp_path / "a.md"
    page.write_text("# A\n<!-- one -->\n<!-- /one -->\n")
    with pytest.raises(ValueError, match="no page has a place for 'two': put <!-- two --> and <!-- /two -->"):
        pages.fill_pages({"one": "| 1 |", "two": "| 2 |"}, {}, [page])
    assert page.read_text() == "# A\n<!-- one -->\n\n| 1 |\n\n<!-- /one -->\n"


def test_what_results_were_made_with_is_said():
    study = importlib.import_module("studies.records")
    old = {"kind": "versions", "date": "2026-11-20", "machine": "x86_64", "swerve": "0.1.0", "torch": "2.13.0"}
    new = {**old, "date": "2026-11-22", "processor": "AMD EPYC", "threads": 1}
    records = [old, {"kind": "run", "seed": 1}, new, {"kind": "run", "seed": 0}, {"kind": "other"}]
    assert study.made_with(records) == (
        "2026-11-20, swerve 0.1.0, torch 2.13.0, x86_64; "
        "2026-11-22, swerve 0.1.0, torch 2.13.0, AMD EPYC, 1 thread; seeds 0, 1"
    )


def test_results_are_appended_after_what_they_were_made_with(tmp_path, monkeypatch):
    study = importlib.import_module("studies.records")
    path = tmp_path / "results" / "one.jsonl"
    assert study.read_records(path) == []
    study.append_record(path, {"kind": "run", "values": [0.123456789, 3], "name": "a"})
    study.append_record(path, {"kind": "run", "values": ()})
    monkeypatch.setattr("time.strftime", lambda form: "2001-02-03")
    study.append_record(path, {"kind": "later"})
    versions, first, second, others, third = study.read_records(path)
    assert set(versions) == {"kind", "date", "machine", "processor", "threads", "swerve", "torch", "transformers"}
    assert first == {"kind": "run", "values": [0.12346, 3], "name": "a"}
    assert second == {"kind": "run", "values": []}
    assert others == {**versions, "date": "2001-02-03"}
    assert third == {"kind": "later"}


def test_results_of_the_same_run_are_replaced(tmp_path):
    study = importlib.import_module("studies.records")
    path = tmp_path / "one.jsonl"
    study.keep_records(path, [{"kind": "run", "name": "a", "seed": seed, "value": seed} for seed in (0, 1)])
    study.keep_records(path, [{"kind": "run", "name": "a", "seed": 0, "value": 7}])
    assert [record["value"] for record in study.read_records(path)[1:]] == [1, 7]


def test_the_commands_of_a_page_are_run_and_what_is_known_is_not_run_again(tmp_path, monkeypatch):
    study = importlib.import_module("studies.any_model.__main__")
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / study.PAGE
    page.write_text(
        "```yaml\nkey: 1\n```\n\n```console\n$ python -c 'print(open(\"probe.yaml\").read())'\n```\n\n"
        "<!-- any_model: one -->\n<!-- /any_model: one -->\n\n```console\n$ python -c 'not run: no place'\n```\n"
    )
    monkeypatch.setattr(study, "ROOT", tmp_path)
    study.measure(tmp_path / "out.jsonl", tmp_path / "work")
    records = importlib.import_module("studies.records").read_records(tmp_path / "out.jsonl")
    assert study.tables(records) == {"any_model: one": "```text\nkey: 1\n\n```"}
    page.write_text(page.read_text().replace("print(", "wrong("))
    study.measure(tmp_path / "out.jsonl", tmp_path / "work")
    with pytest.raises(subprocess.CalledProcessError):
        study.run_commands("$ python -c 'wrong()'", tmp_path)


def test_five_checkpoints_are_made_without_swerve_and_read_by_transformers(tmp_path):
    train = importlib.import_module("studies.any_model.train")
    sizes = {"num_train": 40, "num_heldout": 4, "num_sft": 32, "hidden_size": 16, "num_layers": 1, "max_new_tokens": 4}
    steps = {"sft_steps": 2, "dpo_steps": 1, "rl_checkpoints": (1, 2, 3), "num_prompts": 2, "num_samples": 2}
    train.train_all(tmp_path, train.TrainSettings(**sizes, **steps))
    names = ["dpo", "problems.jsonl", "rlvr-1", "rlvr-2", "rlvr-3", "sft"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "rlvr-3")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "rlvr-3")
    trainer = train.Trainer(train.TrainSettings(), model, tokenizer)
    pairs = [trainer.encode("What is 12 + 34?", "46"), trainer.encode("What is 1 + 2?", train.solution("1 2"))]
    alone = [trainer.logprobs(trainer.batch([pair])).sum().item() for pair in pairs]
    assert trainer.logprobs(trainer.batch(pairs)).sum(1).tolist() == pytest.approx(alone, rel=1e-5)  # padding is none
