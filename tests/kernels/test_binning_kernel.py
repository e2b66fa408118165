"""kernels/binning.py: a code is the number of thresholds that are not above the value."""

import ctypes
import mmap
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuboost.backend.cpu import CpuBackend
from gpuboost.binned.cuts import SENTINEL, Cuts
from gpuboost.binned.pages import DensePage


def cuts_of(*thresholds, max_bin=256):
    """Cuts from each feature's thresholds below the sentinel."""
    each = [np.append(np.asarray(t, np.float32), SENTINEL) for t in thresholds]
    offsets = np.cumsum([0, *map(len, each)]).astype(np.int32)
    return Cuts(np.concatenate(each).astype(np.float32), offsets, np.zeros(len(each), bool), max_bin)


def bin_rows(batch, cuts, dtype=np.uint8, *, missing=np.nan, first_row=0, page_rows=None, n_threads=1, with_records=True):
    """Adapter: (page, missing codes that did not fit) after one batch; cells that were not written hold 77."""
    n = len(batch) if page_rows is None else page_rows
    width = -(-cuts.n_features // 8) * 8
    page = DensePage(np.full((cuts.n_features, n), 77, dtype), np.full((n if with_records else 0, width), 77, dtype))
    return page, CpuBackend(n_threads).coder.bin_rows(batch, missing, cuts, first_row, page)


def expected_codes(batch, cuts, missing=np.nan):
    """By definition: int64 (n_features, n_rows)."""
    x = np.asarray(batch, np.float32)
    codes = [np.searchsorted(cuts.of(f)[:-1], x[:, f], side="right") for f in range(cuts.n_features)]
    return np.where(np.isnan(x.T) | (x.T == np.float32(missing)), cuts.n_bins[:, None], codes)


def test_a_hand_sized_column():
    #  bins: x < 1 | 1 ≤ x < 2.5 | 2.5 ≤ x        missing: 3
    page, n_lost = bin_rows(np.array([[0.5], [1.0], [2.4], [2.5], [9.0], [np.nan], [-3.0]], np.float32), cuts_of([1, 2.5]))
    assert page.columns.tolist() == [[0, 1, 1, 2, 2, 3, 0]] and n_lost == 0
    assert page.records.tolist() == [[code] + [77] * 7 for code in page.columns[0]]


def test_a_column_without_thresholds_has_one_bin():
    page, _ = bin_rows(np.array([[5.0], [np.nan]], np.float32), cuts_of([]))
    assert page.columns.tolist() == [[0, 1]]


def test_infinite_values_fall_into_the_outer_bins():
    for n in (3, 255, 256, 700):
        cuts = cuts_of(np.arange(n))
        page, _ = bin_rows(np.array([[-np.inf], [np.inf], [SENTINEL]], np.float32), cuts, np.uint16)
        assert page.columns.tolist() == [[0, n, n]]


VALUES = st.one_of(st.sampled_from([0.0, -0.0, 1.0, -1.0, np.nan, 5.0, 1e-45]), st.floats(-10, 10, width=32))


@settings(max_examples=60)
@given(
    st.data(), st.sampled_from([np.float32, np.float64]), st.sampled_from("CF"), st.sampled_from([np.nan, 5.0]),
    st.sampled_from([1, 3]),
)  # fmt: skip
def test_codes_count_the_thresholds_not_above_the_value(data, dtype, order, missing, n_threads):
    thresholds = st.lists(st.floats(-10, 10, width=32).map(lambda t: t + 0.0), max_size=12).map(np.unique)
    cuts = cuts_of(*data.draw(st.lists(thresholds, min_size=1, max_size=10)))
    n_rows = data.draw(st.integers(0, 20))
    cells = np.array(data.draw(st.lists(VALUES, min_size=n_rows * cuts.n_features, max_size=n_rows * cuts.n_features)), dtype)
    batch = np.array(cells.reshape(n_rows, cuts.n_features), dtype, order=order)
    page, n_lost = bin_rows(batch, cuts, missing=missing, n_threads=n_threads)
    expected = expected_codes(batch, cuts, missing)
    np.testing.assert_array_equal(page.columns, expected)
    np.testing.assert_array_equal(page.records[:, : cuts.n_features], expected.T)
    assert (page.records[:, cuts.n_features :] == 77).all() and n_lost == 0


@pytest.mark.parametrize("n_thresholds", [0, 1, 127, 128, 254, 255, 256, 257, 510, 511, 512, 1000, 65534])
@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_every_number_of_bins(n_thresholds, n_threads, dtype):
    if n_thresholds > (most := 254 if dtype == np.uint8 else 65534):  # so that the missing code fits, too
        pytest.skip(f"codes of this type number {most + 1} bins")
    rng = np.random.default_rng(10)
    thresholds = np.unique(rng.normal(size=2 * n_thresholds).astype(np.float32))[:n_thresholds]
    assert len(thresholds) == n_thresholds
    cuts = cuts_of(thresholds, [0.0])
    x = np.concatenate([rng.normal(size=3000), thresholds, np.nextafter(thresholds, np.float32(-np.inf)), [np.nan, 9, -9]])
    batch = np.column_stack([x, x[::-1]]).astype(np.float32)
    page, n_lost = bin_rows(batch, cuts, dtype, n_threads=n_threads)
    np.testing.assert_array_equal(page.columns, expected_codes(batch, cuts))
    assert n_lost == 0


@pytest.mark.parametrize("n_rows", [1, 15, 16, 17, 63, 65, 511, 512, 513, 2100])
@pytest.mark.parametrize("n_features", [15, 16, 17, 31, 32, 33, 70])
def test_blocks_of_rows_however_they_lie(n_rows, n_features):
    rng = np.random.default_rng(n_rows)
    cuts = cuts_of(*(np.unique(rng.normal(size=rng.integers(0, 255)).astype(np.float32)) for _ in range(n_features)))
    batch = rng.choice(np.append(rng.normal(size=50), [np.nan, -7, 0.0, -0.0]).astype(np.float32), (n_rows, n_features))
    within, wide = np.full((n_rows + 3, n_features + 5), 7, np.float32), np.full((n_rows, 2 * n_features), 7, np.float32)
    within[1:-2, 2:-3], wide[:, ::2] = batch, batch
    backwards = np.ascontiguousarray(batch[::-1])[::-1]
    expected = expected_codes(batch, cuts, -7.0)
    for lying in (batch, within[1:-2, 2:-3], wide[:, ::2], backwards, np.asfortranarray(batch), batch.astype(np.float64)):
        page, n_lost = bin_rows(lying, cuts, missing=-7.0)
        np.testing.assert_array_equal(page.columns, expected)
        np.testing.assert_array_equal(page.records[:, :n_features], expected.T)
        assert n_lost == 0


def beside_a_wall(array, side):
    """A copy before or behind which lies a page of memory that nobody may read."""
    n_bytes = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, n_bytes + mmap.PAGESIZE)
    wall, first = (0, mmap.PAGESIZE) if side == "before" else (n_bytes, n_bytes - array.nbytes)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + wall
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    copy = np.frombuffer(memory, array.dtype, array.size, first).reshape(array.shape)
    copy[:] = array
    return copy


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for the page")
@pytest.mark.parametrize("side", ["before", "behind"])
@pytest.mark.parametrize("n_rows", [1, 16, 17, 512, 1040])
@pytest.mark.parametrize("n_features", [1, 3, 15, 16, 17, 31, 33])
def test_nothing_is_read_beyond_the_table(n_rows, n_features, side):
    rng = np.random.default_rng(n_rows)
    cuts = cuts_of(*(np.sort(rng.normal(size=5)) for _ in range(n_features)))
    batch = beside_a_wall(rng.normal(size=(n_rows, n_features)).astype(np.float32), side)
    page, _ = bin_rows(batch, cuts)  # else the process dies
    np.testing.assert_array_equal(page.columns, expected_codes(batch, cuts))


@pytest.mark.parametrize("n_close", [1, 2, 3, 4, 255, 256, 300])
@pytest.mark.parametrize("ends", [[], [-3e38, 3e38]])
@pytest.mark.parametrize("n_rows", [100, 5000])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_thresholds_too_close_for_cells_of_their_own(n_close, ends, n_rows, dtype):
    if n_close + len(ends) > 255 and dtype == np.uint8:
        pytest.skip("more than 256 bins")
    close = (np.float32(1).view(np.uint32) + np.arange(n_close, dtype=np.uint32)).view(np.float32)
    thresholds = np.sort(np.append(close, ends).astype(np.float32))
    rng = np.random.default_rng(12)
    x = np.append(rng.choice(thresholds, n_rows // 2), rng.normal(1, 1e-5, n_rows - n_rows // 2)).astype(np.float32)
    cuts = cuts_of(thresholds)
    page, _ = bin_rows(x[:, None], cuts, dtype)
    np.testing.assert_array_equal(page.columns, expected_codes(x[:, None], cuts))


@pytest.mark.parametrize("n_features", [1, 3, 4, 5, 8, 9, 33, 70])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_records_are_the_columns_by_row_and_their_padding_is_left_alone(n_features, dtype):
    rng = np.random.default_rng(13)
    cuts = cuts_of(*(np.unique(rng.normal(size=rng.integers(0, 200)).astype(np.float32)) for _ in range(n_features)))
    batch = rng.normal(size=(1100, n_features)).astype(np.float32)
    page, _ = bin_rows(batch, cuts, dtype, n_threads=2)
    np.testing.assert_array_equal(page.columns, expected_codes(batch, cuts))
    written = np.full_like(page.records, 77)
    CpuBackend(2).coder.write_records(None, DensePage(page.columns, written))
    for records in (page.records, written):
        np.testing.assert_array_equal(records[:, :n_features], page.columns.T)
        assert (records[:, n_features:] == 77).all()


def test_float64_values_are_rounded_to_float32_first():
    threshold = np.float32(0.1)
    below = np.nextafter(float(threshold), 0)  # rounds to the threshold
    page, _ = bin_rows(np.array([[below]]), cuts_of([threshold]))
    assert page.columns[0, 0] == 1


@pytest.mark.parametrize("missing", [np.nan, 0.5])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_missing_codes_that_do_not_fit_in_a_byte_are_counted(missing, n_threads):
    cuts = cuts_of(np.arange(255), [0.0])  # 256 bins: the missing code would be 256
    batch = np.array([[missing, missing], [3.0, 1.0], [np.nan, 0.5]], np.float32)
    assert bin_rows(batch, cuts, np.uint8, missing=missing, n_threads=n_threads)[1] == 2
    many = np.tile(batch, (2001, 1))
    assert bin_rows(many, cuts, np.uint8, missing=missing, n_threads=n_threads)[1] == 4002
    batch[0] = np.nan
    page, n_lost = bin_rows(batch, cuts, np.uint16)
    assert n_lost == 0 and page.columns[0].tolist() == [256, 4, 256]


def test_a_batch_writes_its_own_rows_only():
    page, _ = bin_rows(np.array([[0.0], [2.0]], np.float32), cuts_of([1.0]), first_row=2, page_rows=6)
    assert page.columns[0].tolist() == [77, 77, 0, 1, 77, 77]
    assert page.records[:, 0].tolist() == [77, 77, 0, 1, 77, 77]


def test_records_are_optional():
    page, _ = bin_rows(np.array([[0.0], [2.0]], np.float32), cuts_of([1.0]), with_records=False)
    assert page.columns[0].tolist() == [0, 1]
