"""A probe of models that Python names or holds, in a folder: tables, findings and causal tests."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from swerve.artifacts.response_columns import RESPONSES_SCHEMA
from swerve.artifacts.responses import Response, write_responses
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.samples import SampleFile, StoredSamples
from swerve.door.given import is_place, problem_rows, temporary_folder, working_folder, write_rows
from swerve.door.sample import SampleSet
from swerve.door.saved_models import save_in_memory
from swerve.door.spoken import in_python
from swerve.errors import ConfigError
from swerve.models.model_folder import load_tokenizer, tokenizer_fingerprint
from swerve.models.named_models import check_label
from swerve.models.runtime import set_thread_environment
from swerve.probe.from_files import plan_files
from swerve.probe.in_memory import InMemory, Reading, are_several, labelled_models
from swerve.probe.plan import ProbePlan
from swerve.probe.recipe import ProbeRecipe
from swerve.probe.result import ProbeResult, read_result
from swerve.probe.rollouts.given import given_sequences
from swerve.probe.steps import probe_in_steps
from swerve.progress import Progress
from swerve.recipes.layers import overrides_of
from swerve.recipes.loader import load_settings


def probe_in_folder(
    reference: Any,
    checkpoints: Any,
    responses: Any,
    reading: Reading,
    *,
    out: str | Path | None,
    causal: bool | Mapping[str, Any],
    task: Any,
    problems: Any,
    fields: Mapping[str, str] | None,
    select: str | None,
    seed: int,
    max_new_tokens: int | None,
    overrides: Sequence[Any],
    progress: Progress,
) -> ProbeResult | dict[str, ProbeResult] | None:
    """Probe models in a folder; see `swerve.probe`. None in other processes than the first."""
    owner = temporary_folder() if out is None else None
    place = Path(owner.name if owner is not None else out or "")
    with working_folder() as folder:
        models = _folders(reference, checkpoints, folder, reading.tokenizer)
        label, *others = models
        template, ends, device = reading.template, reading.ends, reading.device
        measured: dict[str, Any] = {
            "tokens_per_batch": reading.tokens_per_batch,
            "tokens_per_chunk": reading.tokens_per_chunk,
        }
        if reading.top_k:
            measured["top_k"] = reading.top_k
        measured["causal"] = dict(causal) if isinstance(causal, Mapping) else {} if causal else {"max_rollouts": 0}
        data = {
            "models": models, "reference": label, "out": str(place), "seed": seed, "max_new_tokens": max_new_tokens,
            "template": template, "ends": ends, "fields": dict(fields or {}), "probe": measured,
            "runtime": {"device": "auto" if device is None else device, "dtype": reading.dtype}, "task": _task(task),
            "problems": _problems(problems, folder),
            **_rollouts(responses, label, others, select, folder, models, template, ends),
        }  # fmt: skip
        recipe = load_settings(ProbeRecipe, overrides_of(overrides), data=data)
        set_thread_environment(recipe.runtime)
        plan = _spoken(plan_files(recipe))
        if causal and not plan.has_verifier:
            why = next((note for note in plan.notes if "no swaps" in note), "the responses have no gold answer")
            warnings.warn(f"causal=True: {why}", UserWarning, stacklevel=5)
        summary = probe_in_steps(plan, progress=progress)
        if summary is None:
            return None
    results = {name: _result(place, name, plan, owner, _writer(responses)) for name in others}
    return results if are_several(checkpoints) else next(iter(results.values()))


def _folders(reference: Any, checkpoints: Any, folder: Path, tokenizer: Any) -> dict[str, str]:
    """Return the place of each model by label, the reference first; those in memory are saved."""
    words = load_tokenizer(tokenizer) if is_place(tokenizer) else tokenizer
    places = {}
    for label, given in labelled_models(reference, checkpoints).items():
        if isinstance(given, InMemory):
            check_label(label, type(given.model).__name__)
            given = save_in_memory(given.model, folder / label, tokenizer=given.tokenizer or words)
        places[label] = str(given)
    return places


def _problems(problems: Any, folder: Path) -> str | None:
    if problems is None or is_place(problems):
        return None if problems is None else str(problems)
    return str(write_rows(folder, "problems", problem_rows(problems)))


def _task(task: Any) -> Any:
    """Return a task as a recipe has it; of a name alone its own defaults."""
    if task is None or isinstance(task, Mapping):
        return task
    if isinstance(task, str):
        from swerve.recipes.task_names import load_task

        task = load_task(task, [])[0]
    return task.model_dump(mode="json")


def _rollouts(
    responses: Any,
    reference: str,
    others: Sequence[str],
    select: str | None,
    folder: Path,
    models: Mapping[str, str],
    template: Any,
    ends: Any,
) -> dict[str, Any]:
    """Return the keys of a recipe that say which rollouts are read: samples of two models, or responses."""
    files = list(responses.files.values()) if isinstance(responses, SampleSet) else []
    if len(files) > 1:
        first, last = (
            responses.file_of(name, models[name]) or file
            for name, file in ((reference, files[0]), (others[-1], files[-1]))
        )
        return {"samples": {"reference": str(first), "final": str(last)}, "select": select or "all"}
    if select is not None:
        raise ConfigError(
            "select= chooses rollouts from samples of two models: give what swerve.sample returned of both"
        )
    if files or isinstance(responses, StoredSamples):
        return {"responses": str(files[0] if files else responses.path)}
    if is_place(responses):
        return {"responses": str(responses)}
    tokenizer = load_tokenizer(models[reference])
    given = list(responses.samples) if isinstance(responses, SampleFile) else responses
    read = given_sequences(given, tokenizer, template=template, ends=ends)
    # Which of those given each is stands in its number; of one prompt all are answers to one problem.
    numbered = [replace(_of_its_prompt(each, number), sample=number) for number, each in enumerate(read)]
    path = folder / "memory.parquet"
    made_by = {"name": Path(models[reference]).name, "sha256": tokenizer_fingerprint(tokenizer)}
    write_responses(path, numbered, RESPONSES_SCHEMA, table="responses", provenance={"tokenizer": made_by})
    return {"responses": str(path)}


def _of_its_prompt(response: Response, number: int) -> Response:
    if response.problem.id not in (str(number), f"response {number}"):
        return response
    digest = hashlib.sha256(repr(response.prompt_ids).encode()).hexdigest()[:8]
    return replace(response, problem=replace(response.problem, id=f"prompt-{digest}"))


def _spoken(plan: ProbePlan) -> ProbePlan:
    """Return a plan that names files which Python was given in their stead as what they hold."""
    compared, file = plan.compared, plan.compared.responses
    if file is not None and in_python(str(file.path)) != str(file.path):
        named = file.model_copy(update={"path": in_python(str(file.path))})
        compared = compared.model_copy(update={"responses": named})
    return replace(plan, compared=compared, notes=tuple(map(in_python, plan.notes)))


def _writer(responses: Any) -> tuple[str, ...]:
    """Return who wrote responses, where one model's samples are given; a file of responses does not say it."""
    if isinstance(responses, SampleSet) and len(responses.files) == 1:
        return tuple(responses.files)
    return (responses.info.model.label,) if isinstance(responses, StoredSamples | SampleFile) else ()


def _result(place: Path, label: str, plan: ProbePlan, owner: Any, writer: tuple[str, ...]) -> ProbeResult:
    """Return what was measured of a checkpoint, responses in the order in which they were given."""
    is_selected = plan.compared.selected is not None
    result = read_result(RunDirectory(place), checkpoint=label, everything=not is_selected)
    assert result is not None, "the probe is done"
    result = replace(result, writers=result.writers or writer)
    numbers = [sequence.sample for sequence in plan.sequences]
    if None in numbers or is_selected or len({*numbers}) < len(numbers):
        return replace(result, owner=owner)
    ids = np.array(numbers, dtype=np.int32)[result.sequence_ids]
    order = np.argsort(ids, kind="stable")
    return replace(
        result,
        sequence_ids=ids[order],
        positions=result.positions[order],
        token_ids=result.token_ids[order],
        words={name: tuple(map(column.__getitem__, order.tolist())) for name, column in result.words.items()},
        statistics={name: values[order] for name, values in result.statistics.items()},
        owner=owner,
    )
