"""One row at a time, as a service predicts: gpuboost's and XGBoost's inplace_predict on the same model, in turns.

    python benchmarks/bench_single_row.py
    python benchmarks/bench_single_row.py --trees 500 --depth 8 --repeats 5000

The model is trained here, saved, and read by XGBoost, so both walk the same trees; every pair of predictions is compared.
XGBoost gets one thread, its quickest setting for one row. Rows are views of a float32 table. Prints the median and the 99th
percentile in microseconds, and writes them to benchmarks/results/.
"""

import argparse
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

import gpuboost as gb

RESULTS = Path(__file__).resolve().parent / "results"
N_ROWS, N_FEATURES, SEED = 20_000, 28, 0
WARM_UP = 100  # calls that compile, or fill caches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3000)
    options = parser.parse_args()

    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(N_ROWS, N_FEATURES)).astype(np.float32)
    z = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.5 * X[:, 3]
    y = rng.random(N_ROWS) < 1 / (1 + np.exp(-z))
    booster = gb.train({"objective": "binary:logistic", "max_depth": options.depth}, gb.DMatrix(X, label=y), options.trees)
    calls = {"gpuboost": booster.inplace_predict}
    try:
        import xgboost

        peer = xgboost.Booster({"nthread": 1}, model_file=booster.save_raw())
        calls["xgboost"] = peer.inplace_predict
    except ImportError:
        print("xgboost is not installed: gpuboost alone")

    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(WARM_UP + options.repeats):
        row, values = X[i % N_ROWS : i % N_ROWS + 1], []
        for name, call in calls.items():
            begin = time.perf_counter()
            values.append(float(call(row)[0]))
            seconds[name].append(time.perf_counter() - begin)
        assert max(values) - min(values) < 1e-6, values
    figures = {
        name: {"median_us": 1e6 * float(np.median(t[WARM_UP:])), "p99_us": 1e6 * float(np.quantile(t[WARM_UP:], 0.99))}
        for name, t in seconds.items()
    }
    for name, figure in figures.items():
        ratio = figures["gpuboost"]["median_us"] / figure["median_us"]
        print(f"{name:9} median {figure['median_us']:7.1f} us   p99 {figure['p99_us']:7.1f} us   gpuboost / {name} {ratio:.2f}")
    record = {"time": datetime.now(UTC).isoformat(), **vars(options), "n_features": N_FEATURES, "seed": SEED, "figures": figures}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "single_row.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
