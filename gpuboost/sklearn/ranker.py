"""The ranker."""

from typing import Any, Self

import numpy as np

from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.tables.device import is_device_table
from gpuboost.data.tables.host_frames import computed
from gpuboost.objectives import find_objective
from gpuboost.positional import also_by_position
from gpuboost.sklearn.base import GPUBoostModel, checked_pairs, one_each
from gpuboost.sklearn.matrices import refuse_info
from gpuboost.sklearn.parameters import PARAMETERS

__all__ = ["GPUBoostRanker"]

QID = "qid"  # the column of a frame that names the query of each row


class GPUBoostRanker(GPUBoostModel, objective="rank:ndcg"):
    __doc__ = f"""Gradient boosted trees that rank the rows of each query by relevance. XGBoost's XGBRanker.

    Rows of a query follow each other; which those are say group, qid, or a column "qid" of X where X is a frame.

{PARAMETERS}
    """

    @also_by_position("group", "qid", is_fit=True)
    def fit(
        self, X, y, *, group=None, qid=None, sample_weight=None, base_margin=None, eval_set=None, eval_group=None, eval_qid=None,
        sample_weight_eval_set=None, base_margin_eval_set=None, verbose=False, xgb_model=None,
        feature_weights=None,
    ) -> Self:  # fmt: skip
        """Train on a table X (n_samples, n_features) and degrees of relevance y (n_samples,).

        group : rows of each query. qid : (n_samples,) integers that never decrease, instead. eval_group, eval_qid : one of them
        for each pair of eval_set. sample_weight : one weight per query. Others as GPUBoostRegressor.fit.
        """
        if self.refit_full:
            raise ValueError("refit_full joins tables, not queries. Leave it out.")
        X, of_rows = _split(X, group, qid, "group or qid")
        pairs = checked_pairs(eval_set)
        groups, qids = (one_each(name, v, pairs) for name, v in (("eval_group", eval_group), ("eval_qid", eval_qid)))
        split = [_split(pair[0], g, q, "eval_group or eval_qid") for pair, g, q in zip(pairs, groups, qids)]
        return self._fit(
            X, y, {"weight": sample_weight, "base_margin": base_margin, "feature_weights": feature_weights, **of_rows},
            [(table, pair[1]) for (table, _), pair in zip(split, pairs)], sample_weight_eval_set, base_margin_eval_set, verbose,
            xgb_model, [queries for _, queries in split],
        )  # fmt: skip

    def predict(
        self, X, *, output_margin=False, validate_features=True, base_margin=None, iteration_range=None
    ) -> np.ndarray:
        """float32 (n_samples,): scores, of which those of one query can be compared. A column "qid" of a frame is left out."""
        return self._predict(_without_qid(X)[0], output_margin, validate_features, base_margin, iteration_range)

    def apply(self, X, iteration_range=None) -> np.ndarray:
        return super().apply(_without_qid(X)[0], iteration_range)

    def explained_table(self, X: Any) -> Any:
        return _without_qid(X)[0]

    def score(self, X, y, *, group=None, qid=None) -> float:
        """The last metric of eval_metric, as a rule NDCG. Queries as in fit."""
        X, queries = _split(X, group, qid, "group or qid")
        booster = self.get_booster()[slice(*self._rounds(None))] if self._rounds(None)[1] else self.get_booster()
        data = self._matrix(self._checked_table(X, reset=False), label=self._encoded(y, "y"), **queries)
        return booster.evaluate([(data, "eval")], self._functions().get("custom_metric"))[-1][2]

    def _objective_name(self) -> str:
        name = super()._objective_name()
        if callable(self.objective) or not getattr(find_objective(str(name)), "ranks_queries", False):
            given = self.objective if callable(self.objective) else name
            raise ValueError(f"objective of a ranker must be rank:ndcg, rank:map or rank:pairwise, got {given!r}.")
        return name


def _split(X: Any, group: Any, qid: Any, names: str) -> tuple[Any, dict[str, Any]]:
    """A table without the column of queries, and its queries as DMatrix takes them. Raises ValueError where there is not one way
    that says them."""
    if isinstance(X, DMatrix):
        refuse_info(X, group=group, qid=qid)
        return X, {}
    X, of_column = _without_qid(X)
    given = [(name, values) for name, values in (("group", group), (QID, qid), (QID, of_column)) if values is not None]
    if len(given) != 1:
        raise ValueError(
            f"a ranker needs to know once which rows are one query, and was told {len(given) or 'not'}"
            f"{' times' if given else ''}. Pass {names}, or a frame with a column {QID!r}."
        )
    return X, dict(given)


def _without_qid(X: Any) -> tuple[Any, Any]:
    """(a frame without the column "qid", that column), or (X, None)."""
    X = computed(X)
    names = getattr(X, "column_names", getattr(X, "columns", ()))
    if QID not in list(names):
        return X, None
    if is_device_table(X):
        return X.drop(columns=[QID]), X[QID]
    import narwhals as nw

    frame = nw.from_native(X)
    return frame.drop(QID).to_native(), frame[QID].to_numpy()
