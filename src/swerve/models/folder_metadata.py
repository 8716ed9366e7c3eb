"""What the files of a model's folder say before torch is imported: weights, headers, kind of model, tokenizer.

What is wrong with a folder is so said within a second. Whatever needs the model itself is checked where it is read.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from swerve.artifacts.files import MANIFEST_NAME, read_json, regular_file
from swerve.errors import ArtifactError, CheckpointError, ConfigError, MismatchError

PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".distcp")
"""Endings of files that are never read."""
INDEX = "model.safetensors.index.json"
_ADAPTER = "adapter_config.json"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt", "spiece.model")
_TYPE_TABLES = ("auto_mappings.py", "configuration_auto.py")
_POSITIONS = {
    **dict.fromkeys(("codegen", "ctrl", "gpt2", "gpt_bigcode", "gptj", "openai-gpt"), "n_positions"),
    **dict.fromkeys(("dbrx", "mpt"), "max_seq_len"),
    **dict.fromkeys(("bailing_hybrid", "kimi_linear"), "model_max_length"),
    "rwkv": "context_length",
}
"""Types of model -> what their config.json calls the number of positions, where that is not
`max_position_embeddings`."""
_STRETCHING = ("yarn", "linear", "dynamic")
"""Types of rotary angles with which a model may read more than it has positions; see `swerve.positions`."""
_MOST_HEADER = 100 * 2**20


def check_metadata(path: Path | str) -> None:
    """Check the folder of a model by what its files say.

    A name on the hub and an adapter's base are not looked at, nor is a checkpoint of swerve, whose files are of one
    model and have their digests in its manifest.

    Raises:
        CheckpointError: it has no weights in safetensors, or not all; a header or config.json is damaged; the weights
            are quantised, or of a model with an encoder; it has no tokenizer, or one with more ids than the model has.
    """
    folder = Path(path)
    if not folder.is_dir() or (folder / MANIFEST_NAME).is_file():
        return
    check_files(folder)
    for file in sorted(folder.glob("*.safetensors")):
        _check_header(file)
    if (folder / _ADAPTER).is_file():
        return
    config = _description(folder)
    if config.get("quantization_config") is not None:
        method = config["quantization_config"]
        method = method.get("quant_method") if isinstance(method, dict) else None
        raise CheckpointError(
            f"the weights in {folder} are quantised ({method or 'quantization_config'} in config.json), and quantised "
            "weights are not read; give the model that they were made from, or a dequantised copy"
        )
    if config.get("is_encoder_decoder"):
        raise CheckpointError(
            f"the model in {folder} (model_type {config.get('model_type')}) is an encoder and a decoder, and only "
            "causal models of text alone are read; give such a model of its family"
        )
    _check_type(folder, config.get("model_type"))
    check_tokenizer(folder)
    largest, size = max(_vocabulary(folder, with_added=False) or {-1: ""}), config.get("vocab_size")
    if isinstance(size, int) and largest >= size:
        raise CheckpointError(
            f"{folder}: the tokenizer has the token id {largest}, but the model has embeddings for {size} tokens only; "
            "the two do not belong together"
        )


def is_description(path: Path | str) -> bool:
    """Whether a folder has a model's config.json and no weights in any form: enough to say what training it takes."""
    folder = Path(path)
    endings = (".safetensors", *PICKLED)
    return (folder / "config.json").is_file() and not any(file.suffix in endings for file in folder.iterdir())


def check_files(folder: Path) -> None:
    """Check that a folder has the files that a model is read from.

    Raises:
        CheckpointError: it has no safetensors, or lacks config.json, or a file that its index names.
    """
    # Weights and their description.
    shards = sorted(file.name for file in folder.glob("*.safetensors"))
    if not shards:
        pickled = [file for pattern in ("*", "*/*") for file in sorted(folder.glob(pattern)) if file.suffix in PICKLED]
        if pickled:
            raise CheckpointError(
                f"{pickled[0]} is pickled, and reading a pickle runs whatever code is in it; convert the weights to "
                "safetensors where they were trained, with the script in docs/cli.md (Pickled checkpoints)"
            )
        raise CheckpointError(f"{folder} holds no weights: give a folder with config.json and *.safetensors")
    if not (folder / "config.json").is_file() and not (folder / _ADAPTER).is_file():
        raise CheckpointError(f"{folder} has no config.json; copy it there from the model that was trained")

    # Every file that the index names must be there.
    index = folder / INDEX
    if index.is_file():
        entry = read_json(index)
        places = entry.get("weight_map") if isinstance(entry, dict) else None
        if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
            raise CheckpointError(f"{index} is damaged: it has no 'weight_map' from tensors to files")
        missing = sorted(set(places.values()).difference(shards))
        if missing:
            raise CheckpointError(f"{folder} lacks {missing[0]}, which {INDEX} names; copy every shard")


def check_tokenizer(path: Path | str) -> None:
    """Check that a folder has a tokenizer, and that its tokenizer.json is one.

    Raises:
        CheckpointError: it has none, or it is damaged.
    """
    folder = Path(path)
    if not folder.is_dir() or (folder / _ADAPTER).is_file():
        return
    check_has_tokenizer(folder)
    _vocabulary(folder)


def has_tokenizer(folder: Path | str) -> bool:
    """Return whether a folder has a file of a tokenizer; transformers makes an empty one of other folders."""
    return any((Path(folder) / name).is_file() for name in _TOKENIZERS)


def check_has_tokenizer(folder: Path | str) -> None:
    """Check that a folder has a file of a tokenizer.

    Raises:
        CheckpointError: it has none.
    """
    if not has_tokenizer(folder):
        raise CheckpointError(
            f"{folder} has no tokenizer; copy its files there (tokenizer.json, tokenizer_config.json) from the model "
            "that was trained"
        )


def check_one_tokenizer(paths: Iterable[Path | str]) -> None:
    """Check that models have the same tokenizer, as far as their files say.

    Raises:
        MismatchError: an id stands for other tokens in two of them.
        CheckpointError: a tokenizer.json is damaged.
    """
    known = {path: words for path in paths if (words := _vocabulary(Path(path))) is not None}
    first = next(iter(known), None)
    for path, words in known.items():
        theirs = known[first] if first is not None else words
        differing = [number for number in sorted({*words, *theirs}) if words.get(number) != theirs.get(number)]
        if differing:
            number, num = differing[0], f"{len(differing):,}"
            such = f"{number}: {theirs.get(number)!r} in {first}, {words.get(number)!r} in {path}"
            raise MismatchError(
                f"{first} and {path} have different tokenizers, and only models with the same tokenizer can be "
                f"compared: {num} ids stand for other tokens, such as {such}"
            )


MOST_LAYERS = 1000
"""Of a model that is read."""


def check_positions(label: str, path: Path | str, num_new: int | None) -> None:
    """Check that a model has positions for completions of so many tokens, where its config.json says how many it has.

    Raises:
        ConfigError: it has fewer, and does not stretch them.
    """
    limit = positions_of(Path(path))
    if num_new is not None and limit is not None and num_new >= limit:
        raise ConfigError(
            f"a completion may have {num_new} tokens, with its prompt more than the model's {limit} positions "
            f"('{label}'); lower --max-new-tokens"
        )


def positions_of(folder: Path) -> int | None:
    """Return how many tokens a model can read; None: config.json is not there, or says it otherwise than plainly.

    Raises:
        CheckpointError: config.json is damaged.
    """
    if not (folder / "config.json").is_file():
        return None
    whole = _description(folder)
    config = whole["text_config"] if isinstance(whole.get("text_config"), dict) else whole
    name = _POSITIONS.get(str(config.get("model_type")), "max_position_embeddings")
    limit, rope = config.get(name), config.get("rope_parameters") or config.get("rope_scaling") or {}

    # One set of rotary angles, or one of each kind of layer; older files call the type of one `type`.
    if not isinstance(limit, int) or not isinstance(rope, dict):
        return None
    sets = [one for one in rope.values() if isinstance(one, dict)] or [rope]
    return None if any(one.get("rope_type", one.get("type")) in _STRETCHING for one in sets) else limit


def check_num_layers(folder: Path) -> None:
    """Check that a config.json describes no more layers than are read: transformers loops over them to read it.

    Raises:
        CheckpointError: it has more, or is damaged.
    """
    layers = _description(folder).get("num_hidden_layers") if (folder / "config.json").is_file() else None
    if isinstance(layers, int) and layers > MOST_LAYERS:
        raise CheckpointError(
            f"config.json of {folder} has num_hidden_layers={layers}, and at most {MOST_LAYERS} are read; give the "
            "config.json that the model came with"
        )


def _description(folder: Path) -> dict[str, Any]:
    try:
        config = read_json(folder / "config.json")
    except ArtifactError as error:
        raise CheckpointError(f"cannot load a model from {folder}: {error}") from None
    if not isinstance(config, dict):
        raise CheckpointError(f"cannot load a model from {folder}: config.json is no JSON object; copy it anew")
    return config


def _check_type(folder: Path, kind: Any) -> None:
    """Check that transformers knows a type of model, by the tables in its source: it is not imported.

    Raises:
        CheckpointError: it does not.
    """
    found = None if "transformers" in sys.modules else find_spec("transformers")
    tables = Path((found and found.origin) or "").parent / "models" / "auto"
    texts = [file.read_text(encoding="utf-8") for file in map(tables.joinpath, _TYPE_TABLES) if file.is_file()]
    if texts and kind is not None and not any(f'"{kind}"' in text for text in texts):
        raise CheckpointError(
            f"cannot load a model from {folder}: config.json has the model_type {kind!r}, which the installed "
            "transformers does not know; give a model of a type that it knows, or install a newer transformers"
        )


def _check_header(file: Path) -> None:
    """Check that a file of safetensors is as long as its header says."""
    size = regular_file(file).stat().st_size
    with file.open("rb") as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else _MOST_HEADER + 1
        header = stream.read(length) if length <= _MOST_HEADER else b""
    try:
        entries = json.loads(header)
        ends = [entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"]
        is_whole = 8 + length + max(ends, default=0) == size
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        is_whole = False
    if not is_whole:
        raise CheckpointError(f"{file} is damaged: it is not as long as its header says; copy it anew")


def _vocabulary(folder: Path, *, with_added: bool = True) -> Mapping[int, str] | None:
    """Return the tokens of a folder's tokenizer.json by id; None where it has no such file.

    Raises:
        CheckpointError: it is damaged.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        return None
    try:
        entry = read_json(file)
        words = entry["model"]["vocab"]
        pairs = words.items() if isinstance(words, dict) else ((word[0], place) for place, word in enumerate(words))
        known = {int(number): str(token) for token, number in pairs}
        added = {int(one["id"]): str(one["content"]) for one in entry.get("added_tokens") or ()}
        beside = folder / "tokenizer_config.json"
        more = read_json(beside).get("added_tokens_decoder") if beside.is_file() else None
        added |= {int(number): str(one["content"]) for number, one in (more or {}).items()}
    except (ArtifactError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        said = str(error) if isinstance(error, ArtifactError) else f"tokenizer.json is damaged ({type(error).__name__})"
        raise CheckpointError(f"cannot load a tokenizer from {folder}: {said}; copy it anew") from None
    if with_added:
        return {**known, **added}
    return {number: token for number, token in known.items() if number not in added}
