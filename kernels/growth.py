"""Everything that a GPU does between the large kernels of growing trees, in as few launches as its order allows.

A launch costs 2.5 µs on the device, and as much on the host, whatever it does; a small table spends most of its time in them. So
the steps of one block (nodes.py, leaves.py) and the lists of work (histogram.py, partition.py) are put together where nothing of
other blocks, and no exchange between workers, lies between them:

    start     roots, and the rows drawn                                             many blocks
    build     which histograms are built from rows, and the slices of these rows
    split     which nodes are split, their children, and the chunks of their rows
    leaves    the chunks of the leaves' rows, and sums of 0
    weigh     sums of all nodes, pruning, leaf weights

Of several pages, the lists are those of the first one.
"""

from numba import int32, int64

from gpuboost.kernels.cuda_common import ONE_BLOCK, cuda, cuda_kernel, device_function
from gpuboost.kernels.histogram import list_build_items_kernel
from gpuboost.kernels.leaves import leaf_weights_step, list_leaf_chunks_kernel
from gpuboost.kernels.nodes import (
    apply_splits_step,
    choose_built_step,
    prune_step,
    select_depthwise_step,
    select_lossguide_step,
    start_trees_step,
    sum_upwards_step,
)
from gpuboost.kernels.partition import list_chunks_kernel, start_rows_kernel

SPLIT: dict[str, int] = {"block": 512, "blocks_per_sm": 1, "registers": 96}  # 64, as 1024 threads would have, spill
# What is launched by itself for further pages.
start_rows = device_function(start_rows_kernel.function)
list_build_items = device_function(list_build_items_kernel.function)
list_chunks = device_function(list_chunks_kernel.function)
list_leaf_chunks = device_function(list_leaf_chunks_kernel.function)


@cuda_kernel(
    "output_sums: int64[:, :], first_output: int32[:], progress: PROGRESS[:], nodes: NODE[:], sums: int64[:, :, :], "
    "n_leaves: int64[:], drawn: int32[:], n_drawn: int64[:], rows: int32[:, :], segments: int64[:, :]",
    registers=48,
)  # fmt: skip
def start_trees_kernel(output_sums, first_output, progress, nodes, sums, n_leaves, drawn, n_drawn, rows, segments):
    """start_trees_step by the first block, start_rows_kernel by all."""
    if cuda.blockIdx.x == 0:
        start_trees_step(output_sums, first_output, progress, nodes, sums, n_leaves)
    start_rows(int64(first_output.size), progress, drawn, n_drawn, rows, segments)


@cuda_kernel(
    "begin: int64, n: int64, max_depth: int64, first_slot: int64, subtract: int32, progress: PROGRESS[:], nodes: NODE[:], "
    "counts: int64[:], build: int32[:], parents: int32[:], first_output: int32[:], segments: int64[:, :], n_parts: int64, "
    "n_even: int64, n_flushed: int64, slices: SLICE[:], first_slice: int32[:]",
    **ONE_BLOCK,
)  # fmt: skip
def choose_built_kernel(
    begin, n, max_depth, first_slot, subtract, progress, nodes, counts, build, parents, first_output, segments, n_parts,
    n_even, n_flushed, slices, first_slice,
):  # fmt: skip
    """choose_built_step, then list_build_items_kernel."""
    choose_built_step(begin, n, max_depth, first_slot, subtract, progress, nodes, counts, build, parents)
    cuda.syncthreads()  # what is built is known
    list_build_items(build, nodes, first_output, segments, n_parts, n_even, n_flushed, progress, slices, first_slice)


@cuda_kernel(
    "max_depth: int64, max_leaves: int64, progress: PROGRESS[:], nodes: NODE[:], n_leaves: int64[:], rank: int64[:], "
    "first_rank: int64[:], selected: int32[:], sums: int64[:, :, :], left_sums: int64[:, :, :], monotone: int8[:], "
    "scales: float64[:, :], first_output: int32[:], penalty: PENALTY[:], segments: int64[:, :], first_chunk: int64[:], "
    "moved: int64[:], counts: int64[:]",
    **SPLIT, uses_double=True,
)  # fmt: skip
def split_depthwise_kernel(
    max_depth, max_leaves, progress, nodes, n_leaves, rank, first_rank, selected, sums, left_sums, monotone, scales, first_output,
    penalty, segments, first_chunk, moved, counts,
):  # fmt: skip
    """select_depthwise_step, apply_splits_step, list_chunks_kernel."""
    select_depthwise_step(max_depth, max_leaves, progress, nodes, n_leaves, rank, first_rank, selected)
    cuda.syncthreads()  # the level's nodes are selected
    split_selected(
        selected, progress, nodes, sums, left_sums, monotone, scales, first_output, penalty, segments, first_chunk, moved, counts
    )


@cuda_kernel(
    "max_depth: int64, max_leaves: int64, progress: PROGRESS[:], nodes: NODE[:], n_leaves: int64[:], selected: int32[:], "
    "sums: int64[:, :, :], left_sums: int64[:, :, :], monotone: int8[:], scales: float64[:, :], first_output: int32[:], "
    "penalty: PENALTY[:], segments: int64[:, :], first_chunk: int64[:], moved: int64[:], counts: int64[:]",
    **SPLIT, uses_double=True,
)  # fmt: skip
def split_lossguide_kernel(
    max_depth, max_leaves, progress, nodes, n_leaves, selected, sums, left_sums, monotone, scales, first_output, penalty,
    segments, first_chunk, moved, counts,
):  # fmt: skip
    """select_lossguide_step, apply_splits_step, list_chunks_kernel."""
    select_lossguide_step(max_depth, max_leaves, progress, nodes, n_leaves, selected)
    cuda.syncthreads()  # the best leaves are selected
    split_selected(
        selected, progress, nodes, sums, left_sums, monotone, scales, first_output, penalty, segments, first_chunk, moved, counts
    )


@device_function
def split_selected(
    selected, progress, nodes, sums, left_sums, monotone, scales, first_output, penalty, segments, first_chunk, moved, counts
):
    apply_splits_step(selected, progress, nodes, sums, left_sums, monotone, scales, first_output, penalty)
    list_chunks(int32(1), selected, nodes, segments, progress, first_chunk, moved, counts)  # a thread's nodes are the same


@cuda_kernel(
    "segments: int64[:, :], nodes: NODE[:], progress: PROGRESS[:], first_chunk: int64[:], leaf_sums: int64[:, :, :]", **ONE_BLOCK
)
def list_leaves_kernel(segments, nodes, progress, first_chunk, leaf_sums):
    """list_leaf_chunks_kernel; leaf_sums : int64 (≥ n_nodes, leaf_size, 2), OUT, 0 for all nodes."""
    node = int64(cuda.threadIdx.x)
    while node < progress[0].n_nodes:
        for own in range(leaf_sums.shape[1]):
            leaf_sums[node, own, 0], leaf_sums[node, own, 1] = int64(0), int64(0)
        node += int64(cuda.blockDim.x)
    list_leaf_chunks(segments, nodes, progress, first_chunk)


@cuda_kernel(
    "progress: PROGRESS[:], nodes: NODE[:], sums: int64[:, :, :], leaf_sums: int64[:, :, :], scales: float64[:, :], "
    "first_output: int32[:], penalty: PENALTY[:], weights: float32[:, :], leaves: float32[:, :], covers: float64[:], "
    "state: int64[:]",
    **ONE_BLOCK, uses_double=True,
)  # fmt: skip
def weigh_trees_kernel(progress, nodes, sums, leaf_sums, scales, first_output, penalty, weights, leaves, covers, state):
    """sum_upwards_step, prune_step, leaf_weights_step. state : int64 (2,), OUT, beside the trees that go to the host: n_nodes and
    non_finite of progress."""
    sum_upwards_step(progress, nodes, leaf_sums)  # ends with a barrier, as pruning does
    prune_step(progress, nodes, leaf_sums, scales, first_output, penalty)
    leaf_weights_step(progress, nodes, sums, leaf_sums, scales, first_output, penalty, weights, leaves, covers)
    if cuda.threadIdx.x == 0:
        state[0], state[1] = progress[0].n_nodes, progress[0].non_finite
