from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swerve.errors import ConfigError
from swerve.recipes.yaml_lines import MAX_BYTES, emit_yaml, parse_yaml
from tests.cases import each


def failure(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, source="recipe.yaml")
    return str(caught.value)


@each(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("5E+3", 5000.0),
        ("-.5", -0.5),
        ("3.", 3.0),
        ("+12", 12),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("no", "no"),
        ("off", "off"),
        ("Yes", "Yes"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2024-01-31", "2024-01-31"),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    parsed = parse_yaml(f"key: {text}", source="recipe.yaml").data["key"]
    assert parsed == value
    assert type(parsed) is type(value)


def test_lines_of_every_key_and_item() -> None:
    document = parse_yaml("a: 1\nb:\n  c:\n  - x\n\n  - y: 2\n    z: 3\n", source="recipe.yaml")
    assert document.lines == {
        ("a",): 1,
        ("b",): 2,
        ("b", "c"): 3,
        ("b", "c", 0): 4,
        ("b", "c", 1): 6,
        ("b", "c", 1, "y"): 6,
        ("b", "c", 1, "z"): 7,
    }


@each(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "recipe.yaml:3: key 'a' is given twice, first in line 1"),
        (
            "\na: !!python/object/apply:os.system [x]",
            "recipe.yaml:2: tag 'tag:yaml.org,2002:python/object/apply:os.system' is not allowed; "
            "write the value without a tag",
        ),
        ("a: !mine 1", "recipe.yaml:1: tag '!mine' is not allowed; write the value without a tag"),
        ("a: !!int x", "recipe.yaml:1: 'x' is not a valid value"),
        ("a: .inf", "recipe.yaml:1: '.inf' is not a valid value"),
        ("a: 1e999", "recipe.yaml:1: '1e999' is not a valid value"),
        ("a: .NaN", "recipe.yaml:1: '.NaN' is not a valid value"),
        ("1: 2", "recipe.yaml:1: a key must be text; put it in quotes"),
        ("[a]: 2", "recipe.yaml:1: a key must be text; put it in quotes"),
        ("<<: {a: 1}", "recipe.yaml:1: merge keys ('<<') are not allowed; write the keys out"),
        ("a: 1\n\tb: 2", "recipe.yaml:2: not valid YAML: found character '\\t' that cannot start any token"),
        ("a: b: c", "recipe.yaml:1: not valid YAML: mapping values are not allowed here"),
        ("a: 1\nb: \x07", "recipe.yaml:2: not valid YAML: character U+0007 is not allowed"),
        ('a: "\\ud800"', "recipe.yaml:1: '\\ud800' is not a valid value"),
        ("a: *b", "recipe.yaml:1: not valid YAML: found undefined alias 'b'"),
        ("a: 1\n---\nb: 1", "recipe.yaml:2: not valid YAML: but found another document"),
        ("a: " + "9" * 5000, f"recipe.yaml:1: '{'9' * 40}' is not a valid value"),
        ("[" * 5000, "recipe.yaml:1: not valid YAML: nested deeper than 32 levels"),
        ("a: &a [*a]", "recipe.yaml:1: nested deeper than 32 levels"),
        ("x" * (MAX_BYTES + 1), "recipe.yaml: larger than 1000000 bytes"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    assert failure(text) == message


def test_a_bomb_of_aliases_is_refused_without_being_expanded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "more than 20000 values after expanding aliases" in failure("\n".join(lines))


def test_aliases_within_the_limits_are_expanded() -> None:
    assert parse_yaml("a: &x {lr: 1}\nb: *x", source="recipe.yaml").data == {"a": {"lr": 1}, "b": {"lr": 1}}


KEYS = st.text().filter(lambda key: key != "<<")
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(KEYS, children, max_size=3),
    max_leaves=8,
)


@given(data=st.dictionaries(KEYS, JSON_VALUES, max_size=4))
def test_what_is_emitted_is_read_back_exactly(data: dict[str, object]) -> None:
    parsed = parse_yaml(emit_yaml(data), source="recipe.yaml").data or {}
    assert repr(parsed) == repr(data)


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_floats_survive_bit_for_bit(value: float) -> None:
    parsed = parse_yaml(emit_yaml({"x": value}), source="recipe.yaml").data["x"]
    assert parsed == value
    assert math.copysign(1, parsed) == math.copysign(1, value)


@given(text=st.text(max_size=60))
def test_any_text_is_data_or_one_error_line(text: str) -> None:
    try:
        parse_yaml(text, source="recipe.yaml")
    except ConfigError as error:
        assert "\n" not in str(error)  # noqa: PT017  (both outcomes are right)
