"""Messages: no key, no password and nothing that a terminal acts on is in one, however it got there."""

from __future__ import annotations

import json
import logging

import pytest

from swerve import errors
from swerve.cli.app import describe_failure
from swerve.cli.console import MessageFormatter, print_message, print_text
from swerve.errors import EngineError, MissingExtraError, ProblemsError, redacted, said_by
from tests.cases import each

KEY = "sk-Zq9/+=\"'<b>\\"


@each(
    "said",
    [
        KEY,
        f"Bearer {KEY}",
        repr(f"Bearer {KEY}"),
        json.dumps({"key": KEY}),
        f"glued{KEY}glued".lower(),
        "key=sk-Zq9%2F%2B%3D%22%27%3Cb%3E%5C",
        "sk-Zq9/+=&quot;&#x27;&lt;b&gt;\\",
    ],
)
def test_a_key_is_found_however_it_is_written(said: str) -> None:
    errors.keep_secret(KEY)
    shown = redacted(said)
    assert "***" in shown
    assert "zq9" not in shown.lower()


def test_keys_of_other_programs_are_in_no_error_and_their_short_values_change_no_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", " word-of-mouth\n")
    monkeypatch.setenv("OTHER_API_KEY", "run")
    monkeypatch.setenv("KEYBOARD", "qwertyuiop")
    assert str(EngineError("word-of-mouth is wrong; run qwertyuiop")) == "*** is wrong; run qwertyuiop"
    error = RuntimeError("https://me:pass-word@tracker/api refuses word-of-mouth")
    line, status = describe_failure(error, debug=True)
    assert ("pass-word" in line, "word-of-mouth" in line, status) == (False, False, 1)
    assert line.endswith(
        "swerve: internal error: RuntimeError: https://***@tracker/api refuses ***; run again with --debug"
    )
    assert said_by(error) == "https://***@tracker/api refuses ***"
    assert describe_failure(ProblemsError(["a word-of-mouth", "b"]))[0] == "swerve: error: a ***\n  b"


def test_a_short_key_is_no_part_of_other_words_and_a_tiny_one_no_part_of_numbers() -> None:
    for key in ("1", "answer"):
        errors.keep_secret(key)
    assert str(EngineError("127.0.0.1: was answered with 401")) == "127.0.0.1: was answered with 401"
    assert redacted("bad key 1 at 1024: '1', answer", quoted=True) == "bad key *** at 1024: '***', ***"


def test_an_error_has_nothing_that_a_terminal_acts_on() -> None:
    assert (
        str(EngineError("a\x1b]0;x\x07\u202eb\x9b31m\r\n\tc\ud800")) == "a\ufffd]0;x\ufffd\ufffdb\ufffd31m \n\tc\ufffd"
    )
    assert str(MissingExtraError("p", "e", "it")) == (
        "it needs the package 'p'; install it with: pip install 'swerve[e]'"
    )
    assert describe_failure(ValueError("\x1b[2J"), debug=True)[0].count("\x1b") == 0


def test_what_is_printed_and_logged_is_as_clean(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_zq9zq9")
    record = logging.LogRecord("x", logging.WARNING, "p", 1, "%s\x1b[2J of hf_zq9zq9", ("bar",), None)
    assert MessageFormatter().format(record) == "bar\ufffd[2J of ***"
    print_message("  a\x1b[2J hf_zq9zq9\nb\n")
    print_text("A  hf_zq9zq9\u202e\n  b\x9b31m\n\n")  # a result is data
    assert tuple(capsys.readouterr()) == ("A  hf_zq9zq9\ufffd\n  b\ufffd31m\n", "  a\ufffd[2J ***\nb\n")
