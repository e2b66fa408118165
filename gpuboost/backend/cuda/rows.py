"""What a training on a GPU keeps of a page's rows."""

from dataclasses import dataclass

import numpy as np

from gpuboost.backend.contract import Array, TrainingRows
from gpuboost.backend.cuda.device import Device
from gpuboost.kernels import histogram
from gpuboost.kernels.structs import SLICE

__all__ = ["PageRows", "list_page_rows"]


@dataclass
class PageRows:
    """The rows of one page.

    first, n_rows : within the worker's rows. first_id : global number of its first row that takes part.
    kept : int32 (k,). Rows that take part; subset : the same, (0,) where those are all; the zero-weight rows, which do not, are
    idle : int32, n_idle : int64 (2,), 0 and how many.
    drawn : int32 (k,). From the front those drawn for this round, from the back the others; n_listed : int64 (2,), how many
    of either. lists : int32 (2, n_trees · k). The two buffers of row lists. gpair : int32 (n_searched, 2, n_rows).
    moved : int64 (nodes,). Rows of the nodes being split that have gone either way (kernels/partition.py).
    first_leaf_chunk : int64 (nodes + 1,). slices : SLICE, first_slice : int32. What blocks add up (kernels/histogram.py).
    """

    first: int
    n_rows: int
    first_id: int
    kept: Array
    subset: Array
    idle: Array
    n_idle: Array
    drawn: Array
    n_listed: Array
    lists: Array
    gpair: Array
    moved: Array
    first_leaf_chunk: Array
    slices: Array
    first_slice: Array

    def reserve(self, device: Device, n_nodes: int) -> None:
        """Room for what is kept of so many nodes."""
        self.moved = device.empty(n_nodes, np.int64)
        self.first_leaf_chunk = device.empty(n_nodes + 1, np.int64)
        n_blocks = histogram.BLOCKS_OF_A_MULTIPROCESSOR * device.n_multiprocessors
        n_slices = histogram.most_slices(self.lists.shape[1], n_blocks, n_nodes)
        self.slices, self.first_slice = device.empty(n_slices, SLICE), device.empty(n_slices, np.int32)


def list_page_rows(device: Device, rows: TrainingRows, n_trees: int, n_searched: int, draws_rows: bool) -> list[PageRows]:
    """The rows of every page of a training's table. n_searched : as backend/cpu/rows.py."""
    put, empty, pages, first, first_id = device.put, device.empty, [], 0, rows.first_row
    for n_rows in rows.binned.pages.page_rows:
        weight = rows.weight[first : first + n_rows]
        kept = put(np.flatnonzero(weight).astype(np.int32)) if len(weight) else device.xp.arange(n_rows, dtype=np.int32)
        idle = np.flatnonzero(weight == 0).astype(np.int32)
        nothing = empty(0, np.int64)
        pages.append(
            PageRows(
                first, n_rows, first_id, kept, kept if len(kept) < n_rows else empty(0, np.int32), put(idle),
                put(np.array([0, len(idle)])),
                empty(len(kept), np.int32) if draws_rows else kept, put(np.array([len(kept), 0])),
                empty((2, n_trees * len(kept)), np.int32), empty((n_searched, 2, n_rows), np.int32), nothing,
                nothing, nothing, nothing,
            )  # fmt: skip
        )
        first += n_rows
        first_id += len(kept)
    return pages
