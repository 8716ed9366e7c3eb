"""Where reasoning ends and the answer begins, and how probable answers are after parts of it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from swerve.artifacts.responses import Response
from swerve.claim.passes import read_logprobs
from swerve.claim.reasoning import KEPT, ReasoningPart, cut_sequences, reasoned_parts, reasoning_verdict
from swerve.claim.work import NotMeasuredError
from swerve.models.model_folder import load_model
from swerve.models.tiny import build_word_tokenizer
from swerve.types import Problem
from tests.claim.planted.models import bigram_model

WORDS = ["is", "answer", "1", "2", "3", "+", "=", "\\boxed{", "}", "</think>", "so", "the", "final", ":", "4", "steps"]


def response(tokenizer, text: str, extracted: str | None, prompt: str = "2") -> Response:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return Response(
        problem=Problem(id=text, family="table", question=prompt, answer="7"),
        prompt_ids=tuple(tokenizer(prompt)["input_ids"]),
        completion_ids=(*ids, tokenizer.eos_token_id),
        text=tokenizer.decode(ids),
        extracted=extracted,
    )


@pytest.mark.parametrize(
    ("text", "extracted", "expected"),
    [
        (
            "1 + 2 = 3 </think> so the answer is \\boxed{ 3 }",
            "3",
            ("1 + 2 = 3", "</think> so the answer is \\boxed{", "3"),
        ),
        ("1 + 2 = 3 so answer 1 2 3", "1 2 3", ("1 + 2 = 3 so", "answer", "1 2 3")),
        ("1 2 3 so the final : 3 so 4 steps", "3", ("1 2 3 so the final", ":", "3")),
        ("1 2 3 so the answer : 3 = steps", "s", None),  # no word of its own
        ("answer 3", "3", None),  # without reasoning
        ("1 2 3", "3", None),  # nothing says that it is the answer
        ("1 + 2 = 4", "3", None),
        ("1 + 2", None, None),
    ],
)
def test_parts_of_responses(text, extracted, expected):
    tokenizer = build_word_tokenizer(WORDS)
    parts = reasoned_parts(response(tokenizer, text, extracted), tokenizer)
    if expected is None:
        assert parts is None
    else:
        assert parts is not None
        assert tuple(tokenizer.decode(list(ids)) for ids in parts[1:]) == expected


def test_sequences_are_cut_alike():
    first = ((1,), (2, 3, 4, 5), (9,), (7,))
    second = ((6,), (12, 13), (9,), (8,))
    sequences = cut_sequences([second, first])
    prompts = [prompt for prompt, _ in sequences]
    assert [answer for _, answer in sequences] == [(7,)] * 10 + [(8,)] * 10
    # The longest has the next longest in full, at most; the shorter one has as many tokens of the longer.
    assert prompts[:5] == [(1, 9), (1, 2, 9), (1, 2, 3, 9), (1, 2, 3, 4, 9), (1, 2, 3, 4, 5, 9)]
    assert prompts[5:10] == [(1, 9), (1, 12, 9), (1, 12, 13, 9), (1, 12, 13, 9), (1, 12, 13, 9)]
    assert prompts[15:] == [(6, 9), (6, 9), (6, 2, 9), (6, 2, 3, 9), (6, 2, 3, 9)]


def test_verdict_is_over_problems():
    chances = np.zeros((40, 2, len(KEPT)))
    chances[:, 0, 3:] = 0.9
    chances[:, 0, 0] = 1.0  # without any reasoning nothing is compared
    verdict = reasoning_verdict("rl", chances)
    assert verdict.shown
    assert verdict.estimate.mean == pytest.approx(0.45)
    assert verdict.num == 40
    after = "by the chance of an answer after 25 to 100% of its own reasoning and after another problem's: 45"
    said = f"Over 40 problems the answers of `rl` rest on their reasoning, {after}.0% against 0.0%, +45.0 points (+"
    assert verdict.sentence.startswith(said)
    chances[::2, 1, 1:] = 0.9
    verdict = reasoning_verdict("rl", chances)
    assert not verdict.shown
    assert verdict.sentence.startswith(
        f"Over 40 problems the answers of `rl` are not seen to rest on their reasoning, {after}"
    )


CHAINS = {
    "odd": {"uneven": 1.0},
    "even": {"twice": 1.0},
    "uneven": {"answer": 1.0},
    "twice": {"answer": 1.0},
    "answer": {"1": 0.75, "2": 0.25},
}


@pytest.mark.parametrize(("marker", "matters"), [("answer", False), ("=1 =2", True)])
def test_a_model_that_knows_only_its_last_word(tmp_path, marker, matters):
    """What stands before `answer` is of no account to it; without that word the reasoning is what it goes by."""
    chains = CHAINS
    if matters:
        chains = {**CHAINS, "uneven": {"=1": 0.9, "=2": 0.1}, "twice": {"=1": 0.2, "=2": 0.8}}
    folder = bigram_model(tmp_path / "model", chains, words=["answer", "1", "2", "=1", "=2"])
    loaded = load_model(folder, device="cpu", dtype="float32")
    texts = ["uneven =1", "twice =2"] if matters else ["uneven answer 1", "twice answer 1"]
    responses = [response(loaded.tokenizer, texts[number % 2], texts[number % 2][-1], "odd") for number in range(40)]
    work = SimpleNamespace(
        sides=(SimpleNamespace(label="base"), SimpleNamespace(label="rl")),
        models=(folder, folder),
        greedy=(responses, responses),
        load=lambda model: loaded,
        logprobs=lambda name, model, sequences: read_logprobs(loaded, sequences),
    )
    part = ReasoningPart.measure(work)
    assert [verdict.shown for verdict in part.verdicts] == [matters, matters]
    assert part.notes[1] == "`rl`: 40 of 40 greedy responses reason before an answer."
    last = part.curve[4]
    assert (last.kept, last.base) == (1.0, pytest.approx(0.85 if matters else 0.75, abs=1e-6))
    # After the other one's word =1 has .2 and =2 has .1; the first has the second for its own.
    assert last.base_other == pytest.approx(0.15 if matters else 0.75, abs=1e-6)

    work.greedy = (responses[:9], responses[:9])
    with pytest.raises(NotMeasuredError, match="needs 10 greedy responses of base"):
        ReasoningPart.measure(work)
