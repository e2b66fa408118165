"""gpuboost/margins.py: where the margins of a table start, and what is read at once to add trees to them."""

import tracemalloc

import numpy as np
import pytest

import gpuboost as gb
from gpuboost.backend.cpu.predictor import CpuPredictor
from gpuboost.data.dmatrix import DMatrix
from gpuboost.margins import start_margin

X = np.array([[1.0, 10.0], [2.0, np.nan], [3.0, 30.0]])


@pytest.mark.parametrize("base_margin, n_outputs, expected", [
    (None, 2, [[0.5] * 3] * 2),
    ([1, 2, 3], 1, [[1, 2, 3]]),
    ([[1, 4], [2, 5], [3, 6]], 2, [[1, 2, 3], [4, 5, 6]]),
])  # fmt: skip
def test_base_margin_replaces_base_score(base_margin, n_outputs, expected):
    margin = start_margin(DMatrix(X, base_margin=base_margin), 3, (0.5,), None, n_outputs)
    assert margin.dtype == np.float32 and margin.tolist() == expected
    margin += 1  # a new array
    if base_margin is not None:
        np.testing.assert_array_equal(DMatrix(X, base_margin=base_margin).get_base_margin(), base_margin)


@pytest.mark.parametrize("width", [1, 2])
def test_base_margin_of_another_width_is_refused(width):
    with pytest.raises(ValueError, match=f"base_margin has {width} columns, the model has 3 outputs"):
        start_margin(DMatrix(X, base_margin=np.ones((3, width))), 3, (0.5,), None, 3)


WIDE = np.random.default_rng(0).normal(size=(10_000, 300)).astype(np.float32)
FORMS = {
    "view": (WIDE, [10_000]), "double": (WIDE.astype(float), [10_000]), "columns": (np.asfortranarray(WIDE), [6990, 3010]),
    "every second": (np.repeat(WIDE, 2, axis=0)[::2], [10_000]), "big endian": (WIDE.astype(">f4"), [6990, 3010]),
    "masked": (np.ma.masked_array(WIDE, np.zeros_like(WIDE, bool)), [6990, 3010]),
}  # fmt: skip


@pytest.fixture
def batches(monkeypatch):
    """The rows of each batch that values are predicted of."""
    batches, predict = [], CpuPredictor.predict_values
    monkeypatch.setattr(
        CpuPredictor, "predict_values", lambda self, batch, *rest: batches.append(len(batch)) or predict(self, batch, *rest)
    )
    return batches


@pytest.mark.parametrize("table, rows", FORMS.values(), ids=FORMS)
def test_what_takes_no_memory_is_predicted_at_once(table, rows, batches, monkeypatch):
    booster = gb.train({"max_depth": 3}, gb.DMatrix(WIDE[:500], WIDE[:500, 0]), 3)
    expected = np.concatenate([booster.inplace_predict(part) for part in np.split(WIDE, [3000, 6000])])
    batches.clear()
    np.testing.assert_array_equal(booster.inplace_predict(table), expected)
    assert batches == rows
    for module in ("margins", "predictor"):
        monkeypatch.setattr(f"gpuboost.{module}.VIEWED_ROWS", 7000)
    for predict in (booster.inplace_predict, lambda table: booster.predict(gb.DMatrix(table))):
        batches.clear()
        np.testing.assert_array_equal(predict(table), expected)
        assert batches == (rows if len(rows) > 1 else [7000, 3000])


def test_a_value_that_is_too_large_is_found_without_a_copy_of_the_table():
    booster, table = gb.train({"max_depth": 3}, gb.DMatrix(WIDE[:500], WIDE[:500, 0]), 3), WIDE.copy()
    booster.inplace_predict(table)
    table[8123, 0] = np.inf
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="row 8123"):
            booster.inplace_predict(table)
        assert tracemalloc.get_traced_memory()[1] < table.nbytes * 0.7
    finally:
        tracemalloc.stop()


def test_on_a_device_a_view_takes_memory_as_any_batch(batches, monkeypatch):
    booster = gb.train({"max_depth": 3}, gb.DMatrix(WIDE[:500], WIDE[:500, 0]), 3)
    expected = booster.inplace_predict(WIDE)
    batches.clear()
    monkeypatch.setattr("gpuboost.backend.cpu.memory.HostMemory.name", "cuda:0")
    np.testing.assert_array_equal(booster.inplace_predict(WIDE), expected)
    assert batches == [6990, 3010]
