"""data/tables/source.py: a table is read batch by batch."""

import numpy as np
import pytest

from gpuboost.data.tables.open import open_table


def test_zero_rows_give_no_batch():
    source = open_table(np.empty((0, 3)))
    assert source.n_rows == 0 and list(source.batches()) == []


def test_default_batches_hold_about_eight_megabytes_and_at_least_1024_rows():
    wide, narrow = np.broadcast_to(np.float32(0), (2000, 10_000)), np.broadcast_to(np.float32(0), (1 << 20, 4))
    assert [len(b) for b in open_table(wide).batches()] == [1024, 976]
    assert [b.nbytes for b in open_table(narrow).batches()] == [8 << 20, 8 << 20]


def test_batch_rows_below_one_is_refused():
    with pytest.raises(ValueError, match="batch_rows must be at least 1, got 0"):
        open_table([[1.0]]).batches(0)
