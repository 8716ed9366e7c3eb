"""What is measured of the policy while it trains: held-out accuracy, and how far it is from the stage's start.

Neither changes training by a bit: nothing is learned, and every random number has a seed of its own.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel

from swerve.artifacts.checkpoint import CheckpointRef
from swerve.artifacts.responses import Response
from swerve.batch import TokenBatch, TokenSequence
from swerve.config.engines import TorchEngineConfig
from swerve.config.recipe import Config
from swerve.config.stages import StageConfig
from swerve.errors import ConfigError, MismatchError
from swerve.eval.heldout import evaluate_problems, heldout_problems, heldout_scores, write_evaluation
from swerve.functional.head_divergence import head_divergence
from swerve.functional.head_logits import LinearHead
from swerve.models.head import Head
from swerve.models.model_folder import LoadedModel
from swerve.problems import ProblemFamily
from swerve.prompts.encode import encode_prompts
from swerve.prompts.templates import template_arguments
from swerve.rewards.checks import check_graders
from swerve.rollout.decoding import evaluating
from swerve.rollout.engine import make_engine
from swerve.train.context import Metrics, StageContext
from swerve.train.frozen import frozen
from swerve.train.replicated_model import ReplicatedModel
from swerve.types import Problem

_NUM_ROLLOUTS = 16
_TOKENS_PER_BATCH = 8192
_STATISTICS = ("kl_forward", "kl_reverse", "js", "entropy")


def check_watched(config: Config, family: ProblemFamily) -> None:
    """Check that there is something to measure the policy on, where the recipe asks for it.

    Raises:
        ConfigError: the task has no held-out problems, or a problem's grader does not exist.
    """
    if config.eval.every is None and config.probe.every is None:
        return
    problems = heldout_problems(config, family)
    if not problems:
        raise ConfigError(
            f"task '{config.task.kind}' has no held-out problems, which eval.every and probe.every measure on; give it "
            "some, or leave the two out"
        )
    check_graders(problems)


def is_evaluated(config: Config, stage: StageConfig, stage_step: int) -> bool:
    """Whether training evaluates the policy after a step of a stage, counted from 1."""
    every = config.eval.every
    return every is not None and (stage_step % every == 0 or stage_step == stage.steps)


def is_that_of_files(config: Config) -> bool:
    """Whether the model in training computes as `swerve eval` will: in the same type."""
    return config.runtime.precision == config.runtime.dtype


class LiveEvaluation:
    """Evaluates the policy on the held-out problems, as `swerve eval` does; the processes share them."""

    def __init__(self, stage: StageConfig, context: StageContext) -> None:
        self._stage, self._context = stage, context
        self._problems: list[Problem] = []
        self._evaluated: tuple[int, list[list[Response]]] = (0, [])
        """Step of the stage and the responses of the policy after it."""

    def measure(self, stage_step: int) -> Metrics:
        """Return what to log of the policy after a step of the stage, counted from 1; nothing where it is not due."""
        if not is_evaluated(self._context.config, self._stage, stage_step):
            return {}
        # Sample from the model in training.
        context = self._context
        model, config = context.learner.model, context.config
        self._problems = self._problems or heldout_problems(config, context.family)
        loaded = LoadedModel(model=model, tokenizer=context.learner.tokenizer)
        whole = context.learner.weights.gathered
        with evaluating(model), context.awake_engine(step=stage_step) as engine, whole():
            responses = evaluate_problems(config, loaded, engine, self._problems, context.world)
        self._evaluated = (stage_step, responses)
        # Log the means.
        greedy, sampled = heldout_scores(responses, confidence=config.eval.confidence)
        means = {
            "eval_accuracy": greedy.accuracy,
            "eval_reward": sampled.mean_reward,
            "eval_num_tokens": greedy.num_tokens,
            "eval_entropy": greedy.entropy,
            "eval_truncated": greedy.truncated,
        }
        return {name: None if estimate is None else estimate.mean for name, estimate in means.items()}

    def write(self, checkpoint: CheckpointRef) -> None:
        """Write what was measured as the evaluation of a checkpoint, if it was measured of its weights."""
        step, responses = self._evaluated
        context = self._context
        if checkpoint.scheduled and checkpoint.stage_step == step and is_that_of_files(context.config):
            write_evaluation(context.config, context.run, checkpoint, context.family, self._problems, responses)


class LiveDivergence:
    """Compares the policy with the one that the stage began with, on a few rollouts of the latter.

    Of that one the hidden states at these tokens and the output head are kept, on the CPU.
    """

    def __init__(self, context: StageContext, model: PreTrainedModel | None) -> None:
        """Sample the rollouts and read them.

        Args:
            context: the stage's.
            model: the policy that it began with; None: the present one.
        """
        # The model at the start; the present one is it where the stage begins.
        self._context = context
        start = context.learner.weights
        if model is not None:
            start = frozen(model, context)
        # Its rollouts, dealt out to the processes, with its states at their tokens and its output head.
        with evaluating(start.model):
            with start.gathered():
                sequences = context.world.gather(self._rollouts(start.model))[0]
            numbers = context.learner.share([[sequence] for sequence in sequences])
            own = [
                (tuple(prompt), tuple(completion)) for prompt, completion in (sequences[number] for number in numbers)
            ]
            self._batches = context.learner.batches(own, tokens_per_batch=_TOKENS_PER_BATCH)
            self._hidden = [_hidden(start, batch).cpu() for batch in self._batches]
            with start.gathered():
                self._head = _moved(_linear(start.head), "cpu", copy=True)

    def _rollouts(self, model: PreTrainedModel) -> list[TokenSequence]:
        context = self._context
        problems = heldout_problems(context.config, context.family)[:_NUM_ROLLOUTS]
        encoded = encode_prompts(context.learner.tokenizer, problems, template_arguments(context.config.model))
        prompts = [prompt.token_ids for prompt in encoded]
        seeds = [context.seed("live", problem.id) for problem in problems]
        max_rows = context.config.runtime.max_rows
        with closing(make_engine(TorchEngineConfig(), model, context.learner.tokenizer, max_rows=max_rows)) as engine:
            completions = engine.generate(prompts, context.sampling(num_samples=1, temperature=1.0), seeds=seeds)
        return [(prompt, group[0].token_ids) for prompt, group in zip(prompts, completions, strict=True)]

    def measure(self, stage_step: int) -> Metrics:
        """Return what to log after a step: means per token in nats, of the policy P against the start Q."""
        every, weights = self._context.config.probe.every, self._context.learner.weights
        if every is None or stage_step % every:
            return {}
        reference = _moved(self._head, weights.model.device)
        sums = dict.fromkeys(["tokens", *_STATISTICS], 0.0)
        with evaluating(weights.model):
            for batch, start in zip(self._batches, self._hidden, strict=True):
                hidden = _hidden(weights, batch)
                head = _linear(weights.head)  # of a divided model it is there after a forward pass
                ids = batch.completion_ids[batch.mask].to(hidden.device)
                stats = head_divergence(hidden, start.to(hidden.device), head, reference, ids).stats
                sums["tokens"] += len(ids)
                for name in _STATISTICS:
                    sums[name] += float(getattr(stats, name).double().sum())
        total = self._context.world.sums(sums)
        return {f"live_{name}": total[name] / total["tokens"] for name in _STATISTICS}


def _hidden(weights: ReplicatedModel, batch: TokenBatch) -> Tensor:
    with torch.no_grad():
        return weights.completion_hidden(batch.to(weights.model.device)).detach()


def _moved(head: LinearHead, device: torch.device | str, *, copy: bool = False) -> LinearHead:
    bias = None if head.bias is None else head.bias.to(device, copy=copy)
    return replace(head, weight=head.weight.to(device, copy=copy), bias=bias)


def _linear(head: Head) -> LinearHead:
    linear = head.linear()
    if linear is None:
        raise MismatchError("probe.every needs an output head that is a plain linear layer; leave it out")
    return linear
