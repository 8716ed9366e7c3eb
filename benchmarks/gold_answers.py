r"""Three hundred gold answers of the kinds that mathematical data sets have, each with a wrong one beside it.

Every kind is a program: it draws whole numbers, and writes them as an answer in several ways that mean the same. The
wrong answer is written by the same program from changed numbers (a sign, a digit, a term, an end of an interval, the
order of a pair, ...), and `value`, computed from the numbers and never from the text, says that it is another one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from fractions import Fraction

NUM_GOLDS = 300
_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer in the ways in which its kind is written."""

    latex: str
    """As a data set has it."""
    plain: str
    """As typed without LaTeX."""
    forms: tuple[str, ...]
    """Other LaTeX of the same answer; equally many and in the same order for all answers of a kind."""
    value: Hashable
    """What tells answers of one kind apart."""
    parts: tuple[str, ...] = ()
    """The answers of a list, with their names where they have some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold:
    """A gold answer and a wrong one of its kind."""

    number: int
    kind: str
    right: Answer
    wrong: Answer


Numbers = tuple[int, ...]
_KINDS: dict[str, tuple[Callable[[random.Random], Numbers], Callable[..., Answer]]] = {}


def golds() -> list[Gold]:
    """Return the gold answers, always the same ones; the kinds take turns."""
    rng = random.Random(f"gold answers {_SEED}")
    names = list(_KINDS)
    found: dict[tuple[str, Numbers], Gold] = {}
    while len(found) < NUM_GOLDS:
        kind = names[len(found) % len(names)]
        draw, write = _KINDS[kind]
        numbers = draw(rng)
        try:
            right = write(*numbers)
        except ValueError:
            continue
        wrong = [answer for answer in _changed(write, numbers) if answer.value != right.value]
        if wrong and (kind, numbers) not in found:
            found[kind, numbers] = Gold(number=len(found), kind=kind, right=right, wrong=rng.choice(wrong))
    return list(found.values())


def _changed(write: Callable[..., Answer], numbers: Numbers) -> Iterator[Answer]:
    """Yield the answers with one number changed, dropped, or in another place, where they are of the kind."""
    changes = [numbers[:-1]]
    for index, number in enumerate(numbers):
        others = (number + 1, number - 1, -number, 10 * number, 0)
        changes += [(*numbers[:index], other, *numbers[index + 1 :]) for other in others]
        changes.append((*numbers[:index], *numbers[index + 1 : index + 2], number, *numbers[index + 2 :]))
    for change in changes:
        try:
            yield write(*change)
        except (ValueError, TypeError):
            continue


def _kind(draw: Callable[[random.Random], Numbers]) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    def register(write: Callable[..., Answer]) -> Callable[..., Answer]:
        _KINDS[write.__name__.strip("_")] = draw, write
        return write

    return register


def _check(condition: bool) -> None:
    if not condition:
        raise ValueError("not of the kind")


def _whole(low: int, high: int, count: int = 1) -> Callable[[random.Random], Numbers]:
    """Return what draws whole numbers other than 0."""
    choices = [number for number in range(low, high + 1) if number]
    return lambda rng: tuple(rng.choice(choices) for _ in range(count))


def _each(*draws: Callable[[random.Random], Numbers]) -> Callable[[random.Random], Numbers]:
    return lambda rng: tuple(number for draw in draws for number in draw(rng))


def _one_of(*numbers: int) -> Callable[[random.Random], Numbers]:
    return lambda rng: (rng.choice(numbers),)


def _sum(*terms: tuple[int, str]) -> str:
    """Return a sum such as `3x^2 - x + 4`, without the terms that are 0."""
    text = ""
    for factor, name in terms:
        if factor:
            size = str(abs(factor)) if abs(factor) != 1 or not name else ""
            sign = "-" if factor < 0 else "+" if text else ""
            text += f" {sign} {size}{name}" if text else f"{sign}{size}{name}"
    return text or "0"


def _plain(latex: str) -> str:
    """Return simple LaTeX as it is typed."""
    changes = {r"\sqrt{": "√(", r"\pi": "π", r"\cdot": "·", r"\infty": "∞", r"\cup": "\u222a", r"\le": "≤", r"\ge": "≥"}
    for command, sign in changes.items():
        latex = latex.replace(command, sign)
    return latex.replace("}", ")").replace("-", "\u2212").replace("^2", "²").replace("^3", "³")


# Numbers


@_kind(_whole(-400, 900))
def _integer(n: int) -> Answer:
    forms = (f"{n}.0", rf"{n - 7} + 7 = {n}", rf"2 \cdot {n} - ({n}) = {n}\text{{ cm}}", rf"\frac{{{3 * n}}}{{3}}")
    return Answer(latex=f"{n}", plain=str(n).replace("-", "\u2212"), forms=(*forms, rf"\mathbf{{{n}}}"), value=n)


@_kind(_whole(1001, 9_000_000))
def _big_integer(n: int) -> Answer:
    _check(n > 1000)
    commas = f"{n:,}"
    spaced = [commas.replace(",", sign) for sign in ("{,}", r"\,", r",\!", " ")]
    return Answer(latex=f"{n}", plain=commas, forms=(commas, *spaced), value=n)


@_kind(_each(_whole(-30, 60), _one_of(2, 4, 5, 8, 20, 25)))
def _fraction(p: int, q: int) -> Answer:
    _check(q > 1 and p != 0 and math.gcd(p, q) == 1)
    sign, size = ("-" if p < 0 else ""), abs(p)
    exact = f"{p / q:g}" if q in (2, 4, 5, 8, 20, 25) else f"{p}/{q}"
    forms = (
        rf"{sign}\dfrac{{{size}}}{{{q}}}",
        rf"\tfrac{{{p}}}{{{q}}}",
        f"{p}/{q}",
        exact,
        rf"{sign}{{{size} \over {q}}}",
    )
    return Answer(latex=rf"{sign}\frac{{{size}}}{{{q}}}", plain=f"{p}/{q}", forms=forms, value=Fraction(p, q))


@_kind(_each(_whole(-9, 9), _one_of(3, 6, 7, 9)))
def _endless_fraction(p: int, q: int) -> Answer:
    _check(1 < q < 10 and 0 < abs(p) < 10 and math.gcd(p, q) == 1)
    sign, size = ("-" if p < 0 else ""), abs(p)
    forms = (
        rf"{sign}\frac{size}{q}",
        rf"\frac{{{-p}}}{{{-q}}}",
        rf"\dfrac{{{2 * p}}}{{{2 * q}}}",
        rf"{sign}\cfrac{{{size}}}{{{q}}}",
    )
    return Answer(
        latex=rf"{sign}\frac{{{size}}}{{{q}}}",
        plain=f"{p} / {q}",
        forms=(*forms, rf"\left({p}\right)/{q}"),
        value=Fraction(p, q),
    )


@_kind(_whole(-999, 4999))
def _decimal(n: int) -> Answer:
    _check(n % 10 != 0)
    text = f"{n / 100:.2f}"
    forms = (
        rf"\frac{{{n}}}{{100}}",
        f"{text}0",
        text.replace("0.", ".", 1) if abs(n) < 100 else text,
        rf"{text}\text{{ cm}}",
    )
    return Answer(latex=text, plain=text.replace("-", "\u2212"), forms=(*forms, rf"{n / 50:.2f} / 2 = {text}"), value=n)


@_kind(_each(_whole(-9, 20), _whole(1, 8), _one_of(2, 3, 4, 5, 7, 8)))
def _mixed(w: int, p: int, q: int) -> Answer:
    _check(w != 0 and 0 < p < q < 10 and math.gcd(p, q) == 1)
    top = (abs(w) * q + p) * (-1 if w < 0 else 1)
    forms = (rf"{w} \frac{{{p}}}{{{q}}}", rf"{w}\dfrac{{{p}}}{{{q}}}", rf"\frac{{{top}}}{{{q}}}", rf"{w}\tfrac{p}{q}")
    return Answer(
        latex=rf"{w}\frac{{{p}}}{{{q}}}", plain=f"{w} {p}/{q}", forms=(*forms, rf"{w}\ {p}/{q}"), value=Fraction(top, q)
    )


_SQUARE_FREE = (2, 3, 5, 6, 7, 10, 11, 13, 14, 15)


@_kind(_each(_whole(-9, 12), _one_of(*_SQUARE_FREE)))
def _radical(a: int, b: int) -> Answer:
    _check(abs(a) > 1 and b in _SQUARE_FREE)
    sign = "-" if a < 0 else ""
    forms = (
        rf"{sign}\sqrt{{{a * a * b}}}",
        rf"{a} \cdot \sqrt{{{b}}}",
        rf"{a} \cdot {b}^{{1/2}}",
        rf"\frac{{{a * b}}}{{\sqrt{{{b}}}}}",
    )
    return Answer(
        latex=rf"{a}\sqrt{{{b}}}", plain=f"{a}√{b}", forms=(*forms, rf"{a}\sqrt{{{b}}} \text{{ units}}"), value=(a, b)
    )


@_kind(_each(_whole(-12, 12), _whole(-6, 6), _one_of(*_SQUARE_FREE)))
def _surd_sum(a: int, b: int, c: int) -> Answer:
    _check(a != 0 and b != 0 and c in _SQUARE_FREE)
    root = rf"\sqrt{{{c}}}"
    latex = _sum((a, ""), (b, root))
    forms = (_sum((b, root), (a, "")), rf"\left( {latex} \right)", rf"\frac{{{_sum((2 * a, ''), (2 * b, root))}}}{{2}}")
    return Answer(
        latex=latex, plain=_plain(latex), forms=(*forms, rf"x = {latex}", rf"{latex} \text{{ cm}}"), value=(a, b, c)
    )


@_kind(_each(_one_of(*_SQUARE_FREE), _whole(2, 9)))
def _surd_fraction(b: int, a: int) -> Answer:
    _check(a > 1 and b in _SQUARE_FREE)
    forms = (
        rf"\frac{{{b}}}{{{a}\sqrt{{{b}}}}}",
        rf"\sqrt{{{b}}}/{a}",
        rf"\frac{{1}}{{{a}}}\sqrt{{{b}}}",
        rf"\dfrac{{\sqrt{{{b}}}}}{{{a}}}",
    )
    return Answer(
        latex=rf"\frac{{\sqrt{{{b}}}}}{{{a}}}",
        plain=f"√{b}/{a}",
        forms=(*forms, rf"\frac{{\sqrt {{{b}}} }} {{ {a} }}"),
        value=(a, b),
    )


@_kind(_each(_whole(-9, 40), _one_of(1, 2, 3, 4, 6)))
def _pi(a: int, b: int) -> Answer:
    _check(abs(a) > 1 and b > 0 and math.gcd(a, b) == 1)
    latex = rf"{a}\pi" if b == 1 else rf"\frac{{{a}\pi}}{{{b}}}"
    forms = (rf"\frac{{{a}}}{{{b}}}\pi", rf"\frac{{{a} \pi}}{{{b}}}\text{{ square units}}", rf"{a} \cdot \pi / {b}")
    return Answer(
        latex=latex,
        plain=f"{a}π" if b == 1 else f"{a}π/{b}",
        forms=(*forms, rf"\dfrac{{{2 * a}\pi}}{{{2 * b}}}", rf"A = {latex}"),
        value=Fraction(a, b),
    )


@_kind(_each(_whole(3, 9), _one_of(2, 3, 5), _whole(5, 12)))
def _power(a: int, b: int, n: int) -> Answer:
    _check(a > 1 and b in (2, 3, 5) and 0 < n < 20)
    forms = (
        rf"{b}^{{{n}}} \cdot {a}",
        f"{a * b**n}",
        rf"{a} \times {b}^{{{n}}}",
        rf"{a}({b}^{{{n}}})",
        rf"{a} \cdot {b}^{{({n})}}",
    )
    return Answer(latex=rf"{a} \cdot {b}^{{{n}}}", plain=f"{a} * {b}^{n}", forms=forms, value=a * b**n)


# Expressions


@_kind(_whole(-9, 9, 3))
def _polynomial(a: int, b: int, c: int) -> Answer:
    _check(a != 0)
    latex, plain = _sum((a, "x^2"), (b, "x"), (c, "")), _plain(_sum((a, "x^2"), (b, "x"), (c, "")))
    forms = (
        _sum((c, ""), (b, "x"), (a, "x^{2}")),
        rf"{a} \cdot x^2 + ({b})x + ({c})",
        rf"\left({latex}\right)",
        f"f(x) = {latex}",
    )
    return Answer(latex=latex, plain=plain, forms=(*forms, _sum((a, "x^{2}"), (b, "x^{1}"), (c, ""))), value=(a, b, c))


@_kind(_whole(-9, 9, 2))
def _factored(a: int, b: int) -> Answer:
    _check(a != b and a != 0 and b != 0)
    first, second = (f"({_sum((1, 'x'), (-root, ''))})" for root in (a, b))
    forms = (
        second + first,
        _sum((1, "x^2"), (-a - b, "x"), (a * b, "")),
        rf"{first} \cdot {second}",
        rf"\left{first[:-1]}\right){second}",
    )
    return Answer(
        latex=first + second, plain=_plain(first + second), forms=(*forms, f"{first} {second}"), value=frozenset({a, b})
    )


@_kind(_whole(-9, 9, 2))
def _rational(a: int, b: int) -> Answer:
    _check(a != b and a != 0 and b != 0)
    top, bottom = _sum((1, "x"), (a, "")), _sum((1, "x"), (b, ""))
    forms = (
        f"({top})/({bottom})",
        rf"\frac{{{_sum((2, 'x'), (2 * a, ''))}}}{{{_sum((2, 'x'), (2 * b, ''))}}}",
        rf"\dfrac{{{top}}}{{{bottom}}}",
        rf"1 + \frac{{{a - b}}}{{{bottom}}}",
        rf"\frac{{{_sum((-1, 'x'), (-a, ''))}}}{{{_sum((-b, ''), (-1, 'x'))}}}",
    )
    return Answer(latex=rf"\frac{{{top}}}{{{bottom}}}", plain=f"({top})/({bottom})", forms=forms, value=(a, b))


@_kind(_whole(2, 9, 3))
def _nested(a: int, b: int, c: int) -> Answer:
    _check(min(a, b, c) > 0)
    latex = rf"{a}x^{{2}}(y^{{2}}(z^{{2}}({_sum((1, 'w'), (b, ''))}) + {c}) + 1)"
    product = rf"x^{{2}}\left(y^{{2}}\left(z^{{2}}\left(w+{b}\right) + {c}\right) + 1\right) \cdot {a}"
    expanded = rf"{a}x^{{2}}y^{{2}}z^{{2}}w + {a * b}x^{{2}}y^{{2}}z^{{2}} + {a * c}x^{{2}}y^{{2}} + {a}x^{{2}}"
    forms = (
        product,
        expanded,
        latex.replace("{2}", "2"),
        latex.replace("(", "[").replace(")", "]"),
        latex.replace("(", r"\left(").replace(")", r"\right)"),
    )
    return Answer(latex=latex, plain=latex.replace("{2}", "2"), forms=forms, value=(a, b, c))


@_kind(_each(_whole(2, 9), _whole(-20, 20)))
def _exponential(a: int, k: int) -> Answer:
    _check(a > 1 and k != 0)
    latex = rf"{a}^{{n+1}} {k:+}"
    forms = (
        rf"{a} \cdot {a}^n {k:+}",
        rf"{k} + {a}^{{n+1}}",
        rf"{a}^{{1+n}} {k:+}",
        rf"a_n = {latex}",
        rf"{a}^{{(n+1)}} {k:+}",
    )
    return Answer(latex=latex, plain=f"{a}^(n+1) {k:+}", forms=forms, value=(a, k))


@_kind(_whole(-9, 9, 2))
def _line(m: int, b: int) -> Answer:
    _check(m != 0 and b != 0)
    right = _sum((m, "x"), (b, ""))
    forms = (
        f"y = {_sum((b, ''), (m, 'x'))}",
        f"{_sum((1, 'y'), (-m, 'x'))} = {b}",
        f"{right} = y",
        f"2y = {_sum((2 * m, 'x'), (2 * b, ''))}",
        f"y={right}",
    )
    return Answer(latex=f"y = {right}", plain=_plain(f"y = {right}"), forms=forms, value=(m, b))


@_kind(_whole(-9, 9, 2))
def _complex(a: int, b: int) -> Answer:
    _check(a != 0 and b != 0)
    latex = _sum((a, ""), (b, "i"))
    forms = (
        _sum((b, "i"), (a, "")),
        rf"{a} {b:+} \cdot i",
        rf"z = {latex}",
        rf"\left({latex}\right)",
        rf"\frac{{{2 * a} {2 * b:+}i}}{{2}}",
    )
    return Answer(latex=latex, plain=_plain(latex), forms=forms, value=(a, b))


# Several answers


@_kind(_whole(-20, 30, 3))
def _list(*items: int) -> Answer:
    _check(len(set(items)) == len(items) > 1)
    texts = list(map(str, items))
    named = ", ".join(f"x = {text}" for text in texts)
    forms = (
        ", ".join(texts[::-1]),
        " and ".join([", ".join(texts[:-1]), texts[-1]]),
        r" \text{ or } ".join(texts),
        named,
        rf"\{{{', '.join(texts)}\}}",
    )
    return Answer(
        latex=", ".join(texts), plain=", ".join(texts), forms=forms, value=frozenset(items), parts=tuple(texts)
    )


@_kind(_each(_whole(-9, 9), _one_of(*_SQUARE_FREE)))
def _plus_minus(a: int, b: int) -> Answer:
    _check(a != 0 and b in _SQUARE_FREE)
    first, second = rf"{a} + \sqrt{{{b}}}", rf"{a} - \sqrt{{{b}}}"
    forms = (
        f"{first}, {second}",
        rf"{second} \text{{ and }} {first}",
        rf"x = {a} \pm \sqrt{{{b}}}",
        f"x = {second}, x = {first}",
        rf"\frac{{{2 * a} \pm 2\sqrt{{{b}}}}}{{2}}",
    )
    return Answer(latex=rf"{a} \pm \sqrt{{{b}}}", plain=f"{a} ± √{b}", forms=forms, value=(a, b), parts=(first, second))


@_kind(_whole(-20, 20, 2))
def _named(a: int, b: int) -> Answer:
    _check(a != b)
    forms = (
        rf"x = {a} \text{{ and }} y = {b}",
        f"y = {b}, x = {a}",
        f"x={a}; y={b}",
        rf"x = {a},\quad y = {b}",
        rf"\begin{{cases}} x = {a} \\ y = {b} \end{{cases}}",
    )
    return Answer(
        latex=f"x = {a}, y = {b}",
        plain=_plain(f"x = {a}, y = {b}"),
        forms=forms,
        value=(a, b),
        parts=(f"x = {a}", f"y = {b}"),
    )


@_kind(_whole(-12, 20, 2))
def _indexed(a: int, b: int) -> Answer:
    _check(a != b)
    first, second = f"x_1 = {a}", f"x_2 = {b}"
    forms = (
        rf"{first} \text{{ and }} {second}",
        f"x_{{1}} = {a}, x_{{2}} = {b}",
        rf"{first} \quad {second}",
        f"{first}; {second}",
        f"{second}, {first}",
    )
    return Answer(
        latex=f"{first}, {second}", plain=_plain(f"{first}, {second}"), forms=forms, value=(a, b), parts=(first, second)
    )


@_kind(_each(_whole(-9, 9, 2), _one_of(2, 3, 5, 7)))
def _pair(a: int, b: int, c: int) -> Answer:
    _check(a != b and c > 1 and math.gcd(b, c) == 1)
    second = rf"\frac{{{b}}}{{{c}}}"
    forms = (
        rf"\left( {a}, {second} \right)",
        rf"({a}, {b}/{c})",
        rf"\left({a},\dfrac{{{b}}}{{{c}}}\right)",
        rf"(x, y) = ({a}, {second})",
        rf"({a}.0,\,{second})",
    )
    return Answer(latex=f"({a}, {second})", plain=_plain(f"({a}, {b}/{c})"), forms=forms, value=(a, Fraction(b, c)))


@_kind(_each(_whole(-20, 5), _whole(6, 30), _one_of(0, 1), _one_of(0, 1)))
def _interval(low: int, high: int, left: int, right: int) -> Answer:
    _check(low < high and left in (0, 1) and right in (0, 1))
    opening, closing = "(["[left], ")]"[right]
    below, above = ("<", r"\le")[left], ("<", r"\leq")[right]
    latex = f"{opening}{low}, {high}{closing}"
    forms = (
        rf"\left{opening}{low}, {high}\right{closing}",
        rf"x \in {latex}",
        rf"{low} {below} x {above} {high}",
        rf"{opening}{low},{high}.0{closing}",
        rf"\{{x \mid {low} {below} x {above} {high}\}}",
    )
    return Answer(latex=latex, plain=_plain(latex), forms=forms, value=(low, high, left, right))


@_kind(_each(_whole(-20, 5), _whole(6, 30), _one_of(0, 1), _one_of(0, 1)))
def _union(low: int, high: int, left: int, right: int) -> Answer:
    _check(low < high and left in (0, 1) and right in (0, 1))
    first, second = rf"(-\infty, {low}{')]'[left]}", rf"{'(['[right]}{high}, \infty)"
    below, above = ("<", r"\le")[left], (">", r"\ge")[right]
    forms = (
        rf"{second} \cup {first}",
        rf"x \in {first} \cup {second}",
        rf"x {below} {low} \text{{ or }} x {above} {high}",
        rf"\left(-\infty,{low}\right{')]'[left]}\cup\left{'(['[right]}{high},+\infty\right)",
        rf"{first}\cup {second}.",
    )
    latex = rf"{first} \cup {second}"
    return Answer(latex=latex, plain=_plain(latex), forms=forms, value=(low, high, left, right))


@_kind(_each(_whole(-30, 30), _one_of(0, 1), _one_of(0, 1)))
def _inequality(a: int, strict: int, upper: int) -> Answer:
    _check(strict in (0, 1) and upper in (0, 1))
    sign, mirrored = ((r"\ge", r"\le"), (">", "<"))[strict][:: -1 if upper else 1]
    interval = rf"(-\infty, {a}{')' if strict else ']'}" if upper else rf"{'(' if strict else '['}{a}, \infty)"
    forms = (
        interval,
        rf"{a} {mirrored} x",
        rf"x \in {interval}",
        rf"2x {sign} {2 * a}",
        rf"x {sign.replace('e', 'eq')} {a}",
    )
    return Answer(latex=rf"x {sign} {a}", plain=_plain(rf"x {sign} {a}"), forms=forms, value=(a, strict, upper))


@_kind(_whole(-12, 20, 3))
def _set(*items: int) -> Answer:
    _check(len(set(items)) == len(items) > 1)
    inner = ", ".join(map(str, items))
    turned = ", ".join(map(str, items[::-1]))
    forms = (
        rf"\{{{turned}\}}",
        rf"\left\{{ {inner} \right\}}",
        turned,
        rf"\lbrace {inner} \rbrace",
        rf"S = \{{{inner}\}}",
    )
    return Answer(latex=rf"\{{{inner}\}}", plain=f"{{{inner}}}", forms=forms, value=frozenset(items))


@_kind(_whole(-9, 9, 4))
def _matrix(a: int, b: int, c: int, d: int) -> Answer:
    body = rf"{a} & {b} \\ {c} & {d}"
    forms = (
        rf"\begin{{bmatrix}} {body} \end{{bmatrix}}",
        rf"\left( \begin{{array}}{{cc}} {body} \end{{array}} \right)",
        rf"\left[\begin{{array}}{{rr}}{body}\end{{array}}\right]",
        rf"A = \begin{{pmatrix}}{body}\\\end{{pmatrix}}",
        rf"\begin{{pmatrix}} {a}&{b}\\{c}&{d} \end{{pmatrix}}",
    )
    return Answer(
        latex=rf"\begin{{pmatrix}} {body} \end{{pmatrix}}",
        plain=f"[[{a}, {b}], [{c}, {d}]]",
        forms=forms,
        value=(a, b, c, d),
    )


@_kind(_whole(-12, 20, 3))
def _vector(a: int, b: int, c: int) -> Answer:
    body = rf"{a} \\ {b} \\ {c}"
    forms = (
        rf"\begin{{bmatrix}} {body} \end{{bmatrix}}",
        rf"\begin{{array}}[c]{{c}} {body} \end{{array}}",
        rf"\left(\begin{{array}}[c]{{r}}{body}\end{{array}}\right)",
        rf"({a}, {b}, {c})",
        rf"\mathbf{{v}} = \begin{{pmatrix}} {body} \end{{pmatrix}}",
    )
    return Answer(
        latex=rf"\begin{{pmatrix}} {body} \end{{pmatrix}}", plain=f"({a}, {b}, {c})", forms=forms, value=(a, b, c)
    )


# With signs and words


@_kind(_whole(1, 400))
def _percent(n: int) -> Answer:
    _check(n > 0)
    forms = (rf"{n} \%", rf"{n}\text{{ percent}}", f"{n}", rf"{n}\,\%", rf"{n} \text{{ \%}}")
    return Answer(latex=rf"{n}\%", plain=f"{n}%", forms=forms, value=n)


@_kind(_whole(101, 99_999))
def _money(n: int) -> Answer:
    _check(n > 100)
    text = f"{n / 100:.2f}"
    forms = (text, rf"{text} \text{{ dollars}}", rf"\text{{\${text}}}", rf"\${n / 100:,.2f}", f"{text} dollars")
    return Answer(latex=rf"\${text}", plain=f"${text}", forms=forms, value=n)


@_kind(_whole(1, 359))
def _degrees(n: int) -> Answer:
    _check(n > 0)
    forms = (rf"{n}^{{\circ}}", f"{n}", rf"{n}\text{{ degrees}}", rf"{n} ^ \circ", rf"\angle ABC = {n}^\circ")
    return Answer(latex=rf"{n}^\circ", plain=f"{n}°", forms=forms, value=n)


_UNITS = ("cm", "meters", "miles per hour", "square inches", "kg")


@_kind(_each(_whole(2, 300), _one_of(0, 1, 2, 3, 4)))
def _quantity(n: int, unit: int) -> Answer:
    _check(n > 1 and 0 <= unit < len(_UNITS))
    name = _UNITS[unit]
    forms = (
        rf"{n}\,\text{{{name}}}",
        f"{n} {name}",
        f"{n}",
        rf"{n // 2} + {n - n // 2} = {n} \text{{ {name}}}",
        rf"{n}~\mathrm{{{name}}}",
    )
    return Answer(latex=rf"{n} \text{{ {name}}}", plain=f"{n} {name}", forms=forms, value=n)


@_kind(_each(_one_of(0, 1, 2, 3, 4), _whole(2, 99)))
def _choice(letter: int, n: int) -> Answer:
    _check(0 <= letter < 5)
    name = "ABCDE"[letter]
    forms = (name, f"({name})", rf"\textbf{{({name})}}", rf"\text{{{name}}}", rf"\textbf{{({name}) }} {n}")
    return Answer(latex=rf"\text{{({name})}}", plain=f"{name}", forms=forms, value=name)


_WORDS = (
    "odd",
    "even",
    "Tuesday",
    "Saturday",
    "ellipse",
    "hyperbola",
    "Alice",
    "circle",
    "Navin",
    "neither even nor odd",
)


@_kind(_one_of(*range(len(_WORDS))))
def _words(n: int) -> Answer:
    _check(0 <= n < len(_WORDS))
    word = _WORDS[n]
    forms = (word, rf"\mathrm{{{word}}}", rf"\textbf{{{word}}}", rf"\text{{ {word} }}", rf"\text{{{word}.}}")
    return Answer(latex=rf"\text{{{word}}}", plain=word, forms=forms, value=word)


@_kind(_whole(1, 30, 2))
def _ratio(a: int, b: int) -> Answer:
    _check(a > 0 and b > 1 and math.gcd(a, b) == 1)
    forms = (f"{a} : {b}", rf"\frac{{{a}}}{{{b}}}", rf"{a}\!:\!{b}", f"{a}/{b}", rf"\mathbf{{{a}:{b}}}")
    return Answer(latex=f"{a}:{b}", plain=f"{a}:{b}", forms=forms, value=(a, b))
