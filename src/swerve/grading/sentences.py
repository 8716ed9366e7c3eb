"""The number that a sentence states, in the words of people and models: `She makes 2 * 9 = $18 a day` states $18.

It is the number after `is`, `has` and the like, or the one that the sentence begins with, or its last one that is no
time, place or number of others; of a calculation, its result. A sentence that names several values side by side,
negates one or leaves it open (`34 or 35`, `not 34`, `at least 34`) states none. Everything takes linear time on any
text.
"""

from __future__ import annotations

import re
from itertools import pairwise

from swerve.grading.maths.vocabulary import MULTIPLIERS, ORDINALS, PERCENT_WORDS, UNITS

_LONGEST_SENTENCE = 1000
_BEFORE = 60
"""Characters before a number that are looked at."""
DIGIT = re.compile("[0-9]")
_WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{3}")
NUMBER = re.compile(
    r"(?:(?<![0-9A-Za-z_.)}])[-+\u2212])?(?<![0-9A-Za-z_.^'\u2019])[$\u20ac\u00a3]?"
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:[.,][0-9]+)?)|\.[0-9]+)(?!\.?[0-9])"
    r"(?:[eE][-+]?[0-9]+)?(?:/[0-9]+| [0-9]+/[0-9]+)?(?: ?\\?%)?"
)
_IN_FORMULA_BEFORE = re.compile(r"(?:[{^_*/+\u00d7\u00b7\u00f7\u00b1~<>]|(?<=[0-9]):|(?<=[0-9a-zA-Z)}]) ?-) ?$")
_IN_FORMULA_AFTER = re.compile(
    r" ?[\^{}\\_*/+!\u00d7\u00b7\u00f7\u00b1~&|]|(?!\$(?![\w\\]))[^\s.,;:?)\]*\"\u201d\u00b0\u20ac\u00a3-]"
    r"|\u00b0(?![CF]?(?!\w))| ?[-\u2013] ?[$0-9]|-fold|:[0-9]|\.\."
)
"""After a number: an operator, or a sign that is no end of a word, so that what is read would be a piece of a value."""
SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+|(?:\$\$)+|\\\]")
_BULLET = re.compile(r"^[ *:=.]*(?:- )?")
_EMPHASIS = re.compile(
    r"\*\*|__|`+|\\(?:text\w{0,6}|mbox|mathrm|emph) ?\{([^{}]*)\}|(?<= )[(\[] ?(\$?[0-9][0-9.,/]{0,20}%?) ?[)\]]"
)
"""Marks around words, and brackets around a number: `eleven (11) cats`."""
_REMARK = re.compile(
    r"(?<=[0-9a-zA-Z%$*]) {1,2}(?:\((?!(?:or|maybe|perhaps|mod)\b)"
    r"(?=[^()]*(?:[a-zA-Z]{2}|[0-9] ?[-+*/=x]))[^()]{0,200}\)"
    r"|\[(?:[0-9]{1,3}|(?=[^\[\]]*[a-zA-Z]{2})[^\[\]]{0,200})\])"
    r"|(?:(?<=[0-9]):|,? \b(?:although|though|whereas|because)\b|, since\b) .*"
)
"""In brackets after a value: words, a calculation or a reference; what follows a colon or `although`."""
_ALTERNATIVE = re.compile(
    r" ?[a-z]{0,10} ?\bor\b| (?:out of|over|divided|plus|minus|half|halves|quarters?|thirds?|squared|cubed"
    r"|mod(?:ulo)?|base|score|gross|choose|factorial|below|above"
    r"|and (?:an?|one|two|three) |times (?!(?:an?|per|as a|in)\b)[a-z0-9]"
    r"|(?:four|fif|six|seven|eigh|nin|ten|twelf|hundred|thousand)ths\b)"
    r"|(?:st|nd|rd|th) (?:root|power)|(?: raised)? to the (?:power|\w{1,9}(?:st|nd|rd|th)\b)"
    r"|(?: \w{1,12})? too (?:few|many)\b",
    re.IGNORECASE,
)
"""After a number: there is another one, or words that make another value of it."""
_RATIO = re.compile(
    r"(?: (?:as|at|base|by|each|every|for|from|in|of|on|per|percent|remainder|R|than|times|to|vs\.?|with))+ [$0-9]",
    re.IGNORECASE,
)
"""After a number without a unit: another one, behind a mere preposition."""
_AFTER_UNIT = re.compile(
    r" (?:below|under) (?:zero|freezing|sea level)\b|(?<=th) of [0-9]| ?[-+*/=\u00d7\u00b7] ?[$0-9]", re.IGNORECASE
)
"""After the unit of a number: it is a negative value, or a term of a calculation."""
_NEGATED = re.compile(r"(?<![0-9%]) (?:negative|minus) (?=[0-9])")
_CONCLUSION = re.compile(r",? \b(?:so|thus|therefore|hence|making|giving|which (?:is|makes|gives))\b,? ", re.IGNORECASE)
_CONDITIONAL = re.compile(r"^ ?(?:if|when|since|as|because|after|with|for|given)\b[^,]{0,300}, ", re.IGNORECASE)
_DENIED = re.compile(r"\b(?:no|not|never|none|neither|cannot)\b", re.IGNORECASE)
OPEN = re.compile(
    r"\b(?:or|either|neither|nor|not|cannot|never|no|none|maybe|perhaps|possibly|probably|might|guess|unsure|unless|except"
    r"|nobody|doubt\w*|hardly|nowhere|unlikely|false|exceeds"
    r"|if|else|but|wrong|incorrect|the others?)\b|\bbetween [$0-9]|[0-9] (?:more|less|fewer) than\b|n't\b|\?"
    r"|[<>\u2264\u2265\u2260\u2248\u00b1|^\\{}\[\]\u2208\u222a]|\([^()]*[0-9]",
    re.IGNORECASE,
)
"""Words that leave open which value is meant, and signs of a formula."""
_VARIABLE = re.compile(r"(?<![^\W\d])(?<!['\u2019$/\u00b0-])(?<![0-9] (?=[msghlLNJWVK]\b))[b-zB-HJ-Z](?![\w'\u2019])")
_TIMES = re.compile(r"(?<=[0-9a-z)]) [xX] (?=[$0-9])|(?<=[0-9])x(?=[$0-9])")
_NAMED = re.compile(r"(?<![\w'])[a-zA-Z]\w{0,6} ?$")
_CHANGED = re.compile(
    r"\b(?:half|thirds?|quarters?|twice|double|triple|squared?|cubed?|root|base|mod(?:ulo)?|remainder|than|at least"
    r"|at most|up to|below|above|under|over|beyond|plus|minus|times|to|from)(?: of)?[ $]{0,2}$",
    re.IGNORECASE,
)
"""Words before a number that make another value of it."""
_STATED = re.compile(
    r"\b(?:is|are|has|have|equals?|needs?|gets?|got|earns?|makes?|costs?|takes?|pays?|spends?|saves?|be|totals?)"
    r"(?: (?:a total of|about|approximately|only|exactly|just|now|still|roughly|around))? $",
    re.IGNORECASE,
)
_ADJUNCT = re.compile(
    r"\b(?:(?:in|for|before|per|within|every|each|at|by|on|during|question|step|day|week)(?P<bare>)|of|from|after|with)"
    r"(?: (?:the|all|these|those|an?|its|his|her|their|first|last|next|[a-z]+ing)){0,2} $",
    re.IGNORECASE,
)
"""Before numbers of time, place or number of others; `sold for $18` has no other."""
_JOINT = re.compile(
    r"\s+|[^0-9]{0,60}(?:[,;&]|\band|\bto|-)[ $]*|.*\bother[ $]*"
    r"| (?!(?:is|are|was|has|makes?|costs?|equals?|times|on|in|for|at|by|of|per|from|with|after|over|every|each) )"
    r"[a-z]+ [$ ]*",
    re.IGNORECASE,
)
"""Between two values that are named side by side."""
_UNIT = re.compile(
    r"\s?(?:\(\s?)?((?:(?:square|cubic|sq|cu)\.? )?([a-zA-Z]+)(?:[\u00b2\u00b3]|\^\{?[23]\}?)?"
    r"(?:(?: per |/)[a-z]+[\u00b2\u00b3]?)?)(?!\w)\)?"
)
_POWERS = str.maketrans({"\u00b2": "^2", "\u00b3": "^3", "{": None, "}": None})
_LETTERS = frozenset("msghlLNJWVK")
_UNIT_WORDS = (frozenset((*UNITS, *MULTIPLIERS, *PERCENT_WORDS, *ORDINALS)) | _LETTERS) - {"in", "time", "times"}
_SIGN = re.compile(r" ?\\?([%\u20ac\u00a3]|\u00b0[CF]?(?!\w))")
_SIGN_UNITS = {"%": "\\%", "\u20ac": " euros", "\u00a3": " pounds"}
_POWER = re.compile(r"([0-9] ?(?:[ckm]?m|ft|in|yd|miles?|feet|inches|units?))\^\{?([23])\}?(?![0-9])")
_RATE = re.compile(r"(?:[gL]|[ck]?m[\u00b2\u00b3]|/[a-z]{2,})(?![a-zA-Z])")
"""After a number, without making a formula of it: `370g`, `$5/week`."""


def stated_value(text: str) -> str | None:
    """Return the number that the last sentence with one states, and its unit; None where it leaves open which.

    >>> stated_value("Each of the 3 boys gets 12 apples."), stated_value("42 dollars for 3 weeks")
    ('12', '42 dollars')
    >>> stated_value("5 boys, 3 girls") is None
    True
    """
    sentence = next((part for part in reversed(SENTENCES.split(text)) if DIGIT.search(part)), "")
    if not 0 < len(sentence) <= _LONGEST_SENTENCE:
        return None
    # Emphasis, remarks in brackets and conditions go; of a calculation its result is left, if it has no variables.
    plain = _EMPHASIS.sub(lambda match: match[1] or match[2] or "", sentence).replace("\\$", "$").replace("\\%", "%")
    plain = _POWER.sub(lambda match: match[1] + "\u00b2\u00b3"[int(match[2]) - 2], plain)
    plain = " ".join(_BULLET.sub("", plain).split())
    plain = _NEGATED.sub(" -", _REMARK.sub("", f" {plain} "))
    conclusion = _CONCLUSION.split(_CONDITIONAL.sub("", plain))[-1]
    plain = (conclusion if DIGIT.search(conclusion) else plain).strip(" *:=.")
    if "=" in plain and not _WORD.search(sentence):
        return None  # a formula, which is compared as one
    calculation, equals, result = plain.rpartition("=")
    plain = result.strip()
    if equals and _DENIED.search(calculation) and not _is_calculation(calculation):
        return None
    first = NUMBER.match(plain) if equals and _is_calculation(calculation) else None
    is_result = first is not None and not _is_in_formula(plain, first)
    if first is None or not is_result:
        is_named = equals and not first and not _WORD.search(calculation)
        if is_named or _VARIABLE.search(f"{_NAMED.sub('', calculation)} {plain}") or OPEN.search(plain):
            return None
        first = _stated_number(plain)
    if first is None or _follows(_CHANGED, plain, first) or makes_another_value(plain, first.end()):
        return None
    if not is_result and first[0][0] not in "$\u20ac\u00a3" and is_part_of_ratio(plain, first.end()):
        return None
    return first[0] + unit_after(plain, first.end())


def unit_after(text: str, position: int) -> str:
    r"""Return the known unit that follows a number, typeset where it is a letter; empty without one.

    >>> unit_after("10 (minutes)", 2), unit_after("10 m/s", 2), unit_after("10 of them", 2)
    (' minutes', '\\text{ m/s}', '')
    """
    sign = _SIGN.match(text, position)
    if sign is not None:
        return _SIGN_UNITS.get(sign[1], sign[1])
    unit = _UNIT.match(text, position)
    if unit is None or unit[2] not in _UNIT_WORDS:
        return ""
    name = unit[1].translate(_POWERS)
    return name if unit[2] in ORDINALS else rf"\text{{ {name}}}" if unit[2] in _LETTERS else f" {name}"


def makes_another_value(text: str, position: int) -> bool:
    """Return whether what follows a number, or its known unit, makes another value of it.

    >>> makes_another_value("5 or 7", 1), makes_another_value("5 cats in 7 days", 1)
    (True, False)
    >>> makes_another_value("5 degrees below zero", 1), makes_another_value("5 cm + 1 cm", 1)
    (True, True)
    """
    if _ALTERNATIVE.match(text, position):
        return True
    unit = _SIGN.match(text, position) or _UNIT.match(text, position)
    return unit is not None and _AFTER_UNIT.match(text, unit.end()) is not None


def is_part_of_ratio(text: str, position: int) -> bool:
    """Return whether another number follows a bare number behind a preposition.

    >>> is_part_of_ratio("5 in 7", 1), is_part_of_ratio("5 cats in 7 days", 1)
    (True, False)
    """
    return _RATIO.match(text, position) is not None


def is_open(text: str) -> bool:
    r"""Return whether a text is a sentence with numbers that states none of them.

    >>> is_open("It is not 34 feet."), is_open("It is 34 feet."), is_open("no solution"), is_open(r"\frac{1}{2}")
    (True, False, False, False)
    """
    is_prose = DIGIT.search(text) is not None and "\\" not in text and len(_WORD.findall(text)) > 1
    return is_prose and stated_value(text) is None


def _is_calculation(text: str) -> bool:
    """Return whether the last side of a chain of equations is made of numbers, without variables."""
    side = _TIMES.sub(" ", text.rpartition("=")[2])
    return DIGIT.search(side) is not None and _VARIABLE.search(side) is None


def _stated_number(sentence: str) -> re.Match[str] | None:
    """Return the number after `is`, `has` and the like, or that a sentence begins with, or else its last one."""
    numbers = [match for match in NUMBER.finditer(sentence) if not _is_in_formula(sentence, match)]
    stated = [match for match in numbers if _follows(_STATED, sentence, match)]
    if not numbers or len(stated) > 1:
        return None
    if len(numbers) > 1 and numbers[0].start() > 0 and not stated:
        adjuncts = {match: _follows(_ADJUNCT, sentence, match) for match in numbers}
        own = [
            match for match, found in adjuncts.items() if not found or ("$" in match[0] and found["bare"] is not None)
        ]
        numbers = own or numbers
    chosen = stated[0] if stated else numbers[0] if numbers[0].start() == 0 else numbers[-1]
    place = numbers.index(chosen)
    beside = pairwise(numbers[max(0, place - 1) : place + 2])
    is_list = any(_JOINT.fullmatch(sentence[adjunct.end() : other.start()]) for adjunct, other in beside)
    return None if is_list else chosen


def _follows(words: re.Pattern[str], sentence: str, number: re.Match[str]) -> re.Match[str] | None:
    return words.search(sentence, max(0, number.start() - _BEFORE), number.start())


def _is_in_formula(text: str, number: re.Match[str]) -> bool:
    unit = _UNIT.match(text, number.end())
    if (unit and unit[2] in _UNIT_WORDS) or _RATE.match(text, number.end()):
        return False
    before = _IN_FORMULA_BEFORE.search(text, max(0, number.start() - 4), number.start())
    return before is not None or _IN_FORMULA_AFTER.match(text, number.end()) is not None
