"""ExtMemQuantileDMatrix: a QuantileDMatrix whose codes need not fit in memory."""

from typing import Any

import gpuboost.backend as backends
from gpuboost.backend import Backend
from gpuboost.data.binning import MakeShelf
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.quantile_dmatrix import QuantileDMatrix
from gpuboost.data.streams.open import room_for_values
from gpuboost.kernels.histogram import record_bytes
from gpuboost.storage.room import free_memory
from gpuboost.storage.shelf import Shelf

__all__ = ["ExtMemQuantileDMatrix"]

PAGE_BYTES = 2**25  # of a page: a millisecond is little beside what 32 MB take to be read and added up
LEAST_PAGE_ROWS = 4096
ROW_BYTES = 40  # that training needs for a row beside the table: 28 (backend/cpu/rows.py), weights, rows drawn, evaluation
RESERVE_BYTES = 2**29  # of memory that is left alone, for histograms and for what else runs


class ExtMemQuantileDMatrix(QuantileDMatrix):
    """A QuantileDMatrix whose codes stay in memory as far as there is room, and go to files where not. XGBoost's class of the
    same name.

    data : a DataIter; or the name of a Parquet, CSV or LIBSVM file, of a folder or a pattern ("part-*.parquet") of such; a
        pyarrow Dataset, a polars LazyFrame; or any table of a DMatrix, np.memmap among them.
    label, weight, base_margin, qid, ... : as DMatrix; of a Parquet file or a query the names of columns.
    max_bin, ref, cat_encoding : as QuantileDMatrix.
    cache_memory : bytes of codes, and while it is built of values, that may stay in memory; None: what is free, but for
        40 bytes a row and 512 MB that training needs itself.
    cache_folder : for the files; None: the folder of the iterator's cache_prefix, or that for temporary files.
    page_rows : rows of a page, which are read together; None: 32 MB of codes. The model does not depend on it.
    max_quantile_batches, cache_host_ratio : accepted for XGBoost's sake: quantiles are exact.

    A stream is read once. Its values wait in memory and in files, 4 bytes each, for the cuts and for binning, and go; its
    codes, 2 bytes a value, stay for as long as the matrix. The files lie in a folder of this process alone, which goes away
    with it: after a kill when the next such folder is made beside it. Training reads the records of each page once a level,
    and of its columns those that the level splits by; a page without a row that was drawn is not read, any other one whole. On a
    GPU pages come by two buffers where not all of them fit. Sparse batches are kept in memory, with a warning where dense ones
    would not be. The model is the same byte for byte as that of a QuantileDMatrix.
    """

    _streams_all = True

    def __init__(
        self, data: Any, label: Any = None, *, max_bin: int | None = None, ref: DMatrix | None = None,
        cache_memory: int | None = None, cache_folder: str | None = None, page_rows: int | None = None,
        cat_encoding: str | None = None, max_quantile_batches: int | None = None, cache_host_ratio: float | None = None,
        **info: Any,
    ) -> None:  # fmt: skip
        self._codes_memory = cache_memory
        super().__init__(
            data, label, max_bin=max_bin, ref=ref, page_rows=page_rows, cat_encoding=cat_encoding, device="cpu",
            cache_memory=cache_memory, cache_folder=cache_folder, **info,
        )  # fmt: skip

    def _binning_backend(self, place: str) -> Backend:
        return backends.cpu_backend(self.nthread)  # wherever it is trained on: only there are files

    def _storage(self, page_rows: int | None) -> tuple[int | None, MakeShelf | None]:
        n_features, n_rows = self.num_col(), self.num_row()
        default = max(LEAST_PAGE_ROWS, PAGE_BYTES // (n_features + record_bytes(n_features)))
        room = max(0, free_memory() - n_rows * ROW_BYTES - RESERVE_BYTES)
        if self._codes_memory is not None:
            room = room_for_values(self._codes_memory)
        folder = self._cache_folder
        return page_rows or default, lambda: Shelf(room, folder)

    @property
    def bytes_in_files(self) -> int:
        """Of the codes that found no room in memory."""
        pages = self._bins.binned.pages.home
        return getattr(pages, "bytes_in_files", 0)
