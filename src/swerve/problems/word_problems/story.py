"""Stories of word problems: a number of things changes, in English of varying wording; and written solutions."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gwen", "Hugo", "Iris", "Jack", "Kate", "Leo")
THINGS = ("shells", "stamps", "coins", "cards", "nuts", "pens", "beads", "apples", "books", "stones")
SIGN_WORDS: Mapping[str, str] = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}
_LARGEST = 60


class Event(NamedTuple):
    """What happens in one sentence."""

    sign: str
    """One of + - * /; empty where the number of things does not change."""
    number: int
    """How many things, or years, it names; 2 or 3 of a product, 2 of a quotient."""

    def after(self, value: int) -> int | None:
        """Return how many things there are after it; None: no whole number.

        >>> Event("-", 5).after(12), Event("/", 2).after(7), Event("", 5).after(12)
        (7, None, 12)
        """
        if self.sign == "/":
            return value // self.number if self.number and value % self.number == 0 else None
        results = {"+": value + self.number, "-": value - self.number, "*": value * self.number}
        return results.get(self.sign, value)


class Story(NamedTuple):
    """A problem before it is put into words."""

    start: int
    events: tuple[Event, ...]
    owner: str
    things: str

    @property
    def steps(self) -> tuple[Event, ...]:
        """What changes the number."""
        return tuple(event for event in self.events if event.sign)

    @property
    def end(self) -> int:
        """The number at the end."""
        value = self.start
        for event in self.steps:
            value = event.after(value) or 0
        return value


# Wordings of each sign: those that written solutions of the training problems are mostly about, and rare ones. None
# depends on who gives to whom.
_COMMON: Mapping[str, Sequence[str]] = {
    "+": ("{M} finds {b} more {N}.", "{M} buys {b} {N}.", "{M} picks up {b} {N}.", "{M} collects {b} {N}."),
    "-": ("{M} loses {b} {N}.", "{M} sells {b} {N}.", "{M} throws {b} {N} away.", "{M} drops {b} {N}."),
    "*": ("{M} doubles the number of {N}.", "A year later {M} has {times} as many {N}."),
    "/": ("{M} gives {O} half of the {N}.", "Half of the {N} are lost."),
    "": ("{O} has {b} {N}.", "{M} is {b} years old."),
}
_RARE: Mapping[str, Sequence[str]] = {
    "+": (
        "{b} {N} turn up in the coat of {M}.", "{M} wins {b} {N} at a fair.", "{M} trades a hat for {b} {N}.",
        "{M} unpacks {b} new {N}.", "A parcel brings {b} {N}.", "{M} earns {b} {N}.", "{M} borrows {b} {N}.",
        "{M} inherits {b} {N}.",
    ),
    "-": (
        "{b} {N} fall out of the coat of {M}.", "{M} donates {b} {N}.", "{M} trades {b} {N} for a hat.",
        "{M} breaks {b} {N}.", "A thief takes {b} {N}.", "{M} spends {b} {N}.", "{M} lends out {b} {N}.",
        "{M} mislays {b} {N}.",
    ),
    "*": ("For every one of the {N} {M} gets another one.",),
    "/": ("{M} and {O} share the {N} evenly.",),
    "": (
        "{M} nearly loses {b} {N}.", "{O} asks for {b} {N}, but {M} says no.", "{O} finds {b} {N}.",
        "{M} wants {b} more {N}, but has no money.", "{O} loses {b} {N}.", "{M} counts {b} {N} twice.",
    ),
}  # fmt: skip
_TREBLED = "A year later {M} has {times} as many {N}."
_OPENINGS = ("{M} has {s} {N}.", "{M} owns {s} {N}.", "There are {s} {N} in the bag of {M}.")
_QUESTIONS = ("How many {N} does {M} have now?", "How many {N} are left for {M}?", "How many {N} has {M} got?")
_SIGNS = ("+", "-", "*", "/", "")
_WEIGHTS = (8, 8, 2, 2, 4)
_PHRASES: Mapping[str, Sequence[str]] = {
    "+": ("gets {b} more", "gains {b}", "has {b} more", "receives {b}"),
    "-": ("loses {b}", "has {b} fewer", "gives up {b}", "is down {b}"),
    "*": ("has {times} as many",),
    "/": ("keeps half", "is left with half"),
}


def draw_story(rng: random.Random, *, steps: range) -> Story:
    """Return a story with a number of steps in `steps`, at most one of them a product or quotient."""
    while True:
        signs = rng.choices(_SIGNS, _WEIGHTS, k=rng.choice(steps) + rng.choice((0, 0, 1)))
        if sum(map(bool, signs)) not in steps or sum(sign in "*/" for sign in signs if sign) > 1:
            continue
        owner, value, events = rng.choice(NAMES), rng.randint(5, 30), list[Event]()
        story = Story(value, (), owner, rng.choice(THINGS))
        for sign in signs:
            number = 2 if sign in ("*", "/") else rng.randint(2, 12)
            if sign == "*" and value <= 16 and rng.random() < 0.4:
                number = 3
            events.append(Event(sign, number))
            value = events[-1].after(value) or 0
            if not 2 <= value <= _LARGEST:
                break
        else:
            return story._replace(events=tuple(events))


def told(story: Story, rng: random.Random, *, rare: float) -> tuple[str, str]:
    """Return the question, and the combination of wordings that it has.

    Args:
        story: what happens.
        rng: chooses the words.
        rare: share of the events that are told in rare wordings.
    """
    other = rng.choice([name for name in NAMES if name != story.owner])
    forms = []
    for event in story.events:
        wordings = (_RARE if rng.random() < rare else _COMMON)[event.sign]
        forms.append(_TREBLED if event == Event("*", 3) else rng.choice(wordings))
    words = {"M": story.owner, "O": other, "N": story.things, "s": story.start}
    sentences = [rng.choice(_OPENINGS).format(**words)]
    for form, event in zip(forms, story.events, strict=True):
        sentences.append(form.format(**words, b=event.number, times=_times(event.number)))
    return " ".join([*sentences, rng.choice(_QUESTIONS).format(**words)]), "|".join(forms)


def written_solution(story: Story, rng: random.Random) -> str:
    """Return a right solution in words that are drawn.

    >>> written_solution(Story(13, (Event("+", 6), Event("", 3)), "Dan", "beads"), random.Random(1))
    'Dan starts with 13. Now 13 + 6 = 19. That leaves 19 beads. #### 19'
    """
    owner, value = story.owner, story.start
    openings = ("{M} starts with {v}.", "At first {M} has {v} {N}.", "We begin with {v} {N}.")
    sentences = [rng.choice(openings).format(M=owner, v=value, N=story.things)]
    for event in story.steps:
        # The sum in signs or words, said before or after what happens, or alone.
        result = event.after(value)
        sign, equals = rng.choice([(event.sign, "=")] * 2 + [(SIGN_WORDS[event.sign], "is"), (event.sign, "makes")])
        sum_ = f"{value} {sign} {event.number} {equals} {result}"
        phrase = rng.choice(_PHRASES[event.sign]).format(b=event.number, times=_times(event.number))
        who = rng.choice((owner, owner, "the owner"))
        forms = (
            f"{who} {phrase}, so {sum_}.",
            f"{who} {phrase}: {sum_}.",
            f"{sum_}, because {who} {phrase}.",
            f"{sum_}.",
        )
        sentences.append(f"{rng.choice(('Then', 'Next', 'After that', 'Now'))} {rng.choice(forms)}")
        value = result or 0
    if rng.random() < 0.5:
        sentences.append(rng.choice((f"So {owner} has {value}.", f"That leaves {value} {story.things}.")))
    return " ".join([*sentences, f"#### {value}"])


def _times(number: int) -> str:
    return "twice" if number == 2 else f"{number} times"
