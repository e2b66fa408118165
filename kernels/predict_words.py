"""Prediction on a GPU from shared memory: the trees, a word of 8 bytes for each node, and, where there is room, what they look at
of a row, a cell of 4 bytes for each feature. Margins and leaves are predict.py's.

A struct of a node is read field by field, and where 32 rows are at 32 nodes, each field of each is a line of the cache, and so is
what each looks at. A word comes in one load, of a few passes:

    bits  0–15   the left child, 0 at a leaf; right = left + 1
         16–30   the feature, or with cells its place among those that the trees look at; 0 at a leaf
            31   whether missing values go left                          (of values)
         32–63   the threshold, or the value of the leaf, as float32     (of values, and of leaves)
         32–47   the bin, 48–63 the code that goes left beside the bins up to it (scalar.also_left)      (of codes)

A cell holds a value, NaN for any missing one, or a code. Those of a row are all in one bank, which no other lane of the warp
reads: one pass, whatever the features. Without cells, for trees of many features and on GPUs of little shared memory, a warp
reads up to 32 lines of the first-level cache. A thread goes down each tree with two rows, whose loads do not wait for each other.
Trees are taken as many at a time as shared memory has room for. Vector leaves, sets of categories, and trees of which one does
not fit are predict.py's.

Floor: values or codes of a row and margins are read once for all trees that fit, 11M × 28 values 1.3 GB, 0.3 ms at 4.8 TB/s;
above it, some 22 instructions and 6 passes of shared memory for each warp, tree and level: 11M rows, 100 trees of depth 8 are
6 ms. On an H200 all launches of that take 12.3 ms with cells, and 14.7 without; 256 threads a block 18.4 and, two blocks a
multiprocessor, 15.3.
"""

from functools import cache

import numpy as np
from numba import float32, int32, int64, uint32, uint64

from gpuboost.kernels.addresses import load_at, store_at
from gpuboost.kernels.cuda_common import CudaKernel, cuda, cuda_kernel, device_function, n_threads
from gpuboost.kernels.scalar import bits_float, float_bits, go_left
from gpuboost.kernels.structs import NUMERIC

WORD_BYTES, CELL_BYTES = 8, 4
MOST_NODES, MOST_FEATURES = 2**16, 2**15  # of a tree, of a table
ROWS_PER_THREAD = 2  # that walk together
THREADS = {False: 1024, True: 512}  # of a block, with cells enough to wait for shared memory, and few cells


def split_words(nodes: np.ndarray, leaf_values: np.ndarray, n_bins: np.ndarray | None, features: np.ndarray) -> np.ndarray:
    """uint64 (n_nodes,): the words of trees without sets. nodes : FLAT_NODE. leaf_values : float32 (n_nodes, 1). n_bins : int32
    (n_features,), for codes; None: for values. features : of the cells, ascending, all that the nodes split on; (0,) without."""
    is_leaf = nodes["feature"] < 0
    feature, default_left = np.where(is_leaf, 0, nodes["feature"]), nodes["default_left"].astype(np.uint64)
    place = (feature if features.size == 0 else np.where(is_leaf, 0, places_of(features)[feature])).astype(np.uint64)
    low = nodes["left"].astype(np.uint64) | place << np.uint64(16)
    if n_bins is None:
        low |= default_left << np.uint64(31)
        high = np.ascontiguousarray(nodes["threshold"]).view(np.uint32)
    else:
        also = np.where(nodes["default_left"] != 0, n_bins[feature], nodes["bin"]).astype(np.uint32)
        high = nodes["bin"].astype(np.uint32) | also << np.uint32(16)
    high = np.where(is_leaf, np.ascontiguousarray(leaf_values[:, 0]).view(np.uint32), high)
    return np.where(is_leaf, np.uint64(0), low) | high.astype(np.uint64) << np.uint64(32)


def places_of(features: np.ndarray) -> np.ndarray:
    """int64: by feature its place among these."""
    places = np.zeros(int(features.max(initial=0)) + 1, np.int64)
    places[features] = np.arange(len(features))
    return places


def have_words(nodes: np.ndarray, leaf_size: int, largest_tree: int) -> bool:
    """Whether these trees fit into words."""
    is_small = leaf_size == 1 and largest_tree <= MOST_NODES and nodes["feature"].max(initial=-1) < MOST_FEATURES
    return bool(is_small and (nodes["kind"] == NUMERIC).all())


def shared_bytes(n_nodes: int, n_features: int, block: int) -> int:
    """Dynamic shared memory of a block: the words, and behind them the cells, those of a feature side by side."""
    return n_nodes * WORD_BYTES + n_features * block * ROWS_PER_THREAD * CELL_BYTES


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. Dynamic shared memory: shared_bytes.


@cache
def predict_by_words_kernel(is_coded: bool, has_cells: bool) -> CudaKernel:
    """predict_values_cpu or predict_codes_cpu for all rows of a batch or page, and some trees.

    table : float32 values, or uint8 or uint16 codes (n_features, n_rows), IN. missing : of values.
    words : uint64 (n_nodes,), IN, split_words. first_word : int64 (n_trees,), groups : int32 (n_trees,), IN. Where the words of
        each tree begin, and the output that it adds to. features : int32 (k,), IN, of the cells; (0,) without.
    first_row : the batch's, within margin : float32 (n_outputs, n_rows), INOUT, and leaves : int32 (n_rows or 0, all trees), OUT,
        where these trees begin at first_tree.
    """
    cell_of, below = (code_cell, below_code) if is_coded else (value_cell, below_value)
    look = look_at_cell if has_cells else look_at_code if is_coded else look_at_value

    def predict_by_words(table, missing, words, first_word, groups, features, first_row, margin, first_tree, leaves):
        staged, cells, i = cuda.shared.array(0, uint64), cuda.shared.array(0, uint32), uint32(cuda.threadIdx.x)
        own, step = uint32(uint32(words.size) * uint32(2) + i), uint32(cuda.blockDim.x)  # this thread's cells, of its first row
        while i < uint32(words.size):
            staged[i] = words[i]
            i = uint32(i + step)
        cuda.syncthreads()  # the words are there
        n_rows, n_trees = uint32(table.shape[1]), uint32(first_word.size)
        row0 = uint32(uint32(cuda.blockIdx.x) * uint32(step * ROWS_PER_THREAD) + uint32(cuda.threadIdx.x))
        while row0 < n_rows:
            row1, place = uint32(row0 + step), own
            row1 = row1 if row1 < n_rows else row0  # behind the last row its first one again, which no other thread writes
            for k in range(features.size):
                column = int64(features[k]) * int64(n_rows)
                x0, x1 = load_at(table, column, row0), load_at(table, column, row1)
                cells[place], cells[uint32(place + step)] = cell_of(x0, missing), cell_of(x1, missing)
                place = uint32(place + uint32(step * ROWS_PER_THREAD))
            t, group, first_sum, sum0, sum1 = uint32(0), int32(-1), int64(0), float32(0.0), float32(0.0)
            while t < n_trees:
                own_group, root = load_at(groups, int64(0), t), uint32(load_at(first_word, int64(0), t))
                if own_group != group:
                    if group >= int32(0):
                        put_sums(margin, first_sum, row0, row1, uint32(row0 + step), sum0, sum1)
                    group = own_group
                    first_sum = int64(group) * int64(margin.shape[1]) + first_row
                    sum0, sum1 = load_at(margin, first_sum, row0), load_at(margin, first_sum, row1)
                at0, at1, word0 = root, root, staged[root]
                word1 = word0
                while ((word0 | word1) & uint64(0xFFFF)) != uint64(0):  # one of them is no leaf yet
                    cell0 = look(cells, own, step, table, place_of(word0), row0, missing)
                    cell1 = look(cells, uint32(own + step), step, table, place_of(word1), row1, missing)
                    at0 = child_of(at0, root, word0, below(cell0, lower_half(word0), upper_half(word0)))
                    at1 = child_of(at1, root, word1, below(cell1, lower_half(word1), upper_half(word1)))
                    word0, word1 = staged[at0], staged[at1]
                sum0, sum1 = float32(sum0 + bits_float(upper_half(word0))), float32(sum1 + bits_float(upper_half(word1)))
                if leaves.shape[0] > 0:
                    leaves[first_row + int64(row0), first_tree + int64(t)] = int32(at0 - root)
                    if row1 == uint32(row0 + step):
                        leaves[first_row + int64(row1), first_tree + int64(t)] = int32(at1 - root)
                t = uint32(t + uint32(1))
            if group >= int32(0):
                put_sums(margin, first_sum, row0, row1, uint32(row0 + step), sum0, sum1)
            row0 = uint32(row0 + n_threads() * uint32(ROWS_PER_THREAD))

    name = f"predict_{'codes' if is_coded else 'values'}_by_words{'_and_cells' if has_cells else ''}"
    predict_by_words.__name__ = f"{name}_kernel"
    choices = {"code": (np.uint8, np.uint16)} if is_coded else {}
    return cuda_kernel(
        f"table: {'code' if is_coded else 'float32'}[:, :], missing: float32, words: uint64[:], first_word: int64[:], "
        "groups: int32[:], features: int32[:], first_row: int64, margin: float32[:, :], first_tree: int64, leaves: int32[:, :]",
        block=THREADS[has_cells], blocks_per_sm=1024 // THREADS[has_cells], registers=64, **choices,
    )(predict_by_words)  # fmt: skip


@device_function
def put_sums(margin, first_sum, row0, row1, second, sum0, sum1):
    """Store the margins of a thread's rows; of the second one where it is there. first_sum : where those of the output begin."""
    store_at(margin, first_sum, row0, sum0)
    if row1 == second:
        store_at(margin, first_sum, row1, sum1)


@device_function
def lower_half(word):
    return uint32(word & uint64(0xFFFFFFFF))


@device_function
def upper_half(word):
    return uint32(word >> uint64(32))


@device_function
def place_of(word):
    """uint32: the place of the feature; 0 of a leaf."""
    return uint32(uint32(lower_half(word) >> uint32(16)) & uint32(0x7FFF))


@device_function
def child_of(at, root, word, goes_left):
    """uint32: where the word of the child lies; that of a leaf goes nowhere."""
    left = uint32(lower_half(word) & uint32(0xFFFF))
    return at if left == uint32(0) else uint32(root + left + (uint32(0) if goes_left else uint32(1)))


@device_function
def value_cell(x, missing):
    return uint32(0x7FC00000) if x != x or x == missing else float_bits(x)


@device_function
def code_cell(code, missing):
    return uint32(code)


@device_function
def look_at_cell(cells, own, step, table, place, row, missing):
    """uint32: what a split looks at of a row. own : where its cells begin. place : of the feature."""
    return cells[uint32(own + place * uint32(step * ROWS_PER_THREAD))]


@device_function
def look_at_value(cells, own, step, table, place, row, missing):
    return value_cell(load_at(table, int64(place) * int64(table.shape[1]), row), missing)


@device_function
def look_at_code(cells, own, step, table, place, row, missing):
    return code_cell(load_at(table, int64(place) * int64(table.shape[1]), row), missing)


@device_function
def below_value(cell, low, high):
    """Whether a cell goes left of a split, whose word these are."""
    x = bits_float(cell)
    return (low >> uint32(31)) != uint32(0) if x != x else x < bits_float(high)


@device_function
def below_code(cell, low, high):
    """The same of a code."""
    return go_left(int32(cell), int32(high & uint32(0xFFFF)), int32(high >> uint32(16)))
