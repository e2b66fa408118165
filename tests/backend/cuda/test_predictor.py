"""backend/cuda/predictor.py: which trees are predicted by words in shared memory, and as many at a time as it holds."""

import numpy as np
import pytest
from simulator import SimulatedDevice

import gpuboost as gb
from gpuboost.backend.cpu.predictor import CpuPredictor
from gpuboost.backend.cuda.predictor import CudaPredictor

BY_WORDS, BY_NODES = "predict_words.predict_values_by_words_kernel", "predict.predict_values_kernel"
RNG = np.random.default_rng(1)
X, LABEL = RNG.normal(size=(200, 3)).astype(np.float32), RNG.integers(0, 2, 200)


def trained(**params):
    params = {"max_depth": 3, "min_child_weight": 0.0, "max_bin": 16, **params}
    categories = gb.DMatrix(np.floor(X * 3) % 7, LABEL, feature_types=["q", "c", "q"])
    return gb.train(params, categories if "max_cat_to_onehot" in params else gb.DMatrix(X, LABEL), 2, verbose_eval=False).model


def check(model, room, launches):
    """Margins and leaves are the CPU's, by these kernels."""
    results, device = [], SimulatedDevice(shared_limit=room)
    for predictor in (CpuPredictor(1), CudaPredictor(device)):
        flat, n_outputs = predictor.flatten(model.trees, model.tree_groups), 2
        margin, leaves = np.full((n_outputs, len(X)), 0.5, np.float32), np.zeros((len(X), len(model.trees)), np.int32)
        predictor.predict_values(X, np.nan, flat, 0, margin, leaves)
        results.append((margin.tolist(), leaves.tolist()))
    assert results[0] == results[1]
    assert [name for name in device.launches if "predict" in name] == launches


@pytest.mark.parametrize("room, launches", [
    (60 * 8, [BY_WORDS]), (60 * 8 - 1, [BY_WORDS] * 2), (15 * 8, [BY_WORDS] * 4), (15 * 8 - 1, [BY_NODES]),
])  # fmt: skip
def test_as_many_trees_at_a_time_as_there_is_room_for(room, launches):
    model = trained(objective="multi:softprob", num_class=2)
    assert [tree.n_nodes for tree in model.trees] == [15] * 4
    check(model, room, launches)


def test_sets_and_vector_leaves_have_no_words():
    check(trained(objective="binary:logistic", max_cat_to_onehot=1), 2**16, [BY_NODES])
    check(trained(objective="multi:softprob", num_class=2, multi_strategy="multi_output_tree"), 2**16, [BY_NODES])
