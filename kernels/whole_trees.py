"""All steps of growing a round's trees in one call, where there is nothing to exchange between them.

Where tables are small, much of the time goes into calls from Python. 2 cores of an AMD EPYC (2026-11-23), one thread, step by
step -> in one call, ms a round of depth 6: 1,000 × 7 0.56 -> 0.37, 7,000 × 7 0.76 -> 0.57, 7,000 × 28 1.49 -> 1.30. The steps are
those of Grower._grow_by_steps, in their order, each the kernel that backend/cpu/trees.py calls for it; the rows lie in one page.
Packed records (kernels/packing.py) are added up as packed sums, which are undone slice by slice: 6,500 × 126 of ones and zeros,
ms a round on one thread, step by step 0.63 -> 0.33; on an AMD EPYC (Zen 5) 500,000 × 1,000 10.0 -> 9.2, 80,000 × 40 1.26 -> 0.90.
On 2026-11-28, so too, on a busy machine: 31 leaves, leaf by leaf, of 1,000 × 7 1.9 -> 0.21, 5,000 × 10 1.59 -> 0.36, 20,000 × 28
4.2 -> 1.3, 250,000 × 40 37 -> 20; 5,000 × 300, three cells in a hundred, 14 -> 6.8; half of ten columns categories, 2,000 rows
5.8 -> 0.9, 60,000 10 -> 4.6, depth 6 2.7 -> 0.7 and 8.7 -> 3.5.

Histograms of fewer than 2^16 rows, of one output and limb, stay packed from build to search: half the bytes, no flush, one
addition for both sums of a bin.
"""

from numba import int64

from gpuboost.kernels.best_first import grow_best_first
from gpuboost.kernels.jit import parallel_kernel
from gpuboost.kernels.levels import grow_levels
from gpuboost.kernels.tree_steps import GIVEN, SCRATCH

__all__ = ["grow_trees_cpu"]


@parallel_kernel
def grow_trees_cpu(
    key, n_grown, best_first, most_leaves, first_depth, n_leaves, max_depth, max_leaves, nodes, sums, left_sums, cats, counts,
    segments, rows, is_left, words, columns, packing, sparse, light_rows, codes_per_word, stride, lanes, private, planes, pairs,
    n_bins, gpair, by_row, n_limbs, hist, offsets, features, monotone, scales, first_output, reg_lambda, alpha, max_delta_step,
    min_child_weight, weights, member, n_level, n_node, columns_of_sets, rules, prefix_grad, prefix_hess, gains, bins, order,
    keys, light_sums, light_bits, notes, n_threads,
):  # fmt: skip
    """Grow trees from their roots, which are the first nodes.

    n_grown : int64 (2,), OUT. How many nodes there are then, and how many of them are not children of a node split too early.
    best_first : leaf by leaf, to most_leaves of a tree (best_first.py); else to max_depth, > 0, level by level, with first_depth
        (levels.py).
    nodes : NODE, INOUT, with room for all that there may be. So have sums, left_sums, cats, counts and segments. After the call
        nodes, segments, sets and the bounds in sums are those of the trees, numbered as steps would; the others are not.
    hist : int64 (≥ what the way of growing holds, leaf_size, total_bins, 2), or packed (histogram.packed_shape), SCRATCH.
    scales : float64 (n_outputs, 2), IN, from float to fixed point.
    columns, packing : packing is () but for packed records, of which it is as build_unpacked_cpu has it. Where its last field
        says so, rows are marked by records, which come in place of columns.
    sparse : of a page without records row_begin, row_end, cells and zero_bins of build_sparse_histograms_cpu, and cells, offsets,
        absent and entries of mark_sparse_rows_cpu; else (). light_rows : the most of a node without a histogram (light_nodes.py);
        0: all have one.
    key, weights, member, n_level, n_node : as mask_features_cpu. columns_of_sets, rules, order, keys : columns and so on of
        evaluate_category_splits; none without categories. The others as the kernels have them that are called.
    """
    given = GIVEN(
        max_depth, max_leaves, nodes, sums, left_sums, cats, counts, segments, rows, is_left, words, columns, packing,
        sparse, light_rows, codes_per_word, stride, lanes, n_bins, gpair, by_row, n_limbs, hist, offsets, features, monotone,
        scales, 1.0 / scales, first_output, reg_lambda, alpha, max_delta_step, min_child_weight, weights, member, key, n_level,
        n_node, columns_of_sets, rules,
    )  # fmt: skip
    scratch = SCRATCH(private, planes, pairs, prefix_grad, prefix_hess, gains, bins, order, keys, light_sums, light_bits, notes)
    if best_first:
        n_grown[0], n_grown[1] = grow_best_first(n_leaves, most_leaves, scratch, n_threads, given)
    else:
        n_nodes = int64(grow_levels(n_leaves, first_depth, scratch, n_threads, given))
        n_grown[0], n_grown[1] = n_nodes, n_nodes
