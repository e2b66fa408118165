"""Send rows down finished trees: on values, or on the codes of a binned matrix.

    go left  iff  x < threshold    (missing: default_left)          margin[output] += leaf, tree by tree in float32

All trees lie one after another in flat arrays; ``node = first node of the tree + number within it``. A block of rows runs through
one tree before the next tree is touched, so the tree stays in cache. Floor: one chain of dependent loads, as long as the tree is
deep, per row and tree.
"""

from functools import cache

import numpy as np
from numba import float32, int32, int64, prange, uint32, uint64

from gpuboost.kernels.device import cuda_kernel, n_threads, thread_number
from gpuboost.kernels.jit import claim, kernel, parallel_kernel, scalar
from gpuboost.kernels.scalar import float_key

ROW_BLOCK = 256
LARGEST = float(np.finfo(np.float32).max)  # values of this size are refused (data/ingest.py)


@scalar
def leaf_of(block, row, missing, trees, root):
    """The leaf, by its number within the tree, that a row of values ends in."""
    node = int32(0)
    while trees[root + node].feature >= 0:
        at = trees[root + node]
        x = float32(block[row, at.feature])
        if x != x or x == missing:
            node = at.left + int32(1 - at.default_left)
        else:
            node = at.left + int32(not x < at.threshold)
    return node


@scalar
def copy_row(margin, i, out):
    """The row map of an objective that predicts its margins."""
    for output in range(margin.shape[0]):
        out[output, i] = margin[output, i]


@cache
def predict_rows(row_map):
    """The kernel that predicts a few rows on the calling thread, from values to predictions: no thread has to be woken.

    row_map : scalar function (margin, i, out) of kernels/reduce.py; copy_row for margins.

    Returned kernel (block, missing, trees, tree_begin, tree_groups, margin, out): arguments as predict_values_cpu.
        out : float32 (n_outputs, n_rows), OUT. What row_map makes of the margins.
        Returns False, before anything is complete, where a value is infinite or at least LARGEST in size.
    """

    def predict_rows_cpu(block, missing, trees, tree_begin, tree_groups, margin, out):
        for row in range(block.shape[0]):
            for feature in range(block.shape[1]):
                if abs(block[row, feature]) >= LARGEST:
                    return False
            for t in range(tree_begin.size):
                node = leaf_of(block, row, missing, trees, tree_begin[t])
                margin[tree_groups[t], row] = float32(margin[tree_groups[t], row] + trees[tree_begin[t] + node].threshold)
            row_map(margin, row, out)
        return True

    return kernel(predict_rows_cpu, row_map)


# ---------------------------------------------------------------------------------------------------------------------
# Batches. A tree is folded into complete binary trees, numbered as heaps (root 1, children of p at 2p and 2p + 1), so that a step
# down is arithmetic and the number of steps does not depend on the row: no branch is mispredicted, and a processor walks several
# rows at once. A leaf above the last level is repeated below, where all rows go left; a tree that is deep or lopsided becomes a
# tree of such pieces. A split is one word:
#
#     limit · 2^32 + column · 2 + default_left
#
# Values become keys, unsigned integers in the same order, the missing one the largest of all. Then a row goes right if its key is
# above the limit; where missing values go left, one is added to both, which carries the missing key over to 0.
#
# 100k × 28 values, 100 trees of depth 6, one thread of an AMD EPYC: 37 ns a row and tree node by node, 10 so.

MAX_LEVELS = 8  # of a piece: 2 KB
SPARSEST = 4  # places of a level for each split on it, at most
MISSING_KEY = 0xFFFFFFFF


@parallel_kernel
def predict_values_cpu(block, missing, trees, tree_begin, tree_groups, margin, leaves, n_threads):
    """Add the trees' outputs to the margins of a batch of rows, and number the leaves they end in.

    block : float32 or float64 (n_rows, n_features), any strides, IN. missing : float32.
    trees : FLAT_NODE (n_nodes,), IN. tree_begin : int64 (n_trees,), IN. tree_groups : int32 (n_trees,), IN.
    margin : float32 (n_outputs, n_rows), INOUT.
    leaves : int32 (n_rows, n_trees), OUT. Leaf's number within its tree; may have no rows.
    """
    column_of, features = _used_features(trees, block.shape[1])
    pieces = _fold_trees(trees, tree_begin, column_of, True)
    counter = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        _predict_blocks(counter, block, missing, features, trees, tree_begin, tree_groups, pieces, margin, leaves)


@parallel_kernel.part
def _predict_blocks(counter, block, missing, features, trees, tree_begin, tree_groups, pieces, margin, leaves):
    splits, ends, piece_begin, piece_levels, first_piece = pieces
    keys = np.empty((ROW_BLOCK, max(features.size, 1)), np.uint32)
    while True:
        begin = claim(counter) * ROW_BLOCK
        if begin >= block.shape[0]:
            return
        own = block[begin : begin + ROW_BLOCK]
        for i in range(own.shape[0]):
            for c in range(features.size):
                x = float32(own[i, uint32(features[c])])
                keys[i, c] = uint32(MISSING_KEY) if x != x or x == missing else float_key(x)
        for t in range(tree_begin.size):
            out, tree = margin[tree_groups[t]], trees[tree_begin[t] :]
            first, n_levels = piece_begin[first_piece[t]], piece_levels[first_piece[t]]
            for i in range(0, own.shape[0], 2):  # two rows at a time: their steps overlap
                j = min(i + 1, own.shape[0] - 1)
                end, other = _descend_pair(keys[i], keys[j], splits[first:], ends[first:], n_levels)
                while end >= 0:  # in a deep tree
                    end = _descend(keys[i], splits[piece_begin[end] :], ends[piece_begin[end] :], piece_levels[end])
                _add_leaf(begin + i, t, tree, end, out, leaves)
                while other >= 0:
                    other = _descend(keys[j], splits[piece_begin[other] :], ends[piece_begin[other] :], piece_levels[other])
                if j > i:
                    _add_leaf(begin + j, t, tree, other, out, leaves)


@scalar
def _key_above(keys, split):
    """1 where a row goes right."""
    key = uint32(keys[uint32(uint32(split) >> uint32(1))] + uint32(uint32(split) & uint32(1)))
    return uint64(uint64(key) > uint64(split >> uint64(32)))


@scalar
def _descend(keys, splits, ends, n_levels):
    """Where a row leaves a piece: the next piece, or −1 − number of the leaf."""
    place = uint64(1)
    for _ in range(n_levels):
        place = uint64(2) * place + _key_above(keys, splits[place])
    return int64(ends[place - (uint64(1) << uint64(n_levels))])


@scalar
def _descend_pair(keys, other_keys, splits, ends, n_levels):
    place, other = uint64(1), uint64(1)
    for _ in range(n_levels):
        place = uint64(2) * place + _key_above(keys, splits[place])
        other = uint64(2) * other + _key_above(other_keys, splits[other])
    first = uint64(1) << uint64(n_levels)
    return int64(ends[place - first]), int64(ends[other - first])


@scalar
def _add_leaf(row, t, tree, end, out, leaves):
    leaf = uint64(-end - int64(1))
    out[uint64(row)] = float32(out[uint64(row)] + tree[leaf].threshold)
    if leaves.shape[0]:
        leaves[row, t] = leaf


@parallel_kernel
def predict_codes_cpu(columns, n_bins, rows, trees, tree_begin, tree_groups, margin, leaves, n_threads):
    """The same for some rows of a page of codes, which serve as keys where they lie.

    columns : uint8, uint16 or uint32 (n_features, n_rows), IN. n_bins : int32 (n_features,), IN. rows : int32 (k,), IN.
    margin : float32 (n_outputs, n_rows), INOUT. leaves : int32 (n_rows or 0, n_trees), OUT.
    """
    pieces = _fold_trees(trees, tree_begin, np.arange(n_bins.size).astype(np.int32), False)
    counter = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        _predict_code_blocks(counter, columns, n_bins, rows, trees, tree_begin, tree_groups, pieces, margin, leaves)


@parallel_kernel.part
def _predict_code_blocks(counter, columns, n_bins, rows, trees, tree_begin, tree_groups, pieces, margin, leaves):
    splits, ends, piece_begin, piece_levels, first_piece = pieces
    places = np.empty(ROW_BLOCK, np.uint64)
    while True:
        begin = claim(counter) * ROW_BLOCK
        if begin >= rows.size:
            return
        own = rows[begin : begin + ROW_BLOCK]
        for t in range(tree_begin.size):
            out, tree = margin[tree_groups[t]], trees[tree_begin[t] :]
            first, n_levels = piece_begin[first_piece[t]], piece_levels[first_piece[t]]
            places[:] = uint64(1)
            for _ in range(n_levels):  # all rows of the block go down a level together
                for i in range(own.size):
                    at = uint64(i)
                    right = _code_above(columns, n_bins, own[at], splits[uint64(first) + places[at]])
                    places[at] = uint64(2) * places[at] + right
            for i in range(own.size):
                end = int64(ends[uint64(first) + places[i] - (uint64(1) << uint64(n_levels))])
                while end >= 0:  # in a deep tree
                    place = uint64(1)
                    for _ in range(piece_levels[end]):
                        right = _code_above(columns, n_bins, own[i], splits[uint64(piece_begin[end]) + place])
                        place = uint64(2) * place + right
                    end = int64(ends[uint64(piece_begin[end]) + place - (uint64(1) << uint64(piece_levels[end]))])
                _add_leaf(own[i], t, tree, end, out, leaves)


@scalar
def _code_above(columns, n_bins, row, split):
    """1 where a row goes right: its code is above the limit, and not the missing one where that goes left."""
    feature = uint32(uint32(split) >> uint32(1))
    code = uint32(columns[feature, uint32(row)])
    stays = (code == uint32(n_bins[feature])) & ((uint32(split) & uint32(1)) != uint32(0))
    return uint64((uint64(code) > uint64(split >> uint64(32))) & (not stays))


@parallel_kernel.part
def _used_features(trees, n_features):
    """(column of each feature among those that the trees split on, int32 (n_features,); those features, int32)."""
    column_of = np.full(n_features, -1, np.int32)
    for node in range(trees.size):
        if trees[node].feature >= 0:
            column_of[trees[node].feature] = 0
    features, n = np.empty(n_features, np.int32), 0
    for feature in range(n_features):
        if column_of[feature] == 0:
            column_of[feature] = n
            features[n] = feature
            n += 1
    return column_of, features[:n]


@parallel_kernel.part
def _fold_trees(trees, tree_begin, column_of, by_value):
    """The pieces of all trees.

    column_of : int32 (n_features,), IN. Column of keys of each feature. by_value : whether those are keys of values, not codes.
    Returns splits, uint64, and ends, int32: those of piece q from piece_begin[q] on, splits by number, ends by the places below
        the last level from left to right: the next piece, or −1 − number of the leaf; piece_begin, int64; piece_levels, int32;
        first_piece, int64 (n_trees,).
    """
    size = 2 * SPARSEST * trees.size + tree_begin.size  # no level of a piece has more than SPARSEST places for each split on it
    splits, ends, place = np.empty(size, np.uint64), np.empty(size, np.int32), np.empty(2 << MAX_LEVELS, np.int32)
    piece_begin, piece_root = np.empty(trees.size + 1, np.int64), np.empty(trees.size + 1, np.int32)
    piece_levels, first_piece = np.empty(trees.size + 1, np.int32), np.empty(tree_begin.size, np.int64)
    done, n_pieces, begin = 0, 0, 0
    for t in range(tree_begin.size):
        tree = trees[tree_begin[t] :]
        first_piece[t] = n_pieces
        piece_root[n_pieces] = 0
        n_pieces += 1
        while done < n_pieces:
            n_levels = _fold_piece(tree, piece_root[done], column_of, by_value, splits[begin:], place)
            piece_begin[done], piece_levels[done] = begin, n_levels
            for i in range(1 << n_levels):
                node = place[(1 << n_levels) + i]
                if tree[node].feature < 0:
                    ends[begin + i] = -1 - node
                else:
                    ends[begin + i] = n_pieces
                    piece_root[n_pieces] = node
                    n_pieces += 1
            begin += 1 << n_levels
            done += 1
    return splits, ends, piece_begin[:n_pieces], piece_levels[:n_pieces], first_piece


@parallel_kernel.part
def _fold_piece(tree, root, column_of, by_value, splits, place):
    """Fold the upper levels below a node; returns how many. place : int32, OUT. The node at each place, one level further."""
    place[1] = root
    n_levels, n_splits = 0, int64(tree[root].feature >= 0)
    while n_splits > 0 and n_levels < MAX_LEVELS and SPARSEST * n_splits >= 1 << n_levels:
        n_splits = int64(0)
        for p in range(1 << n_levels, 2 << n_levels):
            at = tree[place[p]]
            if at.feature < 0:
                splits[p] = uint64(0xFFFFFFFF00000000)
                place[2 * p], place[2 * p + 1] = place[p], place[p]
            else:
                to_left = uint64(at.default_left != 0)
                limit = uint64(float_key(at.threshold) - uint32(1)) + to_left if by_value else uint64(at.bin)
                splits[p] = (limit << uint64(32)) | (uint64(column_of[at.feature]) << uint64(1)) | to_left
                place[2 * p], place[2 * p + 1] = at.left, at.left + 1
                n_splits += int64(tree[at.left].feature >= 0) + int64(tree[at.left + 1].feature >= 0)
        n_levels += 1
    return n_levels


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A thread takes a row through all trees; neighbours read neighbouring rows of a feature-major table, so that the top
# levels are read in whole sectors. Floor: a chain of dependent loads (node, value) for every level, hidden by the other 2047
# threads.


@cuda_kernel(
    "values: float32[:, :], missing: float32, trees: FLAT_NODE[:], tree_begin: int64[:], tree_groups: int32[:], "
    "first_row: int64, margin: float32[:, :], leaves: int32[:, :]",
)
def predict_values_kernel(values, missing, trees, tree_begin, tree_groups, first_row, margin, leaves):
    """predict_values_cpu for a batch. values : float32 (n_features, n_rows of the batch), IN. first_row : the batch's, within
    margin : float32 (n_outputs, n_rows), INOUT, and leaves : int32 (n_rows or 0, n_trees), OUT."""
    row = int64(thread_number())
    while row < values.shape[1]:
        for t in range(tree_begin.size):
            root, node = tree_begin[t], int32(0)
            while trees[root + node].feature >= 0:
                x = values[trees[root + node].feature, row]
                is_right = int32(0)
                if x != x or x == missing:
                    is_right = int32(1 - trees[root + node].default_left)
                elif not x < trees[root + node].threshold:
                    is_right = int32(1)
                node = int32(trees[root + node].left + is_right)
            group = tree_groups[t]
            margin[group, first_row + row] = float32(margin[group, first_row + row] + trees[root + node].threshold)
            if leaves.shape[0] > 0:
                leaves[first_row + row, t] = node
        row += int64(n_threads())


@cuda_kernel(
    "columns: code[:, :], n_bins: int32[:], rows: int32[:], n_listed: int64[:], trees: FLAT_NODE[:], tree_begin: int64[:], "
    "tree_groups: int32[:], first_row: int64, margin: float32[:, :], leaves: int32[:, :]",
    registers=40, code=(np.uint8, np.uint16),
)
def predict_codes_kernel(columns, n_bins, rows, n_listed, trees, tree_begin, tree_groups, first_row, margin, leaves):
    """The same on a page of codes: columns : uint8 or uint16 (n_features, n_rows of the page), IN.

    rows : int32 (k or 0,), IN. The rows to predict from its back, as kernels/sampling.draw_rows_kernel lists them; all without.
    n_listed : int64 (2,), IN. The second is how many."""
    i = int64(thread_number())
    while i < n_listed[1]:
        row = int64(rows[rows.size - 1 - i]) if rows.size > 0 else i
        for t in range(tree_begin.size):
            root, node = tree_begin[t], int32(0)
            while trees[root + node].feature >= 0:
                feature = trees[root + node].feature
                code = int32(columns[feature, row])
                is_right = int32(0)
                if code == n_bins[feature]:
                    is_right = int32(1 - trees[root + node].default_left)
                elif code > trees[root + node].bin:
                    is_right = int32(1)
                node = int32(trees[root + node].left + is_right)
            group = tree_groups[t]
            margin[group, first_row + row] = float32(margin[group, first_row + row] + trees[root + node].threshold)
            if leaves.shape[0] > 0:
                leaves[first_row + row, t] = node
        i += int64(n_threads())
