"""kernels/predict.py, predict_codes.py, sparse.py: at sets rows go where a walk in Python goes, on every way there is."""

from dataclasses import replace

import numpy as np
import pytest
from cuda_runners import assert_same, each_runner
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cuda_predict import NO_LIST
from test_predict_kernel import forest, grown_together, predict_few, predict_values
from test_sparse_kernels import Table

from gpuboost.backend.contract import FlatTrees
from gpuboost.kernels import predict, sparse
from gpuboost.kernels.predict_codes import predict_codes_cpu, predict_codes_kernel
from gpuboost.kernels.structs import CATEGORICAL

NO_LEAVES = np.zeros((0, 0), np.int32)


def with_sets(flat, sets):
    """Some splits made sets. sets : number of the node -> categories that go right."""
    nodes, words = flat.nodes.copy(), []
    for node, categories in sets.items():
        nodes[node]["kind"], nodes[node]["bin"] = CATEGORICAL, len(words)
        n_words = (max(categories, default=-1) + 32) // 32
        words += [32 * n_words, *(sum(1 << c % 32 for c in categories if c // 32 == word) for word in range(n_words))]
    return replace(flat, nodes=nodes, sets=np.array(words, np.uint32))


def goes_left(at, sets, node, x, missing):
    """x : a value, or a code that is ``missing`` or not."""
    if np.isnan(x) or x == missing:
        return at["default_left"] == 1
    if node in sets:
        return int(x) not in sets[node] if x >= 0 else True
    return x < at["threshold"]


def walk(flat, sets, row, missing, split_goes_left=goes_left):
    """The leaf of each tree, by its number within the tree."""
    ends = []
    for root in flat.first_node:
        node = 0
        while (at := flat.nodes[root + node])["feature"] >= 0:
            node = int(at["left"]) + (not split_goes_left(at, sets, root + node, row[at["feature"]], missing))
        ends.append(node)
    return ends


def margins_of(flat, leaves, start):
    margin = start.copy()
    for row, ends in enumerate(leaves):
        for root, output, leaf in zip(flat.first_node, flat.first_output, ends):
            margin[output, row] = np.float32(margin[output, row] + flat.leaf_values[root + leaf, 0])
    return margin


def random_sets(rng, flat, most=70):
    """Half of the splits as sets of categories below ``most``, empty ones among them."""
    splits = np.flatnonzero(flat.nodes["feature"] >= 0)
    chosen = splits[rng.random(len(splits)) < 0.5]
    return {int(node): set(rng.integers(0, most, rng.integers(0, 6)).tolist()) for node in chosen}


#   x0 in {1, 33}: right; else x1 < 0: 1, else 2. Missing x0 goes left.
TREE = [(0, 0.0, 1, 1, 0), (1, 0.0, 3, 0, 0), (-1, 10.0, -1, 0, -1), (-1, 1.0, -1, 0, -1), (-1, 2.0, -1, 0, -1)]


def test_a_set_by_hand():
    flat = with_sets(forest(TREE), {0: {1, 33}})
    x0 = np.array([1, 33, 0, 32, 34, 1000, -1, 1.9, np.nan, 2.0**31, -0.5], np.float32)
    batch = np.column_stack([x0, np.ones(len(x0), np.float32)])
    expected = [10, 10, 2, 2, 2, 2, 2, 10, 2, 2, 2]  # of a fraction the whole part counts; what is no category goes left
    assert predict_values(batch, flat)[0].tolist() == [expected]
    assert predict_few(batch, flat).tolist() == [expected]
    ten_trees = with_sets(forest(*[TREE] * 10), {5 * tree: {1, 33} for tree in range(10)})
    assert predict_few(batch, ten_trees).tolist() == [[10 * value for value in expected]]
    x0[2] = -999.0
    assert predict_values(np.column_stack([x0, -np.ones(len(x0))]), flat, missing=-999.0)[0][0, :3].tolist() == [10, 10, 1]


@pytest.mark.parametrize("default_left, value", [(0, 10), (1, 2)])
def test_an_empty_set_sends_only_missing_values_right(default_left, value):
    root = (0, 0.0, 1, default_left, 0)
    flat = with_sets(forest([root, *TREE[1:]]), {0: set()})
    assert predict_values(np.array([[0.0, 1], [5, 1], [np.nan, 1]], np.float32), flat)[0].tolist() == [[2, 2, value]]


class Case:
    """Random trees with thresholds and sets, rows of values around both, and where a walk in Python leads them."""

    def __init__(self, seed, n_rows, missing):
        rng = np.random.default_rng(seed)
        n_features, n_trees = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        flat = grown_together(rng, np.full(n_features, 6), n_trees, int(rng.integers(0, 10)))
        flat.nodes["threshold"] = rng.integers(0, 70, len(flat.nodes))
        self.sets = random_sets(rng, flat)
        self.flat: FlatTrees = with_sets(flat, self.sets)
        values = rng.integers(-2, 100, (n_rows, n_features)).astype(np.float32)
        values[rng.random(values.shape) < 0.2] += np.float32(0.5)
        values[rng.random(values.shape) < 0.2] = np.nan
        self.values, self.missing, self.start = values, missing, rng.normal(size=(2, n_rows)).astype(np.float32)
        self.leaves = np.array([walk(self.flat, self.sets, row, missing) for row in values], np.int32).reshape(n_rows, n_trees)
        self.margin = margins_of(self.flat, self.leaves, self.start)


cases = given(st.integers(0, 2**32), st.integers(0, 70), st.sampled_from([np.nan, 3.0]))


@settings(max_examples=40)
@cases
def test_values_equal_a_walk_in_python(seed, n_rows, missing):
    case = Case(seed, n_rows, missing)
    for table in (case.values, np.asfortranarray(case.values.astype(np.float64))):
        margin, leaves = predict_values(table, case.flat, 2, missing=missing, start=case.start, n_threads=1 + seed % 2)
        np.testing.assert_array_equal(leaves, case.leaves)
        np.testing.assert_array_equal(margin, case.margin)
        base = np.array([0.25, -3.0], np.float32)
        few = predict_few(table, case.flat, 2, missing=missing, start=base)
        np.testing.assert_array_equal(few, margins_of(case.flat, case.leaves, np.repeat(base[:, None], len(table), axis=1)))


def stored(values, absent):
    """(row_begin, columns, values) of the cells that are not absent."""
    is_stored = ~(np.isnan(values) if np.isnan(absent) else values == absent)
    row_begin = np.concatenate([[0], np.cumsum(is_stored.sum(axis=1))])
    return row_begin, np.nonzero(is_stored)[1].astype(np.int32), values[is_stored]


@settings(max_examples=20)
@cases
def test_sparse_rows_equal_a_walk_in_python(seed, n_rows, missing):
    case, absent = Case(seed, n_rows, missing), np.float32(0 if seed % 2 else np.nan)
    margin, leaves = case.start.copy(), np.full_like(case.leaves, -1)
    table = *stored(case.values, absent), np.float32(missing), absent, case.values.shape[1]
    sparse.predict_sparse_cpu(*table, *case.flat, margin, leaves, 2)
    np.testing.assert_array_equal(leaves, case.leaves)
    np.testing.assert_array_equal(margin, case.margin)


@settings(max_examples=8)
@cases
@each_runner
def test_values_on_a_gpu_equal_a_walk_in_python(run, seed, n_rows, missing):
    case = Case(seed, n_rows, missing)
    margin, leaves = case.start.copy(), np.full_like(case.leaves, -1)
    columns = np.ascontiguousarray(case.values.T)
    run(predict.predict_values_kernel, columns, missing, *case.flat, 0, margin, leaves, threads=n_rows)
    assert_same(leaves, case.leaves)
    assert_same(margin, case.margin)
    margin, leaves, absent = case.start.copy(), np.full_like(case.leaves, -1), 0.0 if seed % 2 else np.nan
    cells = stored(case.values, absent)
    run(sparse.predict_sparse_kernel, *cells, missing, absent, *case.flat, margin, leaves, threads=n_rows)
    assert_same(leaves, case.leaves)
    assert_same(margin, case.margin)


class CodeCase:
    """The same for codes, which are the categories: of a dense page, and as cells."""

    def __init__(self, seed, n_rows):
        rng = np.random.default_rng(seed)
        self.table = Table(seed, n_rows, bool(seed % 2))
        flat = grown_together(rng, self.table.n_bins, 3, 8)
        self.sets = random_sets(rng, flat, 5)
        self.flat, self.start = with_sets(flat, self.sets), rng.normal(size=(2, n_rows)).astype(np.float32)
        self.rows = rng.permutation(n_rows)[: n_rows // 2 + 1].astype(np.int32)
        self.margin = self.start.copy()
        leaves = [walk(self.flat, self.sets, enumerate_codes(codes), None, self.goes_left) for codes in self.table.codes.T]
        self.margin[:, self.rows] = margins_of(self.flat, leaves, self.start)[:, self.rows]

    def goes_left(self, at, sets, node, code, _):
        feature, code = code
        if code == self.table.n_bins[feature]:
            return at["default_left"] == 1
        return code not in sets[node] if node in sets else code <= at["bin"]


def enumerate_codes(codes):
    return list(enumerate(codes.tolist()))


code_cases = given(st.integers(0, 2**32), st.integers(1, 40))


@settings(max_examples=20)
@code_cases
def test_codes_equal_a_walk_in_python(seed, n_rows):
    case = CodeCase(seed, n_rows)
    table, margin = case.table, case.start.copy()
    predict_codes_cpu(table.codes.astype(np.uint8), table.n_bins, case.rows, *case.flat, margin, NO_LEAVES, 1 + seed % 2)
    np.testing.assert_array_equal(margin, case.margin)
    margin = case.start.copy()
    page = table.row_begin, table.cells, table.offsets, table.absent
    sparse.predict_cells_cpu(*page, case.rows, *case.flat, margin, 1)
    np.testing.assert_array_equal(margin, case.margin)


@settings(max_examples=8)
@code_cases
@each_runner
def test_codes_on_a_gpu_equal_a_walk_in_python(run, seed, n_rows):
    case = CodeCase(seed, n_rows)
    table, margin, n = case.table, case.start.copy(), len(case.rows)
    every = np.zeros((2, n_rows), np.float32)
    run(
        predict_codes_kernel, table.codes.astype(np.uint8), table.n_bins, case.rows, np.array([0, n]), *case.flat, 0,
        margin, NO_LEAVES, threads=n,
    )  # fmt: skip
    assert_same(margin, case.margin)
    run(
        predict_codes_kernel, table.codes.astype(np.uint16), table.n_bins, NO_LIST, np.array([0, n_rows]), *case.flat, 0,
        every, NO_LEAVES, threads=n_rows,
    )  # fmt: skip
    page, again = (table.row_begin, table.cells, table.offsets, table.absent), np.zeros((2, n_rows), np.float32)
    everyone = np.arange(n_rows, dtype=np.int32)
    run(sparse.predict_cells_kernel, *page, everyone, np.array([0, n_rows]), *case.flat, 0, again, threads=n_rows)
    assert_same(again, every)
    margin = case.start.copy()
    run(sparse.predict_cells_kernel, *page, case.rows, np.array([0, n]), *case.flat, 0, margin, threads=n)
    assert_same(margin, case.margin)
