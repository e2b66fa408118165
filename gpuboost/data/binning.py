"""From a table to its codes: every batch of rows is binned under some cuts, into pages; and the records that training reads."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gpuboost.arrays import empty_from_a_line
from gpuboost.backend.contract import Backend
from gpuboost.binned.cuts import Cuts
from gpuboost.binned.matrix import BinnedMatrix, Representation
from gpuboost.binned.pages import DensePage, ResidentPages, SparsePage
from gpuboost.data.density import written_out
from gpuboost.data.packing import choose_packing, choose_sparse_packing, may_pack
from gpuboost.data.tables.source import ColumnSource
from gpuboost.kernels.histogram import record_bytes
from gpuboost.kernels.packing import pack_cells_cpu
from gpuboost.storage.pages import StoredPages
from gpuboost.storage.shelf import Shelf

__all__ = ["MakeShelf", "add_records", "bin_table"]

MakeShelf = Callable[[], Shelf]

MOST_CATEGORIES = 65534  # with the codes for none of them and for missing, those of two bytes


def bin_table(
    source: ColumnSource, cuts: Cuts, backend: Backend, *, with_records: bool, page_rows: int | None = None,
    make_shelf: MakeShelf | None = None,
) -> BinnedMatrix:  # fmt: skip
    """Bin every row of a source (tables.source.ColumnSource).

    with_records : also write the row-major copy that histograms read, packed where that is worth it. page_rows : rows of a
    page; None puts all in one. make_shelf : a new shelf to put the pages on, with records that are not packed; the backend's
    memory is that of the host then. One byte per code where all codes fit, the missing ones that occur included, else two.
    Raises ValueError for a column of more categories than two bytes number.
    """
    for feature in np.flatnonzero(cuts.n_categories > MOST_CATEGORIES)[:1].tolist():
        raise ValueError(
            f"column {source.feature_names[feature] if source.feature_names else feature!r} has {cuts.n_categories[feature]} "
            f"categories, but at most {MOST_CATEGORIES} of a dense table can be split by sets. Use cat_encoding='ordinal', join "
            "rare categories, or pass a SciPy sparse matrix of their codes (for sets)."
        )
    if int(cuts.n_bins.max()) <= 256:
        later = with_records and make_shelf is None and may_pack(cuts, source.n_rows)  # a packing is chosen by the columns
        binned, n_lost = _bin(source, cuts, backend, np.uint8, with_records and not later, page_rows, make_shelf)
        if n_lost == 0:
            return add_records(binned, backend) if later else binned
    return _bin(source, cuts, backend, np.uint16, with_records, page_rows, make_shelf)[0]


def add_records(binned: BinnedMatrix, backend: Backend) -> BinnedMatrix:
    """The same codes, in the backend's memory, with the records that training reads: none in exact search."""
    if binned.representation is Representation.SORTED:
        return backend.memory.move_table(binned)
    if was_sparse := binned.is_sparse:
        binned = _add_sparse_records(binned, backend.n_threads)
        if binned.packing is None:
            binned = written_out(binned, backend.n_threads)
        if binned.is_sparse:
            return backend.memory.move_table(binned)
    if isinstance(binned.pages, StoredPages):  # with records from the start
        return backend.memory.move_table(binned)
    binned = backend.memory.move_table(binned)
    pages = [page for page in binned.pages if isinstance(page, DensePage)]
    if all(len(page.records) == page.n_rows for page in pages):
        return binned
    packing = None if was_sparse else choose_packing(pages, binned.cuts, backend)  # a sparse one's has been looked for
    size, filled = binned.dtype.itemsize, []
    n_codes = binned.cuts.n_features if packing is None else packing.n_groups
    for page in pages:
        records = backend.memory.zeros((page.n_rows, record_bytes(n_codes * size) // size), binned.dtype)
        filled.append(DensePage(page.columns, records))
        backend.coder.write_records(packing, filled[-1])
    return replace(binned, pages=ResidentPages(tuple(filled)), packing=packing)


def _add_sparse_records(binned: BinnedMatrix, n_threads: int) -> BinnedMatrix:
    """The same with packed records where they are worth it, in host memory, unless that has been found out before."""
    (page,) = binned.pages
    assert isinstance(page, SparsePage)
    if page.records is not None:
        return binned
    page = page.host or page
    binned = replace(binned, memory="host")
    packing = choose_sparse_packing(page, n_threads)
    if packing is None:
        records = np.zeros((0, 8), np.uint8)
    else:
        records = empty_from_a_line((page.n_rows, record_bytes(packing.n_groups)), np.uint8)
        groups, steps, base = packing.of_cells(binned.cuts)
        pack_cells_cpu(page.row_begin, page.cells, groups, steps, base, records, n_threads)
    return replace(binned, pages=ResidentPages((replace(page, records=records),)), packing=packing)


def _bin(
    source: ColumnSource, cuts: Cuts, backend: Backend, dtype: type[np.unsignedinteger], with_records: bool,
    page_rows: int | None, make_shelf: MakeShelf | None,
) -> tuple[BinnedMatrix, int]:  # fmt: skip
    """The codes, and how many missing ones did not fit in the dtype."""
    page_rows = min(page_rows or source.n_rows, max(source.n_rows, 1)) or 1
    width = record_bytes(cuts.n_features * np.dtype(dtype).itemsize) // np.dtype(dtype).itemsize
    stored = None if make_shelf is None else StoredPages(make_shelf(), np.dtype(dtype), cuts.n_features, width)
    zeros, held = backend.memory.zeros, list[DensePage]()
    n_lost, page = 0, DensePage(zeros((0, 0), dtype), zeros((0, width), dtype))

    def new_page(first: int) -> DensePage:
        n = min(page_rows, source.n_rows - first)
        if page.n_rows == n and stored is not None and not stored.holds_last:
            return page
        return DensePage(zeros((cuts.n_features, n), dtype), zeros((n if with_records else 0, width), dtype))

    def keep(page: DensePage) -> None:
        held.append(page) if stored is None else stored.add(page)

    row = 0
    for batch in source.batches():
        done = 0
        while done < len(batch):  # a batch may cross the end of a page
            at = row % page_rows
            page = new_page(row) if at == 0 else page
            part = batch[done : done + page.n_rows - at]
            n_lost += backend.coder.bin_rows(part, source.missing, cuts, at, page)
            done += len(part)
            row += len(part)
            if at + len(part) == page.n_rows:
                keep(page)
    if row == 0:
        keep(new_page(0))
    return BinnedMatrix(cuts, stored or ResidentPages(held), backend.memory.name), n_lost
