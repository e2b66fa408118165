"""kernels/row_leaves.py: rows end in the leaves that partition would move them to, with the sums and margins of leaves.py."""

import numpy as np
import pytest
from cuda_runners import each_runner, progress_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cuda_leaves import FIRST_ROW, in_all_rows
from test_leaves import rounded
from test_nodes import random_trees

from gpuboost.kernels import row_leaves as kernel
from gpuboost.kernels.scalar import split_goes_left
from gpuboost.kernels.structs import CATEGORICAL, NODE

N_BINS = np.array([1, 5, 256], np.int32)


class Rows:
    """Rows of three columns, of which some or all take part, and trees of one or two outputs with random splits."""

    def __init__(self, n_rows, n_splits, n_trees=1, leaf_size=1, seed=0, dtype=np.uint16):
        rng = np.random.default_rng(seed)
        self.nodes = random_trees(seed, n_splits, n_trees)
        self.n_nodes, self.n_trees, self.leaf_size = len(self.nodes), n_trees, leaf_size
        self.nodes["feature"], self.nodes["default_left"] = rng.integers(0, 3, self.n_nodes), rng.integers(0, 2, self.n_nodes)
        self.nodes["bin"] = rng.integers(0, N_BINS[self.nodes["feature"]])
        self.nodes["kind"] = np.where(rng.random(self.n_nodes) < 0.3, CATEGORICAL, 0)
        self.cats = rng.integers(0, 2**32, (self.n_nodes, 9)).astype(np.uint32)
        missing = N_BINS if dtype == np.uint16 else np.minimum(N_BINS, 255)  # a byte has no missing code beside 256 bins
        self.columns = np.stack([rng.integers(0, m + 1, n_rows) for m in missing]).astype(dtype)
        self.kept = np.flatnonzero(rng.random(n_rows) < (0.8 if seed % 2 else 1.0)).astype(np.int32)
        self.first_output = np.arange(n_trees, dtype=np.int32) * leaf_size
        n_outputs = n_trees * leaf_size
        self.grad = (rng.normal(size=(n_outputs, n_rows)) * np.exp(rng.normal(size=n_rows) * 3)).astype(np.float32)
        self.hess = rng.random((n_outputs, n_rows)).astype(np.float32)
        magnitudes = np.array([np.abs(self.grad).sum(axis=1), self.hess.sum(axis=1)], np.float64).T
        room = 61 - np.ceil(np.log2(np.maximum(magnitudes, 1.0))).astype(np.int64)  # so that sums stay within 2^61
        self.scales = np.exp2(np.minimum(rng.integers(0, 50, (n_outputs, 2)), room).astype(np.float64))
        self.progress = progress_of(n_nodes=self.n_nodes, depth=self.nodes["depth"].max())

    @property
    def subset(self):
        return self.kept if len(self.kept) < self.columns.shape[1] else self.kept[:0]

    def end(self, node, row):
        while self.nodes[node]["left"] >= 0:
            feature = self.nodes[node]["feature"]
            code = int(self.columns[feature, row])
            goes_left = split_goes_left(code, self.nodes, self.cats, node, int(N_BINS[feature]))
            node = self.nodes[node]["left"] + (0 if goes_left else 1)
        return node

    def ends(self):
        """uint16 (n_trees, rows that take part)."""
        return np.array([[self.end(t, row) for row in self.kept] for t in range(self.n_trees)], np.uint16).reshape(
            self.n_trees, len(self.kept)
        )


def rows(max_rows, **given):
    return st.builds(
        Rows, st.integers(0, max_rows), st.integers(0, 20), st.integers(1, 2), st.integers(1, 2), st.integers(0, 2**32), **given
    )


def find(run, case):
    found = np.full((case.n_trees, len(case.kept)), 7777, np.uint16)
    run(
        kernel.find_leaves_kernel, case.nodes, case.cats, case.columns, N_BINS, case.progress, case.subset, found,
        warps=-(-len(case.kept) // (32 * kernel.ROWS_PER_THREAD)), shared=case.n_nodes * kernel.WORD_BYTES,
    )  # fmt: skip
    return found


def sum_found(run, case, found, n_parts):
    sums = np.zeros((case.n_nodes + 1, case.leaf_size, 2), np.int64)
    sums[-1] = 77
    run(
        kernel.sum_found_kernel, n_parts, case.progress, case.subset, FIRST_ROW, found, in_all_rows(case.grad),
        in_all_rows(case.hess), case.scales, case.first_output, sums, blocks=3, shared=case.n_nodes * kernel.LINE_BYTES,
    )  # fmt: skip
    assert (sums[-1] == 77).all()
    return sums[:-1]


def expected_sums(case, found):
    sums = np.zeros((case.n_nodes, case.leaf_size, 2), np.int64)
    for tree, output in np.ndindex(case.n_trees, case.leaf_size):
        for kind, values in enumerate((case.grad, case.hess)):
            at = case.first_output[tree] + output
            np.add.at(sums[:, output, kind], found[tree], rounded(values[at, case.kept], case.scales[at, kind]))
    return sums


# ---- find


@each_runner
def test_a_tree_by_hand(run):
    """Bins up to 1 go left, and missing ones; of those on the right the categories of {0, 2}."""
    case = Rows(0, 2)
    case.nodes = np.zeros(5, NODE)
    case.nodes["left"] = [1, -1, 3, -1, -1]
    case.nodes[0]["bin"], case.nodes[0]["default_left"], case.nodes["feature"][:3] = 1, 1, [1, 9, 2]
    case.nodes[2]["kind"], case.cats = CATEGORICAL, np.zeros((5, 9), np.uint32)
    case.cats[2, 1] = 0b11010  # to the right go 1, 3 and 4
    case.columns = np.array([[0] * 6, [0, 1, 5, 2, 3, 4], [9, 9, 9, 0, 1, 2]], np.uint8)
    case.kept, case.n_nodes = np.arange(6, dtype=np.int32), 5
    case.progress = progress_of(n_nodes=5, depth=2)
    assert find(run, case).tolist() == [[1, 1, 1, 3, 4, 3]]
    case.kept = np.array([1, 2, 4], np.int32)
    assert find(run, case).tolist() == [[1, 1, 4]]
    case.progress["non_finite"] = 1
    assert find(run, case).tolist() == [[7777] * 3]


@settings(max_examples=10)
@given(rows(300, dtype=st.sampled_from([np.uint8, np.uint16])))
@each_runner
def test_rows_end_where_they_go_split_by_split(run, case):
    np.testing.assert_array_equal(find(run, case), case.ends())


# ---- sum


@settings(max_examples=10)
@given(rows(200), st.integers(1, 5))
@each_runner
def test_sums_are_those_of_the_rows(run, case, n_parts):
    found = case.ends()
    np.testing.assert_array_equal(sum_found(run, case, found, n_parts), expected_sums(case, found))


@each_runner
def test_the_largest_and_the_smallest_sums(run):
    """2^62 at most, in one leaf, from values of either sign; limbs of all ones and of all zeros."""
    case = Rows(100, 0)
    n, found = len(case.kept), np.zeros((1, len(case.kept)), np.uint16)
    case.hess[:], case.scales[:] = 1.0, 2.0**55
    for grad in (-1.0, 1.0, -(2.0**-55), np.float32(1 - 2.0**-24)):
        case.grad[:] = grad
        expected = [[[n * int(float(grad) * 2**55), n * 2**55]]]
        assert sum_found(run, case, found, 1).tolist() == expected


# ---- add


@settings(max_examples=10)
@given(rows(200), st.booleans())
@each_runner
def test_margins_get_the_values_of_their_leaves(run, case, is_pruned):
    rng, found = np.random.default_rng(case.n_nodes), case.ends()
    case.nodes["leaf"] = rng.integers(0, case.n_nodes, case.n_nodes) if is_pruned else np.arange(case.n_nodes)
    values = rng.normal(size=(case.n_nodes, case.leaf_size)).astype(np.float32)
    before = rng.normal(size=case.grad.shape).astype(np.float32)
    expected, margin = before.copy(), in_all_rows(before)
    for tree, own in np.ndindex(case.n_trees, case.leaf_size):
        expected[case.first_output[tree] + own, case.kept] += values[case.nodes["leaf"][found[tree]], own]
    run(
        kernel.add_found_kernel, case.nodes, case.progress, case.subset, FIRST_ROW, found, values,
        case.first_output, margin, threads=len(case.kept), shared=case.n_nodes * kernel.VALUE_BYTES,
    )  # fmt: skip
    np.testing.assert_array_equal(margin[:, FIRST_ROW:], expected)
    np.testing.assert_array_equal(margin[:, :FIRST_ROW], in_all_rows(before)[:, :FIRST_ROW])


def test_parts_do_not_overflow_shared_memory():
    """A word gets 16 bits of every fourth row of a part."""
    assert kernel.MAX_PART_ROWS // 4 * (2**16 - 1) < 2**31


@pytest.mark.parametrize("n_rows", [1, 33, 129])
@each_runner
def test_around_the_rows_of_a_warp(run, n_rows):
    case = Rows(2 * n_rows, 7, seed=n_rows)
    case.kept = case.kept[:n_rows].copy()
    np.testing.assert_array_equal(find(run, case), case.ends())
