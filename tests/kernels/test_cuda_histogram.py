"""kernels/histogram.py on CUDA: the same integers as build_histograms_cpu, however rows are sliced and features tiled."""

import numpy as np
import pytest
from cuda_runners import SimulatorRunner, each_runner, gpu_runner, progress_of
from hypothesis import given, settings
from hypothesis import strategies as st
from rungs import RUNGS
from simulator import POISON
from test_histogram import build, by_numpy, random_case

from gpuboost.backend.cuda.record_tiles import choose_tiles
from gpuboost.kernels import histogram, histogram_tiles, sparse
from gpuboost.kernels.structs import NODE, SLICE

SHARED = 64 * 1024  # bytes of a tile: a sector of one-byte codes fits
WIDE = 128 * 1024  # two of them
LEAST, MOST = histogram.MIN_PART_ROWS, histogram.MAX_SLICE_ROWS


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
    part_rows=None,
):  # fmt: skip
    """Adapter: as test_histogram.build, by the CUDA kernels.

    n_limbs : of every output, or a list. shared_limit : bytes that a tile may take; 0 for the kernel that needs no tile.
    part_rows : rows of a part; None leaves the cutting to list_build_items_kernel.
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
    tiles = choose_tiles(max(n_bins), len(n_bins), np.dtype(dtype).itemsize, shared_limit)
    page_rows = page_rows or max(n_rows, 1)
    for first in range(0, max(n_rows, 1), page_rows):
        last = min(first + page_rows, n_rows)
        item_size = np.dtype(dtype).itemsize
        records = np.zeros((last - first, histogram.record_bytes(len(n_bins) * item_size) // item_size), dtype)
        records[:, : len(n_bins)] = columns[:, first:last].T
        segments, rows = np.zeros((n_nodes, 3), np.int64), np.full((2, sum(len(m) for _, m in rows_of) + 1), -1, np.int32)
        filled = [0, 0]
        for node, (_, members) in enumerate(rows_of):
            own, side = members[(members >= first) & (members < last)] - first, node % 2
            segments[node] = filled[side], filled[side] + len(own), side
            rows[side, filled[side] : filled[side] + len(own)] = own
            filled[side] += len(own)
        if part_rows is None:
            work = list_slices(run, build_list, nodes, first_output, segments, 2)
        else:
            work = slices_by_hand(build_list, nodes, first_output, segments, part_rows)
        run(
            tiles.kernel, records.view(tiles.word), rows, np.ascontiguousarray(packed[:, :, first:last]), limbs, offsets,
            *tiles.shape, *work, hist, blocks=5, shared=tiles.shared_bytes,
        )  # fmt: skip
    assert (hist[0] == 77).all(), "a slot that no node has is not touched"
    return hist[nodes["slot"]]


def list_slices(run, build_list, nodes, first_output, segments, n_parts, n_even=1, n_flushed=0):
    """What list_build_items_kernel leaves for those that build: progress, slices, first_slice."""
    n_rows = int((segments[:, 1] - segments[:, 0]).sum())
    room = histogram.most_slices(n_rows, n_parts, len(build_list))
    work = progress_of(n_built=len(build_list)), np.full(room, -1, np.int32).repeat(5).view(SLICE), np.full(room, -1, np.int32)
    run(histogram.list_build_items_kernel, build_list, nodes, first_output, segments, n_parts, n_even, n_flushed, *work, blocks=1)
    return work


def slices_by_hand(build_list, nodes, first_output, segments, part_rows):
    """The same, row by row: a part begins at every part_rows-th row, a slice there and with every node."""
    slices, first_slice, n_rows = [], [], 0
    for node in build_list[build_list >= 0]:
        begin, end, side = segments[node]
        for row in range(begin, end):
            if n_rows % part_rows == 0:
                first_slice.append(len(slices))
            if n_rows % part_rows == 0 or row == begin:
                slices.append([nodes["slot"][node], first_output[nodes["tree"][node]], side, row, row])
            slices[-1][4] = row + 1
            n_rows += 1
    progress = progress_of(n_built=len(build_list), n_items=len(first_slice))
    return progress, np.array(list(map(tuple, slices)), SLICE), np.array([*first_slice, len(slices)], np.int32)


def check(run, case, *, dtype=np.uint8, shared_limit=SHARED, part_rows=None, **arguments):
    expected = build(*case, **arguments)
    actual = build_with(run, *case, dtype=dtype, shared_limit=shared_limit, part_rows=part_rows, **arguments)
    np.testing.assert_array_equal(actual, expected)


def one_word(n_bins):
    """Bytes into which a tile of a single word of two codes just fits, and no sector."""
    return histogram.strided_bytes(1, max(n_bins))


def small_case(seed, n_rows, n_bins, *, n_outputs=1, n_nodes=3, missing=0.2, vector=False, n_limbs=1):
    limit = (32767, 65535) if n_limbs == 1 else (2**31 - 2**16, 2**32 - 1)
    return random_case(np.random.default_rng(seed), n_rows, n_bins, n_outputs, n_nodes, missing, vector, limit)


# ---- the work list


def list_items(run, sizes, build_list, n_parts, n_even=1, n_flushed=0):
    """(first_slice, [(node, its first row, end) of each slice]); nodes lie one after the other in their rows."""
    ends = np.cumsum(sizes)
    segments = np.stack([ends - sizes, ends, np.arange(len(ends)) % 2], axis=1).astype(np.int64)
    nodes = np.zeros(len(sizes), NODE)
    nodes["slot"], nodes["tree"] = np.arange(len(sizes)), np.arange(len(sizes)) % 2
    first_output = np.array([5, 7], np.int32)
    build_list = np.array(build_list, np.int32)
    progress, slices, first_slice = list_slices(run, build_list, nodes, first_output, segments, n_parts, n_even, n_flushed)
    n_items = progress["n_items"][0]
    first_slice, slices = first_slice[: n_items + 1], slices[: first_slice[n_items]]
    node = slices["slot"]
    assert (slices["side"] == node % 2).all() and (slices["output"] == first_output[node % 2]).all()
    firsts = segments[node, 0]
    return first_slice.tolist(), list(zip(node.tolist(), (slices["begin"] - firsts).tolist(), (slices["end"] - firsts).tolist()))


@each_runner
def test_a_work_list_by_hand(run):
    # 4 parts of 2600 rows: the first node has one and most of another
    sizes = [5000, 77777, 0, 2700, 2700]
    first_slice, slices = list_items(run, sizes, [0, -1, 2, 3, 4], 4)
    assert slices == [(0, 0, 2600), (0, 2600, 5000), (3, 0, 200), (3, 200, 2700), (4, 0, 100), (4, 100, 2700)]
    assert first_slice == [0, 1, 3, 5, 6]
    assert list_items(run, sizes, [], 1) == ([0], []) == list_items(run, sizes, [2, -1], 1)


@each_runner
def test_a_part_has_neither_too_few_rows_nor_too_many(run):
    assert list_items(run, [LEAST, LEAST + 1], [0, 1], 1000)[0] == [0, 1, 2, 3]
    assert list_items(run, [LEAST // 2, LEAST // 2], [0, 1], 1000) == ([0, 2], [(0, 0, LEAST // 2), (1, 0, LEAST // 2)])
    assert list_items(run, [100 * MOST], [0], 100)[0] == list(range(101))
    assert len(list_items(run, [100 * MOST + 1], [0], 100)[0]) == 201  # twice as many, not one more


@each_runner
def test_parts_are_fewer_where_each_flushes_much(run):
    # 0.15 · 256 lines cost as much as 38.4 rows: 50,000 rows in √(50,000 / 38.4) = 36.08 parts
    first_slice, slices = list_items(run, [50_000], [0], 396, 132, 256)
    assert first_slice == list(range(37)) and slices[0] == (0, 0, 1389)
    assert len(list_items(run, [50_000], [0], 396, 30, 256)[0]) == 1 + 60  # of 30 or more a multiple
    assert list_items(run, [50_000], [0], 20, 132, 256)[0] == list(range(21))  # no more than are wanted
    assert len(list_items(run, [3 * MOST], [0], 396, 132, 10**9)[0]) == 1 + 3  # however much is flushed


@settings(max_examples=15)
@given(st.lists(st.integers(0, 300_000), max_size=120), st.integers(1, 300), st.integers(0, 2**32))
@each_runner
def test_parts_are_equally_many_rows_and_slices_all_of_them(run, sizes, n_parts, seed):
    build_list = [node if skip else -1 for node, skip in enumerate(np.random.default_rng(seed).random(len(sizes)) < 0.8)]
    first_slice, slices = list_items(run, np.array(sizes, np.int64), build_list, n_parts)
    pieces = {node: [] for node in build_list if node >= 0}
    for node, begin, end in slices:
        pieces[node] += [begin, end]
    for node, ends in pieces.items():
        assert ends[:1] == [0] * (sizes[node] > 0) and ends[-1:] == [sizes[node]] * (sizes[node] > 0)
        assert ends[1:-1:2] == ends[2:-1:2], "a slice begins where the last one ends"
    own = [sum(end - begin for _, begin, end in slices[a:b]) for a, b in zip(first_slice, first_slice[1:])]
    assert len(set(own[:-1])) <= 1 and max(own, default=0) <= MOST and own[-1:] <= own[:1]
    n_rows = sum(own)
    assert all(LEAST <= part for part in own[:-1]) and len(own) <= max(n_parts, -(-n_rows // MOST) + n_parts - 1)


@each_runner
def test_slices_are_those_found_row_by_row(run):
    sizes, n_parts = np.array([700, 0, 3, 513, 40, 2000, 1]), 6
    ends = np.cumsum(sizes)
    segments = np.stack([ends - sizes, ends, np.arange(7) % 2], axis=1).astype(np.int64)
    nodes, first_output = np.zeros(7, NODE), np.array([0, 3], np.int32)
    nodes["slot"], nodes["tree"] = np.arange(7)[::-1], np.arange(7) % 2
    build_list = np.array([-1, 0, 1, 2, 3, -1, 5, 6], np.int32)
    _, slices, first_slice = list_slices(run, build_list, nodes, first_output, segments, n_parts)
    n_rows = sizes[build_list[build_list >= 0]].sum()
    _, expected, expected_first = slices_by_hand(build_list, nodes, first_output, segments, max(LEAST, -(-n_rows // n_parts)))
    assert slices[: len(expected)].tolist() == expected.tolist() and (slices["slot"][len(expected) :] == -1).all()
    assert first_slice[: len(expected_first)].tolist() == expected_first.tolist()


@settings(max_examples=300)
@given(st.integers(1, 2000), st.integers(1, 5000))
def test_blocks_are_busy_nine_tenths_of_the_time(n_blocks, n_variants):
    n_parts = histogram.parts_of_rows(n_blocks, n_variants)
    n_items = n_parts * n_variants
    assert 1 <= n_parts <= n_blocks and 10 * n_items >= 9 * n_blocks * -(-n_items // n_blocks)


def test_parts_by_hand():
    assert [histogram.parts_of_rows(396, n) for n in (1, 2, 5, 300, 396, 397)] == [396, 198, 79, 5, 1, 9]


def test_a_slice_of_the_largest_pairs_fits_in_32_bits():
    assert MOST * 32768 <= 2**31 and MOST * 65535 < 2**32


def test_kernels_that_take_slices_have_no_more_blocks_than_there_is_room_for():
    kernels = [histogram.build_strided_histograms_kernel, sparse.build_sparse_histograms_kernel]
    kernels += [histogram.build_histograms_global_kernel(n) for n in (1, 2)]
    kernels += [histogram_tiles.build_histograms_kernel(*arguments) for arguments in ((1, 1), (1, 2), (2, 1))]
    assert all(kernel.blocks_per_sm <= histogram.BLOCKS_OF_A_MULTIPROCESSOR for kernel in kernels)


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


@settings(max_examples=15)
@given(
    st.integers(0, 2**32), st.integers(0, 30), st.lists(st.integers(1, 6), min_size=1, max_size=10), st.integers(1, 2),
    st.integers(2, 3), st.sampled_from([0.0, 0.3, 1.0]), st.booleans(), st.sampled_from([None, None, 7]), st.sampled_from([1, 2]),
    st.sampled_from([np.uint8, np.uint16]), st.sampled_from(["none", "word", "all"]), st.sampled_from([None, 5]),
)  # fmt: skip
@each_runner
def test_random_nodes_equal_the_cpu(
    run, seed, n_rows, n_bins, n_outputs, n_nodes, missing, vector, page_rows, n_limbs, dtype, fits, part_rows
):
    case = small_case(seed, n_rows, n_bins, n_outputs=n_outputs, n_nodes=n_nodes, missing=missing, vector=vector, n_limbs=n_limbs)
    shared_limit = {"none": 0, "word": one_word(n_bins), "all": SHARED}[fits]
    how = {"dtype": dtype, "shared_limit": shared_limit, "part_rows": part_rows}
    check(run, case, vector=vector, page_rows=page_rows, n_limbs=n_limbs, **how)


@pytest.mark.sweep(6)
@each_runner
@pytest.mark.parametrize("n_features, dtype, fits", [
    *[(n, np.uint8, "sector") for n in (1, 8, 9, 28, 33)], (33, np.uint8, 0),
    *[(n, np.uint16, "sector") for n in (4, 7, 16, 28)], *[(28, np.uint16, n_words) for n_words in (0, 1, 3, 7)],
])  # fmt: skip
def test_any_number_of_features_and_tiles_equals_the_cpu(run, n_features, dtype, fits):
    n_bins = [3] * n_features
    case = small_case(1, 40, n_bins)
    check(run, case, dtype=dtype, shared_limit=SHARED if fits == "sector" else fits * one_word(n_bins))


@pytest.mark.sweep(4)
@each_runner
@pytest.mark.parametrize("n_bins", [[3] * 33, [3] * 70, [256, *[2] * 40, 256]], ids=len)
@pytest.mark.parametrize("n_limbs", [1, 2])
def test_two_tiles_at_a_time_equal_the_cpu(run, n_bins, n_limbs):
    case = small_case(7, 60, n_bins, n_outputs=2, n_nodes=2, missing=0.0, vector=True, n_limbs=n_limbs)
    check(run, case, vector=True, n_limbs=n_limbs, shared_limit=WIDE, part_rows=25)


@each_runner
def test_the_last_record_is_not_read_beyond_its_end(run):
    columns, n_bins, pairs, _ = small_case(8, 20, [3] * 70, missing=0.0)  # three sectors
    nodes = [(0, np.arange(20))]
    actual = build_with(run, columns, n_bins, pairs, nodes, shared_limit=WIDE)
    np.testing.assert_array_equal(actual, by_numpy(columns, n_bins, pairs, nodes, vector=False))


@pytest.mark.sweep(2)
@each_runner
@pytest.mark.parametrize("n_bins, dtype", [
    ([256, 2], np.uint8), ([255, 40], np.uint8), ([2, 300], np.uint16), ([2, 600], np.uint16),
])  # fmt: skip
def test_many_bins_equal_the_cpu(run, n_bins, dtype):
    case = small_case(2, 150, n_bins, missing=0.0 if max(n_bins) == 256 else 0.1)
    check(run, case, dtype=dtype)


@each_runner
@pytest.mark.parametrize("shared_limit", [0, SHARED])
def test_nodes_cut_into_slices_equal_the_cpu(run, shared_limit):
    case = small_case(3, 30, [3, 2], n_outputs=2, n_nodes=3, vector=True)
    for part_rows in (1, 8):
        check(run, case, vector=True, shared_limit=shared_limit, part_rows=part_rows)


@each_runner
def test_the_kernels_own_slices_equal_the_cpu(run):
    check(run, small_case(4, 2 * LEAST + 100, [2], n_nodes=2, missing=0.1), dtype=np.uint16)


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


@pytest.mark.parametrize("run", [pytest.param(SimulatorRunner(1, 128, "forward", POISON, RUNGS["ir"]), id="ir"), gpu_runner()])
@pytest.mark.parametrize("n_features, dtype, shared_limit", [
    (1, np.uint8, SHARED), (9, np.uint8, SHARED), (17, np.uint8, SHARED), (1, np.uint16, SHARED),
    (2, np.uint16, histogram.strided_bytes(1, 1)),
])  # fmt: skip
def test_a_slice_of_the_largest_pairs_does_not_overflow(run, n_features, dtype, shared_limit):
    """In tiles with four copies of their columns, two and none, of two bytes, and strided."""
    n_rows, pair = histogram.MAX_SLICE_ROWS, [-32768, 65535]
    pairs, node = np.full((1, n_rows, 2), pair), (0, np.arange(n_rows))
    is_strided = choose_tiles(1, n_features, np.dtype(dtype).itemsize, shared_limit).kernel.name.count("strided")
    assert is_strided == (n_features == 2)
    columns, more = np.zeros((n_features, n_rows), np.int64), {"dtype": dtype, "shared_limit": shared_limit}
    hist = build_with(run, columns, [1] * n_features, pairs, [node], part_rows=n_rows, **more)
    assert hist[0, 0].tolist() == [[-32768 * n_rows, 65535 * n_rows]] * n_features


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
