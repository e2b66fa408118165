"""kernels/histogram_tiles.py: no warp ever meets itself in a bank of shared memory, and tiles fit. What the kernels add up is
compared with the CPU in test_cuda_histogram.py."""

from collections import defaultdict

import numpy as np
import pytest
from greenlet import getcurrent
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator import Memory, Watcher, simulate
from test_cuda_histogram import pack, slices_by_hand

from gpuboost.backend.cuda.record_tiles import choose_tiles
from gpuboost.kernels import histogram, histogram_tiles
from gpuboost.kernels.structs import NODE

LIMITS = {"H100": 227, "A100": 163, "L40": 99, "T4": 64}  # KB of shared memory that a block may have
TABLES = ("random", "constant", "one-hot", "sorted")


class SharedAccesses(Watcher):
    """Notes which word of shared memory each thread adds to, and reads, one after the other."""

    def __init__(self):
        self.adds, self.reads = defaultdict(list), defaultdict(list)

    def memory(self, array):
        return _Noted(array, self) if hasattr(getcurrent(), "thread") else Memory(array)


class _Noted(Memory):
    __slots__ = ("watcher",)

    def __init__(self, array, watcher):
        super().__init__(array)
        self.watcher = watcher

    def __getitem__(self, index):
        self.watcher.reads[getcurrent().thread.number].append(int(index))
        return super().__getitem__(index)

    def add(self, index, value):
        self.watcher.adds[getcurrent().thread.number].append(int(index))
        return super().add(index, value)


def most_in_a_bank(accesses, n_threads):
    """The most lanes of a warp whose n-th accesses are in one bank, over all n."""
    most = 0
    for first in range(0, n_threads, 32):
        lanes = [accesses[thread] for thread in range(first, first + 32)]
        for n in range(max(map(len, lanes))):
            most = max(most, np.bincount([words[n] % 32 for words in lanes if len(words) > n]).max())
    return most


def codes_of(table, rng, shape, n_bins):
    if table == "one-hot":
        return (rng.integers(0, shape[1], (shape[0], 1)) == np.arange(shape[1])).astype(int)
    if table == "sorted":
        return np.repeat(np.linspace(0, n_bins - 1, shape[0]).astype(int)[:, None], shape[1], 1)
    return np.full(shape, n_bins // 2) if table == "constant" else rng.integers(0, n_bins, shape)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("n_features", [3, 8, 14, 28, 70])
def test_no_two_lanes_of_a_warp_meet_in_a_bank(n_features, dtype, table):
    """When they add, and when they turn and read the tile."""
    n_rows, n_bins, size = 70, 31, np.dtype(dtype).itemsize  # 32 lines: with a part of 16, lanes would be out of step here
    rng = np.random.default_rng(1)
    tiles = choose_tiles(n_bins, n_features, size, 2**17)  # of 70 one-byte codes two tiles at a time, 1.5 times
    records = np.zeros((n_rows, histogram.record_bytes(n_features * size) // size), dtype)
    records[:, :n_features] = codes_of(table, rng, (n_rows, n_features), n_bins)
    pairs = pack(np.stack([rng.integers(1, 100, (1, n_rows)), rng.integers(1, 100, (1, n_rows))], axis=-1), [1])
    segments, first_output = np.array([[0, n_rows, 0]]), np.zeros(1, np.int32)
    work = slices_by_hand(np.zeros(1, np.int32), np.zeros(1, NODE), first_output, segments, n_rows)
    offsets, hist = np.arange(n_features + 1, dtype=np.int32) * n_bins, np.zeros((1, 1, n_features * n_bins, 2), np.int64)
    watcher = SharedAccesses()
    simulate(
        tiles.kernel, records.view(tiles.word), rng.permutation(2 * n_rows).reshape(2, -1).astype(np.int32) % n_rows, pairs,
        np.ones(1, np.int32), offsets, *tiles.shape, *work, hist, block=64, shared=tiles.shared_bytes, watcher=watcher,
    )  # fmt: skip
    assert most_in_a_bank(watcher.adds, 64) == 1 == most_in_a_bank(watcher.reads, 64)


# ---- which kernel, and how large its tiles


@settings(max_examples=200)
@given(st.integers(1, 5000), st.sampled_from([1, 2]), st.integers(1, 65535), st.integers(0, 230_000))
def test_a_tile_fits_and_is_none_only_where_none_fits(n_codes, code_bytes, max_bins, limit):
    max_bins = min(max_bins, 256) if code_bytes == 1 else max_bins
    tiles, record = choose_tiles(max_bins, n_codes, code_bytes, limit), -(-n_codes * code_bytes // 4)
    assert tiles.shared_bytes <= limit
    a_sector = histogram_tiles.tile_bytes(max_bins, code_bytes)
    if tiles.kernel.name.startswith("histogram_tiles."):
        record_bytes, tile = histogram.record_bytes(n_codes * code_bytes), 8 * tiles.shape[1]
        if tiles.kernel.name.endswith("_wide"):
            assert code_bytes == 1 and record_bytes >= 64 and tiles.shared_bytes == 2**16 + a_sector
            assert tile == 32 and tiles.n_tiles == -(-record_bytes // 64)
        else:
            assert code_bytes == 2 or record_bytes < 64 or limit < 2**16 + a_sector
            assert tiles.shared_bytes == a_sector and tiles.n_tiles * tile == record_bytes
        return
    assert a_sector > limit
    if tiles.shared_bytes == 0:
        assert code_bytes == 1 or histogram.strided_bytes(1, max_bins) > limit
        assert tiles.n_tiles == record
    else:
        n_words = tiles.shape[1]
        assert n_words <= min(record, histogram.SECTOR // 4) and tiles.n_tiles == -(-record // n_words)
        assert -(-record // tiles.n_tiles) == n_words, "no smaller tile would do with as many tiles"


@pytest.mark.parametrize("gpu", LIMITS)
def test_256_bins_of_one_byte_codes_fit_on_every_gpu(gpu):
    tiles = choose_tiles(256, 28, 1, LIMITS[gpu] * 1024)
    assert tiles.kernel is histogram_tiles.build_histograms_kernel(1, 1)
    assert (tiles.shape, tiles.shared_bytes, tiles.n_tiles) == ((256, 4), 2**16, 1)


def test_tiles_by_hand():
    # 54 one-byte codes of up to 40 bins and one that says missing: records of 64 bytes, two tiles of 32 columns
    assert choose_tiles(40, 54, 1, 64 * 1024).n_tiles == 2 and choose_tiles(40, 54, 1, 64 * 1024).shape == (41, 4)
    assert choose_tiles(40, 8, 1, 99 * 1024).shape == (41, 1) and choose_tiles(40, 9, 1, 99 * 1024).shape == (41, 2)
    # two tiles at a time, 64 KB and 41 lines of 256 bytes
    wide, limit = histogram_tiles.build_histograms_kernel(1, 2), 2**16 + 41 * 256
    assert [choose_tiles(40, 54, 1, n).kernel is wide for n in (limit - 1, limit)] == [False, True]
    assert choose_tiles(40, 54, 1, limit).shared_bytes == limit and choose_tiles(40, 54, 1, limit).shape == (41, 4)
    assert [choose_tiles(256, n, 1, 227 * 1024).n_tiles for n in (33, 64, 65, 2000)] == [1, 1, 2, 32]
    # two bytes: 16 codes are a sector. 1816 lines of 128 bytes are 227 KB
    for max_bins, name in ((1815, "build_histograms_kernel_16"), (1816, "build_strided_histograms_kernel")):
        assert choose_tiles(max_bins, 28, 2, 227 * 1024).kernel.function.__name__ == name
    # strided: 300 bins are 301 words for each of two codes and two planes, 4816 bytes; 7 of them leave nothing over of 14
    assert [choose_tiles(300, 28, 2, n).shape[1] for n in (4815, 4816, 14_447, 14_448, 33_712)] == [0, 1, 2, 3, 7]


@pytest.mark.parametrize("max_bins", [1, 2, 255, 256, 65535])
def test_a_feature_of_a_strided_tile_has_room_for_the_missing_code_and_an_odd_stride(max_bins):
    stride = histogram.strided_stride(max_bins)
    assert stride % 2 == 1 and max_bins + 1 <= stride <= max_bins + 2
