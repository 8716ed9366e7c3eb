from math import log
from pathlib import Path
from types import SimpleNamespace

import pytest

from swerve.artifacts.responses import Response
from swerve.claim.forgetting import ForgettingPart
from swerve.estimates import Estimate
from swerve.models.model_folder import load_tokenizer
from swerve.problems.addition import AdditionTask
from swerve.progress import SilentProgress
from swerve.types import Problem
from tests.claim.planted.models import bigram_model, table_settings

BASE = {"ask": {"a": 0.5, "b": 0.5}, "a": {"a": 0.25, "<eos>": 0.75}, "b": {"<eos>": 1.0}}
TRAINED = {"ask": {"a": 0.8, "b": 0.2}, "a": {"a": 0.5, "<eos>": 0.5}, "b": {"<eos>": 1.0}}


def kl(first: dict[str, float], second: dict[str, float]) -> float:
    return sum(chance * log(chance / second[word]) for word, chance in first.items())


def test_divergences_and_losses_are_those_of_the_tables(tmp_path: Path) -> None:
    models = bigram_model(tmp_path / "base", BASE), bigram_model(tmp_path / "rl", TRAINED)
    tokenizer = load_tokenizer(models[0])

    def response(index: int, words: str) -> Response:
        prompt, *written = tokenizer.convert_tokens_to_ids(["ask", *words.split()])
        named = Problem(id=str(index), family="table", question="ask", answer="")
        return Response(problem=named, prompt_ids=(prompt,), completion_ids=tuple(written))

    # Of each model a response to two problems; only the first sample of a problem counts.
    samples = (
        {"0": [response(0, "a a <eos>"), response(0, "b <eos>")], "1": [response(1, "b <eos>")]},
        {"0": [response(0, "a <eos>")], "1": [response(1, "a a a <eos>")]},
    )
    text = tmp_path / "text.txt"
    text.write_text("ask a a\nask b")
    work = SimpleNamespace(
        settings=table_settings(tmp_path / "none", texts=(str(text),)),
        samples=samples,
        models=models,
        progress=SilentProgress(),
        sample=lambda wanted: [],
    )
    part = ForgettingPart.measure(work)  # type: ignore[arg-type]

    first, then = kl(BASE["ask"], TRAINED["ask"]), kl(BASE["a"], TRAINED["a"])
    assert part.kl_from_base.mean == pytest.approx((first + 2 * then + first) / 2, rel=1e-5)
    first, then = kl(TRAINED["ask"], BASE["ask"]), kl(TRAINED["a"], BASE["a"])
    assert part.kl_from_trained.mean == pytest.approx((2 * first + 4 * then) / 2, rel=1e-5)
    # <bos> ask a a ask b: the steps from <bos> and from a to ask never come, and are as improbable to both.
    (row,) = part.texts
    assert row.tokens == 5
    assert row.difference.mean == pytest.approx(-(log(0.8 / 0.5) + log(0.5 / 0.25) + log(0.2 / 0.5)) / 5, rel=1e-4)
    assert row.trained - row.base == pytest.approx(row.difference.mean)
    assert part.tasks == () == part.verdicts


def test_another_task_fell(monkeypatch: pytest.MonkeyPatch) -> None:
    from swerve.claim import forgetting

    asked = Problem(id="p", family="addition", question="?", answer="")
    right = {"base": [True] * 18 + [False] * 2, "rl": [True] * 3 + [False] * 17}
    wanted_tasks = []

    def wanted(name: str, side: SimpleNamespace, **rest: object) -> SimpleNamespace:
        wanted_tasks.append((name, rest["task"]))
        return SimpleNamespace(label=side.label, **rest)

    task = AdditionTask(digits=2, num_heldout=20)
    work = SimpleNamespace(
        settings=SimpleNamespace(others=(task,), some=20, texts=(), model_copy=lambda update: update),
        progress=None,
        wanted=wanted,
        sides=(SimpleNamespace(label="base"), SimpleNamespace(label="rl")),
        sample=lambda wanted: [[Response(problem=asked, correct=each) for each in right[one.label]] for one in wanted],
        samples=({"p": [None]}, {"p": [None]}),
    )
    read = SimpleNamespace(sequence_ids=[0, 1], statistics={"kl_forward": [1.0, 2.0], "kl_reverse": [3.0, 4.0]})
    monkeypatch.setattr(forgetting, "chosen_problems", lambda settings, progress: [asked] * 30)
    monkeypatch.setattr(forgetting, "_read", lambda work, texts: read)
    part = ForgettingPart.measure(work)  # type: ignore[arg-type]

    assert wanted_tasks == [("other-0", task), ("other-0", task)]
    (row,) = part.tasks
    assert (row.base.mean, row.trained.mean, row.difference.mean) == (0.9, 0.15, 0.75)
    assert [(line.of, line.shown) for line in part.verdicts] == [("addition digits=2 num_heldout=20", True)]
    assert (part.kl_from_base.mean, part.kl_from_trained.mean) == (3.0, 2.0)


def test_how_far_models_lie_apart_is_a_sentence() -> None:
    part = ForgettingPart(
        kl_from_base=Estimate(mean=1.06, low=0.81, high=1.35), kl_from_trained=Estimate(mean=0.76, low=0.6, high=0.95)
    )
    assert part.facts("base", "rl") == [
        "The models differ by 1.06 (0.81 to 1.35) nats per response in samples of `base` and 0.76 (0.60 to 0.95) nats "
        "per response in samples of `rl` (KL from the one that sampled)."
    ]
    assert ForgettingPart().facts("base", "rl") == []
