"""Arrays by row lie in mapped files where they do not fit in memory, and training does not notice."""

import errno
import os

import numpy as np
import pytest

import gpuboost as gb
from gpuboost.storage import mapped
from gpuboost.storage.mapped import row_allocator, scratch


@pytest.fixture
def no_memory(monkeypatch, tmp_path):
    """The folder for temporary files, where rows have to go."""
    monkeypatch.setattr(mapped, "free_memory", lambda: 0)
    monkeypatch.setattr(mapped, "LEAST_BYTES", 0)
    monkeypatch.setattr(mapped.tempfile, "tempdir", str(tmp_path))
    return tmp_path


def is_mapped(array):
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return not isinstance(array, np.ndarray)


@pytest.mark.parametrize("shape", [(3, 5), (7,), (2, 0)])
def test_a_mapped_array_holds_what_is_written_and_leaves_no_file(no_memory, shape):
    array = row_allocator(100)(shape, np.float32)
    array[...] = np.arange(array.size).reshape(shape)
    assert is_mapped(array) and array.shape == shape and array.flags.c_contiguous and array.dtype == np.float32
    assert array.reshape(-1).tolist() == list(range(array.size)) and os.listdir(no_memory) == []


@pytest.mark.parametrize("shape", [(2**10, 2**11), (2**21 - 1,), (0, 3)])
def test_scratch_is_mapped_where_it_is_large(shape):
    array = scratch(shape, np.uint32)
    array[...] = np.arange(array.size, dtype=np.uint32).reshape(shape)
    assert is_mapped(array) == (array.nbytes >= mapped.LEAST_SCRATCH)
    assert array.shape == shape and array.flags.c_contiguous and array.flags.writeable and array.dtype == np.uint32
    assert (array.reshape(-1) == np.arange(array.size)).all()


def test_scratch_without_room_is_numpys_or_its_error(monkeypatch):
    with pytest.raises(MemoryError, match="Unable to allocate"):
        scratch((2**43,), np.uint32)

    def refuse(*args):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mapped.mmap, "mmap", refuse)
    assert not is_mapped(scratch((mapped.LEAST_SCRATCH,), np.uint8))


@pytest.mark.parametrize("n_bytes, fits", [(2**20, True), (2**30 - 2**28, True), (2**30 - 2**28 + 1, False)])
def test_memory_is_used_as_far_as_it_goes(monkeypatch, n_bytes, fits):
    monkeypatch.setattr(mapped, "free_memory", lambda: 2**30)
    assert is_mapped(row_allocator(n_bytes)((4,), np.int32)) != fits


def test_a_full_disk_is_told_before_anything_is_computed(no_memory, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(mapped.os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match=f"{no_memory} cannot take 16 more bytes for rows.*No space left.*TMPDIR"):
        row_allocator(16)((4,), np.float32)


@pytest.mark.parametrize("params", [{}, {"subsample": 0.5, "num_class": 3, "objective": "multi:softprob"}], ids=str)
def test_the_model_is_that_of_rows_in_memory(params, no_memory, monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(500, 4)), rng.integers(0, 3, 500)
    weight = rng.integers(0, 3, 500)  # some rows take no part

    def model():
        matrix = gb.QuantileDMatrix(X, y, weight=weight, page_rows=120, max_bin=32)
        booster = gb.Booster({"max_depth": 3, "max_bin": 32, **params})
        for _ in range(2):
            booster.update(matrix)
        return booster.save_raw("json"), booster._boosting._training

    found, training = model()
    own = [training.gradients.grad, training.gradients.hess, *(rows.lists for rows in training._pages)]
    assert all(map(is_mapped, [*own, *(rows.gpair for rows in training._pages)]))
    monkeypatch.undo()
    assert model()[0] == found
