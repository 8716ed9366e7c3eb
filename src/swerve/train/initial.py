"""The model that a run begins with: the recipe's, or a new tiny one, which can be made again at any time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from swerve.artifacts.files import MANIFEST_NAME, atomic_directory
from swerve.artifacts.run import RunDirectory
from swerve.config import Config, PretrainedModel, SftStage, TinyModel, TorchEngineConfig
from swerve.config.engines import ServerEngineConfig, VllmEngineConfig
from swerve.errors import CheckpointError, ConfigError
from swerve.models.model_folder import resolve_device, tokenizer_fingerprint, weights_fingerprint
from swerve.models.tiny import build_tiny_model, build_word_tokenizer, learn_tokenizer
from swerve.models.trial import quiet_transformers
from swerve.problems import ProblemFamily, load_family
from swerve.rollout.decoding import check_decoding, check_samples
from swerve.rollout.vllm_versions import check_transfer, check_vllm
from swerve.seeds import derive_seed

_OPEN_PATH = "MODEL"
"""What shipped recipes have in the place of a trained model."""
_PROBLEMS_LEARNED = 4000
"""From how many training problems a vocabulary is learned at most."""


def has_open_model(config: Config) -> bool:
    """Whether a recipe leaves it open which trained model it begins with."""
    return isinstance(config.model, PretrainedModel) and config.model.path == _OPEN_PATH


def pretrained_path(model: PretrainedModel) -> str:
    """Return the model's folder or hub name.

    Raises:
        ConfigError: the recipe leaves it open.
    """
    if model.path == _OPEN_PATH:
        raise ConfigError(
            f"the recipe leaves the model open (model.path: {_OPEN_PATH}); give one with model.path=FOLDER, or the "
            "name of a model on the hub"
        )
    return model.path


def check_sampling(config: Config, model: PreTrainedModel | PreTrainedConfig) -> None:
    """Check that a recipe whose training samples has a model that its engine can sample from.

    Args:
        config: the recipe; what watches training (`every`) samples with this engine too.
        model: the recipe's, or its configuration, of which less can be told.

    Raises:
        ConfigError: it cannot; see `check_decoding` and `check_vllm`.
        MissingExtraError: the engine is vLLM, which is not installed.
    """
    samples = not all(isinstance(stage, SftStage) for stage in config.stages)
    if samples and isinstance(config.rollout.engine, VllmEngineConfig):
        check_vllm(model.config if isinstance(model, PreTrainedModel) else model)
    if isinstance(config.rollout.engine, ServerEngineConfig) and config.rollout.engine.weights == "transfer":
        check_transfer(resolve_device(config.runtime.device).partition(":")[0])
    is_embedded = isinstance(config.rollout.engine, TorchEngineConfig)
    if (samples and is_embedded) or config.eval.every is not None or config.probe.every is not None:
        if isinstance(model, PreTrainedModel):
            check_decoding(model)
        else:
            check_samples(model)


def new_tiny_model(config: Config, family: ProblemFamily) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Return the recipe's tiny model with its first weights, and the tokenizer of the task's words or sub-words.

    Raises:
        ConfigError: the task's texts have no fixed vocabulary, and the model's `vocabulary` is not set.
    """
    tiny = cast(TinyModel, config.model)
    if tiny.vocabulary is not None:
        problems = family.problems("train", seed=derive_seed(config.seed, "problems"))[:_PROBLEMS_LEARNED]
        texts = (text for one in problems for text in (one.question, one.solution or one.answer))
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
        if path.startswith((".", "/", "~")) and not Path(path).is_dir():
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
