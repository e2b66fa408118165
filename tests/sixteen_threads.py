"""Trainings in a process of sixteen threads, whatever the machine has."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import gpuboost

PROGRAM = """
import pickle, sys, gpuboost as gb
from gpuboost.backend import choose_backend
from gpuboost.backend.cpu import training
from gpuboost.model_io import digest
training.CODES_PER_THREAD = 1  # else small tables train on fewer
assert choose_backend("cpu", 16).n_threads == 16
cases, n_rounds = pickle.load(open(sys.argv[1], "rb"))
for params, (X, y, weight) in cases:
    print(digest(gb.train({**params, "nthread": 16}, gb.DMatrix(X, y, weight=weight), n_rounds, verbose_eval=False).model))
"""


def on_16_threads(folder, cases, n_rounds):
    """The digests of the models of cases, [(params, (X, label, weight))]. folder : for a file of them."""
    (folder / "cases").write_bytes(pickle.dumps((cases, n_rounds)))
    environment = {**os.environ, "NUMBA_NUM_THREADS": "16", "PYTHONPATH": str(Path(gpuboost.__file__).parents[1])}
    command = [sys.executable, "-c", PROGRAM, str(folder / "cases")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
