"""kernels/binning.py on a GPU: the codes of the CPU twin, in columns and in records."""

import numpy as np
import pytest
from cuda_runners import SimulatorRunner, assert_same, each_runner
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpuboost.backend.cpu import CpuBackend
from gpuboost.binned.cuts import SENTINEL, Cuts
from gpuboost.binned.pages import DensePage
from gpuboost.kernels.binning import TILE_FEATURES, bin_rows_kernel

UNTOUCHED = 77


def cuts_of(*thresholds):
    """Cuts from each feature's thresholds below the sentinel."""
    each = [np.append(np.asarray(t, np.float32), SENTINEL).astype(np.float32) for t in thresholds]
    offsets = np.cumsum([0, *map(len, each)]).astype(np.int32)
    return Cuts(np.concatenate(each), offsets, np.zeros(len(each), bool), 65535)


def empty_page(cuts, dtype, n_rows, with_records):
    width = -(-cuts.n_features // 8) * 8
    columns, records = (cuts.n_features, n_rows), (n_rows if with_records else 0, width)
    return DensePage(np.full(columns, UNTOUCHED, dtype), np.full(records, UNTOUCHED, dtype))


def bin_rows(run, values, cuts, page, missing, first_row):
    """Missing values whose code did not fit, after a batch of columns (n_features, rows)."""
    n_lost = np.zeros(1, np.int64)
    run(
        bin_rows_kernel, values, missing, cuts.thresholds, cuts.offsets, first_row, page.columns, page.records, n_lost,
        threads=values.shape[1] * -(-len(values) // TILE_FEATURES),
    )  # fmt: skip
    return n_lost[0]


@each_runner
def test_a_hand_sized_column(run):
    #  bins: x < 1 | 1 ≤ x < 2.5 | 2.5 ≤ x        missing: 3
    page = empty_page(cuts := cuts_of([1, 2.5]), np.uint8, 9, True)
    n_lost = bin_rows(run, np.array([[0.5, 1.0, 2.4, 2.5, 9.0, np.nan, -3.0]], np.float32), cuts, page, np.nan, 1)
    assert n_lost == 0
    assert page.columns.tolist() == [[77, 0, 1, 1, 2, 2, 3, 0, 77]]
    assert page.records.tolist() == [[code] + [77] * 7 for code in page.columns[0]]


def check_batch(run, values, cuts, dtype=np.uint8, missing=np.nan, first_row=0, with_records=True):
    """Codes, cells that stay as they were, and the lost codes equal the CPU's. values : float32 (n_features, rows)."""
    page, expected = (empty_page(cuts, dtype, first_row + values.shape[1] + 2, with_records) for _ in range(2))
    n_lost = bin_rows(run, values, cuts, page, missing, first_row)
    assert n_lost == CpuBackend(1).coder.bin_rows(values.T, missing, cuts, first_row, expected)
    assert_same(page.columns, expected.columns)
    assert_same(page.records, expected.records)
    return n_lost


@pytest.mark.parametrize("block", [128, 256])
@pytest.mark.parametrize("n_rows, n_features", [(300, 5), (97, 33)])
def test_blocks_of_several_warps_take_all_rows(block, n_rows, n_features):
    """As large as on a GPU: four rows of a lane, features and parts of the rows dealt to warps."""
    rng = np.random.default_rng(n_rows)
    values = rng.normal(size=(n_features, n_rows)).astype(np.float32)
    cuts = cuts_of(*(np.sort(rng.normal(size=n)) for n in rng.integers(0, 20, n_features)))
    for dtype in (np.uint8, np.uint16):
        check_batch(SimulatorRunner(2, block, "shuffled", 0xA5), values, cuts, dtype, first_row=3)


SPECIAL = [0.0, -0.0, 1.0, 5.0, 1e-45, np.nan, np.inf, -np.inf, SENTINEL]
VALUES = st.sampled_from(SPECIAL) | st.floats(-10, 10, width=32)
THRESHOLDS = st.lists(st.floats(-10, 10, width=32).map(lambda t: t + 0.0), max_size=6).map(np.unique)


@each_runner
@settings(max_examples=15)
@given(
    st.data(), st.lists(THRESHOLDS, min_size=1, max_size=4), st.integers(0, 40), st.sampled_from([np.uint8, np.uint16]),
    st.sampled_from([np.nan, 5.0, 0.0]), st.integers(0, 3), st.booleans(),
)  # fmt: skip
def test_codes_are_the_cpus(run, data, thresholds, n_rows, dtype, missing, first_row, with_records):
    values = data.draw(hnp.arrays(np.float32, (len(thresholds), n_rows), elements=VALUES))
    check_batch(run, values, cuts_of(*thresholds), dtype, missing, first_row, with_records)


@each_runner
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_columns_of_which_nothing_is_known(run, dtype):
    check_batch(run, np.full((2, 5), np.nan, np.float32), cuts_of([], [1.0]), dtype)
    check_batch(run, np.full((2, 5), -999, np.float32), cuts_of([], [1.0]), dtype, missing=-999)
    check_batch(run, np.zeros((2, 0), np.float32), cuts_of([], [1.0]), dtype)


@each_runner
@pytest.mark.parametrize("n_features, n_rows", [(33, 1), (33, 70), (31, 33), (65, 3)])
def test_tiles_that_rows_and_features_do_not_fill(run, n_features, n_rows):
    rng = np.random.default_rng(n_features)
    cuts = cuts_of(*(np.unique(rng.normal(size=f % 7)) for f in range(n_features)))
    values = rng.normal(size=(n_features, n_rows)).astype(np.float32)
    values[rng.random(values.shape) < 0.2] = np.nan
    check_batch(run, values, cuts, first_row=1)


@each_runner
def test_missing_codes_that_do_not_fit_in_a_byte_are_counted(run):
    cuts = cuts_of(np.arange(255), [0.0])  # 256 bins: the missing code would be 256
    values = np.array([[np.nan, 3.0, np.nan, 300.0], [np.nan, 1.0, -0.5, 0.0]], np.float32)
    assert check_batch(run, values, cuts, np.uint8) == 2
    assert check_batch(run, values, cuts, np.uint16) == 0


@each_runner
@pytest.mark.parametrize("n_thresholds", [1, 255, 256, 65534])
def test_every_number_of_bins(run, n_thresholds):
    thresholds = np.arange(n_thresholds, dtype=np.float32)
    at = np.float32(n_thresholds - 1)
    around = [-np.inf, -1, 0, at, np.nextafter(at, np.float32(-1)), np.nextafter(at, np.float32(1e9)), SENTINEL, np.inf, np.nan]
    check_batch(run, np.array([around], np.float32), cuts_of(thresholds), np.uint16)


@each_runner
def test_batches_fill_a_page_one_after_the_other(run):
    rng = np.random.default_rng(6)
    values, cuts = rng.normal(size=(3, 50)).astype(np.float32), cuts_of([0.0], [], [-1.0, 1.0])
    page, expected = (empty_page(cuts, np.uint8, 50, True) for _ in range(2))
    for first, last in ((0, 17), (17, 50)):
        bin_rows(run, np.ascontiguousarray(values[:, first:last]), cuts, page, np.nan, first)
    CpuBackend(1).coder.bin_rows(values.T, np.nan, cuts, 0, expected)
    assert_same(page.columns, expected.columns)
    assert_same(page.records, expected.records)
