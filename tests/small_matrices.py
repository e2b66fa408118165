"""A small table for tests of DMatrix, a backend to bin it, and what they are asked for."""

import warnings

import numpy as np

from gpuboost.backend.cpu import CpuBackend
from gpuboost.communicator import SingleProcess

X = np.array([[1.0, 10.0], [2.0, np.nan], [3.0, 30.0]])
MASKED = np.ma.MaskedArray([1, 1, 1], [False, False, True])
BACKEND, COMM = CpuBackend(1), SingleProcess()


def codes_of(matrix):
    return matrix.any_binned().pages[0].columns.tolist()


def caught(action):
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        action()
    return [str(message.message) for message in messages if message.category is UserWarning]
