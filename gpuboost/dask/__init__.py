"""Training and prediction on a Dask cluster. Names and arguments of xgboost.dask.

    from dask.distributed import Client, LocalCluster
    from gpuboost import dask as dgb

    with Client(LocalCluster(n_workers=4)) as client:
        dtrain = dgb.DaskDMatrix(client, X, y)                               # dask arrays, dask frames, delayed partitions
        output = dgb.train(client, {"objective": "binary:logistic"}, dtrain, num_boost_round=100)
        prediction = dgb.predict(client, output, X)                          # a dask collection

The model is that of one machine with the partitions one below the other, byte for byte, whatever the number of workers, whichever
of them hold how much, and also when some die on the way: what they had is made again, and the round is grown again by those who
are there.

    matrix       partitions of a table with labels, weights, …, side by side
    placement    which worker takes which partitions
    job          on the client: attempts to do something on all workers, until one succeeds
    seat         on a worker: its place in an attempt
    training     train, cv
    prediction   predict, inplace_predict
    estimators   for scikit-learn's users
"""

try:
    import dask.array  # noqa: F401
    import distributed  # noqa: F401
except ImportError:
    from gpuboost.errors import install

    raise ImportError(f"gpuboost.dask needs Dask. Install it: {install('dask')}") from None

from typing import Any

from gpuboost.collective import Config
from gpuboost.dask.estimators import (
    DaskGPUBoostClassifier,
    DaskGPUBoostRanker,
    DaskGPUBoostRegressor,
    DaskGPUBoostRFClassifier,
    DaskGPUBoostRFRegressor,
)
from gpuboost.dask.matrix import DaskDMatrix, DaskQuantileDMatrix
from gpuboost.dask.prediction import inplace_predict, predict
from gpuboost.dask.seat import CommunicatorContext
from gpuboost.dask.training import communicator_args, cv, train

__all__ = [
    "CommunicatorContext", "Config", "DaskDMatrix", "DaskGPUBoostClassifier", "DaskGPUBoostRFClassifier",
    "DaskGPUBoostRFRegressor", "DaskGPUBoostRanker", "DaskGPUBoostRegressor", "DaskQuantileDMatrix", "communicator_args", "cv",
    "inplace_predict", "predict", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    own = name.replace("DaskXGB", "DaskGPUBoost")
    hint = f". It is called {own} here." if name != own and own in globals() else ""
    raise AttributeError(f"module 'gpuboost.dask' has no attribute {name!r}{hint}")
