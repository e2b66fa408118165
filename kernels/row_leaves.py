"""The leaves of finished trees, row by row: which leaf a row ends in, the sums of leaves.py, and its margins.

leaves.py goes through the lists of the leaves' rows. What it reads there of a row, 4 bytes, costs a line of the cache where few
rows share one: of 2M rows in 64 leaves gradients and hessians are fetched up to sixteen times. Where all rows of a page are
drawn, the leaf of each is written first, over its gradients in fixed point, read no more; then all goes row by row.
One thread of an AMD EPYC (Zen 3), busy, ns a row, list by list -> row by row: sums 100,000 rows 2.8 -> 2.1, 450,000 4.5 -> 2.3,
2,000,000 13 -> 2.7, margins 0.9 -> 0.5, 1.2 -> 0.5, 1.4 -> 0.5.
Two threads of another (Zen 5), sums, where leaves are written list by list, whichever rows -> each thread's own rows: 20,000
1.3 -> 0.85, 450,000 1.7 -> 0.85, 2,000,000 1.05 -> 0.95.

On a GPU 32 neighbours share what one row reads, a sector of 32 bytes: gradient, hessian and margin of 11M rows are 1.4 GB by
lists. Where it is known beforehand which splits are the last, these need not move any rows, as no histogram follows; their rows,
and those of all other leaves, are found instead:

    find    each row walks down its tree by the columns of codes, and writes its leaf, 2 bytes; levels of few nodes are read in
            whole sectors, and 32 neighbours read no more bytes than their records have
    sum     gradients and hessians side by side, added up in shared memory
    add     margins side by side

Sums are those of leaves.py, int64, of which shared memory gets 16 bits at a time: int32 is the only type whose atomic add there
is one instruction. A leaf has a line of 32 words, a word of each bank, and lane l adds to those of its quarter of a warp, each of
the eight lanes there to another one, so that no two lanes of an add meet, whatever the leaves:

    word = 8 · (l / 8) + 4 · (0: gradient, 1: hessian) + (0 to 3: which 16 bits)

They go in the order of the table, whichever rows are drawn. Bytes of a row and output: 2 written + the codes, 2 + 8, and 2 + 4 +
4: 11M rows of 28 codes are 0.5 GB, 0.11 ms at 4.8 TB/s, and the last level's partition is not done.
"""

import math

import numpy as np
from numba import float32, float64, int32, int64, uint16, uint32, uint64

from gpuboost.kernels.addresses import add_at_byte, load_at, store_at
from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.conversions import whole_as_integer
from gpuboost.kernels.cuda_common import cuda, cuda_kernel, device_function, lane_number, n_threads, thread_number
from gpuboost.kernels.jit import launch, parallel_kernel, scalar
from gpuboost.kernels.scalar import also_left, go_left, split_goes_left
from gpuboost.kernels.shares import claim_rows, new_counters
from gpuboost.kernels.structs import NUMERIC

FEWEST_ROWS = 2**12  # over all workers. The terms of n rows are at most 2^62 / n in fixed point (fixed_point.sum_scale), and have
# to be below 2^51 (conversions.whole_as_integer)
MOST_SUMS = 2**13  # of nodes and outputs, which the CPU adds to row by row: 256 KB, half of a Zen 3's second-level cache
WAYS = 2  # sums of a node, for every other row: of neighbours in one leaf none waits for the other, 0.56 -> 0.50 ms of 450,000
MOST_ROWS = 2**20  # of a work item, where leaves are written: lists of which little is read at a time are not fetched ahead
SEARCH_ROWS = 8  # whose leaves are written in the time that a thread takes to find where its rows begin in one leaf's list
CHUNK = 2**14  # rows of a work item, where values are added
BLOCK = 512  # rows whose terms are computed together: 8 KB, which stay in the first-level cache

ROWS_PER_THREAD = 4  # that walk together: none waits for another one's code
MAX_PART_ROWS = 65536  # |sums of 16 bits| of a quarter of so many rows stay below 2^30
MAX_NODES, MAX_FEATURES = 2**16, 2**15  # of the fields of a word (word_of)
LINE_BYTES = 128  # of a leaf's sums
WORD_BYTES, VALUE_BYTES = 8, 4  # of shared memory for each node, to find leaves and to add their values


@parallel_kernel
def sum_found_cpu(nodes, segments, rows, grad, hess, scales, first_output, found, leaf_sums, n_threads):
    """leaves.sum_leaves_cpu for a page of which all rows are drawn, at least FEWEST_ROWS over all pages and workers. Each thread
    writes the leaves of rows side by side, so that no line goes from one to another, and goes on with their sums.

    rows : int32 (2, n_trees · n_rows), IN. Those of a leaf ascend.
    found : int32 (≥ n_trees, limbs, n_rows), OUT. Read as uint16, twice as many, found[tree, 0, row] is the node that the row
        ends in, below 2^16: as int32 those of 450,000 rows do not stay in a cache of 1 MB, 0.61 -> 0.56 ms.
    Others as sum_leaves_cpu.
    """
    n_nodes, leaf_size, nodes_found = leaf_sums.shape[0], leaf_sums.shape[1], found.view(np.uint16)
    n_busy = min(n_threads, max(grad.shape[1] // (SEARCH_ROWS * n_nodes), 1))
    sums = zeros((n_busy, WAYS, leaf_size, n_nodes, 2), np.int64)
    launch(n_busy, _sum_found, (
        new_counters(n_busy), nodes, segments, rows, grad, hess, scales, first_output, nodes_found, sums
    ))  # fmt: skip
    for thread in range(n_busy):
        for way in range(WAYS):
            for own in range(leaf_size):
                for node in range(n_nodes):
                    leaf_sums[node, own, 0] += sums[thread, way, own, node, 0]
                    leaf_sums[node, own, 1] += sums[thread, way, own, node, 1]


@parallel_kernel.part
def _sum_found(thread, counters, nodes, segments, rows, grad, hess, scales, first_output, found, sums):
    n_rows, leaf_size, n_nodes, terms = grad.shape[1], sums.shape[2], sums.shape[3], empty((2, BLOCK), np.int64)
    own_sums, apart = sums[thread].reshape(-1), uint64(2 * leaf_size * n_nodes)
    while True:
        _, first, last = claim_rows(counters, thread, 1, n_rows, int64(MOST_ROWS))
        if first == last:
            return
        for node in range(n_nodes):
            if nodes[node].left < 0:
                begin, end, own_rows = segments[node, 0], segments[node, 1], rows[segments[node, 2]]
                begin = first_place(own_rows, begin, end, first) if first > 0 else begin
                end = first_place(own_rows, begin, end, last) if last < n_rows else end
                _write_leaf(uint16(node), own_rows[begin:end], found[nodes[node].tree, 0])
        for tree in range(first_output.size):
            for own in range(leaf_size):
                output, to = first_output[tree] + own, own_sums[2 * own * n_nodes :]
                for begin in range(first, last, BLOCK):
                    n, leaves = min(int64(BLOCK), last - begin), found[tree, 0, begin:]
                    _fill_terms(grad[output], scales[output, 0], begin, n, terms[0])
                    _fill_terms(hess[output], scales[output, 1], begin, n, terms[1])
                    for i in range(uint64(n)):
                        at = (i & uint64(WAYS - 1)) * apart + uint64(2) * uint64(leaves[i])
                        to[at] += terms[0, i]
                        to[at + uint64(1)] += terms[1, i]


@scalar
def first_place(rows, begin, end, row):
    """The first place from begin to end of an ascending list that does not come before a row; end if there is none."""
    while begin < end:
        middle = (begin + end) >> 1
        if int64(rows[uint64(middle)]) < row:
            begin = middle + 1
        else:
            end = middle
    return begin


@parallel_kernel.part
def _write_leaf(leaf, rows, found):
    for i in range(rows.size):
        found[uint32(rows[i])] = leaf


@parallel_kernel.part
def _fill_terms(values, scale, begin, n, terms):
    for i in range(uint64(n)):  # no branches and no calls: vectorised by LLVM
        terms[i] = whole_as_integer(np.floor(float64(values[uint64(begin) + i]) * scale + 0.5))


@parallel_kernel
def add_found_cpu(nodes, leaves, first_output, found, margin, n_threads):
    """leaves.update_margin_cpu for such a page. found : int32 (≥ n_trees, limbs, n_rows), IN. Others as update_margin_cpu."""
    launch(n_threads, _add_found, (new_counters(n_threads), nodes, leaves, first_output, found.view(np.uint16), margin))


@parallel_kernel.part
def _add_found(thread, counters, nodes, leaves, first_output, found, margin):
    n_rows, leaf_size, values = margin.shape[1], leaves.shape[1], empty(leaves.shape[0], np.float32)
    n_outputs, shown = leaf_size * first_output.size, int64(-1)  # of which output the values are
    while True:
        item, begin, end = claim_rows(counters, thread, n_outputs, n_rows, int64(CHUNK))
        if item >= n_outputs:
            return
        tree, own = item // leaf_size, item % leaf_size
        if own != shown:
            shown = own
            for node in range(values.size):
                values[node] = leaves[nodes[node].leaf, own]
        sums = margin[first_output[tree] + own]
        for row in range(uint64(begin), uint64(end)):
            sums[row] = float32(sums[row] + values[uint32(found[tree, 0, row])])


# ---------------------------------------------------------------------------------------------------------------------
# CUDA.


@cuda_kernel(
    "nodes: NODE[:], cats: uint32[:, :], columns: code[:, :], n_bins: int32[:], progress: PROGRESS[:], subset: int32[:], "
    "found: uint16[:, :]",
    code=(np.uint8, np.uint16), registers=64,
)  # fmt: skip
def find_leaves_kernel(nodes, cats, columns, n_bins, progress, subset, found):
    """The leaf of each row in each tree, also of rows not drawn for it. Dynamic shared memory: WORD_BYTES for each node.

    cats : uint32 (n_nodes, n_words), IN. columns : uint8 or uint16 (n_features, n_rows of the page), IN. n_bins : int32
    (n_features,), IN. subset : int32 (k,), IN. The rows that take part; (0,): the first k. None where a gradient is not finite.
    found : uint16 (n_trees, k), OUT. The node that each of them ends in.
    """
    words = cuda.shared.array(0, uint64)
    node = int64(cuda.threadIdx.x)
    while node < progress[0].n_nodes:
        words[node] = word_of(nodes, node, n_bins)
        node += int64(cuda.blockDim.x)
    cuda.syncthreads()  # all splits are there
    n_rows, n_columns, depth = rows_found(progress, found), uint32(columns.shape[1]), progress[0].depth
    for tree in range(found.shape[0]):
        i = uint32(uint32(thread_number() >> uint32(5)) * uint32(32 * ROWS_PER_THREAD) + uint32(lane_number()))
        while i < n_rows:
            last = uint32(n_rows - uint32(1))  # stands for what lies behind it
            row0, row1 = row_at(subset, i), row_at(subset, min(uint32(i + uint32(32)), last))
            row2, row3 = row_at(subset, min(uint32(i + uint32(64)), last)), row_at(subset, min(uint32(i + uint32(96)), last))
            at0, at1, at2, at3 = uint32(tree), uint32(tree), uint32(tree), uint32(tree)
            level = int64(0)
            while level < depth:
                word0, word1, word2, word3 = words[at0], words[at1], words[at2], words[at3]
                while level < depth and (word0 | word1 | word2 | word3) >> uint64(63) == uint64(0):  # of bins, all four
                    code0, code1 = code_of(columns, n_columns, word0, row0), code_of(columns, n_columns, word1, row1)
                    code2, code3 = code_of(columns, n_columns, word2, row2), code_of(columns, n_columns, word3, row3)
                    at0, at1 = below_bins(at0, word0, code0), below_bins(at1, word1, code1)
                    at2, at3 = below_bins(at2, word2, code2), below_bins(at3, word3, code3)
                    word0, word1, word2, word3 = words[at0], words[at1], words[at2], words[at3]
                    level += 1
                if level < depth:
                    at0 = below(at0, word0, code_of(columns, n_columns, word0, row0), nodes, cats)
                    at1 = below(at1, word1, code_of(columns, n_columns, word1, row1), nodes, cats)
                    at2 = below(at2, word2, code_of(columns, n_columns, word2, row2), nodes, cats)
                    at3 = below(at3, word3, code_of(columns, n_columns, word3, row3), nodes, cats)
                    level += 1
            for k in range(ROWS_PER_THREAD):
                own, end = uint32(i + uint32(32 * k)), (at0 if k == 0 else at1) if k < 2 else (at2 if k == 2 else at3)
                if own < n_rows:
                    found[tree, own] = uint16(end)
            i = uint32(i + uint32(n_threads()) * uint32(ROWS_PER_THREAD))


@device_function
def rows_found(progress, found):
    """uint32: of how many rows there are leaves."""
    return uint32(found.shape[1]) if progress[0].non_finite == 0 else uint32(0)


@device_function
def row_at(subset, i):
    """The i-th row that takes part."""
    return i if subset.size == 0 else uint32(load_at(subset, int64(0), i))


@device_function
def word_of(nodes, node, n_bins):
    """uint64: a split as rows look at it. Bits 0 to 15: the left child, 0 at a leaf. 16 to 31: the bin. 32 to 47: the code that
    goes left beside the bins up to it, or the bin; of a set the missing code. 48 to 62: the feature. 63: whether it is a set."""
    word = uint64(0)
    if nodes[node].left >= 0:
        also, is_set = n_bins[nodes[node].feature], nodes[node].kind != NUMERIC
        if not is_set:
            also = also_left(nodes[node].bin, also, nodes[node].default_left)
        word = uint64(nodes[node].left) | uint64(nodes[node].bin & 0xFFFF) << uint64(16) | uint64(also) << uint64(32)
        word |= uint64(nodes[node].feature) << uint64(48) | uint64(1 if is_set else 0) << uint64(63)
    return word


@device_function
def code_of(columns, n_columns, word, row):
    """int32: the code that a split looks at; of a leaf that of the first feature."""
    feature = uint32(uint32(word >> uint64(48)) & uint32(MAX_FEATURES - 1))
    return int32(load_at(columns, int64(feature) * int64(n_columns), row))


@device_function
def below_bins(node, word, code):
    """uint32: the child of a node that a row with this code goes to, by bins; a leaf itself."""
    low, also = uint32(word & uint64(0xFFFFFFFF)), int32(uint32(word >> uint64(32)) & uint32(0xFFFF))
    left = uint32(low & uint32(0xFFFF))
    goes_left = go_left(code, int32(low >> uint32(16)), also)
    return node if left == uint32(0) else uint32(left + (uint32(0) if goes_left else uint32(1)))


@device_function
def below(node, word, code, nodes, cats):
    """The same by bins or by a set."""
    child = below_bins(node, word, code)
    if word >> uint64(63) != uint64(0):
        missing_code, left = int32(uint32(word >> uint64(32)) & uint32(0xFFFF)), uint32(word & uint64(0xFFFF))
        goes_left = split_goes_left(code, nodes, cats, int64(node), missing_code)
        child = uint32(left + (uint32(0) if goes_left else uint32(1)))
    return child


@cuda_kernel(
    "n_parts: int64, progress: PROGRESS[:], subset: int32[:], first_row: int64, found: uint16[:, :], grad: float32[:, :], "
    "hess: float32[:, :], scales: float64[:, :], first_output: int32[:], leaf_sums: int64[:, :, :]",
    block=384, blocks_per_sm=3, registers=56, uses_double=True,
)  # fmt: skip
def sum_found_kernel(n_parts, progress, subset, first_row, found, grad, hess, scales, first_output, leaf_sums):
    """leaves.sum_leaves_cpu, of all rows found: of those that are not drawn the gradients are 0. A block takes a part of the rows
    and an output of a tree. Dynamic shared memory: LINE_BYTES for each node.

    n_parts : of at most MAX_PART_ROWS rows each. found : uint16 (n_trees, k), IN. grad, hess : float32 (n_outputs, all rows), IN;
    first_row : where the page begins in them. leaf_sums : int64 (n_nodes, leaf_size, 2), INOUT, zeroed by the caller; added to
    atomically.
    """
    planes = cuda.shared.array(0, int32)
    n_nodes, i = progress[0].n_nodes, int64(cuda.threadIdx.x)
    while i < n_nodes * (LINE_BYTES // 4):
        planes[i] = int32(0)
        i += int64(cuda.blockDim.x)
    cuda.syncthreads()  # the planes are zero
    turn, group = uint32(lane_number() & 7), uint32(uint32(lane_number() >> 3) * uint32(32))
    item, n_rows = int64(cuda.blockIdx.x), int64(rows_found(progress, found))
    while item < n_parts * leaf_sums.shape[1]:
        own, part = item // n_parts, item % n_parts
        begin, end = uint32(n_rows * part // n_parts), uint32(n_rows * (part + 1) // n_parts)
        for tree in range(first_output.size):
            output, first_found = first_output[tree] + own, tree * int64(found.shape[1])
            grad_scale, hess_scale = scales[output, 0], scales[output, 1]
            first_grad = output * int64(grad.shape[1]) + first_row
            at = uint32(begin + uint32(cuda.threadIdx.x))
            if at < end:
                next_row, next_leaf = row_at(subset, at), uint32(load_at(found, first_found, at))
                while at < end:
                    row, leaf = next_row, next_leaf
                    at = uint32(at + uint32(cuda.blockDim.x))
                    if at < end:
                        next_row, next_leaf = row_at(subset, at), uint32(load_at(found, first_found, at))
                    own_grad = math.floor(float64(load_at(grad, first_grad, row)) * grad_scale + float64(0.5))
                    own_hess = math.floor(float64(load_at(hess, first_grad, row)) * hess_scale + float64(0.5))
                    line = uint32(leaf * uint32(LINE_BYTES) + group)
                    add_sums(planes, line, turn, int64(own_grad), int64(own_hess))
        cuda.syncthreads()  # all rows are in the planes
        i = int64(cuda.threadIdx.x)
        while i < 2 * n_nodes:
            total = take_sum(planes, i >> 1, i & 1)
            if total != 0:
                cuda.atomic.add(leaf_sums, (i >> 1, own, i & 1), total)
            i += int64(cuda.blockDim.x)
        cuda.syncthreads()  # the planes are zero again
        item += int64(cuda.gridDim.x)


@scalar
def turned(value, n):
    """int64: the bits of an int64, turned by 16 · n to the right."""
    bits, by = uint64(value), uint64(16 * (n & 3))
    return int64(bits >> by | bits << (uint64(64) - by & uint64(63)))


@scalar
def put_together(total, value, n):
    """int64: total + value · 2^(16 · n), the lower 64 bits."""
    return int64(uint64(total) + (uint64(value) << uint64(16 * (n & 3))))


@device_function
def add_sums(planes, line, turn, grad, hess):
    """Add 16 bits at a time, each lane of eight at another word. line : uint32, byte at which the eight words begin."""
    is_turned = turn >= uint32(4)
    first, second = turned(hess if is_turned else grad, int64(turn)), turned(grad if is_turned else hess, int64(turn))
    half = uint32(16) if is_turned else uint32(0)
    for j in range(4):
        place = uint32(line + half + uint32(uint32(turn + uint32(j)) & uint32(3)) * uint32(4))
        add_at_byte(planes, place, uint32(0), int32(first >> int64(16 * j) & int64(0xFFFF)))
        add_at_byte(planes, uint32(place ^ uint32(16)), uint32(0), int32(second >> int64(16 * j) & int64(0xFFFF)))


@device_function
def take_sum(planes, node, kind):
    """int64: the sum of a node's gradients (kind 0) or hessians (1), which is left 0. Neighbours begin at different words, so
    that 32 lanes read 32 banks."""
    total = int64(0)
    for j in range(16):
        k = (node + j) & 15
        place = node * (LINE_BYTES // 4) + (k >> 2) * 8 + kind * 4 + (k & 3)
        total = put_together(total, int64(planes[place]), k)
        planes[place] = int32(0)
    return total


@cuda_kernel(
    "nodes: NODE[:], progress: PROGRESS[:], subset: int32[:], first_row: int64, found: uint16[:, :], leaves: float32[:, :], "
    "first_output: int32[:], margin: float32[:, :]",
)
def add_found_kernel(nodes, progress, subset, first_row, found, leaves, first_output, margin):
    """leaves.update_margin_cpu, of all rows found. Dynamic shared memory: VALUE_BYTES for each node.

    margin : float32 (n_outputs, all rows), INOUT. first_row : where the page begins in it. Others as sum_found_kernel."""
    values = cuda.shared.array(0, float32)
    n_rows = rows_found(progress, found)
    for own in range(leaves.shape[1]):
        cuda.syncthreads()  # the output's before have been read
        node = int64(cuda.threadIdx.x)
        while node < progress[0].n_nodes:
            values[node] = leaves[nodes[node].leaf, own]
            node += int64(cuda.blockDim.x)
        cuda.syncthreads()  # all values are there
        for tree in range(first_output.size):
            first_margin = (first_output[tree] + own) * int64(margin.shape[1]) + first_row
            first_found = tree * int64(found.shape[1])
            i = uint32(thread_number())
            while i < n_rows:
                row, leaf = row_at(subset, i), uint32(load_at(found, first_found, i))
                before = load_at(margin, first_margin, row)
                store_at(margin, first_margin, row, float32(before + values[leaf]))
                i = uint32(i + uint32(n_threads()))
