"""Find the best set of categories where a tree has several outputs (category_splits.py, which is for one, has the candidates).

Gains, and what a candidate needs, are those of kernels/splits.py for several outputs, their scores added up. What categories are
put in order by has to be one number, of K that say what they are. With u_ck = G_ck / (H_ck + λ + cat_smooth), 0 without hessian:

    one category alone    in the order of the categories, as for one output
    else                  in ascending order of Σ_k a_k·u_ck

where a is the direction in which the categories of the node lie farthest apart. Where their hessians are the same for all outputs
but for factors η_k, h_c their sum over the outputs, and no penalty holds, a set of hessian share f gains 1/(f·(1 − f)·h) times

    Σ_k η_k·(Σ_listed h_c·(u_ck − ū_k))²           ū the mean of u, h_c its weights

as weighted 2-means of the categories has it. If they may take part with any amount, not wholly or not at all, the best amounts
are those along the first principal component (Ding & He 2004, "K-means clustering via principal component analysis"), by which
Coppersmith, Hong & Hosking 1999 ("Partitioning nominal attributes in decision trees") order the categories of a classifier:

    a_k ← H_k·Σ_c h_c·(a·(u_c − ū))·u_ck           a power iteration, H_k of the node

STEPS times, from the one output alone that has the largest H_k·Σ_c h_c·(u_ck − ū_k)²; no step finds a worse direction. Of 9
categories and 2 to 8 outputs the best of all 255 sets gains 0 to 2 % more than the one found (random nodes of rank 1, 2 or full,
and of classes). XGBoost 3.4 has the weights of the node for a, by which 1 to 18 % are lost: where a model starts at the mean, as
it does, the first node's are rounding errors. With one output the order is that of category_splits.py, or its reverse.

What chance gains (category_splits.noise_gain) with K outputs, f of the sum of hessians, N = Σ_k (Σ_c √H_ck)²/H_k / K:

    s²·(1.8·(f(1−f))^¾·(N + 1.5·√(N·(K − 1))) + K − 1),     of which the best of many thresholds gains s²·(K + 2·√K), too

Simulated, N of 30 and 300, K up to 30: 18 % less to 12 % more; N of 10: up to 26 % more. A category is held where the mean of its
outputs' hessians is s² or more, and any has some, or where it is light but evident by one of its outputs, or the light ones lie
apart by all of them (category_splits.is_evident, least_held); min_data_per_group is for the mean, too.

Floor of a feature and node: 16 · K bytes read per category, 2 · STEPS + 6 times, of which all but the first come from a cache.
"""

import math

import numpy as np
from numba import float64, int32, int64, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.candidates import MIN_GAIN, RELATIVE_GAIN, block_best, is_candidate, node_term
from gpuboost.kernels.category_splits import (
    FEW,
    MANY,
    NULL_GAIN,
    ROOT_UNITS,
    best_feature,
    is_evident,
    least_held,
    mean_of,
    root_of,
    sort_block,
    sort_ends,
    take_choice,
    take_set,
    units_apart,
    units_of_steps,
)
from gpuboost.kernels.cuda_common import block_prefix, block_sum, cuda, cuda_kernel, device_function, owner_of
from gpuboost.kernels.jit import claim, launch, parallel_kernel, scalar
from gpuboost.kernels.scalar import bits_double, gain_rank, inverse_of_power, larger
from gpuboost.kernels.short_sorts import sort_order
from gpuboost.kernels.structs import NO_GAIN

STEPS = 4
MORE_NULL_GAIN = 1.5  # of further outputs


@scalar
def value_of(grad, hess, grad_unit, hess_unit, smooth):
    """u of a category and an output. grad, hess : int64."""
    return (grad * grad_unit) / (hess * hess_unit + smooth) if hess > 0 else float64(0.0)


@scalar
def is_light(hess, n_outputs, noise):
    """Whether a category of some hessian, the sum over the outputs, has too little of it to be held for that."""
    return float64(0.0) < hess and hess < noise * n_outputs


@scalar
def noise_gain_of_outputs(listed_hess, held_hess, n_equal, n_outputs, noise):
    """What chance adds to the gain of a set. listed_hess, held_hess : sums over the outputs. n_equal : N."""
    share = listed_hess / held_hess
    spread = math.sqrt(larger(share * (float64(1.0) - share), float64(0.0)))
    others = math.sqrt(n_equal * (n_outputs - float64(1.0)))
    gain = float64(NULL_GAIN) * (spread * math.sqrt(spread)) * (n_equal + float64(MORE_NULL_GAIN) * others)
    return noise * larger(gain - float64(1.0) - float64(2.0) * math.sqrt(n_outputs), float64(0.0))


@scalar
def equal_categories(roots, held_hess):
    """One output's part of N. roots, held_hess : int64, Σ √H_c by root_of and Σ H_c of the categories held."""
    root = float64(roots) / float64(ROOT_UNITS)
    return root * root / float64(held_hess) if held_hess > 0 else float64(0.0)


@parallel_kernel
def evaluate_category_vectors_cpu(
    frontier, nodes, sums, left_sums, cats, hist, columns, offsets, features, feature_mask, inverse_scales, first_output,
    reg_lambda, alpha, max_delta_step, min_child_weight, rules, gains, choices, order, keys, n_threads,
):  # fmt: skip
    """category_splits.evaluate_category_splits for trees of several outputs: sums, left_sums : int64 (n_nodes, n_outputs, 2)."""
    counter = zeros(1, np.int64)
    args = (
        counter, frontier, nodes, sums, hist, columns, offsets, features, feature_mask, inverse_scales, first_output, reg_lambda,
        alpha, max_delta_step, min_child_weight, rules, gains, choices, order, keys,
    )  # fmt: skip
    launch(n_threads, _search_items, args)
    for i in range(frontier.size):
        node = frontier[i]
        k = best_feature(nodes, node, columns, features, gains, i)
        if k >= 0:
            begin, end = int64(offsets[columns[k]]), int64(offsets[columns[k] + 1] - 1)
            units, takes_one = inverse_scales[first_output[nodes[node].tree] :], end - begin < rules[0].max_cat_to_onehot
            own = hist[nodes[node].slot, :, begin:end]
            n_held, _, _ = _order_categories(own, sums[node], units, takes_one, reg_lambda, rules, order[0], keys[0])
            nodes[node].gain, nodes[node].feature = gains[i, k], features[columns[k]]
            take_set(node, nodes, sums, left_sums, cats, hist, begin, end, choices[i, k], order[0], n_held, takes_one)


@parallel_kernel.part
def _search_items(
    thread, counter, frontier, nodes, sums, hist, columns, offsets, features, feature_mask, inverse_scales, first_output,
    reg_lambda, alpha, max_delta_step, min_child_weight, rules, gains, choices, order, keys
):  # fmt: skip
    order, keys, n_outputs = order[thread], keys[thread], sums.shape[1]
    while True:
        item = claim(counter)
        if item >= frontier.size * columns.size:
            return
        i, k = item // columns.size, item % columns.size
        node, column, mask_row = frontier[i], columns[k], min(i, feature_mask.shape[0] - 1)
        gains[i, k] = NO_GAIN
        units, weight = inverse_scales[first_output[nodes[node].tree] :], float64(0.0)
        for output in range(n_outputs):
            weight += sums[node, output, 1] * units[output, 1]
        too_light = weight < 2.0 * (min_child_weight * n_outputs)
        if not too_light and (mask_row < 0 or feature_mask[mask_row, column] != 0):
            own = hist[nodes[node].slot, :, offsets[column] : offsets[column + 1] - 1]
            gains[i, k], choices[i, k] = _best_set(
                own, sums[node], units, weight, reg_lambda, alpha, max_delta_step, min_child_weight, rules, order, keys
            )


@parallel_kernel.part
def _order_categories(hist, sums, units, takes_one, reg_lambda, rules, order, keys):
    """category_splits._order_categories for several outputs; also the sum of hessians of the categories held, and N. hist : int64
    (n_outputs, n_categories, 2), IN. sums : int64 (n_outputs, 2), IN, of the node."""
    n_outputs, n_categories, smooth = hist.shape[0], hist.shape[1], reg_lambda + rules[0].cat_smooth
    noise = rules[0].cat_noise
    weight, held_weight, n_equal, n_held = zeros(n_categories, np.float64), float64(0.0), float64(0.0), 0
    for output in range(n_outputs):
        for category in range(n_categories):
            weight[category] += hist[output, category, 1] * units[output, 1]
    tells, n_light, apart_units, steps = zeros(n_categories, np.bool_), int64(0), int64(0), int64(0)
    for output in range(0 if takes_one else n_outputs):
        middle = mean_of(sums[output, 0] * units[output, 0], sums[output, 1] * units[output, 1])
        for category in range(n_categories):
            grad, hess = hist[output, category, 0] * units[output, 0], hist[output, category, 1] * units[output, 1]
            if hess > 0.0 and is_light(weight[category], n_outputs, noise):
                n_light += 1
                apart_units += units_apart(grad, hess, middle, rules)
                steps += units_of_steps(hess, rules)
                tells[category] |= is_evident(grad, hess, middle, rules)
    lie_apart = n_light > 0 and least_held(n_light, apart_units, steps, noise) == 0.0
    for category in range(n_categories):
        is_held = takes_one or lie_apart or tells[category] or not is_light(weight[category], n_outputs, noise)
        if weight[category] > 0.0 and is_held:
            order[n_held] = category
            n_held += 1
    if takes_one or n_held == 0:
        return n_held, held_weight, n_equal
    mean, direction, apart = zeros(n_outputs, np.float64), zeros(n_outputs, np.float64), zeros(n_outputs, np.float64)
    for output in range(n_outputs):
        grad_unit, hess_unit, node_hess = units[output, 0], units[output, 1], sums[output, 1] * units[output, 1]
        held_hess, roots, total = int64(0), int64(0), float64(0.0)
        for place in range(n_held):
            category = order[place]
            u = value_of(hist[output, category, 0], hist[output, category, 1], grad_unit, hess_unit, smooth)
            mean[output] += weight[category] * u
            total += weight[category]
            held_hess += hist[output, category, 1]
            roots += root_of(hist[output, category, 1])
        mean[output] /= total
        held_weight += held_hess * hess_unit
        n_equal += equal_categories(roots, held_hess)
        for place in range(n_held):
            category = order[place]
            u = value_of(hist[output, category, 0], hist[output, category, 1], grad_unit, hess_unit, smooth) - mean[output]
            apart[output] += weight[category] * (u * u)
        apart[output] *= node_hess
    best = 0
    for output in range(1, n_outputs):
        if apart[output] > apart[best]:
            best = output
    direction[best] = 1.0
    for _ in range(STEPS):
        _project(hist, units, smooth, direction, mean, order[:n_held], keys)
        largest = 0.0
        for output in range(n_outputs):
            grad_unit, hess_unit, total = units[output, 0], units[output, 1], 0.0
            for place in range(n_held):
                category = order[place]
                u = value_of(hist[output, category, 0], hist[output, category, 1], grad_unit, hess_unit, smooth)
                total += weight[category] * keys[place] * u
            direction[output] = sums[output, 1] * hess_unit * total
            largest = larger(largest, abs(direction[output]))
        if largest > 0.0:
            for output in range(n_outputs):
                direction[output] /= largest
    _project(hist, units, smooth, direction, mean, order[:n_held], keys)
    most = rules[0].max_cat_threshold
    if most <= FEW and n_held >= MANY * most:
        sort_ends(most, order[:n_held], keys[:n_held])
    else:
        sort_order(n_held, order, keys)  # stable: ties by category
    return n_held, held_weight, n_equal / n_outputs


@parallel_kernel.part
def _project(hist, units, smooth, direction, mean, order, keys):
    """keys[i], OUT: how far the i-th of order lies from the mean along the direction."""
    keys[: order.size] = 0.0
    for output in range(hist.shape[0]):
        for place in range(order.size):
            grad, hess = hist[output, order[place], 0], hist[output, order[place], 1]
            keys[place] += direction[output] * (value_of(grad, hess, units[output, 0], units[output, 1], smooth) - mean[output])


@parallel_kernel.part
def _best_set(
    hist, sums, units, weight, reg_lambda, alpha, max_delta_step, min_child_weight, rules, order, keys
):  # fmt: skip
    """category_splits._best_set for several outputs. weight : the node's sum of hessians."""
    n_outputs, n_categories, noise, most = hist.shape[0], hist.shape[1], rules[0].cat_noise, rules[0].max_cat_threshold
    takes_one = n_categories < rules[0].max_cat_to_onehot
    n_held, held_weight, n_equal = _order_categories(hist, sums, units, takes_one, reg_lambda, rules, order, keys)
    parent, has_missing, present = float64(0.0), False, zeros((n_outputs, 2), np.int64)
    for output in range(n_outputs):
        grad, hess = sums[output, 0] * units[output, 0], sums[output, 1] * units[output, 1]
        lower, upper = _bounds_of(sums, output)
        parent += node_term(grad, hess, reg_lambda, alpha, max_delta_step, lower, upper)
        for of in range(2):
            for category in range(n_categories):
                present[output, of] += hist[output, category, of]
            has_missing |= present[output, of] != sums[output, of]
    threshold = larger(MIN_GAIN, RELATIVE_GAIN * parent)
    least = min_child_weight
    if takes_one:
        most, noise = n_held, 0.0
    else:
        reg_lambda += rules[0].cat_l2
        least = larger(min_child_weight, rules[0].min_data_per_group)
    least *= n_outputs
    best_gain, best_choice, n = NO_GAIN, int64(0), min(n_held, int64(most))
    gains, left, listed, listed_sums = empty(n, np.float64), empty(n, np.float64), empty(n, np.float64), empty((n, 2), np.int64)
    for kind in range(4):  # as the bits of a choice: the last, missing right
        is_last, missing_right = kind >> 1, kind & 1
        if (takes_one and is_last) or (missing_right and not has_missing):
            continue
        gains[:], left[:], listed[:] = -parent, 0.0, 0.0
        for output in range(n_outputs):
            _sum_listed(hist[output], order[:n_held], takes_one, is_last, listed_sums)
            base = present[output] if missing_right else sums[output]
            lower, upper = _bounds_of(sums, output)
            _add_scores(
                listed_sums, base, sums[output], units[output], reg_lambda, alpha, max_delta_step, lower, upper, gains, left,
                listed,
            )  # fmt: skip
        for j in range(n):
            gain = gains[j]
            if noise > 0.0:
                gain -= noise_gain_of_outputs(listed[j], held_weight, n_equal, n_outputs, noise)
            choice, rank, best_rank = 4 * j + kind, gain_rank(gain), gain_rank(best_gain)
            is_better = rank > best_rank or (rank == best_rank and choice < best_choice)
            if gain > threshold and is_better and is_candidate(left[j], left[j], weight, least):
                best_gain, best_choice = gain, choice
    return best_gain, best_choice


@parallel_kernel.part
def _sum_listed(hist, order, takes_one, is_last, listed):
    """listed[j], OUT: sums of one output over the first or the last j + 1 in order, or over the j-th alone. hist : int64
    (n_categories, 2), IN."""
    grad, hess = int64(0), int64(0)
    for j in range(listed.shape[0]):
        category = order[order.size - 1 - j if is_last else j]
        if takes_one:
            grad, hess = int64(0), int64(0)
        grad, hess = grad + hist[category, 0], hess + hist[category, 1]
        listed[j, 0], listed[j, 1] = grad, hess


@parallel_kernel.part
def _add_scores(
    listed_sums, base, sums, units, reg_lambda, alpha, max_delta_step, lower, upper, gains, left, listed
):  # fmt: skip
    """Add one output's part to the gains of candidates, the hessians of their left children and of what they list. base : what
    the left child has where nothing is listed: all, or what is present."""
    node_grad, node_hess = sums[0] * units[0], sums[1] * units[1]
    for j in range(listed_sums.shape[0]):
        listed[j] += listed_sums[j, 1] * units[1]
        gl, hl = (base[0] - listed_sums[j, 0]) * units[0], (base[1] - listed_sums[j, 1]) * units[1]
        left[j] += hl
        score = node_term(gl, hl, reg_lambda, alpha, max_delta_step, lower, upper)
        gains[j] += score + node_term(node_grad - gl, node_hess - hl, reg_lambda, alpha, max_delta_step, lower, upper)


@parallel_kernel.part
def _bounds_of(sums, output):
    """On the weight of an output. sums : int64 (n_outputs, 2 or 4), IN."""
    if sums.shape[1] > 2:
        return bits_double(uint64(sums[output, 2])), bits_double(uint64(sums[output, 3]))
    return float64(-np.inf), float64(np.inf)


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. As in category_splits.py, beside whose kernels these run: a block takes a feature of a node, and has a row of scratch for
# it. Sums over categories of numbers that are no integers are a thread's, from the first category to the last, as on the CPU: a
# thread takes an output there, and a category where sums go over the outputs.

VECTORS = 3  # of outputs in a row of scratch: mean, direction, how far the categories lie apart


def scratch_size(size, n_outputs):
    """float64 in a row of scratch. size : of a row of keys."""
    return 2 * size + VECTORS * n_outputs


@device_function
def units_of(scales, output):
    return inverse_of_power(scales[output, 0]), inverse_of_power(scales[output, 1])


@device_function
def bounds_of(sums, node, output):
    """On the weight of an output."""
    lower, upper = float64(-np.inf), float64(np.inf)
    if sums.shape[2] > 2:
        lower, upper = bits_double(uint64(sums[node, output, 2])), bits_double(uint64(sums[node, output, 3]))
    return lower, upper


@device_function
def order_vectors(
    row, size, slot, node, first, n, scale, hist, sums, scales, takes_one, smooth, rules, order, keys, scratch, partial
):  # fmt: skip
    """How many categories the node holds. order[row, :n_held], OUT, are these. All threads call it. scratch[row] : weights of
    categories, room that is not used here, mean, direction and distances of outputs."""
    n_outputs, held = int64(hist.shape[1]), int64(0)
    mean, direction, apart = 2 * size, 2 * size + n_outputs, 2 * size + 2 * n_outputs
    category = int64(cuda.threadIdx.x)
    while category < size:
        weight = float64(0.0)
        if category < n:
            for output in range(n_outputs):
                weight += hist[slot, output, first + category, 1] * inverse_of_power(scales[scale + output, 1])
        order[row, category], scratch[row, category] = int32(category), weight
        keys[row, category] = float64(category) if weight > float64(0.0) else float64(np.inf)
        category += int64(cuda.blockDim.x)
    n_light, units, steps = int64(0), int64(0), int64(0)
    category = int64(cuda.threadIdx.x)
    while category < n and not takes_one:
        if is_light(scratch[row, category], n_outputs, rules[0].cat_noise):
            key = float64(np.inf)
            for output in range(n_outputs):
                grad_unit, hess_unit = units_of(scales, scale + output)
                hess = hist[slot, output, first + category, 1] * hess_unit
                if hess > float64(0.0):
                    grad = hist[slot, output, first + category, 0] * grad_unit
                    middle = mean_of(sums[node, output, 0] * grad_unit, sums[node, output, 1] * hess_unit)
                    n_light += 1
                    units += units_apart(grad, hess, middle, rules)
                    steps += units_of_steps(hess, rules)
                    key = float64(category) if is_evident(grad, hess, middle, rules) else key
            keys[row, category] = key
        category += int64(cuda.blockDim.x)
    n_light, units, steps = block_sum(n_light, partial), block_sum(units, partial), block_sum(steps, partial)
    lie_apart = n_light > 0 and least_held(n_light, units, steps, float64(1.0)) == float64(0.0)
    category = int64(cuda.threadIdx.x)
    while category < size:
        if lie_apart and scratch[row, category] > float64(0.0):
            keys[row, category] = float64(category)
        if keys[row, category] < float64(np.inf):
            held += 1
        else:
            scratch[row, category] = float64(0.0)
        category += int64(cuda.blockDim.x)
    n_held = block_sum(held, partial)  # its barriers also make the weights known
    if not takes_one and n_held > 0:  # the same for all threads
        output = int64(cuda.threadIdx.x)
        while output < n_outputs:
            grad_unit, hess_unit = units_of(scales, scale + output)
            held_weight, total = float64(0.0), float64(0.0)
            for category in range(n):
                grad, hess = hist[slot, output, first + category, 0], hist[slot, output, first + category, 1]
                held_weight += scratch[row, category]
                total += scratch[row, category] * value_of(grad, hess, grad_unit, hess_unit, smooth)
            middle, distance = total / held_weight, float64(0.0)
            for category in range(n):
                grad, hess = hist[slot, output, first + category, 0], hist[slot, output, first + category, 1]
                u = value_of(grad, hess, grad_unit, hess_unit, smooth) - middle
                distance += scratch[row, category] * (u * u)
            scratch[row, mean + output] = middle
            scratch[row, apart + output] = distance * (sums[node, output, 1] * hess_unit)
            output += int64(cuda.blockDim.x)
        cuda.syncthreads()  # distances are known
        best = int64(0)
        for output in range(1, n_outputs):
            if scratch[row, apart + output] > scratch[row, apart + best]:
                best = int64(output)
        output = int64(cuda.threadIdx.x)
        while output < n_outputs:
            scratch[row, direction + output] = float64(1.0) if output == best else float64(0.0)
            output += int64(cuda.blockDim.x)
        cuda.syncthreads()  # the direction is known
        step, n_steps = int64(0), int64(STEPS)
        while step <= n_steps:
            category = int64(cuda.threadIdx.x)
            while category < n:
                if scratch[row, category] > float64(0.0):
                    key = float64(0.0)
                    for output in range(n_outputs):
                        grad, hess = hist[slot, output, first + category, 0], hist[slot, output, first + category, 1]
                        grad_unit, hess_unit = units_of(scales, scale + output)
                        u = value_of(grad, hess, grad_unit, hess_unit, smooth)
                        key += scratch[row, direction + output] * (u - scratch[row, mean + output])
                    keys[row, category] = key
                category += int64(cuda.blockDim.x)
            cuda.syncthreads()  # keys are known
            if step < n_steps:
                output = int64(cuda.threadIdx.x)
                while output < n_outputs:
                    grad_unit, hess_unit = units_of(scales, scale + output)
                    total = float64(0.0)
                    for category in range(n):
                        if scratch[row, category] > float64(0.0):
                            grad, hess = hist[slot, output, first + category, 0], hist[slot, output, first + category, 1]
                            u = value_of(grad, hess, grad_unit, hess_unit, smooth)
                            total += scratch[row, category] * keys[row, category] * u
                    scratch[row, direction + output] = sums[node, output, 1] * hess_unit * total
                    output += int64(cuda.blockDim.x)
                cuda.syncthreads()  # the direction is known
                largest = float64(0.0)
                for output in range(n_outputs):
                    largest = larger(largest, abs(scratch[row, direction + output]))
                cuda.syncthreads()  # all threads have read it
                output = int64(cuda.threadIdx.x)
                while output < n_outputs and largest > float64(0.0):
                    scratch[row, direction + output] /= largest
                    output += int64(cuda.blockDim.x)
                cuda.syncthreads()  # the direction is known
            step += 1
    sort_block(row, size, order, keys)
    return n_held


@cuda_kernel(
    "begin: int64, n: int64, max_depth: int64, progress: PROGRESS[:], nodes: NODE[:], sums: int64[:, :, :], "
    "hist: int64[:, :, :, :], offsets: int32[:], features: int32[:], categorical: uint8[:], feature_mask: uint8[:, :], "
    "scales: float64[:, :], first_output: int32[:], penalty: PENALTY[:], rules: CATEGORY_RULES[:], gains: float64[:, :], "
    "choices: int32[:, :], order: int32[:, :], keys: float64[:, :], scratch: float64[:, :]",
    block=128, registers=255, uses_double=True,
)  # fmt: skip
def evaluate_category_vectors_kernel(
    begin, n, max_depth, progress, nodes, sums, hist, offsets, features, categorical, feature_mask, scales, first_output, penalty,
    rules, gains, choices, order, keys, scratch,
):  # fmt: skip
    """category_splits.evaluate_category_splits_kernel for trees of several outputs. scratch : float64 (≥ blocks, scratch_size),
    SCRATCH."""
    partial, best_gains, best_choices = cuda.shared.array(32, int64), cuda.shared.array(32, float64), cuda.shared.array(32, int32)
    n_columns, row, size, n_outputs = int64(features.size), int64(cuda.blockIdx.x), int64(order.shape[1]), int64(hist.shape[1])
    alpha, max_delta_step = penalty[0].reg_alpha, penalty[0].max_delta_step
    item = int64(cuda.blockIdx.x)
    while item < n * n_columns:
        i, column = item // n_columns, item % n_columns
        item += int64(cuda.gridDim.x)
        if categorical[features[column]] == 0:
            continue  # all threads
        node = progress[0].frontier + begin + i
        best_gain, best_choice = float64(NO_GAIN), int32(0)
        mask_row = min(i, feature_mask.shape[0] - 1)
        if node < progress[0].n_nodes and (mask_row < 0 or feature_mask[mask_row, column] != 0):  # the same for all threads
            scale, slot = int64(first_output[nodes[node].tree]), int64(nodes[node].slot)
            reg_lambda, least, weight = penalty[0].reg_lambda, penalty[0].min_child_weight, float64(0.0)
            for output in range(n_outputs):
                weight += sums[node, output, 1] * inverse_of_power(scales[scale + output, 1])
            heavy = weight >= float64(2.0) * (least * n_outputs)
            if heavy and (max_depth == 0 or nodes[node].depth < max_depth):
                first, n_categories = int64(offsets[column]), int64(offsets[column + 1] - offsets[column]) - 1
                takes_one, most, noise = n_categories < rules[0].max_cat_to_onehot, int64(1), float64(0.0)
                n_held = order_vectors(
                    row, size, slot, node, first, n_categories, scale, hist, sums, scales, takes_one,
                    reg_lambda + rules[0].cat_smooth, rules, order, keys, scratch, partial,
                )  # fmt: skip
                parent, held_weight, n_equal, has_missing = float64(0.0), float64(0.0), float64(0.0), False
                for output in range(n_outputs):
                    grad_unit, hess_unit = units_of(scales, scale + output)
                    lower, upper = bounds_of(sums, node, output)
                    parent += node_term(
                        sums[node, output, 0] * grad_unit, sums[node, output, 1] * hess_unit, reg_lambda, alpha, max_delta_step,
                        lower, upper,
                    )  # fmt: skip
                    present_grad, present_hess, held_hess, roots = int64(0), int64(0), int64(0), int64(0)
                    j = int64(cuda.threadIdx.x)
                    while j < n_categories:
                        present_grad += hist[slot, output, first + j, 0]
                        present_hess += hist[slot, output, first + j, 1]
                        if j < n_held:
                            own_hess = hist[slot, output, first + order[row, j], 1]
                            held_hess, roots = held_hess + own_hess, roots + root_of(own_hess)
                        j += int64(cuda.blockDim.x)
                    present_grad, present_hess = block_sum(present_grad, partial), block_sum(present_hess, partial)
                    held_hess, roots = block_sum(held_hess, partial), block_sum(roots, partial)
                    has_missing |= present_grad != sums[node, output, 0] or present_hess != sums[node, output, 1]
                    held_weight += held_hess * hess_unit
                    n_equal += equal_categories(roots, held_hess)
                n_equal /= n_outputs
                threshold = larger(float64(MIN_GAIN), float64(RELATIVE_GAIN) * parent)
                if not takes_one:
                    reg_lambda, most, noise = reg_lambda + rules[0].cat_l2, rules[0].max_cat_threshold, rules[0].cat_noise
                    least = larger(least, rules[0].min_data_per_group)
                least *= n_outputs
                kind, n_kinds, n_tried = int64(0), int64(2) if takes_one else int64(4), n_held if takes_one else min(n_held, most)
                while kind < n_kinds:  # as the bits of a choice: the last, missing right
                    is_last, missing_right = kind >> 1, kind & 1
                    j = int64(cuda.threadIdx.x)
                    while j < n_tried:  # gains, hessians of left children, of categories listed: a thread's own
                        keys[row, j], scratch[row, j], scratch[row, size + j] = -parent, float64(0.0), float64(0.0)
                        j += int64(cuda.blockDim.x)
                    for output in range(n_outputs):
                        grad_unit, hess_unit = units_of(scales, scale + output)
                        total_grad, total_hess = sums[node, output, 0], sums[node, output, 1]
                        (lower, upper), base_grad, base_hess = bounds_of(sums, node, output), total_grad, total_hess
                        if missing_right:  # left go those present that are not listed
                            present_grad, present_hess, j = int64(0), int64(0), int64(cuda.threadIdx.x)
                            while j < n_categories:
                                present_grad += hist[slot, output, first + j, 0]
                                present_hess += hist[slot, output, first + j, 1]
                                j += int64(cuda.blockDim.x)
                            base_grad, base_hess = block_sum(present_grad, partial), block_sum(present_hess, partial)
                        first_grad, first_hess, tile = int64(0), int64(0), int64(0)
                        while tile < n_tried:
                            j = tile + int64(cuda.threadIdx.x)
                            grad, hess = int64(0), int64(0)
                            if j < n_tried:
                                category = first + order[row, n_held - 1 - j if is_last else j]
                                grad, hess = hist[slot, output, category, 0], hist[slot, output, category, 1]
                            if not takes_one:
                                before, tile_grad = block_prefix(grad, partial)
                                grad, first_grad = grad + before + first_grad, first_grad + tile_grad
                                before, tile_hess = block_prefix(hess, partial)
                                hess, first_hess = hess + before + first_hess, first_hess + tile_hess
                            tile += int64(cuda.blockDim.x)
                            if j < n_tried:
                                scratch[row, size + j] += hess * hess_unit
                                gl, hl = (base_grad - grad) * grad_unit, (base_hess - hess) * hess_unit
                                scratch[row, j] += hl
                                score = node_term(gl, hl, reg_lambda, alpha, max_delta_step, lower, upper)
                                gr, hr = total_grad * grad_unit - gl, total_hess * hess_unit - hl
                                score += node_term(gr, hr, reg_lambda, alpha, max_delta_step, lower, upper)
                                keys[row, j] += score
                    j = int64(cuda.threadIdx.x)
                    while j < n_tried:
                        gain, choice, left = keys[row, j], int32(4 * j + kind), scratch[row, j]
                        if noise > float64(0.0):
                            gain -= noise_gain_of_outputs(scratch[row, size + j], held_weight, n_equal, n_outputs, noise)
                        rank, best_rank = gain_rank(gain), gain_rank(best_gain)
                        is_better = rank > best_rank or (rank == best_rank and choice < best_choice)
                        if gain > threshold and is_better and is_candidate(left, left, weight, least):
                            best_gain, best_choice = gain, choice
                        j += int64(cuda.blockDim.x)
                    kind += int64(1) if has_missing else int64(2)
                best_gain, best_choice = block_best(best_gain, best_choice, best_gains, best_choices)
        if cuda.threadIdx.x == 0:
            gains[i, column], choices[i, column] = best_gain, best_choice


@cuda_kernel(
    "begin: int64, n: int64, progress: PROGRESS[:], nodes: NODE[:], sums: int64[:, :, :], left_sums: int64[:, :, :], "
    "cats: uint32[:, :], hist: int64[:, :, :, :], offsets: int32[:], features: int32[:], categorical: uint8[:], "
    "scales: float64[:, :], first_output: int32[:], penalty: PENALTY[:], rules: CATEGORY_RULES[:], order: int32[:, :], "
    "keys: float64[:, :], scratch: float64[:, :]",
    block=256, registers=240, uses_double=True,
)  # fmt: skip
def list_category_vectors_kernel(
    begin, n, progress, nodes, sums, left_sums, cats, hist, offsets, features, categorical, scales, first_output, penalty, rules,
    order, keys, scratch,
):  # fmt: skip
    """category_splits.list_categories_kernel for trees of several outputs."""
    partial = cuda.shared.array(32, int64)
    row, size, i = int64(cuda.blockIdx.x), int64(order.shape[1]), int64(cuda.blockIdx.x)
    while i < n:
        node = progress[0].frontier + begin + i
        i += int64(cuda.gridDim.x)
        if node >= progress[0].n_nodes or nodes[node].gain == NO_GAIN or categorical[nodes[node].feature] == 0:
            continue  # all threads
        column = owner_of(features, features.size, nodes[node].feature)
        first, n_categories = int64(offsets[column]), int64(offsets[column + 1] - offsets[column]) - 1
        scale, slot = int64(first_output[nodes[node].tree]), int64(nodes[node].slot)
        takes_one = n_categories < rules[0].max_cat_to_onehot
        n_held = order_vectors(
            row, size, slot, node, first, n_categories, scale, hist, sums, scales, takes_one,
            penalty[0].reg_lambda + rules[0].cat_smooth, rules, order, keys, scratch, partial,
        )  # fmt: skip
        take_choice(
            row, size, node, nodes, sums, left_sums, cats, hist, slot, first, n_categories, n_held, takes_one, order, keys,
            partial,
        )  # fmt: skip
