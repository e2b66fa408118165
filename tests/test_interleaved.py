"""Several trainings on one backend at once, round by round in turns: each gives the model that it gives alone."""

import numpy as np
import pytest
import scipy.sparse
from simulator import SimulatedDevice

import gpuboost as gb
from gpuboost.backend import CpuBackend
from gpuboost.backend.cuda import CudaBackend
from gpuboost.model_io import digest

pytestmark = pytest.mark.long

# Tables of different width and kind, with what trains on them. Scratch of one would not fit another.
TRAININGS = {
    "narrow": (2, "dense", {"max_bin": 8}),
    "wide": (40, "dense", {"max_bin": 32, "colsample_bytree": 0.6}),
    "two bytes": (2, "dense", {"max_bin": 300, "max_depth": 2}),
    "sparse": (12, "sparse", {"max_bin": 8, "subsample": 0.7}),
    "one-hot": (30, "one-hot", {"max_bin": 4}),
    "classes": (3, "dense", {"objective": "multi:softprob", "num_class": 3, "max_bin": 8, "grow_policy": "lossguide"}),
}


def make(name, n_rows):
    n_columns, kind, params = TRAININGS[name]
    rng = np.random.default_rng(len(name))
    X = rng.normal(size=(n_rows, n_columns))
    if kind == "sparse":
        X = scipy.sparse.csr_matrix(np.where(rng.random(X.shape) < 0.3, X, 0))
    elif kind == "one-hot":
        X = np.concatenate([np.eye(15)[rng.integers(0, 15, n_rows)] for _ in range(2)], axis=1)
    y = rng.integers(0, params.get("num_class", 2), n_rows)
    return gb.DMatrix(X, y), {"max_depth": 3, "min_child_weight": 0.1, **params}


def models(names, rounds, n_rows, together, **params):
    """Digests of the trainings, round by round in turns, or one after the other."""
    given = [make(name, n_rows) for name in names]
    boosters = [gb.Booster({**own, **params}) for _, own in given]
    turns = [(i, r) for r in range(rounds) for i in range(len(names))]
    for i, r in turns if together else sorted(turns):
        boosters[i].update(given[i][0], r)
    found = [digest(booster.model) for booster in boosters]
    assert all(max(tree.n_leaves for tree in booster.model.trees) > 2 for booster in boosters)
    return found


@pytest.mark.parametrize("n_threads", [1, 2])
def test_trainings_in_turns_on_one_cpu_backend(n_threads, use_backend):
    use_backend(CpuBackend(1))
    alone = models(TRAININGS, 4, 300, together=False)
    use_backend(CpuBackend(n_threads))
    assert models(TRAININGS, 4, 300, together=True) == alone


def test_trainings_in_turns_on_one_gpu(use_backend):
    names = ["wide", "sparse"]
    use_backend(CpuBackend(1))
    alone = models(names, 2, 40, together=False, max_depth=2)
    use_backend(CudaBackend(SimulatedDevice()))
    assert models(names, 2, 40, together=True, max_depth=2) == alone
