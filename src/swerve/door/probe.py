"""`swerve.probe`: the tokens that training changed, of a run or of any models; with or without causal tests.

In memory it needs neither tasks nor recipes, so that another program's trainer can call it.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from swerve.artifacts.output_names import check_output
from swerve.door.given import is_place
from swerve.door.keywords import torch_word
from swerve.door.spoken import spoken
from swerve.errors import ConfigError, NoResponseError, nearest, shown
from swerve.progress import Progress, shown_progress
from swerve.schema import choice_said
from swerve.settings import STAGE_SECTIONS

if TYPE_CHECKING:
    from swerve.artifacts.run import RunDirectory
    from swerve.probe.in_memory import Reading
    from swerve.probe.result import ProbeResult


class ProbeKeywords(TypedDict, total=False):
    """Keywords of `swerve.probe`, whose documentation says what each does."""

    causal: bool | Mapping[str, Any]
    out: str | Path | None
    task: Any
    problems: Any
    fields: Mapping[str, str] | None
    select: str | None
    seed: int
    max_new_tokens: int | None
    tokenizer: Any
    template: Literal["auto", "raw"]
    ends: Literal["none", "eos"]
    top_k: int
    device: str | None
    dtype: str
    tokens_per_batch: int
    tokens_per_chunk: int
    progress: Progress | bool | None
    eval: Mapping[str, Any]
    probe: Mapping[str, Any]
    report: Mapping[str, Any]
    rollout: Mapping[str, Any]
    runtime: Mapping[str, Any]


Changes = str | Mapping[str, Any] | Iterable[str]


@overload
def probe(
    reference: Any,
    checkpoints: list[Any] | tuple[Any, ...] | dict[str, Any],
    responses: Any,
    *overrides: Changes,
    **keywords: Unpack[ProbeKeywords],
) -> dict[str, ProbeResult]: ...


@overload
def probe(
    reference: Any,
    checkpoints: Any = None,
    responses: Any = None,
    *overrides: Changes,
    **keywords: Unpack[ProbeKeywords],
) -> ProbeResult: ...


@spoken
def probe(
    reference: Any,
    checkpoints: Any = None,
    responses: Any = None,
    *overrides: Changes,
    causal: bool | Mapping[str, Any] = False,
    out: str | Path | None = None,
    task: Any = None,
    problems: Any = None,
    fields: Mapping[str, str] | None = None,
    select: str | None = None,
    seed: int = 0,
    max_new_tokens: int | None = None,
    tokenizer: Any = None,
    template: Literal["auto", "raw"] = "auto",
    ends: Literal["none", "eos"] = "none",
    top_k: int = 0,
    device: str | None = None,
    dtype: str = "float32",
    tokens_per_batch: int = 16384,
    tokens_per_chunk: int = 256,
    progress: Progress | bool | None = None,
    **changes: Any,
) -> Any:
    """Find the tokens that training changed: of a run, or of any two models on any texts.

    `probe(run)` does what `swerve probe RUN` does, tables and causal tests included, and returns the final checkpoint
    against the reference; `summary` of the result has all findings. Texts such as `"probe.divergence=kl_reverse"` and
    keywords such as `probe={"divergence": "kl_reverse"}` change its settings.

    `probe(reference, checkpoint, responses)` compares models in memory, and writes nothing; with `causal=True` it also
    tests whether the tokens matter, with `out` it keeps tables and findings in a folder. All read the same tokens; at
    each completion token their distributions, given everything before it, are compared over the full vocabulary at
    temperature 1, in float32 with float64 sums. Models are left as they were, in weights, gradients and mode.

    Args:
        reference: a run, by path, name or as `Run`; or the model Q that others are compared with: a folder,
            `RUN:LABEL`, one of `run.checkpoints`, a name on the hub (`owner/name#revision`), or a model of transformers
            in memory, alone or as `(model, tokenizer)`.
        checkpoints: the model P, or several, in a list or as label -> model.
        responses: a file of responses; or a list of texts, of (prompt, response) pairs, of (prompt ids, completion ids)
            pairs, of lists of messages, of mappings such as lines of a file, or of `Response`. A prompt is read as it
            is; as a list of messages it goes through the chat template. Of a list of messages the last one of the
            assistant is the response. Of a text alone the first token is the prompt. A table (pandas, polars, pyarrow,
            datasets, a mapping of columns) is read by row, like the lines of a file. Or what `swerve.sample` returned:
            the first model's samples, or with causal tests rollouts chosen by both models'.
        overrides: further changes of a run's settings.
        causal: True: from the same prefix the reference continues with its token and with the checkpoint's, and both
            are graded; a mapping changes the settings of it, such as `{"num_continuations": 32}`. It needs responses
            with gold answers and a grader, which samples have.
        out: the folder of tables and findings, which `swerve.report` reads; interrupted, the same call continues. None:
            with causal tests a temporary folder, which lasts as long as the result.
        task: whose grader judges responses and causal tests, such as `"math"`; by default that of each problem.
        problems: by id, a file or rows, for responses without a prompt or a gold answer.
        fields: the responses' fields, where they are called otherwise: `{"response": "completion"}`.
        select: which rollouts are chosen from samples of two models, such as `"reference_wrong_final_right"`; by
            default all.
        seed: of all random numbers of the causal tests.
        max_new_tokens: longest continuation; by default that of the longest response.
        tokenizer: of models in memory, or its folder or name; by default that of the first model with one.
        template: auto: the chat template around messages and problems, where there is one; raw: their text alone.
        ends: eos: the token that ends a turn is added to responses.
        top_k: how many of each model's most likely tokens to keep at each position.
        device: for models that are loaded; None: that of a model in memory, else a CUDA device where there is one.
        dtype: of weights that are loaded: float32, bfloat16 or float16.
        tokens_per_batch: padded tokens of one forward pass.
        tokens_per_chunk: rows of `[rows, vocabulary]` held at a time.
        progress: told what is done; None: shown in a terminal or a notebook; True and False: shown or not.
        changes: changes of a run's settings as keywords.

    Returns:
        The result of one checkpoint, or results by label where there are several; of a run under torchrun None in other
        processes than the first.

    Raises:
        ConfigError: a setting or a response is wrong, such as an id outside the vocabulary; the message names it.
        ArtifactError: there is no such run or file, or an artifact is damaged.
        CheckpointError: there is no such model, or it is damaged.
        MismatchError: the models have different tokenizers, or logits cannot be formed from hidden states.

    Example:
        result = swerve.probe("owner/base", "owner/rl", [("What is 2 + 2?", "It is 4.")])
        result.to_pandas().nlargest(5, "js")
        swerve.report(swerve.probe("owner/base", "owner/rl", samples, causal=True, out="probed"))
    """
    # Of a run, where all that follows are changes of its settings.
    watching = shown_progress(progress)
    rest = [entry for entry in (checkpoints, responses, *overrides) if entry is not None]
    is_wrong_change = responses is None and isinstance(checkpoints, str) and "=" in checkpoints
    if all(map(_is_change, rest)) or is_wrong_change:
        of_models = {"out": out, "task": task, "problems": problems, "fields": fields, "select": select}
        named = next((name for name, value in of_models.items() if value is not None), None)
        if named is not None:
            raise ConfigError(f"{named}= is of models and responses; a run's probe is in its folder, see its settings")
        causal_changes = {"probe.causal": dict(causal)} if isinstance(causal, Mapping) else {}
        return _probe_run(reference, rest, {**changes, **causal_changes}, watching)
    # Of two models and responses.
    device, dtype = torch_word(device), torch_word(dtype)
    _check_values(template=template, ends=ends, causal=causal, tokenizer=tokenizer, seed=seed, top_k=top_k)
    if out is not None:
        check_output(Path(out), folder=True, of_run=True)
    unknown = next((name for name in changes if name.partition(".")[0] not in STAGE_SECTIONS), None)
    if responses is None and checkpoints is not None and (task is not None or problems is not None):
        raise ConfigError(_SAMPLE_FIRST)
    if unknown is not None:
        hint = nearest(unknown, _NAMES) or f"; settings are {', '.join(STAGE_SECTIONS)}"
        raise ConfigError(f"there is no keyword {unknown!r}{hint}")
    if responses is None or checkpoints is None:
        raise ConfigError(_FORMS)
    from swerve.probe.in_memory import Reading, probe_models

    reading = Reading(
        tokenizer=tokenizer, template=template, ends=ends, top_k=top_k, device=device, dtype=dtype,
        tokens_per_batch=tokens_per_batch, tokens_per_chunk=tokens_per_chunk,
    )  # fmt: skip
    kept = {
        "causal": causal, "task": task, "problems": problems, "fields": fields, "select": select, "seed": seed,
        "max_new_tokens": max_new_tokens, "overrides": (*overrides, changes),
    }  # fmt: skip
    if out is not None or causal or changes or overrides or any(kept[name] is not None for name in _OF_FOLDERS):
        from swerve.door.kept_probe import probe_in_folder

        return probe_in_folder(reference, checkpoints, responses, reading, out=out, progress=watching, **kept)
    _check_loading(device, dtype)
    given = _of_one_model(responses, reference)
    try:
        found = probe_models(reference, checkpoints, given, reading, progress=watching)
    except NoResponseError as error:
        raise NoResponseError(f"{error}; swerve.sample(models, problems) has models answer problems") from None
    again = _again(reference, checkpoints, given, reading, kept)
    if isinstance(found, dict):
        return {label: replace(one, measure_into=partial(again, label=label)) for label, one in found.items()}
    return replace(found, measure_into=again)


_DEVICES, _NUMBERED = ("auto", "cpu", "cuda"), re.compile(r"cuda:\d+")
_DTYPES = ("float32", "bfloat16", "float16")
_CHOICES = {"template": ("auto", "raw"), "ends": ("none", "eos")}


def _check_values(*, causal: Any, tokenizer: Any, seed: Any, top_k: Any, **chosen: Any) -> None:
    """Check keywords that mean the same in memory and in a folder.

    Raises:
        ConfigError: one has a wrong value; the message names it.
    """
    for name, value in chosen.items():
        if value not in _CHOICES[name]:
            raise ConfigError(choice_said(name, value, _CHOICES[name]))
    if not isinstance(causal, bool | Mapping):
        raise ConfigError(f"causal is True, False or a mapping such as {{'num_continuations': 32}}, got {causal!r:.60}")
    for name, value in (("seed", seed), ("top_k", top_k)):
        if not isinstance(value, Integral) or value < 0:
            raise ConfigError(f"{name} must be an integer of at least 0, got {value!r:.60}")
    if tokenizer is not None and not is_place(tokenizer) and not callable(tokenizer):
        raise ConfigError(f"tokenizer is one of transformers, or its folder or name, got {shown(tokenizer)}")


def _check_loading(device: Any, dtype: Any) -> None:
    """Check where and as what models are loaded, which are not kept in a folder."""
    if device is not None and device not in _DEVICES and not _NUMBERED.fullmatch(str(device)):
        raise ConfigError(choice_said("device", device, _DEVICES))
    if dtype not in _DTYPES:
        raise ConfigError(choice_said("dtype", dtype, _DTYPES))


_FORMS = "give swerve.probe(run), or swerve.probe(reference, checkpoint, responses) with texts, pairs or a file"
_SAMPLE_FIRST = (
    "models are probed on responses, of which there are none yet: samples = swerve.sample([before, after], task=..., "
    "limit=20), then swerve.probe(before, after, samples)"
)
_NAMES = ("reference", "checkpoints", "responses", *ProbeKeywords.__annotations__)
_OF_FOLDERS = ("task", "problems", "fields", "select", "max_new_tokens")
"""Keywords of what is measured in a folder."""


def _of_one_model(responses: Any, reference: Any) -> Any:
    """Return responses, of several models' samples the reference's, or the first's where the reference has none.

    Raises:
        ConfigError: a folder has samples of several models, none of them the reference.
    """
    from swerve.artifacts.samples import StoredSamples, file_of_model, files_of_models
    from swerve.models.named_models import NamedModel, resolve_model

    if not is_place(responses) and not hasattr(responses, "file_of"):
        return responses
    files = files_of_models(Path(responses)) if is_place(responses) else responses.files
    if is_place(responses) and len(files) < 2:
        return responses
    is_text = is_place(reference) and not isinstance(reference, NamedModel)
    named = resolve_model(str(reference)) if is_text else reference
    own = file_of_model(files, named.label, named.path) if isinstance(named, NamedModel) else None
    if own is None and is_place(responses):
        raise ConfigError(
            f"{responses} has samples of {', '.join(files)} and it is not known which is the reference; give one "
            f"model's file, such as {next(iter(files.values()))}"
        )
    return list(StoredSamples(own or next(iter(files.values()))))


def _again(
    reference: Any, checkpoints: Any, responses: Any, reading: Reading, keywords: Mapping[str, Any]
) -> Callable[..., ProbeResult]:
    """Return what measures the same in a folder; models in memory are not kept from being freed."""
    held = _weakly(reference), _weakly(checkpoints)

    def measure(out: Path, label: str | None = None) -> ProbeResult:
        from swerve.door.kept_probe import probe_in_folder

        first, others = (find() for find in held)
        found = probe_in_folder(first, others, responses, reading, out=out, progress=shown_progress(None), **keywords)
        result = found[label] if isinstance(found, dict) and label is not None else found
        assert result is not None, "not under torchrun"
        return result  # type: ignore[return-value]

    return measure


def _weakly(models: Any) -> Callable[[], Any]:
    """Return what returns models, unless those in memory are gone."""
    if isinstance(models, Mapping):
        own = {label: _weakly(model) for label, model in models.items()}
        return lambda: {label: find() for label, find in own.items()}
    if isinstance(models, list | tuple):  # a model with its tokenizer, too
        several = [_weakly(model) for model in models]
        return lambda: [find() for find in several]
    if not hasattr(models, "parameters"):
        return lambda: models
    found = weakref.ref(models)

    def find() -> Any:
        model = found()
        if model is None:
            raise ConfigError("a model that was probed in memory is gone; probe again with out=FOLDER")
        return model

    return find


def _is_change(entry: Any) -> bool:
    """Whether an argument changes a setting of a run, and names no model and no text."""
    keys = entry if isinstance(entry, Mapping) else [entry.partition("=")[0]] if isinstance(entry, str) else [""]
    return all(str(key).partition(".")[0] in STAGE_SECTIONS for key in keys)


def _probe_run(
    run: str | Path | RunDirectory, overrides: Sequence[Any], changes: Mapping[str, Any], progress: Progress
) -> ProbeResult | None:
    from swerve.artifacts.run import RunDirectory, find_run
    from swerve.models.runtime import set_thread_environment
    from swerve.recipes.layers import overrides_of
    from swerve.recipes.loader import check_copied, load_run_config

    if not is_place(run) and not isinstance(run, RunDirectory):
        raise ConfigError(f"{_FORMS}; {type(run).__name__} is no run")
    directory = find_run(run)
    config = load_run_config(directory, overrides, changes)
    check_copied(config, directory, overrides_of(overrides, changes))
    set_thread_environment(config.runtime)
    from swerve.probe.from_run import probe_run
    from swerve.probe.result import read_result

    return None if probe_run(config, directory, progress=progress) is None else read_result(directory)
