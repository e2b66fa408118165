"""What the command line shows of its progress: a line that goes away on a terminal, plain lines in a file."""

import io
import sys
from types import SimpleNamespace

import pytest

from gpuboost.cli import progress

CLEAR = "\r\x1b[K"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def show_on(monkeypatch):
    """Function (screen) that both streams write to from then on. pytest sets them between its fixtures and the test."""

    def show_on(screen):
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, screen)
        return screen

    return show_on


each_screen = pytest.mark.parametrize("screen", [Terminal, io.StringIO], ids=["terminal", "file"])


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass, and those of compiling, as the test says."""
    clock = SimpleNamespace(now=100.0, compiled=7.0)
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(progress, "compile_seconds", lambda: clock.compiled)
    return clock


@each_screen
def test_a_stage_takes_what_is_left_when_compiling_is_taken_away(screen, clock, show_on):
    screen = show_on(screen())
    with progress.stage("reading"):
        clock.now += 2.25
    with progress.stage("binning"):
        clock.now += 5
        clock.compiled += 4.5
    first, second = "reading: 2.25 s\n", "binning: 0.50 s, and 4.5 s of compiling\n"
    if screen.isatty():
        assert screen.getvalue().endswith(f"{CLEAR}binning …{CLEAR}{CLEAR}{second}") and f"{CLEAR}{first}" in screen.getvalue()
    else:
        assert screen.getvalue() == first + second


@each_screen
def test_a_stage_that_fails_leaves_a_clear_line_and_says_nothing(screen, show_on):
    screen = show_on(screen())
    with pytest.raises(ValueError), progress.stage("reading"):
        raise ValueError
    assert screen.getvalue() == (f"{CLEAR}reading …{CLEAR}" if screen.isatty() else "")


@each_screen
def test_rounds_are_a_bar_on_a_terminal_only(screen, clock, show_on):
    screen = show_on(screen())
    bar = progress.RoundBar(4)
    bar.before_training(None)
    for epoch in range(4):
        clock.now += 2
        clock.compiled += epoch == 0  # so that the rounds took 1, 2, 2 and 2 seconds
        bar.after_iteration(None, epoch, {})
    bar.after_training(None)
    drawn = [line for line in screen.getvalue().split(CLEAR) if line]
    assert drawn == ([
        f"[{'#' * 7}{'.' * 23}] 1 of 4 rounds, 1 s, 3 s to go",
        f"[{'#' * 15}{'.' * 15}] 2 of 4 rounds, 3 s, 3 s to go",
        f"[{'#' * 22}{'.' * 8}] 3 of 4 rounds, 5 s, 2 s to go",
    ] if screen.isatty() else [])  # fmt: skip
    assert screen.getvalue().endswith(CLEAR) == screen.isatty()


def test_rounds_that_take_no_time_are_not_drawn_one_by_one(clock, show_on):
    screen = show_on(Terminal())
    bar = progress.RoundBar(1000)
    bar.before_training(None)
    for epoch in range(1000):
        clock.now += 0.001
        bar.after_iteration(None, epoch, {})
    assert 5 <= screen.getvalue().count("rounds") <= 11


@each_screen
def test_a_line_of_output_clears_the_bar_first(screen, clock, show_on):
    screen = show_on(screen())
    progress.show_fraction(1, 2, "rows", 1.0)
    progress.say_line("[0]\ttrain-rmse:1.0")
    assert screen.getvalue().endswith(f"{CLEAR}[0]\ttrain-rmse:1.0\n" if screen.isatty() else "[0]\ttrain-rmse:1.0\n")
