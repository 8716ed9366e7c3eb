"""LoRA adapters: trained weights of low rank beside a model's frozen linear layers, in peft's layout on disk.

A model with an adapter is a tree of modules of its own around the tensors of its base. So a base and any number of
models with adapters of it hold its weights once, and each can be used whenever it is needed.
"""

from __future__ import annotations

import copy
import hashlib
import os
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from swerve.artifacts.files import MANIFEST_NAME, read_json, read_manifest, sha256_file
from swerve.config.models import LoraConfig
from swerve.errors import CheckpointError, ConfigError, MissingExtraError, nearest, said_by
from swerve.models.folder_checks import quiet_transformers
from swerve.models.folder_metadata import PICKLED
from swerve.models.hub import local_folder

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_ACTIVE = "default"
_TENSORS = (".lora_A.weight", ".lora_B.weight")
_PREFIX = "base_model.model."
_DESCRIBED = ("config.json", ADAPTER_CONFIG)


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter, not a model."""
    return (folder / ADAPTER_CONFIG).is_file()


def has_adapter(model: nn.Module) -> bool:
    """Whether a model in memory has an adapter beside its weights."""
    return bool(getattr(model, "peft_config", None))


def adapter_base(folder: Path) -> str:
    """Return the folder or hub name of the model that an adapter belongs to; a relative one begins at the adapter.

    Raises:
        CheckpointError: the adapter has no safetensors or names no base; the base is gone, or another than the adapter
            was trained on.
    """
    if not (folder / ADAPTER_WEIGHTS).is_file():
        pickled = next((file for file in sorted(folder.glob("*")) if file.suffix in PICKLED), None)
        why = f"; {pickled.name} is pickled, which is not read" if pickled else ""
        raise CheckpointError(f"the adapter in {folder} has no {ADAPTER_WEIGHTS}{why}")
    base, name = _named_base(folder)

    # Behind adapters of adapters there must be a model.
    passed, further = {folder.resolve()}, Path(base)
    while is_adapter(further):
        if further.resolve() in passed:
            raise CheckpointError(f"{folder} is an adapter of adapters that name each other; no model is behind them")
        passed.add(further.resolve())
        further = Path(_named_base(further)[0])

    # It must be there, and be what the adapter was trained on.
    recorded = read_manifest(folder).get("base_sha256") if (folder / MANIFEST_NAME).is_file() else None
    if not Path(base).is_dir() and name.startswith((".", "/")):
        raise CheckpointError(
            f"{folder} is an adapter of {os.path.normpath(folder / name)}, which is not there any more; put it, or a "
            "link, there"
        )
    if recorded is not None and base_digest(base) != recorded:
        raise CheckpointError(
            f"{folder} is an adapter of {base} as it was in training, which has changed since; put the earlier one back"
        )
    return base


def _named_base(folder: Path) -> tuple[str, str]:
    """Return the base that an adapter names, a folder beside it as its path, and the name itself."""
    entry = read_json(folder / ADAPTER_CONFIG)
    name = entry.get("base_model_name_or_path") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name or (folder / name).resolve() == folder.resolve():
        raise CheckpointError(
            f"{folder / ADAPTER_CONFIG} names no base_model_name_or_path; put the model's folder there"
        )
    beside = Path(os.path.normpath(folder / name))
    revision = entry.get("revision")
    return str(beside) if beside.is_dir() else f"{name}#{revision}" if revision else name, name


def whole_folder(folder: Path) -> Path:
    """Return the folder of whole weights behind an adapter, which may stand beside another; of a model its own.

    Raises:
        CheckpointError: see `adapter_base`.
    """
    return whole_folder(local_folder(adapter_base(folder))) if is_adapter(folder) else folder


def base_digest(path: Path | str) -> str:
    """Return a digest of what a model computes with: a folder's weights and configuration, or the hub's commit."""
    if not Path(path).is_dir():
        return hashlib.sha256(f"{str(path).partition('#')[0]} {local_folder(path).name}".encode()).hexdigest()
    folder = Path(path)
    listed = read_manifest(folder)["files"] if (folder / MANIFEST_NAME).is_file() else None
    files = sorted(file for file in folder.iterdir() if file.suffix == ".safetensors" or file.name in _DESCRIBED)
    digests = []
    for file in files:
        digests.append(f"{file.name} {file_digest(file) if listed is None else listed.get(file.name)}")
    if is_adapter(folder):
        digests.append(base_digest(adapter_base(folder)))
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file, which is read once for as long as it does not change."""
    known = file.stat()
    return _file_digest(file, known.st_mtime_ns, known.st_size)


@cache
def _file_digest(file: Path, _changed: int, _size: int) -> str:
    return sha256_file(file)


def sharing_copy(model: PreTrainedModel, *, whole: bool = False) -> PreTrainedModel:
    """Return a copy of a model that shares the memory of its frozen weights, or of the `whole`; others are copied."""
    weights = [parameter for parameter in model.parameters() if whole or not parameter.requires_grad]
    shared: dict[int, Any] = {id(weight): nn.Parameter(weight.detach(), requires_grad=False) for weight in weights}
    return copy.deepcopy(model, shared)


def linear_layers(model: PreTrainedModel) -> list[str]:
    """Return the names of the linear layers that an adapter may stand beside: all but the output head.

    GPT-2's `Conv1D` is a linear layer whose weight is stored the other way round.
    """
    untyped: Any = model
    head = untyped.get_output_embeddings()
    modules = model.named_modules()
    return [name for name, module in modules if type(module) in (nn.Linear, Conv1D) and module is not head]


def new_adapter(base: PreTrainedModel, lora: LoraConfig, *, seed: int) -> PreTrainedModel:
    """Return a model of frozen weights, which it shares with `base`, and a new adapter that changes nothing yet.

    Raises:
        ConfigError: a target is no linear layer of the model, or one that adapters do not work with.
        MissingExtraError: peft is not installed.
    """
    peft = _peft("model.lora")
    targets = _targets(base, lora)
    settings = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=targets,
        task_type="CAUSAL_LM",
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in base.modules()),
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(action="ignore"):
        torch.manual_seed(seed)
        try:
            model = peft.inject_adapter_in_model(settings, sharing_copy(base.requires_grad_(False)))
        except ValueError as error:  # layers that peft knows not to work with adapters
            raise ConfigError(f"model.lora.targets: {said_by(error)}") from error

    # What was adapted is checked; the adapter is float32 whatever the base is.
    layers = linear_layers(base)
    for name, parameter in model.named_parameters():
        if _is_adapted(name):
            layer = name.partition(".lora_")[0]
            if layer not in layers:  # peft takes the experts of some architectures for their linear layers
                raise ConfigError(
                    f"model.lora.targets: peft would adapt '{layer}' too, which is no linear layer; name the layers "
                    f"of attention alone, such as [q_proj, v_proj]"
                )
            parameter.data = parameter.data.float()
    return cast(PreTrainedModel, model)


def _targets(model: PreTrainedModel, lora: LoraConfig) -> list[str]:
    """Return the last parts of the names of the layers that an adapter stands beside."""
    layers = linear_layers(model)
    leaves = sorted({name.rpartition(".")[2] for name in layers})
    if not layers:
        raise ConfigError(f"model.lora: {type(model).__name__} has no linear layers for an adapter to stand beside")
    if lora.targets == "all_linear":
        return leaves
    for target in lora.targets:
        if not any(f".{name}".endswith(f".{target}") for name in layers):
            raise ConfigError(
                f"model.lora.targets: '{target}' is no linear layer of {type(model).__name__} before its output head"
                f"{nearest(target, leaves)}; it has {', '.join(leaves)}"
            )
    return sorted(lora.targets)


def _is_adapted(name: str) -> bool:
    return ".lora_A." in name or ".lora_B." in name


def trainable_names(model: PreTrainedModel) -> list[str]:
    """Return the names of the parameters that can be trained: the adapter's, or all of a model without one."""
    is_adapted = has_adapter(model)
    return [name for name, _ in model.named_parameters() if not is_adapted or _is_adapted(name)]


def adapter_tensors(model: PreTrainedModel, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a model's adapter by peft's names for them in files.

    Args:
        model: with an adapter.
        values: of its parameters, by their names in the model.
    """
    own = {name: value for name, value in model.state_dict().items() if _is_adapted(name)}
    return {_stored_name(name): values.get(name, value).detach() for name, value in own.items()}


def _stored_name(name: str) -> str:
    return _PREFIX + name.replace(f".{_ACTIVE}.", ".")


def adapter_entry(model: PreTrainedModel, base: str) -> dict[str, Any]:
    """Return the adapter_config.json of a model's adapter; `base` is the folder or hub name of its base."""
    settings: Any = model.peft_config[_ACTIVE]
    alpha = float(settings.lora_alpha)
    name, _, revision = base.partition("#")
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": name,
        "revision": revision or None,
        "r": settings.r,
        "lora_alpha": int(alpha) if alpha.is_integer() else alpha,
        "lora_dropout": settings.lora_dropout,
        "fan_in_fan_out": settings.fan_in_fan_out,
        "target_modules": sorted(settings.target_modules),
        "bias": "none",
        "inference_mode": True,
    }


def with_adapter(base: PreTrainedModel, folder: Path, tensors: Mapping[str, Tensor], *, dtype: str) -> PreTrainedModel:
    """Return a model of frozen weights, which it shares with `base`, and the adapter of a folder.

    An adapter that is more than matrices beside linear layers is merged into weights of its own.

    Args:
        base: in memory.
        folder: the adapter's.
        tensors: its weights.
        dtype: of the adapter.

    Raises:
        CheckpointError: the adapter does not fit its base.
        MissingExtraError: peft is not installed.
    """
    peft = _peft(f"the adapter in {folder}")
    own = sharing_copy(base.requires_grad_(False))
    try:
        with quiet_transformers(), warnings.catch_warnings(action="ignore"):
            settings = peft.PeftConfig.from_pretrained(str(folder))
            if not (
                settings.peft_type.value == "LORA"
                and all(name.endswith(_TENSORS) for name in tensors)
                and settings.init_lora_weights in (True, False, "gaussian", "orthogonal")
                and not (settings.use_dora or settings.layer_replication)
            ):
                return merge_adapter(own, folder)
            settings.inference_mode = True
            model = peft.inject_adapter_in_model(settings, own, low_cpu_mem_usage=True)
            if type(model.get_output_embeddings()) is not nn.Linear:
                return merge_adapter(sharing_copy(base), folder)  # losses and the probe want the head as a plain layer
    except CheckpointError:
        raise
    except Exception as error:  # what does not fit is found out in many places
        raise CheckpointError(f"cannot use the adapter in {folder}: {said_by(error)}") from error
    places = {_stored_name(name): name for name, _ in model.named_parameters() if _is_adapted(name)}
    _check_keys(folder, set(places), set(tensors))
    # Copies in memory of torch's own: CPU kernels round what lies unaligned in a file's memory otherwise.
    to = {"device": model.device, "dtype": getattr(torch, dtype), "copy": True}
    try:
        copies = {places[key]: tensor.to(**to) for key, tensor in tensors.items()}
        model.load_state_dict(copies, strict=False, assign=True)
    except RuntimeError as error:
        raise CheckpointError(f"the adapter in {folder} does not fit its model: {said_by(error)}") from error
    return cast(PreTrainedModel, model.eval().requires_grad_(False))


def _check_keys(folder: Path, described: set[str], stored: set[str]) -> None:
    odd = sorted(described ^ stored)
    if odd:
        what = "missing" if odd[0] in described else "unexpected"
        raise CheckpointError(f"the adapter in {folder} does not fit its model: {what} keys {odd[:3]}")


def merge_adapter(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """Return a model with the adapter of a folder added to its weights, which replaces the model.

    Raises:
        CheckpointError: the adapter does not fit.
        MissingExtraError: peft is not installed.
    """
    peft = _peft(f"merging the adapter in {folder}")
    try:
        with quiet_transformers(), warnings.catch_warnings(action="ignore"):
            wrapped = peft.PeftModel.from_pretrained(model, str(folder))
            described = set(peft.get_peft_model_state_dict(wrapped))
            with safe_open(folder / ADAPTER_WEIGHTS, framework="pt") as stored:
                keys = set(stored.keys())
            whole = wrapped.merge_and_unload(safe_merge=True)
    except Exception as error:  # what does not fit is found out in many places
        raise CheckpointError(f"cannot merge the adapter in {folder}: {said_by(error)}") from error
    _check_keys(folder, described, keys)
    return cast(PreTrainedModel, whole)


def whole_tensors(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Yield a model's weights by their Hugging Face names, one at a time; an adapter is added to its layers."""
    modules = dict(model.named_modules())
    for name, value in model.state_dict().items():
        layer, _, own = name.rpartition(".base_layer.")
        if layer and own == "weight":
            value = value.float() + cast(Any, modules[layer]).get_delta_weight(_ACTIVE).float()
        if not _is_adapted(name):
            yield plain_name(name), value


def whole_matrices(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Yield those of `whole_tensors` that are parameters of two dimensions or more; tied ones once."""
    names = {plain_name(name) for name, parameter in model.named_parameters() if parameter.dim() >= 2}
    return ((name, value) for name, value in whole_tensors(model) if name in names)


def plain_name(name: str) -> str:
    """Return the Hugging Face name of a parameter that an adapter may stand beside.

    >>> plain_name("model.layers.0.self_attn.q_proj.base_layer.weight")
    'model.layers.0.self_attn.q_proj.weight'
    """
    return name.replace(".base_layer.", ".")


def _peft(purpose: str) -> Any:
    try:
        import peft
    except ImportError:
        raise MissingExtraError("peft", "peft", purpose) from None
    return peft
