"""Tables to codes on a GPU."""

from collections.abc import Iterable

import numpy as np

from gpuboost.backend.contract import Array, Coder, RankedColumns
from gpuboost.backend.cuda.device import Device
from gpuboost.backend.cuda.memory import on_device
from gpuboost.binned.cuts import Cuts
from gpuboost.binned.packing import Packing
from gpuboost.binned.pages import DensePage
from gpuboost.kernels import binning, sketch
from gpuboost.kernels.packing import pack_records_kernel
from gpuboost.kernels.ranks import (
    IN_COLUMNS,
    IN_ROWS,
    ROWS_PER_BLOCK,
    count_values_kernel,
    find_values_kernel,
    list_keys_kernel,
    list_values_kernel,
)
from gpuboost.kernels.transposing import TILE_FEATURES, TILE_ROWS, transpose_rows_kernel

__all__ = ["CudaCoder", "CudaRankedColumns", "columns_of"]

RANKED_BYTES = 2**30  # to sort columns: some at a time, as many as keep a GPU busy
RANKED_SHARE = 4  # but no more than one part in so many of the memory that is free: the table may be on its way


def columns_of(
    device: Device, batch: Array, features: Array | None = None, missing: float = np.nan, n_large: Array | None = None
) -> Array:
    """Columns of a batch as float32 (n, n_rows), contiguous, on the device: a view where they lie so.

    features : which, at least one, ascending; None: all. n_large : int64 (1,) on the device, INOUT. More than 0 afterwards where
    a value other than the missing one may be infinite or outside float32; None: nobody asks.
    """
    n_rows, n = batch.shape
    which = device.empty(0, np.int32)
    if features is not None and len(features) != n:
        n, which = len(features), device.put(features, np.int32)
    if len(which) == 0 and batch.T.flags.c_contiguous:
        rows = columns = device.put(batch.T, np.float32)
        if n_large is None:
            return columns
        written = device.empty((0, 0), np.float32)  # only looked at, in whatever order
    else:
        rows, columns = device.put(batch), device.empty((n, n_rows), np.float32)
        written = columns
    n_tiles = -(-rows.shape[0] // TILE_ROWS) * -(-(len(which) or rows.shape[1]) // TILE_FEATURES)
    n_large = device.zeros(1, np.int64) if n_large is None else n_large
    device.launch(transpose_rows_kernel, rows, which, missing, written, n_large, blocks=n_tiles)
    return columns


@on_device(RankedColumns)
class CudaRankedColumns(RankedColumns):
    """Keys, sorted, on the device."""

    def __init__(
        self, device: Device, batches: Iterable[Array], missing: float, weights: Array | None, n_rows: int,
        features: np.ndarray,
    ) -> None:  # fmt: skip
        self.device, n = device, len(features)
        self._shift = IN_COLUMNS if weights is None else IN_ROWS
        own_weights = device.put(np.zeros(0, np.int64) if weights is None else weights)
        self._keys, first = device.empty((n, n_rows), np.uint64), 0
        for batch in batches:
            values = columns_of(device, batch, features)
            last = first + values.shape[1]
            device.launch(
                list_keys_kernel, values, missing, own_weights[first:last], first, self._shift, self._keys,
                blocks=self._n_chunks(n, values.shape[1]),
            )  # fmt: skip
            first = last
            del values  # sorting needs its room
        self._prefix = device.empty((n, 0 if weights is None else n_rows), np.int64)
        if weights is None:
            self._keys.reshape(-1).sort()
        else:
            for keys, prefix in zip(self._keys, self._prefix):
                keys.sort()
                prefix[...] = device.xp.cumsum(own_weights[(keys & np.uint64(0xFFFFFFFF)).astype(np.int64)])
        counts = device.zeros((n, 4), np.int64)
        device.launch(
            count_values_kernel, self._keys, self._shift, self._prefix, counts, blocks=self._n_chunks(n, n_rows)
        )  # fmt: skip
        n_present, self.n_distinct, self.n_infinite, self.totals = np.ascontiguousarray(device.fetch(counts).T)
        n_absent = 0 if weights is None else int((own_weights == 0).sum())
        self.has_missing = n_rows - n_present > n_absent

    def _n_chunks(self, n: int, n_rows: int) -> int:
        return n * -(-n_rows // ROWS_PER_BLOCK)

    def ranks_of_values(self, columns: np.ndarray, most: int) -> np.ndarray:
        device = self.device
        found, n_listed = device.zeros((len(columns), most), np.int64), device.zeros(len(columns), np.int64)
        device.launch(
            list_values_kernel, self._keys, self._shift, self._prefix, device.put(columns), n_listed, found,
            blocks=self._n_chunks(len(columns), self._keys.shape[1]),
        )  # fmt: skip
        return np.sort(device.fetch(found), axis=1)

    def at(self, columns: np.ndarray, ranks: np.ndarray) -> list[np.ndarray]:
        device, shape = self.device, ranks.shape
        found = [device.empty(shape, dtype) for dtype in (np.uint32, np.int64, np.int64)]
        device.launch(
            find_values_kernel, self._keys, self._shift, self._prefix, device.put(columns), device.put(ranks), *found,
            threads=ranks.size,
        )  # fmt: skip
        return [device.fetch(array) for array in found]


@on_device(Coder)
class CudaCoder(Coder):
    """A kernel a batch."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def count_digits(
        self, batch: Array, missing: float, weights: Array, features: Array, level: int, slots0: Array | None,
        slots1: Array | None, counts: Array,
    ) -> None:  # fmt: skip
        device = self.device
        values = columns_of(device, batch, features)
        none = np.zeros((0, 1), np.int32)
        device.launch(
            sketch.count_digits_kernel, values, missing, device.put(weights), level,
            device.put(none if slots0 is None else slots0), device.put(none if slots1 is None else slots1), counts,
            blocks=len(features) * -(-values.shape[1] // sketch.ROWS_PER_BLOCK),
        )  # fmt: skip

    def columns_ranked_at_once(self, n_rows: int, is_weighted: bool) -> int:
        """Values, keys, what sorting them takes, and weights."""
        most, column = self.device.free_bytes() // RANKED_SHARE, (56 if is_weighted else 24) * max(n_rows, 1)
        return max(min(most, RANKED_BYTES) // column, int(column <= most))

    def rank_columns(
        self, batches: Iterable[Array], missing: float, weights: Array | None, n_rows: int, features: np.ndarray
    ) -> RankedColumns:
        return CudaRankedColumns(self.device, batches, missing, weights, n_rows, features)

    def bin_rows(self, batch: Array, missing: float, cuts: Cuts, first_row: int, page: DensePage) -> int:
        device = self.device
        values, n_lost = columns_of(device, batch), device.zeros(1, np.int64)
        device.launch(
            binning.bin_rows_kernel, values, missing, device.put(cuts.thresholds), device.put(cuts.offsets), first_row,
            page.columns, page.records, n_lost, threads=values.shape[1] * -(-len(values) // binning.TILE_FEATURES),
        )  # fmt: skip
        return int(device.fetch(n_lost)[0])

    def write_records(self, packing: Packing | None, page: DensePage) -> None:
        if packing is None:
            page.records[:, : len(page.columns)] = page.columns.T
            return
        put = self.device.put
        self.device.launch(
            pack_records_kernel, page.columns, put(packing.luts), put(packing.members), put(packing.first_member),
            page.records.view(np.uint32), threads=page.n_rows,
        )  # fmt: skip
