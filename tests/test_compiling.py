"""What is said of compiling: once a burst in a file, a line that comes and goes on a terminal, nothing to whom wants silence."""

import io
import os
import re
import sys
import threading
import time

import pytest

import gpuboost as gb
from gpuboost import compiling

KERNELS = [f"kernel_{i}" for i in range(4)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def hear(monkeypatch):
    """Function (stderr) that gives what hears of events; bursts end at once, lines come every tenth of a second."""
    for name, seconds in {"LOOK_S": 0.02, "REST_S": 0.1, "LINE_S": 0.1}.items():
        monkeypatch.setattr(compiling, name, seconds)
    monkeypatch.setattr(compiling, "is_first_use", lambda: True)

    def make(stderr):
        monkeypatch.setattr(sys, "stderr", stderr)
        return compiling._Teller().hear

    return make


def test_a_file_hears_every_three_seconds():
    assert compiling.LINE_S + compiling.LOOK_S <= 3


def compile_all(hear, seconds=0.0):
    for name in KERNELS:
        hear("compiling", name)
        time.sleep(seconds)
        hear("compiled", name)


def wait_for_end():
    for thread in threading.enumerate():
        if thread.name == "gpuboost-compiling":
            thread.join(10)
            assert not thread.is_alive()


def test_a_burst_is_told_at_its_start_and_at_its_end(hear):
    heard = hear(stderr := io.StringIO())
    for _ in range(2):
        compile_all(heard)
        wait_for_end()
    first, last = "compiling CPU kernels that nothing here has needed before", "compiling 4 CPU kernels took"
    lines = stderr.getvalue().splitlines()
    assert [text in line for line, text in zip(lines, [first, last] * 2, strict=True)] == [True] * 4


def test_a_long_burst_is_told_in_between(hear):
    compile_all(hear(stderr := io.StringIO()), seconds=0.25)
    wait_for_end()
    counts = re.findall(r"compiling CPU kernels: (\d) of about 20 \(kernel_(\d)\), \d+ s\n", stderr.getvalue())
    assert len(counts) >= 4 and all(int(n) == int(name) + 1 for n, name in counts)


def test_on_a_terminal_the_line_is_clear_whenever_nothing_is_compiled(hear):
    heard = hear(stderr := Terminal())
    for n, name in enumerate(KERNELS, 1):
        heard("compiling", name)
        assert stderr.getvalue().endswith(f"compiling CPU kernels: {n} of about 20 ({name}), 0 s")
        heard("compiled", name)
        assert stderr.getvalue().endswith("\r\x1b[K") and "\n" not in stderr.getvalue()
    heard("waiting", "kernel")
    assert stderr.getvalue().endswith("compiling CPU kernels: 4 of about 20 (another process compiles kernel), 0 s")
    heard("waited", "")
    wait_for_end()
    end = r"\r\x1b\[K\[gpuboost\] compiling 4 CPU kernels took \d+ s; later runs load them from a cache\.\n$"
    assert re.search(end, stderr.getvalue())


def test_more_kernels_than_expected_are_counted_without_an_end(hear, monkeypatch):
    monkeypatch.setattr(compiling, "FIRST_MODEL", 1)
    heard = hear(stderr := Terminal())
    compile_all(heard)
    wait_for_end()
    assert "kernels: 1 of about 1 (" in stderr.getvalue() and "kernels: 2 (" in stderr.getvalue()


def test_silence_is_kept(hear):
    heard = hear(stderr := io.StringIO())
    with gb.config_context(verbosity=0):
        compile_all(heard)
        heard("damaged", "file.nbi")
    assert stderr.getvalue() == ""


def test_damage_and_folders_that_cannot_be_written_are_told(hear):
    heard = hear(stderr := io.StringIO())
    heard("damaged", "file.nbi")
    heard("unwritable", "")
    assert "file.nbi is damaged" in stderr.getvalue() and "NUMBA_CACHE_DIR" in stderr.getvalue()
    compile_all(heard)
    wait_for_end()
    assert "took" in stderr.getvalue() and "later runs" not in stderr.getvalue()


def test_without_a_standard_error_nothing_is_told(hear, capsys):
    compile_all(hear(None), seconds=0.15)
    wait_for_end()
    assert capsys.readouterr().out == ""


def test_a_reader_that_has_gone_does_not_matter(hear):
    heard = hear(stderr := Terminal())
    heard("compiling", "kernel")
    stderr.close()
    heard("compiled", "kernel")
    wait_for_end()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_the_child_of_a_fork_tells_of_its_own_bursts(hear):
    heard = hear(stderr := io.StringIO())
    heard("compiling", "kernel")
    child = os.fork()
    if child == 0:
        stderr.truncate(0)
        compile_all(heard)
        wait_for_end()
        os._exit("took" not in stderr.getvalue())
    heard("compiled", "kernel")
    wait_for_end()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
