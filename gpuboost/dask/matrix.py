"""Tables on a cluster: the partitions of a collection, with the labels, weights, … of their rows."""

from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import Any
from uuid import uuid4

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed
from distributed import Client, Future, get_client, get_worker, worker_client

from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.quantile_dmatrix import QuantileDMatrix
from gpuboost.data.tables.device import host_array
from gpuboost.data.tables.sparse import is_sparse
from gpuboost.data.tables.stack import Stack
from gpuboost.errors import RowError
from gpuboost.positional import also_by_position

__all__ = [
    "DaskDMatrix", "DaskQuantileDMatrix", "MatrixPlan", "Origin", "Part", "client_of", "delayed_blocks", "empty_part",
    "facts_of_part", "is_frame", "synced",
]  # fmt: skip

Part = dict[str, Any]  # DMatrix's name of it → a partition's table, labels, …
OF_ROWS = ("label", "weight", "base_margin", "qid", "label_lower_bound", "label_upper_bound")


def client_of(client: Client | None) -> Client:
    """The client given, or the one at hand. Raises ValueError where there is none."""
    return get_client() if client is None else client


def synced(client: Client, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What a coroutine function returns; with an asynchronous client, what is to be awaited for it. A task that asks lends its
    thread to those it waits for."""
    with worker_client() if _is_task() and not client.asynchronous else nullcontext():
        return client.sync(function, *args, **options)


def _is_task() -> bool:
    try:
        get_worker()
    except ValueError:
        return False
    return True


def is_frame(data: Any) -> bool:
    """Whether this is a dask dataframe or series."""
    return hasattr(data, "to_delayed") and hasattr(data, "map_partitions")


@dataclass(frozen=True)
class Origin:
    """Where a worker's rows of a matrix come from. number : of each of its partitions. first : the first row of each, among the
    rows of all workers."""

    number: list[int]
    first: list[int]

    def row_name(self, ends: np.ndarray, row: int) -> str:
        """What errors call a row of the worker. ends : of its partitions, among its rows."""
        i = int(np.searchsorted(ends, row, side="right"))
        within = row - int(ends[i - 1]) if i else row
        return f"{within} of partition {self.number[i]} (row {self.first[i] + within} of all)"


@dataclass(frozen=True)
class MatrixPlan:
    """How a worker makes a DMatrix of the partitions it is given. arguments : of the class, beside those of rows."""

    is_quantile: bool
    arguments: dict[str, Any]
    ref: int | None = None  # the matrix of the job whose cuts it takes

    def make(self, parts: Sequence[Part], ref: DMatrix | None, origin: Origin) -> DMatrix:
        """The rows of all parts, in their order. The parts are not copied but for their labels and weights."""
        sizes = [n_rows_of(part["data"]) for part in parts]
        kept = [i for i, n_rows in enumerate(sizes) if n_rows] or [0]
        tables = [parts[i]["data"] for i in kept]
        info: dict[str, Any] = {name: _joined([_of_part(parts[i], name) for i in kept]) for name in OF_ROWS if name in parts[0]}
        data = tables[0] if len(tables) == 1 else _stacked(tables, [origin.number[i] for i in kept])
        row_name = partial(origin.row_name, np.cumsum(sizes))
        try:
            if self.is_quantile:
                matrix: DMatrix = QuantileDMatrix(data, **info, **self.arguments, ref=ref)
            else:
                matrix = DMatrix(data, **info, **self.arguments)
        except RowError as error:
            raise (error if isinstance(error.row, str) else error.at(row_name(error.row))) from None
        matrix.row_name = row_name
        return matrix


class DaskDMatrix:
    """A table on a cluster, optionally with labels, weights and starting margins. xgboost.dask's class of the same name.

    client : None for the one at hand. data : dask array (dense chunks, or SciPy's sparse ones), dask dataframe, or a list of
    partitions, each delayed or a future. label, weight, qid, base_margin, label_lower_bound, label_upper_bound : collections or
    lists with the same partitions, one value (or row of values) for each row. Rows are in the order of the partitions, and qid
    does not decrease, over partitions too; a query may have one weight for all its rows.
    feature_weights : (n_features,), an array or a collection. The other arguments are DMatrix's.

    A collection is not computed before it is trained on, and then by Dask, each time: persist() what is used more than once. A
    worker reads its partitions where Dask keeps them, without another copy: beside them it needs two bytes per value, labels, and
    up to 128 MB for counts while it makes cuts (data/sketch.py).
    May be awaited. Raises ValueError where partitions do not fit together, NotImplementedError for group.
    """

    is_quantile = False

    @also_by_position("weight", "base_margin", "missing", "silent", "feature_names", "feature_types")
    def __init__(
        self, client: Client | None, data: Any, label: Any = None, *, weight: Any = None, base_margin: Any = None,
        missing: float | None = None, silent: bool = False, feature_names: Any = None, feature_types: Any = None,
        group: Any = None, qid: Any = None, label_lower_bound: Any = None, label_upper_bound: Any = None,
        feature_weights: Any = None, enable_categorical: bool = True, sparse_absent: str | None = None,
        missing_labels: str = "error", **further: Any,
    ) -> None:  # fmt: skip
        if group is not None:
            raise NotImplementedError("group of a DaskDMatrix has no partitions to follow. Pass qid, the query of each row.")
        self.client = client
        if isinstance(data, da.Array) and data.ndim == 2 and data.numblocks[1] > 1:
            data = data.rechunk({1: -1})  # a partition holds whole rows
        self.feature_names = [str(name) for name in data.columns] if is_frame(data) and feature_names is None else feature_names
        self.feature_types, self.missing = feature_types, missing
        self._n_columns = data.shape[1] if hasattr(data, "shape") and len(data.shape) > 1 else None
        own = {
            "label": label, "weight": weight, "base_margin": base_margin, "qid": qid, "label_lower_bound": label_lower_bound,
            "label_upper_bound": label_upper_bound,
        }  # fmt: skip
        tables, self._chunks = _partitions("data", data, None)
        columns = {"data": tables}
        for name, values in own.items():
            if values is not None:
                columns[name], _ = _partitions(name, values, self._chunks)
                if len(columns[name]) != len(tables):
                    raise ValueError(f"{name} has {len(columns[name])} partitions, data has {len(tables)}. Give both the same.")
        self.parts: list[dict[str, Delayed | Future]] = [dict(zip(columns, row)) for row in zip(*columns.values())]
        if not self.parts:
            raise ValueError("data has no partitions. Pass a collection with at least one.")
        self._arguments = {
            "missing": missing, "silent": silent, "feature_names": feature_names, "feature_types": feature_types,
            "feature_weights": feature_weights, "enable_categorical": enable_categorical, "sparse_absent": sparse_absent,
            "missing_labels": missing_labels, **further,
        }  # fmt: skip

    def __await__(self) -> Generator[Any, None, "DaskDMatrix"]:
        async def itself() -> "DaskDMatrix":
            return self

        return itself().__await__()

    def num_col(self) -> int:
        """Columns. Computes a partition where only that tells."""
        if self._n_columns is None:
            self._n_columns = int(dask.compute(dask.delayed(_n_columns)(self.parts[0]["data"]))[0])
        return self._n_columns

    def num_row(self) -> int:
        """Rows. Computes the partitions where only that tells."""
        if self._chunks is not None:
            return sum(self._chunks)
        return sum(dask.compute(*self.delayed_rows()))

    def delayed_rows(self) -> list[Any]:
        """The rows of each partition, to be computed."""
        return [dask.delayed(n_rows_of)(part["data"]) for part in self.parts]

    async def settle(self, client: Client, n_rows: Sequence[int]) -> None:
        """Keep what a job has found out, the rows of each partition, and what it asks for, the values of feature_weights."""
        self._chunks = tuple(n_rows)
        weights = self._arguments["feature_weights"]
        if dask.is_dask_collection(weights):
            self._arguments["feature_weights"] = np.asarray(await client.compute(weights))

    @property
    def chunks(self) -> tuple[float, ...]:
        """Rows of each partition, NaN where they are not known yet."""
        return (float("nan"),) * len(self.parts) if self._chunks is None else self._chunks

    @property
    def prediction_arguments(self) -> dict[str, Any]:
        """Of a DMatrix of a partition, beside those of rows, to be predicted."""
        names = "missing", "feature_names", "feature_types", "enable_categorical", "sparse_absent"
        return {name: self._arguments[name] for name in names}

    def plan(self, matrices: Sequence["DaskDMatrix"]) -> MatrixPlan:
        """How workers make it. matrices : of the job, in the order in which they are made."""
        return MatrixPlan(self.is_quantile, self._arguments)

    def delayed_parts(self) -> list[Delayed]:
        """A Part of each partition, under new keys: what has gone wrong with others does not matter."""
        made = uuid4().hex
        return [
            dask.delayed(_checked_part)(list(part), list(part.values()), i, dask_key_name=f"gpuboost-part-{made}-{i}")
            for i, part in enumerate(self.parts)
        ]


class DaskQuantileDMatrix(DaskDMatrix):
    """A DaskDMatrix whose partitions are released as soon as they are binned; see QuantileDMatrix for max_bin, ref, cat_encoding.

    ref : the DaskQuantileDMatrix of training, for one to evaluate on. max_quantile_batches : accepted for XGBoost's sake.
    """

    is_quantile = True

    @also_by_position("weight", "base_margin", "missing", "silent", "feature_names", "feature_types", "max_bin", "ref")
    def __init__(
        self, client: Client | None, data: Any, label: Any = None, *, max_bin: int | None = None, ref: DaskDMatrix | None = None,
        max_quantile_batches: int | None = None, cat_encoding: str | None = None, **info: Any,
    ) -> None:  # fmt: skip
        super().__init__(client, data, label, max_bin=max_bin, cat_encoding=cat_encoding, **info)
        self._ref = ref

    def plan(self, matrices: Sequence[DaskDMatrix]) -> MatrixPlan:
        places = [i for i, matrix in enumerate(matrices) if matrix is self._ref]
        if self._ref is not None and not places:
            raise ValueError("ref of a DaskQuantileDMatrix must be one of the matrices of the training. Pass dtrain.")
        return MatrixPlan(True, self._arguments, places[0] if places else None)


def n_rows_of(table: Any) -> int:
    return int(table.shape[0]) if hasattr(table, "shape") else len(table)


def _n_columns(table: Any) -> int:
    return int(table.shape[1])


def facts_of_part(part: Part) -> tuple[int, Any, Any]:
    """Rows of a part, and its first and last query; None where it has none."""
    n_rows, qid = n_rows_of(part["data"]), part.get("qid")
    if qid is None or not n_rows:
        return n_rows, None, None
    values = np.asarray(host_array(qid))
    return n_rows, values[0].item(), values[-1].item()


def empty_part(part: Part) -> Part:
    """The same columns without rows, for a worker that has no others."""
    return {name: values[:0] if not hasattr(values, "iloc") else values.iloc[:0] for name, values in part.items()}


def delayed_blocks(data: Any) -> Any:
    """The blocks of a dask array, flat. Not optimised: that would put keys in place of futures, and what a persisted array holds
    would be gone with whoever passed it."""
    return data.to_delayed(optimize_graph=False).flatten()


def _partitions(name: str, data: Any, chunks: tuple[int, ...] | None) -> tuple[list[Any], tuple[int, ...] | None]:
    """The partitions of a collection, and the rows of each where they are known. chunks : of the table they belong to."""
    if isinstance(data, da.Array):
        if any(n > 1 for n in data.numblocks[1:]):
            data = data.rechunk(dict.fromkeys(range(1, data.ndim), -1))
        own = data.chunks[0]
        if chunks is not None and own != chunks and not any(map(isnan, own)) and sum(own) == sum(chunks):
            data = data.rechunk({0: chunks})
        known = None if any(map(isnan, data.chunks[0])) else tuple(int(n) for n in data.chunks[0])
        if None not in (known, chunks) and known != chunks and len(data.shape) and name != "weight":
            raise ValueError(f"{name} has {sum(known)} rows, data has {sum(chunks)}. Both need the same rows.")  # type: ignore[arg-type]
        return list(delayed_blocks(data)), known
    if is_frame(data):
        return list(data.to_delayed()), None
    if isinstance(data, list | tuple) and all(isinstance(part, Delayed | Future) for part in data):
        return list(data), None
    raise TypeError(
        f"{name} must be a dask array, a dask dataframe or a list of delayed partitions, got {type(data).__name__}. "
        "Use dask.array.from_array or dask.dataframe.from_pandas."
    )


def _checked_part(names: Sequence[str], values: Sequence[Any], number: int) -> Part:
    """A Part. Raises ValueError where its values are of different lengths."""
    part = dict(zip(names, values))
    if not hasattr(part["data"], "shape"):
        part["data"] = np.asarray(part["data"])
    n_rows = n_rows_of(part["data"])
    for name in names:
        n_own = len(part[name]) if name != "data" else n_rows
        may_be_of_queries = name == "weight" and "qid" in part
        if n_own != n_rows and not may_be_of_queries:
            raise ValueError(f"{name} has {n_own} rows in partition {number}, data has {n_rows}. Both need the same rows.")
    return part


def _of_part(part: Part, name: str) -> np.ndarray:
    """Labels or the like of a part; weights of queries for each row."""
    values = host_array(part[name])
    values = values.to_numpy() if hasattr(values, "iloc") else np.asarray(values)
    values = values[:, 0] if name == "qid" and values.ndim == 2 and values.shape[1] == 1 else values
    if name == "weight" and len(values) != n_rows_of(part["data"]):
        queries = np.asarray(host_array(part["qid"]))
        starts = np.flatnonzero(np.append(True, queries[1:] != queries[:-1]))
        if len(starts) != len(values):
            raise ValueError(f"weight has {len(values)} values in a partition of {len(queries)} rows in {len(starts)} queries.")
        return np.repeat(values, np.diff(np.append(starts, len(queries))))
    return values


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _stacked(tables: Sequence[Any], numbers: Sequence[int]) -> Any:
    if not any(is_sparse(table) for table in tables):
        return Stack(tables, numbers)
    import scipy.sparse

    return scipy.sparse.vstack(tables, format="csr")
