"""Sending rows down trees (kernels/predict.py, sparse.py): many rows, or one, as a service predicts.

    python benchmarks/bench_predict.py
    python benchmarks/bench_predict.py --workloads "one row"

Floor of a row and tree: for each level of the tree the loads of a split and of a value or code, from the first-level cache (one
row: from the trees' 300 KB). One row also runs beside XGBoost, if that is installed, on the same model, which it reads from a
file, in turns; every pair of predictions is compared. XGBoost gets one thread, its quickest setting there.
"""

import time
from typing import Any

import numpy as np
from ceilings import Ceilings
from kernel_bench import Kernel, main, model, table
from libraries import installed

from gpuboost.predictor import Predictor

REPEATS, WARM_UP = 3000, 100


def descend(n_rows: int, trees: np.ndarray, n_trees: int, lookup: float) -> tuple[float, float]:
    depth = np.ceil(np.log2(len(trees) / n_trees + 1)) - 1
    return n_rows * n_trees, n_rows * n_trees * depth * 2 * lookup


def predict_values(a: Any, c: Ceilings) -> tuple[float, float]:
    return descend(len(a.batch), a.trees, a.tree_begin.size, c.lookup(64))


def predict_sparse(a: Any, c: Ceilings) -> tuple[float, float]:
    return descend(a.row_begin.size - 1, a.trees, a.tree_begin.size, c.lookup(64))


def predict_codes(a: Any, c: Ceilings) -> tuple[float, float]:
    return descend(a.rows.size or a.columns.shape[1], a.trees, a.tree_begin.size, c.lookup(64))


def predict_plain(a: Any, c: Ceilings) -> tuple[float, float]:
    flat = a.self._flat["host"]
    return descend(len(a.table), flat.nodes, flat.first_node.size, c.lookup(2**15))


KERNELS = [
    Kernel(
        "predict_values_cpu", "row × tree", predict_values, "nine instructions a level; keys of the values",
        ("predicting values",),
    ),
    Kernel(
        "predict_sparse_cpu", "row × tree", predict_sparse, "nine instructions a level; many columns of keys",
        ("predicting one-hot",),
    ),
    Kernel(
        "predict_codes_cpu", "row × tree", predict_codes,
        "rows look at all splits of six levels; below, nine instructions a level",
        ("predicting codes", "half of rows, columns"),
    ),
    Kernel(
        "predict_plain", "row × tree", predict_plain, "each level waits for the one before; Python around it",
        ("one row",), Predictor,
    ),
]  # fmt: skip


def compare_one_row() -> dict[str, Any]:
    """Medians and 99th percentiles of Booster.inplace_predict in microseconds."""
    x, _ = table("higgs-7k")
    calls = {"gpuboost": model().inplace_predict}
    if installed(["xgboost"]):
        import xgboost

        peer = xgboost.Booster({"nthread": 1}, model_file=model().save_raw())
        calls["xgboost"] = peer.inplace_predict
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(WARM_UP + REPEATS):
        row, values = x[i : i + 1], []
        for name, call in calls.items():
            begin = time.perf_counter()
            values.append(float(call(row)[0]))
            seconds[name].append(time.perf_counter() - begin)
        assert max(values) - min(values) < 1e-6, values
    figures = {name: np.quantile(times[WARM_UP:], [0.5, 0.99]) * 1e6 for name, times in seconds.items()}
    print("\nOne row, 100 trees of depth 6, Booster.inplace_predict:")
    for name, (median, p99) in figures.items():
        print(f"    {name:9} median {median:7.1f} us   p99 {p99:7.1f} us   gpuboost's {figures['gpuboost'][0] / median:.2f}")
    return {"one_row_us": {name: {"median": median, "p99": p99} for name, (median, p99) in figures.items()}}


if __name__ == "__main__":
    main("kernels-predict", __doc__, KERNELS, compare_one_row)
