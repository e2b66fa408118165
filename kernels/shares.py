"""Who does which items of work: each thread its own share first, then what is left of the others'.

    items   0 1 2 3 4 | 5 6 7 8 9         of two threads; share t begins at item ⌈n · t / n_threads⌉

What one kernel wrote the next one reads: a share of the rows, of a level's nodes or of their chunks of rows lies in the cache of
the core that had it last. A line that changes cores costs 40 ns where they are neighbours and 200 where they are not, which on a
shared machine changes from minute to minute. Claimed in turns, every second line changes cores. A thread that is done helps the
others, the next one first, so that uneven items, and threads that another process delays, balance as before; which thread does
which item cannot change a result. What is few and uneven, or read once, as columns and queries, is claimed in turns (jit.claim).

Two threads of an AMD EPYC (Zen 5), in turns -> by shares, ms: 20,000 × 7, a round from gradients to margins with near cores
0.270 -> 0.245, with far ones 0.48 -> 0.42; 2,000,000 × 28, binning 135 -> 121; 450,000 × 28, copying half of its codes
0.57 -> 0.49, predicting by codes 0.68 -> 0.51; 20,000 × 2,000, binning with near cores 156 -> 157, with far ones 187 -> 156.
"""

import numpy as np
from numba import int64

from gpuboost.kernels.allocation import zeros
from gpuboost.kernels.jit import claim, parallel_kernel

__all__ = ["claim_block", "claim_near", "claim_rows", "new_counters"]

LEAST_ROWS = 1024  # of an item: fewer take one thread less time than two, a line of each array going over and back
LINE_ROWS = 16  # four bytes of each fill a line


@parallel_kernel.part
def new_counters(n_threads):
    """int64 (n_threads, 8), 0: items claimed of each share, each in a line of its own."""
    return zeros((n_threads, 8), np.int64)


@parallel_kernel.part
def claim_near(counters, thread, n_items):
    """The next of n_items that nobody has claimed, n_items where there is none. counters : new_counters, INOUT."""
    n_threads = counters.shape[0]
    for k in range(n_threads):
        owner = thread + k if thread + k < n_threads else thread + k - n_threads
        first = (n_items * owner + n_threads - 1) // n_threads
        n_own = (n_items * (owner + 1) + n_threads - 1) // n_threads - first
        if counters[owner, 0] < n_own:
            item = claim(counters[owner])
            if item < n_own:
                return first + item
    return n_items


@parallel_kernel.part
def claim_block(counters, thread, n_rows, size):
    """Where the next block of so many rows begins that nobody has claimed; n_rows or more where there is none."""
    return claim_near(counters, thread, (n_rows + size - 1) // size) * size


@parallel_kernel.part
def claim_rows(counters, thread, n_outputs, n_rows, most):
    """(output, begin, end) of rows that nobody has claimed, output after output; n_outputs, 0, 0 where there are none.

    Items are as many and as even as shares want them, of at most ``most`` rows, a multiple of LINE_ROWS; whole lines where an
    array begins with one.
    """
    n_threads = counters.shape[0]
    n_even = ((n_rows + most - 1) // most + n_threads - 1) // n_threads * n_threads
    size = max((n_rows + n_even - 1) // max(n_even, 1), min(int64(LEAST_ROWS), most))
    size = (size + LINE_ROWS - 1) // LINE_ROWS * LINE_ROWS
    n_items = (n_rows + size - 1) // size
    item = claim_near(counters, thread, n_outputs * n_items)
    if item >= n_outputs * n_items:
        return n_outputs, int64(0), int64(0)
    output, begin = item // n_items, item % n_items * size
    return output, begin, min(begin + size, n_rows)
