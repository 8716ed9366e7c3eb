"""Rewards: what a completion is worth, verified by a program. Free of torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from numbers import Number
from typing import Any, overload

from swerve.errors import ConfigError, shown
from swerve.grading.text import given_beginning, grade_final_answer
from swerve.grading.thinking import final_text
from swerve.rewards.graders import GRADERS, entry_for, nearest_grader
from swerve.rewards.messages import too_long
from swerve.sandbox.limits import GraderLimits
from swerve.types import Problem, Reward

__all__ = ["grade", "grade_all", "grade_final_answer", "known_graders", "math", "trl_reward", "verl_reward"]

_MAX_CHARS = GraderLimits().max_chars
_SHOWN_CHARS = 60
_MAX_CHARS_HERE = 50_000
"""Of a text and its gold answers that are judged in this process: 50 ms of CPU time at most."""


def known_graders() -> tuple[str, ...]:
    """Return the names of the graders; a family's problems are judged by the grader of its name.

    >>> "math" in known_graders()
    True
    """
    return tuple(sorted(GRADERS))


def grade(problem: Problem, text: str) -> Reward:
    """Return the reward of a completion by the problem's grader; never raises on any text.

    Raises:
        ValueError: there is no grader of the name that the problem or its family gives.

    >>> grade(Problem(id="p", family="addition", question="1 2 + 3 4 =", answer="0 4 6"), "answer 0 4 7").value
    0.0
    """
    return grade_all([(problem, text)])[0]


def grade_all(pairs: Sequence[tuple[Problem, str]]) -> list[Reward]:
    """Return the reward of each (problem, completion), in their order; isolated graders work side by side.

    A text longer than graders look at (`GraderLimits.max_chars`) has the status `timeout`, whatever the grader; one of
    more than 50,000 characters, its gold answers included, is judged in a worker process, also by graders that are not
    isolated. A text whose prompt began the thinking is judged with that beginning, so that one that never ends its
    thinking has no answer; a Python file of the user's gets what the model wrote.

    Raises:
        ValueError: there is no grader of the name that a problem or its family gives.
    """
    pairs = [(problem, _with_thinking(problem, text)) for problem, text in pairs]
    rewards = [graded_here(problem, text) for problem, text in pairs]
    left = [number for number, reward in enumerate(rewards) if reward is None]
    if left:
        from swerve.rewards.pool import shared_pool

        graded = shared_pool().grade_all([pairs[number] for number in left])
        for number, reward in zip(left, graded, strict=True):
            rewards[number] = reward
    return [reward for reward in rewards if reward is not None]


def _with_thinking(problem: Problem, text: str) -> str:
    given = "" if (problem.grader or problem.family) == "python" else given_beginning(problem, text)
    return f"{given}{text}" if given and final_text(given) is None else text


def graded_here(problem: Problem, text: str) -> Reward | None:
    """Return the reward of a completion if this process can tell it in a few milliseconds; None: a worker has to.

    Raises:
        ValueError: there is no grader of the name that the problem or its family gives.
    """
    entry = entry_for(problem)
    judge = entry.load_quick() if entry.isolated else entry.load()
    if len(text) > _MAX_CHARS:
        return too_long(text, _MAX_CHARS)
    num_chars = len(text) + sum(map(len, (problem.answer, *problem.alternatives)))
    return None if judge is None or num_chars > _MAX_CHARS_HERE else judge(problem, text)


@overload
def math(
    text: str, gold: str | float | Sequence[str], *, missing: float | None = 0.0, **policies: Any
) -> float | None: ...


@overload
def math(
    text: list[str] | tuple[str, ...],
    gold: Sequence[str | float | Sequence[str]],
    *,
    missing: float | None = 0.0,
    **policies: Any,
) -> list[float | None]: ...


def math(text: Any, gold: Any, *, missing: float | None = 0.0, **policies: Any) -> Any:
    r"""Return 1.0 if the answer in a text is the gold answer, else 0.0; of a list of texts a list.

    Args:
        text: a whole response, or an answer; or a list of them.
        gold: the gold answer, as plain text or LaTeX, or several of which each is right; of a list of texts as many of
            these.
        missing: of a text that has no answer, or one that cannot be judged.
        policies: how answers are found and compared, as of `MathGrading`, such as `extraction=["boxed"]`.

    Raises:
        ConfigError: there is no such policy, what is graded is no text, or there is no gold answer.

    >>> math(r"So it is \boxed{\frac{1}{2}}.", "0.5"), math("I do not know.", "0.5")
    (1.0, 0.0)
    >>> math(["It is 4.", "It is 5."], ["4", "4"])
    [1.0, 0.0]
    """
    if not isinstance(text, list | tuple):
        return _values("math", [("", _text(text), gold)], missing, policies)[0]
    if not isinstance(gold, list | tuple) or len(gold) != len(text):
        num = len(gold) if isinstance(gold, list | tuple) else f"{gold!r:.{_SHOWN_CHARS}}"
        raise ConfigError(f"{len(text)} texts need as many gold answers, got {num}; math(texts, golds) pairs them")
    return _values("math", [("", _text(one), own) for one, own in zip(text, gold, strict=True)], missing, policies)


def trl_reward(
    grader: str = "math",
    *,
    gold: str = "answer",
    missing: float | None = 0.0,
    name: str | None = None,
    **policies: Any,
) -> TrlReward:
    r"""Return a reward function for TRL's trainers, such as `GRPOTrainer(reward_funcs=trl_reward("math"), ...)`.

    It takes completions, as texts or as messages, the columns of the data set, and prompts if there are any; it can be
    pickled. Of messages the last one of the assistant is graded; one without text, such as a call of a tool, has no
    answer, and `num_without_text` counts them.

    Args:
        grader: one of `known_graders()` that needs the gold answer alone.
        gold: the column with the gold answers: texts, or lists of texts of which each is right.
        missing: of a completion without an answer, or one that cannot be judged. TRL leaves None out of the mean: where
            all completions of a group have none, nothing is learned from it and nothing says so.
        name: what TRL logs the reward under; by default `swerve_`, the grader, and what differs from its defaults. Two
            rewards of the same settings need it.
        policies: of the grader, such as `extraction=["boxed"]`.

    Raises:
        ConfigError: there is no such grader or policy, or the name is empty; and in training, no such column.

    >>> reward = trl_reward("math", gold="solution")
    >>> said = [[{"role": "assistant", "content": r"\boxed{4}"}], [{"role": "assistant", "content": "5"}]]
    >>> reward(prompts=["2 + 2?"] * 2, completions=said, solution=["4", "4"])
    [1.0, 0.0]
    >>> reward.__name__
    'swerve_math_solution'
    """
    _check_policies(grader, policies)
    if name is not None and not (isinstance(name, str) and name.strip()):
        raise ConfigError(f"name={name!r} is no name for a reward; give a text, or leave it out for swerve_{grader}")
    return TrlReward(name or _reward_name(grader, gold, policies), grader, gold, missing, policies)


def _reward_name(grader: str, gold: str, policies: Mapping[str, Any]) -> str:
    """Return the name of a reward by its settings: other settings are another metric.

    >>> _reward_name("math", "answer", {"extraction": ["boxed"]}), _reward_name("math", "solution", {})
    ('swerve_math_boxed', 'swerve_math_solution')
    """
    settings = [*([] if gold == "answer" else [gold]), *policies.values()]
    words = [str(word) for value in settings for word in (value if isinstance(value, list | tuple) else [value])]
    return "_".join(["swerve", grader, *(re.sub(r"\W+", "_", word) for word in words)])


def verl_reward(grader: str = "math", *, missing: float = 0.0, **policies: Any) -> Callable[..., float]:
    r"""Return verl's `compute_score(data_source, solution_str, ground_truth, extra_info)`.

    In the file that `reward.custom_reward_function.path` names, write `compute_score = verl_reward("math")`.

    Args:
        grader: one of `known_graders()` that needs the gold answer alone.
        missing: of a text without an answer, or one that cannot be judged.
        policies: of the grader, such as `extraction=["boxed"]`.

    Raises:
        ConfigError: there is no such grader or policy.

    >>> compute_score = verl_reward("gsm8k")
    >>> compute_score("openai/gsm8k", "so it is #### 72", "72", None)
    1.0
    """
    _check_policies(grader, policies)
    return partial(_verl_score, (grader, missing, policies))


class TrlReward:
    """A reward function of `trl_reward`: an object, for TRL reads its `__name__`, and of a partial the function's."""

    def __init__(self, name: str, grader: str, gold: str, missing: float | None, policies: Mapping[str, Any]) -> None:
        """Keep the settings; see `trl_reward`."""
        self.__name__ = name
        self._grader, self._gold, self._missing, self._policies = grader, gold, missing, policies
        self.num_without_text = 0
        """Completions so far that had no text, such as calls of tools."""

    def __repr__(self) -> str:
        """Return one line: the grader, its policies, and where the gold answers are."""
        policies = "".join(f", {name}={value!r}" for name, value in self._policies.items())
        return f"trl_reward({self._grader!r}, gold={self._gold!r}{policies}), which TRL logs as {self.__name__}"

    def __call__(self, prompts: Any = None, completions: Any = None, **columns: Any) -> list[float | None]:
        """Grade completions as `trl_reward` says."""
        if completions is None:
            raise ConfigError(f"completions= is missing: what is graded, with their gold answers as {self._gold}=")
        if self._gold not in columns:
            known = ", ".join(name for name, column in columns.items() if isinstance(column, list)) or "none"
            raise ConfigError(
                f"the data set has no column '{self._gold}' with gold answers; name it with gold= (it has {known})"
            )
        texts = list(map(_said, completions))
        self.num_without_text += sum(not text.strip() for text in texts)
        if isinstance(columns[self._gold], str):
            raise ConfigError(f"{self._gold}= is one text; give a list, with a gold answer for each completion")
        golds, questions = columns[self._gold], [""] * len(texts) if prompts is None else list(map(_last_text, prompts))
        if not len(texts) == len(golds) == len(questions):
            raise ConfigError(
                f"{len(texts)} completions need as many gold answers and prompts, got {len(golds)} and {len(questions)}"
            )
        triples = list(zip(questions, texts, golds, strict=True))
        return _values(self._grader, triples, self._missing, self._policies)


def _verl_score(
    settings: tuple[str, float, Mapping[str, Any]],
    /,
    data_source: str,
    solution_str: Any,
    ground_truth: Any,
    extra_info: Any = None,
    **_: Any,
) -> float:
    grader, missing, policies = settings
    value = _values(grader, [("", _last_text(solution_str), ground_truth)], missing, policies)[0]
    return missing if value is None else value


def _said(completion: Any) -> str:
    """Return what a model said: a text, or that of its last message; empty without a message."""
    if isinstance(completion, list | tuple):
        roles = [message.get("role", "assistant") for message in completion if isinstance(message, Mapping)]
        if len(roles) == len(completion):
            completion = [message for message, role in zip(completion, roles, strict=True) if role == "assistant"]
    return _last_text(completion)


def _last_text(said: Any) -> str:
    """Return a text, or the text of the last of some messages; empty where it has none.

    Raises:
        ConfigError: it is neither.
    """
    content = said
    if isinstance(said, list | tuple):
        last = said[-1] if said else {"content": None}
        content = last.get("content") if isinstance(last, Mapping) else _text(said)
    if isinstance(content, list | tuple):
        parts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        content = "".join(part for part in parts if isinstance(part, str))
    return "" if content is None else _text(content)


def _text(given: Any) -> str:
    """Return what is graded, if it is a text.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(given, str):
        return given

    raise ConfigError(
        f"there is no text to grade but {shown(given)}; give one text, or messages to trl_reward, which grades many at "
        "once"
    )


def _values(
    grader: str, triples: Sequence[tuple[str, str, Any]], missing: float | None, policies: Mapping[str, Any]
) -> list[float | None]:
    """Return the rewards of (question, text, gold answers).

    Raises:
        ConfigError: a gold answer is missing, or neither a text, a number nor a list of these.
    """
    chosen = _check_policies(grader, policies)
    pairs = []
    for question, text, gold in triples:
        # A row without a gold answer would make right completions wrong.
        is_list = isinstance(gold, Iterable) and not isinstance(gold, str | Mapping)
        golds = list(gold) if is_list else [gold]
        if not golds or not all(isinstance(one, str | Number) and one == one for one in golds):  # NaN: none
            raise ConfigError(
                f"the gold answer is {gold!r}, of {text[:_SHOWN_CHARS]!r}; give a text, a number or a list of these, "
                "or leave the row out"
            )
        first, *others = golds
        problem = Problem(
            id="",
            family=grader,
            question=question,
            answer=str(first),
            alternatives=tuple(map(str, others)),
            grading=chosen,
        )
        pairs.append((problem, text))
    return [missing if reward.value is None else reward.value for reward in grade_all(pairs)]


def _check_policies(grader: str, policies: Mapping[str, Any]) -> dict[str, Any]:
    """Return the policies of a grader, those of its task by default."""
    from swerve.rewards.checks import outside_policies

    if not isinstance(grader, str):
        name = getattr(grader, "__name__", "math")
        raise ConfigError(f"a grader is given by its name, such as {name!r}, got {shown(grader)}")
    if grader not in GRADERS:
        raise ConfigError(
            f"there is no grader '{grader}'{nearest_grader(grader)} (known: {', '.join(known_graders())})"
        )
    return outside_policies(grader, policies)


def __getattr__(name: str) -> Any:
    """Say what a grader that was meant as a function is."""
    known = nearest_grader(name)
    if name not in GRADERS and not known:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    grader = name if name in GRADERS else known.split("'")[1]
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}; trl_reward({grader!r}) is a reward of the grader, and "
        f"swerve.grade(texts, golds, task={grader!r}) grades with it"
    )


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
