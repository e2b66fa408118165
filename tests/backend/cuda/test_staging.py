"""Pages that come from the host while a GPU trains on them: the model of the CPU though every copy is as late as it may be
(tests/fake_cuda.py), and what would happen without each of the waits."""

import pickle
import sys

import fake_cupy
import numpy as np
import pytest
from fake_cuda import FakeGpu
from simulator import SimulationError
from streams import interrupt_walk, parts_of

import gpuboost as gb
from gpuboost.backend import CpuBackend
from gpuboost.backend.cuda import CudaBackend
from gpuboost.backend.cuda import device as device_module
from gpuboost.backend.cuda.device import pack_arguments
from gpuboost.backend.cuda.staging import StagedPages
from gpuboost.backend.cuda.trees import CudaTrees

pytestmark = pytest.mark.long

N_ROWS, PAGE_ROWS, N_PAGES = 44, 16, 3
RNG = np.random.default_rng(6)
X = RNG.normal(size=(N_ROWS, 6)).astype(np.float32)
X[RNG.random(N_ROWS) < 0.2, 1] = np.nan
Y = (np.nan_to_num(X[:, 1]) + X[:, 0] * X[:, 2] + RNG.normal(size=N_ROWS) > 0).astype(np.float32)
PAGE_BYTES = PAGE_ROWS * (6 + 8)  # of both layouts
HOLD = StagedPages.hold
PARAMS = {"objective": "binary:logistic", "max_depth": 2, "max_bin": 12, "seed": 5}


@pytest.fixture
def gpu(monkeypatch, use_backend):
    """The second of two fake GPUs, on which no page stays."""
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy.cupy())
    room_for(monkeypatch, 0)
    gpu = FakeGpu(1)
    use_backend(CudaBackend(gpu))
    return gpu


def room_for(monkeypatch, n_bytes):
    """Of pages, on the device."""
    monkeypatch.setattr(StagedPages, "hold", lambda self, free: HOLD(self, min(n_bytes, free)))


def matrix(rows=slice(None), **options):
    options = {"cache_memory": 0, "page_rows": PAGE_ROWS, "max_bin": None if "ref" in options else 12, **options}
    return gb.ExtMemQuantileDMatrix(parts_of(X[rows], label=Y[rows]), **options)


def trained(dtrain, other, params=()):
    scores = {}
    evals = [(other, "other")]
    booster = gb.train({**PARAMS, **dict(params)}, dtrain, 2, evals=evals, evals_result=scores, verbose_eval=False)
    return booster.save_raw("json"), scores, booster.predict(other).tobytes()


def stump(dtrain):
    return gb.train({**PARAMS, "max_depth": 1, "base_score": 0.5}, dtrain, 1).save_raw("json")


def streamed(params=(), **options):
    dtrain = matrix(**options)
    return trained(dtrain, matrix(slice(0, 20), ref=dtrain), params)


def expected(params=()):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuboost.backend.choose_backend", lambda *_, **__: CpuBackend(1))
        return trained(gb.DMatrix(X, Y), gb.DMatrix(X[:20], Y[:20]), params)


TRAININGS: list[dict] = [
    {}, {"subsample": 0.5}, {"colsample_bytree": 0.6}, {"grow_policy": "lossguide", "max_leaves": 4, "max_depth": 0},
    {"objective": "multi:softprob", "num_class": 2, "max_depth": 1},
]  # fmt: skip


@pytest.mark.sweep(1)
# Every two of the three beside each other: which pages a training walks over, where one lies and whether it stays on the device
# are asked one after another.
@pytest.mark.parametrize("params, cache_memory, n_held", [
    (params, cache_memory, [0, 1, N_PAGES][(i + j) % 3])
    for i, params in enumerate(TRAININGS) for j, cache_memory in enumerate([0, PAGE_BYTES, None])
], ids=str)  # fmt: skip
def test_model_scores_and_predictions_are_those_of_the_cpu(params, cache_memory, n_held, gpu, monkeypatch):
    """None, some or all of the pages in files; none, some or all on the device."""
    staging = 2 * PAGE_ROWS * 8
    room_for(monkeypatch, n_held * PAGE_BYTES + staging * (0 < n_held < N_PAGES))
    assert streamed(params, cache_memory=cache_memory) == expected(params)


def test_without_any_of_the_waits_the_model_is_another(use_backend, monkeypatch):
    """Kernels done before their page is there; a copy into a buffer whose kernels are not done; a page read where another one is
    still being copied from."""
    mark, upload = device_module._CupyMark, FakeGpu.start_upload

    def upload_at_once(gpu, parts, behind):
        return upload(gpu, parts, mark(gpu.xp.cuda, gpu.xp.cuda.Stream(non_blocking=True)))

    def model(hurries, owner=None, name=None, instead=None):
        with monkeypatch.context() as patch:
            room_for(patch, 0)
            patch.setitem(sys.modules, "cupy", fake_cupy.cupy())
            if owner is not None:
                patch.setattr(owner, name, instead)
            gpu = FakeGpu(1)
            gpu.machine.hurries = hurries
            use_backend(CudaBackend(gpu))
            try:
                return stump(matrix())
            except SimulationError:  # of a page that is not there all codes lie beyond the histogram
                return None

    right = model(False)
    assert right == model(True)
    assert right != model(True, FakeGpu, "order_behind", lambda self, place: None)
    assert right != model(False, FakeGpu, "start_upload", upload_at_once)
    assert right != model(False, mark, "wait", lambda self: None)


def test_a_tree_brings_records_once_a_level_and_the_columns_that_it_splits_by(gpu, monkeypatch):
    brought, upload = [], FakeGpu.start_upload

    def counted(self, parts, behind):
        parts = list(parts)
        brought.append(sum(source.nbytes for source, _ in parts))
        return upload(self, parts, behind)

    monkeypatch.setattr(FakeGpu, "start_upload", counted)
    booster = gb.train(PARAMS, matrix(), 1)
    tree = booster.trees_to_dataframe()
    levels = [tree["Feature"][tree["ID"] == "0-0"], tree["Feature"][tree["ID"].isin(["0-1", "0-2"])]]
    n_columns = sum(column[column != "Leaf"].nunique() for column in levels)
    assert len(brought) == 2 * 2 * N_PAGES and sum(brought) == N_ROWS * (2 * 8 + n_columns)


def test_a_level_waits_once_to_know_the_columns_that_it_splits_by(gpu, monkeypatch):
    waits, features_split = [], CudaTrees._features_split

    def counted(self):
        before = gpu.waits
        found = features_split(self)
        waits.append(gpu.waits - before)
        return found

    monkeypatch.setattr(CudaTrees, "_features_split", counted)
    gb.train(PARAMS, matrix(), 1)
    assert waits == [1, 1]


def test_pages_that_another_training_gives_back_are_brought(gpu, monkeypatch):
    """All are held; then, each time that columns are asked for, another thread begins to train on the same matrix."""
    room_for(monkeypatch, 10 * N_PAGES * PAGE_BYTES)
    walk, n_walks = StagedPages.walk, 0

    def interrupted(self, features=None, numbers=None):
        nonlocal n_walks
        if features is not None:
            n_walks += self.is_resident
            HOLD(self, 0)
        return walk(self, features, numbers)

    monkeypatch.setattr(StagedPages, "walk", interrupted)
    assert streamed({"subsample": 0.5}) == expected({"subsample": 0.5})
    assert n_walks > 0


def test_launches_on_staged_pages_are_prepared_once(gpu, monkeypatch):
    booster, dtrain, packed = gb.Booster({**PARAMS, "max_depth": 1}), matrix(slice(0, 2 * PAGE_ROWS)), []

    def pack(kernel, values):
        packed.append(kernel.name)
        return pack_arguments(kernel, values)

    monkeypatch.setattr("gpuboost.backend.cuda.device.pack_arguments", pack)
    for _ in range(2):
        packed.clear()
        booster.update(dtrain)
    assert len(packed) == 2  # the gradients' and the one that has the round's number


def test_a_walk_that_is_left_in_the_middle_leaves_its_buffers_to_the_next(gpu):
    dtrain = matrix()
    pages = CudaBackend(gpu).memory.move_table(dtrain.any_binned()).pages
    for p, _ in pages.walk():
        if p == 1:
            break
    stage = pages._spare.get_nowait()
    assert all(free.done.done or free is not None for free in stage._free)
    pages._spare.put(stage)
    with gpu.current():
        found = [gpu.fetch(page.records).copy() for _, page in pages.walk()]
    assert len(found) == N_PAGES
    for page, records in zip(dtrain.any_binned().pages.home, found):
        np.testing.assert_array_equal(records, page.records)


def test_what_an_interrupted_walk_still_reads_is_not_brought_by_the_next(gpu):
    dtrain = matrix()
    pages = CudaBackend(gpu).memory.move_table(dtrain.any_binned()).pages
    finish_reading = interrupt_walk(pages)
    for _, page in pages.walk(numbers=[1]):
        finish_reading()
        with gpu.current():
            np.testing.assert_array_equal(gpu.fetch(page.records), pages.home[1].records)


def test_pages_held_by_the_host_become_page_locked_one_after_another_and_stay_what_they_are(gpu):
    dtrain = matrix(cache_memory=PAGE_BYTES)
    before = [page.columns.copy() for page in dtrain.any_binned().pages]
    held = [page.columns.is_held for page in dtrain.any_binned().pages._pages]
    assert 0 < sum(held) < N_PAGES
    stump(dtrain)
    pages = dtrain.any_binned().pages
    assert isinstance(pages, StagedPages) and [page.columns.is_held for page in pages.home._pages] == held
    for page, columns in zip(pages.home, before):
        np.testing.assert_array_equal(page.columns, columns)


def test_a_matrix_that_was_trained_on_goes_back_to_the_host(gpu, use_backend):
    dtrain = matrix()
    model = stump(dtrain)
    copy = pickle.loads(pickle.dumps(dtrain))
    use_backend(CpuBackend(1))
    assert stump(copy) == stump(dtrain) == model
    assert dtrain.bytes_in_files > 0 and copy.bytes_in_files == 0
