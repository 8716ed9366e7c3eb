"""Supervised fine-tuning on the completion tokens of the task's traces, or of examples from files."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, islice

import torch
from torch import Tensor

from swerve.batch import TokenBatch, TokenSequence
from swerve.config.stages import SftStage
from swerve.config.supervised_stage import SupervisedStage
from swerve.functional.logprobs import token_logprobs
from swerve.functional.path_losses import max_prob_js, max_prob_kl
from swerve.positions import max_positions
from swerve.prompts.encode import encode_completions, encode_prompts
from swerve.prompts.templates import template_arguments
from swerve.train.context import Metrics, StageContext
from swerve.train.curriculum import hold_out, shuffled_order
from swerve.train.early_stopping import validation_metrics
from swerve.train.examples import Example, ExampleReader
from swerve.train.learner import learning_rate
from swerve.types import Problem

_STEPS_ENCODED = 32
"""How many steps' traces become tokens at once."""

_LOSSES: Mapping[str, Callable[[Tensor, Tensor, SupervisedStage], Tensor]] = {
    "cross_entropy": lambda logits, ids, _stage: -token_logprobs(logits, ids),
    "greedy_kl": lambda logits, ids, stage: max_prob_kl(logits, ids, target_gradient=stage.target_gradient),
    "greedy_js": lambda logits, ids, stage: max_prob_js(logits, ids, target_gradient=stage.target_gradient),
}
"""(logits `[N, V]`, ids `[N]`, stage) -> the loss of each token `[N]`."""


class SftRunner:
    """Imitates traces of the problems it draws, or examples in endless shuffled passes."""

    def __init__(self, stage: SupervisedStage, context: StageContext, examples: Sequence[Example] = ()) -> None:
        """Read the stage's data and hold out what validates.

        Args:
            stage: its settings.
            context: the stage's.
            examples: what is imitated; none: the data of the stage, or without any traces of the task.
        """
        self._stage = stage
        self._context = context
        reader = example_reader(stage, context)
        self._note = reader.note
        if not examples and isinstance(stage, SftStage):
            examples = reader.read(stage.data)
        share = stage.validation_share if examples else None
        seed = context.seed(stage.label, "validation")
        self._examples, held_out = hold_out(examples, share, key=lambda example: example.problem, seed=seed)
        self._validation = [one for example in held_out or reader.read(stage.validation) for one in example.sequences]
        # What is left out by its tokens was counted as `epochs` were: the passes are more than the recipe says.
        asked, total = stage.num_examples if isinstance(stage, SftStage) else None, len(self._examples)
        if total and asked not in (None, total):
            reader.note(f"the {asked} examples of stage '{stage.label}' are {asked / total:.3g} passes over {total}")
        self._encoded: dict[int, tuple[list[Problem], list[TokenSequence]]] = {}
        if problems := context.draws.validation:
            self._validation = self._traces(problems, self._seeds("validation", num=len(problems)))

    def step(self, index: int) -> Metrics:
        """See `StageRunner.step`."""
        # The step's sequences, and this process's share of them.
        stage, learner = self._stage, self._context.learner
        batch_sequences, drawn = self._draw(index)
        sequences = self._share(batch_sequences)
        num_tokens = self._num_tokens(sequences)

        def loss(batch: TokenBatch, hidden: Tensor) -> tuple[Tensor, Mapping[str, float]]:
            ids = batch.completion_ids[batch.mask]
            return learner.head.loss(
                hidden, lambda logits, rows: _LOSSES[stage.loss](logits, ids[rows], stage).sum() / num_tokens
            ), {}

        # One update, and the validation loss where it is time.
        rate = learning_rate(stage.optimizer, index, stage.steps)
        batches = learner.batches(sequences, tokens_per_batch=stage.tokens_per_batch)
        result = learner.update(batches, loss, learning_rate=rate)
        return {
            "loss": result.loss,
            "grad_norm": result.grad_norm,
            "lr": rate,
            "num_tokens": int(num_tokens),
            **drawn,
            **self._validate(index),
        }

    def _share(self, sequences: Sequence[TokenSequence]) -> list[TokenSequence]:
        """Return those of all processes' sequences that this one reads."""
        return [sequences[number] for number in self._context.learner.share([[sequence] for sequence in sequences])]

    def _draw(self, index: int) -> tuple[Sequence[TokenSequence], Metrics]:
        """Return the sequences of a step, of all processes, and what to log of them."""
        stage, context = self._stage, self._context
        if not self._examples:
            if index not in self._encoded:
                self._encode(range(index, min(index + _STEPS_ENCODED, stage.steps)))
            problems, traces = self._encoded.pop(index)
            return traces, context.draw_metrics(problems, step=index)
        total = len(self._examples)
        start = index * stage.batch_size
        numbers = range(start, start + _size_of(stage, index))
        sequences = list[TokenSequence]()
        for number in numbers:  # of endless passes, each in an order of its own
            order = shuffled_order(total, context.seed(stage.label, "epoch", number // total))
            sequences += self._examples[order[number % total]].sequences
        return sequences, {"epoch": numbers.stop / total}

    def _encode(self, steps: range) -> None:
        """Keep the problems of steps and their traces in tokens: a tokenizer under limits costs a fork per call."""
        problems: dict[int, list[Problem]] = {}
        seeds: list[int] = []
        for step in steps:
            size = _size_of(self._stage, step)
            problems[step] = self._context.draw(range(size), step=step)
            seeds += self._seeds("trace", step, num=size)
        traces = iter(self._traces(list(chain.from_iterable(problems.values())), seeds))
        self._encoded = {step: (drawn, list(islice(traces, len(drawn)))) for step, drawn in problems.items()}

    def _seeds(self, *path: str | int, num: int) -> list[int]:
        return [self._context.seed(self._stage.label, *path, slot) for slot in range(num)]

    def _traces(self, problems: Sequence[Problem], seeds: Sequence[int]) -> list[TokenSequence]:
        """Return a supervised trace of each problem, drawn with its seed."""
        family, tokenizer = self._context.family, self._context.learner.tokenizer
        traces = [family.trace(problem, random.Random(seed)) for problem, seed in zip(problems, seeds, strict=True)]
        arguments = template_arguments(self._context.config.model)
        prompts = encode_prompts(tokenizer, problems, arguments)
        stops = self._context.stop_ids
        completions = encode_completions(tokenizer, prompts, traces, arguments, stop_ids=stops, note=self._note)
        self._note = lambda _line: None  # later traces are as the first
        return [(prompt.token_ids, completion) for prompt, completion in zip(prompts, completions, strict=True)]

    def _num_tokens(self, sequences: Sequence[TokenSequence]) -> float:
        """Return the number of completion tokens of all processes' sequences."""
        return self._context.world.sums({"n": sum(len(completion) for _, completion in sequences)})["n"]

    def _validate(self, index: int) -> Metrics:
        """Return the validation loss after a step and the stage's best step so far, where the step has a validation."""
        stage = self._stage
        if not self._validation or ((index + 1) % stage.validate_every and index + 1 < stage.steps):
            return {}
        return validation_metrics(self._validation_loss(), index + 1, self._context.records, stage.early_stopping)

    def _validation_loss(self) -> float:
        """Return the mean loss per token of the validation examples, without dropout."""
        stage, learner = self._stage, self._context.learner
        sequences = self._share(self._validation)
        learner.model.eval()
        total = 0.0
        with torch.inference_mode():
            for batch in learner.batches(sequences, tokens_per_batch=stage.tokens_per_batch):
                moved = batch.to(learner.model.device)
                hidden = learner.weights.completion_hidden(moved)
                total += float(learner.head.map(hidden, partial(self._token_losses, moved)).sum())
        return self._context.world.sums({"loss": total})["loss"] / self._num_tokens(sequences)

    def _token_losses(self, batch: TokenBatch, logits: Tensor, rows: slice) -> Tensor:
        ids = batch.completion_ids[batch.mask]
        return _LOSSES[self._stage.loss](logits, ids[rows], self._stage)[:, None]


def _size_of(stage: SupervisedStage, index: int) -> int:
    return stage.size_of(index) if isinstance(stage, SftStage) else stage.batch_size


def example_reader(stage: SupervisedStage, context: StageContext) -> ExampleReader:
    """Return what reads a stage's examples for the model in training."""
    return ExampleReader.of_stage(
        stage,
        context.config,
        context.family,
        context.learner.tokenizer,
        stop_ids=context.stop_ids,
        positions=max_positions(context.learner.model.config),
        note=context.progress.note if context.world.is_main else lambda _line: None,
    )
