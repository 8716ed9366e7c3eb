"""Options of commands and keywords of functions in Python: one table of each, from keys of settings.

The tables name keys; types, defaults and explanations are those of the settings.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from swerve.errors import ConfigError, nearest

if TYPE_CHECKING:
    from swerve.config.sampling import SampleSettings

    Settings = TypeVar("Settings", bound=SampleSettings)

SAMPLING = {
    "split": "--split",
    "limit": "--limit N",
    "num_samples": "--num-samples N",
    "max_new_tokens": "--max-new-tokens N",
    "seed": "--seed N",
    "runtime.max_rows": "--batch ROWS",
    "system": "--system TEXT",
    "template": "--template",
    "template_args": "--template-arg NAME=VALUE",
    "today": "--date YYYY-MM-DD",
}
"""Key of the settings of sampling -> the option that says it."""
CLAIM = {
    **SAMPLING,
    "parts": "--parts PART[,PART]... all",
    "some": "--some N",
    "texts": "--text FILE",
    "ranks": "--ranks R[,R]... 1,2,4,8,16",
    "directions": "--directions N",
    "margin": "--margin SHARE",
    "common": "--common",
    "study": "--study DIR",
}
"""The same of a claim card."""
_SEVERAL = {"template_args", "texts"}
"""Keys whose option is repeated, once for each value: the keyword has the key's name."""
_BESIDE = {
    "temperature": "temperatures",
    "problem_seed": "problem_seed",
    "device": "runtime.device",
    "dtype": "runtime.dtype",
    "runtime": "runtime",
    "rollout": "rollout",
}
"""Keywords that are no option of this kind in the terminal: it has `--temperature`, and KEY=VALUE."""


USUAL = {
    "n": "num_samples",
    "k": "num_samples",
    "samples_per_problem": "num_samples",
    "max_length": "max_new_tokens",
    "max_tokens": "max_new_tokens",
    "temperatures": "temperature",
    "today": "date",
    "batch_size": "batch",
    "max_rows": "batch",
    "num_problems": "limit",
    "system_prompt": "system",
    **dict.fromkeys(("prompts", "questions", "dataset"), "problems"),
}
"""What others call keywords."""
SAME = (
    "n", "samples_per_problem", "max_tokens", "temperatures", "today", "batch_size", "max_rows", "num_problems",
    "system_prompt",
)  # fmt: skip
"""Of these the names that mean the same and nothing else: they are taken, in Python and as options."""
_ELSEWHERE = {
    "grader": "the grader is of the task: task={'kind': 'table', 'grader': NAME}, or the field 'grader' of each row",
    "reward": (
        "a reward of your own is a Python file: task={'kind': 'table', 'grader': 'python', 'reward_file': FILE}; "
        "swerve.rewards.trl_reward wraps graders for other trainers"
    ),
    "tokenizer": "a model has the tokenizer that is in its folder: tokenizer.save_pretrained(FOLDER) puts it there",
}
"""What is no keyword, and where it is said."""
TERMINAL_ONLY: Mapping[str, Sequence[str]] = {
    "claim": ("costs", "figures", "json", "parts_from"),
    "evaluate": ("embedding_model", "format", "json", "parts_from", "shard"),
    "grade": ("json", "parts_from", "shard"),
    "probe": ("json", "parts_from", "shard"),
    "report": ("figures", "format", "json", "no_titles", "problem", "width"),
    "sample": ("json", "parts_from", "shard"),
}
"""Of each function the options that its command has and it has not, as keywords would spell them."""
NAMES = {
    "from": "start",
    "set": "settings",
    "field": "fields",
    "other": "others",
    "text": "texts",
    "audit": "audits",
    "template_arg": "template_args",
    "use_responses": "responses",
    "reference_samples": "responses",
    "final_samples": "responses",
    "checkpoint": "checkpoints",
    "data": "problems",
    "model": "models",
}
"""Options -> what they are in Python, where that is another name."""
COMMANDS = {"evaluate": "eval"}
"""Functions whose command has another name."""


def keywords_of(options: Mapping[str, str], beside: Mapping[str, str] = _BESIDE) -> dict[str, str]:
    """Return the keywords that options are in Python, with the keys that they say.

    >>> keywords_of({"runtime.max_rows": "--batch ROWS", "limit": "--limit N"}, {})
    {'batch': 'runtime.max_rows', 'limit': 'limit'}
    """
    names = {key: option.partition(" ")[0].strip("-").replace("-", "_") for key, option in options.items()}
    return {(key if key in _SEVERAL else name): key for key, name in names.items()} | dict(beside)


class SampleKeywords(TypedDict, total=False):
    """Keywords of `swerve.sample` and `swerve.evaluate`; `help(swerve.SampleSettings)` says what each does."""

    split: Literal["train", "heldout"]
    limit: int | None
    num_samples: int
    max_new_tokens: int | None
    temperature: float | Sequence[float]
    seed: int
    system: str | None
    template: Literal["auto", "raw"]
    template_args: Mapping[str, Any]
    date: str | date
    batch: int
    problem_seed: int
    device: Literal["auto", "cpu", "cuda"]
    dtype: Literal["float32", "bfloat16"]
    runtime: Mapping[str, Any]
    rollout: Mapping[str, Any]


class ClaimKeywords(SampleKeywords, total=False):
    """Keywords of `swerve.claim`; `help(swerve.ClaimSettings)` says what each does."""

    parts: str | Sequence[str]
    some: int
    texts: str | Path | Sequence[str | Path]
    ranks: Sequence[int]
    directions: int
    margin: float
    common: bool
    study: str | Path | None


def settings_of(
    kind: type[Settings],
    task: Any,
    keywords: Mapping[str, Any],
    options: Mapping[str, str],
    *,
    settings: Settings | None = None,
    defaults: Mapping[str, Any] = {},
) -> Settings:
    """Return the settings that keywords say.

    Args:
        kind: of the settings.
        task: the task's configuration; None: that of `settings`.
        keywords: by name; None: the default.
        options: of the command, which are the keywords.
        settings: what the keywords change.
        defaults: values of keys that the function has in place of the settings' own.

    Raises:
        ConfigError: a keyword is unknown, or a value is wrong; the message names it.
    """
    from swerve.recipes.layers import overrides_of
    from swerve.recipes.loader import load_settings

    known = keywords_of(options)
    keywords = as_called(keywords, known)
    check_keywords(keywords, known)
    data: dict[str, Any] = dict(defaults) if settings is None else settings.model_dump(mode="json")
    if task is not None:
        data["task"] = task if isinstance(task, Mapping) else task.model_dump(mode="json")
    given = {name: value for name, value in keywords.items() if value is not None}
    if "temperature" in given:
        temperatures = given["temperature"] = temperatures_of(given["temperature"])
        if len(temperatures) > 1 and "num_samples" not in given and settings is None:
            given["num_samples"] = max(len(temperatures), int(data.get("num_samples", 1)))
    # Sections before single keys of them.
    order = sorted(given, key=lambda name: "." in known[name])
    changes = []
    for name in order:
        value = _plain(given[name])
        said = f"{name}={value!r}"
        changes += [replace(one, text=f"{said:.60}") for one in overrides_of([{known[name]: value}])]
    return load_settings(kind, changes, data=data)


def as_called(keywords: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return keywords by the names that they have here.

    Raises:
        ConfigError: one is given under both names.

    >>> as_called({"n": 4, "seed": 1}, ["num_samples", "seed"])
    {'num_samples': 4, 'seed': 1}
    """
    named: dict[str, Any] = {}
    for name, value in keywords.items():
        own = USUAL[name] if name in SAME and name not in known and USUAL[name] in known else name
        if own in named or (own != name and own in keywords):
            raise ConfigError(f"{own!r} is given twice: {name!r} is another name of it; leave one out")
        named[own] = value
    return named


def check_keywords(keywords: Iterable[str], known: Collection[str]) -> None:
    """Check that a function has the keywords that it is given.

    Raises:
        ConfigError: it lacks one; the message says what it is called here, or where it is said.
    """
    from swerve.recipes.task_names import task_kinds

    name = next((name for name in keywords if name not in known), None)
    if name is None:
        return
    if name in USUAL:
        raise ConfigError(f"there is no keyword {name!r}; it is {USUAL[name]!r} here")
    if name in _ELSEWHERE:
        raise ConfigError(f"there is no keyword {name!r}; {_ELSEWHERE[name]}")
    if NAMES.get(name) in known:
        raise ConfigError(f"there is no keyword {name!r}; it is {NAMES[name]!r} here")
    kind = next((kind for kind, config in sorted(task_kinds().items()) if name in config.model_fields), None)
    if kind is not None:
        raise ConfigError(
            f"there is no keyword {name!r}; it is a key of a task: task={{'kind': {kind!r}, {name!r}: ...}}"
        )
    there_are = f"; there are {', '.join(known)}"
    raise ConfigError(f"there is no keyword {name!r}{nearest(name, known) or there_are}")


def temperatures_of(given: Any) -> list[float]:
    """Return one temperature or several as a list.

    Raises:
        ConfigError: one is not a number of at least 0, or the list is empty.
    """
    temperatures = list(given) if isinstance(given, list | tuple | set | range) else [given]
    are_numbers = all(isinstance(one, int | float) and not isinstance(one, bool) and one >= 0 for one in temperatures)
    if not temperatures or not are_numbers:
        raise ConfigError(f"temperature={given!r:.60} is no number of at least 0, nor a list of them")
    return temperatures


def torch_word(value: Any) -> Any:
    """Return a type or a device of torch by its name; all else as it is."""
    return str(value).removeprefix("torch.") if type(value).__module__ == "torch" else value


def _plain(value: Any) -> Any:
    """Return paths, and types and devices of torch, as texts, alone and in lists."""
    if isinstance(value, Path):
        return str(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple | set | range) else torch_word(value)
