"""Streams for tests: tables in batches; and a walk over pages in files that ends by Ctrl-C."""

import threading

import numpy as np
import pytest

import gpuboost as gb
from gpuboost.storage.array_file import ArrayFile


class Parts(gb.DataIter):
    """Batches, each the arguments of input_data."""

    def __init__(self, batches, **options):
        self.batches, self.at, self.n_passes = batches, 0, 0
        super().__init__(**options)

    def next(self, input_data):
        if self.at == len(self.batches):
            return 0
        if self.at == 0:
            self.n_passes += 1
        input_data(**self.batches[self.at])
        self.at += 1
        return 1

    def reset(self):
        self.at = 0


def cut(n_batches, n_rows):
    """The rows of each batch, not all equally many."""
    bounds = np.unique(np.r_[0, np.linspace(1, n_rows, n_batches).astype(int)])
    return [slice(a, b) for a, b in zip(bounds[:-1], bounds[1:])]


def parts_of(X, n_batches=4, **info):
    """A table of NumPy or SciPy, or a frame, in batches."""
    rows = X.iloc if hasattr(X, "iloc") else X
    return Parts([{"data": rows[own], **{name: v[own] for name, v in info.items()}} for own in cut(n_batches, X.shape[0])])


def interrupt_walk(pages):
    """Interrupt a walk in the start of the thread that reads, for which nobody then waits. Returns what lets it read."""
    start, read, begun, may_read, has_read = threading.Thread.start, ArrayFile.read, *(threading.Event() for _ in range(3))

    def start_interrupted(thread):
        start(thread)
        raise KeyboardInterrupt

    def read_late(*arguments, **options):
        begun.set()
        assert may_read.wait(10)
        read(*arguments, **options)
        has_read.set()

    def finish_reading():
        may_read.set()
        assert has_read.wait(10)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_interrupted)
        patch.setattr(ArrayFile, "read", read_late)
        with pytest.raises(KeyboardInterrupt):
            next(pages.walk())
        assert begun.wait(10)
    return finish_reading
