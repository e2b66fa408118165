"""Losses of rankings: pairs of documents of a query in the wrong order, weighed by what that costs (kernels/lambdarank.py)."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from gpuboost.backend.contract import Array
from gpuboost.backend.fixed_point import exact_sum, largest_of, round_key, sum_scale
from gpuboost.backend.queries import Pairs, Queries
from gpuboost.backend.query_rows import QueryRows
from gpuboost.backend.row_sums import RowSums
from gpuboost.communicator import Communicator
from gpuboost.config import warn
from gpuboost.kernels.query_terms import DCG
from gpuboost.kernels.ranked_documents import MAP, NDCG, PAIRWISE
from gpuboost.kernels.scalar import exp_on_host, log_on_host
from gpuboost.objectives import register
from gpuboost.objectives.base import Objective, Parameter, invalid_labels

PAIR_DRAW = 0xFEA70005  # a word beside those of kernels/column_sampling.py
LARGEST_LABEL = 31  # of gains 2^label − 1, XGBoost's
MOST_POSITIONS = 32  # whose bias is estimated with sampled pairs, XGBoost's
SMALLEST_BIAS = 1e-16
SECTION = "lambdarank_param"
BIASES = "ti+", "tj-"  # XGBoost's names of t⁺ and t⁻ in the model file


class LambdaRank(Objective):
    """Of one label a row, by queries. A constant changes no ranking: base_score is 0.

    Remembers from round to round, where lambdarank_unbiased asks for it, the biases t⁺ and t⁻ of positions, float32 each.
    """

    kind: ClassVar[int]
    metric: ClassVar[str]
    ranks_queries = True
    takes = (
        *(Parameter(f"lambdarank_{name}", SECTION, in_formula=False) for name in (
            "pair_method", "num_pair_per_sample", "normalization", "score_normalization", "unbiased", "bias_norm",
        )),
        Parameter("ndcg_exp_gain", SECTION, in_formula=False, instead=""),  # also of the metric ndcg
    )  # fmt: skip

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self._draws = params.lambdarank_pair_method == "mean"
        self._n_pairs = params.lambdarank_num_pair_per_sample or (1 if self._draws else 32)
        self.default_metric = self.metric if self._draws else f"{self.metric}@{self._n_pairs}"
        self._biases = np.zeros((2, 0), np.float32)
        self._ranked: RankedRows | None = None

    def n_outputs(self, n_label_rows: int) -> int:
        if n_label_rows != 1:
            raise ValueError(f"{self.name} takes one label column of relevance, got {n_label_rows}.")
        return 1

    def base_score(self, labels: RowSums, n_outputs: int) -> list[float]:
        return [0.0]

    def check_queries(self, queries: Queries) -> None:
        if not queries.is_given:
            raise ValueError(f"{self.name} needs to know which rows are one query. Pass qid= or group= to the DMatrix.")
        queries.weight  # noqa: B018 - refuses those that differ within a query

    # -- The biases, in the model file ----------------------------------------------------------------------------------

    def carried(self) -> dict[str, list[float]]:
        if not self.params.lambdarank_unbiased:
            return {}
        return {name: [float(str(bias)) for bias in biases] for name, biases in zip(BIASES, self._biases)}

    def carry(self, recorded: Mapping[str, Any]) -> None:
        given = [np.array(recorded.get(name, ()), np.float32) for name in BIASES]
        if self.params.lambdarank_unbiased and len(given[0]) == len(given[1]):
            self._biases = np.stack(given)

    # -- Gradients ------------------------------------------------------------------------------------------------------

    def stage(self, rows: RowSums, round_number: int) -> tuple[Array, Array]:
        queries = rows.queries
        assert queries is not None
        if self._ranked is None or self._ranked.rows is not queries:
            self._ranked = RankedRows(queries, rows.comm)
            if not self._ranked.n_mixed:
                warn(
                    f"no query has documents of different labels, so {self.name} has no pair to learn from and scores all "
                    "documents alike. Check the labels, and that qid or group says which rows are one query.",
                )
            self._unit = rows.backend.memory.put(self.units(queries))
        params, ranked, put = self.params, self._ranked, rows.backend.memory.put
        factor = ranked.factor / self._n_pairs if self._draws and params.lambdarank_normalization else ranked.factor
        pairs = Pairs(
            self.kind, self._n_pairs, params.ndcg_exp_gain, params.lambdarank_score_normalization,
            params.lambdarank_normalization, put(factor), self._unit, put(self._inverse_biases()), put(ranked.ids),
            round_key(params.seed, round_number, PAIR_DRAW) if self._draws else None,
        )  # fmt: skip
        grad, hess, losses = rows.backend.ranker.lambdas(queries, rows.prediction[0], pairs)
        if params.lambdarank_unbiased:
            exponent = 1.0 / (1.0 + params.lambdarank_bias_norm)
            self._biases = ranked.biases(rows.backend.memory.fetch(losses), self._biases, exponent)
        return grad[None], hess[None]

    def units(self, rows: QueryRows) -> np.ndarray:
        """float64 (n_queries,): what the changes of a query's metric are multiplied by."""
        return np.ones(len(rows.queries))

    def _inverse_biases(self) -> np.ndarray:
        """float64 (2, n_positions), 0 for those too small; without any at first, when they are 1."""
        if not self.params.lambdarank_unbiased:
            return np.zeros((2, 0))
        assert self._ranked is not None
        n, most = self._n_pairs, self._ranked.largest_query
        n = min(MOST_POSITIONS, most) if self._draws else n
        biases = np.ones((2, n), np.float32)
        biases[:, : self._biases.shape[1]] = self._biases[:, :n]
        self._biases = biases
        with np.errstate(divide="ignore"):
            return np.where(biases >= SMALLEST_BIAS, 1.0 / biases.astype(np.float64), 0.0)


@register
class RankPairwise(LambdaRank):
    """Any finite labels: only their order counts."""

    name = "rank:pairwise"
    kind, metric = PAIRWISE, "ndcg"


@register
class RankNdcg(LambdaRank):
    """Pairs weigh what NDCG changes by, normalised by that of the best ranking down to the last compared document."""

    name = "rank:ndcg"
    kind, metric = NDCG, "ndcg"

    def check_labels(self, label: np.ndarray) -> None:
        bad = label < 0
        if self.params.ndcg_exp_gain:
            bad = bad | (label != np.floor(label)) | (label > LARGEST_LABEL)
        if bad.any():
            allowed = f"whole numbers from 0 to {LARGEST_LABEL} with ndcg_exp_gain" if self.params.ndcg_exp_gain else "at least 0"
            fix = "Use ndcg_exp_gain=False for gains of your own." if (label >= 0).all() else "Check the labels there."
            raise invalid_labels(label, bad, self.name, allowed, fix)

    def units(self, rows: QueryRows) -> np.ndarray:
        best = rows.terms(DCG, rows.by_label, None if self._draws else self._n_pairs, self.params.ndcg_exp_gain)
        with np.errstate(divide="ignore"):
            return np.where(best > 0, 1.0 / best, 0.0)


@register
class RankMap(LambdaRank):
    """Pairs weigh what the average precision changes by. Labels are 0 or 1."""

    name = "rank:map"
    kind, metric = MAP, "map"

    def check_labels(self, label: np.ndarray) -> None:
        bad = (label != 0) & (label != 1)
        if bad.any():
            raise invalid_labels(label, bad, self.name, "0 or 1", "Use rank:ndcg for degrees of relevance.")

    def units(self, rows: QueryRows) -> np.ndarray:
        if not len(rows.queries):
            return np.zeros(0)
        return 1.0 / np.maximum(np.add.reduceat(rows.host_label > 0, rows.queries.first[:-1], dtype=np.int64), 1)


class RankedRows:
    """The queries that one worker trains on, and what all workers' are needed for.

    factor : float64 (n_queries,). What each query weighs: its weight, over the mean of those above 0.
    ids : int64 (n_queries,). Global number of its first row, among those of weight.
    n_mixed : queries of weight that have documents of different labels, over all workers.
    """

    def __init__(self, rows: QueryRows, comm: Communicator) -> None:
        self.rows, self._comm, queries = rows, comm, rows.queries
        weight, sizes = queries.weight.astype(np.float64), queries.sizes
        self._counts = np.repeat(weight > 0, sizes)  # rows
        kept = np.where(weight > 0, sizes, 0)
        before = sum(comm.allgather_int(int(kept.sum()))[: comm.rank])
        self.ids = before + np.concatenate([[0], np.cumsum(kept)])[:-1].astype(np.int64)
        self.n_queries = sum(comm.allgather_int(int((weight > 0).sum())))
        label, starts = rows.host_label, queries.first[:-1]
        is_mixed = np.maximum.reduceat(label, starts) > np.minimum.reduceat(label, starts) if len(queries) else weight > 0
        self.n_mixed = sum(comm.allgather_int(int((is_mixed & (weight > 0)).sum())))
        self.largest_query = max(comm.allgather_int(int(sizes.max(initial=0))))
        scale = sum_scale(largest_of(weight, comm), self.n_queries)
        self.factor = weight * (self.n_queries * scale / exact_sum(weight, scale, comm))

    def biases(self, losses: np.ndarray, before: np.ndarray, exponent: float) -> np.ndarray:
        """float32 (2, n_positions): (L(i)/L(0))^exponent of the losses summed by position (Hu et al. 2019, Eqs. 30 and 31), as
        they were where L(0) is 0. losses : float64 (2, n_rows)."""
        biases, position = before.copy(), self.rows.queries.position
        counted = self._counts & (position < before.shape[1])
        for k, own in enumerate(losses[:, counted]):
            scale = sum_scale(largest_of(own, self._comm), self.n_queries)
            sums = np.zeros(before.shape[1], np.int64)
            np.add.at(sums, position[counted], np.floor(own * scale + 0.5).astype(np.int64))
            self._comm.allreduce_sum(sums)
            if sums[0] / scale >= SMALLEST_BIAS:
                biases[k] = [exp_on_host(exponent * log_on_host(n / sums[0])) if n else 0.0 for n in sums.tolist()]
        return biases
