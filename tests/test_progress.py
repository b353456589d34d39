from __future__ import annotations

import pytest

from omrl import progress
from omrl.progress import LINE_SECONDS, Meter


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock)
    return clock


def lines(capsys) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_log_file_gets_a_line_now_and_then_with_share_time_left_and_text(clock, capsys):
    with Meter("work", 200) as meter:
        for done in range(1, 51):
            clock.now += 1.0
            meter.update(done, f"text {done}")
    found = lines(capsys)
    assert len(found) == 50 // LINE_SECONDS + 1
    assert found[0] == "work: 5 %, 190 s left  text 10"
    assert found[1] == "work: 10 %, 180 s left  text 20"


def test_a_unit_has_its_rate_before_the_text(clock, capsys):
    with Meter("work", 40, 20, unit="updates") as meter:
        clock.now += 10.0
        meter.update(25, "text")
        clock.now += 10.0
        meter.update(40)
    assert lines(capsys) == ["work: 62 %, 30 s left  0.5 updates/s  text", "work: 100 % in 20.0 s  1.0 updates/s"]


def test_a_high_rate_needs_no_decimals(clock, capsys):
    with Meter("work", 40_000, unit="steps") as meter:
        clock.now += 10.0
        meter.update(40_000, "text")
    assert lines(capsys) == ["work: 100 % in 10.0 s  4,000 steps/s  text"]


def test_the_last_line_says_how_long_it_took(clock, capsys):
    with Meter("work", 4) as meter:
        clock.now += 2.5
        meter.update(4, "done")
    assert lines(capsys) == ["work: 100 % in 2.5 s  done"]


def test_work_that_goes_on_counts_its_rate_from_where_it_began(clock, capsys):
    with Meter("work", 100, done=60) as meter:
        clock.now += 10.0
        meter.update(80)
        assert meter.rate == pytest.approx(2.0)
    assert lines(capsys)[0] == "work: 80 %, 10 s left"


def test_work_that_was_done_already_prints_its_line(clock, capsys):
    with Meter("work", 100, done=100):
        pass
    assert lines(capsys) == ["work: 100 % in 0.0 s"]


def test_an_error_prints_no_last_line(clock, capsys):
    with pytest.raises(RuntimeError), Meter("work", 10) as meter:
        meter.update(5)
        raise RuntimeError
    assert lines(capsys) == []


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with Meter("work", 10) as meter:
        meter.update(10, "mean 3")
    err = capsys.readouterr().err
    assert "work" in err
    assert "100%" in err
    assert "mean 3" in err
