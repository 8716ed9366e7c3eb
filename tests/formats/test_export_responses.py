from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from swerve.artifacts.response_columns import RESPONSES_SCHEMA, SAMPLES_SCHEMA
from swerve.artifacts.responses import Response, write_responses
from swerve.errors import ArtifactError, ConfigError
from swerve.formats.export import ExportSummary, format_of
from swerve.formats.export_responses import export_responses
from swerve.formats.imported_responses import read_responses
from swerve.types import Problem
from swerve.version import __version__
from tests.cases import each
from tests.other_programs import ask, needs

PRODUCT = Problem(id="p-1", family="math", question="7 * 8?", answer="56", kind="level 2")
SUM = Problem(
    id="p-2", family="math", question="1 + 1?", answer="2", messages=(("system", "Be brief."), ("user", "1 + 1 = ?"))
)
CALL = {"id": "c1", "name": "calculate", "arguments": '{"expression": "7 * 8"}'}
TURNS = (
    {"role": "assistant", "content": "I use a tool.", "tool_calls": [CALL], "reasoning_content": "Hard."},
    {"role": "tool", "content": "56", "tool_call_id": "c1", "name": "calculate"},
    {"role": "assistant", "content": "It is 56."},
)
OF_MODEL: dict[str, Any] = {"label": "rl-80", "step": 80}
RESPONSES = [
    Response(
        problem=PRODUCT,
        text="I use a tool.\n\nIt is 56.",
        turns=TURNS,
        sample=0,
        prompt_ids=(1, 2),
        completion_ids=(3, 4, 5, 6, 7),
        sampled=(True, True, False, False, True),
        logprobs=(-0.5, -0.25, None, None, -1.0),
        reward=1.0,
        correct=True,
        parts={"correct": 1.0},
        extracted="56",
        finish_reason="stop",
        **OF_MODEL,
    ),
    Response(
        problem=PRODUCT,
        text="55",
        sample=1,
        prompt_ids=(1, 2),
        completion_ids=(3, 9),
        logprobs=(-0.5, -2.0),
        reward=0.25,
        correct=False,
        finish_reason="length",
        extra={"note": "x"},
        **OF_MODEL,
    ),
    Response(problem=SUM, text="2", sample=0, reward=1.0, correct=True, temperature=0.5, **OF_MODEL),
    Response(problem=SUM, text="", sample=1, **OF_MODEL),
]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    write_responses(path, RESPONSES, RESPONSES_SCHEMA, table="responses")
    os.utime(path, (0, 0))
    return path


def exported(table: Path, layout: str, *, name: str) -> tuple[ExportSummary, Path]:
    target = table.parent / name
    return export_responses(table, target, format=format_of(target, layout)), target


def same(response: Response) -> Response:
    """Return a response without what names its file."""
    return replace(response, place="", dialect="")


def test_verifiers(table: Path) -> None:
    summary, folder = exported(table, "verifiers", name="run")
    assert (summary.num_rows, summary.notes) == (4, {})
    first, cut, short, _ = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    call = '{"id": "c1", "name": "calculate", "arguments": "{\\"expression\\": \\"7 * 8\\"}"}'
    assert first["completion"] == [{**TURNS[0], "tool_calls": [call]}, *TURNS[1:]]
    assert first["info"] == {
        **{
            "exported_by": f"swerve {__version__}",
            "asked_by": "question",
            "problem_id": "p-1",
            "family": "math",
            "kind": "level 2",
        },
        **{"question": "7 * 8?", "sample": 0, **OF_MODEL, "reward": 1.0, "correct": True},
        **{"parts": '{"correct": 1.0}', "extracted": "56", "finish_reason": "stop"},
    }
    (step,) = first["trajectory"]
    assert step["tokens"] == {
        "prompt_ids": [1, 2],
        "prompt_mask": [0, 0],
        "completion_ids": [3, 4, 5, 6, 7],
        "completion_mask": [1, 1, 0, 0, 1],
        "completion_logprobs": [-0.5, -0.25, 0.0, 0.0, -1.0],
        "overlong_prompt": False,
        "is_truncated": False,
    }
    assert (cut["is_truncated"], cut["reward"], cut["answer"]) == (True, 0.25, "56")
    assert cut["trajectory"][0]["tokens"]["completion_mask"] == [1, 1]
    assert (short["example_id"], short["trajectory"]) == (1, [])
    assert [message["role"] for message in short["prompt"]] == ["system", "user"]
    metadata = json.loads((folder / "metadata.json").read_text())
    assert {
        key: metadata[key] for key in ("env_id", "model", "num_examples", "rollouts_per_example", "avg_reward")
    } == {**{"env_id": "t", "model": "rl-80", "num_examples": 2, "rollouts_per_example": 2, "avg_reward": 0.75}}


def test_inspect(table: Path) -> None:
    summary, path = exported(table, "inspect", name="t.json")
    assert summary.notes == {"prompt_ids": 2, "completion_ids": 2, "sampled": 1, "logprobs": 2}
    log = json.loads(path.read_text())
    assert list(log)[-1] == "samples"  # a program that reads the header reads no further
    assert log["eval"]["created"] == "1970-01-01T00:00:00+00:00"
    means = {score["name"]: score["metrics"]["mean"]["value"] for score in log["results"]["scores"]}
    assert means == {"correct": 2 / 3, "reward": 0.75}
    first, cut, *_, last = log["samples"]
    assert first["messages"][1] == {
        "role": "assistant",
        "content": [{"type": "reasoning", "reasoning": "Hard."}, {"type": "text", "text": "I use a tool."}],
        "tool_calls": [{"id": "c1", "function": "calculate", "arguments": {"expression": "7 * 8"}, "type": "function"}],
    }
    assert first["messages"][2] == {"role": "tool", "content": "56", "tool_call_id": "c1", "function": "calculate"}
    assert (first["id"], first["epoch"], first["input"], first["target"]) == ("p-1", 1, "7 * 8?", "56")
    assert first["scores"]["correct"] == {"value": "C", "answer": "56", "explanation": None}
    assert (cut["epoch"], cut["output"]["choices"][0]["stop_reason"]) == (2, "max_tokens")
    assert (last["scores"], [message["role"] for message in last["input"]]) == ({}, ["system", "user"])


def test_conversations_keep_the_table(table: Path) -> None:
    summary, path = exported(table, "messages", name="m.parquet")
    assert summary.notes == {}
    rows = pq.read_table(path).to_pylist()
    assert rows[0]["messages"][1]["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "calculate", "arguments": '{"expression": "7 * 8"}'}}
    ]
    assert [message["role"] for message in rows[2]["messages"]] == ["system", "user", "assistant"]
    # Where all are one text, a message has no fields that templates would ask for in vain.
    write_responses(table, RESPONSES[1:], SAMPLES_SCHEMA)
    export_responses(table, path, format="messages", overwrite=True)
    assert pq.read_table(path)["messages"][0].as_py()[0] == {"role": "user", "content": "7 * 8?"}


def test_verl_has_a_row_for_a_problem(table: Path) -> None:
    summary, path = exported(table, "verl", name="v.parquet")
    assert summary.notes == {
        **{"prompt_ids": 2, "completion_ids": 2, "sampled": 1, "turns": 1, "logprobs": 2},
        **{"parts": 1, "extra": 1, "temperature": 1},
    }
    first, second = pq.read_table(path).to_pylist()
    assert first["prompt"] == [{"role": "user", "content": "7 * 8?"}]
    assert (first["data_source"], first["reward_model"]) == ("math", {"style": "rule", "ground_truth": "56"})
    assert first["extra_info"]["index"] == 0
    assert first["extra_info"]["problem_id"] == "p-1"
    assert (first["responses"], first["scores"]) == (["I use a tool.\n\nIt is 56.", "55"], [1.0, 0.25])
    assert [message["role"] for message in second["prompt"]] == ["system", "user"]
    write_responses(table, [RESPONSES[place] for place in (0, 2, 1, 3)], RESPONSES_SCHEMA)
    assert export_responses(table, path, format="verl", overwrite=True).notes.items() >= {
        ("in a row of their own, as others to the problem stand elsewhere in the table", 2)
    }


def test_what_is_known_as_ids_alone_is_said(tmp_path: Path) -> None:
    bare = replace(PRODUCT, question="")
    ids = Response(problem=bare, prompt_ids=(1,), completion_ids=(2,))
    write_responses(tmp_path / "t.parquet", [ids, replace(ids, prompt="<user>7 * 8?", text="56")], RESPONSES_SCHEMA)
    summary, folder = exported(tmp_path / "t.parquet", "verifiers", name="run")
    assert summary.notes == {
        "prompts that are one text, or ids alone, as one message": 2,
        "texts that are known as ids alone, as empty messages": 1,
    }
    first, second = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    assert first["completion"] == [{"role": "assistant", "content": ""}]
    assert first["trajectory"][0]["tokens"]["completion_ids"] == [2]
    assert second["prompt"] == [{"role": "user", "content": "<user>7 * 8?"}]
    assert read_responses(folder / "results.jsonl")[0].prompt is None
    _, log = exported(tmp_path / "t.parquet", "inspect", name="t.json")
    assert [response.prompt for response in read_responses(log)] == [None, "<user>7 * 8?"]


def test_arguments_that_are_no_object(tmp_path: Path) -> None:
    turns = ({**TURNS[0], "tool_calls": [{**CALL, "arguments": "{"}]}, *TURNS[1:])
    write_responses(tmp_path / "t.parquet", [replace(RESPONSES[0], turns=turns)], RESPONSES_SCHEMA)
    _, path = exported(tmp_path / "t.parquet", "inspect", name="t.json")
    message = json.loads(path.read_text())["samples"][0]["messages"][1]
    assert message["tool_calls"][0]["arguments"] == {"arguments": "{"}


def test_the_ending_says_what_is_written(tmp_path: Path) -> None:
    for name in ("inspect", "messages", "verl"):
        with pytest.raises(ConfigError, match=f"--format {name} writes a .* file; give --out a name that ends so"):
            format_of(tmp_path / "out.jsonl", name)


TOKENS: dict[str, Any] = {"prompt_ids": (), "completion_ids": (), "sampled": (), "logprobs": ()}
READ_BACK = {
    "inspect": ("t.json", TOKENS),
    "verifiers": ("run", {}),
    "messages": ("m.parquet", {}),
    "verl": ("v.parquet", {**TOKENS, "turns": (), "parts": {}, "extra": {}, "temperature": None}),
}
"""Layout -> its file, and what it has no place for, or nobody reads."""


@pytest.mark.parametrize("layout", READ_BACK)
def test_an_export_is_imported_as_the_same_responses(table: Path, layout: str) -> None:
    name, lost = READ_BACK[layout]
    _, path = exported(table, layout, name=name)
    found = read_responses(path / "results.jsonl" if layout == "verifiers" else path)
    assert [replace(same(one), **lost) for one in found] == [replace(one, **lost) for one in RESPONSES]


@pytest.mark.parametrize("layout", ["inspect", "verifiers", "verl"])
def test_what_was_asked_stays_what_it_was(tmp_path: Path, layout: str) -> None:
    only = replace(SUM, question="Hi?", messages=(("user", "Hi?"),))
    asked = [
        Response(problem=only, text="a", sample=0),
        Response(problem=replace(only, id="p-3", question="", messages=()), prompt="<user>Hi?", text="b", sample=0),
        Response(problem=replace(only, id="p-4", messages=()), prompt="<user>Hi?", text="c", sample=0),
    ]
    write_responses(tmp_path / "t.parquet", asked, RESPONSES_SCHEMA)
    name, _ = READ_BACK[layout]
    _, path = exported(tmp_path / "t.parquet", layout, name=name)
    found = list(map(same, read_responses(path / "results.jsonl" if layout == "verifiers" else path)))
    assert found[:2] == asked[:2]
    assert found[2] == (replace(asked[2], prompt=None) if layout == "verl" else asked[2])


def test_a_changed_free_field_is_an_error(table: Path) -> None:
    _, path = exported(table, "inspect", name="t.json")
    path.write_text(path.read_text().replace('"step": 80', '"step": "late"'))
    with pytest.raises(ArtifactError, match="t.json.*late"):
        read_responses(path)


@pytest.mark.slow
@each("layout", ["verifiers", "inspect", "messages", "verl"])
def test_the_same_bytes_and_no_file_without_responses(tmp_path: Path, layout: str) -> None:
    name = {"inspect": "t.json", "verifiers": "t"}.get(layout, "o.parquet")
    folder = tmp_path / layout
    folder.mkdir()
    contents = []
    for _ in range(2):
        write_responses(folder / "t.parquet", RESPONSES, RESPONSES_SCHEMA)
        os.utime(folder / "t.parquet", (0, 0))
        export_responses(folder / "t.parquet", folder / name, format=format_of(folder / name, layout), overwrite=True)
        written = folder / name / "results.jsonl" if layout == "verifiers" else folder / name
        contents.append(written.read_bytes())
    assert contents[0] == contents[1]
    write_responses(folder / "t.parquet", [], RESPONSES_SCHEMA)
    with pytest.raises(ArtifactError, match="t.parquet has no records"):
        export_responses(folder / "t.parquet", folder / "none", format=format_of(folder / name, layout))
    assert not (folder / "none").exists()


def test_a_file_of_another_program_is_exported_as_it_is_read(tmp_path: Path) -> None:
    dump = {"input": "1 + 1 =", "output": "2", "gts": "2", "score": 1.0, "step": 3}
    (tmp_path / "3.jsonl").write_text(json.dumps(dump) + "\n")
    _, path = exported(tmp_path / "3.jsonl", "inspect", name="3.json")
    (sample,) = json.loads(path.read_text())["samples"]
    assert (sample["input"], sample["target"], sample["scores"]["reward"]["value"]) == ("1 + 1 =", "2", 1.0)


_INSPECT = """
from pathlib import Path
from inspect_ai.log import list_eval_logs, read_eval_log
log, head = read_eval_log(sys.argv[1]), read_eval_log(sys.argv[1], header_only=True)
rewards = [sample.scores["reward"].value if sample.scores else None for sample in log.samples]
print(json.dumps({
    "listed": len(list_eval_logs(str(Path(sys.argv[1]).parent))),
    "means": {score.name: score.metrics["mean"].value for score in head.results.scores},
    "samples": [[s.id, s.epoch, s.target, s.output.completion, reward] for s, reward in zip(log.samples, rewards)],
    "calls": [call.arguments for call in log.samples[0].messages[1].tool_calls],
    "roles": [message.role for message in log.samples[0].messages],
}))
"""
_VERIFIERS = """
from pathlib import Path
from verifiers.scripts.tui import LazyRunResults, discover_results
from verifiers.utils.save_utils import load_outputs, make_dataset
outputs = load_outputs(Path(sys.argv[1], "evals/sums--rl-80/1"))
rows = make_dataset({"outputs": outputs, "metadata": {}})
(run,) = discover_results("none", sys.argv[1])["sums"]["rl-80"]
shown = LazyRunResults(run)
print(json.dumps({
    "count": [len(shown), shown.count_hint(), len(rows)],
    "mean": run.load_metadata()["avg_reward"],
    "rewards": rows["reward"][:],
    "mask": rows[0]["trajectory"][0]["tokens"]["completion_mask"],
    "roles": [message["role"] for message in shown[0]["completion"]],
}))
"""
_DATASETS = """
import datasets
loaded = datasets.load_dataset("parquet", data_files=sys.argv[1], cache_dir=sys.argv[2])["train"]
print(json.dumps({
    "features": {name: str(loaded.features[name]) for name in ("reward", "completion_ids", "sampled")},
    "roles": [[message["role"] for message in row["messages"]] for row in loaded],
    "rewards": loaded["reward"][:],
}))
"""
_VERL = """
import os
from omegaconf import OmegaConf
from transformers import AutoTokenizer
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
prompts, conversations, folder = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
rl = RLHFDataset(prompts, tokenizer, OmegaConf.create({"cache_dir": folder, "filter_overlong_prompts_workers": 1}))
batch = collate_fn([rl[place] for place in range(len(rl))])
config = OmegaConf.create({"max_length": 512, "ignore_input_ids_mismatch": True})
sft = MultiTurnSFTDataset(conversations, tokenizer, config)
learned = sft[0]["input_ids"][sft[0]["loss_mask"].bool()]
print(json.dumps({
    "golds": [reward["ground_truth"] for reward in batch["reward_model"]],
    "prompts": [[message["role"] for message in prompt] for prompt in batch["raw_prompt"]],
    "sources": list(batch["data_source"]),
    "count": len(sft),
    "learned": tokenizer.decode(learned, skip_special_tokens=True),
}))
"""


@pytest.mark.slow
@needs("inspect")
def test_inspect_reads_it(table: Path) -> None:
    _, path = exported(table, "inspect", name="2026-11-26T12-00-00_t.json")
    assert ask("inspect", _INSPECT, path) == {
        "listed": 1,
        "means": {"correct": 2 / 3, "reward": 0.75},
        "samples": [
            ["p-1", 1, "56", "It is 56.", 1.0],
            ["p-1", 2, "56", "55", 0.25],
            ["p-2", 1, "2", "2", 1.0],
            ["p-2", 2, "2", "", None],
        ],
        "calls": [{"expression": "7 * 8"}],
        "roles": ["user", "assistant", "tool", "assistant"],
    }


@pytest.mark.slow
@needs("verifiers")
def test_verifiers_reads_it(table: Path) -> None:
    exported(table, "verifiers", name="evals/sums--rl-80/1")
    assert ask("verifiers", _VERIFIERS, table.parent) == {
        "count": [4, 4, 4],
        "mean": 0.75,
        "rewards": [1.0, 0.25, 1.0, None],
        "mask": [1, 1, 0, 0, 1],
        "roles": ["assistant", "tool", "assistant"],
    }


@pytest.mark.slow
@needs("datasets")
def test_datasets_reads_it(table: Path) -> None:
    _, path = exported(table, "messages", name="m.parquet")
    assert ask("datasets", _DATASETS, path, table.parent / "cache") == {
        "features": {
            "reward": "Value('float64')",
            "completion_ids": "List(Value('int32'))",
            "sampled": "List(Value('bool'))",
        },
        "roles": [
            ["user", "assistant", "tool", "assistant"],
            ["user", "assistant"],
            *[["system", "user", "assistant"]] * 2,
        ],
        "rewards": [1.0, 0.25, 1.0, None],
    }


@pytest.mark.slow
@needs("verl")
def test_verl_reads_it(table: Path) -> None:
    from tests.chat_models import TURNS as TEMPLATE
    from tests.chat_models import byte_level

    byte_level(TEMPLATE).save_pretrained(table.parent / "tokenizer")
    _, prompts = exported(table, "verl", name="v.parquet")
    _, conversations = exported(table, "messages", name="m.parquet")
    assert ask("verl", _VERL, prompts, conversations, table.parent / "tokenizer") == {
        "golds": ["56", "2"],
        "prompts": [["user"], ["system", "user"]],
        "sources": ["math", "math"],
        "count": 4,
        "learned": "I use a tool.\nIt is 56.\n",
    }
