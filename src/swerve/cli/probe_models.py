"""Body of `swerve probe`: a run's own rollouts, or responses from elsewhere through models from anywhere."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import Field, ValidationError

from swerve.artifacts.probe_summary import read_summary
from swerve.artifacts.run import RunDirectory
from swerve.cli.checkpoints import NamedModel, name_checkpoint, resolve_model
from swerve.cli.console import console_progress
from swerve.cli.output import print_json, print_text
from swerve.cli.runs import find_run, is_main_process, load_run_config, set_thread_environment
from swerve.cli.stages import run_probe
from swerve.cli.summary import probe_lines
from swerve.config import Config, EvalConfig, ProbeConfig, ReportConfig, RuntimeConfig
from swerve.config.base import Model, PositiveInt
from swerve.errors import CheckpointError, ConfigError
from swerve.progress import Progress, SilentProgress
from swerve.recipes.explain import Origins, explain_errors
from swerve.recipes.overrides import apply_override, parse_override
from swerve.recipes.schema import expand_shorthand

if TYPE_CHECKING:
    from swerve.probe.response_files import ProblemRecord
    from swerve.probe.responses import ImportedResponses
    from swerve.probe.sources import CheckpointSource
    from swerve.problems import ProblemFamily

__all__ = ["ProbeOptions", "ProbeRequest", "ProbeSettings", "load_settings", "run_probe_command"]


class ProbeSettings(Model):
    """What can be set where there is no run, and so no recipe."""

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    max_new_tokens: PositiveInt = 128
    eval: EvalConfig = EvalConfig()
    probe: ProbeConfig = ProbeConfig()
    report: ReportConfig = ReportConfig()
    runtime: RuntimeConfig = RuntimeConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """The options of the command, as they were given."""

    use_responses: Path | None = None
    reference: str | None = None
    checkpoints: tuple[str, ...] = ()
    baseline: str | None = None
    problems: Path | None = None
    fields: tuple[str, ...] = ()
    template: str | None = None
    ends: str | None = None
    out: Path | None = None

    def refuse_without_responses(self) -> None:
        """Do nothing unless an option is given that only goes with `--use-responses`.

        Raises:
            ConfigError: one is; the message names it.
        """
        given = {
            "--reference": self.reference,
            "--checkpoint": self.checkpoints,
            "--baseline": self.baseline,
            "--problems": self.problems,
            "--field": self.fields,
            "--template": self.template,
            "--ends": self.ends,
            "--out": self.out,
        }
        for name, value in given.items():
            if value:
                raise ConfigError(
                    f"{name} only goes with --use-responses FILE; a run's own rollouts are probed with the settings "
                    "probe.reference, probe.checkpoints and probe.baseline"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """Everything that a probe of imported responses needs."""

    config: Config | ProbeSettings
    reference: CheckpointSource
    baseline: CheckpointSource | None
    checkpoints: tuple[CheckpointSource, ...]
    """The last is the one the headline figures are about."""
    steps: Mapping[str, int]
    """Global step of every model, by label; where they are not all of one run, their order."""
    responses: ImportedResponses
    out: RunDirectory
    """The tables go to its `probe/`."""


def run_probe_command(run: str | None, overrides: Sequence[str], options: ProbeOptions, *, as_json: bool) -> None:
    """Probe a run, or the responses of `--use-responses`.

    Raises:
        ConfigError: neither is given, or options that do not go together.
    """
    if run is not None and "=" in run and not Path(run).exists():
        overrides = [run, *overrides]
        run = None
    if options.use_responses is None:
        options.refuse_without_responses()
        if run is None:
            raise ConfigError(
                "give RUN, whose rollouts are probed, or --use-responses FILE with --reference MODEL and --checkpoint "
                "MODEL; see: swerve probe --help"
            )
        run_probe(run, overrides, as_json=as_json)
        return
    progress: Progress = console_progress(sys.stderr) if is_main_process() else SilentProgress()
    request = _request(run, overrides, options)
    summary = _probe(request, progress)
    if is_main_process():
        progress.note(f"tables: {request.out.probe_path}")
        if as_json:
            print_json(summary)
        else:
            print_text("\n".join(probe_lines(read_summary(request.out))))


def _probe(request: ProbeRequest, progress: Progress) -> dict[str, Any]:
    """Hand the request to the probe."""
    from swerve.probe.models import probe_models

    config = request.config
    return probe_models(
        config.probe,
        runtime=config.runtime,
        seed=config.seed,
        confidence=config.eval.confidence,
        max_new_tokens=config.max_new_tokens,
        reference=request.reference,
        baseline=request.baseline,
        checkpoints=request.checkpoints,
        steps=request.steps,
        sequences=request.responses.sequences,
        provenance=request.responses.provenance,
        out=request.out,
        progress=progress,
    )


def load_settings(overrides: Sequence[str]) -> ProbeSettings:
    """Return the settings that `KEY=VALUE` overrides describe.

    Raises:
        ConfigError: one line that names the override, the key and what is allowed.

    >>> load_settings(["probe.top_k=3"]).probe.top_k
    3
    """
    root = ProbeSettings.model_json_schema()
    data: Any = {}
    places = []
    for override in map(parse_override, overrides):
        data, path = apply_override(data, override)
        data = expand_shorthand(root, data)
        places.append((path, override))
    try:
        return ProbeSettings.model_validate_json(json.dumps(data))
    except ValidationError as error:
        origins = Origins(source="overrides", lines={}, overrides=places)
        raise explain_errors(root, error.errors(include_url=False), data, origins) from None


def _request(run_name: str | None, overrides: Sequence[str], options: ProbeOptions) -> ProbeRequest:
    assert options.use_responses is not None
    run = None if run_name is None else find_run(run_name)
    config = load_settings(overrides) if run is None else load_run_config(run, overrides)
    set_thread_environment(cast(Config, config))  # which looks at `runtime` alone
    reference, baseline, checkpoints = _models(config, run, options)
    named = [reference, *checkpoints, *([baseline] if baseline else [])]
    _refuse_repeated_labels(named)
    sources = _sources(named, config.runtime)
    return ProbeRequest(
        config=config,
        reference=sources[reference.label],
        baseline=sources[baseline.label] if baseline else None,
        checkpoints=tuple(sources[one.label] for one in checkpoints),
        steps=_steps(([baseline] if baseline else []) + [reference, *checkpoints]),
        responses=_responses(config, run, options, reference),
        out=RunDirectory(options.out or _default_out(run, options.use_responses)),
    )


def _default_out(run: RunDirectory | None, responses: Path) -> Path:
    name = f"probe-{responses.name.partition('.')[0] or 'responses'}"
    return Path(name) if run is None else run.path / name


def _models(
    config: Config | ProbeSettings, run: RunDirectory | None, options: ProbeOptions
) -> tuple[NamedModel, NamedModel | None, list[NamedModel]]:
    reference, chosen = options.reference, list(options.checkpoints)
    if run is None:
        missing = [name for name, value in (("--reference", reference), ("--checkpoint", chosen)) if not value]
        if missing:
            raise ConfigError(
                f"--use-responses without RUN needs {' and '.join(f'{name} MODEL' for name in missing)}; MODEL is a "
                "folder, RUN:LABEL or a name on the hub"
            )
    else:
        reference = reference or config.probe.reference or _default_reference(run)
    assert reference is not None
    baseline = options.baseline or (config.probe.baseline if run is not None else None)
    checkpoints = [resolve_model(name, run=run) for name in chosen]
    if all(one.step is not None for one in checkpoints):
        checkpoints.sort(key=lambda one: one.step or 0)
    found = resolve_model(reference, run=run)
    if run is not None and not checkpoints:
        checkpoints = [one for one in _stage_checkpoints(run, config.probe.checkpoints) if one.path != found.path]
    return found, None if baseline is None else resolve_model(baseline, run=run), checkpoints


def _stages(run: RunDirectory) -> list[str]:
    stages = list(dict.fromkeys(one.stage for one in run.checkpoints()))
    if not stages:
        raise CheckpointError(f"{run.path} has no checkpoints; train it first, or name models with --checkpoint")
    return stages


def _default_reference(run: RunDirectory) -> str:
    stages = _stages(run)
    if len(stages) == 1:
        raise ConfigError("a run of one stage has no stage before it; name the reference with --reference")
    return stages[-2]


def _stage_checkpoints(run: RunDirectory, stage: str | None) -> list[NamedModel]:
    wanted = stage or _stages(run)[-1]
    found = [name_checkpoint(one) for one in run.checkpoints() if one.stage == wanted and one.scheduled]
    if not found:
        raise CheckpointError(f"{run.path} has no checkpoint of a stage '{wanted}'; name one with --checkpoint")
    return found


def _refuse_repeated_labels(models: Sequence[NamedModel]) -> None:
    repeated = [label for label, count in Counter(one.label for one in models).items() if count > 1]
    if repeated:
        raise ConfigError(
            f"two models are called '{repeated[0]}'; give them different names, as in --checkpoint late=MODEL "
            "(also for --reference and --baseline)"
        )


def _steps(models: Sequence[NamedModel]) -> dict[str, int]:
    """Return each model's global step if all are of one run and the steps increase, else their order."""
    steps = [one.step for one in models]
    known = [step for step in steps if step is not None]
    increasing = all(first < second for first, second in pairwise(known))
    chosen = known if len(known) == len(steps) and increasing else list(range(len(models)))
    return {one.label: step for one, step in zip(models, chosen, strict=True)}


def _sources(models: Sequence[NamedModel], runtime: RuntimeConfig) -> dict[str, CheckpointSource]:
    from swerve.models.load import resolve_device
    from swerve.probe.sources import CheckpointSource

    device = resolve_device(runtime.device)
    return {
        one.label: CheckpointSource(label=one.label, path=one.path, device=device, dtype=runtime.dtype)
        for one in models
    }


def _responses(
    config: Config | ProbeSettings, run: RunDirectory | None, options: ProbeOptions, reference: NamedModel
) -> ImportedResponses:
    from swerve.probe.response_files import parse_fields, read_problems
    from swerve.probe.responses import ImportSettings, import_responses

    assert options.use_responses is not None
    fields = parse_fields(options.fields)
    given: Any = {name: value for name, value in (("template", options.template), ("ends", options.ends)) if value}
    settings = ImportSettings(**given)
    problems: Mapping[str, ProblemRecord] = {}
    family: ProblemFamily | None = None
    if options.problems is not None:
        problems = read_problems(options.problems, fields=fields)
    elif run is not None:
        problems, family = _run_problems(config, run)
    return import_responses(
        options.use_responses,
        tokenizer=_tokenizer(reference),
        problems=problems,
        fields=fields,
        settings=settings,
        family=family,
    )


def _tokenizer(model: NamedModel) -> Any:
    from swerve.models.load import load_tokenizer

    if isinstance(model.path, Path):
        return load_tokenizer(model.path)
    name, _, revision = model.path.partition("#")
    return load_tokenizer(name, **({"revision": revision} if revision else {}))


def _run_problems(
    config: Config | ProbeSettings, run: RunDirectory
) -> tuple[Mapping[str, ProblemRecord], ProblemFamily | None]:
    """Return the problems a run was evaluated on, with their family; none where it was not evaluated."""
    from swerve.probe.population import read_evaluation
    from swerve.probe.responses import evaluated_problems
    from swerve.problems import load_family

    evaluated = [one for one in run.checkpoints() if run.evaluation_path(one).is_file()]
    if not evaluated or not isinstance(config, Config):
        return {}, None
    return evaluated_problems(read_evaluation(run, evaluated[-1])), load_family(config.task)
