"""Responses joined to their problems by id or question, checked to have one prompt each, and numbered."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from swerve.artifacts.responses import IMPORTED, Response
from swerve.artifacts.streams import RowKeys
from swerve.errors import ArtifactError
from swerve.formats.imported_problems import has_made_id, ids_by_text

_NUM_NAMED = 5


def joined(responses: Iterable[Response], anew: Callable[[], Iterable[Response]]) -> Iterator[Response]:
    """Yield responses in their order; one whose record has no id belongs to the problem with its question.

    Args:
        responses: of a file, or of several.
        anew: returns them once more, wherever the first without an id is met; none is held.
    """
    ids: dict[str, str | None] | None = None
    for response in responses:
        own = response.problem
        if has_made_id(own):
            if ids is None:
                named = (each for each in anew() if not has_made_id(each.problem))
                ids = ids_by_text((each.problem, _asked(each)) for each in named)
            if name := ids and ids.get(_asked(response)):
                response = replace(response, problem=replace(own, id=name))
        yield response


def _asked(response: Response) -> str:
    """Return the question up to white space, else all that is known of what was asked; empty: nothing is."""
    return plain_text(response.problem.question) or (str(response.asked) if response.has_prompt else "")


@dataclass(slots=True)
class JoinCounts:
    """How responses met their problems; each counts responses."""

    by_id: int = 0
    by_question: int = 0
    gold_replaced: int = 0
    """The recorded gold answer differed from the problems' file, which was taken."""
    gold_damaged: int = 0
    """The recorded gold answer was cut off and not taken, whether or not there was another."""


def join_problems(
    responses: Iterable[Response], problems: Mapping[str, Response], counts: JoinCounts
) -> Iterator[Response]:
    """Yield the responses with what `problems` says of their problems filled in; `counts` says how that goes.

    A problem is found by the response's id or, where it has none or one that `problems` lack, by the question's text up
    to white space. The prompt is the response's own where it has one; the gold answer is that of `problems` where there
    is one.

    Raises:
        ArtifactError: a response and the problem of its id ask different questions.
    """
    # Problems are known by their id, and by the text of their question.
    by_question: dict[str, Response] = {}
    for known in problems.values():
        if known.problem.question:
            by_question.setdefault(plain_text(known.problem.question), known)
    # Each response takes over what is known of its problem.
    for response in responses:
        own = response.problem
        by_id = None if has_made_id(own) else problems.get(own.id)
        user = [text for role, text in own.messages if role == "user"]
        texts = map(plain_text, filter(None, (own.question, response.prompt, *user[-1:]) if by_question else ()))
        asked = by_id or next((by_question[text] for text in texts if text in by_question), None)
        counts.gold_damaged += bool(response.extra.get("gold_is_damaged"))
        if asked is None:
            yield response
            continue
        counts.by_id += by_id is not None
        counts.by_question += by_id is None
        questions = {plain_text(problem.question) for problem in (own, asked.problem) if problem.question}
        if len(questions) > 1 and not has_made_id(own):
            raise ArtifactError(
                f"{response.place}: the id {own.id!r} belongs to another question in the problems' file; ids must name "
                "the same problems in both (name another field with --field id=)"
            )
        golds = [own.answer, asked.problem.answer]
        counts.gold_replaced += all(golds) and len(set(map(plain_text, golds))) > 1
        yield _filled(response, asked)


def with_groups(responses: Sequence[Response]) -> list[Response]:
    """Return the responses; each problem has the group that any of its responses names.

    Raises:
        ArtifactError: they name two.
    """
    known: dict[str, str] = {}
    for response in responses:
        name, group = response.problem.id, response.problem.group
        if group is not None and known.setdefault(name, group) != group:
            place = f"{response.place}: " if response.place else ""
            raise ArtifactError(
                f"{place}problem {name!r} has two groups, {known[name]!r:.60} and {group!r:.60}; name a field that is "
                "the same for all responses to a problem with --field group="
            )
    if not known:
        return list(responses)
    return [_in_group(response, known.get(response.problem.id)) for response in responses]


def _in_group(response: Response, group: str | None) -> Response:
    problem = response.problem
    return response if problem.group == group else replace(response, problem=replace(problem, group=group))


def plain_text(text: str) -> str:
    """Return a text with single spaces, by which questions are compared."""
    return " ".join(text.split())


def _filled(response: Response, known: Response) -> Response:
    """Return a response with what is known of its problem; the prompt is its own where it has one."""
    own, asked = response.problem, response if response.has_prompt else known
    problem = replace(
        known.problem,
        **{name: getattr(asked.problem, name) for name in ("messages", "prefix", "begun")},
        id=known.problem.id if has_made_id(own) else own.id,
        question=own.question or known.problem.question,
        answer=known.problem.answer or own.answer,
        alternatives=known.problem.alternatives if known.problem.answer else own.alternatives,
        kind=known.problem.kind if own.kind == "all" else own.kind,
        group=known.problem.group if own.group is None else own.group,
        family=own.family if known.problem.family == IMPORTED else known.problem.family,
    )
    return replace(response, problem=problem, prompt=asked.prompt, prompt_ids=asked.prompt_ids)


def numbered(responses: Iterable[Response]) -> list[Response]:
    """Return the responses; one without a number gets its place among those of its problem, checkpoint and step."""
    counts: Counter[tuple[Any, ...]] = Counter()
    found = []
    for response in responses:
        group = (response.problem.id, response.label, response.step)
        found.append(replace(response, sample=counts[group]) if response.sample is None else response)
        counts[group] += 1
    return found


class PromptCheck:
    """Whether the prompt of every response is known, and every id has one prompt; sixteen bytes a response are held."""

    def __init__(self, *, needs_all: bool = True) -> None:
        """Without `needs_all` a response with a verdict, or known by its place alone, may do without a prompt."""
        self.ids, self._asked, self._needs_all = RowKeys(), RowKeys(), needs_all
        self.lacking = Counter[str]()
        """Responses whose prompt is not known, by their problem."""

    def look(self, response: Response) -> None:
        """Look at the next response."""
        name = response.problem.id
        self.ids.add(name)
        self._asked.add(name, response.asked)
        is_known = response.verdict is not None or "id_is_place" in response.extra
        if not response.has_prompt and (self._needs_all or not is_known):
            self.lacking[name] += 1

    def check(self, path: Path, places: Iterable[tuple[str, ...]]) -> None:
        """Check what was seen; `places` has the place and the id of each response.

        Raises:
            ArtifactError: a prompt is missing, or an id has two; the message names the problems.
        """
        if self.lacking:
            names = list(self.lacking)
            more = f" and {len(names) - _NUM_NAMED} more" if len(names) > _NUM_NAMED else ""
            raise ArtifactError(
                f"{path}: no prompt for {self.lacking.total()} of {len(self.ids)} responses (problems "
                f"{', '.join(map(repr, names[:_NUM_NAMED]))}{more}); give the problems' file with --problems, or add a "
                "field problem or prompt to each response"
            )
        order = np.argsort(self.ids.digests, kind="stable")
        ids, asked = self.ids.digests[order], self._asked.digests[order]
        differs = (ids[1:] == ids[:-1]) & (asked[1:] != asked[:-1])
        for row in np.sort(order[1:][differs])[:1].tolist():
            place, name = next(itertools.islice(places, row, None))
            raise ArtifactError(f"{place}: the id {name!r} occurs with two different prompts in {path}")


def check_prompts(path: Path, responses: Sequence[Response]) -> None:
    """Check that the prompt of every response is known, and that every id has one prompt; see `PromptCheck`."""
    check = PromptCheck()
    for response in responses:
        check.look(response)
    check.check(path, ((response.place, response.problem.id) for response in responses))
