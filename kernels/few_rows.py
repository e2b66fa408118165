"""Send a few rows of values down finished trees on the calling thread: no thread has to be woken, and nothing is laid out anew.

    as predict.py, whose nodes these are: next = left + 4 · is right, eight trees of a row at once

A forest is one array of words, as a call from Python takes 0.1 µs for each argument, and a row of 100 trees of depth 6 0.7:

    HEAD words                  how many features are used, trees, nodes, leaf_size; words of sets
    nodes                       4 each, as predict.lay_out writes them; where keys lie is counted in features
    where each tree begins      of whole eights of trees: those beyond the last are the last one again
    levels of each eight        of its deepest tree
    first output of each tree
    used features
    base margins                the bits of float32
    sets
    leaf values                 (n_nodes, leaf_size), the bits of float32, where leaf_size > 1

uint32 (n_words,), or (1, n_words) where trees have sets: for these another kernel is compiled.
"""

from functools import cache

import numpy as np
from numba import float32, int64, uint32, uint64

from gpuboost.kernels.allocation import empty
from gpuboost.kernels.jit import inlined_scalar, kernel, parallel_kernel, scalar
from gpuboost.kernels.predict import LARGEST, SPAN, lay_out, missing_keys, step_all, used_features, value_key
from gpuboost.kernels.scalar import bits_float, float_bits

__all__ = ["copy_row", "pack_forest", "predict_rows"]

AT_ONCE = 8  # trees of a row: one behind the other they would wait for their loads
HEAD = 8


@scalar
def copy_row(margin, i, out):
    """The row map of an objective that predicts its margins."""
    for output in range(margin.shape[0]):
        out[output, i] = margin[output, i]


@kernel
def pack_forest(trees, leaf_values, tree_begin, tree_groups, sets, base, n_features):
    """The words of a forest, (n_words,). Arguments as predict_values_cpu; base : float32 (n_outputs,), IN. Margins without
    trees."""
    column_of, features = used_features(trees, n_features, 1)
    nodes, n_levels, _ = lay_out(trees, leaf_values, tree_begin, column_of, missing_keys(n_features), True)
    n_trees, leaf_size, n_sets = tree_begin.size, leaf_values.shape[1], 0 if sets is None else sets.size
    n_eights = (n_trees + AT_ONCE - 1) // AT_ONCE
    n_words = HEAD + nodes.size + (2 * AT_ONCE + 1) * n_eights + features.size + base.size + n_sets
    words = empty(n_words + (trees.size * leaf_size if leaf_size > 1 else 0), np.uint32)
    words[0], words[1], words[2], words[3], words[4] = features.size, n_trees, trees.size, leaf_size, n_sets
    own_nodes, begin, levels, groups, own_features, own_base, own_sets, own_values = _parts(words, base.size)
    for i in range(nodes.size):
        own_nodes[i] = nodes[i]
    for i in range(begin.size):
        tree = min(i, n_trees - 1)
        begin[i], groups[i] = uint32(4 * tree_begin[tree]), tree_groups[tree]
        levels[i // AT_ONCE] = max(levels[i // AT_ONCE] if i % AT_ONCE else uint32(0), uint32(n_levels[tree]))
    for c in range(features.size):
        own_features[c] = features[c]
    for output in range(base.size):
        own_base[output] = float_bits(base[output])
    if sets is not None:
        for i in range(sets.size):
            own_sets[i] = sets[i]
    for i in range(own_values.size):
        own_values[i] = float_bits(leaf_values[i // leaf_size, i % leaf_size])
    return words


@inlined_scalar
def _parts(words, n_outputs):
    """Nodes, beginnings, levels, first outputs, features, base margins, sets and leaf values."""
    n_features, n_nodes, n_eights = int64(words[0]), int64(words[2]), (int64(words[1]) + AT_ONCE - 1) // AT_ONCE
    end_of_nodes = HEAD + 4 * n_nodes
    end_of_begin = end_of_nodes + AT_ONCE * n_eights
    end_of_levels = end_of_begin + n_eights
    end_of_groups = end_of_levels + AT_ONCE * n_eights
    end_of_features = end_of_groups + n_features
    end_of_base = end_of_features + n_outputs
    end_of_sets = end_of_base + int64(words[4])
    return (
        words[HEAD:end_of_nodes], words[end_of_nodes:end_of_begin], words[end_of_begin:end_of_levels],
        words[end_of_levels:end_of_groups], words[end_of_groups:end_of_features], words[end_of_features:end_of_base],
        words[end_of_base:end_of_sets], words[end_of_sets:],
    )  # fmt: skip


@cache
def predict_rows(row_map):
    """The kernel from values to predictions.

    row_map : scalar function (margin, i, out) of kernels/reduce.py; copy_row for margins.

    Returned kernel (batch, missing, forest, out): batch as predict_values_cpu. missing : float64, rounded to float32.
        out : float32 (n_outputs, n_rows), OUT. Row_map of these. Returns False, before anything is complete, where a value is
        infinite or at least LARGEST in size.
    """

    def predict_rows_cpu(batch, missing, forest, out):
        _, _, _, _, features, base, _, _ = _parts(forest.ravel(), out.shape[0])
        margin, keys = empty(out.shape, np.float32), empty(features.size + 1, np.uint32)
        keys[0] = uint32(0)  # to leaves any
        for row in range(batch.shape[0]):
            is_large = False
            for feature in range(batch.shape[1]):
                is_large |= abs(batch[row, feature]) >= LARGEST
            if is_large:
                return False
            for c in range(features.size):
                keys[c + 1] = value_key(float32(batch[row, features[c]]), float32(missing))
            for output in range(base.size):
                margin[output, row] = bits_float(base[output])
            _add_trees(keys, forest, margin, row)
            row_map(margin, row, out)
        return True

    return kernel(predict_rows_cpu, row_map)


@parallel_kernel.part  # compiled once for the row maps of all objectives
def _add_trees(keys, forest, margin, row):
    words = forest.ravel()
    nodes, begin, levels, groups, _, _, sets, values = _parts(words, margin.shape[0])
    n_trees, leaf_size = int64(words[1]), int64(words[3])
    for eight in range(levels.size):
        first = AT_ONCE * eight
        if forest.ndim == 1:
            ends = _find_leaves(keys, nodes, None, begin[first : first + AT_ONCE], levels[eight])
        else:
            ends = _find_leaves(keys, nodes, sets, begin[first : first + AT_ONCE], levels[eight])
        for k in range(min(AT_ONCE, n_trees - first)):
            group, end = uint64(groups[first + k]), ends[k]
            margin[group, row] = float32(margin[group, row] + bits_float(nodes[end + uint64(1)]))
            for own in range(1, leaf_size):
                value = bits_float(values[uint64(end >> uint64(2)) * uint64(leaf_size) + uint64(own)])
                margin[group + uint64(own), row] = float32(margin[group + uint64(own), row] + value)


@inlined_scalar
def _find_leaves(keys, nodes, sets, roots, n_levels):
    """The places of the leaves of eight trees that a row ends in."""
    zero = uint64(0)
    rows = zero, zero, zero, zero, zero, zero, zero, zero
    at = (
        uint64(roots[0]), uint64(roots[1]), uint64(roots[2]), uint64(roots[3]),
        uint64(roots[4]), uint64(roots[5]), uint64(roots[6]), uint64(roots[7]),
    )  # fmt: skip
    left = int64(n_levels)
    while left > 0:
        for _ in range(min(left, SPAN)):
            at = step_all(keys, rows, nodes, sets, at)
        left -= SPAN
        if left > 0 and _have_arrived(nodes, at):
            left = int64(0)
    return at


@scalar
def _have_arrived(nodes, at):
    """Whether all are leaves, which are below themselves."""
    moving = uint64(0)
    for k in range(AT_ONCE):
        moving |= uint64(nodes[at[k] + uint64(3)]) ^ at[k]
    return moving == uint64(0)
