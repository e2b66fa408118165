"""data/bins.py: codes come from the table's own cuts or a model's, and follow the weights."""

import re
from itertools import cycle

import numpy as np
import pytest
import scipy.sparse
from small_matrices import BACKEND, COMM, X, caught

from gpuboost.communicator import current_communicator, run_threads
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.quantile_dmatrix import QuantileDMatrix


def test_codes_under_the_tables_own_cuts():
    d = DMatrix(X)
    binned = d.binned(256, BACKEND, COMM)
    assert binned.pages[0].columns.tolist() == [[0, 1, 2], [0, 2, 1]]
    assert d.binned(256, BACKEND, COMM) is binned, "binned twice"
    assert d.any_binned() is binned
    assert d.binned(2, BACKEND, COMM).cuts.n_bins.tolist() == [2, 2]


def test_new_weights_make_new_cuts():
    rows = np.arange(100, dtype=np.float32)[:, None]
    d = DMatrix(rows)
    before = d.binned(4, BACKEND, COMM).cuts
    weight = np.where(np.arange(100) < 10, 100, 1)
    d.set_weight(weight)
    assert not d.binned(4, BACKEND, COMM).cuts.same_as(before)
    assert d.binned(4, BACKEND, COMM).cuts.same_as(DMatrix(rows, weight=weight).binned(4, BACKEND, COMM).cuts)


def test_bins_that_another_thread_puts_in_their_place_are_not_taken_for_those_asked_for(monkeypatch):
    """Each look at what is kept finds what the other thread has asked for since."""
    d = DMatrix(X)
    of_each = [d.bins(max_bin, BACKEND, COMM) for max_bin in (256, 2)]
    kept = cycle(of_each)
    monkeypatch.setattr(DMatrix, "_bins", property(lambda _: next(kept)), raising=False)
    assert d.binned(256, BACKEND, COMM) is of_each[0].binned
    assert next(kept) is of_each[1]
    assert d.codes(of_each[0].binned.cuts, d.source(None, {}, 2), BACKEND) is of_each[0].binned


def test_a_slice_has_its_own_cuts():
    d = DMatrix(X)
    d.binned(256, BACKEND, COMM)
    assert d.slice([0, 1]).binned(256, BACKEND, COMM).cuts.same_as(DMatrix(X[:2]).binned(256, BACKEND, COMM).cuts)


def test_codes_for_other_cuts_are_made_from_the_table_when_there_is_one():
    train = DMatrix(X)
    cuts = train.binned(256, BACKEND, COMM).cuts
    assert train.codes(cuts, train.source(None, {}, 2), BACKEND) is train.any_binned()
    other = DMatrix([[2.5, np.nan], [0.0, 20.0]])
    codes = other.codes(cuts, other.source(None, {}, 2), BACKEND)
    assert codes.pages[0].columns.tolist() == [[2, 0], [2, 1]] and len(codes.pages[0].records) == 0
    assert QuantileDMatrix([[2.5, 1.0]]).codes(cuts, None, BACKEND) is None


@pytest.mark.parametrize("make", [lambda X: DMatrix(X).binned(256, BACKEND, COMM), QuantileDMatrix])
def test_columns_without_values_are_named_once(make):
    table = np.array([[1, np.nan, 5, np.nan], [2, np.nan, 5, 7]])
    (message,) = caught(lambda: make(table))  # neither a constant column nor one with a single value is meant
    assert message.startswith("Some columns hold nothing but missing values") and message.endswith(': "1".')
    (message,) = caught(lambda: make(np.full((3, 7), np.nan)))
    assert message.startswith("All columns hold nothing") and message.endswith('"0", "1", "2", "3", "4" and 2 more.')


@pytest.mark.parametrize("absent", ["missing", "zero"])
def test_columns_without_values_of_a_sparse_table_are_named(absent):
    """Whether every row stores a missing value, or none stores anything. (A category that all others have is a value.)"""
    table, is_stored = np.zeros((70_000, 5), np.float32), np.zeros((70_000, 5), bool)
    is_stored[:, 1:3], is_stored[-1] = True, True
    table[:, 1], table[:, 2], table[:, 4] = np.nan, 2, 0
    table[0, 2], table[-1, [0, 3]] = np.nan, [np.nan, 5]  # column 0: nothing, or all else is zero; 3 and 4: one value is stored
    is_stored[:, 4] |= absent == "zero"
    table[0, 4] = np.nan
    csr = scipy.sparse.csr_matrix((table[is_stored], np.nonzero(is_stored)), shape=table.shape)
    types = ["q", "q", "c", "q", "q"]
    (message,) = caught(lambda: QuantileDMatrix(csr, sparse_absent=absent, feature_types=types, cat_encoding="sets"))
    assert message.endswith(': "0", "1".' if absent == "missing" else ': "1".')


@pytest.mark.parametrize("bad", [0.5, -1, 2**24, 2**31, np.inf])
@pytest.mark.parametrize("kind", ["array", "named", "sparse", "quantile"])
def test_numbers_that_are_no_codes_of_categories_are_refused(kind, bad):
    table = np.array([[0, 0.5], [2**24 - 1, -1], [np.nan, 3], [1, 4]])
    types, names = ["c", "q"], ["kind", "size"] if kind == "named" else None

    def bin_it(table):
        if kind == "quantile":
            return QuantileDMatrix(table, feature_types=types, cat_encoding="ordinal")
        table = pytest.importorskip("scipy.sparse").csr_array(table) if kind == "sparse" else table
        return DMatrix(table, feature_types=types, feature_names=names).binned(256, BACKEND, COMM)

    bin_it(table)
    table[3, 0] = bad
    column = '"kind"' if names else '"0"'
    message = f"Column {column} is of feature type 'c'.* from 0 to 16777215, got {re.escape(f'{bad:.9g}')} in row 3. Number"
    with pytest.raises(ValueError, match=message):
        bin_it(table)


def test_the_missing_value_is_no_category():
    DMatrix([[-1.0], [0.0], [1.0]], missing=-1, feature_types=["c"]).binned(256, BACKEND, COMM)
    with pytest.raises(ValueError, match="feature type 'c'.* got -1 in row 0"):
        DMatrix([[-1.0], [0.0], [1.0]], feature_types=["c"]).binned(256, BACKEND, COMM)


def test_a_column_that_another_worker_has_values_of_is_not_named():
    shards = [np.array([[np.nan, np.nan]]), np.array([[5.0, np.nan]])]

    def work(rank):
        DMatrix(shards[rank]).binned(256, BACKEND, current_communicator())

    messages = caught(lambda: run_threads(2, work))
    assert len(messages) >= 1 and all(message.endswith(': "1".') for message in messages)
