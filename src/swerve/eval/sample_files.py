"""Files of samples: each model's prompts, what a file's samples depend on, and the chunks of problems it is made of.

Problems are sampled in chunks. Each chunk is kept as a part in `OUT.partial`, and the file at OUT is made of them when
all are there. A sample's seed depends on the command's seed, the problem and the sample's number alone. A shard samples
its chunks and leaves them as parts.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, nullcontext
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from transformers import PreTrainedConfig

from swerve.artifacts.parts import JSON, TABLE, CopiedParts, Form, Parts
from swerve.artifacts.response_columns import SAMPLES_SCHEMA
from swerve.artifacts.responses import Response, responses_table
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.samples import (
    SamplesInfo,
    is_samples_file,
    read_samples_info,
    write_samples,
)
from swerve.artifacts.shards import WHOLE, Shard
from swerve.artifacts.tables import read_table
from swerve.config.engines import OpenAIEngineConfig, TorchEngineConfig
from swerve.config.sampling import SampleJob
from swerve.errors import ArtifactError, ConfigError
from swerve.eval.responses import mean_entropies, response_batches, sample_responses
from swerve.eval.served_samples import ServedModel, ask_missing, graded_samples, served_model
from swerve.models.model_folder import LoadedModel, resolve_device, tokenizer_fingerprint
from swerve.models.sources import CheckedModel, CheckpointSource, checkpoint_source, shared_bases
from swerve.positions import limit_said, max_sampled
from swerve.progress import Progress, ProgressTask
from swerve.prompts.encode import encode_prompts, prompt_texts
from swerve.prompts.notes import prompt_notes
from swerve.prompts.templates import TemplateArguments, check_template_arguments
from swerve.rewards.checks import problems_digest
from swerve.rollout.decoding_trial import check_architecture
from swerve.rollout.engine import Engine, make_engine
from swerve.seeds import derive_seed
from swerve.types import Problem, Prompt
from swerve.version import __version__
from swerve.world import World, joined_world

_NOT_COMPARED = ("swerve_version", "model.source", "tokenizer.name")
"""What may differ between an interrupted command and the one that continues it."""
_DIGESTS = {
    "model.fingerprint": "of another model, or its files have changed",
    "tokenizer.sha256": "of another tokenizer",
    "problems_sha256": "of other problems, or graded otherwise",
}
"""What it means where one of these differs."""
MOST_NEW_TOKENS = 512
"""Of a completion, where nothing else is asked for."""
_CHARS_SHOWN = 40
_NUM_NAMED = 3


def write_files(
    jobs: Sequence[SampleJob], problems: Sequence[Problem], progress: Progress, *, shard: Shard = WHOLE
) -> bool:
    """Write the files of jobs, or a shard's parts of them; return whether this is the first or only process.

    Every model is checked before the first is loaded; see `swerve.eval.sampling.sample`.
    """
    # Each model is checked once, and reads the problems in its own way.
    first = jobs[0].settings
    models: dict[str, _PromptedModel | ServedModel] = {}
    look = served_model if isinstance(first.rollout.engine, OpenAIEngineConfig) else _prompted
    for job in jobs:
        if job.label not in models:
            models[job.label] = look(job, problems, progress)
    own = [model for model in models.values() if isinstance(model, _PromptedModel)]
    max_new_tokens, note = completion_length(
        first.max_new_tokens, ((model.source.label, model.checked.config, model.prompts) for model in own)
    )
    if note is not None:
        progress.note(note)
    plans = [_Plan(job, models[job.label], _info(job, models[job.label], max_new_tokens), shard.copied) for job in jobs]
    shard.copied.check_fit(*(plan.parts for plan in plans), is_done=all(plan.job.path.exists() for plan in plans))
    for plan in plans:
        plan.check_place()

    # Then they are loaded, one after the other.
    device = resolve_device(first.runtime.device)
    with (
        joined_world(device, timeout=first.runtime.collective_timeout) as world,
        shared_bases(model.source for model in own),
    ):
        for model in models.values():
            _sample_model([plan for plan in plans if plan.model is model], world, progress, shard)
        return world.is_main


@dataclass(frozen=True, slots=True, kw_only=True)
class _PromptedModel:
    """A model that was checked, and the problems as it reads them."""

    source: CheckpointSource
    checked: CheckedModel
    prompts: Sequence[Prompt]
    texts: Sequence[str]
    """Of the prompts."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """A job whose model was checked, with what its samples depend on."""

    job: SampleJob
    model: _PromptedModel | ServedModel
    info: SamplesInfo
    copied: CopiedParts

    @property
    def parts(self) -> Parts:
        """What was sampled before an interruption, in chunks of problems, in a folder beside the file."""
        return self.parts_of(TABLE)

    def parts_of(self, form: Form) -> Parts:
        """Return the parts in that folder which have a form: tables of chunks, or a server's answers."""
        folder = self.job.path.with_name(f"{self.job.path.name}.partial")
        return Parts(folder, _compared(self.info), form=form, copied=self.copied)

    @property
    def chunks(self) -> list[tuple[int, int]]:
        """First problem and end of those that are sampled and kept together: as many as fill a batch."""
        settings, num = self.job.settings, len(self.model.prompts)
        size = max(1, settings.runtime.max_rows // settings.samples_per_temperature)
        return [(start, min(start + size, num)) for start in range(0, num, size)]

    def check_place(self) -> None:
        """Check that what is at the file's place is these samples, whole or begun.

        Raises:
            ConfigError: it is something else; the message names the settings that differ.
            ArtifactError: it is damaged.
        """
        path, parts = self.job.path, self.parts
        if not path.exists():
            self._check_same(parts.begun(), parts.folder)
            return
        try:
            if not is_samples_file(path):
                raise ConfigError(
                    f"--out {path} exists and is no file of samples; give another name, or delete it if it was one"
                )
            self._check_same(_compared(read_samples_info(path)), path)
            read_table(path, SAMPLES_SCHEMA)
        except ArtifactError as error:
            raise ArtifactError(f"{error}; to sample again, delete {path} or give another --out") from None

    def _check_same(self, old: Mapping[str, Any] | None, place: Path | None) -> None:
        new = _compared(self.info)
        changes = []
        old = new if old is None else old
        for name in {**old, **new}:
            if old.get(name) != new.get(name):
                was, now = (json.dumps(entries.get(name), ensure_ascii=False) for entries in (old, new))
                changes.append(_DIGESTS.get(name) or f"{name} {was:.{_CHARS_SHOWN}}, now {now:.{_CHARS_SHOWN}}")
        if len(changes) > _NUM_NAMED:
            changes[_NUM_NAMED:] = [f"{len(changes) - _NUM_NAMED} more"]
        if changes:
            raise ConfigError(
                f"{place} holds samples with other settings ({'; '.join(changes)}); give the same ones, another --out, "
                "or delete it"
            )


def _compared(info: SamplesInfo) -> dict[str, Any]:
    """Return what samples depend on, as JSON; the entries of `model` and `tokenizer` under dotted names."""
    entries = info.model_dump(mode="json")
    for name in ("model", "tokenizer"):
        entries |= {f"{name}.{key}": value for key, value in (entries.pop(name) or {}).items()}
    return {name: value for name, value in entries.items() if name not in _NOT_COMPARED}


def _prompted(job: SampleJob, problems: Sequence[Problem], progress: Progress) -> _PromptedModel:
    settings = job.settings
    source = checkpoint_source(job.label, job.model, settings.runtime)
    checked = source.check()
    if isinstance(settings.rollout.engine, TorchEngineConfig):
        check_architecture(checked.config)
    tokenizer = checked.tokenizer
    if settings.template == "raw":
        tokenizer = copy(tokenizer)
        tokenizer.chat_template = None
    arguments = TemplateArguments(values=settings.template_args, today=settings.today)
    check_template_arguments(tokenizer, arguments)
    prompts = encode_prompts(tokenizer, problems, arguments)
    for note in prompt_notes(tokenizer, problems, arguments):
        progress.note(f"{job.label}: {note}")
    texts = prompt_texts(tokenizer, problems, arguments)
    return _PromptedModel(source=source, checked=checked, prompts=prompts, texts=texts)


def completion_length(
    asked: int | None, models: Iterable[tuple[str, PreTrainedConfig, Sequence[Prompt]]]
) -> tuple[int, str | None]:
    """Return how long a completion may be, and a note where the models shorten it.

    It is what was asked for, else what fits every model, `MOST_NEW_TOKENS` at most.

    Args:
        asked: the most new tokens; None: nobody said.
        models: label, architecture and prompts of each.

    Raises:
        ConfigError: a prompt is too long for a model.
    """
    largest, note = MOST_NEW_TOKENS, None
    for label, config, prompts in models:
        # The prompt that leaves the least room decides.
        rooms = []
        for prompt in prompts:
            limit = max_sampled(config, len(prompt.token_ids))
            if limit is not None:
                rooms.append((limit - len(prompt.token_ids), prompt))
        if not rooms:
            continue
        room, prompt = min(rooms, key=lambda pair: pair[0])
        length = len(prompt.token_ids)
        if room < (asked or 1):
            raise ConfigError(
                f"the prompt of problem {prompt.problem.id!r} has {length} tokens for model '{label}' and may grow by "
                f"{asked or largest}, together more than {limit_said(config, length)}"
                f"{f'; at most {room} new tokens fit' if room > 0 else ''}; lower --max-new-tokens, or leave long "
                "questions out"
            )
        if asked is None and room < largest:
            largest = room
            note = (
                f"completions end after {room} new tokens: with the prompt of {length} tokens no more fit "
                f"{limit_said(config, length)} ('{label}'); --max-new-tokens sets another number"
            )
    return asked or largest, note


def _info(job: SampleJob, model: _PromptedModel | ServedModel, max_new_tokens: int) -> SamplesInfo:
    """Return what a file says of itself: the job's settings, and digests of model, tokenizer and problems."""
    said = job.settings.model_dump(mode="json")
    if isinstance(model, ServedModel):
        problems, known = model.prompts, {**model.info, "tokenizer": None}
    else:
        source, problems = model.source, [prompt.problem for prompt in model.prompts]
        sampled = {"source": str(source.path), "fingerprint": model.checked.content}
        sampled |= {"dtype": source.dtype, "device": source.device.partition(":")[0]}
        tokenizer = {"name": str(source.path), "sha256": tokenizer_fingerprint(model.checked.tokenizer)}
        known = {"model": sampled, "tokenizer": tokenizer, "engine": said["rollout"]["engine"]}
    return SamplesInfo.model_validate(
        {
            **said,
            "max_new_tokens": max_new_tokens,
            **known,
            "model": {"label": job.label, **known["model"]},
            "num_problems": len(problems),
            "problems_sha256": problems_digest(problems),
            "swerve_version": __version__,
        }
    )


def _sample_model(plans: Sequence[_Plan], world: World, progress: Progress, shard: Shard) -> None:
    """Write the files of one model, or a shard's parts of them; it is loaded once, if there is something to sample."""
    model = plans[0].model
    world.doing("sampling", plans[0].job.label)

    @functools.cache
    def load() -> LoadedModel:
        assert isinstance(model, _PromptedModel), "a served one is not loaded"
        return replace(model.source, device=world.device).load()

    for plan in plans:
        if plan.job.path.exists():
            progress.note(f"{plan.job.path} is complete: nothing to do")
        elif shard.is_share:
            with shard.at_work(plan.parts):
                _sample_missing(plan, shard.own(plan.chunks), load, world, progress)
            continue  # other shards need the parts
        else:
            _sample_file(plan, load, world, progress)
        world.barrier()
        if world.is_main:
            plan.parts.finish()
        world.barrier()


def _sample_file(plan: _Plan, load: Callable[[], LoadedModel], world: World, progress: Progress) -> None:
    """Sample what an interruption or shards left undone, and write the whole file."""
    # A full disk is noticed here, before any work.
    parts, chunks = plan.parts, plan.chunks
    assert parts.folder is not None
    if world.is_main:
        parts.begin()
    world.barrier()
    with RunDirectory(parts.folder).lock() if world.is_main else nullcontext():
        _sample_missing(plan, chunks, load, world, progress)
        world.barrier()
        if world.is_main:
            tables = [parts.get("samples", chunk) for chunk in chunks]
            if None in tables:
                raise ArtifactError(f"{parts.folder} was changed while it was in use; run the command again")
            write_samples(plan.job.path, plan.info, pa.concat_tables(tables).combine_chunks())


def _sample_missing(
    plan: _Plan,
    chunks: Sequence[tuple[int, int]],
    load: Callable[[], LoadedModel],
    world: World,
    progress: Progress,
) -> None:
    """Sample, with all processes, those of some chunks that are not there."""
    left = [chunk for chunk in chunks if plan.parts.get("samples", chunk) is None]
    world.barrier()  # all have looked before anything changes
    own = world.shard(left)
    if own:
        num_done = sum(end - start for start, end in chunks) - sum(end - start for start, end in left)
        if isinstance(plan.model, ServedModel):
            _ask_for_chunks(plan, plan.model, own, num_done, progress)
        else:
            _sample_chunks(plan, load(), own, num_done, progress)


def _sample_chunks(
    plan: _Plan, loaded: LoadedModel, chunks: Sequence[tuple[int, int]], num_done: int, progress: Progress
) -> None:
    """Sample this process's chunks of problems, and keep each when it is complete."""
    settings, num_problems = plan.job.settings, num_done + sum(end - start for start, end in chunks)
    num_samples, max_rows = settings.num_samples, settings.runtime.max_rows
    with (
        closing(make_engine(settings.rollout.engine, loaded.model, loaded.tokenizer, max_rows=max_rows)) as engine,
        progress.task(f"sample {plan.job.label}", num_problems * num_samples, done=num_done * num_samples) as task,
    ):
        verdicts: list[bool] = []
        for chunk in chunks:
            samples = _sampled(plan, chunk, loaded, engine, task)
            entropies = mean_entropies(loaded, response_batches(loaded, samples))
            samples = [replace(sample, entropy=entropies[row]) for row, sample in enumerate(samples)]
            plan.parts.put("samples", chunk, responses_table(samples, SAMPLES_SCHEMA))
            verdicts += [bool(sample.correct) for sample in samples]
            task.advance(0, right=sum(verdicts) / len(verdicts))


def _ask_for_chunks(
    plan: _Plan, model: ServedModel, chunks: Sequence[tuple[int, int]], num_done: int, progress: Progress
) -> None:
    """Have a server sample this process's chunks of problems, and keep each when it is complete."""
    num, kept = plan.job.settings.num_samples, plan.parts_of(JSON)
    num_problems = num_done + sum(end - start for start, end in chunks)
    with progress.task(f"sample {plan.job.label}", num_problems * num, done=num_done * num) as task:
        ask_missing(model, plan.job, chunks, kept, max_new_tokens=plan.info.max_new_tokens, task=task)
        for chunk in chunks:
            samples = graded_samples(model, plan.job, chunk, kept)
            plan.parts.put("samples", chunk, responses_table(samples, SAMPLES_SCHEMA))


def _sampled(
    plan: _Plan, chunk: tuple[int, int], loaded: LoadedModel, engine: Engine, task: ProgressTask
) -> list[Response]:
    """Return the samples of some problems, by problem and number."""
    settings, model = plan.job.settings, plan.model
    assert isinstance(model, _PromptedModel), "what is loaded has prompts"
    samples: list[tuple[int, int, Response]] = []
    for place, temperature in enumerate(settings.temperatures):
        # Every sample has a seed of its own, so that how many there are changes none of them.
        numbers = range(place, settings.num_samples, len(settings.temperatures))
        wanted = [(problem, number) for problem in range(*chunk) for number in numbers]
        prompts = [model.prompts[problem] for problem, _ in wanted]
        seeds = [
            derive_seed(settings.seed, "sample", prompt.problem.id, number)
            for prompt, (_, number) in zip(prompts, wanted, strict=True)
        ]
        groups = sample_responses(
            loaded, engine, prompts, seeds=seeds, num_samples=1, temperature=temperature,
            max_new_tokens=plan.info.max_new_tokens, on_finished=task.advance,
        )  # fmt: skip
        for (response,), (problem, number), seed in zip(groups, wanted, seeds, strict=True):
            named = replace(response, label=plan.job.label, prompt=model.texts[problem], sample=number, seed=seed)
            samples.append((problem, number, named))
    return [response for _, _, response in sorted(samples, key=lambda each: each[:2])]
