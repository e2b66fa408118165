"""One model, byte for byte, with packed records and with plain ones (data/packing.py)."""

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from rungs import RUNGS, each_rung
from simulator import SimulatedDevice

import gpuboost as gb
from gpuboost.backend import CpuBackend
from gpuboost.backend.cpu import trees as cpu_trees
from gpuboost.backend.cuda import CudaBackend
from gpuboost.backend.cuda.device import find_device
from gpuboost.binned.matrix import Representation
from gpuboost.communicator import run_threads
from gpuboost.data import binning as binned_module
from gpuboost.data import packing as packing_module
from gpuboost.data.packing import choose_packing, choose_sparse_packing
from gpuboost.model_io import digest

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Few rows are worth it."""
    monkeypatch.setattr(packing_module, "UNDONE_NODES", 0)


# ---- the tables


def one_hot(rng, n_rows, sizes=(12, 5)):
    """Categories as columns of ones and zeros."""
    return np.concatenate([rng.integers(0, n, n_rows)[:, None] == np.arange(n) for n in sizes], axis=1).astype(np.float32)


def with_missing(X, rng):
    return np.where(rng.random(X.shape) < 0.1, np.nan, X)


TABLES = {
    "one-hot": one_hot,
    "one-hot, some missing": lambda rng, n: with_missing(one_hot(rng, n), rng),
    "one-hot, zeros missing": lambda rng, n: np.where(one_hot(rng, n) == 0, np.nan, 1),
    "binary": lambda rng, n: rng.random((n, 20)) < rng.random(20),
    "mixed": lambda rng, n: np.column_stack([rng.normal(size=(n, 3)), one_hot(rng, n), rng.integers(0, 6, (n, 2))]),
    "few values": lambda rng, n: rng.integers(0, 16, (n, 18)),
    "exclusive numbers": lambda rng, n: one_hot(rng, n, (20,)) * rng.integers(0, 8, (n, 1)),
}


@dataclass(frozen=True)
class Case:
    table: str
    params: dict[str, Any] = field(default_factory=dict)
    weights: str = ""  # "", "some zero", or "loud": they take two limbs
    page_rows: int | None = None


MULTI = {"objective": "multi:softprob", "num_class": 3}
CASES = {
    **{name: Case(name) for name in TABLES},
    "classes": Case("mixed", MULTI),
    "weights": Case("mixed", weights="some zero"),
    "loud": Case("mixed", MULTI, weights="loud"),
    "pages": Case("mixed", weights="some zero", page_rows=130),
    "leaf by leaf": Case("mixed", {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 12}),
    "little memory": Case("mixed", {**MULTI, "histogram_memory": 1}),
    "some memory": Case("mixed", {"histogram_memory": 200_000}),
    "one thread": Case("mixed", {"nthread": 1}),
}


@cache
def data(name, n_rows):
    """(X, label, weight or None)."""
    case, rng = CASES[name], np.random.default_rng(11)
    X = TABLES[case.table](rng, n_rows)
    signal = np.nan_to_num(X.astype(float), nan=2.0) @ rng.normal(size=X.shape[1]) + rng.normal(size=n_rows)
    thresholds = np.quantile(signal, [0.3, 0.7] if "num_class" in case.params else [0.5])
    weight = {"": None, "some zero": rng.integers(0, 4, n_rows), "loud": 10.0 ** (6.0 * rng.random(n_rows) ** 6)}[case.weights]
    return X.astype(np.float32), np.searchsorted(thresholds, signal).astype(np.float32), weight


def matrix(name, rows=slice(None), n_rows=400):
    X, label, weight = data(name, n_rows)
    case = CASES[name]
    X = X[rows]
    return gb.QuantileDMatrix(X, label[rows], weight=None if weight is None else weight[rows], page_rows=case.page_rows)


def train(name, dtrain, rounds=3, **params):
    params = {"objective": "binary:logistic", "seed": 5, "max_depth": 4, **CASES[name].params, **params}
    model = gb.train(params, dtrain, rounds, verbose_eval=False).model
    assert min(tree.n_leaves for tree in model.trees) >= 2
    return digest(model)


@cache
def digest_without(name, n_rows=400, rounds=3, **params):
    """The digest on plain records, on the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuboost.backend.choose_backend", lambda *_, **__: CpuBackend(1))
        patch.setattr(binned_module, "choose_packing", lambda *_: None)
        dtrain = matrix(name, n_rows=n_rows)
        assert dtrain.any_binned().packing is None
        return train(name, dtrain, rounds, **params)


# ---- the same bytes


@pytest.mark.parametrize("name", CASES)
def test_packing_does_not_change_the_model(name):
    dtrain = matrix(name)
    assert dtrain.any_binned().packing is not None
    assert train(name, dtrain) == digest_without(name)


def test_neither_do_workers_that_pack_differently(monkeypatch):
    """The second worker's rows exclude more columns from each other; the third does not pack at all."""
    shards = [slice(0, 350), slice(350, 365), slice(365, 400)]
    monkeypatch.setattr(binned_module, "choose_packing", lambda pages, *rest: choose_or_not(pages, *rest))

    def choose_or_not(pages, cuts, backend):
        return None if pages[0].n_rows == 35 else choose_packing(pages, cuts, backend)

    def work(rank):
        dtrain = matrix("mixed", shards[rank])
        packing = dtrain.any_binned().packing
        return packing and np.diff(packing.offsets).tolist(), train("mixed", dtrain)

    groups, digests = zip(*run_threads(3, work))
    assert groups[2] is None and groups[0] != groups[1] != None  # noqa: E711
    assert set(digests) == {digest_without("mixed")}


@pytest.mark.parametrize("shards", [[slice(0, 200), slice(200, 400)], [slice(0, 0), slice(0, 400)]], ids=["halves", "no rows"])
def test_two_workers(shards):
    assert set(run_threads(2, lambda rank: train("mixed", matrix("mixed", shards[rank])))) == {digest_without("mixed")}


def test_a_reference_matrix_that_is_trained_on():
    X, label, _ = data("mixed", 400)
    dtrain = gb.QuantileDMatrix(X, label, ref=matrix("mixed"))
    assert train("mixed", dtrain) == digest_without("mixed")
    assert dtrain.any_binned().packing is not None


def test_evaluation_and_continuation():
    X, label, _ = data("mixed", 400)
    dtrain, other = gb.DMatrix(X, label), gb.DMatrix(X[:50], label[:50])
    params = {"objective": "binary:logistic", "seed": 5, "max_depth": 4}
    begun = gb.train(params, dtrain, 2, evals=[(dtrain, "train"), (other, "other")], verbose_eval=False)
    assert digest(gb.train(params, dtrain, 1, xgb_model=begun, verbose_eval=False).model) == digest_without("mixed")
    assert dtrain.any_binned().packing is not None


# ---- sparse tables

ABSENT = {"missing": np.nan, "zero": 0.0}
SPARSE_PARAMS = {
    "level by level": {},
    "leaf by leaf": {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 12},
    "classes": MULTI,
    "one thread": {"nthread": 1},
    "little memory": {"histogram_memory": 1},
}


@cache
def sparse_data(rule, n_rows=400):
    """(table written out, the same as CSR, label, weights): three categories of a cell a row, some with counts and some with NaN
    in it, a column that is stored in most rows, and one in all."""
    rng = np.random.default_rng(12)
    is_stored = one_hot(rng, n_rows, (12, 5, 9)) > 0
    X = np.where(rng.random(is_stored.shape) < 0.1, np.nan, rng.integers(1, 3, is_stored.shape))
    X = np.column_stack([X, rng.integers(-5, 6, n_rows), rng.normal(size=n_rows)])
    is_stored = np.column_stack([is_stored, rng.random(n_rows) < 0.7, np.ones(n_rows, bool)])
    csr = scipy.sparse.csr_matrix((X[is_stored], np.nonzero(is_stored)), shape=X.shape)
    dense = np.where(is_stored, X, ABSENT[rule])
    signal = np.nan_to_num(dense, nan=2.0) @ rng.normal(size=X.shape[1]) + rng.normal(size=n_rows)
    return dense, csr, np.digitize(signal, np.quantile(signal, [0.3, 0.7])), rng.integers(0, 4, n_rows)


def sparse_matrix(rule, table, params, rows=slice(None), **options):
    """table : 0 for the dense one, 1 for the sparse one."""
    data = sparse_data(rule)
    label = data[2] if params is MULTI else data[2] > 0
    return gb.QuantileDMatrix(data[table][rows], label[rows], weight=data[3][rows], sparse_absent=rule, **options)


def train_sparse(dtrain, params, rounds=3):
    params = {"objective": "binary:logistic", "seed": 5, "max_depth": 4, **params}
    model = gb.train(params, dtrain, rounds, verbose_eval=False).model
    assert min(tree.n_leaves for tree in model.trees) >= 2
    return digest(model)


@pytest.fixture(params=["histograms", "walks too"])
def search(request, monkeypatch):
    if request.param == "histograms":
        monkeypatch.setattr(cpu_trees, "BIN_VISITS", 0)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("rule", ABSENT)
@pytest.mark.parametrize("name", SPARSE_PARAMS)
def test_a_packed_sparse_table_gives_the_model_of_the_cells(rule, name, search, monkeypatch):
    params = SPARSE_PARAMS[name]
    packed = sparse_matrix(rule, 1, params)
    assert packed.any_binned().packing is not None and len(packed.any_binned().pages[0].records) == 400
    expected = train_sparse(packed, params)
    assert train_sparse(sparse_matrix(rule, 0, params), params) == expected
    monkeypatch.setattr(binned_module, "choose_sparse_packing", lambda *_: None)
    plain = sparse_matrix(rule, 1, params)
    assert plain.any_binned().packing is None
    assert train_sparse(plain, params) == expected


@pytest.mark.parametrize("rule", ABSENT)
def test_workers_that_pack_sparse_tables_differently(rule, monkeypatch):
    """The second worker's rows exclude more columns from each other; the third does not pack at all."""
    shards = [slice(0, 350), slice(350, 365), slice(365, 400)]

    def choose_or_not(page, n_threads):
        return None if page.n_rows == 35 else choose_sparse_packing(page, n_threads)

    def work(rank):
        dtrain = sparse_matrix(rule, 1, {}, shards[rank])
        packing = dtrain.any_binned().packing
        return packing and np.diff(packing.offsets).tolist(), train_sparse(dtrain, {})

    monkeypatch.setattr(binned_module, "choose_sparse_packing", choose_or_not)
    groups, digests = zip(*run_threads(3, work))
    assert groups[2] is None and groups[0] != groups[1] != None  # noqa: E711
    assert set(digests) == {train_sparse(sparse_matrix(rule, 0, {}), {})}


def test_a_sparse_matrix_is_packed_once_training_wants_it(monkeypatch):
    """And a table that is not worth it is not looked at again."""
    dense, reference = (sparse_matrix("zero", table, {}) for table in (0, 1))
    other = sparse_matrix("zero", 1, {}, ref=reference)
    assert other.any_binned().packing is None
    assert train_sparse(other, {}) == train_sparse(dense, {})
    assert other.any_binned().packing is not None
    monkeypatch.setattr(packing_module, "UNDONE_NODES", 10**9)
    plain = sparse_matrix("zero", 1, {})
    monkeypatch.setattr(packing_module, "UNDONE_NODES", 0)
    assert train_sparse(plain, {}) == train_sparse(dense, {}) and plain.any_binned().packing is None


@pytest.mark.parametrize("table", [0, 1], ids=["dense", "sparse"])
def test_exact_search_has_no_records(table):
    dtrain = gb.DMatrix(sparse_data("zero")[table], sparse_data("zero")[2], sparse_absent="zero")
    gb.train({"tree_method": "exact"}, dtrain, 1, verbose_eval=False)
    records = dtrain.any_binned().pages[0].records
    assert dtrain.any_binned().packing is None and (records is None or len(records) == 0)


# ---- on CUDA


def simulated(**options):
    return CudaBackend(SimulatedDevice(**options))


@pytest.fixture(params=["simulator", *each_rung, pytest.param("gpu", marks=pytest.mark.gpu)])
def cuda(request):
    if request.param == "gpu":
        return CudaBackend(find_device(0))
    return simulated() if request.param == "simulator" else simulated(block=64, n_multiprocessors=2, rung=RUNGS[request.param])


SMALL = {"n_rows": 100, "rounds": 1, "max_depth": 2}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["mixed", "one-hot, some missing", "loud", "leaf by leaf"])
def test_cuda_grows_the_cpus_model(name, cuda, use_backend):
    expected = digest_without(name, **SMALL)
    use_backend(cuda)
    dtrain = matrix(name, n_rows=100)
    assert dtrain.any_binned().packing is not None and dtrain.any_binned().memory == cuda.memory.name
    assert train(name, dtrain, 1, max_depth=2) == expected


@pytest.mark.sweep(1)
@pytest.mark.parametrize("rule", ABSENT)
@pytest.mark.parametrize("params", [{}, {"grow_policy": "lossguide", "max_leaves": 4}], ids=["levels", "leaves"])
def test_cuda_grows_the_cpus_model_of_packed_cells(rule, params, cuda, use_backend):
    params = {"max_depth": 2, **params}
    use_backend(CpuBackend(1))
    expected = train_sparse(sparse_matrix(rule, 1, params, slice(100)), params, 1)
    use_backend(cuda)
    dtrain = sparse_matrix(rule, 1, params, slice(100))
    assert dtrain.any_binned().packing is not None and dtrain.any_binned().memory == cuda.memory.name
    assert train_sparse(dtrain, params, 1) == expected


@pytest.mark.sweep(1)
@pytest.mark.parametrize("rule", ABSENT)
def test_one_hot_cells_are_added_up_by_their_packed_records_on_cuda(rule, use_backend):
    """By the kernel of dense records, undone once a step; rows are moved by their cells. Half of the columns change nothing."""
    rng = np.random.default_rng(13)
    cells = scipy.sparse.csr_matrix(one_hot(rng, 100))
    label = cells @ rng.normal(size=cells.shape[1]) + rng.normal(size=100) / 4
    params = {"max_depth": 2, "seed": 5, "min_child_weight": 0}
    for share in (1.0, 0.5):
        digests, launches = [], Counter()
        for backend in (CpuBackend(1), simulated()):
            use_backend(backend)
            dtrain = gb.QuantileDMatrix(cells, label, sparse_absent=rule)
            assert dtrain.any_binned().representation is Representation.PACKED_SPARSE
            if backend.name == "cuda":
                backend.device.launches.clear()
            model = gb.train({**params, "colsample_bytree": share}, dtrain, 1, verbose_eval=False).model
            digests.append(digest(model))
            if backend.name == "cuda":
                launches = Counter(name for name in backend.device.launches if re.search(r"\.(build|unpack|move)_", name))
        assert digests[0] == digests[1] and model.trees[0].n_leaves > 2
        assert launches == {
            "histogram_tiles.build_histograms_kernel_8": 2, "packing.unpack_histograms_kernel": 2,
            "sparse.move_sparse_rows_kernel": 2,
        }


@pytest.mark.parametrize("shared_limit, kernel", [
    (2**16, "histogram_tiles.build_histograms_kernel_8"),  # 32 groups of 256 codes, eight bytes each
    (2**16 - 1, "histogram.build_histograms_global_kernel_8"),
])  # fmt: skip
def test_packed_histograms_that_just_fit_or_do_not_fit_into_shared_memory(shared_limit, kernel, use_backend):
    cuda = simulated(shared_limit=shared_limit)
    use_backend(cuda)
    dtrain = matrix("few values", n_rows=100)
    assert np.diff(dtrain.any_binned().packing.offsets).tolist() == [256] * 9
    assert train("few values", dtrain, 1, max_depth=2) == digest_without("few values", **SMALL)
    assert {name for name in cuda.device.launches if ".build_histograms" in name} == {kernel}


@pytest.mark.slow
def test_one_launch_more_for_each_step(use_backend):
    """Whatever the number of pages. Nothing waits."""
    counts = []
    for on in (False, True):
        cuda = simulated()
        use_backend(cuda)
        with pytest.MonkeyPatch.context() as patch:
            if not on:
                patch.setattr(binned_module, "choose_packing", lambda *_: None)
            X, label, _ = data("mixed", 100)
            dtrain = gb.QuantileDMatrix(X, label, page_rows=60)
        cuda.device.launches.clear()
        begun = cuda.device.waits
        train("mixed", dtrain, 1, max_depth=2)
        counts.append((Counter(cuda.device.launches), cuda.device.waits - begun))
    (plain, plain_waits), (packed, packed_waits) = counts
    assert packed - plain == {"packing.unpack_histograms_kernel": 2} and not plain - packed
    assert packed_waits == plain_waits


def test_a_matrix_moves_to_the_device_with_its_packing(use_backend):
    use_backend(CpuBackend(1))
    dtrain = matrix("mixed", n_rows=100)
    use_backend(simulated())
    assert train("mixed", dtrain, 1, max_depth=2) == digest_without("mixed", **SMALL)
    moved = dtrain.any_binned()
    assert moved.memory == "simulator" and moved.packing is not None
