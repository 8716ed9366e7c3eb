"""Checkpoints, written as a whole or not at all; and whether a model can be saved, tried before training begins."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from swerve.artifacts.checkpoint import BASE, STATE_NAME, CheckpointRef
from swerve.artifacts.files import atomic_directory, dump_json, passing_directory
from swerve.errors import CheckpointError, DiskFullError, WriteError, said_by
from swerve.models.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS, adapter_entry, adapter_tensors, base_digest
from swerve.models.description import token_settings, was_read, write_description
from swerve.models.export import export_model
from swerve.models.folder_checks import quiet_transformers
from swerve.models.model_card import WeightsOrigin
from swerve.models.model_folder import (
    WEIGHTS,
    load_model,
    load_tokenizer,
    stored_tensors,
    tokenizer_fingerprint,
)
from swerve.models.weight_shards import shards_digest, write_shards
from swerve.version import __version__
from swerve.world import ALONE, World

_TRIED_WHOLE = 1 << 24
"""Weights of a model that is saved as a whole in a trial."""
_tried: set[str] = set()
"""Digests of what was saved once by this process, all but the weights' values."""


def save_checkpoint(
    checkpoint: CheckpointRef,
    *,
    model: PreTrainedModel,
    weights: Mapping[str, Tensor] | None = None,
    tokenizer: PreTrainedTokenizerBase,
    trainer_state: Mapping[str, Mapping[str, Tensor]],
    provenance: Mapping[str, Any],
    base: Path | str | None = None,
    world: World = ALONE,
) -> CheckpointRef:
    """Write a checkpoint at `checkpoint.path`, as a whole or not at all; return it with the digest of its weights.

    Of a model with an adapter it is the adapter alone, and what names its base.

    Args:
        checkpoint: where, and what it is.
        model: its configuration is written, and its weights.
        weights: these instead of the model's own; they may be divided over the processes.
        tokenizer: written beside the model.
        trainer_state: what resuming needs besides, by file name and tensor name.
        provenance: further entries of the manifest.
        base: of a model with an adapter: the folder or hub name of its base.
        world: the processes that write it together, on one file system; all must call this with the same arguments.

    Raises:
        DiskFullError: no room; earlier checkpoints are intact.
        ArtifactError: the operating system refuses.
    """
    weights = model.state_dict() if weights is None else weights
    stored = stored_tensors(model, weights) if base is None else adapter_tensors(model, weights)
    manifest: dict[str, Any] = {"tokenizer_sha256": tokenizer_fingerprint(tokenizer), **provenance}
    if base is not None:
        manifest["base_sha256"] = base_digest(base)
    position = {name: getattr(checkpoint, name) for name in ("step", "stage", "stage_step", "scheduled", "final")}
    with _directory_of_all(checkpoint.path, manifest, {**position, "swerve_version": __version__}, world) as folder:
        # The first process writes what is not tensors; then all of them write those.
        if world.is_main:
            (folder / STATE_NAME).mkdir()
            with quiet_transformers():
                tokenizer.save_pretrained(folder)
                if base is None:
                    write_description(folder, model, _widest(stored))
                else:
                    entry = dump_json(adapter_entry(model, _name_in(checkpoint.path, base)))
                    (folder / ADAPTER_CONFIG).write_text(entry, encoding="utf-8")
        world.barrier()  # the folder is there
        stem = WEIGHTS if base is None else Path(ADAPTER_WEIGHTS).stem
        digests = write_shards(folder, stem, stored, world)
        manifest["weights_sha256"] = shards_digest(digests)
        for name, tensors in trainer_state.items():
            written = write_shards(folder / STATE_NAME, name, tensors, world)
            digests |= {f"{STATE_NAME}/{file}": digest for file, digest in written.items()}
        manifest["files"] = digests
    return replace(checkpoint, weights_sha256=manifest["weights_sha256"])


@contextmanager
def _directory_of_all(
    path: Path, manifest: Mapping[str, Any], provenance: Mapping[str, Any], world: World
) -> Iterator[Path]:
    """Let processes write into one `atomic_directory`; the first one finishes it when all have left the block."""
    if world.is_main:
        with atomic_directory(path, manifest, **provenance) as folder:
            world.gather(folder.name)
            yield folder  # until all have been asked for their digests
    else:
        yield path.with_name(world.gather(None)[0])
    world.barrier()


def _widest(weights: Mapping[str, Tensor]) -> torch.dtype:
    """Return the type that holds all weights: those that were frozen may be stored in a narrower one."""
    types = [tensor.dtype for tensor in weights.values() if tensor.is_floating_point()]
    return max(types, key=lambda dtype: dtype.itemsize)


def _name_in(checkpoint: Path, base: Path | str) -> str:
    """Return what a checkpoint calls its base: a folder of the same run by its place beside, so that runs can move."""
    folder, run = Path(base).absolute(), checkpoint.absolute().parent.parent
    if not folder.is_dir():
        return str(base)
    return os.path.relpath(folder, checkpoint.absolute()) if run in folder.parents else str(folder)


def check_saving(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    weights: Mapping[str, Tensor],
    place: Path,
    *,
    base: Path | str | None = None,
) -> None:
    """Save the model that training begins with, read that and export it: what fails after the work fails before it.

    Of a large model, a divided one, or a new one of swerve's own making, no weights are written: only their names and
    shapes in files are formed.

    Args:
        model: as training begins with it.
        tokenizer: the model's.
        weights: what its checkpoints hold; they may be divided over the processes.
        place: a folder of this name is written, and removed.
        base: see `save_checkpoint`.

    Raises:
        CheckpointError: it cannot be saved, or is another one when it is read again.
        DiskFullError: no room.
        ArtifactError: the operating system refuses.
    """
    shapes = {name: [str(value.dtype), *value.shape] for name, value in weights.items()}
    said = [model.config.to_json_string(), model.generation_config, getattr(tokenizer, "chat_template", None), shapes]
    digest = hashlib.sha256(f"{said} {tokenizer_fingerprint(tokenizer)} {base}".encode()).hexdigest()
    if digest in _tried:
        return
    is_whole = not any(hasattr(value, "full_tensor") for value in weights.values())
    num_weights = sum(value.numel() for value in weights.values())
    try:
        with passing_directory(place) as folder:
            if is_whole and was_read(model) and num_weights <= _TRIED_WHOLE:
                read = _saved_and_read(model, tokenizer, weights, folder, base)
            else:
                read = _described_and_read(model, tokenizer, weights, folder, base)
            _check_same(tokenizer, read, "the tokenizer")
    except (DiskFullError, WriteError):
        raise
    except Exception as error:  # transformers refuses with types of its own
        raise CheckpointError(
            f"the model that training begins with cannot be saved and read again: {said_by(error)}; mend its folder, "
            "or take another model"
        ) from error
    _tried.add(digest)


def _saved_and_read(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    weights: Mapping[str, Tensor],
    folder: Path,
    base: Path | str | None,
) -> PreTrainedTokenizerBase:
    """Write a checkpoint and its export; return the tokenizer of the latter."""
    place = CheckpointRef(path=folder / "saved", step=0, stage=BASE, stage_step=0, scheduled=True, final=True)
    save_checkpoint(
        place, model=model, weights=weights, tokenizer=tokenizer, trainer_state={}, provenance={}, base=base
    )
    read = load_model(place.path, device="cpu", dtype="float32")
    ends = [getattr(one.generation_config, "eos_token_id", None) for one in (model, read.model)]
    if base is None and ends[0] != ends[1]:
        raise CheckpointError("the tokens that end a completion are others then")
    for name, value in weights.items():
        if base is None and not torch.equal(read.model.state_dict()[name], value.cpu().float()):
            raise CheckpointError(f"the weight '{name}' is another one then")
    export_model(WeightsOrigin(folder=place.path), folder / "exported", dtype=None)
    _check_same(tokenizer, read.tokenizer, "the tokenizer")
    return load_tokenizer(folder / "exported")


def _described_and_read(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    weights: Mapping[str, Tensor],
    folder: Path,
    base: Path | str | None,
) -> PreTrainedTokenizerBase:
    """Write all of a checkpoint but the weights, whose names in files are formed; return the tokenizer read again."""
    with quiet_transformers():
        tokenizer.save_pretrained(folder)
        if base is None:
            empty = {
                name: torch.empty(value.shape, dtype=value.dtype, device="meta") for name, value in weights.items()
            }
            empty |= {name: empty[owner] for name, owner in model.all_tied_weights_keys.items() if owner in empty}
            write_description(folder, model, _widest(stored_tensors(model, empty)))
            AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
            token_settings(folder)
            model.config.to_json_string(use_diff=True)  # what an export writes
    return load_tokenizer(folder)


def _check_same(tokenizer: PreTrainedTokenizerBase, read: PreTrainedTokenizerBase, what: str) -> None:
    """Check that a tokenizer that was written is read as it was."""
    same = [
        (tokenizer_fingerprint(one), one.chat_template, one.eos_token_id, one.bos_token_id, one.pad_token_id)
        for one in (tokenizer, read)
    ]
    texts = [one("A b, 12 \n<x> é", add_special_tokens=True)["input_ids"] for one in (tokenizer, read)]
    if same[0] != same[1] or texts[0] != texts[1]:
        raise CheckpointError(f"{what} is another one then")
