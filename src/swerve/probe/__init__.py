"""Where and how much checkpoints differ from a reference, token by token, and whether it matters.

Everything loads on first use, so that importing the package needs neither torch nor transformers.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from swerve.callable_package import make_callable
from swerve.errors import ConfigError
from swerve.progress import Progress, shown_progress
from swerve.settings import STAGE_SECTIONS

if TYPE_CHECKING:
    from swerve.artifacts.run import RunDirectory
    from swerve.probe.callback import DivergenceCallback
    from swerve.probe.from_run import probe_run
    from swerve.probe.result import ProbeResult
    from swerve.probe.rollouts.imported import import_responses

__all__ = ["DivergenceCallback", "ProbeResult", "import_responses", "probe", "probe_run"]

_HOMES = {
    "DivergenceCallback": "swerve.probe.callback",
    "ProbeResult": "swerve.probe.result",
    "import_responses": "swerve.probe.rollouts.imported",
    "probe_run": "swerve.probe.from_run",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'swerve.probe' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def probe(
    reference: Any,
    checkpoints: Any = None,
    responses: Any = None,
    *overrides: str | Mapping[str, Any] | Iterable[str],
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
) -> ProbeResult | dict[str, ProbeResult] | None:
    """Find the tokens that training changed: of a run, or of any two models on any texts.

    `probe(run)` does what `swerve probe RUN` does, tables and causal tests included, and returns the final checkpoint
    against the reference; `summary` of the result has all findings. Texts such as `"probe.divergence=kl_reverse"` and
    keywords such as `probe={"divergence": "kl_reverse"}` change its settings.

    `probe(reference, checkpoint, responses)` compares models in memory, and writes nothing. All read the same tokens;
    at each completion token their distributions, given everything before it, are compared over the full vocabulary at
    temperature 1, in float32 with float64 sums. Models are left as they were, in weights, gradients and mode.

    Args:
        reference: a run, by path, name or as `Run`; or the model Q that others are compared with: a folder,
            `RUN:LABEL`, one of `run.checkpoints`, a name on the hub (`owner/name#revision`), or a model of transformers
            in memory.
        checkpoints: the model P, or several, in a list or as label -> model.
        responses: a file of responses; or a list of texts, of (prompt, response) pairs, of (prompt ids, completion ids)
            pairs, of mappings such as lines of a file, or of `Response`. A prompt is read as it is; as a list of
            messages it goes through the chat template. Of a text alone the first token is the prompt. A table (pandas,
            polars, pyarrow, datasets, a mapping of columns) is read by row, like the lines of a file.
        overrides: further changes of a run's settings.
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
        ConfigError: a setting or a response is wrong; the message names it.
        ArtifactError: there is no such run or file, or an artifact is damaged.
        CheckpointError: there is no such model, or it is damaged.
        MismatchError: the models have different tokenizers, or logits cannot be formed from hidden states.
        ValueError: a sequence has an empty half or an id outside the vocabulary, or a number is wrong.

    Example:
        result = swerve.probe("owner/base", "owner/rl", [("What is 2 + 2?", "It is 4.")])
        result.to_pandas().nlargest(5, "js")
    """
    # Of a run, where all that follows are changes of its settings.
    shown = shown_progress(progress)
    rest = [entry for entry in (checkpoints, responses, *overrides) if entry is not None]
    is_wrong_change = responses is None and isinstance(checkpoints, str) and "=" in checkpoints
    if all(map(_is_change, rest)) or is_wrong_change:
        return _probe_run(reference, rest, changes, shown)
    if changes or overrides:
        named = [*changes, *map(str, overrides)]
        raise ConfigError(f"{', '.join(named)}: only the settings of a run can be changed; a probe of models has none")
    # Of two models and responses.
    if responses is None or checkpoints is None:
        raise ConfigError(
            "give swerve.probe(run), or swerve.probe(reference, checkpoint, responses) with texts, pairs or a file"
        )
    from swerve.probe.in_memory import probe_models

    return probe_models(
        reference,
        checkpoints,
        responses,
        tokenizer=tokenizer,
        template=template,
        ends=ends,
        top_k=top_k,
        device=device,
        dtype=dtype,
        tokens_per_batch=tokens_per_batch,
        tokens_per_chunk=tokens_per_chunk,
        progress=shown,
    )


def _is_change(entry: Any) -> bool:
    """Whether an argument changes a setting of a run, and names no model and no text."""
    keys = entry if isinstance(entry, Mapping) else [entry.partition("=")[0]] if isinstance(entry, str) else [""]
    return all(str(key).partition(".")[0] in STAGE_SECTIONS for key in keys)


def _probe_run(
    run: str | Path | RunDirectory, overrides: Sequence[Any], changes: Mapping[str, Any], progress: Progress
) -> ProbeResult | None:
    from swerve.artifacts.run import find_run
    from swerve.models.runtime import set_thread_environment
    from swerve.recipes.layers import overrides_of
    from swerve.recipes.loader import check_copied, load_run_config

    directory = find_run(run)
    config = load_run_config(directory, overrides, changes)
    check_copied(config, directory, overrides_of(overrides, changes))
    set_thread_environment(config.runtime)
    from swerve.probe.from_run import probe_run
    from swerve.probe.result import read_result

    return None if probe_run(config, directory, progress=progress) is None else read_result(directory)


make_callable(__name__)
