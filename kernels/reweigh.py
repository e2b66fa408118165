"""Margins from which trees can be taken out again, or in which they are weighed anew (DART), exactly: sums in fixed point.

    q(leaf, w)  =  ⌊leaf · w · scale + ½⌋        scale a power of two, w float32: the product has 48 bits, so float64 is exact
    sum         =  Σ q over the trees            a change of weight adds q(leaf, after) − q(leaf, before)
    margin      =  float32(base + sum / scale)

A sum of integers does not remember in which order trees came and went: margins follow from the trees and weights of the model
alone, on any device, and in a training that goes on from a file.

Floor: 4 bytes read per row and tree, 16 read and written per row and output.
"""

import math

import numpy as np
from numba import float32, float64, int64, uint32

from gpuboost.kernels.allocation import zeros
from gpuboost.kernels.cuda_common import cuda_kernel, n_threads, thread_number
from gpuboost.kernels.jit import claim, launch, parallel_kernel, scalar

CHUNK = 8192
FRACTION_BITS = 40  # of the largest leaf; with weights up to MOST_WEIGHT, fewer than 2^13 trees cannot overflow 63 bits
MOST_WEIGHT = 2.0**10


@scalar
def weighed(leaf, factor):
    """q. factor : w · scale."""
    return int64(math.floor(float64(leaf) * factor + float64(0.5)))


@parallel_kernel
def reweigh_trees_cpu(leaves, outputs, before, after, sums, n_threads):
    """Weigh some trees anew in the sums of rows.

    leaves : float32 (n_trees, n_rows), IN. Value of the leaf of each tree that a row falls into.
    outputs : int32 (n_trees,), IN. The output that each tree adds to.
    before, after : float64 (n_trees,), IN. Weight · scale; 0 for a tree that is not in the sums.
    sums : int64 (n_outputs, n_rows), INOUT.
    """
    counter = zeros(1, np.int64)
    launch(n_threads, _reweigh_chunks, (counter, leaves, outputs, before, after, sums))


@parallel_kernel.part
def _reweigh_chunks(counter, leaves, outputs, before, after, sums):
    n_rows = leaves.shape[1]
    while True:
        begin = claim(counter) * CHUNK
        if begin >= n_rows:
            return
        for tree in range(leaves.shape[0]):
            output = outputs[tree]
            for i in range(begin, min(begin + CHUNK, n_rows)):
                sums[output, i] += weighed(leaves[tree, i], after[tree]) - weighed(leaves[tree, i], before[tree])


@parallel_kernel
def write_margins_cpu(base, sums, unit, margin, n_threads):
    """Margins of sums. base : float32 (n_outputs, n_rows), IN. sums : int64, IN. unit : 1 / scale. margin : float32, OUT."""
    counter = zeros(1, np.int64)
    launch(n_threads, _write_chunks, (counter, base, sums, unit, margin))


@parallel_kernel.part
def _write_chunks(counter, base, sums, unit, margin):
    n_rows = base.shape[1]
    while True:
        begin = claim(counter) * CHUNK
        if begin >= n_rows:
            return
        for output in range(base.shape[0]):
            for i in range(begin, min(begin + CHUNK, n_rows)):
                margin[output, i] = float32(float64(base[output, i]) + float64(sums[output, i]) * unit)


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. One thread per row in turn.


@cuda_kernel(
    "leaves: float32[:, :], outputs: int32[:], before: float64[:], after: float64[:], sums: int64[:, :]",
    registers=48, uses_double=True,
)  # fmt: skip
def reweigh_trees_kernel(leaves, outputs, before, after, sums):
    row = thread_number()
    while row < uint32(leaves.shape[1]):
        tree = uint32(0)
        while tree < uint32(leaves.shape[0]):
            leaf = leaves[tree, row]
            sums[outputs[tree], row] += weighed(leaf, after[tree]) - weighed(leaf, before[tree])
            tree = uint32(tree + uint32(1))
        row = uint32(row + n_threads())


@cuda_kernel(
    "base: float32[:, :], sums: int64[:, :], unit: float64, margin: float32[:, :]", registers=48, uses_double=True
)  # fmt: skip
def write_margins_kernel(base, sums, unit, margin):
    row = thread_number()
    while row < uint32(base.shape[1]):
        output = uint32(0)
        while output < uint32(base.shape[0]):
            margin[output, row] = float32(float64(base[output, row]) + float64(sums[output, row]) * unit)
            output = uint32(output + uint32(1))
        row = uint32(row + n_threads())
