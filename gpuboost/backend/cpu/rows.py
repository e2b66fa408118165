"""What a training on the CPU keeps of a page's rows: which take part, which are drawn, and where each lies while trees grow."""

from dataclasses import dataclass

import numpy as np

from gpuboost.backend.contract import TrainingRows
from gpuboost.storage.mapped import Allocate

__all__ = ["PageRows", "list_page_rows"]


@dataclass
class PageRows:
    """The rows of one page. Where all take part and all are drawn, a row takes 8 bytes for each tree of a round here, and 4
    (with two limbs 8) for each output; beside them training keeps its margins, labels, gradients and hessians, 4 bytes each.

    first, n_rows : within the worker's rows. first_id : global number of its first row that takes part.
    kept : int32 (k,). Rows that take part, ascending; zero-weight rows do not, they are idle : int32. Where all do, the pages
        share it.
    drawn : int32 (k,). Those drawn for this round, n_drawn of them, then the others.
    lists : int32 (2, n_trees · k). The two buffers of row lists (kernels/partition.py), a list for each tree.
    marks : uint8 (n_trees · k,). Which of the rows to be moved go left. All pages share it.
    gpair : int32 (n_searched, limbs, n_rows). Gradients in fixed point; once trees are grown, of a page whose leaves are gone
        through row by row, the nodes that its rows end in (kernels/row_leaves.py): until the next gradients are quantised.
    """

    first: int
    n_rows: int
    first_id: int
    kept: np.ndarray
    idle: np.ndarray
    drawn: np.ndarray
    n_drawn: int
    lists: np.ndarray
    marks: np.ndarray
    gpair: np.ndarray

    @property
    def own(self) -> slice:
        """Its part of arrays by row."""
        return slice(self.first, self.first + self.n_rows)

    @property
    def rows_drawn(self) -> np.ndarray:
        return self.drawn[: self.n_drawn]


def list_page_rows(
    rows: TrainingRows, n_trees: int, n_searched: int, draws_rows: bool, allocate: Allocate
) -> list[PageRows]:
    """The rows of every page of a training's table. n_searched : what it searches splits by: outputs, or combinations of
    them."""
    n_kept = int(np.count_nonzero(rows.weight)) if len(rows.weight) else rows.binned.n_rows
    spare_lists = allocate((2 * n_trees * n_kept,), np.int32)  # of all pages, from which each takes its own
    spare_gpair = allocate((n_searched * rows.binned.n_rows,), np.int32)
    pages, first, first_id, largest = list[PageRows](), 0, rows.first_row, max(rows.binned.pages.page_rows)
    all_rows, marks = np.arange(largest, dtype=np.int32), np.empty(n_trees * largest, np.uint8)
    for n_rows in rows.binned.pages.page_rows:
        weight = rows.weight[first : first + n_rows]
        kept = np.flatnonzero(weight).astype(np.int32) if len(weight) else all_rows[:n_rows]
        idle = np.flatnonzero(weight == 0).astype(np.int32)
        lists, spare_lists = np.split(spare_lists, [2 * n_trees * len(kept)])
        gpair, spare_gpair = np.split(spare_gpair, [n_searched * n_rows])
        lists = lists.reshape(2, n_trees * len(kept))
        pages.append(
            PageRows(
                first, n_rows, first_id, kept, idle, np.empty_like(kept) if draws_rows else kept, len(kept), lists,
                marks[: lists.shape[1]], gpair.reshape(n_searched, 1, n_rows),
            )  # fmt: skip
        )
        first += n_rows
        first_id += len(kept)
    return pages
