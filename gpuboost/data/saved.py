"""A DMatrix in a file, for DMatrix.save_binary: NumPy's npz, arrays and no code, of what is known of rows and columns.

    values                   float32 (n_rows, n_columns) of a dense table, NaN where missing; categories by their codes
    data, indices, indptr    of a sparse one, as in scipy.sparse.csr_array
    label, weight, …         float32, as get_float_info gives them; group: uint32, rows of each query
    about                    uint8, JSON in UTF-8: names, types, categories and what else makes the matrix
"""

import io
import json
import os
import zipfile
import zlib
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from gpuboost.data.feature_info import FeatureInfo
from gpuboost.data.info import FIELDS
from gpuboost.data.tables.open import LoadedTable
from gpuboost.data.tables.sparse import SparseTable, float32_values
from gpuboost.data.tables.spooled import SpooledTable
from gpuboost.data.view import TableView
from gpuboost.paths import write_file
from gpuboost.storage.shelf import Shelf

__all__ = ["SavedMatrix", "is_saved", "read_saved", "save_matrix"]

MAGIC = b"PK\x03\x04"  # of a zip file
FORMAT = "gpuboost DMatrix 1"
# What NumPy, zipfile and json raise of damaged files; NotImplementedError and RecursionError are RuntimeErrors.
BROKEN = ValueError, KeyError, TypeError, AttributeError, RuntimeError, OSError, EOFError, zipfile.BadZipFile, zlib.error


@dataclass(frozen=True)
class SavedMatrix:
    """info : by XGBoost's names, as DMatrix.set_info takes them. may_widen : as TableView. The rest as DMatrix's arguments."""

    table: LoadedTable
    info: dict[str, np.ndarray]
    feature_names: list[str] | None
    feature_types: list[str] | None
    sparse_absent: str | None
    missing_labels: str
    may_widen: bool


def save_matrix(path: str, view: TableView, features: FeatureInfo, info: dict[str, np.ndarray], missing_labels: str) -> None:
    """Write the file, whole or not at all. info : as SavedMatrix, without what is not given."""
    about = {
        "format": FORMAT, "feature_names": features.names, "feature_types": features.types, "categories": features.categories,
        "sparse_absent": features.sparse_absent, "missing_labels": missing_labels, "may_widen": view.may_widen,
    }  # fmt: skip
    arrays = {**info, **_table_arrays(view), "about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    write_file(path, buffer.getvalue())


def _table_arrays(view: TableView) -> dict[str, np.ndarray]:
    stored = view.source.stored
    if stored is None:
        batches = [np.where(is_present, batch, np.float32(np.nan)) for batch, is_present in view.source.present_values()]
        return {"values": np.concatenate([np.empty((0, view.source.n_features), np.float32), *batches])}
    values = float32_values(stored)
    data = np.where(values == np.float32(view.source.missing), np.float32(np.nan), values)
    return {"data": data, "indices": stored.indices, "indptr": stored.indptr, "shape": np.array(stored.shape, np.int64)}


def is_saved(path: str) -> bool:
    """Whether save_matrix may have written this file."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_saved(path: str) -> SavedMatrix:
    """Read the file. Raises ValueError where it is no such file, or damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        about = json.loads(arrays.pop("about").tobytes())
        if about.pop("format") != FORMAT:
            raise ValueError("it is of another version")
        table = _read_table(arrays, about["feature_names"], about["feature_types"], about.pop("categories"))
        rules = about["sparse_absent"], about["missing_labels"]
        if arrays.keys() - FIELDS or rules not in product((None, "missing", "zero"), ("error", "mask")):
            raise ValueError("it says what no matrix has")
        return SavedMatrix(LoadedTable(table, None), arrays, **about)
    except BROKEN as error:
        raise ValueError(f"{path} cannot be read as a file of DMatrix.save_binary: {error}. Save the matrix anew.") from None


def _read_table(arrays: dict[str, np.ndarray], names: Any, types: Any, categories: dict[str, list[Any]]) -> Any:
    """The table, whose arrays are taken out."""
    if "indptr" in arrays:
        import scipy.sparse

        data, indices, indptr, shape = (arrays.pop(name) for name in ("data", "indices", "indptr", "shape"))
        return SparseTable(scipy.sparse.csr_array((data, indices, indptr), shape=tuple(shape.tolist())))
    values = arrays.pop("values")
    if not categories:
        return values
    _, n_features = values.shape
    for name, own in categories.items():
        codes = values[:, names.index(name)]
        if not np.isin(codes[~np.isnan(codes)], np.arange(len(own))).all():
            raise ValueError(f"column {name!r} holds codes of no category")
    table = SpooledTable(n_features, Shelf(values.nbytes), is_frame=True)
    table.append(values)
    table.finish(names, types, categories, {})
    return table
