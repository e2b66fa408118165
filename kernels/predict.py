"""Send rows down finished trees, on values (on the codes of a binned matrix: predict_codes.py).

    go left  iff  x < threshold, or x is a category that is not in the split's set    (missing: default_left)
    margin[output] += leaf, tree by tree in float32       (of a vector leaf, each of its values to an output of its own)

All trees lie one after another in flat arrays; ``node = first node of the tree + number within it``. A block of rows runs through
one tree before the next tree is touched, so the tree stays in cache. Floor: one chain of dependent loads, as long as the tree is
deep, per row and tree.
"""


import numpy as np
from numba import float32, int32, int64, uint32, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuda_common import cuda_kernel, device_function, n_threads, thread_number
from gpuboost.kernels.heap_levels import (
    IS_SET,
    LINE,
    MISSING_RIGHT,
    ROWS_AT_ONCE,
    SMALLEST_KEY,
    count_key_words,
    derive_keys,
    descend_heap,
    key_columns,
    lay_out_heaps,
)
from gpuboost.kernels.jit import call_late, inlined_scalar, launch, parallel_kernel, prefetch, scalar
from gpuboost.kernels.leaf_masks import find_leaves, lay_out_masks
from gpuboost.kernels.scalar import (
    bits_float,
    float_bits,
    float_key,
    value_goes_left,
)
from gpuboost.kernels.shares import claim_block, new_counters
from gpuboost.kernels.structs import CATEGORICAL
from gpuboost.kernels.top_levels import (
    MISSING_KEY,
    MOST,
    ROW_BLOCK,
    WORDS,
    choose_below,
    lay_out_tops,
    n_top_levels,
)
from gpuboost.kernels.turning import TILE, can_turn, turn_tile

LARGEST = float(np.finfo(np.float32).max)  # values of this size are refused (data/tables/source.py)


# ---------------------------------------------------------------------------------------------------------------------
# Batches. Values become keys: signed integers in the same order, the missing one the largest of all, in the bits of uint32. Codes
# are keys already.
# Every node, a leaf too, is laid out as four words, so that a step down is the same arithmetic for all rows and no branch is
# mispredicted (modulo 2^32):
#
#     column | low | width | left        is right  =  key − low < width        next = left + 4 · is right
#
# Of values, the column is where it begins among the keys of ROW_BLOCK rows; of codes it is the feature.
#
# A split has low = key of its threshold, and width = end − low. Behind the last key that goes right is the smallest one of all (0
# of codes), or, where missing values go left, the missing key. A leaf has width 0 and is its own left child, where early rows
# wait; its value lies in place of low.
#
# A set of categories has low = where its bits lie, width = the missing key, and marks in the two lowest bits of ``left``, which
# are free: IS_SET, MISSING_RIGHT. Trees without sets are walked by a kernel of their own (``sets`` is None) that looks for none.
#
# Eight rows step down together, so that their loads overlap; their places stay in registers, and their keys lie side by side,
# column by column, so that one register addresses them all: nine instructions a step. 100k × 28 values, 100 trees, one thread of
# an AMD EPYC (Genoa), ns a row and tree of depth 6: node by node 37; four rows at once 6.8, eight 4.6, eight with their places in
# an array 5.1, 128 so 6.7. The first levels are chosen among instead (kernels/top_levels.py), and many rows go down the next
# and those of trees with sets, in heaps (kernels/heap_levels.py). Of trees of few leaves in many levels they strike leaves out
# (kernels/leaf_masks.py). What is left are the deepest leaves of lopsided trees, where rows that have arrived step aside: 255
# leaves in 19 levels, 20 trees, values 13.7 -> 9.4, codes 14.9 -> 11.2. Choosing, 100 trees, before -> after: depth 3 2.4 -> 1.1,
# 4 2.4 -> 1.1, 5 3.0 -> 1.5, 6 3.5 -> 2.3. Keys with a sign, and margins of a block side by side, on a busy Zen 3 with AVX2, 50
# trees: depth 4 2.35 -> 1.8, 6 5.3 -> 4.0.
#
# 20 columns, depth 6, whether a key is in a set found without a branch: categories of 1000 values 24 -> 7.7, of 12 values
# 62 -> 14, ten of 50 values beside ten of numbers 65 -> 20.

MOST_FETCHED = 256  # bytes of a row: 16 KB of a block
WIDE = 256  # columns: 100k × 100, of which 6, take 3.1 ms instead of 2.7 if these alone become keys
SPAN = 4  # levels between the tests which rows have arrived: few go all the way down a lopsided tree


@parallel_kernel
def predict_values_cpu(batch, missing, trees, leaf_values, tree_begin, tree_groups, sets, first_row, margin, leaves, n_threads):
    """Add the trees' outputs to the margins of a batch of rows, and number the leaves they end in.

    batch : float32 or float64 (n_rows, n_features), any strides, IN. missing : float32.
    trees : FLAT_NODE (n_nodes,), IN. leaf_values : float32 (n_nodes, leaf_size), IN. tree_begin : int64 (n_trees,), IN.
    tree_groups : int32 (n_trees,), IN. The first of the leaf_size outputs that each tree adds to.
    sets : uint32 (n_words,), IN. Sets of categories, see scalar.is_in_set; None where no split has one.
    margin : float32 (n_outputs, at least first_row + n_rows), INOUT. Those of the batch begin at first_row.
    leaves : int32 (as many rows, n_trees), OUT. Leaf's number within its tree; may have no rows.
    Returns False where a value is infinite or at least LARGEST in size: it has the values at hand, and another pass over a wide
    table would take as long as all its trees (20k × 2000, 100 trees of depth 6: 24 ms beside 30).
    """
    is_large, counters = zeros(1, np.bool_), new_counters(n_threads)
    column_of, features = used_features(trees, batch.shape[1], ROW_BLOCK)
    n_words = (features.size + 1) * ROW_BLOCK
    laid_out = lay_out(trees, leaf_values, tree_begin, column_of, missing_keys(batch.shape[1]), True)
    if sets is None and _needs_values_only(leaf_values, leaves) and _has_first_levels_only(laid_out[1]):
        none = zeros(tree_begin.size + 1, np.int64)
        tops = lay_out_tops(laid_out[0], n_words, tree_begin, laid_out[1], none, none, True)
        n_keys = count_key_words(laid_out[0], n_words)
        args = counters, batch, missing, features, n_words, n_keys, tops, laid_out[1], tree_groups, first_row, margin, is_large
        launch(n_threads, _choose_blocks, args)
    else:
        call_late(_step_blocks_cpu, (
            counters, batch, missing, features, n_words, laid_out, leaf_values, tree_begin, tree_groups, sets, first_row, margin,
            leaves, is_large, n_threads,
        ))  # fmt: skip
    return not is_large[0]


@parallel_kernel.part
def missing_keys(n_features):
    """Of values: uint32 (n_features,)."""
    keys = empty(n_features, np.uint32)
    for feature in range(n_features):
        keys[feature] = MISSING_KEY
    return keys


@parallel_kernel.part
def _has_first_levels_only(n_levels):
    deepest = int32(0)
    for t in range(n_levels.size):
        deepest = max(deepest, n_levels[t])
    return deepest <= MOST


@parallel_kernel.part
def _choose_blocks(
    thread, counters, batch, missing, features, n_words, n_keys, tops, n_levels, tree_groups, first_row, margin, is_large
):  # fmt: skip
    """Of trees without sets that have no more than their first levels."""
    keys, tile = key_columns(n_keys), new_tile(batch.shape[1])
    own, sums = zeros(ROW_BLOCK, np.uint32), zeros((margin.shape[0], ROW_BLOCK), np.float32)
    while True:
        begin, n_rows = _next_keys(thread, counters, batch, missing, features, n_words, tile, keys, is_large)
        if n_rows <= 0:
            return
        _copy_margins(margin, first_row + begin, n_rows, sums, True)
        for t in range(n_levels.size):
            choose_below(keys, n_rows, tops, t, n_levels[t], own)
            _add_values(own, uint64(tree_groups[t]), sums)
        _copy_margins(margin, first_row + begin, n_rows, sums, False)


@parallel_kernel
def step_blocks_cpu(
    counters, batch, missing, features, n_words, laid_out, leaf_values, tree_begin, tree_groups, sets, first_row, margin, leaves,
    is_large, n_threads,
):  # fmt: skip
    """Of any trees."""
    forest = lay_out_forest(laid_out, leaf_values, tree_begin, n_words, batch.shape[0], sets, leaves)
    args = (
        counters, batch, missing, features, n_words, forest, leaf_values, tree_begin, tree_groups, sets, first_row, margin,
        leaves, is_large,
    )  # fmt: skip
    launch(n_threads, _step_blocks, args)


_step_blocks_cpu = step_blocks_cpu.dispatcher


@parallel_kernel.part
def _step_blocks(
    thread, counters, batch, missing, features, n_words, forest, leaf_values, tree_begin, tree_groups, sets, first_row, margin,
    leaves, is_large,
):  # fmt: skip
    keys, tile, walk = key_columns(forest[-1]), new_tile(batch.shape[1]), new_walk(margin.shape[0])
    while True:
        begin, n_rows = _next_keys(thread, counters, batch, missing, features, n_words, tile, keys, is_large)
        if n_rows <= 0:
            return
        add_leaves(keys, first_row + begin, n_rows, forest, leaf_values, tree_begin, tree_groups, sets, walk, margin, leaves)


@parallel_kernel.part
def _next_keys(thread, counters, batch, missing, features, n_words, tile, keys, is_large):
    """Where the next block of rows begins, and its rows, of which these are the keys then; none where no block is left."""
    begin = claim_block(counters, thread, batch.shape[0], ROW_BLOCK)
    n_rows = min(ROW_BLOCK, batch.shape[0] - begin)
    if n_rows > 0:
        if fill_keys(batch[begin : begin + n_rows], missing, features, tile, keys):
            is_large[0] = True
        derive_keys(keys, n_words)
        _fetch_rows(batch, begin + ROW_BLOCK)
    return begin, n_rows


@parallel_kernel.part
def _fetch_rows(batch, begin):
    """Have the block of rows from ``begin`` on, a thread's next but at the end of its share, come meanwhile, where it fits in the
    nearest cache: 100k × 28 by 10 trees, one thread of an AMD EPYC (Zen 4), 3.8 -> 3.0 ms."""
    if batch.shape[1] * batch.itemsize <= MOST_FETCHED:
        for i in range(begin, min(begin + ROW_BLOCK, batch.shape[0])):
            _fetch_row(batch[i])


@scalar
def _fetch_row(row):
    if row.strides[0] == row.itemsize:
        for feature in range(0, row.size, LINE // row.itemsize):
            prefetch(row, uint64(feature))


@parallel_kernel.part
def new_tile(n_features):
    """Of an odd number of lines: rows do not share cache sets."""
    return zeros((TILE, n_features // 32 * 32 + 48), np.uint32)


@parallel_kernel.part
def lay_out_forest(laid_out, leaf_values, tree_begin, n_words, n_rows, sets, leaves):
    """What add_leaves walks: (nodes and n_levels of lay_out; masks, heaps, and where those of each tree begin; the first levels;
    words of the columns of keys, of n_words for each kind). Where any tree has sets, none has masks, or first levels. It asks for
    places where it needs more of a leaf than one value."""
    nodes, n_levels, n_nodes = laid_out
    with_values, has_sets = _needs_values_only(leaf_values, leaves), sets is not None
    masks, mask_begin, tops = zeros(0, np.uint32), zeros(tree_begin.size + 1, np.int64), zeros((0, WORDS), np.uint32)
    if not has_sets:
        masks, mask_begin = lay_out_masks(nodes, n_words, tree_begin, n_nodes, n_levels, n_rows, with_values)
    heaps, heap_begin = lay_out_heaps(nodes, n_words, tree_begin, n_nodes, n_levels, mask_begin, n_rows, with_values, has_sets)
    n_keys = 3 * n_words if heaps.size > 0 else n_words  # of sets; steps look at one kind
    if not has_sets:
        tops = lay_out_tops(nodes, n_words, tree_begin, n_levels, mask_begin, heap_begin, with_values)
        n_keys = count_key_words(nodes, n_words)
    return nodes, n_levels, masks, mask_begin, heaps, heap_begin, tops, n_keys


@scalar
def _needs_values_only(leaf_values, leaves):
    return leaf_values.shape[1] == 1 and leaves.shape[0] == 0


@parallel_kernel.part
def new_walk(n_outputs):
    """SCRATCH of add_leaves, for a thread: of each row of a block what it has reached, which leaves are left, its margins; and
    which rows have yet to arrive."""
    own, left, waiting = zeros(ROW_BLOCK, np.uint32), empty(ROW_BLOCK, np.uint32), empty(ROW_BLOCK + ROWS_AT_ONCE, np.uint32)
    return own, left, waiting, zeros((n_outputs, ROW_BLOCK), np.float32)


@scalar  # inlined: a call costs 80 ns for a block of rows, a tenth of what one tree takes
def add_leaves(keys, begin, n_rows, forest, leaf_values, tree_begin, tree_groups, sets, walk, margin, leaves):
    """Send the rows from ``begin`` on down all trees. keys : uint32 (n_columns · ROW_BLOCK,), IN. Of n_rows rows.
    forest : of lay_out_forest. walk : of new_walk.

    Their margins are worked on side by side, with room for a whole block, so that loops have a fixed length."""
    nodes, n_levels, masks, mask_begin, heaps, heap_begin, tops, _ = forest
    own, left, waiting, sums = walk
    _copy_margins(margin, begin, n_rows, sums, True)
    has_values = _needs_values_only(leaf_values, leaves)
    for t in range(tree_begin.size):
        group = uint64(tree_groups[t])
        has_masks, has_heap = mask_begin[t] < mask_begin[t + 1], heap_begin[t] < heap_begin[t + 1]
        if has_masks:
            find_leaves(keys, 1, 0, masks, mask_begin[t], left, own)
            n_done = int64(n_levels[t])
        else:
            n_done = _first_levels(keys, n_rows, tops, t, has_heap, tree_begin[t], n_levels[t], sets, own)
            if has_heap:
                n_done = descend_heap(keys, n_rows, heaps, heap_begin[t], sets, n_done, own)
        n_left = n_levels[t] - n_done
        if has_values and n_left <= 0 and (sets is None or has_heap):
            _add_values(own, group, sums)
            continue
        step_down(keys, None, nodes, sets, n_left, waiting, own[:n_rows])
        for i in range(n_rows):
            sums[group, i] = float32(sums[group, i] + bits_float(nodes[uint64(own[i]) + uint64(1)]))
        if not has_values:
            for i in range(n_rows):
                if leaves.shape[0] > 0:
                    leaves[begin + i, t] = int64(own[i] >> uint32(2)) - tree_begin[t]
                if leaf_values.shape[1] > 1:
                    add_others(i, uint64(own[i]), leaf_values, tree_groups[t], sums)
    _copy_margins(margin, begin, n_rows, sums, False)


@scalar
def _add_values(bits, group, sums):
    for i in range(ROW_BLOCK):
        sums[group, i] = float32(sums[group, i] + bits_float(bits[i]))


@parallel_kernel.part
def _copy_margins(margin, begin, n_rows, sums, to_sums):
    for output in range(margin.shape[0]):
        for i in range(n_rows):
            if to_sums:
                sums[output, i] = margin[output, begin + i]
            else:
                margin[output, begin + i] = sums[output, i]


@scalar
def value_key(x, missing):
    """The key of a float32; that of a missing one is the largest."""
    return uint32(MISSING_KEY) if (x != x) | (x == missing) else signed_key(x)


@scalar
def signed_key(x):
    """The bits of an int32 in the order of the values."""
    return uint32(float_key(x) ^ uint32(SMALLEST_KEY))


@parallel_kernel.part
def fill_keys(batch, missing, features, tile, keys):
    """The keys of a batch of rows, column by column.

    tile : uint32 (TILE, at least n_features), SCRATCH. keys : uint32 (at least (1 + features.size) · ROW_BLOCK,), OUT.

    A whole block of which all features are wanted is turned first, and becomes keys in one go: 100k × 28, one thread of an AMD
    EPYC (Zen 4), 1.84 -> 0.60 ms. Else 16 rows at a time become keys where they lie, which the compiler does for 16 neighbours at
    once, and then change places; of a wide table of which few features are wanted, these alone, while the next row is fetched:
    20k × 2000, of which 540, 14.7 -> 10.7 ms. Returns whether a value is at least LARGEST in size.
    """
    is_large, n_features = False, batch.shape[1]
    are_few = n_features >= WIDE and 2 * features.size <= n_features
    if batch.shape[0] == ROW_BLOCK and features.size == n_features and n_features >= TILE and can_turn(batch):
        for begin in range(0, ROW_BLOCK, TILE):
            for column in range(0, n_features, TILE):
                first = min(column, n_features - TILE)
                turn_tile(batch[begin : begin + TILE], first, keys, (first + 1) * ROW_BLOCK + begin, ROW_BLOCK)
        own = keys[ROW_BLOCK : (n_features + 1) * ROW_BLOCK]
        for i in range(own.size):
            x = bits_float(own[i])
            is_large |= (abs(x) >= float32(LARGEST)) & (x != missing)
            own[i] = value_key(x, missing)
        return is_large
    for begin in range(0, batch.shape[0], TILE):
        own = batch[begin : begin + TILE]
        for i in range(own.shape[0]):
            values, row = own[i], tile[i]
            if are_few:
                for feature in range(values.size):
                    x = float32(values[feature])
                    is_large |= (abs(x) >= float32(LARGEST)) & (x != missing)
                if i + 1 < own.shape[0]:
                    _fetch_row(own[i + 1])
                row = row[: features.size]
                for c in range(row.size):
                    row[c] = float_bits(float32(values[uint32(features[c])]))
                for c in range(row.size):  # vectorised, as what is gathered is not
                    row[c] = value_key(bits_float(row[c]), missing)
            else:
                for feature in range(values.size):
                    x = float32(values[feature])
                    is_large |= (abs(x) >= float32(LARGEST)) & (x != missing)
                    row[feature] = value_key(x, missing)
        for c in range(features.size):
            feature, column = uint32(c if are_few else features[c]), keys[(c + 1) * ROW_BLOCK + begin :]
            for i in range(TILE):  # a fixed number, else they are gathered: 0.55 ns a value instead of 0.33
                column[uint32(i)] = tile[uint32(i), feature]
    return is_large


@inlined_scalar  # by LLVM: numba, which would inline it 16 times into a loop before it infers types, takes 25 s instead of one
def key_goes_right(key, low, width, left, sets):
    """The rule for a key at a split, of which the last three words are given."""
    if sets is not None:
        if left & uint32(IS_SET):
            is_right_of_missing = (left & uint32(MISSING_RIGHT)) != uint32(0)
            return _is_key_in_set(key, width, sets, low) | ((key == width) & is_right_of_missing)
    return uint32(key - low) < width


@inlined_scalar
def _key(keys, column, row):
    """Columns of keys lie in one array, and a node knows where its own begins; columns of codes do not."""
    return uint32(keys[column + row] if keys.ndim == 1 else keys[column, row])


@inlined_scalar
def _step(keys, row, nodes, sets, at):
    """The place below, for a row; the same one for a leaf."""
    key, low, width = _key(keys, uint64(nodes[at]), row), nodes[at + uint64(1)], nodes[at + uint64(2)]
    left = nodes[at + uint64(3)]
    is_right = key_goes_right(key, low, width, left, sets)
    if sets is not None:
        left &= uint32(0xFFFFFFFC)
    return uint64(left) + uint64(4) * uint64(is_right)


@scalar
def _is_key_in_set(key, missing_key, sets, first):
    """Whether a value's category, or a code, is in a set (kernels/scalar.is_value_in_set, is_in_set). Without a branch, which
    rows would mispredict: what has no bit looks at the set's first word. False for the missing key."""
    is_value = missing_key == uint32(MISSING_KEY)
    x = bits_float(key)  # of a value that is not negative, whose key are its bits
    is_inside = (key < uint32(SMALLEST_KEY)) & (x < float32(sets[first])) if is_value else key < min(sets[first], missing_key)
    code = uint32(int32(x if is_inside else float32(0.0))) if is_value else key
    word = sets[uint64(first) + uint64(uint32(code >> uint32(5)) + uint32(1) if is_inside else uint32(0))]
    return (uint32(word >> (code & uint32(31))) & uint32(is_inside)) != uint32(0)


@parallel_kernel.part
def _first_levels(keys, n_rows, tops, t, has_heap, root, n_levels, sets, below):
    """Send the first rows of a block down the first levels of a tree, of which there are none where trees have sets; returns how
    many these are. What the rows find is a split of the tree's heap, if it has one."""
    if sets is not None:
        below[:] = uint32(1) if has_heap else uint32(4) * uint32(root)
        return int64(0)
    choose_below(keys, n_rows, tops, t, n_levels, below)
    return n_top_levels(n_levels)


@scalar
def step_all(keys, rows, nodes, sets, at):
    return (
        _step(keys, rows[0], nodes, sets, at[0]), _step(keys, rows[1], nodes, sets, at[1]),
        _step(keys, rows[2], nodes, sets, at[2]), _step(keys, rows[3], nodes, sets, at[3]),
        _step(keys, rows[4], nodes, sets, at[4]), _step(keys, rows[5], nodes, sets, at[5]),
        _step(keys, rows[6], nodes, sets, at[6]), _step(keys, rows[7], nodes, sets, at[7]),
    )  # fmt: skip


@parallel_kernel.part
def step_down(keys, rows, nodes, sets, n_levels, waiting, at):
    """Send rows down so many levels, from where they are.

    rows : int64 (at.size,), IN. Their places in columns of ``keys``; None: 0, 1, 2 … waiting : uint32 (at.size + ROWS_AT_ONCE,),
    SCRATCH. Which of them have yet to arrive. at : uint32, INOUT. Places of nodes, 4 · number.
    """
    n, is_short = int64(0), n_levels <= SPAN
    for i in range(at.size if n_levels > 0 else 0):
        waiting[uint64(n)] = i
        n += is_short | (at[i] != nodes[uint64(at[i]) + uint64(3)])
    while n > 0:
        for i in range(n, n + ROWS_AT_ONCE - 1):  # the last one again
            waiting[i] = waiting[n - 1]
        for begin in range(0, n, ROWS_AT_ONCE):
            k = uint64(begin)
            which = (
                uint64(waiting[k]), uint64(waiting[k + uint64(1)]), uint64(waiting[k + uint64(2)]),
                uint64(waiting[k + uint64(3)]), uint64(waiting[k + uint64(4)]), uint64(waiting[k + uint64(5)]),
                uint64(waiting[k + uint64(6)]), uint64(waiting[k + uint64(7)]),
            )  # fmt: skip
            own = which
            if rows is not None:
                own = (
                    uint64(rows[which[0]]), uint64(rows[which[1]]), uint64(rows[which[2]]), uint64(rows[which[3]]),
                    uint64(rows[which[4]]), uint64(rows[which[5]]), uint64(rows[which[6]]), uint64(rows[which[7]]),
                )  # fmt: skip
            places = (
                uint64(at[which[0]]), uint64(at[which[1]]), uint64(at[which[2]]), uint64(at[which[3]]), uint64(at[which[4]]),
                uint64(at[which[5]]), uint64(at[which[6]]), uint64(at[which[7]]),
            )  # fmt: skip
            for _ in range(min(n_levels, SPAN)):
                places = step_all(keys, own, nodes, sets, places)
            for one in range(ROWS_AT_ONCE):
                at[which[one]] = uint32(places[one])
        n_levels -= SPAN
        n = _drop_arrived(waiting, n, nodes, at) if n_levels > 0 else int64(0)


@scalar
def _drop_arrived(waiting, n, nodes, at):
    """Keep those of the first n waiting rows that are at no leaf; returns how many these are."""
    n_left = int64(0)
    for i in range(n):
        row = waiting[uint64(i)]
        place = at[uint64(row)]
        waiting[uint64(n_left)] = row
        n_left += place != nodes[uint64(place) + uint64(3)]
    return n_left


@parallel_kernel.part  # inlined among eight rows, it makes trees of one output a third slower
def add_others(row, end, leaf_values, group, margin):
    """Of a vector leaf, the values behind the first."""
    for own in range(1, leaf_values.shape[1]):
        margin[group + own, row] = float32(margin[group + own, row] + leaf_values[int64(end >> uint64(2)), own])


@parallel_kernel.part
def used_features(trees, n_features, width):
    """(where the keys of each feature lie, uint32 (n_features,); the features that the trees split on, int32).

    Those have columns 1, 2, and so on, at as many times ``width``. Column 0 is that of all others, and the one that leaves look
    at."""
    column_of = zeros(n_features, np.uint32)
    for node in range(trees.size):
        if trees[node].feature >= 0:
            column_of[trees[node].feature] = 1
    features, n = empty(n_features, np.int32), 0
    for feature in range(n_features):
        if column_of[feature]:
            features[n] = feature
            n += 1
            column_of[feature] = n * width
    return column_of, features[:n]


@parallel_kernel.part
def lay_out(trees, leaf_values, tree_begin, column_of, missing_keys, by_value):
    """(the words of all nodes, uint32 (4 · n_nodes,); of each tree, levels of splits and nodes, int32 (n_trees,)).

    column_of : uint32 (n_features,), IN. Where the keys of each feature lie. missing_keys : uint32 (n_features,), IN.
    by_value : whether the keys are those of values, not codes.
    """
    nodes, n_levels = zeros(4 * trees.size, np.uint32), zeros(tree_begin.size, np.int32)
    n_nodes = empty(tree_begin.size, np.int32)
    found = empty(trees.size, np.uint64)  # the nodes of a tree, level by level
    for t in range(tree_begin.size):
        root = uint64(tree_begin[t])
        found[0] = root
        done, n_found = uint64(0), uint64(1)
        while True:
            level_end = n_found
            while done < level_end:
                node = found[done]
                at, word = trees[node], uint64(4) * node
                column, low, width, left = uint32(0), float_bits(leaf_values[node, 0]), uint32(0), node
                marks = uint32(0)
                if at.feature >= 0:
                    feature = uint32(at.feature)
                    column, left = column_of[feature], root + uint64(at.left)
                    if at.kind == CATEGORICAL:
                        low, width = uint32(at.bin), missing_keys[feature]
                        marks = uint32(IS_SET) if at.default_left else uint32(IS_SET | MISSING_RIGHT)
                    else:
                        low = signed_key(at.threshold) if by_value else uint32(at.bin + 1)
                        end = missing_keys[feature] if at.default_left else uint32(SMALLEST_KEY if by_value else 0)
                        width = uint32(end - low)
                    found[n_found], found[n_found + uint64(1)] = left, left + uint64(1)
                    n_found += uint64(2)
                nodes[word], nodes[word + uint64(1)] = column, low
                nodes[word + uint64(2)], nodes[word + uint64(3)] = width, uint32(uint64(4) * left) | marks
                done += uint64(1)
            if done == n_found:
                break
            n_levels[t] += 1
        n_nodes[t] = n_found
    return nodes, n_levels, n_nodes


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A thread takes a row through all trees; neighbours read neighbouring rows of a feature-major table, so that the top
# levels are read in whole sectors. Floor: a chain of dependent loads (node, value) for every level, hidden by the other 2047
# threads.


@device_function
def take_leaf(leaf_values, root, node, t, group, row, margin, leaves):
    """Add the values of the leaf that a row ends in to its margins, from output ``group`` on, and number the leaf."""
    for own in range(leaf_values.shape[1]):
        margin[group + own, row] = float32(margin[group + own, row] + leaf_values[root + node, own])
    if leaves.shape[0] > 0:
        leaves[row, t] = node


@cuda_kernel(
    "values: float32[:, :], missing: float32, trees: FLAT_NODE[:], leaf_values: float32[:, :], tree_begin: int64[:], "
    "tree_groups: int32[:], sets: uint32[:], first_row: int64, margin: float32[:, :], leaves: int32[:, :]",
)
def predict_values_kernel(values, missing, trees, leaf_values, tree_begin, tree_groups, sets, first_row, margin, leaves):
    """predict_values_cpu for a batch. values : float32 (n_features, n_rows of the batch), IN. first_row : the batch's, within
    margin : float32 (n_outputs, n_rows), INOUT, and leaves : int32 (n_rows or 0, n_trees), OUT."""
    row = int64(thread_number())
    while row < values.shape[1]:
        for t in range(tree_begin.size):
            root, node = tree_begin[t], int32(0)
            while trees[root + node].feature >= 0:
                at = trees[root + node]
                goes_left = value_goes_left(values[at.feature, row], trees, root + node, missing, sets)
                node = int32(at.left + (int32(0) if goes_left else int32(1)))
            take_leaf(leaf_values, root, node, t, tree_groups[t], first_row + row, margin, leaves)
        row += int64(n_threads())
