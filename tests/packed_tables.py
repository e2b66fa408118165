"""Columns of codes that pack in various ways, and what a packing says about them, worked out plainly."""

import numpy as np

from gpuboost.binned.cuts import SENTINEL, Cuts
from gpuboost.binned.pages import DensePage, SortedColumns, SparsePage

# Columns of a kind, by a random generator and the number of rows: (integers (n_columns, n_rows), n_bins). Code n_bins is missing.
KINDS = {
    "one-hot": lambda rng, n: one_hot(rng.integers(0, 5, n), 5, default=0, other=1, n_bins=2),
    "one-hot, zeros missing": lambda rng, n: one_hot(rng.integers(0, 7, n), 7, default=1, other=0, n_bins=1),
    "one-hot, some missing": lambda rng, n: (np.where(rng.random(n) < 0.1, 2, KINDS["one-hot"](rng, n)[0]), 2),
    "exclusive": lambda rng, n: (one_hot(rng.integers(0, 3, n), 3, 0, 1, 2)[0] * rng.integers(1, 60, n) + 7, 70),
    "binary": lambda rng, n: ((rng.random((3, n)) < 0.3).astype(int), 2),
    "few": lambda rng, n: (rng.integers(0, 6, (2, n)), 6),
    "few, some missing": lambda rng, n: (rng.integers(0, 6, (2, n)), 5),
    "many": lambda rng, n: (rng.integers(0, 256, (1, n)), 256),
    "mostly the largest": lambda rng, n: (np.where(rng.random((2, n)) < 0.9, 99, rng.integers(0, 100, (2, n))), 100),
    "one value": lambda rng, n: (np.zeros((1, n), int), 1),
    "missing": lambda rng, n: (np.full((1, n), 3), 3),
}


def one_hot(category, n_categories, default, other, n_bins):
    return np.where(category == np.arange(n_categories)[:, None], other, default), n_bins


def columns_of(kinds, n_rows, seed):
    """(uint8 (n_features, n_rows), n_bins) of some KINDS, one after another."""
    rng = np.random.default_rng(seed)
    made = [KINDS[kind](rng, n_rows) for kind in kinds]
    return np.concatenate([columns for columns, _ in made]).astype(np.uint8), [n for c, n in made for _ in c]


def cuts_of(n_bins):
    offsets = np.cumsum([0, *n_bins]).astype(np.int32)
    return Cuts(np.full(offsets[-1], SENTINEL), offsets, np.ones(len(n_bins), bool), 256)


def pages_of(columns, page_rows=None):
    n_rows = columns.shape[1]
    bounds = [*range(0, n_rows, page_rows or max(n_rows, 1)), n_rows]
    return [DensePage(np.ascontiguousarray(columns[:, a:b]), np.zeros((0, 8), np.uint8)) for a, b in zip(bounds, bounds[1:])]


def sparse_of(columns, n_bins, absent):
    """(SortedColumns, SparsePage) of the cells that do not have the absent code of their feature."""
    lists = [sorted((int(code), row) for row, code in enumerate(column) if code != a) for column, a in zip(columns, absent)]
    ends, cuts, absent = np.cumsum([len(own) for own in lists]), cuts_of(n_bins), np.array(absent, np.int32)
    bounds = np.stack([ends - [len(own) for own in lists], ends], axis=1)
    codes, rows = np.array([entry for own in lists for entry in own], np.int64).reshape(-1, 2).T
    cells = [[] for _ in columns.T]
    for feature, own in enumerate(lists):
        for code, row in own:
            cells[row].append(cuts.offsets[feature] + code if code < n_bins[feature] else cuts.total_bins + feature)
    row_begin = np.cumsum([0, *map(len, cells)])
    blocks = SortedColumns(bounds, rows.astype(np.int32), codes.astype(np.uint32), absent)
    return blocks, SparsePage.of(cuts, row_begin, np.array([c for own in cells for c in sorted(own)], np.int32), absent)


def codes_of(binned):
    """(n_features, n_rows) of a matrix in one page, sparse or dense."""
    (page,) = binned.pages
    if not binned.is_sparse:
        return page.columns
    codes, cuts = np.repeat(page.absent[:, None], page.n_rows, axis=1), binned.cuts
    rows = np.repeat(np.arange(page.n_rows), np.diff(page.row_begin))
    features = np.append(np.repeat(np.arange(cuts.n_features), cuts.n_bins), np.arange(cuts.n_features))
    of_cell = np.append(np.arange(cuts.total_bins) - np.repeat(cuts.offsets[:-1], cuts.n_bins), cuts.n_bins)
    codes[features[page.cells], rows] = of_cell[page.cells]
    return codes


def same_blocks(a, b):
    """Whether they list the same entries by ascending code, wherever those lie: rows of one code may be ordered by value."""
    each = []
    for blocks in (a, b):
        assert all((np.diff(blocks.codes[i:j].astype(int)) >= 0).all() for i, j in blocks.bounds)
        each.append([sorted(zip(blocks.codes[i:j].tolist(), blocks.rows[i:j].tolist())) for i, j in blocks.bounds])
    return each[0] == each[1] and np.array_equal(a.absent, b.absent)


def group_of(packing):
    """{feature: its group}."""
    bounds = zip(packing.first_member, packing.first_member[1:])
    return {int(f): group for group, (a, b) in enumerate(bounds) for f in packing.members[a:b]}


def pack(packing, columns):
    """int64 (n_groups, n_rows): the code of every group and row."""
    packed = np.zeros((packing.n_groups, columns.shape[1]), np.int64)
    for feature, group in group_of(packing).items():
        packed[group] += packing.luts[feature, columns[feature]]
    return packed


def sources(packing, n_bins, feature):
    """{code: the packed codes, counted over all groups, whose sums are its own}, of every code but that of the rest."""
    first = sum(n_bins[:feature]) + feature
    bounds = packing.first_source[first : first + n_bins[feature] + 2].tolist()
    found = {code: packing.sources[a:b].tolist() for code, (a, b) in enumerate(zip(bounds, bounds[1:]))}
    return {code: packed for code, packed in found.items() if packed}
