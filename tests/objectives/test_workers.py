"""Every objective grows one model on 1 to 7 workers, some of them with a row or two."""

import numpy as np
import pytest
from recorded_digests import EXPECTILES, LATER_OBJECTIVES, OBJECTIVES, REFRESHED, ROWS, digest, train

from gpuboost.communicator import run_threads

MODELS = [{**o, "tree_method": "hist", "max_depth": 3} for o in (*OBJECTIVES, *LATER_OBJECTIVES, EXPECTILES)] + REFRESHED[:4]


def name_of(model):
    return ", ".join(f"{key}={value}" for key, value in model.items() if key not in ("tree_method", "max_depth"))


@pytest.mark.sweep(4)
@pytest.mark.filterwarnings("ignore:.*hessians:UserWarning")
@pytest.mark.parametrize("model", MODELS, ids=name_of)
def test_any_number_of_workers_grows_one_model(model):
    expected = digest(train(model, {}).model)
    for cuts in ([100], [1, 120], [2, 3, 50, 51, 170, 240]):
        bounds = [0, *cuts, ROWS]
        boosters = run_threads(
            len(bounds) - 1,
            lambda rank, bounds=bounds: train(model, {"nthread": 1}, slice(bounds[rank], bounds[rank + 1])),
        )
        assert {digest(booster.model) for booster in boosters} == {expected}, bounds
        assert np.unique([booster.num_boosted_rounds() for booster in boosters]).size == 1
