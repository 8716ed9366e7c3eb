"""Supervised stages: validation, early stopping with exact resume, examples and plain text from files."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

import pytest
import torch
import yaml
from transformers import GenerationConfig

from swerve.artifacts.metrics import read_metrics
from swerve.artifacts.responses import Response
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.samples import SampledModel, SamplesInfo, SamplesTokenizer, write_samples
from swerve.errors import ArtifactError, ConfigError, InterruptedRunError
from swerve.models.model_folder import tokenizer_fingerprint
from swerve.problems import load_family
from swerve.problems.held_out import held_out_of
from swerve.problems.learned import read_learned
from swerve.recipes import load_config
from swerve.seeds import derive_seed
from swerve.train.examples import ExampleReader
from swerve.train.loop import train_run
from swerve.train.stages.sft import SftRunner
from swerve.types import Completion, Problem, Prompt, Reward, Rollout
from tests.builders import Notes, trained_run
from tests.chat_models import CALLS, THINKS, TURNS, byte_level, save_model
from tests.json_lines import write_json_lines

STAGE = {
    "kind": "sft",
    "steps": 400,
    "batch_size": 16,
    "validation_share": 0.2,
    "validate_every": 5,
    "early_stopping": {"patience": 2, "min_delta": 0.1},
    "optimizer": {"lr": 2e-2, "beta2": 0.95},
}

SAVING = {**STAGE, "save_every": 4}


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Load a recipe of a tiny model with some stages."""
    tmp_path = tmp_path_factory.mktemp("recipe")

    def load_stages(*stages, **keys):
        document = {
            "seed": 5,
            "task": {"kind": "addition", "digits": 2, "num_train": 60, "num_heldout": 24, "mistake_rate": 0.5},
            "model": "tiny",
            "max_new_tokens": 36,
            "stages": list(stages),
            "runtime": {"device": "cpu", "threads": 1},
            **keys,
        }
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(document))
        return load_config(tmp_path / "recipe.yaml")

    return load_stages


@pytest.fixture(scope="module")
def whole(load, tmp_path_factory):
    """A run of one stage that stopped early, and the step whose weights it ends with."""
    run = trained_run(load(SAVING), tmp_path_factory.mktemp("whole") / "run")
    return run, read_metrics(run.metrics_path)[-1]["best_step"]


def _timeless(run):
    return [{**record, "seconds": None} for record in read_metrics(run.metrics_path)]


@pytest.mark.slow
def test_a_stage_ends_with_the_weights_of_its_lowest_validation_loss(load, tmp_path):
    run = trained_run(
        load(STAGE, {"kind": "sft", "name": "more", "steps": 1, "optimizer": {"lr": 1e-4}}), tmp_path / "run"
    )
    records = [record for record in read_metrics(run.metrics_path) if record["stage"] == "sft"]
    losses = {record["stage_step"]: record["val_loss"] for record in records if "val_loss" in record}
    best = records[-1]["best_step"]
    assert records[-1]["stage_step"] == best + 10 < 400
    assert [losses[best] - losses[best + later] > 0.1 for later in (-5, 5, 10)] == [False, False, False]
    assert losses[best - 5] - losses[best] > 0.1
    assert [(one.label, one.step, one.final) for one in run.checkpoints] == [
        ("sft-400", 400, True),
        ("more-1", 401, True),
    ]
    # Validation and stopping change no update: a run of as many steps without them has the same weights.
    plain = {key: value for key, value in STAGE.items() if key not in ("validate_every", "early_stopping")}
    shorter = trained_run(load({**plain, "steps": best}), tmp_path / "shorter")
    assert run.select_checkpoint("sft").weights_sha256 == shorter.select_checkpoint("sft").weights_sha256


def _at(step, action, monkeypatch):
    """Do something once, during a step."""
    original = SftRunner.step

    def stepping(self, index):
        if index + 1 == step:
            monkeypatch.setattr(SftRunner, "step", original)
            action()
        return original(self, index)

    monkeypatch.setattr(SftRunner, "step", stepping)


def _crash():
    raise RuntimeError("killed")


def _interrupt():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.slow
def test_a_stopped_or_killed_stage_resumes_to_the_same_bytes(load, whole, tmp_path, monkeypatch):
    config, (expected, best) = load(SAVING), whole
    for number, (step, action) in enumerate(((best + 9, _crash), (best + 4, _interrupt), (best + 10, _interrupt))):
        path = tmp_path / str(number)
        _at(step, action, monkeypatch)
        with pytest.raises((RuntimeError, InterruptedRunError)):
            trained_run(config, path)
        assert step == best + 10 or best in [one.stage_step for one in RunDirectory(path).checkpoints]
        run = trained_run(config, path, resume=True)
        assert _timeless(run) == _timeless(expected)
        assert [(one.label, one.weights_sha256) for one in run.checkpoints] == [
            (one.label, one.weights_sha256) for one in expected.checkpoints
        ]


@pytest.mark.slow
def test_without_its_best_checkpoint_a_stage_resumes_from_before_it(load, whole, tmp_path, monkeypatch):
    config, (expected, best) = load(SAVING), whole
    _at(best + 4, _interrupt, monkeypatch)
    with pytest.raises(InterruptedRunError):
        trained_run(config, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    rmtree(next(one for one in run.checkpoints if one.stage_step == best).path)
    trained_run(config, run.path, resume=True)
    assert _timeless(run) == _timeless(expected)
    assert run.select_checkpoint("sft").weights_sha256 == expected.select_checkpoint("sft").weights_sha256


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"validation_share": None}, "early_stopping needs a validation loss"),
        ({"validation": "held.jsonl"}, "give one of them"),
        ({"checkpoints": [5]}, "leave checkpoints and checkpoint_every out"),
        ({"data": "a.jsonl", "where": {"kinds": ["1 carry"]}}, "with data leave them out"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(load, changes, message):
    with pytest.raises(ConfigError, match=message):
        load({**STAGE, **changes})


def _reader(tiny, **changes):
    _, tokenizer = tiny
    settings = {"positions": 64, "max_length": None, "packing": True, "note": lambda line: None}
    return ExampleReader(tokenizer=tokenizer, **{"stop_ids": (tokenizer.eos_token_id,), **settings, **changes})


def _write(path: Path, *rows) -> str:
    write_json_lines(path, rows)
    return str(path)


def test_every_token_of_packed_text_is_learned_once_after_the_token_before_it(tiny, tmp_path):
    _, tokenizer = tiny
    source = _write(tmp_path / "text.jsonl", {"text": "1 + 2 = 3"}, {"text": " "}, {"text": "0 + 1"})
    end = tokenizer.eos_token_id
    first, second = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("1 + 2 = 3", "0 + 1"))
    stream = [*first, end, *second, end]
    packed = [one.sequences[0] for one in _reader(tiny, max_length=5).read([source])]
    assert [token for _, completion in packed for token in completion] == stream
    assert [prompt[0] for prompt, _ in packed] == [tokenizer.bos_token_id, stream[3], stream[7]]
    assert [len(completion) for _, completion in packed] == [4, 4, 2]
    apart = [one.sequences[0][1] for one in _reader(tiny, max_length=5, packing=False).read([source])]
    assert apart == [tuple(stream[:4]), tuple(stream[4:6]), tuple(stream[6:])]  # cut at the document's end
    (tmp_path / "text.txt").write_text("1 + 2 = 3")
    assert [one.sequences[0][1] for one in _reader(tiny).read([str(tmp_path / "text.txt")])] == [tuple(stream[:6])]


def test_text_that_cannot_be_learned_is_refused_by_its_place(tiny, tmp_path):
    with pytest.raises(ConfigError, match=r"no token for a word of .*text\.jsonl, line 2"):
        _reader(tiny).read([_write(tmp_path / "text.jsonl", {"text": "1"}, {"text": "seven"})])
    with pytest.raises(ConfigError, match="has no text"):
        _reader(tiny).read([_write(tmp_path / "none.jsonl", {"text": ""})])
    with pytest.raises(ArtifactError, match=r"bytes\.txt cannot be read as UTF-8"):
        (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\xff")
        _reader(tiny).read([str(tmp_path / "bytes.txt")])


def test_responses_are_learned_after_their_prompts(tiny, tmp_path):
    _, tokenizer = tiny
    begin = tokenizer.bos_token_id
    ids = lambda text: tuple(tokenizer(text, add_special_tokens=False)["input_ids"])  # noqa: E731
    end = tokenizer.eos_token_id
    chat = {"messages": [{"role": "user", "content": "1 + 2 ="}, {"role": "assistant", "content": "3"}]}
    plain = {"question": "0 + 1 =", "response": "1"}
    own_ids = {
        "question": "1 + 1 =",
        "response": "2",
        "prompt_ids": [begin, *ids("1 + 1 =")],
        "completion_ids": [*ids("2"), end],
    }
    # Ids that do not give the text are of another tokenizer: the text is encoded.
    foreign = {**own_ids, "completion_ids": [*ids("3")]}
    expected = {
        "chat": ((begin, *ids("1 + 2 =")), (*ids("3"), end)),
        "plain": ((begin, *ids("0 + 1 =")), (*ids("1"), end)),
        "own_ids": ((begin, *ids("1 + 1 =")), (*ids("2"), end)),
        "foreign": ((begin, *ids("1 + 1 =")), (*ids("2"), end)),
    }
    for name, row in {"chat": chat, "plain": plain, "own_ids": own_ids, "foreign": foreign}.items():
        (found,) = _reader(tiny).read([_write(tmp_path / f"{name}.jsonl", row)])
        assert found.sequences == (expected[name],), name


def _sample(problem, *, text, finish_reason):
    completion = Completion(token_ids=(5, 6), logprobs=(-1.0, -1.0), finish_reason=finish_reason)
    rollout = Rollout(completion=completion, text=text, reward=Reward(value=1.0, status="graded"), version=0)
    known = {"sample": 0, "label": "m", "prompt": problem.question, "temperature": 1.0, "seed": 0}
    return Response.of(Prompt(problem=problem, token_ids=(3, 4)), rollout, **known)


def test_a_file_of_samples_is_learned_by_its_ids_where_the_tokenizer_is_the_models(tiny, tmp_path):
    _, tokenizer = tiny
    model = SampledModel(label="m", source="owner/m", fingerprint="", dtype="float32", device="cpu")
    info = SamplesInfo(
        **{"model": model, "task": {}, "split": "train", "num_problems": 1, "problems_sha256": "", "num_samples": 1},
        **{"temperatures": (1.0,), "max_new_tokens": 4, "seed": 0, "swerve_version": "0"},
        tokenizer=SamplesTokenizer(name="owner/m", sha256=tokenizer_fingerprint(tokenizer)),
    )
    problem = Problem(id="p", family="addition", question="1 + 1 =", answer="2")
    sample = _sample(problem, text="2", finish_reason="length")
    write_samples(tmp_path / "own.parquet", info, [sample])
    (own,) = _reader(tiny).read([str(tmp_path / "own.parquet")])
    assert own.sequences == (((3, 4), (5, 6)),)  # as they are, cut off at the limit
    other = info.model_copy(update={"tokenizer": SamplesTokenizer(name="owner/n", sha256="other")})
    write_samples(tmp_path / "other.parquet", other, [sample])
    (encoded,) = _reader(tiny).read([str(tmp_path / "other.parquet")])
    assert tokenizer.decode(encoded.sequences[0][1]) == "2"
    ended = replace(sample, finish_reason="stop")
    write_samples(tmp_path / "ended.parquet", other, [ended])
    (encoded,) = _reader(tiny).read([str(tmp_path / "ended.parquet")])
    assert tokenizer.decode(encoded.sequences[0][1]) == f"2 {tokenizer.eos_token}"
    assert tokenizer.decode(encoded.sequences[0][0], skip_special_tokens=True) == "1 + 1 ="


ASKED = {"role": "user", "content": "2 + 2?"}
USED = {
    "role": "assistant",
    "content": "I add.",
    "tool_calls": [{"id": "1", "function": {"name": "add", "arguments": '{"a": 2, "why": "it is \\"two\\""}'}}],
}
RETURNED = {"role": "tool", "tool_call_id": "1", "content": "4<|end|>"}
FOUND = {"role": "assistant", "content": "It is 4."}


def _learned(tmp_path, rows, template, notes=None, **files):
    """What is learned of some rows by a byte-level tokenizer with a template: of each its prompt and what follows."""
    tokenizer = byte_level(template)
    reader = _reader(
        (None, tokenizer), positions=None, stop_ids=(tokenizer.eos_token_id, 1), note=notes or (lambda line: None)
    )
    decode = lambda ids: tokenizer.decode(list(ids))  # noqa: E731
    examples = reader.read([_write(tmp_path / "rows.jsonl", *rows)])
    return [[(decode(prompt), decode(completion)) for prompt, completion in one.sequences] for one in examples]


@pytest.mark.parametrize("template", [TURNS, CALLS, THINKS, None])
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_kept_apart_are_learned_as_those_within_the_text(template, name, tmp_path):
    apart = {"question": "2 + 2?", "response": "It is 4.", name: "two and two"}
    message = {"messages": [ASKED, {"role": "assistant", "content": "It is 4.", name: "two and two"}]}
    before, between = ("<think>", "</think>") if template == CALLS else ("<think>\n", "\n</think>\n\n")
    inline = {"question": "2 + 2?", "response": f"{before}two and two{between}It is 4."}
    first, second, third = (_learned(tmp_path, [row], template)[0] for row in (inline, apart, message))
    assert first == second == third
    assert "two and two" in first[0][1]


def test_of_a_conversation_with_tools_each_turn_is_learned_after_all_before_it(tmp_path):
    notes = Notes()
    ((first, second),) = _learned(tmp_path, [{"messages": [ASKED, USED, RETURNED, FOUND]}], CALLS, notes.note)
    prompt = "<|user|>2 + 2?<|end|>\n<|assistant|>"
    called = 'I add.<call>add {"a": 2, "why": "it is \\"two\\""}<|end|>'
    assert first == (prompt, called)
    # What the tool returned is read and not learned, and its text is no token that ends a turn.
    assert second == (f"{prompt}{called}\n<|tool|>4<|end|><|end|>\n<|assistant|>", "It is 4.<|end|>")
    assert "all of 1 response with several messages or calls of tools are learned" in notes.notes[0]


def test_records_without_a_response_are_left_out_and_said(tmp_path):
    notes = Notes()
    rows = [{"question": "2 + 2?", "response": "4"}, {"question": "3 + 3?", "response": None}]
    ((sequence,),) = _learned(tmp_path, rows, CALLS, notes.note)
    assert sequence[1] == "4<|end|>"
    assert "records without a response, left out: 1 (" in notes.notes[0]
    assert "line 2" in notes.notes[0]


def test_what_a_template_does_not_write_is_not_learned_and_counted(tmp_path):
    rows = [{"id": str(number), "messages": [ASKED, USED, RETURNED, FOUND]} for number in range(2)]
    rows.append({"id": "2", "messages": [ASKED, FOUND]})
    refused = "2 of 2 responses with several messages or calls of tools cannot be learned as the model wrote them"
    names_only = CALLS.replace("{{ c.function.arguments | tojson }}", "")
    for template in (TURNS, names_only, None):
        with pytest.raises(ArtifactError, match=rf"{refused}: the chat template, or none, leaves out .* line 1"):
            _learned(tmp_path, rows, template)


def test_what_is_too_long_or_recorded_as_wrong_is_said(tiny, tmp_path):
    notes = []
    rows = [{"question": "1 + 1 =", "response": "2", "correct": True}, {"question": "1 = ", "response": "1 1 1 1 1"}]
    source = _write(tmp_path / "a.jsonl", *rows, {"question": "1 + 2 =", "response": "1", "correct": False})
    assert len(_reader(tiny, max_length=7, note=notes.append).read([source])) == 2
    assert [line.partition(": ")[2] for line in notes] == [
        "1 of 3 examples have more than 7 tokens",
        "1 of 3 responses are recorded as wrong and are learned all the same; swerve data select --correct leaves "
        "them out",
    ]
    with pytest.raises(ConfigError, match="none of 3 examples of .* has at most 2 tokens"):
        _reader(tiny, max_length=2).read([source])


def _spaced(text: str) -> str:
    return text.replace(" ", "  ")


def test_what_the_task_holds_out_is_not_learned_whichever_way_it_comes(load, tmp_path):
    stage = {"kind": "sft", "steps": 1, "batch_size": 4, "optimizer": {"lr": 1e-3}}
    config = load({**stage, "data": "data.jsonl"})
    family, seed = load_family(config.task), derive_seed(config.seed, "problems")
    held, learned = family.problems("heldout", seed=seed)[:3], family.problems("train", seed=seed)[:2]
    # Responses, chats within a prompt of their own, plain text in records and in a file, and a file of samples.
    both = [*held, *learned]
    sources = {
        "plain": _write(tmp_path / "plain.jsonl", *({"question": _spaced(p.question), "response": "1"} for p in both)),
        "chat": _write(
            tmp_path / "chat.jsonl",
            *(
                {"messages": [{"role": "user", "content": p.question}, {"role": "assistant", "content": "1"}]}
                for p in both
            ),
        ),
        "text": _write(tmp_path / "text.jsonl", *({"text": f"{p.question} {p.solution}"} for p in both)),
        "txt": str(tmp_path / "text.txt"),
        "samples": str(tmp_path / "samples.parquet"),
    }
    (tmp_path / "text.txt").write_text("\n\n".join(f"{p.question} {p.solution}" for p in both))
    model = SampledModel(label="m", source="owner/m", fingerprint="", dtype="float32", device="cpu")
    info = SamplesInfo(
        **{"model": model, "task": {}, "split": "train", "num_problems": 5, "problems_sha256": "", "num_samples": 1},
        **{"temperatures": (1.0,), "max_new_tokens": 4, "seed": 0, "swerve_version": "0"},
        tokenizer=SamplesTokenizer(name="owner/m", sha256="other"),
    )
    samples = [_sample(p, text="1", finish_reason="stop") for p in both]
    write_samples(tmp_path / "samples.parquet", info, samples)
    held_out = held_out_of(family, seed=seed, keep=False)
    for name, source in sources.items():
        notes: list[str] = []
        _, read = read_learned(source, held_out, notes.append)
        assert notes == [f"{source}: 3 of 5 left out: also held out"], name
        questions = [response.problem.question or dict(response.problem.messages)["user"] for response in read]
        assert not read or [text.split() for text in questions] == [p.question.split() for p in learned]
    # A stage leaves them out of its data, its validation and its passes, and says so; one key keeps them.
    passes = {**stage, "steps": None, "epochs": 2, "batch_size": 2, "data": sources["plain"]}
    for keep, num_steps in ((False, 2), (True, 5)):
        config = load({**passes, "validation": sources["text"]}, keep_heldout=keep)
        run, progress = RunDirectory(tmp_path / str(keep)), Notes()
        train_run(config, run, resume=False, progress=progress)
        said = [line for line in progress.notes if "held out" in line]
        assert said == [] if keep else [f"{sources[n]}: 3 of 5 left out: also held out" for n in ("plain", "text")]
        assert len(read_metrics(run.metrics_path)) == num_steps
    only = _write(tmp_path / "only.jsonl", *({"question": p.question, "response": "1"} for p in held))
    with pytest.raises(ConfigError, match=r"all of .*only\.jsonl \(3\) is also held out by the task; sample the tr"):
        trained_run(load({**stage, "data": sources["plain"], "validation": only}), tmp_path / "only")


def test_examples_are_trained_on_in_passes_and_validated_by_problem(load, tmp_path):
    rows = [{"id": f"p{n // 2}", "question": "1 2 + 3 4 =", "response": f"{n % 10}"} for n in range(20)]
    source = _write(tmp_path / "data.jsonl", *rows)
    stage = {**STAGE, "steps": 10, "batch_size": 8, "validate_every": 5, "data": source}
    run = trained_run(load({key: value for key, value in stage.items() if key != "early_stopping"}), tmp_path / "run")
    records = read_metrics(run.metrics_path)
    assert [record["epoch"] for record in records[:2]] == [0.5, 1.0]  # 2 of 10 problems are held out, with 4 responses
    assert [record["stage_step"] for record in records if "val_loss" in record] == [5, 10]
    assert records[0]["num_tokens"] == 16
    held = _write(tmp_path / "held.jsonl", *rows[:3])
    other = {**stage, "validation_share": None, "validation": held, "early_stopping": None}
    records = read_metrics(trained_run(load(other), tmp_path / "other").metrics_path)
    assert records[1]["epoch"] == 0.8
    assert "val_loss" in records[-1]
    with open(held, "a") as stream:
        stream.write("\n")
    with pytest.raises(ConfigError, match=r"the code or data of stages\.sft\.validation has changed since"):
        trained_run(load(other), tmp_path / "other", resume=True)


CHAT_RECIPE = """
seed: 1
task: {{kind: math, train: [{problems}], heldout: [{heldout}]}}
model: {{kind: pretrained, path: {model}}}
max_new_tokens: 8
stages: [{{kind: sft, data: {data}, optimizer: {{lr: 1e-9}}, {stage}}}]
runtime: {{device: cpu, threads: 1}}
"""


def _chat_run(tmp_path, tokenizer, rows, stage):
    """Train a tiny model on chats; return the model before, the metrics and the notes."""
    model = save_model(tmp_path / "model", tokenizer, eos=[0])
    chats = [{"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]} for q, a in rows]
    paths = {"data": _write(tmp_path / "chats.jsonl", *chats), "model": tmp_path / "model"}
    problems = _write(tmp_path / "problems.jsonl", {"question": "1 + 1 =", "answer": "2"})
    heldout = _write(tmp_path / "heldout.jsonl", {"question": "2 + 2 =", "answer": "4"})
    recipe = CHAT_RECIPE.format(problems=problems, heldout=heldout, stage=stage, **paths)
    (tmp_path / "r.yaml").write_text(recipe)
    notes, run = Notes(), RunDirectory(tmp_path / "run")
    train_run(load_config(tmp_path / "r.yaml"), run, resume=False, progress=notes)
    return model, read_metrics(run.metrics_path), notes.notes


def _loss(model, tokenizer, texts):
    """Return the mean loss over the completions' tokens, from transformers alone in float64."""
    model, losses = model.double(), []
    for prompt, completion in texts:
        begun, ids = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, prompt + completion))
        logits = model(torch.tensor([ids])).logits[0, len(begun) - 1 : -1]
        losses.append(torch.nn.functional.cross_entropy(logits, torch.tensor(ids[len(begun) :]), reduction="none"))
    return float(torch.cat(losses).mean().detach())


@pytest.mark.parametrize(
    ("template", "answer", "prompt", "completion"),
    [
        (TURNS, "10", "<|user|>q<|end|>\n<|assistant|>", "10<|end|>"),
        (TURNS, "10<|end|>", "<|user|>q<|end|>\n<|assistant|>", "10<|end|>"),
        (THINKS, "<think>\nso</think>10", "<|user|>q<|end|>\n<|assistant|><think>\n", "so</think>10<|end|>"),
        (None, "10", "q", "10<|endoftext|>"),
    ],
)
def test_the_loss_is_that_of_what_the_template_writes(tmp_path, template, answer, prompt, completion):
    tokenizer = byte_level(template)
    model, (metrics,), _ = _chat_run(tmp_path, tokenizer, [("q", answer)], "steps: 1, batch_size: 1")
    assert metrics["loss"] == pytest.approx(_loss(model, tokenizer, [(prompt, completion)]), abs=1e-5)


def test_one_epoch_reads_every_example_once(tmp_path):
    tokenizer = byte_level(TURNS)
    rows = [("q", "x" * (number + 1)) for number in range(10)]
    model, metrics, notes = _chat_run(tmp_path, tokenizer, rows, "epochs: 1, batch_size: 4")
    written = [("<|user|>q<|end|>\n<|assistant|>", f"{answer}<|end|>") for _, answer in rows]
    assert [record["epoch"] for record in metrics] == [0.4, 0.8, 1.0]
    assert sum(record["num_tokens"] for record in metrics) == sum(range(2, 12))
    total = sum(record["loss"] * record["num_tokens"] for record in metrics)
    assert total / sum(range(2, 12)) == pytest.approx(_loss(model, tokenizer, written), abs=1e-5)
    assert notes[0].startswith("the chat template ends a turn with '<|end|>', not with '<|endoftext|>': supervised")
    final = RunDirectory(tmp_path / "run").checkpoints[-1].path
    ends = tokenizer.convert_tokens_to_ids(["<|end|>", "<|endoftext|>"])
    assert sorted(GenerationConfig.from_pretrained(final).eos_token_id) == sorted(ends)
    # The steps before the last are those of a run by steps.
    (tmp_path / "steps").mkdir()
    assert _timeless_figures(_chat_run(tmp_path / "steps", tokenizer, rows, "steps: 3, batch_size: 4")[1][:2]) == (
        _timeless_figures(metrics[:2])
    )


def test_passes_over_what_is_not_too_long_are_said(tmp_path):
    rows = [("q", "x" * (150 if number < 4 else 5)) for number in range(10)]  # the model has 128 positions
    _, metrics, notes = _chat_run(tmp_path, byte_level(TURNS), rows, "epochs: 1, batch_size: 5")
    assert [record["epoch"] for record in metrics] == [5 / 6, 10 / 6]
    assert notes[-1] == "the 10 examples of stage 'sft' are 1.67 passes over 6"


def _timeless_figures(records):
    return [{**record, "seconds": None, "lr": None} for record in records]


def test_an_epoch_of_traces_is_every_problem_once_and_resumes(load, tmp_path, monkeypatch):
    stage = {"kind": "sft", "epochs": 1, "batch_size": 16, "save_every": 1, "optimizer": {"lr": 1e-2}}  # 60 problems
    config, drawn = load(stage), []
    original = SftRunner._encode

    def encoding(self, steps):
        original(self, steps)
        drawn.extend([problem.id for problem in problems] for problems, _ in self._encoded.values())

    monkeypatch.setattr(SftRunner, "_encode", encoding)
    whole = trained_run(config, tmp_path / "whole")
    assert [len(ids) for ids in drawn] == [16, 16, 16, 12]
    assert len({name for ids in drawn for name in ids}) == 60
    _at(4, _crash, monkeypatch)
    with pytest.raises(RuntimeError):
        trained_run(config, tmp_path / "run")
    run = trained_run(config, tmp_path / "run", resume=True)
    assert _timeless(run) == _timeless(whole)
    assert run.select_checkpoint("sft").weights_sha256 == whole.select_checkpoint("sft").weights_sha256
