"""Body of `swerve probe`: a run's own rollouts, or responses from elsewhere through models from anywhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from swerve.cli.checkpoints import resolve_model
from swerve.cli.console import console_progress
from swerve.cli.output import print_json, print_text
from swerve.cli.runs import find_run, is_main_process, load_run_config, set_thread_environment
from swerve.cli.stages import run_probe
from swerve.cli.summary import probe_lines
from swerve.config import Config
from swerve.errors import ConfigError
from swerve.probe.request import choose_models, load_settings
from swerve.progress import Progress, SilentProgress

if TYPE_CHECKING:
    from swerve.probe.from_responses import ProbeRequest


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
    from swerve.probe.from_responses import probe_responses

    summary = probe_responses(request, progress=progress)
    if is_main_process():
        progress.note(f"tables: {request.out.probe_path}")
        if as_json:
            print_json(summary)
        else:
            print_text("\n".join(probe_lines(None if summary is None else summary.model_dump(mode="json"))))


def _request(run_name: str | None, overrides: Sequence[str], options: ProbeOptions) -> ProbeRequest:
    assert options.use_responses is not None
    run = None if run_name is None else find_run(run_name)
    config = load_settings(overrides) if run is None else load_run_config(run, overrides)
    set_thread_environment(cast(Config, config))  # which looks at `runtime` alone
    if run is None:
        _check_models_named(options)
    models = choose_models(
        run,
        config.probe,
        reference=options.reference,
        baseline=options.baseline,
        checkpoints=options.checkpoints,
        resolve=partial(resolve_model, run=run),
    )
    from swerve.probe.from_responses import request_probe

    return request_probe(
        config,
        models,
        run=run,
        responses=options.use_responses,
        problems=options.problems,
        fields=options.fields,
        template=options.template,
        ends=options.ends,
        out=options.out,
    )


def _check_models_named(options: ProbeOptions) -> None:
    """Raise ConfigError unless reference and checkpoints are named, as they must be where there is no run."""
    given = {"--reference": options.reference, "--checkpoint": options.checkpoints}
    missing = [f"{name} MODEL" for name, value in given.items() if not value]
    if missing:
        raise ConfigError(
            f"--use-responses without RUN needs {' and '.join(missing)}; MODEL is a folder, RUN:LABEL or a name on the "
            "hub"
        )
