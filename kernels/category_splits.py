"""Find the best split of every node by a set of categories, from its histograms.

A feature of categories has a bin for each of its n, and one more, which is empty in training (binned/cuts.py). Of the K that a
node holds (integer H_c > 0) a split lists some, which go right. The others go left, with all that the node lacks: also categories
of rows without hessian, whatever their gradients. Candidates:

    n < max_cat_to_onehot   each category alone
    else                    in ascending order of G_c / (H_c + λ + cat_smooth) the first m and the last m, m ≤ max_cat_threshold

    missing left:  R = Σ listed          missing right:  R = Σ listed + missing          L = (G, H) − R

Where λ = cat_smooth = 0 and no penalty or bound holds, the best of all 2^K sets is among the first m (Fisher 1958; Breiman et al.
1984, Theorem 4.5). All K are a candidate, too: against missing rows on the left.

Gain and what a candidate needs are those of kernels/splits.py. The children of an ordered set have λ + cat_l2 for λ, and each
needs a sum of hessians of min_data_per_group: LightGBM's brakes against sets that fit noise (its min_data_per_group also thins
the candidates out). Our own is cat_noise, s² > 0. Among many categories that differ by chance alone, the order puts those
together whose noise is alike. With gradients of variance s²·h (1·h for logistic loss) a list of a share f of the hessians gains

    s²·φ(Φ⁻¹(f))²/(f(1−f))·(Σ √H_c)²/H  ≈  s²·1.8·(f(1−f))^¾·(Σ √H_c)²/H,     0.64 K s² of K equal ones at f = ½

(exact at ½, up to 22 % less elsewhere), H and f of the categories held. What of this exceeds 3 s², which the best of many
thresholds gains by chance, too, is taken from the gain of a candidate; and categories with H_c < s², light ones, are not held:
they go left. But a rare event has a small hessian, and tells all the same: 40 rows that all have an event of which 5 % have any
weigh 1.9. With d_c = G_c − H_c·G/H of the node, of variance ½ S²·H_c, in steps of b a row (S² is s², or more where gradients
vary so: cat_spread and cat_step of gradient_noise.py), a light category is held where

    d_c² ≥ 8 (S²·H_c + ⅔ b·|d_c|)        by Bernstein's inequality two in 2,981 (e⁸) at most are by chance
    Σ d_c²/(S²·H_c)  ≥  n + 6 √(2 (n + Σ b²/(S²·H_c)))        over all n light ones: twice what chance makes it, and 12 σ above

(simulated, base rates of 0.1 to 50 %, 1 to 50 rows a category: the first 4 in a million or less, the second never)

10 of 200 categories of 20 rows have an event in each of them, the others none: AUC on other rows 0.50 -> 1.00, as XGBoost's;
1,000 categories of 6 rows of one class: log loss 0.71 -> 0.10 (XGBoost 0.002, which has no brake). Where chance alone tells
categories apart nothing changes, also under weights and of counts that vary more than their mean, nor on 17 of the 18 tables of
benchmarks/categories.py (taxi +0.1 ± 0.1 %).

The largest gain_rank wins; ties: lower feature, fewer categories listed, the first before the last (of one: the lower category),
missing left. A split of numbers meets one of categories by gain_rank and feature alone.

Trees of one output; category_vectors.py is for several. Monotone constraints are not for categories; bounds that others have set
hold.

    choice = 4·(m − 1) + 2·(the last m) + (missing right),  for one category: 4·(its place among those held) + (missing right)

ascends in the order of ties within a feature. Floor of a feature and node: 16 bytes read per category, and the sort.
"""

import math
from functools import cache

import numpy as np
from numba import float64, int32, int64, uint32

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.candidates import MIN_GAIN, RELATIVE_GAIN, add_gain_of, block_best, is_candidate, node_term
from gpuboost.kernels.cuda_common import (
    block_prefix,
    block_sum,
    cuda,
    cuda_kernel,
    device_function,
    owner_of,
)
from gpuboost.kernels.jit import claim, launch, parallel_kernel, scalar
from gpuboost.kernels.scalar import gain_rank, larger, smaller
from gpuboost.kernels.short_sorts import sort_order
from gpuboost.kernels.structs import CATEGORICAL, EMPTY_WORDS, NO_GAIN

ROOT_UNITS = 2.0**20  # of a root in sums, which are integers: they do not depend on their order, and √(K·H) < 2^40
PROBES = 40
MANY, FEW = 8, 64  # times as many as are listed at most, and these are few: then only the ends of the order are found
NULL_GAIN = 1.8
FREE_GAIN = 3.0
EVIDENCE, DEVIATIONS = 8.0, 6.0
SHARE_UNITS, MOST = 2.0**16, 2.0**20  # of sums over light categories


def count_words(n_categories: np.ndarray) -> int:
    """uint32 that a node's set takes (kernels/structs.py). n_categories : int32 (n_features,), 0 for numbers."""
    most = int(n_categories.max(initial=0))
    return 1 + (most + 32) // 32 if most else EMPTY_WORDS  # codes up to the one for no category


@scalar
def category_key(category, grad, hess, takes_one, smooth):
    """What categories are ordered by: G/(H + smooth), or where a split takes one of them its number."""
    return float64(category) if takes_one else grad / (hess + smooth)


@scalar
def mean_of(grad, hess):
    """G/H of a node, by which its categories are compared."""
    return grad / hess if hess > float64(0.0) else float64(0.0)


@scalar
def is_evident(grad, hess, mean, rules):
    """Whether a light category tells by itself."""
    apart = abs(grad - hess * mean)
    return apart * apart >= float64(EVIDENCE) * (rules[0].cat_spread * hess + float64(2.0 / 3.0) * rules[0].cat_step * apart)


@scalar
def units_apart(grad, hess, mean, rules):
    """d²/(S²·H) of a light category, as an integer in 1 / SHARE_UNITS; no more than MOST."""
    apart = grad - hess * mean
    return int64(smaller(apart * apart / (rules[0].cat_spread * hess), float64(MOST)) * float64(SHARE_UNITS))


@scalar
def units_of_steps(hess, rules):
    """b²/(S²·H), likewise."""
    step = rules[0].cat_step
    return int64(smaller(step * step / (rules[0].cat_spread * hess), float64(MOST)) * float64(SHARE_UNITS))


@scalar
def least_held(n, apart, steps, noise):
    """The hessian from which a category is held whatever its gradient: none, where the light ones lie apart. n : int64, of these.
    apart, steps : sums of units_apart and units_of_steps."""
    deviation = math.sqrt(float64(2.0) * (float64(n) + float64(steps) / float64(SHARE_UNITS)))
    return float64(0.0) if float64(apart) / float64(SHARE_UNITS) >= float64(n) + float64(DEVIATIONS) * deviation else noise


@scalar
def is_held(grad, hess, mean, least, rules):
    """Whether a category takes part. grad, hess : float64."""
    if least <= float64(0.0):  # a loop over categories is made once with this and once without
        return hess > float64(0.0)
    return (hess > float64(0.0)) & ((hess >= least) | is_evident(grad, hess, mean, rules))


@scalar
def root_of(hess):
    """√H as an integer, in 1 / ROOT_UNITS of its unit. hess : int64."""
    return int64(math.sqrt(float64(hess)) * float64(ROOT_UNITS))


@scalar
def noise_gain(listed_hess, held_hess, roots, noise):
    """What chance adds to the gain of a set. listed_hess, held_hess, roots : int64; Σ √H_c by root_of."""
    share = float64(listed_hess) / float64(held_hess)
    spread, root = math.sqrt(share * (float64(1.0) - share)), float64(roots) / float64(ROOT_UNITS)
    gain = float64(NULL_GAIN) * (spread * math.sqrt(spread)) * (root * root / float64(held_hess))
    return noise * larger(gain - float64(FREE_GAIN), float64(0.0))


@scalar
def first_listed(choice, n_held, takes_one):
    """The place of the first listed category in the order."""
    return int64(choice >> 2) if takes_one else ((n_held - 1 - (choice >> 2)) * ((choice >> 1) & 1))


@scalar
def count_listed(choice, takes_one):
    """How many are listed, from there on."""
    return int64(1) if takes_one else int64(choice >> 2) + 1


@cache
def evaluate_category_splits(gain):
    """The kernel that finds the best set of every node, and makes it the node's split where it beats that of numbers.

    gain : as splits.evaluate_splits, whose kernel comes before. Arguments of the same names as there.

    nodes : NODE (n_nodes,), INOUT. left_sums : int64 (n_nodes, 1, 2), INOUT.
    cats : uint32 (n_nodes, n_words), OUT, of nodes whose split is a set (kernels/structs.py).
    columns : int32 (m,), IN. Which of the histograms' features are categories, ascending.
    rules : CATEGORY_RULES (1,), IN.
    gains : float64 (n, m), choices : int64 (n, m), SCRATCH. The best of each feature.
    order : int32 (n_threads, ≥ categories of any, and ≥ short_sorts.ROOM), keys : float64, same shape, SCRATCH.
    """

    def evaluate_category_splits_cpu(
        frontier, nodes, sums, left_sums, cats, hist, columns, offsets, features, feature_mask, inverse_scales, first_output,
        reg_lambda, alpha, max_delta_step, min_child_weight, rules, parameters, gains, choices, order, keys, n_threads,
    ):  # fmt: skip
        counter = zeros(1, np.int64)
        args = (
            counter, frontier, nodes, sums, hist, columns, offsets, features, feature_mask, inverse_scales, first_output,
            reg_lambda, alpha, max_delta_step, min_child_weight, rules, gain, parameters, gains, choices, order, keys,
        )  # fmt: skip
        launch(n_threads, _search_items, args)
        for i in range(frontier.size):
            _take_best(
                i, frontier, nodes, sums, left_sums, cats, hist, columns, offsets, features, inverse_scales, first_output,
                reg_lambda, rules, gains, choices, order[0], keys[0],
            )  # fmt: skip

    return parallel_kernel(evaluate_category_splits_cpu, gain)


@parallel_kernel.part
def _search_items(
    thread, counter, frontier, nodes, sums, hist, columns, offsets, features, feature_mask, inverse_scales, first_output,
    reg_lambda, alpha, max_delta_step, min_child_weight, rules, gain_of, parameters, gains, choices, order, keys
):  # fmt: skip
    order, keys = order[thread], keys[thread]
    while True:
        item = claim(counter)
        if item >= frontier.size * columns.size:
            return
        i, k = item // columns.size, item % columns.size
        node, column, mask_row = frontier[i], columns[k], min(i, feature_mask.shape[0] - 1)
        gains[i, k] = NO_GAIN
        units = inverse_scales[first_output[nodes[node].tree]]
        too_light = sums[node, 0, 1] * units[1] < 2.0 * min_child_weight
        if not too_light and (mask_row < 0 or feature_mask[mask_row, column] != 0):
            own = hist[nodes[node].slot, 0, offsets[column] : offsets[column + 1] - 1]
            gains[i, k], choices[i, k] = _best_set(
                own, sums[node, 0], units, reg_lambda, alpha, max_delta_step, min_child_weight, nodes[node].lower,
                nodes[node].upper, features[column], rules, gain_of, parameters, order, keys,
            )  # fmt: skip


@parallel_kernel.part
def _least_held(hist, units, mean, takes_one, rules):
    """least_held of a node's categories; 0 where a split takes one of them. hist : int64 (n_categories, 2), IN."""
    noise = rules[0].cat_noise
    n, apart, steps = int64(0), int64(0), int64(0)
    for category in range(0 if takes_one else hist.shape[0]):
        grad, hess = hist[category, 0] * units[0], hist[category, 1] * units[1]
        if float64(0.0) < hess and hess < noise:
            n += 1
            apart += units_apart(grad, hess, mean, rules)
            steps += units_of_steps(hess, rules)
    return least_held(n, apart, steps, noise) if n > 0 else float64(0.0)


@parallel_kernel.part
def _order_categories(hist, units, mean, least, takes_one, smooth, rules, most, order, keys):
    """How many categories the node holds; order[:n] are these, the first and the last of them in order, as many as most. (Of many
    that is all: the others are undefined.)
    hist : int64 (n_categories, 2), IN. mean : of the node. least : of _least_held."""
    n_held = int64(0)
    for category in range(hist.shape[0]):  # no branches, which light categories make hard to foretell
        grad, hess = hist[category, 0] * units[0], hist[category, 1] * units[1]
        order[n_held], keys[n_held] = category, category_key(category, grad, hess, takes_one, smooth)
        n_held += int64(is_held(grad, hess, mean, least, rules))
    if not takes_one and most <= FEW and n_held >= MANY * most:
        sort_ends(most, order[:n_held], keys[:n_held])
    elif not takes_one:
        sort_order(n_held, order, keys)  # stable: ties by category
    return n_held


@parallel_kernel.part
def sort_ends(n, order, keys):
    """Bring the n first and the n last of order, which ascends, where a stable sort by key would; what is between is undefined.
    keys : of each place, IN."""
    first, last = empty(n, np.int64), empty(n, np.int64)  # places by ascending key
    places = empty(order.size, np.int64)
    for i in range(_list_lowest(n, 1.0, keys, places)):
        key = keys[places[i]]
        if i < n or key < keys[first[n - 1]]:
            at = min(i, n - 1)
            while at > 0 and keys[first[at - 1]] > key:
                first[at] = first[at - 1]
                at -= 1
            first[at] = places[i]
    for i in range(_list_lowest(n, -1.0, keys, places)):
        key = keys[places[i]]
        if i < n:
            at = i
            while at > 0 and keys[last[at - 1]] > key:
                last[at] = last[at - 1]
                at -= 1
            last[at] = places[i]
        elif key >= keys[last[0]]:
            at = 0
            while at < n - 1 and keys[last[at + 1]] <= key:
                last[at] = last[at + 1]
                at += 1
            last[at] = places[i]
    for i in range(n):
        first[i], last[i] = order[first[i]], order[last[i]]
    order[:n], order[order.size - n :] = first, last


@parallel_kernel.part
def _list_lowest(n, sign, keys, places):
    """List the places of the n lowest of sign · key and of few others, ascending, and those of all keys equal to one of them; all
    places where no more than PROBES tell these apart. Returns how many. A probe counts, in vectors: to put 1,000 categories in
    order, 64 from either end, took 29 µs without it, 11 with it (a busy Intel Xeon)."""
    low, high, cut = np.inf, -np.inf, np.inf
    for i in range(keys.size):
        low, high = min(low, sign * keys[i]), max(high, sign * keys[i])
    for _ in range(PROBES):
        middle, n_below = 0.5 * (low + high), int64(0)
        for i in range(keys.size):
            n_below += int64(sign * keys[i] < middle)
        if n_below < n:
            low = middle
            continue
        high = cut = middle
        if n_below <= n + n // 8:
            break
    n_listed = int64(0)
    for i in range(keys.size):
        places[n_listed] = i
        n_listed += int64(sign * keys[i] < cut)
    return n_listed


@parallel_kernel.part
def _best_set(
    hist, sums, units, reg_lambda, alpha, max_delta_step, min_child_weight, lower, upper, feature, rules, gain_of, parameters,
    order, keys,
):  # fmt: skip
    """(gain, choice) of one feature; gain is −inf where no gain exceeds the threshold."""
    takes_one = hist.shape[0] < rules[0].max_cat_to_onehot
    noise, most = rules[0].cat_noise, rules[0].max_cat_threshold
    mean, smooth = mean_of(sums[0] * units[0], sums[1] * units[1]), reg_lambda + rules[0].cat_smooth
    least = _least_held(hist, units, mean, takes_one, rules)
    n_held = _order_categories(hist, units, mean, least, takes_one, smooth, rules, most, order, keys)
    parent = node_term(sums[0] * units[0], sums[1] * units[1], reg_lambda, alpha, max_delta_step, lower, upper)
    threshold = larger(MIN_GAIN, RELATIVE_GAIN * parent)
    if takes_one:
        most = int64(1)
    else:
        reg_lambda += rules[0].cat_l2
        min_child_weight = larger(min_child_weight, rules[0].min_data_per_group)
    missing_grad, missing_hess = sums[0], sums[1]
    held_grad, held_hess, roots = int64(0), int64(0), int64(0)
    for category in range(hist.shape[0]):  # not in their order, so that it is vectorised
        missing_grad -= hist[category, 0]
        missing_hess -= hist[category, 1]
        counts = int64(is_held(hist[category, 0] * units[0], hist[category, 1] * units[1], mean, least, rules))
        held_grad += counts * hist[category, 0]
        held_hess += counts * hist[category, 1]
        roots += counts * root_of(hist[category, 1])
    has_missing = missing_grad != 0 or missing_hess != 0
    best_gain, best_choice = NO_GAIN, int64(0)
    first_grad, first_hess = int64(0), int64(0)
    j = int64(-1)
    while j + 1 < n_held:
        j += 1
        if not takes_one and most <= j < n_held - 1 - most:  # none of them ends a set
            j, first_grad, first_hess = n_held - 1 - most, held_grad, held_hess
            for place in range(j, n_held):
                first_grad -= hist[order[place], 0]
                first_hess -= hist[order[place], 1]
        if takes_one:
            first_grad, first_hess = int64(0), int64(0)
        first_grad += hist[order[j], 0]
        first_hess += hist[order[j], 1]
        for is_last in range(1 if takes_one else 2):
            n_listed = n_held - 1 - j if is_last else 1 if takes_one else j + 1
            if n_listed == 0 or n_listed > most:
                continue
            grad, hess = (held_grad - first_grad, held_hess - first_hess) if is_last else (first_grad, first_hess)
            by_chance = 0.0 if takes_one else noise_gain(hess, held_hess, roots, noise)
            for missing_right in range(2 if has_missing else 1):
                gain = _gain_of_set(
                    sums[0] - grad - missing_right * missing_grad, sums[1] - hess - missing_right * missing_hess, sums, units,
                    parent, reg_lambda, alpha, max_delta_step, min_child_weight, lower, upper, feature, gain_of, parameters,
                ) - by_chance  # fmt: skip
                choice = 4 * (j if takes_one else n_listed - 1) + 2 * is_last + missing_right
                rank, best_rank = gain_rank(gain), gain_rank(best_gain)
                if gain > threshold and (rank > best_rank or (rank == best_rank and choice < best_choice)):
                    best_gain, best_choice = gain, choice
    return best_gain, best_choice


@parallel_kernel.part
def _gain_of_set(
    left_grad, left_hess, sums, units, parent, reg_lambda, alpha, max_delta_step, min_child_weight, lower, upper, feature,
    gain_of, parameters,
):  # fmt: skip
    """The gain of one candidate, or −inf."""
    grad, hess = sums[0] * units[0], sums[1] * units[1]
    gl, hl = left_grad * units[0], left_hess * units[1]
    gr, hr = grad - gl, hess - hl
    smallest = larger(min_child_weight, units[1])  # one unit of fixed point: integer H > 0
    if not (hl >= smallest and hr >= smallest):
        return NO_GAIN
    if gain_of is not None:
        return gain_of(gl, hl, gr, hr, grad, hess, reg_lambda, alpha, max_delta_step, lower, upper, feature, parameters)
    return -parent + (
        node_term(gl, hl, reg_lambda, alpha, max_delta_step, lower, upper)
        + node_term(gr, hr, reg_lambda, alpha, max_delta_step, lower, upper)
    )


@parallel_kernel.part
def _take_best(
    i, frontier, nodes, sums, left_sums, cats, hist, columns, offsets, features, inverse_scales, first_output, reg_lambda, rules,
    gains, choices, order, keys,
):  # fmt: skip
    """The best of a node's features of categories, in feature order, becomes its split, unless the one that it has is better."""
    node = frontier[i]
    k = best_feature(nodes, node, columns, features, gains, i)
    if k < 0:
        return
    column = columns[k]
    own = hist[nodes[node].slot, 0, offsets[column] : offsets[column + 1] - 1]
    units, takes_one = inverse_scales[first_output[nodes[node].tree]], own.shape[0] < rules[0].max_cat_to_onehot
    smooth, most = reg_lambda + rules[0].cat_smooth, rules[0].max_cat_threshold
    mean = mean_of(sums[node, 0, 0] * units[0], sums[node, 0, 1] * units[1])
    least = _least_held(own, units, mean, takes_one, rules)
    n_held = _order_categories(own, units, mean, least, takes_one, smooth, rules, most, order, keys)
    nodes[node].gain, nodes[node].feature = gains[i, k], features[column]
    begin, end = int64(offsets[column]), int64(offsets[column + 1] - 1)
    take_set(node, nodes, sums, left_sums, cats, hist, begin, end, choices[i, k], order, n_held, takes_one)


@parallel_kernel.part
def best_feature(nodes, node, columns, features, gains, i):
    """Which of ``columns`` gains most by gains[i], in feature order; −1 where none does, or what the node has is better."""
    k = 0
    for other in range(1, columns.size):
        if gain_rank(gains[i, other]) > gain_rank(gains[i, k]):
            k = other
    rank, rank_of_numbers = gain_rank(gains[i, k]), gain_rank(nodes[node].gain)
    is_worse = rank < rank_of_numbers or (rank == rank_of_numbers and nodes[node].feature < features[columns[k]])
    return -1 if gains[i, k] == NO_GAIN or is_worse else k


@parallel_kernel.part
def take_set(node, nodes, sums, left_sums, cats, hist, begin, end, choice, order, n_held, takes_one):
    """Make a choice the set of a node's split, of the feature whose categories are the bins begin to end. order[:n_held] : those
    that the node holds."""
    slot, first = nodes[node].slot, first_listed(choice, n_held, takes_one)
    last = first + count_listed(choice, takes_one)
    cats[node, 0] = uint32(32 * (cats.shape[1] - 1))
    cats[node, 1:] = uint32(0)
    for place in range(first, last):
        cats[node, 1 + (order[place] >> 5)] |= uint32(1) << uint32(order[place] & 31)
    nodes[node].bin, nodes[node].kind, nodes[node].default_left = 0, CATEGORICAL, 1 - (choice & 1)
    for output in range(sums.shape[1]):
        for of in range(2):
            left = sums[node, output, of]
            if choice & 1:  # missing right, too
                left = int64(0)
                for b in range(begin, end):
                    left += hist[slot, output, b, of]
            for place in range(first, last):
                left -= hist[slot, output, begin + order[place], of]
            left_sums[node, output, of] = left


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A block sorts the categories of one feature of one node, in global memory that a cache holds, and scans them. It runs
# between the two kernels of splits.py: what the first wrote for features of categories, which means nothing, it writes anew. A
# last kernel makes sets of the choices that won.


@device_function
def least_of_block(slot, first, n, hist, grad_unit, hess_unit, mean, takes_one, rules, partial):
    """_least_held. All threads call it."""
    noise = rules[0].cat_noise
    category, n_light, apart, steps = int64(cuda.threadIdx.x), int64(0), int64(0), int64(0)
    while category < n and not takes_one:
        grad, hess = hist[slot, 0, first + category, 0] * grad_unit, hist[slot, 0, first + category, 1] * hess_unit
        if float64(0.0) < hess and hess < noise:
            n_light += 1
            apart += units_apart(grad, hess, mean, rules)
            steps += units_of_steps(hess, rules)
        category += int64(cuda.blockDim.x)
    n_light, apart, steps = block_sum(n_light, partial), block_sum(apart, partial), block_sum(steps, partial)
    return least_held(n_light, apart, steps, noise) if n_light > 0 else float64(0.0)


@device_function
def order_of_block(
    row, size, slot, first, n, hist, grad_unit, hess_unit, mean, least, takes_one, smooth, rules, order, keys, partial
):  # fmt: skip
    """How many categories the node holds. order[row, :n_held], OUT, are these. All threads call it. size : a power of two ≥ n."""
    category, held = int64(cuda.threadIdx.x), int64(0)
    while category < size:
        key = float64(np.inf)
        if category < n:
            grad, hess = hist[slot, 0, first + category, 0] * grad_unit, hist[slot, 0, first + category, 1] * hess_unit
            if is_held(grad, hess, mean, least, rules):
                key = category_key(category, grad, hess, takes_one, smooth)
                held += 1
        order[row, category], keys[row, category] = int32(category), key
        category += int64(cuda.blockDim.x)
    n_held = block_sum(held, partial)  # its barriers also make the keys known
    sort_block(row, size, order, keys)
    return n_held


@device_function
def sort_block(row, size, order, keys):
    """Bring the categories order[row] into the order of keys[row], which all threads know. All threads call it."""
    width = int64(2)
    while width <= size:  # Batcher's bitonic sort, by key, then category
        step = width >> 1
        while step > 0:
            i = int64(cuda.threadIdx.x)
            while i < size >> 1:
                low = 2 * i - (i & (step - 1))
                high, ascends = low + step, (low & width) == 0
                key, other = keys[row, low], keys[row, high]
                category, other_category = order[row, low], order[row, high]
                if (key > other or (key == other and category > other_category)) == ascends:
                    keys[row, low], keys[row, high] = other, key
                    order[row, low], order[row, high] = other_category, category
                i += int64(cuda.blockDim.x)
            cuda.syncthreads()  # pairs are in order
            step >>= 1
        width <<= 1


@cache
def evaluate_category_splits_kernel(bounded, gain):
    """The kernel that finds the best set of every feature of categories, for the nodes frontier + begin + i, i < n.

    categorical : uint8 (n_features,), IN. 1 for features of categories. rules : CATEGORY_RULES (1,), IN.
    gains, choices : OUT, for features of categories.
    order : int32 (≥ blocks, size), keys : float64, same shape, SCRATCH. size : a power of two, no smaller than any n_categories.
    Others as splits.evaluate_splits_kernel.

    A sort of 1,024 categories is 55 passes over 12 KB in the first-level cache.
    """

    is_own, add_gain = gain is not None, add_gain_of(gain)

    def evaluate_category_splits(
        begin, n, max_depth, progress, nodes, sums, hist, offsets, features, categorical, feature_mask, scales, first_output,
        penalty, rules, parameters, gains, choices, order, keys,
    ):  # fmt: skip
        partial, best_gains, best_choices = (
            cuda.shared.array(32, int64), cuda.shared.array(32, float64), cuda.shared.array(32, int32)
        )  # fmt: skip
        n_columns, row, size = int64(features.size), int64(cuda.blockIdx.x), int64(order.shape[1])
        alpha, max_delta_step, lower, upper = penalty[0].reg_alpha, float64(0.0), float64(-np.inf), float64(np.inf)
        if bounded:
            max_delta_step = penalty[0].max_delta_step
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
                scale, slot = int64(first_output[nodes[node].tree]), nodes[node].slot
                grad_unit, hess_unit = float64(1.0) / scales[scale, 0], float64(1.0) / scales[scale, 1]
                if bounded:
                    lower, upper = nodes[node].lower, nodes[node].upper
                reg_lambda, min_child_weight = penalty[0].reg_lambda, penalty[0].min_child_weight
                heavy = sums[node, 0, 1] * hess_unit >= float64(2.0) * min_child_weight
                if heavy and (max_depth == 0 or nodes[node].depth < max_depth):
                    first, n_categories = int64(offsets[column]), int64(offsets[column + 1] - offsets[column]) - 1
                    takes_one, most = n_categories < rules[0].max_cat_to_onehot, int64(1)
                    total_grad, total_hess, noise = sums[node, 0, 0], sums[node, 0, 1], rules[0].cat_noise
                    mean = mean_of(total_grad * grad_unit, total_hess * hess_unit)
                    least = least_of_block(slot, first, n_categories, hist, grad_unit, hess_unit, mean, takes_one, rules, partial)
                    n_held = order_of_block(
                        row, size, slot, first, n_categories, hist, grad_unit, hess_unit, mean, least, takes_one,
                        reg_lambda + rules[0].cat_smooth, rules, order, keys, partial,
                    )  # fmt: skip
                    parent = node_term(
                        total_grad * grad_unit, total_hess * hess_unit, reg_lambda, alpha, max_delta_step, lower, upper
                    )
                    threshold = larger(float64(MIN_GAIN), float64(RELATIVE_GAIN) * parent)
                    if not takes_one:
                        reg_lambda, most = reg_lambda + rules[0].cat_l2, rules[0].max_cat_threshold
                        min_child_weight = larger(min_child_weight, rules[0].min_data_per_group)
                    held_grad, held_hess, roots = int64(0), int64(0), int64(0)
                    present_grad, present_hess, j = int64(0), int64(0), int64(cuda.threadIdx.x)
                    while j < n_categories:
                        own_grad, own_hess = hist[slot, 0, first + j, 0], hist[slot, 0, first + j, 1]
                        if is_held(own_grad * grad_unit, own_hess * hess_unit, mean, least, rules):
                            held_grad, held_hess, roots = held_grad + own_grad, held_hess + own_hess, roots + root_of(own_hess)
                        present_grad, present_hess = present_grad + own_grad, present_hess + own_hess
                        j += int64(cuda.blockDim.x)
                    held_grad, held_hess = block_sum(held_grad, partial), block_sum(held_hess, partial)
                    roots = block_sum(roots, partial)
                    missing_grad = total_grad - block_sum(present_grad, partial)
                    missing_hess = total_hess - block_sum(present_hess, partial)
                    first_grad, first_hess, tile = int64(0), int64(0), int64(0)
                    while tile < n_held:
                        j = tile + int64(cuda.threadIdx.x)
                        own_grad, own_hess = int64(0), int64(0)
                        if j < n_held:
                            own_grad = hist[slot, 0, first + order[row, j], 0]
                            own_hess = hist[slot, 0, first + order[row, j], 1]
                        before_grad, tile_grad = block_prefix(own_grad, partial)
                        before_hess, tile_hess = block_prefix(own_hess, partial)
                        if not takes_one:
                            own_grad, own_hess = own_grad + before_grad + first_grad, own_hess + before_hess + first_hess
                        first_grad, first_hess = first_grad + tile_grad, first_hess + tile_hess
                        tile += int64(cuda.blockDim.x)
                        for kind in range(4):  # as the bits of a choice: the last, missing right
                            is_last, missing_right = kind >> 1, kind & 1
                            n_listed = n_held - 1 - j if is_last else (int64(1) if takes_one else j + 1)
                            if j < n_held and 0 < n_listed and n_listed <= most and not (takes_one and is_last):
                                grad, hess = own_grad, own_hess
                                if is_last:
                                    grad, hess = held_grad - own_grad, held_hess - own_hess
                                by_chance = float64(0.0)
                                if not takes_one:
                                    by_chance = noise_gain(hess, held_hess, roots, noise)
                                if missing_right:
                                    grad, hess = grad + missing_grad, hess + missing_hess
                                candidate = add_gain(
                                    float64(0.0) if is_own else -parent, total_grad - grad, total_hess - hess, total_grad,
                                    total_hess, grad_unit, hess_unit, reg_lambda, alpha, max_delta_step, min_child_weight,
                                    lower, upper, int64(0), features[column], parameters,
                                ) - by_chance  # fmt: skip
                                left_hess, node_hess = (total_hess - hess) * hess_unit, total_hess * hess_unit
                                choice = int32(4 * (j if takes_one else n_listed - 1) + kind)
                                rank, best_rank = gain_rank(candidate), gain_rank(best_gain)
                                is_better = rank > best_rank or (rank == best_rank and choice < best_choice)
                                is_better &= is_candidate(left_hess, left_hess, node_hess, min_child_weight)
                                if candidate > threshold and is_better:
                                    best_gain, best_choice = candidate, choice
                    best_gain, best_choice = block_best(best_gain, best_choice, best_gains, best_choices)
            if cuda.threadIdx.x == 0:
                gains[i, column], choices[i, column] = best_gain, best_choice

    evaluate_category_splits.__name__ = f"evaluate_category_splits_kernel_{'bounded' if bounded else 'free'}"
    return cuda_kernel(
        "begin: int64, n: int64, max_depth: int64, progress: PROGRESS[:], nodes: NODE[:], sums: int64[:, :, :], "
        "hist: int64[:, :, :, :], offsets: int32[:], features: int32[:], categorical: uint8[:], feature_mask: uint8[:, :], "
        "scales: float64[:, :], first_output: int32[:], penalty: PENALTY[:], rules: CATEGORY_RULES[:], parameters: float64[:], "
        "gains: float64[:, :], choices: int32[:, :], order: int32[:, :], keys: float64[:, :]",
        block=128, registers=232 if bounded else 216, uses_double=True, formula=gain,
    )(evaluate_category_splits)  # fmt: skip


@cuda_kernel(
    "begin: int64, n: int64, progress: PROGRESS[:], nodes: NODE[:], sums: int64[:, :, :], left_sums: int64[:, :, :], "
    "cats: uint32[:, :], hist: int64[:, :, :, :], offsets: int32[:], features: int32[:], categorical: uint8[:], "
    "scales: float64[:, :], first_output: int32[:], penalty: PENALTY[:], rules: CATEGORY_RULES[:], order: int32[:, :], "
    "keys: float64[:, :]",
    block=256, registers=120, uses_double=True,
)  # fmt: skip
def list_categories_kernel(
    begin, n, progress, nodes, sums, left_sums, cats, hist, offsets, features, categorical, scales, first_output, penalty, rules,
    order, keys,
):  # fmt: skip
    """After splits.choose_splits_kernel: where a feature of categories won, the choice that lies in bin and default_left becomes
    a set. A block takes a node. nodes, left_sums : INOUT. cats : uint32 (n_nodes, n_words), OUT."""
    partial = cuda.shared.array(32, int64)
    row, size, i = int64(cuda.blockIdx.x), int64(order.shape[1]), int64(cuda.blockIdx.x)
    while i < n:
        node = progress[0].frontier + begin + i
        i += int64(cuda.gridDim.x)
        if node >= progress[0].n_nodes or nodes[node].gain == NO_GAIN or categorical[nodes[node].feature] == 0:
            continue  # all threads
        column = owner_of(features, features.size, nodes[node].feature)
        first, n_categories = int64(offsets[column]), int64(offsets[column + 1] - offsets[column]) - 1
        scale, slot = int64(first_output[nodes[node].tree]), nodes[node].slot
        grad_unit, hess_unit = float64(1.0) / scales[scale, 0], float64(1.0) / scales[scale, 1]
        takes_one = n_categories < rules[0].max_cat_to_onehot
        mean = mean_of(sums[node, 0, 0] * grad_unit, sums[node, 0, 1] * hess_unit)
        least = least_of_block(slot, first, n_categories, hist, grad_unit, hess_unit, mean, takes_one, rules, partial)
        n_held = order_of_block(
            row, size, slot, first, n_categories, hist, grad_unit, hess_unit, mean, least, takes_one,
            penalty[0].reg_lambda + rules[0].cat_smooth, rules, order, keys, partial,
        )  # fmt: skip
        take_choice(
            row, size, node, nodes, sums, left_sums, cats, hist, slot, first, n_categories, n_held, takes_one, order, keys,
            partial,
        )  # fmt: skip


@device_function
def take_choice(
    row, size, node, nodes, sums, left_sums, cats, hist, slot, first, n_categories, n_held, takes_one, order, keys, partial
):  # fmt: skip
    """take_set, of the choice that lies in bin and default_left of the node; all threads call it."""
    choice, missing_right = int64(nodes[node].bin) << 1, nodes[node].default_left == 0
    begin_listed = first_listed(choice, n_held, takes_one)
    end_listed = begin_listed + count_listed(choice, takes_one)
    j = int64(cuda.threadIdx.x)
    while j < size:
        keys[row, j] = float64(0.0)  # from here on: 1 for categories listed
        j += int64(cuda.blockDim.x)
    cuda.syncthreads()  # and the choice has been read
    for output in range(hist.shape[1]):
        grad, hess, present_grad, present_hess = int64(0), int64(0), int64(0), int64(0)
        j = int64(cuda.threadIdx.x)
        while j < n_categories:
            present_grad += hist[slot, output, first + j, 0]
            present_hess += hist[slot, output, first + j, 1]
            if begin_listed <= j and j < end_listed:
                category = int64(order[row, j])
                keys[row, category] = float64(1.0)
                grad, hess = grad + hist[slot, output, first + category, 0], hess + hist[slot, output, first + category, 1]
            j += int64(cuda.blockDim.x)
        grad, hess = block_sum(grad, partial), block_sum(hess, partial)  # their barriers also make the list known
        present_grad, present_hess = block_sum(present_grad, partial), block_sum(present_hess, partial)
        if cuda.threadIdx.x == 0:
            left_sums[node, output, 0] = present_grad - grad if missing_right else sums[node, output, 0] - grad
            left_sums[node, output, 1] = present_hess - hess if missing_right else sums[node, output, 1] - hess
    word = int64(cuda.threadIdx.x)
    while word < cats.shape[1] - 1:
        bits = uint32(0)
        for bit in range(32):
            category = 32 * word + bit
            if category < size and keys[row, category] > float64(0.0):
                bits |= uint32(uint32(1) << uint32(bit))
        cats[node, 1 + word] = bits
        word += int64(cuda.blockDim.x)
    if cuda.threadIdx.x == 0:
        cats[node, 0] = uint32(32 * (cats.shape[1] - 1))
        nodes[node].bin, nodes[node].kind = int32(0), int32(CATEGORICAL)
    cuda.syncthreads()  # order and keys may be written anew
