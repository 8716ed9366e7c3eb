"""What people type: each function of the door, from any two models to a page."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import swerve
from swerve.artifacts.samples import read_samples
from swerve.artifacts.shards import Shard
from swerve.artifacts.tables import INTERVENTIONS_SCHEMA, read_table
from swerve.claim.record import ClaimCard
from swerve.door.spoken import spoken
from swerve.errors import ArtifactError, ConfigError, MissingExtraError, SwerveError
from swerve.text import whole_percent
from tests.json_lines import write_json_lines

PROBLEMS = [
    {"question": "1 2 + 3 4 =", "answer": "4 6"},
    {"question": "2 2 + 3 4 =", "answer": "5 6"},
    {"question": "1 1 + 1 2 =", "answer": "2 3"},
]
LITTLE: dict[str, Any] = {"max_new_tokens": 6, "progress": False}


@pytest.fixture(scope="module")
def models(save_addition_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {name: save_addition_model(folder / name, seed=seed) for seed, name in enumerate(("base", "tuned"))}


@pytest.fixture(scope="module")
def samples(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return swerve.sample(models, PROBLEMS, num_samples=2, out=tmp_path_factory.mktemp("door") / "samples", **LITTLE)


def test_texts_longer_than_a_path_are_texts(models: dict[str, Path]) -> None:
    text = "2 2 + 3 4 =".ljust(300)
    for given in ([text], [(text, text)], [{"prompt": text, "response": text}]):
        probed = swerve.probe(models["base"], models["tuned"], given, progress=False)
        assert len(probed.to_pandas()) > 2
    for call in (swerve.compare, swerve.grade, swerve.report, swerve.claim):
        with pytest.raises(SwerveError):
            call(text)
    with pytest.raises(ConfigError, match=r"^an empty list is nothing that can be compared"):
        swerve.compare([], [])


def test_samples_are_iterable_frames_and_three_lines(samples: Any, tmp_path: Path) -> None:
    assert samples.labels == ["base", "tuned"]
    assert len(samples) == len(list(samples)) == 12
    assert [response.label for response in samples][::6] == ["base", "tuned"]
    assert samples.table().num_rows == 12
    first = next(iter(samples))
    said = {True: "right", False: "wrong"}[first.correct]
    assert repr(first) == f"Response to {first.problem.id!r} by base, sample 0: {said}\n{first.text!r}"
    longer = dataclasses.replace(first, text="a\n" * 150, correct=None, sample=None)
    assert repr(longer).splitlines()[0].endswith(" by base: no verdict")
    assert repr(longer).splitlines()[1] == repr("a\n" * 100) + "... (100 more characters)"
    assert repr(samples).startswith(
        "SampleSet of base, tuned: 2 answers to each of 3 problems\nbase 0 of 6 right, tuned "
    )
    assert "cut off: raise" not in repr(samples)
    for shown in (*map(repr, (samples, samples["base"], read_samples(samples.files["base"]))), samples._repr_html_()):
        assert "; graded by math" in shown or ">graded by math" in shown
    assert repr(samples).count("\n") == repr(samples["base"]).count("\n") == 2
    assert repr(read_samples(samples.files["base"])).count("\n") == 2
    assert "base, T=1" in samples._repr_html_()
    assert sorted(path.name for path in samples.save(tmp_path / "kept").iterdir()) == ["base.parquet", "tuned.parquet"]
    with pytest.raises(ConfigError, match="there is no model 'bass'; did you mean 'base'"):
        samples["bass"]
    with pytest.raises(AttributeError, match=r"^SampleSet has no 'base'; a model's samples are samples\['base'\]$"):
        samples.base  # noqa: B018


def test_saved_samples_are_kept_and_a_probe_reads_those_of_the_reference(
    models: dict[str, Path], samples: Any, tmp_path: Path
) -> None:
    folder = samples.save(tmp_path / "kept")
    assert samples.save(folder) == folder  # the same are there
    (folder / "tuned.parquet").write_bytes((folder / "base.parquet").read_bytes())
    before = (folder / "base.parquet").stat().st_mtime_ns
    with pytest.raises(ConfigError, match=r"kept/tuned\.parquet has other samples, which would be lost"):
        samples.save(folder)
    assert (folder / "base.parquet").stat().st_mtime_ns == before
    # As the object itself: the reference's answers alone, by its name, its place or its weights.
    again = samples.save(tmp_path / "again")
    for responses, asked in ((samples, {}), (again, {}), (str(again), {"out": tmp_path / "probed"})):
        result = swerve.probe(*models.values(), responses, progress=False, **asked)
        assert len(result.by_sequence("js")) == 6
        assert len(result.token_ids) == sum(len(response.completion_ids) for response in samples["base"])
    named = {"before": models["base"], "after": models["tuned"]}
    assert len(swerve.probe(named["before"], named["after"], str(again)).by_sequence("js")) == 6
    (again / "base.parquet").rename(again / "x.parquet")
    with pytest.raises(ConfigError, match=r"again has samples of tuned, base and it is not known which is the ref"):
        swerve.probe(torch.nn.Linear(1, 1), models["tuned"], str(again))


def test_samples_without_a_place_last_as_long_as_their_result(models: dict[str, Path]) -> None:
    found = swerve.sample(models["base"], [("1 2 + 3 4 =", "4 6")], temperature=0.7, **LITTLE)
    (path,) = found.files.values()
    assert path.is_file()
    assert found.is_temporary
    assert [response.temperature for response in found] == [0.7]
    assert repr(found).startswith("SampleSet of base: 1 answer to 1 problem\n")
    short = swerve.sample(models["base"], PROBLEMS, max_new_tokens=1, progress=False)
    assert "; graded by math; 3 of 3 answers were cut off: raise max_new_tokens\n" in repr(short)
    assert "6 of 6 answers were cut off: raise max_new_tokens" in repr(
        swerve.compare({"a": short["base"], "b": short["base"]})
    )
    assert "in a temporary folder; save(FOLDER) keeps it" in repr(found)
    del found
    assert not path.exists()


def test_the_same_call_finds_its_samples_again(models: dict[str, Path], samples: Any) -> None:
    folder = next(iter(samples.files.values())).parent
    written = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    swerve.sample(models, PROBLEMS, num_samples=2, out=folder, **LITTLE)
    assert {path.name: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}.items() <= written.items()


def test_frames_of_pandas_and_of_polars_where_they_are(samples: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    assert list(samples.to_pandas()["label"]) == ["base"] * 6 + ["tuned"] * 6
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(MissingExtraError, match="needs the package 'polars'; install it with: pip install polars"):
        samples.to_polars()


def test_every_result_is_a_frame_of_polars(samples: Any, models: dict[str, Path]) -> None:
    polars = pytest.importorskip("polars", reason="polars is an option of the user's")
    grades = swerve.grade(["It is 4.", "5"], ["4", "4"], task="math", progress=False)
    card = swerve.claim(samples, parts="accuracy", progress=False)
    probed = swerve.probe(*models.values(), ["1 2 + 3 4 ="], progress=False)
    held = read_samples(samples.files["base"])
    for result in (samples, samples["base"], held, samples.comparison, grades, card, probed, swerve.tasks()):
        frame = result.to_polars()
        assert isinstance(frame, polars.DataFrame)
        assert frame.columns == result.table().column_names
        assert frame.to_dicts() == result.table().to_pylist()
        is_rows = isinstance(result, Mapping | Sequence)  # which polars reads as such
        assert is_rows or polars.DataFrame(result).equals(frame)
    assert card.to_polars("by_problem").height == 3
    # And such frames are taken.
    problems = polars.DataFrame(PROBLEMS)
    assert len(swerve.sample(models["base"], problems, **LITTLE)) == 3
    assert swerve.grade(samples["base"].to_polars(), progress=False).right == swerve.grade(samples["base"]).right


def test_results_are_tables_for_any_library(samples: Any, models: dict[str, Path]) -> None:
    import pyarrow as pa

    grades = swerve.grade(["It is 4."], ["4"], task="math", progress=False)
    card = ClaimCard(base="a", trained="b", task="table", num_problems=0, num_samples=0, inputs="")
    probed = swerve.probe(*models.values(), ["1 2 + 3 4 ="], progress=False)
    for result in (samples, samples["base"], samples.comparison, grades, card, probed):
        assert pa.table(result).equals(result.table())
        for name in ("columns", "head", "iloc", "groupby"):
            with pytest.raises(AttributeError, match=rf"no '{name}'; .*to_pandas\(\) is the data frame"):
                getattr(result, name)


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.json"])
def test_samples_go_to_parquet_or_a_folder(models: dict[str, Path], samples: Any, tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    with pytest.raises(ConfigError, match=rf"^out='.*{name}' must end in .parquet, or be the name of a folder"):
        swerve.sample(models, PROBLEMS, out=place, **LITTLE)
    with pytest.raises(ConfigError, match=rf"^out='.*{name}' must be the name of a folder"):
        swerve.probe(*models.values(), ["1 2 + 3 4 ="], out=place)
    with pytest.raises(ConfigError, match=rf"^{place} must be the name of a folder"):
        samples.save(place)
    assert not place.exists()
    file = tmp_path / "s.parquet"
    with pytest.raises(ConfigError, match=r"^out='.*s\.parquet' is one file for 2 models"):
        swerve.sample(models, PROBLEMS, out=file, **LITTLE)
    assert repr(swerve.sample(models["base"], PROBLEMS[:1], out=file, **LITTLE)).splitlines()[-1] == str(file)


def test_models_and_runs_are_evaluated_by_one_function(models: dict[str, Path], small_run: Any, tmp_path: Path) -> None:
    found = swerve.evaluate(models, PROBLEMS, num_samples=2, **LITTLE)
    rows = [("base", "greedy"), ("base", "T=1"), ("tuned", "greedy"), ("tuned", "T=1")]
    assert [(row.model, row.decoding) for row in found.rows] == rows
    assert repr(found).startswith("Comparison of base, tuned on 3 problems\nright: base 0% (0 to 71), tuned ")
    as_addition = swerve.evaluate(models, PROBLEMS, task="addition", num_samples=2, **LITTLE)
    assert swerve.evaluate(models["base"], models["tuned"], PROBLEMS, num_samples=2, **LITTLE) == found
    for comparison, grader in ((found, "math"), (as_addition, "addition")):
        assert comparison.graders == (grader,)
        assert f"; graded by {grader}; 12 of 18 answers were cut off: raise" in repr(comparison).splitlines()[1]
    assert {"accuracy", "accuracy_low", "difference_accuracy", "p_accuracy"} <= set(found.table().column_names)
    greedy = swerve.evaluate(models["base"], PROBLEMS, temperature=0, out=tmp_path / "kept", **LITTLE)
    assert [row.decoding for row in greedy.rows] == ["greedy"]
    assert (tmp_path / "kept" / "comparison.md").is_file()
    of_run = swerve.evaluate(small_run, progress=False)
    assert of_run.rows[0].model == small_run.checkpoints[0].label
    assert swerve.evaluate(small_run, "addition", limit=2, num_samples=1, **LITTLE).rows[0].num_problems == 2
    for given, said in (
        ((models["base"],), "is a model; say on what it is evaluated: problems=, or task="),
        (("no/such/run.yaml",), "run directory no/such/run.yaml does not exist"),
        ((models, PROBLEMS, "seed=1"), "'seed=1' is of a run"),
    ):
        with pytest.raises(SwerveError, match=said):
            swerve.evaluate(*given)
    for name, said in (
        ("system", r"no keyword 'system' of a run; there are .*such as limit=4 or eval=\{'num_problems': 4\}"),
        ("num_problem", "no keyword 'num_problem' of a run; did you mean 'num_problems'"),
    ):
        with pytest.raises(ConfigError, match=said):
            swerve.evaluate(small_run, **{name: "x"})
    with pytest.raises(ConfigError, match=r"runtime.device='gpu': .* did you mean 'cuda'"):
        swerve.evaluate(small_run, device="gpu")


def test_samples_runs_and_files_are_compared(samples: Any, small_run: Any) -> None:
    both = swerve.compare(samples)
    assert [row.model for row in both.rows] == ["base", "tuned"]
    assert both == swerve.compare(samples["base"], samples.files["tuned"])
    named = swerve.compare({"early": small_run, "late": f"{small_run.path}:rl"})
    assert list(named.headlines()) == ["early", "late"]
    assert named.headlines()["early"].accuracy == named.headlines()["late"].accuracy
    # Of runs the greedy answers come first; of others those of all temperatures, which is said.
    greedy = swerve.Run(small_run).evaluations.accuracy.iloc[-1]
    assert {row.temperature for row in named.headlines().values()} == {0.0}
    assert [row.accuracy.mean for row in named.headlines().values() if row.accuracy] == [greedy] * 2
    base = list(samples["base"].samples)
    others = [dataclasses.replace(one, temperature=0.5) for one in base]
    mixed = swerve.compare({"a": [*base, *others], "b": samples["tuned"]})
    assert repr(mixed).splitlines()[1].startswith("right (all temperatures; to_pandas() has each): a ")
    for given, said in (
        ((samples["base"],), "1 to compare; give runs"),
        ((samples.table(), samples["base"]), "two are called 'base'; give them names"),
        ((samples["base"], samples["base"]), "two are called 'base'; give them names"),
        ((samples["base"], "nothing.jsonl"), "nothing.jsonl does not exist"),
        ((samples["base"], 3), "swerve.compare takes runs, .*, and not 3, of type int"),
    ):
        with pytest.raises(SwerveError, match=said):
            swerve.compare(*given)


def test_a_files_rows_are_compared_in_any_order(tmp_path: Path) -> None:
    texts = ("It is 1.", "So one and one are 2.", "Perhaps it is 2.", "It is 2.")
    rows = [
        {"id": str(number), "question": f"{number}?", "response": text, "answer": "2", "correct": "2" in text}
        for number in range(3)
        for text in texts
    ]
    write_json_lines(tmp_path / "a.jsonl", rows)
    write_json_lines(tmp_path / "b.jsonl", [*rows[::2], *rows[1::2]])
    first, other = (swerve.compare({"a": path, "b": path}).rows[0] for path in sorted(tmp_path.iterdir()))
    assert first == other


def test_from_two_models_to_a_page_with_causal_tests_in_four_lines(models: dict[str, Path], tmp_path: Path) -> None:
    samples = swerve.sample(models, PROBLEMS, num_samples=2, **LITTLE)
    causal = {"num_continuations": 2}
    result = swerve.probe(*models.values(), samples, causal=causal, out=tmp_path / "p", progress=False)
    page = swerve.report(result, progress=False)
    assert page == tmp_path / "p" / "report" / "index.html"
    assert result.summary is not None
    assert result.summary.selected is not None
    assert result.summary.causal is not None
    # What was found of causes is in words, with the shares of the table.
    rows = read_table(tmp_path / "p" / "probe" / "interventions.parquet", INTERVENTIONS_SCHEMA).to_pylist()
    spikes = [row for row in rows if (row["selection"], row["policy"]) == ("spike", "reference")]
    own = [row["num_successes"] / row["num_continuations"] for row in spikes if row["arm"] == "reference"]
    said = f"at {len(own)} spikes base ends right {whole_percent(sum(own) / len(own))} after the answer's own token, "
    assert repr(result).splitlines()[3] == repr(result.summary).splitlines()[2] == result.summary.cause_line
    assert str(result.summary.cause_line).startswith(said) or "same token" in str(result.summary.cause_line)
    assert len(repr(result.summary.causal)) < 400
    with pytest.raises(AttributeError, match=r"in its summary: result\.summary\.causal$"):
        getattr(result, "causal")  # noqa: B009
    assert result.save(tmp_path / "p") == result.path
    copied = result.save(tmp_path / "copy")
    assert swerve.report(copied, progress=False).read_text().count("<html") == 1
    with pytest.raises(ConfigError, match="exists; give the name of a new folder"):
        result.save(tmp_path / "p" / "probe")


@pytest.mark.slow
def test_samples_are_of_the_model_that_they_name_whatever_their_order(models: dict[str, Path], tmp_path: Path) -> None:
    given = {"late": models["tuned"], "early": models["base"]}
    samples = swerve.sample(given, PROBLEMS, num_samples=2, **LITTLE)
    found = swerve.probe(*models.values(), samples, out=tmp_path / "p", progress=False)
    light = swerve.probe(*models.values(), samples, progress=False)
    assert " tokens of 6 responses of early\n" in repr(light)
    assert " tokens of 3 responses of base, one of each problem\n" in repr(found)
    one = swerve.probe(*models.values(), samples["late"], out=tmp_path / "one", progress=False)
    assert " tokens of 6 responses of late\n" in repr(one)
    assert light.token_ids.tolist() == [token for one in samples["early"] for token in one.completion_ids]
    assert light.save(tmp_path / "light").is_dir()
    assert found.summary is not None
    assert len(set(found.sequence_ids.tolist())) == 3  # one rollout of the reference for each problem
    selected = found.summary.selected
    assert selected is not None
    assert (selected.reference.path, selected.final.path) == tuple(map(str, reversed(samples.files.values())))


@pytest.mark.slow
def test_what_was_measured_in_memory_is_kept_and_reported_later(models: dict[str, Path], tmp_path: Path) -> None:
    texts = [("1 2 + 3 4 =", "4 6"), "2 2 + 3 4 = 5 6", {"prompt": "1 1 + 1 2 =", "response": "2 3"}]
    result = swerve.probe(*models.values(), texts, progress=False)
    assert result.path is None
    assert result.mean_js == pytest.approx(float(result.js.mean()))
    kept = swerve.probe(*models.values(), texts, out=tmp_path / "kept", progress=False)
    assert kept.sequence_ids.tolist() == result.sequence_ids.tolist()
    assert kept.token_ids.tolist() == result.token_ids.tolist()
    assert kept.js == pytest.approx(result.js, abs=1e-6)
    assert swerve.report(result.save(tmp_path / "saved"), progress=False).is_file()
    with pytest.warns(UserWarning, match=r"causal=True: .* no gold answer, .* name the grader with task=KIND"):
        swerve.probe(*models.values(), texts[:1], causal=True, progress=False)


def test_a_model_in_memory_that_has_changed_is_not_saved_as_what_it_was(
    models: dict[str, Path], tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(models["tuned"])
    text = [("1 2 + 3 4 =", "4 6")]
    result = swerve.probe(models["base"], model, text, progress=False)
    assert result.js == pytest.approx(swerve.probe(*models.values(), text, progress=False).js, abs=1e-6)
    result.save(tmp_path / "same")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    with pytest.raises(ConfigError, match="the models have changed since they were probed"):
        result.save(tmp_path / "changed")
    del model
    with pytest.raises(ConfigError, match="a model that was probed in memory is gone; probe again with out=FOLDER"):
        result.save(tmp_path / "gone")


@pytest.mark.slow
def test_a_model_in_memory_comes_with_its_tokenizer(
    models: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    pairs: dict[str, Any] = {}
    for name, folder in models.items():
        model: Any = AutoModelForCausalLM.from_pretrained(folder)
        model.config._name_or_path = model.name_or_path = ""
        pairs[name] = (model, AutoTokenizer.from_pretrained(folder))
    capfd.readouterr()
    first, text = pairs["base"], [("1 2 + 3 4 =", "4 6")]
    asked: dict[str, Any] = {"problems": PROBLEMS[:1], **LITTLE}
    assert len(swerve.sample(first, **asked)) == 1
    assert swerve.sample(pairs, **asked).labels == ["base", "tuned"]
    assert [row.model for row in swerve.evaluate(first, num_samples=1, temperature=0, **asked).rows] == ["model"]
    expected = swerve.probe(*models.values(), text, progress=False)
    found = swerve.probe(*pairs.values(), text, progress=False)
    kept = swerve.probe(first, {"late": pairs["tuned"]}, text, progress=False, out=tmp_path / "kept")["late"]
    assert found.words == expected.words
    assert found.texts == kept.texts == expected.texts
    assert found.js == pytest.approx(expected.js, abs=1e-6)
    assert kept.js == pytest.approx(expected.js, abs=1e-6)
    assert found.save(tmp_path / "saved").is_dir()
    card = swerve.claim(*pairs.values(), num_samples=2, parts="accuracy", out=tmp_path / "card", **asked)
    assert card.num_samples == 2
    assert "Writing model shards" not in capfd.readouterr().err
    for given in (first[0], [object(), first]):
        with pytest.raises(ConfigError, match=r"as \(model, tokenizer\)"):
            swerve.sample(given, **asked)
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: swerve.probe(first, object(), text), "^object is no model; give a folder"),
        (lambda: swerve.probe(first), r"^give swerve.probe\(run\), or .*; tuple is no run"),
        (lambda: swerve.probe(first, {first[0]: first}, text), "is no name of a model; give models by name"),
        (lambda: swerve.probe(first, {"../x": first}, text, out=tmp_path / "o"), "has no name that a file can have"),
        (
            lambda: swerve.sample(first, first[0]),
            r"^swerve.sample takes as problems .*, and is given a model \(Qwen3F",
        ),
        (lambda: swerve.sample(PROBLEMS, [first[0]]), r"^swerve.sample takes models: .*, and is given rows \(list\)"),
    ]
    for call, said in calls:
        with pytest.raises(ConfigError, match=said) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_card_of_models_and_of_samples(models: dict[str, Path], samples: Any, tmp_path: Path) -> None:
    pair, parts = tuple(models.values()), {"parts": "accuracy"}
    card = swerve.claim(*pair, problems=PROBLEMS, num_samples=2, out=tmp_path / "one", **parts, **LITTLE)
    assert (card.num_samples, card.num_problems, card.base) == (2, 3, "base")
    assert repr(card).startswith("ClaimCard of rl against base, 3 problems of table\n")
    assert repr(card).count("\n") == 2
    assert card.table("by_problem").num_rows == 3
    of_samples = swerve.claim(samples["base"], samples["tuned"], out=tmp_path / "two", progress=False)
    assert of_samples.num_samples == 2
    rows = [{"question": "a", "gold": "4", "response": "4", "correct": right} for right in (True, False)]
    assert swerve.claim([rows[1]], [rows[0]], progress=False).table("by_problem").num_rows == 1
    with pytest.raises(ArtifactError, match="line 1 has neither an id nor a prompt"):
        swerve.claim([{"response": "4"}], [{"response": "5"}], progress=False)
    for given, keywords, said in (
        ((samples.table(),), {}, "a card is of two models"),
        (
            (samples["base"], samples["tuned"]),
            {"zebra": 3},
            r"swerve.claim\(zebra=3\): there is no keyword 'zebra'.*swerve.claim\(base",
        ),
        (pair, {}, "whose problems"),
        ((samples["base"], samples["tuned"]), {"num_samples": 3}, "num_samples= is of models"),
        ((samples, samples["tuned"]), {}, r"samples of 2 models; give one's: samples\['NAME'\]"),
        (pair, {"problems": PROBLEMS, "part": ["accuracy"]}, "no keyword 'part'; did you mean 'parts'"),
    ):
        with pytest.raises(ConfigError, match=said):
            swerve.claim(*given, out=tmp_path / "three", **keywords)


def test_a_card_without_a_place_lasts_as_long_as_it_is_held(
    samples: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cards = [
        swerve.claim(samples, progress=False, parts="accuracy"),
        swerve.claim(samples["base"], samples["tuned"], progress=False, parts="accuracy"),
        swerve.claim(samples["tuned"], samples["base"], progress=False, parts="accuracy"),  # another one, at once
    ]
    assert not list(tmp_path.iterdir())
    assert cards[0].verdicts == cards[1].verdicts
    lines = repr(cards[0]).splitlines()
    page = Path(lines[-1].partition(" ")[0])
    assert lines[3:] == [f"{page} lasts as long as this; out= keeps it"]
    assert page.is_file()
    assert str(page) in cards[0]._repr_html_()
    del cards
    assert not page.exists()
    with pytest.raises(ConfigError, match="several processes need one place for the card; give out="):
        swerve.claim(samples, shard=Shard(number=1, total=2))


def test_answers_are_graded_in_every_form(samples: Any, tmp_path: Path) -> None:
    rows = [{"response": "It is 4.", "gold": "4"}, {"response": "Who knows?", "gold": "5"}]
    found = swerve.grade(rows, task="math", out=tmp_path / "verdicts.jsonl", progress=False)
    assert [row["value"] for row in found] == [1.0, None if found[1]["value"] is None else 0.0]
    assert (found.right or pytest.fail("nothing graded")).mean == 0.5
    assert repr(found).splitlines()[:2] == ["Grades: 2 answers by math", "right: 1, 50% (1 to 99)"]
    assert found.table().column_names[:3] == ["response", "gold", "value"]
    assert len((tmp_path / "verdicts.jsonl").read_text().splitlines()) == 2
    columns = {"completion": ["It is 4."], "gold": ["4"]}
    assert (
        swerve.grade(columns, task="math", fields={"response": "completion"}, progress=False).summary["num_right"] == 1
    )
    names = {"response": "completion", "gold": "gold", "prompt": "q"}
    named = swerve.grade({**columns, "q": ["2 + 2?"]}, task="math", progress=False, **names)
    assert named.summary["num_right"] == 1
    # A null is no answer, and the gold answer beside it is not one either.
    null = [{"question": "2 + 2?", "answer": 4, "response": "4"}, {"question": "2 + 3?", "answer": 5, "response": None}]
    found = swerve.grade(null, task="math", progress=False)
    assert repr(found).splitlines()[1:] == [
        "right: 1, 100% (3 to 100)", "no answer: 0; graded 1",
        "left out: 1: no response (answers, line 2 has null as its response)",
    ]  # fmt: skip
    pairs = swerve.grade([("4", "4"), (None, "5")], task="math", progress=False)
    assert (len(pairs), pairs.summary["num_records"]) == (1, 1)
    known = [{"id": row["question"], "question": row["question"], "answer": row["answer"]} for row in null]
    assert swerve.grade(null, task="math", problems=known, progress=False).summary["num_right"] == 1
    one = swerve.grade([("It is 4.", "4")], task="math", progress=False)
    assert repr(one).startswith("Grades: 1 answer by math\nright: 1, ")
    assert len(swerve.grade(samples["base"], progress=False)) == 6
    boxed = swerve.grade(rows, task="math", extraction=["boxed"], progress=False)
    assert boxed.summary["num_right"] == 0
    for given, keywords, said in (
        ("It is 4.", {}, r"is one text; swerve.rewards.math\(text, gold\) judges it"),
        ([], {"task": "math"}, "there are no answers"),
        (rows, {"task": "maths"}, "did you mean 'math'"),
        (rows, {"task": "math", "out": tmp_path / "x.csv"}, "must end in .jsonl"),
    ):
        with pytest.raises(SwerveError, match=said):
            swerve.grade(given, **keywords)


def test_grades_and_tables_are_compared_and_have_a_card(samples: Any, models: dict[str, Path], tmp_path: Path) -> None:
    rows = {
        name: [{**row, "id": row["question"], "response": answer} for row in PROBLEMS for answer in answers]
        for name, answers in (("early", ["4 6", "5 6"]), ("late", ["4 6", "4 6"]))
    }
    graded = {name: swerve.grade(own, task="addition", progress=False) for name, own in rows.items()}
    means = {name: grades.right.mean for name, grades in graded.items()}
    for given in (graded, {name: grades.to_pandas() for name, grades in graded.items()}):
        found = swerve.compare(given)
        assert {row.model: row.accuracy.mean for row in found.rows} == pytest.approx(means)
    unnamed = swerve.compare(graded["early"], graded["late"].to_pandas())
    assert [row.model for row in unnamed.rows] == ["answers 1", "answers 2"]
    # A table of several models is as many sources, and says the same as their samples.
    of_table, of_samples = swerve.compare(samples.to_pandas()), swerve.compare(samples)
    for one, other in zip(of_table.rows, of_samples.rows, strict=True):
        assert (one.model, one.accuracy, one.mean_reward) == (other.model, other.accuracy, other.mean_reward)
    # The same call finds its card again, wherever rows are written in between.
    card = swerve.claim(*graded.values(), out=tmp_path / "card", progress=False)
    again = swerve.claim(*graded.values(), out=tmp_path / "card", progress=False)
    assert again.model_dump_json(exclude={"made"}) == card.model_dump_json(exclude={"made"})
    with pytest.raises(ConfigError, match="is not what the card in .* is of"):
        swerve.claim(graded["late"], graded["early"], out=tmp_path / "card", progress=False)


def test_what_was_typed_otherwise_is_named_with_what_to_write(samples: Any, models: dict[str, Path]) -> None:
    base, tuned = models.values()
    lines: tuple[tuple[Callable[[], Any], str], ...] = (
        (
            lambda: swerve.sample(model=base, problems=PROBLEMS),
            r"no keyword 'model'; it is 'models' here: write",
        ),
        (lambda: swerve.sample(base, PROBLEMS, n=4, num_samples=4), "'num_samples' is given twice: 'n' is another"),
        (lambda: swerve.evaluate(base, tuned, base, PROBLEMS), "several models are one mapping"),
        (lambda: swerve.sample(base, prompts=PROBLEMS), "no keyword 'prompts'; it is 'problems' here"),
        (
            lambda: swerve.claim(*([{**row, "response": "5"} for row in PROBLEMS],) * 2),
            r"grade it first, such as by mathematics: swerve.grade\(answers, task='math'\).to_pandas\(\)$",
        ),
        (lambda: swerve.grade(PROBLEMS, field={"gold": "key"}), r"'field'; it is 'fields' here: write swerve.grade\("),
        (lambda: swerve.replay("mine", set={"kl.coef": 1}), r"'settings' here: write swerve.replay\(run, ...\)"),
        (lambda: swerve.replay("mine", lr=1e-4), r"no keyword 'lr'.*settings=\{'optimizer.lr': 1e-5\}"),
        (lambda: swerve.sample(base, PROBLEMS, template_arg={"a": 1}), "'template_arg'; it is 'template_args' here"),
        (lambda: swerve.probe(base, tuned, PROBLEMS), r"no response .*; swerve.sample\(models, problems\) has models"),
        (
            lambda: swerve.probe(base, checkpoint=tuned, responses=["a"]),
            "no keyword 'checkpoint'; it is 'checkpoints' here: write",
        ),
        (
            lambda: swerve.probe(base, tuned, ["1 + 2 = 3"], select="all"),
            "select= chooses rollouts from samples of two",
        ),
        (lambda: swerve.claim(base), r"a card is of two models: swerve.claim\(base, trained, problems=...\)"),
        (lambda: swerve.grade(["4"], ["4", "5"], task="math"), "1 text and 2 gold answers; give as many of both"),
        (lambda: swerve.grade([{"response": "4", "gold": "4"}]), "task= is missing: which grader. Give task='math'"),
        (lambda: swerve.tasks("math"), r"swerve.tasks: too many positional arguments; write swerve.tasks\(\)"),
        (lambda: swerve.report(samples, titel="x"), "no keyword 'titel'; did you mean 'title'"),
        (lambda: swerve.train(resume="runs/mine"), r"train what. .*swerve.train\('runs/mine', resume=True\) continues"),
        (
            lambda: swerve.grade([{"response": "4", "key": "4"}], answer="key", task="math"),
            r"fields={'gold': 'key'} names the field of the right answer, fields={'answer': 'key'} that of the text",
        ),
    )
    for call, said in lines:
        with pytest.raises(SwerveError, match=said) as caught:
            call()
        assert "--" not in str(caught.value)


def test_what_is_of_another_kind_is_said_with_what_takes_it(samples: Any, models: dict[str, Path]) -> None:
    base, rows = str(models["base"]), [{"question": "1 2 + 3 4 =", "answer": "4 6"}]
    grades = swerve.grade(["4"], ["4"], task="math", progress=False)
    probed = swerve.probe(*models.values(), ["1 2 + 3 4 ="], progress=False)
    lines: tuple[tuple[Callable[[], Any], str], ...] = (
        (
            lambda: swerve.report(base),
            rf"is given a model \({base}\); swerve.sample\(models, .* take models",
        ),
        (lambda: swerve.compare(base, base), "^swerve.compare takes runs, .*, and is given a model"),
        (lambda: swerve.grade(base), "^swerve.grade takes a list of mappings with response and gold, .* given a model"),
        (lambda: swerve.report(samples.comparison), r"is given a comparison; its table is comparison.to_pandas\(\)"),
        (lambda: swerve.report([samples, samples]), r"a page is of one thing, got .*; swerve.compare\(...\) compares"),
        (lambda: swerve.probe(base, base, grades), "is given what swerve.grade returned; its table is"),
        (lambda: grades["correct"], "rows have numbers, got 'correct'; the columns of grades.to_pandas\\(\\) are"),
        (lambda: swerve.compare(base, base, task="addition"), "^swerve.compare takes runs, .*, and is given a model"),
        (lambda: swerve.grade(probed), r"is given what swerve.probe returned; swerve.report\(result\) makes its page"),
        (lambda: swerve.evaluate(rows), r"is given rows \(list\); .*swerve.grade\(rows, task='math'\) answers"),
        (lambda: swerve.evaluate(samples, rows), r"is given samples; swerve.report\(samples\), "),
        (lambda: swerve.claim(base, probed), "^swerve.claim takes two models, .*, and is given what swerve.probe"),
        (lambda: swerve.report(len), "and not <built-in function len>$"),
        (
            lambda: swerve.sample(None, rows),
            "^swerve.sample takes models: a folder, .*, and not None, of type",
        ),
        (lambda: swerve.Run(samples), "^a run is given by its path, .*, and not as of type SampleSet"),
        (lambda: swerve.load_config(samples), "or a configuration, got of type SampleSet$"),
        (lambda: swerve.read_samples(samples), "^samples are read from a file, and not from of type SampleSet$"),
    )
    for call, said in lines:
        with pytest.raises(ConfigError, match=said) as caught:
            call()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("out", [None, "kept"])
@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"device": "gpu"}, "^device must be one of 'auto', 'cpu', 'cuda', got 'gpu'; did you mean 'cuda'"),
        ({"device": 3}, "^device must be one of 'auto', 'cpu', 'cuda', got 3$"),
        ({"dtype": "bf16"}, "^dtype must be one of 'float32', 'bfloat16'.*, got 'bf16'; did you mean 'bfloat16'"),
        ({"dtype": 16}, "^dtype must be one of .*, got 16$"),
        ({"tokens_per_batch": "x"}, "^tokens_per_batch must be an integer"),
        ({"max_new_tokens": 0}, "^max_new_tokens must be greater than 0, got 0$"),
        ({"template": "chat"}, "^template must be one of 'auto', 'raw', got 'chat'"),
        ({"causal": "yes"}, "^causal is True, False or a mapping"),
        ({"tokenizer": 3}, "^tokenizer is one of transformers, or its folder or name, got 3"),
        ({"progress": "bar"}, "^progress is True, False or None"),
    ],
)
def test_a_wrong_value_is_said_alike_in_memory_and_in_a_folder(
    models: dict[str, Path], tmp_path: Path, keywords: dict[str, Any], said: str, out: str | None
) -> None:
    asked: dict[str, Any] = {"progress": False, "out": None if out is None else tmp_path / out, **keywords}
    with pytest.raises(ConfigError, match=said):
        swerve.probe(*models.values(), ["1 2 + 3 4 ="], **asked)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a CUDA device")
def test_a_device_that_is_not_there_is_said_as_python_has_it(models: dict[str, Path]) -> None:
    said = "^device='cuda': torch finds no CUDA device here; use device='auto' or 'cpu'$"
    with pytest.raises(ConfigError, match=said):
        swerve.probe(*models.values(), ["1 2 + 3 4 ="], device="cuda", progress=False)
    with pytest.raises(ConfigError, match=said):
        swerve.sample(models["base"], PROBLEMS, device="cuda", **LITTLE)
    probed = swerve.probe(*models.values(), ["1 2 + 3 4 ="], device=torch.device("cpu"), dtype=torch.float32)
    assert len(probed.js) == 6


def test_what_others_write_is_taken(samples: Any, small_run: Any, tmp_path: Path) -> None:
    assert swerve.claim(samples, out=tmp_path / "card", progress=False).num_samples == 2
    for asked in ({"task": "math"}, {}):
        assert swerve.grade(["It is 4.", "5"], ["4", "4"], progress=False, **asked).summary["num_right"] == 1
    copy = tmp_path / "run"
    shutil.copytree(small_run.path, copy)
    assert swerve.evaluate(copy, num_samples=1, limit=3, progress=False).rows[0].num_problems == 3
    assert "A title" in swerve.report(samples, title="A title").read_text()


def test_pages_of_samples(samples: Any, models: dict[str, Path], small_run: Any) -> None:
    assert swerve.report(samples).name == "index.html"
    assert swerve.report(samples.files["base"].parent) == swerve.report(samples)
    lasting = swerve.report(swerve.sample(models["base"], PROBLEMS, **LITTLE))
    assert lasting.is_file()
    with pytest.raises(ConfigError, match=r"is another run; swerve.compare\('.*', 'other'\) compares them"):
        swerve.report(str(small_run.path), "other")


def test_a_file_that_is_missing_is_said_as_it_was_typed(
    models: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "problems.jsonl").write_text('{"question": "2 + 2?", "text": "4", "verdict": true}\n')
    typed, near = "files/problem.jsonl", r" does not exist; did you mean 'files/problems.jsonl'\? Give "
    lines: tuple[tuple[Callable[[], Any], str], ...] = (
        (lambda: swerve.sample(models["base"], typed), f"^problems='{typed}'{near}a file"),
        (lambda: swerve.grade(typed, task="math"), f"^{typed}{near}a file"),
        (lambda: swerve.compare(typed, typed), f"^{typed}{near}runs"),
        (lambda: swerve.compare(*["files/problems.jsonl"] * 2), r"say fields=\{'response': 'text'\}$"),
    )
    for call, said in lines:
        with pytest.raises(SwerveError, match=said):
            call()


def test_tasks_and_recipes_by_name() -> None:
    assert "math" in swerve.tasks()
    assert swerve.tasks()["addition"]["source"] == "generated"
    assert repr(swerve.tasks()).startswith(f"{len(swerve.tasks())} tasks by name; swerve.tasks()[NAME] has what")
    assert "\naddition: Column addition written out digit by digit." in repr(swerve.tasks())
    assert list(swerve.recipes("gsm8k")) == ["gsm8k", "spo_gsm8k", "spo_pretraining"]
    assert swerve.recipes("gsm8k").table().num_rows == 5
    assert swerve.recipes.dump_yaml(swerve.load_config("demo_addition")).startswith("name:")
    with pytest.raises(ConfigError, match="there is no task 'maths'; did you mean 'math'"):
        swerve.tasks()["maths"]
    with pytest.raises(ConfigError, match="task='gsm' is not one of .*did you mean 'gsm8k'"):
        swerve.recipes("gsm")


def test_places_that_cannot_be_written_to_are_one_line(small_run: Any) -> None:
    run = swerve.Run(small_run)
    models = [run.model("sft"), run.model("rl")]
    calls: list[Any] = [
        lambda out: swerve.sample(models, PROBLEMS, out=out),
        lambda out: swerve.evaluate(models, PROBLEMS, out=out),
        lambda out: swerve.claim(*models, problems=PROBLEMS, out=out),
    ]
    for call in calls:
        with pytest.raises(SwerveError, match="^cannot write /proc/x/.*make /proc/x writable or choose another"):
            call("/proc/x")
        with pytest.raises(ConfigError, match="is the folder of a run, which keeps its own files"):
            call(run.path)
    assert not (run.path / "claim.json").exists()

    with pytest.raises(ArtifactError, match="^/proc/x: No such file or directory$"):
        swerve.sample(models, PROBLEMS, **LITTLE).save("/proc/x")

    @spoken
    def function() -> None:
        raise FileNotFoundError(2, "No such file or directory", "/proc/x")

    with pytest.raises(ArtifactError, match="^/proc/x: No such file or directory$"):
        function()


def test_a_card_is_no_run_and_a_folder_no_file_of_samples(tmp_path: Path, small_run: Any) -> None:
    (tmp_path / "card").mkdir()
    (tmp_path / "card/claim.json").write_text("{}")
    for function in (swerve.report, swerve.evaluate, swerve.Run):
        with pytest.raises(ArtifactError, match=r"card is a claim card and no run; its page is .*card/index.html"):
            function(tmp_path / "card")
    samples = swerve.sample(swerve.Run(small_run).model("rl"), PROBLEMS, out=tmp_path / "s", max_new_tokens=4)
    (file,) = samples.files.values()
    with pytest.raises(ArtifactError, match=f"s is a folder; give one of its files: {file}$"):
        swerve.read_samples(tmp_path / "s")
    with pytest.raises(ArtifactError, match="card is a folder, and has no file of samples$"):
        swerve.read_samples(tmp_path / "card")


def test_what_is_elsewhere_is_said(small_run: Any) -> None:
    run, module = swerve.Run(small_run), swerve
    for given, name, said in (
        (run, "replay", "swerve.replay(run) takes a run"),
        (run, "tokenizer", "AutoTokenizer.from_pretrained(run.model('rl'))"),
        (run, "export", "swerve export RUN:rl --out FOLDER"),
        (run.model("rl"), "generate", f"AutoModelForCausalLM.from_pretrained({str(run.model('rl').path)!r})"),
        (module, "load", "swerve.Run(FOLDER) opens a run or a kept probe"),
        (module, "evalute", "did you mean 'evaluate'?"),
        (module.rewards, "exact", "swerve.grade(texts, golds, task='exact')"),
        (module.rewards, "multiple_choice", "trl_reward('choice')"),
    ):
        with pytest.raises(AttributeError, match=re.escape(said)):
            getattr(given, name)
        assert not hasattr(given, f"{name}_zebra")


def test_rows_of_no_task_asked_of_a_model_that_was_trained_on_one(small_run: Any) -> None:
    rows = [{"question": "0 5 + 7 6 =", "answer": "0 8 1"}]
    said = "was trained on addition; these problems are asked as those of no task and graded by math, unless the task"
    with pytest.warns(UserWarning, match=said):
        swerve.sample(swerve.Run(small_run).model("rl"), rows, **LITTLE)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "rl-4 was trained on")
        swerve.sample(swerve.Run(small_run).model("rl"), rows, task="addition", **LITTLE)
        swerve.sample(swerve.Run(small_run).model("rl"), [{**rows[0], "grader": "exact"}], **LITTLE)


def test_models_of_a_run(small_run: Any) -> None:
    run = swerve.Run(small_run)
    assert run.model("rl").label == small_run.checkpoints[-1].label
    assert Path(run.model("rl")) == small_run.checkpoints[-1].path
    assert repr(run.model("rl")) == f"NamedModel({run.model('rl').label!r}: {str(run.model('rl').path)!r})"
    assert str(run.config) == repr(run.config)
    assert [len(line) < 120 for line in repr(run.config).splitlines()] == [True] * 3
    assert f"rl (rl, {run.config.stages[-1].steps} steps)" in repr(run.config)
    assert swerve.sample(run.model("rl"), "addition", limit=1, **LITTLE).labels == [run.model("rl").label]
    with pytest.raises(ArtifactError, match="rx"):
        run.model("rx")


def test_a_comparison_says_what_of_its_files_takes_no_part(tmp_path: Path) -> None:
    def write(name: str, first: int, **changes: dict[int, Any]) -> Path:
        rows = [
            {"id": f"p{n // 2}", "question": f"{n // 2}?", "gold": "1", "response": "1", "correct": n % 3 == 0}
            for n in range(24)
        ]
        for column, values in changes.items():
            for number, value in values.items():
                rows[number][column] = value
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows[first:])))
        return path

    early = write("early", 0, correct=dict.fromkeys((0, 1, 5)), response={7: None})
    found = swerve.compare(early, write("late", 6))
    assert repr(found).splitlines() == [
        "Comparison of early, late on 12 and 9 problems",
        "right: early 36% (17 to 60), of 11 of 12 problems, late 33% (15 to 58)",
        "points more than early: late \u22126 (\u221236 to +27), of 9 of 12 problems",
        f"{early}: records without a response, left out: 1 ({early}, line 8 has no response (nor completion_ids); if "
        "its field has another name say fields={'response': 'FIELD'})",
        f"{early}: responses without a verdict, no part of its accuracy: 3 of 23",
    ]
    assert swerve.compare(write("one", 0), write("two", 0)).notes == ()
