"""kernels/histogram.py on CUDA: the same integers as build_histograms_cpu, however rows are sliced and features tiled."""

import numpy as np
import pytest
from cuda_runners import each_runner, gpu_runner, simulator_runners
from hypothesis import given, settings
from hypothesis import strategies as st
from test_histogram import build, by_numpy, random_case

from gpuboost.kernels import histogram
from gpuboost.kernels.structs import NODE, PROGRESS

SHARED = 48 * 1024  # bytes of a tile: a sector of small features fits


def progress_of(**fields):
    progress = np.zeros(1, PROGRESS)
    for name, value in fields.items():
        progress[name] = value
    return progress


def pack(pairs, n_limbs):
    """int32 (n_outputs, 2, n_rows): pairs as one or two limbs; a limb that an output lacks is rubbish."""
    grad, hess = pairs[..., 0], pairs[..., 1]
    low = (grad + 32768 & 0xFFFF) - 32768  # signed low limb
    high_first = [(grad - low >> 16, hess >> 16), (low, hess & 0xFFFF)]
    packed = np.full((len(pairs), 2, pairs.shape[1]), 0x5A5A5A5A, np.int32)
    for output, n in enumerate(n_limbs):
        for limb, (g, h) in enumerate([(grad, hess)] if n == 1 else high_first):
            packed[output, limb] = ((g[output] & 0xFFFF) << 16 | h[output]).astype(np.uint32).view(np.int32)
    return packed


def build_with(
    run, columns, n_bins, pairs, rows_of, *, n_limbs=1, vector=False, page_rows=None, dtype=np.uint8, shared_limit=SHARED,
    slices=None,
):  # fmt: skip
    """Adapter: as test_histogram.build, by the CUDA kernels.

    n_limbs : of every output, or a list. shared_limit : bytes that a tile may take; 0 for the kernel that needs no tile.
    slices : {node: work items to cut it into}; None leaves that to list_build_items_kernel.
    """
    n_outputs, n_rows = pairs.shape[:2]
    n_nodes, offsets = len(rows_of), np.cumsum([0, *n_bins]).astype(np.int32)
    nodes = np.zeros(n_nodes, NODE)
    nodes["tree"], nodes["slot"] = [tree for tree, _ in rows_of], n_nodes - np.arange(n_nodes)  # slot 0 is nobody's
    build_list = np.array([-1, *(entry for node in range(n_nodes) for entry in (node, -1))], np.int32)
    first_output = np.array([0] if vector else range(n_outputs), np.int32)
    limbs = np.array(n_limbs if isinstance(n_limbs, list) else [n_limbs] * n_outputs, np.int32)
    packed = pack(pairs, limbs)
    hist = np.zeros((n_nodes + 1, n_outputs if vector else 1, offsets[-1], 2), np.int64)
    hist[0] = 77
    code_bytes = np.dtype(dtype).itemsize
    n_words = histogram.tile_words(len(n_bins), code_bytes, max(n_bins), shared_limit)
    kernel = (histogram.build_histograms_kernel if n_words else histogram.build_histograms_global_kernel)(code_bytes)
    page_rows = page_rows or max(n_rows, 1)
    for first in range(0, max(n_rows, 1), page_rows):
        last = min(first + page_rows, n_rows)
        records = np.zeros((last - first, -(-len(n_bins) // 8) * 8), dtype)
        records[:, : len(n_bins)] = columns[:, first:last].T
        segments, rows = np.zeros((n_nodes, 3), np.int64), np.full((2, sum(len(m) for _, m in rows_of) + 1), -1, np.int32)
        filled = [0, 0]
        for node, (_, members) in enumerate(rows_of):
            own, side = members[(members >= first) & (members < last)] - first, node % 2
            segments[node] = filled[side], filled[side] + len(own), side
            rows[side, filled[side] : filled[side] + len(own)] = own
            filled[side] += len(own)
        progress, first_item = progress_of(n_built=len(build_list)), np.full(len(build_list) + 1, -1, np.int64)
        if slices is None:
            run(histogram.list_build_items_kernel, build_list, segments, 2, progress, first_item, blocks=1)
        else:
            first_item[:] = np.cumsum([0, *(slices[node] if node >= 0 else 0 for node in build_list)])
            progress["n_items"] = first_item[-1]
        run(
            kernel, records.view(np.uint32), rows, np.ascontiguousarray(packed[:, :, first:last]), limbs, offsets,
            histogram.tile_stride(max(n_bins)), n_words, progress, build_list, first_item, nodes, first_output, segments, hist,
            blocks=5, shared=histogram.tile_bytes(n_words, code_bytes, max(n_bins)),
        )  # fmt: skip
    assert (hist[0] == 77).all(), "a slot that no node has is not touched"
    return hist[nodes["slot"]]


def check(run, case, *, dtype=np.uint8, shared_limit=SHARED, slices=None, **arguments):
    expected = build(*case, **arguments)
    actual = build_with(run, *case, dtype=dtype, shared_limit=shared_limit, slices=slices, **arguments)
    np.testing.assert_array_equal(actual, expected)


def one_word(code_bytes, n_bins):
    """Bytes into which a tile of a single word just fits."""
    return histogram.tile_bytes(1, code_bytes, max(n_bins))


def small_case(seed, n_rows, n_bins, *, n_outputs=1, n_nodes=3, missing=0.2, vector=False, n_limbs=1):
    limit = (32767, 65535) if n_limbs == 1 else (2**31 - 2**16, 2**32 - 1)
    return random_case(np.random.default_rng(seed), n_rows, n_bins, n_outputs, n_nodes, missing, vector, limit)


# ---- the work list


def list_items(run, sizes, build_list, n_blocks):
    ends = np.cumsum(sizes)
    segments = np.stack([ends - sizes, ends, np.zeros_like(ends)], axis=1).astype(np.int64)
    first_item, progress = np.full(len(build_list) + 1, -1, np.int64), progress_of(n_built=len(build_list))
    run(histogram.list_build_items_kernel, np.array(build_list, np.int32), segments, n_blocks, progress, first_item, blocks=1)
    assert progress["n_items"][0] == first_item[-1]
    return first_item.tolist()


@each_runner
def test_a_work_list_by_hand(run):
    # 1 block: 10240 rows are cut into 4 slices, of 2560 rows
    sizes = [5120, 77777, 0, 2561, 2559]
    assert list_items(run, sizes, [0, -1, 2, 3, 4], 1) == [0, 2, 2, 2, 4, 5]
    assert list_items(run, sizes, [], 1) == [0]
    assert list_items(run, sizes, [2, -1], 1) == [0, 0, 0]


@each_runner
def test_a_slice_has_neither_too_few_rows_nor_too_many(run):
    least, most = histogram.MIN_SLICE_ROWS_GPU, histogram.MAX_SLICE_ROWS
    assert list_items(run, [least, least + 1], [0, 1], 1000) == [0, 1, 3]
    assert list_items(run, [100 * most, 100 * most + 1], [0, 1], 1) == [0, 100, 201]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 300_000), max_size=120), st.integers(1, 300), st.integers(0, 2**32))
@each_runner
def test_slices_add_up_and_stay_within_the_bound(run, sizes, n_blocks, seed):
    build_list = [node if skip else -1 for node, skip in enumerate(np.random.default_rng(seed).random(len(sizes)) < 0.8)]
    first_item = list_items(run, np.array(sizes, np.int64), build_list, n_blocks)
    assert first_item[0] == 0
    for i, node in enumerate(build_list):
        n_rows, n_slices = sizes[node] if node >= 0 else 0, first_item[i + 1] - first_item[i]
        assert n_slices >= (n_rows > 0) and -(-n_rows // max(n_slices, 1)) <= histogram.MAX_SLICE_ROWS
        assert n_slices <= -(-n_rows // histogram.MIN_SLICE_ROWS_GPU)


def test_a_slice_of_the_largest_pairs_fits_in_int32():
    assert histogram.MAX_SLICE_ROWS * 32768 <= 2**31 and histogram.MAX_SLICE_ROWS * 65535 < 2**31


# ---- tiles


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 5000), st.sampled_from([1, 2]), st.integers(1, 65535), st.integers(0, 230_000))
def test_a_tile_fits_and_there_is_none_only_where_no_word_fits(n_features, code_bytes, max_bins, limit):
    n_words, record = histogram.tile_words(n_features, code_bytes, max_bins, limit), -(-n_features * code_bytes // 4)
    if n_words == 0:
        assert histogram.tile_bytes(1, code_bytes, max_bins) + 64 > limit
    else:
        assert histogram.tile_bytes(n_words, code_bytes, max_bins) + 64 <= limit
        assert n_words <= min(record, histogram.SECTOR // 4)
        n_tiles = -(-record // n_words)
        assert -(-record // n_tiles) == n_words, "no smaller tile would do with as many tiles"


def test_tiles_by_hand():
    # one-byte codes: 28 features are 7 words; 9 words take two tiles, of 5 and 4
    assert [histogram.tile_words(n, 1, 256, 99_000) for n in (1, 4, 5, 28, 32, 36)] == [1, 1, 2, 7, 8, 5]
    assert [histogram.tile_words(n, 2, 256, 99_000) for n in (1, 2, 3, 28)] == [1, 1, 2, 7]
    # 256 bins of a feature: 257 words for each of two planes
    assert histogram.tile_bytes(1, 1, 256) == 4 * 257 * 8 and histogram.tile_bytes(2, 2, 256) == 4 * 257 * 8
    # beside the tile lie the 64 bytes of the block's work item
    assert [histogram.tile_words(28, 1, 256, limit) for limit in (0, 64, 4 * 257 * 8 + 63, 4 * 257 * 8 + 64)] == [0, 0, 0, 1]


@pytest.mark.parametrize("max_bins", [1, 2, 255, 256, 65535])
def test_a_feature_of_a_tile_has_room_for_the_missing_code_and_an_odd_stride(max_bins):
    stride = histogram.tile_stride(max_bins)
    assert stride % 2 == 1 and max_bins + 1 <= stride <= max_bins + 2


# ---- histograms


@each_runner
@pytest.mark.parametrize("shared_limit", [0, SHARED])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_six_rows_by_hand(run, dtype, shared_limit):
    columns = np.array([[0, 1, 0, 2, 1, 0], [0, 0, 0, 0, 1, 1]])  # 2 bins each: code 2 of feature 0 is missing
    pairs = np.array([[[1, 10], [2, 20], [3, 30], [4, 40], [5, 50], [-6, 60]]])
    nodes = [(0, np.arange(6)), (0, np.array([0, 5])), (0, np.arange(0))]
    hist = build_with(run, columns, [2, 2], pairs, nodes, dtype=dtype, shared_limit=shared_limit)
    assert hist[0, 0].tolist() == [[1 + 3 - 6, 100], [2 + 5, 70], [1 + 2 + 3 + 4, 100], [5 - 6, 110]]
    assert hist[1, 0].tolist() == [[1 - 6, 70], [0, 0], [1, 10], [-6, 60]]
    assert not hist[2].any(), "a node without rows"


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 2**32), st.integers(0, 30), st.lists(st.integers(1, 6), min_size=1, max_size=10), st.integers(1, 2),
    st.integers(2, 3), st.sampled_from([0.0, 0.3, 1.0]), st.booleans(), st.sampled_from([None, None, 7]), st.sampled_from([1, 2]),
    st.sampled_from([np.uint8, np.uint16]), st.sampled_from(["none", "word", "all"]),
)  # fmt: skip
@each_runner
def test_random_nodes_equal_the_cpu(
    run, seed, n_rows, n_bins, n_outputs, n_nodes, missing, vector, page_rows, n_limbs, dtype, fits
):
    case = small_case(seed, n_rows, n_bins, n_outputs=n_outputs, n_nodes=n_nodes, missing=missing, vector=vector, n_limbs=n_limbs)
    shared_limit = {"none": 0, "word": one_word(np.dtype(dtype).itemsize, n_bins), "all": SHARED}[fits]
    check(run, case, vector=vector, page_rows=page_rows, n_limbs=n_limbs, dtype=dtype, shared_limit=shared_limit)


@each_runner
@pytest.mark.parametrize("fits", [0, 1, 3, 8])
@pytest.mark.parametrize("n_features, dtype", [(1, np.uint8), (28, np.uint8), (33, np.uint8), (28, np.uint16)])
def test_any_number_of_features_and_tiles_equals_the_cpu(run, n_features, dtype, fits):
    n_bins = [3] * n_features
    case = small_case(1, 40, n_bins)
    check(run, case, dtype=dtype, shared_limit=fits * one_word(np.dtype(dtype).itemsize, n_bins))


@each_runner
@pytest.mark.parametrize("n_bins, dtype", [([256, 2], np.uint8), ([255, 40], np.uint8), ([2, 300], np.uint16)])
def test_many_bins_equal_the_cpu(run, n_bins, dtype):
    case = small_case(2, 150, n_bins, missing=0.0 if max(n_bins) == 256 else 0.1)
    check(run, case, dtype=dtype)


@each_runner
@pytest.mark.parametrize("shared_limit", [0, SHARED])
def test_nodes_cut_into_slices_equal_the_cpu(run, shared_limit):
    case = small_case(3, 30, [3, 2], n_outputs=2, n_nodes=3, vector=True)
    check(run, case, vector=True, shared_limit=shared_limit, slices={0: 5, 1: 1})
    check(run, case, vector=True, shared_limit=shared_limit, slices={0: 25, 1: 3})  # more slices than rows


@each_runner
def test_the_kernels_own_slices_equal_the_cpu(run):
    case = small_case(4, 2 * histogram.MIN_SLICE_ROWS_GPU + 100, [2], n_nodes=2, missing=0.1)
    check(run, case, dtype=np.uint16)


@each_runner
@pytest.mark.parametrize("shared_limit", [0, SHARED])
def test_every_plane_has_its_own_number_of_limbs(run, shared_limit):
    columns, n_bins, pairs, rows_of = small_case(5, 30, [2, 3], n_outputs=2, vector=True)
    pairs[1] = small_case(6, 30, [2, 3], n_limbs=2)[2][0]
    actual = build_with(run, columns, n_bins, pairs, rows_of, n_limbs=[1, 2], vector=True, shared_limit=shared_limit)
    np.testing.assert_array_equal(actual, by_numpy(columns, n_bins, pairs, rows_of, vector=True))


@each_runner
@pytest.mark.parametrize("grad, hess, n_limbs", [
    (32767, 65535, 1), (-32767, 65535, 1), (-32768, 65535, 2), (-(2**31) + 2**16, 2**32 - 1, 2),
])  # fmt: skip
@pytest.mark.parametrize("shared_limit", [0, SHARED])
def test_the_largest_pairs_in_one_bin(run, shared_limit, grad, hess, n_limbs):
    pairs, node = np.full((1, 70, 2), [grad, hess]), (0, np.arange(70))
    hist = build_with(run, np.zeros((1, 70), np.int64), [2], pairs, [node], n_limbs=n_limbs, shared_limit=shared_limit)
    assert hist[0, 0].tolist() == [[70 * grad, 70 * hess], [0, 0]]


@pytest.mark.parametrize("run", [simulator_runners()[0], gpu_runner()])
def test_a_slice_of_the_largest_pairs_does_not_overflow(run):
    n_rows, pair = histogram.MAX_SLICE_ROWS, [-32768, 65535]
    pairs, node = np.full((1, n_rows, 2), pair), (0, np.arange(n_rows))
    hist = build_with(run, np.zeros((1, n_rows), np.int64), [1], pairs, [node], dtype=np.uint16, slices={0: 1})
    assert hist[0, 0].tolist() == [[-32768 * n_rows, 65535 * n_rows]]


# ---- subtraction


@each_runner
def test_sibling_equals_parent_minus_child(run):
    hist = np.array([[10, 20], [1, 2], [30, 40], [5, 6]], np.int64)
    nodes = np.zeros(3, NODE)
    nodes["slot"] = [1, 3, 0]
    parents, build_list = np.array([2, 99, 0, 3], np.int32), np.array([0, -1, 1, 2], np.int32)
    run(histogram.subtract_histograms_kernel, parents, build_list, nodes, progress_of(n_built=3), hist, blocks=3)
    assert hist.tolist() == [[10 - 5, 20 - 6], [1, 2], [30 - 1, 40 - 2], [5, 6]], "the fourth pair is beyond n_built"


@each_runner
@pytest.mark.parametrize("n_values", [histogram.SUBTRACT_CHUNK, histogram.SUBTRACT_CHUNK + 2])
def test_subtraction_equals_the_cpu(run, n_values):
    hist = np.random.default_rng(30).integers(-(2**62), 2**62, (6, 1, n_values // 2, 2)) // 4
    expected = hist.copy()
    nodes = np.zeros(3, NODE)
    nodes["slot"] = [1, 5, 2]
    parents = np.array([0, 3], np.int32)
    histogram.subtract_histograms_cpu(parents, 1, expected, 1)
    flat = hist.reshape(6, -1)
    run(histogram.subtract_histograms_kernel, parents, np.array([0, 2], np.int32), nodes, progress_of(n_built=2), flat, blocks=4)
    np.testing.assert_array_equal(hist, expected)
