"""Streams for tests: tables in batches."""

import numpy as np

import gpuboost as gb


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
