"""backend/cuda/predictor.py: which trees are predicted by words in shared memory, as many at a time as it holds, of batches
however they lie; infinite values are refused."""

from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from simulator import SimulatedDevice

import gpuboost as gb
from gpuboost.backend.cpu.predictor import CpuPredictor
from gpuboost.backend.cuda import CudaBackend
from gpuboost.backend.cuda.coder import columns_of
from gpuboost.backend.cuda.predictor import CudaPredictor, few_at_a_time

BY_CELLS, BY_WORDS = (f"predict_words.predict_values_by_words{cells}_kernel" for cells in ("_and_cells", ""))
BY_NODES = "predict.predict_values_kernel"
RNG = np.random.default_rng(1)
X, LABEL = RNG.normal(size=(200, 3)).astype(np.float32), RNG.integers(0, 2, 200)


def trained(n_rounds=2, **params):
    params = {"max_depth": 3, "min_child_weight": 0.0, "max_bin": 16, **params}
    categories = gb.DMatrix(np.floor(X * 3) % 7, LABEL, feature_types=["q", "c", "q"])
    dtrain = categories if "max_cat_to_onehot" in params else gb.DMatrix(X, LABEL)
    return gb.train(params, dtrain, n_rounds, verbose_eval=False).model


def check(model, room, launches):
    """Margins and leaves are the CPU's, by these kernels."""
    results, device = [], SimulatedDevice(block=32, shared_limit=room)
    for predictor in (CpuPredictor(1), CudaPredictor(device)):
        flat, n_outputs = predictor.flatten(model.trees, model.tree_groups), 2
        margin, leaves = np.full((n_outputs, len(X)), 0.5, np.float32), np.zeros((len(X), len(model.trees)), np.int32)
        predictor.predict_values(X, np.nan, flat, 0, margin, leaves)
        results.append((margin.tolist(), leaves.tolist()))
    assert results[0] == results[1]
    assert [name for name in device.launches if "predict" in name] == launches


CELLS = 3 * 32 * 2 * 4  # bytes: of three features, for a block of 32 threads of two rows each


@pytest.mark.parametrize("room, launches", [
    (CELLS + 60 * 8, [BY_CELLS]), (CELLS + 60 * 8 - 1, [BY_WORDS]), (60 * 8, [BY_WORDS]), (60 * 8 - 1, [BY_WORDS] * 2),
    (15 * 8, [BY_WORDS] * 4), (15 * 8 - 1, [BY_NODES]),
])  # fmt: skip
def test_as_many_trees_at_a_time_as_there_is_room_for(room, launches):
    model = trained(objective="multi:softprob", num_class=2)
    assert [tree.n_nodes for tree in model.trees] == [15] * 4
    assert all(set(tree.feature[tree.left_child >= 0]) == {0, 1, 2} for tree in model.trees)
    check(model, room, launches)


def test_rows_become_cells_again_for_every_few_trees():
    model = trained(n_rounds=4, objective="multi:softprob", num_class=2)
    assert [tree.n_nodes for tree in model.trees] == [15] * 8
    check(model, CELLS + 60 * 8, [BY_CELLS] * 2)


def test_cells_are_those_of_the_features_that_trees_split_on():
    """Trees on x0 and x2, on x2, and a leaf alone, of 8 bytes a node and, a feature, 4 for each row of one thread."""
    feature, begin = np.array([0, -1, 2, -1, -1, 2, -1, -1, -1]), np.array([0, 5, 8, 9])
    few = [(*bounds, features.tolist()) for *bounds, features in few_at_a_time(feature, begin, 1, 9 * 8 + 2 * 8)]
    assert few == [(0, 3, [0, 2])]
    few = [(*bounds, features.tolist()) for *bounds, features in few_at_a_time(feature, begin, 1, 9 * 8 + 2 * 8 - 1)]
    assert few == [(0, 2, [0, 2]), (2, 3, [])]
    few = [(*bounds, features.tolist()) for *bounds, features in few_at_a_time(feature, begin, 1, 5 * 8 + 2 * 8)]
    assert few == [(0, 1, [0, 2]), (1, 3, [2])]
    assert few_at_a_time(feature, begin, 1, 5 * 8 + 2 * 8 - 1) == []


def test_sets_and_vector_leaves_have_no_words():
    check(trained(objective="binary:logistic", max_cat_to_onehot=1), 2**16, [BY_NODES])
    check(trained(objective="multi:softprob", num_class=2, multi_strategy="multi_output_tree"), 2**16, [BY_NODES])


# ---- batches

LAYOUTS = {
    "by rows": np.ascontiguousarray, "by columns": np.asfortranarray, "of 8 bytes": partial(np.asarray, dtype=np.float64),
    "by columns, of 8 bytes": partial(np.asfortranarray, dtype=np.float64),
    "every other column": lambda x: np.repeat(x, 2, axis=1)[:, ::2], "backwards": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
}  # fmt: skip


@pytest.mark.parametrize("lay_out", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("features", [None, [0, 1, 2], [2, 0]])
@pytest.mark.parametrize("n_rows", [40, 1, 0])
def test_columns_of_a_batch_however_it_lies(lay_out, features, n_rows):
    batch, device = lay_out(X[:n_rows]), SimulatedDevice(block=64)
    expected = X[:n_rows].T if features is None else X[:n_rows].T[features]
    for n_large in (None, device.zeros(1, np.int64)):
        columns = columns_of(device, batch, None if features is None else np.array(features), n_large=n_large)
        assert columns.flags.c_contiguous and columns.dtype == np.float32
        assert columns.tolist() == expected.tolist()
        assert n_large is None or n_large[0] == 0


class Views(SimulatedDevice):
    """Puts what is there already nowhere else, as CuPy does."""

    def put(self, array, dtype=None):
        return np.ascontiguousarray(array, dtype)


def test_columns_that_lie_so_are_a_view_that_nobody_writes_to():
    batch = np.asfortranarray(X)
    batch.flags.writeable = False
    device = Views(block=64)
    assert np.shares_memory(columns_of(device, batch, n_large=device.zeros(1, np.int64)), batch)
    predictor, trees = CudaPredictor(device), trained().trees
    flat, margins = predictor.flatten(trees, [0] * len(trees)), np.zeros((2, 1, len(X)), np.float32)
    for layout, margin in zip((batch, X), margins):
        assert predictor.predict_values(layout, np.nan, flat, 0, margin, None)
    assert margins[0].tolist() == margins[1].tolist() and batch.tolist() == X.tolist()


@pytest.mark.parametrize("lay_out", LAYOUTS.values(), ids=LAYOUTS)
def test_infinite_values_of_a_batch_are_told_of(lay_out):
    predictor, trees = CudaPredictor(SimulatedDevice(block=32)), trained().trees
    flat, x = predictor.flatten(trees, [0] * len(trees)), X[:50].copy()
    predict = lambda missing: predictor.predict_values(lay_out(x), missing, flat, 0, np.zeros((1, len(x)), np.float32), None)
    assert predict(np.nan)
    x[33, 1] = -np.inf
    assert not predict(np.nan) and not predict(np.inf) and predict(-np.inf)


@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, csr_matrix])
def test_infinite_values_are_refused_by_name(kind, monkeypatch):
    booster = gb.train({"max_depth": 2}, gb.DMatrix(kind(X), LABEL), 1, verbose_eval=False)
    x = X.copy()
    x[7, 1] = np.inf
    expected = booster.predict(gb.DMatrix(kind(x), missing=np.inf))
    backend = CudaBackend(SimulatedDevice(block=32))
    monkeypatch.setattr("gpuboost.backend.choose_backend", lambda *_, **__: backend)
    with pytest.raises(ValueError, match=r'Column "1" holds a value that is infinite .* in row 7'):
        booster.predict(gb.DMatrix(kind(x)))
    assert booster.predict(gb.DMatrix(kind(x), missing=np.inf)).tolist() == expected.tolist()
