"""The runs that a study asks for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from swerve.artifacts.files import write_text
from swerve.artifacts.parts import is_empty
from swerve.artifacts.run import RunDirectory
from swerve.artifacts.study import (
    MEASURES,
    StudyRun,
    StudyTrial,
)
from swerve.errors import ConfigError, nearest
from swerve.problems.task import SingleTask
from swerve.recipes.data_sizes import data_sizes
from swerve.recipes.epochs import with_steps
from swerve.recipes.files import shipped_recipes
from swerve.recipes.layers import parse_override, read_layers
from swerve.recipes.loader import RecipeSource, dump_yaml, load_config, load_document
from swerve.recipes.yaml_lines import emit_yaml
from swerve.study.job import StudyJob
from swerve.study.measure import measure_run
from swerve.study.order import bound, in_order
from swerve.study.study_file import RUN_NAME, START, TUNING, StudyFile, StudyStart
from swerve.study.tune import Changes, better_half, chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A study with all its runs."""

    study: StudyFile
    path: Path
    starts: tuple[StudyJob, ...]
    jobs: tuple[StudyJob, ...]
    """That are compared: of the variants whose settings are chosen, where they are tuned."""
    tuning: tuple[StudyJob, ...] = ()
    """That try settings; the next ones are known when these are done."""
    trials: tuple[StudyTrial, ...] = ()

    @property
    def all_jobs(self) -> tuple[StudyJob, ...]:
        """All runs that are known, in an order in which they can be done."""
        return in_order((*self.starts, *self.tuning, *self.jobs))

    @property
    def num_jobs(self) -> int:
        """How many runs the study has, those that are not known yet among them, and without those of the start."""
        tuning = () if self.study.tuning is None else self.study.tuning.num_by_seed
        return len(self.study.variants) * (len(self.study.seeds) + sum(tuning))

    def write(self) -> None:
        """Write `study.yaml` and the configuration of each run."""
        write_text(self.path / "study.yaml", emit_yaml(self.study.model_dump(mode="json")))
        for job in self.all_jobs:
            write_text(job.config_path, dump_yaml(job.config))

    def select(self, names: Sequence[str]) -> tuple[StudyJob, ...]:
        """Return the runs of these names; `start`, `tuning` and a variant's name stand for all of theirs.

        Raises:
            ConfigError: there is no such run, or it is not known yet.
        """
        known = {job.name: job for job in self.all_jobs}
        meant: set[str] = set()
        for name in names:
            own = {at for at, job in known.items() if name in (at, job.variant) or at.startswith(f"{name}/")}
            meant |= own
            if own:
                continue
            # A name without a run is wrong, or too early.
            variants, variant = self.study.variants, name.partition("/")[0]
            if self.study.tuning is not None and variant in variants:
                hint = f" before its settings are chosen; do --only {TUNING}/{variant} first"
            else:
                hint = f"{nearest(name, [*variants, *known])} (variants: {', '.join(variants)})"
            raise ConfigError(f"--only '{name}': the study has no such run{hint}")

        # In the order in which they can be done.
        return tuple(job for name, job in known.items() if name in meant)


def plan_study(source: str, overrides: Sequence[str], *, out: Path | None, runs: Path) -> Plan:
    """Return the runs that a study asks for; nothing is written.

    Args:
        source: name of a shipped study, a YAML file, or the directory of a study; with `controls` also a recipe, whose
            only other variant is `real`.
        overrides: `KEY=VALUE` of the study's file; those of other keys are changes to the recipe for all variants.
        out: directory of the study; None: the one given as `source`, or, where it is no directory or the overrides
            give a name, this name under `studies` in `runs`.
        runs: where runs are.

    Raises:
        ConfigError: the file, an override or a configuration is wrong, a variant was changed after its runs began, or
            the directory is not that of a study.
    """
    # The directory of a study that was written before; None: a shipped one or a file is meant.
    places = () if source in shipped_recipes("study") else (Path(source), runs / "studies" / source)
    folder = next((path for path in places if (path / "study.yaml").is_file()), None)

    # The file, with the overrides of its own keys; the others change the recipe.
    file_name = source if folder is None else str(folder / "study.yaml")
    document: RecipeSource = file_name
    if _is_recipe(file_name, overrides):
        document = {"name": f"{Path(source).stem}-controls", "recipe": source, "variants": {"real": {}}}
    own, changes = _split(document, overrides)
    study = load_document(StudyFile, document, own, use="study")

    # Recipes are sought from the study's folder first.
    file, start = Path(file_name), study.start
    if start is not None:
        start = start.model_copy(update={"recipe": _recipe(start.recipe, file)})
    variants = {
        name: {**own, **({"recipe": _recipe(str(own["recipe"]), file)} if "recipe" in own else {})}
        for name, own in study.variants.items()
    }
    baseline = variants[study.compared_with]
    variants |= {f"control-{name}": {**baseline, "stages.rl.reward": name} for name in study.controls}
    update = {"recipe": _recipe(study.recipe, file), "set": {**study.set, **changes}}
    study = study.model_copy(update={**update, "start": start, "variants": variants, "controls": ()})
    if not RUN_NAME.fullmatch(study.name):
        raise ConfigError(f"{file_name}: name {study.name!r}: use up to 60 letters, digits, '.', '_' and '-'")

    # Where the study lies; a directory of something else is never written into.
    is_renamed = any(parse_override(text).keys == ("name",) for text in own)
    path = out or (None if is_renamed else folder) or runs / "studies" / study.name
    if path.exists() and not (path / "study.yaml").is_file() and not is_empty(path):
        raise ConfigError(
            f"{path} exists and is not a study; choose another directory with --out, or another name=NAME"
        )

    # Every configuration is checked before anything runs, those of a grid too.
    tuned = () if study.tuning is None else study.tuning.seeds
    starts = (
        {seed: _start_job(start, seed, path, runs, study.processes) for seed in (*tuned, *study.seeds)} if start else {}
    )
    maker = _JobMaker(study, path, starts, file_name)
    jobs, tuning, trials = list[StudyJob](), list[StudyJob](), list[StudyTrial]()
    for variant in study.variants:
        own_tuning, own_trials, setting = maker.tune(variant)
        tuning += own_tuning
        trials += own_trials
        if setting is not None:
            jobs += [maker.job(f"{variant}/seed-{seed}", variant, seed, setting) for seed in study.seeds]
    begun = tuple({job.name: job for job in starts.values()}.values())
    known = (*begun, *tuning, *jobs)
    jobs, tuning = (
        [bound(job, known, study.variants, file=file_name) for job in some]  # models that other runs make
        for some in (jobs, tuning)
    )
    plan = Plan(study=study, path=path, starts=begun, jobs=tuple(jobs), tuning=tuple(tuning), trials=tuple(trials))
    for job in plan.all_jobs:
        job.check_unchanged()
    return plan


def _is_recipe(source: str, overrides: Sequence[str]) -> bool:
    """Return whether controls are asked for of a recipe of training; a name that a study has too means the study."""
    if source in shipped_recipes("study") or ("controls",) not in [parse_override(text).keys for text in overrides]:
        return False
    try:
        data = read_layers(source, "train").data
    except ConfigError:
        return False
    return "stages" in data and "variants" not in data


def _split(source: RecipeSource, overrides: Sequence[str]) -> tuple[list[str], Changes]:
    """Return the overrides of the study's own keys, and the changes to its recipe.

    A profile is the study's, where it has one of that name, and the recipe's otherwise.
    """
    parsed = [(text, parse_override(text)) for text in overrides]
    own = [text for text, override in parsed if override.keys[0] in StudyFile.model_fields]
    profiles = read_layers(source, "study").profiles if isinstance(source, str) else ()
    own += [text for text, override in parsed if override.keys == ("profile",) and override.value in profiles]
    changes = {".".join(override.keys): override.value for text, override in parsed if text not in own}
    if "seed" in changes:
        raise ConfigError(f"override 'seed={changes['seed']}': a study has seeds=N, or seeds=[0, 1, ...]")
    return own, changes


def _recipe(recipe: str, file: Path) -> str:
    """Return a shipped recipe's name, or the absolute path of a file, which is sought from the study's folder first."""
    if recipe in shipped_recipes():
        return recipe
    beside = file.parent / recipe
    return str((beside if beside.is_file() else Path(recipe)).absolute()) if "." in recipe or "/" in recipe else recipe


def _texts(changes: Mapping[str, Any]) -> list[str]:
    """Return changes as the command line has them; JSON is YAML."""
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in changes.items()]


def _start_job(start: StudyStart, seed: int, path: Path, runs: Path, processes: int) -> StudyJob:
    """Return the run that those of a seed begin with."""
    changes, name, ending = _texts(start.set), START, ""
    if start.per_seed:
        changes, name, ending = [*changes, f"seed={seed}"], f"{START}/seed-{seed}", f"-seed-{seed}"
    config = load_config(start.recipe, changes)
    config = with_steps(config, data_sizes(config))
    config = config.model_copy(update={"name": f"{config.name}{ending}"})
    run = RunDirectory(runs / config.name)
    return StudyJob(
        name=name, variant=START, config=config, run=run, folder=path, steps=("train",), processes=processes
    )


@dataclass(frozen=True, slots=True)
class _JobMaker:
    """Makes the runs of a study's variants."""

    study: StudyFile
    path: Path
    starts: Mapping[int, StudyJob]
    file: str

    def job(self, name: str, variant: str, seed: int, changes: Changes) -> StudyJob:
        """Return a run of a variant with a setting of its grid."""
        tuning, place = self.study.tuning, f"{self.file}: variant '{variant}'"
        own = {**self.study.variants[variant], **changes}
        recipe, processes = (
            str(own.pop("recipe", self.study.recipe)),
            cast(int, own.pop("processes", self.study.processes)),
        )
        texts = _texts(self.study.set)
        if start := self.starts.get(seed):
            num_steps = sum(stage.steps for stage in start.config.stages)
            texts.append(f"model.path={json.dumps(str(start.run.checkpoint_path(num_steps)))}")
        try:
            config = load_config(recipe, [*texts, *_texts(own), f"seed={seed}"])
            config = with_steps(config, data_sizes(config))
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from None
        config, steps = (
            config.model_copy(update={"name": f"{self.study.name}-{name.replace('/', '-')}"}),
            self.study.steps,
        )
        # Settings are judged on the held-out problems behind those of the verdict.
        if tuning is not None and seed in tuning.seeds:
            skip, num, steps = config.eval.skip + config.eval.num_problems, tuning.num_problems, ("train", "eval")
            there = config.task.num_heldout if isinstance(config.task, SingleTask) else None
            if there is not None and there < skip + num:
                raise ConfigError(
                    f"{place}: task.num_heldout is {there}, and the verdict takes {skip} of them (eval.num_problems), "
                    f"tuning another {num} (tuning.num_problems); give task.num_heldout={skip + num}"
                )
            judged = config.eval.model_copy(update={"skip": skip, "num_problems": num})
            config = config.model_copy(update={"eval": judged})
        run = RunDirectory(self.path / "runs" / name)
        return StudyJob(
            name=name, variant=variant, config=config, run=run, folder=self.path, steps=steps, processes=processes
        )

    def tune(self, variant: str) -> tuple[list[StudyJob], list[StudyTrial], Changes | None]:
        """Return the runs that try settings of a variant as far as those before are done, and what they found.

        Returns:
            The runs, the settings tried, and the one chosen; None: the runs are to be done first.
        """
        tuning, rule = self.study.tuning, self.study.verdict
        if tuning is None or rule is None:
            return [], [], {}
        settings, alive, jobs = tuning.settings(variant), tuning.drawn(variant), list[StudyJob]()
        measured, scores, choice = dict[int, list[StudyRun]](), dict[int, list[float]](), None
        for seed in tuning.seeds:
            # All settings with the first seed, the better half of them with the next.
            alive = better_half(scores) if scores else alive
            these = [
                self.job(f"{TUNING}/{variant}/setting-{number + 1}/seed-{seed}", variant, seed, settings[number])
                for number in alive
            ]
            jobs += these
            if any(job.next_step() is not None for job in these):
                break

            # A run without the measure, such as one that collapsed at once, is worse than any other.
            for number, job in zip(alive, these, strict=True):
                run = measure_run(job.run.path, variant=variant, seed=seed, shown_path=job.name).run
                measured.setdefault(number, []).append(run)
            scores = {number: [run.values.get(rule.measure, -math.inf) for run in measured[number]] for number in alive}
        else:
            choice = chosen(scores)
        trials = []
        for number, runs in sorted(measured.items()):
            names = [name for name in MEASURES if all(name in run.values for run in runs)]
            trials.append(
                StudyTrial(
                    variant=variant,
                    number=number + 1,
                    changes=settings[number],
                    seeds=tuple(run.seed for run in runs),
                    values={name: fmean(run.values[name] for run in runs) for name in names},
                    is_chosen=number == choice,
                    at_end=tuning.at_end(variant, settings[number]) if number == choice else (),
                )
            )
        return jobs, trials, None if choice is None else settings[choice]
