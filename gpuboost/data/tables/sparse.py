"""SciPy's sparse matrices: an absent entry is missing, as in XGBoost, unless it is to be zero; a stored zero is a zero."""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from gpuboost.config import warn
from gpuboost.data.tables.batches import Read, Rows
from gpuboost.data.tables.indices import check_indices
from gpuboost.data.tables.numbers import exceeds_float32, warn_lossy

__all__ = ["SparseTable", "float32_values", "is_sparse", "scipy_sparse", "sparse_reader", "stored_reader"]

WIDEST = {"i": np.int64, "u": np.uint64}  # in which sums of narrower integers do not overflow


def scipy_sparse(needed_for: str) -> ModuleType:
    """scipy.sparse, which whoever brings a sparse matrix has. Raises ImportError where it is not installed."""
    try:
        import scipy.sparse
    except ImportError:
        raise ImportError(f"{needed_for} needs SciPy: pip install scipy.") from None
    return scipy.sparse


def is_sparse(data: Any) -> bool:
    """Whether this is one of SciPy's sparse matrices or arrays."""
    kind = type(data)
    if not any(base.__module__.startswith("scipy.sparse") for base in kind.__mro__):
        return False
    import scipy.sparse

    return scipy.sparse.issparse(data)


class SparseTable:
    """A 2-D sparse matrix as CSR, sorted, each entry once.

    Any other format is converted once, as XGBoost does and by SciPy; entries that stand in one place more than once are summed.
    The matrix that was given is not changed, and one in this form already is not copied. Of dia only what is not zero is there
    then, of bsr all that lies in a block, of which a UserWarning speaks where it is zero, as that may be padding.

    Raises ValueError for index arrays that point outside the matrix, and for objects.
    """

    def __init__(self, data: Any) -> None:
        import scipy.sparse

        if data.dtype.kind == "O":
            raise ValueError("data is a sparse matrix of objects, but must hold numbers or booleans. Use X.astype(np.float64).")
        check_indices(data)
        # SciPy computes with neither float16 nor foreign byte orders, although it stores them.
        dtype = np.dtype(np.float32) if data.dtype == np.float16 else data.dtype.newbyteorder("=")
        if not getattr(data, "has_canonical_format", True):
            dtype = WIDEST.get(dtype.kind, dtype)
        matrix = scipy.sparse.csr_array(data.astype(dtype, copy=False))
        if data.format == "bsr" and (n_zeros := int((matrix.data == 0).sum())):
            warn(
                f"{n_zeros} zeros in the blocks of a bsr matrix are taken as values, what lies in no block as missing. If they "
                "are padding, X = X.tocsr() and X.eliminate_zeros() make them missing."
            )
        if data.format == "lil":
            check_indices(matrix)  # of its lists, now that they are arrays
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        self.matrix = matrix

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape

    def widened(self, n_features: int) -> "SparseTable":
        """The same rows with columns added behind, all of them absent."""
        import scipy.sparse

        m = self.matrix
        return SparseTable(scipy.sparse.csr_array((m.data, m.indices, m.indptr), shape=(m.shape[0], n_features)))


def float32_values(matrix: Any) -> np.ndarray:
    """The stored values as float32, rounded once; 1e39 becomes inf, which training and prediction refuse."""
    with np.errstate(over="ignore"):
        return matrix.data.astype(np.float32, copy=False)


def sparse_reader(table: SparseTable, label_of: Callable[[int], str], is_training: bool) -> Read:
    """stored_reader, absent cells missing. label_of, is_training : as arrays.array_reader."""
    if is_training and table.matrix.dtype.kind in "iu":
        lossy = np.unique(table.matrix.indices[exceeds_float32(table.matrix.data)])
        warn_lossy([label_of(int(j)) for j in lossy])
    return stored_reader(table.matrix, np.nan)


def stored_reader(matrix: Any, absent: float) -> Read:
    """rows of a csr_array → float32 (n, n_features), ``absent`` where no entry is stored."""
    return partial(_written_out, matrix, absent)


def _written_out(matrix: Any, absent: float, rows: Rows) -> np.ndarray:
    part = matrix[rows]
    batch = np.full(part.shape, absent, np.float32)
    batch[np.repeat(np.arange(len(batch)), np.diff(part.indptr)), part.indices] = float32_values(part)
    return batch
