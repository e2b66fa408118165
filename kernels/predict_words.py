"""Prediction on a GPU by trees whose splits lie in shared memory, a word of 8 bytes each; margins and leaves are predict.py's.

A struct of a node is read field by field, and where 32 rows are at 32 nodes, each field of each is a line of the cache: 11M rows
by 100 trees of depth 8 took an H200 60 ms. A word comes in one load, of a few passes:

    bits  0–15   the left child, 0 at a leaf; right = left + 1
         16–30   the feature, 0 at a leaf
            31   whether missing values go left                          (of values)
         32–63   the threshold, or the value of the leaf, as float32     (of values, and of leaves)
         32–47   the bin, 48–63 the code that goes left beside the bins up to it (scalar.also_left)      (of codes)

Trees are taken as many at a time as shared memory has room for; a thread goes down each with four rows, whose loads do not wait
for one another. Vector leaves, sets of categories, trees of more nodes than fit and features beyond 15 bits are predict.py's.

Floor: values or codes of a row and margins are read once for all trees that fit, 11M × 28 values 1.3 GB, 0.3 ms at 4.8 TB/s;
above it, a line of the first-level cache for each row, tree and level. Not measured: no GPU has run this.
"""

from functools import cache

import numpy as np
from numba import float32, int32, int64, uint32, uint64

from gpuboost.kernels.addresses import load_at, store_at
from gpuboost.kernels.cuda_common import CudaKernel, cuda, cuda_kernel, device_function, lane_number, n_threads, thread_number
from gpuboost.kernels.scalar import bits_float, go_left
from gpuboost.kernels.structs import NUMERIC

WORD_BYTES = 8
MOST_NODES, MOST_FEATURES = 2**16, 2**15  # of a tree, of a table
ROWS_PER_THREAD = 4  # that walk together


def split_words(nodes: np.ndarray, leaf_values: np.ndarray, n_bins: np.ndarray | None) -> np.ndarray:
    """uint64 (n_nodes,): the words of trees without sets. nodes : FLAT_NODE. leaf_values : float32 (n_nodes, 1). n_bins : int32
    (n_features,), for codes; None: for values."""
    is_leaf = nodes["feature"] < 0
    feature, default_left = np.where(is_leaf, 0, nodes["feature"]), nodes["default_left"].astype(np.uint64)
    low = nodes["left"].astype(np.uint64) | feature.astype(np.uint64) << np.uint64(16)
    if n_bins is None:
        low |= default_left << np.uint64(31)
        high = np.ascontiguousarray(nodes["threshold"]).view(np.uint32)
    else:
        also = np.where(nodes["default_left"] != 0, n_bins[feature], nodes["bin"]).astype(np.uint32)
        high = nodes["bin"].astype(np.uint32) | also << np.uint32(16)
    high = np.where(is_leaf, np.ascontiguousarray(leaf_values[:, 0]).view(np.uint32), high)
    return np.where(is_leaf, np.uint64(0), low) | high.astype(np.uint64) << np.uint64(32)


def have_words(nodes: np.ndarray, leaf_size: int, largest_tree: int) -> bool:
    """Whether these trees fit into words."""
    is_small = leaf_size == 1 and largest_tree <= MOST_NODES and nodes["feature"].max(initial=-1) < MOST_FEATURES
    return bool(is_small and (nodes["kind"] == NUMERIC).all())


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. Dynamic shared memory: the words.


@cache
def predict_by_words_kernel(is_coded: bool) -> CudaKernel:
    """predict_values_cpu or predict_codes_cpu for all rows of a batch or page, and some trees.

    table : float32 values, or uint8 or uint16 codes (n_features, n_rows), IN. missing : of values.
    words : uint64 (n_nodes,), IN, split_words. first_word : int64 (n_trees,), groups : int32 (n_trees,), IN. Where the words of
        each tree begin, and the output that it adds to.
    first_row : the batch's, within margin : float32 (n_outputs, n_rows), INOUT, and leaves : int32 (n_rows or 0, all trees), OUT,
        where these trees begin at first_tree.
    """
    below = below_code if is_coded else below_value

    def predict_by_words(table, missing, words, first_word, groups, first_row, margin, first_tree, leaves):
        staged, i = cuda.shared.array(0, uint64), uint32(cuda.threadIdx.x)
        while i < uint32(words.size):
            staged[i] = words[i]
            i = uint32(i + uint32(cuda.blockDim.x))
        cuda.syncthreads()  # the words are there
        n_rows, n_trees = uint32(table.shape[1]), uint32(first_word.size)
        i = uint32(uint32(thread_number() >> uint32(5)) * uint32(32 * ROWS_PER_THREAD) + uint32(lane_number()))
        while i < n_rows:
            row0, row1 = i, row_or(uint32(i + uint32(32)), n_rows, i)
            row2, row3 = row_or(uint32(i + uint32(64)), n_rows, i), row_or(uint32(i + uint32(96)), n_rows, i)
            t, group, first_sum = uint32(0), int32(-1), int64(0)
            sum0, sum1, sum2, sum3 = float32(0.0), float32(0.0), float32(0.0), float32(0.0)
            while t < n_trees:
                if groups[t] != group:
                    if group >= int32(0):
                        put_sums(margin, first_sum, i, n_rows, sum0, sum1, sum2, sum3)
                    group = groups[t]
                    first_sum = int64(group) * int64(margin.shape[1]) + first_row
                    sum0, sum1 = load_at(margin, first_sum, row0), load_at(margin, first_sum, row1)
                    sum2, sum3 = load_at(margin, first_sum, row2), load_at(margin, first_sum, row3)
                root = uint32(first_word[t])
                at0, at1, at2, at3 = root, root, root, root
                word0, word1, word2, word3 = staged[root], staged[root], staged[root], staged[root]
                while ((word0 | word1 | word2 | word3) & uint64(0xFFFF)) != uint64(0):  # one of them is no leaf yet
                    x0, x1 = cell_of(table, n_rows, word0, row0), cell_of(table, n_rows, word1, row1)
                    x2, x3 = cell_of(table, n_rows, word2, row2), cell_of(table, n_rows, word3, row3)
                    at0, at1 = below(at0, root, word0, x0, missing), below(at1, root, word1, x1, missing)
                    at2, at3 = below(at2, root, word2, x2, missing), below(at3, root, word3, x3, missing)
                    word0, word1, word2, word3 = staged[at0], staged[at1], staged[at2], staged[at3]
                sum0, sum1 = float32(sum0 + upper_float(word0)), float32(sum1 + upper_float(word1))
                sum2, sum3 = float32(sum2 + upper_float(word2)), float32(sum3 + upper_float(word3))
                if leaves.shape[0] > 0:
                    for k in range(ROWS_PER_THREAD):
                        own, end = uint32(i + uint32(32 * k)), (at0 if k == 0 else at1) if k < 2 else (at2 if k == 2 else at3)
                        if own < n_rows:
                            leaves[first_row + int64(own), first_tree + int64(t)] = int32(end - root)
                t = uint32(t + uint32(1))
            if group >= int32(0):
                put_sums(margin, first_sum, i, n_rows, sum0, sum1, sum2, sum3)
            i = uint32(i + uint32(n_threads()) * uint32(ROWS_PER_THREAD))

    predict_by_words.__name__ = f"predict_{'codes' if is_coded else 'values'}_by_words_kernel"
    choices = {"code": (np.uint8, np.uint16)} if is_coded else {}
    return cuda_kernel(
        f"table: {'code' if is_coded else 'float32'}[:, :], missing: float32, words: uint64[:], first_word: int64[:], "
        "groups: int32[:], first_row: int64, margin: float32[:, :], first_tree: int64, leaves: int32[:, :]",
        block=1024, blocks_per_sm=1, registers=64, **choices,
    )(predict_by_words)  # fmt: skip


@device_function
def row_or(row, n_rows, own):
    """The row; this thread's first one for what lies behind the last, of which no other thread reads or writes anything."""
    return row if row < n_rows else own


@device_function
def cell_of(table, n_rows, word, row):
    """What a split looks at; of a leaf the first feature's."""
    feature = uint32(uint32(word & uint64(0xFFFFFFFF)) >> uint32(16)) & uint32(MOST_FEATURES - 1)
    return load_at(table, int64(feature) * int64(n_rows), row)


@device_function
def upper_float(word):
    """The threshold, or the value of a leaf."""
    return bits_float(uint32(word >> uint64(32)))


@device_function
def below_value(at, root, word, x, missing):
    """uint32: where the word lies that a value goes to; that of a leaf goes nowhere."""
    low = uint32(word & uint64(0xFFFFFFFF))
    goes_left = (low >> uint32(31)) != uint32(0) if x != x or x == missing else x < upper_float(word)
    return child_of(at, root, low, goes_left)


@device_function
def below_code(at, root, word, code, missing):
    """The same for a code."""
    split_bin, also = int32(uint32(word >> uint64(32)) & uint32(0xFFFF)), int32(uint32(word >> uint64(48)))
    return child_of(at, root, uint32(word & uint64(0xFFFFFFFF)), go_left(int32(code), split_bin, also))


@device_function
def child_of(at, root, low, goes_left):
    left = uint32(low & uint32(0xFFFF))
    return at if left == uint32(0) else uint32(root + left + (uint32(0) if goes_left else uint32(1)))


@device_function
def put_sums(margin, first_sum, i, n_rows, sum0, sum1, sum2, sum3):
    """Store the margins of a thread's rows. first_sum : int64, where those of the output begin."""
    for k in range(ROWS_PER_THREAD):
        own, total = uint32(i + uint32(32 * k)), (sum0 if k == 0 else sum1) if k < 2 else (sum2 if k == 2 else sum3)
        if own < n_rows:
            store_at(margin, first_sum, own, total)
