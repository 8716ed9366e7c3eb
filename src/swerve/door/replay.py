"""`swerve.replay`: a run's training made once more from its recorded rollouts."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from swerve.artifacts.files import read_sealed
from swerve.artifacts.locks import locked
from swerve.artifacts.parts import Parts, digest_of
from swerve.artifacts.replays import TARGETS, Replays, Taught
from swerve.artifacts.run import RunDirectory, find_run
from swerve.config.recipe import Config
from swerve.config.stages import StageConfig
from swerve.door.spoken import spoken
from swerve.errors import ArtifactError, ConfigError
from swerve.models.runtime import set_thread_environment
from swerve.problems import load_family
from swerve.progress import Progress, shown_progress
from swerve.recipes.data_sizes import data_sizes
from swerve.recipes.epochs import with_steps
from swerve.recipes.layers import Change, Override, overrides_of, parse_override
from swerve.recipes.loader import check_copied, load_config
from swerve.seeds import derive_seed
from swerve.train.changes import Stretch, Variation, read_rollouts, starting_point, variations_of

if TYPE_CHECKING:
    from swerve.train.certificate import Certificate


@spoken
def replay(
    run: str | Path | RunDirectory,
    *meant: Change,
    start: str | int | None = None,
    without: str | Sequence[str] = (),
    flip: str | Sequence[str] = (),
    flip_share: float | None = None,
    taught: str | None = None,
    settings: Mapping[str, Any] | Sequence[str] = (),
    to: str | int | None = None,
    rollouts: Literal["recorded", "again"] = "recorded",
    denominators: Literal["kept", "own"] = "kept",
    progress: Progress | bool | None = None,
) -> Certificate | Replays | Taught:
    """Make a run's training once more from its rollouts: as it was, or with one thing changed.

    As it was, it is a certificate. No engine samples, nothing is written to the run, and every checkpoint is compared:
    on a CPU, with the software and as many processes and threads as then, each has the same bytes. The replay ends at
    the first one that differs, and says what could have changed.

    With changes, the steps after `start` are made once unchanged and once for each change, and the result says how far
    the probability of right held-out answers differs, beside what rounding and other seeds make. It is kept in the
    run's `replay/`, and the same call continues where it was interrupted.

    Args:
        run: its path, its name under `runs/`, or the run.
        meant: of a run that was copied here, the code and the servers that its configuration names and that are meant,
            as `"task.reward_file=FILE"`.
        start: where to begin: a checkpoint's label such as `"rl-20"`, a stage (after its end), or a step of the last
            stage; None: the beginning of the run. Of changes the step of the last stage before them.
        without: `"group=3"`, a group of the first step, or `"kind=2 carries"`, all groups of problems of a kind; a
            replay for each.
        flip: `"15.5"`: the verdict on sample 5 of group 15 of the first step is turned round; a replay for each.
        flip_share: a share of all verdicts that is turned round, drawn by the run's seed.
        taught: `"first_wrong"` or `"solution"`: which tokens of the steps up to `to` moved that target, with the proof:
            replays without the tenth of them with the largest effects, the lowest, and five random tenths.
        settings: keys of the last stage that are changed, together in one replay: `{"kl.coef": 0.1}` or
            `["kl.coef=0.1"]`.
        to: step of the last stage at which changed replays end, or `"+10"` steps; None: the run's last.
        rollouts: what the steps after the first one learn from: the run's own, so that the change acts through the
            weights alone, or others that are sampled again with the same seeds.
        denominators: whether a step without some groups divides by the tokens of the unchanged step, or by its own.
        progress: told how far it is; None: shown in a terminal or a notebook; True and False: shown or not.

    Raises:
        ArtifactError: there is no such run, it has no checkpoint, or what is needed is missing or damaged.
        ConfigError: it kept no rollouts, its code, data or problems are others than it began with, or a change cannot
            be made.

    Example:
        print(swerve.replay("demo-addition"))
        swerve.replay("demo-addition", start=20, without=["group=3", "group=4"], to="+10")
    """
    pairs = [f"{key}={value}" for key, value in settings.items()] if isinstance(settings, Mapping) else list(settings)
    asked = {
        "without": _listed(without),
        "flip": _listed(flip),
        "flip_share": flip_share,
        "settings": pairs,
        "rollouts": rollouts,
        "denominators": denominators,
    }
    return replay_run(run, meant, asked, taught=taught, start=start, to=to, progress=shown_progress(progress))


def replay_run(
    run: str | Path | RunDirectory,
    meant: Sequence[Change],
    asked: Mapping[str, Any],
    *,
    taught: str | None,
    start: str | int | None,
    to: str | int | None,
    progress: Progress,
) -> Certificate | Replays | Taught:
    """Do what `replay` does; messages speak of the options of the terminal.

    Args:
        run: see `replay`.
        meant: see `replay`.
        asked: arguments of `variations_of`.
        taught: see `replay`.
        start: see `replay`.
        to: see `replay`.
        progress: told how far it is.
    """
    directory = find_run(run)
    config = load_config(directory)
    _check_repeats(directory, config, overrides_of(meant, {}), start)
    check_copied(config, directory, overrides_of(meant, {}))
    config = with_steps(config, data_sizes(config))
    variations, again = variations_of(**asked), asked["rollouts"] == "again"
    if variations or taught is not None:
        stretch = _checked(directory, config, variations, taught, start=start, to=to)
        return _changed(directory, config, variations, taught, stretch, again=again, progress=progress)
    if to is not None or again or asked["denominators"] == "own":
        raise ConfigError(
            "--to, --rollouts and --denominators are of a replay with a change: --without, --flip, --flip-share, "
            "--set or --taught"
        )
    place = None if start is None else starting_point(directory, config, str(start))
    set_thread_environment(config.runtime)
    from swerve.train.certificate import certify

    with locked(directory.path / ".lock", directory.path, shared=True, remedy=_REMEDY):
        return certify(config, directory, start=place, progress=progress)


_REMEDY = "wait for it or stop it"
_COMMANDS = ("eval", "probe", "report")
"""Of what comes after training, with a section of the recipe each."""


def _check_repeats(run: RunDirectory, config: Config, meant: Sequence[Override], start: str | int | None) -> None:
    """Check that changes repeat what the run's configuration says, as they do of a run that was copied here.

    Raises:
        ConfigError: one is another value, and the message says what makes such a change; or the recipe has no such key.
    """
    try:
        if load_config(run, *meant) == config:
            return
        wrong = None
    except ConfigError as error:
        wrong = error
    for override in meant:
        _check_kept(run, config, override)
    settings = [_of_stage(config.stages[-1], override) for override in meant]
    if wrong is not None and not all(settings):
        raise wrong
    said = "KEY=VALUE after a run repeats what its configuration says, where it was copied here; a replay changes a key"
    sets = " ".join(f"--set {shlex.quote(str(setting))}" for setting in settings)
    step = "STEP" if start is None else shlex.quote(str(start))
    raise ConfigError(f"{said} of the last stage after a step: swerve replay {run.quoted} --from {step} {sets}")


def _of_stage(stage: StageConfig, override: Override) -> str | None:
    """Return the change of a key of the last stage, without the stage's name; None: the stage has no such key."""
    keys = override.keys[2:] if override.keys[:2] == ("stages", stage.label) else override.keys
    return f"{'.'.join(keys)}={_value(override)}" if keys and keys[0] in type(stage).model_fields else None


def _value(override: Override) -> str:
    """Return the value of a change as it was typed, or as one would type it."""
    typed = override.word.partition("=")[2]
    return typed or (override.value if isinstance(override.value, str) else json.dumps(override.value))


def _check_kept(run: RunDirectory, config: Config, override: Override) -> None:
    """Check that a change is of a key of the last stage.

    Raises:
        ConfigError: it is of a key of the whole run, or of another stage, which a replay keeps.
    """
    key, section = ".".join(override.keys), override.keys[0]
    if _of_stage(config.stages[-1], override) is not None or section not in Config.model_fields:
        return
    if load_config(run, override) == config:
        return
    given = shlex.quote(f"{key}={_value(override)}")
    said = f"a replay keeps {key!r}, for it changes keys of the last stage alone"
    if section in _COMMANDS:
        raise ConfigError(f"{said}; this one is of what comes after training: swerve {section} {run.quoted} {given}")
    path = shlex.quote(str(run.config_path))
    raise ConfigError(f"{said}; train another run with it: swerve train {path} {given} --out DIR")


def _checked(
    run: RunDirectory,
    config: Config,
    variations: Sequence[Variation],
    taught: str | None,
    *,
    start: str | int | None,
    to: str | int | None,
) -> Stretch:
    """Return the steps that are made once more; what cannot be is said before torch is imported."""
    settings = [setting for variation in variations for setting in variation.settings]
    for setting in settings:
        override = parse_override(setting)
        _check_kept(run, config, override)
        own = _of_stage(config.stages[-1], override)
        if own is not None and own != setting:
            raise ConfigError(f"--set {setting}: keys are those of the last stage, without its name: --set {own}")
    if start is None:
        raise ConfigError("--from STEP is missing: the step of the last stage after which the change begins")
    stretch = Stretch.of(config, run, str(start), None if to is None else str(to))
    load_config(run, *(f"stages.{stretch.stage.label}.{setting}" for setting in settings))  # they are right
    if taught is not None and taught not in TARGETS:
        raise ConfigError(f"--taught {taught!r} must be {' or '.join(TARGETS)}")
    if taught is not None and variations:
        raise ConfigError("--taught is asked of the run as it was: leave --without, --flip and --set out")
    if taught == "first_wrong" and not (run.probe_path / "sequences.parquet").is_file():
        raise ConfigError(f"{run.path} has no target first_wrong: probe it first")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ConfigError("a replay with a change, or a map, runs in one process: start it without torchrun")
    kinds: set[str] = set()
    if any(variation.without_kind for variation in variations):
        problems = load_family(config.task).problems("train", seed=derive_seed(config.seed, "problems"))
        kinds = {problem.kind for problem in problems}
    stretch.check(variations, read_rollouts(run, stretch.before + stretch.first + 1), kinds)
    return stretch


def _changed(
    run: RunDirectory,
    config: Config,
    variations: Sequence[Variation],
    taught: str | None,
    stretch: Stretch,
    *,
    again: bool,
    progress: Progress,
) -> Replays | Taught:
    """Make the steps once more with each change, or look for who taught a target; both write into `replay/`."""
    what = digest_of(repr(variations))[:8] if taught is None else taught
    name = f"{stretch.first}-{stretch.stop}-{'again' if again else 'recorded'}-{what}"
    path = run.path / "replay" / f"{name}.json"
    run.check_links()
    try:
        path.parent.mkdir(exist_ok=True)
    except FileExistsError:
        raise ConfigError(f"{path.parent} is no folder, and replays are kept there; move it away") from None
    for known in path.parent.glob(f"{name}*.json"):
        try:
            read_sealed(known)
        except ArtifactError as error:
            raise ArtifactError(f"{error}; move it away, and it is made again") from None
    for folder in path.parent.glob(f"{name}*.partial"):
        Parts(folder, None).begun()
    set_thread_environment(config.runtime)
    with (
        locked(run.path / ".lock", run.path, shared=True, remedy=_REMEDY),
        locked(path.with_name(f".{name}.lock"), path, shared=False, remedy=_REMEDY),
    ):
        if taught is None:
            from swerve.train.counterfactual import run_on

            return run_on(config, run, variations, stretch, path=path, progress=progress)
        from swerve.train.proof import who_taught

        return who_taught(config, run, taught, stretch, again=again, path=path, progress=progress)


def _listed(values: str | Sequence[str]) -> list[str]:
    return [values] if isinstance(values, str) else list(values)
