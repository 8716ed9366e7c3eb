r"""Five checkpoints of a small Llama, trained by torch and transformers alone; swerve is not imported.

    python -m studies.any_model.train FOLDER

writes FOLDER/{sft,dpo,rlvr-25,rlvr-50,rlvr-100} in the Hugging Face layout and FOLDER/problems.jsonl, the held-out
problems. The model adds two numbers column by column and is fine-tuned for too short a time to be always right: its
mistakes are its own. One thread, a few minutes.
"""

from __future__ import annotations

import copy
import json
import math
import random
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

_SPECIAL = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>")
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """Sizes and steps of the three trainings."""

    seed: int = 0
    digits: int = 2
    num_train: int = 3500
    """Problems of preferences and of RL; the first `num_sft` are those of fine-tuning too."""
    num_sft: int = 115
    num_heldout: int = 200
    hidden_size: int = 64
    num_layers: int = 2
    max_new_tokens: int = 56
    sft_steps: int = 400
    sft_lr: float = 3e-3
    dpo_steps: int = 10
    dpo_lr: float = 3e-3
    dpo_beta: float = 0.1
    rl_checkpoints: tuple[int, ...] = (25, 50, 100)
    rl_lr: float = 0.03
    """Of SGD: a memorised solution is so sharp that the even steps of Adam destroy it."""
    num_prompts: int = 32
    num_samples: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Prompts and completions side by side, `[B, T]`; prompts padded on the left, completions on the right."""

    ids: Tensor
    mask: Tensor
    """1 at tokens, 0 at padding."""
    learned: Tensor
    """1 at tokens of completions, the end included."""


def problems(settings: TrainSettings) -> list[dict[str, object]]:
    """Return distinct sums, as rows of a file that swerve's task `table` reads; the last ones are held out."""
    rng = random.Random(settings.seed)
    low, high = 10 ** (settings.digits - 1), 10**settings.digits
    found: dict[tuple[int, ...], dict[str, object]] = {}
    while len(found) < settings.num_train + settings.num_heldout:
        first, second = rng.randrange(low, high), rng.randrange(low, high)
        question = f"What is {first} + {second}?"
        carries = solution(question).count("carry 1")
        row = {"question": question, "answer": str(first + second), "kind": f"{carries} carries", "difficulty": carries}
        found.setdefault(tuple(sorted((first, second))), row)
    return list(found.values())


def solution(question: str) -> str:
    r"""Return a sum written out column by column from the right.

    >>> solution("What is 58 + 47?")
    '8+7+0=15, write 5 carry 1; 5+4+1=10, write 0 carry 1; so \\boxed{105}'
    """
    first, second = re.findall(r"\d+", question)
    size = max(len(first), len(second))
    columns, carry = [], 0
    for a, b in zip(reversed(first.zfill(size)), reversed(second.zfill(size)), strict=True):
        total = int(a) + int(b) + carry
        columns.append(f"{a}+{b}+{carry}={total}, write {total % 10} carry {total // 10}; ")
        carry = total // 10
    return f"{''.join(columns)}so \\boxed{{{int(first) + int(second)}}}"


def is_right(question: str, text: str) -> bool:
    r"""Return whether the boxed number of a text is the sum: the verifiable reward.

    >>> is_right("What is 2 + 3?", r"so \\boxed{5}")
    True
    """
    boxed = re.findall(r"\\boxed\{(\d+)\}", text)
    return len(boxed) == 1 and int(boxed[0]) == sum(map(int, re.findall(r"\d+", question)))


def new_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer with single digits and a chat template."""
    tokenizer = Tokenizer(models.BPE())
    split = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=list(_SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=_SPECIAL[0], eos_token=_SPECIAL[1])
    fast.chat_template = _CHAT_TEMPLATE
    return fast


def new_model(tokenizer: PreTrainedTokenizerFast, settings: TrainSettings) -> LlamaForCausalLM:
    """Return a Llama with random weights."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=settings.hidden_size,
        intermediate_size=4 * settings.hidden_size,
        num_hidden_layers=settings.num_layers,
        num_attention_heads=4,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


class Trainer:
    """A model in training, with its tokenizer."""

    def __init__(self, settings: TrainSettings, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
        self.settings, self.model, self.tokenizer = settings, model, tokenizer

    def encode(self, question: str, answer: str) -> tuple[list[int], list[int]]:
        """Return the ids of a prompt and of its completion, the end included."""
        message = [{"role": "user", "content": question}]
        prompt = self.tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
        return self.tokenizer(prompt)["input_ids"], [
            *self.tokenizer(answer)["input_ids"],
            self.tokenizer.eos_token_id,
        ]

    def batch(self, pairs: Sequence[tuple[list[int], list[int]]]) -> Batch:
        """Return ids of prompts and completions as a batch."""
        left, right = max(len(one) for one, _ in pairs), max(len(one) for _, one in pairs)
        pad = self.tokenizer.pad_token_id
        rows, masks, learned = [], [], []
        for prompt, completion in pairs:
            before, after = left - len(prompt), right - len(completion)
            rows.append([pad] * before + prompt + completion + [pad] * after)
            masks.append([0] * before + [1] * (len(prompt) + len(completion)) + [0] * after)
            learned.append([0] * left + [1] * len(completion) + [0] * after)
        return Batch(ids=torch.tensor(rows), mask=torch.tensor(masks), learned=torch.tensor(learned))

    def logprobs(self, batch: Batch) -> Tensor:
        """Return the log-probability of every token but the first, `[B, T-1]`; 0 where nothing is learned."""
        places = (batch.mask.cumsum(1) - 1).clamp(min=0)
        logits = self.model(input_ids=batch.ids, attention_mask=batch.mask, position_ids=places).logits[:, :-1]
        found = -cross_entropy(logits.flatten(0, 1), batch.ids[:, 1:].flatten(), reduction="none")
        return found.view(len(batch.ids), -1) * batch.learned[:, 1:]

    @torch.no_grad()
    def sample(self, questions: Sequence[str], num: int, *, greedy: bool = False) -> list[list[tuple[list[int], str]]]:
        """Return so many completions of each question, ids with texts."""
        prompts = [self.encode(one, "")[0] for one in questions for _ in range(num)]
        batch = self.batch([(prompt, []) for prompt in prompts])
        out = self.model.generate(
            input_ids=batch.ids,
            attention_mask=batch.mask,
            do_sample=not greedy,
            top_k=None if greedy else 0,
            max_new_tokens=self.settings.max_new_tokens,
        )
        end, found = self.tokenizer.eos_token_id, []
        for row in out[:, batch.ids.shape[1] :].tolist():
            ids = row[: row.index(end) + 1] if end in row else row
            found.append((ids, self.tokenizer.decode(ids, skip_special_tokens=True)))
        return [found[start : start + num] for start in range(0, len(found), num)]

    def step(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        """Take one optimizer step."""
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        optimizer.step()

    def accuracy(self, questions: Sequence[str]) -> float:
        """Return the greedy accuracy."""
        answers = self.sample(questions, 1, greedy=True)
        return sum(is_right(one, group[0][1]) for one, group in zip(questions, answers, strict=True)) / len(questions)


def sft(trainer: Trainer, questions: Sequence[str], rng: random.Random) -> None:
    """Fine-tune on written-out sums: cross-entropy per token, cosine schedule."""
    settings = trainer.settings
    optimizer = torch.optim.AdamW(trainer.model.parameters(), lr=settings.sft_lr, betas=(0.9, 0.95))
    for step in range(settings.sft_steps):
        for group in optimizer.param_groups:
            group["lr"] = settings.sft_lr * 0.5 * (1 + math.cos(math.pi * step / settings.sft_steps))
        batch = trainer.batch([trainer.encode(one, solution(one)) for one in rng.sample(questions, 32)])
        trainer.step(optimizer, -trainer.logprobs(batch).sum() / batch.learned.sum())


def dpo(trainer: Trainer, questions: Sequence[str], rng: random.Random) -> None:
    """Learn to prefer a right completion of one's own to a wrong one (DPO, arXiv:2305.18290)."""
    settings = trainer.settings
    reference = Trainer(settings, copy.deepcopy(trainer.model), trainer.tokenizer)
    optimizer = torch.optim.SGD(trainer.model.parameters(), lr=settings.dpo_lr)
    for _ in range(settings.dpo_steps):
        pairs = _preferences(reference, rng.sample(questions, 4 * settings.num_prompts))
        if not pairs:
            continue
        batch = trainer.batch(pairs)
        with torch.no_grad():
            before = reference.logprobs(batch).sum(1)
        margin = (trainer.logprobs(batch).sum(1) - before).view(-1, 2)
        trainer.step(optimizer, -logsigmoid(settings.dpo_beta * (margin[:, 0] - margin[:, 1])).mean())


def _preferences(trainer: Trainer, questions: Sequence[str]) -> list[tuple[list[int], list[int]]]:
    """Return pairs one after the other: a right completion, then a wrong one of the same prompt."""
    found = []
    for question, group in zip(questions, trainer.sample(questions, 4), strict=True):
        right = [ids for ids, text in group if is_right(question, text)]
        wrong = [ids for ids, text in group if not is_right(question, text)]
        if right and wrong:
            prompt = trainer.encode(question, "")[0]
            found += [(prompt, right[0]), (prompt, wrong[0])]
    return found


def rlvr(trainer: Trainer, questions: Sequence[str], rng: random.Random) -> Iterable[int]:
    """Reinforce what the verifier finds right over the mean of its group; yield the steps of checkpoints."""
    settings = trainer.settings
    optimizer = torch.optim.SGD(trainer.model.parameters(), lr=settings.rl_lr)
    for step in range(1, max(settings.rl_checkpoints) + 1):
        chosen = rng.sample(questions, settings.num_prompts)
        groups = trainer.sample(chosen, settings.num_samples)
        rewards = torch.tensor(
            [[float(is_right(one, text)) for _, text in group] for one, group in zip(chosen, groups, strict=True)]
        )
        advantages = (rewards - rewards.mean(1, keepdim=True)).flatten()
        batch = trainer.batch(
            [(trainer.encode(one, "")[0], ids) for one, group in zip(chosen, groups, strict=True) for ids, _ in group]
        )
        trainer.step(optimizer, -(trainer.logprobs(batch) * advantages[:, None]).sum() / batch.learned.sum())
        if step in settings.rl_checkpoints:
            yield step


def train_all(folder: Path, settings: TrainSettings) -> None:
    """Write the five checkpoints and the held-out problems to a folder."""
    torch.manual_seed(settings.seed)
    rng = random.Random(settings.seed)
    rows = problems(settings)
    heldout = rows[settings.num_train :]
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in heldout)
    (folder / "problems.jsonl").write_text(lines, encoding="utf-8")
    questions = [str(row["question"]) for row in rows[: settings.num_train]]
    tokenizer = new_tokenizer(f"{one} {solution(one)}" for one in questions[:2000])
    trainer = Trainer(settings, new_model(tokenizer, settings), tokenizer)
    asked = [str(row["question"]) for row in heldout]

    def save(name: str) -> None:
        trainer.model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        print(f"{name}: greedy accuracy {trainer.accuracy(asked):.3f}", flush=True)

    sft(trainer, questions[: settings.num_sft], rng)
    save("sft")
    dpo(trainer, questions, rng)
    save("dpo")
    for step in rlvr(trainer, questions, rng):
        save(f"rlvr-{step}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    train_all(Path(sys.argv[1]), TrainSettings())
