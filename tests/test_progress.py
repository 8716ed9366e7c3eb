from __future__ import annotations

import io

import pytest

from swerve.progress import (
    BarProgress,
    LineProgress,
    Progress,
    SilentProgress,
    console_progress,
    format_duration,
    shown_progress,
    tell,
)

HOSTILE = "[/bold] [red]x\x1b[31m\nnext line :smile:"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_lines_at_start_and_end_and_at_most_one_every_five_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    with LineProgress(stream, clock=clock).task("train rl", 10) as task:
        for step in range(10):
            clock.now += 2.0
            task.advance(reward=step / 10, loss=None)
    assert stream.getvalue().splitlines() == [
        "train rl: 0/10",
        "train rl: 3/10, 14.0 s left; reward 0.2, loss not measured",
        "train rl: 6/10, 8.0 s left; reward 0.5, loss not measured",
        "train rl: 9/10, 2.0 s left; reward 0.8, loss not measured",
        "train rl: 10/10, done in 20.0 s; reward 0.9, loss not measured",
    ]


def test_a_total_can_turn_out_on_the_way() -> None:
    stream = io.StringIO()
    with LineProgress(stream).task("pivots", 0) as task:
        task.extend(30)
        task.advance(30)
        task.extend(12)
        task.advance(12)
    first, last = stream.getvalue().splitlines()
    assert (first, last.partition(", ")[0]) == ("pivots", "pivots: 42/42")
    bars = io.StringIO()
    with BarProgress(bars).task("pivots", 0) as task:
        task.extend(30)
        task.advance(30)
    assert "30/30" in bars.getvalue()


def test_no_time_left_is_made_up_before_a_hundredth_is_done() -> None:
    stream, clock = io.StringIO(), Clock()
    with LineProgress(stream, clock=clock).task("sample pairs", 400) as task:
        for clock.now, num in ((6.0, 0), (12.0, 3), (18.0, 1)):
            task.advance(num, prompts=128)
    assert stream.getvalue().splitlines() == [
        "sample pairs: 0/400",
        "sample pairs: 0/400, 6.0 s so far; prompts 128",
        "sample pairs: 3/400, 12.0 s so far; prompts 128",
        "sample pairs: 4/400, 29 min 42 s left; prompts 128",
        "sample pairs: 4/400, stopped after 18.0 s; prompts 128",
    ]


def test_a_failing_task_does_not_claim_to_be_done() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = LineProgress(stream, clock=clock)
    with pytest.raises(KeyboardInterrupt), progress.task("probe", 4) as task:
        clock.now = 1.0
        task.advance()
        raise KeyboardInterrupt
    assert stream.getvalue().splitlines() == ["probe: 0/4", "probe: 1/4, stopped after 1.0 s"]


def test_lines_keep_data_on_one_line_without_control_characters() -> None:
    stream = io.StringIO()
    progress = LineProgress(stream)
    progress.note(HOSTILE)
    with progress.task(HOSTILE, 1) as task:
        task.advance(sample=HOSTILE)
    clean = "[/bold] [red]x\ufffd[31m next line :smile:"
    lines = stream.getvalue().splitlines()
    assert lines[0] == clean
    assert lines[1] == f"{clean}: 0/1"
    assert lines[2].endswith(f"; sample {clean}")
    assert "\x1b" not in stream.getvalue()


def test_bars_show_data_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    progress = BarProgress(stream)
    with progress.task("outer [/bold]", 2) as outer, progress.task("inner", 1) as inner:
        inner.advance()
        progress.note("a note [/red]")
        outer.advance(2, reward=0.5, sample=HOSTILE)
    text = stream.getvalue()
    assert "outer [/bold]" in text
    assert "sample [/bold] [red]x\ufffd[31m next line :smile:" in text
    assert "a note [/red]" in text
    assert "reward 0.5" in text
    assert "2/2" in text


def test_bars_can_follow_each_other_and_survive_a_failure() -> None:
    stream = Terminal()
    progress = BarProgress(stream)
    with pytest.raises(ValueError, match="x"), progress.task("first", 1):
        raise ValueError("x")
    with progress.task("second", 1) as task:
        task.advance()
    assert "second" in stream.getvalue()


def test_no_color_means_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")

    def draw() -> str:
        stream = Terminal()
        with BarProgress(stream).task("train", 1) as task:
            task.advance()
        return stream.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[38;" in draw() or "\x1b[32m" in draw()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = draw()
    assert "\x1b[38;" not in plain
    assert "\x1b[32m" not in plain


@pytest.mark.parametrize(
    ("stream", "term", "kind"),
    [
        (io.StringIO(), "xterm", LineProgress),
        (Terminal(), "dumb", LineProgress),
        (Terminal(), "xterm", BarProgress),
    ],
)
def test_bars_only_where_a_line_can_be_redrawn(
    stream: io.StringIO, term: str, kind: type[Progress], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    assert isinstance(console_progress(stream), kind)


def test_silent_progress_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress = SilentProgress()
    progress.note("x")
    with progress.task("y", 1) as task:
        task.advance(reward=1.0)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (59.9, "59.9 s"), (59.97, "1 min 0 s"), (3599.6, "1 h 0 min"), (7325, "2 h 2 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_progress_is_shown_where_a_person_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    silent, given = SilentProgress(), LineProgress(io.StringIO())
    assert shown_progress(given) is given
    assert isinstance(shown_progress(False), SilentProgress)
    assert isinstance(shown_progress(True), LineProgress)
    assert isinstance(shown_progress(None), SilentProgress)
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(shown_progress(None), BarProgress)
    monkeypatch.setenv("RANK", "1")
    assert type(shown_progress(None)) is type(silent)


def test_what_must_not_be_missed_is_a_note_or_each_time_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    stream = io.StringIO()
    tell(LineProgress(stream), "replaced")
    tell(SilentProgress(), "replaced")
    assert (stream.getvalue(), len(recwarn)) == ("replaced\n", 0)
    for _ in range(2):
        tell(shown_progress(False), "replaced\nby another")
    assert [(str(one.message), one.filename) for one in recwarn] == [("replaced by another", __file__)] * 2
