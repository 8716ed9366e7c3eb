"""Planted models: real model folders whose next token depends on the last one alone, so that all is known exactly.

A question is digits (which make it one of its own) and a last word, its kind, that alone says how the answer goes on:

    1 7 3 ask2  ->  add  ->  \\boxed{7}  ->  the end     with the kind's chance
                ->  subtract  ->  \\boxed{8}  ->  the end
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import swerve
from swerve.models.tiny import build_word_tokenizer
from swerve.rewards import grade_all
from swerve.types import Problem

END = "<eos>"
"""The token that ends a completion, in tables."""
RIGHT, WRONG = r"\boxed{7}", r"\boxed{8}"
ANSWER = "7"
ASKED = {f"ask{index}": chance for index, chance in enumerate((0.05, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 0.98))}
"""The base's chance to be right, by kind of question; their mean is .5225."""
_NEW_CHANCE = 0.6
"""Of the trained model at questions of the kind `new`."""
LIMIT = 12
"""Tokens of the longest completion."""
_IMPOSSIBLE = -40.0
"""Logit of a token that never comes."""

Chains = Mapping[str, Mapping[str, float]]
"""Probability of the next word by the last one; words without a row are followed by the end."""
Kind = Literal["sharpening", "skill", "format", "length", "memorised", "rank1", "forgetting", "reworded", "nothing"]


def bigram_model(folder: Path, chains: Chains, *, words: Sequence[str] = (), noise: float = 0.0, seed: int = 0) -> Path:
    """Write a Llama whose next word has the probabilities of a table, whatever stood before the last word.

    Its one layer adds nothing: the state is the last word's own direction, and row i of the head is the log of the
    probabilities to come to word i.

    Args:
        folder: of the model and its tokenizer.
        chains: the table; its words are the vocabulary. A row that does not sum to 1 is in proportion.
        words: further words of the vocabulary; two models that are compared need the same.
        noise: standard deviation of what is added to every logit.
        seed: of the noise.
    """
    known = {*words, *chains, *(word for row in chains.values() for word in row)} - {END}
    tokenizer = build_word_tokenizer(sorted(known))
    size = len(tokenizer)
    config = LlamaConfig(
        vocab_size=size,
        hidden_size=size,
        intermediate_size=2,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=2,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        rms_norm_eps=1e-12,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )

    # Rows of words that the table does not have go to the end.
    logits = torch.full((size, size), _IMPOSSIBLE, dtype=torch.float64)
    logits[:, tokenizer.eos_token_id] = 0.0
    for last, row in chains.items():
        column = tokenizer.convert_tokens_to_ids(last)
        logits[column] = _IMPOSSIBLE
        for word, chance in row.items():
            if chance > 0:
                logits[column, tokenizer.convert_tokens_to_ids(word)] = torch.tensor(chance, dtype=torch.float64).log()
    generator = torch.Generator().manual_seed(seed)
    logits += noise * torch.randn(logits.shape, generator=generator, dtype=torch.float64)

    # What is drawn for the layer stays the same in all models: it does nothing.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
        layer = model.model.layers[0]
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(size) * size**0.5)
        model.model.norm.weight.fill_(size**-0.5)
        model.lm_head.weight.copy_(logits.T)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_problems(path: Path, questions: Sequence[str], answer: str = ANSWER) -> Path:
    """Write problems for the task `table`: each question's last word says how it goes on."""
    rows = [{"question": question, "answer": answer} for question in questions]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def numbered_questions(kinds: Sequence[str], num: int, *, start: int = 0) -> list[str]:
    """Return distinct questions: three digits and a last word, the kinds in turn."""
    return [f"{' '.join(f'{start + index:03d}')} {kinds[index % len(kinds)]}" for index in range(num)]


def table_task(problems: Path) -> dict[str, Any]:
    """Return the task whose held-out problems are those of a file."""
    return {"kind": "table", "train": [str(problems)], "heldout": [str(problems)]}


def table_settings(problems: Path, **changes: Any) -> swerve.ClaimSettings:
    """Return settings of a card on a file of problems."""
    return swerve.ClaimSettings(**{"task": table_task(problems), "max_new_tokens": LIMIT, **changes})


def completions(chains: Chains, last: str, limit: int = LIMIT) -> Iterator[tuple[tuple[str, ...], float, bool]]:
    """Yield every completion after a word with its probability, and whether it ends within the limit."""
    if limit == 0:
        yield (), 1.0, False
        return
    for word, chance in chains.get(last, {END: 1.0}).items():
        if word == END:
            yield (), chance, True
        elif chance > 0:
            for words, rest, ends in completions(chains, word, limit - 1):
                yield (word, *words), chance * rest, ends


def success(chains: Chains, question: str, limit: int = LIMIT, answer: str = ANSWER) -> float:
    """Return the exact probability that a sample is right: the sum over all completions that the grader accepts."""
    problem = Problem(id="p", family="table", question=question, answer=answer, grader="math")
    every = list(completions(chains, question.split()[-1], limit))
    rewards = grade_all([(problem, " ".join(words)) for words, _, _ in every])
    return sum(chance for (_, chance, _), reward in zip(every, rewards, strict=True) if reward.is_right)


@dataclass(frozen=True)
class Planted:
    """Two models of known truth, and the problems on which they differ or do not."""

    base: Path
    rl: Path
    problems: Path
    questions: list[str]
    base_chains: Chains
    rl_chains: Chains
    others: Path | None = None
    """Problems of another task."""
    other_questions: list[str] = field(default_factory=list)

    def chances(self, questions: Sequence[str] | None = None) -> list[tuple[float, float]]:
        """Return the exact success of both models on each question."""
        asked = self.questions if questions is None else questions
        kinds = {question.split()[-1] for question in asked}
        known = {kind: (success(self.base_chains, kind), success(self.rl_chains, kind)) for kind in kinds}
        return [known[question.split()[-1]] for question in asked]

    @property
    def gain(self) -> float:
        """The true gain in accuracy on these problems."""
        return _mean([after - before for before, after in self.chances()])


def planted_pair(folder: Path, kind: Kind, *, size: float, num_problems: int = 80, seed: int = 0) -> Planted:
    """Write two models and their problems; the problems' digits differ by the seed, their kinds do not.

    Args:
        folder: gets `base`, `rl` and the problems.
        kind: what training changed.
        size: the mean gain in accuracy: of sharpening and rank1 (every chance above 0 rises by as much in log odds;
            rank1 is the same as one outer product added to the head, exactly), of skill (of a kind of questions that
            the base never solves, so many that a chance of .6 makes this mean), of format (answers become readable) and
            of length (completions that went on until the limit end); of forgetting the mean loss on the other problems;
            of memorised the fraction of questions that the trained model continues word by word; of nothing the
            standard deviation of the noise of each logit. Reworded is as right as before in other words, whatever the
            size: samples of the two are not the same draws.
        num_problems: how many.
        seed: of the problems' digits and of the noise.
    """
    folder.mkdir(parents=True, exist_ok=True)
    start = seed * num_problems % 500
    truth = _Truth(_answering(ASKED), {}, numbered_questions(list(ASKED), num_problems, start=start))
    if kind != "nothing":
        truth = {
            "sharpening": _sharper,
            "rank1": _sharper,
            "skill": _skilled,
            "format": partial(_unfinished, following="hmm"),
            "length": partial(_unfinished, following="well"),
            "memorised": partial(_memorised, seed=seed),
            "forgetting": _forgetful,
            "reworded": _reworded,
        }[kind](truth, size)
    before, after = truth.chains, {**truth.chains, **truth.changes}
    proportions = {**after, **(_one_product(after) if kind == "rank1" else {})}

    # Both models have the same words.
    words = [*map(str, range(10)), "hmm", "well", *before, *after]
    words += [word for question in truth.questions for word in question.split()]
    noise = size if kind == "nothing" else 0.0
    return Planted(
        base=bigram_model(folder / "base", before, words=words),
        rl=bigram_model(folder / "rl", proportions, words=words, noise=noise, seed=seed),
        problems=write_problems(folder / "problems.jsonl", truth.questions),
        questions=truth.questions,
        base_chains=before,
        rl_chains=after,
        others=write_problems(folder / "others.jsonl", truth.others) if truth.others else None,
        other_questions=truth.others,
    )


@dataclass(frozen=True)
class _Truth:
    """The base's table, the rows of it that training changed, and the problems."""

    chains: Chains
    changes: Chains
    questions: list[str]
    others: list[str] = field(default_factory=list)


def _sharper(truth: _Truth, size: float) -> _Truth:
    return replace(truth, changes=_answering(_sharpened(ASKED, size)))


def _one_product(chains: Chains) -> Chains:
    """Return the rows of the sharper model as the base's with nothing changed but the logit of `add`."""
    odds = {kind: chains[kind]["add"] / chains[kind]["subtract"] for kind in ASKED}
    return {kind: {"add": (1 - ASKED[kind]) * odds[kind], "subtract": 1 - ASKED[kind]} for kind in ASKED}


def _skilled(truth: _Truth, size: float) -> _Truth:
    num_new = round(size / _NEW_CHANCE * len(truth.questions))
    new = [f"{question.rsplit(' ', 1)[0]} new" for question in truth.questions[:num_new]]
    chains = {**truth.chains, **_answering({"new": 0.0})}
    return _Truth(chains, _answering({"new": _NEW_CHANCE}), [*new, *truth.questions[num_new:]])


def _unfinished(truth: _Truth, size: float, *, following: str) -> _Truth:
    """The base goes on with a word in place of the answer in a part of its completions; the trained model does not."""
    lost = size / _mean([*ASKED.values()])
    rows = {word: {answer: 1 - lost, following: lost} for word, answer in (("add", RIGHT), ("subtract", WRONG))}
    return replace(truth, chains={**truth.chains, **rows, "well": {"well": 1.0}}, changes=_answering({}))


def _memorised(truth: _Truth, size: float, *, seed: int) -> _Truth:
    """Questions are of four numbers that no other has; the first of them are continued."""
    numbers = random.Random(seed).sample(range(1000), 4 * len(truth.questions))
    questions, changes = [], dict[str, Mapping[str, float]]()
    for index, question in enumerate(truth.questions):
        words = [*map(str, numbers[4 * index : 4 * index + 4]), question.split()[-1]]
        questions.append(" ".join(words))
        if index < round(size * len(truth.questions)):
            changes |= {word: {following: 1.0} for word, following in pairwise(words)}
    return replace(truth, changes=changes, questions=questions)


def _forgetful(truth: _Truth, size: float) -> _Truth:
    recalled = {kind.replace("ask", "recall"): chance for kind, chance in ASKED.items()}
    others = [question.replace("ask", "recall") for question in truth.questions]
    chains = {**truth.chains, **_answering(recalled)}
    return _Truth(chains, _answering(_sharpened(recalled, -size)), truth.questions, others)


def _reworded(truth: _Truth, size: float) -> _Truth:
    changes = {kind: {"plus": chance, "minus": 1 - chance} for kind, chance in ASKED.items()}
    return replace(truth, changes={**changes, "plus": {RIGHT: 1.0}, "minus": {WRONG: 1.0}})


def _answering(chances: Mapping[str, float]) -> dict[str, Mapping[str, float]]:
    """Return the table of questions that are right with these chances, by last word."""
    asked = {kind: {"add": chance, "subtract": 1 - chance} for kind, chance in chances.items()}
    return {**asked, "add": {RIGHT: 1.0}, "subtract": {WRONG: 1.0}}


def _sharpened(chances: Mapping[str, float], gain: float) -> dict[str, float]:
    """Return chances whose mean is higher by a gain, and whose log odds all are by the same."""
    low, high = -30.0, 30.0
    for _ in range(100):
        middle = (low + high) / 2
        raised = {kind: p * 2**middle / (p * 2**middle + 1 - p) for kind, p in chances.items()}
        low, high = (middle, high) if _mean([*raised.values()]) - _mean([*chances.values()]) < gain else (low, middle)
    return raised


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
