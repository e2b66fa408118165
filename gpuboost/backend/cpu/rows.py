"""What a training on the CPU keeps of a page's rows: which take part, which are drawn, and where each lies while trees grow."""

from dataclasses import dataclass

import numpy as np

from gpuboost.backend.contract import TrainingRows
from gpuboost.kernels.histogram import LANES
from gpuboost.storage.mapped import Allocate

__all__ = ["PageRows", "list_page_rows", "make_room", "make_room_by_row"]


@dataclass
class PageRows:
    """The rows of one page. Where all take part and all are drawn, a row takes 8 bytes for each tree of a round here, and 4
    (with two limbs 8) for each output; beside them training keeps its margins, labels, gradients and hessians, 4 bytes each.

    first, n_rows : within the worker's rows. first_id : global number of its first row that takes part.
    kept : int32 (k,). Rows that take part, ascending; zero-weight rows do not, they are idle : int32. Where all do, the pages
        share it.
    drawn : int32 (k,). Those drawn for this round, n_drawn of them, then the others. (Of rounds that kernels/rounds.py grows it
        keeps the numbers to itself.)
    lists : int32 (2, n_trees · k). The two buffers of row lists (kernels/partition.py), a list for each tree that grows at once.
    marks : uint8 (n_trees · k,). Which of the rows to be moved go left. All pages share it. Both are empty until make_room.
    gpair : int32 (n_searched, limbs, n_rows). Gradients in fixed point; once trees are grown, of a page whose leaves are gone
        through row by row, the nodes that its rows end in (kernels/row_leaves.py): until the next gradients are quantised.
    by_row : int32 (n_rows · n_searched + LANES,), or empty: the same of one limb, a row's outputs side by side, where histograms
        add several outputs together.
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
    by_row: np.ndarray

    def __post_init__(self) -> None:
        self.own = slice(self.first, self.first + self.n_rows)  # its part of arrays by row

    @property
    def rows_drawn(self) -> np.ndarray:
        return self.drawn[: self.n_drawn]


def list_page_rows(rows: TrainingRows, n_searched: int, draws_rows: bool, allocate: Allocate) -> list[PageRows]:
    """The rows of every page of a training's table. n_searched : what it searches splits by: outputs, or combinations of
    them."""
    spare_gpair = allocate((n_searched * rows.binned.n_rows,), np.int32)  # of all pages, from which each takes its own
    pages, first, first_id = list[PageRows](), 0, rows.first_row
    all_rows = np.arange(max(rows.binned.pages.page_rows), dtype=np.int32)
    for n_rows in rows.binned.pages.page_rows:
        weight = rows.weight[first : first + n_rows]
        kept = np.flatnonzero(weight).astype(np.int32) if len(weight) else all_rows[:n_rows]
        idle = np.flatnonzero(weight == 0).astype(np.int32)
        gpair, spare_gpair = np.split(spare_gpair, [n_searched * n_rows])
        pages.append(
            PageRows(
                first, n_rows, first_id, kept, idle, np.empty_like(kept) if draws_rows else kept, len(kept),
                np.empty((2, 0), np.int32), np.empty(0, np.uint8), gpair.reshape(n_searched, 1, n_rows),
                np.empty(0, np.int32),
            )  # fmt: skip
        )
        first += n_rows
        first_id += len(kept)
    return pages


def make_room_by_row(pages: list[PageRows], n_searched: int, allocate: Allocate) -> None:
    """Give every page room for pairs by row."""
    for page in pages:
        page.by_row = allocate((page.n_rows * n_searched + LANES,), np.int32)


def make_room(pages: list[PageRows], n_trees: int, allocate: Allocate) -> None:
    """Give every page lists and marks for so many trees."""
    n_kept = [len(page.kept) for page in pages]
    spare, marks = allocate((2 * n_trees * sum(n_kept),), np.int32), np.empty(n_trees * max(n_kept), np.uint8)
    for page, n in zip(pages, n_kept):
        lists, spare = np.split(spare, [2 * n_trees * n])
        page.lists, page.marks = lists.reshape(2, n_trees * n), marks[: n_trees * n]
