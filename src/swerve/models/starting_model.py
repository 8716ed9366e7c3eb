"""The model that a run begins with: the recipe's, or a new tiny one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from transformers import (
    AutoConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from swerve.artifacts.files import MANIFEST_NAME, atomic_directory
from swerve.artifacts.run import RunDirectory
from swerve.config.models import PretrainedModel, TinyModel
from swerve.config.recipe import Config
from swerve.errors import CheckpointError, ConfigError
from swerve.models.adapter import new_adapter, whole_folder
from swerve.models.folder_checks import check_configuration, quiet_transformers
from swerve.models.folder_metadata import check_num_layers
from swerve.models.hub import checkpoint_folder, described, local_folder, pretrained_path, quiet_hub, refusal
from swerve.models.model_folder import (
    check_vocabulary,
    load_base,
    load_tokenizer,
    tokenizer_fingerprint,
    weights_fingerprint,
)
from swerve.models.tiny import build_tiny_model, build_word_tokenizer, learn_tokenizer
from swerve.models.trial import check_causal
from swerve.problems import ProblemFamily, load_family
from swerve.seeds import derive_seed
from swerve.world import World

OTHER_TOKENS = "its tokenizer is not the one of the model in training; token-level divergences need the same"
_PROBLEMS_LEARNED = 4000
"""From how many training problems a vocabulary is learned at most."""


def read_architecture(path: str, *, key: str) -> tuple[PreTrainedConfig, PreTrainedTokenizerBase | None]:
    """Return a model's configuration, and its tokenizer where that is in a folder; its weights are not looked at.

    Args:
        path: a folder, of an adapter too, `RUN:SELECTOR`, or a hub name.
        key: the recipe's key that names it.

    Raises:
        ConfigError: there is no such model, or its configuration cannot be read.
        CheckpointError: it is no causal model of text, its weights are quantised, or it lacks tokens of its tokenizer.
    """
    name, _, revision = checkpoint_folder(path).partition("#")
    is_here = (folder := whole_folder(Path(name))).is_dir()
    if is_here:
        name = str(local_folder(folder))
        check_num_layers(Path(name))
    try:
        with quiet_transformers(), quiet_hub():
            config: PreTrainedConfig = AutoConfig.from_pretrained(
                name,
                revision=revision or "main",
                trust_remote_code=False,
                local_files_only=is_here or described(name, revision or None) is None,
            )
    except Exception as error:  # the parsers behind this call raise types of their own, without a common base
        raise ConfigError(f"cannot read the configuration of {key}={path}: {refusal(error, name, revision)}") from error
    check_configuration(name, config)
    check_causal(path, config)
    if not (Path(name) / "tokenizer_config.json").is_file():
        return config, None
    tokenizer = load_tokenizer(name)
    check_vocabulary(path, int(config.get_text_config().vocab_size), tokenizer)
    return config, tokenizer


def recipe_architecture(config: Config) -> tuple[PreTrainedConfig, PreTrainedTokenizerBase | None]:
    """Return the configuration of the recipe's model, and its tokenizer where that is at hand.

    Raises:
        ConfigError, CheckpointError: see `pretrained_path`, `read_architecture` and `new_tiny_model`.
    """
    if isinstance(config.model, PretrainedModel):
        return read_architecture(pretrained_path(config.model), key="model.path")
    model, words = new_tiny_model(config, load_family(config.task))
    return model.config, words


def new_tiny_model(config: Config, family: ProblemFamily) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Return the recipe's tiny model with its first weights, and the tokenizer of the task's words or sub-words.

    Raises:
        ConfigError: the task's texts have no fixed vocabulary, and the model's `vocabulary` is not set.
    """
    tiny = cast(TinyModel, config.model)
    if tiny.vocabulary is not None:
        problems = family.problems("train", seed=derive_seed(config.seed, "problems"))[:_PROBLEMS_LEARNED]
        texts = (text for problem in problems for text in (problem.question, problem.solution or problem.answer))
        tokenizer = learn_tokenizer(texts, tiny.vocabulary)
    elif family.is_prose:
        raise ConfigError(
            f"task '{config.task.kind}' has texts without a fixed vocabulary; learn a tiny model's tokens from them "
            "with model.vocabulary=512, or use a trained model: model.kind=pretrained model.path=FOLDER (task kinds "
            "palindrome and countdown have words with task.spaced=true)"
        )
    else:
        tokenizer = build_word_tokenizer(family.words)
    return build_tiny_model(tiny, tokenizer, seed=derive_seed(config.seed, "model")), tokenizer


def initial_model(config: Config, run: RunDirectory) -> Path | str:
    """Return the model that a run began with: the recipe's, or the tiny one, made again in the run's `initial/`.

    Raises:
        CheckpointError: the recipe's model is no longer where it was.
        ArtifactError: the folder cannot be written.
    """
    if isinstance(config.model, PretrainedModel):
        path = pretrained_path(config.model)
        if path.startswith((".", "/", "~")) and not Path(path).is_dir() and run.checkpoint_manifests():
            raise CheckpointError(f"{run.path} began with {path}, which is not there any more; give its copy's folder")
        return path
    return tiny_folder(config, run.initial_path)


def tiny_folder(config: Config, path: Path) -> Path:
    """Write the recipe's tiny model with its first weights to `path`, unless it is there; return the path.

    Raises:
        ArtifactError: the folder cannot be written.
    """
    if not (path / MANIFEST_NAME).is_file():
        model, tokenizer = new_tiny_model(config, load_family(config.task))
        digests: dict[str, Any] = {
            "weights_sha256": weights_fingerprint(model),
            "tokenizer_sha256": tokenizer_fingerprint(tokenizer),
        }
        with atomic_directory(path, digests) as folder, quiet_transformers():
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    return path


def starting_model(
    config: Config, run: RunDirectory, family: ProblemFamily, world: World
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the model and tokenizer that training begins with: the recipe's or new ones.

    Raises:
        ConfigError, CheckpointError: see `initial_model` and `new_tiny_model`.
    """
    if config.model.lora is None and isinstance(config.model, TinyModel):
        built, words = new_tiny_model(config, family)
        return cast(Any, built).to(device=world.device), words
    path = initial_model(config, run)
    if config.runtime.sharding.kind == "fsdp":
        model = load_base(path, device="cpu", dtype="auto", mapped_by=world)
    else:
        model = load_base(path, device=world.device, dtype="float32")
    if config.model.lora is not None:
        model = new_adapter(model, config.model.lora, seed=derive_seed(config.seed, "lora"))
    return model, load_tokenizer(path)
