"""Samples from an OpenAI-compatible server: texts in, texts out; neither tokenizer nor weights are needed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from swerve.artifacts.parts import Parts
from swerve.artifacts.responses import Response
from swerve.config.engines import OpenAIEngineConfig
from swerve.config.sampling import SampleJob
from swerve.errors import ArtifactError
from swerve.progress import Progress, ProgressTask
from swerve.prompts.encode import plain_prompt
from swerve.rewards import grade_all
from swerve.rollout.openai_client import OWN_DEFAULTS, OpenAIClient, TextRequest
from swerve.seeds import derive_seed
from swerve.types import Problem

_LOGPROBS_KEPT = (0.0, 1.0)
"""Temperatures at which a server's log-probs are those of `Response.logprobs`, whatever it was started with."""


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model on a server, and the problems that it is asked; the server is not asked before there is work for it."""

    engine: OpenAIEngineConfig
    name: str
    """The server's name for it."""
    prompts: Sequence[Problem]
    progress: Progress

    @property
    def info(self) -> dict[str, Any]:
        """What a file of samples says: how they are asked for, and of which model, whose weights are not known."""
        content = hashlib.sha256(self.name.encode()).hexdigest()
        return {
            "engine": self.engine.model_dump(mode="json", include={"kind", "api", "body"}),
            "model": {"source": f"{self.name} at {self.engine.url}", "fingerprint": content},
        }

    @cached_property
    def program(self) -> str:
        """What serves it, `vllm` say, as `/models` says. Where that does not help, it is noted once.

        Raises:
            ConfigError: the key is not there.
            EngineError: the server does not answer, or refuses the key.
        """
        listed = OpenAIClient(self.engine).models()
        entry = listed.get(self.name) or next(iter(listed.values()), {})
        program = str(entry.get("owned_by"))
        if program not in OWN_DEFAULTS:
            self.progress.note(
                f"{self.engine.url} does not say what serves it: temperature and seed are sent, and its own top_p, "
                "top_k and penalties hold where rollout.engine.body sets none"
            )
        return program


def served_model(job: SampleJob, problems: Sequence[Problem], progress: Progress) -> ServedModel:
    """Return the model of a job whose engine is a server."""
    engine = job.settings.rollout.engine
    assert isinstance(engine, OpenAIEngineConfig)
    return ServedModel(engine=engine, name=str(job.model), prompts=problems, progress=progress)


def ask_missing(
    model: ServedModel,
    job: SampleJob,
    chunks: Sequence[tuple[int, int]],
    kept: Parts,
    *,
    max_new_tokens: int,
    task: ProgressTask,
) -> None:
    """Ask the server for the samples of chunks of problems, and keep each when it comes.

    Args:
        model: what is sampled.
        job: how.
        chunks: first problem and end of each.
        kept: the answers so far, as JSON, which are not asked for again.
        max_new_tokens: of a completion.
        task: advanced by each sample.

    Raises:
        EngineError: see `OpenAIClient.each`.
    """
    client, missing = OpenAIClient(model.engine), list[tuple[int, int]]()
    for place in _places(job, chunks):
        known = kept.get("answer", place)
        if known is None:
            missing.append(place)
        else:
            client.count(known["said"])
            task.advance(1)
    try:
        requests = (_request(model, job, place, max_new_tokens) for place in missing)
        with closing(client.each(requests)) as answers:
            for request, text in answers:
                kept.put("answer", request.depends, asdict(text))
                task.advance(1)
    finally:
        model.progress.note(f"{job.label}: {client.used_text()}")


def graded_samples(model: ServedModel, job: SampleJob, chunk: tuple[int, int], kept: Parts) -> list[Response]:
    """Return the graded samples of a chunk whose answers are all there, by problem and number.

    Raises:
        ArtifactError: one is not there.
    """
    responses = []
    for place in _places(job, [chunk]):
        problem, text = model.prompts[place[0]], kept.get("answer", place)
        if text is None:
            raise ArtifactError(f"{kept.folder} was changed while it was in use; run the command again")
        temperature, seed = _temperature_and_seed(job, problem, place[1])
        response = Response(
            problem=problem,
            label=job.label,
            sample=place[1],
            text=text["text"],
            turns=(text["message"],) if text["message"] else (),
            prompt=None if model.engine.api == "chat" else plain_prompt(problem),
            prompt_ids=tuple(text["prompt_ids"]),
            completion_ids=tuple(text["token_ids"]),
            logprobs=tuple(text["logprobs"]),
            finish_reason=text["finish_reason"],
            temperature=temperature,
            seed=seed,
            extra=text["said"],
        )
        responses.append(response)
    rewards = grade_all([(response.problem, response.said) for response in responses])
    return [response.judged(reward) for response, reward in zip(responses, rewards, strict=True)]


def _places(job: SampleJob, chunks: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the numbers of problem and sample of all samples of chunks."""
    return [
        (problem, number) for chunk in chunks for problem in range(*chunk) for number in range(job.settings.num_samples)
    ]


def _temperature_and_seed(job: SampleJob, problem: Problem, number: int) -> tuple[float, int]:
    """Return those of a sample; the seed has 31 bits, which every server takes."""
    temperatures = job.settings.temperatures
    seed = derive_seed(job.settings.seed, "sample", problem.id, number) >> 32
    return temperatures[number % len(temperatures)], seed


def _request(model: ServedModel, job: SampleJob, place: tuple[int, int], max_new_tokens: int) -> TextRequest:
    """Return what the server is asked for one sample."""
    problem, engine = model.prompts[place[0]], model.engine
    temperature, seed = _temperature_and_seed(job, problem, place[1])
    fields: dict[str, Any] = {
        "model": model.name,
        "max_tokens": max_new_tokens,
        "temperature": temperature,
        "seed": seed,
    }
    fields |= OWN_DEFAULTS.get(model.program, {})
    is_chat, has_logprobs = engine.api == "chat", model.program == "vllm" and temperature in _LOGPROBS_KEPT
    # Messages, the last of which may be the beginning of the answer; or a text.
    if is_chat:
        said = problem.messages or (("user", problem.question),)
        said += (("assistant", problem.prefix),) if problem.prefix else ()
        fields["messages"] = [{"role": role, "content": content} for role, content in said]
        if problem.prefix:
            fields |= {"continue_final_message": True, "add_generation_prompt": False}
        if job.settings.template_args:
            fields["chat_template_kwargs"] = dict(job.settings.template_args)
    else:
        fields["prompt"] = plain_prompt(problem)
    if has_logprobs:
        fields["logprobs"] = True if is_chat else 0
    fields |= engine.body
    return TextRequest(
        place=f"problem {problem.id!r}",
        path="/chat/completions" if is_chat else "/completions",
        body={name: value for name, value in fields.items() if value is not None},
        max_new=int(fields.get("max_completion_tokens") or max_new_tokens),
        depends=place,
    )
