"""Samples from an OpenAI-compatible server: texts in, texts out; neither tokenizer nor weights are needed."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from swerve.artifacts.parts import Parts
from swerve.artifacts.responses import Response
from swerve.config.engines import OpenAIEngineConfig
from swerve.config.sampling import SampleJob
from swerve.progress import Progress, ProgressTask
from swerve.rewards import grade_all
from swerve.rollout.openai_client import OWN_DEFAULTS, OpenAIClient, ServedText, TextRequest
from swerve.seeds import derive_seed
from swerve.types import Message, Problem

_PARAMETERS_KEPT = (0.0, 1.0)
"""Temperatures at which a server's log-probs are those of `Response.logprobs`, whatever it was started with."""
_Place = tuple[int, int]
"""Number of a problem, and of its sample."""


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model on a server, and the problems that it is asked; the server is not asked before there is work for it."""

    engine: OpenAIEngineConfig
    name: str
    """The server's name for it."""
    prompts: Sequence[Problem]
    progress: Progress

    @property
    def engine_info(self) -> dict[str, Any]:
        """What the samples depend on of how they are asked for."""
        return {"kind": self.engine.kind, "api": self.engine.api, "body": self.engine.body}

    @property
    def info(self) -> dict[str, Any]:
        """What a file of samples says of the model; whose weights it has is only known by name."""
        source = f"{self.name} at {self.engine.url}"
        return {"source": source, "fingerprint": hashlib.sha256(self.name.encode()).hexdigest()}

    @cached_property
    def program(self) -> str:
        """What serves it, `vllm` say, as `/models` says; empty where it does not. What that means is noted, once.

        Raises:
            ConfigError: the key is not there.
            EngineError: the server does not answer, or refuses the key.
        """
        url, listed = self.engine.url, OpenAIClient(self.engine).models()
        if listed and self.name not in listed:
            self.progress.note(f"{url} does not list '{self.name}'; it lists {', '.join(list(listed)[:10])}")
        if any(problem.prefix for problem in self.prompts):
            self.progress.note(f"{url} is asked to continue the beginning of the answer, which not every server does")
        entry = listed.get(self.name) or next(iter(listed.values()), {})
        program = str(entry.get("owned_by"))
        if program in OWN_DEFAULTS:
            return program
        self.progress.note(
            f"{url} does not say what serves it: temperature and seed are sent, and defaults of its own (top_p, top_k, "
            "penalties) hold where rollout.engine.body sets none"
        )
        return ""


def served_model(job: SampleJob, problems: Sequence[Problem], progress: Progress) -> ServedModel:
    """Return the model of a job whose engine is a server."""
    engine = job.settings.rollout.engine
    assert isinstance(engine, OpenAIEngineConfig)
    return ServedModel(engine=engine, name=str(job.model), prompts=problems, progress=progress)


def sample_served(
    model: ServedModel,
    job: SampleJob,
    *,
    max_new_tokens: int,
    chunks: Sequence[tuple[int, int]],
    kept: Parts,
    used: Sequence[dict[str, Any]],
    task: ProgressTask,
) -> Generator[tuple[tuple[int, int], list[Response]]]:
    """Yield chunks of problems with their graded samples, each as soon as it is complete.

    Every answer is kept when it comes, so that an interrupted command does not pay for it again.

    Args:
        model: what is sampled.
        job: how.
        max_new_tokens: of a completion.
        chunks: first problem and end of each.
        kept: the answers so far, as JSON.
        used: what the rows of chunks that were complete before say of their requests.
        task: advanced by each sample.

    Raises:
        EngineError: see `OpenAIClient.each`.
    """
    client = OpenAIClient(model.engine)
    for said in used:
        client.count(said)

    # What was answered before an interruption is not asked again.
    answers: dict[_Place, ServedText] = {}
    requests: list[TextRequest] = []
    missing: dict[tuple[int, int], set[_Place]] = {}
    for chunk in chunks:
        places = [(problem, number) for problem in range(*chunk) for number in range(job.settings.num_samples)]
        for place in places:
            known = kept.get("answer", place)
            if known is None:
                requests.append(_request(model, job, place, max_new_tokens))
            else:
                answers[place] = ServedText(**{**known, **{name: tuple(known[name]) for name in _IDS}})
                client.count(known["said"])
        missing[chunk] = {place for place in places if place not in answers}
    task.advance(len(answers))

    # A chunk is graded when its last answer is there.
    of_place = {place: chunk for chunk, places in missing.items() for place in places}
    try:
        yield from ((chunk, _graded(model, job, chunk, answers)) for chunk, places in missing.items() if not places)
        with closing(client.each(requests)) as served:
            for request, (text,) in served:
                kept.put("answer", request.depends, asdict(text))
                answers[request.depends] = text
                task.advance(1)
                chunk = of_place[request.depends]
                missing[chunk].remove(request.depends)
                if not missing[chunk]:
                    yield chunk, _graded(model, job, chunk, answers)
    finally:
        model.progress.note(f"{job.label}: {client.used_text()}")


_IDS = ("prompt_ids", "token_ids", "logprobs")


def _settings_of(job: SampleJob, problem: Problem, number: int) -> tuple[float, int]:
    """Return temperature and seed of a sample; the seed has 31 bits, which every server takes."""
    settings = job.settings
    temperature = settings.temperatures[number % len(settings.temperatures)]
    return temperature, derive_seed(settings.seed, "sample", problem.id, number) >> 32


def _messages(problem: Problem) -> tuple[Message, ...]:
    return problem.messages or (("user", problem.question),)


def _prompt_text(problem: Problem) -> str:
    """Return the text of a problem for a model without a chat template."""
    texts = [content for _, content in _messages(problem)]
    return "\n\n".join([*texts, problem.prefix] if problem.prefix else texts)


def _request(model: ServedModel, job: SampleJob, place: _Place, max_new_tokens: int) -> TextRequest:
    """Return what the server is asked for one sample."""
    problem, engine = model.prompts[place[0]], model.engine
    temperature, seed = _settings_of(job, problem, place[1])
    is_chat, has_logprobs = engine.api == "chat", model.program == "vllm" and temperature in _PARAMETERS_KEPT
    fields: dict[str, Any] = {
        "model": model.name,
        "max_tokens": max_new_tokens,
        "temperature": temperature,
        "seed": seed,
        **OWN_DEFAULTS.get(model.program, {}),
    }
    # Messages, the last of which may be the beginning of the answer; or a text.
    if is_chat:
        fields["messages"] = [{"role": role, "content": content} for role, content in _messages(problem)]
        if problem.prefix:
            fields["messages"].append({"role": "assistant", "content": problem.prefix})
            fields |= {"continue_final_message": True, "add_generation_prompt": False}
        if job.settings.template_args:
            fields["chat_template_kwargs"] = dict(job.settings.template_args)
    else:
        fields["prompt"] = _prompt_text(problem)
    if has_logprobs:
        fields["logprobs"] = True if is_chat else 0
    fields |= engine.body
    return TextRequest(
        place=f"problem {problem.id!r}",
        path="/chat/completions" if is_chat else "/completions",
        body={name: value for name, value in fields.items() if value is not None},
        depends=place,
    )


def _graded(
    model: ServedModel, job: SampleJob, chunk: tuple[int, int], answers: dict[_Place, ServedText]
) -> list[Response]:
    """Return the graded samples of a chunk, by problem and number."""
    places = [(problem, number) for problem in range(*chunk) for number in range(job.settings.num_samples)]
    texts = [answers.pop(place) for place in places]
    problems = [model.prompts[place[0]] for place in places]
    rewards = grade_all([(problem, text.text) for problem, text in zip(problems, texts, strict=True)])
    responses = []
    for (_, number), problem, text, reward in zip(places, problems, texts, rewards, strict=True):
        temperature, seed = _settings_of(job, problem, number)
        response = Response(
            problem=problem,
            label=job.label,
            sample=number,
            text=text.text,
            prompt=None if model.engine.api == "chat" else _prompt_text(problem),
            prompt_ids=text.prompt_ids,
            completion_ids=text.token_ids,
            logprobs=text.logprobs,
            finish_reason=text.finish_reason,
            temperature=temperature,
            seed=seed,
            extra=text.said,
        )
        responses.append(response.judged(reward))
    return responses
