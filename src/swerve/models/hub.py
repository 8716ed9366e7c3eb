"""Models of the hub, fetched as a whole before they are used: from then on they are folders."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from huggingface_hub import HfApi, ModelInfo, constants, get_token, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import logging as hub_logging
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

from swerve.artifacts.files import check_space, regular_file
from swerve.config.models import ModelConfig, PretrainedModel
from swerve.errors import ArtifactError, CheckpointError, ConfigError, DiskFullError, keep_secret, nearest, said_by
from swerve.models.folder_metadata import PICKLED

_READ = (".safetensors", ".json", ".jinja", ".model", ".txt", ".tiktoken")
"""Endings of the files that models and tokenizers are read from."""


_OPEN_PATH = "MODEL"
"""What shipped recipes have in the place of a trained model."""


def is_left_open(model: ModelConfig) -> bool:
    """Whether a recipe leaves it open which trained model it begins with."""
    return isinstance(model, PretrainedModel) and model.path == _OPEN_PATH


def pretrained_path(model: PretrainedModel) -> str:
    """Return the model's folder or hub name; the folder of `RUN:SELECTOR`.

    Raises:
        ConfigError: the recipe leaves it open.
        CheckpointError: there is no such run, or it has no such checkpoint.
    """
    if model.path == _OPEN_PATH:
        raise ConfigError(
            f"the recipe leaves the model open (model.path: {_OPEN_PATH}); give one with model.path=FOLDER, "
            "RUN:SELECTOR or the name of a model on the hub"
        )
    return checkpoint_folder(model.path)


def checkpoint_folder(name: str) -> str:
    """Return the folder of the checkpoint that `RUN:SELECTOR` names; a folder, or a name on the hub, as it is.

    Raises:
        CheckpointError: there is no such run, or it has no such checkpoint.
    """
    run, _, selector = name.rpartition(":")
    if not run or Path(name).exists():
        return name
    from swerve.artifacts.run import find_run  # what loads models alone knows no runs

    try:
        return str(find_run(run).select_checkpoint(selector).path)
    except ArtifactError as error:
        raise CheckpointError(f"there is no model {name}: {error}") from None


def local_folder(path: Path | str) -> Path:
    """Return the folder of a model: itself, or that of a hub name (`owner/name#revision`) in the hub's cache.

    What the cache lacks is fetched; where the hub cannot be reached, what is in the cache is taken.

    Raises:
        CheckpointError: there is no such model, it may not be read, has no safetensors, or the connection is lost.
        ArtifactError: there is no room, or the folder holds a named pipe, a socket or a device.
    """
    folder = Path(path)
    if not folder.is_dir():
        return _fetched(str(path))
    for file in (*folder.iterdir(), *folder.glob("additional_chat_templates/*")):
        if not file.is_dir():
            regular_file(file)  # the libraries that read them open whatever has the name
    return folder


@cache
def _fetched(path: str) -> Path:
    name, _, revision = path.partition("#")
    with quiet_hub():
        try:
            return _fetch(name, revision or None)
        except CheckpointError as error:
            raise CheckpointError(f"cannot fetch {path}: {error}") from error.__cause__
        except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
            raise CheckpointError(f"cannot find a model {path}: {refusal(error, name, revision)}") from error
        except OSError as error:
            if DiskFullError.matches(error):
                raise DiskFullError(constants.HF_HUB_CACHE, error) from error
            raise CheckpointError(f"cannot fetch {path}: {said_by(error)}") from error


def described(name: str, revision: str | None) -> ModelInfo | None:
    """Return what the hub says of a model; None where the hub cannot be reached, which it tries once.

    Raises:
        HfHubHTTPError: the hub has no such model, or refuses to say.
        HFValidationError: no model of the hub has this name, or it begins with a folder of this machine.
    """
    if Path(name.partition("/")[0]).exists():
        raise HFValidationError
    try:
        return HfApi().model_info(name, revision=revision, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except (HfHubHTTPError, HFValidationError) as error:
        if not isinstance(error, HfHubHTTPError) or error.response.status_code < 500:
            raise
        return None
    except Exception:  # what the hub's HTTP library raises differs between its versions
        return None


def check_model(path: str) -> None:
    """Check that the model of a recipe is there: its folder, or its name on the hub; nothing is fetched.

    Raises:
        ConfigError: it is not.
    """
    name, _, revision = path.partition("#")
    try:
        with quiet_hub():
            if not Path(path).is_dir() and described(name, revision or None) is None:
                snapshot_download(name, revision=revision or None, local_files_only=True)
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        raise ConfigError(f"cannot find the model of model.path={path}: {refusal(error, name, revision)}") from error


def _fetch(name: str, revision: str | None) -> Path:
    model = described(name, revision)
    if model is None:  # the hub cannot be reached
        return Path(snapshot_download(name, revision=revision, local_files_only=True))
    # What the model and its tokenizer are read from, at the top of the repository.
    sizes = {file.rfilename: file.size or 0 for file in model.siblings or ()}
    read = []
    for file in sizes:
        folder, _, last = file.rpartition("/")
        if last.endswith(_READ) and folder in ("", "additional_chat_templates"):
            read.append(file)
    if not any(file.endswith(".safetensors") for file in read):
        why = "it has no weights in safetensors files"
        pickled = next((file for file in sizes if file.endswith(PICKLED)), None)
        if pickled is not None:
            why += f", and {pickled} is pickled: reading a pickle runs whatever code is in it; take a converted copy"
        raise CheckpointError(why)

    lacking = [file for file in read if not isinstance(try_to_load_from_cache(name, file, revision=model.sha), str)]
    check_space(Path(constants.HF_HUB_CACHE), sum(sizes[file] for file in lacking))
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=read))
    except OSError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"the connection was lost ({said_by(error)}); run the command again: files that came whole are kept"
        ) from error


def refusal(error: Exception, name: str, revision: str) -> str:
    """Return why the hub, or the way to it, refuses a model, and what to do."""
    # What the hub's library raises, or what it says is the cause.
    match error.__cause__ if isinstance(error.__cause__, HfHubHTTPError | LocalEntryNotFoundError) else error:
        case GatedRepoError():
            return "it is gated; ask for access on the model's page, then log in with: hf auth login"
        case RepositoryNotFoundError():
            return "the hub has no model of this name, or it is private (log in with: hf auth login)"
        case RevisionNotFoundError():
            return f"the model has no revision '{revision}'; its page lists branches and tags"
        case HFValidationError():
            hint = nearest(name, map(str, Path(name).parent.glob("*")))
            if not hint and "checkpoints/" in name:
                hint = "; a checkpoint of a run is there once the run was trained"
            return f"there is no such folder, and it is no name on the hub (owner/name#revision){hint}"
        case LocalEntryNotFoundError():
            why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} cannot be reached"
            fetch = f"hf download --local-dir FOLDER {name}"
            return (
                f"{why}, and the cache in {constants.HF_HUB_CACHE} does not have all of it; without a network, fetch "
                f"it where there is one ({fetch}) and give the folder"
            )
    return said_by(error)


@contextmanager
def quiet_hub() -> Iterator[None]:
    """Keep the hub's warnings off standard error inside the block, and its progress bars unless it is a terminal.

    Its token is kept out of messages, from then on.
    """
    keep_secret(get_token())
    verbosity, has_bars = hub_logging.get_verbosity(), not are_progress_bars_disabled()
    hub_logging.set_verbosity(logging.CRITICAL)
    hides_bars = has_bars and not sys.stderr.isatty()
    if hides_bars:
        disable_progress_bars()
    try:
        yield
    finally:
        hub_logging.set_verbosity(verbosity)
        if hides_bars:
            enable_progress_bars()
