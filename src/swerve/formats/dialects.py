"""The layouts in which other programs write rollouts, each converted to the names that `imported_responses` reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from swerve.artifacts.responses import SCHEMA, from_json
from swerve.errors import ArtifactError
from swerve.formats.records import Record
from swerve.formats.typed_fields import RESPONSE_NAMES, Names, as_messages

Values = Mapping[str, Any]
Convert = Callable[[Record, Path, Mapping[str, str]], Iterator[Values]]
"""Yields the values of each response of a record; takes the file's path and its fields by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A layout of records."""

    name: str
    marks: tuple[frozenset[str], ...]
    """A record that has all fields of one of these sets is of this layout."""
    known: frozenset[str] | None = None
    """The only fields that its records have, where other layouts have the same marks."""
    convert: Convert
    names: Names | None = None
    """The fields that `convert` yields, by the names that are read; None: the record's own, by any name known."""

    def matches(self, values: Values) -> bool:
        """Return whether a record is of this layout."""
        is_marked = any(fields <= values.keys() for fields in self.marks)
        return is_marked and (self.known is None or values.keys() <= self.known)


def _others(values: Values, *taken: str) -> dict[str, Any]:
    """Return the fields that are not taken and hold something."""
    return {key: value for key, value in values.items() if key not in taken and value is not None}


def _scalars(values: Values, *names: str) -> dict[str, Any]:
    """Return of these fields those that hold a text, a number or a truth value."""
    return {name: values[name] for name in names if isinstance(values.get(name), str | int | float)}


def _is_scalar(value: Any) -> bool:
    """Return whether a value is a text or a number."""
    return isinstance(value, str | int | float) and not isinstance(value, bool)


_ONE_EACH = {
    **dict.fromkeys(("rewards", "scores", "reward", "score"), "reward"),
    **dict.fromkeys(("correct", "is_correct"), "correct"),
    **dict.fromkeys(("finish_reasons", "finish_reason"), "finish_reason"),
    "extracted": "extracted",
}


def _expanded(record: Record, name: str) -> Iterator[dict[str, Any]]:
    """Yield a record for each response of a list, with its own value of what else is listed per response."""
    responses = record.values[name]
    if not isinstance(responses, list) or not responses:
        raise ArtifactError(f"{record.place}: {name} must be a list of responses with at least one")
    lists = {key: value for key, value in record.values.items() if key in _ONE_EACH and isinstance(value, list)}
    for key, value in lists.items():
        if len(value) != len(responses):
            raise ArtifactError(f"{record.place}: {key} has {len(value)} values for {len(responses)} {name}")
    rest = {key: value for key, value in record.values.items() if key != name and key not in lists}
    for number, one in enumerate(responses):
        text = one.get("response") if isinstance(one, dict) else one
        if not isinstance(text, str):
            raise ArtifactError(f"{record.place}: response {number + 1} of {name} is not text")
        own = {_ONE_EACH[key]: value[number] for key, value in lists.items()}
        yield {**rest, **own, "response": text, "sample": number}


_OF_PROBLEM = ("alternatives", "solution", "prefix", "begun", "grader", "grading", "metadata")
_CONVERTED: Names = {name: (name,) for name in (*RESPONSE_NAMES, *_OF_PROBLEM, "extra")}
_COLUMNS = {"id": "problem_id", "response": "text", "problem": "question", "set": "population"}
_TABLE: Names = {name: (_COLUMNS.get(name, name),) for name in (*_CONVERTED, *SCHEMA.names)}


def _convert_table(record: Record, path: Path, fields: Mapping[str, str]) -> Iterator[Values]:
    """Yield a row of a table of responses, what its columns hold as JSON beside them."""
    values = dict(record.values)
    try:
        details = from_json(values, "problem_details", dict)
        values |= {name: from_json(values, name, kind) for name, kind in _JSON_COLUMNS.items()}
    except ValueError as error:
        raise ArtifactError(f"{record.place}: {error}") from None
    if not values.get("completion_ids") or not values.get("prompt_ids"):  # ids alone cannot be placed after a prompt
        values |= {"completion_ids": None, "prompt_ids": None}
    extra = {**_others(record.values, *SCHEMA.names), **(values["extra"] or {})}
    yield {**(details or {}), **values, "extra": extra}


_JSON_COLUMNS: Mapping[str, type] = {"messages": list, "parts": dict, "extra": dict}


_RL_PROBE_NAMES = (
    *("id", "problem_id", "response", "rollout", "problem", "problem_text", "correct", "checkpoint", "sample_idx"),
)
_RL_PROBE_FIELDS = frozenset({*_RL_PROBE_NAMES, "ground_truth", "temperature"})


def _convert_rl_probe(record: Record, path: Path, fields: Mapping[str, str]) -> Iterator[Values]:
    values = record.values
    named, ending, _ = path.name.partition("_responses.json")  # after the checkpoint
    label = str(values["checkpoint"]) if _is_scalar(values.get("checkpoint")) else named if ending else None
    gold, is_damaged = _rl_probe_gold(values.get("ground_truth"))
    step = re.search(r"step_(\d+)", label or "")
    yield {
        "id": values.get("problem_id", values.get("id")),
        "response": values.get("rollout", values.get("response")),
        "problem": values.get("problem_text", values.get("problem")),
        "correct": values.get("correct"),
        "gold": None if is_damaged else gold,
        "label": label,
        "step": int(step[1]) if step else None,
        "sample": values.get("sample_idx"),
        "extra": {**_others(values, *_RL_PROBE_NAMES), **({"gold_is_damaged": True} if is_damaged else {})},
    }


def _rl_probe_gold(recorded: Any) -> tuple[str | None, bool]:
    r"""Return the recorded answer and whether it was cut off.

    The rollouts record a whole solution; its answer is in the last box. The answers of the other files were cut off at
    the first closing brace.

    >>> _rl_probe_gold(r"so $x = \boxed{\frac{1}{2}}$."), _rl_probe_gold(r"\frac{14")
    (('\\frac{1}{2}', False), ('\\frac{14', True))
    """
    if not isinstance(recorded, str):
        return None, False
    answer = recorded
    # A whole solution: what the last box holds, or its beginning where the text ends within it.
    if r"\boxed{" in recorded:
        answer = recorded[recorded.rindex(r"\boxed{") + len(r"\boxed{") :]
        depth = 1
        for index, character in enumerate(answer):
            depth += {"{": 1, "}": -1}.get(character, 0)
            if depth == 0:
                return answer[:index], False
        return answer, True
    # An answer: whole where its braces match.
    bare = re.sub(r"\\[{}]", "", answer)
    return answer, bare.count("{") != bare.count("}")


_VERL_IDS = ("uid", "id", "problem_id")


def _convert_verl(record: Record, path: Path, fields: Mapping[str, str]) -> Iterator[Values]:
    values = record.values
    if "output" not in values:
        yield from _verl_data(record)
        return
    gold = _verl_gold(values.get("gts", values.get("ground_truth")))
    truth = _truth(values.get("acc"))
    kept = [name for name, value in (("gts", gold), ("acc", truth)) if value is not None]
    yield {
        "id": next((values[name] for name in _VERL_IDS if _is_scalar(values.get(name))), None),
        "prompt": values.get("input"),
        "response": values.get("output"),
        "gold": gold,
        "reward": values.get("score"),
        "step": values.get("step"),
        "correct": truth,
        "extracted": values.get("pred") if _is_scalar(values.get("pred")) else None,
        "extra": _others(values, *_VERL_IDS, "input", "output", "score", "step", *kept),
    }


def _truth(value: Any) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}.get(value.lower())
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None


def _verl_gold(recorded: Any) -> str | None:
    """Return the gold answer where it is one text or number; what else a reward function takes stays in `extra`."""
    if isinstance(recorded, list) and len(recorded) == 1:
        recorded = recorded[0]
    return str(recorded) if _is_scalar(recorded) and recorded != "" else None


def verl_problem(values: Values) -> dict[str, Any]:
    """Return what a row of verl's data layout says of its problem, under the known names."""
    info = values.get("extra_info")
    info = info if isinstance(info, dict) else {}
    said = values.get("reward_model")
    source, split, index = values.get("data_source"), info.get("split"), info.get("index")
    made = "/".join(str(one) for one in (source, split, index) if one is not None) if index is not None else None
    return {
        "id": values.get("uid", values.get("id", made)),
        "prompt": values.get("prompt"),
        "problem": next((info[name] for name in ("question", "problem") if isinstance(info.get(name), str)), None),
        "gold": _verl_gold(said.get("ground_truth") if isinstance(said, dict) else None),
        "kind": info.get("level") if _is_scalar(info.get("level")) else None,
        "metadata": _others(values, "prompt", "responses", "scores", "id", "uid"),
    }


def _verl_data(record: Record) -> Iterator[Values]:
    values = record.values
    problem = verl_problem(values)
    extra = problem.pop("metadata")
    if "responses" not in values:
        raise ArtifactError(
            f"{record.place} has no responses: it is a data set of problems; give it with --problems, beside the file "
            "of the responses"
        )
    for values_of_one in _expanded(record, "responses"):
        yield {
            **problem,
            "response": values_of_one["response"],
            "reward": values_of_one.get("reward"),
            "sample": values_of_one["sample"],
            "extra": extra,
        }


_TRL_NAMES = ("id", "gold", "correct", "sample", "label")
_TRL_KNOWN = frozenset({"mode", "step", "prompt", "completion", "advantage", *_TRL_NAMES})


def _convert_trl(record: Record, path: Path, fields: Mapping[str, str]) -> Iterator[Values]:
    values = record.values
    rewards = [
        key
        for key, value in values.items()
        if key not in _TRL_KNOWN and isinstance(value, int | float) and not isinstance(value, bool)
    ]
    total = "reward" if "reward" in rewards else rewards[0] if len(rewards) == 1 else None
    taken = ["step", "prompt", "completion", "mode", *_TRL_NAMES, *([total] if total else [])]
    yield {
        **_scalars(values, *_TRL_NAMES),
        "prompt": values.get("prompt"),
        "response": _assistant_text(values.get("completion"), f"{record.place}: completion"),
        "reward": values[total] if total else None,
        "step": values.get("step"),
        "set": values.get("mode"),
        "extra": _others(values, *taken),
    }


def _assistant_text(value: Any, what: str) -> Any:
    """Return a completion's text, also where it is a list of messages of which the last is the assistant's."""
    if not isinstance(value, list):
        return value
    messages = as_messages(value, what)
    if len(messages) != 1 or messages[0][0] != "assistant":
        raise ArtifactError(f"{what} must be one message of the assistant, got {len(messages)} messages")
    return messages[0][1]


_CHAT_RESPONSES = ("response", "completion", "output")
_CHAT_NAMES = (
    *("id", "gold", "family", "kind", "correct", "sample", "step", "label", "reward", "finish_reason", "extracted"),
    "set",
)


def _convert_chat(record: Record, path: Path, fields: Mapping[str, str]) -> Iterator[Values]:
    if "custom_id" in record.values:
        yield from _batch_choices(record)
        return
    messages = as_messages(record.values.get("messages"), f"{record.place}: messages")
    apart = next((name for name in _CHAT_RESPONSES if isinstance(record.values.get(name), str)), None)
    if apart is not None:  # the messages are the prompt alone
        messages = (*messages, ("assistant", record.values[apart]))
    last = max((index for index, (role, _) in enumerate(messages) if role == "assistant"), default=None)
    if not last:  # none, or nothing before it
        raise ArtifactError(f"{record.place}: messages must hold a message of the assistant after what it answers")
    after = {"later_messages": list(map(list, messages[last + 1 :]))} if messages[last + 1 :] else {}
    yield {
        **_scalars(record.values, *_CHAT_NAMES),
        "id": record.values.get("id", record.values.get("problem_id")),
        "messages": list(map(list, messages[:last])),
        "problem": record.values.get("question"),
        "response": messages[last][1],
        "extra": {**_others(record.values, "messages", "problem_id", "question", apart or "", *_CHAT_NAMES), **after},
    }


def _batch_choices(record: Record) -> Iterator[Values]:
    # The answer of a request has choices, unless the request failed.
    name, answer = record.values["custom_id"], record.values.get("response")
    body = answer.get("body") if isinstance(answer, dict) else None
    choices = body.get("choices") if isinstance(body, dict) else None
    if not isinstance(choices, list) or not choices:
        error = record.values.get("error")
        said = error.get("code") or error.get("message") if isinstance(error, dict) else error
        raise ArtifactError(
            f"{record.place}: the request {name!r} has no choices ({said or 'no error is given'}); leave out requests "
            "that failed"
        )
    # Each choice is a response.
    extra = _others(body if isinstance(body, dict) else {}, "choices", "messages")
    for number, choice in enumerate(choices):
        message = choice.get("message") if isinstance(choice, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, str):
            raise ArtifactError(f"{record.place}: choice {number} of request {name!r} has no text as content")
        yield {
            "id": name,
            "response": content,
            "sample": choice.get("index", number),
            "finish_reason": choice.get("finish_reason"),
            "extra": {**extra, **_others(message or {}, "role", "content")},
        }


_PLAIN_LISTS = ("responses", "completions", "outputs")


def _convert_plain(record: Record, path: Path, fields: Mapping[str, str]) -> Iterator[Values]:
    given = fields.get("response")
    listed = given if given is not None and isinstance(record.values.get(given), list) else None
    if given is None and not any(isinstance(record.values.get(name), str) for name in ("response", "completion")):
        listed = next((name for name in _PLAIN_LISTS if isinstance(record.values.get(name), list)), None)
    if listed is None:
        yield record.values
        return
    for values in _expanded(record, listed):
        yield {**values, listed: values["response"]} if listed == given else values


_PLAIN = Dialect(name="plain", marks=(), convert=_convert_plain)


def _dialect(
    name: str, *marks: str, convert: Convert, known: frozenset[str] | None = None, names: Names = _CONVERTED
) -> Dialect:
    return Dialect(
        name=name, marks=tuple(frozenset(mark.split()) for mark in marks), convert=convert, known=known, names=names
    )


_LAYOUTS = (
    _dialect("swerve", "problem_id completion_ids text", convert=_convert_table, names=_TABLE),
    _dialect(
        "rl_probe",
        "rollout problem_text",
        "response correct ground_truth",
        known=_RL_PROBE_FIELDS,
        convert=_convert_rl_probe,
    ),
    _dialect(
        "verl", "input output score", "input output step", "data_source prompt reward_model", convert=_convert_verl
    ),
    _dialect("trl", "step prompt completion", "prompt completion advantage", convert=_convert_trl),
    _dialect("chat", "messages", "custom_id response", convert=_convert_chat),
    _PLAIN,
)
DIALECTS: Mapping[str, Dialect] = MappingProxyType({layout.name: layout for layout in _LAYOUTS})
"""The layouts by name, in the order in which a record is compared with them."""


def detect(values: Values) -> Dialect:
    """Return the layout of a record.

    >>> detect({"input": "1 + 1?", "output": "2", "score": 1.0, "step": 3}).name
    'verl'
    """
    return next((one for one in DIALECTS.values() if one.matches(values)), _PLAIN)
