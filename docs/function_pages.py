"""Reference pages of the functions and classes, which mkdocstrings fills from their docstrings."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Iterator

import swerve
from swerve import functional, plot, rewards, statistics

_LISTED: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    # The page, its title, a sentence, and what is on it; `NAME: members` lists the members that are shown.
    ("python-run", "Python: runs", "", ("swerve.run.Run", "swerve.run.runs", "swerve.artifacts.run.RunDirectory")),
    (
        "python-settings",
        "Python: recipes and settings",
        "",
        ("swerve.recipes.loader.load_config", "swerve.config.recipe.Config", "swerve.config.sampling.SampleSettings"),
    ),
    (
        "python-models",
        "Python: samples and comparisons",
        "[Any model](../any-model.md) has examples.",
        (
            "swerve.door.sample.SampleSet",
            "swerve.artifacts.samples.StoredSamples",
            "swerve.artifacts.samples.SampleFile",
            "swerve.artifacts.samples.SamplesInfo",
            "swerve.artifacts.responses.Response",
            "swerve.door.grade.Grades",
            "swerve.artifacts.comparison.Comparison",
            "swerve.claim.settings.ClaimSettings",
            "swerve.claim.record.ClaimCard",
        ),
    ),
    (
        "python-probe",
        "Python: the probe",
        "[Your own models](../probe-models.md) has examples.",
        (
            "swerve.probe.result.ProbeResult",
            "swerve.probe.rollouts.imported.import_responses",
            "swerve.probe.callback.DivergenceCallback: __init__, attach",
        ),
    ),
    (
        "python-rewards",
        "Python: rewards",
        "[Graders](../graders.md) has examples.",
        (
            "swerve.rewards.checks.check_graders",
            "swerve.sandbox.limits.configure_pool",
            "swerve.rewards.pool.GraderPool",
            "swerve.sandbox.limits.GraderLimits",
            "swerve.grading.answers.find_answer",
            "swerve.grading.maths.equivalence.equivalent",
        ),
    ),
    (
        "python-problems",
        "Python: problems",
        "A problem names its grader and the grader's policies, so problems of different graders can be mixed.",
        (
            "swerve.problems.load_family",
            "swerve.problems.data_specs.read_source",
            "swerve.artifacts.problem_records.problem_record",
            "swerve.artifacts.problem_records.problem_from_record",
            "swerve.problems.knights.rows.prove_row",
        ),
    ),
    (
        "python-files",
        "Python: files and behaviours",
        "[Imports and exports](../imports.md) and [Behaviours](../behaviours.md) say more.",
        (
            "swerve.formats.records.read_records",
            "swerve.formats.imported_responses.read_responses",
            "swerve.formats.export.export_table",
            "swerve.behaviours.problem_values",
            "swerve.behaviours.behaviour_rows",
            "swerve.behaviours.summarise",
        ),
    ),
    (
        "python-parts",
        "Python: your own parts",
        "What a [loss, a placement and an engine of your own](../custom-parts.md) inherit from and are given.",
        (
            "swerve.train.kl.KlTerm",
            "swerve.train.kl.SampledKl:",
            "swerve.rollout.engine.Engine",
            "swerve.rollout.engine.SamplingParams:",
            "swerve.progress.Progress",
            "swerve.progress.ProgressTask",
            "swerve.progress.SilentProgress:",
        ),
    ),
    ("python-records", "Python: records and errors", "", ("swerve.types", "swerve.errors")),
)
_CLUSTER = "The unit is a cluster, here a problem."
_MODULES: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    # The page, its title, a sentence, and the modules whose public names are on it.
    ("functional-advantages", "functional: advantages", "", ("functional.advantages",)),
    ("functional-losses", "functional: losses", "", ("functional.losses",)),
    ("functional-paths", "functional: losses of exploring paths", "", ("functional.path_losses",)),
    ("functional-weights", "functional: token weights and reductions", "", ("functional.token_weights",)),
    (
        "functional-kl",
        "functional: KL and divergences",
        "",
        ("functional.kl_divergence", "functional.divergence", "functional.divergence_bounds"),
    ),
    (
        "functional-logprobs",
        "functional: log-probabilities and the output head",
        "",
        ("functional.logprobs", "functional.token_head", "functional.head_logits"),
    ),
    (
        "statistics-intervals",
        "statistics: intervals",
        _CLUSTER,
        ("statistics.intervals", "statistics.paired", "statistics.ratios"),
    ),
    ("statistics-tests", "statistics: tests", _CLUSTER, ("statistics.hypothesis_tests",)),
    (
        "statistics-rankings",
        "statistics: correlations, rankings, pass@k",
        _CLUSTER,
        ("estimates", "statistics.association", "statistics.ranking", "statistics.pass_at_k"),
    ),
)


def pages() -> dict[str, str]:
    """Return the text of each page by its name below docs/."""
    made = {"reference/python.md": _page("Python", "", _top_names())}
    for page, title, words, names in _LISTED:
        first = map(_home, _public(rewards)) if page == "python-rewards" else ()
        made[f"reference/{page}.md"] = _page(title, words, [*first, *names])
    public = [_home(function) for package in (functional, statistics) for function in _public(package)]
    for page, title, words, modules in _MODULES:
        homes = tuple(f"swerve.{module}." for module in modules)
        made[f"reference/{page}.md"] = _page(title, words, [name for name in public if name.startswith(homes)])
    made["reference/plot.md"] = _page(
        "Python: figures",
        "`swerve.plot` draws the figures of a run on matplotlib axes; [Figures](../figures.md) says what each shows.",
        [f"swerve.plot.{name}" for name in plot.__all__],
    )
    return made


def _top_names() -> Iterator[str]:
    """Yield where the names of `swerve` that no other page lists are defined, those of callable packages too."""
    listed = {name for _, _, _, names in _LISTED for name in names}
    for name in swerve.__all__:
        value = getattr(swerve, name)
        if inspect.ismodule(value) and callable(value):
            value = getattr(value, name)
        if (inspect.isfunction(value) or inspect.isclass(value)) and _home(value) not in listed:
            yield _home(value)


def _public(package: object) -> list[object]:
    return [getattr(package, name) for name in package.__all__]  # type: ignore[attr-defined]


def _home(value: object) -> str:
    return f"{value.__module__}.{value.__qualname__}"  # type: ignore[attr-defined]


def _page(title: str, words: str, names: Iterable[str]) -> str:
    return "\n\n".join([f"# {title}", *filter(None, [words]), *map(_entry, names)]) + "\n"


def _entry(name: str) -> str:
    """Return what mkdocstrings reads: a name, perhaps with the members that are shown."""
    name, colon, members = name.partition(":")
    if colon:
        return f"::: {name}\n    options:\n      members: {f'[{members.strip()}]' if members else 'false'}"
    if inspect.ismodule(value := _value(name)) and value:
        return f"::: {name}\n    options:\n      show_root_heading: false\n      show_root_toc_entry: false"
    return f"::: {name}"


def _value(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), attribute)
