"""Lay out what SHAP values ask of a tree: a walk over all its paths as a list of steps, the same for every row.

The value of a set S of known features is the tree's mean over what the others may be (Lundberg et al. 2020, path-dependent):

    v(S) = Σ over leaves  w · Π over the features f of the leaf's path  (o_f if f in S else z_f)

o_f is 1 where the row stays on the path at all of f's splits, else 0; z_f is the product of the shares of cover that stay. With
each feature known with probability t, the weight of a path is H(t) = Π (z_f + t (o_f − z_f)), and Shapley values are integrals
over t (Owen 1972; as quadrature over a tree, Wettenstein et al. 2026, arXiv 2605.04497):

    φ_i  = Σ over leaves with i      w ∫₀¹ H(t) α_i(t) dt              α_f = (o_f − z_f) / (z_f + t (o_f − z_f))
    φ_ij = Σ over leaves with i, j   w ∫₀¹ H(t) α_i(t) α_j(t) dt

H α_i is a polynomial of degree d − 1 on a path of d features, so ⌈d/2⌉ points of Gauss and Legendre, chosen for the longest path
of each tree, integrate it exactly. Going down an edge multiplies H by a factor that depends on the row only through which side it
takes, and whether it has left the path before at the same feature; α of a feature changes where it is split by again, and each
edge counts that difference. So an edge has few coefficients for each point, which are laid out here once for all rows:

                               factor of H             difference of α                  (F = z' + t (1 − z'), z = z' · share)
    row goes this side         (z + t (1 − z)) / F     (1 − z) / (z + t (1 − z)) − (1 − z') / F
    row goes the other side    z (1 − t) / F           −1 / (1 − t)              − (1 − z') / F
    row had left before        share                   0

z' is of the splits above by the same feature, 1 where there is none. α of a row that has left is −1 / (1 − t), whatever z, and
F ≥ t: nothing is divided by what may be zero, and a share of 0 needs no exception. (Division by z + t (o − z), as in Linear
TreeSHAP, fails there.)

Steps, in the order of a depth-first walk; ``level`` is the node's depth:

    SPLIT      which side the rows take at a node
    LEAVES     the node's children that are leaves
    DOWN       to a child that is a split
    UP         back from it; FIRST_UP where nothing was added at the node before
"""

import numpy as np
from numba import int64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.jit import claim, kernel, launch, parallel_kernel, scalar

SPLIT, LEAVES, DOWN, UP, FIRST_UP = 0, 1, 2, 3, 4
WIDTH, PAIR_WIDTH = 4, 6  # coefficients of a point: factor and difference of α, by side; with interactions α, too

# of a walk
N_STEPS, N_COEFFICIENTS, N_PARTNERS, N_LEVELS, LONGEST = 0, 1, 2, 3, 4
N_SIZES = 5

# of a level of the path at hand
NODE, DONE, ABOVE, N_FEATURES, FIRST, FIRST_PARTNER, N_OWN_PARTNERS, HAS_SUMS = 0, 1, 2, 3, 4, 5, 6, 7
N_FIELDS = 8


@parallel_kernel
def lay_out_steps_cpu(
    trees, leaf_values, covers, tree_begin, walks, columns, n_used, n_outputs, with_pairs, points, places, sizes, steps,
    coefficients, partners, n_threads,
):  # fmt: skip
    """Measure the walks over some trees, or where there are ``points``, write them.

    trees : FLAT_NODE (n_nodes,), IN. leaf_values : float32 (n_nodes, leaf_size), IN. covers : float64 (n_nodes,), IN.
    tree_begin : int64 (n_trees,), IN. walks : int32 (k, 3), IN. Tree, number of the value in its leaves, output.
    columns : int32 (n_features,), IN. Number of each feature among the n_used that are split by. n_outputs : of the model.
    with_pairs : bool, whether interactions are asked for. Sums then follow for each pair of features of each output.
    points : float64 (most, 2, most), IN. points[n − 1, :, :n] are n points and their weights.
    places : int64 (k, 3), IN. Where each walk begins in steps, coefficients and partners.
    sizes : int64 (k, N_SIZES), OUT where measured, else IN. How many of them; levels; features of the longest path.
    steps : STEP, OUT. coefficients : float64, OUT. partners : int32 (n, 2), OUT. Of each step the other features above: the
        level where each was last split by, and the column of the pair's sums.
    """
    counter = zeros(1, np.int64)
    args = (
        counter, trees, leaf_values, covers, tree_begin, walks, columns, n_used, n_outputs, with_pairs, points, places,
        sizes, steps, coefficients, partners,
    )  # fmt: skip
    launch(n_threads, _lay_out_walks, args)


@parallel_kernel.part
def _lay_out_walks(
    counter, trees, leaf_values, covers, tree_begin, walks, columns, n_used, n_outputs, with_pairs, points, places, sizes, steps,
    coefficients, partners,
):  # fmt: skip
    while True:
        k = claim(counter)
        if k >= walks.shape[0]:
            return
        root = tree_begin[walks[k, 0]]
        end = tree_begin[walks[k, 0] + 1] if walks[k, 0] + 1 < tree_begin.size else int64(trees.size)
        most = (end - root) // 2 + 1  # levels
        path, shares = zeros((most, N_FIELDS), np.int64), np.ones(most)
        output = int64(walks[k, 2])
        if points.shape[0] == 0:
            sizes[k] = 0
            if trees[root].feature >= 0:
                _measure(trees, root, columns, with_pairs, path, sizes[k])
        elif trees[root].feature >= 0:
            n_points = (sizes[k, LONGEST] + 1) // 2
            _write(
                trees, leaf_values[:, walks[k, 1]], covers, root, columns, output, n_used, n_outputs, with_pairs,
                points[n_points - 1, :, :n_points], path, shares, steps[places[k, 0] :], coefficients[places[k, 1] :],
                places[k, 1], partners[places[k, 2] :], places[k, 2],
            )  # fmt: skip


@scalar
def pair_column(output, u, v, n_used, n_outputs):
    """Where the sums of an interaction lie, u < v: behind the values of all outputs, output by output."""
    return n_outputs * n_used + output * (n_used * (n_used - 1) // 2) + u * (2 * n_used - u - 1) // 2 + v - u - 1


@scalar
def _is_leaf(trees, node):
    return trees[node].feature < 0


@parallel_kernel.part
def _enter(trees, root, level, path, columns, with_pairs, partners, n_partners, output, n_used, n_outputs):
    """Note at a level what its node meets above. Writes its partners where ``partners`` has room; returns how many."""
    feature = trees[root + path[level, NODE]].feature
    above = level - 1
    while above >= 0 and trees[root + path[above, NODE]].feature != feature:
        above -= 1
    path[level, ABOVE], path[level, DONE], path[level, HAS_SUMS] = above, 0, 0
    path[level, N_FEATURES] = int64(above < 0) + (path[level - 1, N_FEATURES] if level > 0 else int64(0))
    n = int64(0)
    for j in range(level if with_pairs else 0):
        other = trees[root + path[j, NODE]].feature
        is_last = other != feature
        for below in range(j + 1, level):
            is_last &= trees[root + path[below, NODE]].feature != other
        if is_last:
            if partners.shape[0] > 0:
                u, v = int64(min(columns[feature], columns[other])), int64(max(columns[feature], columns[other]))
                partners[n_partners + n, 0] = j
                partners[n_partners + n, 1] = pair_column(output, u, v, n_used, n_outputs)
            n += 1
    path[level, N_OWN_PARTNERS] = n
    return n


@parallel_kernel.part
def _measure(trees, root, columns, with_pairs, path, size):
    level, comes_up, n_edges, none = int64(0), False, int64(0), zeros((0, 2), np.int32)
    while level >= 0:
        left = root + trees[root + path[level, NODE]].left
        if not comes_up:
            size[N_PARTNERS] += _enter(trees, root, level, path, columns, with_pairs, none, 0, 0, 0, 0)
            size[N_LEVELS], size[LONGEST] = max(size[N_LEVELS], level + 1), max(size[LONGEST], path[level, N_FEATURES])
            n_inner = 2 - int64(_is_leaf(trees, left)) - int64(_is_leaf(trees, left + 1))
            size[N_STEPS] += 1 + 2 * n_inner + int64(n_inner < 2)
            n_edges += n_inner + int64(n_inner < 2)
        level, comes_up = _next(trees, root, level, left, path)
    size[N_COEFFICIENTS] = n_edges * ((size[LONGEST] + 1) // 2) * (PAIR_WIDTH if with_pairs else WIDTH)


@parallel_kernel.part
def _next(trees, root, level, left, path):
    """The level to go on with, and whether that is back up."""
    while path[level, DONE] < 2:
        side = path[level, DONE]
        path[level, DONE] += 1
        if not _is_leaf(trees, left + side):
            path[level + 1, NODE] = left + side - root
            return level + 1, False
    return level - 1, True


@parallel_kernel.part
def _write(
    trees, values, covers, root, columns, output, n_used, n_outputs, with_pairs, points, path, shares, steps, coefficients,
    first_coefficient, partners, first_partner,
):  # fmt: skip
    level, comes_up, n, n_partners, first_column = int64(0), False, int64(0), int64(0), output * n_used
    at, room = int64(0), points.shape[1] * int64(PAIR_WIDTH if with_pairs else WIDTH)
    while level >= 0:
        node = root + path[level, NODE]
        left = root + trees[node].left
        if not comes_up:
            path[level, FIRST_PARTNER] = first_partner + n_partners
            n_partners += _enter(trees, root, level, path, columns, with_pairs, partners, n_partners, output, n_used, n_outputs)
            n = _add_step(SPLIT, trees, node, level, path, columns, first_column, 0, steps, n)
            if _is_leaf(trees, left) or _is_leaf(trees, left + 1):
                coefficients[at : at + room] = 0.0
                n = _add_step(LEAVES, trees, node, level, path, columns, first_column, first_coefficient + at, steps, n)
                for side in range(2):
                    if _is_leaf(trees, left + side):
                        weight, share = np.float64(values[left + side]), _share(covers, left, side, node)
                        steps[n - 1].cold += weight * share
                        own = coefficients[at : at + room]
                        _add_edge(points, _share_above(level, path, shares), share, side, weight, True, with_pairs, own)
                at += room
                path[level, HAS_SUMS] = 1
        else:
            kind = UP if path[level, HAS_SUMS] else FIRST_UP
            n = _add_step(kind, trees, node, level, path, columns, first_column, path[level, FIRST], steps, n)
            path[level, HAS_SUMS] = 1
        here = level
        level, comes_up = _next(trees, root, level, left, path)
        if not comes_up:
            side = path[here, DONE] - 1
            share, above = _share(covers, left, side, node), _share_above(here, path, shares)
            shares[here], path[here, FIRST] = above * share, first_coefficient + at
            n = _add_step(DOWN, trees, node, here, path, columns, first_column, first_coefficient + at, steps, n)
            steps[n - 1].cold = share
            coefficients[at : at + room] = 0.0
            _add_edge(points, above, share, side, 1.0, False, with_pairs, coefficients[at : at + room])
            at += room


@parallel_kernel.part
def _add_step(kind, trees, node, level, path, columns, first_column, first, steps, n):
    """Returns the number of steps with this one."""
    above = path[level, ABOVE]
    steps[n].kind, steps[n].node, steps[n].level, steps[n].above = kind, node, level, above
    steps[n].column = first_column + columns[trees[node].feature]
    steps[n].side = path[above, DONE] - 1 if above >= 0 else 0
    steps[n].own_side = path[level, DONE] - 1
    steps[n].first, steps[n].cold = first, 0.0
    steps[n].first_partner, steps[n].n_partners = path[level, FIRST_PARTNER], path[level, N_OWN_PARTNERS]
    return n + 1


@scalar
def _share(covers, left, side, node):
    """Of a node's cover that of a child; a half where the node has none."""
    return covers[left + side] / covers[node] if covers[node] > 0.0 else 0.5


@scalar
def _share_above(level, path, shares):
    return shares[path[level, ABOVE]] if path[level, ABOVE] >= 0 else 1.0


@parallel_kernel.part
def _add_edge(points, above, share, side, weight, is_leaf, with_pairs, out):
    """Add the coefficients of an edge. Those of a leaf are multiplied by its value, the differences by the factors as well."""
    z = above * share
    width = PAIR_WIDTH if with_pairs else WIDTH
    for p in range(points.shape[1]):
        t, own = points[0, p], out[p * width : p * width + width]
        factor_above, alpha_above = above + t * (1.0 - above), (1.0 - above) / (above + t * (1.0 - above))
        for goes in range(2):
            stays = goes == side
            factor = (z + t * (1.0 - z) if stays else z * (1.0 - t)) / factor_above
            alpha = (1.0 - z) / (z + t * (1.0 - z)) if stays else -1.0 / (1.0 - t)
            change = points[1, p] * (alpha - alpha_above)
            if is_leaf:
                own[goes] += weight * factor
                own[2 + goes] += weight * factor * change
            else:
                own[goes], own[2 + goes] = factor, change
                if with_pairs:
                    own[4 + goes] = alpha


@kernel
def mean_values(trees, leaf_values, covers, tree_begin, means):
    """What each node predicts on average over the cover below it.

    Others as lay_out_steps_cpu. means : float64 (n_nodes, leaf_size), OUT. 0 at nodes that no tree leads to.
    """
    found = empty(trees.size, np.int64)  # the nodes of a tree, level by level
    means[:] = 0.0
    for t in range(tree_begin.size):
        found[0], n_found, done = tree_begin[t], 1, 0
        while done < n_found:
            if trees[found[done]].feature >= 0:
                left = tree_begin[t] + trees[found[done]].left
                found[n_found], found[n_found + 1] = left, left + 1
                n_found += 2
            done += 1
        for i in range(n_found - 1, -1, -1):
            node = found[i]
            if trees[node].feature < 0:
                means[node] = leaf_values[node]
            else:
                left = tree_begin[t] + trees[node].left
                for own in range(means.shape[1]):
                    left_part, right_part = _share(covers, left, 0, node), _share(covers, left, 1, node)
                    means[node, own] = left_part * means[left, own] + right_part * means[left + 1, own]
