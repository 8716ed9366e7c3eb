"""The probe of models in vLLM servers: what these tell of each token of responses, and bounds of divergences."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from swerve import probe
from swerve.artifacts.parts import Parts
from swerve.artifacts.responses import Response
from swerve.artifacts.tables import BOUNDS_SCHEMA, write_table
from swerve.errors import ConfigError, EngineError
from swerve.functional import ToldLogprobs, divergence_bounds, entropy_bounds
from swerve.models.model_folder import load_tokenizer
from swerve.models.named_models import SERVED
from swerve.probe.from_files import import_file
from swerve.probe.recipe import ProbeRecipe
from swerve.progress import Progress
from swerve.rollout.server_client import UnreachableError, ask
from swerve.tokens import num_ids

_AT_A_TIME = 8
"""Requests that are open."""
_SECONDS = 600.0
"""For an answer."""
_BYTES_PER_TOKEN = 256
"""Of an answer, at most, for each token that it tells: id, log-probability, rank and text."""

_PLACES, _NUMBERS = ("sequence_id", "position", "token_id"), BOUNDS_SCHEMA.names[5:]


def probe_served(recipe: ProbeRecipe, *, progress: Progress) -> dict[str, Any]:
    """Write `bounds.parquet` for a file of responses: every token under the reference and under each checkpoint.

    What servers tell is kept until the table is written, so the same command continues after an interruption.

    Returns:
        The file; numbers of responses and tokens; of each checkpoint the means of the table's numbers, and with
        `check` the share of the exact means over the first responses that the bounds are.

    Raises:
        ConfigError: some models are not in a server, or there is a baseline.
        EngineError: a server fails, or does not tell log-probabilities of prompts.
        ArtifactError, CheckpointError: the responses, or the tokenizer, cannot be read.
    """
    if not all(recipe.models[name].startswith(SERVED) for name in recipe.used):
        raise ConfigError("some models are in servers and some are not; bounds need URL#MODEL for all of them")
    if recipe.baseline is not None:
        raise ConfigError("bounds compare checkpoints with one reference; give the baseline as another --checkpoint")
    local = {name: recipe.models[name].partition("#")[2] for name in recipe.used}
    tokenizer = load_tokenizer(recipe.tokenizer or local[recipe.reference])
    responses = import_file(recipe, tokenizer, None, Path(str(recipe.responses))).sequences

    # Each model tells what it knows of every response.
    parts = Parts(Path(recipe.out) / "bounds.partial", {"top_k": recipe.probe.top_k})
    parts.begin()
    told = {}
    with progress.task("score", len(responses) * len(local)) as task:
        for name in local:
            told[name] = asyncio.run(_score(recipe.models[name], responses, parts, task.advance))

    # Then it is compared, response by response.
    tables, means = [], {}
    for name in recipe.compared:
        pairs = zip(responses, told[name], told[recipe.reference], strict=True)
        numbers = [_bounds(index, *pair, num_ids(tokenizer)) for index, pair in enumerate(pairs)]
        table = pa.concat_tables(numbers).append_column("checkpoint", pa.array([name] * sum(map(len, numbers))))
        tables.append(table.append_column("reference", pa.array([recipe.reference] * len(table))))
        means[name] = {key: float(table[key].to_numpy().mean()) for key in _NUMBERS if "rank" not in key}
        if recipe.check:
            models = local[recipe.reference], {name: local[name]}
            probed: Any = probe(*models, responses[: recipe.check], dtype=recipe.runtime.dtype)
            exact = probed[name]
            for key in ("kl_forward", "kl_reverse", "js"):
                bounds = table[f"{key}_lower"].to_numpy()[: len(exact.js)]
                means[name][f"{key}_lower_of_exact"] = float(bounds.mean() / exact.statistics[key].mean())
    path = Path(recipe.out) / "bounds.parquet"
    write_table(path, pa.concat_tables(tables), BOUNDS_SCHEMA)
    parts.finish()
    return {"path": str(path), "responses": len(responses), "tokens": len(tables[0]), "means": means}


async def _score(
    model: str, responses: Sequence[Response], parts: Parts, advance: Callable[[], None]
) -> list[dict[str, Any]]:
    """Return what a server tells of each completion, some requests at a time; the first failure ends the rest."""
    room = asyncio.Semaphore(_AT_A_TIME)

    async def score(response: Response) -> dict[str, Any]:
        ids, start = [*response.prompt_ids, *response.completion_ids], len(response.prompt_ids)
        told: dict[str, Any] | None = parts.get("told", [model, ids, start])
        if told is None:
            async with room:
                told = await _told(model, ids, start, parts.inputs["top_k"])
            parts.put("told", [model, ids, start], told)
        advance()
        return told

    tasks = [asyncio.ensure_future(score(response)) for response in responses]
    return await asyncio.gather(*tasks)  # asyncio.run ends the others where one fails


async def _told(model: str, ids: Sequence[int], start: int, top_k: int) -> dict[str, Any]:
    """Return what a server tells of the tokens from `start` on.

    Raises:
        EngineError: it does not answer, refuses, or does not tell log-probabilities.
    """
    url, _, name = model.partition("#")
    body = {"model": name, "prompt": list(ids), "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": top_k}
    max_bytes = (1 << 20) + _BYTES_PER_TOKEN * len(ids) * (top_k + 1)
    try:
        answer = await ask(url, "POST", "/v1/completions", body, timeout=_SECONDS, max_bytes=max_bytes)
        return _read(answer["choices"][0]["prompt_logprobs"][start:], ids[start:], top_k)
    except UnreachableError as error:
        raise EngineError(f"{url}: {error}; what was told is kept, and the same command continues") from None
    except (KeyError, IndexError, TypeError, ValueError):
        raise EngineError(
            f"{url} does not tell the {top_k} most likely tokens at each token of a prompt (prompt_logprobs of "
            "/v1/completions, as vLLM does)"
        ) from None


def _read(listed: Sequence[Mapping[str, Mapping[str, Any]]], ids: Sequence[int], top_k: int) -> dict[str, Any]:
    """Return the realised token and the most likely others at each position, `top_k` together.

    Raises:
        ValueError: fewer are told.
    """
    told: dict[str, Any] = {"ids": [], "logprobs": [], "others": [], "ranks": []}
    for entries, token in zip(listed, ids, strict=True):
        logprobs = {int(key): float(entry["logprob"]) for key, entry in entries.items()}
        likely = sorted(logprobs, key=lambda key: -logprobs[key])[:top_k]
        chosen = [token, *(key for key in likely if key != token)][:top_k]
        if len(chosen) < top_k:
            raise ValueError
        told["ids"].append(chosen)
        told["logprobs"].append([logprobs[key] for key in chosen])
        told["others"].append(logprobs[likely[-1]])
        told["ranks"].append(int(entries[str(token)]["rank"]))
    return told


def _bounds(
    index: int, response: Response, own: Mapping[str, Any], other: Mapping[str, Any], vocabulary_size: int
) -> pa.Table:
    """Return the numbers of the sampled tokens of one response."""
    p, q = [
        ToldLogprobs(**{key: torch.tensor(side[key]) for key in ("ids", "logprobs", "others")}) for side in (own, other)
    ]
    columns = [
        torch.full(p.others.shape, index),
        torch.arange(len(p.others)),
        p.ids[:, 0],
        p.logprobs[:, 0],
        q.logprobs[:, 0],
        torch.tensor(own["ranks"]),
        torch.tensor(other["ranks"]),
        *divergence_bounds(p, q),
        *entropy_bounds(p, vocabulary_size=vocabulary_size),
        *entropy_bounds(q, vocabulary_size=vocabulary_size),
    ]
    table = pa.table([column.numpy() for column in columns], names=[*_PLACES, *_NUMBERS])
    return table.take(list(response.sampled_positions))
