"""What sampling from finished models takes: samples, evaluations and cards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from transformers import PreTrainedConfig

from swerve.artifacts.evaluation import read_evaluations
from swerve.artifacts.run import RunDirectory
from swerve.claim.costs import costs_said, part_costs
from swerve.claim.settings import ClaimSettings
from swerve.config.engines import EngineConfig, TorchEngineConfig
from swerve.config.recipe import Config
from swerve.config.runtime import RuntimeConfig
from swerve.config.sampling import SampleSettings
from swerve.errors import ConfigError
from swerve.eval.sample_files import completion_length
from swerve.eval.sampling import chosen_problems
from swerve.models.sources import base_checkpoint
from swerve.models.starting_model import read_architecture
from swerve.plan.budget import Budget
from swerve.plan.empty_model import empty_model, used_weights
from swerve.plan.memory import StageMemory, reading_memory
from swerve.plan.rates import UNKNOWN, Device, Rates, known_rates
from swerve.positions import limit_said, max_sampled
from swerve.problems.data_specs import parse_spec
from swerve.problems.reading import DataTask
from swerve.progress import SilentProgress
from swerve.prompts.encode import encode_prompts
from swerve.prompts.templates import TemplateArguments
from swerve.recipes.data_sizes import published_rows
from swerve.train.disk import BYTES_PER_FILE, BYTES_PER_TOKEN, evaluation_tokens, free_disk
from swerve.types import Problem, Prompt

LONGEST_PROMPT = 512
"""Tokens of a prompt where no tokenizer is at hand."""
LOWER = "lower runtime.max_rows (--batch) or rollout.engine.cache_gb, take runtime.dtype=bfloat16, or a larger device"


_PAGE_BYTES, _BYTES_PER_PROBLEM = 155_000, 1_000
"""Of a card with its page, and what each problem adds."""


def work_budget(
    command: str,
    architectures: Mapping[str, PreTrainedConfig],
    *,
    runtime: RuntimeConfig,
    engine: EngineConfig,
    length: int,
    longest: int,
    tokens: Mapping[str, int],
    at_once: int | None = None,
    files: int = 0,
    reading: int = 0,
    read_at_once: int | None = None,
    place: Path,
    memory_gb: float | None,
    processes: int,
    measures: bool,
    tokens_per_batch: int = 0,
    lower: str = LOWER,
    kept: Mapping[str, int] | None = None,
    notes: Sequence[str] = (),
) -> Budget:
    """Return what it takes to sample from models, one at a time, and to read with them.

    Args:
        command: whose plan it is.
        architectures: of the models by label, as far as they are on this machine.
        runtime: of the work.
        engine: that samples.
        length: tokens of the longest sequence.
        longest: tokens of the longest completion.
        tokens: that are sampled at most, by purpose.
        at_once: completions that are asked for in one call, of which `runtime.max_rows` go on side by side; None: all.
        files: that they are kept in.
        reading: tokens of sequences that are read.
        read_at_once: those of one call, which batches of `tokens_per_batch` divide; None: more than one batch.
        place: where the files go.
        memory_gb: of another machine's device; None: this machine's.
        processes: that work together.
        measures: whether rates are measured here.
        tokens_per_batch: of what is read beside another's output head; 0: nothing.
        lower: what to change where the memory is too small.
        kept: bytes by kind of file; None: the samples.
        notes: what the figures leave out.
    """
    device, memories = Device.of(runtime, memory_gb), list[StageMemory]()
    rates: Rates = UNKNOWN
    is_embedded = isinstance(engine, TorchEngineConfig)
    rows = max(1, min(runtime.max_rows, sum(tokens.values()) // longest if at_once is None else at_once))
    runtime = runtime.model_copy(update={"max_rows": rows})
    tokens_per_batch = tokens_per_batch if read_at_once is None else min(tokens_per_batch, read_at_once)
    for label, architecture in architectures.items():
        cache = engine.cache_gb if isinstance(engine, TorchEngineConfig) else None
        memory = reading_memory(
            architecture, runtime, stage=label, length=length, cache=cache, is_embedded=is_embedded,
            available=device.memory, tokens_per_batch=tokens_per_batch,
        )  # fmt: skip
        memories.append(memory)
        rates = known_rates(device.name, runtime, used_weights(empty_model(architecture, runtime.dtype)))
    if measures and architectures:
        from swerve.plan.measure import measured_rates

        rates = measured_rates(
            next(iter(architectures.values())), runtime, dtype=runtime.dtype, prompt=length - longest, longest=longest,
            rows=runtime.max_rows, tokens_per_batch=tokens_per_batch or 4096, trains=False, place=place,
        )  # fmt: skip
    sampled = sum(tokens.values())
    work = {"sampling": sampled if is_embedded else 0, "reading": reading}
    return Budget(
        command=command,
        memory=max(memories, key=lambda memory: memory.peak, default=None),
        available=device.memory,
        processes=processes,
        lower=lower,
        disk={"samples": sampled * BYTES_PER_TOKEN + files * BYTES_PER_FILE} if kept is None else kept,
        place=place,
        free=free_disk(place) if memory_gb is None else None,
        tokens={purpose: number for purpose, number in tokens.items() if number},
        work={kind: number for kind, number in work.items() if number},
        rates=rates,
        notes=tuple(notes) if architectures else (*notes, "memory, hours: no model of it is on this machine"),
    )


class ReadModels(NamedTuple):
    """Models that are at hand, and how long what they read and write is."""

    architectures: dict[str, PreTrainedConfig]
    mean: float
    """Tokens of a prompt on average."""
    longest: int
    """Tokens of the longest prompt."""
    completion: int
    """Tokens of the longest completion."""
    notes: tuple[str, ...]


def read_models(
    models: Mapping[str, Path | str], problems: Sequence[Problem] = (), settings: SampleSettings | None = None
) -> ReadModels:
    """Return the architectures of models that are at hand, and how long prompts and completions are.

    Raises:
        ConfigError: as in sampling, prompt and completion have more tokens than a model has positions.
    """
    found, read = dict[str, PreTrainedConfig](), list[tuple[str, PreTrainedConfig, list[Prompt]]]()
    for label, path in models.items():
        try:
            found[label], tokenizer = read_architecture(str(path), key=label)
        except ConfigError:
            if Path(path).is_dir():
                raise
            continue  # a name on the hub, or of a server
        if tokenizer is not None and settings is not None:
            if settings.template == "raw":
                tokenizer.chat_template = None
            arguments = TemplateArguments(values=settings.template_args, today=settings.today)
            read.append((label, found[label], encode_prompts(tokenizer, problems, arguments)))
        elif settings is not None and settings.max_new_tokens is not None:
            check_positions(found[label], settings.max_new_tokens)

    # How long a prompt is, and what is left for a completion.
    lengths = [len(prompt.token_ids) for _, _, prompts in read for prompt in prompts] or [LONGEST_PROMPT]
    completion, note = completion_length(settings.max_new_tokens if settings is not None else None, read)
    return ReadModels(found, fmean(lengths), max(lengths), completion, () if note is None else (note,))


def check_positions(architecture: PreTrainedConfig, max_new_tokens: int, prompt: int | None = None) -> None:
    """Refuse, as the work itself does, prompts that leave no room for a completion.

    Args:
        architecture: of the model.
        max_new_tokens: of a completion.
        prompt: tokens of the longest prompt; None: the prompts are not at hand.

    Raises:
        ConfigError: prompt and completion have more tokens than the model has positions.
    """
    shortest = 1 if prompt is None else prompt
    limit = max_sampled(architecture, shortest)
    if limit is not None and shortest + max_new_tokens > limit:
        said = "a prompt has at least 1 token" if prompt is None else f"a prompt has {prompt} tokens"
        raise ConfigError(
            f"{said} and max_new_tokens is {max_new_tokens}, together more than {limit_said(architecture, shortest)}; "
            f"set max_new_tokens={limit - shortest} or less, or take a model with more positions"
        )


def counted_problems(settings: SampleSettings) -> tuple[list[Problem], int]:
    """Return the problems that are sampled, as far as they are at hand, and how many there are.

    As for training, the hub is not asked: of its data sets published sizes are taken;
    0: there is neither such a size nor a limit.

    Raises:
        ConfigError: see `chosen_problems`.
    """
    task = settings.task
    if not any(parse_spec(spec).is_on_hub for spec in task.sources):
        problems = chosen_problems(settings, SilentProgress())
        return problems, len(problems)
    most = settings.limit
    if isinstance(task, DataTask):
        is_train = settings.split == "train"
        rows = published_rows(task.train if is_train else task.heldout)
        bounds = [rows, task.num_train if is_train else task.num_heldout, settings.limit]
        most = min((number for number in bounds if number is not None), default=None)
    return [], most or 0


def problems_note(num: int) -> tuple[str, ...]:
    """Return what a plan says of problems that are not at hand and whose number is not known."""
    return () if num else ("not counted: the samples, as the problems are not at hand; say how many with --limit",)


def samples_budget(
    command: str,
    models: Mapping[str, Path | str],
    settings: SampleSettings,
    problems: Sequence[Problem],
    *,
    num_problems: int | None = None,
    num_samples: Iterable[int],
    place: Path,
    memory_gb: float | None,
    processes: int,
    measures: bool,
) -> Budget:
    """Return what sampling from models takes.

    Args:
        command: whose plan it is.
        models: by label: folders, or names on the hub or of a server.
        settings: problems, sampling and runtime.
        problems: those that are sampled.
        num_problems: how many they are where they are not at hand; None: the number of `problems`.
        num_samples: of each problem, by each file that is written.
        place: where the files go.
        memory_gb: of another machine's device; None: this machine's.
        processes: that share the problems.
        measures: whether rates are measured here.
    """
    read, nums = read_models(models, problems, settings), list(num_samples)
    num = len(problems) if num_problems is None else num_problems
    return work_budget(
        command,
        read.architectures,
        runtime=settings.runtime,
        engine=settings.rollout.engine,
        length=read.longest + read.completion,
        longest=read.completion,
        tokens={"evaluation" if command == "eval" else "samples": sum(nums) * num * read.completion},
        at_once=max(nums, default=1) * num,
        files=len(nums),
        reading=round(
            num * ((len(nums) + sum(nums)) * read.mean + sum(nums) * read.completion)
        ),  # once more, for entropies
        place=place,
        memory_gb=memory_gb,
        processes=processes,
        measures=measures,
        notes=(*read.notes, *problems_note(num)),
    )


def run_evaluation_budget(
    config: Config, run: RunDirectory, *, memory_gb: float | None, processes: int, measures: bool
) -> Budget:
    """Return what evaluating those checkpoints of a run takes that have no evaluation yet."""
    done = {evaluation.step for evaluation in read_evaluations(run)}
    base = base_checkpoint(config)
    known = [*([] if base is None else [base]), *(each for each in run.checkpoints if each.scheduled)]
    left = [each for each in known if each.step not in done]
    if not left:
        note = f"all {len(known)} models of the run are evaluated: there is nothing to do"
        return Budget(command="eval", place=run.path, tokens={"evaluation": 0}, notes=(note,))
    read = read_models({each.label: each.path for each in left[:1]})
    return work_budget(
        "eval",
        read.architectures,
        runtime=config.runtime,
        engine=config.rollout.engine,
        length=read.longest + config.max_new_tokens,
        longest=config.max_new_tokens,
        tokens={"evaluation": len(left) * evaluation_tokens(config)},
        at_once=config.eval.num_problems,  # greedily; what is sampled is a call of its own
        reading=len(left) * evaluation_tokens(config) // (1 + config.eval.samples_per_problem),  # greedy answers again
        files=len(left),
        place=run.path,
        memory_gb=memory_gb,
        processes=processes,
        measures=measures,
        notes=(f"{len(left)} of the run's {len(known)} models are not evaluated yet",),
    )


def claim_budget(
    models: Mapping[str, Path | str],
    settings: ClaimSettings,
    problems: Sequence[Problem],
    *,
    num_problems: int | None = None,
    place: Path,
    memory_gb: float | None = None,
    processes: int = 1,
    measures: bool = False,
) -> Budget:
    """Return what a card takes, by part; texts are not counted."""
    read, num = read_models(models, problems, settings), len(problems) if num_problems is None else num_problems
    costs = part_costs(settings, num, num_models=len(models))
    tokens = {part: cost.samples * read.completion for part, cost in costs.items()}
    # Greedy answers and samples of each model, and what parts sample of each.
    files = len(models) * (1 + sum(cost.samples > 0 for cost in costs.values()))
    return work_budget(
        "claim",
        read.architectures,
        runtime=settings.runtime,
        engine=settings.rollout.engine,
        length=read.longest + read.completion,
        longest=read.completion,
        tokens=tokens,
        at_once=settings.num_samples * num,
        kept={
            "samples": sum(tokens.values()) * BYTES_PER_TOKEN + files * BYTES_PER_FILE,
            "card and page": _PAGE_BYTES + num * _BYTES_PER_PROBLEM,
        },
        reading=round(sum(cost.sequences for cost in costs.values()) * (read.mean + read.completion)),
        read_at_once=round(max(cost.sequences for cost in costs.values()) * (read.mean + read.completion)),
        place=place,
        memory_gb=memory_gb,
        processes=processes,
        measures=measures,
        tokens_per_batch=4096 if any(cost.sequences for cost in costs.values()) else 0,
        notes=(*read.notes, *costs_said(settings, num, num_models=len(models)), *problems_note(num)),
    )
