"""Treelite loads our files, with the same predictions."""

import numpy as np
import pytest
from random_models import plain_margins, random_model, random_table

from gpuboost.model_io import save_model

treelite = pytest.importorskip("treelite", minversion="4.0", reason="treelite is not installed: pip install treelite")


@pytest.mark.parametrize("raw_format", ["json", "ubj"])
@pytest.mark.parametrize("objective", ["reg:squarederror", "multi:softprob"])
def test_treelite_predicts_our_file_as_the_trees_say(tmp_path, objective, raw_format):
    for seed in range(3):
        model, table = random_model(seed, objective=objective), random_table(seed)
        save_model(model, tmp_path / f"m.{raw_format}")
        theirs = treelite.gtil.predict(
            treelite.frontend.load_xgboost_model(tmp_path / f"m.{raw_format}"), table, pred_margin=True
        )
        ours = plain_margins(model, table, np.array(model.base_score, np.float32))
        np.testing.assert_allclose(theirs.reshape(ours.shape), ours, rtol=0, atol=2e-6)  # another order of float32 sums
