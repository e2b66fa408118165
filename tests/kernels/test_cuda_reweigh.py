"""kernels/reweigh.py on a GPU: the CPU's sums and margins."""

import numpy as np
from cuda_runners import assert_same, each_runner

from gpuboost.kernels.reweigh import reweigh_trees_cpu, reweigh_trees_kernel, write_margins_cpu, write_margins_kernel


@each_runner
def test_sums_and_margins_are_the_cpus(run):
    rng = np.random.default_rng(5)
    for n_rows in (0, 1, 200):
        leaves = rng.normal(size=(4, n_rows)).astype(np.float32)
        outputs = np.array([0, 1, 1, 0], np.int32)
        before, after = (rng.random((2, 4)).astype(np.float32) * 2.0**40).astype(np.float64)
        sums = rng.integers(-(2**50), 2**50, (2, n_rows))
        expected = sums.copy()
        reweigh_trees_cpu(leaves, outputs, before, after, expected, 1)
        run(reweigh_trees_kernel, leaves, outputs, before, after, sums, threads=n_rows)
        assert_same(sums, expected)
        base = rng.normal(size=(2, n_rows)).astype(np.float32)
        margin, own = np.empty((2, 2, n_rows), np.float32)
        write_margins_cpu(base, expected, 2.0**-40, own, 1)
        run(write_margins_kernel, base, sums, 2.0**-40, margin, threads=n_rows)
        assert_same(margin, own)
