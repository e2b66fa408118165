"""SHAP values against a background table (interventional), in time rows + background: Woodelf's way (Wettenstein et al. 2026).

What is not known of a row is taken from a row of the background; values are means over these. A row stays on the path to a leaf
at some of the path's features, and not at others: its pattern, a bit for each. For a row of pattern x and a background row of
pattern b the leaf counts in the value of a set S of known features where x has all bits of S and b all others, so that

    φ_i = w ∫₀¹ (x_i − b_i) Π over f ≠ i (t x_f + (1 − t) b_f) dt

The integrand is a polynomial of degree k − 1 for k features, which ⌈k/2⌉ points of Gauss and Legendre integrate exactly. All that
the background does is to count patterns: with y bits that x lacks,

    E_t(x) = Σ over b with all bits that x lacks   share(b) · t^(bits of x that b lacks)          one butterfly for each bit
    φ_i(x) = Σ over points   (1 − t)^y / t · (E_t(x) − E_t(x without i))     where x has bit i
           = Σ over points  −(1 − t)^(y − 1) · E_t(x)                        where it has not

A table of φ for each leaf and pattern is made once (2^k k² operations); a row then finds its pattern and adds k values.
"""

import numpy as np
from numba import int64, uint32, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuda_common import cuda_kernel, n_threads, thread_number
from gpuboost.kernels.jit import claim, inlined_scalar, kernel, launch, parallel_kernel
from gpuboost.kernels.predict import IS_SET, ROW_BLOCK, key_goes_right
from gpuboost.kernels.scalar import value_goes_left

# of a leaf
FIRST_CONDITION, END_CONDITION, FIRST_COLUMN, N_BITS, FIRST_ENTRY, LEAF = 0, 1, 2, 3, 4, 5
N_FIELDS = 6


@kernel
def list_leaves(trees, tree_begin, columns, leaves, conditions, leaf_columns):
    """List leaves and what leads to each; returns their number, that of the conditions, and that of the columns.

    trees : FLAT_NODE (n_nodes,), IN. tree_begin : int64 (n_trees,), IN. columns : int32 (n_features,), IN.
    leaves : int64 (n_leaves, N_FIELDS), OUT. Of each where its conditions and columns lie, how many columns (bits), and its
        node. Nothing is written where there is no room (0, N_FIELDS).
    conditions : int32 (n, 3), OUT. Node, side, and the bit that is lost on the other side.
    leaf_columns : int32 (n,), OUT. Column of each bit's feature.
    """
    n_leaves, n_conditions, n_columns, writes = 0, 0, 0, leaves.shape[0] > 0
    path = zeros((trees.size // 2 + 2, 3), np.int64)  # node, sides done, bit
    for t in range(tree_begin.size):
        root, level = tree_begin[t], 0
        path[0, 0], path[0, 1] = root, 0
        while level >= 0:
            node = path[level, 0]
            if trees[node].feature < 0:
                n_bits = 0
                for j in range(level):
                    feature, bit = trees[path[j, 0]].feature, -1
                    for above in range(j):
                        if trees[path[above, 0]].feature == feature:
                            bit = path[above, 2]
                            break
                    if bit < 0:
                        bit = n_bits
                        n_bits += 1
                        if writes:
                            leaf_columns[n_columns + bit] = columns[feature]
                    path[j, 2] = bit
                    if writes:
                        conditions[n_conditions + j, 0] = path[j, 0]
                        conditions[n_conditions + j, 1] = path[j, 1] - 1
                        conditions[n_conditions + j, 2] = bit
                if writes:
                    leaves[n_leaves, FIRST_CONDITION], leaves[n_leaves, END_CONDITION] = n_conditions, n_conditions + level
                    leaves[n_leaves, FIRST_COLUMN], leaves[n_leaves, N_BITS] = n_columns, n_bits
                    leaves[n_leaves, LEAF] = node
                n_leaves, n_conditions, n_columns = n_leaves + 1, n_conditions + level, n_columns + n_bits
                level -= 1
            elif path[level, 1] == 2:
                level -= 1
            else:
                path[level + 1, 0], path[level + 1, 1] = root + trees[node].left + path[level, 1], 0
                path[level, 1] += 1
                level += 1
    return n_leaves, n_conditions, n_columns


@inlined_scalar
def _find_patterns(keys, nodes, sets, conditions, begin, end, patterns):
    """The patterns of a block of rows at a leaf. patterns : uint32 (ROW_BLOCK,), OUT. Bits that were lost, so far."""
    patterns[:] = uint32(0)
    for c in range(begin, end):
        word, side, bit = uint64(4) * uint64(conditions[c, 0]), conditions[c, 1] != 0, uint32(1) << uint32(conditions[c, 2])
        key, low = keys[uint64(nodes[word])], nodes[word + uint64(1)]
        width, left = nodes[word + uint64(2)], nodes[word + uint64(3)]
        if left & uint32(IS_SET):
            for r in range(ROW_BLOCK):
                patterns[r] |= uint32(0) if key_goes_right(key[r], low, width, left, sets) == side else bit
        else:
            for r in range(ROW_BLOCK):
                patterns[r] |= uint32(0) if (uint32(key[r] - low) < width) == side else bit


@parallel_kernel
def build_tables_cpu(keys, n_rows, nodes, sets, leaves, conditions, points, tables, n_threads):
    """The contributions of each leaf, of value 1, to rows of each pattern.

    keys : uint32 (n_blocks, n_columns, ROW_BLOCK), IN. Of the n_rows rows of the background (kernels/contributions.py).
    nodes, sets : uint32, IN. leaves, conditions : IN, as list_leaves writes them; FIRST_ENTRY says where in ``tables``.
    points : float64 (most, 2, most), IN. points[n − 1, :, :n] are n points and their weights.
    tables : float64, OUT. Of a leaf 2^N_BITS patterns by N_BITS features; a bit of a pattern says that it was lost.
    """
    counter = zeros(1, np.int64)
    launch(n_threads, _build_tables, (counter, keys, n_rows, nodes, sets, leaves, conditions, points, tables))


@parallel_kernel.part
def _build_tables(counter, keys, n_rows, nodes, sets, leaves, conditions, points, tables):
    patterns = empty(ROW_BLOCK, np.uint32)
    most = int64(1)
    for leaf in range(leaves.shape[0]):
        most = max(most, leaves[leaf, N_BITS])
    shares, moments = empty(int64(1) << most, np.float64), empty(int64(1) << most, np.float64)
    powers = empty(most + 1, np.float64)
    while True:
        leaf = claim(counter)
        if leaf >= leaves.shape[0]:
            return
        n_bits = leaves[leaf, N_BITS]
        n_patterns = int64(1) << n_bits
        shares[:n_patterns] = 0.0
        for block in range(keys.shape[0]):
            _find_patterns(
                keys[block], nodes, sets, conditions, leaves[leaf, FIRST_CONDITION], leaves[leaf, END_CONDITION], patterns
            )
            for r in range(min(ROW_BLOCK, n_rows - block * ROW_BLOCK)):
                shares[patterns[r]] += 1.0
        shares[:n_patterns] /= n_rows
        table = tables[leaves[leaf, FIRST_ENTRY] : leaves[leaf, FIRST_ENTRY] + n_patterns * n_bits]
        table[:] = 0.0
        n_points = (n_bits + 1) // 2
        for p in range(n_points):
            t, weight = points[n_points - 1, 0, p], points[n_points - 1, 1, p]
            moments[:n_patterns] = shares[:n_patterns]
            _sum_moments(moments, n_bits, t)
            powers[0] = weight
            for y in range(1, n_bits + 1):
                powers[y] = powers[y - 1] * (1.0 - t)
            for x in range(n_patterns):
                n_lost = int64(0)
                for bit in range(n_bits):
                    n_lost += (x >> bit) & 1
                lost = powers[n_lost - 1] * moments[x] if n_lost > 0 else 0.0
                kept = powers[n_lost] / t
                for bit in range(n_bits):
                    if (x >> bit) & 1:
                        table[x * n_bits + bit] -= lost
                    else:
                        table[x * n_bits + bit] += kept * (moments[x] - moments[x | (int64(1) << bit)])


@inlined_scalar
def _sum_moments(moments, n_bits, t):
    """E_t of all patterns, in place of the shares."""
    for bit in range(n_bits):
        step = int64(1) << bit
        for first in range(0, int64(1) << n_bits, 2 * step):
            for x in range(first, first + step):
                kept, lost = moments[x], moments[x + step]
                moments[x], moments[x + step] = kept + t * lost, kept


@parallel_kernel
def add_tables_cpu(keys, nodes, sets, leaves, conditions, leaf_columns, outputs, leaf_values, tables, sums, n_threads):
    """Add what the leaves contribute to all rows.

    keys, nodes, sets, leaves, conditions, leaf_columns : IN, as above. tables : float64, IN.
    outputs : int64 (n_leaves,), IN. The first output that each leaf adds to. leaf_values : float32 (n_leaves, leaf_size), IN.
    sums : float64 (n_blocks, n_outputs, n_used, ROW_BLOCK), INOUT.
    """
    counter = zeros(1, np.int64)
    args = (
        counter, keys, nodes, sets, leaves, conditions, leaf_columns, outputs, leaf_values, tables, sums,
    )  # fmt: skip
    launch(n_threads, _add_table_blocks, args)


@parallel_kernel.part
def _add_table_blocks(counter, keys, nodes, sets, leaves, conditions, leaf_columns, outputs, leaf_values, tables, sums):
    patterns = empty(ROW_BLOCK, np.uint32)
    while True:
        block = claim(counter)
        if block >= keys.shape[0]:
            return
        for leaf in range(leaves.shape[0]):
            n_bits = uint64(leaves[leaf, N_BITS])
            _find_patterns(
                keys[block], nodes, sets, conditions, leaves[leaf, FIRST_CONDITION], leaves[leaf, END_CONDITION], patterns
            )
            for own in range(leaf_values.shape[1]):
                value = np.float64(leaf_values[leaf, own])
                for bit in range(n_bits):
                    target = sums[block, outputs[leaf] + own, leaf_columns[leaves[leaf, FIRST_COLUMN] + int64(bit)]]
                    at = uint64(leaves[leaf, FIRST_ENTRY]) + bit
                    for r in range(ROW_BLOCK):
                        target[r] += value * tables[at + uint64(patterns[r]) * n_bits]


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A thread takes a row through all leaves. Tables are made on the host: they are of the model and the background alone.


@cuda_kernel(
    "values: float32[:, :], missing: float32, trees: FLAT_NODE[:], sets: uint32[:], leaves: int64[:, :], "
    "conditions: int32[:, :], leaf_columns: int32[:], outputs: int64[:], leaf_values: float32[:, :], tables: float64[:], "
    "sums: float64[:, :, :, :]",
    registers=64, uses_double=True,
)  # fmt: skip
def add_tables_kernel(
    values, missing, trees, sets, leaves, conditions, leaf_columns, outputs, leaf_values, tables, sums
):  # fmt: skip
    """add_tables_cpu for a batch. values : float32 (n_features, n_rows), IN."""
    row = int64(thread_number())
    while row < values.shape[1]:
        block, place = row // ROW_BLOCK, row % ROW_BLOCK
        for leaf in range(leaves.shape[0]):
            pattern = int64(0)
            for c in range(leaves[leaf, FIRST_CONDITION], leaves[leaf, END_CONDITION]):
                node = int64(conditions[c, 0])
                goes_left = value_goes_left(values[trees[node].feature, row], trees, node, missing, sets)
                if goes_left == (conditions[c, 1] != 0):
                    pattern |= int64(1) << int64(conditions[c, 2])
            n_bits = leaves[leaf, N_BITS]
            at = leaves[leaf, FIRST_ENTRY] + pattern * n_bits
            for own in range(leaf_values.shape[1]):
                value = np.float64(leaf_values[leaf, own])
                for bit in range(n_bits):
                    column = int64(leaf_columns[leaves[leaf, FIRST_COLUMN] + bit])
                    sums[block, outputs[leaf] + own, column, place] += value * tables[at + bit]
        row += int64(n_threads())
