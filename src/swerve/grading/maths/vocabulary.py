"""The words and signs of mathematical answers: units, numbers, functions, commands of LaTeX."""

from __future__ import annotations

from collections.abc import Mapping

_UNIT_NAMES = """
millimeter millimeters millimetre millimetres mm; centimeter centimeters centimetre centimetres cm;
meter meters metre metres; kilometer kilometers kilometre kilometres km; inch inches in; foot feet ft; yard yards yd;
mile miles mi; gram grams gm; kilogram kilograms kg kgs; milligram milligrams mg; pound pounds lb lbs; ounce ounces oz;
ton tons; tonne tonnes; liter liters litre litres; milliliter milliliters millilitre millilitres ml mL; gallon gallons;
cup cups; quart quarts; pint pints; acre acres; hectare hectares;
second seconds sec secs; minute minutes min mins; hour hours hr hrs; day days; week weeks; month months; year years
yr yrs;
mph; kph; rpm; degree degrees deg; radian radians rad; dollar dollars USD usd; cent cents; euro euros; rupee rupees;
yen;
newton newtons; joule joules; watt watts; volt volts; hertz Hz; celsius; fahrenheit; kelvin; mole moles mol;
unit units; way ways; point points; people; person persons; student students; piece pieces; item items; time times;
ampere amperes amp amps; ohm ohms;
bit bits; byte bytes; digit digits; integer integers; solution solutions; value values
"""
UNITS: Mapping[str, str] = {
    name: names.split()[0] for names in _UNIT_NAMES.replace("\n", " ").split(";") for name in names.split()
}
"""Spelling of a unit to its canonical name. Single letters are no units: `10 m` is 10 times m."""

LETTER_UNITS: Mapping[str, str] = {
    "m": "meter", "s": "second", "h": "hour", "g": "gram", "l": "liter", "L": "liter", "N": "newton", "J": "joule",
    "W": "watt", "V": "volt", "A": "ampere", "K": "kelvin", "C": "celsius", "F": "fahrenheit",
}  # fmt: skip
r"""Letters that are units in a text command after a number (`5\text{ m}`), or after the slash of a unit (`km/h`)."""
ORDINALS = ("st", "nd", "rd", "th")

_SMALL_NUMBERS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen
"""
_SMALL = {word: number for number, word in enumerate(_SMALL_NUMBERS.split())}
_MULTIPLES_OF_TEN = "twenty thirty forty fifty sixty seventy eighty ninety"
_TENS = dict(zip(_MULTIPLES_OF_TEN.split(), range(20, 100, 10), strict=True))
NUMBER_WORDS: Mapping[str, int] = {
    **_SMALL,
    **_TENS,
    "hundred": 100,
}
"""Numbers that are one word."""
SCALES: Mapping[str, int] = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
"""Words that end a part of a number in words: `two thousand and five`."""

TRIGONOMETRY = ("sin", "cos", "tan", "cot", "sec", "csc")
INVERSE_TRIGONOMETRY = tuple(f"arc{name}" for name in TRIGONOMETRY)
HYPERBOLIC = ("sinh", "cosh", "tanh", "coth", "sech", "csch")
INVERSE_HYPERBOLIC = ("arcsinh", "arccosh", "arctanh")
_OTHER_FUNCTIONS = ("ln", "log", "lg", "exp", "sqrt", "gcd", "lcm", "min", "max", "cis", "abs")
PROGRAM_NAMES: Mapping[str, str] = {f"a{name}": f"arc{name}" for name in TRIGONOMETRY}
"""What programs call inverse functions."""
FUNCTIONS = frozenset(
    {*TRIGONOMETRY, *INVERSE_TRIGONOMETRY, *HYPERBOLIC, *INVERSE_HYPERBOLIC, *_OTHER_FUNCTIONS, *PROGRAM_NAMES}
)
"""Names that are functions, with or without a backslash."""

_GREEK_NAMES = """
alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau upsilon phi
varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega
"""
GREEK = frozenset(_GREEK_NAMES.split())
_SHORT_WORDS = """
mod for all not the are was yes odd none one two six ten any but has per let set sum may red sun mon tue wed thu fri sat
jan feb mar apr jun jul aug sep oct nov dec
"""
SHORT_WORDS = frozenset(_SHORT_WORDS.split())
"""Words of three letters, and `none`, that are no products of variables."""
SYMBOL_COMMANDS: Mapping[str, str] = {
    **{name: name.removeprefix("var") for name in GREEK},
    "pi": "pi",
    "infty": "infinity",
    "infinity": "infinity",
    "inf": "infinity",
    "oo": "infinity",
    "emptyset": "emptyset",
    "varnothing": "emptyset",
    "ell": "ell",
    "hbar": "hbar",
}
"""Commands and words that are one symbol, to its name."""


MULTIPLIERS: Mapping[str, int] = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 1000,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "quadrillion": 10**15,
    "lakh": 10**5,
    "crore": 10**7,
}
"""Words after a number that multiply it."""

_NO_UNITS = """
and or not but nor if mod modulo remainder base plus minus over divided choose factorial squared cubed root half halves
third thirds quarter quarters fourth fourths fifth fifths sixth sixths seventh sevenths eighth eighths ninth ninths
tenth tenths twelfth twelfths hundredth hundredths thousandth thousandths score gross fold grand myriad tens hundreds
thousands millions lakhs crores below negative infinity
is isnt wrong incorrect maybe perhaps alternatively either
less more fewer greater smaller larger than least most times something between until through about around out
are was were it its no none neither both unless except false right correct true possibly probably actually instead
rather then though although however also another other
"""
NO_UNITS = frozenset(_NO_UNITS.split()) | MULTIPLIERS.keys()
"""Words after a number that change its value, or say that there is another one."""
MOST_UNIT_WORDS = 4
"""Plain words after a number that may be its unit; a longer text says something else."""


def canonical_unit(text: str) -> str:
    """Return one spelling of a unit; a unit that is not known stays as it is.

    >>> canonical_unit("square centimeters"), canonical_unit("sq. units"), canonical_unit("miles per hour")
    ('centimeter^2', 'unit^2', 'mile/hour')
    """
    result: list[str] = []
    power = ""
    for word in text.replace(".", " ").replace("/", " per ").replace("^", " ^").split():
        if word in ("square", "sq", "cubic", "cu"):
            power = "^2" if word.startswith("s") else "^3"
        elif word.startswith("^-") and result:  # `m s^-1` is `m/s`
            name, shown = result.pop(), word.removeprefix("^-")
            result += ["/", name + (f"^{shown}" if shown != "1" else "")]
        elif word.startswith("^"):
            result[-1:] = [*result[-1:], word] if not result else [result[-1] + word]
        elif word in ("per", "a", "an"):
            result.append("/")
        else:
            known = UNITS if "/" not in result else _AFTER_PER
            result.append(known.get(word, word if word in _SYMBOLS else word.casefold()) + power)
            power = ""
    return _SAME_UNITS.get("".join(result) if "/" in result else " ".join(result), " ".join(result).replace(" / ", "/"))


_SAME_UNITS: Mapping[str, str] = {
    "mph": "mile/hour", "kph": "kilometer/hour", "kmh": "kilometer/hour", "degree": "degree",
}  # fmt: skip
_AFTER_PER: Mapping[str, str] = {**UNITS, "h": "hour", "s": "second"}
_SYMBOL_NAMES = "nm pm ps ns ms mJ kJ MJ mW kW MW GW Pa hPa kPa MPa kHz MHz GHz eV keV MeV GeV mA kA mN kN mV kV mK"
_SYMBOLS = frozenset(_SYMBOL_NAMES.split())
"""Units that are known after a value in a text command; as plain letters they may be products of variables."""
_CANONICAL = frozenset(UNITS.values()) | _SYMBOLS


def is_known_unit(unit: str) -> bool:
    """Return whether every name in a canonical unit is a known one."""
    return all(name.partition("^")[0] in _CANONICAL for name in unit.replace("/", " ").split())


def units_differ(first: str, second: str) -> bool:
    """Return whether two canonical units are known to be different; of longer words the first name alone is looked at.

    >>> units_differ("dollar", "cent"), units_differ("foot long", "inch"), units_differ("foot long", "foot")
    (True, True, False)
    """
    if is_known_unit(first) and is_known_unit(second):
        return first != second and {first, second} not in _SCALES
    heads = [unit.replace("/", " ").split()[0] for unit in (first, second)]
    return heads[0] != heads[1] and all(map(is_known_unit, heads)) and set(heads) not in _SCALES


_SCALES = ({"degree", "celsius"}, {"degree", "fahrenheit"})
"""A degree may be one of a temperature."""
RELATIONS: Mapping[str, str] = {
    "=": "=", "<": "<", ">": ">", "<=": "<=", ">=": ">=", "!=": "!=", "le": "<=", "leq": "<=", "leqslant": "<=",
    "ge": ">=", "geq": ">=", "geqslant": ">=", "lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "approx": "approx",
    "in": "in", "equiv": "=", "coloneqq": "=",
}  # fmt: skip
SET_OPERATORS = {"cup": "union", "cap": "intersection", "setminus": "setminus", "backslash": "setminus"}
TIMES = ("*", "cdot", "times", "ast")
OVER = ("/", "div")
FRACTIONS = ("frac", "dfrac", "tfrac", "cfrac", "nicefrac", "sfrac")
BINOMIALS = ("binom", "dbinom", "tbinom")
MATRICES = ("matrix", "pmatrix", "bmatrix", "Bmatrix", "array", "smallmatrix")
FONTS = (
    "mathbf", "mathbb", "mathcal", "mathsf", "mathit", "mathrm", "mathtt", "mathscr", "pmb",
    "boldsymbol", "vec", "overrightarrow", "bold", "bm",
)  # fmt: skip
ACCENTS = ("overline", "bar", "hat", "widehat", "tilde", "dot", "ddot", "underline")
DOTS = ("dots", "ldots", "cdots", "dotsc", "dotsb", "dotsm", "dotso")
SUMS = {"sum": "+", "prod": "*"}
INTEGRALS = ("int", "iint", "iiint", "oint")
ROUNDINGS = {"lfloor": ("rfloor", "floor"), "lceil": ("rceil", "ceil")}
BARS = ("|", "lvert", "rvert", "vert", "mid")
FUNCTION_LETTERS = ("f", "g", "F", "G")
STRONG = ("and", "or")
LOGICAL = {"land": "and", "wedge": "and", "lor": "or", "vee": "or"}
"""Signs that stand for a word between relations."""
PERCENT_WORDS = ("percent", "pct", "percentage", "percents")
