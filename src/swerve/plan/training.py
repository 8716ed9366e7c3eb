"""What the training of a recipe takes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from transformers import PreTrainedTokenizerBase

from swerve.artifacts.run import RUNS
from swerve.config.engines import ServerEngineConfig
from swerve.config.recipe import Config
from swerve.config.stage_base import SamplingStage
from swerve.config.stages import DistillStage, DpoStage, RlStage
from swerve.config.supervised_stages import RejectStage, SftStage
from swerve.models.hub import is_left_open
from swerve.models.starting_model import recipe_architecture
from swerve.plan.budget import Budget, Server
from swerve.plan.empty_model import empty_model, kept_bytes, num_weights, used_weights
from swerve.plan.memory import StageMemory, keys_to_lower, trained_model, training_memory
from swerve.plan.rates import Device, known_rates
from swerve.plan.sampling import check_positions
from swerve.problems import load_family
from swerve.problems.data_specs import parse_spec
from swerve.prompts.encode import encode_prompts
from swerve.prompts.templates import template_arguments
from swerve.recipes.epochs import stage_sizes
from swerve.seeds import derive_seed
from swerve.train.disk import evaluation_tokens, free_disk, run_disk

_MUCH_DISK = 10 * 10**9
"""Bytes from which it is said what need not be kept."""
_LONGEST_PROMPT = 512
"""Tokens of a prompt that is not at hand."""
_PROMPTS_TRIED = 64
_LIVE_ROLLOUTS = 16
"""Of each stage that `probe.every` samples."""


def predicted_memory(config: Config, *, available: int | None = None, processes: int = 1) -> StageMemory:
    """Return what the stage with the highest peak holds at it, in each process; see `training_memory`.

    Raises:
        ConfigError: the recipe leaves its model open, or its configuration cannot be read.
        CheckpointError: it is no causal model of text, or its weights are quantised.
    """
    architecture, tokenizer = recipe_architecture(config)
    _, longest = prompt_lengths(config, tokenizer)
    return training_memory(config, architecture, longest, available=available, processes=processes)


def prompt_lengths(config: Config, tokenizer: PreTrainedTokenizerBase | None) -> tuple[float, int]:
    """Return how many tokens prompts have on average, and the longest, of some of the training problems.

    Where they or the tokenizer are not at hand, as many as the longest completion, at most 512.
    """
    unknown = min(_LONGEST_PROMPT, config.max_new_tokens)
    if tokenizer is None or any(parse_spec(spec).is_on_hub for spec in config.task.sources):
        return unknown, unknown
    problems = load_family(config.task).problems("train", seed=derive_seed(config.seed, "problems"))[:_PROMPTS_TRIED]
    encoded = encode_prompts(tokenizer, problems, template_arguments(config.model))
    lengths = [len(prompt.token_ids) for prompt in encoded] or [unknown]
    return fmean(lengths), max(lengths)


def training_budget(
    config: Config,
    *,
    out: Path | None = None,
    memory_gb: float | None = None,
    processes: int = 1,
    measures: bool = False,
) -> Budget:
    """Return what training a recipe takes.

    Args:
        config: the recipe, with the steps that its data gives it.
        out: the run's folder; by default its name under `runs`.
        memory_gb: of another machine's device; None: this machine's.
        processes: that train together.
        measures: whether rates are measured here, which takes some seconds.

    Raises:
        ConfigError, CheckpointError: see `predicted_memory`.
    """
    unknown, notes = [size["stage"] for size in stage_sizes(config) if size["steps"] is None], []
    if unknown:
        notes.append(f"not counted: the steps of {', '.join(unknown)}, which the data decides when training begins")
    if is_left_open(config.model):
        tokens, work = training_tokens(config, min(_LONGEST_PROMPT, config.max_new_tokens))
        notes.append("memory, disk, hours: name a model, such as model.path=FOLDER, to see them")
        return Budget(command="train", tokens=tokens, work=work, notes=tuple(notes))

    # The model, on a device.
    architecture, tokenizer = recipe_architecture(config)
    mean, longest = prompt_lengths(config, tokenizer)
    device = Device.of(config.runtime, memory_gb)
    is_known = not (mean == longest == min(_LONGEST_PROMPT, config.max_new_tokens))
    check_positions(architecture, config.max_new_tokens, longest if is_known else None)
    memory = training_memory(config, architecture, longest, available=device.memory, processes=processes)
    model, server = empty_model(architecture, config.runtime.precision), None
    if isinstance(config.rollout.engine, ServerEngineConfig):
        completion = (longest + config.max_new_tokens) * kept_bytes(model)[0]
        server = Server(weights=num_weights(model) * model.dtype.itemsize, completion=completion)

    # What is sampled, learned and kept.
    tokens, work = training_tokens(config, mean)
    place = out or RUNS / config.name
    disk, rates = run_disk(config, trained_model(config, architecture)), None
    if measures:
        from swerve.plan.measure import measured_rates

        first = config.stages[-1]
        rows = (
            first.step_size * first.samples_per_prompt if isinstance(first, SamplingStage) else config.runtime.max_rows
        )
        rates = measured_rates(
            architecture, config.runtime, dtype=config.runtime.precision, prompt=round(mean),
            longest=config.max_new_tokens, rows=min(rows, config.runtime.max_rows),
            tokens_per_batch=first.tokens_per_batch, trains=True, place=place,
        )  # fmt: skip
    rates = rates or known_rates(device.name, config.runtime, used_weights(model))
    if any(stage.frozen_models for stage in config.stages):
        notes.append("a teacher or reference that is named is taken to be as large as the model")
    if not is_known:
        notes.append(f"prompts are taken to have {longest:,} tokens: the problems, or the tokenizer, are not at hand")
    num_kept = len(config.retained_steps(sum(stage.steps for stage in config.stages)))
    if config.retention.save_optimizer and num_kept > 1 and sum(disk.values()) > _MUCH_DISK:
        notes.append(
            "every checkpoint keeps its optimizer state; with retention.save_optimizer=false only the newest does, "
            "which is what resuming needs: swerve replay can then not begin with the others"
        )
    return Budget(
        command="train",
        memory=memory,
        available=device.memory,
        processes=processes,
        server=server,
        lower=keys_to_lower(memory, device.memory, config),
        disk=disk,
        place=place,
        free=free_disk(place) if memory_gb is None else None,
        tokens=tokens,
        work={**work, **_kept_work(config, memory, disk)},
        rates=rates,
        notes=tuple(notes),
    )


def _kept_work(config: Config, memory: StageMemory, disk: Mapping[str, int]) -> dict[str, int]:
    """Return the weights that the optimizer moves, and the bytes of checkpoints that are written."""
    moved = (
        memory.gradients
        // 4
        * sum(stage.steps * (stage.num_updates if isinstance(stage, RlStage) else 1) for stage in config.stages)
    )
    written = sum(size for kind, size in disk.items() if kind.startswith(("weights", "optimizer")))
    return {"optimizer": moved, "writing": written}


def training_tokens(config: Config, prompt: float) -> tuple[dict[str, int], dict[str, int]]:
    """Return a run's tokens by purpose and by kind of work, both at most; `prompt`: tokens of a prompt on average."""
    training, evaluation, probe, update, reading = 0, 0, 0, 0.0, 0.0
    for stage, size in zip(config.stages, stage_sizes(config), strict=True):
        sampled, completions = size["tokens"] or 0, size["completions"] or 0
        if isinstance(stage, RlStage | DistillStage):
            # Packed rows read the prompt of a group once.
            shared = stage.samples_per_prompt if config.runtime.rows == "packed" else 1
            read = sampled + completions / shared * prompt
            epochs, updates = (stage.num_epochs, stage.num_updates) if isinstance(stage, RlStage) else (1, 1)
            has_other = isinstance(stage, DistillStage) or bool(stage.kl.coef)
            update, reading = update + epochs * read, reading + read * (has_other + (updates > 1))
            reading += completions / stage.samples_per_prompt * prompt  # before it is continued
        else:
            learned = stage.steps * stage.batch_size * (2 if isinstance(stage, DpoStage) else 1)
            update += learned * (prompt + config.max_new_tokens)
            reading += learned * (prompt + config.max_new_tokens) if isinstance(stage, DpoStage) else 0
            training += learned * config.max_new_tokens if isinstance(stage, SftStage | RejectStage) else 0
        training += sampled
        if every := config.eval.every:
            evaluation += -(-stage.steps // every) * evaluation_tokens(config)
            # The prompts, and the greedy answers once more.
            reading += -(-stage.steps // every) * config.eval.num_problems * (2 * prompt + config.max_new_tokens)
        if every := config.probe.every:
            length = _LIVE_ROLLOUTS * config.max_new_tokens
            probe, reading = probe + length, reading + (1 + stage.steps // every) * length
    tokens = {"training": training, "evaluation": evaluation, "probe": probe}
    sampling = sum(size["tokens"] or 0 for size in stage_sizes(config)) + evaluation + probe
    work = {"sampling": sampling, "update": round(update), "reading": round(reading)}
    return _some(tokens), _some(work)


def _some(numbers: dict[str, int]) -> dict[str, int]:
    return {kind: number for kind, number in numbers.items() if number}
