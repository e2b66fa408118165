"""backend/draws.py: the features that a round draws, and where their bins and cells go."""

import numpy as np
import pytest
from packed_tables import cuts_of

from gpuboost.backend.draws import all_columns, draw_columns, most_bins
from gpuboost.params import Params

N_BINS = [3, 1, 4, 2, 9, 5, 1, 1, 6, 2]
CUTS = cuts_of(N_BINS)


def layouts(share, rounds=300, seed=1, weights=()):
    settings = Params(colsample_bytree=share, seed=seed, feature_weights=weights)
    return settings, [draw_columns(settings, CUTS, round_number) for round_number in range(rounds)]


def test_all_features_have_the_offsets_of_the_table():
    settings, layout = Params(), all_columns(CUTS)
    assert layout.features.tolist() == list(range(10))
    assert layout.offsets.tolist() == CUTS.offsets.tolist()
    assert layout.renumber_cells(CUTS).tolist() == list(range(sum(N_BINS) + 10))
    assert most_bins(settings, CUTS) == sum(N_BINS)


@pytest.mark.parametrize("share, n", [(0.01, 1), (0.29, 2), (0.5, 5), (0.7, 7), (0.99, 9)])
def test_a_round_draws_a_share_rounded_down_and_at_least_one(share, n):
    """Each feature as often as any other: within 5 standard deviations of a binomial distribution."""
    settings, found = layouts(share)
    n_bins, counts = np.array(N_BINS), np.zeros(10)
    for layout in found:
        assert len(layout.features) == n and (np.diff(layout.features) > 0).all()
        assert layout.offsets.tolist() == [0, *np.cumsum(n_bins[layout.features]).tolist()]
        assert layout.offsets[-1] <= most_bins(settings, CUTS) == np.sort(n_bins)[10 - n :].sum()
        counts[layout.features] += 1
    assert np.abs(counts - 30 * n).max() <= 5 * np.sqrt(30 * n * (1 - n / 10))


def test_weights_and_seeds_decide_what_is_drawn():
    _, weighted = layouts(0.5, weights=(0, 1, 1, 1, 1, 1, 0, 0, 0, 0))
    assert {tuple(layout.features.tolist()) for layout in weighted} == {(1, 2, 3, 4, 5)}
    draws = [[layout.features.tolist() for layout in layouts(0.5, seed=seed)[1]] for seed in (1, 2)]
    assert draws[0] != draws[1]


def test_cells_of_other_features_have_no_number():
    for layout in layouts(0.5, rounds=20)[1]:
        new, n_own = layout.renumber_cells(CUTS), layout.offsets[-1]
        assert new.dtype == np.int32 and len(new) == sum(N_BINS) + 10
        for f in range(10):
            cells = [*range(CUTS.offsets[f], CUTS.offsets[f + 1]), sum(N_BINS) + f]
            if f in layout.features:
                i = layout.features.tolist().index(f)
                assert new[cells].tolist() == [*range(layout.offsets[i], layout.offsets[i + 1]), n_own + i]
            else:
                assert (new[cells] == -1).all()
