"""What a replay is judged by: how probable right answers to held-out problems are, without sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from transformers import PreTrainedTokenizerBase

from swerve.artifacts.response_columns import SEQUENCES_SCHEMA
from swerve.artifacts.responses import read_response_table
from swerve.artifacts.run import RunDirectory
from swerve.batch import TokenSequence
from swerve.config.recipe import Config
from swerve.errors import ConfigError
from swerve.eval.heldout import heldout_problems
from swerve.problems import ProblemFamily
from swerve.prompts.encode import encode_completions, encode_prompts
from swerve.prompts.templates import template_arguments
from swerve.train.columns import TokenTable, score_logprobs
from swerve.train.learner import Learner

TOKENS_PER_BATCH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Held-out answers and tokens, as token ids."""

    solutions: Sequence[TokenSequence]
    """Prompt and written solution of each held-out problem that has one."""
    first_wrong: Sequence[TokenSequence]
    """Of each wrong answer that the run's probe read: all before its first wrong token, and the right token there."""

    @classmethod
    def of_run(
        cls, run: RunDirectory, config: Config, family: ProblemFamily, tokenizer: PreTrainedTokenizerBase
    ) -> Targets:
        """Return what a run's replays are judged by.

        Raises:
            ConfigError: there is nothing: no held-out problem has a written solution, and no probe knows wrong tokens.
        """
        arguments = template_arguments(config.model)
        solved = (problem for problem in heldout_problems(config, family) if problem.solution)
        prompts = encode_prompts(tokenizer, list(islice(solved, config.eval.num_problems)), arguments)
        texts = [prompt.problem.solution or "" for prompt in prompts]
        solutions = encode_completions(tokenizer, prompts, texts, arguments)
        path = run.probe_path / "sequences.parquet"
        marked = read_response_table(path, SEQUENCES_SCHEMA) if path.is_file() else ()
        places: dict[tuple[int, ...], int] = {}
        for response in marked:
            position, ids = response.first_wrong, response.completion_ids
            if response.correct is False and position is not None:
                token = _token_of(response.wrong[position], tokenizer)
                if token is not None:
                    places[(*response.prompt_ids, *ids[:position])] = token
        if not solutions and not places:
            raise ConfigError(
                f"{run.path}: no held-out problem has a written solution, and no probe of the run knows wrong tokens: "
                "there is nothing that a replay could be judged by"
            )
        return cls(
            solutions=[(prompt.token_ids, ids) for prompt, ids in zip(prompts, solutions, strict=True)],
            first_wrong=[(before, (token,)) for before, token in places.items()],
        )

    def values(self, learner: Learner) -> Mapping[str, float]:
        """Return each target under the present weights; the model is left in evaluation mode.

        `accuracy` is the mean probability of the written solutions, `solution` their mean log-probability, and
        `first_wrong` the mean log-probability of the right tokens at the first wrong places; nats, at temperature 1.
        """
        found: dict[str, float] = {}
        if self.solutions:
            sums = completion_logprobs(learner, self.solutions)
            found |= {"accuracy": float(sums.exp().mean()), "solution": float(sums.mean())}
        if self.first_wrong:
            found["first_wrong"] = float(completion_logprobs(learner, self.first_wrong).mean())
        return found


def completion_logprobs(learner: Learner, sequences: Sequence[TokenSequence]) -> torch.Tensor:
    """Return the log-probability of each completion under the present weights, float64, at temperature 1."""
    table = TokenTable.of(sequences)
    batches = learner.batches(sequences, tokens_per_batch=TOKENS_PER_BATCH)
    scores = score_logprobs(learner.weights, batches, table, temperature=1.0)
    return (scores.double() * table.mask).sum(dim=1)


def _token_of(text: str, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the token that is a text; None where it is not one."""
    ids = tokenizer.encode(text.strip(), add_special_tokens=False)
    return int(ids[0]) if len(ids) == 1 else None
