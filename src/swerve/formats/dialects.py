"""The layouts in which programs write rollouts: each is a table of names, with a function for what none can say.

A new layout is an entry of `LAYOUTS`: the fields that mark it, and where it has what is read (`RESPONSE_NAMES`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from swerve.errors import ArtifactError, NoResponseError
from swerve.formats import inspect_logs, lm_eval, other_layouts, rl_probe, token_layouts, verifiers
from swerve.formats.conversations import (
    CONVERSATION,
    conversation_fields,
    prompt_and_completion,
    read_turn,
    read_turns,
)
from swerve.formats.dialect import Dialect
from swerve.formats.records import FileRecord
from swerve.formats.typed_fields import RESPONSE_NAMES, Names, at_place

_LISTS = ("responses", "completions", "outputs", "generations", "rollouts", "samples")
"""Lists of the responses to one problem."""


def _names(**places: str) -> Names:
    """Return a table of names; the places of each have spaces between them."""
    return {name: tuple(listed.split()) for name, listed in places.items()}


def _conversation(**places: str) -> Names:
    """Return the names of a layout whose converter yields `conversation_fields`, and its own."""
    return {**CONVERSATION, **_names(**places)}


VERL_PROBLEM = _names(
    id="uid? id? made_id",
    prompt="prompt",
    problem="extra_info.question? extra_info.problem?",
    gold="reward_model.ground_truth?",
    kind="extra_info.level?",
)
"""Where a row of verl's data has what is read of its problem."""


def verl_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of verl's data, with an id of its data set, split and index where it has none."""
    index = at_place(values, "extra_info.index")
    parts = (values.get("data_source"), at_place(values, "extra_info.split"), index)
    has_id = index is None or at_place(values, "uid?") is not None or at_place(values, "id?") is not None
    return {**values, "made_id": None if has_id else "/".join(str(part) for part in parts if part is not None)}


def _convert_verl_data(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Add an id; a row without responses is of a file of problems."""
    if "responses" not in record.values:
        raise ArtifactError(
            f"{record.place} has no responses: it is a data set of problems; give it with --problems, beside the file "
            "of the responses"
        )
    yield verl_values(record.values)


_SESSION = re.compile(r"(.+)_(\d+)_0")


def _convert_verl(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Take the problem and the sample out of a `uid` of the form UID_SESSION_OUTPUT.

    A later output of a session answers a prompt of its own, which had what was left of the session: its id is whole.
    """
    values = dict(record.values)
    if session := _SESSION.fullmatch(str(values.get("uid"))):
        values |= {"uid": session[1], "sample": int(session[2]), "session": session[0]}
    yield values


_TRL_NAMES = _conversation(
    set="mode", id="id?", gold="gold? answer? ground_truth? solution?",
    correct="correct?", sample="sample?", label="label?",
)  # fmt: skip


def _convert_trl(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Take the columns of fractions as rewards and their sum, with TRL's own default weights of 1, as the reward."""
    values = record.values
    known = {"advantage", *(place.rstrip("?") for places in _TRL_NAMES.values() for place in places)} - {"reward"}
    parts = {name: value for name, value in values.items() if isinstance(value, float) and name not in known}
    yield {
        **{name: value for name, value in values.items() if name not in ("completion", *parts)},
        **prompt_and_completion(values["prompt"], values["completion"], record.place),
        "reward": sum(parts.values()) if parts else None,
        "parts": parts,
    }


def _convert_chat(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Take the messages up to the last one of the user as the prompt, unless the response stands beside them all."""
    values, place = dict(record.values), f"{record.place}: messages"
    turns = read_turns(values.get("messages"), place)
    apart = next((name for name in RESPONSE_NAMES["response"] if isinstance(values.get(name), str)), None)
    if apart is not None:  # the messages are the prompt alone
        turns.append(read_turn(["assistant", values.pop(apart)], place))
    # The model's are those of the assistant after what the user said last before its last one.
    last = max((number for number, turn in enumerate(turns) if turn.sampled), default=0)
    if not last:  # none, or nothing before it
        raise NoResponseError(f"{place} must hold a message of the assistant after what it answers")
    asked = [number for number, turn in enumerate(turns[:last]) if apart is None and turn.message["role"] == "user"]
    start = max(asked, default=last - 1)
    turns = [replace(turn, sampled=turn.sampled and number > start) for number, turn in enumerate(turns)]
    yield {**values, **conversation_fields(turns, place)}


_BATCH_ERRORS = ("error.error.message", "error.code", "error.message", "response.body.error.message", "error")


def _convert_batch(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Take the choices of the answer to a request as its responses, unless the request failed."""
    values, body = record.values, at_place(record.values, "response.body")
    if values.get("custom_id") is None:
        raise NoResponseError(f"{record.place} has no custom_id, so nobody knows which request it answers")
    place = f"{record.place}: the request {values['custom_id']!r}"
    if "response" not in values:
        raise ArtifactError(
            f"{record.place} is a request of a batch, not its answer; give it with --problems, beside the output"
        )
    output = at_place(values, "response.body.output")
    if isinstance(output, list):  # of /v1/responses
        is_cut = at_place(body, "incomplete_details.reason") == "max_output_tokens"
        known = {"id": values["custom_id"], "label": body.get("model"), "finish_reason": "length" if is_cut else None}
        yield {**conversation_fields(other_layouts.output_turns(output, place), place), **known}
        return
    choices = at_place(values, "response.body.choices")
    if not isinstance(choices, list) or not choices:
        error = next((said for name in _BATCH_ERRORS if (said := at_place(values, name))), "no error is given")
        raise NoResponseError(f"{place} has no choices ({error})")
    more = {key: value for key, value in body.items() if key not in ("choices", "messages")}
    empty: list[int] = []
    for number, choice in enumerate(choices):
        message = choice.get("message") or {"role": "assistant", "content": choice["text"]}  # which is no chat
        turn = read_turn(message, place, sampled=True)
        if message.get("content") is None and turn.message.keys() == {"role", "content"}:
            empty.append(number)
            continue
        yield {
            **more,
            **conversation_fields([turn], place),
            "id": values["custom_id"],
            "label": body.get("model"),
            "sample": choice.get("index", number),
            "finish_reason": choice.get("finish_reason"),
            "token_logprobs": choice.get("logprobs"),
            **token_layouts.choice_tokens(place, body, choice),
        }
    if empty:
        raise NoResponseError(f"{place}: choice {empty[0]} has no text as content")


def _convert_processbench(record: FileRecord, path: Path) -> Iterator[dict[str, Any]]:
    """Join the steps by empty lines, and say where each begins: the label is the number of one of them."""
    steps, label = record.values["steps"], record.values["label"]
    if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
        raise ArtifactError(f"{record.place}: steps must be a list of texts")
    if not isinstance(label, int) or not -1 <= label < len(steps):
        raise ArtifactError(
            f"{record.place}: label is {label!r}, but must be the number of the first wrong step, from 0 to "
            f"{len(steps) - 1}, or -1 where all are right"
        )
    lengths = [len(step) + len(_STEP_END) for step in steps]
    more = {key: value for key, value in record.values.items() if key not in ("steps", "label")}
    known = {"first_wrong_sentence": label, "step_starts": [0, *accumulate(lengths[:-1])]}
    yield {**more, "response": _STEP_END.join(steps), **known}


_STEP_END = "\n\n"


def _marks(*marks: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(mark.split()) for mark in marks)


_OF_EACH = _names(
    response="response", reward="reward", correct="correct", finish_reason="finish_reason", extracted="extracted",
    sample="sample",
)  # fmt: skip
"""What a list of responses leaves of each, under its own names."""
TABLE = Dialect(name="swerve", marks=_marks("problem_id completion_ids text"), names={})
"""Tables of responses, which `imported_responses` reads by their columns."""
LAYOUTS: tuple[Dialect, ...] = (
    TABLE,
    Dialect(
        name="rl_probe",
        marks=_marks("rollout problem_text", "response correct ground_truth"),
        only=frozenset(rl_probe.RL_PROBE_FIELDS),
        names=_names(
            id="id",
            response="rollout response",
            problem="problem_text problem",
            correct="correct",
            sample="sample_idx",
            label="label",
            step="step",
            gold="gold",
        ),
        convert=rl_probe.convert_rl_probe,
    ),
    Dialect(
        name="verl",
        marks=_marks("input output score", "input output step"),
        names=_names(
            id="uid? id? problem_id?",
            prompt="input",
            response="output",
            gold="gts? ground_truth?",
            reward="score",
            step="step",
            correct="acc?",
            extracted="pred?",
            sample="sample?",
        ),
        convert=_convert_verl,
    ),
    Dialect(
        name="verl",
        marks=_marks("data_source prompt reward_model"),
        names={**_OF_EACH, **VERL_PROBLEM},
        each=("responses",),
        convert=_convert_verl_data,
    ),
    Dialect(
        name="verifiers",
        marks=_marks("example_id prompt completion"),
        names=_conversation(id="example_id", gold="answer?", correct="parts.correct?"),
        convert=verifiers.convert_rollout,
    ),
    Dialect(
        name="verifiers",
        marks=_marks("traces", "nodes task"),
        names=_conversation(
            id="id?",
            problem="task.data.prompt?",
            gold="task.data.answer? task.data.gold? task.data.ground_truth? task.data.solution?",
            correct="parts.correct?",
            set="info.prime_rl.env_name?",
            step="run.work.step? info.prime_rl.step?",
        ),
        convert=verifiers.convert_trace,
    ),
    Dialect(
        name="inspect",
        marks=_marks("epoch input target"),
        names=_conversation(id="id?", gold="gold?"),
        convert=inspect_logs.convert_sample,
    ),
    Dialect(
        name="lm_eval",
        marks=_marks("doc_id resps filtered_resps"),
        names=_conversation(
            id="doc_id?", gold="target?", correct="parts.exact_match? parts.acc?", extracted="extracted?"
        ),
        convert=lm_eval.convert_sample,
        repeated=lm_eval.sample_and_filter,
    ),
    Dialect(
        name="vllm",
        marks=_marks("request_id prompt_token_ids outputs"),
        names=CONVERSATION,
        convert=token_layouts.convert_request_output,
    ),
    Dialect(
        name="prime_rl",
        marks=_marks("token_ids loss_mask"),
        names=_conversation(set="env_name"),
        convert=token_layouts.convert_token_export,
    ),
    Dialect(
        name="open_instruct",
        marks=_marks("prompt_tokens response_tokens"),
        names=_conversation(set="dataset"),
        convert=token_layouts.convert_trace,
    ),
    Dialect(
        name="trl",
        marks=_marks("step prompt completion", "prompt completion advantage"),
        names=_TRL_NAMES,
        convert=_convert_trl,
    ),
    Dialect(
        name="evalscope",
        marks=_marks("model_output.choices messages"),
        names=CONVERSATION,
        convert=other_layouts.convert_prediction,
    ),
    Dialect(
        name="evalscope",
        marks=_marks("sample_score.score messages"),
        names=CONVERSATION,
        convert=lambda record, path: _convert_chat(other_layouts.review_as_chat(record), path),
    ),
    Dialect(
        name="opencompass",
        marks=_marks("origin_prompt prediction"),
        names=_conversation(id="id", gold="gold refr? reference?", correct="correct? is_correct?"),
        convert=other_layouts.convert_opencompass,
    ),
    Dialect(
        name="nemo_gym",
        marks=_marks("responses_create_params response.output"),
        names=_conversation(id="id? _task_index?", gold="expected_answer?"),
        convert=other_layouts.convert_nemo_gym,
    ),
    Dialect(
        name="nemo_rl",
        marks=_marks("token_ids token_loss_mask"),
        names=CONVERSATION,
        convert=other_layouts.convert_nemo_rl,
    ),
    Dialect(
        name="skyrl",
        marks=_marks("input_prompt output_response"),
        names=_names(
            id="id?",
            prompt="input_prompt",
            response="output_response",
            reward="score",
            finish_reason="stop_reason?",
            gold="env_extras.reward_spec.ground_truth? env_extras.reward_model.ground_truth?",
            set="data_source?",
        ),
        convert=other_layouts.convert_skyrl,
    ),
    Dialect(
        name="openr1",
        marks=_marks("problem answer generations"),
        names={**RESPONSE_NAMES, **_names(id="uuid? id?", gold="answer?")},
        each=_LISTS,
    ),
    Dialect(
        name="roll",
        marks=_marks("prompts responses response_level_rewards"),
        names={**RESPONSE_NAMES, **_names(prompt="prompts", response="responses", reward="response_level_rewards")},
    ),
    Dialect(
        name="alpaca",
        marks=_marks("instruction output", "instruction response", "instruction generation", "instruction generations"),
        names=RESPONSE_NAMES,
        each=_LISTS,
        convert=other_layouts.convert_instruction,
    ),
    Dialect(
        name="chat",
        marks=_marks("conversations"),
        names=_conversation(id="id? problem_id?", gold="gold?", correct="correct?", reward="reward?", label="label?"),
        convert=lambda record, path: _convert_chat(other_layouts.conversations_as_chat(record), path),
    ),
    Dialect(
        name="chat",
        marks=_marks("messages"),
        names=_conversation(
            id="id? problem_id?",
            problem="question",
            gold="gold?",
            family="family?",
            kind="kind?",
            set="set?",
            correct="correct?",
            reward="reward?",
            extracted="extracted?",
            finish_reason="finish_reason?",
            label="label?",
            step="step?",
            sample="sample?",
        ),
        convert=_convert_chat,
    ),
    Dialect(
        name="chat",
        marks=_marks("custom_id response", "custom_id body", "response.body"),
        names=CONVERSATION,
        convert=_convert_batch,
    ),
    Dialect(
        name="processbench",
        marks=_marks("problem steps label"),
        names=_names(
            id="id",
            problem="problem",
            response="response",
            correct="final_answer_correct?",
            label="generator?",
            first_wrong_sentence="first_wrong_sentence",
            step_starts="step_starts",
        ),
        convert=_convert_processbench,
    ),
    Dialect(name="plain", names=RESPONSE_NAMES, each=_LISTS),
)
"""The layouts, in the order in which a record is compared with them; two of one name are two forms of one program."""


def detect(values: Mapping[str, Any], name: str | None = None) -> Dialect:
    """Return the layout of a record, of those of a name where one is given.

    >>> detect({"input": "1 + 1?", "output": "2", "score": 1.0, "step": 3}).name
    'verl'
    """
    layouts = [layout for layout in LAYOUTS if name in (None, layout.name)]
    return next((layout for layout in layouts if layout.matches(values)), layouts[-1])
