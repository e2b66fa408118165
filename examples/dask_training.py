"""Train on a Dask cluster of this machine's processes, lose a worker on the way, and get the model of one machine.

    python examples/dask_training.py
"""

import os
import signal
import threading

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import gpuboost as gb
from gpuboost import dask as dgb


def main() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 10)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] + X[:, 2] > 0).astype(np.float32)
    params = {"objective": "binary:logistic", "max_depth": 4, "subsample": 0.8, "eval_metric": "auc"}

    with LocalCluster(n_workers=3, threads_per_worker=1) as cluster, Client(cluster) as client:
        dtrain = dgb.DaskDMatrix(client, da.from_array(X, chunks=(10_000, 10)), da.from_array(y, chunks=10_000))
        victim = min(client.run(os.getpid).values())
        threading.Timer(3.0, os.kill, (victim, signal.SIGKILL)).start()  # Dask starts another one, which joins in
        output = dgb.train(client, params, dtrain, 100, evals=[(dtrain, "train")], verbose_eval=20)
        prediction = dgb.predict(client, output, da.from_array(X, chunks=(10_000, 10))).compute()

    local = gb.train(params, gb.DMatrix(X, y), 100)
    assert bytes(output["booster"].save_raw()) == bytes(local.save_raw())
    assert (prediction == local.predict(gb.DMatrix(X))).all()
    print("one model, on three workers and a half")


if __name__ == "__main__":
    main()
