"""Files of arrays: what was written is read, and what was not written is refused, naming the file."""

import errno
import os
import pickle

import numpy as np
import pytest

from gpuboost.kernels.checksum import checksum
from gpuboost.storage import array_file
from gpuboost.storage.array_file import HEADER, HeldArray, write_array

RNG = np.random.default_rng(3)


def written(folder, shape=(3, 21), dtype=np.uint8):
    array = RNG.integers(0, 200, shape).astype(dtype)
    return array, write_array(os.path.join(folder, "a.array"), array)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("shape", [(3, 21), (1, 8), (5, 1), (1, 0)])
def test_what_was_written_is_read(tmp_path, dtype, shape):
    array, file = written(tmp_path, shape, dtype)
    np.testing.assert_array_equal(file.read(), array)
    assert os.listdir(tmp_path) == ["a.array"] and os.path.getsize(file.path) == file.bytes_written


def test_only_the_parts_asked_for_are_read(tmp_path):
    array, file = written(tmp_path, (6, 5))
    out = np.full((6, 5), 255, np.uint8)
    assert file.read(np.array([0, 1, 4]), out) is out
    np.testing.assert_array_equal(out[[0, 1, 4]], array[[0, 1, 4]])
    assert (out[[2, 3, 5]] == 255).all()


def test_the_header_is_as_documented(tmp_path):
    array, file = written(tmp_path, (2, 3), np.uint16)
    data = open(file.path, "rb").read()
    assert data[:8] == b"GPBARRAY" and data[8:16] == (1).to_bytes(4, "little") + b"<u2\0"
    assert [int.from_bytes(data[at : at + 8], "little") for at in (16, 24)] == [2, 3]
    assert data[48 + 2 * 16 :] == array.tobytes()


def test_a_changed_byte_anywhere_is_found(tmp_path):
    """Every byte of the header and of the parts."""
    array, file = written(tmp_path)
    data = open(file.path, "rb").read()
    assert len(data) == HEADER.itemsize + 3 * 16 + array.nbytes
    for at in range(len(data)):
        open(file.path, "wb").write(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :])
        with pytest.raises(OSError, match="a.array.*is damaged"):
            file.read()
    open(file.path, "wb").write(data)
    np.testing.assert_array_equal(file.read(), array)


def test_a_file_that_is_cut_or_longer_or_gone_is_found(tmp_path):
    array, file = written(tmp_path)
    data = open(file.path, "rb").read()
    for other in (data[:-1], data[:50], b"", data + b"\0"):
        open(file.path, "wb").write(other)
        with pytest.raises(OSError, match="a.array.*is damaged: it has"):
            file.read()
    os.unlink(file.path)
    with pytest.raises(OSError, match="a.array.*is damaged: it cannot be read"):
        file.read()


@pytest.mark.parametrize("n_bytes", [8, 64, 129])
def test_one_and_two_flipped_bits_change_the_checksum(n_bytes):
    data = RNG.integers(0, 256, n_bytes).astype(np.uint8)
    before = checksum(data)
    bits = [(at, bit) for at in range(n_bytes) for bit in range(8)]
    for at, bit in bits:
        data[at] ^= 1 << bit
        assert checksum(data) != before
        other, same_bit = (at + 8) % n_bytes, 1 << bit  # the same bit of the next word
        if other != at:
            data[other] ^= same_bit
            assert checksum(data) != before
            data[other] ^= same_bit
        data[at] ^= 1 << bit
    assert checksum(data) == before


def test_the_checksum_is_that_of_its_formula():
    data = RNG.integers(0, 256, 19).astype(np.uint8)
    words = [int.from_bytes(data[at : at + 8].tobytes(), "little") for at in (0, 8, 16)]
    sums = [sum((2 * i + 1) * half for i, half in enumerate(halves)) % 2**64
            for halves in zip(*((w % 2**32, w >> 32) for w in words))]  # fmt: skip
    assert checksum(data) == tuple(sums)


def test_a_full_disk_leaves_no_file_and_says_what_to_do(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(array_file.os, "replace", full)
    with pytest.raises(OSError, match=f"{tmp_path} cannot take .* more bytes.*No space left.*cache_folder"):
        written(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_pickled_file_is_an_array_in_memory(tmp_path):
    array, file = written(tmp_path)
    copy = pickle.loads(pickle.dumps(file))
    os.unlink(file.path)
    assert isinstance(copy, HeldArray)
    np.testing.assert_array_equal(copy.read(), array)
