"""Samples from any OpenAI-compatible server: what it does wrong is survived or named, and nothing is paid twice."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swerve.artifacts.parts import Parts
from swerve.artifacts.samples import SampleFile, read_samples
from swerve.behaviours.response_rows import behaviour_rows
from swerve.config.engines import OpenAIEngineConfig, RolloutConfig
from swerve.config.runtime import RuntimeConfig
from swerve.config.sampling import SampleSettings
from swerve.errors import ConfigError, EngineError
from swerve.eval.answer_files import AnswerFile, samples_task
from swerve.eval.grading import GradingSummary
from swerve.eval.response_behaviours import behaviour_summary, file_responses
from swerve.eval.sampling import sample
from swerve.formats.imported_responses import LeftOut
from swerve.problems.addition import AdditionTask
from swerve.recipes.loader import load_settings
from swerve.rollout import openai_client
from swerve.rollout.openai_client import TextRequest, read_text
from swerve.types import Reward
from tests.builders import Notes
from tests.cases import each
from tests.rollout.openai_server import KEY, OpenAIServer, openai_server, reply

NUM = 14
"""Samples of a file: seven problems, two of each."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    monkeypatch.setattr(openai_client, "_FIRST_DELAY", 0.005)
    with openai_server() as stand_in:
        yield stand_in


def _sample(
    server: OpenAIServer, path: Path, *, notes: Notes | None = None, name: str = "one", **changes: Any
) -> SampleFile:
    engine: dict[str, Any] = {"url": server.url, "concurrency": 3, "patience": 30.0, "timeout": 10.0}
    sampling = {name: changes.pop(name) for name in ("temperatures", "num_samples") if name in changes}
    settings: dict[str, Any] = {
        "task": AdditionTask(digits=2, num_heldout=7), "num_samples": 2, "max_new_tokens": 6, **sampling,
        "rollout": RolloutConfig(engine=OpenAIEngineConfig(**{**engine, **changes})),
        "runtime": RuntimeConfig(max_rows=4),
    }  # fmt: skip
    sample({"mine": name}, SampleSettings(**settings), out=path, progress=notes)
    return read_samples(path)


def test_rows_have_the_texts_and_say_who_answered(server: OpenAIServer, tmp_path: Path) -> None:
    notes, together = Notes(), threading.Barrier(3, timeout=20)
    server.wrong = lambda number, *_: None if number > 3 else together.wait() and None
    file = _sample(server, tmp_path / "a.parquet", notes=notes, temperatures=(0.0, 0.5))
    assert [len(group) for group in file.by_problem().values()] == [2] * 7
    asked = {body["seed"]: body for body in server.asked}
    said = {"model": "one-2026", "system_fingerprint": "fp_1", "prompt_tokens": 10, "completion_tokens": 3}
    for row, body in zip(file.samples, (asked[row.seed] for row in file.samples), strict=True):
        assert body["messages"] == [{"role": "user", "content": row.problem.question}]
        assert (row.seed, row.temperature, 6) == (body["seed"], body["temperature"], body["max_tokens"])
        assert 0 <= body["seed"] < 2**31
        assert (row.text, row.finish_reason, row.extra) == (server.text(body), "stop", said)
        assert (row.prompt, row.prompt_ids, row.completion_ids, row.logprobs, row.entropy) == (None, (), (), (), None)
    assert (file.info.model.source, file.info.tokenizer) == (f"one at {server.url}/v1", None)
    assert notes.notes[-1] == "mine: 140 tokens of prompts and 42 of completions"
    assert server.most_open == 3

    # The whole file is left alone, wherever the server is now.
    before, num = (tmp_path / "a.parquet").read_bytes(), len(server.asked)
    _sample(server, tmp_path / "a.parquet", url="http://127.0.0.1:9/v1", temperatures=(0.0, 0.5))
    assert ((tmp_path / "a.parquet").read_bytes(), len(server.asked)) == (before, num)
    with pytest.raises(ConfigError, match=r"other settings \(engine {.*, now {.*\)"):
        _sample(server, tmp_path / "a.parquet", api="completions", temperatures=(0.0, 0.5))


def test_what_vllm_tells_is_kept_and_its_own_defaults_are_switched_off(server: OpenAIServer, tmp_path: Path) -> None:
    server.owner = "vllm"
    file = _sample(
        server, tmp_path / "a.parquet", api="completions", temperatures=(0.5, 1.0), body={"seed": None, "top_p": 0.9}
    )
    for row in file.samples:
        assert (row.prompt, row.prompt_ids, row.completion_ids) == (row.problem.question, (1, 2, 3), (5, 6, 2))
        assert row.logprobs == (-0.5, -0.25, -0.125)
    for body in server.asked:
        assert ("seed" in body, body["top_p"], body["top_k"], body["repetition_penalty"]) == (False, 0.9, 0, 1.0)
        assert ("logprobs" in body) == (body["temperature"] == 1.0)  # elsewhere they may be those of temperature 1


def _cut(number: int, _: Any, handler: Any) -> Any:
    return reply(handler, 200, b'{"choices": [{"message"', Content_Length="4000") if number in (2, 5) else None


def _drip(number: int, _: Any, handler: Any) -> Any:
    if number not in (1, 2):
        return None
    reply(handler, 200, b"", Content_Length="4000")
    for _ in range(100):
        handler.wfile.write(b" ")
        time.sleep(0.02)
    return True


def _status(status: int, *numbers: int, **headers: str) -> Any:
    def wrong(number: int, _: Any, handler: Any) -> Any:
        return reply(handler, status, {"error": "busy"}, **headers) if number in numbers else None

    return wrong


def _answers(content: Any, *numbers: int) -> Any:
    return lambda number, _, handler: reply(handler, 200, content) if number in numbers else None


CHOICE = {"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}
SURVIVED = {
    "a burst of 500": _status(500, *range(2, 9)),
    "429 with Retry-After": _status(429, 3, 4, Retry_After="0.1"),
    "503 with a date": _status(503, 3, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"),
    "cut streams": _cut,
    "a slow drip": _drip,
    "no JSON": _answers(b"<html>", 1, 7),
    "no number": _answers(b'{"choices": [], "created": NaN}', 1, 7),
    "cut JSON": _answers(b'{"choices": [', 1, 7),
    "nothing": _answers(b"", 2, 3),
    "two choices": _answers({"choices": [CHOICE, CHOICE]}, 1, 9),
    "no choice": _answers({"choices": []}, 1, 9),
    "an error as an answer": _answers({"error": {"message": "overloaded"}}, 1, 9),
    "no end": _answers({"choices": [{**CHOICE, "finish_reason": None}]}, 1, 9),
    "connections that break": lambda number, _, handler: (
        handler.connection.shutdown(2) or True if number in (1, 4) else None
    ),
}


@pytest.mark.slow
def test_what_passes_is_survived(server: OpenAIServer, tmp_path: Path) -> None:
    _sample(server, tmp_path / "usual.parquet")
    usual = (tmp_path / "usual.parquet").read_bytes()
    for name, wrong in SURVIVED.items():
        server.wrong, server.asked, server.times = wrong, [], []
        _sample(server, tmp_path / f"{name}.parquet", timeout=1.0 if "drip" in name else 10.0)
        assert (tmp_path / f"{name}.parquet").read_bytes() == usual.replace(b"usual", name.encode()), name
        assert NUM < len(server.asked) <= NUM + 8
        if "Retry-After" in name:
            assert any(later - earlier > 0.09 for earlier, later in itertools.pairwise(server.times))


@each(
    ("wrong", "said"),
    [
        (_status(500, *range(6, 100)), "was answered with 500 (busy)"),
        (_status(429, *range(6, 100), Retry_After="900"), "it wants to be asked again after 900 s"),
        (_status(400, *range(6, 100)), "rollout.engine.body changes what is sent"),
        (_status(403, *range(6, 100)), "rollout.engine.key names the environment variable with the key"),
        (
            _answers({"choices": [CHOICE, CHOICE]}, *range(6, 100)),
            "has choices: tuple should have at most 1 item after validation, not 2, in",
        ),
        (_answers(b'{"choices"', *range(6, 100)), "which is not JSON"),
    ],
)
def test_what_does_not_pass_is_named_and_nothing_is_lost(
    server: OpenAIServer, tmp_path: Path, wrong: Any, said: str
) -> None:
    name = f"{abs(hash(said))}.parquet"
    server.wrong, server.asked = wrong, []
    with pytest.raises(EngineError) as raised:
        _sample(server, tmp_path / name, patience=0.05)
    assert said in str(raised.value)
    assert str(raised.value).startswith("problem '")
    assert str(raised.value).endswith("what came is kept, and the same command asks for the rest")
    assert "\n" not in str(raised.value)
    kept = list((tmp_path / f"{name}.partial").glob("answer-*"))
    assert len(kept) == 5
    server.wrong, server.asked = (lambda *_: None), []
    _sample(server, tmp_path / name)
    assert len(server.asked) == NUM - len(kept)
    assert not (tmp_path / f"{name}.partial").exists()


def test_one_problem_that_is_refused_ends_no_other(server: OpenAIServer, tmp_path: Path) -> None:
    first: list[Any] = []

    def refuse(_: int, body: Any, handler: Any) -> Any:
        first.append(body["messages"])
        return reply(handler, 400, {"message": "too long"}) if body["messages"] == first[0] else None

    server.wrong = refuse
    with pytest.raises(
        EngineError, match=r"answered with 400 \(too long\).*; requests that failed: 2; what came is kept"
    ):
        _sample(server, tmp_path / "a.parquet")
    assert len(list((tmp_path / "a.parquet.partial").glob("answer-*"))) == NUM - 2


def test_a_server_that_is_not_there_or_lacks_the_model_is_named(server: OpenAIServer, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="http://127.0.0.1:9/v1: nothing listens there; is the server there"):
        _sample(server, tmp_path / "a.parquet", url="http://127.0.0.1:9", patience=0.02)
    with pytest.raises(EngineError, match="404 .The model `two` does not exist.; rollout.engine.url ends where"):
        _sample(server, tmp_path / "b.parquet", name="two")


def test_a_key_comes_from_the_environment_and_is_written_nowhere(
    server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.needs_key = True
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(EngineError, match="401 .bad key None.; rollout.engine.key names the environment variable"):
        _sample(server, tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match="the environment variable MY_KEY is not set, or holds no key"):
        _sample(server, tmp_path / "a.parquet", key="MY_KEY")
    monkeypatch.setenv("MY_KEY", "another-secret")
    with pytest.raises(EngineError, match=r"401 .bad key Bearer \*\*\*.; rollout.engine.key names"):
        _sample(server, tmp_path / "a.parquet", key="MY_KEY")
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    assert len(_sample(server, tmp_path / "a.parquet", key="MY_KEY").samples) == NUM
    assert all(KEY.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.parametrize("key", ["1", "x", "test", "answer", KEY])
def test_what_a_server_writes_is_kept_and_what_it_complains_of_has_no_key(
    key: str, server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MY_KEY", key)
    written = f"{key}89{key}63 {key}\n\u202e\x1b[31m {key.upper()}"
    aside = {"content": written, "reasoning_content": f"so {key}"}
    answer = {"model": f"{key}-2", "choices": [{"message": aside, "finish_reason": "stop"}]}
    server.wrong = lambda *_: answer
    for row in _sample(server, tmp_path / "a.parquet", key="MY_KEY").samples:
        assert (row.text, row.extra) == (written, {"model": "***-2" if key == KEY else f"{key}-2"})
        assert row.turns == ({"role": "assistant", **aside},)

    # As text, as what is no JSON or no completion, and while it is asked again.
    for number, complaint in enumerate(
        ({"error": {"message": f"no Bearer {key}: '{key}' at 1024"}}, f"<{key}>".encode(), {"choices": [{key: key}]})
    ):
        server.wrong = lambda _, __, handler, said=complaint, status=(500, 200, 200)[number]: reply(
            handler, status, said
        )
        with pytest.raises(EngineError) as raised:
            _sample(server, tmp_path / f"b{number}.parquet", key="MY_KEY", patience=0.05)
        said = str(raised.value).partition("has choices")[2] or str(raised.value).partition("was answered with")[2]
        assert "***" in said
        assert not re.search(rf"(?<!\w){key}(?!\w)", said)
        assert ("1024" in said) == (number == 0)
    assert not re.search(rf"Bearer {key}|'{key}'", caplog.text)


@each("change", ["key=sk-zq9", "key=hf_zq9", "url=http://me:zq9@host:1/v1", "url=http://host/v1?key=zq9"])
def test_what_may_be_a_secret_is_in_no_error(change: str) -> None:
    changes = ["rollout.engine.kind=openai", f"rollout.engine.{change}"]
    with pytest.raises(ConfigError, match="rollout.engine") as raised:
        load_settings(SampleSettings, changes, data={"task": {"kind": "addition"}})
    assert "zq9" not in str(raised.value)


_CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
_ANSWERS: dict[str, tuple[dict[str, Any], str, str, str, str | None]] = {
    "reasoning_content": (
        {"content": "4", "reasoning_content": "2 + 2"}, "stop", "4", "<think>2 + 2</think>4", None
    ),
    "reasoning": ({"content": "4", "reasoning": "2 + 2"}, "stop", "4", "<think>2 + 2</think>4", None),
    "thinking in a part": (
        {"content": [{"type": "thinking", "thinking": "2 + 2"}, {"type": "text", "text": "4"}]},
        "stop", "4", "<think>2 + 2</think>4", None,
    ),
    "parts": (
        {"content": [{"type": "text", "text": "It is "}, {"type": "text", "text": "4"}]},
        "stop", "It is 4", "It is 4", None,
    ),
    "a thought that is in the text as well": (
        {"content": "<think>2 + 2</think>4", "reasoning_content": "2 + 2"},
        "stop", "<think>2 + 2</think>4", "<think>2 + 2</think>4", None,
    ),
    "a refusal": ({"content": None, "refusal": "I cannot help."}, "stop", "", "I cannot help.", "refused"),
    "a filter": (
        {"content": None, "reasoning_content": "hm"}, "content_filter", "", "<think>hm", "cut by a filter"
    ),
    "a call": (
        {"content": "So", "tool_calls": [_CALL]},
        "tool_calls", "So", 'So\n<tool_call>add {"a": 2}</tool_call>', "ended in a call of a tool",
    ),
}  # fmt: skip
"""What a server says -> its finish reason; what counts as said, as written, and why there is no answer."""


@pytest.mark.parametrize("kind", _ANSWERS)
def test_all_that_a_server_says_is_kept_and_counted(kind: str, server: OpenAIServer, tmp_path: Path) -> None:
    message, reason, *known = _ANSWERS[kind]
    server.wrong = lambda *_: {"choices": [{"message": message, "finish_reason": reason}]}
    rows = _sample(server, tmp_path / "a.parquet").samples
    assert {(row.said, row.written, row.no_answer) for row in rows} == {tuple(known)}
    assert {row.text for row in rows} == {known[0]}
    # Behaviours are of what was written, and say what holds no answer; so does the grader.
    found, _ = file_responses(tmp_path / "a.parquet", by=None, fields={}, left_out=LeftOut())
    assert {row["num_characters"] for row in behaviour_rows(found)} == {len(known[1])}
    summary = behaviour_summary(found, behaviour_rows(found), source="a", by=None)
    assert f"14 of 14 responses hold no answer: 14 {known[2]}" in summary["notes"] or known[2] is None
    answers = AnswerFile(
        path=tmp_path / "a.parquet", task=samples_task(tmp_path / "a.parquet", None, ()), is_samples=True
    )
    counts = GradingSummary(answers, None, ())
    for answer in answers:
        counts.add(answer, Reward(value=None, status="unparsed"))
    assert counts.summary()["unanswered"] == ({} if known[2] is None else {known[2]: NUM})


def test_a_part_that_cannot_be_kept_is_counted(server: OpenAIServer, tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "4"}, {"type": "audio", "audio": "..."}]
    server.wrong = lambda *_: {"choices": [{"message": {"content": parts}, "finish_reason": "stop"}]}
    for row in _sample(server, tmp_path / "a.parquet").samples:
        assert (row.text, row.turns, row.extra) == ("4", (), {"not_kept": {"audio": 1}})


def test_a_budget_is_kept_and_a_higher_one_continues(server: OpenAIServer, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with pytest.raises(
        EngineError, match=r"max_tokens=300 has no room for another answer, which may take \d+: used are \d+"
    ):
        _sample(server, path, max_tokens=300)
    num = len(server.asked)
    assert 0 < num < NUM
    assert num * 13 <= 300
    with pytest.raises(EngineError, match="max_cost=0.0003 has no room for another answer, .* cost 0.000"):
        _sample(server, path, max_cost=0.0003, prices=(1.0, 2.0))
    assert num <= len(server.asked) < NUM
    _sample(server, path, max_tokens=100_000)
    assert len(server.asked) == NUM  # none twice
    server.wrong = lambda _, body, __: {name: value for name, value in server.answer(body).items() if name != "usage"}
    with pytest.raises(EngineError, match=r"does not say how many tokens it used \(`usage`\)"):
        _sample(server, tmp_path / "b.parquet", max_tokens=10_000)
    assert len(_sample(server, tmp_path / "b.parquet").samples) == NUM


@pytest.mark.parametrize("point", [1, 6, 13])
def test_killed_it_continues_to_the_same_bytes_and_pays_for_nothing_twice(
    server: OpenAIServer, tmp_path: Path, point: int
) -> None:
    _sample(server, tmp_path / "whole.parquet")
    server.asked = []
    child = os.fork()
    if child == 0:
        put, puts = Parts.put, iter(range(100))

        def put_or_die(*given: Any) -> None:
            put(*given)
            if given[1] == "answer" and next(puts) == point:
                os.kill(os.getpid(), signal.SIGKILL)

        Parts.put = put_or_die  # type: ignore[method-assign]
        _sample(server, tmp_path / "again.parquet")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    _sample(server, tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert NUM <= len(server.asked) <= NUM + 3  # at most those that were open
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.parquet", "whole.parquet"]


def test_it_samples_where_a_loop_runs_already_as_in_notebooks(server: OpenAIServer, tmp_path: Path) -> None:
    async def sample_here() -> SampleFile:
        return _sample(server, tmp_path / "a.parquet")

    assert len(asyncio.run(sample_here()).samples) == NUM
    assert all(thread.name == "MainThread" or "run_forever" not in thread.name for thread in threading.enumerate())


def test_texts_are_read_from_every_kind_of_answer() -> None:
    def read(**choice: Any) -> Any:
        return read_text({"choices": [{"finish_reason": "eos_token", **choice}]})

    assert (read(text="a").text, read(text="a").finish_reason) == ("a", "stop")
    assert read(text="a", finish_reason="content_filter").finish_reason == "content_filter"
    thought = read(message={"content": None, "reasoning_content": "hm", "refusal": None})
    assert (thought.text, thought.message["reasoning_content"], thought.said) == ("", "hm", {})
    assert json.dumps(read(text="\ud800").text) == '"?"'
    # Ids and log-probs are kept where they fit together.
    ids = {"token_ids": [1, 2], "prompt_token_ids": [3]}
    assert read(text="a", **ids, logprobs={"content": [{"logprob": -1}, {"logprob": -2.5}]}).logprobs == (-1.0, -2.5)
    assert read(text="a", **ids, logprobs={"token_logprobs": [-1.0]}).logprobs == ()
    assert read(text="a", token_ids=[1]).token_ids == ()
    wrong = ({}, [], {"choices": [1]}, {"choices": [{"text": "a"}]}, {"choices": [{"finish_reason": 3}]})
    for answer in (*wrong, {"choices": [{"text": "a", "finish_reason": "stop", "token_ids": [-1]}]}):
        with pytest.raises(ValueError, match=", in "):
            read_text(answer)


def test_a_request_has_no_more_tokens_than_bytes() -> None:
    request = TextRequest(place="", path="", body={"messages": [{"role": "user", "content": "né" * 50}]}, max_new=5)
    assert request.most[0] > len(("né" * 50).encode())
    assert request.most[1] == 5
