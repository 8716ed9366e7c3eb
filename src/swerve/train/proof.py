"""Who taught a target: the token map of some steps, and the proof by really removing tokens."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from swerve.artifacts.replays import TAUGHT_SCHEMA, StepCheck, Taught, TaughtGroup, TaughtRollout, TaughtWord
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.tables import write_table
from swerve.config.recipe import Config
from swerve.errors import ConfigError
from swerve.models.model_folder import load_tokenizer
from swerve.probe.rollouts.tokenise import token_spans
from swerve.problems import load_family
from swerve.progress import Progress, SilentProgress
from swerve.seeds import derive_seed
from swerve.train.changes import Place, Stretch, Variation, read_rollouts
from swerve.train.counterfactual import run_on
from swerve.train.replay import replay_session, replayed_steps, training_problems
from swerve.train.targets import Targets
from swerve.train.taught import TaughtToken, Watched, taught_step

SHARE = 0.1
"""Of the tokens of a set that is removed."""
_NUM_RANDOM = 5
_SHOWN = 10


def who_taught(
    config: Config,
    run: RunDirectory,
    target: str,
    stretch: Stretch,
    *,
    again: bool,
    path: Path,
    progress: Progress,
) -> Taught:
    """Map the tokens of some steps by their effect on a target; remove sets of them; write both.

    Args:
        config: the run's.
        run: it.
        target: one of `TARGETS`.
        stretch: the steps.
        again: whether the replays without tokens sample anew after the first step.
        path: the file that is written; the map is beside it as a table, the replays are as those of `run_on`.
        progress: told how far it is.

    Raises:
        ConfigError: the run has no such target, or no step learned anything.
    """
    tokenizer: Any = load_tokenizer(run.checkpoints[-1].path)
    steps = list(_mapped(config, run, target, stretch, tokenizer, progress))
    tokens = [token for _, own in steps for token in own]
    if not tokens:
        where = f"from {stretch.first + 1} to {stretch.stop}"
        raise ConfigError(f"no step {where} learned anything: there is nothing that it taught")
    # Sets of equal size: those with the largest effects, the lowest, and random ones.
    ordered = sorted(tokens, key=lambda token: (-token.effect, _place(token)))
    size = max(1, round(SHARE * len(tokens)))
    sets = {"top": ordered[:size], "bottom": ordered[-size:]}
    for number in range(1, _NUM_RANDOM + 1):
        rng = random.Random(derive_seed(config.seed, "replay", "random set", number))
        sets[f"random {number}"] = rng.sample(ordered, size)
    variations = [
        Variation(name=name, tokens=tuple(sorted(map(_place, own))), again=again) for name, own in sets.items()
    ]
    removed = path.with_name(f"{path.stem}-removed.json")
    result = Taught(
        target=target,
        steps=[check for check, _ in steps],
        groups=_groups(tokens),
        words=_words(tokens, tokenizer),
        rollouts=list(_rollouts(tokens, run, stretch.before, tokenizer)),
        num_tokens=len(tokens),
        num_removed=size,
        proof=run_on(config, run, variations, stretch, path=removed, progress=progress),
    )
    write_table(path.with_suffix(".parquet"), [asdict(token) for token in tokens], TAUGHT_SCHEMA)
    result.write(path)
    return result


def _mapped(
    config: Config, run: RunDirectory, target: str, stretch: Stretch, tokenizer: Any, progress: Progress
) -> Iterator[tuple[StepCheck, list[TaughtToken]]]:
    """Yield the maps of the steps that learned."""
    targets, watched = Targets.of_run(run, config, load_family(config.task), tokenizer), Watched(name="watched")
    sequences = targets.first_wrong if target == "first_wrong" else targets.solutions
    if not sequences:
        need = "probe it first" if target == "first_wrong" else "its task has no written solutions"
        raise ConfigError(f"{run.path} has no target {target}: {need}")
    stop, num = stretch.before + stretch.stop, stretch.stop - stretch.first
    with replay_session(config, run, SilentProgress()) as session, progress.task("map tokens", num) as task:
        problems = training_problems(session)
        for step in replayed_steps(session, problems, start=stretch.start, stop=stop, variation=watched):
            if step.metrics["stage_step"] > stretch.first:
                if watched.steps:
                    yield taught_step(step, watched, sequences)
                task.advance(1)


def _place(token: TaughtToken) -> Place:
    return token.index, token.group, token.sample, token.position


def _sum(tokens: Sequence[TaughtToken]) -> float:
    return sum(token.effect for token in tokens)


def _weight(tokens: Sequence[TaughtToken]) -> float:
    return sum(abs(token.effect) for token in tokens)


def _largest(
    tokens: Sequence[TaughtToken], key: Callable[[TaughtToken], Hashable], size: Callable[[list[TaughtToken]], float]
) -> list[list[TaughtToken]]:
    """Return the tokens that share a key, of the keys whose tokens have the largest size, the largest first."""
    by_key: dict[Hashable, list[TaughtToken]] = defaultdict(list)
    for token in tokens:
        by_key[key(token)].append(token)
    return sorted(by_key.values(), key=lambda own: -abs(size(own)))[:_SHOWN]


def _groups(tokens: Sequence[TaughtToken]) -> list[TaughtGroup]:
    """Return the groups with the largest effects."""
    largest = _largest(tokens, lambda token: (token.index, token.group), _sum)
    return [TaughtGroup(step=own[0].index + 1, group=own[0].group, effect=_sum(own)) for own in largest]


def _words(tokens: Sequence[TaughtToken], tokenizer: Any) -> list[TaughtWord]:
    """Return the tokens of the vocabulary with the largest shares of the absolute effect."""
    total = _weight(tokens) or 1.0
    return [
        TaughtWord(token=str(tokenizer.decode([own[0].token_id])), num=len(own), share=_weight(own) / total)
        for own in _largest(tokens, lambda token: token.token_id, _weight)
    ]


def _rollouts(tokens: Sequence[TaughtToken], run: RunDirectory, before: int, tokenizer: Any) -> Iterator[TaughtRollout]:
    """Yield the rollouts with the largest effects; the last stage begins after step `before`."""
    for own in _largest(tokens, lambda token: (token.index, token.group, token.sample), _sum):
        first = own[0]
        rows = read_rollouts(run, before + first.index + 1)
        row = next(row for row in rows if (row["group"], row["sample"]) == (first.group, first.sample))
        text, ids = row["text"], row["completion_ids"]
        # A token that adds nothing to the text is special.
        spans = zip(ids, token_spans(tokenizer, ids, text), strict=True)
        yield TaughtRollout(
            step=first.index + 1,
            group=first.group,
            sample=first.sample,
            correct=row["correct"],
            effect=_sum(own),
            pieces=[text[start:end] or str(tokenizer.decode([token])) for token, (start, end) in spans],
            effects=[token.effect for token in own],
        )
