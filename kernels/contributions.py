"""SHAP values and interactions of rows, by the walks of kernels/path_steps.py.

    going down to a child    weight[level + 1] = weight[level] · factor                  for every point
    coming up again          sums[level] += sums[level + 1]                              likewise
                             φ of the node's feature += Σ over points  sums[level + 1] · change of α
    and with interactions    φ of it and of each other feature above += Σ over points  sums[level + 1] · change · α of the other

Sums are float64, in the order of trees, steps and points: the same bits on either device, for any number of threads and rows.
A block of rows takes each step together, row beside row, which the compiler does for eight at once. 20,000 × 28, 100 trees of
depth 6 (3 points), two threads of an AMD EPYC: 0.21 µs a row and tree. One row after another would find the
same coefficients 64 times as often.
"""

import numpy as np
from numba import float32, float64, int32, int64, uint32, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuda_common import cuda_kernel, n_threads, thread_number
from gpuboost.kernels.jit import claim, inlined_scalar, kernel, launch, parallel_kernel, scalar
from gpuboost.kernels.path_steps import DOWN, FIRST_UP, LEAVES, PAIR_WIDTH, SPLIT, WIDTH, pair_column
from gpuboost.kernels.predict import IS_SET, ROW_BLOCK, fill_keys, key_goes_right, lay_out, missing_keys, new_tile, used_features
from gpuboost.kernels.scalar import value_goes_left

LEFT_BEFORE = 2  # the side of a row that has left the path at this feature before


@scalar
def of_side(side, left, right, left_before):
    """What a row's side chooses."""
    own = right if side == 1 else left
    return left_before if side == LEFT_BEFORE else own


@kernel
def lay_out_nodes(trees, leaf_values, tree_begin, n_features):
    """(words of all nodes for keys of values, kernels/predict.py; int32 features that are split by: columns of keys 1, 2, …)"""
    column_of, features = used_features(trees, n_features, 1)
    nodes, _, _ = lay_out(trees, leaf_values, tree_begin, column_of, missing_keys(n_features), True)
    return nodes, features


@parallel_kernel
def write_keys_cpu(batch, missing, features, keys, n_threads):
    """Values of a batch of rows as keys (kernels/predict.py).

    batch : float32 or float64 (n_rows, n_features), IN. missing : float32. features : int32 (n_used,), IN.
    keys : uint32 (n_blocks, n_used + 1, ROW_BLOCK), OUT. Column 0, and rows behind the last, keep what they hold.
    """
    counter = zeros(1, np.int64)
    launch(n_threads, _write_key_blocks, (counter, batch, missing, features, keys))


@parallel_kernel.part
def _write_key_blocks(counter, batch, missing, features, keys):
    tile = new_tile(batch.shape[1])
    while True:
        block = claim(counter)
        if block >= keys.shape[0]:
            return
        own = batch[block * ROW_BLOCK : (block + 1) * ROW_BLOCK]
        fill_keys(own, missing, features, tile, keys[block].reshape(keys[block].size))


@parallel_kernel
def add_contributions_cpu(keys, nodes, sets, first_step, n_points, steps, coefficients, partners, with_pairs, sums, n_threads):
    """Add the contributions of some trees to those of all rows.

    keys : uint32 (n_blocks, n_columns, ROW_BLOCK), IN. nodes, sets : uint32, IN. See kernels/predict.py; sets may be empty.
    first_step : int64 (k + 1,), IN. Where each walk begins in ``steps``, and the end. n_points : int64 (k,), IN. Of each walk.
    steps, coefficients, partners, with_pairs : IN, as lay_out_steps_cpu writes them.
    sums : float64 (n_blocks, n_columns of sums, ROW_BLOCK), INOUT.
    """
    counter = zeros(1, np.int64)
    args = (
        counter, keys, nodes, sets, first_step, n_points, steps, coefficients, partners, with_pairs, sums,
    )  # fmt: skip
    launch(n_threads, _add_blocks, args)


@parallel_kernel.part
def _add_blocks(counter, keys, nodes, sets, first_step, n_points, steps, coefficients, partners, with_pairs, sums):
    n_levels, most = int64(1), int64(1)
    for s in range(steps.size):
        n_levels = max(n_levels, int64(steps[s].level) + 1)
    for k in range(n_points.size):
        most = max(most, n_points[k])
    weights = np.ones((n_levels + 1, most, ROW_BLOCK))
    below = empty((n_levels + 1, most, ROW_BLOCK), np.float64)
    alphas = empty((n_levels + 1, most if with_pairs else 1, ROW_BLOCK), np.float64)
    sides = empty((n_levels, ROW_BLOCK), np.int64)
    change, total = empty((most, ROW_BLOCK), np.float64), empty(ROW_BLOCK, np.float64)
    while True:
        block = claim(counter)
        if block >= keys.shape[0]:
            return
        for k in range(n_points.size):
            points = n_points[k]
            for s in range(first_step[k], first_step[k + 1]):
                kind, level = steps[s].kind, uint64(steps[s].level)
                own = sides[level]
                if kind == SPLIT:
                    _split(keys[block], nodes, sets, steps, s, sides, own)
                elif kind == DOWN:
                    _go_down(weights, alphas, own, steps, s, coefficients, points, with_pairs)
                else:
                    source = weights[level] if kind == LEAVES else below[level + uint64(1)]
                    _add_up(source, below[level], own, kind, steps, s, coefficients, points, with_pairs, total)
                    _add(total, sums[block, uint64(steps[s].column)])
                    if steps[s].n_partners > 0:
                        _add_pairs(
                            source, own, steps, s, coefficients, points, partners, alphas, change, total, sums[block]
                        )


@inlined_scalar
def _split(keys, nodes, sets, steps, s, sides, own):
    word = uint64(4) * uint64(steps[s].node)
    key, low, width, left = keys[uint64(nodes[word])], nodes[word + uint64(1)], nodes[word + uint64(2)], nodes[word + uint64(3)]
    if left & uint32(IS_SET):
        for r in range(ROW_BLOCK):
            own[r] = int64(key_goes_right(key[r], low, width, left, sets))
    else:
        for r in range(ROW_BLOCK):
            own[r] = int64(uint32(key[r] - low) < width)
    if steps[s].above >= 0:
        above, side = sides[uint64(steps[s].above)], int64(steps[s].side)
        for r in range(ROW_BLOCK):
            own[r] = own[r] if above[r] == side else int64(LEFT_BEFORE)


@inlined_scalar
def _go_down(weights, alphas, own, steps, s, coefficients, points, with_pairs):
    level, at, cold = uint64(steps[s].level), uint64(steps[s].first), steps[s].cold
    is_again = steps[s].above >= 0
    for p in range(uint64(points)):
        source, target = weights[level, p], weights[level + uint64(1), p]
        left, right = coefficients[at], coefficients[at + uint64(1)]
        if is_again:
            for r in range(ROW_BLOCK):
                target[r] = source[r] * of_side(own[r], left, right, cold)
        else:
            for r in range(ROW_BLOCK):
                target[r] = source[r] * (right if own[r] == 1 else left)
        if with_pairs:
            left, right = coefficients[at + uint64(4)], coefficients[at + uint64(5)]
            other, alpha = right if steps[s].own_side == 0 else left, alphas[level, p]
            for r in range(ROW_BLOCK):
                alpha[r] = of_side(own[r], left, right, other)
        at += uint64(PAIR_WIDTH if with_pairs else WIDTH)


@inlined_scalar
def _add_up(source, target, own, kind, steps, s, coefficients, points, with_pairs, total):
    """sums of the level, and into ``total`` the change of φ."""
    at, cold = uint64(steps[s].first), steps[s].cold
    is_again = steps[s].above >= 0
    total[:] = 0.0
    for p in range(uint64(points)):
        x, y = source[p], target[p]
        if kind == LEAVES:
            left, right = coefficients[at], coefficients[at + uint64(1)]
            if is_again:
                for r in range(ROW_BLOCK):
                    y[r] = x[r] * of_side(own[r], left, right, cold)
            else:
                for r in range(ROW_BLOCK):
                    y[r] = x[r] * (right if own[r] == 1 else left)
        elif kind == FIRST_UP:
            for r in range(ROW_BLOCK):
                y[r] = x[r]
        else:
            for r in range(ROW_BLOCK):
                y[r] += x[r]
        left, right = coefficients[at + uint64(2)], coefficients[at + uint64(3)]
        if is_again:
            for r in range(ROW_BLOCK):
                total[r] += x[r] * of_side(own[r], left, right, 0.0)
        else:
            for r in range(ROW_BLOCK):
                total[r] += x[r] * (right if own[r] == 1 else left)
        at += uint64(PAIR_WIDTH if with_pairs else WIDTH)


@inlined_scalar
def _add_pairs(source, own, steps, s, coefficients, points, partners, alphas, change, total, sums):
    at = uint64(steps[s].first)
    for p in range(uint64(points)):
        x, y = source[p], change[p]
        left, right = coefficients[at + uint64(2)], coefficients[at + uint64(3)]
        for r in range(ROW_BLOCK):
            y[r] = x[r] * of_side(own[r], left, right, 0.0)
        at += uint64(PAIR_WIDTH)
    first = uint64(steps[s].first_partner)
    for j in range(first, first + uint64(steps[s].n_partners)):
        level = uint64(partners[j, 0])
        total[:] = 0.0
        for p in range(uint64(points)):
            x, alpha = change[p], alphas[level, p]
            for r in range(ROW_BLOCK):
                total[r] += x[r] * alpha[r]
        _add(total, sums[uint64(partners[j, 1])])


@inlined_scalar
def _add(total, sums):
    for r in range(ROW_BLOCK):
        sums[r] += total[r]


@parallel_kernel
def write_contributions_cpu(sums, features, biases, margins, with_pairs, out, n_threads):
    """Sums of blocks of rows as they are predicted.

    sums : float64 (n_blocks, n_columns, ROW_BLOCK), IN. features : int32 (n_used,), IN. Feature of each column of an output.
    biases : float64 (n_outputs,), IN. Mean of all trees. margins : float32 (n_outputs, n_rows), IN. What predictions start from.
    out : float32 (n_rows, n_outputs, 1 or n_features + 1, n_features + 1), OUT. Zeroed by the caller. The last value is the
        bias. Interactions are symmetric, a half on each side; what a feature does alone is what is left of its value.
    """
    counter = zeros(1, np.int64)
    launch(n_threads, _write_rows, (counter, sums, features, biases, margins, with_pairs, out))


@parallel_kernel.part
def _write_rows(counter, sums, features, biases, margins, with_pairs, out):
    while True:
        row = claim(counter) * ROW_BLOCK
        if row >= out.shape[0]:
            return
        for i in range(row, min(row + ROW_BLOCK, out.shape[0])):
            for output in range(out.shape[1]):
                write_row(sums, features, biases, margins, with_pairs, out, i, output)


@scalar
def write_row(sums, features, biases, margins, with_pairs, out, row, output):
    """One output of a row, on either device."""
    block, at, last = row // ROW_BLOCK, row % ROW_BLOCK, out.shape[3] - 1
    n_used, n_outputs = int64(features.size), int64(out.shape[1])
    out[row, output, out.shape[2] - 1, last] = float32(biases[output] + float64(margins[output, row]))
    for u in range(n_used):
        value, feature = sums[block, output * n_used + u, at], int64(features[u])
        if not with_pairs:
            out[row, output, 0, feature] = float32(value)
        else:
            for v in range(n_used):
                if v != u:
                    half = 0.5 * sums[block, pair_column(output, min(u, v), max(u, v), n_used, n_outputs), at]
                    value -= half
                    out[row, output, feature, features[v]] = float32(half)
            out[row, output, feature, feature] = float32(value)


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A thread takes a row through all steps: all rows take the same ones, so that a warp never diverges, coefficients are read
# once for 32 rows, and what a thread keeps for each level and point lies beside its neighbours'. Floor: that memory, 16 bytes a
# point going down and 24 coming up, from the caches as far as they reach.


@cuda_kernel(
    "values: float32[:, :], missing: float32, trees: FLAT_NODE[:], sets: uint32[:], first_step: int64[:], "
    "n_points: int64[:], steps: STEP[:], coefficients: float64[:], partners: int32[:, :], with_pairs: int32, "
    "weights: float64[:, :, :], below: float64[:, :, :], alphas: float64[:, :, :], sides: int32[:, :], sums: float64[:, :, :]",
    registers=64, uses_double=True,
)  # fmt: skip
def add_contributions_kernel(
    values, missing, trees, sets, first_step, n_points, steps, coefficients, partners, with_pairs, weights, below, alphas, sides,
    sums,
):  # fmt: skip
    """add_contributions_cpu for a batch. values : float32 (n_features, n_rows), IN.

    weights, below : float64 (n_levels + 1, most points, n_slots), SCRATCH. alphas : the same, with pairs. sides : int32
    (n_levels, n_slots), SCRATCH. A thread has a slot; those without one do nothing."""
    slot = int64(thread_number())
    row = slot if slot < sides.shape[1] else int64(values.shape[1])
    width = int64(PAIR_WIDTH) if with_pairs != 0 else int64(WIDTH)
    while row < values.shape[1]:
        block, place = row // ROW_BLOCK, row % ROW_BLOCK
        for k in range(n_points.size):
            for p in range(n_points[k]):
                weights[0, p, slot] = 1.0
            s = first_step[k]
            while s < first_step[k + 1]:
                kind, level, at, cold = steps[s].kind, int64(steps[s].level), steps[s].first, steps[s].cold
                if kind == SPLIT:
                    node, above = int64(steps[s].node), steps[s].above
                    goes_left = value_goes_left(values[trees[node].feature, row], trees, node, missing, sets)
                    side = int32(0) if goes_left else int32(1)
                    if above >= 0:
                        if sides[above, slot] != steps[s].side:
                            side = int32(LEFT_BEFORE)
                    sides[level, slot] = side
                elif kind == DOWN:
                    side = sides[level, slot]
                    for p in range(n_points[k]):
                        factor = of_side(side, coefficients[at], coefficients[at + 1], cold)
                        weights[level + 1, p, slot] = weights[level, p, slot] * factor
                        if with_pairs != 0:
                            left, right = coefficients[at + 4], coefficients[at + 5]
                            other = right if steps[s].own_side == 0 else left
                            alphas[level, p, slot] = of_side(side, left, right, other)
                        at += width
                else:
                    side, total = sides[level, slot], 0.0
                    for p in range(n_points[k]):
                        if kind == LEAVES:
                            x = weights[level, p, slot]
                            below[level, p, slot] = x * of_side(side, coefficients[at], coefficients[at + 1], cold)
                        else:
                            x = below[level + 1, p, slot]
                            below[level, p, slot] = x if kind == FIRST_UP else below[level, p, slot] + x
                        total += x * of_side(side, coefficients[at + 2], coefficients[at + 3], 0.0)
                        at += width
                    sums[block, steps[s].column, place] += total
                    for j in range(steps[s].n_partners):
                        partner = steps[s].first_partner + j
                        other, at, total = int64(partners[partner, 0]), steps[s].first, 0.0
                        for p in range(n_points[k]):
                            x = weights[level, p, slot] if kind == LEAVES else below[level + 1, p, slot]
                            change = x * of_side(side, coefficients[at + 2], coefficients[at + 3], 0.0)
                            total += change * alphas[other, p, slot]
                            at += width
                        sums[block, partners[partner, 1], place] += total
                s += 1
        row += min(int64(n_threads()), int64(sides.shape[1]))


@cuda_kernel(
    "sums: float64[:, :, :], features: int32[:], biases: float64[:], margins: float32[:, :], with_pairs: int32, "
    "out: float32[:, :, :, :]",
    registers=64, uses_double=True,
)  # fmt: skip
def write_contributions_kernel(sums, features, biases, margins, with_pairs, out):
    """write_contributions_cpu. A thread writes an output of a row."""
    i = int64(thread_number())
    while i < out.shape[0] * out.shape[1]:
        write_row(sums, features, biases, margins, with_pairs != 0, out, i % out.shape[0], i // out.shape[0])
        i += int64(n_threads())
